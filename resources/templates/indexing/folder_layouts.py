"""What a case is, names of files and folders, and class folders as cases. Archives are in archives.py, tables in tables.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

IMAGES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".dcm", ".dicom", ".ima",
    ".nii", ".nii.gz", ".nrrd", ".nhdr", ".mha", ".mhd", ".npy", ".npz", ".pt", ".pth", ".pkl", ".pck", ".pickle",
    ".h5", ".hdf5",
)  # fmt: skip
LONGEST_FIRST = sorted(IMAGES, key=len, reverse=True)
SLICES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom", ".ima")
HALVES = ("train", "training", "test", "testing", "val", "valid", "validation")
HALF_WORDS = {
    "train": "train", "training": "train", "tr": "train", "test": "test", "testing": "test", "ts": "test",
    "val": "val", "valid": "val", "validation": "val",
}  # fmt: skip
MASKS = (
    "mask", "masks", "segmentation", "segmentations", "annotation", "annotations", "label", "labels", "ground_truth",
    "groundtruth", "gt",
)  # fmt: skip
PLAIN = ("image", "images", "img", "imgs", "data", "png", "jpg", "jpeg", "dicom", "slices", "scans")
"""Names of folders that say nothing of the patient."""
MIN_PATIENTS = 4


Box = tuple[str, list[float]]
"""A label, and the lower corner then the upper one."""


@dataclass
class Case:
    """One image with whatever is known of it; paths count from the working directory.

    Args:
        values: labels; of masks and boxes the classes that occur.
        mask: a file of numbers, or binary masks by class; None where nothing is marked.
        boxes: None where the layout has none.
    """

    image: str | list[str]
    values: list[str]
    patient: str = ""
    row: dict[str, str] = field(default_factory=dict)
    split: str = ""
    mask: str | dict[str, str] | None = None
    boxes: list[Box] | None = None
    findings: str = ""
    impression: str = ""


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key by which slice10 follows slice9."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in parts]


def is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(IMAGES)


def stem(name: str) -> str:
    """The name without its ending, `.nii.gz` as one."""
    lower = name.lower()
    return next((name[: -len(end)] for end in LONGEST_FIRST if lower.endswith(end)), name)


def in_mask_folder(path: Path) -> bool:
    return any(part.lower() in MASKS for part in path.parts[:-1])


def half_of(path: str) -> str:
    """The part of the data set that a path's folders speak of: train, val or test; empty if none does."""
    for part in reversed(path.split("/")[:-1]):
        for word in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=T[rs]$)", "_", part).lower()):
            if word in HALF_WORDS:
                return HALF_WORDS[word]
    return ""


def image_files(folder: Path) -> Iterator[Path]:
    """Every image below a folder, in natural order."""
    for path in sorted(folder.rglob("*"), key=lambda p: natural(p.as_posix())):
        if is_image(path.name) and path.is_file():
            yield path


# --- folders -----------------------------------------------------------------------------------------------------


def from_class_folders(folder: Path, *, unit: str, skip: tuple[str, ...] = ()) -> list[Case]:
    """Cases of `folder/CLASS/...`, or of `folder/{train,test}/CLASS/...`; the class folder's name is the label.

    Args:
        unit: `file` (each image is a case), `folder` (each innermost folder is a volume of slices) or `auto`.
        skip: names of folders that are no class, in lower case.
    """
    cases = _classes(folder, unit, skip)
    patients = {case.patient for case in cases if case.patient}
    if 0 < len(patients) < MIN_PATIENTS:
        print(f"folders below the classes ({', '.join(sorted(patients))}): too few to be patients")
        for case in cases:
            case.patient = ""
    elif patients:
        print(f"patient: the folder below the class ({len(patients)} different ones)")
    return cases


def _classes(folder: Path, unit: str, skip: tuple[str, ...]) -> list[Case]:
    parts = _with_images(folder, skip)
    halves = [part for part in parts if part.name.lower() in HALVES]
    if len(halves) >= 2 or (halves and len(parts) == 1):
        cases = []
        for half in halves:
            for case in _classes(half, unit, skip):
                case.split = half.name.lower()
                cases.append(case)
        return cases
    loose = any(is_image(item.name) for item in folder.iterdir() if item.is_file())
    if len(parts) == 1 and not loose and _wraps(parts[0], skip):
        return _classes(parts[0], unit, skip)  # archives are often wrapped in a folder of the same name
    return [case for part in parts for case in _of_class(part, unit)]


def _with_images(folder: Path, skip: tuple[str, ...]) -> list[Path]:
    """The sub-folders that hold images; those of masks only where there is nothing else."""
    parts = sorted((p for p in folder.iterdir() if p.is_dir()), key=lambda p: natural(p.name))
    parts = [p for p in parts if not p.name.startswith((".", "__MACOSX")) and p.name.lower() not in skip]
    parts = [p for p in parts if next((f for f in p.rglob("*") if is_image(f.name) and f.is_file()), None)]
    return [p for p in parts if p.name.lower() not in MASKS] or parts


def _wraps(folder: Path, skip: tuple[str, ...]) -> bool:
    """Whether classes lie further down; many folders of slices are volumes instead."""
    inner = _with_images(folder, skip)
    if not any(part.name.lower() not in PLAIN or _with_images(part, skip) for part in inner):
        return False
    files = list(image_files(folder))
    return len({file.parent for file in files}) <= 30 or not _looks_like_slices(folder, files)


def _of_class(part: Path, unit: str) -> list[Case]:
    everything = list(image_files(part))
    files = [file for file in everything if not in_mask_folder(file.relative_to(part))] or everything
    if len(files) < len(everything):
        print(f"{part}: {len(everything) - len(files)} images in folders of masks are left out")
    kind = unit if unit != "auto" else ("folder" if _looks_like_slices(part, files) else "file")
    places = files if kind == "file" else list(dict.fromkeys(file.parent for file in files))
    cases = []
    for place in places:
        below = place.relative_to(part).parts
        above = [name for name in (below if kind == "folder" else below[:-1]) if name.lower() not in PLAIN]
        cases.append(Case(place.as_posix(), [part.name], above[0] if above else ""))
    return cases


def _looks_like_slices(part: Path, files: list[Path]) -> bool:
    """Whether images lie in three sub-folders or more, each of at least eight as a rule, and numbered."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    folders = {place: members for place, members in folders.items() if place.name.lower() not in PLAIN}
    folders.pop(part, None)
    if len(folders) < 3 or any(file.suffix.lower() not in SLICES for file in files):
        return False
    sizes = sorted(len(members) for members in folders.values())
    numbered = sum(all(re.search(r"\d", file.stem) for file in members) for members in folders.values())
    return sizes[len(sizes) // 2] >= 8 and numbered >= 0.8 * len(folders)
