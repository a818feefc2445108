"""What every annotation format gives: images as their files name them, classes, and boxes, masks, points and texts of each image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from m3b.dataset.annotations.geometry import (
    MIN_REACH,
    SLACK,
    Bitmap,
    Box,
    ImageSize,
    Region,
    VolumeGrid,
    enclose,
    turn_box,
    turn_mask,
    turn_point,
)
from m3b.dataset.annotations.names import ImageNames
from m3b.errors import DataError

ShapeKind = Literal["box", "outline", "mask", "point", "text"]
Space = Literal["pixels", "shares", "percent"]
UnnamedImages = Literal["not_annotated", "negative", "unknown"]
UNNAMED = "(none)"
"""The class of marks that their file gives no name."""
MAX_EXAMPLES = 5
SPACE_UNITS: dict[Space, float] = {"shares": 1.0, "percent": 100.0}
"""The number that stands for a whole side of the image."""


@dataclass(frozen=True)
class AnnotationNote:
    """Something about annotations that a reader of the data should know, by code.

    Args:
        count: how often, of files, images or marks.
        examples: at most `MAX_EXAMPLES` names.
    """

    code: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass
class NoteBook:
    """Collects notes by code."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, code: str, example: str = "", count: int = 1) -> None:
        """Count an observation, and keep its example if there are few."""
        self.counts[code] += count
        if example and len(self.examples[code]) < MAX_EXAMPLES and example not in self.examples[code]:
            self.examples[code].append(example)

    def extend(self, notes: Iterable[AnnotationNote]) -> None:
        """Add the notes of another set."""
        for note in notes:
            self.counts[note.code] += note.count
            for example in note.examples:
                self.add(note.code, example, 0)

    def notes(self) -> tuple[AnnotationNote, ...]:
        """Return all notes in the order of codes."""
        return tuple(
            AnnotationNote(code, count, tuple(self.examples[code]))
            for code, count in sorted(self.counts.items())
            if count
        )


@dataclass(frozen=True)
class AnnotatedImage:
    """One image of an annotation file.

    Args:
        name: as the file names it.
        source: the annotation file, below the data folder.
        keys: paths or ends of paths by which its file may be found, the most specific first. Suffixes may be missing.
        size: (width, height) on which was drawn, if the file says it.
        series, frame: SeriesInstanceUID and FrameOfReferenceUID of a DICOM series; empty for others.
    """

    name: str
    source: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    series: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """One object on an image.

    Args:
        label: its class, as the file names it.
        box: its box, if the file gives one that is not the bounds of `region`.
        region: the pixels that it covers, if the file says so.
        points: named points: a name (empty: the label) and a place.
        crowd: whether it stands for many objects; it counts as mask and not as box.
        hole: whether its pixels are taken from what is marked with its label.
        group: marks of one label and one group are one object.
        categories: category key -> class, if the file has several keys (`category_id_1`, `category_id_2`).
    """

    label: str
    box: Box | None = None
    region: Region | None = None
    points: tuple[tuple[str, tuple[float, float]], ...] = ()
    crowd: bool = False
    hole: bool = False
    group: str = ""
    categories: Mapping[str, str] = field(default_factory=dict)

    def bounds(self) -> Box | None:
        """Return its box; None if it has neither box nor region."""
        if self.box is not None:
            return self.box
        return self.region.bounds() if self.region is not None else None


