"""Groups of files: one name template, one format, one kind of content.

Files are put together by the shape of their names and the depth of their folder; what varies is a slot. A group is divided by a
slot (a folder or a word) if the samples of its values differ in kind: masks beside images, another modality, another grid. No
list of words decides; words only annotate slots.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from m3b.data.phi import is_personal
from m3b.dataset.archives import ARCHIVE_REGEX, local_file
from m3b.dataset.formats import DataError, read_image
from m3b.dataset.inventory import Inventory
from m3b.dataset.survey.contents import ARRAY_ERRORS, Sample, read_sample, summarise
from m3b.dataset.survey.facts import Content, FileGroup, Slot, SlotKind, SurveyLimits, ValueCount
from m3b.dataset.survey.names import (
    CONTAINER_FORMATS,
    DOCUMENT_NAMES,
    DOCUMENT_SUFFIXES,
    IMAGE_FORMATS,
    MIXED,
    NUMBER,
    TOKENS,
    WORD,
    Piece,
    SlotNames,
    extract_tokens,
    format_of,
    shape_of,
    shape_regex,
    split_names,
    split_shape,
    to_int,
    write_pattern,
    write_regex,
)
from m3b.dataset.survey.walk import sort_naturally
from m3b.dataset.survey.words import role_hint
from m3b.isolation.untrusted import announce_opening

FREE = "\ue00f"
"""Shape of names without a common form."""
FORM = "\ue00e"
"""End of the shape of names that have only their beginning in common."""
MAX_VALUES = 60
_MAX_SHAPES = 12
"""Forms of names in one folder; of more, the names are taken as free."""
_MAX_DOCUMENT_NAMES = 4
"""Different names of documents in one place; more of them (`notice_001.txt`, ...) are data."""
_MAX_SPLIT_VALUES = 40
_MAX_COMPARED_SHAPES = 10_000
_MAX_SPLIT_NUMBERS = 4
_MAX_PROBES = 48
_MAX_PROBED_VALUES = 2**26
"""Values of all samples of a group after which only values of slots that have no sample yet are looked at."""
_COMPARED_COPIES = 4
"""Files of a folder that are compared with those of the same names in others."""
_BLOCKS, _MIN_ALIKE = 8, 0.85
"""Blocks along each side of images that are compared, and the mean correlation of their means from which on they are copies."""
_MIN_CROSSING = 0.5
"""Share of names that occur under several values of a slot, from which on its values are channels or derivatives of the same cases."""


@dataclass(eq=False)
class Group:
    """A group while it is made.

    Args:
        frame: `path`, `folder`, `stem`, `bytes`, `folder0`, ..., and a column for each slot.
        levels: pieces of each folder and of the name.
        samples: path -> sample.
    """

    frame: pl.DataFrame
    levels: list[list[Piece]]
    suffix: str
    format: str
    shape: str
    bucket: int = 0
    samples: dict[str, Sample] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    family: str = ""
    fact: FileGroup | None = None

    @property
    def pattern(self) -> str:
        """The manifest pattern."""
        return write_pattern(self.levels, sorted(self.frame["suffix"].unique().to_list()))

    @property
    def facts(self) -> FileGroup:
        """The facts, once they are made."""
        assert self.fact is not None
        return self.fact

    @property
    def id(self) -> str:
        """Id of the facts."""
        return self.facts.id

    @property
    def paths(self) -> list[str]:
        """Paths in natural order."""
        return self.frame["path"].to_list()

    def slot_pieces(self) -> list[tuple[int, str, Piece]]:
        """Level (-1 for the name), column and piece of each slot."""
        slots = []
        for level, pieces in enumerate(self.levels):
            at = level if level < len(self.levels) - 1 else -1
            for piece in pieces:
                if piece.slot:
                    column = piece.slot if piece.slot != "*" else ("stem" if at < 0 else f"folder{level}")
                    slots.append((at, column, piece))
                elif piece.choices:
                    slots.append((at, f"folder{level}", piece))
        return slots


class GroupFinder:
    """Finds the groups of an inventory; `probe` opens samples and keeps them."""

    def __init__(self, inventory: Inventory, limits: SurveyLimits, is_late: Callable[[], bool] = lambda: False) -> None:
        self.inventory = inventory
        self.limits = limits
        self.is_late = is_late
        self._samples: dict[str, Sample] = {}

    def find(self) -> list[Group]:
        """Return the groups in natural order of their patterns."""
        files = self.inventory.files
        if files.is_empty():
            return []
        frame = split_names(files["path"]).with_columns(bytes=files["bytes"], order=pl.int_range(len(files)))
        frame = _choose_shapes(frame)
        frame = _set_documents_apart(frame)
        frame = frame.with_columns(archives=pl.col("path").str.count_matches(ARCHIVE_REGEX))
        groups: list[Group] = []
        buckets = frame.partition_by(["depth", "archives", "suffix", "chosen"], as_dict=True, maintain_order=True)
        for number, ((_, _, suffix, shape), part) in enumerate(buckets.items()):
            group = make_group(part, str(shape), str(suffix))
            group.bucket = number
            group.format = self._format_of(group)
            groups += self._divide(group)
        groups = self._merge_forms(groups)
        groups = _merge_suffixes(groups)
        self._set_families(groups)
        _set_exclusions(groups)
        patterns = {id(group): group.pattern for group in groups}
        groups.sort(key=lambda group: (group.format not in IMAGE_FORMATS, patterns[id(group)]))
        order = sort_naturally([patterns[id(group)] for group in groups])
        rank = {pattern: at for at, pattern in enumerate(order)}
        groups.sort(key=lambda group: (group.format not in IMAGE_FORMATS, rank[patterns[id(group)]], group.exclude))
        groups = groups[: self.limits.groups]
        headers = pl.concat(
            [group.frame.select("folder", "stem") for group in groups if group.suffix == ".hdr"]
            or [pl.DataFrame(schema={"folder": pl.String, "stem": pl.String})]
        )
        for number, group in enumerate(groups, 1):
            is_voxels = (
                group.suffix == ".img" and group.frame.join(headers, on=["folder", "stem"], how="anti").is_empty()
            )
            self._state_facts(group, f"g{number}", is_voxels=is_voxels)
        return groups

    def probe(self, group: Group, paths: Sequence[str]) -> None:
        """Open files of a group that were not opened yet."""
        for path in paths:
            if path not in self._samples and not self.is_late():
                self._samples[path] = read_sample(
                    self.inventory.root, path, group.format, self.limits, len(group.frame)
                )
            if path in self._samples:
                group.samples[path] = self._samples[path]

    def set_annotations_apart(self, group: Group, annotation_files: frozenset[str]) -> None:
        """Describe a group of DICOM files by its images alone if some of its files are annotations by their content."""
        image_paths = [path for path in group.paths if path not in annotation_files]
        n_annotations = len(group.frame) - len(image_paths)
        if group.format != "dicom" or not n_annotations:
            return
        content = group.facts.content
        if image_paths:
            n_known = sum(path not in annotation_files for path in group.samples)
            self.probe(group, spread(image_paths, self.limits.samples)[: max(self.limits.samples - n_known, 0)])
            content = summarise(
                [sample for path, sample in sorted(group.samples.items()) if path not in annotation_files]
            )
        group.fact = group.facts.model_copy(update={"annotations": n_annotations, "content": content})

    def _format_of(self, group: Group) -> str:
        names = group.frame["name"]
        documents = names.str.to_lowercase().str.contains(DOCUMENT_NAMES).sum()
        if documents == len(names) and group.suffix in DOCUMENT_SUFFIXES:
            return "document"
        if family := format_of(group.suffix):
            return family
        paths = group.paths
        formats = Counter(sniff_format(self.inventory.root, path) for path in spread(paths, 3))
        return formats.most_common(1)[0][0]

    def _divide(self, group: Group, depth: int = 0) -> list[Group]:
        """Divide a group by the kind of its content."""
        if group.format not in IMAGE_FORMATS or depth > 3 or len(group.frame) < 2:
            return [group]
        axes = self._axes(group)
        self._probe_axes(group, axes)
        short_axes = [axis for axis in axes if group.frame[axis].n_unique() <= 6][:4]
        for columns in [*((axis,) for axis in axes), *combinations(short_axes, 2)]:
            division = self._divide_by(group, columns)
            if len(division) > 1:
                return [group for part in division for group in self._divide(part, depth + 1)]
        return [group]

    def _axes(self, group: Group) -> list[str]:
        counts = {}
        for _, column, piece in group.slot_pieces():
            distinct = group.frame[column].n_unique()
            limit = _MAX_SPLIT_NUMBERS if piece.kind == "number" else _MAX_SPLIT_VALUES
            if 2 <= distinct <= limit and piece.kind not in ("hash", "uid", "date"):
                counts[column] = distinct
        return sorted(counts, key=lambda column: counts[column])

    def _probe_axes(self, group: Group, axes: Sequence[str]) -> None:
        """Open some files of each value of the axes, the first of each value before the second."""
        turns: list[list[str]] = [[], [], []]
        for axis in axes:
            for _, part in sorted(group.frame.group_by(axis, maintain_order=True), key=lambda item: str(item[0])):
                for turn, path in enumerate(spread(part["path"].to_list(), 3)):
                    turns[turn].append(path)
        candidates = dict.fromkeys([*turns[0], *spread(group.paths, self.limits.samples), *turns[1], *turns[2]])
        voxels = 0
        for path in list(candidates)[:_MAX_PROBES]:
            if voxels > _MAX_PROBED_VALUES and path not in turns[0]:
                continue
            self.probe(group, [path])
            sample = group.samples.get(path)
            voxels += math.prod(sample.shape) * sample.channels if sample else 0

    def _divide_by(self, group: Group, columns: tuple[str, ...]) -> list[Group]:
        keys = group.frame.select("path", key=pl.concat_str(columns, separator="/"))
        if keys["key"].n_unique() > _MAX_SPLIT_VALUES:
            return [group]
        key_of = _sample_keys(group, keys)
        classes: dict[str, Counter[str]] = defaultdict(Counter)
        for path, sample in group.samples.items():
            if kind := _content_class(sample):
                classes[key_of[path]][kind] += 1
        by_key = self._pure_classes(group, keys, classes)
        if by_key is None or len(set(by_key.values())) < 2:
            by_key = self._grid_classes(group, keys, columns) if len(columns) == 1 else None
        if (by_key is None or len(set(by_key.values())) < 2) and len(columns) == 1:
            by_key = self._reduced_copies(group, columns[0])
        if by_key is None or len(set(by_key.values())) < 2:
            return [group]
        # Values without a sample that tells go with the most frequent class.
        common = Counter(by_key.values()).most_common(1)[0][0]
        classed = keys.with_columns(class_=pl.col("key").replace_strict(by_key, default=common, return_dtype=pl.String))
        parts = []
        for name in sorted(set(by_key.values())):
            frame = group.frame.join(
                classed.filter(pl.col("class_") == name).select("path"), on="path", how="semi", maintain_order="left"
            )
            if not frame.is_empty():
                part = make_group(_raw_columns(frame), group.shape, group.suffix)
                part.format, part.bucket = group.format, group.bucket
                part_paths = set(frame["path"].to_list())
                part.samples = {path: sample for path, sample in group.samples.items() if path in part_paths}
                _restrict_levels(part, group)
                parts.append(part)
        return parts

    def _pure_classes(
        self, group: Group, keys: pl.DataFrame, classes: dict[str, Counter[str]]
    ) -> dict[str, str] | None:
        """The class of each value; None if a value has files of several classes."""
        result: dict[str, str] = {}
        if len({kind for counts in classes.values() for kind in counts}) < 2:
            return None
        for key, counts in sorted(classes.items()):
            if len(counts) > 1:
                extra_paths = spread(keys.filter(pl.col("key") == key)["path"].to_list(), self.limits.samples)
                self.probe(group, extra_paths)
                kinds = [_content_class(group.samples[path]) for path in extra_paths if path in group.samples]
                counts = Counter(kind for kind in kinds if kind)
                if not counts or counts.most_common(1)[0][1] < 0.8 * counts.total():
                    return None
            result[key] = counts.most_common(1)[0][0]
        return result

    def _grid_classes(self, group: Group, keys: pl.DataFrame, columns: tuple[str, ...]) -> dict[str, str] | None:
        """Colours or grids of the values, if the same cases occur under several values and each value has one grid."""
        column = columns[0]
        key_of = _sample_keys(group, keys)
        kinds = {name: piece.kind for _, name, piece in group.slot_pieces()}
        crossing = crossing_of(group, column) or 0.0
        if group.frame[column].n_unique() > 12 or crossing < _MIN_CROSSING or kinds[column] == "number":
            return None
        grids: dict[str, set[tuple[object, ...]]] = defaultdict(set)
        sample_counts = Counter[str]()
        for path, sample in group.samples.items():
            if not sample.error and sample.structure.kind != "constant":
                structure = (
                    "labels" if sample.structure.kind in ("few_integers", "instance_ids") else sample.structure.kind
                )
                grids[key_of[path]].add((structure if sample.is_mask else sample.structure.colour, sample.dims))
                sample_counts[key_of[path]] += 1
        colours = {key: next(iter(value_grids)) for key, value_grids in grids.items() if len(value_grids) == 1}
        if (
            len(colours) == len(grids)
            and len(set(colours.values())) > 1
            and min(sample_counts.values(), default=0) >= 2
        ):
            return {key: str(value) for key, value in colours.items()}
        shapes: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for path, sample in group.samples.items():
            if not sample.error:
                shapes[key_of[path]].add(sample.shape)
        # Folders of numbered slices cross too, but seldom have equally many.
        if (
            crossing >= 0.95
            and all(len(value_grids) == 1 for value_grids in shapes.values())
            and min(sample_counts.values(), default=0) >= 3
        ):
            return {key: str(next(iter(value_grids))) for key, value_grids in shapes.items()}
        return None

    def _reduced_copies(self, group: Group, column: str) -> dict[str, str] | None:
        """Tell folders of reduced copies (previews, lower resolutions) from the others: each of their files is called like a
        larger one of another folder."""
        names = [name for _, name, _ in group.slot_pieces() if name != column]
        if not column.startswith("folder") or not names or group.frame[column].n_unique() > _MAX_SPLIT_NUMBERS:
            return None
        classes = dict.fromkeys(group.frame[column].unique().sort().to_list(), "image")
        for value in classes:
            frame_inside = group.frame.filter(pl.col(column) == value)
            frame_outside = group.frame.filter(
                ~pl.col(column).is_in([text for text in classes if classes[text] != "image"])
            )
            pairs = frame_inside.join(frame_outside.filter(pl.col(column) != value), on=names, suffix="_other")
            if pairs["path"].n_unique() < len(frame_inside):
                continue
            pairs = pairs.unique("path", maintain_order=True).gather_every(max(1, len(pairs) // _COMPARED_COPIES))
            compared = list(pairs.select("path", "path_other").head(_COMPARED_COPIES).iter_rows())
            self.probe(group, [path for pair in compared for path in pair])
            samples = [(group.samples.get(path), group.samples.get(other_path)) for path, other_path in compared]
            are_smaller = all(first and second and _is_smaller(first, second) for first, second in samples)
            likeness = [_correlate_blocks(self.inventory.root, *pair) for pair in compared] if are_smaller else [0.0]
            if sum(likeness) >= _MIN_ALIKE * len(likeness):
                classes[value] = "reduced copy"
        return classes

    def _merge_forms(self, groups: list[Group]) -> list[Group]:
        """Join groups of the same folders and content whose names differ in form behind a common beginning."""
        merged: list[Group] = []
        sets: dict[tuple[object, ...], list[Group]] = defaultdict(list)
        for group in groups:
            if group.format in IMAGE_FORMATS and group.shape != FREE and group.format not in CONTAINER_FORMATS:
                sets[len(group.levels), group.suffix, group.format, _group_class(group)].append(group)
            else:
                merged.append(group)
        for candidates in sets.values():
            merged += _join_alike(candidates)
        return merged

    def _set_families(self, groups: Sequence[Group]) -> None:
        sets: dict[tuple[object, ...], list[list[Group]]] = defaultdict(list)
        for group in groups:
            if group.format not in IMAGE_FORMATS:
                continue
            families = sets[len(group.levels), group.format, _group_class(group)]
            family = next(
                (family for family in families if any(_share_folders(group, member) for member in family)), None
            )
            if family is None:
                families.append([group])
            else:
                family.append(group)
        number = 0
        for families in sets.values():
            for family in families:
                if len(family) > 1:
                    number += 1
                    for group in family:
                        group.family = f"f{number}"

    def _state_facts(self, group: Group, id: str, *, is_voxels: bool) -> None:
        content = self._content(group)
        sizes = group.frame["bytes"]
        known_sizes = sizes.drop_nulls()
        exact = len(known_sizes) == len(sizes)
        total = int(known_sizes.sum())
        if not exact:
            total = int(total * len(sizes) / len(known_sizes)) if len(known_sizes) else 0
        group.fact = FileGroup(
            id=id,
            pattern=group.pattern,
            exclude=group.exclude,
            family=group.family,
            format=group.format,
            suffixes=tuple(sorted(group.frame["suffix"].unique().to_list())),
            count=len(group.frame),
            bytes=total,
            exact=exact,
            folders=group.frame["folder"].n_unique(),
            slots=tuple(_slot_facts(group)),
            examples=tuple(spread(group.paths, 3)),
            content=content,
            stray=is_voxels or group.format == "document" or (group.format in ("other", "pickle") and content is None),
        )

    def _content(self, group: Group) -> Content | None:
        if group.format not in IMAGE_FORMATS:
            return None
        missing = self.limits.samples - len(group.samples)
        if missing > 0:
            self.probe(group, spread(group.paths, self.limits.samples)[: max(missing, 1)])
        samples = [group.samples[path] for path in sorted(group.samples)]
        if all(sample.error in ARRAY_ERRORS for sample in samples):
            return None  # what their arrays hold is a fact of the container
        return summarise(samples)


def _share_folders(first: Group, second: Group) -> bool:
    folders, second_folders = first.frame["folder"].unique(), second.frame["folder"].unique()
    return int(folders.is_in(second_folders.implode()).sum()) >= 0.5 * min(len(folders), len(second_folders))


def _is_smaller(sample: Sample, other: Sample) -> bool:
    """Whether each side of an image is shorter than that of another one."""
    return len(sample.shape) == len(other.shape) and all(a < b for a, b in zip(sample.shape, other.shape, strict=True))


def _correlate_blocks(root: Path, path: str, other: str) -> float:
    """Return the correlation of the means of blocks of two images, of a middle slice of volumes; 0 if one cannot be read."""
    import numpy as np

    means = []
    for name in (path, other):
        try:
            array = read_image(str(local_file(root, name))).array
        except (DataError, OSError):
            return 0.0
        plane = array.mean(axis=0)
        plane = plane[..., plane.shape[-1] // 2] if plane.ndim == 3 else plane
        rows = [part.mean(axis=0) for part in np.array_split(plane, _BLOCKS)]
        means.append(np.array([part.mean() for row in rows for part in np.array_split(row, _BLOCKS)]))
    return float(np.corrcoef(means)[0, 1]) if means[0].std() * means[1].std() > 0 else 0.0


def _sample_keys(group: Group, keys: pl.DataFrame) -> dict[str, str]:
    """The value of each sample."""
    return dict(
        keys.filter(pl.col("path").is_in(pl.Series(list(group.samples), dtype=pl.String).implode())).iter_rows()
    )


def spread(paths: Sequence[str], count: int) -> list[str]:
    """Return `count` paths that lie evenly spread."""
    if len(paths) <= count:
        return list(paths)
    return [paths[int((at + 0.5) * len(paths) / count)] for at in range(count)]


def _set_documents_apart(frame: pl.DataFrame) -> pl.DataFrame:
    """Give documents such as `README.txt` shapes of their own, so that no list beside them (`train.txt`) is of their group."""
    is_document = pl.col("name").str.to_lowercase().str.contains(DOCUMENT_NAMES)
    is_document &= pl.col("suffix").is_in(DOCUMENT_SUFFIXES)
    n_names = pl.col("stem").filter(is_document).n_unique().over(["depth", "suffix", "chosen"])
    is_apart = is_document & (n_names <= _MAX_DOCUMENT_NAMES)
    return frame.with_columns(chosen=pl.when(is_apart).then("stem").otherwise("chosen"))


def _choose_shapes(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `chosen`: the shape by which a file is grouped; detailed, coarse, or FREE if the names have no form."""
    stem = pl.col("stem")
    frame = frame.with_columns(detailed=shape_of(stem), coarse=shape_of(stem, coarse=True))
    suffixes = {suffix: format_of(suffix) or suffix for suffix in frame["suffix"].unique().to_list()}
    family = pl.col("suffix").replace_strict(suffixes, return_dtype=pl.String)
    frame = frame.with_columns(family=family)
    has_many_folders = pl.col("folder").n_unique().over("depth", "family") > _MAX_SPLIT_VALUES
    frame = frame.with_columns(folder_class=pl.when(has_many_folders).then(pl.lit("*")).otherwise(pl.col("folder")))
    place = ["depth", "family"]
    forms = frame.group_by([*place, "coarse"]).agg(forms=pl.col("detailed").n_unique(), files=pl.len())
    frame = frame.join(forms, on=[*place, "coarse"], how="left", maintain_order="left")
    # More than a few forms of one run of letters and digits are ids that only look alike.
    is_regular = pl.col("forms") <= pl.max_horizontal(pl.lit(3), pl.min_horizontal(pl.lit(6), pl.col("files") * 0.05))
    frame = frame.with_columns(chosen=pl.when(is_regular).then("detailed").otherwise("coarse")).drop("forms", "files")
    frame = _join_mixed(frame, place)
    shapes = frame.group_by([*place, "folder_class", "chosen"]).len("in_class")
    shapes = shapes.with_columns(
        in_all=pl.col("in_class").sum().over([*place, "chosen"]),
        classes=pl.len().over([*place, "chosen"]),
        files=pl.col("in_class").sum().over([*place, "folder_class"]),
        shapes=pl.len().over([*place, "folder_class"]),
    )
    all_files = pl.col("in_class").sum().over(place)
    is_rare = (pl.col("in_all") < pl.max_horizontal(pl.lit(2), all_files * 0.02)) & (pl.col("files") > 1)
    shapes = shapes.with_columns(is_rare=is_rare)
    rare_files = (pl.col("in_class") * pl.col("is_rare")).sum().over([*place, "folder_class"])
    own_shapes = (pl.col("classes") < 3).mean().over([*place, "folder_class"])
    is_free = (
        ((pl.col("shapes") > _MAX_SHAPES) | ((pl.col("shapes") > 5) & (pl.col("shapes") > 0.3 * pl.col("files"))))
        & (own_shapes > 0.5)
    ) | ((rare_files > 0.3 * pl.col("files")) & (pl.col("files") > 2))
    shapes = shapes.with_columns(is_free=is_free | pl.col("is_rare"))
    frame = frame.join(
        shapes.select([*place, "folder_class", "chosen", "is_free"]),
        on=[*place, "folder_class", "chosen"],
        how="left",
        maintain_order="left",
    )
    frame = frame.with_columns(chosen=pl.when("is_free").then(pl.lit(FREE)).otherwise("chosen"))
    return frame.drop("detailed", "coarse", "folder_class", "is_free", "family")


