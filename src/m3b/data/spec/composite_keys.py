"""Tables with several rows a key, told apart by a second one: patient and side, patient and visit.

`patient, eye, grade` beside `p01_left.png`, `p01_right.png`: by the patient alone both images have two grades.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.expected import countable, drafted
from m3b.data.spec.grouping import readable
from m3b.data.spec.model import FromPath, FromTable, IndexSpec, Labels
from m3b.data.spec.patterns import fields
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.proposals.language import words
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MOST = 24
"""Different values of a second key: sides, visits, levels; what has more is a key of its own."""
SAME = 0.9
"""Share of the images with a row that must have one by both keys, of those that have one by the first."""

_READERS = frozenset(
    words("reader rater observer annotator grader expert radiologist doctor rating reading annotation")
)
"""Words of columns that tell who looked: their numbers are no part of an image's name."""
_NAMED = re.compile(r"\(\?P<(\w+)>")


def with_composite_keys(proposals: Sequence[Proposal], root: Path, readers: Readers) -> list[Proposal]:
    """The readings; those whose table has rows that disagree about an image, by two keys where a second tells them apart."""
    return [_with_keys(one, root, readers) for one in proposals]


def _with_keys(proposal: Proposal, root: Path, readers: Readers) -> Proposal:
    spec, source = proposal.spec, _source(proposal.spec.labels)
    if source is None or spec.images.several != "one" or not countable(spec, files := readers.files()):
        return proposal
    try:
        _, sources, cases = drafted(spec, root, readers, files)
        before = [sources.texts(source, case) for case in cases]
        if not any(len(texts) > 1 for texts in before):
            return proposal
        for column, slot in _seconds(spec, source, sources, cases):
            for rule in dict.fromkeys((source.rule, "exact")):
                change = {"row": f"{source.row} {{{column}}}", "image": f"{source.image} {{{slot}}}", "rule": rule}
                made = source.model_copy(update=change)
                after = [sources.texts(made, case) for case in cases]
                if all(len(texts) < 2 for texts in after) and sum(map(bool, after)) >= SAME * sum(map(bool, before)):
                    return _changed(proposal, source, change, (column, slot))
    except DataError:
        pass
    return proposal


def _source(labels: Labels | None) -> FromTable | None:
    """The one cell that is to be the class of an image; None where labels are said in another way."""
    if labels is None or labels.one_hot or labels.separator or len(labels.sources) != 1:
        return None
    one = labels.sources[0]
    return one if isinstance(one, FromTable) and one.through is None and not one.also else None


def _seconds(
    spec: IndexSpec, source: FromTable, sources: Sources, cases: Sequence[CaseDraft]
) -> Iterator[tuple[str, str]]:
    """Columns and parts of names that hold the same few texts."""
    pattern = spec.images.files.pattern
    slots = _NAMED.findall(pattern) if pattern.startswith("re:") else fields(pattern)
    columns = _columns(source, sources)
    for slot in slots:
        texts = {case.slots.get(slot, "").casefold() for case in cases}
        if slot in fields(source.image) or not 2 <= len(texts) <= MOST or "" in texts:
            continue
        counted = all(text.isdigit() for text in texts)  # numbers that mean something else are alike by chance
        yield from ((name, slot) for name, held in columns.items() if texts == held or (texts < held and not counted))


def _columns(source: FromTable, sources: Sources) -> dict[str, set[str]]:
    """The other columns with few texts, and these."""
    held: dict[str, set[str]] = {}
    for path in (one for one in sources.folder.files if readable(source.file) == one):
        for row in sources.rows(path, source):
            for name, text in row.items():
                held.setdefault(name, set()).add(text.strip().casefold())
    known = {source.column, *fields(source.row)}
    return {name: texts for name, texts in held.items()
            if name not in known and len(texts) <= MOST and not _READERS & set(words(name))}  # fmt: skip


def _changed(proposal: Proposal, source: FromTable, change: dict[str, str], keys: tuple[str, str]) -> Proposal:
    """The reading with both keys wherever it takes a cell of the table, and the images of the first key on one side."""
    spec = IndexSpec.model_validate(_with(proposal.spec.model_dump(), source, change))
    first = FromPath(value=source.image)
    apart = spec.patient is None and not any(_speaks(one, source.image) for one in spec.together)
    spec = spec.model_copy(update={"together": (*spec.together, first)}) if apart else spec
    told = f"rows of {readable(source.file)} told apart by {fields(source.row)[0]!r} and {keys[0]!r}, in names {{{keys[1]}}}"
    return replace(proposal, spec=spec, evidence=(*proposal.evidence, told))


def _speaks(value: object, image: str) -> bool:
    """Whether a value of a name's parts is made of the same parts as a key."""
    return isinstance(value, FromPath) and set(fields(value.value)) == set(fields(image))


def _with(part: Any, source: FromTable, change: dict[str, str]) -> Any:
    """A dumped spec in which every cell that is found as `source` is, is found by both keys."""
    if isinstance(part, dict):
        made = {name: _with(one, source, change) for name, one in part.items()}
        same = all(
            made.get(name) == getattr(source, name) for name in ("kind", "file", "sheet", "records", "row", "image")
        )
        return {**made, **change} if same else made
    return tuple(_with(one, source, change) for one in part) if isinstance(part, list | tuple) else part
