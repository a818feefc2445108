"""Train the detectors of `network.detector` on the same cases for the same minutes and compare them.

    python benchmarks/detectors.py --data DIR ["REQUEST"] [--detectors own fcos retinanet] [--minutes 3] [--threads 1] [--out DIR]
        [--plan KEY=VALUE ...]

DIR is read as `m3b look` reads it for the request: one index, one split. Each detector is planned, trained, exported and run as a
deliverable. The script prints the mAP of the test part at IoU 0.5 with 95 % bootstrap intervals over patients, and the difference of
each to the first one, paired over the same draws. Trainings run one after the other; the load of the machine is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from recipes import bootstrap_figures, format_interval, prepare_project, run_python

REQUEST = "Detect the objects with boxes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("request", nargs="?", default=REQUEST)
    parser.add_argument("--detectors", nargs="+", default=["own", "fcos", "retinanet"])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plan", nargs="*", default=[], metavar="KEY=VALUE", help="for plan.py of every detector")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="detectors_"))).resolve()
    first_project = out / options.detectors[0]
    _, test = prepare_project(options.data.resolve(), options.request, first_project)
    for name in options.detectors[1:]:
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(first_project, out / name, symlinks=True)
    tables, notes = [], []
    for name in options.detectors:
        notes.append(f"{name}: {run_detector(out / name, name, options)}")
        tables.append(rank_detections(out / name, test))
        print(notes[-1], flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"\n{options.data.name}: {len(test)} test cases; {options.minutes:g} minutes each, {options.threads} threads, load {load}"
    )
    print(f"{'detector':12} {'mAP50':22} ahead of {options.detectors[0]} (paired)")
    patients = [str(record.get("patient") or record["image_path"]) for record in test]
    for name, line in zip(options.detectors, format_lines(tables, patients), strict=True):
        print(f"{name:12} {line}")


def run_detector(work: Path, name: str, options: argparse.Namespace) -> str:
    """Plan, train and export a detector, predict (found/answers.json), and return its steps and validation figures."""
    detector_settings = [] if name == "own" else [f"network.detector={name}"]
    threads = {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    settings = ["folds=1", f"threads={options.threads}", *detector_settings, *options.plan]
    run_python("plan.py", "--minutes", str(options.minutes), "--set", *settings, cwd=work, **threads)
    run_python("train.py", cwd=work, **threads)
    run_python("export.py", "--out", "Deliver", cwd=work, **threads)
    run_python("Deliver/predict.py", "--list", "paths.json", "-o", "found/answers.json", cwd=work, **threads)
    plan = json.loads((work / "plan.json").read_text())
    metrics = json.loads((work / "Logout/metrics.json").read_text())
    steps = json.loads((work / "Logout/fold0/done.json").read_text())["steps"]
    return f"{steps} steps of {plan['batch']}, longest side {plan['longest']}, validation mAP50 {metrics['validation']['map_50']}"


def rank_detections(work: Path, test: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return for each case (scores, hits at IoU 0.5, number of true boxes) of every class."""
    from m3b.training.detection.boxes import rank_boxes

    names = list(json.loads((work / "plan.json").read_text())["classes"])
    answers = json.loads((work / "found/answers.json").read_text())
    rows = np.empty(len(test), object)
    for row, (record, answer) in enumerate(zip(test, answers, strict=True)):
        box_sets = [
            (
                np.array([box["box"] for box in boxes], float).reshape(-1, 4),
                np.array([names.index(box["label"]) for box in boxes], int),
            )
            for boxes in (answer["boxes"], record["boxes"])
        ]
        scores = np.array([box["score"] for box in answer["boxes"]], float)
        rows[row] = rank_boxes([(box_sets[0][0], scores, box_sets[0][1])], [box_sets[1]], len(names))
    return rows


def compute_mean_ap(cases: Sequence[Any]) -> float:
    """Return the mAP over the classes."""
    from boxes import average_precision

    values = []
    for k in range(len(cases[0])):
        scores, hits, true = zip(*[case[k] for case in cases], strict=True)
        values.append(average_precision(np.concatenate(scores), np.concatenate(hits), sum(true)))
    return float(np.nanmean(values))


def format_lines(tables: Sequence[np.ndarray], patients: Sequence[str]) -> list[str]:
    """Format figure and interval of each detector, and its difference to the first over the same draws of patients."""
    values, draws = (
        np.array([compute_mean_ap(part) for part in tables]),
        bootstrap_figures(tables, compute_mean_ap, patients),
    )
    texts = []
    for k in range(len(tables)):
        figure = format_interval(values[k], draws[:, k])
        difference = format_interval(values[k] - values[0], draws[:, k] - draws[:, 0])
        texts.append(figure if k == 0 else f"{figure:22} {difference}")
    return texts


if __name__ == "__main__":
    main()