def _join_mixed(frame: pl.DataFrame, place: list[str]) -> pl.DataFrame:
    """Give ids of letters and digits that happen to be digits or letters alone the shape of the others."""
    if not frame["chosen"].str.contains(MIXED, literal=True).any():
        return frame
    generic = pl.col("coarse").str.replace_all(f"[{NUMBER}{WORD}{MIXED}]", MIXED)
    is_coarse = (pl.col("chosen") == pl.col("coarse")).all()
    shapes = (
        frame.group_by([*place, "coarse"])
        .agg(is_coarse.alias("is_coarse"), files=pl.len())
        .with_columns(generic=generic)
    )
    if len(shapes) > _MAX_COMPARED_SHAPES:
        return frame
    renamed: list[tuple[object, ...]] = []
    for key, members in shapes.group_by([*place, "generic"], maintain_order=True):
        ordered = members.sort(["files", "coarse"], descending=[True, False])
        common = ordered["coarse"][0]
        if (
            MIXED not in common
            or not ordered["is_coarse"][0]
            or ordered["files"][0] < 0.7 * to_int(ordered["files"].sum())
        ):
            continue
        for shape in ordered["coarse"].to_list()[1:]:
            if all(wide in (MIXED, narrow) for wide, narrow in zip(common, shape, strict=True)):
                renamed.append((*key[:-1], shape, common))
    schema = pl.Schema({**{name: frame.schema[name] for name in place}, "coarse": pl.String(), "common": pl.String()})
    names = pl.DataFrame(renamed, schema=schema, orient="row")
    shaped = frame.join(names, on=[*place, "coarse"], how="left", maintain_order="left")
    return shaped.with_columns(chosen=pl.coalesce("common", "chosen")).drop("common")


