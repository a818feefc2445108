"""Executing a spec: from a data folder and a reading of it to an index, with every file accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.index import LABELS, TEST, TRAIN, write_records
from m3b.data.records import BoxLabel, Mask, Record, Report
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.cases import Case, Folder, build_cases
from m3b.data.spec.channels import stacked
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.model import Files, IndexSpec, Text, Value
from m3b.data.spec.opened import COPY, UNREADABLE, NothingOpens, open_all
from m3b.data.spec.places import ACCOUNTING
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.data.spec.split import Unit, draw, together
from m3b.data.survey.keys import key as normal
from m3b.errors import DataError


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
            "crossing": self.crossing,
            "named_but_absent": self.missing,
            "notes": list(self.notes),
        }


@dataclass
class _Entry:
    """A case and what was found for it."""

    case: Case
    record: Record
    side: str = ""
    keys: tuple[str, ...] = ()


@dataclass
class _Work:
    spec: IndexSpec
    root: Path
    name: str
    work: Path
    folder: Folder
    sources: Sources
    accounting: Accounting
    notes: list[str] = field(default_factory=list)


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
    folder = Folder(root, files, readers.lookup)
    accounting = Accounting(total=len(files))
    sources = Sources(folder, readers.rows, readers.lines, accounting)
    job = _Work(spec, root, name, work, folder, sources, accounting)
    cases = build_cases(folder, spec.images, accounting, _keys(spec))
    entries = _entries(job, cases)
    if not entries:
        first = next(iter(accounting.reasons()), "no reason is known")
        raise DataError(f"None of the {len(cases)} cases can be used: {first}.")
    train, test, crossing = _sides(job, entries)
    _leave_rest(job, files)
    missing = sum(len(sources.keys_of(one)) for one in _tables(spec)[:1]) - len(entries) if _tables(spec) else 0
    return Executed(
        spec, tuple(train), tuple(test), _values(spec), accounting, spec.patient is not None, crossing,
        max(0, missing), tuple(job.notes),
    )  # fmt: skip


def write(executed: Executed, work: Path) -> None:
    """The three index files, and what was used and left out."""
    task = executed.spec.task
    write_records(work / TRAIN, executed.train, task)
    write_records(work / TEST, executed.test, task)
    (work / LABELS).write_text(json.dumps(executed.values, ensure_ascii=False), encoding="utf-8")
    (work / ACCOUNTING).write_text(json.dumps(executed.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")


def _entries(job: _Work, cases: Sequence[Case]) -> list[_Entry]:
    spec = job.spec
    prefix = f"data/{job.name}/"
    masks = MaskSource(spec.masks, job.folder, job.accounting, prefix, job.work, cases) if spec.masks else None
    boxes = BoxSource(spec.boxes, job.folder, job.accounting) if spec.boxes else None
    entries = []
    for case in cases:
        try:
            record = _record(job, case, masks, boxes)
        except LeaveOut as reason:
            job.accounting.leave(case.files, str(reason))
            continue
        job.accounting.use(case.files, "image")
        entries.append(_Entry(case, record))
    if masks is not None:
        masks.leave_unmatched()
    if boxes is not None:
        job.notes += [f"{count} boxes left out: {reason}" for reason, count in boxes.notes.items()]
    return entries


def _record(job: _Work, case: Case, masks: MaskSource | None, boxes: BoxSource | None) -> Record:
    spec = job.spec
    labels: tuple[str, ...] = ()
    if spec.labels is not None:
        try:
            labels = labels_of(spec.labels, job.sources, case)
        except LeaveOut:
            if spec.task == "diagnosis":
                raise  # a report may do without labels
    mask: Mask | None = masks.mask_of(case) if masks is not None else None
    marked: tuple[BoxLabel, ...] | None = boxes.boxes_of(case) if boxes is not None else None
    report = _report(spec.report, job.sources, case) if spec.report is not None else None
    patient = _patient(job, case)
    return Record(_image(job, case), labels, patient, mask, marked, report)


def _image(job: _Work, case: Case) -> str | tuple[str, ...]:
    prefix = f"data/{job.name}/"
    if case.channels:
        return stacked(job.root, [one.reference for one in case.channels.values()], job.work)
    if case.folder is not None:
        return prefix + case.folder
    paths = tuple(prefix + item.reference for item in case.items)
    return paths[0] if len(paths) == 1 and job.spec.images.several == "one" else paths


def _report(text: Text, sources: Sources, case: Case) -> Report:
    parts = [sources.text(one, case) if one is not None else None for one in (text.findings, text.impression)]
    if not any(part and part.strip() for part in parts):
        raise LeaveOut("no report")
    return Report(*((part or "").strip() for part in parts))


def _patient(job: _Work, case: Case) -> str:
    """Whose case it is; of unknown patients, a name that no other case has."""
    if job.spec.patient is None:
        return f"case {case.key}"
    found = job.sources.text(job.spec.patient, case)
    if not found:
        raise LeaveOut("no patient is known")
    return found


def _sides(job: _Work, entries: list[_Entry]) -> tuple[list[Record], list[Record], int]:
    """Training and test records; the data set's own split where the spec names one, else a drawn one."""
    spec = job.spec
    own = _own(job, spec.split.source, entries) if spec.split.source is not None else []
    entries, own, copies = _opened(job, entries, own)
    groups = together([
        (e.record.patient, copy, *_texts(job, spec.together, e.case)) for e, copy in zip(entries, copies, strict=True)
    ])  # fmt: skip
    if own and not {"train", "test"} <= set(own):
        job.notes.append(
            "the data set's own split leaves one part without cases that have a target: a new one is drawn"
        )
        own = []
    if not own:
        held = draw([Unit(g, _classes(e.record)) for g, e in zip(groups, entries, strict=True)], spec.split.share,
                    spec.split.seed)  # fmt: skip
        sides, crossing = ["test" if group in held else "train" for group in groups], 0
    else:
        for entry, side in zip(entries, own, strict=True):
            if not side:
                _unused(job, entry.case, "on no side of the data set's own split")
        sides, crossing = _without_crossing(job, own, groups, entries)
    named = _patients(spec, groups, entries)
    train = [r for r, side in zip(named, sides, strict=True) if side == "train"]
    test = [r for r, side in zip(named, sides, strict=True) if side == "test"]
    if not train or not test:
        raise DataError(f"The split leaves {len(train)} cases for training and {len(test)} for testing.")
    return train, test, crossing


