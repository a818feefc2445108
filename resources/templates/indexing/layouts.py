"""Reading raw layouts into cases: tables, class folders, JSON lists and array archives."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

IMAGES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom", ".nii", ".nii.gz", ".nrrd", ".mha", ".mhd",
    ".npy", ".npz", ".pt", ".pth", ".pkl", ".pck", ".pickle", ".h5", ".hdf5",
)  # fmt: skip
SLICES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom", "")


@dataclass
class Case:
    """One image with whatever is known of it; `image` counts from the working directory."""

    image: str | list[str]
    values: list[str]
    patient: str = ""
    row: dict[str, str] = field(default_factory=dict)
    split: str = ""


def natural(text: str) -> list[object]:
    """A sort key by which slice10 follows slice9."""
    return [int(part) if part.isdigit() else part.lower() for part in re.split(r"(\d+)", text)]


def is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(IMAGES)


def image_files(folder: Path) -> Iterator[Path]:
    """Every image below a folder, in natural order."""
    for path in sorted(folder.rglob("*"), key=lambda p: natural(p.as_posix())):
        if path.is_file() and is_image(path.name):
            yield path


# --- tables ------------------------------------------------------------------------------------------------------


def read_rows(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV, TSV, JSON list or JSONL file, all values as text."""
    if file.suffix.lower() in (".json", ".jsonl"):
        text = file.read_text(encoding="utf-8-sig")
        items = (
            [json.loads(line) for line in text.splitlines() if line.strip()]
            if file.suffix == ".jsonl"
            else json.loads(text)
        )
        if isinstance(items, dict):
            lists = [value for value in items.values() if isinstance(value, list)]
            if len(lists) != 1:
                raise SystemExit(f"{file} is a JSON object; name a file that holds a list of records.")
            items = lists[0]
        return [{str(k): _text(v) for k, v in item.items()} for item in items]
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        head = stream.read(64 * 1024)
        stream.seek(0)
        first = head.split("\n", 1)[0]
        delimiter = max(",;\t|", key=first.count)
        reader = csv.DictReader(stream, delimiter=delimiter)
        return [{(k or "").strip(): (v or "").strip() for k, v in row.items() if k is not None} for row in reader]


def _text(value: object) -> str:
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value).strip()


class Finder:
    """Finds the file that a table means by a path, a name, or a name without its ending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*"), key=lambda p: natural(p.as_posix())):
            if path.name.startswith("."):
                continue
            if path.is_file() and is_image(path.name):
                self.by_name.setdefault(path.name.lower(), []).append(path)
                self.by_name.setdefault(stem(path.name).lower(), []).append(path)
            elif path.is_dir():
                self.by_name.setdefault(path.name.lower(), []).append(path)

    def find(self, name: str) -> Path | None:
        if not name:
            return None
        direct = self.folder / name
        if direct.exists():
            return direct
        last = name.replace("\\", "/").rstrip("/").split("/")[-1]
        found = self.by_name.get(last.lower()) or self.by_name.get(stem(last).lower()) or []
        if len(found) > 1:  # the same name in several folders: the one whose path ends like the table's
            parts = name.replace("\\", "/").lower().split("/")
            found = sorted(found, key=lambda p: -_same_tail([q.lower() for q in p.parts], parts))
        return found[0] if found else None


def _same_tail(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count


def stem(name: str) -> str:
    """The name without its ending, `.nii.gz` as one."""
    lower = name.lower()
    return next((name[: -len(end)] for end in sorted(IMAGES, key=len, reverse=True) if lower.endswith(end)), name)


def from_table(
    rows: Iterable[dict[str, str]],
    finder: Finder,
    *,
    image: str,
    labels: list[str],
    separator: str,
    patient: str,
    split: str,
) -> tuple[list[Case], list[str]]:
    """Cases of a table, and the image names for which there is no file.

    Several `labels` columns are read as one yes/no column a class.
    """
    cases, absent = [], []
    for row in rows:
        path = finder.find(row[image])
        if path is None:
            absent.append(row[image])
            continue
        if len(labels) == 1:
            text = row[labels[0]]
            values = [part.strip() for part in text.split(separator) if part.strip()] if separator else [text]
        else:
            values = [
                name for name in labels if row[name].strip().lower() in ("1", "1.0", "true", "yes", "y", "positive")
            ]
        cases.append(Case(path.as_posix(), values, row.get(patient, ""), row, row.get(split, "")))
    return cases, absent


# --- folders -----------------------------------------------------------------------------------------------------


def from_class_folders(folder: Path, *, unit: str) -> list[Case]:
    """Cases of `folder/CLASS/...`, or of `folder/{train,test}/CLASS/...`; the class folder's name is the label.

    Args:
        unit: `file` (each image is a case), `folder` (each innermost folder is a volume of slices) or `auto`.
    """
    parts = {p.name.lower(): p for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith(".")}
    halves = {
        name: p
        for name, p in parts.items()
        if name in ("train", "training", "test", "testing", "val", "valid", "validation")
    }
    if len(halves) >= 2:
        cases = []
        for name, half in halves.items():
            for case in from_class_folders(half, unit=unit):
                case.split = name
                cases.append(case)
        return cases
    only = list(parts.values())
    if len(only) == 1 and not any(is_image(p.name) for p in folder.iterdir()):
        return from_class_folders(only[0], unit=unit)  # archives are often wrapped in a folder of the same name
    cases = []
    for part in only:
        files = list(image_files(part))
        kind = unit if unit != "auto" else ("folder" if _looks_like_slices(part, files) else "file")
        places = files if kind == "file" else list(dict.fromkeys(file.parent for file in files))
        for place in places:
            below = place.relative_to(part).parts
            patient = f"{part.name}/{below[0]}" if len(below) > 1 else ""
            cases.append(Case(place.as_posix(), [part.name], patient))
    return cases


def _looks_like_slices(part: Path, files: list[Path]) -> bool:
    """Whether images lie in sub-folders of at least eight, numbered from a low number on."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    folders.pop(part, None)
    if not folders or any(file.suffix.lower() not in SLICES for file in files):
        return False
    sizes = sorted(len(members) for members in folders.values())
    numbered = sum(all(re.search(r"\d+", file.stem) for file in members) for members in folders.values())
    return sizes[len(sizes) // 2] >= 8 and numbered >= 0.8 * len(folders)


# --- archives ----------------------------------------------------------------------------------------------------


def from_archive(file: Path, names: dict[str, str]) -> list[Case]:
    """Cases of a MedMNIST-like NPZ: arrays `train_images`, `train_labels`, `test_images`, ... of equal length.

    Args:
        names: from a label's number (as text) to its name.
    """
    import numpy as np

    cases = []
    with np.load(file, allow_pickle=False) as archive:
        keys = set(archive.files)
        halves = [
            (k, k[: -len("images")] + "labels", k[: -len("images")].strip("_"))
            for k in sorted(keys)
            if k.endswith("images")
        ]
        if not halves or any(label not in keys for _, label, _ in halves):
            raise SystemExit(f"{file} holds {sorted(keys)}; expected pairs such as train_images and train_labels.")
        for images, label, split in halves:
            for number, row in enumerate(archive[label].reshape(len(archive[label]), -1)):
                if len(row) > 1:
                    values = [names.get(str(at), str(at)) for at, on in enumerate(row) if on]
                else:
                    values = [names.get(str(int(row[0])), str(int(row[0])))]
                place = f"{file.as_posix()}#{images}[{number}]"
                cases.append(Case(place, values, f"{split or 'case'}-{number}", {}, split))
    return cases
