"""From a manifest to an index: records of both parts, with every file accounted for."""

from __future__ import annotations

import json
import math
import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, cycle, pairwise
from pathlib import Path
from typing import Any

import polars as pl

from m3b.data import kinds
from m3b.data.index import LABELS, TEST, TRAIN, write_records, write_unlabelled
from m3b.data.kinds.covariates import list_covariates
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.data.kinds.regression import VALUE
from m3b.data.kinds.segmentation import BY_PROMPTS, FROM_BOXES, ORIGIN
from m3b.data.kinds.survival import EVENT, TIME
from m3b.data.natural import natural
from m3b.data.records import NO_VALUES, UNKNOWN_PATIENT, BoxLabel, Channels, Image, Record, Report, share_names
from m3b.data.sides import WITH_SIDES, sides
from m3b.dataset.archives import local_reference
from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.annotated import ROW_FORMAT, ClassLookup, has_image_sizes
from m3b.dataset.manifest.box_grids import BoxGrid, clipped, fill_boxes, grid_for, to_voxels, upright
from m3b.dataset.manifest.explain import CENSORED, MARKED, OBSERVED, UNMARKED
from m3b.dataset.manifest.model import Boxes, Manifest, Masks
from m3b.dataset.manifest.pixels import (
    MASK_FOLDER,
    UNSEEN,
    CasePixels,
    MaskSource,
    PixelReader,
    Reference,
    SeenCase,
    ThumbnailFile,
    find_copies,
    grid_reference,
    mask_values,
    name_series,
    numbers_of,
)
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import ExcludedFiles, Resolved, resolve
from m3b.dataset.manifest.split import SplitUnit, draw_test_groups, group_cases, name_fifths
from m3b.dataset.reading import probe_shape, read_mask, write_mask
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

ACCOUNTING = "Datapath/accounting.json"
"""What an executed manifest used and left out, below the working directory."""
PROMPTED_FOLDER = "Datapath/prompted"
PROMPTED_LIST = f"{PROMPTED_FOLDER}/masks.json"
"""Masks that were prompted for in the run, of images without one, and the file that names them."""
MAX_OPENED = 30_000
"""Images that are opened; of larger sets only what masks and boxes need."""
MAX_COUNTED = {2: 5_000, 3: 200}
"""Masks of pictures and of volumes that are opened to stratify a drawn split. A number and no time, so that a manifest is executed
to the same split everywhere."""
MAX_UNLABELLED, UNLABELLED_PER_LABELLED = 8_000, 7
"""Images without a label that an index keeps: at most so many, which the audit compares with all others, and for each training case
as many as FixMatch (Sohn et al., NeurIPS 2020) has in a batch."""
FEW_FILES = 30
"""A folder with fewer files cannot hold the cases of another manifest either."""
MAX_MESSAGES = 5
_SPACES = {"shares": "fractions"}


class TooFewCases(DataError):
    """The folder holds too few files for training and testing: no other manifest can help."""


class NothingOpens(DataError):
    """No image of any case opens: no other manifest can help."""


@dataclass(frozen=True)
class Executed:
    """An index as a manifest makes it.

    Args:
        resolved: what was found, after images were opened.
        values: class -> number, as in label_dict.json.
        crossing: patients or copies on both sides of the folder's own split.
        missing: keys of tables that no file has.
        notes: what was made of the data, and what a reader of the figures must know.
        unlabelled: records without a label, of no patient that is tested.
        undecodable: files whose names are not UTF-8, as Python's `surrogateescape` writes them.
        class_counts: part -> class -> its cases.
    """

    manifest: Manifest
    resolved: Resolved
    train: tuple[Record, ...]
    test: tuple[Record, ...]
    values: dict[str, int]
    crossing: int = 0
    missing: int = 0
    notes: tuple[str, ...] = ()
    undecodable: tuple[str, ...] = ()
    class_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unlabelled: tuple[Record, ...] = ()

    @property
    def patients_known(self) -> bool:
        """Whether the manifest says whose each case is; if not, each group of copies counts as a person."""
        return self.manifest.patient is not None

    @property
    def exclusions(self) -> tuple[ExcludedFiles, ...]:
        """Files that are left out, by reason."""
        if not self.undecodable:
            return self.resolved.exclusions
        names = tuple(
            name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in self.undecodable[:3]
        )
        reason = "the name is not UTF-8; rename it"
        return (*self.resolved.exclusions, ExcludedFiles("undecodable", reason, len(self.undecodable), names))

    def to_json(self) -> dict[str, Any]:
        """For the run's record: the manifest, the accounting, and what is known of patients."""
        uses = self.resolved.uses
        used = uses.drop_nulls("use").group_by("use", maintain_order=True).len().rows()
        excluded = [
            {
                "code": exclusion.code,
                "reason": exclusion.reason,
                "files": exclusion.count,
                "examples": list(exclusion.examples),
            }
            for exclusion in self.exclusions
        ]
        return {
            "manifest": self.manifest.model_dump(mode="json", exclude_defaults=True),
            "accounting": {"files": len(uses) + len(self.undecodable), "used": dict(used), "left_out": excluded},
            "patients": "known" if self.patients_known else "unknown",
            "grouped_by": grouped_by(self.manifest),
            "class_counts": {
                part: {name: count for name, count in counts.items() if count}
                for part, counts in self.class_counts.items()
            },
            "unlabelled": len(self.unlabelled),
            "crossing": self.crossing,
            "named_but_absent": self.missing,
            "notes": list(self.notes),
        }


