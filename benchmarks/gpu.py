"""Measure the templates on the GPU of this machine: its use, memory, and steps a second beside bare PyTorch and nnU-Net.

    python benchmarks/gpu.py [SET ...] [--seconds 4] [--out FILE.json]
    python benchmarks/gpu.py --check [SET ...] [--steps 30] [--device cuda:80GB] [--jobs 4] [--out FILE.json]

Drawn sets (benchmarks/gpu_sets.py) are planned for an hour, and their trainings are started side by side; then each is
measured alone (benchmarks/gpu_step.py). "Steps/s" counts all that a training does, scoring included; "bare" is a loop of the
same network, batch and precision on one batch that stays on the GPU. "Use" is the mean of nvidia-smi, "GPU" the time that
kernels run in a step. For 3D masks nnU-Net's own trainer is measured too (its plain U-Net, not compiled), and the template
with the patch, batch and filters that nnU-Net plans for this set. The last lines are rows for RESULTS.md.

`--check` looks for what crashes: each set is planned, trained for a few steps and exported, and its export predicts an image.
`--device` plans for a GPU that is not here, and trains on what is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_sets import SETS

HERE = Path(__file__).resolve().parent
MEASURED = ("classes-28", "classes-224", "masks-512", "masks-64x64x64", "boxes-480x640")
BESIDE_NNUNET = "masks-64x64x64"
AS_NNUNET = ("patch=[64,64,64]", "batch=3", "epoch_patches=300", "network.filters=[32,64,128,256,320]")
"""What nnU-Net 2.8 plans for that set, as settings of the template."""
LONGEST = 220.0
"""Seconds after which a set that has not been measured is given up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="those of gpu_sets.py; without any: the usual ones")
    parser.add_argument("--seconds", type=float, default=4.0, help="for which each training is measured")
    parser.add_argument("--check", action="store_true", help="look for crashes instead")
    parser.add_argument("--steps", type=int, default=30, help="of --check")
    parser.add_argument("--device", default="auto", help="of --check: plan for this one")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="sets at a time of --check"
    )
    parser.add_argument("--set", nargs="*", default=[], help="further settings of plan.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if unknown := set(options.sets) - set(SETS):
        parser.error(f"no such set: {', '.join(sorted(unknown))}; known are {', '.join(SETS)}")
    gpu, memory = get_gpu()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {gpu or 'NO GPU HERE: this shows that the script works, and nothing else'}",
        flush=True,
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if options.check:
            result = check_sets(Path(folder), options)
        else:
            result = measure_sets(Path(folder), options, memory)
    print(f"{time.monotonic() - start:.0f} s")
    if options.out:
        options.out.write_text(json.dumps({"device": gpu, "sets": result}, indent=1))
    if any("error" in entry for entry in result.values()):
        raise SystemExit(1)


def get_gpu() -> tuple[str, float]:
    """Return the name of the first GPU and its memory in GB; empty if PyTorch sees none."""
    import torch

    if not torch.cuda.is_available():
        return "", 0.0
    return torch.cuda.get_device_name(0), round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1)


def measure_sets(folder: Path, options: argparse.Namespace, memory: float) -> dict[str, Any]:
    """Start all trainings, let each have its turn, and print the table and its rows."""
    names = options.sets or list(MEASURED)
    rows = {name: (name, "template", []) for name in names}
    if BESIDE_NNUNET in names and find_spec("nnunetv2"):
        rows |= {
            f"{BESIDE_NNUNET}, nnU-Net's": (BESIDE_NNUNET, "nnunet", []),
            f"{BESIDE_NNUNET}, as nnU-Net": (BESIDE_NNUNET, "template", list(AS_NNUNET)),
        }
    threads = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(rows)))}
    machine = ["--device", f"cuda:{memory}GB", "--minutes", "60"] if memory else ["--device", "cpu", "--minutes", "1"]

    def prepare(row: str) -> Path:
        name, _, settings = rows[row]
        work = draw_set(name, folder / str(list(rows).index(row)))
        settings = [*settings, *options.set, "folds=1", *own_engine(name), *(["compile=false"] if memory else [])]
        run_python(work, "plan.py", *machine, "--set", *settings, env=threads)
        return work

    def measure(row: str, work: Path) -> dict[str, Any]:
        files = (work / "result.json", folder / "lock", folder / f"{work.name}.ready")
        command = [HERE / "gpu_step.py", rows[row][1], files[2], files[1], files[0]]
        more = ["--sets", str(len(rows)), "--seconds", str(options.seconds)]
        run_python(work, *map(str, command), *more, env=threads, timeout=LONGEST)
        plan = json.loads((work / "plan.json").read_text())
        keys = ("batch", "size", "patch", "precision", "channels_last", "network")
        result = json.loads(files[0].read_text())
        return {"batch": plan["batch"], "plan": {key: plan.get(key) for key in keys}, **result}

    def attempt(row: str) -> dict[str, Any]:
        try:
            result = measure(row, works[row])
        except (SystemExit, subprocess.TimeoutExpired) as error:
            (folder / f"{works[row].name}.ready").touch()  # the others do not wait for it
            return {"error": str(error)}
        print(format_line(row, result), flush=True)
        return result

    with ThreadPoolExecutor(len(rows)) as pool:
        works = dict(zip(rows, pool.map(prepare, rows), strict=True))
        print(HEADING, flush=True)
        result = dict(zip(rows, pool.map(attempt, rows), strict=True))
    for row, entry in result.items():
        print(f"{row}: {entry['error']}" if "error" in entry else format_row(row, entry))
    return result


