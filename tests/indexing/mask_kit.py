"""Small masks, volumes and boxes on a desk."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image


def picture(desk: Any, name: str, size: tuple[int, int] = (8, 10)) -> None:
    file = desk.raw / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(desk.random.integers(0, 255, size, dtype=np.uint8)).save(file)


def mask(desk: Any, name: str, *values: int, size: tuple[int, int] = (8, 10)) -> None:
    """A PNG whose first pixels hold the values, all others 0."""
    pixels = np.zeros(size, np.uint8)
    pixels.flat[: len(values)] = values
    file = desk.raw / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def volume(
    desk: Any, name: str, *values: float, shape: tuple[int, int, int] = (6, 7, 4), dtype: type = np.uint8
) -> None:
    """A NIfTI file: random without values, else a mask that holds them."""
    import nibabel as nib

    array = np.zeros(shape, dtype)
    if values:
        array.flat[: len(values)] = values
    else:
        array = desk.random.integers(0, 200, shape).astype(np.int16)
    file = desk.raw / name
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([1.0, 1.0, 2.0, 1.0])), file)


def values(built: Any, desk: Any) -> dict[str, int]:
    """label_dict.json."""
    import json

    return dict(json.loads((desk.work / "Datapath" / "label_dict.json").read_bytes()))
