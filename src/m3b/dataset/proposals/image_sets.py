"""Image sets: every way in which files of a folder could be the cases, with all columns that could say something of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Literal

import polars as pl

from m3b.dataset.archives import local_file
from m3b.dataset.inventory import KNOWN_SUFFIX_REGEX, Inventory
from m3b.dataset.manifest.image_frame import ImageFrame
from m3b.dataset.manifest.model import Agreement, ColumnChoice, Files, Images, Match, Table
from m3b.dataset.manifest.problems import PatternError
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.templates import match_keys, normalize
from m3b.dataset.proposals.roles import is_view, laterality_of, roles_of, split_words
from m3b.dataset.survey.dicom import NO_IMAGES
from m3b.dataset.survey.facts import Content, FileGroup, Join, Slot, Survey, TableFacts
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables import FILE_COLUMN, LIST_SEPARATOR, ROW_COLUMN
from m3b.dataset.words.lexicon import get_lexicon

MAX_SETS = 40
"""Image sets that are looked at; beyond, the smallest are not."""
MAX_FOLDERS = 8
"""Folder levels that are columns."""
MIN_JOIN_SHARE = 0.1
"""Share of rows or of files that a join must match to be tried."""
SIDECAR_MATCHES: tuple[Match, ...] = ("stem", "normalized")
MIN_SIDECAR_SHARE = 0.8
MAX_NAME_WORDS, MIN_IMAGES_PER_CODE = 4, 3
"""Words of the names of a legend, and images for each of its codes, from which on a table is a legend and no table of images."""
MIN_CHAIN_SHARE = 0.5
"""Share of a column's values that a table must know to be joined by way of that column."""
MIN_CHANCE = 0.3
"""Share of files that running numbers would match anyway, from which on a way by way of another table is tried first."""
MAX_CHANCE = 0.9
"""Share of files that running numbers would match anyway, above which a join says nothing."""
MIN_VIEWS = 1.1
"""Images a row, on average, from which on the rows are studies."""
MAX_CHANNELS = 8
CHANNEL_WORDS = frozenset(
    {"c", "ch", "chan", "channel", "channels", "band", "kanal", "canal", "modality", "sequence", "w"}
)
"""Words before a number that tells channels apart."""
COLOURS = frozenset(
    {"red", "green", "blue", "yellow", "cyan", "magenta", "rot", "grün", "blau", "rouge", "bleu", "rojo", "azul"}
)
"""Names of channels of microscopy."""
MIN_CROSSING = 0.8
"""Share of the paths without a slot that occur with several of its values, from which on the values are channels."""
MIN_COMPLETE = 0.9
"""Files with the rarest value of a slot, as a part of those with the most frequent one, from which on the values are channels."""
NAMELESS_COLUMNS = ("value", "text", "line", "0")
"""Columns that are called after their table: of vectors, texts and lists of lines."""
MAX_LISTS = 8
"""Files of one table whose names are a column, as those of lists of parts or classes are."""
MIN_DIVIDED_ROWS = 0.8
"""Share of the rows with images of several sides or levels, from which on columns of these are told apart by the images."""
MAX_GRADES, MAX_READERS = 20, 6
"""Values of the columns of readers, and readers, whose agreement is looked for."""
MIN_SETTLED, MIN_SETTLED_SHARE = 3, 0.5
"""Rows in which a consensus settles what readers see differently, and their share of the rows in which they differ."""
MIN_WHOLE_JOIN = 0.95
"""Share of rows and of files that running numbers must match to be no accident."""
MAX_PROPOSED_FRAMES = 16
"""Frames of a clip that a proposal takes at most; of shorter clips as many as the longest has."""
MAX_SAMPLES = 6
"""Images that are opened to know what a set holds."""
MAX_SITES = 20
"""Distinct values of a column at which numbers of patients may start anew."""
MIN_NUMBERED_SHARE = 0.5
"""Files of a folder that the span of their numbers needs, in the median folder, for the numbers to count slices."""
MIN_DENSITY = 0.6
"""Numbers of a site, as a part of those from its lowest to its highest, from which on they were given at the site."""
MAX_VALUES = 80
"""Distinct values of a column that is treated as a vocabulary."""

Source = Literal["folder", "slot", "table", "tag", "member"]


@dataclass(frozen=True)
class ColumnStats:
    """A column's values over the images of a set.

    Args:
        images: of the set; `filled` have a value.
        counts: value -> images, of a vocabulary; empty if there are more than `MAX_VALUES`.
        numeric: share of the filled cells that are numbers.
        characters: median length of a cell.
        conflicts: images for which several rows disagree.
    """

    images: int
    filled: int
    distinct: int
    counts: dict[str, int]
    numeric: float
    characters: float
    conflicts: int = 0

    @property
    def coverage(self) -> float:
        """Share of the images that have a value."""
        return self.filled / self.images if self.images else 0.0


@dataclass(frozen=True)
class Column:
    """A template that gives a text for the images of a set.

    Args:
        template: as in a manifest, such as `{folder0}` or `{labels.finding}`.
        source: kind of place it comes from.
        name: the words that name it: column, header field, or the fixed text before a slot.
        tables: names of the tables that must be joined for it.
        chance: of the weakest join on the way.
        crossing: of a slot: share of paths without it that occur with several of its values.
    """

    template: str
    source: Source
    name: str
    stats: ColumnStats
    tables: tuple[str, ...] = ()
    chance: float = 0.0
    crossing: float = 0.0

    @property
    def is_composite(self) -> bool:
        """Whether it is put together of a site and a number that starts anew at each."""
        return "}/{" in self.template