def grouped_by(manifest: Manifest) -> str:
    """What a manifest keeps together on one side of the split, in words."""
    values = [*([manifest.patient] if manifest.patient is not None else []), *manifest.together]
    return ", and ".join(
        f"what {value.find} finds in {describe_template(manifest, value.value)}"
        if value.find
        else describe_template(manifest, value.value)
        for value in values
    )


NAMES_OF_PATHS = {"stem": "the file name", "name": "the file name", "path": "the path"}


def describe_template(manifest: Manifest, template: str) -> str:
    """Return in words where a template takes its text from: columns of tables, header fields, folders, or parts of names."""
    places = []
    for slot in re.findall(r"\{([^{}]+)\}", template):
        owner, _, name = slot.partition(".")
        if name and owner in manifest.tables:
            places.append(f"the column {name} of {_first_of(manifest.tables[owner].files)}")
        elif name and owner == "tag":
            places.append(f"the header field {name}")
        elif name and owner == "member":
            places.append(f"the member {name} of the files")
        elif slot.startswith("folder") or slot == "parent":
            places.append("the folder")
        elif slot in NAMES_OF_PATHS:
            places.append(NAMES_OF_PATHS[slot])
        else:
            files = re.sub(rf"\{{{re.escape(slot)}(:\w+)?\}}", "[*]", _first_of(manifest.images.files))
            places.append(f"the part in brackets of {re.sub(r'{[^{}]*}', '*', files)}")
    return " with ".join(places) or template


def _first_of(files: tuple[str, ...] | str) -> str:
    return files if isinstance(files, str) else files[0]


def execute(
    manifest: Manifest, inventory: Inventory, *, name: str, work: Path, readers: FolderReaders | None = None
) -> Executed:
    """Make the records of both parts.

    Args:
        name: of the data set: records name files as `data/<name>/...`.
        work: the working directory; derived masks are written below it.

    Raises:
        DataError: the manifest does not fit the folder; the message has its problems.
    """
    return _Execution(manifest, inventory, name, work, readers or FolderReaders(inventory)).execute()


