"""Shell completion of arguments: runs, models, tasks, data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def complete_runs(incomplete: str) -> list[str]:
    """Return `last` and the names of the user's runs, newest first."""
    from m3b.run.folder import list_runs

    return _filter_by_prefix(["last", *(run.display_name for run in reversed(list_runs()))], incomplete)


def complete_one_of(*names: str) -> Callable[[str], list[str]]:
    """Return a function that completes any of the names."""
    return lambda incomplete: _filter_by_prefix(names, incomplete)


def _filter_by_prefix(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


complete_sandboxes = complete_one_of("auto", "bubblewrap", "landlock", "off")
complete_tasks = complete_one_of(
    "diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival"
)
