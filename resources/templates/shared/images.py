"""Any medical image file as one array: PNG, JPEG, TIFF, DICOM, NIfTI, NRRD, MHA, NumPy, HDF5, PT, clips, slices, folders.

Arrays are channel-first, `(C, H, W)` or `(C, H, W, D)`: rows, columns, slices. Volumes with a known orientation come
as LPS (rows run to the back, columns to the patient's left, slices to the head), so that files saved in different
orientations agree. Spacing is in mm, in the order of the spatial axes.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

_LOADING = threading.RLock()


def neighbour(name: str) -> ModuleType:
    """A module beside this file, also when this file itself was loaded by its path, outside any package."""
    if __package__:
        return importlib.import_module(f"{__package__}.{name}")
    full = f"{__name__}_{name}"
    with _LOADING:  # a second thread would find the module before it is complete
        if full not in sys.modules:
            spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
            if spec is None or spec.loader is None:
                raise ImportError(f"{name}.py is missing beside {__file__}")
            sys.modules[full] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[full])
        return sys.modules[full]


if TYPE_CHECKING:
    from . import arrays, clips, declared, formats, geometry, headers
    from .formats import Image, ImageError
else:
    arrays, formats, geometry = neighbour("arrays"), neighbour("formats"), neighbour("geometry")
    declared, headers, clips = neighbour("declared"), neighbour("headers"), neighbour("clips")
    Image, ImageError = formats.Image, formats.ImageError

__all__ = ["Image", "ImageError", "check_header", "kind_of", "natural_key", "probe", "read_image"]

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
DICOMS = (".dcm", ".dicom", ".ima")
NIFTIS = (".nii", ".nii.gz")
ITKS = (".nrrd", ".nhdr", ".mha", ".mhd")
_KINDS = ("picture", "dicom", "nifti", "itk")
SUFFIXES = (*PICTURES, *DICOMS, *NIFTIS, *ITKS, *arrays.SUFFIXES, *clips.VIDEOS)


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts `slice2` before `slice10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def read_image(path: str | Sequence[str] | Mapping[str, str], base: str | Path = ".") -> Image:
    """The image that an index record's `image_path` names; relative paths start at `base`.

    `path` is a file, a folder of slices or a DICOM series, a list of slice files, `archive.npz#key[17]`, frames of
    a clip (`clips`), or an object channel name -> one of these paths (`channels`). Raises ImageError.
    """
    if isinstance(path, Mapping):
        joined: Image = neighbour("channels").join(path, base)
        return joined
    if not isinstance(path, str):
        files = [str(Path(base) / item) for item in path]
        return _read_series([Path(file) for file in files]) if is_series(files) else _stack(files)
    full = str(Path(base) / path)
    with formats.opening(full):
        try:
            return _read(full)
        except arrays.ArrayError as error:
            raise ImageError(str(error)) from error


def kind_of(path: str | Path) -> str:
    """Format family by name, then by content: picture, dicom, nifti, itk, array, clip, folder; "" if none."""
    name = str(path).lower()
    for kind, suffixes in (("nifti", NIFTIS), ("picture", PICTURES), ("dicom", DICOMS), ("itk", ITKS)):
        if name.endswith(suffixes):
            return kind
    if name.endswith(arrays.SUFFIXES):
        return "array"
    if name.endswith(clips.VIDEOS):
        return "clip"
    if Path(path).is_dir():
        return "folder"
    return "dicom" if _has_dicom_mark(Path(path)) else ""


def _has_dicom_mark(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def check_header(full: str) -> None:
    """Raises ImageError for what may not be opened as an image file, see `headers` and `declared`."""
    try:
        headers.check(full)
        named = headers.companions(Path(full)) if full.lower().endswith(ITKS) and Path(full).is_file() else ()
        declared.check(full, Path(full).parent / named[0] if named else None)
    except (headers.HeaderError, declared.DeclaredError) as error:
        raise ImageError(str(error)) from error


def _read(full: str) -> Image:
    reference = arrays.parse_reference(full)
    if reference is not None and not Path(full).exists():
        if not Path(reference.file).exists():
            raise ImageError(f"{reference.file}: no such file (from the reference {full})")
        return formats.from_array(arrays.read_array(reference.file, reference.key, reference.index), full)
    clip = None if Path(full).exists() else clips.parse(full)
    full = clip[0] if clip is not None else full
    if not Path(full).exists():
        raise ImageError(f"{full}: no such file or folder")
    if Path(full).is_dir():
        return _read_folder(Path(full))
    check_header(full)
    kind = kind_of(full)
    if clip is not None or kind == "clip":
        return clips.read(full, clip[1] if clip is not None else 1, kind)
    if kind == "array":
        return formats.from_array(arrays.read_array(full), full)
    if kind not in _KINDS:
        raise ImageError(f"{full}: unknown format; known are {' '.join(SUFFIXES)} and DICOM files of any name")
    readers = (formats.read_picture, formats.read_dicom, formats.read_nifti, formats.read_itk)
    return readers[_KINDS.index(kind)](full)


# --- folders ------------------------------------------------------------------------------------------------------


def _read_folder(folder: Path) -> Image:
    files = sorted((item for item in folder.iterdir() if _is_image(item)), key=lambda item: natural_key(item.name))
    kinds = {kind_of(file) for file in files}
    if not files:
        raise ImageError(f"{folder}: no image in this folder")
    if len(files) == 1:
        return _read(str(files[0]))
    if "dicom" in kinds:
        return _read_series([file for file in files if kind_of(file) == "dicom"])
    if len(kinds) > 1 or kinds & {"nifti", "itk"}:
        raise ImageError(f"{folder}: holds {len(files)} images ({files[0].name}, {files[1].name}, ...), not one volume")
    return _stack([str(file) for file in files])


def _is_image(item: Path) -> bool:
    named = item.is_file() and not item.name.startswith(".") and item.name.upper() != "DICOMDIR"
    return named and kind_of(item) not in ("", "clip")


def _stack(files: list[str]) -> Image:
    """Slice files, in the order given, as one volume; grey and colour slices together become colour."""
    if not files:
        raise ImageError("an empty list of slices is no image")
    slices = [read_image(file) for file in files]
    if len(slices) == 1:
        return slices[0]
    for file, piece in zip(files, slices, strict=True):
        if piece.dims != 2 or piece.array.shape[1:] != slices[0].array.shape[1:]:
            raise ImageError(
                f"{file}: shape {piece.array.shape} does not fit the first slice's {slices[0].array.shape}"
            )
    channels = max(piece.array.shape[0] for piece in slices)
    grids = [np.broadcast_to(piece.array, (channels, *piece.array.shape[1:])) for piece in slices]
    return Image(np.stack(grids, axis=-1), None, 3, slices[0].modality)


def is_series(files: Sequence[str]) -> bool:
    """Whether a list names the slices of one DICOM series that says where they lie: a volume, in whatever order it names them."""
    if len(files) < 2 or any(kind_of(file) != "dicom" for file in files):
        return False
    chosen = [file for _, file in _longest_series([Path(file) for file in files])]
    return len(chosen) == len(files) and _stack_affine(chosen) is not None


def _longest_series(files: list[Path]) -> list[tuple[float, Path]]:
    """Position and file of the slices of the series with the most files, in the order along their common normal."""
    import pydicom

    series: dict[str, list[tuple[float, Path]]] = {}
    for file in files:
        header = pydicom.dcmread(file, force=True, stop_before_pixels=True)
        if "Rows" in header:
            uid = str(header.get("SeriesInstanceUID", ""))
            series.setdefault(uid, []).append((_slice_position(header), file))
    longest = sorted(series.values(), key=len)[-1] if series else []
    return sorted(longest, key=lambda item: (item[0], natural_key(item[1].name)))


def _read_series(files: list[Path]) -> Image:
    """One series as a volume: slices sorted along their common normal; of several series the longest is taken."""
    chosen = _longest_series(files)
    if not chosen:
        raise ImageError(f"{files[0].parent}: no DICOM file here holds an image")
    slices = [formats.read_dicom(str(file)) for _, file in chosen]
    if len(slices) == 1:
        return slices[0]
    if any(piece.dims == 3 for piece in slices) or len({piece.array.shape for piece in slices}) > 1:
        raise ImageError(f"{files[0].parent}: the slices of this series differ in size; split the folder by size")
    volume = np.stack([piece.array for piece in slices], axis=-1)
    affine = _stack_affine([file for _, file in chosen])
    if affine is not None:
        volume, affine = geometry.reorient(volume, affine)
        return Image(volume, geometry.spacing_of(affine), 3, slices[0].modality)
    gaps = np.abs(np.diff([position for position, _ in chosen]))
    gap = float(np.median(gaps)) if gaps.size and np.median(gaps) > 0 else 1.0
    spacing = (*slices[0].spacing, gap) if slices[0].spacing else None
    return Image(volume, spacing, 3, slices[0].modality)


def series_affine(series: Path | Sequence[Path]) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Affine and sizes of a DICOM series as it is stacked (rows, columns, slices), before it is turned to LPS.

    Args:
        series: its folder, or its files.
    """
    items = series.iterdir() if isinstance(series, Path) else series
    files = [item for item in items if _is_image(item) and kind_of(item) == "dicom"]
    chosen = _longest_series(files) if len(files) > 1 else []
    affine = _stack_affine([file for _, file in chosen]) if len(chosen) > 1 else None
    if affine is None:
        return None
    import pydicom

    header = pydicom.dcmread(chosen[0][1], force=True, stop_before_pixels=True)
    return affine, (int(header.Rows), int(header.Columns), len(chosen))


