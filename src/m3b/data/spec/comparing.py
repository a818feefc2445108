"""An index that a script made, against the archive: its labels, its masks, and the cases that it does without."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.records import Record
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import CaseDraft, DataFolder, build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.model import IndexSpec, Labels
from m3b.data.spec.opened import open_all
from m3b.data.spec.proposals import Proposal, sufficient
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MIN_SHARED = 0.5
"""Share of the index's cases that a reading must have too for the two to be compared."""
MIN_CASES = 4
"""Cases a text, on average, from which on a place can be where labels come from: identifiers would agree with any."""
AGREE = 0.98
"""Share of labels that agree from which on they are the archive's."""
LEFT_SHARE, LEFT_FEW = 0.05, 2
"""Of the cases that a reading can use, an index may do without this share or this many without saying why."""
_EXAMPLES = 4


@dataclass
class Compared:
    """What came of it.

    Args:
        source: in words, the place of the archive's labels that the index was held against; empty where nothing was
            comparable.
        labels, agreeing: cases whose label could be compared, and those that agree.
        differing: examples of cases that do not, with both labels.
        expected: whether the source bears the request out so well that other labels need a reason.
        usable, missing: cases that the nearest reading can use, and those of them that the index does without though they
            open and are no copies.
        absent: examples of the latter.
    """

    accounting: Accounting
    source: str = ""
    labels: int = 0
    agreeing: int = 0
    differing: tuple[str, ...] = ()
    expected: bool = False
    usable: int = 0
    missing: int = 0
    absent: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def labels_fit(self) -> bool:
        """Whether the labels are those of the archive, as far as they could be compared."""
        return not self.labels or self.agreeing >= AGREE * self.labels

    @property
    def leaves_out(self) -> bool:
        """Whether it does without more than a little."""
        return self.missing > max(LEFT_FEW, LEFT_SHARE * self.usable)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source, "labels": self.labels, "agreeing": self.agreeing, "differing": list(self.differing),
            "labels_fit": self.labels_fit, "expected": self.expected, "usable": self.usable, "missing": self.missing,
            "leaves_out": self.leaves_out, "absent": list(self.absent), "accounting": self.accounting.to_json(),
            "notes": self.notes,
        }  # fmt: skip


@dataclass
class _Reading:
    """A proposal's cases, by what an index would call their image."""

    proposal: Proposal
    cases: dict[tuple[str, ...], CaseDraft]
    sources: Sources
    folder: DataFolder
    accounting: Accounting

    @property
    def spec(self) -> IndexSpec:
        return self.proposal.spec


def compare(proposals: Sequence[Proposal], root: Path, name: str, records: Sequence[Record]) -> Compared:
    """Hold an index against every reading of the folder that has its cases.

    Args:
        proposals: the readings, best first.
        name: the folder's name in the index (`data/<name>/...`).
    """
    readers = Readers(root)
    files = readers.files()
    index = {_reference(record, name): record for record in records}
    readings = list(_readings(proposals, root, readers, files, set(index)))
    made = Compared(_accounting(files, records, name))
    nearest = readings[0] if readings else None
    nearest = _labels(made, readings, index, sufficient(proposals) == "") or nearest
    if nearest is not None:
        _cases(made, nearest, index, root)
    for reading in readings[:1]:
        tables = [path for path, use in reading.accounting.used.items() if use in ("table", "annotation")]
        made.accounting.use(tables, "table")
    made.accounting.leave_rest(files, "not in the index that a script made")
    return made


def _reference(record: Record, name: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(f"data/{name}/") for path in record.images)


def _accounting(files: Sequence[str], records: Sequence[Record], name: str) -> Accounting:
    """Files that the index names, or that lie in folders that it names."""
    made, prefix = Accounting(total=len(files)), f"data/{name}/"
    for what, paths in (
        ("image", [p for r in records for p in r.files]),
        ("mask", [p for r in records for p in r.targets]),
    ):
        named = {path.removeprefix(prefix).rstrip("/") for path in paths if path.startswith(prefix)}
        made.use([path for path in files if path in named or _parents(path) & named], what)
    return made


def _parents(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:at]) for at in range(1, len(parts))}


def _readings(
    proposals: Sequence[Proposal], root: Path, readers: Readers, files: Sequence[str], index: set[tuple[str, ...]]
) -> Iterator[_Reading]:
    """The proposals that have most of the index's cases, best first."""
    built: dict[str, dict[tuple[str, ...], CaseDraft]] = {}
    for proposal in proposals:
        folder, accounting = DataFolder(root, files, readers.lookup), Accounting(total=len(files))
        sources = Sources(folder, readers.rows, readers.lines, accounting)
        known = proposal.spec.images.model_dump_json() + "".join(slots_needed(proposal.spec))
        try:
            if known not in built:
                cases = build_cases(folder, proposal.spec.images, accounting, slots_needed(proposal.spec))
                built[known] = {_named(case): case for case in cases}
        except DataError:
            continue
        if len(index & set(built[known])) >= MIN_SHARED * len(index):
            yield _Reading(proposal, built[known], sources, folder, accounting)


