"""The audit of labels: diagnosis, and the optional findings of reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from m3b.data.audit_common import Finding, counts_text, listed, people, rare_classes, small_test, some
from m3b.data.index import Index, counts, names_in

MIN_CASES = 8


def labels(index: Index) -> list[Finding]:
    """Everything about the labels of a diagnosis index."""
    return [*vocabulary(index), *_unlabelled(index), *_amounts(index)]


def vocabulary(index: Index) -> list[Finding]:
    """Names that label_dict.json does not hold: of labels or boxes."""
    unknown: dict[str, list[str]] = defaultdict(list)
    for record in index.records:
        for label in names_in(record):
            if label not in index.classes:
                unknown[label].append(record.key)
    if not unknown:
        return []
    names = listed(map(repr, sorted(unknown)))
    text = f"{len(unknown)} labels are not in label_dict.json ({', '.join(index.classes)}): {names}. Map or drop them."
    return [Finding("unknown_label", "fix", text, some(key for keys in unknown.values() for key in keys))]


def _unlabelled(index: Index) -> list[Finding]:
    """Cases without a label, where nothing says that several labels, or none, may apply."""
    bare = [record.key for record in index.records if not record.labels]
    if not bare or any(len(record.labels) > 1 for record in index.records):
        return []
    text = (
        f"{len(bare)} of {len(index.records)} cases have no label, and none has two. Leave them out, or give them a "
        "class of their own (such as 'none') if they are known to have none of the findings."
    )
    return [Finding("no_label", "fix", text, some(bare))]


def _again(index: Index, absent: Sequence[str]) -> str:
    """What to do about classes that one part lacks: those of one patient, or of one group, cannot be on both sides."""
    people = {name: {one.patient for one in index.records if name in one.labels} for name in absent}
    single = [name for name in absent if len(people[name]) == 1]
    if not single:
        return "Split again, stratified by label."
    return (
        f"All cases of {', '.join(single)} are of one patient, or of one group that stays together (what `together` names, "
        "and series of nearly the same picture). Make groups smaller, where they are more than the data calls for, or "
        "leave the class out."
    )


def _amounts(index: Index) -> list[Finding]:
    findings = []
    together = counts(index.records, index.classes)
    present = [name for name, count in together.items() if count]
    if len(index.classes) < 2 or (len(present) < 2 and not index.multi_label):
        text = (
            f"Only one class has cases ({counts_text(together)}); a classifier needs at least two. "
            "Check that the label column or the class folders were read, or add data of another class."
        )
        return [Finding("one_class", "reject", text)]
    if len(index.records) < MIN_CASES:
        text = f"Only {len(index.records)} cases; at least {MIN_CASES} are needed to train and test anything."
        findings.append(Finding("too_few_cases", "reject", text))
    have = {name: people([one for one in index.records if name in one.labels]) for name in index.classes}
    for split, records in (("train", index.train), ("test", index.test)):
        everything = counts(records, index.classes)
        table = {name: everything[name] for name in index.classes}
        absent = [name for name, count in table.items() if not count]
        if absent:
            text = f"The {split} split has no case of: {', '.join(absent)}. {_again(index, absent)}"
            findings.append(Finding(f"class_absent_{split}", "fix", text))
        findings += rare_classes(split, table, have, "of")
    return [*findings, *small_test(index)]
