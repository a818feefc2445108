"""Writes the deliverable: a folder that predicts without this project and without m3b.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import MODULES_FILE, PREDICT_FILE, copy_code, write_texts
from m3b.training.detection.detectors import detector_line, is_library, packages_of
from m3b.training.entry import hash_validation_cases
from m3b.training.folds import format_fold_note, list_delivered_weights
from m3b.training.named_channels import describe_input
from m3b.training.out_of_distribution_cases import fit_detector
from m3b.training.pretrained.plan_start import list_packages
from m3b.training.pretrained.trial import apply_chosen_start, format_start_note, remove_paths, start_card
from m3b.training.recipe import RECIPE_FILE
from m3b.training.stored_networks import copy_weights

BACKBONE_PACKAGES = {"transformers": "transformers", "open_clip": "open_clip_torch"}
"""Package that the format of a backbone needs."""
FEWSHOT_WEIGHTS = Path("Logout/model/best.safetensors")
CALIBRATION = Path("Logout/calibration.json")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = json.loads(Path("plan.json").read_text())
    calibration = json.loads(CALIBRATION.read_text()) if CALIBRATION.exists() else {}
    engine = calibration.pop("engine", "patches")
    weights = list_delivered_weights(plan) if engine == "patches" else [FEWSHOT_WEIGHTS]
    missing_files = [str(file) for file in (*weights, CALIBRATION) if not file.exists()]
    if missing_files:
        raise SystemExit(f"no trained model at {', '.join(missing_files)}: run train.py to its end first")
    plan = apply_chosen_start(plan)
    if engine == "patches":
        plan = {**plan, **plan.get("detector", {}), "engine": engine}
        for key in ("detector", "backbone", "prompts", "fewshot", "ordinary"):
            plan.pop(key, None)  # settings of the engine that it was compared with
        plan["patch"] = calibration.pop("patch")  # smaller than planned if memory did not suffice
        plan["mirror"] = calibration.pop("mirror")
    else:
        plan["engine"] = engine
        plan["backbone"].pop("folder", None)  # a path of this machine; the delivered weights include the backbone
        plan["fewshot"]["adapters"] = bool(plan["fewshot"].get("adapters"))
    if engine == "patches":
        scripts = {PREDICT_FILE: Path(PREDICT_FILE), RECIPE_FILE: Path(RECIPE_FILE)}
        if not is_library(plan):
            scripts[MODULES_FILE] = Path(__file__).with_name("export_modules.py")
        copy_code(out, plan["network"], scripts)
    else:
        copy_code(out, {}, {PREDICT_FILE: Path("predict_fewshot.py"), RECIPE_FILE: Path(RECIPE_FILE)})
    stored_weights = copy_weights(weights, out, plan.get("network", {}))  # few-shot plans without masks have none
    config = {
        "task": "detection",
        "target": plan["target"],
        "classes": plan["classes"],
        "multi_label": True,
        **({"labels": plan["labels"]} if plan["labels"] else {}),
        **stored_weights,
        "refit": engine == "patches" and bool(plan.get("refit")),
        **calibration,
        **start_card(plan),
        "plan": _without_start(plan),
        "held_out": hash_validation_cases(),
        **({"familiar": fit_detector(plan)[0]} if engine == "patches" else {}),
    }
    write_texts(out, config, _packages(plan), write_readme(plan))
    print(f"wrote {out}{_describe_thresholds(plan['classes'], calibration)}")


def _without_start(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan without paths of pretrained weights and without the settings that it was compared with."""
    delivered_plan = {key: value for key, value in plan.items() if key != "scratch"}
    return {**delivered_plan, "network": remove_paths(plan["network"])} if plan.get("network") else delivered_plan


def _describe_thresholds(classes: list[str], calibration: dict[str, Any]) -> str:
    """Return thresholds and minimum sizes of each class; empty for boxes, whose scores are calibrated."""
    if "thresholds" not in calibration:
        return ""
    rows = zip(classes, calibration["thresholds"], calibration["least_sizes"], strict=True)
    return ": " + "; ".join(
        f"{name}: threshold {threshold:g}"
        + (f", regions below {min_size} voxels of the working grid removed" if min_size > 1 else "")
        for name, threshold, min_size in rows
    )


