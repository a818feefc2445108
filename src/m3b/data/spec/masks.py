"""The mask of a case: a file as it is, one a class, or one that is derived (united, cut in two, renumbered)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.reading import read_image, read_mask, shared, shared_masks, stored_shape
from m3b.data.spec import aperio
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import CaseDraft, by_keys, by_names
from m3b.data.spec.contours import draw_contours, referenced_series, series_of
from m3b.data.spec.folder import DataFolder, Item
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.layers import layers_of
from m3b.data.spec.model import Masks
from m3b.data.spec.named_outlines import drawn as drawn_outlines
from m3b.data.spec.opened import UNREADABLE
from m3b.data.spec.outlines import coco, dicom_seg, labelme, wanted_names
from m3b.data.spec.patterns import PatternError, checked, filled
from m3b.data.spec.run_masks import RunMasks
from m3b.data.survey.keys import key as normal
from m3b.data.survey.pairing_keys import FOLDERS
from m3b.errors import DataError

PLACE = "Datapath/masks"
"""Where derived masks are written, below the working directory."""


NAMING = ("coco", "cvat", "via", "csv_runs")
"""Formats of which one file speaks of many images, by their names."""


@dataclass
class MaskSource:
    """Finds and derives masks.

    Args:
        prefix: of raw files in an index (`data/<name>/`).
        work: the working directory, for derived masks.
    """

    masks: Masks
    folder: DataFolder
    accounting: Accounting
    prefix: str
    work: Path
    cases: Sequence[CaseDraft]
    _of_case: dict[str, list[Item]] = field(default_factory=dict)
    _items: list[Item] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)
    _number: int = 0
    _runs: RunMasks | None = None

    def __post_init__(self) -> None:
        self._items = self.folder.items(self.masks.files, (self.masks.case, self.masks.class_key))
        if not self._items:
            raise PatternError(f"No file matches masks.files.pattern {self.masks.files.pattern!r}.")
        if self.masks.format == "csv_runs":
            self._of_case = {case.key: list(self._items) for case in self.cases}
            self._runs = RunMasks(self.masks, self.folder, self._items)
        elif self.masks.format in NAMING and not (self.masks.by or self.masks.case):
            self._of_case = {case.key: list(self._items) for case in self.cases}  # one file speaks of many images
        elif self.masks.format in ("rtstruct", "dicom_seg") and not (self.masks.by or self.masks.case):
            self._of_case = by_series(self.folder.root, self.cases, self._items)
        elif self.masks.format in ("labelme", "aperio", "yolo") and not (self.masks.by or self.masks.case):
            self._of_case = by_stems(self.cases, self._items)
        elif self.masks.by:
            self._of_case = self._by_names()
        else:
            checked(self.masks.case, tuple(self._items[0].slots), "masks.case")
            image = self.masks.image or self.masks.case
            self._of_case = by_keys(self.cases, self._items, image, self.masks.case, self.masks.rule)

    def _by_names(self) -> dict[str, list[Item]]:
        """The masks of every case; those of each class by themselves, where a folder or word of their names tells it."""
        key = "" if "{rest}" in self.masks.class_key else self.masks.class_key
        kinds: dict[str, list[Item]] = defaultdict(list)
        for item in self._items:
            kinds[filled(key, item.slots) if key else ""].append(item)
        found: dict[str, list[Item]] = defaultdict(list)
        for some in kinds.values():
            for case, its in by_names(self.cases, some, self.masks.by).items():
                found[case] += its
        return dict(found)

    def items_of(self, case: CaseDraft) -> list[Item]:
        """The files that belong to a case."""
        return self._of_case.get(case.key, [])

    def mask_of(self, case: CaseDraft) -> str | Mapping[str, str] | None:
        """What the index names as the mask of a case; None for a healthy one.

        Raises:
            LeaveOut: it has none, or several where one is needed, or one that does not open or fit.
        """
        items = self.items_of(case)
        if not items:
            if self.masks.empty == "healthy":
                return None
            raise LeaveOut("no mask")
        if self.masks.combine == "one" and len(items) > 1 and self.masks.format not in NAMING:
            raise LeaveOut(f"{len(items)} masks where one is needed")
        try:
            made = self._made(case, items)
        except LeaveOut:
            self.accounting.leave((item.path for item in items), "the mask of an image that does not open")
            raise
        except DataError as error:
            self.accounting.leave((item.path for item in items), "its image or mask cannot be used")
            raise LeaveOut(f"its mask cannot be used: {_general(str(error), items)}") from error
        self._used |= {item.reference for item in items}
        self.accounting.use((item.path for item in items), "mask")
        return made

    def leave_unmatched(self) -> None:
        """Masks that belong to no case are left out with that reason."""
        unused = [item.path for item in self._items if item.reference not in self._used]
        self.accounting.leave(unused, "a mask without its image")

    def _made(self, case: CaseDraft, items: list[Item]) -> str | Mapping[str, str]:
        if self.masks.format == "rtstruct":
            return self._drawn(case, items)
        if self.masks.format != "image":
            return self._outlined(case, items)
        if self.masks.layers:
            return self._layered(case, items[0])
        if self.masks.combine == "classes":
            return self._by_class(items)
        if self.masks.combine == "union":
            return self._derived(case, items)
        if self.masks.colours:
            return self._repainted(case, items[0])
        if self.masks.cut is None:
            _fits(self.folder.root, case, items[0])
            return self.prefix + items[0].reference
        return self._derived(case, items)

    def _by_class(self, items: list[Item]) -> dict[str, str]:
        named: dict[str, str] = {normal("exact", name): name for name in self.masks.classes}
        for name, texts in self.masks.names.items():
            named.update({normal("exact", text): name for text in texts})
        found: dict[str, str] = {}
        for item in items:
            own = named.get(normal("exact", filled(self.masks.class_key, item.slots)))
            if own is None:
                continue
            if own in found:
                raise DataError(f"two masks of the class {own}")
            found[own] = self.prefix + item.reference
        if not found:
            raise DataError("no mask of a class of this index")
        return dict(sorted(found.items(), key=lambda pair: list(self.masks.classes).index(pair[0])))

    def _derived(self, case: CaseDraft, items: list[Item]) -> str:
        """Write the union of binary masks; `cut` decides what is foreground, else anything but 0."""
        import numpy as np

        value = next(iter(self.masks.classes.values()))
        whole: Any = None
        for item in items:
            marked = _foreground(self.folder.root, item, self.masks.cut)
            if whole is not None and whole.shape != marked.shape:
                raise DataError("its masks have different shapes")
            whole = marked if whole is None else whole | marked
        _same_shape(self.folder.root, case, whole.shape)
        return self.written(case, whole.astype(np.uint16) * value)

    def _repainted(self, case: CaseDraft, item: Item) -> str:
        """Write a painted mask with the number of a class in place of its colour."""
        import numpy as np

        red, green, blue = _colours(self.folder.root, item)
        found = red * 65536 + green * 256 + blue
        numbers = np.zeros(found.shape, np.uint16)
        for name, value in self.masks.classes.items():
            numbers[found == self.masks.colours.get(name, -1)] = value
        _same_shape(self.folder.root, case, numbers.shape)
        return self.written(case, numbers)

    def _drawn(self, case: CaseDraft, items: list[Item]) -> str:
        """The regions of an RTSTRUCT file on its series."""
        file = self.folder.root / items[0].path
        drawn = draw_contours(file, _series(self.folder.root, case), self.masks.names, self.masks.classes)
        return self.written(case, drawn)

    def _outlined(self, case: CaseDraft, items: list[Item]) -> str | Mapping[str, str]:
        """Outlines and segments: a file a class where classes may overlap, else one with label numbers."""
        root, masks = self.folder.root, self.masks
        file = root / items[0].path
        if masks.format == "dicom_seg":
            layers: dict[str, Any] | None = dicom_seg(file, _series(root, case), masks.classes, masks.names)
        else:
            path = case.items[0].path
            try:
                shape = tuple(shared().probe(str(root / path)))
            except shared().ImageError as error:
                raise LeaveOut(UNREADABLE) from error
            if self._runs is not None:
                layers = self._runs.drawn(case, shape)
            elif masks.format == "labelme":
                layers = labelme(file, shape, masks.classes, masks.names, stored_shape(path, str(root)))
            elif masks.format == "aperio":
                layers = aperio.drawn(file, shape, masks.classes, masks.names)
            else:
                layers = self._named(path, shape, items)
        if layers is None:
            raise LeaveOut("no mask")
        if not layers:
            raise DataError("no mask of a class of this index")
        return self._united(case, layers)

    def _layered(self, case: CaseDraft, item: Item) -> str | Mapping[str, str]:
        """The layers of an array: overlapping ones can be no numbers of one mask."""
        layers = layers_of(self.folder.root, item.reference, self.masks.layers)
        _same_shape(self.folder.root, case, next(iter(layers.values())).shape)
        if self.masks.combine != "classes" and (sum(one.astype(int) for one in layers.values()) > 1).any():
            raise DataError("layers of several classes mark the same pixels: masks.combine must be classes")
        return self._united(case, layers)

    def _united(self, case: CaseDraft, layers: Mapping[str, Any]) -> str | Mapping[str, str]:
        """Write the areas of classes: a file each where they may overlap, else one with their numbers."""
        import numpy as np

        masks = self.masks
        if masks.combine == "classes":
            return {name: self.written(case, layers[name].astype(np.uint8)) for name in masks.classes if name in layers}
        whole = np.zeros(next(iter(layers.values())).shape, np.uint16)
        for name, value in masks.classes.items():
            if name in layers:
                whole[layers[name]] = value
        return self.written(case, whole)

    def _named(self, path: str, shape: tuple[int, ...], items: list[Item]) -> dict[str, Any] | None:
        """Of files that name their images (of YOLO: files of fractions) the areas on one; None where no file names it.

        COCO alone leaves out images without an area: its exports list images that nobody has marked.
        """
        import numpy as np

        masks, root = self.masks, self.folder.root
        wanted = wanted_names(masks.classes, masks.names)
        for item in items:
            file = root / item.path
            if masks.format == "coco":
                found = coco(file, path, shape, masks.classes, masks.names, stored_shape(path, str(root)))
            elif masks.format in ("yolo", "cvat", "via"):
                found = drawn_outlines(masks.format, file, path, shape, wanted)
            else:
                raise DataError(f"masks.format {masks.format!r} is no format of outlines")
            if found is not None:
                bare = found or masks.format == "coco"
                return found if bare else {name: np.zeros(shape[:2], bool) for name in masks.classes}
        return None

    def written(self, case: CaseDraft, array: Any) -> str:
        """Write a mask on the grid of a case's image; gives its path below the working directory."""
        place = self.work / PLACE
        place.mkdir(parents=True, exist_ok=True)
        self._number += 1
        slices = [item.reference for item in case.items]
        like = case.folder if case.folder is not None else slices if len(slices) > 1 else slices[0]
        file = shared_masks().write_mask(array, like, place / f"{self._number:05d}", self.folder.root)
        return Path(file).relative_to(self.work).as_posix()


