"""What one look at each image shows: pixels and header, its mask as a drawing, and whether its boxes lie in it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from m3b.data import kinds
from m3b.data.index import Index
from m3b.data.records import Channels, Image, Mask, Record, paths_of, plain
from m3b.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_HEADER_VALUE = 40
"""Characters of a header field that may be a code; longer ones are prose."""
_CODE_TYPES = frozenset({"CS", "SH", "LO", "IS", "DS", "US", "SS", "UL", "FD", "FL", "ST"})
"""DICOM value representations that can hold a code; dates, times, persons and UIDs differ from image to image anyway."""
_FIELDS_OF_ONE_IMAGE = frozenset(
    (
        "PatientID", "StudyID", "AccessionNumber", "SeriesNumber", "InstanceNumber", "AcquisitionNumber", "SliceLocation", "Rows",
        "Columns", "SmallestImagePixelValue", "LargestImagePixelValue", "WindowCenter", "WindowWidth",
    )
)  # fmt: skip
"""Fields that number images or follow from their pixels."""
CHUNK_VOXELS, MAX_VALUES = 1 << 22, 4096
COARSE_SIDE = 32
MAX_COMPARED_SIDE = 192
DARK = 0.06
"""Share of an image's range below which a pixel belongs to the black around it."""


@dataclass(frozen=True, slots=True)
class CoarseMask:
    """A mask on a grid of at most 32 a side, a bit for each cell, since those of all masks are held."""

    bits: bytes
    shape: tuple[int, ...]

    @classmethod
    def pack(cls, grid: NDArray[np.bool_]) -> CoarseMask:
        """Return a grid in packed form."""
        import numpy as np

        return cls(np.packbits(grid).tobytes(), grid.shape)

    def unpack(self) -> NDArray[np.bool_]:
        """Return the grid."""
        import numpy as np

        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=math.prod(self.shape))
        return bits.astype(np.bool_).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class DrawingFacts:
    """What a mask looks like as a drawing.

    Args:
        coarse: the marked part.
        marked: voxels that are marked.
        scattered: of the marked voxels of the fullest slice, the share with no marked neighbour.
        is_lossy: whether the file holds two levels with compression noise around them.
        visible_overlap: overlap (IoU) of the marked part and of what the image shows; 0 if the image has no dark border.
    """

    coarse: CoarseMask
    marked: int
    scattered: float
    is_lossy: bool
    visible_overlap: float


@dataclass(frozen=True, slots=True)
class MaskProbe:
    """What the mask of a case showed; with `error` set, only `file` is.

    Args:
        file: the mask; of several the first with a problem.
        offset: by how much the mask lies beside its image, in voxels; None if one of them has no position.
        is_unplaced: whether the image has a position and the mask has none.
        class_voxels: class -> voxels.
        unnamed: value that label_dict.json does not name -> voxels.
        drawing: None if nothing that was requested is marked.
    """

    file: str
    error: str = ""
    shape: tuple[int, ...] = ()
    has_image_shape: bool = True
    offset: float | None = None
    is_unplaced: bool = False
    is_float: bool = False
    equals_image: bool = False
    digest: str = ""
    class_voxels: dict[str, int] = field(default_factory=dict)
    unnamed: dict[int, int] = field(default_factory=dict)
    drawing: DrawingFacts | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        return not self.error and not any(self.class_voxels.values())


@dataclass(frozen=True, slots=True)
class BoxProbe:
    """What is wrong with the boxes of an image, by the first such box; empty texts if nothing is."""

    error: str = ""
    wrong_dims: str = ""
    outside_box: str = ""
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class ImageProbe:
    """What an image showed; with `error` set, nothing else is.

    Args:
        thumbnail, detail, volume_means: see `m3b.dataset.similarity`; in half precision, since those of many images are held.
        flat: whether it has a single value.
        size: (C, H, W) or (C, H, W, D).
        header: coded fields of a DICOM header.
        frames: volumes along an axis that the header calls time, and seconds between them.
    """

    shape: str = ""
    digest: str = ""
    thumbnail: NDArray[np.floating[Any]] | None = None
    detail: NDArray[np.floating[Any]] | None = None
    volume_means: NDArray[np.floating[Any]] | None = None
    flat: bool = False
    error: str = ""
    size: tuple[int, ...] = ()
    spacing: tuple[float, ...] | None = None
    bytes: int = 0
    mask: MaskProbe | None = None
    boxes: BoxProbe | None = None
    header: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[int, float] = (0, 0.0)


