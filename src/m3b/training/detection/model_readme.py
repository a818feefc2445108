"""README.md of a deliverable: what it takes and gives, and what its figures rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from m3b.training.detection.detectors import detector_line
from m3b.training.folds import readme_note
from m3b.training.named_channels import takes
from m3b.training.pretrained.trial import start_lines

METRICS = Path("Logout/metrics.json")
ENGINES = {
    "fewshot": "few-shot detector",
    "image": "ordinary network",
    "both": "few-shot detector and ordinary networks together",
}
TOGETHER = (
    "The score is that of a few-shot detector and of ordinary networks together, some of which were taught with parts of the "
    "examples: a weighted mean, each scaled on examples that it was not taught with. The map is the few-shot detector's.\n\n"
)


def readme(plan: dict[str, Any]) -> str:
    """The text of README.md."""
    if plan.get("engine", "patches") != "patches":
        return _readme_fewshot(plan)
    what = "boxes with scores" if plan["target"] == "boxes" else "a mask a class, boxes around its regions with scores"
    return (
        f"# Detector: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json [--masks DIR]\n\n"
        f"Takes {takes(plan)} and gives {what}, "
        "and an anomaly score (0 to 1) of the image as a whole. Masks lie on the grid of their image. Boxes are lower "
        "corner, then upper, in pixels: x along columns, y along rows; in volumes voxels along the file's own axes; a "
        "box over pixels 2 to 4 is 2 to 5. Scores are calibrated on validation cases: of boxes with a score of 0.7 about "
        "70 % were right there. Not a medical device.\n"
        + detector_line(plan["network"])
        + readme_note(plan)
        + start_lines(plan)
    )


def _readme_fewshot(plan: dict[str, Any]) -> str:
    made = _measured().get("engine") == "both"
    shown = "an anomaly map (0 to 1000 a pixel, 500 is usual) and " if plan["engine"] == "fewshot" else ""
    return (
        f"# Anomaly detector: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json [--masks DIR]\n\n"
        f"Takes pictures and gives {shown}an anomaly score (0 to 1) of each as a whole. Scores and maps of an image do not "
        "depend on the others that are asked about. Not a medical device.\n\n"
        + (TOGETHER if made else "")
        + _examples(plan)
    )


def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(METRICS.read_text()) if METRICS.exists() else {}
    return found


def _examples(plan: dict[str, Any]) -> str:
    """How many examples it was taught with, and what each engine that was tried reached in every draw of them."""
    measured, delivered = _measured().get("over_draws", {}), _measured().get("engine", plan["engine"])
    shots = plan["fewshot"]["shots"]
    if shots == 0:
        found = measured.get("fewshot", {}).get("mean")
        told = f"AUROC of images on the labelled cases at hand: {found:.3f}." if found is not None else ""
        return f"Taught with no example of this data: its adapters were trained on other sets. {told}\n"
    lines = [f"Taught with {'all training cases' if shots is None else f'{shots} examples of each state'}."]
    for engine, one in measured.items():
        kept = ", delivered" if engine == delivered else ""
        draws = ", ".join("not measured" if value is None else f"{value:.3f}" for value in one["draws"])
        mean = (
            f", mean {one['mean']:.3f}, standard deviation {one['deviation']:.3f}"
            if len(one["draws"]) > 1 and "mean" in one
            else ""
        )
        lines.append(f"- {ENGINES[engine]}{kept}: {draws}{mean}")
    if measured:
        lines.insert(
            1,
            "AUROC of images, a figure a draw, on labelled cases outside the draw, or on its held-out part where none are left:\n",
        )
    return "\n".join(lines) + "\n"