@dataclass
class ImageSet:
    """Images of a manifest, with every column that the folder has for them.

    Args:
        images: of a manifest.
        groups: ids of the file groups that it takes.
        content: of the largest group.
        kinds: of images that its groups hold, by format, dimensions, colour and grid.
        has_one_content: whether they are of one kind whatever their formats and grids are.
        tables: name -> table joined, with its id in `table_ids`.
    """

    images: Images
    groups: tuple[str, ...]
    content: Content
    frame: ImageFrame
    tables: dict[str, Table] = field(default_factory=dict)
    table_ids: dict[str, str] = field(default_factory=dict)
    chances: dict[str, float] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)
    kinds: int = 1
    has_one_content: bool = True

    @property
    def has_signals(self) -> bool:
        """Whether its channels are called like colours, sequences, stains or numbered channels, as no views or persons are."""
        lexicon = get_lexicon()
        return bool(self.images.channels) and all(
            {*COLOURS, *CHANNEL_WORDS} & set(split_words(text))
            or any(lexicon.concepts[name].kind == "modalities" for name in lexicon.find_concepts(text))
            for text in (self.images.name, *(channel.name for channel in self.images.channels))
        )

    @property
    def count(self) -> int:
        """Images (files or items)."""
        return len(self.frame.frame)

    @cached_property
    def case_count(self) -> int:
        """Cases: images with the same text of `case`, or of the same folder."""
        if self.images.several == "one" and self.images.unit == "file":
            return self.count
        return self.values("{folder}" if self.images.unit == "folder" else self.images.case).n_unique()

    @cached_property
    def has_numbered_parts(self) -> bool:
        """Whether the same numbers name the files of each folder, or a column of series, as slices have them."""
        return any(
            column.source == "slot" and column.stats.numeric == 1.0 and column.crossing >= MIN_CROSSING
            for column in self.columns
        )

    @cached_property
    def preview_share(self) -> float:
        """Share of the images that lie in a folder for previews."""
        folders = self.frame.frame["path"].str.extract(r"^(.*)/", 1).fill_null("").to_list()
        is_preview = {folder: any("preview" in roles_of(part) for part in folder.split("/")) for folder in set(folders)}
        return sum(is_preview[folder] for folder in folders) / max(len(folders), 1)

    @cached_property
    def date_slots(self) -> frozenset[str]:
        """Templates of the numbers in folders and names that are a date, which tell no persons and no classes apart."""
        return frozenset().union(*(_find_date(self, part) for part in self.images.patterns[0].split("/")))

    def rows_of(self, templates: Iterable[str]) -> int:
        """Rows, of those that images have, of the first table that templates name; 0 if they name none."""
        names = [match for text in templates for match in re.findall(r"\{([^{}.]+)\.[^{}]*\}", text)]
        return next((self.frame.tables[name].matched_rows for name in names if name in self.frame.tables), 0)

    @cached_property
    def paths(self) -> frozenset[str]:
        """The files that hold them."""
        return frozenset(self.frame.frame["path"].to_list())

    def values(self, template: str) -> pl.Series:
        """The text of a template for each image."""
        parsed = self.frame.template(template, "proposal")
        series = self.frame.frame.select(parsed.expression().alias("value"))["value"]
        return series.new_from_index(0, self.count) if len(series) == 1 != self.count else series

    def texts(self, template: str) -> pl.Series:
        """The texts of a template for each image, of all rows of a table that it has, with `LIST_SEPARATOR` between them."""
        name, _, column = template.strip("{}").partition(".")
        if (
            name not in self.frame.tables
            or not self.frame.tables[name].has_several
            or column in {*self.tables[name].choices, *self.tables[name].agreements}
        ):
            return self.values(template)
        pairs = self.frame.tables[name].pairs
        cells = pl.DataFrame(
            {"left": pairs["left"], "text": self.frame.tables[name].table.frame[column].gather(pairs["right"])}
        )
        lists = cells.drop_nulls().unique(maintain_order=True).group_by("left").agg("text")
        texts = lists.select("left", pl.col("text").list.sort().list.join(LIST_SEPARATOR))
        images = self.frame.frame.select(left=pl.int_range(pl.len(), dtype=pl.UInt32))
        return images.join(texts.cast({"left": pl.UInt32}), on="left", how="left", maintain_order="left")["text"]

    def tables_of(self, templates: Sequence[str]) -> dict[str, Table]:
        """The tables that templates need, with those that these are joined by, in the order of joining."""
        names = {match for text in templates for match in re.findall(r"\{([^{}.]+)\.[^{}]*\}", text)}
        columns = {match for text in templates for match in re.findall(r"\{([^{}]*)\}", text)}
        requested: set[str] = set()
        queue = [name for name in names if name in self.tables]
        while queue:
            name = queue.pop()
            if name in requested:
                continue
            requested.add(name)
            image = self.tables[name].image
            queue += [match for match in re.findall(r"\{([^{}.]+)\.[^{}]*\}", image) if match in self.tables]
        tables = {}
        for name, table in self.tables.items():
            if name in requested:
                choices = {key: item for key, item in table.choices.items() if f"{name}.{key}" in columns}
                agreements = {key: item for key, item in table.agreements.items() if f"{name}.{key}" in columns}
                tables[name] = table.model_copy(update={"choices": choices, "agreements": agreements})
        return tables


def list_image_sets(survey: Survey, inventory: Inventory, readers: FolderReaders | None = None) -> list[ImageSet]:
    """Return the image sets of a folder, each with its joined columns."""
    readers = readers or FolderReaders(inventory)
    sets = []
    known_keys: set[str] = set()
    for images, groups in islice(_candidates(survey, readers), MAX_SETS):
        key = images.model_dump_json(exclude_defaults=True)
        if key in known_keys:
            continue
        known_keys.add(key)
        frame = ImageFrame(
            readers.items(Files.model_validate(images.model_dump(include=set(Files.model_fields))), "images"),
            readers,
            [],
        )
        if not len(frame.frame) or (guesses_volumes(images) and not _numbers_slices(frame, groups)):
            continue
        largest = max(groups, key=lambda group: group.count)
        content, _ = group_content(survey, largest, images.member)
        if content is None and largest.suffixes == (".parquet",):
            content = sample_content(frame)
        if content is None:
            continue
        image_set = ImageSet(images, tuple(group.id for group in groups), content, frame)
        _join_tables(image_set, survey, groups)
        image_set.columns = list(_columns(image_set, survey, groups))
        kinds = {_image_kind(group) for group in groups}
        image_set.kinds, image_set.has_one_content = len(kinds), len({kind[1:4] for kind in kinds}) == 1
        sets.append(image_set)
    return sets


def _image_kind(group: FileGroup) -> tuple[object, ...]:
    """What images of one kind have in common: format, dimensions, colour, and the grid if it is one."""
    content = group.content
    if content is None:
        return (group.format,)
    grid = content.shapes[0].shape if len(content.shapes) == 1 else ()
    return group.format, content.dims, content.is_mask, content.colour, grid


def guesses_volumes(images: Images) -> bool:
    """Return whether folders of pictures are taken as volumes, which no header says."""
    return images.several == "slices" and images.unit == "file" and images.case == "{folder}"


def _numbers_slices(frame: ImageFrame, groups: Sequence[FileGroup]) -> bool:
    """Whether a number in the names puts the files of each folder into one order: no two have the same, and few are skipped."""
    numbers = {slot.name for group in groups for slot in group.slots if slot.level == -1 and slot.kind == "number"}
    folders = frame.frame["path"].str.extract(r"^(.*)/", 1)
    for name in numbers & set(frame.frame.columns):
        table = pl.DataFrame({"folder": folders, "number": frame.frame[name]}).drop_nulls()
        number = pl.col("number").cast(pl.Int64, strict=False)
        spans = table.group_by("folder").agg(share=pl.len() / (number.max() - number.min() + 1))["share"]
        if table.is_unique().all() and (spans.median() or 0.0) >= MIN_NUMBERED_SHARE:  # type: ignore[operator]
            return True
    return False


def _candidates(survey: Survey, readers: FolderReaders) -> Iterator[tuple[Images, tuple[FileGroup, ...]]]:
    """All ways to take images: groups, groups together, items of containers, series and folders of slices."""
    groups = [group for group in survey.groups if _is_read_whole(group) and not group.stray]
    groups.sort(key=lambda group: (-group.count, group.id))
    copies = survey.duplicates.copied_groups if survey.duplicates is not None else ()
    together = [*((group,) for group in groups), *_unions([group for group in groups if group.id not in copies])]
    for union in together:
        files = _image_files(survey, union)
        yield Images.model_validate(files), union
        for images in _as_volumes(survey, union, files):
            yield images, union
        if len(union) == 1:
            for images in _as_views(survey, union[0], files):
                yield images, union
            for images in _as_channels(survey, union[0]):
                yield images, union
    yield from _as_sequences(groups)
    yield from _as_folders_of_views(groups)
    yield from _container_candidates(survey)
    for group in survey.groups:
        if group.suffixes == (".parquet",):
            for column in readers.members(group.examples[0]):
                yield Images.model_validate({**_files((group,)), "member": f"{column}[#]"}), (group,)