def by_series(root: Path, cases: Sequence[CaseDraft], items: Sequence[Item]) -> dict[str, list[Item]]:
    """The files of contours by the case whose series they were drawn on."""
    named = {series_of(_series(root, case)): case.key for case in cases}
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        for series in referenced_series(root / item.path):
            if series in named:
                found[named[series]].append(item)
    return dict(found)


def _series(root: Path, case: CaseDraft) -> Path | list[Path]:
    """The folder, or the files, of a case's slices."""
    return [root / item.path for item in case.items] if case.folder is None else root / case.folder


def by_stems(cases: Sequence[CaseDraft], items: Sequence[Item]) -> dict[str, list[Item]]:
    """The files of every case that are called like its image, in those folders that bring most together."""
    found = [by_names(cases, items, (folders, "stem")) for folders in FOLDERS]
    return max(found, key=lambda one: sum(len(some) == 1 for some in one.values()))


def _foreground(root: Path, item: Item, cut: float | None) -> Any:
    """Boolean, in the axes of `read_image`."""
    if cut is None:
        return read_mask(item.reference, str(root)).array != 0
    array = read_image(item.reference, str(root)).array
    return array.max(axis=0) > cut


def _colours(root: Path, item: Item) -> Any:
    """Red, green and blue as numbers; of a picture in grey the same three times."""
    import numpy as np

    array = read_image(item.reference, str(root)).array.astype(np.int64)
    if array.shape[0] not in (1, 3):
        raise DataError(f"a painted mask must have three channels, this has {array.shape[0]}")
    return array if array.shape[0] == 3 else np.concatenate([array] * 3)


