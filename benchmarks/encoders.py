"""Compare the encoders of volumes and clips (`network.encoder`) at equal minutes: 3D, slices (2.5D), and both weighed on validation.

    python benchmarks/encoders.py --set DIR "REQUEST" [--set DIR "REQUEST" ...] [--minutes 5] [--threads 2] [--cases 60] [--out DIR]

Each DIR is read as `m3b look` reads it for the request. `--cases` keeps so many training cases, evenly spaced. Printed is the AUROC
on the test part with 95 % bootstrap intervals over patients, and the paired difference to the 3D network. Trainings run one after the
other.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from recipes import bootstrap_figures, format_interval, patient_of, prepare_project, run_python, write_test_cases

from m3b.training.ranking_metrics import macro_auroc
from m3b.training.slice_encoder import ENCODERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=2, action="append", required=True, metavar=("DIR", "REQUEST"), dest="sets")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--plan", nargs="*", default=[], metavar="KEY=VALUE", help="for the template's plan.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="encoders_"))).resolve()
    for folder, request in options.sets:
        compare_encoders(Path(folder).resolve(), request, options, out)
    print(f"{options.minutes:g} minutes each, {options.threads} threads, load {os.getloadavg()[1]:.1f} at the end")


def compare_encoders(folder: Path, request: str, options: argparse.Namespace, out: Path) -> None:
    """Print a row for each encoder."""
    work = out / folder.name
    _, test = prepare_project(folder, request, work)
    training_file = work / "Datapath/train.json"
    records = json.loads(training_file.read_text())
    if options.cases:
        chosen = np.linspace(0, len(records) - 1, min(options.cases, len(records))).round().astype(int)
        training_file.write_text(json.dumps([records[row] for row in chosen]))
    rows = [train_and_predict(work, test, encoder, options) for encoder in ENCODERS]

    def measure_auroc(part: np.ndarray) -> float:
        return macro_auroc(*np.hsplit(part, 2)[::-1])

    draws = bootstrap_figures(rows, measure_auroc, [patient_of(record) for record in test])
    for index, (encoder, part) in enumerate(zip(ENCODERS, rows, strict=True)):
        value, difference = measure_auroc(part), measure_auroc(part) - measure_auroc(rows[0])
        ahead = format_interval(difference, draws[:, index] - draws[:, 0]) if index else "-"
        print(f"{folder.name[:28]:28} {encoder:7} {format_interval(value, draws[:, index]):24} {ahead}", flush=True)


def train_and_predict(work: Path, test: list[dict[str, Any]], encoder: str, options: argparse.Namespace) -> np.ndarray:
    """Return (N, 2 K): probabilities and truth of the test cases."""
    write_test_cases(work, test)
    settings = ("network.pretrained=none", f"threads={options.threads}", f"network.encoder={encoder}", *options.plan)
    run_python("plan.py", "--minutes", str(options.minutes), "--set", *settings, cwd=work)
    print(run_python("train.py", cwd=work, OMP_NUM_THREADS=str(options.threads))[-700:], flush=True)
    run_python("export.py", cwd=work)
    run_python("Deliver/predict.py", "--list", "paths.json", "-o", "found/answers.json", cwd=work)
    answers = json.loads((work / "found/answers.json").read_text())
    classes = json.loads((work / "plan.json").read_text())["classes"]
    truth = np.array([[float(name in record["labels"]) for name in classes] for record in test])
    return np.hstack([np.array([[answer["probabilities"][name] for name in classes] for answer in answers]), truth])


if __name__ == "__main__":
    main()
