"""Which images a path holds: files as they are, folders opened, series and stacks of slices kept together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.reading import shared
from m3b.untrusted import opening


@dataclass
class FoundModel:
    """Images in natural order, and what was passed over and why."""

    images: list[str | list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_images(paths: Iterable[str | Path], *, flat: bool, studies: bool = False) -> FoundModel:
    """The images below paths.

    A file, or a reference `archive.npz#key[17]`, is taken as it is. Of a folder: volumes (NIfTI, NRRD, MHA) and arrays
    are one image each; pictures and DICOM files are one image each for a model of 2D images, else together one volume,
    the folder; subfolders are opened likewise. Anything else is passed over with a note.

    Args:
        flat: whether the model takes 2D images.
        studies: whether the pictures of one folder are the views of one study, in natural order.
    """
    found = FoundModel()
    for path in paths:
        if Path(path).is_dir():
            before = len(found.images)
            _open(Path(path), flat, studies, found)
            if len(found.images) == before:
                found.notes.append(f"{path}: no image in this folder")
        else:
            found.images.append(str(path))
    return found


def _open(folder: Path, flat: bool, studies: bool, found: FoundModel) -> None:
    images = shared()
    entries = sorted(
        (item for item in folder.iterdir() if not item.name.startswith(".")),
        key=lambda item: images.natural_key(item.name),
    )
    kinds: dict[str, list[Path]] = {}
    for item in entries:
        if item.is_file() and item.name.upper() != "DICOMDIR":
            kinds.setdefault(images.kind_of(item), []).append(item)
    other = kinds.pop("", [])
    if other:
        names = ", ".join(item.name for item in other[:3]) + (", ..." if len(other) > 3 else "")
        found.notes.append(f"{folder}: {len(other)} file(s) passed over that are no images: {names}")
    slices = {kind: kinds.pop(kind, []) for kind in ("picture", "dicom")}
    single = [item for items in kinds.values() for item in items]
    for kind, items in slices.items():
        if not flat and len(items) > 1:
            _stack(folder, kind, items, alone=not single and not (kind == "picture" and slices["dicom"]), found=found)
        elif studies and len(items) > 1:
            found.images.append([str(item) for item in items])
        else:
            single += items
    found.images += [str(item) for item in sorted(single, key=lambda item: images.natural_key(item.name))]
    for item in entries:
        if item.is_dir():
            _open(item, flat, studies, found)


def _stack(folder: Path, kind: str, items: list[Path], *, alone: bool, found: FoundModel) -> None:
    if kind == "dicom":
        series = _series(items)
        if series > 1:
            found.notes.append(
                f"{folder}: {series} DICOM series in one folder, of which only the longest is read; give each a folder"
            )
    if alone:
        found.images.append(str(folder))
    else:
        found.notes.append(f"{folder}: {len(items)} slices beside whole volumes; they were passed over")


def _series(items: list[Path]) -> int:
    """How many DICOM series the files belong to."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    found = set()
    for item in items:
        opening(item)
        try:
            header = pydicom.dcmread(item, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
        except (InvalidDicomError, OSError):
            continue  # who opens it will say what is wrong with it
        found.add(str(header.get("SeriesInstanceUID", "")))
    return len(found)
