"""Measure the templates on the GPU of this machine: its use, memory, and steps a second beside bare PyTorch and nnU-Net.

    python benchmarks/gpu.py [SET ...] [--seconds 20] [--out FILE.json]
    python benchmarks/gpu.py --check [SET ...] [--steps 30] [--device cuda:80GB] [--jobs 4] [--out FILE.json]

Drawn sets (benchmarks/gpu_sets.py) are planned for an hour, and trained for `--seconds` each. "Steps/s" counts everything
that a training does, scoring included; "bare" is a loop of the same network, batch and precision on one batch that stays on
the GPU. "Use" is the mean of nvidia-smi while training. For 3D masks, nnU-Net's own trainer (its plain U-Net, not compiled)
is timed as well, and the template again with nnU-Net's patch, batch and filters. The last lines are rows for RESULTS.md.

`--check` looks for what crashes: each set is planned, trained for a few steps, exported, and its export predicts an image. It
counts what a step starts on the GPU, copies to it, and waits for. `--device` plans for a GPU that is not here, and trains on
the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_sets import SETS, assemble_set
from template_bench import run_in_template

MEASURED = ("classes-28", "classes-224", "masks-512", "masks-64x64x64", "boxes-480x640")
BESIDE_NNUNET = "masks-64x64x64"
BARE_LOOP_CODE = """
import json, sys, time
sys.path.insert(0, ".")
import torch
from pathlib import Path
from Utils.gpu_fit import STEP_COSTS
from Utils.optimizers import optimizer_of
from Utils.precision import autocast, device_of, laid_out
from Utils.step_cost import micro_batch
plan, most = json.loads(Path("plan.json").read_text()), float(sys.argv[1])
device = device_of(plan)
on_gpu = device.type == "cuda"
torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = on_gpu, True
torch.set_float32_matmul_precision("high")
model = laid_out(STEP_COSTS.build(plan).to(device).train(), plan)
batch = {key: value.to(device) for key, value in STEP_COSTS.noise(plan, micro_batch(plan)).items()}
optimizer, parts = optimizer_of(model, plan, 1e-6, 0.0), int(plan.get("accumulate") or 1)
def step():
    for _ in range(parts):
        with autocast(plan, device):
            loss = model(**batch)["loss"]
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
def wait():
    if on_gpu: torch.cuda.synchronize()
for _ in range(5 if on_gpu else 1): step()
wait()
steps, start = 0, time.monotonic()
while time.monotonic() - start < most:
    for _ in range(10 if on_gpu else 1): step()
    steps += 10 if on_gpu else 1
    wait()
seconds = (time.monotonic() - start) / steps
held = torch.cuda.max_memory_reserved() if on_gpu else 0
print("RESULT " + json.dumps({"rate": 1 / seconds, "held": held / 1e9, "expected": STEP_COSTS.peak(plan) / 1e9}))
"""
NNUNET_CODE = """
import json, sys, time
sys.path.insert(0, ".")
import numpy as np, torch
from pathlib import Path
from Datapath.dataloader import hold_out, read_index
from Utils import nnunet
from Utils.nnunet_data import NAME, write_dataset
plan, most = json.loads(Path("plan.json").read_text()), float(sys.argv[1])
start = time.monotonic()
plan |= {"planner": "plain"}
place = Path("nnunet").resolve()
nnunet._environment(place, plan)
import os
os.environ["nnUNet_compile"] = "f"
records = read_index()
held = hold_out(records, float(plan["validation_share"]), int(plan["seed"]))
write_dataset(records, held, plan, place)
nnunet.plan_and_preprocess(place, plan)
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
folder = place / "preprocessed" / NAME
plans = {**json.loads((folder / "nnUNetPlans.json").read_text()), "continue_training": False}
described = json.loads((folder / "dataset.json").read_text())
on_gpu = torch.cuda.is_available() and plan["device"] != "cpu"
trainer = nnUNetTrainer(plans, nnunet.configuration(plan), 0, described, torch.device("cuda" if on_gpu else "cpu"))
torch.backends.cudnn.benchmark = on_gpu
trainer.on_train_start()
trainer.on_epoch_start()
trainer.on_train_epoch_start()
for _ in range(10 if on_gpu else 1): trainer.train_step(next(trainer.dataloader_train))
prepared = time.monotonic() - start
print("TRAINING", flush=True)
steps, start = 0, time.monotonic()
while time.monotonic() - start < most:
    trainer.train_step(next(trainer.dataloader_train))
    steps += 1
