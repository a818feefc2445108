"""The audit of what is marked where: enough people, and every class on both sides of the split."""

from __future__ import annotations

from collections.abc import Callable, Collection

from m3b.data.audit_common import Finding, Weight, people, rare_classes, small_test
from m3b.data.index import Index, Record

MIN_PATIENTS = 3
FEW_PATIENTS = 20
ENOUGH = {"train": 2, "test": 5}
"""Patients with a class from whom on every split can give some to this side."""
_REMEDIES: dict[str, tuple[tuple[Weight, str], ...]] = {
    "train": (
        ("fix", "Split again so that it has."),
        ("warn", "Only one patient has them: put that one into training, or drop these classes."),
    ),
    "test": (
        ("fix", "Split again so that it has."),
        ("warn", "Too few patients have them: nothing can be measured for these classes."),
    ),
}
Holds = Callable[[Record], Collection[str]]
"""The classes that are marked in a case."""


def few_patients(index: Index) -> list[Finding]:
    """Too few people to train and test on, or so few that it has to be said."""
    found = people(index.records)
    who = "patients" if index.patients_known else "cases (patients unknown)"
    if found < MIN_PATIENTS:
        text = (
            f"Only {found} {who}; at least {MIN_PATIENTS} are needed: two to learn from, one to test on. "
            "If patients are unknown, call them unknown-<n>, a number each."
        )
        return [Finding("too_few_cases", "reject", text)]
    if found >= FEW_PATIENTS:
        return small_test(index)
    text = (
        f"Only {found} {who}, {people(index.test)} of them to test on: the model will know these and little else, "
        "and what is measured says next to nothing about other people."
    )
    return [Finding("few_patients", "warn", text)]


def cases_with(index: Index, holds: Holds) -> dict[str, dict[str, int]]:
    """Cases in which each class is marked, a split each."""
    table: dict[str, dict[str, int]] = {}
    for split, records in (("train", index.train), ("test", index.test)):
        held = [holds(record) for record in records]
        table[split] = {name: sum(name in names for names in held) for name in index.classes}
    return table


def absent_classes(index: Index, holds: Holds, what: str, hint: str = "") -> list[Finding]:
    """Classes that are marked nowhere, or on one side of the split only.

    Args:
        what: how a class is marked, such as "mask holds".
        hint: what is marked besides, which may be classes that are called otherwise.
    """
    have = {name: people([record for record in index.records if name in holds(record)]) for name in index.classes}
    findings = []
    if nowhere := [name for name, number in have.items() if not number]:
        named = ", ".join(f"{name} ({index.values[name]})" for name in nowhere)
        text = f"No {what}: {named}. {hint}Correct label_dict.json, or drop these classes."
        findings.append(Finding("class_nowhere", "fix", text, absent=() if hint else tuple(nowhere)))
    for split, table in cases_with(index, holds).items():
        absent = [name for name, number in table.items() if not number and have[name]]
        for weight, remedy in _REMEDIES[split]:
            names = [name for name in absent if (have[name] >= ENOUGH[split]) == (weight == "fix")]
            if names:
                text = f"The {split} split has no case with: {', '.join(names)}. {remedy}"
                findings.append(Finding(f"class_absent_{split}", weight, text))
        if people(index.records) >= FEW_PATIENTS:
            findings += rare_classes(split, table, have, "with")
    return findings


def no_healthy() -> Finding:
    """Detection without a single image in which nothing is marked."""
    text = (
        "Something is marked in every image: how often the model sees something in a healthy image cannot be measured."
    )
    return Finding("no_healthy", "warn", text)
