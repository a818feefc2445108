"""The audit of images of which it is only known whether they are abnormal."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.data.audit_classes import few_patients
from m3b.data.audit_common import MIN_A_CLASS, Finding
from m3b.data.index import Index, Record

STATES = ("normal", "abnormal")


def before_opening(index: Index) -> list[Finding]:
    """Too few people, or a test part in which one of the two states does not occur; training may do without abnormal images."""
    return [*few_patients(index), *_one_class(index), *_absent(index)]


def counts(records: Sequence[Record], classes: Sequence[str]) -> dict[str, int]:
    """Abnormal cases, under the name of the anomaly."""
    return dict.fromkeys(classes, sum(is_abnormal(record) for record in records))


def is_abnormal(record: Record) -> bool:
    """What the index says of an image."""
    return bool(record.extra["abnormal"])


def normal_only() -> Finding:
    """What is said where nothing abnormal can be learnt from."""
    text = "No training image is abnormal: the model learns what is normal, and calls abnormal what is unlike it."
    return Finding("normal_only", "warn", text)


def _one_class(index: Index) -> list[Finding]:
    if len(index.classes) == 1:
        return []
    text = (
        f"label_dict.json names {', '.join(index.classes)}; where records say `abnormal` it names one, what is not normal: "
        '{"anomaly": 0}.'
    )
    return [Finding("one_anomaly", "fix", text)]


def _absent(index: Index) -> list[Finding]:
    findings = []
    for split, records in (("train", index.train), ("test", index.test)):
        ill = sum(is_abnormal(record) for record in records)
        for state, found in zip(STATES, (len(records) - ill, ill), strict=True):
            if found == 0 and (split == "test" or state == "normal"):
                text = f"The {split} split has no {state} image. Split again so that it has."
                findings.append(Finding(f"state_absent_{split}", "fix", text))
            elif found == 0:
                findings.append(normal_only())
            elif found < MIN_A_CLASS and split == "test":
                text = f"The test split has {found} {state} images only: what is measured says little."
                findings.append(Finding("state_rare_test", "warn", text))
    return findings
