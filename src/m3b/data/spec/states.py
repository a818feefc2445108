"""Whether a case is normal or abnormal, by what its source says."""

from __future__ import annotations

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import States
from m3b.data.spec.sources import Sources
from m3b.data.survey.keys import key as normal

UNMARKED = "an abnormal image of which no mask says where"
OF_NORMAL = "the mask of a normal image"


def is_abnormal(states: States, sources: Sources, case: CaseDraft) -> bool:
    """The state of a case.

    Raises:
        LeaveOut: the source says nothing of it, or a text of neither state.
    """
    text = sources.text(states.source, case)
    if text is None:
        raise LeaveOut("whether it is abnormal is not known")
    own = normal("exact", text)
    if own in {normal("exact", one) for one in states.normal}:
        return False
    if states.abnormal and own not in {normal("exact", one) for one in states.abnormal}:
        raise LeaveOut(f"its state {text[:40]!r} is neither normal nor abnormal in this index")
    return True
