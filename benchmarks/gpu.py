"""Measure the templates on the GPU of this machine: time to the processor's figure, samples a second, memory, use.

    python benchmarks/gpu.py [--template diagnosis segmentation detection report] [--minutes 3] [--tiny] [--out FILE.json]

Each template is assembled in a temporary folder with its example data. It is trained on the processor for `--minutes`, then on
the GPU for the same time; "time to figure" is the second at which the GPU's log first reaches the processor's final figure. Samples a
second are those of the log against a loop of PyTorch alone with the same network, batch, precision and data. Memory is the peak
of the GPU's tensors against the estimate of the plan. Use is the mean of nvidia-smi while training.

Without a GPU, the script compares two trainings on the processor, and the table says so: it then shows that this script works,
and nothing about GPUs. `--tiny` only trains a few steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from template_bench import NAMES, TEMPLATES, run_in_template

WATCHED_METRICS = {"diagnosis": "auroc", "segmentation": "dice", "detection": "map_50", "report": "quality"}
TINY_SETTINGS = {
    "diagnosis": ["network.name=small_cnn", "network.width=8", "batch=4", "folds=1"],
    "segmentation": ["patch=[16,16,16]", "network.name=unet", "batch=2"],
    "detection": ["network.width=8", "batch=2"],
    "report": ["network.image_width=8", "network.width=32", "network.layers=1", "batch=2"],
}
BARE_LOOP_CODE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, ".")
import torch
from Utils.step_cost import micro_batch
from Utils.precision import autocast, device_of, laid_out
from Utils.rehearse import rehearsed
from Utils.gpu_fit import STEP_COSTS
plan, steps = json.loads(Path("plan.json").read_text()), int(sys.argv[1])
plan["processes"] = 1
device = device_of(plan)
torch.backends.cudnn.benchmark = device.type == "cuda"
model = laid_out(STEP_COSTS.build(plan).to(device).train(), plan)
batch = STEP_COSTS.noise(plan, micro_batch(plan))
step = rehearsed(model, plan, lambda: batch)
if device.type == "cuda": torch.cuda.reset_peak_memory_stats()
for _ in range(2): step()
start = time.monotonic()
for _ in range(steps): step()
seconds = (time.monotonic() - start) / steps
held = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
expected = STEP_COSTS.peak(plan)
print("RESULT " + json.dumps({"samples": int(plan["batch"]) / seconds, "held": held, "expected": expected}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--tiny", action="store_true", help="a few steps of tiny networks: whether this script works")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = get_gpu_name()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {device or 'NO GPU HERE: two trainings on the processor, nothing is learnt about GPUs'}"
    )
    print(
        f"{'template':13}{'figure':>9}{'CPU':>8}{'GPU':>8}{'time to CPU figure':>20}{'samples/s':>11}{'bare':>9}{'share':>7}"
        f"{'use':>6}{'GB held':>9}{'GB planned':>12}"
    )
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.template:
            table[name] = comparison = compare_template(name, Path(folder), options, bool(device))
            print(format_row(name, comparison), flush=True)
    if options.out:
        options.out.write_text(json.dumps({"device": device, "minutes": options.minutes, "templates": table}, indent=1))


def get_gpu_name() -> str:
    """Return the name of the first GPU; empty if PyTorch sees none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