def unit_keys(record: Record, task: str) -> tuple[str, ...]:
    """Return the keys of the images of a case as they are opened: the views of a study one by one, slices together."""
    return record.images if kinds.separate(record, task) else (record.key,)


@dataclass(frozen=True)
class ProbeScope:
    """What is looked at besides the images: masks or boxes, and the values of classes in masks."""

    task: str
    target: Literal["masks", "boxes", ""]
    values: dict[str, int]


def make_scope(index: Index) -> ProbeScope:
    """Return what is looked at in the cases of an index."""
    target: Literal["masks", "boxes", ""] = "boxes" if index.boxed else "masks" if index.masked else ""
    return ProbeScope(index.task, target, index.values)


def probe_record(record: Record, scope: ProbeScope, work: Path) -> dict[str, ImageProbe]:
    """Open the images of a case, and its mask; return a probe for each of `unit_keys`."""
    if scope.target:
        return {record.key: probe_image(record.image, work, record, scope)}
    keys = unit_keys(record, scope.task)
    images = (record.image,) if keys == (record.key,) else record.images
    return {key: probe_image(image, work) for key, image in zip(keys, images, strict=True)}


def probe_image(image: Image, work: Path, record: Record | None = None, scope: ProbeScope | None = None) -> ImageProbe:
    """Open one image; a failure becomes `ImageProbe.error`. The mask or boxes of `record` are compared with it."""
    import numpy as np

    from m3b.dataset.reading import read_image, read_overview
    from m3b.dataset.similarity import make_thumbnails, make_volume_means

    read = read_image if scope and scope.target else read_overview  # masks and boxes are those of the full size
    try:
        image_data = read(plain(image), str(work))
    except DataError as error:
        return ImageProbe(error=str(error).replace(f"{work}/", ""))
    array = image_data.array
    if not array.size:
        return ImageProbe(error=f"{image}: an image of shape {'x'.join(map(str, array.shape))}, which holds no pixels")
    thumbnail, detail = make_thumbnails(array)
    volume_means = make_volume_means(array[0]) if array.ndim == 4 else None
    over_time = next((note.values for note in image_data.notes if note.code == "volumes_over_time"), None)
    return ImageProbe(
        "x".join(map(str, array.shape)),
        compute_digest(array),
        thumbnail.astype(np.float16),
        detail.astype(np.float16),
        None if volume_means is None else volume_means.astype(np.float16),
        flat=bool(np.ptp(array[0]) == 0),
        size=tuple(array.shape),
        spacing=image_data.spacing,
        bytes=array.nbytes,
        mask=probe_mask(record, scope.values, work, array) if record and scope and scope.target == "masks" else None,
        boxes=probe_boxes(record, work, array) if record and scope and scope.target == "boxes" else None,
        header=read_header_codes(image if isinstance(image, str) else paths_of(image)[0], work),
        frames=(int(over_time["count"]), float(over_time["seconds"]))
        if over_time and not isinstance(image, Channels)
        else (0, 0.0),
    )


