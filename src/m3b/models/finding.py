"""Which images a path holds: files as they are, folders opened, series and stacks of slices kept together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.reading import shared
from m3b.untrusted import announce_opening


@dataclass
class ImageListing:
    """Images in natural order, and what was passed over and why."""

    images: list[str | list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_images(paths: Iterable[str | Path], *, is_2d: bool, group_views: bool = False) -> ImageListing:
    """The images below paths.

    A file, or a reference `archive.npz#key[17]`, is taken as it is. Of a folder: volumes (NIfTI, NRRD, MHA) and arrays
    are one image each; pictures and DICOM files are one image each for a model of 2D images, else together one volume,
    the folder; subfolders are opened likewise. Anything else is passed over with a note.

    Args:
        is_2d: whether the model takes 2D images.
        group_views: whether the pictures of one folder are the views of one study, in natural order.
    """
    listing = ImageListing()
    for path in paths:
        if Path(path).is_dir():
            n_before = len(listing.images)
            _list_folder(Path(path), is_2d, group_views, listing)
            if len(listing.images) == n_before:
                listing.notes.append(f"{path}: no image in this folder")
        else:
            listing.images.append(str(path))
    return listing


def _list_folder(folder: Path, is_2d: bool, group_views: bool, listing: ImageListing) -> None:
    images = shared()
    entries = sorted(
        (item for item in folder.iterdir() if not item.name.startswith(".")),
        key=lambda item: images.natural_key(item.name),
    )
    files_by_kind: dict[str, list[Path]] = {}
    for item in entries:
        if item.is_file() and item.name.upper() != "DICOMDIR":
            files_by_kind.setdefault(images.kind_of(item), []).append(item)
    other_files = files_by_kind.pop("", [])
    if other_files:
        names = ", ".join(item.name for item in other_files[:3]) + (", ..." if len(other_files) > 3 else "")
        listing.notes.append(f"{folder}: {len(other_files)} file(s) passed over that are no images: {names}")
    slices = {kind: files_by_kind.pop(kind, []) for kind in ("picture", "dicom")}
    single_files = [item for items in files_by_kind.values() for item in items]
    for kind, items in slices.items():
        if not is_2d and len(items) > 1:
            _add_stack(
                folder,
                kind,
                items,
                is_only_content=not single_files and not (kind == "picture" and slices["dicom"]),
                listing=listing,
            )
        elif group_views and len(items) > 1:
            listing.images.append([str(item) for item in items])
        else:
            single_files += items
    listing.images += [str(item) for item in sorted(single_files, key=lambda item: images.natural_key(item.name))]
    for item in entries:
        if item.is_dir():
            _list_folder(item, is_2d, group_views, listing)


def _add_stack(folder: Path, kind: str, items: list[Path], *, is_only_content: bool, listing: ImageListing) -> None:
    if kind == "dicom":
        n_series = _count_series(items)
        if n_series > 1:
            listing.notes.append(
                f"{folder}: {n_series} DICOM series in one folder, of which only the longest is read; give each a folder"
            )
    if is_only_content:
        listing.images.append(str(folder))
    else:
        listing.notes.append(f"{folder}: {len(items)} slices beside whole volumes; they were passed over")


def _count_series(items: list[Path]) -> int:
    """How many DICOM series the files belong to."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    series_uids = set()
    for item in items:
        announce_opening(item)
        try:
            header = pydicom.dcmread(item, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
        except (InvalidDicomError, OSError):
            continue  # who opens it will say what is wrong with it
        series_uids.add(str(header.get("SeriesInstanceUID", "")))
    return len(series_uids)
