"""Masks in the axes of `read_image`, masks written with an image's own geometry, and boxes in both.

A mask array is (H, W) or (H, W, D) of whole numbers: 0 is background, the others are labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or __package__:
    from . import arrays, geometry, images
    from .formats import ImageError
    from .geometry import Geometry
    from .grids import file_affine, grid_of, grid_path, image_affine
else:  # loaded by its path, beside an `images` module that was loaded in the same way
    import sys

    images = sys.modules[__name__.rsplit("_", 1)[0] + "_images"]
    arrays, geometry = images.arrays, images.geometry
    ImageError, Geometry, grids = images.ImageError, geometry.Geometry, images.neighbour("grids")
    file_affine, grid_of, grid_path, image_affine = (
        grids.file_affine,
        grids.grid_of,
        grids.grid_path,
        grids.image_affine,
    )

__all__ = [
    "Geometry",
    "Mask",
    "align",
    "boxes_to_array",
    "boxes_to_file",
    "grid_of",
    "read_mask",
    "read_masks",
    "write_mask",
]

ImagePath = str | Sequence[str] | Mapping[str, str]
MaskPath = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True)
class Mask:
    """`array` holds label numbers, (H, W) or (H, W, D); spacing in mm and affine (see `geometry`) where known."""

    array: np.ndarray
    spacing: tuple[float, ...] | None
    affine: np.ndarray | None


def read_mask(path: str | Sequence[str], base: str | Path = ".") -> Mask:
    """One mask file, folder or list of slice masks, or `archive.npz#key[3]`. Raises ImageError."""
    pictures = [str(Path(base) / p) for p in ([path] if isinstance(path, str) else path)]
    if all(_is_palette(name) for name in pictures):
        planes = [_palette(name) for name in pictures]
        return Mask(planes[0] if isinstance(path, str) else np.stack(planes, axis=-1), None, None)
    image = images.read_image(path, base)
    if image.array.shape[0] != 1:
        raise ImageError(f"{path}: a mask must have one channel, this has {image.array.shape[0]} (colours, a series?)")
    affine = grid_of(path, base).affine if isinstance(path, str) and image.spacing else None
    return Mask(whole_numbers(image.array[0], str(path)), image.spacing, affine)


def whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The array as whole numbers of the smallest fitting type. Raises ImageError for fractions, NaN and negatives."""
    if array.dtype.kind == "f":
        rounded = np.round(array)
        if not np.isfinite(array).all() or float(np.abs(array - rounded).max(initial=0)) > 1e-3:
            raise ImageError(f"{name}: holds fractions or NaN; a mask must hold whole numbers (label 0, 1, 2, ...)")
        array = rounded
    if array.size and float(array.min()) < 0:
        raise ImageError(f"{name}: holds {float(array.min()):g}; labels of a mask must not be negative")
    return np.ascontiguousarray(array.astype(_type(int(array.max(initial=0)))))


def _type(top: int) -> Any:
    return np.uint8 if top < 256 else np.uint16 if top < 65536 else np.uint32


def _is_palette(name: str) -> bool:
    if not name.lower().endswith((".png", ".gif", ".bmp", ".tif", ".tiff")) or not Path(name).is_file():
        return False
    from PIL import Image as Pillow

    try:
        with Pillow.open(name, formats=images.formats.PICTURES) as picture:
            return bool(picture.mode == "P" and getattr(picture, "n_frames", 1) == 1)
    except OSError:
        return False  # reading it as an image says what is wrong with it


def _palette(name: str) -> np.ndarray:
    """A palette's own numbers are the labels; its colours are only for show."""
    from PIL import Image as Pillow

    with Pillow.open(name, formats=images.formats.PICTURES) as picture:
        orientation = images.formats.exif_orientation(picture)
        turned: np.ndarray = images.formats.turn_upright(np.array(picture), orientation)
        return turned


def read_masks(
    mask_path: MaskPath,
    classes: Mapping[str, int],
    base: str | Path = ".",
    shape: tuple[int, ...] | None = None,
    image: ImagePath | None = None,
) -> np.ndarray:
    """(K, H, W[, D]) bool, one channel for each class in the order of `classes` (name -> number in the file).

    `mask_path` is one mask with label numbers, an object class -> file in which anything but 0 is the class, or None
    where nothing is marked (then `shape` is needed). Masks on an `image` as it is stored are turned as it is, see
    `upright`. Raises ImageError.
    """
    turned = image is not None and images.orientation_of(image, base) >= 5
    grid = grid_of(image, base) if turned and image is not None else Geometry((), None, None)
    if isinstance(mask_path, Mapping):
        masks = {name: upright(read_mask(path, base), grid) for name, path in mask_path.items() if name in classes}
        found = {name: mask.array != 0 for name, mask in masks.items()}
        sizes = {mask.shape for mask in found.values()} | ({shape} if shape else set())
        if len(sizes) != 1:
            raise ImageError(f"{dict(mask_path)}: masks of one case must have one shape, found {sorted(sizes)}")
        size = sizes.pop()
        return np.stack([found.get(name, np.zeros(size, bool)) for name in classes])
    if mask_path is None:
        if shape is None:
            raise ImageError("a case without a mask needs the shape of its image")
        return np.zeros((len(classes), *shape), bool)
    array = upright(read_mask(mask_path, base), grid).array
    return np.stack([array == value for value in classes.values()])