def write(executed: Executed, work: Path) -> None:
    """Write the index files, and what was used and left out."""
    task = executed.manifest.task
    write_records(work / TRAIN, executed.train, task)
    write_records(work / TEST, executed.test, task)
    write_unlabelled(work, executed.unlabelled, task)
    (work / LABELS).write_text(json.dumps(executed.values, ensure_ascii=False), encoding="utf-8")
    (work / ACCOUNTING).write_text(json.dumps(executed.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")


NUMBER_TAG = "tag.InstanceNumber"
"""Number of a slice in its series."""
OWN_PARTS = {"train": "train", "val": "train", "test": "test"}
"""Part of the folder's own split -> part of the index."""
ROWS_PER_LIST = 1024
"""Rows of a frame whose cells are Python objects at the same time."""


class _Row(Mapping[str, Any]):
    """A row of a frame, without an object for each of its cells; columns that nobody asks for are never taken out."""

    __slots__ = ("_columns", "place")

    def __init__(self, columns: _Columns, place: int) -> None:
        self._columns, self.place = columns, place

    def __getitem__(self, name: str) -> Any:
        return self._columns.get(name, self.place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.frame.columns)

    def __len__(self) -> int:
        return self._columns.frame.width


class _Columns:
    """The columns of a frame as lists, of some rows at a time: cases are gone through in order."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self._names = frozenset(frame.columns)
        self._lists: dict[str, tuple[int, list[Any]]] = {}

    def get(self, name: str, place: int) -> Any:
        """Return the value of a column in a row. Raises KeyError."""
        start = place - place % ROWS_PER_LIST
        held_start, values = self._lists.get(name, (-1, []))
        if held_start != start:
            if name not in self._names:
                raise KeyError(name)
            values = self.frame[name].slice(start, ROWS_PER_LIST).to_list()
            self._lists[name] = start, values
        return values[place - start]

    def rows(self) -> Iterator[_Row]:
        """Yield all rows."""
        return (_Row(self, place) for place in range(self.frame.height))


@dataclass(slots=True)
class _Case:
    """A case on its way to a record."""

    row: _Row
    image: Reference
    look: SeenCase = UNSEEN
    digest: bytes = b""
    boxes: tuple[BoxLabel, ...] | None = None
    is_prompted: bool = False
    code: str = ""
    reason: str = ""


@dataclass
class _Execution:
    manifest: Manifest
    inventory: Inventory
    name: str
    work: Path
    readers: FolderReaders
    notes: list[str] = field(default_factory=list)
    box_notes: Counter[str] = field(default_factory=Counter)

    def execute(self) -> Executed:
        self.prompted = self._list_prompted() if ORIGIN in kinds.of(self.manifest.task).properties() else {}
        resolved = resolve(self.manifest, self.inventory, readers=self.readers, prompted=self.prompted)
        if resolved.errors:
            messages = [problem.message for problem in resolved.errors]
            others_text = f" (and {len(messages) - MAX_MESSAGES} more)" if len(messages) > MAX_MESSAGES else ""
            raise DataError(" ".join(messages[:MAX_MESSAGES]) + others_text)
        self.resolved = resolved = replace(resolved, images=resolved.images.clear())  # no longer needed
        cases = [_Case(row, self._reference(row)) for row in _Columns(resolved.frame).rows()]
        with ThumbnailFile(self.work / MASK_FOLDER) as thumbnails:
            self._look(cases, thumbnails)
            self._add_boxes(cases)
            usable = self._leave(cases)
            places = [case.row.place for case in usable]
            series = name_series([_first_path(case.image) for case in usable], places, thumbnails)
        copies = find_copies(
            [case.digest for case in usable],
            [_labels_of(case.row) for case in usable],
            [case.row.get("split") == "test" for case in usable],
        )
        for place, (code, reason) in copies.items():
            if code != "copy" or not self.manifest.keep_copies:
                usable[place].code, usable[place].reason = code, reason
        series = [text for case, text in zip(usable, series, strict=True) if not case.code]
        usable = self._leave(usable)
        groups = self._group(usable, series)
        sides_of_cases, crossing = self._split(usable, groups)
        return self._finish(cases, usable, groups, sides_of_cases, crossing)

    @property
    def fills_boxes(self) -> bool:
        """Whether boxes stand for the masks of a task."""
        return self.manifest.boxes is not None and "boxes" not in kinds.of(self.manifest.task).targets

    # --- images and masks --------------------------------------------------------------------------------------------------

    def _reference(self, row: Mapping[str, Any]) -> Reference:
        images = self.manifest.images
        if images.channels:
            names = [images.name or "image", *(channel.name for channel in images.channels)]
            return {name: path for name, path in zip(names, row["channels"], strict=True) if path is not None}
        refs = list(row["refs"])
        if images.unit == "folder" and not self._has_mask_per_slice(row):
            return str(row["case"])
        if images.several == "one":
            return str(refs[0])
        return self._order_slices(refs) if images.several == "slices" else refs

    def _has_mask_per_slice(self, row: Mapping[str, Any]) -> bool:
        """Whether each slice of a volume has a mask file of its own."""
        masks = self.manifest.masks
        return (
            masks is not None
            and masks.format == "image"
            and not masks.per_file
            and self.manifest.images.several == "slices"
            and len(row.get("mask_refs") or ()) == len(row["refs"]) > 1
        )

    def _number_slices(self, refs: Sequence[str], masks_by_name: Sequence[str]) -> list[str]:
        """Slices in the order of their masks' names: by names that count alike, else by their numbers in the series."""
        by_name = sorted(refs, key=natural)
        if _steps_of(by_name) == _steps_of(masks_by_name):
            return by_name
        frame = self.readers.with_tags(pl.DataFrame({"path": list(refs)}), [NUMBER_TAG])
        numbers = {ref: _floats(text)[:1] for ref, text in frame.select("path", NUMBER_TAG).iter_rows()}
        distinct = {number for values in numbers.values() for number in values}
        return sorted(refs, key=lambda ref: numbers[ref]) if len(distinct) == len(refs) else by_name

    def _order_slices(self, refs: list[str]) -> list[str]:
        """Slices of a DICOM series along their common normal, whatever their files are called."""
        suffixes = (".dcm", ".dicom", ".ima", ".dic")
        names = [ref.rpartition("/")[2].lower() for ref in refs]
        if len(refs) < 2 or not all(name.endswith(suffixes) or "." not in name or name[-1].isdigit() for name in names):
            return refs
        tags = ["tag.ImagePositionPatient", "tag.ImageOrientationPatient", NUMBER_TAG]
        frame = self.readers.with_tags(pl.DataFrame({"path": refs}), tags)
        positions, numbers = [], []
        for row in frame.iter_rows(named=True):
            place, axes, number = (_floats(row[tag]) for tag in tags)
            if len(place) == 3 and len(axes) == 6:
                (a, b, c), (d, e, f) = axes[:3], axes[3:]
                normal = (b * f - c * e, c * d - a * f, a * e - b * d)
                positions.append(sum(a_part * b_part for a_part, b_part in zip(place, normal, strict=True)))
            numbers += number[:1]
        keys = positions if len(positions) == len(refs) else numbers
        if len(keys) != len(refs):
            return refs
        return [refs[at] for at in sorted(range(len(refs)), key=lambda at: keys[at])]

    def _look(self, cases: Sequence[_Case], thumbnails: ThumbnailFile) -> None:
        masks, annotated = self.manifest.masks, self.resolved.annotated.get("masks")
        opens = len(cases) <= MAX_OPENED
        counts = masks is not None and len(cases) <= MAX_COUNTED[2]
        if counts and len(cases) > MAX_COUNTED[3]:
            counts = self._is_flat(cases[0].image)
        reader = PixelReader(
            self.inventory.root, self.work, masks, annotated.source if annotated is not None else None, opens, counts
        )
        for case in cases:
            case.is_prompted = (
                bool(self.prompted) and not case.row.get("mask_refs") and (str(case.row["refs"][0]) in self.prompted)
            )
        jobs = (CasePixels(at, case.image, self._mask_source(case)) for at, case in enumerate(cases, 1))
        for case, look in zip(cases, reader.look(jobs), strict=True):
            case.digest, case.code, case.reason = bytes.fromhex(look.digest), look.code, look.reason
            if look.thumbnail is not None:
                thumbnails.add(case.row.place, look.thumbnail)
            if look.mask is not None:
                case.look = replace(look, digest="", thumbnail=None)
        for at, case in enumerate(cases, 1):
            if case.is_prompted and not case.code:
                self._take_prompted(at, case)
        if not opens:
            self.notes.append(f"{len(cases):,} images were not opened: there are more than {MAX_OPENED:,}")
        if masks is not None and masks.void:
            self._describe_void(masks, [case.look for case in cases])

    def _describe_void(self, masks: Masks, looks: Sequence[SeenCase]) -> None:
        """Add a note on the share of pixels that are void, and on codes that no mask has."""
        if void := sum(look.void for look in looks):
            share = void / sum(look.size for look in looks)
            self.notes.append(
                f"{void:,} pixels of masks are void ({share:.1%} of all, in {sum(look.void > 0 for look in looks):,} masks): "
                "training and figures leave them out"
            )
        unused = [code for code in masks.void if not any(set(numbers_of([code])) & look.void_codes for look in looks)]
        if unused:
            self.notes.append(f"masks.void: no mask has {', '.join(map(str, unused))}; is this the right value?")

    def _is_flat(self, image: Reference) -> bool:
        try:
            return len([size for size in probe_shape(self._local_grid(image)) if size > 1]) <= 2
        except DataError:
            return False

    def _local_grid(self, image: Reference) -> Any:
        """Full paths of the files whose grid masks and boxes lie on, with members of archives extracted."""
        grid = grid_reference(image)
        if isinstance(grid, str):
            return local_reference(self.inventory.root, grid)
        return [local_reference(self.inventory.root, path) for path in grid]

    def _mask_source(self, case: _Case) -> MaskSource | None:
        masks, row = self.manifest.masks, case.row
        if masks is None or not row.get("mask_refs") or row.get("abnormal") is False:
            return None
        if masks.format == "image":
            refs, texts = tuple(row["mask_refs"]), tuple(row["mask_texts"])
            if not self._has_mask_per_slice(row):
                return MaskSource(refs, texts)
            masks_by_name = sorted(refs, key=natural)
            slices = self._number_slices(row["refs"], masks_by_name)
            mask_of_slice = dict(zip(slices, masks_by_name, strict=True))
            return MaskSource(tuple(mask_of_slice[ref] for ref in case.image), texts, stacked=True)
        annotated = self.resolved.annotated["masks"]
        if masks.format == ROW_FORMAT:
            return MaskSource(rows=tuple(mark for ref in row["refs"] for mark in annotated.rows.get(ref, ())))
        paths = case.image if isinstance(case.image, list) else row["paths"]
        images = [annotated.images.get(str(path)) for path in paths]
        hits = [image for image in images if image is not None]
        return MaskSource(annotated=tuple(images) if len({id(image) for image in hits}) > 1 else tuple(hits[:1]))

    # --- masks that were prompted for ----------------------------------------------------------------------------------------

    def _list_prompted(self) -> dict[str, list[tuple[str, str]]]:
        """Reference of an image -> (what was marked, file below `work`) of masks that were prompted for in this run."""
        file = self.work / PROMPTED_LIST
        if not file.is_file():
            return {}
        prefix = f"data/{self.name}/"
        masks_of_image: dict[str, list[tuple[str, str]]] = {}
        try:
            for row in parse_data_json(file.read_text(encoding="utf-8")):
                image = str(row["image"]).removeprefix(prefix)
                masks_of_image.setdefault(image, []).append((str(row["target"]), str(row["file"])))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{PROMPTED_LIST} cannot be read: {error}. Remove it, and prompt again.") from error
        return masks_of_image

    def _take_prompted(self, number: int, case: _Case) -> None:
        """The mask of a case out of prompted ones; a target of the only class, or one that is called like a class."""
        import numpy as np

        masks = self.manifest.masks
        assert masks is not None
        class_by_name = {name.casefold(): name for name in masks.classes}
        layers: dict[str, Any] = {}
        for target, file in self.prompted[str(case.row["refs"][0])]:
            name = class_by_name.get(target.casefold()) or (
                next(iter(masks.classes)) if len(masks.classes) == 1 else None
            )
            if name is None or Path(file).parent.as_posix() != PROMPTED_FOLDER:
                continue
            try:
                layer = read_mask(file, str(self.work)).array != 0
            except DataError:
                case.code, case.reason = "unusable_mask", "its prompted mask cannot be read"
                return
            layers[name] = layers[name] | layer if name in layers else layer
        if not layers:
            case.code, case.reason = "no_mask", "no mask; what was prompted for is no class of this index"
            return
        values, grid = mask_values(masks), grid_reference(case.image)
        stem = self.work / MASK_FOLDER / f"{number:05d}"
        if masks.overlapping:
            mask: Any = {
                name: self._write_mask(layers[name].astype(np.uint8), grid, Path(f"{stem}_{values[name]}"))
                for name in masks.classes
                if name in layers
            }
        else:
            labels = np.zeros(next(iter(layers.values())).shape, np.uint16)
            for name, layer in layers.items():
                labels[layer] = values[name]
            mask = self._write_mask(labels, grid, stem)
        case.look = replace(case.look, mask=mask, classes=tuple(layers))

    def _write_mask(self, array: Any, grid: str | list[str], stem: Path) -> str:
        file = write_mask(array, grid, stem, str(self.inventory.root))
        return Path(file).relative_to(self.work).as_posix()

    # --- boxes -------------------------------------------------------------------------------------------------------------

    def _add_boxes(self, cases: Sequence[_Case]) -> None:
        boxes = self.manifest.boxes
        if boxes is None:
            return
        source = self.resolved.annotated["boxes"].source
        lookup = ClassLookup(boxes.classes, source.class_names if source is not None else ())
        for case in cases:
            if not case.code:
                self._find_boxes(boxes, case, lookup.find)
        self.notes += [f"{count:,} boxes left out: {reason}" for reason, count in self.box_notes.items()]
        if not any(case.boxes for case in cases) and any(not case.code for case in cases):
            annotated = self.resolved.annotated["boxes"]
            names = sorted(annotated.strange)
            raise DataError(
                f"boxes: no case has one. Names in the files that are of no class: {', '.join(names[:12]) or 'none'}; boxes.classes "
                f"has {', '.join(boxes.classes)}."
            )
        if self.fills_boxes:
            self._fill_boxes([case for case in cases if not case.code])

    def _fill_boxes(self, cases: Sequence[_Case]) -> None:
        """Write the boxes of each case as its mask, a file a class if there are several: boxes of different classes may overlap."""
        classes = list(self.resolved.classes)
        for number, case in enumerate(cases, 1):
            grid = self._local_grid(case.image)
            layers = [
                fill_boxes([box.box for box in case.boxes or () if box.label == name], grid, self.inventory.root)
                for name in classes
            ]
            files = {
                name: self._write_mask(layer, grid, self.work / MASK_FOLDER / f"{number:05d}_{place}")
                for place, (name, layer) in enumerate(zip(classes, layers, strict=True), 1)
            }
            case.look = replace(case.look, mask=files if len(files) > 1 else files[classes[0]])
        self.notes.append(
            "masks are boxes: what is outside is background, training finds out what inside is the structure, and the figures compare "
            "boxes of the answers with these boxes"
        )

    def _find_boxes(self, boxes: Boxes, case: _Case, find: Callable[[str], str | None]) -> None:
        """The boxes of one case, in pixels or voxels of its image and within it."""
        try:
            grid: BoxGrid | None = None
            box_labels: dict[BoxLabel, None] = {}
            for label, box, g in self._marks(boxes, case):
                grid = g
                name = find(label)
                if name is None:
                    self.box_notes["of a class that is not asked for"] += 1
                    continue
                clipped_box = clipped(box, grid) if all(map(math.isfinite, box)) else None
                if clipped_box is None:
                    self.box_notes["without area, or outside their image"] += 1
                    continue
                if BoxLabel(name, clipped_box) in box_labels:
                    self.box_notes["listed twice for the same image"] += 1
                box_labels[BoxLabel(name, clipped_box)] = None
        except DataError as error:
            code = getattr(error, "code", "") or "unusable_boxes"
            case.code, case.reason = code, f"no boxes for this image: {error}"
            return
        case.boxes = tuple(box_labels)

    def _marks(self, boxes: Boxes, case: _Case) -> list[tuple[str, tuple[float, ...], BoxGrid]]:
        """(name in the files, box, grid) of each mark on a case."""
        annotated = self.resolved.annotated["boxes"]
        paths = [str(path) for path in case.row["paths"]]
        if boxes.format != ROW_FORMAT:
            source, annotated_image = annotated.source, annotated.images.get(paths[0])
            if annotated_image is None or source is None or not source.marks.get(annotated_image):
                return []
            from m3b.dataset.annotations.geometry import ImageSize

            grid = grid_for(self._local_grid(case.image), self.inventory.root)
            size = ImageSize(int(grid.extent[0]), int(grid.extent[1]), grid.orientation)
            return [(label, tuple(map(float, box)), grid) for label, box in source.boxes(annotated_image, size)]
        rows = [row for ref in case.row["refs"] for row in annotated.rows.get(ref, ())]
        if not rows:
            return []
        grid = grid_for(self._local_grid(case.image), self.inventory.root)
        corners = [
            tuple(value * factor for value, factor in zip(row.corners, cycle(boxes.scale)))
            if boxes.scale != (1.0, 1.0)
            else row.corners
            for row in rows
        ]
        declared = "shares" if has_image_sizes(boxes) else boxes.space
        if declared == "pixels":
            corners = upright(corners, grid)
        ball = bool({"radius", "diameter"} & set(boxes.columns))
        space: Any = _SPACES.get(declared, declared)
        return [
            (row.label, to_voxels(box, grid, space, ball=ball, sizes_mm=boxes.sizes_mm), grid)
            for row, box in zip(rows, corners, strict=True)
        ]

    # --- parts -------------------------------------------------------------------------------------------------------------

    def _leave(self, cases: Sequence[_Case]) -> list[_Case]:
        """Cases that can be used.

        Raises:
            DataError: none can.
        """
        usable = [case for case in cases if not case.code]
        if usable or not cases:
            return usable
        codes = {case.code for case in cases}
        example = _first_path(cases[0].image)
        if codes == {"no_permission"}:
            raise NothingOpens(
                f"Permission to read the images is denied, e.g. {example}. Make them readable (chmod a+r)."
            )
        if codes <= {"unreadable", "no_permission"}:
            raise NothingOpens(
                f"No image of this data set opens ({len(cases)} were tried, e.g. {example}). Check the files, or export them again."
            )
        reason, count = Counter(case.reason for case in cases).most_common(1)[0]
        raise DataError(f"None of the {len(cases)} cases can be used: {reason} ({count}).")

    def _group(self, cases: Sequence[_Case], series: Sequence[str]) -> Sequence[int]:
        """Of each case, with which it stays on one side: patient, copies, neighbours of a series, `together`."""
        own_split = self.manifest.split.is_given
        if not own_split and (n_neighbours := sum(map(bool, series))):
            self.notes.append(
                f"{n_neighbours:,} images are neighbours in series of nearly the same picture, and stay together"
            )
        repeated = {first for first, second in pairwise(sorted(case.digest for case in cases)) if first == second}
        return group_cases(
            (
                case.row.get("patient") or f"case {case.row['case']}",
                case.digest if case.digest in repeated else b"",
                "" if own_split else series[place],
                *(text or "" for text in case.row.get("together") or ()),
            )
            for place, case in enumerate(cases)
        )

    def _describe_groups(self, groups: Sequence[int]) -> str:
        """Return a sentence on what a drawn split keeps together, if that leaves few groups; else ''."""
        n_groups = len(set(groups))
        if self.manifest.split.is_given or n_groups == len(groups):
            return ""
        return (
            f"The {len(groups)} cases form {n_groups} group{'s' if n_groups > 1 else ''} that stay on one side: those of one patient, "
            "copies, and neighbours in series of nearly the same picture. A class needs two groups to be on both sides. "
        )

    def _note_validation_part(self, cases: Sequence[_Case], parts: Sequence[str]) -> None:
        """Say how many training cases are the folder's own validation part."""
        count = sum(part == "train" and case.row.get("split") == "val" for case, part in zip(cases, parts, strict=True))
        if count:
            self.notes.append(
                f"{count:,} training cases are the folder's own validation part, and are used like the others: training holds out "
                "validation cases of its own, as one part or in folds"
            )

    def _split(self, cases: Sequence[_Case], groups: Sequence[int]) -> tuple[list[str], int]:
        """Each case's part, empty for those that are left out, and how many groups were in both of the folder's own parts."""
        usable: Sequence[int] = range(len(cases))
        parts = [""] * len(cases)
        if self.manifest.split.is_given:
            own_parts = [OWN_PARTS.get(str(split := case.row.get("split")), split) for case in cases]
            for place in usable:
                if own_parts[place] == "test" and cases[place].is_prompted:
                    cases[place].code = "prompted_test_case"
                    cases[place].reason = "a test case without a mask of its own: one that was prompted for is no truth"
            usable = [place for place in usable if not cases[place].code]
            if {"train", "test"} <= {own_parts[place] for place in usable}:
                parts, crossing = self._own_sides(cases, groups, usable, own_parts, parts)
                self._note_validation_part(cases, parts)
                return parts, crossing
            self.notes.append(
                "the folder's own split leaves one part without cases that have a target: a new one is drawn"
            )
        strata = self._strata(cases, usable)
        taught = {groups[place] for place in usable if cases[place].is_prompted}
        units = (
            SplitUnit(groups[place], classes)
            for place, classes in zip(usable, strata, strict=True)
            if groups[place] not in taught
        )
        tested = draw_test_groups(units, self.manifest.split.share, self.manifest.split.seed)
        for place in usable:
            parts[place] = "test" if groups[place] in tested else "train"
        return parts, 0

    def _own_sides(
        self,
        cases: Sequence[_Case],
        groups: Sequence[int],
        usable: Sequence[int],
        own_parts: Sequence[str | None],
        parts: list[str],
    ) -> tuple[list[str], int]:
        """Training cases of a patient, or copies of a picture, that the test part has too are left out."""
        tested = {groups[place] for place in usable if own_parts[place] == "test"}
        crossing = set()
        for place in usable:
            parts[place] = own_parts[place] or ""
            if own_parts[place] == "train" and groups[place] in tested:
                crossing.add(groups[place])
                parts[place] = ""
                cases[place].code = "patient_in_test_part"
                cases[place].reason = "its patient, or a copy of it, is in the folder's own test part"
        return parts, len(crossing)

    def _strata(self, cases: Sequence[_Case], usable: Sequence[int]) -> Iterable[tuple[str, ...]]:
        """What each case counts as in a drawn split: fifths of numbers, else classes."""
        if self.manifest.value is not None:
            return [(name,) for name in name_fifths([cases[place].row["number"] for place in usable])]
        return (self._classes_of(cases[place]) for place in usable)

    def _classes_of(self, case: _Case) -> tuple[str, ...]:
        row, look = case.row, case.look
        if "event" in row:
            return (OBSERVED if row["event"] else CENSORED,)
        if "abnormal" in row and self.manifest.masks is None:
            return ("abnormal" if row["abnormal"] else "normal",)
        if case.boxes is not None:
            return tuple(dict.fromkeys(box.label for box in case.boxes))
        if isinstance(look.mask, dict):
            return tuple(look.mask)
        if look.mask is not None:
            return look.classes if look.classes is not None and isinstance(look.mask, str) else (MARKED,)
        return _labels_of(row)

    # --- records -----------------------------------------------------------------------------------------------------------

    def _finish(
        self,
        cases: list[_Case],
        usable: list[_Case],
        groups: Sequence[int],
        parts: Sequence[str],
        crossing: int,
    ) -> Executed:
        """Make the records. The lists of cases are empty afterwards: a case and its record are held together for a moment only."""
        trained = sum(part == "train" and not case.code for case, part in zip(usable, parts, strict=True))
        unlabelled_cases = self._select_unlabelled(usable, parts, trained)
        resolved = self._account(cases, unlabelled_cases)
        cases.clear()
        usable.reverse()
        group_counts = array("q", accumulate(place == group for place, group in enumerate(groups)))  # up to each case
        train: list[Record] = []
        test: list[Record] = []
        class_counts = {part: Counter(dict.fromkeys(self.resolved.classes, 0)) for part in ("train", "test")}
        has_marks = self.manifest.masks is not None or self.manifest.boxes is not None
        for group, part in zip(groups, parts, strict=True):
            case = usable.pop()
            if not case.code and part:
                class_counts[part].update(self._classes_of(case) or (UNMARKED,) * has_marks)
                patient = case.row.get("patient") or f"{UNKNOWN_PATIENT}{group_counts[group] - 1:06d}"
                (train if part == "train" else test).append(self._record(case, patient))
        unlabelled = tuple(
            self._record(case, case.row.get("patient") or f"{UNKNOWN_PATIENT}{group_counts[-1] + place:06d}")
            for place, case in enumerate(unlabelled_cases)
            if not case.code
        )
        if not train or not test:
            has_few_files = len(self.inventory.files) < FEW_FILES and not self.manifest.split.is_given
            raise (TooFewCases if has_few_files else DataError)(
                f"The split leaves {len(train)} cases for training and {len(test)} for testing. {self._describe_groups(groups)}"
                "Add cases, several of each class and of several patients, or give a split that leaves some on both sides."
            )
        masks = self.manifest.masks
        first = int(self.fills_boxes)
        values = (
            mask_values(masks) if masks is not None else {name: at for at, name in enumerate(resolved.classes, first)}
        )
        covariates = list_covariates([*train, *test])
        notes = (
            *self._describe_changes(),
            *self.notes,
            *([f"besides the image a model is given {', '.join(covariates)}"] if covariates else []),
            *self._note_shared(resolved),
            *_note_unknown([*train, *test]),
        )
        missing = resolved.missing_files[0]
        undecodable = self.inventory.undecodable
        return Executed(
            self.manifest,
            resolved,
            tuple(train),
            tuple(test),
            values,
            crossing,
            missing,
            notes,
            undecodable,
            class_counts,
            unlabelled,
        )

    def _select_unlabelled(self, usable: Sequence[_Case], parts: Sequence[str], trained: int) -> list[_Case]:
        """Cases without a label, those that are left out with their reason; the audit looks for copies of other images among them.

        Args:
            trained: number of training cases.
        """
        cases = [_Case(row, self._reference(row)) for row in _Columns(self.resolved.kept_unlabelled).rows()]
        if not cases:
            return []
        groups = group_cases(
            (
                case.row.get("patient") or f"case {case.row['case']}",
                *(text or "" for text in case.row.get("together") or ()),
            )
            for case in (*usable, *cases)
        )
        tested = {
            group for group, case, part in zip(groups, usable, parts, strict=False) if part != "train" or case.code
        }
        free = []
        for case, group in zip(cases, groups[len(usable) :], strict=True):
            if group in tested:
                case.code, case.reason = "patient_in_test_part", "no label, and its patient is tested"
            else:
                free.append(case)
        limit = min(MAX_UNLABELLED, UNLABELLED_PER_LABELLED * trained)
        kept = set(range(0, len(free), -(-len(free) // limit)) if limit and free else ())
        for place, case in enumerate(free):
            if place not in kept:
                case.code, case.reason = "no_label", "no label, and more such images than self-training takes"
        return cases

    def _record(self, case: _Case, patient: str) -> Record:
        manifest, row = self.manifest, case.row
        extra: dict[str, Any] = {}
        if manifest.value is not None:
            extra[VALUE] = row["number"]
        if manifest.survival is not None:
            extra |= {TIME: row["time"], EVENT: row["event"]}
        if manifest.states is not None and manifest.masks is None:
            extra["abnormal"] = row["abnormal"]
        if case.is_prompted:
            extra[ORIGIN] = BY_PROMPTS
        if self.fills_boxes:
            extra[ORIGIN] = FROM_BOXES
        if row.get("unknown_labels"):
            extra[UNKNOWN_LABELS] = list(row["unknown_labels"])
        report = Report(row.get("findings") or "", row.get("impression") or "") if manifest.report is not None else None
        attributes = {name: row[f"attribute.{name}"] for name in manifest.attributes if row[f"attribute.{name}"]}
        covariates = {name: row[f"covariate.{name}"] for name in manifest.covariates}
        image, views = self._image(case.image)
        mask = self._place(case.look.mask) if case.look.mask is not None else None
        ignored = None if mask is None or case.is_prompted else case.look.ignored or None
        boxes = None if ORIGIN in extra else case.boxes
        return Record(
            image,
            _labels_of(row),
            sys.intern(patient),
            mask,
            boxes,
            report,
            extra or NO_VALUES,
            attributes or NO_VALUES,
            covariates or NO_VALUES,
            views,
            ignored,
        )

    def _image(self, image: Reference) -> tuple[Image, bool]:
        prefix = f"data/{self.name}/"
        if isinstance(image, dict):
            return Channels(tuple((name, prefix + path) for name, path in image.items())), False
        if isinstance(image, str):
            return prefix + image, False
        paths = tuple(prefix + path for path in image)
        if self.manifest.images.several != "views":
            return paths, False
        if kinds.of(self.manifest.task).separate_images:
            return paths, False  # they are views anyway
        return (paths, True) if len(paths) > 1 else (paths[0], False)

    def _place(self, mask: Any) -> Any:
        """The mask as the index names it."""
        if isinstance(mask, str):
            return f"data/{self.name}/{mask[5:]}" if mask.startswith("data:") else mask
        if isinstance(mask, tuple):
            return tuple(self._place(path) for path in mask)
        return {name: self._place(path) for name, path in mask.items()}

    # --- accounting --------------------------------------------------------------------------------------------------------

    def _account(self, cases: Sequence[_Case], unlabelled: Sequence[_Case]) -> Resolved:
        """What was found, without the cases that were left out since images were opened."""
        resolved = self.resolved
        excluded_cases = [case for case in (*cases, *unlabelled) if case.code]
        frame = resolved.frame.filter(pl.Series([not case.code for case in cases], dtype=pl.Boolean))
        excluded = pl.DataFrame(
            [(case.row["case"], case.row["paths"], case.code, case.reason) for case in excluded_cases],
            schema=resolved.excluded.schema,
            orient="row",
        )
        left_files = resolved.left_files
        if (
            "mask_refs" in resolved.frame.columns
            and self.manifest.masks is not None
            and self.manifest.masks.format == "image"
        ):
            paths = {ref.partition("#")[0]: case for case in excluded_cases for ref in case.row["mask_refs"] or ()}
            rows = [
                (path, "mask_of_excluded", "the mask of an image that is left out")
                if case.code != "mask_size_differs" and case.code != "unusable_mask"
                else (path, case.code, "its image or mask cannot be used")
                for path, case in paths.items()
            ]
            left_files = pl.concat([pl.DataFrame(rows, schema=left_files.schema, orient="row"), left_files])
        resolved = replace(
            resolved,
            frame=frame,
            excluded=pl.concat([resolved.excluded, excluded]),
            left_files=left_files,
            unlabelled=resolved.unlabelled.filter(pl.Series([not case.code for case in unlabelled], dtype=pl.Boolean))
            if unlabelled
            else resolved.unlabelled,
        )
        return self._follow_headers(resolved)

    def _follow_headers(self, resolved: Resolved) -> Resolved:
        """Files that a header names as its data (`case.raw` of `case.mhd`) are used, or left out, with it."""
        uses = resolved.uses
        headers = uses.filter(pl.col("path").str.to_lowercase().str.contains(r"\.(?:mhd|nhdr|hdr|img)$"))
        all_paths = set(self.inventory.paths) if len(headers) else set()
        used_rows, left_rows = [], []
        for path, use, code, reason in headers.select("path", "use", "code", "reason").iter_rows():
            if Path(path).suffix.lower() not in WITH_SIDES or code == "not_named":
                continue
            try:
                names = sides(self.inventory.root / path)
            except (DataError, OSError):
                continue  # an image that does not open is said elsewhere
            folder = path.rpartition("/")[0]
            data_files = all_paths & {f"{folder}/{name}".lstrip("/") for name in names}
            used_rows += [(name, use) for name in data_files if use is not None]
            left_rows += [(name, code, reason) for name in data_files if use is None]
        if not used_rows and not left_rows:
            return resolved
        return replace(
            resolved,
            used_files=pl.concat(
                [resolved.used_files, pl.DataFrame(used_rows, schema=resolved.used_files.schema, orient="row")]
            ),
            left_files=pl.concat(
                [resolved.left_files, pl.DataFrame(left_rows, schema=resolved.left_files.schema, orient="row")]
            ),
        )

    def _note_shared(self, resolved: Resolved) -> list[str]:
        """Cases that are left out though their files are used, since they are items of containers."""
        if not self.manifest.images.member:
            return []
        used = resolved.uses.filter(pl.col("use") == "image")["path"].implode()
        within = resolved.excluded.filter(pl.col("paths").list.first().is_in(used))
        counts = within.group_by("reason").len().sort(["len", "reason"], descending=[True, False])
        return [
            f"{count:,} images of files that are used are left out: {reason}" for reason, count in counts.iter_rows()
        ]

    def _describe_changes(self) -> list[str]:
        """What was made of the files of masks and channels, if that changes what they say."""
        notes = []
        masks, images = self.manifest.masks, self.manifest.images
        if masks is not None:
            first = next(iter(masks.classes))
            if masks.above is not None:
                notes.append(f"masks of more than two levels were cut: above {masks.above:g} is {first}")
            elif masks.format == "image" and masks.classes[first] == ("*",) and not masks.per_file:
                notes.append(f"masks were united: what is not background is {first}")
            elif masks.format != "image":
                notes.append(f"masks were drawn from {masks.format}, on the grid of their images")
        if frames := images.frames:
            frames_text = (
                "the middle frame is"
                if frames == 1
                else f"{frames} evenly spaced frames, as the slices of a volume, are"
            )
            notes.append(f"of each clip {frames_text} what a model sees")
        if images.channels:
            names = [images.name or "image", *(channel.name for channel in images.channels)]
            notes.append(
                f"images are read as {len(names)} channels ({', '.join(names)}), the others on the grid of {names[0]}"
            )
        if images.several == "views":
            notes.append("a case is a study: its images are views, which a model reads together")
        return notes


def _note_unknown(records: Sequence[Record]) -> list[str]:
    """Return how many cases have labels that are not known."""
    counts = Counter(name for record in records for name in record.extra.get(UNKNOWN_LABELS, ()))
    listed = ", ".join(f"{name} of {count:,} cases" for name, count in counts.items())
    return [f"labels that are not known, and are neither learnt nor measured: {listed}"] if counts else []


def _labels_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    return share_names(tuple(row.get("labels") or ()))


def _first_path(image: Reference) -> str:
    first = image if isinstance(image, str) else next(iter(image.values())) if isinstance(image, dict) else image[0]
    return first.partition("#frames=")[0]


def _steps_of(refs: Sequence[str]) -> list[int]:
    """How far the last number of each name is from that of the first; empty if a name has none."""
    numbers = [re.findall(r"\d+", ref.rpartition("/")[2].partition(".")[0]) for ref in refs]
    if not all(numbers):
        return []
    return [int(groups[-1]) - int(numbers[0][-1]) for groups in numbers]


def _floats(text: str | None) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text or "")]
