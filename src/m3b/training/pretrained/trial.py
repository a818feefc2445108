"""From pretrained weights or from scratch: a short training of each, and what it says on validation cases, decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from m3b.training.distributed import barrier, is_main
from m3b.training.folds import seconds_spent

Plan = dict[str, Any]
LOGOUT = Path("Logout")
VERDICT = LOGOUT / "start.json"
SIDES = ("pretrained", "scratch")


def settle_start(
    plan: Plan, seconds: float, watch: str, trial: Callable[[Plan, str, float], Mapping[str, Any]]
) -> Plan:
    """The plan to go on with. A verdict that is there is kept; without weights, or with `network.trial` 0, the plan stays.

    Args:
        seconds: of the whole training; each side gets `network.trial` of them.
        watch: the figure that is compared, for people.
        trial: trains a plan under a name for some seconds and gives what `train_by_clock` does; `best` is compared.
    """
    share = float(plan["network"].get("trial") or 0.0)
    if not plan.get("scratch") or not plan["network"].get("pretrained"):
        return plan
    if not VERDICT.exists():
        VERDICT.parent.mkdir(parents=True, exist_ok=True)
        said = _verdict(plan, seconds * share, watch, trial)
        if is_main():
            VERDICT.write_text(json.dumps(said, indent=1))
        barrier()
    print(told_start(json.loads(VERDICT.read_text())), flush=True)
    return settled(plan)


def _verdict(plan: Plan, seconds: float, watch: str, trial: Callable[..., Mapping[str, Any]]) -> dict[str, Any]:
    about = {"name": plan["network"]["origin"]["name"], "watch": watch}
    if not seconds:
        return {**about, "chosen": "pretrained", "why": "network.trial is 0: not compared"}
    plans = {"pretrained": plan, "scratch": _scratch(plan)}
    best = {side: float(trial(plans[side], f"trial-{side}", seconds)["best"]) for side in SIDES}
    chosen = "pretrained" if best["pretrained"] >= best["scratch"] else "scratch"
    taken = round(sum(seconds_spent(LOGOUT / f"trial-{side}") for side in SIDES), 1)
    return {**about, "chosen": chosen, **best, "seconds": taken}


def settled(plan: Plan) -> Plan:
    """The plan as it was trained: where scratch was better, without the weights."""
    if not VERDICT.exists() or json.loads(VERDICT.read_text())["chosen"] == "pretrained":
        return plan
    return _scratch(plan)


def trial_seconds() -> float:
    """What the comparison took of the time, by earlier starts or this one."""
    return sum(seconds_spent(LOGOUT / f"trial-{side}") for side in SIDES)


def _scratch(plan: Plan) -> Plan:
    back = {key: value for key, value in plan.items() if key != "scratch"}
    return {**back, **plan["scratch"]}


def told_start(said: Mapping[str, Any]) -> str:
    """The verdict in a line."""
    if "why" in said:
        return f"start: from {said['name']} ({said['why']})"
    what = f"from {said['name']}" if said["chosen"] == "pretrained" else "from scratch"
    return (
        f"start: {what}, after a short training of each: {said['watch']} {said['pretrained']:.3f} with the weights of "
        f"{said['name']}, {said['scratch']:.3f} from scratch"
    )


def start_card(plan: Plan) -> dict[str, Any]:
    """For config.json of the deliverable: origin and licence of the weights that it grew from, and what was compared."""
    if not VERDICT.exists():
        return {}
    said = json.loads(VERDICT.read_text())
    origin = plan["network"].get("origin") or {} if said["chosen"] == "pretrained" else {}
    return {"start": {**said, **origin, "told": told_start(said)}}


def start_lines(plan: Plan) -> str:
    """For the deliverable's README."""
    said = start_card(plan).get("start") or {}
    if said.get("chosen") != "pretrained":
        return f"{said['told']}.\n" if said else ""
    return (
        f"{said['told']}. Its licence holds for this model too: {said['licence']}. Origin: {said['source']}"
        + (f"; {said['citation']}" if said["citation"] else "")
        + ".\n"
    )


def without_paths(network: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed to build the network without its files: where they lay is nobody's business."""
    return {key: value for key, value in network.items() if key not in ("pretrained", "trial")}
