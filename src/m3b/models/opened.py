"""What is asked of the reader process about images for people: which ones folders hold, and pictures of what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.records import paths_of, relocated
from m3b.reader import Reader, WorkerJob
from m3b.reader.blob import Blob
from m3b.reader.outside import file_of_reader_path, open_reader, to_reader_path

from .finding import ImageListing, find_images
from .predictions import ModelInfo, Prediction


@dataclass(frozen=True)
class FindImagesRequest:
    """A folder to search; as `find_images`."""

    folder: Path
    is_2d: bool
    group_views: bool


@dataclass(frozen=True)
class PaintOverlayRequest:
    """A prediction, its image at an absolute path, and what the model says of itself; as `draw_overlay`."""

    prediction: Prediction
    model_info: ModelInfo
    window: dict[str, Any] | None


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
    """One case: its part, what the index says of it, and a PNG in base64, or why there is none."""

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
        legend: where masks or boxes are drawn, each class and its colour as `#rrggbb`.
    """

    cases: tuple[ExampleCase, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


FIND_IMAGES_JOB = WorkerJob("m3b.models.opened:find_images_in_folder", FindImagesRequest, ImageListing, 600.0)
PAINT_OVERLAY_JOB = WorkerJob("m3b.models.opened:paint_overlay", PaintOverlayRequest, OverlayImage)
DRAW_EXAMPLES_JOB = WorkerJob("m3b.models.examples:draw_examples", ExamplesRequest, ExampleCases)


def find_images_in_folder(request: FindImagesRequest) -> ImageListing:
    """Inside the reader. Raises OSError."""
    return find_images([request.folder], is_2d=request.is_2d, group_views=request.group_views)


def paint_overlay(request: PaintOverlayRequest) -> OverlayImage:
    """Inside the reader. Raises DataError."""
    from .overlays.drawing import overlay_png

    return OverlayImage(overlay_png(request.prediction, request.model_info, window=request.window))


def find_images_confined(paths: Iterable[str | Path], *, is_2d: bool, group_views: bool = False) -> ImageListing:
    """As `find_images`, folders searched by a reader; it is started only where there is one.

    Raises:
        DataError: a folder that ends it.
        OSError: a folder that cannot be read.
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
    return listing


def _search_folder(reader: Reader, path: str, is_2d: bool, group_views: bool) -> ImageListing:
    """The names count from the folder as the user gave it."""
    resolved = str(Path(path).resolve())
    answer = reader.run_job(FIND_IMAGES_JOB, FindImagesRequest(Path(resolved), is_2d, group_views))

    def restore_path(name: str) -> str:
        return path.rstrip("/") + name.removeprefix(resolved) if name.startswith(resolved) else name

    images = [
        restore_path(image) if isinstance(image, str) else [restore_path(name) for name in image]
        for image in answer.images
    ]
    return ImageListing(images, [restore_path(note) for note in answer.notes])


class OverlayPainter:
    """Draws what a model said of images, in a reader that sees them and the folder of the masks."""

    def __init__(self, reader: Reader, model_info: ModelInfo, window: Mapping[str, Any] | None) -> None:
        self.reader, self.model_info, self.window = reader, model_info, None if window is None else dict(window)

    def draw(self, prediction: Prediction, file: Path) -> Path:
        """Write the PNG of one prediction. Raises DataError as `draw_overlay`."""
        absolute = replace(prediction, image=relocated(prediction.image, to_reader_path))
        painted = self.reader.run_job(PAINT_OVERLAY_JOB, PaintOverlayRequest(absolute, self.model_info, self.window))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(painted.png)
        return file


def paths_to_mount(predictions: Iterable[Prediction]) -> list[Path]:
    """What a reader has to see to draw these: the images, and the mask files."""
    mounts: dict[Path, None] = {}
    for prediction in predictions:
        if not prediction.error:
            masks = [file for file in (prediction.mask, *prediction.masks.values()) if file is not None]
            mounts |= dict.fromkeys(
                [*(file_of_reader_path(to_reader_path(path)) for path in paths_of(prediction.image)), *masks]
            )
    return list(mounts)
