"""Networks of a cross-validation, one a fold of the patients, and optionally a refit on all cases.

With `folds` above 1, each network is trained without its part of the patients and predicts it, and all networks are delivered as an
ensemble. There are as many parts as folds, so that every case is validated, or more (`parts`), so that each network learns from more
cases. With `refit`, the folds only provide views, thresholds, calibration and figures; the delivered network is trained on all cases
for the same number of steps and has no validation figure of its own.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Plan = dict[str, Any]
LOGOUT = Path("Logout")
WEIGHTS_FILE = "best.safetensors"
DELIVERED_FILE = "delivered.safetensors"
"""Weights of a network with what was fitted after its training, if there is any; in the same folder."""
TRIAL_PREFIX = "trial-"
"""Beginning of the name of a network that is trained briefly, to compare starts."""
REFIT_NAME = "all"
"""Name of the network that is trained on all cases."""
REFIT_FOLD = -1
"""Its fold, for `build_datasets` of recipes: every case is for training."""
SITES, MAX_SITES = "sites", 20
"""Value of `fold_groups` for which each fold is a site, and the maximum number of sites."""
MAX_FOLDS = 5
"""Maximum networks of an ensemble: each adds its time to every prediction."""
MIN_FOLDS = 3
"""Minimum networks of an ensemble: two are hardly better than one, and each would learn from half of the cases."""
MAX_SMALL_SET = 500
"""Cases up to which a held-out validation part is costly."""
HELD_OUT_PATIENTS = 80
"""Patients, about, that all folds together hold out if possible: the standard error of a Dice that varies by 0.03 from case to case is
then 0.003. With more patients, each network rather learns from more of the cases."""
HELD_OUT_OF_RAREST_CLASS = 20
"""Minimum held-out patients with the rarest class: its choices are cross-fitted on halves of ten."""
MIN_EPOCHS_PER_FOLD = 100
"""Epochs of a large set that each fold must get; with fewer, one longer training is better."""


def list_network_names(plan: Mapping[str, Any]) -> list[str]:
    """Return the folders of Logout in the order of training: folds, then the refit."""
    return [f"fold{fold}" for fold in range(count_folds(plan))] + ([REFIT_NAME] if plan.get("refit") else [])


def name_student(name: str) -> str:
    """Return the folder of the network that self-training adds to one of `list_network_names`."""
    return f"{name}-student"


def count_recipes(plan: Mapping[str, Any]) -> int:
    """Return the number of recipes whose networks are averaged in each fold, see `diagnosis.recipe_plans`."""
    return max(1, len((plan.get("recipes") or {}).get("settings") or ()))


def list_recipe_plans(plan: Mapping[str, Any]) -> list[Plan]:
    """Return the plan of each recipe, without `recipes`; steps that are counted (`max_steps`) are divided among them."""
    base = {key: value for key, value in plan.items() if key != "recipes"}
    count = count_recipes(plan)
    if count == 1:
        return [base]
    steps = int(plan.get("max_steps") or 0)
    divided = {"max_steps": max(1, round(steps / count))} if steps else {}
    return [{**base, **settings, **divided} for settings in plan["recipes"]["settings"]]


def list_recipe_names(plan: Mapping[str, Any], number: int) -> list[str]:
    """Return the folders of a recipe's networks, one a fold; `number` counts from 2, since those of the first are the folds'."""
    return [f"fold{fold}-recipe{number}" for fold in range(count_folds(plan))]


def list_start_names(plan: Mapping[str, Any]) -> list[str]:
    """Return the folders of the networks that a longer training goes on with: those of the folds and of further recipes."""
    numbers = range(2, count_recipes(plan) + 1)
    return [*list_network_names(plan), *(name for number in numbers for name in list_recipe_names(plan, number))]


def list_trainings(plan: Mapping[str, Any]) -> list[str]:
    """Return the folders of all networks that are trained, in their order."""
    students = map(name_student, list_network_names(plan)) if plan.get("self_training") else ()
    return [*list_start_names(plan), *students]


def count_folds(plan: Mapping[str, Any]) -> int:
    """Return the number of networks that predict validation cases."""
    return max(1, int(plan.get("folds") or 1))


def count_parts(plan: Mapping[str, Any]) -> int:
    """Return the number of parts of the patients; each fold holds out one."""
    return max(count_folds(plan), int(plan.get("parts") or 1))


def held_out_part(plan: Mapping[str, Any], fold: int) -> int:
    """Return the part that a fold holds out: random if some parts are never held out, since the first parts have the largest
    patients."""
    if count_parts(plan) == count_folds(plan):
        return fold
    return int(np.random.default_rng(int(plan.get("seed") or 0)).permutation(count_parts(plan))[fold])


def choose_parts(plan: Plan, patients: int, overrides: set[str], rarest: float = 1.0) -> None:
    """Set `parts` of the plan, unless folds were set by hand, so that about `HELD_OUT_PATIENTS` are held out.

    Args:
        rarest: share of the cases that have the rarest class.
    """
    if "parts" in overrides:
        return
    min_patients = max(HELD_OUT_PATIENTS, HELD_OUT_OF_RAREST_CLASS / max(rarest, 1e-6))
    can_divide = count_folds(plan) > 1 and "folds" not in overrides and not plan.get("refit")
    plan["parts"] = max(count_folds(plan), int(count_folds(plan) * patients // min_patients)) if can_divide else 1


def count_networks(plan: Mapping[str, Any]) -> int:
    """Return the number of trainings among which the minutes are divided."""
    return len(list_trainings(plan))


def count_parallel_folds(plan: Mapping[str, Any]) -> int:
    """Return the number of folds that are trained in parallel, one a GPU (`processes`)."""
    return max(1, min(int(plan.get("processes") or 1), count_folds(plan)))


def count_rounds(plan: Mapping[str, Any], parallel: int | None = None) -> int:
    """Return the number of trainings in sequence; `parallel` folds (None: as planned) count as one."""
    rounds = -(-count_folds(plan) // (parallel or count_parallel_folds(plan))) + bool(plan.get("refit"))
    return rounds * (1 + bool(plan.get("self_training"))) + count_folds(plan) * (count_recipes(plan) - 1)


def list_delivered_weights(plan: Mapping[str, Any]) -> list[Path]:
    """Return the weight files of a deliverable: that of the refit, or one a fold."""
    names = [REFIT_NAME] if plan.get("refit") else list_network_names(plan)
    return [find_weights(name) for name in names]


def find_weights(name: str) -> Path:
    """Return the weights of a network that are delivered."""
    file = LOGOUT / name / DELIVERED_FILE
    return file if file.is_file() else LOGOUT / name / WEIGHTS_FILE


def format_fold_note(plan: Mapping[str, Any]) -> str:
    """Return the README text on delivered networks; "" for a single one with its own validation."""
    folds = count_folds(plan)
    source = f"{folds} networks, each on the patients that it was not trained on" if folds > 1 else "a network like it"
    if plan.get("refit"):
        return (
            "The delivered network was trained on all training cases, so it has no validation figure of its own. The figures, and "
            f"what was chosen by them, come from {source}, trained for as many steps on fewer cases.\n"
        )
    if not plan.get("cross_validation", True):
        source = "all networks together, on cases that none was trained on"
    return f"{folds} networks predict as an ensemble. The figures are those of {source}.\n" if folds > 1 else ""


def max_folds(cases: int, patients: int, rarest: int = MAX_FOLDS, epochs: float = 0.0) -> tuple[int, str]:
    """Return how many folds the cases justify, and why; 1 if a held-out part costs little or is too small to divide.

    Args:
        rarest: cases of the rarest class, if there are classes.
        epochs: of one network on all cases. After a few hundred it learns nothing more, and an ensemble is better.
    """
    limit = min(MAX_FOLDS, patients // 4, rarest)
    if cases >= MAX_SMALL_SET and min(limit, epochs // MIN_EPOCHS_PER_FOLD) < MIN_FOLDS:
        return 1, f"{cases} cases: a held-out validation part costs little"
    if cases >= MAX_SMALL_SET:
        return int(min(limit, epochs // MIN_EPOCHS_PER_FOLD)), f"{cases} cases, enough epochs for several networks"
    if limit < MIN_FOLDS:
        rare = "" if rarest >= MIN_FOLDS else f", {rarest} cases of the rarest class"
        return 1, f"{patients} patients{rare}: too few for folds"
    return limit, f"{cases} cases"


def choose_fold_count(
    plan: Plan, steps: float, min_steps: int, limit: tuple[int, str], overrides: set[str], gpus: int = 1
) -> list[str]:
    """Set `folds`, `refit` and the reason `why_folds` of the plan; return the reduction if the minutes allow fewer than the maximum.

    Args:
        steps: that the minutes hold, of all networks in sequence.
        limit: from `max_folds`.
        overrides: keys that were set by hand and stay.
        gpus: folds that train in parallel.
    """
    affordable = int(steps // min_steps) * gpus
    per_gpu = f" on each of {gpus} GPUs" if gpus > 1 else ""
    if limit[0] > 1 and affordable < MIN_FOLDS:
        rounds_needed = -(-MIN_FOLDS // gpus)
        times = f"{rounds_needed} times {min_steps}" if rounds_needed > 1 else f"{min_steps}"
        folds, why = 1, f"too few steps{per_gpu} for folds, which need {times} steps"
    elif limit[0] > 1:
        folds = min(limit[0], affordable)
        why = f"{limit[1]}, and enough steps{per_gpu} in these minutes for {folds} networks"
    else:
        folds, why = limit
    plan["folds"] = plan["folds"] if "folds" in overrides else folds
    plan["refit"] = plan["refit"] if "refit" in overrides else False
    plan["why_folds"] = "set by --set" if overrides & {"folds", "refit"} else why
    return [f"{folds} network{'s' if folds > 1 else ''} instead of {limit[0]}"] if plan["folds"] < limit[0] else []


def choose_folds_from_cases(
    plan: Plan, facts: Mapping[str, Any], steps: Callable[[], float], min_steps: int, overrides: set[str], gpus: int = 1
) -> None:
    """Choose the folds from the cases and patients of `facts`; `steps` measures how many steps of a batch the minutes hold."""
    cases, patients = int(facts["cases"]), int(facts["patients"])
    several = max_folds(cases, patients, epochs=math.inf)[0] > 1
    available_steps = steps() if several else 0.0  # not measured if there are too few patients for folds
    limit = max_folds(cases, patients, epochs=available_steps * int(plan["batch"]) / cases)
    choose_fold_count(plan, available_steps, min_steps, limit, overrides, gpus)


def check_fold_count(plan: Mapping[str, Any], patients: int) -> None:
    """Raise SystemExit if there are more folds, or parts, than patients."""
    needed = count_parts(plan) if count_folds(plan) > 1 else 1
    if needed > max(1, patients):
        name = "folds" if needed == count_folds(plan) else "parts"
        raise SystemExit(
            f"{name} {needed} in plan.json: the training cases have {patients} patients; at most one {name[:-1]} a patient"
        )


def use_site_folds(plan: Plan, sites: Sequence[str]) -> list[str]:
    """Set as many folds as there are sites if the plan groups them by site; return the settings that this fixes.

    Args:
        sites: of each case; "" where it is not known.

    Raises:
        SystemExit: the sites are too few, or too many for a network each.
    """
    if plan.get("fold_groups") != SITES:
        return []
    count = len(set(sites) - {""})
    if not 2 <= count <= MAX_SITES:
        raise SystemExit(
            f"--set fold_groups=sites: the training cases name {count} sites, 2 to {MAX_SITES} are needed (attribute `site` of the "
            "manifest names that of each case)"
        )
    plan["folds"], plan["cross_validation"] = count, True
    return [f"folds={count}"]


def describe_folds(plan: Mapping[str, Any]) -> str:
    """Return a line on the networks that are trained."""
    share = float(plan.get("validation_share") or 0)
    if count_folds(plan) == 1:
        text = f"one network, {share:.0%} held out"
    elif not plan.get("cross_validation", True):
        text = f"{plan['folds']} networks, {share:.0%} held out from all"
    elif plan.get("fold_groups") == SITES:
        text = f"{plan['folds']} networks, each on all sites but one, which it is validated on"
    elif count_parts(plan) == count_folds(plan):
        text = f"{plan['folds']} networks, one a fold"
    else:
        text = f"{plan['folds']} networks, each holding out a different 1/{count_parts(plan)} of the cases"
    text += ", then one on all cases, which is delivered" if plan.get("refit") else ""
    return f"{text} ({plan['why_folds']})" if plan.get("why_folds") else text


def name_training(plan: Mapping[str, Any], single: str = "the training") -> str:
    """Return the subject of a sentence about the time of one network."""
    return f"each of {count_networks(plan)} trainings" if count_networks(plan) > 1 else single


class TimeShares:
    """Training seconds of each network: equal parts of the time left, earlier starts included. All networks together have `seconds`;
    `parallel` folds train at the same time."""

    def __init__(self, plan: Mapping[str, Any], seconds: float, parallel: int = 1) -> None:
        parallel, folds = min(parallel, count_folds(plan)), count_folds(plan)
        self.names, self.seconds, self.start = list_trainings(plan), seconds, time.monotonic()
        self.rounds, share = count_rounds(plan, parallel), -(-folds // parallel) / folds
        spent = [seconds_spent(LOGOUT / name) for name in self.names]
        self.spent = [share * value for value in spent[:folds]] + spent[folds:]  # parallel folds share their seconds

    def seconds_for(self, name: str) -> float:
        """Return the seconds of a network, from its first start on."""
        place = self.names.index(name)
        remaining = self.seconds - (time.monotonic() - self.start) - sum(self.spent)
        return (remaining + sum(self.spent[place:])) / (len(self.names) - place)

    def seconds_per_fold(self) -> float:
        """Return the seconds of each fold that trains in parallel, from its first start on."""
        return self.seconds / self.rounds


def read_result(name: str) -> dict[str, Any]:
    """Return done.json of a finished network, {} of an unfinished one."""
    file = LOGOUT / name / "done.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint below a folder that was written to its end."""
    checkpoints = [file.parent for file in folder.glob("checkpoint-*/complete.json")]
    return max(checkpoints, key=lambda checkpoint: int(checkpoint.name.split("-")[1]), default=None)


def seconds_spent(folder: Path) -> float:
    """Return the seconds that the model of this folder has been trained for so far, finished or not."""
    done = folder / "done.json"
    if done.exists():
        return float(json.loads(done.read_text())["seconds"])
    checkpoint = find_checkpoint(folder)
    return float(json.loads((checkpoint / "complete.json").read_text())["spent"]) if checkpoint else 0.0


def count_refit_steps(plan: Mapping[str, Any]) -> int:
    """Return the steps of the refit: the mean of the folds."""
    return max(1, round(float(np.mean([read_result(f"fold{fold}")["steps"] for fold in range(count_folds(plan))]))))


def write_member_list(plan: Mapping[str, Any]) -> None:
    """Write Logout/members.json with the weights of each fold, so that a refit can be measured on held-out cases."""
    files = [find_weights(name).as_posix() for name in list_network_names(plan) if name != REFIT_NAME]
    (LOGOUT / "members.json").write_text(json.dumps({"weights": files, "refit": bool(plan.get("refit"))}))