@dataclass
class AnnotationSet:
    """The annotations of one or several files of one format.

    Args:
        format: name of the format.
        images: all images that the files name, also those without marks.
        marks: image -> its marks.
        captions: image -> its texts.
        class_names: classes that the files list, in their order; they may have no mark.
        shapes: kinds of marks that occur.
        space: what coordinates count.
        notes: what a reader of the data should know.
        resized: whether boxes and outlines are brought to the size of images that were resized after they were drawn.
        category_keys: category key -> classes that the files list for it, of files that name classes by keys.
    """

    format: str
    images: list[AnnotatedImage] = field(default_factory=list)
    marks: dict[AnnotatedImage, list[Mark]] = field(default_factory=dict)
    captions: dict[AnnotatedImage, list[str]] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    shapes: set[ShapeKind] = field(default_factory=set)
    space: Space = "pixels"
    notes: tuple[AnnotationNote, ...] = ()
    resized: bool = False
    category_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _names: ImageNames | None = field(default=None, repr=False)

    @property
    def classes(self) -> dict[str, int]:
        """Class -> number of its marks: listed classes first, then others in the order of their marks."""
        counts = Counter(dict.fromkeys(self.class_names, 0))
        counts.update(mark.label for marks in self.marks.values() for mark in marks)
        return dict(counts)

    def select_category_key(self, key: str) -> AnnotationSet:
        """Return the marks with the classes of one category key, and the images of files that use it: in others nobody looked for
        these classes."""
        marks = {
            image: [replace(mark, label=mark.categories[key]) for mark in image_marks if key in mark.categories]
            for image, image_marks in self.marks.items()
        }
        sources = {image.source for image, image_marks in marks.items() if image_marks}
        images = [image for image in self.images if image.source in sources]
        return replace(
            self,
            images=images,
            marks={image: marks[image] for image in images},
            class_names=self.category_keys.get(key, ()),
            _names=None,
        )

    # --- images and files ---------------------------------------------------------------------------------------------

    def find(self, path: str) -> AnnotatedImage | None:
        """Return the image that a file holds: by the longest common end of its path, then by its stem; None if none or several do.

        `match` of all paths is stricter: an image belongs to one file.
        """
        match = self._image_names().find(path)
        return None if match is None else self.images[match]

    def match(self, paths: Sequence[str]) -> dict[str, AnnotatedImage]:
        """Return path -> image. An image that several paths claim belongs to the one with the longest common end; names that
        stay ambiguous are matched to none. If no name fits, a file with one image belongs to the only path of its folder."""
        matches = {path: self.images[number] for path, number in self._image_names().match(paths).items()}
        return matches or self._match_folders(paths)

    def _match_folders(self, paths: Sequence[str]) -> dict[str, AnnotatedImage]:
        """Return path -> image of the folders that hold one path and one annotated image (`case1/scan.nii`, `case1/mask.json`)."""
        images_of_folder, paths_of_folder = defaultdict(list), defaultdict(list)
        for image in self.images:
            images_of_folder[image.source.rpartition("/")[0]].append(image)
        for path in paths:
            paths_of_folder[path.rpartition("/")[0]].append(path)
        return {
            paths_of_folder[folder][0]: images[0]
            for folder, images in images_of_folder.items()
            if len(images) == len(paths_of_folder[folder]) == 1
        }

    def find_series(self, series: str, frame: str = "") -> list[AnnotatedImage]:
        """Return the images that are this DICOM series; if none is, those in its frame of reference."""
        images = [image for image in self.images if series and image.series == series]
        return images or [image for image in self.images if frame and image.frame == frame]

    def _image_names(self) -> ImageNames:
        if self._names is None:
            self._names = ImageNames([(image.keys or (image.name,), image.source) for image in self.images])
        return self._names

    def resolve(self, image: AnnotatedImage | str) -> AnnotatedImage:
        """Return the image itself, or that of a path.

        Raises:
            DataError: code `image_not_annotated`: no image or several are meant.
        """
        if isinstance(image, AnnotatedImage):
            return image
        match = self.find(image)
        if match is None:
            message = f"The {self.format} annotations name no image that can only be {image!r}."
            raise DataError(message, code="image_not_annotated")
        return match

    # --- what is marked -----------------------------------------------------------------------------------------------

    def boxes(self, image: AnnotatedImage | str, size: ImageSize | tuple[int, int]) -> list[tuple[str, Box]]:
        """Return (class, box) of each object, in pixels of the upright image. Boxes may reach beyond the image.

        Args:
            size: of the upright image (width, height[, EXIF orientation]).

        Raises:
            DataError: code `size_differs`: the annotations were drawn on an image of another size.
        """
        image, size = self.resolve(image), ImageSize(*size)
        objects: dict[tuple[str, object], list[Box]] = defaultdict(list)
        for number, mark in enumerate(self.marks.get(image, ())):
            if mark.crowd or mark.hole or (bounds := mark.bounds()) is None:
                continue
            objects[mark.label, mark.group or number].append(bounds)
        merged = [(label, enclose(boxes)) for (label, _), boxes in objects.items()]
        turned, (x_factor, y_factor) = self._frame(image, size, [box for _, box in merged])
        scaled: list[tuple[str, Box]] = [
            (label, (x0 * x_factor, y0 * y_factor, x1 * x_factor, y1 * y_factor)) for label, (x0, y0, x1, y1) in merged
        ]
        return [(label, turn_box(box, size)) for label, box in scaled] if turned else scaled

    def masks(self, image: AnnotatedImage | str, size: ImageSize | tuple[int, int] | VolumeGrid) -> dict[str, Any]:
        """Return class -> (height, width) bool in the upright image, of classes that have a region there; they may overlap.

        Args:
            size: of the upright image; of volumes their grid.

        Raises:
            DataError: codes `size_differs`, `image_too_large`, `damaged_mask`.
        """
        image = self.resolve(image)
        if isinstance(size, VolumeGrid):
            return self._volume_masks(image, size)
        size = ImageSize(*size)
        marks = [mark for mark in self.marks.get(image, ()) if mark.region is not None]
        turned, (x_factor, y_factor) = self._frame(image, size, [])
        if not turned and image.size is None and self.space == "pixels" and size.orientation >= 5:
            turned, _ = self._frame(image, size, [mark.region.bounds() for mark in marks if mark.region is not None])
        width, height = size.stored if turned else (size.width, size.height)
        masks: dict[str, Any] = {}
        for mark in sorted(marks, key=lambda mark: mark.hole):
            region = mark.region
            if region is None or (mark.hole and mark.label not in masks):
                continue
            if (x_factor, y_factor) != (1.0, 1.0):
                region = region.scaled(x_factor, y_factor)
            pixels = region.fill(width, height)
            if mark.hole:
                masks[mark.label] &= ~pixels
            elif mark.label in masks:
                masks[mark.label] |= pixels
            else:
                masks[mark.label] = pixels
        return {label: turn_mask(mask, size.orientation) for label, mask in masks.items()} if turned else masks

    def points(
        self, image: AnnotatedImage | str, size: ImageSize | tuple[int, int]
    ) -> list[tuple[str, tuple[float, float]]]:
        """Return (name, (x, y)) of each point, in pixels of the upright image.

        Raises:
            DataError: code `size_differs`.
        """
        image, size = self.resolve(image), ImageSize(*size)
        places = [(name or mark.label, place) for mark in self.marks.get(image, ()) for name, place in mark.points]
        turned, (x_factor, y_factor) = self._frame(image, size, [(x, y, x, y) for _, (x, y) in places])
        scaled = [(name, (x * x_factor, y * y_factor)) for name, (x, y) in places]
        return [(name, turn_point(x, y, size)) for name, (x, y) in scaled] if turned else scaled

    def texts(self, image: AnnotatedImage | str) -> list[str]:
        """Return the captions of an image."""
        return list(self.captions.get(self.resolve(image), ()))

    def _frame(self, image: AnnotatedImage, size: ImageSize, boxes: Sequence[Box]) -> tuple[bool, tuple[float, float]]:
        """Return whether coordinates are those of the stored pixels, which EXIF turns, and the factors to pixels."""
        upright = (size.width, size.height)
        if self.space != "pixels":
            unit = SPACE_UNITS[self.space]
            return False, (size.width / unit, size.height / unit)
        declared = image.size or self._get_mask_size(image)
        if declared is None:
            beyond = any(box[2] > size.width + 1 or box[3] > size.height + 1 for box in boxes)
            width, height = size.stored
            within = all(min(box) >= -1 and box[2] <= width + 1 and box[3] <= height + 1 for box in boxes)
            return size.orientation >= 5 and beyond and within, (1.0, 1.0)
        if declared == upright:
            return False, (1.0, 1.0)
        if size.orientation >= 5 and declared == size.stored:
            return True, (1.0, 1.0)
        if self.resized and self._get_mask_size(image) is None:
            return False, (size.width / declared[0], size.height / declared[1])
        message = (
            f"{image.source} was drawn on {image.name} with {declared[0]} x {declared[1]} pixels; the image has "
            f"{size.width} x {size.height}. Use the image that was annotated."
        )
        raise DataError(message, code="size_differs")

    def _get_mask_size(self, image: AnnotatedImage) -> tuple[int, int] | None:
        """Return the size of a mask that covers the whole image."""
        regions = (mark.region for mark in self.marks.get(image, ()))
        return next(
            ((region.width, region.height) for region in regions if isinstance(region, Bitmap) and region.is_whole),
            None,
        )

    def is_resized(self, sizes: Mapping[AnnotatedImage, ImageSize]) -> bool:
        """Return whether images were made smaller after they were drawn on: the files say a larger size, all marks lie in it, some
        beyond the image that is there, and all together they reach over most of it.

        Args:
            sizes: of the upright images; a sample suffices.
        """
        import numpy as np

        boxes: list[tuple[float, ...]] = []
        for image, size in sizes.items():
            declared, marks = image.size, self.marks.get(image, ())
            if declared is None or self.space != "pixels" or any(isinstance(mark.region, Bitmap) for mark in marks):
                return False
            if not (declared[0] > size.width and declared[1] > size.height):
                return False
            factors = (size.width / declared[0], size.height / declared[1])
            boxes += [
                (box[0] / declared[0], box[1] / declared[1], box[2] / declared[0], box[3] / declared[1], *factors)
                for mark in marks
                if (box := mark.bounds()) is not None
            ]
        if not boxes:
            return False
        low, high, limits = np.split(np.array(boxes), 3, axis=1)
        is_inside = bool((low >= -SLACK).all() and (high <= 1 + SLACK).all())
        return is_inside and bool((high > limits).any()) and bool((high.max(axis=0) > MIN_REACH).all())

    def _volume_masks(self, image: AnnotatedImage, grid: VolumeGrid) -> dict[str, Any]:
        raise DataError(f"{self.format} annotations are flat; a volume was asked for.", code="flat_annotations")