seconds = time.monotonic() - start
print("TRAINED", flush=True)
now = trainer.configuration_manager
architecture = now.configuration["architecture"]["arch_kwargs"]
print("RESULT " + json.dumps({"rate": steps / seconds, "prepared": prepared, "patch": [int(n) for n in now.patch_size],
    "batch": int(now.batch_size), "filters": [int(n) for n in architecture["features_per_stage"]],
    "held": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0}), flush=True)
os._exit(0)  # nnU-Net's loaders would be waited for
"""
PROFILED_CODE = """
import json, sys
sys.path.insert(0, ".")
import torch
import train
from torch.profiler import ProfilerActivity, profile
import Utils.training as training
taken, steps, on_gpu = {}, 8, torch.cuda.is_available()
own = training.ClockTrainer.training_step
def training_step(self, *rest, **more):
    done = taken["done"] = taken.get("done", 0) + 1
    if done == int(sys.argv[1]) - steps - 2:
        taken["profile"] = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])])
        taken["profile"].start()
    elif done == int(sys.argv[1]) - 2 and "profile" in taken:
        if on_gpu: torch.cuda.synchronize()
        taken["profile"].stop()
        taken["table"] = taken.pop("profile").key_averages()
    return own(self, *rest, **more)
training.ClockTrainer.training_step = training_step
code = train.main([])
def count(*words):
    return sum(e.count for e in taken["table"] if any(w in e.key for w in words)) / steps
