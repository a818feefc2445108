"""What all checks of the audit share: findings, the data that a check looks at, and the class `AuditCheck`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from m3b.data import kinds
from m3b.data.index import Index, counts, names_in
from m3b.data.kinds.survival import had_event
from m3b.data.records import Record
from m3b.dataset.audit.probes import ImageProbe, MaskProbe, unit_keys

Severity = Literal["reject", "fix", "warn"]
"""`reject`: no split of this data can serve. `fix`: the index must change. `warn`: people should know."""
MAX_EXAMPLES = 6
"""Cases and names that a finding lists."""
MARKS = ("masks", "boxes")
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Finding:
    """One problem of the data.

    Args:
        code: stable, for programs.
        message: what was found and what it means, for people.
        remedy: what to do about it, for the author of the index.
        cases: short names of some of the cases.
        absent: classes that may be dropped, since they are marked nowhere and nothing else is marked.
    """

    code: str
    severity: Severity
    message: str
    remedy: str = ""
    cases: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def agent_message(self) -> str:
        """The message with the remedy."""
        return f"{self.message} {self.remedy}".rstrip()

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "weight": self.severity, "message": self.agent_message, "told": self.message,
                "cases": list(self.cases), "absent": list(self.absent)}  # fmt: skip


@dataclass(frozen=True)
class IndexRequest:
    """What an index is compared with.

    Args:
        request: the user's words; empty if nobody asked.
        metric: by which the model is judged; empty for the task's own.
    """

    request: str = ""
    metric: str = ""


NO_REQUEST = IndexRequest()


@dataclass(frozen=True)
class AuditData:
    """What a check looks at: the index, the request, and what was seen of each image.

    Args:
        work: the folder from which the index's paths count.
        probes: by the paths of the image (`unit_keys`), of images that opened or failed to.
        is_complete: whether every image was opened, so that what was not seen is not there.
    """

    index: Index
    work: Path
    request: IndexRequest = NO_REQUEST
    probes: Mapping[str, ImageProbe] = field(default_factory=dict)
    is_complete: bool = False

    @cached_property
    def target(self) -> str:
        """What is to be learnt: `masks`, `boxes`, `states`, or what the task names (`labels`, `value`, `report`, ...)."""
        index = self.index
        if index.stated:
            return "states"
        if index.boxed or index.masked:
            return "boxes" if index.boxed else "masks"
        return next(iter(kinds.of(index.task).targets), "")

    @cached_property
    def splits(self) -> dict[str, tuple[Record, ...]]:
        return {"train": self.index.train, "test": self.index.test}

    @cached_property
    def patient_count(self) -> int:
        return count_patients(self.index.records)

    @cached_property
    def readable_images(self) -> Mapping[str, ImageProbe]:
        """The images that opened, in the order of the index."""
        if not any(probe.error for probe in self.probes.values()):
            return self.probes
        return {key: probe for key, probe in self.probes.items() if not probe.error}

    @cached_property
    def masks(self) -> dict[str, MaskProbe]:
        """The masks that were looked at, by the paths of their image."""
        return {key: probe.mask for key, probe in self.probes.items() if probe.mask is not None}

    @cached_property
    def readable_masks(self) -> dict[str, MaskProbe]:
        return {key: mask for key, mask in self.masks.items() if not mask.error}

    @cached_property
    def owners(self) -> dict[str, Record]:
        """The case of each image."""
        return {key: record for record in self.index.records for key in unit_keys(record, self.index.task)}

    @cached_property
    def near_copies(self) -> list[tuple[str, str]]:
        """Pairs of a training and a test image that are nearly the same; derived images are compared first."""
        from m3b.dataset.similarity import find_near_copies

        return find_near_copies(self.readable_images, *self.compared_keys)

    @cached_property
    def compared_keys(self) -> tuple[list[str], list[str]]:
        """Training and test images in the order in which they are compared: derived ones first."""
        keys = sorted(self.owners, key=lambda key: not is_derived(self.owners[key]))
        training_keys = {key for record in self.index.train for key in unit_keys(record, self.index.task)}
        return [key for key in keys if key in training_keys], [key for key in keys if key not in training_keys]

    @property
    def values_text(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.index.values.items())

    def classes_of(self, record: Record) -> Collection[str]:
        """Return the classes that are marked in a case, of masks as far as they were opened."""
        if self.target == "masks":
            mask = self.masks.get(record.key)
            return {name for name, voxels in mask.class_voxels.items() if voxels} if mask else ()
        if self.target == "states":
            return self.index.classes if record.extra["abnormal"] else ()
        return names_in(record)

    def count_classes(self) -> dict[str, dict[str, int]]:
        """Return split -> class -> cases."""
        return {split: self._count_classes(records) for split, records in self.splits.items()}

    def _count_classes(self, records: Sequence[Record]) -> dict[str, int]:
        if self.target == "survival":
            events = sum(map(had_event, records))
            return {"event": events, "censored": len(records) - events}
        if self.target == "value":
            return dict.fromkeys(self.index.classes, len(records))
        if self.target in ("masks", "states"):
            marked = [self.classes_of(record) for record in records]
            return {name: sum(name in classes for classes in marked) for name in self.index.classes}
        return counts(records, self.index.classes)

    @cached_property
    def class_patients(self) -> dict[str, int]:
        """Class -> patients that have it."""
        return self.count_class_patients(self.index.records)

    def count_class_patients(self, records: Sequence[Record]) -> dict[str, int]:
        """Return class -> patients that have it in some of these cases."""
        marked = [(record, self.classes_of(record)) for record in records]
        return {name: count_patients([record for record, classes in marked if name in classes])
                for name in self.index.classes}  # fmt: skip

    @cached_property
    def _common_folder(self) -> str:
        files = [path for record in self.index.records for path in (*record.files, *record.targets)]
        common = os.path.commonpath({os.path.dirname(path) for path in files} or {""}) if files else ""
        return f"{common}/" if common else ""

    def shorten(self, key: str) -> str:
        """Return a short name of a case or file: its path below the folder of all files, and how many others follow."""
        first, *more_keys = key.split("|")
        return first.removeprefix(self._common_folder) + (f" (+{len(more_keys)})" if more_keys else "")

    def shorten_all(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the short names of the first few, each once."""
        return tuple(dict.fromkeys(map(self.shorten, keys)))[:MAX_EXAMPLES]


