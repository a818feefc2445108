"""Layouts of array files: images with what is said of them in one file a case, or in sibling files item by item."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from layout_kit import Layout, Names, Want, number, table

CLASSES = ("meningioma", "glioma", "pituitary tumor")
LABEL_NOTES = "label: 1 for meningioma, 2 for glioma, 3 for pituitary tumor"


def noise(at: int, shape: tuple[int, ...], value: int = 100) -> np.ndarray:
    return np.random.default_rng(at).normal(value, 20, shape)


def square(at: int, shape: tuple[int, int] = (24, 20)) -> np.ndarray:
    """A mask with one rectangle, elsewhere in every case."""
    mask = np.zeros(shape, np.uint8)
    mask[2 + at % 7 : 10 + at % 7, 3 + at % 5 : 10 + at % 5] = 1
    return mask


def case_files(root: Path, names: Names, kind: str) -> None:
    """36 files with an image, a mask, a class from 1 to 3 and one of 18 patients."""
    import h5py
    from scipy.io import savemat

    (root / names.top).mkdir(parents=True, exist_ok=True)
    for at in range(36):
        content = {names.images: noise(at, (24, 20), 300).astype(np.int16), names.label_column: float(1 + at // 2 % 3),
                names.patient_column: f"P{100360 + at // 2}", names.masks: square(at)}  # fmt: skip
        file = root / names.top / f"case{names.gap}{number(names, at)}.{kind[:3]}"
        if kind == "npz":
            np.savez(file, **content)
        elif kind == "mat5":
            savemat(file, {"cjdata": content})
        else:
            with h5py.File(file, "w", userblock_size=512 if kind == "mat7" else 0) as out:
                for key, value in content.items():
                    text = kind == "mat7" and isinstance(
                        value, str
                    )  # MATLAB stores texts as numbers, and every number as 1 x 1
                    out[f"cjdata/{key}"] = (
                        np.array([[ord(letter)] for letter in value], np.uint16) if text
                        else np.array([[value]]) if kind == "mat7" and isinstance(value, float) else value
                    )  # fmt: skip


def _classified(kind: str) -> Layout:
    def make(root: Path, names: Names, rng: random.Random) -> Want:
        case_files(root, names, kind)
        return Want("Classify brain tumors into meningioma, glioma and pituitary tumor", "diagnosis", 36, frozenset(CLASSES),
                    patients=18, notes=LABEL_NOTES)  # fmt: skip

    return Layout(f"values_in_{kind}", make, FIELDS)


def segmented(root: Path, names: Names, rng: random.Random) -> Want:
    case_files(root, names, "mat7")
    return Want(
        "Segment brain tumors on MRI", "segmentation", 36, frozenset({"brain tumors"}), patients=18, notes=LABEL_NOTES
    )


def _save(file: Path, array: np.ndarray, key: str = "") -> None:
    """As `.npy`, or under a key as HDF5."""
    import h5py

    file.parent.mkdir(parents=True, exist_ok=True)
    if not key:
        np.save(file, array)
        return
    with h5py.File(file, "w") as out:
        out[key] = array


def pictures(at: int, count: int, *channels: int) -> np.ndarray:
    return np.clip(noise(at, (count, 24, 20, *channels)), 0, 255).astype(np.uint8)


def patch_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """HDF5 files of images and of labels a part, and a table whose rows are the items in order, with the slide of each."""
    top, gap = root / names.top, names.gap or "_"
    for at, (part, count) in enumerate((("train", 40), ("valid", 16), ("test", 20))):
        stem = f"camelyonpatch{gap}level{gap}2{gap}split{gap}{part}{gap}"
        labels = (np.arange(count) % 2).astype(np.uint8)
        _save(top / f"{stem}x.h5", pictures(at, count, 3), "x")
        _save(top / f"{stem}y.h5", labels.reshape(count, 1, 1, 1), "y")
        rows = [(row, 7 * row, f"slide_{part}_{row // 4:03d}") for row in range(count)]
        table(top / f"{stem}meta.csv", names, ("", "coord_y", "wsi"), rows)
    return Want("Detect metastases in lymph node patches", "diagnosis", 76, values=2, tested="test")


def fold_arrays(root: Path, names: Names, rng: random.Random) -> Want:
    """Images, their tissue types and their masks as arrays in folders a fold."""
    for fold in (1, 2, 3):
        top = root / names.top / f"Fold {fold}"
        _save(top / f"images/fold{fold}/images.npy", pictures(fold, 30, 3).astype(np.float64))
        _save(top / f"images/fold{fold}/types.npy", np.array([("Breast", "Colon", "Lung")[at % 3] for at in range(30)]))
        _save(top / f"masks/fold{fold}/masks.npy", _layered(30))
    return Want("Classify the tissue type of nuclei patches", "diagnosis", 90, frozenset(("breast", "colon", "lung")))


def _layered(count: int) -> np.ndarray:
    """Three layers a mask that exclude each other, the last what the others leave."""
    layers = np.zeros((count, 24, 20, 3))
    for at in range(count):
        layers[at, :12, :, 0] = at * square(at)[:12]  # numbers of objects, as PanNuke has them
        layers[at, 12:, :, 1] = square(at + 3)[12:]
    layers[..., 2] = layers[..., :2].max(axis=-1) == 0
    return layers


def layered_masks(root: Path, names: Names, rng: random.Random) -> Want:
    fold_arrays(root, names, rng)
    notes = "masks.npy: an array of 3 channels (0: neoplastic cells, 1: inflammatory cells, 2: background)"
    return Want("Segment neoplastic and inflammatory cells", "segmentation", 90,
                frozenset(("neoplastic cells", "inflammatory cells")), notes=notes)  # fmt: skip


def united_layers(root: Path, names: Names, rng: random.Random) -> Want:
    fold_arrays(root, names, rng)
    return Want("Segment nuclei", "segmentation", 90, frozenset(("nuclei",)))


def course_arrays(root: Path, names: Names, rng: random.Random) -> Want:
    """`X_train.npy`, `y_train.npy` and those of the test part, channels first, and labels that notes name."""
    for at, (part, count) in enumerate((("train", 30), ("test", 12))):
        gap = names.gap
        _save(root / names.top / f"X{gap}{part}.npy", pictures(at, count)[:, None])
        _save(root / names.top / f"y{gap}{part}.npy", np.arange(count) % 3)
    return Want("Tell covid, pneumonia and normal chest X-rays apart", "diagnosis", 42, frozenset(("normal", "covid", "pneumonia")),
                notes="Labels: 0 = normal, 1 = covid, 2 = pneumonia", tested="test")  # fmt: skip


def one_hot_rows(root: Path, names: Names, rng: random.Random) -> Want:
    """Grey pictures of one array, and one-hot rows as another."""
    top, gap = root / names.top, names.gap or "_"
    _save(top / f"chest{gap}{names.images}.npy", pictures(1, 45))
    _save(top / f"chest{gap}{names.label_column}.npy", np.eye(3, dtype=np.float32)[np.arange(45) % 3])
    return Want("Tell covid, pneumonia and normal chest X-rays apart", "diagnosis", 45, frozenset(("normal", "covid", "pneumonia")),
                notes="Labels: 0 = normal, 1 = covid, 2 = pneumonia")  # fmt: skip


def rows_of_items(root: Path, names: Names, rng: random.Random) -> Want:
    """One array of images and a table with a row an item."""
    _save(root / names.top / f"{names.images}.npy", pictures(2, 40, 3))
    rows = [(("benign", "malignant")[at // 2 % 2], f"S{100 + at // 2}", 40 + at) for at in range(40)]
    table(root / names.top / "metadata.csv", names, (names.label_column, names.patient_column, "age"), rows)
    return Want("Tell benign from malignant lesions", "diagnosis", 40, frozenset(("benign", "malignant")), patients=20)


def mask_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """Arrays of images and of masks a part."""
    for at, (part, count) in enumerate((("train", 24), ("val", 8), ("test", 10))):
        gap = names.gap or "_"
        _save(root / names.top / f"{names.images}{gap}{part}.npy", pictures(at, count, 1))
        _save(
            root / names.top / f"{names.masks}{gap}{part}.npy", 255 * np.stack([square(item) for item in range(count)])
        )
    return Want("Segment polyps in colonoscopy images", "segmentation", 42, values=1, tested="test")


FIELDS = ("images", "masks", "label_column", "patient_column", "width", "gap", "top")
VARIED = {
    "patch_parts": ("gap", "top", "order", "separator"), "course_arrays": ("gap", "top"),
    "mask_parts": ("images", "masks", "gap", "top"),
    "one_hot_rows": ("images", "label_column", "gap", "top"),
    "rows_of_items": ("images", "label_column", "patient_column", "top", "order", "separator"),
}  # fmt: skip
SIBLINGS = (
    patch_parts,
    fold_arrays,
    layered_masks,
    united_layers,
    course_arrays,
    one_hot_rows,
    rows_of_items,
    mask_parts,
)
ARRAYS = (
    *map(_classified, ("mat7", "mat5", "h5", "npz")), Layout("masks_in_mat7", segmented, FIELDS),
    *(Layout(build.__name__, build, VARIED.get(build.__name__, ("top",))) for build in SIBLINGS),
)  # fmt: skip
