"""The data audit: what is wrong with a data set before anybody trains on it.

Runs on an index (train, test, labels) and opens the images themselves. Findings come in three weights: `reject`
means that no split of this data can serve, `fix` that the index must change, `warn` that people should know.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from m3b.data.index import Index, Record, counts
from m3b.data.looks import Look, examine, near_pairs

Weight = Literal["reject", "fix", "warn"]
SHOWN = 6
FEWEST_CASES = 8
FEWEST_A_CLASS = 2


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: a stable code, its weight, one sentence, and some of the cases concerned."""

    code: str
    weight: Weight
    message: str
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """What the audit saw and found."""

    findings: tuple[Finding, ...]
    cases: int
    opened: int
    counts: dict[str, dict[str, int]]
    patients: dict[str, int]
    shapes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def of(self, weight: Weight) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.weight == weight)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def summary(self) -> str:
        """Counts in two lines, as agents and people read them."""
        lines = [
            f"{split}: {sum_of(self.counts[split])} labels ({_counts_text(self.counts[split])}), "
            f"{self.patients[split]} patients"
            for split in ("train", "test")
        ]
        return "; ".join(lines) + f". Opened {self.opened} of {self.cases} images."


def sum_of(table: dict[str, int]) -> int:
    return sum(table.values())


def _counts_text(table: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in table.items())


def audit_index(
    index: Index, work: Path, *, seconds: float = 120.0, tick: Callable[[int, int], None] | None = None
) -> Audit:
    """Audit an index and open its images.

    Args:
        work: the folder from which the index's paths count.
        seconds: when this is spent, the rest of the images is left unopened, and the audit says so.
        tick: called with the images opened so far and their total.
    """
    started = time.monotonic()
    findings = [*_vocabulary(index), *_unlabelled(index), *_amounts(index), *_patients(index), *_repeats(index)]
    missing = {record.key: absent for record in index.records if (absent := _absent(record, work))}
    if missing:
        findings.append(_missing_files(missing, len(index.records)))
    looks = _open_all([r for r in index.records if r.key not in missing], work, started + seconds, tick)
    findings += _unreadable(looks, len(index.records))
    findings += _duplicates(index, looks)
    findings += _blank(looks)
    opened = sum(1 for look in looks.values() if not look.error)
    if left := len({record.key for record in index.records} - missing.keys() - looks.keys()):
        findings.append(Finding("not_opened", "warn", f"{left} images were left unopened: {seconds:g} s were spent."))
    return Audit(
        findings=tuple(findings),
        cases=len(index.records),
        opened=opened,
        counts={"train": counts(index.train, index.classes), "test": counts(index.test, index.classes)},
        patients={"train": _people(index.train), "test": _people(index.test)},
        shapes=dict(Counter(look.shape for look in looks.values() if not look.error).most_common(8)),
        seconds=round(time.monotonic() - started, 2),
    )


def _people(records: Sequence[Record]) -> int:
    return len({record.patient for record in records})


def _vocabulary(index: Index) -> list[Finding]:
    unknown: dict[str, list[str]] = defaultdict(list)
    for record in index.records:
        for label in record.labels:
            if label not in index.classes:
                unknown[label].append(record.key)
    if not unknown:
        return []
    names = ", ".join(repr(name) for name in sorted(unknown)[:SHOWN])
    text = f"{len(unknown)} labels are not in label_dict.json ({', '.join(index.classes)}): {names}. Map or drop them."
    return [Finding("unknown_label", "fix", text, _some(key for keys in unknown.values() for key in keys))]


def _unlabelled(index: Index) -> list[Finding]:
    """Cases without a label, where nothing says that several labels, or none, may apply."""
    bare = [record.key for record in index.records if not record.labels]
    if not bare or any(len(record.labels) > 1 for record in index.records):
        return []
    text = (
        f"{len(bare)} of {len(index.records)} cases have no label, and none has two. Leave them out, or give them a "
        "class of their own (such as 'none') if they are known to have none of the findings."
    )
    return [Finding("no_label", "fix", text, _some(bare))]


def _amounts(index: Index) -> list[Finding]:
    findings = []
    together = counts(index.records, index.classes)
    present = [name for name, count in together.items() if count]
    if len(index.classes) < 2 or (len(present) < 2 and not index.multi_label):
        text = (
            f"Only one class has cases ({_counts_text(together)}); a classifier needs at least two. "
            "Check that the label column or the class folders were read, or add data of another class."
        )
        return [Finding("one_class", "reject", text)]
    if len(index.records) < FEWEST_CASES:
        text = f"Only {len(index.records)} cases; at least {FEWEST_CASES} are needed to train and test anything."
        findings.append(Finding("too_few_cases", "reject", text))
    for split, records in (("train", index.train), ("test", index.test)):
        everything = counts(records, index.classes)
        table = {name: everything[name] for name in index.classes}
        absent = [name for name, count in table.items() if not count]
        rare = [f"{name} {count}" for name, count in table.items() if 0 < count < FEWEST_A_CLASS]
        if absent:
            text = f"The {split} split has no case of: {', '.join(absent)}. Split again, stratified by label."
            findings.append(Finding(f"class_absent_{split}", "fix", text))
        if rare:
            text = f"The {split} split has fewer than {FEWEST_A_CLASS} cases of: {', '.join(rare)}."
            findings.append(Finding(f"class_rare_{split}", "warn", text))
    if 0 < len(index.test) < 20:
        text = f"The test split has {len(index.test)} cases: whatever is measured on it will be uncertain."
        findings.append(Finding("small_test", "warn", text))
    return findings