class AuditCheck(ABC):
    """A check of the data before anything is trained. Stateless; `register` makes it known.

    Attributes:
        code: of its findings.
        severity: of its findings.
        tasks, targets: its scope: tasks, and kinds of targets (`AuditData.target`), for which it runs; empty for all.
        needs_images: whether it looks at what was opened; it then runs only if at least one image opens.
        remedy: what to do, for the author of the index.
        explained_by: codes of findings that explain those of this check, which are left out then.
    """

    code: str = ""
    severity: Severity = "warn"
    tasks: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    needs_images: bool = False
    remedy: str = ""
    explained_by: tuple[str, ...] = ()

    @abstractmethod
    def find(self, data: AuditData) -> Iterator[Finding]:
        """Yield the findings, one for all cases with the problem."""

    def applies_to(self, data: AuditData) -> bool:
        """Return whether the check runs for an index."""
        is_in_scope = not self.tasks or data.index.task in self.tasks
        return is_in_scope and (not self.targets or data.target in self.targets) and (
            not self.needs_images or bool(data.readable_images)
        )  # fmt: skip

    def make_finding(
        self, message: str, cases: Iterable[str] = (), *, remedy: str | None = None, severity: Severity | None = None
    ) -> Finding:
        """Return a finding of this check; `remedy` and `severity` replace its own."""
        return Finding(
            self.code,
            severity or self.severity,
            message,
            self.remedy if remedy is None else remedy,
            tuple(dict.fromkeys(cases))[:MAX_EXAMPLES],
        )

    def register(self) -> None:
        """Add the check to those of m3b.

        Raises:
            ValueError: it has no code, or another added check of the same scope has it.
        """
        if not self.code:
            raise ValueError(f"{type(self).__name__} has no code; set the attribute `code`.")
        scope = (self.code, self.tasks, self.targets)
        for present in ADDED_CHECKS:
            if (present.code, present.tasks, present.targets) == scope:
                if type(present) is type(self):
                    return
                raise ValueError(f"There is a check {self.code!r} already; choose another code.")
        ADDED_CHECKS.append(self)

    def unregister(self) -> None:
        """Remove the check again."""
        ADDED_CHECKS.remove(self)


ADDED_CHECKS: list[AuditCheck] = []
"""Checks of users, task families and installed packages."""


def join_names(names: Iterable[object]) -> str:
    """Return the first few names, as text."""
    return ", ".join(list(dict.fromkeys(map(str, names)))[:MAX_EXAMPLES])


def count_patients(records: Iterable[Record]) -> int:
    return len({record.patient for record in records})


def is_derived(record: Record) -> bool:
    """Return whether a script of a run wrote an image of this case; raw data is below `data/`."""
    return any(not path.startswith("data/") for path in record.files)
