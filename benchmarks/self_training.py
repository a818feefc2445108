"""Self-training on unlabelled images against ordinary training in the same minutes, on drawn radiographs.

    python benchmarks/self_training.py [--labelled 40] [--unlabelled 280] [--tested 300] [--draws 4] [--steps 240] [--results FILE]

For each draw, radiographs with and without patches (`m3b.data.synthetic`) go through the diagnosis template (plan.py, train.py,
export.py, predict.py) twice: `plain` with so many steps a fold, and `self_training` with half of them for each of its two networks
of a fold, so that a busy machine measures the same. The script prints AUROC and log loss on the test part of each draw, the choice of
validation, and the mean paired difference with its standard error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pretrained_start import PREDICT_CODE, assemble_template, run_python

from m3b.data.synthetic import radiograph
from m3b.training.ranking_metrics import macro_auroc

CLASSES = ("normal", "pneumonia")
SETTINGS = ("device=cpu", "precision=fp32", "size=[64,64]", "batch=16", "folds=3", "tta.use=false")


def draw_cases(project: Path, labelled: int, unlabelled: int, tested: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Write the images and the index of a project; return the test images and whether each is sick."""
    random = np.random.default_rng(seed)
    (project / "data").mkdir(parents=True)
    (project / "Datapath").mkdir(exist_ok=True)
    parts: dict[str, list[dict[str, Any]]] = {"train": [], "unlabelled": [], "test": []}
    for part, count in (("train", labelled), ("unlabelled", unlabelled), ("test", tested)):
        for number in range(count):
            name, is_sick = f"data/{part}_{number:04d}.png", bool(number % 2)
            Image.fromarray(radiograph(random, is_sick)).save(project / name)
            record = {"image_path": name, "patient": f"{part}{number}", "labels": [CLASSES[is_sick]]}
            parts[part].append({key: record[key] for key in record if part != "unlabelled" or key != "labels"})
    for part in ("train", "unlabelled"):
        (project / f"Datapath/{part}.json").write_text(json.dumps(parts[part]))
    (project / "Datapath/label_dict.json").write_text(json.dumps({name: at for at, name in enumerate(CLASSES)}))
    truth = np.array([record["labels"] == ["pneumonia"] for record in parts["test"]])
    return [record["image_path"] for record in parts["test"]], truth


def train_and_test(options: argparse.Namespace, seed: int, is_self_training: bool) -> dict[str, Any]:
    """Return AUROC and log loss on the test part, and what validation chose."""
    with tempfile.TemporaryDirectory() as folder:
        project = assemble_template(Path(folder) / "work")
        images, truth = draw_cases(project, options.labelled, options.unlabelled, options.tested, seed)
        steps = options.steps // (1 + is_self_training)
        settings = [f"seed={seed}", f"max_steps={steps}", f"self_training={str(is_self_training).lower()}", *SETTINGS]
        run_python(project, "plan.py", "--set", *settings, *options.set)
        run_python(project, "train.py")
        run_python(project, "export.py", "--out", "Deliver")
        model = project / "Deliver"
        (model / "images.json").write_text(json.dumps([str(project / image) for image in images]))
        output = run_python(model, "-c", PREDICT_CODE, "images.json")
        answers = json.loads(output.rpartition("RESULT ")[2])
        scores = np.array([answer["probabilities"]["pneumonia"] for answer in answers])
        table = np.stack([1 - scores, scores], axis=1)
        labels = np.eye(2)[truth.astype(int)]
        metrics = json.loads((project / "Logout/metrics.json").read_text())
    loss = float(-np.log(np.clip(table[np.arange(len(truth)), truth.astype(int)], 1e-6, 1)).mean())
    return {"auroc": float(macro_auroc(labels, table)), "loss": loss, "choice": metrics.get("self_training", {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("labelled", 40), ("unlabelled", 280), ("tested", 300), ("draws", 4), ("steps", 240)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of plan.py for both")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    differences = []
    for seed in range(options.draws):
        plain, other = (train_and_test(options, seed, is_self_training) for is_self_training in (False, True))
        differences.append([other[name] - plain[name] for name in ("auroc", "loss")])
        line = json.dumps({"draw": seed, "plain": plain, "self_training": other})
        print(line, flush=True)
        if options.results:
            with options.results.open("a") as stream:
                stream.write(line + "\n")
    mean = np.mean(differences, axis=0)
    error = (
        np.std(differences, axis=0, ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else [float("nan")] * 2
    )
    for name, value, uncertainty in zip(("AUROC", "log loss"), mean, error, strict=True):
        print(
            f"{name}: self-training minus plain {value:+.4f}, standard error {uncertainty:.4f}, {len(differences)} draws"
        )


if __name__ == "__main__":
    main()