def _stack_affine(files: list[Path]) -> np.ndarray | None:
    """From (row, column, slice) to LPS mm, from the first and last slice's headers; None without that geometry."""
    import pydicom

    headers = [pydicom.dcmread(file, force=True, stop_before_pixels=True) for file in (files[0], files[-1])]
    places = [header.get("ImagePositionPatient") for header in headers]
    cosines, pixels = headers[0].get("ImageOrientationPatient"), headers[0].get("PixelSpacing")
    if not all(places) or not cosines or not pixels:
        return None
    first, last = (np.array([float(v) for v in place]) for place in places)
    affine = np.eye(4)
    affine[:3, 0] = np.array([float(v) for v in cosines[3:]]) * float(pixels[0])
    affine[:3, 1] = np.array([float(v) for v in cosines[:3]]) * float(pixels[1])
    affine[:3, 2] = (last - first) / (len(files) - 1)
    affine[:3, 3] = first
    return affine if abs(np.linalg.det(affine)) > 1e-9 else None


def _slice_position(header: Any) -> float:
    """mm along the slices' normal; the instance number where the header has no geometry."""
    place, cosines = header.get("ImagePositionPatient"), header.get("ImageOrientationPatient")
    if place and cosines:
        normal = np.cross([float(v) for v in cosines[:3]], [float(v) for v in cosines[3:]])
        return float(np.dot(normal, [float(v) for v in place]))
    return float(header.get("SliceLocation") or header.get("InstanceNumber") or 0)


