"""Writes the deliverable: a folder that predicts without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import copy_code, list_scripts, write_texts
from m3b.training.diagnosis.encoder_choice import apply_chosen_encoder
from m3b.training.diagnosis.linear_probe_fit import copy_backbone, delivered_rule, format_probe_note
from m3b.training.diagnosis.targets import get_target
from m3b.training.entry import hash_validation_cases
from m3b.training.folds import format_fold_note, list_delivered_weights, list_recipe_plans
from m3b.training.named_channels import describe_input
from m3b.training.pretrained.plan_start import list_packages
from m3b.training.pretrained.trial import apply_chosen_start, format_start_note, remove_paths, start_card
from m3b.training.stored_networks import copy_weights, load_networks


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = apply_chosen_start(json.loads(Path("plan.json").read_text()))
    weights = list_delivered_weights(plan)
    missing = [str(file) for file in (*weights, Path("Logout/calibration.json")) if not file.exists()]
    if missing:
        raise SystemExit(f"{', '.join(missing)} missing: run train.py to its end first")
    calibration = json.loads(Path("Logout/calibration.json").read_text())
    probe = delivered_rule(plan, calibration.pop("linear_probe", None))
    plan = apply_chosen_encoder(plan, calibration.pop("encoders", None))
    plan["self_training"] = calibration.pop("self_training", None)
    if recipe_choice := calibration.pop("recipes", None):
        plan["recipes"] = {**plan["recipes"], **recipe_choice}
    networks = [recipe_plan["network"] for recipe_plan in list_recipe_plans(plan)]
    library_network = next((network for network in networks if ":" in str(network.get("name", ""))), networks[0])
    copy_code(out, probe or library_network, list_scripts(Path(__file__).with_name("export_modules.py")))
    stored_weights = {**copy_weights(weights, out, plan["network"]), **copy_backbone(out, probe)}
    config = make_config({**plan, "linear_probe": probe}, stored_weights, calibration)
    config["familiar"] = fit_ood_detector(plan, config, out)
    extra_packages = [
        "monai",
        *(["av"] if plan.get("frames") else []),
        *(package for network in networks for package in list_packages(network)),
        *list_packages(probe or {}),
    ]
    write_texts(out, config, extra_packages, _readme(plan, config) + format_probe_note(probe))
    print(f"wrote {out}: {len(weights)} network(s), temperature {config['temperature']}{describe_rule(config)}")


def describe_rule(config: dict[str, Any]) -> str:
    """Return how the model decides for a class or a grade; empty for numbers.

    Equal thresholds of classes that exclude each other have no part in it, nor have those of grades.
    """
    cuts = dict(zip(config["classes"], config["thresholds"], strict=False))
    if config.get("decide"):
        return f", decides for the {config['decide']} of the grades' probabilities"
    if config["multi_label"] or len(set(cuts.values())) > 1:
        return f", thresholds {', '.join(f'{name}: {cut:g}' for name, cut in cuts.items())}"
    return ", decides for the most probable class" if cuts else ""


def make_config(plan: dict[str, Any], stored_weights: dict[str, Any], calibration: dict[str, Any]) -> dict[str, Any]:
    """Return config.json of the deliverable, with the shape of a pretrained network and without its path.

    Args:
        stored_weights: from `copy_weights`.
    """
    if "alone" in calibration:
        calibration["alone"] = dict(zip(stored_weights["weights"], calibration["alone"], strict=True))
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    return {
        "task": plan["task"],
        "probabilities": "number" not in plan,
        "classes": plan["classes"],
        "multi_label": bool(plan["multi_label"]),
        **stored_weights,
        "refit": bool(plan.get("refit")),
        "saliency": True,
        **calibration,
        **start_card(plan),
        "plan": {**plan, "network": remove_paths(plan["network"])},
        "held_out": hash_validation_cases(),
    }


def fit_ood_detector(plan: dict[str, Any], config: dict[str, Any], out: Path) -> dict[str, Any]:
    """Return the out-of-distribution detector of config.json; its arrays go to familiar.safetensors."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from m3b.training.diagnosis.features import record_features
    from m3b.training.diagnosis.network import build_delivered_model
    from m3b.training.diagnosis.views import view_count
    from m3b.training.out_of_distribution_cases import fit_detector
    from m3b.training.preprocess import preprocess

    if plan.get("covariates") or view_count(plan) > 1:
        return fit_detector(plan)[0]  # the features depend on more than one image

    models = [model.eval() for model in load_networks(out, config, lambda: build_delivered_model(plan))]

    def features(image: Any, name: str) -> list[np.ndarray]:
        batch = torch.from_numpy(preprocess(image, plan, name))[None]
        with torch.no_grad(), record_features(models, len(plan["classes"])) as features_seen:
            for model in models:
                model(batch)
        if not features_seen:
            raise LookupError
        return [rows[0] for rows in features_seen]

    try:
        detector, arrays = fit_detector(plan, features)
    except LookupError:  # a network without a last linear layer
        detector, arrays = fit_detector(plan)
    if arrays:
        save_file({name: torch.from_numpy(value) for name, value in arrays.items()}, str(out / "familiar.safetensors"))
    return detector


def _readme(plan: dict[str, Any], config: dict[str, Any]) -> str:
    metrics = json.loads(Path("Logout/metrics.json").read_text())
    target = get_target(plan)
    view_count = len(config["views"])
    return (
        f"# {target.noun}: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json\n\n"
        f"Takes {describe_input(plan)} and {target.describe_for_readme(metrics, config)} "
        + (
            f"Each image is predicted in {view_count} slightly transformed views.\n"
            if view_count > 1
            else "Each image is predicted once.\n"
        )
        + format_fold_note(plan)
        + format_start_note(plan)
        + (f"Recipes: {plan['recipes']['description']}.\n" if plan.get("recipes") else "")
        + (f"Encoder: {plan['encoders']['description']}.\n" if plan.get("encoders") else "")
        + (f"Candidate: {plan['self_training']['description']}.\n" if plan.get("self_training") else "")
    )
