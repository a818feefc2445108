"""The title of the page: what was built, or what was asked for where nothing was."""

from __future__ import annotations

from .gather import RunFiles, as_dict, as_list
from .words import shorten

MAX_NAMED_CLASSES = 4
"""So many classes are named in a title."""


def make_page_title(files: RunFiles) -> str:
    """`Classifier of clear or opacity, made from chest-xrays`; of a run without a model its request."""
    task = files.result.get("task")
    if not files.delivered_files or not isinstance(task, str):
        request = files.record.get("request") or files.result.get("request")
        return f"Asked for: {shorten(request, 160)}" if request else "A run of m3b"
    prefix, last_separator = _title_words_of(task)
    class_list = _join_names(list_class_names(files), last_separator) if prefix.endswith(" of") else ""
    data = files.result.get("data_card")
    subject = f"{prefix} {class_list}" if class_list else prefix.removesuffix(" of")
    return f"{subject}, made from {shorten(data, 60)}" if data else subject


def _title_words_of(task: str) -> tuple[str, str]:
    """What a model of a task is called, and what stands before its last class."""
    from m3b.tasks import get_family, names

    if task not in names():
        return "Model of", " and "
    task_family = get_family(task)
    return task_family.title_prefix, task_family.class_separator


def list_class_names(files: RunFiles) -> list[str]:
    """The class names: of the figures, else of the audit's counts."""
    scored_classes = as_list(files.scores.get("classes"))
    class_counts = as_dict(as_dict(files.audit.get("counts")).get("train"))
    return [shorten(name, 40) for name in scored_classes or class_counts]


def _join_names(names: list[str], last_separator: str) -> str:
    """`a, b and c`, or `a, b, c and 9 more`."""
    if len(names) > MAX_NAMED_CLASSES + 1:
        return f"{', '.join(names[:MAX_NAMED_CLASSES])} and {len(names) - MAX_NAMED_CLASSES} more"
    return last_separator.join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
