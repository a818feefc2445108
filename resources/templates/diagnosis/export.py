"""Writes the deliverable: a folder that predicts on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

CODE = ("images", "formats", "arrays", "preprocess")
REQUIREMENTS = ("torch", "monai", "numpy", "safetensors", "pillow", "pydicom", "nibabel", "SimpleITK", "h5py")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = json.loads(Path("plan.json").read_text())
    weights = [Path("Logout") / f"fold{fold}" / "best.safetensors" for fold in range(int(plan["folds"]))]
    missing = [str(file) for file in weights if not file.exists()]
    if missing:
        raise SystemExit(f"no trained weights at {', '.join(missing)}: run train.py to its end first")
    for part in ("Utils", "Model"):
        (out / part).mkdir(parents=True, exist_ok=True)
    for name in CODE:
        shutil.copy(f"Utils/{name}.py", out / "Utils")
    for file in Path("Model").glob("*.py"):
        shutil.copy(file, out / "Model")
    shutil.copy(Path(__file__).parent / "deliver" / "predict.py", out)
    names = [_copy_weights(file, out, number, len(weights)) for number, file in enumerate(weights)]
    config = {"plan": plan, "classes": plan["classes"], "weights": names, **calibrate(plan)}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "requirements.txt").write_text(_requirements())
    (out / "README.md").write_text(_readme(plan))
    print(
        f"wrote {out}: {len(names)} network(s), temperature {config['temperature']}, thresholds {config['thresholds']}"
    )


def _copy_weights(file: Path, out: Path, number: int, count: int) -> str:
    name = "model.safetensors" if count == 1 else f"model-{number + 1}-of-{count}.safetensors"
    shutil.copy(file, out / name)
    return name


def calibrate(plan: dict[str, Any]) -> dict[str, Any]:
    """Temperature (Guo et al., 2017) by least validation log loss; for several labels also a threshold a class."""
    stored = np.load("Logout/valid_logits.npz")
    logits, labels = stored["logits"].astype(np.float64), stored["labels"] > 0.5
    multi = bool(plan["multi_label"])
    grid = np.exp(np.linspace(np.log(0.25), np.log(4.0), 81))
    temperature = float(min(grid, key=lambda value: _log_loss(logits / value, labels, multi)))
    thresholds = [0.5] * len(plan["classes"])
    if multi:
        scores = 1 / (1 + np.exp(-np.clip(logits / temperature, -60, 60)))
        thresholds = [round(best_threshold(labels[:, k], scores[:, k]), 4) for k in range(labels.shape[1])]
    return {"temperature": round(temperature, 4), "thresholds": thresholds}


def _log_loss(logits: np.ndarray, labels: np.ndarray, multi: bool) -> float:
    if multi:
        return float((np.logaddexp(0, logits) - labels * logits).mean())
    top = logits.max(axis=1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float(-(logs * labels).sum(axis=1).mean())


def best_threshold(truth: np.ndarray, score: np.ndarray) -> float:
    """The cut with the highest F1; 0.5 where only one side is present."""
    if not truth.any() or truth.all():
        return 0.5
    cuts = np.unique(score)[:: max(1, len(np.unique(score)) // 200)]
    return float(max(cuts, key=lambda cut: 2 * (truth & (score >= cut)).sum() / (truth.sum() + (score >= cut).sum())))


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
    return (
        f"# Classifier: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json\n\n"
        f"Takes {plan['dims']}D images (files, slice folders, DICOM series, `archive.npz#key[index]`) and gives class "
        "probabilities. Not a medical device.\n"
    )


if __name__ == "__main__":
    main()
