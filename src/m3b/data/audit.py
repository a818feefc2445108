"""The data audit: what is wrong with a data set before anybody trains on it.

Runs on an index (train, test, labels) and opens the images and masks themselves. Findings come in three weights:
`reject` means that no split of this data can serve, `fix` that the index must change, `warn` that people should know.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from m3b.data import audit_images, audit_kinds, kinds
from m3b.data.audit_common import (
    MIN_A_CLASS,
    SHOWN,
    Finding,
    Weight,
    counts_text,
    missing,
    patients,
    people,
    repeats,
    told_patients,
    unit_keys,
)
from m3b.data.audit_images import Looks, Tick
from m3b.data.audit_labels import MIN_CASES
from m3b.data.audit_meaning import IndexRequest
from m3b.data.index import Index

__all__ = ["MIN_A_CLASS", "MIN_CASES", "SHOWN", "IndexRequest", "Audit", "Finding", "Weight", "audit_index", "sum_of"]


NOBODY = IndexRequest()
"""An index that is audited for no request."""


@dataclass(frozen=True)
class Audit:
    """What the audit saw and found.

    Args:
        counts: cases a class by split; of masks those in which the class occurs, as far as they were opened.
        split: cases by split.
        patients: different ones by split; of unknown patients, groups of images that are kept together.
        patients_known: whether the index says whose each case is.
    """

    findings: tuple[Finding, ...]
    cases: int
    opened: int
    counts: dict[str, dict[str, int]]
    patients: dict[str, int]
    shapes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    task: str = "diagnosis"
    split: dict[str, int] = field(default_factory=dict)
    patients_known: bool = True

    def of(self, weight: Weight) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.weight == weight)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def summary(self) -> str:
        """Counts in two lines, as agents and people read them."""
        lines, of_task = [], kinds.of(self.task)
        for split in ("train", "test"):
            table = self.counts[split]
            what = f"{sum_of(table)} labels" if of_task.counts_labels else f"{self.split.get(split, 0)} cases"
            shown = f" ({counts_text(table)})" if table else ""
            lines.append(f"{split}: {what}{shown}, {told_patients(self.patients[split], known=self.patients_known)}")
        return "; ".join(lines) + f". Opened {self.opened} of {self.cases} {of_task.cases_word}."


def sum_of(table: dict[str, int]) -> int:
    return sum(table.values())


def audit_index(
    index: Index, work: Path, *, asked: IndexRequest = NOBODY, seconds: float = 120.0, tick: Tick | None = None
) -> Audit:
    """Audit an index and open its images and masks, each once.

    Args:
        work: the folder from which the index's paths count.
        asked: what the index is for.
        seconds: when this is spent, the rest of the images is left unopened, and the audit says so.
        tick: called with the images opened so far and their total.
    """
    started, mine = time.monotonic(), audit_kinds.of(index.task)
    findings = [*mine.before(index), *mine.asked(index, asked), *patients(index), *repeats(index)]
    absent, faults = missing(index, work)
    looks = audit_images.open_all(index, work, absent, started + seconds, tick)
    everything = {key for record in index.records if record.key not in absent for key in unit_keys(record, index.task)}
    left = len(everything - looks.keys())
    in_run = (work / "data").is_dir()
    findings += [*faults, *audit_images.images(index, looks, in_run=in_run, volumes=mine.volumes)]
    if looks and not all(look.error for look in looks.values()):
        findings += mine.after(index, looks, complete=not left)
    if left:
        findings.append(Finding("not_opened", "warn", f"{left} images were left unopened: {seconds:g} s were spent."))
    return Audit(
        findings=tuple(findings),
        cases=len(index.records),
        opened=_opened(index, looks),
        counts=mine.counts(index, looks),
        patients={"train": people(index.train), "test": people(index.test)},
        shapes=dict(Counter(look.shape for look in looks.values() if not look.error).most_common(8)),
        seconds=round(time.monotonic() - started, 2),
        task=index.task,
        split={"train": len(index.train), "test": len(index.test)},
        patients_known=index.patients_known,
    )


def _opened(index: Index, looks: Looks) -> int:
    """Cases of which every image opened."""
    return len(
        {
            record.key
            for record in index.records
            if all(key in looks and not looks[key].error for key in unit_keys(record, index.task))
        }
    )