def _opened(job: _Work, entries: list[_Entry], own: list[str]) -> tuple[list[_Entry], list[str], list[str]]:
    """The cases whose images open and are no copies, their sides, and a key that the patients of copies share."""
    images = [[e.case.folder] if e.case.folder else [i.reference for i in (*e.case.items, *e.case.channels.values())]
              for e in entries]  # fmt: skip
    looked = open_all(
        job.root, images, [e.record for e in entries], [side == "test" for side in own] or [False] * len(entries)
    )
    if looked.unopened:
        job.notes.append(f"{looked.unopened:,} images were not opened, for lack of time")
    for place, reason in looked.reasons.items():
        if reason != COPY or job.spec.copies:
            _unused(job, entries[place].case, reason)
    kept = [place for place in range(len(entries)) if place not in looked.reasons or
            (looked.reasons[place] == COPY and not job.spec.copies)]  # fmt: skip
    if not kept and set(looked.reasons.values()) == {UNREADABLE}:
        raise NothingOpens(
            f"No image of this data set opens ({len(entries)} were tried, e.g. {entries[0].case.name}). Check the files, or "
            "export them again."
        )
    if not kept:
        raise DataError(f"None of the {len(entries)} cases can be used: {next(iter(looked.reasons.values()))}.")
    return [entries[p] for p in kept], [own[p] for p in kept] if own else [], [looked.pixels[p] for p in kept]


