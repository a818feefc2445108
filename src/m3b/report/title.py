"""The title of the page: what was built, or what was asked for where nothing was."""

from __future__ import annotations

from .gather import RunFiles, as_dict, as_list
from .words import brief

MAX_NAMED = 4
"""So many classes are named in a title."""


def page_title(files: RunFiles) -> str:
    """`Classifier of clear or opacity, made from chest-xrays`; of a run without a model its request."""
    task = files.result.get("task")
    if not files.delivered or not isinstance(task, str):
        request = files.run.get("request") or files.result.get("request")
        return f"Asked for: {brief(request, 160)}" if request else "A run of m3b"
    built, last = _words(task)
    names = _named(classes(files), last) if built.endswith(" of") else ""
    data = files.result.get("data_card")
    what = f"{built} {names}" if names else built.removesuffix(" of")
    return f"{what}, made from {brief(data, 60)}" if data else what


def _words(task: str) -> tuple[str, str]:
    """What a model of a task is called, and what stands before its last class."""
    from m3b.tasks import family, names

    if task not in names():
        return "Model of", " and "
    of_task = family(task)
    return of_task.built, of_task.classes_joined


def classes(files: RunFiles) -> list[str]:
    """The class names: of the figures, else of the audit's counts."""
    known = as_list(files.scores.get("classes"))
    counted = as_dict(as_dict(files.audit.get("counts")).get("train"))
    return [brief(name, 40) for name in known or counted]


def _named(names: list[str], last: str) -> str:
    """`a, b and c`, or `a, b, c and 9 more`."""
    if len(names) > MAX_NAMED + 1:
        return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more"
    return last.join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
