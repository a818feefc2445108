"""Which settings of a plan contradict each other."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from m3b.training.segmentation import structure_rows as chain
from m3b.training.segmentation.nnunet_presets import PLANNERS


def check(plan: dict[str, Any]) -> None:
    """Ends the program where settings contradict each other."""
    network = plan["network"]
    if network["name"] == "unet":
        sizes = {key: len(network[key]) for key in ("filters", "strides", "kernels")}
        if len(set(sizes.values())) > 1:
            raise SystemExit(
                f"network in plan.json: {', '.join(f'{n} {key}' for key, n in sizes.items())}; a U-Net has as many of each, "
                "one a level"
            )
    chain.check(plan)
    pads = plan.get("pad_value")
    if isinstance(pads, list) and len(pads) != int(plan["channels"]):
        raise SystemExit(
            f"pad_value {pads} in plan.json: one number, or one for each of the {plan['channels']} channels"
        )
    if plan.get("keep") not in (None, "last", "best"):
        raise SystemExit(f"keep {plan['keep']!r} in plan.json: last and best weights are known")
    if plan["engine"] == "nnunet" and (plan.get("refit") or plan.get("folds", 1) not in (0, 1)):
        raise SystemExit("engine nnunet trains one network: leave folds and refit out, or set engine=trainer")
    if plan.get("shifted") not in (None, "auto", True, False):
        raise SystemExit(f"shifted {plan['shifted']!r} in plan.json: auto, true or false")
    wrong = [name for name in plan.get("refine") or {} if name not in plan["classes"]]
    if wrong:
        raise SystemExit(f"refine in plan.json: {wrong[0]!r} is no class ({', '.join(plan['classes'])})")
    if plan["engine"] not in ("trainer", "nnunet"):
        raise SystemExit(f"engine {plan['engine']!r}: known are trainer and nnunet")
    if plan["engine"] == "nnunet" and plan["network"].get("pretrained"):
        raise SystemExit("engine nnunet builds its own network: leave engine, or network.pretrained, out")
    if plan["engine"] == "nnunet" and not find_spec("nnunetv2"):
        print("nnunetv2 is not installed (pip install nnunetv2): engine trainer is taken instead")
        plan["engine"], plan["why_engine"] = "trainer", "nnunetv2 is not installed"
    if plan.get("planner", "plain") not in PLANNERS:
        raise SystemExit(f"planner {plan['planner']!r} in plan.json: known are {', '.join(PLANNERS)}")
