"""What a step of a training takes on the GPU: run in a project's folder by gpu.py, which starts several of these.

    python gpu_step.py template|nnunet READY LOCK RESULT --sets N --seconds S

Each starts its training, says so by a file `READY`, waits until all N have, and is measured when it holds the lock.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, ".")
import torch

WARM = 24
"""Steps before a training is measured."""
PROFILED = 4
LONGEST_WAIT = 60.0
"""Seconds for which the others are waited for."""
ON_GPU = torch.cuda.is_available()
Step = Callable[[], object]


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


class Measured:
    """The turn of this process, and what it finds.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.start = options, time.monotonic()
        self.figures: dict[str, Any] = {}
        self.samples: list[tuple[float, float, float]] = []
        self.lock = options.lock.open("a")

    def await_turn(self) -> None:
        """Say that the training has started, and wait for the others and for the lock."""
        self.figures["started_s"] = round(time.monotonic() - self.start, 1)
        self.options.ready.touch()
        last = time.monotonic() + LONGEST_WAIT
        while len(list(self.options.ready.parent.glob("*.ready"))) < self.options.sets and time.monotonic() < last:
            time.sleep(0.1)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
        query = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "100"]
        self.monitor = subprocess.Popen(["nvidia-smi", "-i", card, *query], stdout=subprocess.PIPE, text=True)
        assert self.monitor.stdout
        for line in self.monitor.stdout:
            values = [part.strip() for part in line.split(",")]
            if len(values) == 2 and all(value.isdigit() for value in values):
                self.samples.append((time.monotonic(), float(values[0]), float(values[1])))

    def use(self, start: float, end: float) -> float | None:
        """Return the mean use in percent between two moments."""
        within = [use for at, use, _ in self.samples if start + 0.3 <= at <= end]
        return sum(within) / len(within) if within else None

    def note_steps(self, name: str, steps: int, start: float) -> None:
        """Note the steps a second since `start`, and the GPU's use."""
        end = time.monotonic()
        self.figures[name] = steps / (end - start)
        self.figures[f"{name}_use"] = self.use(start, end)

    def note_profile(self, profile: Any) -> None:
        """Note what a step starts, copies and waits for, and how long the GPU computes."""
        table = profile.key_averages()

        def count(*words: str) -> float:
            return float(sum(event.count for event in table if any(word in event.key for word in words))) / PROFILED

        kernels = [event for event in table if str(event.device_type).endswith("CUDA") and "#" not in event.key]
        self.figures |= {
            "kernels": count("cudaLaunchKernel", "cuLaunchKernel"), "to_gpu": count("Memcpy HtoD"),
            "waits": count("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
            "gpu_ms": sum(event.self_device_time_total for event in kernels) / PROFILED / 1e3,
        }  # fmt: skip

    def end(self) -> None:
        """Write the result, give the lock back, and end this process with all that it has started."""
        if ON_GPU:
            self.figures["held"] = torch.cuda.max_memory_reserved() / 1e9
            self.monitor.terminate()
        self.options.result.write_text(json.dumps(self.figures))
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), 9)
        os._exit(0)

    def time_loop(self, name: str, step: Step, seconds: float) -> None:
        """Time a loop of steps, after a few."""
        for _ in range(3 if ON_GPU else 1):
            step()
        wait()
        steps, start = 0, time.monotonic()
        while time.monotonic() - start < seconds:
            step()
            steps += 1
            if steps % 5 == 0:
                wait()
        wait()
        self.note_steps(name, steps, start)


def start_profile() -> Any:
    from torch.profiler import ProfilerActivity, profile

    figures = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if ON_GPU else [])])
    figures.start()
    return figures


