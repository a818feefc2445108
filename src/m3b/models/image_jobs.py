"""Worker jobs on images for people: find the images in folders, and draw pictures of their content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.data.records import paths_of, relocated
from m3b.isolation.reader import Reader, WorkerJob
from m3b.isolation.reader.base64_bytes import Blob
from m3b.isolation.reader.inprocess import file_of_reader_path, open_reader, to_reader_path
from m3b.isolation.untrusted import announce_opening
from m3b.models.predictions import ModelInfo, Prediction
from m3b.models.thresholds import DEFAULT_BOX_SCORE


@dataclass
class ImageListing:
    """Images in natural order, and notes on what was skipped, `broken_links` among it."""

    images: list[str | list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    broken_links: list[str] = field(default_factory=list)


def find_images(paths: Iterable[str | Path], *, is_2d: bool, group_views: bool = False) -> ImageListing:
    """Return the images below paths.

    A file, or a reference `archive.npz#key[17]`, is taken as it is. In a folder, volumes (NIfTI, NRRD, MHA) and arrays
    are one image each. Pictures and DICOM files are one image each for a model of 2D images; for other models they form
    one volume, the folder. Subfolders are searched in the same way. Anything else is skipped with a note.

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
    from m3b.dataset.formats.base import natural_key

    entries = sorted(
        (item for item in folder.iterdir() if not item.name.startswith(".")),
        key=lambda item: natural_key(item.name),
    )
    files_by_kind: dict[str, list[Path]] = {}
    for item in entries:
        if item.is_file() and item.name.upper() != "DICOMDIR":
            files_by_kind.setdefault(_stack_kind(item), []).append(item)
    broken_links = [item for item in entries if item.is_symlink() and not item.exists()]
    listing.broken_links += map(str, broken_links)
    listing.notes += [
        f"{item}: skipped, because this link leads to {os.readlink(item)}, which is missing or out of the folder"
        for item in broken_links
    ]
    other_files = files_by_kind.pop("", [])
    if other_files:
        names = ", ".join(item.name for item in other_files[:3]) + (", ..." if len(other_files) > 3 else "")
        listing.notes.append(f"{folder}: {len(other_files)} file(s) skipped that are not images: {names}")
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
    listing.images += [str(item) for item in sorted(single_files, key=lambda item: natural_key(item.name))]
    for item in entries:
        if item.is_dir():
            _list_folder(item, is_2d, group_views, listing)


def _stack_kind(file: Path) -> str:
    """Return `picture` or `dicom` for files that may be slices of a volume, the name of another format, "" for no image."""
    from m3b.dataset.formats import find_file_format
    from m3b.dataset.formats.arrays import ArrayFormat
    from m3b.dataset.formats.pictures import PictureFormat
    from m3b.dataset.formats.tiff import Tiff

    announce_opening(file)
    file_format = find_file_format(file)
    if file_format is None or (file_format.is_container and not isinstance(file_format, ArrayFormat)):
        return ""
    return "picture" if isinstance(file_format, PictureFormat | Tiff) else file_format.name


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
        listing.notes.append(f"{folder}: {len(items)} slices were skipped, because the folder has whole volumes too")


def _count_series(items: list[Path]) -> int:
    """Return the number of DICOM series among the files."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    series_uids = set()
    for item in items:
        announce_opening(item)
        try:
            header = pydicom.dcmread(item, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
        except (InvalidDicomError, OSError):
            continue  # whoever opens it later reports the problem
        series_uids.add(str(header.get("SeriesInstanceUID", "")))
    return len(series_uids)


@dataclass(frozen=True)
class FindImagesRequest:
    """A folder to search; see `find_images`."""

    folder: Path
    is_2d: bool
    group_views: bool


@dataclass(frozen=True)
class PaintOverlayRequest:
    """A prediction, with its image at an absolute path, and the model's info; see `draw_overlay`."""

    prediction: Prediction
    model_info: ModelInfo
    window: dict[str, Any] | None
    min_score: float = DEFAULT_BOX_SCORE


@dataclass(frozen=True)
class OverlayImage:
    """A PNG."""

    png: Blob


@dataclass(frozen=True)
class ExamplesRequest:
    """An index as it lies in `work`."""

    work: Path
    task: str


