"""Choice between pretrained weights and scratch by a short training of each and its validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from m3b.training.distributed import barrier, is_main
from m3b.training.folds import TRIAL_PREFIX, seconds_spent

Plan = dict[str, Any]
LOGOUT = Path("Logout")
CHOICE_FILE = LOGOUT / "start.json"
STARTS = ("pretrained", "scratch")


def compare_starts(
    plan: Plan, seconds: float, watch: str, train: Callable[[Plan, str, float], Mapping[str, Any]]
) -> Plan:
    """Return the plan to train; an earlier choice is kept. Without weights the plan is unchanged.

    Args:
        seconds: of the whole training; each start gets `network.trial` of them, 0 keeps the weights.
        watch: the figure that is compared, for people.
        train: (plan, name, seconds) trains and returns the result of `train_by_clock`; `best` is compared.
    """
    trial_share = float(plan["network"].get("trial") or 0.0)
    if not plan.get("scratch") or not plan["network"].get("pretrained"):
        return plan
    if not CHOICE_FILE.exists():
        CHOICE_FILE.parent.mkdir(parents=True, exist_ok=True)
        choice = _run_trials(plan, seconds * trial_share, watch, train)
        if is_main():
            CHOICE_FILE.write_text(json.dumps(choice, indent=1))
        barrier()
    print(describe_choice(json.loads(CHOICE_FILE.read_text())), flush=True)
    return apply_chosen_start(plan)


def _run_trials(plan: Plan, seconds: float, watch: str, train: Callable[..., Mapping[str, Any]]) -> dict[str, Any]:
    summary = {"name": plan["network"]["origin"]["name"], "watch": watch}
    if not seconds:
        return {**summary, "chosen": "pretrained", "why": "network.trial is 0: not compared"}
    plans = {"pretrained": plan, "scratch": _without_weights(plan)}
    best = {start: float(train(plans[start], f"{TRIAL_PREFIX}{start}", seconds)["best"]) for start in STARTS}
    best_start = "pretrained" if best["pretrained"] >= best["scratch"] else "scratch"
    seconds_used = round(sum(seconds_spent(LOGOUT / f"{TRIAL_PREFIX}{start}") for start in STARTS), 1)
    return {**summary, "chosen": best_start, **best, "seconds": seconds_used}


def apply_chosen_start(plan: Plan) -> Plan:
    """Return the plan as it was trained: without the weights if scratch was better."""
    if not CHOICE_FILE.exists() or json.loads(CHOICE_FILE.read_text())["chosen"] == "pretrained":
        return plan
    return _without_weights(plan)


def trial_seconds() -> float:
    """Return the seconds of the comparison, in earlier starts or this one."""
    return sum(seconds_spent(LOGOUT / f"{TRIAL_PREFIX}{start}") for start in STARTS)


def _without_weights(plan: Plan) -> Plan:
    plain_plan = {key: value for key, value in plan.items() if key != "scratch"}
    return {**plain_plan, **plan["scratch"]}


def describe_choice(choice: Mapping[str, Any]) -> str:
    """Return a line on the choice."""
    if "why" in choice:
        return f"start: from {choice['name']} ({choice['why']})"
    start_text = f"from {choice['name']}" if choice["chosen"] == "pretrained" else "from scratch"
    return (
        f"start: {start_text}, after a short training of each: {choice['watch']} {choice['pretrained']:.3f} with the weights of "
        f"{choice['name']}, {choice['scratch']:.3f} from scratch"
    )


def start_card(plan: Plan) -> dict[str, Any]:
    """Return the entry of config.json: origin and licence of the weights, and the comparison."""
    if not CHOICE_FILE.exists():
        return {}
    choice = json.loads(CHOICE_FILE.read_text())
    origin = plan["network"].get("origin") or {} if choice["chosen"] == "pretrained" else {}
    return {"start": {**choice, **origin, "told": describe_choice(choice)}}


def format_start_note(plan: Plan) -> str:
    """Return the text for the deliverable's README."""
    choice = start_card(plan).get("start") or {}
    if choice.get("chosen") != "pretrained":
        return f"{choice['told']}.\n" if choice else ""
    return (
        f"{choice['told']}. The licence of the weights applies to this model too: {choice['licence']}. Origin: {choice['source']}"
        + (f"; {choice['citation']}" if choice["citation"] else "")
        + ".\n"
    )


def remove_paths(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that build the network without its files; their paths are private."""
    return {key: value for key, value in network.items() if key not in ("pretrained", "delivered", "trial")}
