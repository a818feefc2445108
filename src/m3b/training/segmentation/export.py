"""Writes the deliverable: a folder that predicts on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import copy_code, list_scripts, put_texts
from m3b.training.entry import held_out
from m3b.training.folds import WEIGHTS, copy_weights, delivered, readme_note
from m3b.training.named_channels import takes
from m3b.training.out_of_distribution_cases import learn
from m3b.training.pretrained.plan_start import packages
from m3b.training.pretrained.trial import start_card, start_lines, without_paths

NNUNET = Path("Logout/model0")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    trained = Path("Logout/trained.json")
    plan = json.loads(trained.read_text()) if trained.exists() else {}
    weights = [NNUNET / WEIGHTS] if plan.get("engine") == "nnunet" else delivered(plan)
    missing = [str(file) for file in (trained, *weights) if not file.exists()]
    if missing:
        raise SystemExit(f"nothing trained at {', '.join(missing)}: run train.py to its end first")
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    copy_code(out, plan["network"], list_scripts(Path(__file__).with_name("export_modules.py")))
    names = copy_weights(weights, out)
    figures = json.loads(Path("Logout/metrics.json").read_text())["validation"]
    config: dict[str, Any] = {
        "task": "segmentation",
        "engine": plan["engine"],
        "classes": plan["classes"],
        "multi_label": bool(plan["labels"] is None or plan["overlap"]),
        "labels": plan["labels"] or {name: place + 1 for place, name in enumerate(plan["classes"])},
        "plan": {**plan, "network": without_paths(plan["network"])},
        **start_card(plan),
        "weights": names,
        "refit": bool(plan.get("refit")),
        "validation": figures,
        "held_out": held_out(),
        "familiar": learn(plan)[0],
    }
    if plan["engine"] == "nnunet":
        config["nnunet"] = json.loads((NNUNET / "nnunet.json").read_text())
    put_texts(out, config, _packages(plan), _readme(plan, figures))
    print(f"wrote {out}: {len(plan['classes'])} class(es), {len(names)} network(s); validation Dice {figures['dice']}")
    if changed := list_changed_settings(plan):
        print(
            f"plan.json differs from the plan of this training in {', '.join(changed)}: this has no effect before a new training"
        )


def list_changed_settings(trained_plan: dict[str, Any]) -> list[str]:
    """Return the settings of plan.json that were changed after the training; what the training chose for `auto` is no change."""
    current_plan = json.loads(Path("plan.json").read_text())
    return [
        name
        for name, value in current_plan.items()
        if name in trained_plan and value not in ("auto", trained_plan[name])
    ]


def _packages(plan: dict[str, Any]) -> list[str]:
    if plan["engine"] == "nnunet":
        return ["dynamic-network-architectures"]
    return [*packages(plan["network"]), *(["monai"] if plan["network"]["name"] in ("segresnet", "swinunetr") else [])]


def _readme(plan: dict[str, Any], figures: dict[str, Any]) -> str:
    form = f"one mask file, labels {plan['labels']}" if plan["labels"] else "one mask file a class"
    form += " (classes may overlap)" if plan["overlap"] else ""
    return (
        f"# Segmentation: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json --masks masks\n\n"
        f"Takes {takes(plan)} and writes {form} "
        "with the image's own geometry, and volumes in ml. Dice on "
        f"{figures['cases']} held-out validation cases: {figures['dice']}. Not a medical device.\n"
        + readme_note(plan)
        + start_lines(plan)
    )