def compare_template(name: str, folder: Path, options: argparse.Namespace, gpu: bool) -> dict[str, Any]:
    """Run both trainings of a template and the bare loop."""
    trained = {}
    for device_name in ("cpu", "gpu"):
        work = assemble_template(name, folder / f"{device_name}-{name}")
        settings = ["max_steps=6", *TINY_SETTINGS[name]] if options.tiny else []
        settings += ["device=cpu"] if device_name == "cpu" or not gpu else []
        run_python(work, "plan.py", "--minutes", str(options.minutes), *(["--set", *settings] if settings else []))
        if options.tiny:
            shorten_epochs(work)
        watch = GpuUsageMonitor() if device_name == "gpu" and gpu else None
        start = time.monotonic()
        run_python(work, "train.py")
        trained[device_name] = {
            "seconds": time.monotonic() - start,
            "use": watch.stop() if watch else None,
            "work": work,
        }
    gpu_log, cpu_log = (read_log(trained[device_name]["work"]) for device_name in ("gpu", "cpu"))
    column = WATCHED_METRICS[name] if WATCHED_METRICS[name] in gpu_log[-1] else list(gpu_log[-1])[4]
    target_figure = max(float(row[column]) for row in cpu_log)
    reached = next((float(row["seconds"]) for row in gpu_log if float(row[column]) >= target_figure), None)
    plan = json.loads((trained["gpu"]["work"] / "plan.json").read_text())
    samples = int(gpu_log[-1]["step"]) * int(plan["batch"]) / max(float(gpu_log[-1]["seconds"]), 1e-6)
    bare_loop = run_in_template(trained["gpu"]["work"], BARE_LOOP_CODE, "3" if options.tiny else "50")
    return {
        "figure": column, "cpu": target_figure, "gpu": max(float(row[column]) for row in gpu_log), "reached": reached,
        "samples": samples, "bare": bare_loop["samples"], "use": trained["gpu"]["use"],
        "held": bare_loop["held"] / 1e9, "expected": bare_loop["expected"] / 1e9, "precision": plan["precision"],
    }  # fmt: skip


def assemble_template(name: str, work: Path) -> Path:
    """Assemble the template with its example data."""
    shutil.copytree(TEMPLATES / name, work)
    for file in (TEMPLATES / "shared").glob("*.py"):
        shutil.copy(file, work / "Utils")
    run_python(work, "example/make_example.py")
    return work


def shorten_epochs(work: Path) -> None:
    """Set epochs of a few steps, so that there is a log."""
    file = work / "plan.json"
    plan = json.loads(file.read_text())
    plan |= {key: 6 for key in ("epoch_patches", "patches") if key in plan}
    if "filters" in plan["network"]:
        plan["network"]["filters"] = [4 * 2 ** min(level, 3) for level in range(len(plan["network"]["filters"]))]
    file.write_text(json.dumps(plan))


def run_python(work: Path, *command: str) -> str:
    """Return standard output; exit with both outputs if the command fails."""
    done = subprocess.run([sys.executable, *command], cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{work.name}: {' '.join(command)} failed\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def read_log(work: Path) -> list[dict[str, str]]:
    """Return the log's rows in which the last row's columns are filled; for the report template, those of its last stage."""
    with (work / "Logout/log.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    last = rows[-1]["fold"]
    return [row for row in rows if row["fold"] == last]


class GpuUsageMonitor:
    """The mean use of the first GPU in percent, read from nvidia-smi once a second."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.stop_event = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    def _sample(self) -> None:
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
        query = ["nvidia-smi", "-i", card, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self.stop_event.wait(1.0):
            done = subprocess.run(query, capture_output=True, text=True)
            if done.returncode == 0 and done.stdout.strip().isdigit():
                self.samples.append(float(done.stdout))

    def stop(self) -> float | None:
        """Return the mean use; None if nvidia-smi printed nothing."""
        self.stop_event.set()
        self.thread.join()
        return sum(self.samples) / len(self.samples) if self.samples else None


def format_row(name: str, comparison: dict[str, Any]) -> str:
    """Format a line of the table."""
    reached = "not reached" if comparison["reached"] is None else f"{comparison['reached']:.0f} s"
    use = "-" if comparison["use"] is None else f"{comparison['use']:.0f}%"
    return (
        f"{name:13}{comparison['figure'][:8]:>9}{comparison['cpu']:8.3f}{comparison['gpu']:8.3f}{reached:>20}{comparison['samples']:11.1f}"
        f"{comparison['bare']:9.1f}{comparison['samples'] / comparison['bare']:7.0%}{use:>6}"
        f"{comparison['held']:9.2f}{comparison['expected']:12.2f}"
    )


if __name__ == "__main__":
    main()
