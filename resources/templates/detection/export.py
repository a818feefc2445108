"""Writes the deliverable: a folder that predicts on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from Utils.named import takes

CODE = (
    "arrays",
    "boxes",
    "channels",
    "formats",
    "geometry",
    "grids",
    "headers",
    "images",
    "lesions",
    "mask_grid",
    "masks",
    "preprocess",
    "normalise",
    "calling",
    "cache",
    "extent",
    "unet",
    "volumes",
)
REQUIREMENTS = ("torch", "numpy", "scipy", "safetensors", "pillow", "pydicom", "nibabel", "SimpleITK", "h5py")
WEIGHTS = Path("Logout/model/best.safetensors")
CALIBRATION = Path("Logout/calibration.json")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    missing = [str(file) for file in (WEIGHTS, CALIBRATION) if not file.exists()]
    if missing:
        raise SystemExit(f"no trained model at {', '.join(missing)}: run train.py to its end first")
    plan, calibration = json.loads(Path("plan.json").read_text()), json.loads(CALIBRATION.read_text())
    plan["patch"] = calibration.pop("patch")  # smaller than planned where memory did not suffice
    for part in ("Utils", "Model"):
        shutil.rmtree(out / part, ignore_errors=True)
        (out / part).mkdir(parents=True)
    for name in CODE:
        shutil.copy(f"Utils/{name}.py", out / "Utils")
    for file in Path("Model").glob("*.py"):
        shutil.copy(file, out / "Model")
    for name in ("predict.py", "parts.py"):
        shutil.copy(Path(__file__).parent / "deliver" / name, out)
    shutil.copy(WEIGHTS, out / "model.safetensors")
    config = {
        "task": "detection",
        "target": plan["target"],
        "classes": plan["classes"],
        "multi_label": True,
        **({"labels": plan["labels"]} if plan["labels"] else {}),
        "weights": ["model.safetensors"],
        **calibration,
        "plan": plan,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "requirements.txt").write_text(_requirements())
    (out / "README.md").write_text(_readme(plan))
    print(f"wrote {out}{_told(plan['classes'], calibration)}")


def _told(classes: list[str], calibration: dict[str, Any]) -> str:
    """What was chosen on the validation part, a class each; of boxes the scores are calibrated, which is no figure to read."""
    if "thresholds" not in calibration:
        return ""
    rows = zip(classes, calibration["thresholds"], calibration["least_sizes"], strict=True)
    return ": " + "; ".join(
        f"{name}: marked where above {threshold:g}"
        + (f", lesions below {least} voxels of the working grid dropped" if least > 1 else "")
        for name, threshold, least in rows
    )


def _requirements() -> str:
    from importlib.metadata import PackageNotFoundError, version

    lines = []
    for name in REQUIREMENTS:
        try:
            lines.append(f"{name}=={version(name).split('+')[0]}")
        except PackageNotFoundError:
            lines.append(name)
    return "\n".join(lines) + "\n"


def _readme(plan: dict[str, Any]) -> str:
    what = "boxes with scores" if plan["target"] == "boxes" else "a mask a class, boxes around the lesions with scores"
    return (
        f"# Detector: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json [--masks DIR]\n\n"
        f"Takes {takes(plan)} and gives {what}, "
        "and an anomaly score (0 to 1) of the image as a whole. Masks lie on the grid of their image. Boxes are lower "
        "corner, then upper, in pixels: x along columns, y along rows; in volumes voxels along the file's own axes; a "
        "box over pixels 2 to 4 is 2 to 5. Scores are calibrated on validation cases: of boxes with a score of 0.7 about "
        "70 % were right there. Not a medical device.\n"
    )


if __name__ == "__main__":
    main()