@dataclass(frozen=True)
class ExampleCase:
    """One case: its split, its labels and text, and a PNG in base64, or the reason why there is none."""

    name: str
    split: str
    labels: str
    text: str = ""
    png: str = ""
    error: str = ""


@dataclass(frozen=True)
class ExampleCases:
    """Some cases of an index.

    Args:
        legend: each class and its colour as `#rrggbb`, if masks or boxes are drawn.
    """

    cases: tuple[ExampleCase, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


FIND_IMAGES_JOB = WorkerJob("m3b.models.image_jobs:find_images_in_folder", FindImagesRequest, ImageListing, 600.0)
PAINT_OVERLAY_JOB = WorkerJob("m3b.models.image_jobs:paint_overlay", PaintOverlayRequest, OverlayImage)
DRAW_EXAMPLES_JOB = WorkerJob("m3b.models.example_images:draw_examples", ExamplesRequest, ExampleCases)


def find_images_in_folder(request: FindImagesRequest) -> ImageListing:
    """Worker job: find the images in a folder. Raises OSError."""
    return find_images([request.folder], is_2d=request.is_2d, group_views=request.group_views)


def paint_overlay(request: PaintOverlayRequest) -> OverlayImage:
    """Worker job: draw a prediction. Raises DataError."""
    from m3b.models.overlay import overlay_png

    return OverlayImage(
        overlay_png(request.prediction, request.model_info, window=request.window, min_score=request.min_score)
    )


def find_images_confined(paths: Iterable[str | Path], *, is_2d: bool, group_views: bool = False) -> ImageListing:
    """Find images like `find_images`, with folders searched by a reader, which is only started if there is a folder.

    Raises:
        DataError: a folder made the reader crash.
        OSError: a folder cannot be read.
    """
    path_names = list(map(str, paths))
    folders = [path for path in path_names if Path(path).is_dir()]
    listing = ImageListing()
    if not folders:
        return find_images(path_names, is_2d=is_2d, group_views=group_views)
    with open_reader(map(Path, folders)) as reader:
        for path in path_names:
            part = _search_folder(reader, path, is_2d, group_views) if path in folders else ImageListing([path])
            listing.images += part.images
            listing.notes += part.notes
            listing.broken_links += part.broken_links
    return listing


def _search_folder(reader: Reader, path: str, is_2d: bool, group_views: bool) -> ImageListing:
    """Search one folder in the reader; returned paths start with the folder as the user wrote it."""
    resolved = str(Path(path).resolve())
    answer = reader.run_job(FIND_IMAGES_JOB, FindImagesRequest(Path(resolved), is_2d, group_views))

    def restore_path(name: str) -> str:
        return path.rstrip("/") + name.removeprefix(resolved) if name.startswith(resolved) else name

    images = [
        restore_path(image) if isinstance(image, str) else [restore_path(name) for name in image]
        for image in answer.images
    ]
    return ImageListing(
        images, [restore_path(note) for note in answer.notes], [restore_path(link) for link in answer.broken_links]
    )


class OverlayPainter:
    """Draws predictions in a reader that sees the images and the folder of the masks.

    Args:
        min_score: least score of a drawn box; the others are counted.
    """

    def __init__(
        self,
        reader: Reader,
        model_info: ModelInfo,
        window: Mapping[str, Any] | None,
        min_score: float = DEFAULT_BOX_SCORE,
    ) -> None:
        self.reader, self.model_info, self.window = reader, model_info, None if window is None else dict(window)
        self.min_score = min_score

    def draw(self, prediction: Prediction, file: Path) -> Path:
        """Write the PNG of one prediction. Raises DataError as `draw_overlay`."""
        absolute = replace(prediction, image=relocated(prediction.image, to_reader_path))
        request = PaintOverlayRequest(absolute, self.model_info, self.window, self.min_score)
        painted = self.reader.run_job(PAINT_OVERLAY_JOB, request)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(painted.png)
        return file


def paths_to_mount(predictions: Iterable[Prediction]) -> list[Path]:
    """Return what a reader has to see to draw these predictions: the images and the mask files."""
    mounts: dict[Path, None] = {}
    for prediction in predictions:
        if not prediction.error:
            masks = [file for file in (prediction.mask, *prediction.masks.values()) if file is not None]
            mounts |= dict.fromkeys(
                [*(file_of_reader_path(to_reader_path(path)) for path in paths_of(prediction.image)), *masks]
            )
    return list(mounts)
