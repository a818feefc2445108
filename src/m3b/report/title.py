"""The title of the page: what was built, or what was asked for where nothing was."""

from __future__ import annotations

from .gather import RunFiles, as_dict, as_list
from .words import brief

MOST_NAMED = 4
"""So many classes are named in a title."""
_BUILT = {
    "diagnosis": "Classifier of",
    "segmentation": "Segmentation of",
    "detection": "Detector of",
    "report": "Report writer",
}


def page_title(files: RunFiles) -> str:
    """`Classifier of clear or opacity, made from chest-xrays`; of a run without a model its request."""
    task = files.result.get("task")
    if not files.delivered or not isinstance(task, str):
        request = files.run.get("request") or files.result.get("request")
        return f"Asked for: {brief(request, 160)}" if request else "A run of m3b"
    built = _BUILT.get(task, "Model of")
    names = _named(classes(files), " or " if task == "diagnosis" else " and ") if task != "report" else ""
    data = files.result.get("data_card")
    what = f"{built} {names}" if names else built.removesuffix(" of")
    return f"{what}, made from {brief(data, 60)}" if data else what


def classes(files: RunFiles) -> list[str]:
    """The class names: of the figures, else of the audit's counts."""
    known = as_list(files.scores.get("classes"))
    counted = as_dict(as_dict(files.audit.get("counts")).get("train"))
    return [brief(name, 40) for name in known or counted]


def _named(names: list[str], last: str) -> str:
    """`a, b and c`, or `a, b, c and 9 more`."""
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return last.join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
