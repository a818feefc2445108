"""The ends that a join can have: columns, files' paths, parts of paths, folders, DICOM tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from m3b.data.survey.columns import is_missing
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.keys import ABOVE, PATH_RULES, VALUE_RULES, key
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.relations import End, Rule
from m3b.data.survey.tables import Loaded

MAX_TAGS = ("PatientID", "PatientName", "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "AccessionNumber")
_FOLDER_RULES: tuple[Rule, ...] = (*VALUE_RULES, *ABOVE)


@dataclass
class Texts:
    """One end with its distinct texts and how many rows or files have each; `files` has the paths of each text."""

    end: End
    counts: dict[str, int]
    rules: tuple[Rule, ...]
    files: dict[str, int] = field(default_factory=dict)
    prefix: str = ""
    running: bool = False
    """Whether its texts are small whole numbers, which anything matches."""
    identifies: bool = False
    """Of a column: whether its values tell rows or cases apart, rather than say something of them."""
    keyed: dict[Rule, dict[str, list[str]]] = field(default_factory=dict)

    def by_key(self, rule: Rule) -> dict[str, list[str]]:
        """The texts of each key under a rule."""
        if rule not in self.keyed:
            found: dict[str, list[str]] = defaultdict(list)
            for text in self.counts:
                if made := key(rule, self.prefix + text if rule == "prefixed" else text):
                    found[made].append(text)
            self.keyed[rule] = dict(found)
        return self.keyed[rule]


def columns(tables: Iterable[Loaded], most: int) -> list[Texts]:
    """The columns whose values could name files, cases or patients."""
    found = []
    for table in tables:
        for column in table.fact.columns:
            if column.type in ("empty", "text", "boolean", "number", "date") or column.distinct < 2:
                continue
            counts: dict[str, int] = defaultdict(int)
            for items in table.cells(column.name):
                for item in items:
                    if not is_missing(item) and (item in counts or len(counts) < most):
                        counts[item] += 1
            running = column.type == "integer" and (column.high or 0) <= 4 * len(counts) + 10
            many = column.distinct > 60 or column.type in ("identifier", "path")
            found.append(Texts(End(kind="column", owner=table.fact.id, name=column.name), dict(counts),
                               (*PATH_RULES, *VALUE_RULES), running=running, identifies=many and not running))  # fmt: skip
    return found


def of_groups(found: Gathering, most: int) -> list[Texts]:
    """The paths of every group that could hold cases, and their parts, folders and tags."""
    ends: list[Texts] = []
    for group in found.groups:
        if group.fact.stray or group.fact.kind == "archive" or group.merged.count < 2:
            continue
        ends.append(paths_of(group, most))
        if group.fact.kind in IMAGES:
            ends += _parts(group, most) + _levels(group, most) + _tags(group)
    return ends


def paths_of(group: Gathered, most: int) -> Texts:
    """A group's own paths."""
    return Texts(End(kind="path", owner=group.id), dict.fromkeys(group.paths[:most], 1), PATH_RULES,
                 dict.fromkeys(group.paths[:most], 1))  # fmt: skip


def _parts(group: Gathered, most: int) -> list[Texts]:
    found = []
    for part in group.fact.parts:
        if part.distinct < 2 or part.slot in ("name", "name.first", "name.last") or part.kind in ("word", "side"):
            continue
        counts: dict[str, int] = defaultdict(int)
        for text in group.values[part.slot]:
            if text is not None and (text in counts or len(counts) < most):
                counts[text] += 1
        prefix = part.before.split("/")[-1]
        running = part.kind == "number" and (part.high or 0) <= 4 * len(counts) + 10
        found.append(Texts(End(kind="part", owner=group.id, name=part.slot), dict(counts), _FOLDER_RULES, dict(counts),
                           prefix, running))  # fmt: skip
    return found


def _levels(group: Gathered, most: int) -> list[Texts]:
    """Whole names of the folders on the way, where several differ."""
    found = []
    for level in range(len(group.merged.files[0].levels) if group.template else 0):
        counts: dict[str, int] = defaultdict(int)
        for path in group.looked:
            name = path.split("/", level + 1)[level]
            if name in counts or len(counts) < most:
                counts[name] += 1
        if len(counts) > 1 and not all(name.isdigit() for name in counts):
            found.append(Texts(End(kind="level", owner=group.id, name=str(level)), dict(counts),
                               _FOLDER_RULES, dict(counts)))  # fmt: skip
    return found


def _tags(group: Gathered) -> list[Texts]:
    found = []
    for keyword in MAX_TAGS if group.headers else ():
        counts: dict[str, int] = defaultdict(int)
        for header in group.headers.found if group.headers else ():
            if text := header.tags.get(keyword):
                counts[text] += 1
        if len(counts) > 1:
            found.append(
                Texts(End(kind="tag", owner=group.id, name=keyword), dict(counts), _FOLDER_RULES, dict(counts))
            )
    return found
