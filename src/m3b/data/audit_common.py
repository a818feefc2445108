"""What all parts of the audit share: findings, and the checks that hold for every task."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from m3b.data import kinds
from m3b.data.index import Index, Record
from m3b.data.kinds import to_json
from m3b.data.records import Image, paths_of

Weight = Literal["reject", "fix", "warn"]
SHOWN = 6
MIN_A_CLASS = 2
SMALL_TEST = 20
SCARCE = 5
"""Patients with a class below whom no split has enough of it on both sides."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        code: stable, for programs.
        message: what was found and what to do about it, for whoever writes the index.
        cases: some of those concerned.
        told: the same for people, who cannot fix an index: what was found in the data, and what that means. Empty where
            `message` says just that.
        absent: classes that may be dropped, since they are marked nowhere and nothing else is marked.
    """

    code: str
    weight: Weight
    message: str
    cases: tuple[str, ...] = ()
    told: str = ""
    absent: tuple[str, ...] = ()


def some(keys: Iterable[str]) -> tuple[str, ...]:
    """The first few, each once."""
    return tuple(dict.fromkeys(keys))[:SHOWN]


def listed(names: Iterable[object]) -> str:
    """The first few, as text."""
    return ", ".join(some(map(str, names)))


def people(records: Sequence[Record]) -> int:
    return len({record.patient for record in records})


def rare_classes(split: str, cases: Mapping[str, int], have: Mapping[str, int], word: str) -> list[Finding]:
    """Classes of which a part of the split has next to none: `class_rare_...`, and `class_scarce_...` where no other split would help.

    Args:
        cases: class -> cases in that part.
        have: class -> patients with it in all.
        word: between "cases" and the classes.
    """
    rare = [name for name, count in cases.items() if 0 < count < MIN_A_CLASS]
    few, scarce = ([n for n in rare if (have[n] < SCARCE) == wanted] for wanted in (False, True))
    findings = []
    if few:
        text = (
            f"The {split} split has fewer than {MIN_A_CLASS} cases {word}: {', '.join(f'{n} {cases[n]}' for n in few)}."
        )
        findings.append(Finding(f"class_rare_{split}", "warn", text))
    if scarce:
        named = ", ".join(f"{n} {cases[n]} (patients in all: {have[n]})" for n in scarce)
        text = (
            f"The {split} split has fewer than {MIN_A_CLASS} cases {word}: {named}. Nothing can be measured for so few."
        )
        findings.append(Finding(f"class_scarce_{split}", "warn", text))
    return findings


def told_patients(count: int, *, known: bool) -> str:
    """`31 patients`; never a number of people where nobody knows them."""
    return f"{count} patients" if known else "patients unknown"


def counts_text(table: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in table.items())


def units(record: Record, task: str) -> tuple[Image, ...]:
    """The images of a case as they are opened: the views of a study one by one, a list of slices together."""
    return record.images if kinds.separate(record, task) else (record.image,)


def unit_key(unit: Image) -> str:
    return "|".join(paths_of(unit))


def unit_keys(record: Record, task: str) -> tuple[str, ...]:
    return tuple(map(unit_key, units(record, task)))


def truth(record: Record, task: str) -> str:
    """What the record teaches, so that two that contradict each other are told apart."""
    beside = dict.fromkeys(("image_path", "patient", "covariates", kinds.SEVERAL))
    return json.dumps({**to_json(record, task), **beside}, sort_keys=True)


def patients(index: Index) -> list[Finding]:
    """Patients on both sides, or one for everything."""
    both = {record.patient for record in index.train} & {record.patient for record in index.test}
    findings = []
    if both:
        text = f"{len(both)} patients are in train and in test ({listed(sorted(both))})."
        findings.append(Finding("patient_overlap", "fix", f"{text} Split by patient, whole patients to one side."))
    if len(index.records) > 50 and people(index.records) == 1:
        text = "All cases have the same patient; if patients are unknown, call them unknown-<n>, a number each."
        findings.append(Finding("one_patient", "fix", text))
    return findings


def repeats(index: Index) -> list[Finding]:
    """Images that are listed more than once."""
    times = Counter(key for record in index.records for key in unit_keys(record, index.task))
    twice = [key for key, count in times.items() if count > 1]
    if not twice:
        return []
    taught: dict[str, set[str]] = defaultdict(set)
    for record in index.records:
        for key in unit_keys(record, index.task):
            taught[key].add(truth(record, index.task))
    torn = [key for key in twice if len(taught[key]) > 1]
    if torn:
        what, remedy, _ = kinds.of(index.task).taught
        return [
            Finding(
                "contradiction", "fix", f"{len(torn)} images are listed with different {what}. {remedy}", some(torn)
            )
        ]
    return [Finding("repeated", "fix", f"{len(twice)} images are listed more than once.", some(twice))]


def missing(index: Index, work: Path) -> tuple[set[str], list[Finding]]:
    """Keys of cases with files that are not there, and what to say of them."""
    findings: list[Finding] = []
    keys: set[str] = set()
    for name, code in (("files", "missing_file"), ("targets", "missing_mask")):
        absent: dict[str, str] = {}
        for record in index.records:
            gone = next((path for path in getattr(record, name) if not (work / path).exists()), "")
            if gone:
                absent[record.key] = gone
        if absent:
            what = "files" if name == "files" else "masks"
            text = (
                f"{len(absent)} of {len(index.records)} cases name {what} that are not there, "
                f"e.g. {next(iter(absent.values()))}. "
                "Leave out rows without a file, or fix the paths (they count from the working directory)."
            )
            findings.append(Finding(code, "fix", text, some(absent.values())))
            keys |= absent.keys()
    return keys, findings


def small_test(index: Index) -> list[Finding]:
    if not 0 < len(index.test) < SMALL_TEST:
        return []
    text = f"The test split has {len(index.test)} cases: whatever is measured on it will be uncertain."
    return [Finding("small_test", "warn", text)]
