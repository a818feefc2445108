"""The two parts of an index: whose cases stay together, the data set's own split or a drawn one, what opens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data.kinds.regression import VALUE, value_of
from m3b.data.records import UNKNOWN_PATIENT, Record
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.job import Entry, SpecExecution
from m3b.data.spec.model import IndexSpec, Value
from m3b.data.spec.opened import COPY, DENIED, UNREADABLE, NothingOpens, TooFewCases, open_all
from m3b.data.spec.prompted import NO_TRUTH, ORIGIN
from m3b.data.spec.sources import Sources
from m3b.data.spec.split import Unit, draw, fifths, together
from m3b.data.spec.strata import marked_in
from m3b.data.survey.keys import key as normal
from m3b.errors import DataError


def sides_of(job: SpecExecution, entries: list[Entry]) -> tuple[list[Record], list[Record], int]:
    """Training and test records; the data set's own split where the spec names one, else a drawn one."""
    spec = job.spec
    own = _own(job, entries) if spec.split.source is not None else []
    entries, own = _without_prompted_tests(job, entries, own)
    entries, own, copies, series = _opened(job, entries, own)
    groups = together([
        (e.record.patient, copy, near, *_texts(job, spec.together, e.case))
        for e, copy, near in zip(entries, copies, series if not own else [""] * len(entries), strict=True)
    ])  # fmt: skip
    if own and not {"train", "test"} <= set(own):
        job.notes.append(
            "the data set's own split leaves one part without cases that have a target: a new one is drawn"
        )
        own = []
    if not own:
        records = [entry.record for entry in entries]
        strata = _fifths(records) or marked_in(job, records)
        taught = {group for group, record in zip(groups, records, strict=True) if ORIGIN in record.extra}
        held = draw([Unit(g, some) for g, some in zip(groups, strata, strict=True) if g not in taught],
                    spec.split.share, spec.split.seed)  # fmt: skip
        sides, crossing = ["test" if group in held else "train" for group in groups], 0
    else:
        for entry, side in zip(entries, own, strict=True):
            if not side:
                job.leave(entry.case, "on no side of the data set's own split")
        sides, crossing = _without_crossing(job, own, groups, entries)
    job.settle(entry.case for entry, side in zip(entries, sides, strict=True) if side)
    named = _patients(spec, groups, entries)
    train = [r for r, side in zip(named, sides, strict=True) if side == "train"]
    test = [r for r, side in zip(named, sides, strict=True) if side == "test"]
    if not train or not test:
        error_class = TooFewCases if not own and _holds_few_files(job.root) else DataError
        raise error_class(
            f"The split leaves {len(train)} cases for training and {len(test)} for testing. Add cases, several of each class and "
            "of several patients, or give a split that leaves some on both sides."
        )
    return train, test, crossing


FEW_FILES = 30
"""A folder with fewer files cannot hold the cases of another reading either."""


def _holds_few_files(root: Path) -> bool:
    """Return whether a folder holds fewer than `FEW_FILES` files."""
    files = (name for _, _, names in os.walk(root) for name in names)
    return sum(1 for _ in zip(files, range(FEW_FILES), strict=False)) < FEW_FILES


def _without_prompted_tests(job: SpecExecution, entries: list[Entry], own: list[str]) -> tuple[list[Entry], list[str]]:
    """Without cases of the data set's own test part whose mask was prompted for."""
    gone = {at for at, side in enumerate(own) if side == "test" and ORIGIN in entries[at].record.extra}
    for at in gone:
        job.leave(entries[at].case, NO_TRUTH)
    return [e for at, e in enumerate(entries) if at not in gone], [s for at, s in enumerate(own) if at not in gone]