def write_mask(array: np.ndarray, like: ImagePath, stem: str | Path, base: str | Path = ".") -> Path:
    """Write a mask so that its voxels lie where those of the image `like` lie; `read_mask` gives the same array back.

    Args:
        array: (H, W) or (H, W, D) whole numbers, in the axes of `read_image(like)`.
        stem: the file to write, without its ending: `.nii.gz` for NIfTI, DICOM series (folders and lists of their slices)
            and stacks of pictures, the image's own for NRRD and MHA, `.png` for pictures, `.npy` in the file's own axes for arrays.

    Returns:
        The file that was written. Raises ImageError where the shape does not fit.
    """
    like = grid_path(like)
    array = array.astype(_type(int(array.max(initial=0))))
    full = str(Path(base) / like) if isinstance(like, str) else ""
    kind = images.kind_of(full) if full and Path(full).exists() else ""
    if kind == "nifti":
        return _write_nifti(array, full, Path(f"{stem}.nii.gz"))
    if kind == "itk":
        ending = ".mha" if full.lower().endswith((".mha", ".mhd")) else ".nrrd"
        return _write_itk(array, full, Path(f"{stem}{ending}"))
    if kind in ("folder", "") and array.ndim == 3 and (own := image_affine(like, base)) is not None:
        import nibabel as nib

        turned = geometry.reorient(np.broadcast_to(np.zeros(1, bool), (1, *own[1])), own[0])[1]
        file = Path(f"{stem}.nii.gz")
        nib.save(nib.Nifti1Image(array, geometry.RAS_TO_LPS @ turned), file)
        return file
    if array.ndim == 2 and array.dtype != np.uint32:
        from PIL import Image as Pillow

        file = Path(f"{stem}.png")
        Pillow.fromarray(array).save(file)
        return file
    return _write_array(array, full, kind, stem)


def _write_array(array: np.ndarray, like: str, kind: str, stem: str | Path) -> Path:
    """In the array file's own axes where its shape tells them again, else as NIfTI in the order of `read_image`."""
    for own in (array, np.moveaxis(array, -1, 0)) if kind == "array" or "#" in like else ():
        again = images.formats.from_array(own, like).array
        if again.shape == (1, *array.shape) and np.array_equal(again[0], array):
            np.save(Path(f"{stem}.npy"), own)
            return Path(f"{stem}.npy")
    import nibabel as nib

    file, affine = Path(f"{stem}.nii.gz"), np.eye(4)[[1, 0, 2, 3]]
    nib.save(nib.Nifti1Image(array if array.ndim == 3 else array[..., None], geometry.RAS_TO_LPS @ affine), file)
    return file


def _fit(array: np.ndarray, sizes: tuple[int, ...], like: str) -> np.ndarray:
    array = array[..., None] if array.ndim == 2 else array
    if array.shape != sizes:
        raise ImageError(f"{like}: the image is {sizes}, the mask to write {array.shape}")
    return array


def _write_nifti(array: np.ndarray, like: str, file: Path) -> Path:
    import nibabel as nib

    stored = nib.load(like)
    affine, shape = geometry.nifti_affine(stored.affine), (*stored.shape[:3], 1, 1)[:3]
    order, _ = geometry.closest(affine)
    own = geometry.restore(_fit(array, tuple(shape[axis] for axis in order), like), affine)
    header = nib.Nifti1Header()
    header.set_data_dtype(own.dtype)
    image = nib.Nifti1Image(own, stored.affine, header)
    for name in ("qform", "sform"):
        code = int(stored.header.get(f"{name}_code", 0)) if hasattr(stored.header, "get") else 0
        getattr(image, f"set_{name}")(stored.affine, code or 1)
    nib.save(image, file)
    return file


