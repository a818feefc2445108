"""Which of the cases of a set a request means: one view, plane or sequence of several."""

from __future__ import annotations

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.sources import Sources
from m3b.data.survey.keys import key as normal


def meant(spec: IndexSpec, sources: Sources, case: CaseDraft) -> None:
    """Nothing, for a case that the spec means.

    Raises:
        LeaveOut: it is of another view, or nothing says of which.
    """
    for one in spec.only:
        text = sources.text(one.source, case)
        if text is None:
            raise LeaveOut(f"nothing says whether it is {' or '.join(one.texts)}")
        if normal("exact", text) not in {normal("exact", wanted) for wanted in one.texts}:
            raise LeaveOut(f"not asked for: {text[:40]}")


def is_meant(spec: IndexSpec, sources: Sources, case: CaseDraft) -> bool:
    """Whether `meant` lets a case be."""
    try:
        meant(spec, sources, case)
    except LeaveOut:
        return False
    return True