def measure_template(measurement: Measured) -> None:
    """Train as train.py does, from its first step to the end of the measurement."""
    import train

    from m3b.training.loop import TrainingLoop

    seconds, own = measurement.options.seconds, TrainingLoop.train_step
    state: dict[str, Any] = {"step": 0}

    def train_step(self: Any, batches: Any) -> Any:
        state["step"] += 1
        step = state["step"]
        if step == 1:
            self.clock.budget = 1e6
        elif step == (WARM if ON_GPU else 4):
            wait()
            measurement.await_turn()
            state.update(start=time.monotonic(), first=step)
        elif "start" in state and "profile" not in state and time.monotonic() - state["start"] > seconds:
            wait()
            measurement.note_steps("rate", step - state["first"], state["start"])
            state.update(profile=start_profile(), last=step + PROFILED)
        elif step == state.get("last"):
            wait()
            state["profile"].stop()
            measurement.note_profile(state["profile"])
            time_bare_loop(measurement)
            measurement.end()
        return own(self, batches)

    TrainingLoop.train_step = train_step
    raise SystemExit(f"train.py ended with {train.main([])} before it was measured")


def time_bare_loop(measurement: Measured) -> None:
    """Time both passes and the optimiser on one batch that stays on the GPU."""
    from m3b.training.diagnosis.gpu_fit import STEP_COSTS
    from m3b.training.optimizers import optimizer_of
    from m3b.training.precision import apply_memory_layout, autocast, device_of
    from m3b.training.step_cost import micro_batch

    plan = json.loads(Path("plan.json").read_text())
    device, parts = device_of(plan), int(plan.get("accumulate") or 1)
    model = apply_memory_layout(STEP_COSTS.build(plan).to(device).train(), plan)
    batch = {key: value.to(device) for key, value in STEP_COSTS.noise(plan, micro_batch(plan)).items()}
    optimizer = optimizer_of(model, plan, 1e-6, 0.0)

    def step() -> None:
        for _ in range(parts):
            with autocast(plan, device):
                loss = model(**batch)["loss"]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    measurement.time_loop("bare", step, measurement.options.seconds / 2)


def measure_nnunet(measurement: Measured) -> None:
    """Let nnU-Net plan (its plain U-Net) and preprocess, and run the steps of its own trainer, which is not compiled."""
    from m3b.training.diagnosis.dataset import hold_out, read_index
    from m3b.training.segmentation import nnunet
    from m3b.training.segmentation.nnunet_data import DATASET_NAME, write_dataset

    plan = json.loads(Path("plan.json").read_text()) | {"planner": "plain"}
    place = Path("nnunet").resolve()
    nnunet._set_environment(place, plan)
    os.environ.update(nnUNet_compile="f")
    records = read_index()
    held_out = hold_out(records, float(plan["validation_share"]), int(plan["seed"]))
    write_dataset(records, held_out, plan, place)
    nnunet.plan_and_preprocess(place, plan)
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    folder = place / "preprocessed" / DATASET_NAME
    plans = json.loads((folder / "nnUNetPlans.json").read_text()) | {"continue_training": False}
    described = json.loads((folder / "dataset.json").read_text())
    trainer = nnUNetTrainer(plans, nnunet.configuration(plan), 0, described, torch.device("cuda" if ON_GPU else "cpu"))
    torch.backends.cudnn.benchmark = ON_GPU
    trainer.on_train_start()
    trainer.on_epoch_start()
    trainer.on_train_epoch_start()
    for _ in range(WARM if ON_GPU else 1):
        trainer.train_step(next(trainer.dataloader_train))
    measurement.await_turn()
    measurement.time_loop(
        "rate", lambda: trainer.train_step(next(trainer.dataloader_train)), measurement.options.seconds
    )
    profile = start_profile()
    for _ in range(PROFILED if ON_GPU else 1):
        trainer.train_step(next(trainer.dataloader_train))
    wait()
    profile.stop()
    measurement.note_profile(profile)
    batch = next(trainer.dataloader_train)
    measurement.time_loop("bare", lambda: trainer.train_step(batch), measurement.options.seconds / 2)
    now = trainer.configuration_manager
    measurement.figures |= {"batch": int(now.batch_size), "patch": [int(side) for side in now.patch_size]}
    measurement.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("template", "nnunet"))
    for name in ("ready", "lock", "result"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sets", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    (measure_template if options.kind == "template" else measure_nnunet)(Measured(options))


if __name__ == "__main__":
    main()