def _named(case: CaseDraft) -> tuple[str, ...]:
    if case.folder is not None:
        return (case.folder,)
    return tuple(item.reference for item in case.items)


# --- labels ---------------------------------------------------------------------------------------------------------


def _labels(
    made: Compared, readings: Sequence[_Reading], index: Mapping[tuple[str, ...], Record], certain: bool
) -> _Reading | None:
    """Find the source that the index agrees with, else the likeliest one, and say how well."""
    best: tuple[_Reading, int, list[tuple[str, str, str]]] | None = None
    for reading in readings:
        compared, differing = _against(reading, index)
        agrees = len(differing) <= (1 - AGREE) * compared
        if compared and (best is None or agrees):
            best = (reading, compared, differing)
        if compared and agrees:
            break
    if best is None:
        return None
    reading, compared, differing = best
    title = reading.proposal.title
    made.source = title.rpartition(", labels from ")[2] or title
    made.labels, made.agreeing = compared, compared - len(differing)
    made.differing = tuple(
        f"{name}: {own!r} in the index, {theirs!r} there" for name, own, theirs in differing[:_EXAMPLES]
    )
    made.expected = certain
    return reading


def _against(reading: _Reading, index: Mapping[tuple[str, ...], Record]) -> tuple[int, list[tuple[str, str, str]]]:
    """Cases that both have a label for, and those of which the labels differ: (name, the index's, the archive's)."""
    labels = reading.spec.labels
    if labels is None or reading.spec.report is not None or reading.spec.patient in labels.sources:
        return 0, []
    pairs = []
    for name, record in index.items():
        case = reading.cases.get(name)
        text = _text(labels, reading.sources, case) if case is not None else None
        if text is not None:
            pairs.append((case.name if case else "", "|".join(sorted(record.labels)), text))
    if len(pairs) < MIN_CASES * len({text for _, _, text in pairs}):
        return 0, []
    meant = _meant(pairs)
    return len(pairs), [(name, own, text) for name, own, text in pairs if meant[text] != own]


def _text(labels: Labels, sources: Sources, case: CaseDraft) -> str | None:
    """What the archive says of a case, as one text; None where it says nothing or contradicts itself."""
    try:
        if labels.one_hot or labels.separator:
            return "|".join(sorted(labels_of(labels, sources, case)))
    except (LeaveOut, DataError):
        return None
    return sources.text(labels.sources[0], case)


def _meant(pairs: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Text of the archive -> label of the index: itself where the index has such labels, else what most cases say."""
    mine = {own.casefold(): own for _, own, _ in pairs}
    texts = {text for _, _, text in pairs}
    if len(texts) > 1 and {text.casefold() for text in texts} == set(mine):
        return {text: mine[text.casefold()] for text in texts}
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for _, own, text in pairs:
        counted[text][own] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in counted.items()}


# --- cases ----------------------------------------------------------------------------------------------------------


def _cases(made: Compared, reading: _Reading, index: Mapping[tuple[str, ...], Record], root: Path) -> None:
    """Count what the reading could use and the index does without."""
    usable = _usable(reading, index)
    absent = [name for name in usable if name not in index]
    made.usable = len(usable)
    if len(absent) > max(LEFT_FEW, LEFT_SHARE * len(usable)):
        names = [*(name for name in usable if name in index), *absent]
        records = [index.get(name, Record("")) for name in names]
        looked = open_all(root, names, _alike(records), [name in index for name in names])
        gone = {names[place] for place in looked.reasons}
        made.usable, absent = len(usable) - len(gone), [name for name in absent if name not in gone]
    made.missing, made.absent = len(absent), tuple(name[0] for name in absent[:_EXAMPLES])


def _alike(records: Sequence[Record]) -> list[Record]:
    """Records without labels: copies are copies here, whatever they are called."""
    return [Record(record.image) for record in records]


def _usable(reading: _Reading, index: Mapping[tuple[str, ...], Record]) -> list[tuple[str, ...]]:
    """The cases that have a target as the index has them: a label that it uses, a mask, a box, a text."""
    spec = reading.spec
    if spec.labels is not None and spec.report is None:
        texts = {name: _text(spec.labels, reading.sources, case) for name, case in reading.cases.items()}
        used = {texts[name] for name in index if name in texts}
        return [name for name, text in texts.items() if text is not None and text in used]
    if spec.masks is not None:
        masks = MaskSource(spec.masks, reading.folder, reading.accounting, "", Path(), list(reading.cases.values()))
        return [name for name, case in reading.cases.items() if masks.items_of(case)]
    if spec.report is not None:
        parts = [one for one in (spec.report.findings, spec.report.impression) if one is not None]
        return [name for name, case in reading.cases.items() if any(reading.sources.text(one, case) for one in parts)]
    return list(reading.cases)
