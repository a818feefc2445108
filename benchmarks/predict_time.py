"""What prediction costs beside the bare network: loading, opening images and the network in one plain process.

    python benchmarks/predict_time.py --model RUN/model [--films 2000] [--side 64] [--times 3]

Compared in turn, on the same generated films: the delivered network without anything of m3b (`bare`), the delivered
predict.py as a plain script, `m3b predict`, `Model.predict` in Python (first call and a further one), and the test stage of a
run (staging, altered copies, prediction, measuring). Printed are the medians and the medians of the ratios to `bare` of the
same turn. Other work on the machine slows all of them: take the ratios, and the least of each row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from m3b.data.index import Index, Record
from m3b.isolation.sandbox import choose_sandbox
from m3b.models import load_model
from m3b.run.folder import RunFolder
from m3b.run.sandbox_executor import SandboxExecutor

BARE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
import torch
from m3b.training.diagnosis.network import build_model
from m3b.training.preprocess import prepare_image
from m3b.training.stored_networks import load_networks

folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
plan = config["plan"]
models = [model.eval() for model in load_networks(folder, config, lambda: build_model(plan, with_loss=False))]
paths = json.loads(Path(sys.argv[2]).read_text())
with torch.no_grad():
    for start in range(0, len(paths), 8):
        batch = torch.from_numpy(np.stack([prepare_image(path, plan) for path in paths[start:start + 8]]))
        for view in config["views"]:
            for model in models:
                model(batch)["logits"]
"""


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def make_films(folder: Path, count: int, side: int) -> list[str]:
    """Write films of noise and return their paths."""
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        pixels = np.clip(random.normal(110, 30, (side, side)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"film_{number:05d}.png")
    return sorted(map(str, folder.iterdir()))


def run_test_stage(model: Path, films: Path, paths: list[str], classes: tuple[str, ...], scratch: Path) -> None:
    """Predict and measure the films as a run does its test cases."""
    run = RunFolder.create(scratch / f"run{time.monotonic_ns()}")
    (run.locked / "data").mkdir()
    (run.locked / "data/films").symlink_to(films)
    records = tuple(
        Record(f"data/films/{Path(path).name}", (classes[number % len(classes)],), f"patient{number}")
        for number, path in enumerate(paths)
    )
    executor = SandboxExecutor(choose_sandbox("auto"), run, (films,), lambda: False)
    try:
        executor.predict(model, records, Index((), records, classes))
    finally:
        executor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a delivered model of classes of 2D images")
    parser.add_argument("--films", type=int, default=2000)
    parser.add_argument("--side", type=int, default=64, help="pixels of a side")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    folder = options.model.resolve()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        paths = make_films(scratch / "films", options.films, options.side)
        list_file = scratch / "list.json"
        list_file.write_text(json.dumps(paths))
        seconds: dict[str, list[float]] = {}

        def record(row: str, action: Callable[[], object]) -> None:
            seconds.setdefault(row, []).append(timed(action))
            print(f"{row} {seconds[row][-1]:.2f} s", file=sys.stderr, flush=True)

        def run_script(*words: str | Path) -> None:
            subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True)

        classes = load_model(folder).classes
        for _ in range(options.times):
            record("bare network and loading", lambda: run_script("-c", BARE, folder, list_file))
            record(
                "predict.py, a plain script",
                lambda: run_script("-B", folder / "predict.py", "--list", list_file, "-o", scratch / "x.json"),
            )
            record(
                "m3b predict",
                lambda: run_script(
                    "-m", "m3b", "predict", folder, scratch / "films", "-o", scratch / "out.json", "--force"
                ),
            )
            with load_model(folder) as model:
                record("Model.predict, first call", lambda model=model: model.predict(paths))  # type: ignore[misc]
                record("Model.predict, further call", lambda model=model: model.predict(paths))  # type: ignore[misc]
                assert model.worker.starts == 1
            record("test stage", lambda: run_test_stage(folder, scratch / "films", paths, classes, scratch))
        print(
            f"{options.films} films of {options.side} px, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, "
            f"n = {options.times}; seconds"
        )
        bare_seconds = seconds["bare network and loading"]
        print(f"{'':<30}{'median':>9}{'least':>9}{'ratio':>9}{'ratio of least':>16}")
        for row, values in seconds.items():
            ratio = statistics.median(value / base for value, base in zip(values, bare_seconds, strict=True))
            print(
                f"{row:<30}{statistics.median(values):>9.2f}{min(values):>9.2f}{ratio:>9.2f}{min(values) / min(bare_seconds):>16.2f}"
            )


if __name__ == "__main__":
    main()
