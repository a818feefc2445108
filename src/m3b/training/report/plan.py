"""Looks at the training studies and writes plan.json and tokenizer.json, which every other file here obeys.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 size=[128,128] network.text_model=/models/gpt2 ...]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.gpu_fitting import choose_precision_and_layout, fit_gpu, for_machine, share_gpus
from m3b.training.intensity_rule import whole_changes, whole_input
from m3b.training.machine import machine_of
from m3b.training.named_channels import channels_of
from m3b.training.plan_options import read_options
from m3b.training.plan_settings import given, override, priced, save_plan
from m3b.training.pretrained.plan_start import start_from, without_start
from m3b.training.report.dataset import read_index
from m3b.training.report.fingerprint import fingerprint
from m3b.training.report.gpu_fit import STEP_COSTS, ways_of
from m3b.training.report.language import learn_language
from m3b.training.report.plan_cost import costs, epoch_steps, hopeless, share_out, stage_steps
from m3b.training.report.plan_cost import told as told_stages
from m3b.training.report.plan_summary import summary
from m3b.training.report.short_training import hurry
from m3b.training.report.tokenizer import SECTIONS
from m3b.training.report.writers import start_writer
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import fit, note_expected, steps_of, told
from m3b.training.voxel_spacing import physical_grid

MAX_VIEWS = 4
CHANGES = {"rotate": 6, "zoom": 0.06, "shift": 0.04, "erase": 0.0}
"""No flips, since reports say left and right, and nothing is erased: a hidden finding would still be in the report."""
LEAST = 600
"""Steps below which a smaller input is worth more than detail: image encoder, writer and both together share them."""


def main(argv: list[str] | None = None) -> None:
    options = read_options(__doc__, argv)
    records = read_index()
    if options.time_only or options.keep:
        plan = priced(options.set)
        if options.keep:
            save_plan(plan)
        print(told_stages(plan, costs(plan, len(records)), len(records)))
        return
    label_file = Path("Datapath/label_dict.json")
    label_dict = json.loads(label_file.read_text()) if label_file.exists() else {}
    facts = fingerprint(records, label_dict)
    machine = options.machine(has_gpu())
    plan = make_plan(facts, options.minutes, machine.gpus > 0)
    plan["device"] = "cpu" if options.device == "cpu" else "auto"
    for_machine(plan, machine)
    share_gpus(plan, max(int(plan["batch"]), facts["cases"] // 8))
    for setting in without_start(options.set):
        override(plan, setting)
    writer = start_writer(plan, options.set, override)
    facts |= learn_language(records, plan, options.set)
    said = fit_minutes(facts, plan, options.set)
    facts["start"] = writer or start_from(plan, options.set, override, **plan["network"])
    found = costs(plan, facts["cases"])
    if not given(options.set) & {"warm_share", "words_share"}:
        said += share_out(plan, found, facts["cases"])
    hurried = hurry(plan, stage_steps(plan, found, facts["cases"]), facts["cases"], given(options.set))
    found = costs(plan, facts["cases"]) if hurried else found  # images that are not altered take less time
    steps = stage_steps(plan, found, facts["cases"])
    said += hurried
    note_expected(plan, sum(steps.values()), epoch_steps(plan, facts["cases"]))
    save_plan(plan)
    print(summary(facts, plan))
    print("\n".join([*said, told_stages(plan, found, facts["cases"]), *hopeless(facts, plan, steps)]))


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """The choices but those about the language; `summary` tells their reasons."""
    small, dims = facts["cases"] < 500, facts["dims"]
    grid = physical_grid(facts, _longest(gpu)) if dims == 3 else {"fit": "pad", "field": None}
    size, views = grid.pop("size", None) or _size(facts, gpu), min(MAX_VIEWS, max(facts["views"]))
    batch = int(np.clip(2 ** (21 if gpu else 19) * (4 if dims == 3 else 1) // (int(np.prod(size)) * views), 2, 64))
    # a section that one report in ten has is written; the other is not, since there is nothing to learn it from
    sections = [name for name in SECTIONS if facts["present"][name] >= 0.1 * facts["cases"]]
    return {
        "task": "report",
        "classes": facts["classes"],
        "findings": [],
        "shares": [],
        "sections": sections,
        "vocabulary": 0,
        "unknown": 0,
        "pad": 0,
        "max_tokens": {},
        "views": views,
        "dims": dims,
        **channels_of(facts, 4),
        "size": size,
        "spacing": None,
        **grid,
        **whole_input(facts),
        "network": {
            "image_width": 32 if gpu else 16,
            "width": 256 if gpu else 128,
            "layers": 4 if gpu else 2,
            "heads": 4,
            "dropout": 0.2 if small else 0.1,
            "truth": 0.7,
            "hide_image": 0.5 if small else 0.25,
            "hide_findings": 0.1,
            "image_gradient": 0.1 if small else 0.3,
            "text_model": None,
            "image_model": None,
            "lora": 0,
            "image_lr": 0.05,
        },
        "batch": max(2, min(batch, 8 if small else 32, facts["cases"] // 4)),
        "lr": 2e-3,
        "weight_decay": 0.05,
        "label_smoothing": 0.05,
        "word_dropout": 0.15,
        "findings_weight": 1.0,
        "contrastive": 0.0,
        "warm_share": 0.55,
        "words_share": 0.15,
        "decode": {"beams": 3, "length_penalty": 0.8, "min_tokens": 2, "no_repeat": 0},
        "max_epochs": 1000 if small else 200,
        "patience": 1000 if small else 60,
        "minutes": minutes,
        "validation_share": 0.15,
        "ema": 0.99,
        "augment": whole_changes(facts, small, CHANGES, []),
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }


def _size(facts: dict[str, Any], gpu: bool) -> list[int]:
    median = np.median(facts["shapes"], axis=0)
    if facts["dims"] == 2:
        side = min(256 if gpu else 128, float(median.max()))
        return [max(32, round(side / 16) * 16)] * 2
    return [int(np.clip(round(float(v) / 8) * 8, 16, _longest(gpu))) for v in median]


def _longest(gpu: bool) -> int:
    """Voxels that no side of a volume exceeds at first."""
    return 128 if gpu else 64


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """The quicker precision, and an input that the minutes hold; on a GPU one that its memory holds too. What was set is kept."""
    kept = given(settings)
    choose_precision_and_layout(plan, kept, step_seconds)
    if machine_of(plan).gpus:
        return fit_gpu(plan, STEP_COSTS, ways_of(plan, facts, kept, _smaller_input), _steps, LEAST, kept)
    fixed = "size" in kept or plan["network"]["image_model"]
    said = fit(plan, [] if fixed else [_smaller_input], _steps, LEAST)
    if said:
        choose_precision_and_layout(plan, kept, step_seconds)
    return told(said)


def _steps(plan: dict[str, Any]) -> int:
    return steps_of(plan, step_seconds(plan))


def _smaller_input(plan: dict[str, Any]) -> str:
    least = 48 if plan["dims"] == 3 else 96
    step = 8 if plan["dims"] == 3 else 16
    smaller = [max(least, round(0.75 * side / step) * step) if side > least else side for side in plan["size"]]
    if smaller == plan["size"]:
        return ""
    before, plan["size"] = plan["size"], smaller
    return f"input {smaller} instead of {before}"


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise, estimated for a machine that is not here."""
    return seconds_of_step(plan, STEP_COSTS)