def _fifths(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Of numbers the fifth that each case's lies in, of which each part of a drawn split shall have its share; else none."""
    if not records or VALUE not in records[0].extra:
        return []
    return [(name,) for name in fifths([value_of(record) for record in records])]


def _opened(
    job: SpecExecution, entries: list[Entry], own: list[str]
) -> tuple[list[Entry], list[str], list[str], list[str]]:
    """The cases whose images open and are no copies, their sides, a key that the patients of copies share, and one that
    neighbours of a series share."""
    images = [_references(entry.case) for entry in entries]
    looked = open_all(
        job.root, images, [e.record for e in entries], [side == "test" for side in own] or [False] * len(entries)
    )
    if looked.unopened:
        job.notes.append(f"{looked.unopened:,} images were not opened, for lack of time")
    for place, reason in looked.reasons.items():
        if reason != COPY or job.spec.copies:
            job.leave(entries[place].case, reason)
    kept = [place for place in range(len(entries)) if place not in looked.reasons or
            (looked.reasons[place] == COPY and not job.spec.copies)]  # fmt: skip
    if not kept and looked.reasons and set(looked.reasons.values()) <= {UNREADABLE, DENIED}:
        if set(looked.reasons.values()) == {DENIED}:
            name = entries[0].case.name
            raise NothingOpens(f"Permission to read the images is denied, e.g. {name}. Make them readable (chmod a+r).")
        raise NothingOpens(
            f"No image of this data set opens ({len(entries)} were tried, e.g. {entries[0].case.name}). Check the files, or "
            "export them again."
        )
    if not kept:
        raise DataError(f"None of the {len(entries)} cases can be used: {next(iter(looked.reasons.values()))}.")
    series = [looked.series[p] if looked.series else "" for p in kept]
    if (joined := sum(map(bool, series))) and not own:
        job.notes.append(f"{joined:,} images are neighbours in series of nearly the same picture, and stay together")
    return [entries[p] for p in kept], [own[p] for p in kept] if own else [], [looked.pixels[p] for p in kept], series


def _references(case: CaseDraft) -> Sequence[str] | Mapping[str, str]:
    """What is opened of a case, below the data folder."""
    if case.channels:
        return {name: item.reference for name, item in case.channels.items()}
    return [case.folder] if case.folder else [item.reference for item in case.items]


def _without_crossing(
    job: SpecExecution, sides: list[str], groups: Sequence[str], entries: Sequence[Entry]
) -> tuple[list[str], int]:
    """Training cases of a patient, or copies of a picture, in the data set's own test part are left out."""
    tested = {group for group, side in zip(groups, sides, strict=True) if side == "test"}
    found = list(sides)
    crossing = set()
    for place, (group, side) in enumerate(zip(groups, sides, strict=True)):
        if side == "train" and group in tested:
            crossing.add(group)
            found[place] = ""
            job.leave(entries[place].case, "its patient, or a copy of it, is in the data set's own test part")
    return found, len(crossing)


def _patients(spec: IndexSpec, groups: Sequence[str], entries: Sequence[Entry]) -> list[Record]:
    """Records whose patient is that of their group: of unknown patients, copies of one picture count as one person."""
    if spec.patient is not None:
        return [entry.record for entry in entries]
    numbers = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    return [
        replace(e.record, patient=f"{UNKNOWN_PATIENT}{numbers[g]:06d}") for g, e in zip(groups, entries, strict=True)
    ]


def _own(job: SpecExecution, entries: Sequence[Entry]) -> list[str]:
    """Each case's side by the data set's own split; `""` for cases on neither, which are left out."""
    return [own_side(job.spec, job.sources, entry.case) for entry in entries]


def own_side(spec: IndexSpec, sources: Sources, case: CaseDraft) -> str:
    """The part, `train` or `test`, that the data set's own split puts a case into; empty where into none."""
    split = spec.split
    text = sources.text(split.source, case) if split.source is not None else None
    if text is None:
        return ""
    own = normal("exact", text)
    sides = (("train", split.train), ("train", split.val), ("test", split.test))
    return next((side for side, texts in reversed(sides) if own in {normal("exact", one) for one in texts}), "")


def _texts(job: SpecExecution, values: Sequence[Value], case: CaseDraft) -> list[str]:
    return [job.sources.text(value, case) or "" for value in values]
