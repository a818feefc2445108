"""Compare training inside the sandbox and outside: steps a second, and processor time a step, of the same steps of a template.

    python benchmarks/sandbox_training.py [--template diagnosis segmentation] [--steps 40] [--turns 5] [--threads 1] [--most 1.05]

Each template is assembled on its own example data; the training loop makes the same steps (one seed) in its own
process, in turns bare and under each backend that works on this machine. The first three steps are not counted, so imports are not
counted either. The best turns are compared: wall time is meaningful on a quiet machine, processor time on a busy one too. With
`--most` the exit status is 1 if a step takes more processor time than this multiple of a bare one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from template_bench import NAMES, prepare_template
from trainer_step import TRAINER

from m3b.errors import SandboxError
from m3b.isolation.sandbox import Mounts, Sandbox, choose_sandbox

BACKENDS = ("bubblewrap", "landlock")
CODE = (
    TRAINER
    + """
import os
torch.manual_seed(0); torch.set_num_threads(int(sys.argv[2]))
step = training_loop()
for _ in range(WARMUP): step()
busy, start = sum(os.times()[:4]), time.monotonic()
for _ in range(steps): step()
print("RESULT " + json.dumps({
    "rate": steps / (time.monotonic() - start), "processor": (sum(os.times()[:4]) - busy) / steps
}))
"""
)
FILE = "bench_training.py"
Runner = Callable[[Path, int, int], str]
"""(folder, steps, threads) -> output."""


@dataclass(frozen=True)
class Throughput:
    """Steps a second of wall time, and processor seconds a step."""

    rate: float
    processor: float


def run_bare(work: Path, steps: int, threads: int) -> str:
    """Return the output of the steps in an unconfined process."""
    command = [sys.executable, FILE, str(steps), str(threads)]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def make_confined_runner(sandbox: Sandbox) -> Runner:
    """Return a function that makes the steps in a sandbox, as a run starts its scripts."""

    def confined(work: Path, steps: int, threads: int) -> str:
        output = work.parent / f"{work.name}.output"
        command = [sys.executable, FILE, str(steps), str(threads)]
        process = sandbox.start(command, cwd=work, mounts=Mounts(write=(work,)), output=output)
        process.wait()
        return output.read_text()

    return confined


def parse_throughput(output: str) -> Throughput:
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"The training did not come to its end:\n{output[-3000:]}")
    return Throughput(**json.loads(lines[-1].removeprefix("RESULT ")))


def list_runners() -> dict[str, Runner]:
    """Return the ways to make the steps: bare, and under each backend that works on this machine."""
    runners: dict[str, Runner] = {"bare": run_bare}
    for backend in BACKENDS:
        try:
            runners[backend] = make_confined_runner(choose_sandbox(backend))
        except SandboxError as error:
            print(f"{backend} does not work here: {str(error).splitlines()[1]}")
    return runners


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", nargs="*", default=["diagnosis", "segmentation"], choices=NAMES)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most", type=float, default=float("inf"))
    options = parser.parse_args()
    status, runners = 0, list_runners()
    print(f"{'template':14} {'way':12} {'steps/s':>9} {'of bare':>8} {'processor ms/step':>18} {'times bare':>11}")
    with tempfile.TemporaryDirectory(prefix="sandbox-training-") as folder:
        for name in options.template:
            work = prepare_template(name, Path(folder))
            if work is None:
                print(f"{name:14} not there")
                continue
            plan = json.loads((work / "plan.json").read_text())
            (work / "plan.json").write_text(json.dumps({**plan, "threads": options.threads, "workers": 0}))
            (work / FILE).write_text(CODE)
            throughputs: dict[str, list[Throughput]] = {way: [] for way in runners}
            for _ in range(options.turns):
                for way, run in runners.items():
                    throughputs[way].append(parse_throughput(run(work, options.steps, options.threads)))
            best_rates = {way: max(throughput.rate for throughput in paces) for way, paces in throughputs.items()}
            least_processor_s = {
                way: min(throughput.processor for throughput in paces) for way, paces in throughputs.items()
            }
            for way in runners:
                times = least_processor_s[way] / least_processor_s["bare"]
                print(
                    f"{name:14} {way:12} {best_rates[way]:9.2f} {best_rates[way] / best_rates['bare']:8.1%} "
                    f"{1000 * least_processor_s[way]:18.1f} {times:11.3f}",
                    flush=True,
                )
                status |= times > options.most
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
