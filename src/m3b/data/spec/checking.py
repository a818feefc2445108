"""Whether a spec fits a folder, before anything is made of it: patterns, keys, columns and classes; no image is opened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from m3b.data import kinds
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.cases import CaseDraft, build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.model import IndexSpec, States
from m3b.data.spec.numbers import check_numbers
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.data.spec.states import is_abnormal
from m3b.data.spec.survivals import check_survival
from m3b.errors import DataError


def check(spec: IndexSpec, root: Path) -> None:
    """Raise where the spec can give no index.

    Raises:
        DataError: the message names the part of the spec, and what there is.
    """
    readers = Readers(root)
    files = readers.files()
    folder, accounting = DataFolder(root, files, readers.lookup), Accounting(total=len(files))
    sources = Sources(folder, readers.rows, readers.lines, accounting)
    cases = build_cases(folder, spec.images, accounting, slots_needed(spec))
    if spec.masks is not None:
        source = MaskSource(spec.masks, folder, accounting, "", Path(), cases)
        if spec.masks.empty != "healthy" and not any(source.items_of(case) for case in cases):
            raise DataError(f"masks: none of the {len(cases)} cases has one by these names, e.g. {cases[0].name}.")
    if spec.boxes is not None:
        BoxSource(spec.boxes, folder, accounting, cases)
    if "labels" in kinds.of(spec.task).targets:
        _some_labels(spec, sources, cases)
    if spec.states is not None:
        _both_states(spec.states, sources, cases)
    if spec.value is not None:
        check_numbers(spec.value, sources, cases)
    if spec.survival is not None:
        check_survival(spec.survival, sources, cases)
    if spec.patient is not None and not any(sources.texts(spec.patient, case) for case in cases):
        raise DataError(f"patient: none of the {len(cases)} cases has one, e.g. {cases[0].name}.")
    if spec.split.source is not None:
        sides = Counter(sources.text(spec.split.source, case) for case in cases)
        for name in ("train", "test"):
            meant = {text.casefold() for text in getattr(spec.split, name)}
            if not any(side is not None and side.casefold() in meant for side in sides):
                found = ", ".join(sorted(str(side) for side in sides if side is not None)[:8]) or "none"
                raise DataError(
                    f"split.{name}: no case has {', '.join(sorted(meant)) or 'any of no texts'}; found: {found}."
                )


def _both_states(states: States, sources: Sources, cases: list[CaseDraft]) -> None:
    """Raise unless there are normal cases and abnormal ones."""
    texts = Counter(sources.text(states.source, case) for case in cases)
    found: Counter[bool] = Counter()
    for case in cases:
        try:
            found[is_abnormal(states, sources, case)] += 1
        except LeaveOut:
            continue
    for abnormal, name in ((False, "normal"), (True, "abnormal")):
        if not found[abnormal]:
            there = ", ".join(sorted(text for text in texts if text is not None)[:8]) or "none"
            raise DataError(f"states.{name}: none of the {len(cases)} cases is {name}; texts found: {there}.")


def _some_labels(spec: IndexSpec, sources: Sources, cases: list[CaseDraft]) -> None:
    """Every class must have a case."""
    assert spec.labels is not None
    reasons: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for case in cases:
        try:
            found.update(labels_of(spec.labels, sources, case))
        except LeaveOut as reason:
            reasons[str(reason)] += 1
    missing = [name for name in spec.labels.classes if not found[name]]
    if missing:
        why = (
            f"; left out: {', '.join(f'{text} ({count})' for text, count in reasons.most_common(4))}" if reasons else ""
        )
        raise DataError(f"labels.classes: no case is {missing[0]!r}{why}.")
