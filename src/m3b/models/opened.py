"""What is asked of the reader process about images for people: which ones folders hold, and pictures of what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.records import paths_of, relocated
from m3b.reader import Reader, Request
from m3b.reader.blob import Blob
from m3b.reader.outside import file_of, placed, reading

from .finding import FoundModel, find_images
from .predictions import Prediction, Promise


@dataclass(frozen=True)
class ToFind:
    """A folder to search; as `find_images`."""

    folder: Path
    flat: bool
    studies: bool


@dataclass(frozen=True)
class ToPaint:
    """A prediction, its image at an absolute path, and what the model says of itself; as `draw_overlay`."""

    prediction: Prediction
    promise: Promise
    window: dict[str, Any] | None


@dataclass(frozen=True)
class Painted:
    """A PNG."""

    png: Blob


@dataclass(frozen=True)
class ToDraw:
    """An index as it lies in `work`."""

    work: Path
    task: str


@dataclass(frozen=True)
class Example:
    """One case: its part, what the index says of it, and a PNG in base64, or why there is none."""

    name: str
    side: str
    labels: str
    text: str = ""
    png: str = ""
    error: str = ""


@dataclass(frozen=True)
class Examples:
    """Some cases of an index.

    Args:
        legend: where masks or boxes are drawn, each class and its colour as `#rrggbb`.
    """

    cases: tuple[Example, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


FIND = Request("m3b.models.opened:find", ToFind, FoundModel, 600.0)
PAINT = Request("m3b.models.opened:paint", ToPaint, Painted)
DRAW = Request("m3b.models.examples:draw", ToDraw, Examples)


def find(asked: ToFind) -> FoundModel:
    """Inside the reader. Raises OSError."""
    return find_images([asked.folder], flat=asked.flat, studies=asked.studies)


def paint(asked: ToPaint) -> Painted:
    """Inside the reader. Raises DataError."""
    from .overlays.drawing import overlay_png

    return Painted(overlay_png(asked.prediction, asked.promise, window=asked.window))


def found_in(paths: Iterable[str | Path], *, flat: bool, studies: bool = False) -> FoundModel:
    """As `find_images`, folders searched by a reader; it is started only where there is one.

    Raises:
        DataError: a folder that ends it.
        OSError: a folder that cannot be read.
    """
    path_names = list(map(str, paths))
    folders = [path for path in path_names if Path(path).is_dir()]
    listing = FoundModel()
    if not folders:
        return find_images(path_names, flat=flat, studies=studies)
    with reading(map(Path, folders)) as reader:
        for path in path_names:
            part = _search_folder(reader, path, flat, studies) if path in folders else FoundModel([path])
            listing.images += part.images
            listing.notes += part.notes
    return listing


def _search_folder(reader: Reader, path: str, is_2d: bool, group_views: bool) -> FoundModel:
    """The names count from the folder as the user gave it."""
    resolved = str(Path(path).resolve())
    answer = reader.ask(FIND, ToFind(Path(resolved), is_2d, group_views))

    def told(name: str) -> str:
        return path.rstrip("/") + name.removeprefix(resolved) if name.startswith(resolved) else name

    images = [told(image) if isinstance(image, str) else [told(name) for name in image] for image in answer.images]
    return FoundModel(images, [told(note) for note in answer.notes])


class Painter:
    """Draws what a model said of images, in a reader that sees them and the folder of the masks."""

    def __init__(self, reader: Reader, promise: Promise, window: Mapping[str, Any] | None) -> None:
        self.reader, self.promise, self.window = reader, promise, None if window is None else dict(window)

    def draw(self, prediction: Prediction, file: Path) -> Path:
        """Write the PNG of one prediction. Raises DataError as `draw_overlay`."""
        absolute = replace(prediction, image=relocated(prediction.image, placed))
        painted = self.reader.ask(PAINT, ToPaint(absolute, self.promise, self.window))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(painted.png)
        return file


def places_of(predictions: Iterable[Prediction]) -> list[Path]:
    """What a reader has to see to draw these: the images, and the mask files."""
    mounts: dict[Path, None] = {}
    for prediction in predictions:
        if not prediction.error:
            masks = [file for file in (prediction.mask, *prediction.masks.values()) if file is not None]
            mounts |= dict.fromkeys([*(file_of(placed(path)) for path in paths_of(prediction.image)), *masks])
    return list(mounts)
