"""Arrays and PIL images as files that a delivered model reads, without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import ModelError
from m3b.models.input_rules import InputRules

if TYPE_CHECKING:
    import numpy as np

MAX_CHANNELS = 4
"""Maximum length of the colour axis of a 2D array."""


def is_array_like(value: object) -> bool:
    """Return whether a value holds pixels: a NumPy array, a PIL image, a tensor; lists of numbers are none."""
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def write_array(
    value: Any, name: str, stem: Path, rules: InputRules, plan: Mapping[str, Any], spacing: Sequence[float] | None
) -> Path:
    """Write an array or PIL image in a format that keeps its values, and return the file.

    Args:
        value: (H, W) or (H, W, C) for a model of 2D images, (D, H, W) for a model of volumes, which also takes
            (C, D, H, W) if it has several channels.
        name: of the image, for messages.
        stem: the file without its suffix.
        spacing: in mm, in the order of the spatial axes; None if unknown.

    Raises:
        ModelError: the array is no image, or has other axes than the model takes; `code` says which.
    """
    array = _to_array(value, name, rules)
    n_spatial = array.ndim - (array.ndim == 3 and rules.dims != 3) - (array.ndim == 4)
    if spacing is not None and (len(spacing) != n_spatial or not all(size > 0 for size in spacing)):
        raise ModelError(
            f"{name}: spacing={tuple(spacing)} must be {n_spatial} positive numbers, one a spatial axis of the shape "
            f"{array.shape}",
            code="bad_spacing",
        )
    if rules.dims == 3:
        return _write_volume(
            array, stem, spacing or plan.get("spacing") or (1.0, 1.0, 1.0), is_known=spacing is not None
        )
    if spacing is not None and array.ndim == 2:
        return _write_nifti(array.T[..., None], stem, (spacing[1], spacing[0], 1.0))
    return _write_npy(array, stem)


def _to_array(value: Any, name: str, rules: InputRules) -> np.ndarray:
    import numpy as np

    array = np.asarray(_to_plain_picture(value, name, rules) if _is_picture(value) else value)
    if array.dtype == bool:
        array = array.astype(np.uint8)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise ModelError(f"{name}: an array of {array.dtype} and shape {array.shape} is no image", code="no_image")
    if rules.dims == 3:
        return _check_volume(array, name, rules)
    return _check_picture(array, name)


def _check_picture(array: np.ndarray, name: str) -> np.ndarray:
    import numpy as np

    if array.ndim == 2:
        return array
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ModelError(
            f"{name}: an array of shape {array.shape}, and the model takes one 2D image, (H, W) or (H, W, C) with 1, 3 or 4 "
            "channels. For several images, give a list: list(array)",
            code="volume_for_2d_model",
        )
    colours = array[..., :3]
    is_grey = colours.shape[2] == 1 or bool((colours == colours[..., :1]).all())
    return np.ascontiguousarray(colours[..., 0] if is_grey else colours)  # as a picture file of equal channels is read


def _check_volume(array: np.ndarray, name: str, rules: InputRules) -> np.ndarray:
    if array.ndim == 2 or (array.ndim == 3 and array.shape[0] == 1):
        raise ModelError(
            f"{name}: an array of shape {array.shape}, and the model takes volumes, (D, H, W)",
            code="image_for_3d_model",
        )
    if array.ndim == 4 and array.shape[0] <= rules.channels:
        return array
    if array.ndim == 4:
        raise ModelError(
            f"{name}: an array of shape {array.shape} holds {array.shape[0]} volumes, and the model takes {rules.channels}",
            code="several_volumes_for_one_channel_model" if rules.channels == 1 else "more_volumes_than_channels",
        )
    if array.ndim != 3:
        raise ModelError(
            f"{name}: an array of shape {array.shape}, and the model takes volumes, (D, H, W)", code="no_image"
        )
    return array


def _is_picture(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "getbands")


def _to_plain_picture(picture: Any, name: str, rules: InputRules) -> Any:
    """Return a PIL image as a file of it would be read: turned by EXIF, palettes looked up, without transparency."""
    from PIL import ImageOps

    pages = int(getattr(picture, "n_frames", 1))
    if pages > 1 and rules.dims == 2:
        raise ModelError(
            f"{name} has {pages} pages, and the model takes one 2D image: give a copy of the page that you mean",
            code="several_pages_for_2d_model",
        )
    if getattr(picture, "format", None) != "TIFF":  # Pillow turns those itself
        picture = ImageOps.exif_transpose(picture)
    if picture.mode in ("1", "LA", "La"):
        return picture.convert("L")
    if picture.mode in ("L", "RGB", "I", "F") or picture.mode.startswith("I;"):
        return picture
    return picture.convert("RGB")


def _write_npy(array: np.ndarray, stem: Path) -> Path:
    import numpy as np

    file = stem.with_name(f"{stem.name}.npy")
    if array.ndim == 3 and min(array.shape[:2]) <= MAX_CHANNELS:  # its colours could not be told from its rows
        return _write_picture(array, stem)
    np.save(file, array, allow_pickle=False)
    return file


def _write_picture(array: np.ndarray, stem: Path) -> Path:
    import numpy as np
    from PIL import Image

    if array.dtype != np.uint8:
        raise ModelError(f"a colour image of {array.shape[:2]} pixels must be of uint8", code="no_image")
    file = stem.with_name(f"{stem.name}.png")
    Image.fromarray(array).save(file)
    return file


def _write_volume(array: np.ndarray, stem: Path, spacing: Sequence[float], *, is_known: bool) -> Path:
    """Write (D, H, W) or (C, D, H, W): rows to the back, columns to the left, slices to the head."""
    axes = (3, 2, 1, 0) if array.ndim == 4 else (2, 1, 0)
    slice_step, row_step, column_step = spacing if is_known else (spacing[2], spacing[0], spacing[1])
    return _write_nifti(array.transpose(axes), stem, (column_step, row_step, slice_step))


def _write_nifti(array: np.ndarray, stem: Path, spacing: Sequence[float]) -> Path:
    import nibabel
    import numpy as np

    values = array.astype(np.float32) if array.dtype == np.float16 else array
    file = stem.with_name(f"{stem.name}.nii")
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])  # LPS, the axes that images are read in
    nibabel.save(nibabel.Nifti1Image(values, affine, dtype=values.dtype), file)
    return file
