"""Layouts of array files: images with what is said of them in one file a case."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from layout_kit import Layout, Names, Want, number

CLASSES = ("meningioma", "glioma", "pituitary tumor")
TOLD = "label: 1 for meningioma, 2 for glioma, 3 for pituitary tumor"


def noise(at: int, shape: tuple[int, ...], value: int = 100) -> np.ndarray:
    return np.random.default_rng(at).normal(value, 20, shape)


def square(at: int, shape: tuple[int, int] = (24, 20)) -> np.ndarray:
    """A mask with one rectangle, elsewhere in every case."""
    drawn = np.zeros(shape, np.uint8)
    drawn[2 + at % 7 : 10 + at % 7, 3 + at % 5 : 10 + at % 5] = 1
    return drawn


def case_files(root: Path, names: Names, kind: str) -> None:
    """36 files with an image, a mask, a class from 1 to 3 and one of 18 patients."""
    import h5py
    from scipy.io import savemat

    (root / names.top).mkdir(parents=True, exist_ok=True)
    for at in range(36):
        held = {names.images: noise(at, (24, 20), 300).astype(np.int16), names.label_column: float(1 + at // 2 % 3),
                names.patient_column: f"P{100360 + at // 2}", names.masks: square(at)}  # fmt: skip
        file = root / names.top / f"case{names.gap}{number(names, at)}.{kind[:3]}"
        if kind == "npz":
            np.savez(file, **held)
        elif kind == "mat5":
            savemat(file, {"cjdata": held})
        else:
            with h5py.File(file, "w", userblock_size=512 if kind == "mat7" else 0) as out:
                for key, value in held.items():
                    text = kind == "mat7" and isinstance(
                        value, str
                    )  # MATLAB stores texts as numbers, and every number as 1 x 1
                    out[f"cjdata/{key}"] = (
                        np.array([[ord(one)] for one in value], np.uint16) if text
                        else np.array([[value]]) if kind == "mat7" and isinstance(value, float) else value
                    )  # fmt: skip


def _classified(kind: str) -> Layout:
    def make(root: Path, names: Names, rng: random.Random) -> Want:
        case_files(root, names, kind)
        return Want("Classify brain tumors into meningioma, glioma and pituitary tumor", "diagnosis", 36, frozenset(CLASSES),
                    patients=18, notes=TOLD)  # fmt: skip

    return Layout(f"values_in_{kind}", make, FIELDS)


def segmented(root: Path, names: Names, rng: random.Random) -> Want:
    case_files(root, names, "mat7")
    return Want("Segment brain tumors on MRI", "segmentation", 36, frozenset({"brain tumors"}), patients=18, notes=TOLD)


FIELDS = ("images", "masks", "label_column", "patient_column", "width", "gap", "top")
ARRAYS = (*map(_classified, ("mat7", "mat5", "h5", "npz")), Layout("masks_in_mat7", segmented, FIELDS))
