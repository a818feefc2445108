"""Measure what follows a training by the number of test cases: scoring, storing and reading the measured cases, copying answers.

    python benchmarks/after_training.py [--task diagnosis segmentation detection] [--cases 1000 10000] [--classes 2 100]

Cases are generated. Each row is a process of its own: seconds of the processor (not of the clock), and the growth of its largest
resident set over that before the cases were made.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.tasks import get_family, score_all
from m3b.tasks.score_details import add_lookup_control, add_subgroups, add_uncertainty_scores

METRIC = {"diagnosis": "auroc", "segmentation": "dice", "detection": "map_50"}


def make_row(task: str, number: int, classes: list[str], rng: random.Random) -> dict[str, Any]:
    """Return a measured case of a generated test part; every second case has a patient of its own."""
    row: dict[str, Any] = {"image": f"data/set/{number}.png", "patient": f"p{number // 2}"}
    if task == "diagnosis":
        true = rng.randrange(len(classes))
        raw = [rng.random() + (k == true) for k in range(len(classes))]
        return {
            **row,
            "labels": [classes[true]],
            "probabilities": {name: value / sum(raw) for name, value in zip(classes, raw, strict=True)},
        }
    if task == "detection":
        truth = [[[x, 10, x + 20, 40], rng.choice(classes), 1.0] for x in (10.0, 100.0)]
        shifted = [[[x + rng.uniform(-8, 8) for x in box], label, rng.random()] for box, label, _ in truth]
        return {**row, "predicted": shifted, "truth": truth, "abnormal": True}
    figures = {}
    for name in classes:
        dice = rng.random()
        figures[name] = [dice, dice, 20 * rng.random(), 1000, 1100, 373.13]
    return {**row, "figures": figures, "instances": {name: [0.8, 1, 1, 1] for name in classes}, "unit": "mm"}


def make_index(task: str, rows: int, classes: list[str]) -> Index:
    def record(number: int) -> Record:
        return Record(f"data/set/{number}.png", (classes[number % len(classes)],), f"p{number // 2}")

    return Index((), tuple(record(number) for number in range(rows)), tuple(classes), task)


def measure(task: str, cases: int, count: int) -> dict[str, float]:
    """Return processor seconds of each step, and MiB that the process grew by."""
    from m3b.agents.checks.model import LockedTestResult
    from m3b.run.folder import RunFolder
    from m3b.run.packaging import read_test_result, write_test_result

    classes = [f"class {k}" for k in range(count)]
    index, family, rng = make_index(task, cases, classes), get_family(task), random.Random(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.locked.mkdir()

        def timed(name: str, call: Any) -> Any:
            began = time.process_time()
            result = call()
            seconds[name] = round(time.process_time() - began, 2)
            return result

        def store() -> None:
            rows = (make_row(task, number, classes, rng) for number in range(cases))
            write_test_result(run.locked, LockedTestResult(tuple(rows)))

        timed("store", store)
        stored = timed("read", lambda: read_test_result(run).rows)
        scores = timed("score", lambda: score_all(family, stored, index, primary=METRIC[task], seed=0))

        def add_details() -> None:
            add_uncertainty_scores(
                add_subgroups(add_lookup_control(scores, stored, family), family, stored, index), stored
            )

        timed("details", add_details)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {**seconds, "MiB": round(grown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="*", default=list(METRIC))
    parser.add_argument("--cases", nargs="*", type=int, default=[1000, 10000])
    parser.add_argument("--classes", nargs="*", type=int, default=[2])
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        task, cases, count = options.worker
        print(json.dumps(measure(task, int(cases), int(count))))
        return
    columns = ("store", "read", "score", "details", "MiB")
    print(f"| task | classes | cases | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}", flush=True)
    for task in options.task:
        for count in options.classes:
            for cases in options.cases:
                done = subprocess.run(
                    [sys.executable, __file__, "--worker", task, str(cases), str(count)], capture_output=True, text=True
                )
                if done.returncode:
                    raise SystemExit(done.stderr[-2000:])
                figures = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"| {task} | {count} | {cases:,} | {' | '.join(str(figures[name]) for name in columns)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
