"""Writes the deliverable: a folder that predicts on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import MODULES_FILE, PREDICT_FILE, copy_code, put_texts
from m3b.training.detection.detectors import is_library, packages_of
from m3b.training.detection.model_readme import readme
from m3b.training.entry import held_out
from m3b.training.folds import copy_weights, delivered
from m3b.training.out_of_distribution_cases import learn
from m3b.training.pretrained.plan_start import packages
from m3b.training.pretrained.trial import settled, start_card, without_paths
from m3b.training.recipe import RECIPE_FILE

BESIDE = {"transformers": "transformers", "open_clip": "open_clip_torch"}
"""What a backbone's format needs besides."""
FEWSHOT_WEIGHTS = Path("Logout/model/best.safetensors")
CALIBRATION = Path("Logout/calibration.json")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = json.loads(Path("plan.json").read_text())
    calibration = json.loads(CALIBRATION.read_text()) if CALIBRATION.exists() else {}
    engine = calibration.pop("engine", "patches")
    weights = delivered(plan) if engine == "patches" else [FEWSHOT_WEIGHTS]
    missing = [str(file) for file in (*weights, CALIBRATION) if not file.exists()]
    if missing:
        raise SystemExit(f"no trained model at {', '.join(missing)}: run train.py to its end first")
    plan = settled(plan)
    if engine == "patches":
        plan = {**plan, **plan.get("detector", {}), "engine": engine}
        for part in ("detector", "backbone", "prompts", "fewshot", "ordinary"):
            plan.pop(part, None)  # of the engine that it was compared with
        plan["patch"] = calibration.pop("patch")  # smaller than planned where memory did not suffice
        plan["mirror"] = calibration.pop("mirror")
    else:
        plan["engine"] = engine
        plan["backbone"].pop("folder", None)  # of this machine; the weights hold what it gave
        plan["fewshot"]["adapters"] = bool(plan["fewshot"].get("adapters"))
    if engine == "patches":
        scripts = {PREDICT_FILE: Path(PREDICT_FILE), RECIPE_FILE: Path(RECIPE_FILE)}
        if not is_library(plan):
            scripts[MODULES_FILE] = Path(__file__).with_name("export_modules.py")
        copy_code(out, plan["network"], scripts)
    else:
        copy_code(out, {}, {PREDICT_FILE: Path("predict_fewshot.py"), RECIPE_FILE: Path(RECIPE_FILE)})
    named = copy_weights(weights, out)
    config = {
        "task": "detection",
        "target": plan["target"],
        "classes": plan["classes"],
        "multi_label": True,
        **({"labels": plan["labels"]} if plan["labels"] else {}),
        "weights": named,
        "refit": engine == "patches" and bool(plan.get("refit")),
        **calibration,
        **start_card(plan),
        "plan": _without_start(plan),
        "held_out": held_out(),
        **({"familiar": learn(plan)[0]} if engine == "patches" else {}),
    }
    put_texts(out, config, _packages(plan), readme(plan))
    print(f"wrote {out}{_told(plan['classes'], calibration)}")


def _without_start(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan as the deliverable needs it: of a pretrained network its form, not where it lay nor what it was compared with."""
    kept = {key: value for key, value in plan.items() if key != "scratch"}
    return {**kept, "network": without_paths(plan["network"])} if plan.get("network") else kept


def _told(classes: list[str], calibration: dict[str, Any]) -> str:
    """What was chosen on the validation part, a class each; of boxes the scores are calibrated, which is no figure to read."""
    if "thresholds" not in calibration:
        return ""
    rows = zip(classes, calibration["thresholds"], calibration["least_sizes"], strict=True)
    return ": " + "; ".join(
        f"{name}: marked where above {threshold:g}"
        + (f", regions below {least} voxels of the working grid dropped" if least > 1 else "")
        for name, threshold, least in rows
    )


def _packages(plan: dict[str, Any]) -> list[str]:
    backbone = plan.get("backbone", {}).get("format", "")
    more = packages(plan["network"]) if (plan.get("network") or {}).get("config") else []
    more += packages_of(plan["network"]) if is_library(plan) else []
    return [*more, *([BESIDE[backbone]] if backbone in BESIDE else [])]
