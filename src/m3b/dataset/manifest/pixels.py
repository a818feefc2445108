"""One look at the pixels of each case: whether its images open, what they are copies of, and its mask on their grid.

Images and masks are read in one place, here. Callers run in the confined reader.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from m3b.dataset.annotations.run_tables import RunRule, draw_runs, parse_runs
from m3b.dataset.archives import local_reference
from m3b.dataset.manifest.annotated import ANY, ROW_FORMAT, ClassLookup, MarkRow
from m3b.dataset.manifest.model import Masks
from m3b.dataset.reading import (
    geometry,
    probe_orientation,
    probe_shape,
    read_array,
    read_image,
    read_mask,
    split_reference,
    stored_shape,
    write_mask,
)
from m3b.dataset.similarity import NEAR, area_means
from m3b.errors import DataError
from m3b.isolation.untrusted import should_open_one_by_one

if TYPE_CHECKING:
    import numpy as np

    from m3b.dataset.annotations import AnnotatedImage, AnnotationSet

Reference = str | list[str] | dict[str, str]
"""An image below the data folder: a file, a folder, or an item of a container; slices or views; or channel -> file."""
MASK_FOLDER = "Datapath/masks"
"""Where derived masks are written, below the working directory."""
THREADS = 4
CASES_PER_BATCH = 256
"""Cases that wait for the threads at the same time."""
MAX_STEP = 3
"""Numbers by which neighbours of a series differ at most: some frames may have been left out."""
THUMBNAIL_SIDE = 24
THUMBNAIL_BYTES = 4 * THUMBNAIL_SIDE**2
MAX_THUMBNAIL_BYTES = 4 << 20
"""Bytes of thumbnails that are held in memory; more go to a temporary file."""
_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


class ExcludedCase(Exception):
    """A case that cannot be used: code and reason, without names of files."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


@dataclass(frozen=True, slots=True)
class MaskSource:
    """What the mask of a case is made of.

    Args:
        refs: mask files or members, below the data folder.
        classes: of each file, if each is of one class.
        annotated: an image of an annotation format; of a volume's slices one each, None for those that are not annotated.
        rows: rows of a table with run lengths.
        stacked: whether there is a file a slice.
    """

    refs: tuple[str, ...] = ()
    classes: tuple[str | None, ...] = ()
    annotated: tuple[AnnotatedImage | None, ...] = ()
    rows: tuple[MarkRow, ...] = ()
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class CasePixels:
    """A case to look at.

    Args:
        number: its place, after which a derived mask is called.
        image: what is opened.
        mask: None if it has none.
    """

    number: int
    image: Reference
    mask: MaskSource | None = None


@dataclass(frozen=True, slots=True)
class SeenCase:
    """What one look showed.

    Args:
        digest: a text that copies share; empty if the image was not opened.
        code, reason: why the case cannot be used; empty if it can.
        mask: for the index: a path, slices, or class -> path; paths below the data folder begin with `data:`.
        classes: those that the mask marks; None if it was not opened for that.
        thumbnail: of a single picture.
        ignored: the file of the pixels that nobody labelled, below the working directory; '' if there are none.
        void: how many these are, of `size` pixels.
        void_codes: numbers of `masks.void` that the mask has.
    """

    digest: str = ""
    code: str = ""
    reason: str = ""
    mask: str | tuple[str, ...] | dict[str, str] | None = None
    classes: tuple[str, ...] | None = None
    thumbnail: Any = None
    ignored: str = ""
    void: int = 0
    size: int = 0
    void_codes: frozenset[int] = frozenset()


UNSEEN = SeenCase()
"""Of a case that was not looked at."""


@dataclass(frozen=True)
class ClassLayers:
    """Where a mask marks each class, and where it is void.

    Args:
        by_class: class -> bool array.
        void: bool array of the same shape; None if the mask has none.
        void_codes: numbers of `masks.void` that the mask has.
    """

    by_class: dict[str, np.ndarray]
    void: np.ndarray | None = None
    void_codes: frozenset[int] = frozenset()


