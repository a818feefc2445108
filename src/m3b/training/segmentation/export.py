"""Writes the deliverable: a folder that predicts without this project and without m3b.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import copy_code, list_scripts, write_texts
from m3b.training.entry import hash_validation_cases
from m3b.training.folds import WEIGHTS_FILE, format_fold_note, list_delivered_weights
from m3b.training.named_channels import describe_input
from m3b.training.out_of_distribution_cases import fit_detector
from m3b.training.pretrained.plan_start import list_packages
from m3b.training.pretrained.trial import format_start_note, remove_paths, start_card
from m3b.training.stored_networks import copy_weights

NNUNET = Path("Logout/model0")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    trained_file = Path("Logout/trained.json")
    plan = json.loads(trained_file.read_text()) if trained_file.exists() else {}
    weights = [NNUNET / WEIGHTS_FILE] if plan.get("engine") == "nnunet" else list_delivered_weights(plan)
    missing_files = [str(file) for file in (trained_file, *weights) if not file.exists()]
    if missing_files:
        raise SystemExit(f"no trained model at {', '.join(missing_files)}: run train.py to its end first")
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    copy_code(out, plan["network"], list_scripts(Path(__file__).with_name("export_modules.py")))
    stored_weights = copy_weights(weights, out, plan["network"])
    figures = json.loads(Path("Logout/metrics.json").read_text())["validation"]
    config: dict[str, Any] = {
        "task": "segmentation",
        "engine": plan["engine"],
        "classes": plan["classes"],
        "multi_label": bool(plan["labels"] is None or plan["overlap"]),
        "labels": plan["labels"] or {name: index + 1 for index, name in enumerate(plan["classes"])},
        "plan": {**plan, "network": remove_paths(plan["network"])},
        **start_card(plan),
        **stored_weights,
        "refit": bool(plan.get("refit")),
        "validation": figures,
        "held_out": hash_validation_cases(),
        "familiar": fit_detector(plan)[0],
    }
    if plan["engine"] == "nnunet":
        config["nnunet"] = json.loads((NNUNET / "nnunet.json").read_text())
    write_texts(out, config, _packages(plan), _readme(plan, figures))
    print(
        f"wrote {out}: {len(plan['classes'])} class(es), {len(weights)} network(s); validation Dice {figures['dice']}"
    )
    if changed_settings := list_changed_settings(plan):
        names = ", ".join(changed_settings)
        print(
            f"plan.json differs from the plan of this training in {names}: changes take effect with the next training"
        )


def list_changed_settings(trained_plan: dict[str, Any]) -> list[str]:
    """Return the settings of plan.json that were changed after the training.

    What the training itself chose does not count: values that replaced `auto`, and ways to clean masks of further classes.
    """
    current_plan = json.loads(Path("plan.json").read_text())
    changed = [
        name
        for name, value in current_plan.items()
        if name in trained_plan and value not in ("auto", trained_plan[name])
    ]
    chosen, kept = trained_plan.get("refine") or {}, current_plan.get("refine") or {}
    return [name for name in changed if name != "refine" or {**chosen, **kept} != chosen]


def _packages(plan: dict[str, Any]) -> list[str]:
    if plan["engine"] == "nnunet":
        return ["dynamic-network-architectures"]
    return [
        *list_packages(plan["network"]),
        *(["monai"] if plan["network"]["name"] in ("segresnet", "swinunetr") else []),
    ]


def _readme(plan: dict[str, Any], figures: dict[str, Any]) -> str:
    mask_format = f"one mask file, labels {plan['labels']}" if plan["labels"] else "one mask file per class"
    mask_format += " (classes may overlap)" if plan["overlap"] else ""
    return (
        f"# Segmentation: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json --masks masks\n\n"
        f"Takes {describe_input(plan)} and writes {mask_format} "
        "with the image's own geometry, and volumes in ml. Dice on "
        f"{figures['cases']} held-out validation cases: {figures['dice']}. Not a medical device.\n"
        + format_fold_note(plan)
        + format_start_note(plan)
    )