def _raw_columns(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("path", "name", "folder", "depth", "stem", "suffix", "bytes", "order")


def make_group(part: pl.DataFrame, shape: str, suffix: str) -> Group:
    """Find what is fixed and what varies in the folders and names of files of one depth and shape."""
    part = part.select("path", "name", "folder", "depth", "stem", "suffix", "bytes", "order")
    depth = int(part["depth"][0])
    names = SlotNames()
    levels: list[list[Piece]] = []
    if depth:
        folders = part.select("folder").unique(maintain_order=True)
        parts = folders["folder"].str.split_exact("/", depth - 1).struct.unnest()
        parts.columns = [f"folder{level}" for level in range(depth)]
        tokens = []
        for level in range(depth):
            pieces, columns = _read_level(parts[f"folder{level}"], names)
            levels.append(pieces)
            tokens += columns
        folders = pl.concat([folders, parts, *([pl.DataFrame(tokens)] if tokens else [])], how="horizontal")
        part = part.join(folders, on="folder", how="left", maintain_order="left")
    if shape == FREE:
        levels.append([Piece(slot="*", kind="text") if len(part) > 1 else Piece(text=str(part["stem"][0]))])
    else:
        pieces, columns = _cut_pieces(shape, extract_tokens(part["stem"], shape), names)
        levels.append(pieces)
        part = part.with_columns(columns)
    return Group(part, levels, suffix, "", shape)


def _read_level(values: pl.Series, names: SlotNames) -> tuple[list[Piece], list[pl.Series]]:
    """Read one folder level: fixed, several tokens of which some are fixed, or a slot as a whole."""
    distinct = values.unique()
    if len(distinct) == 1:
        return [Piece(text=str(distinct[0]))], []
    shapes = distinct.to_frame("text").select(shape_of(pl.col("text"))).to_series().unique()
    if len(shapes) > 1:  # ids of letters and digits have one shape if they are taken as a whole
        coarse = pl.DataFrame({"coarse": distinct}).select(shape_of(pl.col("coarse"), coarse=True))
        shapes = _join_mixed(coarse.with_columns(chosen="coarse", place=pl.lit("")), ["place"])["chosen"].unique()
    if len(shapes) == 1:
        kinds = [kind for _, kind in split_shape(shapes[0]) if kind]
        tokens = extract_tokens(distinct, shapes[0])
        is_fixed = any(tokens[column].n_unique() == 1 for column in tokens.columns) or any(
            kind == "text" and _read_common_word(tokens[column])
            for kind, column in zip(kinds, tokens.columns, strict=True)
        )
        is_part = kinds[-1:] == ["word"] and tokens[tokens.columns[-1]].is_duplicated().all()
        if len(kinds) > 1 and (is_fixed or is_part or set(kinds) == {"number"}):
            return _cut_pieces(shapes[0], extract_tokens(values, shapes[0]), names)
        if len(kinds) == 1:
            return [Piece(slot="*", kind=kinds[0])], []
    return [Piece(slot="*", kind="text")], []


def _cut_pieces(shape: str, tokens: pl.DataFrame, names: SlotNames) -> tuple[list[Piece], list[pl.Series]]:
    """Return the pieces of a shape: tokens that are always the same are fixed, the others are slots with their values."""
    pieces: list[Piece] = []
    columns: list[pl.Series] = []
    remaining = iter(tokens.get_columns())
    for text, kind in split_shape(shape):
        if kind is None:
            pieces.append(Piece(text=text))
            continue
        values = next(remaining)
        if (values == values[0]).all():
            pieces.append(Piece(text=str(values[0])))
            continue
        if kind == "text" and (word := _read_common_word(values)):  # `0a1f_age75`, `be2d_age8`
            pieces.append(Piece(text=word))
            kind, values = "number", values.str.strip_prefix(word)
        slot = names.next(kind)
        pieces.append(Piece(slot=slot, kind=kind))
        columns.append(values.alias(slot))
    return _join_fixed(pieces), columns


def _read_common_word(values: pl.Series) -> str:
    """Return the letters before the digits of each value; empty if they differ or if a value is more than these."""
    match = re.fullmatch(r"([^\W\d_]{2,})\d+", str(values[0]))
    if match is None:
        return ""
    is_word = values.str.contains(rf"^{match[1]}[0-9]+$").all()
    return match[1] if is_word else ""


def _join_fixed(pieces: list[Piece]) -> list[Piece]:
    result: list[Piece] = []
    for piece in pieces:
        if result and not piece.slot and not result[-1].slot and not piece.choices and not result[-1].choices:
            result[-1] = Piece(text=result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


def _restrict_levels(part: Group, undivided: Group) -> None:
    """Name the folders of a divided group, so that its pattern does not match those of the rest."""
    for level in range(len(part.levels) - 1):
        column = f"folder{level}"
        if len(part.levels[level]) != 1 or part.levels[level][0].slot != "*":
            continue
        values, every = part.frame[column].unique(), undivided.frame[column].n_unique()
        if 1 < len(values) < every and len(values) <= _MAX_SPLIT_VALUES:
            part.levels[level] = [
                Piece(choices=tuple(sort_naturally(values.to_list())), kind=part.levels[level][0].kind)
            ]


def _content_class(sample: Sample) -> str:
    """What divides groups; "" if the sample tells nothing."""
    if sample.error in ARRAY_ERRORS:
        return f"{sample.error} of masks" if sample.is_mask else sample.error
    if sample.error:
        return f"no pixels {sample.modality}" if sample.error == "no_pixels" else ""
    if sample.structure.kind in ("constant", "unknown") and not sample.modality:
        return ""
    kind = "regions" if sample.structure.kind == "colour_regions" else "mask" if sample.is_mask else "image"
    return f"{'image' if sample.modality else kind} {sample.dims} {sample.modality}"


def _common_class(group: Group) -> str:
    kinds = Counter(kind for sample in group.samples.values() if (kind := _content_class(sample)))
    return kinds.most_common(1)[0][0] if kinds else ""


def _group_class(group: Group) -> str:
    colours = Counter(sample.structure.colour for sample in group.samples.values() if not sample.error)
    return f"{_common_class(group)} {colours.most_common(1)[0][0] if colours else ''}"


def _join_alike(candidates: list[Group]) -> list[Group]:
    result: list[Group] = []
    for group in candidates:
        for at, candidate in enumerate(result):
            if (both := _join_two(candidate, group)) is not None:
                result[at] = both
                break
        else:
            result.append(group)
    return result


def _join_two(first: Group, second: Group) -> Group | None:
    """Join two groups whose names have a common beginning with a slot, and each something behind it."""
    folders, second_folders = first.frame["folder"].unique(), second.frame["folder"].unique()
    common = folders.is_in(second_folders.implode()).sum()
    if common < 0.8 * min(len(folders), len(second_folders)):
        return None
    shape = ""
    for first_char, second_char in zip(first.shape.removesuffix(FORM), second.shape, strict=False):
        if first_char != second_char:
            break
        shape += first_char
    while shape and shape[-1] in TOKENS:  # the rest begins behind a separator, so that no token is cut
        shape = shape[:-1]
    kinds = [kind for _, kind in split_shape(shape) if kind]
    if not kinds or len(shape) >= min(len(first.shape), len(second.shape)):
        return None
    frame = pl.concat([_raw_columns(first.frame), _raw_columns(second.frame)]).sort("order")
    group = make_group(frame, FREE, first.suffix)
    names = SlotNames(column for _, column, _ in group.slot_pieces())
    pieces, columns, forms = _read_beginning(frame["stem"], shape, names)
    if pieces is None or forms is None or forms.n_unique() > MAX_VALUES or not any(piece.slot for piece in pieces):
        return None
    group.levels[-1] = [*pieces, Piece(slot="form1", kind="text")]
    group.frame = group.frame.with_columns([*columns, forms.alias("form1")])
    group.format, group.bucket, group.shape = first.format, first.bucket, shape + FORM
    group.samples = {**first.samples, **second.samples}
    return group


def _read_beginning(
    texts: pl.Series, shape: str, names: SlotNames
) -> tuple[list[Piece] | None, list[pl.Series], pl.Series | None]:
    struct = texts.str.extract_groups(shape_regex(shape)[:-1] + "(.+)$").struct.unnest()
    if struct.null_count().sum_horizontal()[0]:
        return None, [], None
    pieces, columns = _cut_pieces(shape, struct, names)
    return pieces, columns, struct.to_series(-1)


def _merge_suffixes(groups: list[Group]) -> list[Group]:
    """Join groups that differ only in the suffix, such as `.jpg` and `.png`, if they lie in the same folders and no two are
    called alike."""
    merged: list[Group] = []
    for group in groups:
        if group.format in IMAGE_FORMATS and group.format not in CONTAINER_FORMATS:
            for at, candidate in enumerate(merged):
                if _can_merge(candidate, group):
                    frame = pl.concat([_raw_columns(candidate.frame), _raw_columns(group.frame)]).sort("order")
                    union = make_group(frame, group.shape, candidate.suffix)
                    union.format, union.bucket = group.format, candidate.bucket
                    union.samples = {**candidate.samples, **group.samples}
                    merged[at] = union
                    break
            else:
                merged.append(group)
        else:
            merged.append(group)
    return merged


def _can_merge(first: Group, second: Group) -> bool:
    if (first.format, first.shape, len(first.levels)) != (second.format, second.shape, len(second.levels)):
        return False
    if first.suffix == second.suffix or first.shape.endswith(FORM) or _common_class(first) != _common_class(second):
        return False
    if not _share_folders(first, second):
        return False
    alike = first.frame.join(second.frame, on=["folder", "stem"], how="semi")
    return alike.is_empty()


def _set_exclusions(groups: Sequence[Group]) -> None:
    """Give each group the patterns of others whose files its pattern matches too."""
    sets: dict[tuple[int, str], list[Group]] = defaultdict(list)
    for group in groups:
        sets[len(group.levels), group.suffix].append(group)
    for members in sets.values():
        if not 1 < len(members) <= 60:
            continue
        regexes = [write_regex(group.levels, sorted(group.frame["suffix"].unique().to_list())) for group in members]
        for group, regex in zip(members, regexes, strict=True):
            excluded = []
            for neighbour in members:
                if neighbour is not group and neighbour.frame["path"].head(2_000).str.contains(regex).any():
                    excluded.append(neighbour.pattern)
            group.exclude = tuple(dict.fromkeys(pattern for pattern in excluded if pattern != group.pattern))


def crossing_of(group: Group, column: str) -> float | None:
    """Return the share of names, without this slot, that occur with more than one of its values."""
    if group.frame[column].n_unique() > MAX_VALUES:
        return None
    other_columns = [name for _, name, _ in group.slot_pieces() if name != column]
    if not other_columns:
        return 0.0
    counts = group.frame.group_by(other_columns).agg(pl.col(column).n_unique())
    return round(int((counts[column] > 1).sum()) / max(len(counts), 1), 3)


def _slot_facts(group: Group) -> list[Slot]:
    slots = []
    before: dict[int, str] = {}
    for level, pieces in enumerate(group.levels):
        at = level if level < len(group.levels) - 1 else -1
        fixed = ""
        for piece in pieces:
            if not piece.slot and not piece.choices:
                fixed = piece.text
                continue
            column = piece.slot if piece.slot not in ("", "*") else ("stem" if at < 0 else f"folder{level}")
            slots.append(_describe_slot(group, column, at, fixed, len(pieces) == 1, piece.kind))
            fixed = ""
        before[at] = fixed
    return slots


def _describe_slot(group: Group, column: str, level: int, before: str, is_whole: bool, kind: SlotKind) -> Slot:
    values = group.frame[column]
    counts = values.value_counts(sort=False, name="n").sort("n", column, descending=[True, False])
    distinct = len(counts)
    frequent = counts if distinct <= MAX_VALUES else counts.head(10)
    facts: dict[str, Any] = {}
    if kind == "number":
        lengths = values.str.len_bytes()
        if lengths.n_unique() == 1 and (distinct > 1 and bool(values.str.starts_with("0").any())):
            facts["width"] = int(lengths[0])
        numbers = values.str.slice(-18).cast(pl.Int64, strict=False)
        facts["low"], facts["high"] = numbers.min(), numbers.max()
        if lengths.n_unique() == 1 and lengths[0] == 8:
            dates = values.head(10_000).str.to_date("%Y%m%d", strict=False)
            if not dates.null_count() and bool(dates.dt.year().is_between(1900, 2100).all()):
                kind = "date"
    texts = [ValueCount(text=str(text), count=count) for text, count in frequent.iter_rows()]
    if distinct <= MAX_VALUES:
        rank = {text: at for at, text in enumerate(sort_naturally([value.text for value in texts]))}
        texts.sort(key=lambda value: rank[value.text])
    return Slot(
        name=column,
        kind=kind,
        level=level,
        is_whole=is_whole,
        before=before,
        distinct=distinct,
        values=tuple(texts),
        crossing=crossing_of(group, column),
        sensitive="identity" if _names_people(before, kind, counts[column].head(50).to_list()) else "",
        role_hint=role_hint([value.text for value in texts] if distinct <= MAX_VALUES else []) or role_hint([before]),
        **facts,
    )


def _names_people(before: str, kind: SlotKind, values: list[str]) -> bool:
    """Whether values are identities by the text before them, or names of persons: capitalised words and nothing else."""
    if is_personal(before, values):
        return True
    names = sum(bool(_PERSON.fullmatch(value)) for value in values)
    return kind == "text" and 2 * names > len(values)


_PERSON = re.compile(r"[A-Z][a-z]+[ _^,-]+[A-Z][a-z]+([ _^-][A-Z][a-z]*)?")
_MAGIC = (
    (b"\x89PNG", "picture"),
    (b"\xff\xd8\xff", "picture"),
    (b"II*\0", "picture"),
    (b"MM\0*", "picture"),
    (b"GIF8", "picture"),
    (b"BM", "picture"),
    (b"\x89HDF", "hdf5"),
    (b"MATLAB", "mat"),
    (b"\x93NUMPY", "array"),
    (b"PK\x03\x04", "archive"),
    (b"\x1f\x8b", "archive"),
    (b"RIFF", "video"),
    (b"NRRD", "itk"),
    (b"ObjectType", "itk"),
    (b"<?xml", "xml"),
    (b"{", "json"),
    (b"[", "json"),
)


def sniff_format(root: Path, path: str) -> str:
    """Return the family of a file's format by its first bytes; "other" if they say nothing."""
    announce_opening(str(root), path)
    try:
        handle = os.open(local_file(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return "other"
    try:
        head = os.read(handle, 512)
    except OSError:
        return "other"
    finally:
        os.close(handle)
    if head[128:132] == b"DICM" or head[:4] == b"\x08\0\x05\0":
        return "dicom"
    if head[4:8] == b"ftyp" or head[:4] == b"\0\0\1\xba":
        return "video"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head and b"\0" not in head:
        try:
            head[: len(head) - 4].decode("utf-8")
        except UnicodeDecodeError:
            return "other"
        return "text"
    return "other"
