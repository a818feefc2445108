"""Shared parts of data sets with masks: pairing images with masks, strict reading of masks, and drawing of masks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import RawCase
from m3b.bench.datasets.layout_reading import CaseCollector, list_files, read_json, relative_path, require_entries
from m3b.bench.datasets.shapes import Blob, Floats, Random, dice
from m3b.data.opening import Unreadable, attempt
from m3b.errors import DataError

NIFTI = (".nii.gz", ".nii")


def strip_suffix(file: Path) -> str:
    """Return the file name without `.nii.gz`, `.nii` or any other single suffix."""
    return re.sub(r"\.(nii\.gz|[A-Za-z0-9]+)$", "", file.name)


def pair_masks(
    collector: CaseCollector, images: Path, masks: Path, *, patient: Callable[[str], str], key: Callable[[str], str] = str,
    suffixes: tuple[str, ...] = NIFTI, split: str = "",
) -> None:  # fmt: skip
    """Add a case for each image in one folder that has a mask of the same name in the other folder.

    Args:
        patient: case name -> patient.
        key: reduces the names of an image and of its mask to their common part.
    """
    mask_by_name = {key(strip_suffix(file)): file for file in list_files(masks, *suffixes)}
    for image in list_files(images, *suffixes):
        name = key(strip_suffix(image))
        mask = mask_by_name.pop(name, None)
        if mask is None:
            collector.exclude(
                f"images without a mask in {masks.name}", relative_path(collector.folder, image), missing=True
            )
            continue
        case = RawCase(
            name,
            (relative_path(collector.folder, image),),
            patient(name),
            split,
            mask=relative_path(collector.folder, mask),
        )
        collector.cases.append(case)
    for mask in mask_by_name.values():
        collector.exclude(
            f"masks without an image in {images.name}", relative_path(collector.folder, mask), missing=True
        )


def require_card_layout(folder: Path, masks: str, name: str, values: Mapping[int, str]) -> None:
    """Check that a card layout has `images`, the folder `masks` and a `labels.json` with the names of the structures.

    Raises:
        DataError: a part is missing, or `labels.json` does not fit.
    """
    require_entries(folder, "images", masks, "labels.json", description=f"{name} (images, {masks} and labels.json)")
    check_labels(folder / "labels.json", values)


def check_labels(file: Path, values: Mapping[int, str]) -> None:
    """Check that `file` is a JSON list with one name for each structure; the wording may differ.

    Raises:
        DataError: it is not.
    """
    names = read_json(file, list)
    if not all(isinstance(name, str) for name in names) or len(names) != len(values):
        raise DataError(
            f"{file} must list {len(values)} names, one per structure ({', '.join(values.values())}); it lists {names}."
        )


def parse_last_number(name: str) -> str:
    """Return the last number of a case name, which is the patient in data sets with one scan per patient.

    Raises:
        DataError: the name has no number.
    """
    numbers = re.findall(r"\d+", name)
    if not numbers:
        raise DataError(f"The case name {name!r} has no number, which should name the patient.")
    return str(numbers[-1])


def read_mask(file: Path, values: Mapping[int, str]) -> NDArray[np.uint8]:
    """Read a mask file as integers; masks stored as floats are rounded.

    Raises:
        DataError: the file does not open, contains fractions, or a value of no known structure.
    """
    array = _read_array(file)
    rounded = np.rint(array)
    if float(np.abs(array - rounded).max(initial=0)) > 1e-3:
        raise DataError(f"{file} is no mask: it contains fractions, for example {array[array != rounded].flat[0]:g}.")
    unknown = sorted(set(np.unique(rounded).astype(int).tolist()) - {0, *values})
    if unknown:
        raise DataError(f"{file} contains the unknown values {unknown[:5]}; known are {sorted(values)}.")
    return np.asarray(rounded, dtype=np.uint8)


def _read_array(file: Path) -> NDArray[Any]:
    """Return the stored values of a NIfTI or picture file."""
    is_volume = file.name.lower().endswith(NIFTI)
    try:
        array = attempt(partial(_read_volume if is_volume else _read_picture, file))
    except Unreadable as error:
        raise DataError(f"The mask {file} does not open: {error}.") from error
    if not is_volume and array.ndim != 2:
        raise DataError(f"{file} is no mask: it has {array.shape[-1]} colour channels.")
    return array


def _read_volume(file: Path) -> NDArray[Any]:
    import nibabel as nib

    return np.asanyarray(nib.load(file).dataobj)


def _read_picture(file: Path) -> NDArray[Any]:
    from PIL import Image

    with Image.open(file) as picture:
        return np.asarray(picture)


class Outline:
    """A mask as drawn by a second reader, and its agreement with the true shapes.

    The image shows the true shapes; the outlines of the mask have a smooth error that no model can predict. Therefore
    the agreement (`mean_agreement`) is the best possible Dice.
    """

    def __init__(self, shape: tuple[int, ...], random: Random, outline_error: float) -> None:
        self.random, self.outline_error = random, outline_error
        self.true_mask = np.zeros(shape, dtype=np.uint8)
        self.mask = np.zeros(shape, dtype=np.uint8)

    def add(self, blob: Blob, value: int, within: int | None = None) -> None:
        """Add a structure over the earlier ones. `within` limits it to the inside of structures of that value."""
        redrawn = blob.redraw_outline(self.random, self.outline_error)
        for array, region in ((self.true_mask, blob.hard_mask()), (self.mask, redrawn)):
            box = array[blob.box]
            box[region & ((box == within) if within is not None else True)] = value

    def dice_by_value(self) -> dict[int, float]:
        """Return the Dice of true shapes and mask for each value that occurs in either."""
        values = sorted({*np.unique(self.true_mask).tolist(), *np.unique(self.mask).tolist()} - {0})
        return {value: dice(self.true_mask == value, self.mask == value) for value in values}


def mean_agreement(agreements: list[dict[int, float]], selected_values: tuple[int, ...] = ()) -> float:
    """Return the mean over structures of their mean over cases; `selected_values` restricts the structures."""
    values = sorted(
        {value for agreement in agreements for value in agreement if not selected_values or value in selected_values}
    )
    return float(
        np.mean([np.mean([agreement[value] for agreement in agreements if value in agreement]) for value in values])
    )


def paint(outline: Outline, brightness: Mapping[int, float], background: float | Floats) -> Floats:
    """Return an image in which every true structure has its brightness."""
    table = np.zeros(256, dtype=np.float32)
    for value, level in brightness.items():
        table[value] = level
    image = table[outline.true_mask]
    return np.asarray(np.where(outline.true_mask == 0, np.float32(1) * background, image), dtype=np.float32)