def _fits(root: Path, case: CaseDraft, item: Item) -> None:
    try:
        shape = tuple(shared().probe(str(root / item.reference)))
    except shared().ImageError as error:
        raise DataError(str(error)) from error
    _same_shape(root, case, shape)


def _same_shape(root: Path, case: CaseDraft, shape: tuple[int, ...]) -> None:
    paths = [str(root / one.reference) for one in case.items] if case.folder is None else [str(root / case.folder)]
    try:
        image = tuple(shared().probe(paths[0] if len(paths) == 1 else paths))
    except shared().ImageError as error:
        raise LeaveOut(UNREADABLE) from error
    stored = stored_shape(case.items[0].reference, str(root)) if len(paths) == 1 and case.folder is None else image
    if _bare(tuple(shape)) not in (_bare(image), _bare(stored)):
        raise DataError(f"it is {'x'.join(map(str, shape))}, its image {'x'.join(map(str, image))}")


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without a last axis of one."""
    return shape[:-1] if len(shape) == 3 and shape[-1] == 1 else shape


def _general(message: str, items: list[Item]) -> str:
    """A message without the names of files, so that equal reasons count as one."""
    message = str(message)
    for item in items:
        message = message.replace(item.reference, "it").replace(item.path, "it")
    return message.rsplit("/", 1)[-1][:120]