def _without_crossing(
    job: _Work, sides: list[str], groups: Sequence[str], entries: Sequence[_Entry]
) -> tuple[list[str], int]:
    """Training cases of a patient, or copies of a picture, in the data set's own test part are left out."""
    tested = {group for group, side in zip(groups, sides, strict=True) if side == "test"}
    found = list(sides)
    crossing = set()
    for place, (group, side) in enumerate(zip(groups, sides, strict=True)):
        if side == "train" and group in tested:
            crossing.add(group)
            found[place] = ""
            _unused(job, entries[place].case, "its patient, or a copy of it, is in the data set's own test part")
    return found, len(crossing)


def _unused(job: _Work, case: Case, reason: str) -> None:
    for path in case.files:
        job.accounting.used.pop(path, None)
    job.accounting.leave(case.files, reason)


def _patients(spec: IndexSpec, groups: Sequence[str], entries: Sequence[_Entry]) -> list[Record]:
    """Records whose patient is that of their group: of unknown patients, copies of one picture count as one person."""
    from dataclasses import replace

    if spec.patient is not None:
        return [entry.record for entry in entries]
    numbers = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    return [replace(e.record, patient=f"unknown-{numbers[g]:06d}") for g, e in zip(groups, entries, strict=True)]


def _own(job: _Work, source: Value, entries: Sequence[_Entry]) -> list[str]:
    """Each case's side by the data set's own split; `""` for cases on neither, which are left out."""
    split = job.spec.split
    meaning = {normal("exact", text): side for side, texts in (("train", split.train), ("train", split.val),
                                                               ("test", split.test)) for text in texts}  # fmt: skip
    sides = []
    for entry in entries:
        text = job.sources.text(source, entry.case)
        side = meaning.get(normal("exact", text), "") if text is not None else ""
        sides.append(side)
    return sides


def _texts(job: _Work, values: Sequence[Value], case: Case) -> list[str]:
    return [job.sources.text(value, case) or "" for value in values]


def _classes(record: Record) -> tuple[str, ...]:
    if record.boxes is not None:
        return tuple(dict.fromkeys(one.label for one in record.boxes))
    if isinstance(record.mask, Mapping):
        return tuple(record.mask)
    if record.mask is not None:
        return ("marked",)
    return record.labels


def _values(spec: IndexSpec) -> dict[str, int]:
    if spec.masks is not None:
        start = enumerate(spec.masks.classes, 1)
        return {name: at for at, name in start} if spec.masks.combine == "classes" else dict(spec.masks.classes)
    return {name: at for at, name in enumerate(spec.classes)}


def _leave_rest(job: _Work, files: Sequence[str]) -> None:
    """Every file that nothing has named: by the spec's reasons first."""
    for one in job.spec.left_out:
        job.accounting.leave((item.path for item in job.folder.items(Files(pattern=one.pattern))), one.reason)
    rest = [path for path in files if path not in job.accounting.used and path not in job.accounting.left]
    documents = [path for path in rest if Path(path).suffix.lower() in (".md", ".txt", ".pdf", ".rst", "")]
    job.accounting.leave(documents, "a document")
    job.accounting.leave(rest, "not named by this reading of the folder")


def _tables(spec: IndexSpec) -> list[Any]:
    sources = list(spec.labels.sources) if spec.labels else []
    return [one for one in sources if one.kind == "table"]


def _keys(spec: IndexSpec) -> list[str]:
    """Every key of the spec that speaks of image files, for the slots that they need."""
    values: list[Any] = [spec.patient, spec.split.source, *spec.together]
    values += list(spec.labels.sources) if spec.labels else []
    values += [spec.report.findings, spec.report.impression] if spec.report else []
    keys = [getattr(one, "image", "") or getattr(one, "value", "") for one in values if one is not None]
    keys += [f"{{tag.{one.keyword}}}" for one in values if one is not None and one.kind == "tag"]
    keys += [spec.masks.image or spec.masks.case] if spec.masks else []
    return [*keys, *([spec.boxes.image] if spec.boxes else [])]


def class_counts(records: Sequence[Record]) -> Counter[str]:
    """Cases a class."""
    return Counter(name for record in records for name in _classes(record))
