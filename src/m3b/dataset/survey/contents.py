"""Samples of a group: geometry, type and value structure of a few files. A file that does not open is counted, never raised."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from statistics import median
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.dataset.archives import local_file
from m3b.dataset.formats import read_labels
from m3b.dataset.survey.facts import MASK_KINDS, Content, Layers, Level, Shape, SurveyLimits, ValueKind
from m3b.dataset.survey.values import MAX_LEVELS, ValueStructure, analyse_values, combine_layers
from m3b.dataset.survey.words import side_of

_MIN_COUNTS, _MIN_LARGEST_COUNT = 3, 4
"""Different numbers of objects, and the most in one picture, from which on values number objects: three structures of which one
is rare have 1 to 2 and 1 to 3."""


ARRAY_ERRORS = ("several_arrays", "stack", "vector")
"""Of files of arrays that are no single picture or volume; `m3b.dataset.survey.containers` says what they hold."""
ARRAY_FORMATS = ("array", "pickle", "hdf5", "mat")
MAX_CONTAINERS = 4
"""Files of a group up to which an array of four axes is taken for a stack of items."""
_MAX_PAGES = 9
"""Evenly spaced pages of a picture of several that are read: the first slices of a volume often show nothing."""
_MAX_OVERLAP_IMAGES, _MAX_OVERLAP_MASKS = 4, 3
"""Images, and masks of each, that are read to measure how far the masks of one image overlap."""


@dataclass(frozen=True)
class Sample:
    """What one file showed; with `error` set, nothing else is, but of a stack what an item in its middle shows.

    Args:
        shape: rows, columns[, slices] upright, channels left out.
        slope: a scale factor other than 1.
        palette: value -> colour "#rrggbb".
        turned: whether an EXIF orientation turns the picture.
        slide: whether it is a whole-slide image, of which the overview was looked at.
    """

    error: str = ""
    shape: tuple[int, ...] = ()
    channels: int = 1
    frames: int = 1
    dims: int = 2
    dtype: str = ""
    bits: int = 0
    spacing: tuple[float, ...] | None = None
    modality: str = ""
    structure: ValueStructure = field(default_factory=ValueStructure)
    slope: float | None = None
    palette: dict[str, str] | None = None
    turned: bool = False
    slide: bool = False
    layers: Layers | None = None

    @property
    def is_mask(self) -> bool:
        """Whether the values are those of a mask or label map."""
        return self.structure.kind in MASK_KINDS


def read_sample(root: Path, path: str, file_format: str, limits: SurveyLimits, files: int = 1) -> Sample:
    """Open one image file within limits. Never raises for what a file holds.

    Args:
        files: of the group.
    """
    full = local_file(root, path)
    try:
        status = os.lstat(full)
        is_store = stat.S_ISDIR(status.st_mode) and file_format in ARRAY_FORMATS
        if not stat.S_ISREG(status.st_mode) and not is_store:
            return Sample("special")
        if not status.st_size:
            return Sample("empty")
        is_large = status.st_size > limits.file_bytes
        if is_large and not (file_format == "picture" and attempt(lambda: _find_overview(full), root, path)):
            return Sample("large")
        if file_format in ARRAY_FORMATS:
            return attempt(lambda: _read_only_array(full, limits, files), root, path)
        reader = _READERS.get(file_format)
        if reader is None:
            return Sample("unknown_format")
        return attempt(lambda: reader(full, limits), root, path)
    except Unreadable as error:
        code = "truncated" if "truncated" in str(error).lower() else error.code
    except OSError:
        code = "unreadable"
    return Sample("no_permission" if os.path.exists(full) and not os.access(full, os.R_OK) else code)


def _check_pixels(count: int, limits: SurveyLimits) -> None:
    if count > limits.pixels:
        raise Unreadable("large", f"{count:,} values")


def _read_picture(path: Path, limits: SurveyLimits) -> Sample:
    import numpy as np
    from PIL import Image, ImageOps

    if overview := _find_overview(path):
        return _read_slide(path, overview)
    with Image.open(path) as picture:
        frames = int(getattr(picture, "n_frames", 1))
        _check_pixels(picture.width * picture.height * min(frames, _MAX_PAGES), limits)
        turned = picture.getexif().get(0x0112, 1) in range(2, 9)
        mode = picture.mode
        palette = _read_palette(picture) if mode == "P" else None
        pages = []
        for page in dict.fromkeys(int((at + 0.5) * frames / _MAX_PAGES) for at in range(_MAX_PAGES)):
            picture.seek(page if frames > 1 else 0)
            picture.load()
            upright = ImageOps.exif_transpose(picture) if turned else picture
            if mode in ("RGBA", "CMYK", "YCbCr", "PA", "LA"):
                upright = upright.convert("RGB" if mode != "LA" else "L")
            pages.append(np.asarray(upright))
    array = pages[0]
    dtype = {"1": "bit", "P": "palette"}.get(mode, str(array.dtype))
    colours = array.ndim == 3
    values = np.stack([page for page in pages if page.shape == array.shape]) if len(pages) > 1 else array
    structure = analyse_values(values[..., :3] if colours else values, channels_last=colours)
    return Sample(
        shape=tuple(map(int, array.shape[:2])),
        channels=3 if colours else 1,
        frames=frames,
        dtype=dtype,
        bits=1 if mode == "1" else 8 * array.dtype.itemsize,
        structure=structure,
        palette=palette,
        turned=turned,
    )


def _find_overview(path: Path) -> str:
    """Return the path of the overview of a slide; "" of other pictures."""
    from m3b.dataset.formats import overview_path

    overview = overview_path(str(path))
    return str(overview) if overview != str(path) else ""


def _read_slide(path: Path, overview: str) -> Sample:
    import numpy as np

    from m3b.dataset.formats import probe_image, read_image

    info, array = probe_image(str(path)), read_image(overview).array
    structure = analyse_values(np.moveaxis(array, 0, -1), channels_last=True)
    return Sample(
        shape=info.shape,
        channels=3,
        dtype=str(array.dtype),
        bits=8,
        spacing=info.spacing,
        structure=structure,
        slide=True,
    )


def _read_palette(picture: Any) -> dict[str, str]:
    flat = picture.getpalette() or []
    return {
        str(at): f"#{flat[3 * at]:02x}{flat[3 * at + 1]:02x}{flat[3 * at + 2]:02x}"
        for at in range(min(len(flat) // 3, 256))
    }


def _read_nifti(path: Path, limits: SurveyLimits) -> Sample:
    import nibabel
    import numpy as np

    image: Any = nibabel.load(path)
    shape = tuple(int(side) for side in image.shape)
    frames = int(np.prod(shape[3:])) if len(shape) > 3 else 1
    _check_pixels(int(np.prod(shape[:3])), limits)
    proxy = image.dataobj
    stored = (
        proxy.get_unscaled()
        if hasattr(proxy, "get_unscaled") and frames == 1
        else np.asarray(proxy[..., 0] if frames > 1 else proxy)
    )
    slope = getattr(proxy, "slope", 1.0)
    intercept = getattr(proxy, "inter", 0.0)
    array = np.asarray(stored)
    if array.dtype.names:  # RGB volumes
        array = np.stack([array[name] for name in array.dtype.names[:3]], axis=-1)
        structure = analyse_values(array, channels_last=True)
    else:
        while array.ndim > 3:
            array = array[..., 0]
        flat = array.ndim == 3 and array.shape[-1] == 1
        structure = analyse_values(array[..., 0] if flat else array)
    spatial = [side for side in shape[:3] if side > 1] if 1 in shape[:3] else list(shape[:3])
    dims = 3 if len(spatial) == 3 else 2
    zooms = tuple(round(float(zoom), 5) for zoom in image.header.get_zooms()[:dims])
    scaled = slope not in (None, 1.0) or intercept not in (None, 0.0)
    if scaled and structure.kind in MASK_KINDS and not array.dtype.names:
        structure = analyse_values(read_labels(str(path)).array)  # what masks of scaled numbers are read as
    return Sample(
        shape=tuple(shape[:dims]),
        channels=3 if array.dtype.names else 1,
        frames=frames,
        dims=dims,
        dtype=str(image.get_data_dtype()),
        spacing=zooms,
        structure=structure,
        slope=float(slope) if scaled and slope is not None else None,
    )


def _read_dicom(path: Path, limits: SurveyLimits) -> Sample:
    import numpy as np
    import pydicom

    header = pydicom.dcmread(path, force=True)
    modality = str(header.get("Modality", ""))
    if "PixelData" not in header:
        return Sample("no_pixels", modality=modality)
    frames = int(header.get("NumberOfFrames", 1) or 1)
    _check_pixels(int(header.Rows) * int(header.Columns) * frames, limits)
    array = np.asarray(header.pixel_array)
    channels = int(header.get("SamplesPerPixel", 1) or 1)
    first = array[0] if frames > 1 else array
    spacing = header.get("PixelSpacing") or header.get("ImagerPixelSpacing")
    return Sample(
        shape=tuple(map(int, first.shape[:2])),
        channels=channels,
        frames=frames,
        dtype=str(array.dtype),
        bits=int(header.get("BitsStored", 0) or 0),
        spacing=tuple(float(side) for side in spacing) if spacing else None,
        modality=modality,
        structure=analyse_values(first, channels_last=channels == 3),
    )


def _read_itk(path: Path, limits: SurveyLimits) -> Sample:
    import numpy as np
    import SimpleITK

    reader = SimpleITK.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    size = [int(side) for side in reader.GetSize()]
    _check_pixels(int(np.prod(size)) * reader.GetNumberOfComponents(), limits)
    image = reader.Execute()
    array = SimpleITK.GetArrayFromImage(image)
    channels = image.GetNumberOfComponentsPerPixel()
    spatial = size[:-1] if len(size) == 3 and size[-1] == 1 else size
    array = array[0] if len(size) == 3 and size[-1] == 1 else array
    structure = (
        analyse_values(array, channels_last=True)
        if channels == 3
        else analyse_values(array[..., 0] if channels > 1 else array)
    )
    return Sample(
        shape=tuple(spatial) if len(spatial) > 2 else tuple(spatial[::-1]),
        channels=channels,
        dims=len(spatial),
        dtype=str(array.dtype),
        spacing=tuple(round(float(side), 5) for side in image.GetSpacing()[: len(spatial)]),
        structure=structure,
    )


def _read_video(path: Path, limits: SurveyLimits) -> Sample:
    import av

    from m3b.dataset.formats import probe_image

    with av.open(str(path)) as clip:
        stream = clip.streams.video[0]
        _check_pixels(stream.width * stream.height, limits)
        frame = next(clip.decode(stream))
        array = frame.to_ndarray(format="rgb24")
        return Sample(
            shape=(int(array.shape[0]), int(array.shape[1])),
            channels=3,
            frames=int(stream.frames) or probe_image(str(path)).frames,
            dtype="uint8",
            bits=8,
            structure=analyse_values(array, channels_last=True),
        )


def holds_part(path: str, files: int) -> bool:
    """Return whether a file is one of few that are called after the parts of a set: `train_images.npy` and `test_images.npy`."""
    return files <= MAX_CONTAINERS and bool(side_of(Path(path).stem))


def is_stack(shape: tuple[int, ...], vectors: set[int], files: int, *, is_part: bool = False) -> bool:
    """Return whether the first axis counts items: an array of that length lies beside it, or the shape leaves no other reading.

    Args:
        is_part: whether the file is called after a part of a set.
    """
    if len(shape) < 3:
        return False
    if is_part and shape[-1] not in (1, 3, 4):
        return True
    if shape[0] in vectors and (len(shape) > 3 or shape[0] not in shape[1:]):
        return True
    if len(shape) == 4:
        return files <= MAX_CONTAINERS and shape[0] > 4
    return len(shape) == 5 or (
        len(shape) == 3 and shape[-1] not in (1, 3, 4) and shape[1] == shape[2] and shape[0] > 2 * shape[1]
    )


def _read_only_array(path: Path, limits: SurveyLimits, files: int) -> Sample:
    """The one array of two axes or more that a file holds; files of several tell nothing as a whole."""
    import numpy as np

    from m3b.dataset.reading import open_arrays

    arrays = {name: array for name, array in open_arrays(path).items() if len(getattr(array, "shape", ())) > 1}
    if len(arrays) != 1:
        return Sample("several_arrays" if arrays else "vector")
    array = next(iter(arrays.values()))
    if is_stack(tuple(array.shape), set(), files, is_part=holds_part(path.name, files)):
        return replace(sample_array(np.asarray(array[array.shape[0] // 2])), error="stack")
    _check_pixels(int(np.prod(array.shape)), limits)
    return sample_array(np.asarray(array[...]))


def sample_array(array: Any) -> Sample:
    """Return what an array shows.

    Args:
        array: a picture `(H, W)`, `(H, W, C)`, `(C, H, W)`, a volume `(H, W, D)`, or one with channels first or last.
    """
    import numpy as np

    if (combined := combine_layers(array)) is not None:
        labels, layers = combined
        shape = tuple(map(int, labels.shape))
        return Sample(shape=shape, dtype=str(array.dtype), structure=analyse_values(labels), layers=layers)
    channels = 1
    if array.ndim == 4:
        channels = min(array.shape[0], array.shape[-1])
        array = array[0] if array.shape[0] <= array.shape[-1] else array[..., 0]
    elif array.ndim == 3 and array.shape[-1] in (1, 3, 4):
        channels = array.shape[-1]
    elif array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[0] < min(array.shape[1:]):
        channels = array.shape[0]
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == channels and channels > 1:
        structure = (
            analyse_values(array[..., :3], channels_last=True) if channels >= 3 else analyse_values(array[..., 0])
        )
        shape = array.shape[:2]
    else:
        array = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
        structure, shape = analyse_values(array), array.shape
    dims = 3 if len(shape) == 3 else 2
    return Sample(
        shape=tuple(map(int, shape)), channels=int(channels), dims=dims, dtype=str(array.dtype), structure=structure
    )


_READERS: dict[str, Callable[[Path, SurveyLimits], Sample]] = {
    "picture": _read_picture,
    "nifti": _read_nifti,
    "dicom": _read_dicom,
    "itk": _read_itk,
    "video": _read_video,
}


def read_grid(root: Path, path: str) -> tuple[int, ...]:
    """Return rows and columns (upright), and slices of a volume, by the header of an image; () if it does not open."""
    from m3b.dataset.formats import DataError, probe_image

    try:
        return tuple(probe_image(str(local_file(root, path))).shape)
    except (DataError, OSError):
        return ()


def measure_overlap(root: Path, masks: Iterable[Sequence[str]], cut: float | None = None) -> float | None:
    """Return the median intersection over union of two masks of one image; None if no two open with the same shape.

    Args:
        masks: paths of the masks of each image, of which the first few are read.
        cut: value above which masks with the noise of compression are marked; others are where they are not 0.
    """
    import numpy as np

    from m3b.dataset.formats import DataError, read_image

    overlaps = []
    for paths in islice((paths for paths in masks if len(paths) > 1), _MAX_OVERLAP_IMAGES):
        arrays = []
        for path in paths[:_MAX_OVERLAP_MASKS]:
            try:
                array = read_image(str(local_file(root, path))).array
            except (DataError, OSError):
                continue
            arrays.append((array > cut if cut is not None else array != 0).any(axis=0))
        for first, second in combinations(arrays, 2):
            if first.shape == second.shape and (union := np.count_nonzero(first | second)):
                overlaps.append(np.count_nonzero(first & second) / union)
    return round(float(median(overlaps)), 4) if overlaps else None


def summarise(samples: Sequence[Sample]) -> Content:
    """Return what samples of one group have in common."""
    readable = [sample for sample in samples if not sample.error]
    truncated = sum(sample.error == "truncated" for sample in samples)
    if not readable:
        modality = tuple(sorted({sample.modality for sample in samples if sample.modality}))
        errors = tuple(sorted({sample.error for sample in samples}))
        return Content(samples=len(samples), failed=len(samples), errors=errors, truncated=truncated, modality=modality)
    dims = {sample.dims for sample in readable}
    frames = [sample.frames for sample in readable]
    shapes = Counter(sample.shape for sample in readable)
    slopes = [sample.slope for sample in readable if sample.slope is not None]
    return Content(
        samples=len(samples),
        failed=len(samples) - len(readable),
        truncated=truncated,
        dims=dims.pop() if len(dims) == 1 else None,
        channels=tuple(sorted({sample.channels for sample in readable})),
        colour=2 * sum(sample.structure.colour for sample in readable) > len(readable),
        frames=(min(frames), max(frames)) if max(frames) > 1 else None,
        shapes=tuple(
            Shape(shape=shape, count=count)
            for shape, count in sorted(shapes.items(), key=lambda item: (-item[1], item[0]))[:8]
        ),
        spacing=_median_spacing([sample.spacing for sample in readable if sample.spacing]),
        dtypes=tuple(sorted({sample.dtype for sample in readable})),
        bits=tuple(sorted({sample.bits for sample in readable if sample.bits})),
        modality=tuple(sorted({sample.modality for sample in readable if sample.modality})),
        slope=median(slopes) if slopes else None,
        palette=any(sample.palette for sample in readable),
        turned=sum(sample.turned for sample in readable),
        slides=sum(sample.slide for sample in readable),
        layers=_common_layers(readable),
        **_summarise_values(readable),
    )


def _common_layers(samples: Sequence[Sample]) -> Layers | None:
    """The layers of all samples that mark anything."""
    layers = Counter(sample.layers for sample in samples if sample.structure.kind != "constant")
    if None in layers or len({item.count for item in layers if item is not None}) != 1:
        return None
    return layers.most_common(1)[0][0]


def _median_spacing(spacings: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    if not spacings:
        return None
    length = Counter(map(len, spacings)).most_common(1)[0][0]
    equal = [spacing for spacing in spacings if len(spacing) == length]
    return tuple(round(median(spacing[axis] for spacing in equal), 5) for axis in range(length))


def _summarise_values(samples: list[Sample]) -> dict[str, Any]:
    structures = [sample.structure for sample in samples]
    kind = _common_kind(structures)
    facts: dict[str, Any] = {
        "values": kind,
        "low": min(structure.low for structure in structures),
        "high": max(structure.high for structure in structures),
    }
    if kind not in MASK_KINDS and kind != "constant":
        return facts
    shares = sorted(structure.foreground for structure in structures if structure.foreground is not None)
    cuts = [structure.cut for structure in structures if structure.cut is not None]
    objects = [structure.objects for structure in structures if structure.objects is not None]
    facts["cut"] = median(cuts) if cuts and kind == "lossy_binary" else None
    facts["foreground"] = (
        tuple(round(share, 5) for share in (shares[0], median(shares), shares[-1])) if shares else None
    )
    facts["empty"] = sum(structure.kind == "constant" for structure in structures)
    facts["objects"] = (min(objects), max(objects)) if objects else None
    if kind == "lossy_binary":
        structures = [structure for structure in structures if structure.kind == "lossy_binary"]
    facts["levels"] = _sum_levels(structures, next((sample.palette for sample in samples if sample.palette), None))
    return facts


def _sum_levels(structures: Iterable[ValueStructure], palette: dict[str, str] | None) -> tuple[Level, ...]:
    shares, files = Counter[str](), Counter[str]()
    structure_count = 0
    for structure in structures:
        if structure.levels:
            structure_count += 1
            shares.update(structure.levels)
            files.update(structure.levels.keys())
    ordered = sorted(shares, key=lambda text: (text.startswith("#"), text if text.startswith("#") else float(text)))
    return tuple(
        Level(
            value=text,
            share=round(shares[text] / structure_count, 6),
            samples=files[text],
            colour=(palette or {}).get(text, ""),
        )
        for text in ordered[:MAX_LEVELS]
    )


def _common_kind(structures: list[ValueStructure]) -> ValueKind:
    """One kind for several files: the strictest that holds for nearly all of them."""
    telling = [structure for structure in structures if structure.kind != "constant"]
    kinds = Counter(structure.kind for structure in telling)
    if not telling:
        return "binary" if len({structure.low for structure in structures}) == 2 else "constant"
    masks = sum(count for kind, count in kinds.items() if kind in MASK_KINDS)
    if masks >= 0.75 * len(telling):
        return _common_mask_kind(telling, kinds)
    pictures: Counter[ValueKind] = Counter({kind: count for kind, count in kinds.items() if kind not in MASK_KINDS})
    return pictures.most_common(1)[0][0]


def _common_mask_kind(structures: list[ValueStructure], kinds: Counter[ValueKind]) -> ValueKind:
    if kinds["colour_regions"]:
        return "colour_regions"
    if kinds["colour_labels"]:
        return "colour_labels"
    if kinds["instance_ids"]:
        return "instance_ids"
    if (
        kinds["few_integers"]
        or len({value for structure in structures if structure.kind == "binary" for value in structure.levels}) > 2
    ):
        labelled = [structure for structure in structures if structure.kind in ("few_integers", "binary")]
        counts = [
            structure.instances
            if structure.kind == "few_integers"
            else int(structure.high == 1 and structure.objects == 1)
            for structure in labelled
        ]
        if counts and all(counts) and len(set(counts)) >= _MIN_COUNTS and max(counts) >= _MIN_LARGEST_COUNT:
            return "instance_ids"
        return "few_integers"
    return "lossy_binary" if kinds["lossy_binary"] else "binary"