def _patients(index: Index) -> list[Finding]:
    both = {record.patient for record in index.train} & {record.patient for record in index.test}
    findings = []
    if both:
        some = ", ".join(sorted(both)[:SHOWN])
        text = f"{len(both)} patients are in train and in test ({some}). Split by patient, whole patients to one side."
        findings.append(Finding("patient_overlap", "fix", text))
    if len(index.records) > 50 and _people(index.records) == 1:
        text = "All cases have the same patient; if patients are unknown, give each case a patient of its own."
        findings.append(Finding("one_patient", "fix", text))
    return findings


def _repeats(index: Index) -> list[Finding]:
    times = Counter(record.key for record in index.records)
    twice = [key for key, count in times.items() if count > 1]
    if not twice:
        return []
    labels: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for record in index.records:
        labels[record.key].add(record.labels)
    torn = [key for key in twice if len(labels[key]) > 1]
    if torn:
        text = f"{len(torn)} images are listed with different labels. Leave them out or find the right label."
        return [Finding("contradiction", "fix", text, _some(torn))]
    return [Finding("repeated", "fix", f"{len(twice)} images are listed more than once.", _some(twice))]


def _absent(record: Record, work: Path) -> str:
    return next((path for path in record.files if not (work / path).exists()), "")


def _missing_files(missing: dict[str, str], total: int) -> Finding:
    text = (
        f"{len(missing)} of {total} cases name files that are not there, e.g. {next(iter(missing.values()))}. "
        "Leave out rows without a file, or mend the paths (they count from the working directory)."
    )
    return Finding("missing_file", "fix", text, _some(missing.values()))


def _open_all(
    records: Sequence[Record], work: Path, deadline: float, tick: Callable[[int, int], None] | None
) -> dict[str, Look]:
    looks: dict[str, Look] = {}
    for number, record in enumerate(_interleaved(records)):
        if time.monotonic() > deadline:
            break
        if record.key not in looks:
            looks[record.key] = examine(record.image, work)
        if tick and number and number % 50 == 0:
            tick(number, len(records))
    return looks


def _interleaved(records: Sequence[Record]) -> Iterable[Record]:
    """A spread-out order, so that a cut-off audit has seen a sample of everything rather than the first class."""
    step = max(1, int(len(records) ** 0.5))
    for start in range(step):
        yield from records[start::step]


def _unreadable(looks: dict[str, Look], total: int) -> list[Finding]:
    bad = {key: look.error for key, look in looks.items() if look.error}
    if not bad:
        return []
    first = next(iter(bad.values()))
    if len(bad) == len(looks):
        text = f"None of the {len(bad)} images opens. The first says: {first}"
        return [Finding("nothing_opens", "reject", text, _some(bad))]
    text = f"{len(bad)} of {total} images do not open; leave them out. The first says: {first}"
    return [Finding("unreadable", "fix", text, _some(bad))]


def _blank(looks: dict[str, Look]) -> list[Finding]:
    flat = [key for key, look in looks.items() if look.flat]
    if not flat:
        return []
    return [Finding("blank", "warn", f"{len(flat)} images have a single grey value throughout.", _some(flat))]


def _duplicates(index: Index, looks: dict[str, Look]) -> list[Finding]:
    train = {record.key for record in index.train}
    label_of = {record.key: record.labels for record in index.records}
    patient_of = {record.key: record.patient for record in index.records}
    groups: dict[str, list[str]] = defaultdict(list)
    for key, look in looks.items():
        if not look.error and not look.flat:
            groups[look.digest].append(key)
    same = [group for group in groups.values() if len(group) > 1]
    findings = []
    torn = [group for group in same if len({label_of[key] for key in group}) > 1]
    across = [group for group in same if len({key in train for key in group}) > 1]
    if torn:
        text = (
            f"{len(torn)} images occur under different labels (same pixels), e.g. {' and '.join(torn[0][:2])}. "
            "Nobody can learn from them: leave all copies out."
        )
        findings.append(Finding("same_image_two_classes", "fix", text, _some(k for group in torn for k in group)))
    if across:
        text = (
            f"{len(across)} images are in train and in test with the same pixels. Keep one copy of each, on one side."
        )
        findings.append(Finding("duplicate_across", "fix", text, _some(key for group in across for key in group)))
    apart = {id(group) for group in (*torn, *across)}
    within = [group for group in same if id(group) not in apart]
    if within:
        text = f"{len(within)} groups of images have the same pixels on one side of the split."
        findings.append(Finding("duplicate_within", "warn", text, _some(key for group in within for key in group)))
    pairs = [pair for pair in near_pairs(looks) if (pair[0] in train) != (pair[1] in train)]
    pairs = [pair for pair in pairs if patient_of[pair[0]] != patient_of[pair[1]]]
    if pairs:
        text = (
            f"{len(pairs)} pairs of nearly the same image lie on both sides of the split under different patients, "
            f"e.g. {pairs[0][0]} and {pairs[0][1]}. The test figure may be too high."
        )
        findings.append(Finding("near_duplicate_across", "warn", text, _some(key for pair in pairs for key in pair)))
    return findings


def _some(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(keys))[:SHOWN]