def orientation_of(path: str | Sequence[str] | Mapping[str, str], base: str | Path = ".") -> int:
    """The EXIF orientation by which `read_image` turns a picture, 1 where it turns nothing."""
    full = str(Path(base) / path) if isinstance(path, str) else ""
    if not full or kind_of(full) != "picture" or not Path(full).is_file():
        return 1
    from PIL import Image as Pillow

    with formats.opening(full), Pillow.open(full, formats=formats.PICTURES) as picture:
        return int(formats.exif_orientation(picture))


# --- shapes -------------------------------------------------------------------------------------------------------


def probe(path: str | Sequence[str] | Mapping[str, str], base: str | Path = ".") -> tuple[int, ...]:
    """Spatial shape (H, W) or (H, W, D) as `read_image` gives it, from the header alone where the format has one."""
    if isinstance(path, Mapping):
        path = neighbour("grids").grid_path(path)
    if isinstance(path, str):
        full = str(Path(base) / path)
        with formats.opening(full):
            kind = kind_of(full) if Path(full).is_file() else ""
            if kind == "picture":
                from PIL import Image as Pillow

                with Pillow.open(full, formats=formats.PICTURES) as picture:
                    pages = getattr(picture, "n_frames", 1)
                    sides = (picture.height, picture.width)
                    sides = sides[::-1] if formats.exif_orientation(picture) >= 5 else sides
                    return (*sides, *((pages,) if pages > 1 else ()))
            if kind == "nifti":
                import nibabel as nib

                stored = nib.load(full)
                order = np.argsort(nib.io_orientation(stored.affine)[:3, 0])
                sizes = [(*stored.shape[:3], 1, 1)[int(axis)] for axis in order]
                return (sizes[1], sizes[0], *((sizes[2],) if sizes[2] > 1 else ()))
    return tuple(read_image(path, base).array.shape[1:])
