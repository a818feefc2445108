"""Measure the time that confinement adds to predictions of a delivered model: first and further ones in Python, and whole commands.

    python benchmarks/predict_confined.py [--model FOLDER --image FILE] [--times 20]

Unconfined predictions use `unconfined=True` and `--unconfined`: one child process each. Unconfined and confined
ones take turns, so that other load on the machine slows both alike. The script prints medians in milliseconds and the median of
the paired differences with a 95 % bootstrap interval; `of least` is the shortest confined one minus the shortest unconfined one,
which load on the machine changes least. Without `--model`, the model is a script without libraries, so
that only the processes are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from m3b.isolation.sandbox import choose_sandbox
from m3b.models import Model, load_model

SCRIPT = """
import argparse, json, sys
from pathlib import Path

def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--list"); parser.add_argument("-o")
    call = parser.parse_args(argv)
    cases = json.loads(Path(call.list).read_text())
    Path(call.o).write_text(json.dumps([{"image": c, "probabilities": {"a": 1.0, "b": 0.0}} for c in cases]))
    return 0

if __name__ == "__main__":
    sys.exit(main())
"""


def timed(action: Callable[[], object]) -> float:
    """Return how many milliseconds an action takes by the clock."""
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def median_interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws) - 1]


def report(name: str, unconfined: list[float], confined: list[float]) -> None:
    """Print one line of the table."""
    added = [after - before for before, after in zip(unconfined, confined, strict=True)]
    low, high = median_interval(added)
    print(
        f"{name:<22}{len(added):>4}{statistics.median(unconfined):>12.0f}{statistics.median(confined):>12.0f}"
        f"{statistics.median(added):>10.0f}{f'   ({low:.0f} to {high:.0f})':<20}{min(confined) - min(unconfined):>10.0f}"
    )


def measure_python(folder: Path, image: str, times: int, out: Path) -> None:
    """Print the first prediction of a model object, and the next one."""
    first: tuple[list[float], list[float]] = ([], [])
    further: tuple[list[float], list[float]] = ([], [])

    def predict(model: Model) -> object:
        return model.predict([image], out=out)

    for turn in range(times + 1):
        for place, unconfined in ((0, True), (1, False)):
            with load_model(folder, unconfined=unconfined) as model:
                took = timed(lambda model=model: predict(model)), timed(lambda model=model: predict(model))  # type: ignore[misc]
            if turn:  # the first turn warms the disk's cache
                first[place].append(took[0])
                further[place].append(took[1])
    report("first prediction", *first)
    report("further prediction", *further)


def processor_ms() -> float:
    """Return the processor milliseconds of all processes that this one has waited for, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def measure_command(folder: Path, image: str, times: int, out: Path) -> None:
    """Print a whole `m3b predict`, from start to end: wall time and processor time."""
    call = [sys.executable, "-m", "m3b", "predict", str(folder), image, "-o", str(out), "--force"]

    def run(*words: str) -> object:
        return subprocess.run([*call, *words], check=True, capture_output=True)

    clock: tuple[list[float], list[float]] = ([], [])
    processor: tuple[list[float], list[float]] = ([], [])
    for turn in range(times + 1):
        for place, words in ((0, ["--unconfined"]), (1, [])):
            before = processor_ms()
            took = timed(lambda words=words: run(*words))  # type: ignore[misc]
            if turn:
                clock[place].append(took)
                processor[place].append(processor_ms() - before)
    report("m3b predict", *clock)
    report("... of the processor", *processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a delivered model; a script without libraries if not given")
    parser.add_argument("--image", help="an image for that model")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, image = options.model, options.image
        if folder is None:
            folder, image = Path(scratch) / "model", str(Path(scratch) / "image.png")
            folder.mkdir()
            (folder / "predict.py").write_text(SCRIPT)
            (folder / "config.json").write_text(json.dumps({"classes": ["a", "b"]}))
            Path(image).write_bytes(b"not looked at")
        print(
            f"{choose_sandbox('auto').name}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; milliseconds"
        )
        print(
            f"{'':<22}{'n':>4}{'unconfined':>12}{'confined':>12}{'added':>10}{'   (95 % interval)':<20}{'of least':>10}"
        )
        measure_python(folder, image, options.times, Path(scratch) / "out")
        measure_command(folder, image, options.times, Path(scratch) / "out")


if __name__ == "__main__":
    main()