def _packages(plan: dict[str, Any]) -> list[str]:
    backbone = plan.get("backbone", {}).get("format", "")
    names = list_packages(plan["network"]) if (plan.get("network") or {}).get("config") else []
    names += packages_of(plan["network"]) if is_library(plan) else []
    return [*names, *([BACKBONE_PACKAGES[backbone]] if backbone in BACKBONE_PACKAGES else [])]


METRICS = Path("Logout/metrics.json")
ENGINES = {
    "fewshot": "few-shot detector",
    "image": "ordinary network",
    "both": "few-shot detector and ordinary networks together",
}
ENSEMBLE_NOTE = (
    "The score combines a few-shot detector and ordinary networks, some of which were trained with parts of the examples: a "
    "weighted mean, each scaled on examples that it was not trained with. The map is that of the few-shot detector.\n\n"
)


def write_readme(plan: dict[str, Any]) -> str:
    """Return the text of README.md."""
    if plan.get("engine", "patches") != "patches":
        return _readme_fewshot(plan)
    outputs = (
        "boxes with scores" if plan["target"] == "boxes" else "one mask per class, boxes around its regions with scores"
    )
    return (
        f"# Detector: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json [--masks DIR]\n\n"
        f"Takes {describe_input(plan)} and gives {outputs}, "
        "and an anomaly score (0 to 1) of the image as a whole. Masks lie on the grid of their image. Boxes are lower "
        "corner, then upper, in pixels: x along columns, y along rows; in volumes voxels along the file's own axes; a "
        "box over pixels 2 to 4 is 2 to 5. Scores are calibrated on validation cases: about 70 % of boxes with a score of "
        "0.7 were right there. Not a medical device.\n"
        + detector_line(plan["network"])
        + format_fold_note(plan)
        + format_start_note(plan)
    )


def _readme_fewshot(plan: dict[str, Any]) -> str:
    is_ensemble = _read_metrics().get("engine") == "both"
    map_text = "an anomaly map (0 to 1000 per pixel, 500 is normal) and " if plan["engine"] == "fewshot" else ""
    return (
        f"# Anomaly detector: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json [--masks DIR]\n\n"
        f"Takes pictures and gives {map_text}an anomaly score (0 to 1) of each as a whole. Scores and maps of an image do not "
        "depend on other images. Not a medical device.\n\n"
        + (ENSEMBLE_NOTE if is_ensemble else "")
        + _describe_examples(plan)
    )


def _read_metrics() -> dict[str, Any]:
    """Return metrics.json, or nothing before a training."""
    metrics: dict[str, Any] = json.loads(METRICS.read_text()) if METRICS.exists() else {}
    return metrics


def _describe_examples(plan: dict[str, Any]) -> str:
    """Return the number of examples, and the AUROC of each engine in every draw of them."""
    by_engine, delivered_engine = _read_metrics().get("over_draws", {}), _read_metrics().get("engine", plan["engine"])
    shots = plan["fewshot"]["shots"]
    if shots == 0:
        auroc = by_engine.get("fewshot", {}).get("mean")
        sentence = f"AUROC of images on the labelled cases at hand: {auroc:.3f}." if auroc is not None else ""
        return f"Trained without examples of this data: its adapters were trained on other sets. {sentence}\n"
    lines = [f"Trained with {'all training cases' if shots is None else f'{shots} examples of each state'}."]
    for engine, metrics in by_engine.items():
        suffix = ", delivered" if engine == delivered_engine else ""
        draws = ", ".join("not measured" if value is None else f"{value:.3f}" for value in metrics["draws"])
        has_mean = len(metrics["draws"]) > 1 and "mean" in metrics
        mean = f", mean {metrics['mean']:.3f}, standard deviation {metrics['deviation']:.3f}" if has_mean else ""
        lines.append(f"- {ENGINES[engine]}{suffix}: {draws}{mean}")
    if by_engine:
        lines.insert(
            1,
            "AUROC of images for each draw, on labelled cases outside the draw, or on its held-out part if there are none:\n",
        )
    return "\n".join(lines) + "\n"