@dataclass
class PixelReader:
    """Looks at cases.

    Args:
        root: the data folder.
        work: the working directory, for derived masks.
        masks: how masks are stored; None if the manifest has none.
        source: annotations from which masks are drawn.
        opens_images: whether images are opened; of very many only what masks need is.
        counts_classes: whether masks are opened to see which classes they mark.
    """

    root: Path
    work: Path
    masks: Masks | None = None
    source: AnnotationSet | None = None
    opens_images: bool = True
    counts_classes: bool = True

    def look(self, cases: Iterable[CasePixels]) -> Iterator[SeenCase]:
        """Yield what each case shows, some at a time, in threads unless files must be opened one after another."""
        (self.work / MASK_FOLDER).mkdir(parents=True, exist_ok=True)
        remaining = iter(cases)
        if not self.opens_images and self.masks is None:
            yield from (UNSEEN for _ in remaining)
            return
        with ThreadPoolExecutor(1 if should_open_one_by_one() else THREADS) as pool:
            while batch := list(islice(remaining, CASES_PER_BATCH)):
                yield from pool.map(self._look, batch)

    def _look(self, case: CasePixels) -> SeenCase:
        digest, thumbnail, shape = "", None, None
        if self.opens_images:
            try:
                digest, thumbnail, shape = self._open(case.image)
            except ExcludedCase as excluded:
                return SeenCase(code=excluded.code, reason=excluded.reason)
        if case.mask is None or self.masks is None:
            return SeenCase(digest, thumbnail=thumbnail)
        try:
            seen_mask = self._make_mask(case, case.mask, shape)
        except ExcludedCase as excluded:
            return SeenCase(digest, excluded.code, excluded.reason, thumbnail=thumbnail)
        except DataError as error:
            names = [*case.mask.refs, *(name.partition("#")[0] for name in case.mask.refs)]
            return SeenCase(digest, "unusable_mask", f"its mask cannot be used: {_without_names(str(error), names)}")
        return replace(seen_mask, digest=digest, thumbnail=thumbnail)

    def _open(self, image: Reference) -> tuple[str, Any, tuple[int, ...]]:
        """(a text that copies share, a thumbnail of a single picture, the shape without channels)."""
        import numpy as np

        paths = list(image.values()) if isinstance(image, dict) else [image] if isinstance(image, str) else image
        digest = hashlib.blake2b(digest_size=16)
        shapes = []
        thumbnail = None
        try:
            for path in paths:
                array = read_image(self._full(path)).array
                digest.update(f"{array.shape}{array.dtype}".encode())
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
                shapes.append(array.shape[1:])
                if len(paths) == 1 and array.ndim == 3:
                    thumbnail = thumbnail_of(array)
        except DataError as error:
            raise self._explain_failure(paths) from error
        if isinstance(image, dict):
            try:
                read_image(self._full(image))
            except DataError as error:
                reason = "its channels cannot be brought to one grid, or one of them is no single image"
                raise ExcludedCase("channels_apart", reason) from error
        slices = isinstance(image, list) and len(image) > 1
        return digest.hexdigest(), thumbnail, (*shapes[0], len(shapes)) if slices else tuple(shapes[0])

    def _explain_failure(self, paths: Sequence[str]) -> ExcludedCase:
        import os

        files = [self.root / path.partition("#")[0] for path in paths]
        if any(file.exists() and not os.access(file, os.R_OK) for file in files):
            return ExcludedCase("no_permission", "permission to read the file is denied")
        return ExcludedCase("unreadable", "the image does not open")

    # --- masks -------------------------------------------------------------------------------------------------------------

    def _make_mask(self, case: CasePixels, source: MaskSource, shape: tuple[int, ...] | None) -> SeenCase:
        import numpy as np

        assert self.masks is not None
        grid = grid_reference(case.image)
        shape = shape if shape is not None else self._probe(grid)
        if keeps_files(self.masks):
            mask, present_classes = self._keep_files(case.number, grid, source, shape)
            return SeenCase(mask=mask, classes=present_classes)
        layers = self._layers(grid, source, shape)
        seen = SeenCase(
            mask=self._write(case, grid, layers.by_class),
            classes=tuple(name for name, layer in layers.by_class.items() if layer.any()),
            void_codes=layers.void_codes,
            size=next(iter(layers.by_class.values())).size,
        )
        void = layers.void
        if void is not None and not self.masks.overlapping:
            void = void & ~np.any(list(layers.by_class.values()), axis=0)  # another file says of what class they are
        if void is None or not void.any():
            return seen
        if void.all():
            raise ExcludedCase("only_void", "every pixel of its mask is void: nobody labelled anything in it")
        file = self._write_file(f"{case.number:05d}_ignored", void.astype(np.uint8), grid)
        return replace(seen, ignored=file, void=int(void.sum()))

    def _full(self, image: Any) -> Any:
        """Full paths of an image or mask as readers take it, with members of archives extracted."""
        if isinstance(image, str):
            return local_reference(self.root, image)
        if isinstance(image, Mapping):
            return {name: self._full(channel_path) for name, channel_path in image.items()}
        return [local_reference(self.root, path) for path in image]

    def _probe(self, image: str | list[str]) -> tuple[int, ...]:
        try:
            return probe_shape(self._full(image))
        except DataError as error:
            raise ExcludedCase("unreadable", "the image does not open") from error

    def _keep_files(
        self, number: int, grid: str | list[str], source: MaskSource, shape: tuple[int, ...]
    ) -> tuple[str | tuple[str, ...] | dict[str, str], tuple[str, ...] | None]:
        """Masks that the index can name as they are: their sizes are compared with the image's, and values are listed."""
        masks = self.masks
        assert masks is not None
        if masks.overlapping:
            by_class = self._files_of_classes(source)
            if isinstance(grid, list) and all(len(refs_of_class) == len(grid) for refs_of_class in by_class.values()):
                return self._stack_classes(number, grid, by_class, shape), tuple(by_class)
            for refs_of_class in by_class.values():
                for ref in refs_of_class:
                    self._compare_shapes(grid, self._probe_mask(ref), shape)
            mask_of_class = {
                name: f"data:{refs_of_class[0]}" for name, refs_of_class in by_class.items() if len(refs_of_class) == 1
            }
            for name, refs_of_class in by_class.items():
                if len(refs_of_class) > 1:
                    layers = [self._layers_of_file(ref, name).by_class[name] for ref in refs_of_class]
                    place = f"{number:05d}_{list(masks.classes).index(name) + 1}"
                    mask_of_class[name] = self._write_file(place, sum(layers[1:], layers[0]).astype("uint8"), grid)
            return {name: mask_of_class[name] for name in by_class}, tuple(by_class)
        stacked = source.stacked
        refs = tuple(f"data:{ref}" for ref in source.refs)
        if not self.counts_classes:
            size = self._probe_mask(list(source.refs) if stacked else source.refs[0])
            self._compare_shapes(grid, size, shape)
            return (refs if stacked else refs[0]), None
        array = read_mask(self._full(list(source.refs) if stacked else source.refs[0])).array
        self._compare_shapes(grid, array.shape, shape)
        present = {int(value) for value in _unique(array)}
        present_classes = tuple(name for name, codes in masks.classes.items() if int(codes[0]) in present)
        return (refs if stacked else refs[0]), present_classes

    def _stack_classes(
        self, number: int, grid: list[str], by_class: Mapping[str, list[str]], shape: tuple[int, ...]
    ) -> dict[str, str]:
        """A binary volume a class, of one mask file a slice."""
        assert self.masks is not None
        volumes: dict[str, str] = {}
        for name, refs_of_class in by_class.items():
            array = read_mask(self._full(refs_of_class)).array != 0
            self._compare_shapes(grid, array.shape, shape)
            place = f"{number:05d}_{list(self.masks.classes).index(name) + 1}"
            volumes[name] = self._write_file(place, array.astype("uint8"), grid)
        return volumes

    def _files_of_classes(self, source: MaskSource) -> dict[str, list[str]]:
        """Class -> its files, in the order of the classes."""
        assert self.masks is not None
        by_class: dict[str, list[str]] = defaultdict(list)
        for name, ref in zip(source.classes, source.refs, strict=True):
            if name is not None:
                by_class[name].append(ref)
        if not by_class:
            raise DataError("no mask of a class of this index")
        return {name: by_class[name] for name in self.masks.classes if name in by_class}

    def _probe_mask(self, ref: str | list[str]) -> tuple[int, ...]:
        return probe_shape(self._full(ref))

    def _compare_shapes(self, grid: str | list[str], size: tuple[int, ...], shape: tuple[int, ...]) -> None:
        """Raise DataError for a mask of another size than its image, upright or as it is stored."""
        if _drop_single_slice(size) == _drop_single_slice(shape):
            return
        stored = stored_shape(grid, str(self.root)) if isinstance(grid, str) and "#" not in grid else shape
        if _drop_single_slice(size) != _drop_single_slice(tuple(stored)):
            sizes = ["x".join(map(str, sides)) for sides in (size, shape)]
            raise ExcludedCase("mask_size_differs", f"its mask is {sizes[0]}, its image {sizes[1]}")

    def _layers(self, grid: str | list[str], source: MaskSource, shape: tuple[int, ...]) -> ClassLayers:
        """Return the classes of a case on the grid of its image."""
        import numpy as np

        masks = self.masks
        assert masks is not None
        if masks.format != "image":
            return ClassLayers(self._draw(grid, source, shape))
        parts = [
            self._layers_of_file(ref, source.classes[place] if masks.per_file and not source.stacked else None)
            for place, ref in enumerate(source.refs)
        ]
        if len({layer.shape for part in parts for layer in part.by_class.values()}) > 1:
            raise DataError(f"{'the slices of its mask' if source.stacked else 'its masks'} have different shapes")
        void_codes = frozenset(code for part in parts for code in part.void_codes)
        layer_of_class: dict[str, np.ndarray] = {}
        void: np.ndarray | None = None
        if source.stacked:
            layer_of_class = {
                name: np.stack([part.by_class[name] for part in parts], axis=-1) for name in parts[0].by_class
            }
            if void_codes:
                empty = np.zeros(next(iter(parts[0].by_class.values())).shape, bool)
                void = np.stack([empty if part.void is None else part.void for part in parts], axis=-1)
        else:
            for part in parts:
                for name, layer in part.by_class.items():
                    layer_of_class[name] = layer_of_class[name] | layer if name in layer_of_class else layer
            void = np.any([part.void for part in parts if part.void is not None], axis=0) if void_codes else None
        size = next((layer.shape for layer in layer_of_class.values()), None)
        if size is not None and masks.resized and (wanted_size := self._find_size(grid, size, shape)):
            layer_of_class = {name: _resize(layer, wanted_size) for name, layer in layer_of_class.items()}
            void = None if void is None else _resize(void, wanted_size)
        elif size is not None:
            self._compare_shapes(grid, size, shape)
        return ClassLayers(layer_of_class, void, void_codes)

    def _find_size(self, grid: str | list[str], size: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """The size of an image, upright or as it is stored, that has the proportions of a mask; () if neither has."""
        stored = tuple(stored_shape(grid, str(self.root))) if isinstance(grid, str) and "#" not in grid else shape
        return next((image for image in (shape, stored) if find_factor([(image, size)])), ())

    def _layers_of_file(self, ref: str, only: str | None) -> ClassLayers:
        """The classes of one mask file.

        Args:
            only: the class whose binary mask it is.
        """
        import numpy as np

        masks = self.masks
        assert masks is not None
        if masks.layers:
            return ClassLayers(self._split_layers(ref))
        if masks.above is not None:
            array = read_image(self._full(ref)).array.max(axis=0) > masks.above
            return ClassLayers({only or next(iter(masks.classes)): array})
        classes = {only: (ANY,)} if only is not None else dict(masks.classes)
        codes = [code for class_codes in (*classes.values(), masks.void) for code in class_codes]
        if any(isinstance(code, str) and code.startswith("#") for code in codes):
            values = self._read_colours(ref)
        else:
            values = self._read_values(ref)
        void = np.isin(values, numbers_of(masks.void))
        layers = {}
        for name, class_codes in classes.items():
            marked = values != 0 if ANY in class_codes else np.isin(values, numbers_of(class_codes))
            layers[name] = marked & ~void
        return ClassLayers(layers, void if void.any() else None, frozenset(_unique(values[void]).tolist()))

    def _read_values(self, ref: str) -> np.ndarray:
        """Whole numbers; of a coloured file 1 where it is not black."""
        try:
            values: np.ndarray = read_mask(self._full(ref)).array
        except DataError:
            assert self.masks is not None
            if any(ANY not in class_codes for class_codes in self.masks.classes.values()) and not self.masks.per_file:
                raise
            values = (read_image(self._full(ref)).array.max(axis=0) != 0).astype("uint8")
        return values

    def _read_colours(self, ref: str) -> np.ndarray:
        """65536 red + 256 green + blue; of a grey picture the same three times."""
        import numpy as np

        array = read_image(self._full(ref)).array.astype(np.int64)
        if array.shape[0] not in (1, 3):
            raise DataError(f"a coloured mask must have three channels, this has {array.shape[0]}")
        red, green, blue = array if array.shape[0] == 3 else np.concatenate([array] * 3)
        colours: np.ndarray = red * 65536 + green * 256 + blue
        return colours

    def _split_layers(self, ref: str) -> dict[str, np.ndarray]:
        assert self.masks is not None
        file, item = split_reference(self._full(ref), ".")
        array = read_array(Path(file), item)
        last_layer = max((place for places in self.masks.layers.values() for place in places), default=0)
        if array.ndim != 3 or array.shape[-1] <= last_layer:
            shape = "x".join(map(str, array.shape))
            raise DataError(
                f"masks.layers names layer {last_layer}; a mask is of shape {shape}, its layers along the last axis"
            )
        return {name: (array[..., list(places)] > 0).any(axis=-1) for name, places in self.masks.layers.items()}

    def _draw(self, grid: str | list[str], source: MaskSource, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Outlines, segments and run lengths on the grid of the image."""
        import numpy as np

        masks = self.masks
        assert masks is not None
        lookup = ClassLookup(masks.classes)
        size = shape[:2]
        layer_of_class: dict[str, np.ndarray] = {}
        if masks.format == ROW_FORMAT:
            rule = RunRule(masks.order, masks.first, masks.relative)
            for row in source.rows or ():
                name, runs = lookup.find(row.label), parse_runs(row.runs)
                if runs is None:
                    raise DataError(f"a cell holds no run lengths: {row.runs[:40]!r}")
                if name is not None and runs:
                    layer = draw_runs(runs, width=size[1], height=size[0], rule=rule)
                    layer_of_class[name] = layer_of_class[name] | layer if name in layer_of_class else layer
            return {name: layer_of_class.get(name, np.zeros(size, bool)) for name in masks.classes}
        if isinstance(grid, list) and len(source.annotated) == len(grid):
            planes = [
                self._draw_image(annotated, path, size) for annotated, path in zip(source.annotated, grid, strict=True)
            ]
            empty = np.zeros(size, bool)
            return {name: np.stack([plane.get(name, empty) for plane in planes], axis=-1) for name in masks.classes}
        layers = self._draw_image(source.annotated[0], grid, shape)
        return {name: layers.get(name, np.zeros(shape, bool)) for name in masks.classes}

    def _draw_image(
        self, annotated: AnnotatedImage | None, grid: str | list[str], shape: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """What is marked on one picture or volume, by class of the manifest."""
        assert self.source is not None
        assert self.masks is not None
        if annotated is None:
            return {}
        lookup = ClassLookup(self.masks.classes, self.source.class_names)
        layer_of_class: dict[str, np.ndarray] = {}
        for label, layer in self.source.masks(annotated, self._annotation_grid(grid, shape)).items():
            name = lookup.find(label)
            if name is not None:
                layer_of_class[name] = layer_of_class[name] | layer if name in layer_of_class else layer
        return layer_of_class

    def _annotation_grid(self, grid: str | list[str], shape: tuple[int, ...]) -> Any:
        """The size of a picture, or the grid of a volume, as annotation formats take it."""
        from m3b.dataset.annotations.geometry import ImageSize, VolumeGrid

        if len(shape) == 2 or shape[-1] == 1:
            orientation = (
                probe_orientation(local_reference(self.root, grid)) if isinstance(grid, str) and "#" not in grid else 1
            )
            return ImageSize(shape[1], shape[0], orientation)
        image_grid = geometry(grid, str(self.root))
        if image_grid.affine is None:
            raise DataError("its series says nothing of its geometry")
        rows, columns, slices = image_grid.shape
        return VolumeGrid((rows, columns, slices), image_grid.affine)

    def _write(self, case: CasePixels, grid: str | list[str], layers: dict[str, np.ndarray]) -> str | dict[str, str]:
        """Write classes as one mask with the numbers 1 to K, or as a file each if they may overlap."""
        import numpy as np

        masks = self.masks
        assert masks is not None
        if not layers:
            raise DataError("no mask of a class of this index")
        if masks.overlapping:
            return {
                name: self._write_file(f"{case.number:05d}_{place}", layers[name].astype(np.uint8), grid)
                for place, name in enumerate(masks.classes, 1)
                if name in layers
            }
        labels = np.zeros(next(iter(layers.values())).shape, np.uint16)
        for value, name in enumerate(masks.classes, 1):
            if name not in layers:
                continue
            if masks.format == "image" and (labels[layers[name]] != 0).any():
                raise ExcludedCase(
                    "classes_overlap", "masks of several classes mark the same pixels: masks.overlapping must be true"
                )
            labels[layers[name]] = value
        return self._write_file(f"{case.number:05d}", labels, grid)

    def _write_file(self, stem: str, array: np.ndarray, grid: str | list[str]) -> str:
        place = self.work / MASK_FOLDER / stem
        try:
            file = write_mask(array, self._full(grid), place)
        except DataError as error:
            raise DataError(str(error)) from error
        return Path(file).relative_to(self.work).as_posix()


def grid_reference(image: Reference) -> str | list[str]:
    """The image on whose grid masks lie: of several channels the first, of one slice that one."""
    if isinstance(image, dict):
        return next(iter(image.values()))
    return image[0] if isinstance(image, list) and len(image) == 1 else image


def find_factor(sizes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> float | None:
    """Return the factor between the sides of flat images and of their masks, rounded to pixels; None if there is no common one."""
    if not sizes or any(len(image) != 2 or len(mask) != 2 for image, mask in sizes):
        return None
    sides = [pair for image, mask in sizes for pair in zip(image, mask, strict=True)]
    low, high = (pick((mask + shift) / image for image, mask in sides) for pick, shift in ((max, -1), (min, 1)))
    return (low + high) / 2 if low <= high else None


def _resize(layer: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The nearest pixel of a layer for each of an image."""
    import numpy as np

    rows, columns = (
        ((np.arange(wanted) + 0.5) * side / wanted).astype(int) for side, wanted in zip(layer.shape, size, strict=True)
    )
    return layer[np.ix_(rows, columns)]


def keeps_files(masks: Masks) -> bool:
    """Whether an index can name the mask files as they are: one whole number a class, or a binary file a class."""
    if masks.format != "image" or masks.void or masks.above is not None or masks.layers or masks.resized:
        return False
    if masks.per_file:
        return masks.overlapping
    codes = list(masks.classes.values())
    return all(
        len(class_codes) == 1 and isinstance(class_codes[0], int) and class_codes[0] >= 1 for class_codes in codes
    ) and len({class_codes[0] for class_codes in codes}) == len(codes)


def mask_values(masks: Masks) -> dict[str, int]:
    """Class -> its number in the masks of the index."""
    if keeps_files(masks) and not masks.overlapping:
        return {name: int(codes[0]) for name, codes in masks.classes.items()}
    return {name: number for number, name in enumerate(masks.classes, 1)}


def numbers_of(codes: Sequence[int | str]) -> list[int]:
    """Whole numbers; colours as 65536 red + 256 green + blue."""
    numbers = []
    for code in codes:
        if isinstance(code, int):
            numbers.append(code)
        elif code.startswith("#") and re.fullmatch(r"#[0-9a-fA-F]{6}", code):
            numbers.append(int(code[1:], 16))
        elif re.fullmatch(r"-?\d+", code):
            numbers.append(int(code))
        elif code != ANY:
            raise DataError(f"the code {code!r} is neither a number nor a colour such as '#ff8000'")
    return numbers


def _unique(array: np.ndarray) -> np.ndarray:
    import numpy as np

    if array.dtype == np.uint8:
        return np.flatnonzero(np.bincount(array.ravel(), minlength=256))
    return np.unique(array)


def _drop_single_slice(shape: Sequence[int]) -> tuple[int, ...]:
    """Without a last axis of one."""
    return tuple(shape[:-1]) if len(shape) == 3 and shape[-1] == 1 else tuple(shape)


def _without_names(message: str, names: Sequence[str]) -> str:
    """A message without the names of files, so that equal reasons count as one."""
    for name in sorted(names, key=len, reverse=True):
        message = message.replace(name, "it")
    return message.rsplit("/", 1)[-1][:120]


# --- neighbours of a series --------------------------------------------------------------------------------------------------


def thumbnail_of(array: np.ndarray) -> np.ndarray | None:
    """Zero-mean, unit-norm area means of a picture (C, H, W); None if it is flat."""
    import numpy as np

    plane = array[0] if array.dtype.kind == "f" else _shrink(_shrink(array[0]).T).T
    plane = np.nan_to_num(np.asarray(plane, dtype=np.float64), posinf=0.0, neginf=0.0)
    small = area_means(area_means(plane, THUMBNAIL_SIDE).T, THUMBNAIL_SIDE).T
    small = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(small))
    return (small / norm).astype(np.float32) if norm > 1e-9 else None


def _shrink(plane: np.ndarray) -> np.ndarray:
    """Means of bands of rows of a large picture of whole numbers, so that no copy of all of it in floats is needed."""
    import numpy as np

    length, bands = len(plane), 8 * THUMBNAIL_SIDE
    if length < 2 * bands:
        return plane
    starts = np.linspace(0, length, bands + 1).astype(int)
    return np.stack([plane[low:high].mean(axis=0, dtype=np.float64) for low, high in pairwise(starts)])


class ThumbnailFile:
    """Thumbnails of pictures by number: the first few in memory, many in a temporary file without a name.

    Args:
        folder: where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._file = SpooledTemporaryFile(MAX_THUMBNAIL_BYTES, dir=str(folder))  # noqa: SIM115
        self._numbers = bytearray()

    def __enter__(self) -> ThumbnailFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, number: int, thumbnail: np.ndarray) -> None:
        """Store the thumbnail of a picture, as `thumbnail_of` returns it."""
        self._numbers.extend(bytes(max(number + 1 - len(self._numbers), 0)))
        self._numbers[number] = True
        self._file.seek(number * THUMBNAIL_BYTES)
        self._file.write(thumbnail.tobytes())

    def __contains__(self, number: int) -> bool:
        return number < len(self._numbers) and bool(self._numbers[number])

    def __getitem__(self, number: int) -> np.ndarray:
        import numpy as np

        self._file.seek(number * THUMBNAIL_BYTES)
        return np.frombuffer(self._file.read(THUMBNAIL_BYTES), np.float32)


def name_series(names: Sequence[str], numbers: Sequence[int], thumbnails: ThumbnailFile) -> list[str]:
    """Of each picture a text that it shares with neighbours: numbered one after the other, and nearly the same.

    Slices of a stack or frames of a clip that were exported as pictures are of one person, whether names say so or not.

    Args:
        numbers: of the pictures in `thumbnails`; those without a thumbnail have no neighbours.
    """
    numbered: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for place, name in enumerate(names):
        match = _NUMBERED.match(name)
        if match and numbers[place] in thumbnails:
            numbered[match[1], match[3]].append((int(match[2]), place))
    series = [""] * len(names)
    for numbered_places in numbered.values():
        numbered_places.sort()
        for (low, previous), (high, following) in pairwise(numbered_places):
            if high - low > MAX_STEP:
                continue
            if float(thumbnails[numbers[previous]] @ thumbnails[numbers[following]]) > NEAR:
                series[following] = series[previous] = series[previous] or f"series of {names[previous]}"
    return series


def find_copies(
    digests: Sequence[bytes], labels: Sequence[Mapping[str, Any] | tuple[str, ...]], tested: Sequence[bool]
) -> dict[int, tuple[str, str]]:
    """Cases with the pixels of another: place -> code and reason. Of copies the first stays, or those of the test part.

    Args:
        labels: copies with different ones contradict each other, and nobody can learn from them.
        tested: whether a case is in the folder's own test part, which stays as its owners made it.
    """
    by_digest = sorted((place for place, digest in enumerate(digests) if digest), key=digests.__getitem__)
    reasons: dict[int, tuple[str, str]] = {}
    for _, equal_places in groupby(by_digest, digests.__getitem__):
        places = list(equal_places)
        if len({tuple(sorted(labels[place])) for place in places}) > 1:
            reasons |= dict.fromkeys(places, ("contradicting_copies", "the same pixels under different labels"))
            continue
        originals = {place for place in places if tested[place]} or {places[0]}
        copies = [place for place in places if place not in originals]
        reasons |= dict.fromkeys(copies, ("copy", "an exact copy of another image of the index"))
    return reasons
