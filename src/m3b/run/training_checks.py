"""Checks of artifacts against the training overrides: agents are told them and cannot change them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import Selection
from m3b.agents.check_result import CheckResult, Issue, accept, reject
from m3b.errors import RunFailed, SettingError
from m3b.isolation import untrusted
from m3b.metrics import canonical_metric
from m3b.run.next_steps import MAX_AMOUNT, MIN_EPOCHS, TrainingAmount
from m3b.run.options import MAX_HOURS
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
    listing = "; ".join(differences)
    return reject(
        Issue(
            f"plan.json does not hold what the user fixed: {listing}. Set it as the user did, and change nothing of it.",
            f"The plan of the training is not what was set: {listing}.",
            "override_changed",
        )
    )


EPOCH_TIME_MARGIN = 1.25
"""Factor on the expected minutes of the user's epochs, since a busy machine takes longer than was measured."""


def read_expected_amount(plan: Mapping[str, Any]) -> TrainingAmount | None:
    """Return the training that plan.py expects within the minutes; None if the plan does not say."""
    expected, minutes = plan.get("expected"), plan.get("minutes")
    try:
        amount = TrainingAmount(int(expected["steps"]), float(expected["epochs"]), float(minutes))  # type: ignore[index, arg-type]
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    is_plausible = (
        abs(amount.steps) < MAX_AMOUNT and abs(amount.epochs) < MAX_AMOUNT and 1e-6 < amount.minutes < MAX_AMOUNT
    )
    return amount if is_plausible else None


def extend_minutes(overrides: TrainingOverrides, plan: Mapping[str, Any], max_minutes: float) -> float | None:
    """Return the minutes that the user's epochs are expected to take, if the plan has fewer; else None."""
    amount = read_expected_amount(plan)
    if overrides.epochs is None or amount is None or amount.epochs >= overrides.epochs - 0.5:
        return None
    needed = amount.minutes * overrides.epochs / max(amount.epochs, 0.01) * EPOCH_TIME_MARGIN
    return min(math.ceil(needed), max_minutes)


def write_plan_minutes(work: Path, minutes: float) -> None:
    """Set the minutes in the plan.json of a training project."""
    plan = dict(untrusted.read_json(work, "plan.json"))
    expected = plan.get("expected")
    if isinstance(expected, dict) and plan.get("minutes"):
        factor = minutes / float(plan["minutes"])
        plan["expected"] = {
            **expected,
            "steps": round(expected["steps"] * factor),
            "epochs": expected["epochs"] * factor,
        }
    plan["minutes"] = minutes
    untrusted.write_atomic(work, "plan.json", (json.dumps(plan, indent=2, ensure_ascii=False) + "\n").encode())


def describe_short_search(plan: Mapping[str, Any], minutes: float, networks: int, hours: float) -> str:
    """Return a sentence if the longest training of a candidate has too few epochs to tell plans apart; else ''.

    Args:
        plan: plan.json before the search, with the steps and epochs that plan.py expects of each of its networks.
        minutes: of the longest training of a candidate.
        networks: those that a candidate trains in these minutes.
        hours: of the search and the last training together.
    """
    amount = read_expected_amount(plan)
    if amount is None or plan.get("max_steps"):
        return ""
    folds = plan.get("folds")
    planned_networks = min(max(1, folds if isinstance(folds, int) else 1), 100) + bool(plan.get("refit"))
    share = minutes / amount.minutes * planned_networks / networks
    candidate = TrainingAmount(round(amount.steps * share), amount.epochs * share, minutes)
    if not candidate.is_short:
        return ""
    needed_hours = math.ceil(10 * hours * MIN_EPOCHS / max(candidate.epochs, 1e-3)) / 10
    noun = "network" if networks == 1 else f"of {networks} networks"
    remedy = f"--hours {needed_hours:g} gives {MIN_EPOCHS:g} epochs; with less time, train one plan (--train-minutes)"
    if needed_hours > MAX_HOURS:
        remedy = "train one plan instead (--train-minutes), on a GPU if there is one"
    return (
        f"The search is short: the longest training of a candidate, {minutes:.3g} min, gives each {noun} about "
        f"{candidate.steps:,} steps, {candidate.epochs:.1f} epochs. That is too few to tell plans apart: {remedy}."
    )


def describe_short_training(overrides: TrainingOverrides, plan: Mapping[str, Any]) -> str:
    """Return a sentence if a plan holds too few epochs, or fewer than the user asked for; else ''."""
    amount = read_expected_amount(plan)
    if amount is None or overrides.steps is not None:
        return ""
    expected = f"About {amount.steps:,} steps, {amount.epochs:.1f} epochs, fit in {amount.minutes:g} min"
    if overrides.epochs is not None:
        if amount.epochs >= overrides.epochs - 0.5:
            return ""
        minutes = math.ceil(amount.minutes * overrides.epochs / max(amount.epochs, 0.01))
        return f"{expected}, not {overrides.epochs} epochs: --train-minutes {minutes} holds them."
    if not amount.is_short:
        return ""
    return f"{expected}: too few to learn much. Ask for about {amount.suggest_minutes()} min (--train-minutes)."