found = {"code": code, "held": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0}
if "table" in taken:
    gpu = [e for e in taken["table"] if str(e.device_type).endswith("CUDA")]
    found |= {"kernels": count("cudaLaunchKernel", "cuLaunchKernel"), "copies": count("Memcpy HtoD"), "back": count("Memcpy DtoH"),
        "waits": count("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
        "gpu_ms": sum(e.self_device_time_total for e in gpu) / steps / 1e3,
        "most": [[e.key[:60], round(e.self_device_time_total / steps / 1e3, 3), e.count / steps]
            for e in sorted(gpu, key=lambda e: -e.self_device_time_total)[:6]]}
print("RESULT " + json.dumps(found), flush=True)
"""
PREDICTED = "import json; print(json.load(open('Datapath/test.json'))[0]['image_path'])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="those of gpu_sets.py; without any: the usual ones")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each training that is measured")
    parser.add_argument("--check", action="store_true", help="look for crashes instead")
    parser.add_argument("--steps", type=int, default=30, help="of --check")
    parser.add_argument("--device", default="auto", help="of --check: plan for this one")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="sets at a time of --check"
    )
    parser.add_argument("--set", nargs="*", default=[], help="of --check: settings of plan.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if unknown := set(options.sets) - set(SETS):
        parser.error(f"no such set: {', '.join(sorted(unknown))}; known are {', '.join(SETS)}")
    gpu = get_gpu_name()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {gpu or 'NO GPU HERE: this shows that the script works, and nothing about GPUs'}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = (check_sets if options.check else measure_sets)(Path(folder), options, bool(gpu))
    if options.out:
        options.out.write_text(json.dumps({"device": gpu, "sets": found}, indent=1))
    if options.check and any("error" in one for one in found.values()):
        raise SystemExit(1)


def get_gpu_name() -> str:
    """Return the name of the first GPU; empty if PyTorch sees none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


def measure_sets(folder: Path, options: argparse.Namespace, gpu: bool) -> dict[str, Any]:
    """Measure the sets one after the other, and print the table and its rows."""
    names = options.sets or list(MEASURED)
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(len(names)) as pool:
        drawn = {name: pool.submit(draw_set, name, folder / name) for name in names}
        print(HEADING, flush=True)
        for name in names:
            drawn[name].result()
            measured = {name: lambda name=name: measure_template(folder / name, options.seconds, gpu)}
            if name == BESIDE_NNUNET and find_spec("nnunetv2"):
                measured |= {
                    f"{name}, nnU-Net": lambda name=name: measure_nnunet(folder / name, options.seconds, gpu),
                    f"{name}, as nnU-Net": lambda name=name: measure_template(
                        folder / name, options.seconds, gpu, as_nnunet(found[f"{name}, nnU-Net"])
                    ),
                }
            for row, measure in measured.items():
                try:
                    found[row] = measure()
                    print(format_line(row, found[row]), flush=True)
                except (SystemExit, Exception) as error:
                    found[row] = {"error": str(error)}
                    print(f"{row}: {error}", flush=True)
    print("\n" + "\n".join(format_row(name, one) for name, one in found.items() if "error" not in one), flush=True)
    return found


def draw_set(name: str, folder: Path) -> None:
    """Draw it in a process of its own."""
    run_python(Path.cwd(), str(Path(__file__).with_name("gpu_sets.py")), name, str(folder))


def as_nnunet(found: dict[str, Any]) -> list[str]:
    """Return the settings with which the template has nnU-Net's patch, batch and network."""
    keys = {"patch": "patch", "batch": "batch", "network.filters": "filters"}
    return [f"{key}={json.dumps(found[name], separators=(',', ':'))}" for key, name in keys.items()]


def measure_template(work: Path, seconds: float, gpu: bool, settings: list[str] | None = None) -> dict[str, Any]:
    """Plan for an hour, train for so many seconds, and time the bare loop."""
    trainer = ["engine=trainer"] if (work / "Utils" / "nnunet.py").exists() else []
    start = time.monotonic()
    run_python(work, "plan.py", "--minutes", "60" if gpu else "1", "--set", "folds=1", *trainer, *(settings or []))
    planned = time.monotonic() - start
    run_python(work, "-c", "import shutil; shutil.rmtree('Logout', ignore_errors=True)")
    monitor = GpuMonitor() if gpu else None
    start = time.monotonic()
    lines = follow_python(work, "train.py", "--minutes", str(seconds / 60))
    whole = time.monotonic() - start
    ended = next(at for at, line in lines if line.startswith("fold0: "))
    done = json.loads((work / "Logout/fold0/done.json").read_text())
    use, memory = monitor.stop(ended - done["seconds"], ended) if monitor else (None, 0.0)
    steps = next(int(line.split()[-2]) for _, line in lines if line.startswith("fold0: "))
    plan = json.loads((work / "plan.json").read_text())
    bare = run_in_template(work, BARE_LOOP_CODE, str(seconds / 4))
    keys = ("batch", "accumulate", "size", "patch", "precision", "channels_last", "network", "workers")
    return {
        "rate": steps / done["seconds"], "bare": bare["rate"], "use": use, "memory": memory, "held": bare["held"],
        "expected": bare["expected"], "planned_s": planned, "beside_s": whole - done["seconds"], "batch": plan["batch"],
        "plan": {key: plan.get(key) for key in keys},
    }  # fmt: skip


def measure_nnunet(work: Path, seconds: float, gpu: bool) -> dict[str, Any]:
    """Let nnU-Net plan and preprocess, and time its own trainer."""
    monitor = GpuMonitor() if gpu else None
    lines = follow_python(work, "-c", NNUNET_CODE, str(seconds))
    begun, ended = (next(at for at, line in lines if line == word) for word in ("TRAINING", "TRAINED"))
    use, memory = monitor.stop(begun, ended) if monitor else (None, 0.0)
    result = next(line for _, line in lines if line.startswith("RESULT "))
    found: dict[str, Any] = json.loads(result.removeprefix("RESULT "))
    return {**found, "use": use, "memory": memory}


def check_sets(folder: Path, options: argparse.Namespace, gpu: bool) -> dict[str, Any]:
    """Check the sets, several at a time, and print a line for each."""
    so_far: dict[str, Any] = {}

    def check(name: str) -> dict[str, Any]:
        start = time.monotonic()
        found: dict[str, Any] = {}
        try:
            check_template(name, folder / name, options, found)
        except (SystemExit, Exception) as error:
            found["error"] = f"{error}" if isinstance(error, SystemExit) else traceback.format_exc()
        found["seconds"] = round(time.monotonic() - start, 1)
        told = {key: value for key, value in found.items() if key not in ("most", "plan", "said")}
        print(f"{name:20}{json.dumps(told)}", flush=True)
        so_far[name] = found
        if options.out:
            options.out.write_text(json.dumps(so_far, indent=1))
        return found

    names = options.sets or list(SETS)
    with ThreadPoolExecutor(options.jobs) as pool:
        return dict(zip(names, pool.map(check, names), strict=True))


def check_template(name: str, work: Path, options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Plan, train, export and predict; what was found goes into `found` as soon as it is known."""
    draw_set(name, work)
    device = ["--device", options.device] if options.device != "auto" else []
    settings = list(options.set)
    if SETS[name].template == "segmentation" and not any(one.startswith("engine=") for one in settings):
        settings.append("engine=trainer")
    settings = ["--set", *settings] if settings else []
    found["said"] = run_python(work, "plan.py", "--minutes", "60", *device, *settings)
    plan = json.loads((work / "plan.json").read_text())
    plan |= {"max_steps": options.steps, "folds": 1, "refit": False}
    plan |= {
        key: min(int(plan[key]), options.steps * int(plan["batch"]))
        for key in ("epoch_patches", "patches")
        if key in plan
    }
    (work / "plan.json").write_text(json.dumps(plan))
    keys = (
        "batch",
        "accumulate",
        "size",
        "patch",
        "precision",
        "channels_last",
        "network",
        "lr",
        "max_epochs",
        "workers",
    )
    found["plan"] = {key: plan[key] for key in keys if key in plan}
    found |= run_in_template(work, PROFILED_CODE, str(options.steps))
    if found["code"]:
        raise SystemExit(f"train.py ended with {found['code']}")
    run_python(work, "export.py", "--out", "Deliver")
    image = json.loads((work / "Datapath/test.json").read_text())[0]["image_path"]
    run_python(work, "Deliver/predict.py", image, "--out", "predicted")


def run_python(work: Path, *command: str) -> str:
    """Return standard output; exit with both outputs if the command fails."""
    done = subprocess.run([sys.executable, *command], cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{work.name}: {' '.join(command)[:200]} failed\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def follow_python(work: Path, *command: str) -> list[tuple[float, str]]:
    """Return the lines of standard output, each with the moment at which it came; exit with all if the command fails."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-u", *command], cwd=work, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout
        lines = [(time.monotonic(), line.rstrip("\n")) for line in process.stdout]
        if process.wait():
            errors.seek(0)
            said = "\n".join(line for _, line in lines)
            raise SystemExit(f"{work.name}: {' '.join(command)[:80]} failed\n{said[-1000:]}{errors.read()[-3000:]}")
    return lines


class GpuMonitor:
    """Use in percent and memory in GB of the first GPU, read from nvidia-smi five times a second."""

    def __init__(self) -> None:
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
        query = [
            "nvidia-smi",
            "-i",
            card,
            "--query-gpu=utilization.gpu,memory.used",
            "--format=csv,noheader,nounits",
            "-lms",
            "200",
        ]
        self.samples: list[tuple[float, float, float]] = []
        self.process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        self.pool = ThreadPoolExecutor(1)
        self.reading = self.pool.submit(self._read)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            values = [part.strip() for part in line.split(",")]
            if len(values) == 2 and all(value.isdigit() for value in values):
                self.samples.append((time.monotonic(), float(values[0]), float(values[1]) * 2**20 / 1e9))

    def stop(self, start: float, end: float) -> tuple[float | None, float]:
        """Return the mean use and the largest memory between the two moments; None if nvidia-smi said nothing then."""
        self.process.terminate()
        self.reading.result()
        self.pool.shutdown()
        within = [(use, memory) for at, use, memory in self.samples if start <= at <= end]
        return (
            (sum(use for use, _ in within) / len(within), max(memory for _, memory in within))
            if within
            else (None, 0.0)
        )


HEADING = (
    f"{'set':30}{'batch':>6}{'steps/s':>9}{'bare':>8}{'share':>7}{'use':>6}{'GB used':>9}{'bare held':>10}{'planned':>9}"
    f"{'plan.py':>9}{'beside':>8}"
)


def format_line(name: str, found: dict[str, Any]) -> str:
    """Format a line of the table."""
    use = "-" if found["use"] is None else f"{found['use']:.0f}%"
    if "bare" not in found:
        return f"{name:30}{found['batch']:6}{found['rate']:9.2f}{'':15}{use:>6}{found['memory']:9.2f}{found['held']:10.2f}{'':18}{found['prepared']:7.0f}s"
    return (
        f"{name:30}{found['batch']:6}{found['rate']:9.2f}{found['bare']:8.2f}{found['rate'] / found['bare']:7.0%}{use:>6}"
        f"{found['memory']:9.2f}{found['held']:10.2f}{found['expected']:9.2f}{found['planned_s']:8.0f}s{found['beside_s']:7.0f}s"
    )


def format_row(name: str, found: dict[str, Any]) -> str:
    """Format a row for RESULTS.md."""
    use = "-" if found["use"] is None else f"{found['use']:.0f} %"
    bare = f"{found['bare']:.1f} | {found['rate'] / found['bare']:.0%}" if "bare" in found else "- | -"
    expected = f"{found['expected']:.1f}" if "expected" in found else "-"
    return f"| {name} | {found['batch']} | {found['rate']:.1f} | {bare} | {use} | {found['memory']:.1f} | {expected} |"


if __name__ == "__main__":
    main()