def draw_set(name: str, folder: Path) -> Path:
    """Draw it in a process of its own."""
    run_python(HERE, "gpu_sets.py", name, str(folder))
    return folder


def own_engine(name: str) -> list[str]:
    """Return the setting with which the template trains itself, and does not leave it to nnU-Net."""
    return ["engine=trainer"] if SETS[name].template == "segmentation" else []


def check_sets(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Check the sets, several at a time, and print a line for each."""
    results: dict[str, Any] = {}
    threads = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs))}

    def check(name: str) -> None:
        start, result = time.monotonic(), {}
        try:
            result |= check_template(name, draw_set(name, folder / name), options, threads)
        except SystemExit as error:
            result["error"] = str(error)
        result["seconds"] = round(time.monotonic() - start, 1)
        results[name] = result
        print(f"{name:20}{result.get('error', 'passed')}, {result['seconds']} s", flush=True)
        shutil.rmtree(folder / name, ignore_errors=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(check, options.sets or list(SETS)))
    return results


def check_template(name: str, work: Path, options: argparse.Namespace, env: dict[str, str]) -> dict[str, Any]:
    """Plan, train, export and predict; the plan, and what plan.py said."""
    device = ["--device", options.device] if options.device != "auto" else []
    engine = [] if any(entry.startswith("engine=") for entry in options.set) else own_engine(name)
    settings = [*options.set, *engine]
    output = run_python(
        work, "plan.py", "--minutes", "60", *device, *(["--set", *settings] if settings else []), env=env
    )
    plan = json.loads((work / "plan.json").read_text())
    limits = {key: options.steps * int(plan["batch"]) for key in ("epoch_patches", "patches") if key in plan}
    plan |= {"max_steps": options.steps, "folds": 1, "refit": False}
    plan |= {key: min(int(plan[key]), most) for key, most in limits.items()}
    (work / "plan.json").write_text(json.dumps(plan))
    run_python(work, "train.py", env=env)
    run_python(work, "export.py", "--out", "Deliver", env=env)
    image = json.loads((work / "Datapath/test.json").read_text())[0]["image_path"]
    run_python(work, "Deliver/predict.py", image, "-o", "predicted.json", env=env)
    return {"said": output, "plan": plan}


def run_python(work: Path, *command: str, env: dict[str, str] | None = None, timeout: float | None = None) -> str:
    """Return standard output; exit with both outputs if the command fails."""
    done = subprocess.run(
        [sys.executable, *command], cwd=work, capture_output=True, text=True, env=env, timeout=timeout
    )
    if done.returncode:
        output = f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
        raise SystemExit(f"{work.name}: {' '.join(command)[:200]} failed ({done.returncode})\n{output}")
    return done.stdout


HEADING = (
    f"{'set':30}{'batch':>6}{'steps/s':>9}{'bare':>8}{'share':>7}{'use':>6}{'GPU':>8}{'kernels':>9}{'copies':>8}{'waits':>7}"
    f"{'GB held':>9}{'started':>9}"
)


def format_line(name: str, result: dict[str, Any]) -> str:
    """Format a line of the table."""
    return (
        f"{name:30}{result['batch']:6}{result['rate']:9.2f}{result['bare']:8.2f}{result['rate'] / result['bare']:7.0%}"
        f"{format_use(result['rate_use']):>6}{result['gpu_ms']:6.1f}ms{result['kernels']:9.0f}{result['to_gpu']:8.1f}"
        f"{result['waits']:7.1f}{result.get('held', 0.0):9.2f}{result['started_s']:8.0f}s"
    )


def format_row(name: str, result: dict[str, Any]) -> str:
    """Format a row for RESULTS.md."""
    share = f"{result['rate'] / result['bare']:.0%}"
    figures = f"{result['rate']:.1f} | {result['bare']:.1f} | {share} | {format_use(result['rate_use'])}"
    return f"| {name} | {result['batch']} | {figures} | {result.get('held', 0.0):.1f} |"


def format_use(use: float | None) -> str:
    """Format the use of the GPU; a dash if nvidia-smi said nothing."""
    return "-" if use is None else f"{use:.0f} %"


if __name__ == "__main__":
    main()
