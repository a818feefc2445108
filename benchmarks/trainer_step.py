"""Compare the training loop with a bare PyTorch loop with the same model, data, batch and optimizer, in time a step.

    python benchmarks/trainer_step.py [--template diagnosis segmentation detection report] [--steps 20] [--turns 9]

Each template is assembled in a temporary folder with its own example data. The two loops take turns in one process; printed are the
best time of each, and the median over the turns of their ratio and of their difference. Times are those of the processor, which other
programs disturb less, or wall time on a GPU. Neither loop scores nor saves anything meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from template_bench import NAMES, prepare_template, run_in_template

TRAINER = """
import itertools, json, sys, time
from pathlib import Path
import torch
plan = json.loads(Path("plan.json").read_text())
steps = int(sys.argv[1])
from m3b.training.clock import Clock
from m3b.training.loop import TrainingLoop, TrainingParts
from m3b.training.optimizers import build_optimizer
from m3b.training.precision import autocast, device_of
from m3b.training.recipe import get_recipe
plan["ema"] = plan.get("ema") or 0.99
recipe = get_recipe()
torch.set_num_threads(int(plan.get("threads") or torch.get_num_threads()))
train, _ = recipe.build_datasets(plan)
if hasattr(train, "resize"):
    train.resize(plan["patch"], None)
collate = getattr(train, "collate", recipe.collate)
batch = max(1, min(int(plan["batch"]), len(train)))
WARMUP = 3
now = time.monotonic if torch.cuda.is_available() else time.process_time

def time_steps(step):
    for _ in range(WARMUP): step()
    start = now()
    for _ in range(steps): step()
    return (now() - start) / steps

def training_loop():
    folder = Path("Logout/bench"); folder.mkdir(parents=True, exist_ok=True)
    parts = TrainingParts(recipe.build_model(plan), train, lambda *_: {"x": 0.0}, (), collate)
    loop = TrainingLoop(plan, folder, Clock(1e6, 10**6), parts, "x", 0)
    batches = itertools.chain.from_iterable(map(loop.steps_of, itertools.count()))
    def step():
        loop.train_step(next(batches))
        loop.clock.step += 1
        loop.agree()
        loop.update_average()
        loop.threads.follow()
    return step
"""
"""Code for an assembled template: `training_loop()` returns a function that makes a step; `time_steps` times it, in seconds."""
CODE = (
    TRAINER
    + """
def bare_loop():
    device = device_of(plan)
    model = recipe.build_model(plan).to(device).train()
    optimizer = build_optimizer(model, plan, None)
    loader = torch.utils.data.DataLoader(train, batch, shuffle=True, collate_fn=collate, drop_last=len(train) % batch == 1)
    batches = itertools.chain.from_iterable(loader for _ in itertools.count())
    values = [value for value in [*model.parameters(), *model.buffers()] if value.is_floating_point()]
    average = [value.detach().clone() for value in values]
    def step():
        items = {k: v.to(device) if hasattr(v, "to") else v for k, v in next(batches).items()}
        with autocast(plan, device): loss = model(**items)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(); optimizer.zero_grad()
        with torch.no_grad(): torch._foreach_lerp_(average, values, 0.01)
    return step

ours, bare = training_loop(), bare_loop()
pairs = [(time_steps(ours), time_steps(bare)) for _ in range(int(sys.argv[2]))]
print("RESULT " + json.dumps({"pairs": pairs, "batch": batch}))
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    print(f"{'template':14} {'batch':>6} {'loop ms':>8} {'bare ms':>8} {'ratio':>6} {'more ms':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.template:
            work = prepare_template(name, Path(folder))
            if work is None:
                print(f"{name:14} not there")
                continue
            result = run_in_template(work, CODE, str(options.steps), str(options.turns))
            pairs = result["pairs"]
            loop, bare = (1000 * min(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(ours / bare for ours, bare in pairs)
            more = 1000 * statistics.median(ours - bare for ours, bare in pairs)
            print(f"{name:14} {result['batch']:6} {loop:8.2f} {bare:8.2f} {ratio:6.3f} {more:8.2f}", flush=True)


if __name__ == "__main__":
    main()
