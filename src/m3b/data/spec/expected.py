"""What an index would hold by a spec, told before any image is opened: cases, classes and patients of both parts.

Copies and images that do not open are known later alone, so that an executed index may hold fewer cases, and where m3b draws
the split, a case may be on the other side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data import kinds
from m3b.data.index import format_patient_count
from m3b.data.kinds.survival import EVENT
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.cases import CaseDraft, build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.model import IndexSpec, Value
from m3b.data.spec.name_series import torn
from m3b.data.spec.numbers import number_of
from m3b.data.spec.only import meant
from m3b.data.spec.readers import Readers
from m3b.data.spec.sides import own_side
from m3b.data.spec.sources import Sources
from m3b.data.spec.split import Unit, draw, fifths, together
from m3b.data.spec.states import is_abnormal
from m3b.data.spec.strata import CAME, CENSORED, MARKED
from m3b.data.spec.survivals import survival_of
from m3b.errors import DataError

MAX_FILES, MAX_HEADERS = 20_000, 2_000
"""Of a folder whose cases are counted, and of those whose DICOM headers would have to be read for it."""
MAX_CLASSES = 8
HEALTHY = "nothing marked"


@dataclass(frozen=True)
class Expected:
    """A case as a part counts it: the person, what must stay with it, its classes, its own split's side, its path."""

    patient: str
    keys: tuple[str, ...]
    classes: tuple[str, ...]
    number: float | None = None
    side: str = ""
    name: str = ""


@dataclass(frozen=True)
class Counted:
    """What an index would hold: a line for people and agents, and how many training cases; neither where nobody counted."""

    text: str = ""
    training: int | None = None


def expected(spec: IndexSpec, root: Path, readers: Readers, files: Sequence[str]) -> Counted:
    """Cases of both parts; nothing where the folder is too large to count them, or the spec does not fit it.

    Args:
        files: the paths below the data folder, as `readers.files` lists them.
    """
    if not countable(spec, files):
        return Counted()
    try:
        found = _cases(spec, root, files, readers)
        sides = _sides(spec, found)
    except DataError:
        return Counted()
    parts = [_part(spec, word, [one for one, side in zip(found, sides, strict=True) if side == name])
             for name, word in (("train", "training"), ("test", "testing"))]  # fmt: skip
    how = "by the data set's own split" if spec.split.source is not None else "by a split that m3b draws"
    series = torn([one.name for one in found], _groups(found)) if spec.patient is not None else ""
    return Counted("; ".join([*parts, how, *([series] if series else [])]), sides.count("train"))


def countable(spec: IndexSpec, files: Sequence[str]) -> bool:
    """Whether a folder is small enough for its cases to be looked at one by one, outside a run's own execution."""
    return len(files) <= MAX_FILES and (len(files) <= MAX_HEADERS or not _reads_headers(spec))


def drafted(
    spec: IndexSpec, root: Path, readers: Readers, files: Sequence[str]
) -> tuple[DataFolder, Sources, list[CaseDraft]]:
    """The cases of a spec by the names of files, with the folder and what their texts come from.

    Raises:
        DataError: the spec does not fit the folder.
    """
    folder, accounting = DataFolder(root, files, readers.lookup), Accounting(total=len(files))
    sources = Sources(folder, readers.rows, readers.lines, accounting)
    return folder, sources, build_cases(folder, spec.images, accounting, slots_needed(spec))


def _reads_headers(spec: IndexSpec) -> bool:
    """Whether texts of cases come from DICOM headers."""
    text = spec.model_dump_json()
    return "{tag." in text or '"kind":"tag"' in text or '"tags":{"' in text