def _is_read_whole(group: FileGroup) -> bool:
    """Whether each file is one image without the name of an array in it."""
    return group.content is not None and group.content.samples > group.content.failed


def _as_views(survey: Survey, group: FileGroup, files: dict[str, Any]) -> Iterator[Images]:
    """Several images of each study, if a part of their names is the key of a table with a row a study."""
    keys = {
        join.image
        for join in survey.joins
        if join.group == group.id
        and join.match == "exact"
        and join.rows_per_file == 1
        and join.files_share >= MIN_WHOLE_JOIN
        and join.files_matched >= MIN_VIEWS * join.rows_matched
        and not {"path", "stem", "name", "index"} & set(re.findall(r"\{(\w+)\}", join.image))
    }
    for key in sorted(keys):
        yield Images.model_validate({**files, "case": key, "several": "views"})


def _as_channels(survey: Survey, group: FileGroup) -> Iterator[Images]:
    """Several images of each case that a slot tells apart (sequences, modalities): as channels of one case, and each alone."""
    has_own_masks = any(
        pairing.image_group == group.id
        and pairing.images_per_partner == 1
        and pairing.images_matched >= MIN_COMPLETE * pairing.image_files
        and _is_mask(survey.group(pairing.partner_group))
        for pairing in survey.pairings
    )
    sequences = [slot for slot in group.slots if _is_of_sequences(slot)]
    for value in sequences[0].values if sequences else ():
        pattern = group.pattern
        for slot in sequences:
            if slot.values == sequences[0].values:  # the folder and the name say it, as in `T1/P01_T1.nii.gz`
                pattern = with_value(pattern, slot, value.text)
        yield Images.model_validate({"files": pattern, "exclude": group.exclude})
    for slot in group.slots:
        if (
            not 2 <= slot.distinct <= MAX_CHANNELS
            or (slot.crossing or 0.0) < MIN_CROSSING
            or len(slot.values) < slot.distinct
            or min(value.count for value in slot.values) < MIN_COMPLETE * max(value.count for value in slot.values)
            or side_of(slot.values[0].text)
            or all("laterality" in roles_of(value.text) for value in slot.values)  # two organs, and not one seen twice
            or (slot.is_whole and slot.level < 0 and slot.kind == "number")  # `000.png`: places in a row, no kinds
        ):
            continue
        remainder = [f"{{{second.name}}}" for second in group.slots if second.name != slot.name]
        key = "/".join(remainder)
        if not key:
            continue
        values = sorted(value.text for value in slot.values)
        names = _name_channels(survey, values)
        if not names and slot.kind != "number":
            names = values
        elif not names:
            if (
                group.content is not None
                and group.content.dims == 2
                and not CHANNEL_WORDS & set(split_words(slot.before))
            ):
                continue  # the numbers of a person's pictures
            names = [f"channel {value}" for value in values]
        patterns = [with_value(group.pattern, slot, value) for value in values]
        excluded = {"exclude": group.exclude}
        for pattern in patterns:
            yield Images.model_validate({"files": pattern, **excluded})
        if has_own_masks:
            continue
        if group.content is not None and group.content.dims == 2:
            yield Images.model_validate({"files": group.pattern, **excluded, "case": key, "several": "views"})
        if group.content is not None and group.content.colour:
            continue  # a channel has one value a pixel
        if all(map(is_view, values)):
            continue  # views share no grid
        channels = [
            {"files": pattern, **excluded, "name": name, "key": key, "image": key}
            for pattern, name in zip(patterns[1:], names[1:], strict=True)
        ]
        yield Images.model_validate({"files": patterns[0], **excluded, "name": names[0], "channels": channels})


def _as_sequences(groups: Sequence[FileGroup]) -> Iterator[tuple[Images, tuple[FileGroup, ...]]]:
    """Images of one grid that lie in a folder for each case under names of their own, such as `FLAIR.nii.gz` and `T1.nii.gz`."""
    by_folder: dict[tuple[object, ...], list[FileGroup]] = {}
    for group in groups:
        content = group.content
        if content is not None and (folder := find_case_folder(group)):
            grids = frozenset(item.shape for item in content.shapes)
            by_folder.setdefault((folder, group.count, content.dims, grids), []).append(group)
    for members in by_folder.values():
        if 2 <= len(members) <= MAX_CHANNELS:
            first, *other_members = members
            channels = [
                {**_files((group,)), "name": _stem(group), "key": "{folder}", "image": "{folder}"}
                for group in other_members
            ]
            yield (
                Images.model_validate({**_files((first,)), "name": _stem(first), "channels": channels}),
                tuple(members),
            )


def _is_of_sequences(slot: Slot) -> bool:
    """Whether each value of a slot is another kind of imaging by the term list, such as `1` and `2` of `T1` and `T2`."""
    lexicon = get_lexicon()
    texts = [f"{slot.before}{value.text}" for value in slot.values]
    kinds = {
        frozenset(name for name in lexicon.find_concepts(text) if lexicon.concepts[name].kind == "modalities")
        for text in texts
    }
    return 2 <= slot.distinct == len(texts) == len(kinds) <= MAX_CHANNELS and all(kinds)


def find_case_folder(group: FileGroup) -> str:
    """Return the folder of each case if each holds one image of a group under the same name, such as `FLAIR.nii.gz`; else ""."""
    folder, _, name = group.pattern.rpartition("/")
    is_own_name = group.count == group.folders and "{" not in name
    return folder if is_own_name and group.content is not None and not group.content.is_mask else ""


def _as_folders_of_views(groups: Sequence[FileGroup]) -> Iterator[tuple[Images, tuple[FileGroup, ...]]]:
    """Pictures that lie in a folder for each study under names of their own, such as `pa.png` and `lateral.png`."""
    by_folder: dict[str, list[FileGroup]] = {}
    for group in groups:
        folder, _, name = group.pattern.rpartition("/")
        content = group.content
        if content is not None and content.dims == 2 and not content.is_mask and "{" in folder and "{" not in name:
            by_folder.setdefault(folder, []).append(group)
    for members in by_folder.values():
        if len(members) > 1 and all(group.count == group.folders for group in members):
            yield Images.model_validate({**_files(members), "case": "{folder}", "several": "views"}), tuple(members)


def _stem(group: FileGroup) -> str:
    return re.sub(KNOWN_SUFFIX_REGEX, "", group.pattern.rpartition("/")[2])


def _is_mask(group: FileGroup) -> bool:
    return group.content is not None and group.content.is_mask


def _name_channels(survey: Survey, values: Sequence[str]) -> list[str]:
    """Return the names that a legend of channels gives to values; empty if none does."""
    for legend in survey.legends:
        names = {str(int(code)) if code.isdigit() else code.casefold(): name for code, name in legend.names}
        if "channel" in legend.hint.casefold() or "modalit" in legend.hint.casefold():
            result = [names.get(str(int(value)) if value.isdigit() else value.casefold(), "") for value in values]
            if all(result):
                return result
    return []


