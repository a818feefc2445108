"""Measure a training step of the segmentation template's U-Net on a processor: savings by keeping freed memory and by losses by rows.

    python benchmarks/mask_step.py [--classes 3 13 35] [--side 56] [--steps 15] [--threads 2]

Each row is measured in its own process. The script prints the median milliseconds of a step, forward and backward, and the ratio to
the first row with the same number of classes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from m3b.resources import copy_template

VARIANTS = ("as glibc and the layers have it", "freed memory kept", "freed memory kept, losses by rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 13, 35])
    parser.add_argument("--side", type=int, default=56)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way is not None:
        print(measure_step_ms(options.classes[0], options))
        return
    numbers = ["--side", options.side, "--steps", options.steps, "--threads", options.threads]
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        copy_template("segmentation", project)
        for classes in options.classes:
            first_ms = 0.0
            for variant, name in enumerate(VARIANTS):
                command = [
                    sys.executable,
                    str(Path(__file__).resolve()),
                    "--classes",
                    classes,
                    "--way",
                    variant,
                    *numbers,
                ]
                done = subprocess.run(
                    [str(part) for part in command], cwd=project, capture_output=True, text=True, check=True
                )
                step_time_ms = float(done.stdout.split()[-1])
                first_ms = first_ms or step_time_ms
                print(f"{classes:3} classes  {name:34} {step_time_ms:7.1f} ms  {step_time_ms / first_ms:5.2f}")


def measure_step_ms(classes: int, options: argparse.Namespace) -> float:
    """Return the median milliseconds of a step, in the folder of an assembled project."""
    sys.path.insert(0, ".")
    import torch

    from m3b.training import losses
    from m3b.training.allocator import keep_freed_memory
    from m3b.training.segmentation.network import build_model

    torch.set_num_threads(options.threads)
    if options.way > 0:
        keep_freed_memory()
    if options.way < 2:
        losses.MIN_CHANNELS_BY_ROWS = classes + 2
    network = {
        "name": "unet",
        "filters": [8, 16, 32, 64],
        "strides": [[1] * 3] + [[2] * 3] * 3,
        "kernels": [[3] * 3] * 4,
    }
    names = [f"structure {number}" for number in range(classes)]
    plan = {
        "dims": 3,
        "channels": 1,
        "classes": names,
        "overlap": False,
        "patch": [options.side] * 3,
        "precision": "bf16",
    }
    model = build_model({**plan, "network": {**network, "deep_supervision": True}}).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    image, mask = (
        torch.randn(1, 1, *plan["patch"]),
        torch.randint(0, classes + 1, (1, *plan["patch"]), dtype=torch.uint8),
    )
    times_ms = []
    for _ in range(options.steps + 3):
        started = time.perf_counter()
        model(image, mask)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        times_ms.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times_ms[3:])


if __name__ == "__main__":
    main()
