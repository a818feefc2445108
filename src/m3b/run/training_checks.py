"""Checks of artifacts against the training overrides: agents are told them and cannot change them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from m3b.agents.artifacts import Selection
from m3b.agents.check_result import CheckResult, Issue, accept, reject
from m3b.errors import RunFailed, SettingError
from m3b.isolation import untrusted
from m3b.metrics import canonical_metric
from m3b.run.request_wishes import drop_unserved_wishes
from m3b.run.training_overrides import TrainingOverrides, check_overrides, find_plan_differences


def enforce_selection(overrides: TrainingOverrides, check_result: CheckResult) -> CheckResult:
    """Return the check result of a selection with the user's metric; reject a task that cannot serve the overrides."""
    selection = check_result.artifact
    if not overrides or not isinstance(selection, Selection):
        return check_result
    overrides, _ = drop_unserved_wishes(overrides, selection.task)
    try:
        check_overrides(overrides, selection.task)
    except SettingError as error:
        return reject(Issue(error.on_command_line, code=error.code), end_error=RunFailed, is_fatal=True)
    if overrides.metric is None:
        return check_result
    metric = canonical_metric(overrides.metric, selection.task)
    return replace(check_result, artifact=replace(selection, metric=metric))


def check_fixed_plan(overrides: TrainingOverrides, work: Path, task: str) -> CheckResult:
    """Accept the working directory if its plan.json holds what the user fixed."""
    if not overrides or not untrusted.is_file(work, "plan.json"):  # the check of the project says what is missing
        return accept(None)
    try:
        plan = untrusted.read_json(work, "plan.json")
    except (OSError, ValueError):
        return accept(None)
    if not isinstance(plan, dict):
        return accept(None)
    differences = find_plan_differences(overrides, plan, task)
    if not differences:
        return accept(None)
    listed = "; ".join(differences)
    return reject(
        Issue(
            f"plan.json does not hold what the user fixed: {listed}. Set it as the user did, and change nothing of it.",
            f"The plan of the training is not what was set: {listed}.",
            "override_changed",
        )
    )
