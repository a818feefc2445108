"""Building an annotation set from the marks of a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from m3b.dataset.annotations.base import (
    UNNAMED,
    AnnotatedImage,
    AnnotationSet,
    Mark,
    NoteBook,
    ShapeKind,
    Space,
)
from m3b.dataset.annotations.geometry import Bitmap, Box, Polygon, Region, Union

Set = TypeVar("Set", bound=AnnotationSet)


class SetBuilder:
    """Collects images and marks; marks without area or with broken numbers are noted and left out."""

    def __init__(self, format_name: str, space: Space = "pixels") -> None:
        self.set = AnnotationSet(format_name, space=space)
        self.notes = NoteBook()
        self._images: dict[tuple[str, str], AnnotatedImage] = {}

    def add_image(
        self, name: str, source: str, keys: Sequence[str] = (), size: tuple[int, int] | None = None
    ) -> AnnotatedImage:
        """Return the image of this name in this file, new if the file did not name it before."""
        image = self._images.get((source, name))
        if image is None:
            image = AnnotatedImage(name, source, tuple(dict.fromkeys((*keys, name))) if name else tuple(keys), size)
            self._images[source, name] = image
            self.set.images.append(image)
            self.set.marks[image] = []
        return image

    def add(self, image: AnnotatedImage, mark: Mark, kind: ShapeKind) -> None:
        """Add a mark."""
        self.set.marks[image].append(mark)
        self.set.shapes.add(kind)

    def add_box(
        self,
        image: AnnotatedImage,
        label: str,
        box: Box,
        *,
        region: Region | None = None,
        crowd: bool = False,
        group: str = "",
        points: tuple[tuple[str, tuple[float, float]], ...] = (),
        categories: Mapping[str, str] | None = None,
    ) -> bool:
        """Add a box, and return whether it has an area."""
        half = len(box) // 2
        if not all(math.isfinite(value) for value in box):
            self.notes.add("damaged_mark", image.name)
            return False
        if any(high <= low for low, high in zip(box[:half], box[half:], strict=True)):
            self.notes.add("empty_box", image.name)
            return False
        mark = Mark(
            label or UNNAMED,
            box=box,
            region=region,
            crowd=crowd,
            group=group,
            points=points,
            categories=categories or {},
        )
        self.add(image, mark, "box")
        if region is not None:
            self.set.shapes.add(get_kind(region))
        return True

    def add_region(
        self,
        image: AnnotatedImage,
        label: str,
        region: Region,
        kind: ShapeKind | None = None,
        *,
        hole: bool = False,
        group: str = "",
    ) -> None:
        """Add a region; `kind` is `box` for rectangles that were drawn as such."""
        self.add(image, Mark(label or UNNAMED, region=region, hole=hole, group=group), kind or get_kind(region))

    def add_point(self, image: AnnotatedImage, label: str, x: float, y: float) -> None:
        """Add a point."""
        if math.isfinite(x) and math.isfinite(y):
            self.add(image, Mark(label or UNNAMED, points=(("", (x, y)),)), "point")
        else:
            self.notes.add("damaged_mark", image.name)

    def add_caption(self, image: AnnotatedImage, text: str) -> None:
        """Add a text."""
        self.set.captions.setdefault(image, []).append(text)
        self.set.shapes.add("text")

    def finish(self, class_names: Iterable[str] = ()) -> AnnotationSet:
        """Return the set."""
        self.set.class_names = tuple(dict.fromkeys(class_names))
        self.set.notes = self.notes.notes()
        return self.set


def get_kind(region: Region) -> ShapeKind:
    """Return `outline` for polygons, `mask` for pixels."""
    if isinstance(region, Union):
        return get_kind(region.regions[0])
    return "mask" if isinstance(region, Bitmap) else "outline"


def polygon_from_flat(numbers: Sequence[float]) -> Polygon:
    """Return the polygon of x, y, x, y, ...

    Raises:
        ValueError: an odd count, fewer than three points, or no finite numbers.
    """
    return Polygon.from_points(list(zip(numbers[::2], numbers[1::2], strict=True)))


def parse_size(width: object, height: object) -> tuple[int, int] | None:
    """Return the size of an image, as numbers or texts; None if it is not stated, or is no size."""
    try:
        size = int(float(str(width))), int(float(str(height)))
    except (ValueError, OverflowError):
        return None
    return size if min(size) > 0 else None