def _write_itk(array: np.ndarray, like: str, file: Path) -> Path:
    import SimpleITK as sitk

    source = sitk.ReadImage(like, imageIO=images.formats.itk_reader(like))
    if source.GetDimension() == 2:
        image = sitk.GetImageFromArray(array)
    else:
        affine, shape = geometry.itk_affine(source), source.GetSize()[:3]
        order, _ = geometry.closest(affine)
        own = geometry.restore(_fit(array, tuple(shape[axis] for axis in order), like), affine)
        image = sitk.GetImageFromArray(np.ascontiguousarray(own.transpose(2, 1, 0)))
    size, all_axes = image.GetDimension(), source.GetDimension()
    image.SetSpacing(source.GetSpacing()[:size])
    image.SetOrigin(source.GetOrigin()[:size])
    image.SetDirection(np.array(source.GetDirection()).reshape(all_axes, all_axes)[:size, :size].ravel().tolist())
    sitk.WriteImage(image, str(file), True)
    return file


def upright(mask: Mask, grid: Geometry) -> Mask:
    """A mask that was drawn on a picture as it is stored, turned for display as its image was.

    Its size tells it: that of the stored pixels, and not that of the picture on display. Of a square picture, or one that
    EXIF turns upside down, the size tells nothing, and the mask is taken to lie on the picture on display.
    """
    if grid.orientation < 5 or mask.array.shape == grid.shape or mask.array.shape != grid.shape[::-1]:
        return mask
    turned = images.formats.turn_upright(mask.array, grid.orientation)
    return Mask(turned, mask.spacing, mask.affine)


def align(mask: Mask, grid: Geometry, name: str = "mask") -> np.ndarray:
    """The mask on an image's grid, by nearest neighbour where the two differ. Raises ImageError where they cannot meet.

    Masks of the same shape are taken as they are if either side has no affine, or if the grids lie within half a voxel.
    """
    mask = upright(mask, grid)
    same = mask.array.shape == grid.shape
    if mask.affine is None or grid.affine is None:
        if same:
            return mask.array
        raise ImageError(f"{name}: shape {mask.array.shape}, its image {grid.shape}, and nothing says how they lie")
    if same and geometry.apart(mask.affine, grid.affine, grid.shape) <= 0.5 * min(geometry.spacing_of(grid.affine)):
        return mask.array
    from scipy import ndimage

    across = np.linalg.inv(mask.affine) @ grid.affine
    volume = mask.array if mask.array.ndim == 3 else mask.array[..., None]
    shape = (*grid.shape, 1)[:3]
    moved = ndimage.affine_transform(volume, across[:3, :3], across[:3, 3], shape, order=0, mode="constant", cval=0)
    if volume.any() and not moved.any():
        raise ImageError(f"{name}: what it marks lies outside its image; is it the mask of another case?")
    return np.asarray(moved.reshape(grid.shape))


def boxes_to_array(box: Sequence[float], path: ImagePath, base: str | Path = ".") -> tuple[float, ...]:
    """A box in file coordinates (x0, y0, [z0,] x1, y1[, z1]) as (r0, c0[, s0], r1, c1[, s1]) of `read_image`'s array."""
    half = len(box) // 2
    if half == 2:
        return (box[1], box[0], box[3], box[2])
    return _mapped(box, _voxels(path, base), (1, 0, 2, 4, 3, 5))


def boxes_to_file(box: Sequence[float], path: ImagePath, base: str | Path = ".") -> tuple[float, ...]:
    """Undoes `boxes_to_array`."""
    half = len(box) // 2
    if half == 2:
        return (box[1], box[0], box[3], box[2])
    across = _voxels(path, base)
    return _mapped(box, None if across is None else np.linalg.inv(across), (1, 0, 2, 4, 3, 5))


def _voxels(path: ImagePath, base: str | Path) -> np.ndarray | None:
    """From voxel (i, j, k) of the file to (row, column, slice); None where the file has no axes of its own."""
    path = grid_path(path)
    full = str(Path(base) / path) if isinstance(path, str) else ""
    kind = images.kind_of(full) if full and Path(full).is_file() else ""
    own = file_affine(full, kind)
    if own is None:
        return None
    turned = geometry.reorient(np.broadcast_to(np.zeros(1, bool), (1, *own[1])), own[0])[1]
    return np.asarray(np.linalg.inv(turned) @ own[0])


def _mapped(box: Sequence[float], across: np.ndarray | None, swap: tuple[int, ...]) -> tuple[float, ...]:
    if across is None:
        return tuple(float(box[place]) for place in swap)
    # edges lie half a voxel before the centres that indices count
    ends = [np.array([*box[:3], 1.0]) - [0.5, 0.5, 0.5, 0], np.array([*box[3:], 1.0]) - [0.5, 0.5, 0.5, 0]]
    moved = np.stack([(across @ end)[:3] + 0.5 for end in ends])
    return tuple(round(float(v), 6) for v in (*moved.min(axis=0), *moved.max(axis=0)))