def compute_digest(array: Any) -> str:
    """Return a text that only arrays of the same shape, type and content share."""
    import numpy as np

    digest = hashlib.blake2b(f"{array.shape}{array.dtype}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_header_codes(path: str, work: Path) -> dict[str, str]:
    """Return keyword -> value of the coded fields of a DICOM image's first file; empty for other formats."""
    from m3b.dataset.formats import find_file_format
    from m3b.dataset.formats.base import naming_file

    file = work / path.split("#", 1)[0]
    if file.is_dir():
        file = next((entry for entry in sorted(file.iterdir()) if entry.is_file() and entry.name[0] != "."), file)
    file_format = find_file_format(file)
    if file_format is None or file_format.name != "dicom":
        return {}
    import pydicom

    try:
        with naming_file(file):
            header = pydicom.dcmread(file, stop_before_pixels=True, force=True)
            return {
                element.keyword: text
                for element in header
                if element.VR in _CODE_TYPES
                and element.keyword
                and element.keyword not in _FIELDS_OF_ONE_IMAGE
                and len(text := str(element.value)) <= MAX_HEADER_VALUE
            }
    except DataError:  # of a damaged element; the pixels were read
        return {}


def find_burnt_in_text(header: Mapping[str, str]) -> Literal["stated", "likely", ""]:
    """Return whether text may stand in the pixels of a DICOM image, where no mask of names reaches it.

    `stated`: the header says so; `likely`: of a kind that often has it (ultrasound, secondary captures, photographs,
    endoscopy), and not denied.
    """
    statement = header.get("BurnedInAnnotation", "").upper()
    if statement == "YES":
        return "stated"
    return "likely" if statement != "NO" and header.get("Modality") in ("US", "SC", "XC", "ES") else ""


# --- boxes --------------------------------------------------------------------------------------------------------


def probe_boxes(record: Record, work: Path, image: Any) -> BoxProbe | None:
    """Compare the boxes of a case with its image, `(C, H, W[, D])`; None if there are none."""
    from m3b.dataset.reading import boxes_to_array

    sizes = image.shape[1:]
    problems = {"wrong_dims": "", "outside_box": "", "beyond": ""}
    for label in record.boxes or ():
        text = f"{label.label} {list(label.box)}"
        if len(label.box) != 2 * len(sizes):
            problems["wrong_dims"] = problems["wrong_dims"] or text
            continue
        try:
            box = boxes_to_array(label.box, record.reference, str(work))
        except DataError as error:
            return BoxProbe(error=str(error))
        edges = list(zip(box[: len(sizes)], box[len(sizes) :], sizes, strict=True))
        if any(upper <= 0 or lower >= size for lower, upper, size in edges):
            problems["outside_box"] = problems["outside_box"] or text
        elif any(lower < -1 or upper > size + 1 for lower, upper, size in edges):
            problems["beyond"] = problems["beyond"] or text
    return BoxProbe(**problems) if record.boxes else None


# --- masks --------------------------------------------------------------------------------------------------------


def probe_mask(record: Record, values: Mapping[str, int], work: Path, image: Any) -> MaskProbe | None:
    """Open the mask of a case and compare it with its image, `(C, H, W[, D])`; None if nothing is marked."""
    from m3b.dataset.reading import align_mask

    mask = record.mask
    if mask is None:
        return None
    try:
        if record.ignored is not None and align_mask(record.ignored, record.reference, str(work)).all():
            raise DataError(f"{record.ignored}: every pixel is ignored, so that nothing of the case is labelled")
        if not isinstance(mask, Mapping):
            return _probe_mask_file(record, mask, values, str(work), image)
        probes = [_probe_mask_file(record, path, {name: 0}, str(work), image) for name, path in mask.items()]
    except DataError as error:
        return MaskProbe(record.targets[0], error=str(error))
    worst = max(probes, key=lambda probe: (not probe.has_image_shape, probe.offset or 0.0, probe.is_unplaced,
                                           probe.equals_image))  # fmt: skip
    return MaskProbe(
        worst.file,
        shape=worst.shape,
        has_image_shape=worst.has_image_shape,
        offset=worst.offset,
        is_unplaced=worst.is_unplaced,
        is_float=any(probe.is_float for probe in probes),
        equals_image=any(probe.equals_image for probe in probes),
        digest="|".join(f"{name} {probe.digest}" for probe in probes for name in probe.class_voxels),
        class_voxels={name: count for probe in probes for name, count in probe.class_voxels.items()},
        drawing=_join_drawings([probe.drawing for probe in probes if probe.drawing is not None]),
    )


def _probe_mask_file(
    record: Record, path: str | tuple[str, ...], values: Mapping[str, int], work: str, image: Any
) -> MaskProbe:
    """`values` of 0 stand for a binary mask: whatever is not 0 is the class."""
    import numpy as np

    from m3b.dataset.reading import read_mask, upright
    from m3b.dataset.survey.values import analyse_values

    file = path if isinstance(path, str) else path[0]
    try:
        mask = upright(read_mask(path, work), record.reference, work)
    except DataError as error:
        text = str(error).replace(f"{work}/", "")
        raise DataError(text if file in text else f"{file}: {text}") from error
    array = mask.array
    voxels = count_values(array)
    has_image_shape = tuple(array.shape) == tuple(image.shape[1:])
    offset, is_unplaced = _compare_position(record, mask, work) if has_image_shape else (None, False)
    is_binary = set(values.values()) == {0}
    all_marked = sum(count for value, count in voxels.items() if value)
    marked = array != 0 if is_binary else np.isin(array, list(values.values()))
    class_voxels = {name: all_marked if is_binary else voxels.get(value, 0) for name, value in values.items()}
    unnamed = {value: n for value, n in voxels.items() if value not in {0, *values.values()}}
    is_lossy = len(unnamed) > is_binary and analyse_values(array).kind == "lossy_binary"
    return MaskProbe(
        file,
        shape=tuple(array.shape),
        has_image_shape=has_image_shape,
        offset=offset,
        is_unplaced=is_unplaced,
        is_float=is_stored_as_float(path, work),
        equals_image=bool(has_image_shape and all_marked and np.array_equal(image[0], array)),
        digest=compute_digest(array),
        class_voxels=class_voxels,
        unnamed={} if is_binary else unnamed,
        drawing=_describe_drawing(marked, image, is_lossy, has_image_shape) if any(class_voxels.values()) else None,
    )


def _compare_position(record: Record, mask: Any, work: str) -> tuple[float | None, bool]:
    """Return the voxels between the corners of the two grids, and whether only the image has a position."""
    import numpy as np

    from m3b.dataset.reading import geometry

    grid = geometry(record.reference, work)
    if grid.affine is None or mask.affine is None:
        return None, grid.affine is not None
    sizes = (*grid.shape, 1)[:3]
    corners = np.array([(*(np.array(place) * (np.array(sizes) - 1)), 1.0) for place in np.ndindex(2, 2, 2)])
    moved = corners @ (np.linalg.pinv(grid.affine) @ mask.affine).T
    return float(np.abs(moved - corners)[:, :3].max()), False


def count_values(array: Any) -> dict[int, int]:
    """Return value -> voxels, counted in pieces; at most `MAX_VALUES` values are kept."""
    import numpy as np

    flat = array.reshape(-1)
    total: dict[int, int] = {}
    for start in range(0, flat.size, CHUNK_VOXELS):
        piece = flat[start : start + CHUNK_VOXELS]
        if int(piece.max(initial=0)) < 65536:
            table = np.bincount(piece)
            values = np.nonzero(table)[0]
            amounts = table[values]
        else:
            values, amounts = np.unique(piece, return_counts=True)
        for value, amount in zip(values.tolist(), amounts.tolist(), strict=True):
            if value in total or len(total) < MAX_VALUES:
                total[value] = total.get(value, 0) + amount
    return total


def is_stored_as_float(path: Mask, work: str) -> bool:
    """Return whether the header of a mask file says that it holds floating-point numbers."""
    from m3b.dataset.formats import probe_image as probe_header

    if not isinstance(path, str) or "#" in path:
        return False
    try:
        info = probe_header(path, work)
    except DataError:
        return False
    return info.dtype.startswith("float")


def _describe_drawing(marked: Any, image: Any, is_lossy: bool, has_image_shape: bool) -> DrawingFacts:
    import numpy as np

    picks = [np.linspace(0, side - 1, min(side, COARSE_SIDE)).astype(int) for side in marked.shape]
    return DrawingFacts(
        coarse=CoarseMask.pack(np.asarray(marked[np.ix_(*picks)], dtype=bool)),
        marked=int(marked.sum()),
        scattered=_measure_scatter(marked),
        is_lossy=is_lossy,
        visible_overlap=_overlap_with_visible(marked, image) if has_image_shape else 0.0,
    )


def _join_drawings(drawings: Sequence[DrawingFacts]) -> DrawingFacts | None:
    """Return the masks of one case, a class each, as one."""
    if not drawings:
        return None
    coarse = drawings[0].coarse.unpack()
    for drawing in drawings[1:]:
        if drawing.coarse.shape == coarse.shape:
            coarse |= drawing.coarse.unpack()
    return DrawingFacts(
        CoarseMask.pack(coarse),
        sum(drawing.marked for drawing in drawings),
        max(drawing.scattered for drawing in drawings),
        any(drawing.is_lossy for drawing in drawings),
        max(drawing.visible_overlap for drawing in drawings),
    )


def _measure_scatter(marked: Any) -> float:
    import numpy as np

    plane = marked if marked.ndim == 2 else marked[:, :, int(np.argmax(marked.sum(axis=(0, 1))))]
    total = int(plane.sum())
    if not total:
        return 0.0
    padded = np.pad(plane, 1)
    neighbours = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return float((plane & ~neighbours).sum() / total)


def _overlap_with_visible(marked: Any, image: Any) -> float:
    import numpy as np

    steps = tuple(slice(None, None, max(1, side // MAX_COMPARED_SIDE)) for side in marked.shape)
    brightest = np.asarray(image[(slice(None), *steps)]).max(axis=0)
    low, high = np.percentile(brightest, (0.5, 99))
    if not high > low:
        return 0.0
    visible, part = brightest > low + DARK * (high - low), marked[steps]
    if not 0.02 < 1 - visible.mean() < 0.98:
        return 0.0
    union = int((visible | part).sum())
    return float((visible & part).sum() / union) if union else 0.0
