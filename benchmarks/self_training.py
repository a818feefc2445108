"""Self-training on unlabelled images against ordinary training of as many steps, on drawn radiographs.

    python benchmarks/self_training.py [--labelled 40] [--unlabelled 280] [--tested 300] [--draws 4] [--steps 240] [--results FILE]
        [--set KEY=VALUE ...]

For each draw, radiographs with and without patches (`m3b.data.synthetic`) go through plan.py and train.py of the diagnosis template
twice: `plain` with so many steps a fold, and `self_training` with half of them for each of the two networks of a fold, so that a busy
machine measures the same. The script prints AUROC and log loss of the networks that are delivered on the test part, the same of all
second networks whatever validation chose (`students`), and the mean paired differences to `plain` with their standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from m3b.data.synthetic import radiograph
from m3b.resources import copy_template
from m3b.training.cache import build_cache
from m3b.training.diagnosis import plan as planning
from m3b.training.diagnosis import train as training
from m3b.training.diagnosis.calibration import log_loss, probabilities
from m3b.training.diagnosis.dataset import CaseDataset
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.scoring import run_model
from m3b.training.folds import list_delivered_weights, list_network_names, name_student
from m3b.training.precision import device_of
from m3b.training.ranking_metrics import macro_auroc

CLASSES = ("normal", "pneumonia")
SETTINGS = ("device=cpu", "precision=fp32", "size=[32,32]", "network.width=8", "batch=8", "folds=3", "tta.use=false")


def draw_cases(project: Path, counts: dict[str, int], seed: int) -> list[dict[str, Any]]:
    """Write the images and the index of a project; return the records of its test part."""
    random = np.random.default_rng(seed)
    (project / "data").mkdir(parents=True)
    (project / "Datapath").mkdir(exist_ok=True)
    for part, count in counts.items():
        records = []
        for number in range(count):
            name, is_sick = f"data/{part}_{number:04d}.png", bool(number % 2)
            Image.fromarray(radiograph(random, is_sick)).save(project / name)
            labels = {} if part == "unlabelled" else {"labels": [CLASSES[is_sick]]}
            records.append({"image_path": name, "patient": f"{part}{number}", **labels})
        (project / f"Datapath/{part}.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({name: at for at, name in enumerate(CLASSES)}))
    return records


def measure(files: list[Path], test: list[dict[str, Any]]) -> dict[str, float]:
    """Return AUROC and log loss of the mean probabilities of networks on test images."""
    from safetensors.torch import load_file

    plan = json.loads(Path("plan.json").read_text())
    images, _ = build_cache([record["image_path"] for record in test], plan)
    labels = np.eye(2, dtype=np.float32)[[CLASSES.index(record["labels"][0]) for record in test]]
    cases, device = CaseDataset(images, labels, np.arange(len(test)), test), device_of(plan)
    scores = []
    for file in files:
        model = build_model(plan)
        model.load_state_dict(load_file(str(file)))
        scores.append(probabilities(run_model(model.to(device), cases, device, 64)[0], multi_label=False))
    mean = np.mean(scores, axis=0)
    return {"auroc": float(macro_auroc(labels, mean)), "loss": log_loss(np.log(mean + 1e-6), labels, multi_label=False)}


def train_and_test(options: argparse.Namespace, seed: int, is_self_training: bool) -> dict[str, Any]:
    """Return the figures of the delivered networks and of all second networks, and what validation chose."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "work"
        copy_template("diagnosis", project)
        counts = {"train": options.labelled, "unlabelled": options.unlabelled, "test": options.tested}
        test = draw_cases(project, counts, seed)
        os.chdir(project)
        try:
            steps = options.steps // (1 + is_self_training)
            settings = [
                f"seed={seed}",
                f"max_steps={steps}",
                f"self_training={str(is_self_training).lower()}",
                *SETTINGS,
            ]
            planning.main(["--minutes", "1000", "--set", *settings, *options.set])  # steps are counted, not minutes
            training.main([])
            plan = json.loads(Path("plan.json").read_text())
            choice = json.loads(Path("Logout/metrics.json").read_text()).get("self_training", {})
            figures = {"delivered": measure(list_delivered_weights(plan), test), "choice": choice}
            if is_self_training:
                students = [
                    Path("Logout") / name_student(name) / "best.safetensors" for name in list_network_names(plan)
                ]
                figures["students"] = measure(students, test)
        finally:
            os.chdir(home)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("labelled", 40), ("unlabelled", 280), ("tested", 300), ("draws", 4), ("steps", 240)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of plan.py for both")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    rows = []
    for seed in range(options.draws):
        plain, other = (train_and_test(options, seed, is_self_training) for is_self_training in (False, True))
        rows.append({"draw": seed, "plain": plain, "self_training": other})
        print(json.dumps(rows[-1]), flush=True)
        if options.results:
            with options.results.open("a") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
    for part in ("delivered", "students"):
        for name in ("auroc", "loss"):
            values = [row["self_training"][part][name] - row["plain"]["delivered"][name] for row in rows]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
            print(f"{part}, {name}: {np.mean(values):+.4f} to plain, standard error {error:.4f}, {len(values)} draws")


if __name__ == "__main__":
    main()