@dataclass
class VolumeAnnotationSet(AnnotationSet):
    """Annotations of volumes, which are drawn on the grid of their image; `masks` needs a `VolumeGrid`."""

    def masks(self, image: AnnotatedImage | str, size: ImageSize | tuple[int, int] | VolumeGrid) -> dict[str, Any]:
        """Return class -> (rows, columns, slices) bool on the grid.

        Raises:
            DataError: codes `needs_grid`, `other_grid`, `damaged_mask`.
        """
        if not isinstance(size, VolumeGrid):
            raise DataError(f"{self.format} annotations need the grid of their volume.", code="needs_grid")
        return super().masks(image, size)

    def boxes(
        self, image: AnnotatedImage | str, size: ImageSize | tuple[int, int] | VolumeGrid
    ) -> list[tuple[str, Box]]:
        """Return (class, (x0, y0, z0, x1, y1, z1)) in voxels: x along columns, y along rows, z along slices.

        Raises:
            DataError: as `masks`.
        """
        import numpy as np

        boxes: list[tuple[str, Box]] = []
        for label, mask in self.masks(image, size).items():
            places = np.nonzero(mask)
            if len(places[0]):
                low = [int(axis.min()) for axis in places]
                high = [int(axis.max()) + 1 for axis in places]
                order = (1, 0, 2)
                boxes.append((label, tuple(float(edge[axis]) for edge in (low, high) for axis in order)))
        return boxes


class AnnotationFormat(ABC):
    """One annotation format. Register an instance with `register_annotation_format`, or by the entry point `m3b.annotations`.

    Class attributes:
        name: as manifests write it.
        suffixes: of its files, lower case with dots; `""` for files without one.
        per_image: whether each image has a file of its own; files of a folder then belong together.
        needs_image: whether files of other kinds look alike, so that only those count whose stem another kind of file has.
        unnamed_images: what images are that no file names: not annotated, as files list those without marks, too; negative, by
            the convention of the format; or unknown.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    per_image: ClassVar[bool] = False
    needs_image: ClassVar[bool] = False
    unnamed_images: ClassVar[UnnamedImages] = "unknown"

    @abstractmethod
    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether a file may be of this format, by its first bytes (`HEAD_BYTES`, or all of a smaller file)."""

    @abstractmethod
    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the annotations of files.

        Args:
            paths: below `root`.

        Raises:
            DataError: code `not_this_format`, `damaged`, `too_large`, `too_deep`, `entities` or `unreadable`: a file cannot be
                read. With several files, those that cannot be read are noted and left out; all of them are an error.
        """
