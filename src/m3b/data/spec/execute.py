"""Executing a spec: from a data folder and a reading of it to an index, with every file accounted for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data import kinds
from m3b.data.index import LABELS, TEST, TRAIN, write_records
from m3b.data.records import Record
from m3b.data.sides import WITH_SIDES, sides
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import build_cases
from m3b.data.spec.entries import entries_of
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.grouping import grouped_by
from m3b.data.spec.job import SpecExecution
from m3b.data.spec.model import Files, IndexSpec
from m3b.data.spec.places import ACCOUNTING
from m3b.data.spec.prompted import ORIGIN, listed
from m3b.data.spec.readers import Readers
from m3b.data.spec.sides import sides_of
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

NOT_UTF8 = "its path is not UTF-8; rename it"


@dataclass(frozen=True)
class Executed:
    """An index as a spec makes it.

    Args:
        values: class -> number, as in label_dict.json.
        patients: whether the spec says whose each case is; if not, each group of copies counts as a person.
        crossing: patients or copies on both sides of the data set's own split.
        missing: names that tables and lists give and no file has.
    """

    spec: IndexSpec
    train: tuple[Record, ...]
    test: tuple[Record, ...]
    values: dict[str, int]
    accounting: Accounting
    patients: bool
    crossing: int = 0
    missing: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the run's record: the spec, the accounting, and what is known of patients."""
        return {
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "accounting": self.accounting.to_json(),
            "patients": "known" if self.patients else "unknown",
            "grouped_by": grouped_by(self.spec),
            "crossing": self.crossing,
            "named_but_absent": self.missing,
            "notes": list(self.notes),
        }


def execute(spec: IndexSpec, root: Path, *, name: str, work: Path, readers: Readers | None = None) -> Executed:
    """Make the records of both parts.

    Args:
        root: the data folder.
        name: of the data card: records name files as `data/<name>/...`.
        work: the working directory; derived masks are written below it.

    Raises:
        DataError: the spec does not fit the folder; the message names the part of the spec and what there is.
    """
    readers = readers or Readers(root)
    files = readers.files()
    folder = DataFolder(root, files, readers.lookup)
    accounting = Accounting(total=len(files) + len(readers.undecodable))
    accounting.leave(readers.undecodable, NOT_UTF8)
    sources = Sources(folder, readers.rows, readers.lines, accounting)
    origins = ORIGIN in kinds.of(spec.task).properties()
    job = SpecExecution(spec, root, name, work, folder, sources, accounting, prompted=listed(work) if origins else {})
    cases = build_cases(folder, spec.images, accounting, slots_needed(spec))
    entries = entries_of(job, cases)
    if not entries:
        first = next(iter(accounting.reasons()), "no reason is known")
        raise DataError(f"None of the {len(cases)} cases can be used: {first}.")
    train, test, crossing = sides_of(job, entries)
    _leave_rest(job, files)
    missing = sum(sources.absent(one, cases) for one in _tables(spec)[:1])
    return Executed(
        spec, tuple(train), tuple(test), _values(spec), accounting, spec.patient is not None, crossing,
        missing, tuple(job.notes),
    )  # fmt: skip


def write(executed: Executed, work: Path) -> None:
    """The three index files, and what was used and left out."""
    task = executed.spec.task
    write_records(work / TRAIN, executed.train, task)
    write_records(work / TEST, executed.test, task)
    (work / LABELS).write_text(json.dumps(executed.values, ensure_ascii=False), encoding="utf-8")
    (work / ACCOUNTING).write_text(json.dumps(executed.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")


def _values(spec: IndexSpec) -> dict[str, int]:
    if spec.masks is not None:
        start = enumerate(spec.masks.classes, 1)
        return {name: at for at, name in start} if spec.masks.combine == "classes" else dict(spec.masks.classes)
    return {name: at for at, name in enumerate(spec.classes)}


def _leave_rest(job: SpecExecution, files: Sequence[str]) -> None:
    """Every file that nothing has named: by the spec's reasons first."""
    for one in job.spec.left_out:
        job.accounting.leave(
            (item.path for item in job.folder.items(Files(pattern=one.pattern, tags=one.tags))), one.reason
        )
    _follow_headers(job)
    job.accounting.leave_rest(files, "not named by this reading of the folder")


def _follow_headers(job: SpecExecution) -> None:
    """Files that a header names as its data (`case.raw` of `case.mhd`) are used, or left out, with it."""
    accounting, there = job.accounting, set(job.folder.files)
    for path in [*accounting.used, *accounting.left]:
        if Path(path).suffix.lower() not in WITH_SIDES:
            continue
        try:
            named = sides(job.root / path)
        except (DataError, OSError):
            continue  # an image that does not open is told elsewhere
        folder = path.rpartition("/")[0]
        mine = there & {f"{folder}/{name}".lstrip("/") for name in named}
        if path in accounting.used:
            accounting.use(mine, accounting.used[path])
        else:
            accounting.leave(mine, accounting.left[path])


def _tables(spec: IndexSpec) -> list[Any]:
    sources = list(spec.labels.sources) if spec.labels else [spec.value.source] if spec.value else []
    sources += [spec.survival.time.source] if spec.survival else []
    return [one for one in sources if one.kind == "table"]


def slots_needed(spec: IndexSpec) -> list[str]:
    """Every key of the spec that speaks of image files, for the slots that they need."""
    values: list[Any] = [spec.patient, spec.split.source, *spec.together, *spec.attributes.values()]
    values += [one.source for one in spec.covariates.values()]
    values += [one.source for one in spec.only]
    values += list(spec.labels.sources) if spec.labels else []
    values += [spec.value.source] if spec.value else []
    values += [spec.states.source] if spec.states else []
    values += [spec.survival.time.source, spec.survival.event] if spec.survival else []
    values += [spec.report.findings, spec.report.impression] if spec.report else []
    values += [through for one in values if (through := getattr(one, "through", None)) is not None]
    keys = [getattr(one, "image", "") or getattr(one, "value", "") for one in values if one is not None]
    keys += [f"{{tag.{one.keyword}}}" for one in values if one is not None and one.kind == "tag"]
    keys += [spec.masks.image or spec.masks.case] if spec.masks else []
    return [*keys, *([spec.boxes.image] if spec.boxes else [])]
