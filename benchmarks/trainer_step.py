"""Compare the templates' Trainer with a bare PyTorch loop with the same model, data and batch, in steps a second.

    python benchmarks/trainer_step.py [--template diagnosis segmentation detection report] [--steps 60]

Each template is assembled in a temporary folder with its own example data. The two loops take turns, three times each,
and the better time of each is compared. Neither scores nor saves anything meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from template_bench import NAMES, prepare_template, run_in_template

TRAINER = """
import json, sys, time
sys.path.insert(0, ".")
from pathlib import Path
import numpy as np, torch
plan = json.loads(Path("plan.json").read_text())
steps = int(sys.argv[1])
from m3b.training.diagnosis import dataset as dataloader
from m3b.training.diagnosis.network import build_model
from m3b.training.trainer_arguments import arguments
from m3b.training.trainer import ClockTrainer, Parts
from m3b.training.clock import Clock
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
torch.set_num_threads(int(plan.get("threads") or torch.get_num_threads()))
train, _ = dataloader.build_datasets(plan)
collate = getattr(dataloader, "collate", None)
batch = max(1, min(int(plan["batch"]), len(train)))

class Stop(TrainerCallback):
    def __init__(self, owner): self.owner = owner
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3: self.owner["start"] = time.monotonic()
        if state.global_step == steps + 3:
            self.owner["seconds"] = time.monotonic() - self.owner["start"]
            control.should_training_stop = True

def with_trainer():
    taken, clock = {}, Clock(1e6, 10**6)
    plan["ema"] = plan.get("ema") or 0.99
    folder = Path("Logout/bench"); folder.mkdir(parents=True, exist_ok=True)
    parts = Parts(build_model(plan), train, lambda *_: {"x": 0.0}, None, collate)
    trainer = ClockTrainer(plan, folder, clock, parts, "x", args=arguments({**plan, "max_epochs": 10**6}, folder, len(train), 0))
    for callback in (PrinterCallback, ProgressCallback): trainer.remove_callback(callback)
    trainer.add_callback(Stop(taken))
    class Follow(TrainerCallback):
        def on_step_end(self, *_, **__): trainer.follow()
    trainer.add_callback(Follow())
    trainer.train()
    return steps / taken["seconds"]
"""
"""Code for an assembled template: `with_trainer()` returns the steps a second of its Trainer, after three warm-up steps."""
CODE = (
    TRAINER
    + """
def bare():
    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    model = build_model(plan).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(plan["lr"]), weight_decay=float(plan["weight_decay"]))
    loader = torch.utils.data.DataLoader(train, batch, shuffle=True, collate_fn=collate, drop_last=len(train) % batch == 1)
    average = {k: v.detach().clone() for k, v in model.state_dict().items()}
    done, start = 0, 0.0
    while True:
        for items in loader:
            items = {k: v.to(device) if hasattr(v, "to") else v for k, v in items.items()}
            loss = model(**items)["loss"]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); optimizer.zero_grad()
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    if v.is_floating_point(): average[k].lerp_(v, 0.01)
            done += 1
            if done == 3: start = time.monotonic()
            if done == steps + 3: return steps / (time.monotonic() - start)

best = {"trainer": 0.0, "bare": 0.0}
for _ in range(3):
    best["bare"] = max(best["bare"], bare())
    best["trainer"] = max(best["trainer"], with_trainer())
print("RESULT " + json.dumps({**best, "batch": batch}))
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print(f"{'template':14} {'batch':>6} {'Trainer steps/s':>16} {'bare steps/s':>13} {'share':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.template:
            work = prepare_template(name, Path(folder))
            if work is None:
                print(f"{name:14} not there")
                continue
            rates = run_in_template(work, CODE, str(options.steps))
            share = rates["trainer"] / rates["bare"]
            print(
                f"{name:14} {rates['batch']:6} {rates['trainer']:16.2f} {rates['bare']:13.2f} {share:7.1%}", flush=True
            )


if __name__ == "__main__":
    main()