def with_value(pattern: str, slot: Slot, value: str) -> str:
    """Return a pattern that matches only the files with one value of a slot."""
    if slot.level >= 0 and slot.is_whole:
        parts = pattern.split("/")
        parts[slot.level] = value
        return "/".join(parts)
    return re.sub(rf"\{{{slot.name}(?::\w+)?\}}", value.replace("\\", ""), pattern)


def _container_candidates(survey: Survey) -> Iterator[tuple[Images, tuple[FileGroup, ...]]]:
    """Arrays and their items in the files of each group, and of groups of one form together; masks of others are no images."""
    copies = survey.duplicates.copied_groups if survey.duplicates is not None else ()
    alike: dict[tuple[str, str, bool], list[FileGroup]] = {}
    lengths = {
        (container.group if member.length is None else "", member.length)
        for container in survey.containers
        for member in container.members
        if member.kind == "images"
    }
    for container in survey.containers:
        group = survey.group(container.group)
        pixels = [member for member in container.members if member.kind in ("images", "masks")]
        if len(pixels) == len(container.members) == 1 and _is_read_whole(group):
            continue  # the only array of a file; beside a value, such as a label, it is named
        for member in pixels:
            if member.kind == "masks" and (group.id if member.length is None else "", member.length) in lengths:
                continue
            if member.kind == "images" and group.id not in copies:
                alike.setdefault((group.format, member.key, member.length is not None), []).append(group)
            yield Images.model_validate({**_files((group,)), "member": _member(member.key, member.length)}), (group,)
    yield from _parted_members(survey)
    for (_, key, has_items), groups in alike.items():
        if len(groups) > 1:
            member_name = _member(key, 2 if has_items else None)
            yield Images.model_validate({**_files(groups), "member": member_name}), tuple(groups)


def _parted_members(survey: Survey) -> Iterator[tuple[Images, tuple[FileGroup, ...]]]:
    """Arrays of one file that differ only by a word for a part: `train_images` and `test_images` as `{part}_images[#]`."""
    for container in survey.containers:
        forms: dict[tuple[str, bool], int] = Counter(
            (form, member.length is not None)
            for member in container.members
            if member.kind in ("images", "masks") and (form := part_form(member.key))
        )
        for (form, has_items), count in forms.items():
            if count > 1:
                group = survey.group(container.group)
                yield Images.model_validate({**_files((group,)), "member": form + "[#]" * has_items}), (group,)


def part_form(key: str) -> str:
    """Return an array's name with `{part}` for its word of a part; empty if it has none, or several."""
    words = re.split(r"([_\-./ ]|(?<=[a-z])(?=[A-Z]))", key)
    places = [place for place, word in enumerate(words) if word and side_of(word)]
    if len(places) != 1:
        return ""
    return "".join("{part}" if place == places[0] else word for place, word in enumerate(words))


def _member(key: str, length: int | None) -> str:
    return f"{key}[#]" if length is not None and length > 1 else key


def _unions(groups: Sequence[FileGroup]) -> Iterator[tuple[FileGroup, ...]]:
    """Groups of images of the same dimensions together: all, those of one top folder, those of one folder shape."""
    images = [group for group in groups if group.content is not None and not group.content.is_mask]
    families: dict[tuple[object, ...], list[FileGroup]] = {}
    for group in images:
        assert group.content is not None
        depth = group.pattern.count("/")
        top = group.pattern.split("/")[0] if depth else ""
        for key in (
            (group.content.dims, "family", group.family),
            (group.content.dims,),
            (group.content.dims, "top", top),
            (group.content.dims, "depth", depth),
            (group.content.dims, "suffix", group.suffixes),
        ):
            families.setdefault(key, []).append(group)
    known_keys = set()
    for members in families.values():
        ids = tuple(sorted(group.id for group in members))
        formats = {group.format for group in members}
        if any(group.annotations for group in members) and len(formats) > 1:
            continue  # the images among DICOM files are told by a field of the header, which other files lack
        if len(ids) > 1 and ids not in known_keys:
            known_keys.add(ids)
            yield tuple(members)


def _files(groups: Sequence[FileGroup]) -> dict[str, tuple[str, ...]]:
    """Return `files` and `exclude` of a manifest for groups."""
    patterns = tuple(dict.fromkeys(group.pattern for group in groups))
    excluded = dict.fromkeys(pattern for group in groups for pattern in group.exclude)
    return {"files": patterns, "exclude": tuple(pattern for pattern in excluded if pattern not in patterns)}


def _image_files(survey: Survey, groups: Sequence[FileGroup]) -> dict[str, Any]:
    """Return `files`, `exclude` and `where` of a manifest: DICOM objects that annotate the images among them are left out."""
    modalities = find_image_modalities(survey, groups)
    files: dict[str, Any] = _files(groups)
    return files | {"where": {"{tag.Modality}": modalities}} if modalities else files


def find_image_modalities(survey: Survey, groups: Sequence[FileGroup]) -> tuple[str, ...]:
    """Return the modalities of the images of DICOM groups that hold annotation files under names of the same form as the images.

    Empty if no group does, and if nothing but annotations is known of them.
    """
    ids = {group.id for group in groups}
    facts = [facts for facts in survey.dicom if facts.group in ids and facts.modality not in NO_IMAGES]
    is_mixed = any(
        0 < group.annotations < group.count and any(item.group == group.id for item in facts) for group in groups
    )
    return tuple(sorted({item.modality for item in facts if item.modality})) if is_mixed else ()


def _as_volumes(survey: Survey, groups: Sequence[FileGroup], files: dict[str, Any]) -> Iterator[Images]:
    """Ways in which flat files are slices of volumes: DICOM series, folders of numbered pictures, and clips."""
    ids = {group.id for group in groups}
    series = [facts for facts in survey.dicom if facts.group in ids]
    if "where" in files:
        series = [facts for facts in series if facts.modality not in NO_IMAGES]
    if series and not all(facts.single for facts in series):
        if all(facts.folders_are_series for facts in series):
            yield Images.model_validate({**files, "case": "{folder}", "unit": "folder", "several": "slices"})
        else:
            yield Images.model_validate({**files, "case": "{tag.SeriesInstanceUID}", "several": "slices"})
        return
    if any(group.format == "video" for group in groups):
        yield Images.model_validate({**files, "frames": 1})
        counts = [(group.content.frames or (1, 1))[1] for group in groups if group.content is not None]
        longest = max(counts, default=MAX_PROPOSED_FRAMES)
        if longest > 1:
            yield Images.model_validate({**files, "frames": min(longest, MAX_PROPOSED_FRAMES)})
        return
    if any(group.content is not None and group.content.dims == 3 for group in groups):
        return
    numbered = any(  # and the numbers start anew in each folder
        slot.level == -1 and slot.kind == "number" and slot.distinct <= group.count / 2
        for group in groups
        for slot in group.slots
    )
    folders = sum(group.folders for group in groups)
    if numbered and folders > 1 and sum(group.count for group in groups) >= 3 * folders:
        yield Images.model_validate({**files, "case": "{folder}", "several": "slices"})