def _cases(spec: IndexSpec, root: Path, files: Sequence[str], readers: Readers) -> list[Expected]:
    """The cases that have a target by names, tables and annotations."""
    folder, sources, cases = drafted(spec, root, readers, files)
    masks = MaskSource(spec.masks, folder, sources.accounting, "", Path(), cases) if spec.masks else None
    boxes = BoxSource(spec.boxes, folder, sources.accounting, cases) if spec.boxes else None
    found = []
    for case in cases:
        try:
            meant(spec, sources, case)
            classes, number = _target(spec, sources, case, masks, boxes)
        except LeaveOut:
            continue
        patient = sources.text(spec.patient, case) if spec.patient is not None else f"case {case.key}"
        if patient:
            keys = tuple(_text(sources, one, case) for one in spec.together)
            side = own_side(spec, sources, case) if spec.split.source is not None else ""
            found.append(Expected(patient, keys, classes, number, side, case.name))
    return found


def _text(sources: Sources, value: Value, case: CaseDraft) -> str:
    return sources.text(value, case) or ""


def _target(
    spec: IndexSpec, sources: Sources, case: CaseDraft, masks: MaskSource | None, boxes: BoxSource | None
) -> tuple[tuple[str, ...], float | None]:
    """The classes of a case as far as nothing is opened for them, and its number.

    Raises:
        LeaveOut: it has no target.
    """
    abnormal = is_abnormal(spec.states, sources, case) if spec.states is not None else None
    if abnormal is False or (abnormal and masks is None):
        return (MARKED if abnormal else HEALTHY,), None
    if masks is not None:
        if masks.items_of(case):
            return (MARKED,), None
        if masks.masks.empty == "healthy":
            return (HEALTHY,), None
        raise LeaveOut("no mask")
    if boxes is not None:
        return boxes.classes_of(case) or (HEALTHY,), None
    if spec.value is not None:
        return (), number_of(spec.value, sources, case)
    if spec.survival is not None:
        return (CAME if survival_of(spec.survival, sources, case)[EVENT] else CENSORED,), None
    if spec.report is not None:
        if not any(
            sources.text(one, case) for one in (spec.report.findings, spec.report.impression) if one is not None
        ):
            raise LeaveOut("no report")
        return (), None
    return (labels_of(spec.labels, sources, case) if spec.labels is not None else ()), None


def _groups(found: Sequence[Expected]) -> list[str]:
    """Of each case, with which it stays on one side."""
    return together([(one.patient, *one.keys) for one in found])


def _sides(spec: IndexSpec, found: Sequence[Expected]) -> list[str]:
    """Each case's part; empty for those on neither, and for training cases of which the test part holds the patient."""
    groups = _groups(found)
    if spec.split.source is None:
        strata = fifths([one.number for one in found if one.number is not None]) if spec.value is not None else []
        units = [Unit(group, (strata[at],) if strata else one.classes)
                 for at, (group, one) in enumerate(zip(groups, found, strict=True))]  # fmt: skip
        held = draw(units, spec.split.share, spec.split.seed)
        return ["test" if group in held else "train" for group in groups]
    tested = {group for group, one in zip(groups, found, strict=True) if one.side == "test"}
    return [
        one.side if one.side == "test" or group not in tested else "" for group, one in zip(groups, found, strict=True)
    ]


def _part(spec: IndexSpec, word: str, cases: Sequence[Expected]) -> str:
    """`training 42 (normal 21, sick 21; 30 patients)`."""
    counts = Counter(name for one in cases for name in one.classes)
    followed = [CAME, CENSORED] if spec.survival is not None else []
    order = followed or (
        [*spec.classes, MARKED, HEALTHY] if "labels" in kinds.of(spec.task).targets or spec.boxes else [MARKED, HEALTHY]
    )
    shown = [f"{name} {counts[name]:,}" for name in order if counts[name] or name in spec.classes][:MAX_CLASSES]
    people = format_patient_count(len({one.patient for one in cases}), known=spec.patient is not None)
    classes = [] if set(counts) <= {MARKED} and spec.masks is not None else shown
    return f"{word} {len(cases):,} ({'; '.join([*([', '.join(classes)] if classes else []), people])})"
