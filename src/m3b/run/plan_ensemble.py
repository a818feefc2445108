"""The average of the best candidates of a search as one more candidate: what can be averaged, whether it pays, and its plan.

Nothing is trained for the decision: the average is computed from the answers on held-out cases that m3b has measured already. If it
pays, plan.json of the last training has the recipes of all of them (`m3b.training.diagnosis.recipe_plans`), which divide its time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.agents.checks.model import DELIVERABLE_FOLDER
from m3b.data.index import Index
from m3b.facts import PlanEnsemble, SearchSummary
from m3b.isolation import untrusted
from m3b.metrics.ensemble_selection import EnsembleChoice, EnsembleSelection
from m3b.metrics.selection_bias import Row, SelectionSamples
from m3b.resources import get_resources_folder
from m3b.tasks import TaskFamily
from m3b.training.diagnosis.recipe_plans import (
    FOLD_KEYS,
    RECIPE_KEYS,
    combine_plans,
    describe_shared_settings,
    find_recipe_obstacle,
)

AVERAGING_SCRIPTS = ("train.py", "export.py", "predict.py")
"""Scripts of the project that train, write and run an average of recipes if they are those of m3b's template."""
MAX_SCRIPT_BYTES = 1 << 20


def make_ensemble_selection(
    samples: SelectionSamples, family: TaskFamily, index: Index, plans: Mapping[int, Mapping[str, Any]], work: Path
) -> EnsembleSelection:
    """Return the selection among averages of the candidates; none can be averaged if the family or the project does not serve it.

    Args:
        plans: of the candidates, by number.
        work: the training project.
    """

    def average(rows: Sequence[Sequence[Row]]) -> Sequence[Row]:
        averages = family.average_rows([[dict(row) for row in part] for part in rows], index)
        assert averages is not None
        return averages

    is_served = has_averaging_scripts(work, family) and _can_average(samples, family, index)
    return EnsembleSelection(samples, average, group_plans(plans) if is_served else {})


def _can_average(samples: SelectionSamples, family: TaskFamily, index: Index) -> bool:
    parts = [rows for number in samples.list_figures() for rows in samples.list_rows(number)]
    try:
        return family.average_rows([[dict(row) for row in rows] for rows in parts], index) is not None
    except (KeyError, TypeError, ValueError):  # scripts of an agent predicted some of them in another form
        return False


def has_averaging_scripts(work: Path, family: TaskFamily) -> bool:
    """Return whether the project trains and predicts by the scripts of m3b's own template, which know several recipes."""
    name = family.template or family.name
    if isinstance(name, Path):
        return False
    template = get_resources_folder() / "templates" / name
    try:
        return all(
            untrusted.read_bytes(work, script, MAX_SCRIPT_BYTES) == (template / script).read_bytes()
            for script in AVERAGING_SCRIPTS
        )
    except OSError:
        return False


def group_plans(plans: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return candidate -> its group: candidates whose plans can be averaged are in one group, others are left out."""
    return {number: describe_shared_settings(plan) for number, plan in plans.items() if not find_recipe_obstacle(plan)}


def make_ensemble_plan(
    plan: Mapping[str, Any], candidates: Sequence[int], plans: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the plan of the last training with the recipes of several candidates.

    Args:
        plan: of the last training of the best candidate, the first of `candidates`.
        plans: of the candidates as they were compared, by number.

    Raises:
        ValueError: that plan has another input than the compared ones, or cannot be averaged; the message says why.
    """
    compared = plans[candidates[0]]
    if describe_shared_settings(plan, FOLD_KEYS) != describe_shared_settings(compared, FOLD_KEYS):
        raise ValueError("plan.py gave the plan of the best candidate another input than in the search")
    others = [{**plan, **{key: plans[number].get(key) for key in RECIPE_KEYS}} for number in candidates[1:]]
    return combine_plans([plan, *others])


def summarize_ensemble(choice: EnsembleChoice | None, problem: str = "") -> PlanEnsemble | None:
    """Return the comparison of the average with the best candidate for the journal; None if there was none.

    Args:
        problem: why the average was not trained, though it pays.
    """
    if choice is None:
        return None
    return PlanEnsemble(
        candidates=choice.candidates,
        value=choice.value,
        gain=choice.gain,
        low=choice.low,
        high=choice.high,
        equal_time_gain=choice.equal_time_gain,
        selected=choice.pays and not problem,
        problem=problem if choice.pays else "",
    )


def is_ensemble_missing(summary: SearchSummary | None, work: Path) -> bool:
    """Return whether the search selected an average, and the exported model is none of as many recipes."""
    if summary is None or summary.ensemble is None or not summary.ensemble.selected:
        return False
    try:
        settings = untrusted.read_json(work / DELIVERABLE_FOLDER, "config.json")["plan"]["recipes"]["settings"]
        return len(settings) != len(summary.ensemble.candidates)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def read_plans(folder: Path, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the plans of candidates that m3b keeps, by number; those without a plan are left out."""
    files = {number: folder / f"plan-{number}.json" for number in numbers}
    return {number: json.loads(file.read_text(encoding="utf-8")) for number, file in files.items() if file.is_file()}
