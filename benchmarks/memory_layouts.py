"""Compare training steps of the templates' networks on a processor with both memory layouts: the usual one, and channels last.

    python benchmarks/memory_layouts.py [--times 9] [--threads 2]

Which layout is faster depends on the processor (AVX-512 or not) and on the network, so `plan.py` measures it. The two take
turns; the script prints both medians in milliseconds and their ratio.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from template_bench import run_in_template

from m3b.resources import copy_template

CODE = """
import json, statistics, sys, time
import torch
from m3b.training.diagnosis.network import build_model
from m3b.training.allocator import keep_freed_memory
from m3b.training.precision import apply_memory_layout

plan, options = json.loads(sys.argv[1]), json.loads(sys.argv[2])
torch.set_num_threads(options["threads"])
keep_freed_memory()
cases, sides, classes = plan["batch"], plan.get("patch") or plan["size"], len(plan["classes"])
image = torch.randn(cases, plan["channels"], *sides)
masks = torch.randint(0, classes + 1, (cases, *sides), dtype=torch.uint8)
truth = masks if plan["task"] == "segmentation" else torch.eye(classes)[torch.arange(cases) % classes]


def stepper(last):
    model = apply_memory_layout(build_model(plan).train(), {**plan, "channels_last": last})
    order = {2: torch.channels_last, 3: torch.channels_last_3d}[plan["dims"]] if last else torch.contiguous_format
    mine, rate = image.contiguous(memory_format=order), torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        model(mine, truth)["loss"].backward()
        rate.step()
        rate.zero_grad()

    return step


steps, taken = {last: stepper(last) for last in (False, True)}, {False: [], True: []}
for _ in range(options["times"] + 2):
    for last, step in steps.items():
        begin = time.perf_counter()
        step()
        taken[last].append(1e3 * (time.perf_counter() - begin))
print("RESULT", json.dumps({name: statistics.median(taken[name == "last"][2:]) for name in ("usual", "last")}))
"""
COMMON = {"classes": ["one", "other"], "channels": 1, "overlap": False, "multi_label": False, "precision": "fp32"}


def make_unet_plan(dims: int, stages: int, patch: list[int], batch: int) -> dict[str, Any]:
    """Return the network settings of a plan of the segmentation template."""
    network = {
        "name": "unet",
        "filters": [16 * 2**stage for stage in range(stages)],
        "strides": [[1] * dims, *[[2] * dims] * (stages - 1)],
        "kernels": [[3] * dims] * stages,
        "deep_supervision": True,
    }
    return {**COMMON, "task": "segmentation", "dims": dims, "network": network, "patch": patch, "batch": batch}


def make_classifier_plan(size: list[int], batch: int) -> dict[str, Any]:
    """Return the network settings of a plan of the diagnosis template."""
    network = {"name": "small_cnn", "width": 16, "dropout": 0.2}
    return {**COMMON, "task": "diagnosis", "dims": len(size), "network": network, "size": size, "batch": batch}


ROWS = {
    "3D U-Net, two patches": make_unet_plan(3, 4, [56, 40, 40], 2),
    "3D U-Net, one patch": make_unet_plan(3, 4, [56, 40, 40], 1),
    "2D U-Net": make_unet_plan(2, 5, [160, 160], 8),
    "2D classifier, 28 x 28": make_classifier_plan([28, 28], 64),
    "2D classifier, 96 x 96": make_classifier_plan([96, 96], 16),
    "3D classifier": make_classifier_plan([48, 48, 48], 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = vars(parser.parse_args())
    print(f"torch {torch.__version__}, {options['threads']} threads, {torch.backends.cpu.get_cpu_capability()}")
    print(f"{'network':30} usual ms   channels last ms   ratio")
    with tempfile.TemporaryDirectory() as folder:
        for name, plan in ROWS.items():
            work = Path(folder) / plan["task"]
            if not work.exists():
                copy_template(plan["task"], work)
            times = run_in_template(work, CODE, json.dumps(plan), json.dumps(options))
            usual, last = times["usual"], times["last"]
            print(f"{name:30} {usual:8.1f} {last:18.1f} {usual / last:7.2f}", flush=True)


if __name__ == "__main__":
    main()