def sample_content(frame: ImageFrame) -> Content | None:
    """What some of the images of a set hold, for those that the survey does not open."""
    from m3b.dataset.archives import local_reference
    from m3b.dataset.formats import read_image
    from m3b.dataset.survey.contents import sample_array, summarise
    from m3b.errors import DataError

    refs = frame.frame["ref"].to_list()
    samples = []
    for ref in refs[:: max(1, len(refs) // MAX_SAMPLES)][:MAX_SAMPLES]:
        try:
            array = read_image(local_reference(frame.readers.root, ref)).array
        except (DataError, OSError):
            continue
        samples.append(sample_array(array[0] if len(array) == 1 else array))
    return summarise(samples) if samples else None


def group_content(survey: Survey, group: FileGroup, member: str = "") -> tuple[Content | None, str]:
    """Return what a group's files hold, and the array or item of each that it is: of containers with one image a file, that one.

    Args:
        member: of the manifest; empty for the only one.
    """
    if group.content is not None and not member:
        return group.content, ""
    members = [item for container in survey.containers if container.group == group.id for item in container.members]
    if "{part}" in member:
        member = next((item.key for item in members if part_form(item.key) == member.removesuffix("[#]")), member)
    if member:
        return next((item.content for item in members if item.key == member.removesuffix("[#]")), None), member
    images = [item for item in members if item.kind in ("images", "masks") and item.content is not None]
    return (images[0].content, images[0].key) if len(images) == 1 and images[0].length is None else (None, "")


_NAME_NUMBER = re.compile(r"\{(number\d+):number\}|\d+")


def _find_date(image_set: ImageSet, name: str) -> frozenset[str]:
    """Return the slots of a name that are a date: year, month and day with the same separator, in this order or its reverse."""
    numbers = list(_NAME_NUMBER.finditer(name))
    for at in range(len(numbers) - 2):
        three = numbers[at : at + 3]
        separators = [name[first.end() : second.start()] for first, second in pairwise(three)]
        if separators[0] != separators[1] or separators[0] not in ("-", "_", ".", ""):
            continue
        ranges = [_range_of(image_set, match) for match in three]
        is_date = any(
            all(low <= values[0] and values[1] <= high for values, (low, high) in zip(order, _DATE_RANGES, strict=True))
            for order in (ranges, ranges[::-1])
        )
        if is_date:
            return frozenset(f"{{{match[1]}}}" for match in three if match[1])
    return frozenset()


_DATE_RANGES = ((1950, 2099), (1, 12), (1, 31))
"""Of year, month and day."""


def _range_of(image_set: ImageSet, match: re.Match[str]) -> tuple[int, int]:
    """Return the lowest and the highest number at a place of names."""
    if not match[1]:
        return int(match[0]), int(match[0])
    numbers = image_set.values(f"{{{match[1]}}}").cast(pl.Int64, strict=False).drop_nulls()
    return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)  # type: ignore[arg-type]


# --- tables --------------------------------------------------------------------------------------------------------------


def table_name(path: str, used: Iterable[str]) -> str:
    """Return a short name for a table in a manifest: the letters of its file name."""
    stem = re.sub(r"\.[A-Za-z0-9.]+$", "", path.rsplit("/", 1)[-1])
    words = re.findall(r"[A-Za-z]+", re.sub(r"\{[^{}]*\}", " ", stem))
    name = "_".join(words).lower()[:24].strip("_") or "table"
    names = {*used, "tag", "member"}
    number = 2
    candidate = name
    while candidate in names:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


MAX_COUNTED = 20_000
"""Images of which the texts of columns are counted once for all tables."""


def _join_tables(image_set: ImageSet, survey: Survey, groups: Sequence[FileGroup]) -> None:
    """Join every table that names the images, and those that name what joined tables hold (patients, studies)."""
    legends = {table.id for table in survey.tables if _is_legend(table, image_set.count)}
    update = {
        "tables": tuple(table for table in survey.tables if table.id not in legends),
        "joins": tuple(join for join in survey.joins if join.table not in legends),
    }
    survey = survey.model_copy(update=update)
    best = _best_joins(image_set, survey, groups)
    by_chance = {
        id: join for id, join in best.items() if join.chance > MIN_CHANCE and join.files_share < MIN_WHOLE_JOIN
    }
    for table_id, join in best.items():
        if table_id not in by_chance:
            _add_table(image_set, survey.table(table_id), join.key, join.image, join.match, join.chance)
    counts: dict[str, Counter[str]] = {}
    for _ in range(2):  # patients of studies of images
        for facts in survey.tables:
            if facts.id not in image_set.table_ids.values():
                _chain(image_set, facts, by_chance[facts.id].files_share if facts.id in by_chance else 0.0, counts)
    for table_id, join in by_chance.items():
        if table_id not in image_set.table_ids.values():
            _add_table(image_set, survey.table(table_id), join.key, join.image, join.match, join.chance)


def _best_joins(image_set: ImageSet, survey: Survey, groups: Sequence[FileGroup]) -> dict[str, Join]:
    """Return the best join of each table that names the images, the best first."""
    owners = {group.id for group in groups}
    if image_set.images.member:
        owners = {f"{group.id}#{image_set.images.member.removesuffix('[#]')}" for group in groups} | owners
    has_items = image_set.images.member.endswith("[#]")
    best: dict[str, Join] = {}
    own_rows = {
        (join.table, join.group): join.files_share
        for join in survey.joins
        if join.rows_per_file == join.files_per_row == 1 and join.chance < MIN_CHANCE
    }
    joins = [join for join in survey.joins if join.group in owners]
    usable = [join for join in joins if max(join.files_share, join.rows_share) >= MIN_JOIN_SHARE]
    for join in _unite_joins(joins, usable, groups) if len(groups) > 1 else usable:
        is_of_many = join.rows_per_file > 1 and join.files_per_row > 1
        if is_of_many and own_rows.get((join.table, join.group), 0.0) >= MIN_WHOLE_JOIN:
            continue  # each image has a row of its own by further columns
        if join.chance > MAX_CHANCE and join.key == "{(row)}" and "{index}" not in join.image:
            continue
        if has_items and join.rows_per_file > 1 and "{index}" not in join.image:  # the rows of all items of a file
            continue
        if join.chance > MAX_CHANCE and _names_other_images(join, survey.table(join.table)):
            continue
        rank = _join_rank(join, survey.table(join.table))
        if join.table not in best or rank > _join_rank(best[join.table], survey.table(join.table)):
            best[join.table] = join
    for facts in survey.tables:
        sidecars = _sidecar_join(image_set, facts) if facts.file_count > 1 and not has_items else None
        if sidecars is not None and (facts.id not in best or _join_rank(sidecars)[0] >= _join_rank(best[facts.id])[0]):
            best[facts.id] = sidecars
    return dict(sorted(best.items(), key=lambda pair: _join_rank(pair[1]), reverse=True))


def _is_legend(facts: TableFacts, count: int) -> bool:
    """Whether a small table gives each of a few numbers a short name of its own, as labels of images do not.

    Args:
        count: images that the table could be about.
    """
    columns = [column for column in facts.columns if column.name != FILE_COLUMN]
    texts = [[value.text for value in column.values] for column in columns]
    if len(columns) != 2 or facts.file_count > 1 or not 1 < facts.rows * MIN_IMAGES_PER_CODE <= count:
        return False
    codes, names = texts
    return (
        len(codes) == len(names) == facts.rows
        and all(code.isdecimal() for code in codes)
        and all(len(name.split()) <= MAX_NAME_WORDS and not re.fullmatch(NUMBER, name) for name in names)
        and not any("." in name for name in names)
    )


def _unite_joins(joins: Sequence[Join], usable: Sequence[Join], groups: Sequence[FileGroup]) -> Iterator[Join]:
    """Yield joins of single groups with what the same key names in all groups together."""
    counts = {group.id: group.count for group in groups} | {join.group: join.files for join in joins}
    items = {group.split("#")[0] for group in counts if "#" in group}
    total = sum(count for group, count in counts.items() if group not in items)
    alike: dict[tuple[str, ...], list[Join]] = {}
    for join in joins:
        alike.setdefault((join.table, join.key, join.image, join.match), []).append(join)
    for join in usable:
        same_joins = alike[join.table, join.key, join.image, join.match]
        named = {
            "files": total,
            "files_matched": sum(item.files_matched for item in same_joins),
            "rows_matched": min(join.rows, sum(item.rows_matched for item in same_joins)),
            "rows_per_file": max(item.rows_per_file for item in same_joins),
            "files_per_row": max(item.files_per_row for item in same_joins),
        }
        yield join.model_copy(update=named)


def _names_other_images(join: Join, facts: TableFacts) -> bool:
    """Whether running numbers match some of the rows, and each row has a name of an image in another column."""
    return join.rows_share < MIN_WHOLE_JOIN and any(
        column.kind in ("id", "path", "text")
        and column.distinct == facts.rows
        and f"{{{column.name}}}" not in join.key
        and roles_of(column.name) & {"identifier", "image"}
        for column in facts.columns
    )


def _sidecar_join(image_set: ImageSet, facts: TableFacts) -> Join | None:
    """The join of small files beside the images by their whole names; None if they are called otherwise."""
    table = Table.model_validate(
        {
            "files": facts.files,
            "form": facts.form,
            "sheet": facts.sheet,
            "records": facts.records,
            "header": facts.header,
            "key": "{(file)}",
            "image": "{path}",
        }
    )
    try:
        rows = image_set.frame.readers.table(table, "tables").frame
    except PatternError:
        return None
    for match in SIDECAR_MATCHES:
        keys = rows.select(normalize(pl.col(FILE_COLUMN), match).alias("key"))["key"]
        own_columns = image_set.frame.keys("{path}", match, "proposal")
        pairs = match_keys(own_columns, keys, match)
        files = rows[FILE_COLUMN].n_unique()
        entries = rows[FILE_COLUMN].gather(pairs["right"]).n_unique() if len(pairs) else 0
        matched = pairs["left"].n_unique() if len(pairs) else 0
        if (
            entries >= MIN_SIDECAR_SHARE * files
            and matched >= MIN_SIDECAR_SHARE * min(files, image_set.count)
            and matched <= entries
        ):
            return Join(
                table=facts.id,
                group="",
                key="{(file)}",
                image="{path}",
                match=match,
                rows=facts.rows,
                rows_matched=pairs["right"].n_unique(),
                files=image_set.count,
                files_matched=matched,
                rows_per_file=1,
                files_per_row=1,
            )
    return None


def _join_rank(join: Join, facts: TableFacts | None = None) -> tuple[float, ...]:
    """How good a join is: shares of files and rows, a key that is called like a file or image, strictness, and the first columns.

    A column of patients names the images, too, if each has a row of its own, alone or with a second column.
    """
    strictness = ("exact", "path_tail", "basename", "stem", "normalized", "number")
    names = [column.name for column in facts.columns] if facts is not None else []
    keys = re.findall(r"\{([^{}]+)\}", join.key)
    roles = frozenset[str]().union(*map(roles_of, keys))
    has_patients = "patient" in roles and join.rows_per_file == 1 and join.chance < MIN_CHANCE
    name_weight = 1.0 if roles & {"identifier", "image"} else 0.5 * has_patients
    place = min((names.index(key) for key in keys if key in names), default=0)
    is_whole = min(join.files_share, join.rows_share) >= MIN_WHOLE_JOIN
    shares = (round(join.files_share * (1 if is_whole else 1 - join.chance), 2), round(join.rows_share, 2))
    return (*shares, name_weight, float(join.rows_per_file == 1), -place, -strictness.index(join.match))


def _add_table(image_set: ImageSet, facts: TableFacts, key: str, image: str, match: object, chance: float) -> None:
    name = table_name(facts.files, image_set.tables)
    table = Table.model_validate(
        {
            "files": facts.files,
            "form": facts.form,
            "sheet": facts.sheet,
            "records": facts.records,
            "header": facts.header,
            "key": key,
            "image": image,
            "match": match,
        }
    )
    stacked = image_set.frame.readers.table(table, f"tables.{name}")
    columns = [column for column in stacked.columns if column != ROW_COLUMN]
    if "*" in facts.files and 2 <= facts.file_count <= MAX_LISTS:
        columns.append(FILE_COLUMN)
    image_set.frame.join(name, table, columns)
    if choices := _list_choices(image_set, name, columns):
        for column, choice in choices.items():
            image_set.frame.add_choice(name, column, choice)
        table = table.model_copy(update={"choices": choices})
    if agreements := _list_agreements(image_set, name, columns):
        for column, agreement in agreements.items():
            image_set.frame.add_agreement(name, column, agreement)
        table = table.model_copy(update={"agreements": agreements})
    image_set.tables[name], image_set.table_ids[name] = table, facts.id
    names_images = any("image" in roles_of(column) for column in re.findall(r"\{([^{}]+)\}", key))
    folders = {pattern.rpartition("/")[0] for pattern in image_set.images.patterns}
    is_beside = key == image and folders == {facts.files.rpartition("/")[0]} and "{" in facts.files.rpartition("/")[0]
    image_set.chances[name] = 0.0 if names_images or is_beside else chance


def _list_choices(image_set: ImageSet, name: str, columns: Sequence[str]) -> dict[str, ColumnChoice]:
    """Return the columns of a table that hold the same of each of several images of a row, by a part of the names of the images:
    `grade left` and `grade right` of `P01_L.png` and `P01_R.png`."""
    pairs = image_set.frame.tables[name].pairs
    choices: dict[str, ColumnChoice] = {}
    for template in _name_parts(image_set.images.patterns):
        texts = image_set.values(template)
        values = texts.unique(maintain_order=True).drop_nulls().to_list()
        if texts.null_count() or not 2 <= len(values) <= MAX_CHANNELS:
            continue
        rows = pl.DataFrame({"row": pairs["right"], "value": texts.gather(pairs["left"])}).unique()
        if mean_of(rows.group_by("row").len()["len"] > 1) < MIN_DIVIDED_ROWS:
            continue  # each row is that of one of the images
        families: dict[str, dict[str, str]] = {}
        for column in columns:
            for value in values if not set("{}") & set(column) else ():
                for title in _list_titles(column, value):
                    families.setdefault(title, {}).setdefault(value, column)
        for title, columns_of_value in families.items():
            if "reader" in roles_of(title) or all(value.isdecimal() for value in values):
                continue  # opinions of the first and second reader, and not labels of the first and second image
            if len(set(columns_of_value.values())) == len(values) and (title or name) not in (*columns, *choices):
                choices[title or name] = ColumnChoice(image=template, columns=columns_of_value)
    return choices


def _list_agreements(image_set: ImageSet, name: str, columns: Sequence[str]) -> dict[str, Agreement]:
    """Return the columns that are filled only where columns of readers with the same few values differ: their consensus."""
    frame = image_set.frame.tables[name].table.frame
    values = {
        column: set(frame[column].drop_nulls().unique().to_list())
        for column in columns
        if column in frame.columns and 0 < frame[column].n_unique() <= MAX_GRADES
    }
    agreements = {}
    for settled, grades in values.items():
        n_filled = len(frame) - frame[settled].null_count()
        readers = [
            column
            for column in values
            if column != settled
            and frame[column].null_count() <= (1 - MIN_WHOLE_JOIN) * len(frame)
            and grades <= values[column]
            and "laterality" not in roles_of(column)
        ]
        if (
            not 2 <= len(readers) <= MAX_READERS
            or n_filled < MIN_SETTLED
            or n_filled > len(frame) / 2
            or len(grades) < 2
        ):
            continue
        if len(set.intersection(*(values[reader] for reader in readers))) < len(
            set.union(*(values[reader] for reader in readers))
        ):
            continue  # they do not grade on one scale
        first, *other_readers = (pl.col(reader) for reader in readers)
        differs = ~pl.all_horizontal(first == reading for reading in other_readers)
        settled_rows = frame.select(differs.alias("differs"), pl.col(settled).is_not_null().alias("is_settled"))
        is_settled = settled_rows["is_settled"]
        n_differing = int(settled_rows["differs"].sum())
        if (
            settled_rows.filter("is_settled")["differs"].all()
            and int(is_settled.sum()) >= MIN_SETTLED_SHARE * n_differing
        ):
            agreements[f"agreement or {settled}"] = Agreement(readers=tuple(readers), consensus=settled)
    return agreements


def _name_parts(patterns: Sequence[str]) -> list[str]:
    """Return the parts of folders and names that have slots, as templates; several patterns must share them."""
    parts = [
        [
            re.sub(r"\{(\w+):\w+\}", r"{\1}", part)
            for part in re.split(r"[/_ .-]+", re.sub(KNOWN_SUFFIX_REGEX, "", pattern))
            if re.search(r"\{\w+(?::\w+)?\}", part)
        ]
        for pattern in patterns
    ]
    return [part for part in dict.fromkeys(parts[0]) if all(part in other_parts for other_parts in parts)]


def _list_titles(column: str, value: str) -> Iterator[str]:
    """Yield the words of a column's name without those that say a value, a side in any language."""
    words = list(re.finditer(r"[^\W_]+", column))
    key = "".join(re.findall(r"[^\W_]+", value.casefold()))
    side = laterality_of(value)
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            text = "".join(word[0] for word in words[start:stop])
            if text.casefold() == key or (side and side == laterality_of(text)):
                remaining_name = f"{column[: words[start].start()]} {column[words[stop - 1].end() :]}"
                yield " ".join(re.sub(r"\(\s*\)|\[\s*\]", " ", remaining_name).split()).strip(" _-.:/")


def _chain(image_set: ImageSet, facts: TableFacts, min_files: float, counts: dict[str, Counter[str]]) -> None:
    """Join a table whose rows are named by a column of a joined table or by a slot: a table of patients.

    Args:
        min_files: share of the images that it must name at least.
        counts: column of the images -> how often each text occurs; kept for the next table.
    """
    best: tuple[float, str, str] | None = None
    for column in facts.columns:
        if column.distinct < 2 or column.distinct < 0.9 * facts.rows:
            continue
        vocabulary = {value.text for value in column.values} or None
        values = (
            _row_values(image_set, facts, column.name)
            if vocabulary is None or len(vocabulary) < column.distinct
            else vocabulary
        )
        folded = {text.casefold() for text in values}
        for name in image_set.frame.frame.columns:
            if name in ("ref", "path", "folder", "name", "stem") or name.endswith("(conflict)"):
                continue
            named, share = _measure_vocabulary(image_set.frame.frame[name], folded, counts)
            if named < min_files:
                continue
            if share >= MIN_CHAIN_SHARE and (best is None or share > best[0]):
                best = share, column.name, name
    if best is not None:
        chance = image_set.chances.get(best[2].partition(".")[0], 0.0)
        _add_table(image_set, facts, f"{{{best[1]}}}", f"{{{best[2]}}}", "exact", chance)
        counts.clear()


def _measure_vocabulary(
    series: pl.Series, folded: Collection[str], counts: dict[str, Counter[str]]
) -> tuple[float, float]:
    """Return the share of images, and of different texts of a column of images, that a vocabulary has; 0 of fewer than two texts.

    Args:
        counts: column -> how often each of its texts occurs, kept for the next vocabulary if there are few images.
    """
    if len(series) > MAX_COUNTED:
        texts = series.str.to_lowercase()
        own_texts = texts.drop_nulls().unique()
        if len(own_texts) < 2:
            return 0.0, 0.0
        return mean_of(texts.is_in(list(folded)).fill_null(False)), mean_of(own_texts.is_in(list(folded)))
    if series.name not in counts:
        counts[series.name] = Counter(dict(series.str.to_lowercase().drop_nulls().value_counts().iter_rows()))
    own_counts = counts[series.name]
    if len(own_counts) < 2:
        return 0.0, 0.0
    common = own_counts.keys() & folded
    return sum(own_counts[text] for text in common) / len(series), len(common) / len(own_counts)


def _row_values(image_set: ImageSet, facts: TableFacts, column: str) -> set[str]:
    table = Table.model_validate(
        {
            "files": facts.files,
            "form": facts.form,
            "sheet": facts.sheet,
            "records": facts.records,
            "header": facts.header,
            "key": f"{{{column}}}",
            "image": "{stem}",
        }
    )
    stacked = image_set.frame.readers.table(table, "tables")
    return set(stacked.frame[column].drop_nulls().unique().to_list()) if column in stacked.frame.columns else set()


# --- columns -------------------------------------------------------------------------------------------------------------


def _name_column(table: str, column: str, image_words: set[str]) -> str:
    """The name of a column of a table; one that has none is called after its table, unless that is called like the images."""
    if column not in NAMELESS_COLUMNS and not column.isdecimal():
        return column
    return table if set(re.split(r"[\W_]+", table.casefold())) - image_words else ""


def _columns(image_set: ImageSet, survey: Survey, groups: Sequence[FileGroup]) -> Iterator[Column]:
    slots = {slot.name: slot for group in groups for slot in group.slots}
    depth = max(path.count("/") for path in image_set.paths)
    entries: list[tuple[str, Source, str, tuple[str, ...], float, float]] = []
    covered: set[int] = set()
    for name, slot in slots.items():
        if name in image_set.frame.frame.columns:
            entries.append(
                (
                    f"{{{name}}}",
                    "folder" if slot.level >= 0 else "slot",
                    slot.before.strip("_-. "),
                    (),
                    0.0,
                    slot.crossing or 0.0,
                )
            )
            if slot.level >= 0 and slot.is_whole:
                covered.add(slot.level)
    entries += [
        (f"{{folder{level}}}", "folder", "", (), 0.0, 0.0)
        for level in range(min(depth, MAX_FOLDERS))
        if len(groups) > 1 or not covered or (f"folder{level}" in slots and level not in covered)
    ]
    if "{part}" in image_set.images.member:
        entries.append(("{part}", "slot", "part", (), 0.0, 0.0))
    names = [name for pattern in image_set.images.patterns for name in pattern.split("/") if "{" in name]
    image_words = {word for name in names for word in re.split(r"[\W_]+", re.sub(r"\{[^{}]*\}", " ", name).casefold())}
    for name in image_set.table_ids:
        columns = image_set.frame.tables[name].table.columns if name in image_set.frame.tables else []
        if f"{name}.{FILE_COLUMN}" in image_set.frame.frame.columns:
            columns = [*columns, FILE_COLUMN]
        columns = [*image_set.tables[name].choices, *image_set.tables[name].agreements, *columns]
        entries += [
            (
                f"{{{name}.{column}}}",
                "table",
                _name_column(name, column, image_words),
                (name,),
                image_set.chances[name],
                0.0,
            )
            for column in columns
            if column != ROW_COLUMN and not set("{}") & set(column) and not _is_on_main_sheet(image_set, name, column)
        ]
    ids = {group.id for group in groups}
    tags = {tag.keyword for facts in survey.dicom if facts.group in ids for tag in facts.tags if tag.distinct > 1}
    entries += [(f"{{tag.{tag}}}", "tag", tag, (), 0.0, 0.0) for tag in sorted(tags)]
    entries += [(f"{{member.{key}}}", "member", key, (), 0.0, 0.0) for key in _value_members(image_set, survey, ids)]
    numbered_columns: list[Column] = []
    sites: list[Column] = []
    for template, source, words, tables, chance, crossing in entries:
        series = image_set.values(template)
        stats = describe(series, _conflicts(image_set, template))
        if not stats.filled:
            continue
        column = Column(template, source, words, stats, tables, chance, crossing)
        yield column
        numbered = (
            bool(roles_of(words) & {"patient", "identifier"})
            and source == "table"
            and stats.filled > stats.distinct > 1
        )
        if numbered and not stats.conflicts:
            numbered_columns.append(column)
        if 2 <= stats.distinct <= MAX_SITES and _is_site(column):
            sites.append(column)
    yield from _composites(image_set, numbered_columns, sites)


def _is_on_main_sheet(image_set: ImageSet, name: str, column: str) -> bool:
    """Whether a workbook's main sheet has a column of the same name for the same images, as newer values beside an archive."""
    sheet = image_set.tables[name]
    for main, table in image_set.tables.items():
        if not sheet.sheet or table.sheet or table.files != sheet.files:
            continue
        pairs = [
            image_set.frame.tables[table_name] for table_name in (name, main) if table_name in image_set.frame.tables
        ]
        if len(pairs) == 2 and column in pairs[1].table.columns:
            images = pairs[0].pairs["left"].unique()
            return mean_of(images.is_in(pairs[1].pairs["left"].unique().implode())) >= MIN_WHOLE_JOIN
    return False


def _composites(image_set: ImageSet, numbered_columns: Sequence[Column], sites: Sequence[Column]) -> Iterator[Column]:
    """Numbers that start anew at each site, with the site before them."""
    for number in numbered_columns:
        for site in sites:
            if site.template == number.template:
                continue
            template = f"{site.template}/{number.template}"
            stats = describe(image_set.values(template))
            if number.stats.distinct < stats.distinct <= stats.filled:
                tables = tuple(dict.fromkeys((*site.tables, *number.tables)))
                pairs = (
                    pl.DataFrame({"number": image_set.values(number.template), "site": image_set.values(site.template)})
                    .drop_nulls()
                    .unique()
                )
                shared = mean_of(pairs.group_by("number").len()["len"] > 1) if _counts_at_each(pairs) else 0.0
                yield Column(
                    template,
                    "table",
                    number.name,
                    stats,
                    tables,
                    max(number.chance, site.chance),
                    shared,
                )


def _counts_at_each(pairs: pl.DataFrame) -> bool:
    """Whether the numbers of each site run on without large gaps, as those that start anew there do."""
    numbers = pairs.select("site", value=pl.col("number").str.extract(r"(\d{1,9})\D*$", 1).cast(pl.Int64))
    spans = numbers.group_by("site").agg(
        values=pl.col("value").n_unique(), span=pl.col("value").max() - pl.col("value").min() + 1
    )
    return bool((spans["values"] >= MIN_DENSITY * spans["span"]).fill_null(True).all())


def _is_site(column: Column) -> bool:
    """Whether a column or folder names hospitals: by its name, or by its values (`site_a`, `Hospital 2`)."""
    texts = (column.name, *column.stats.counts) if column.source == "folder" else (column.name,)
    return any(get_lexicon().find_concepts(text)[:1] == ["hospital"] for text in texts if text)


def _value_members(image_set: ImageSet, survey: Survey, ids: set[str]) -> list[str]:
    own_columns = image_set.images.member.removesuffix("[#]")
    keys = []
    for id in ids:
        group = survey.group(id)
        if group.suffixes == (".parquet",):
            schema = pl.read_parquet_schema(local_file(image_set.frame.readers.root, group.examples[0]))
            keys += [
                f"{name}.{inner.name}"
                for name, kind in schema.items()
                if isinstance(kind, pl.Struct)
                for inner in kind.fields
                if inner.dtype == pl.String
            ]
            keys += [name for name, kind in schema.items() if name != own_columns and not isinstance(kind, pl.Struct)]
    if "{part}" in own_columns:
        for container in survey.containers:
            if container.group in ids:
                vectors = [member.key for member in container.members if member.kind in ("vector", "text", "scalar")]
                keys += dict.fromkeys(form for key in vectors if (form := part_form(key)) and form != own_columns)
        return keys
    for container in survey.containers:
        if container.group not in ids or not own_columns:
            continue
        length = next((member.length for member in container.members if member.key == own_columns), None)
        for member in container.members:
            if member.key != own_columns and (
                member.kind == "scalar" or (member.kind in ("vector", "text") and member.length == length)
            ):
                wide = len(member.shape) == 2 and 1 < member.shape[1] <= MAX_VALUES
                keys += [f"{member.key}[{place}]" for place in range(member.shape[1])] if wide else [member.key]
    return keys


def _conflicts(image_set: ImageSet, template: str) -> int:
    flag = f"{template.strip('{}')}(conflict)"
    return int(image_set.frame.frame[flag].sum() or 0) if flag in image_set.frame.frame.columns else 0


def mean_of(series: pl.Series) -> float:
    """Return the mean of numbers or truth values; 0 of none."""
    return float(series.cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]


def median_of(series: pl.Series) -> float:
    """Return the median of numbers; 0 of none."""
    return float(series.cast(pl.Float64).median() or 0.0)  # type: ignore[arg-type]


NUMBER = r"^[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?$"


def describe(series: pl.Series, conflicts: int = 0) -> ColumnStats:
    """Return what a column holds."""
    texts = series.drop_nulls()
    filled = len(texts)
    if not filled:
        return ColumnStats(len(series), 0, 0, {}, 0.0, 0.0, conflicts)
    distinct = texts.n_unique()
    counts: dict[str, int] = {}
    if distinct <= MAX_VALUES:
        counts = dict(sorted(Counter(texts.to_list()).items(), key=lambda pair: (-pair[1], pair[0])))
    numeric = mean_of(texts.str.strip_chars().str.contains(NUMBER))
    return ColumnStats(len(series), filled, distinct, counts, numeric, median_of(texts.str.len_chars()), conflicts)
