"""Analyses the training studies and writes plan.json and tokenizer.json, which all other scripts use.

python plan.py --keep --set lr=0.0003      changes the existing plan.json
python plan.py --time-only      prints how the existing plan.json uses its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 size=[128,128] network.text_model=/models/gpt2 ...]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.folds import MAX_SMALL_SET
from m3b.training.gpu_fitting import apply_machine, choose_precision_and_layout, fit_to_gpu, share_gpus
from m3b.training.intensity_rule import choose_whole_image_augmentation, choose_whole_image_input
from m3b.training.machine import has_gpu, machine_of
from m3b.training.named_channels import choose_channels
from m3b.training.plan_options import parse_plan_options
from m3b.training.plan_settings import apply_override, load_edited_plan, overridden_keys, save_plan
from m3b.training.plan_table import choose_settings, conditions_of, describe_rows
from m3b.training.pretrained.plan_start import apply_start, without_start
from m3b.training.report.dataset import read_index
from m3b.training.report.fingerprint import fingerprint
from m3b.training.report.gpu_fit import STEP_COSTS, list_plan_changes
from m3b.training.report.language import learn_language
from m3b.training.report.plan_cost import (
    describe_stages,
    epoch_steps,
    measure_costs,
    share_time,
    stage_steps,
    warn_if_hopeless,
)
from m3b.training.report.plan_summary import format_summary
from m3b.training.report.short_training import adapt_to_few_steps
from m3b.training.report.tokenizer import SECTIONS
from m3b.training.report.writers import start_writer
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import (
    MIN_REDUCTION_GAIN,
    NO_LIMIT,
    describe_reductions,
    estimate_steps,
    record_expected_steps,
    reduce_plan,
)
from m3b.training.voxel_spacing import physical_grid

MAX_VIEWS = 4
MIN_STEPS: int = choose_settings("report")["min_steps"]
"""Steps below which a smaller input is better than detail: image encoder, writer and both together share them."""


def main(argv: list[str] | None = None) -> None:
    options = parse_plan_options(__doc__, argv)
    records = read_index()
    if options.time_only or options.keep:
        plan = load_edited_plan(options.set)
        if options.keep:
            save_plan(plan)
        print(describe_stages(plan, measure_costs(plan, len(records)), len(records)))
        return
    label_file = Path("Datapath/label_dict.json")
    label_dict = json.loads(label_file.read_text()) if label_file.exists() else {}
    facts = fingerprint(records, label_dict)
    machine = options.machine(has_gpu())
    plan = make_plan(facts, options.minutes, machine.gpus > 0)
    plan["device"] = "cpu" if options.device == "cpu" else "auto"
    apply_machine(plan, machine)
    share_gpus(plan, max(int(plan["batch"]), facts["cases"] // 8))
    for setting in without_start(options.set):
        apply_override(plan, setting)
    writer_text = start_writer(plan, options.set, apply_override)
    facts |= learn_language(records, plan, options.set)
    changes = fit_minutes(facts, plan, options.set)
    facts["start"] = writer_text or apply_start(plan, options.set, apply_override, **plan["network"])
    stage_costs = measure_costs(plan, facts["cases"])
    if not overridden_keys(options.set) & {"warm_share", "words_share"}:
        changes += share_time(plan, stage_costs, facts["cases"])
    short_changes = adapt_to_few_steps(
        plan, stage_steps(plan, stage_costs, facts["cases"]), facts["cases"], overridden_keys(options.set)
    )
    stage_costs = measure_costs(plan, facts["cases"]) if short_changes else stage_costs  # weaker augmentation is faster
    steps = stage_steps(plan, stage_costs, facts["cases"])
    changes += short_changes
    record_expected_steps(plan, sum(steps.values()), epoch_steps(plan, facts["cases"]))
    save_plan(plan)
    print(format_summary(facts, plan))
    print(describe_rows("report", conditions_of(facts, machine.gpus > 0, options.minutes)))
    print(
        "\n".join([*changes, describe_stages(plan, stage_costs, facts["cases"]), *warn_if_hopeless(facts, plan, steps)])
    )


def make_plan(facts: dict[str, Any], minutes: float, has_gpu: bool) -> dict[str, Any]:
    """Make the plan without the language; `format_summary` gives the reasons."""
    dims, table = facts["dims"], choose_settings("report", conditions_of(facts, has_gpu, minutes))
    grid: dict[str, Any] = physical_grid(facts, table["max_side"]) if dims == 3 else dict(fit="pad", field=None)
    size, views = grid.pop("size", None) or _choose_size(facts, table["max_side"]), min(MAX_VIEWS, max(facts["views"]))
    batch = int(table["step_pixels"] // (int(np.prod(size)) * views))
    # sections of fewer than one report in ten cannot be learnt
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
        **choose_channels(facts, 4),
        "size": size,
        "spacing": None,
        **grid,
        **choose_whole_image_input(facts),
        "network": {
            **{key: table[key] for key in ("image_width", "width", "layers")},
            "heads": 4,
            "truth": 0.7,
            "hide_findings": 0.1,
            **{key: table[key] for key in ("dropout", "hide_image", "image_gradient")},
            "text_model": None,
            "image_model": None,
            "lora": 0,
            "image_lr": 0.05,
        },
        "batch": max(2, min(batch, table["max_batch"], facts["cases"] // 4)),
        **{key: table[key] for key in ("lr", "weight_decay", "label_smoothing", "validation_share", "ema")},
        "word_dropout": 0.15,
        "findings_weight": 1.0,
        "contrastive": 0.0,
        "warm_share": 0.55,
        "words_share": 0.15,
        "decode": {"beams": 3, "length_penalty": 0.8, "min_tokens": 2, "no_repeat": 0},
        "max_epochs": NO_LIMIT,
        "patience": 0,
        "minutes": minutes,
        "augment": choose_whole_image_augmentation(facts, facts["cases"] < MAX_SMALL_SET, table["augment"], []),
        "precision": table["precision"],
        "device": "auto",
        "workers": 0,
        "cache": "auto",
        "threads": 0,
        "seed": 0,
    }


def _choose_size(facts: dict[str, Any], max_side: int) -> list[int]:
    median = np.median(facts["shapes"], axis=0)
    if facts["dims"] == 2:
        return [max(32, round(min(max_side, float(median.max())) / 16) * 16)] * 2
    return [int(np.clip(round(float(v) / 8) * 8, 16, max_side)) for v in median]


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Choose the precision and an input that the minutes hold, on a GPU also its memory; overrides stay."""
    overrides = overridden_keys(settings)
    choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    if machine_of(plan).gpus:
        return fit_to_gpu(
            plan,
            STEP_COSTS,
            list_plan_changes(plan, facts, overrides, _smaller_input),
            _count_steps,
            MIN_STEPS,
            overrides,
        )
    has_fixed_size = "size" in overrides or plan["network"]["image_model"]
    changes = reduce_plan(plan, [] if has_fixed_size else [_smaller_input], _count_steps, MIN_STEPS, MIN_REDUCTION_GAIN)
    if changes:
        choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    return describe_reductions(changes)


def _count_steps(plan: dict[str, Any]) -> int:
    return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds))


def _smaller_input(plan: dict[str, Any]) -> str:
    minimum = 48 if plan["dims"] == 3 else 96
    step = 8 if plan["dims"] == 3 else 16
    smaller = [max(minimum, round(0.75 * side / step) * step) if side > minimum else side for side in plan["size"]]
    if smaller == plan["size"]:
        return ""
    original, plan["size"] = plan["size"], smaller
    return f"input {smaller} instead of {original}"


def step_seconds(plan: dict[str, Any]) -> float:
    """Return the seconds of the fastest of a few training steps on noise, estimated for a remote machine."""
    return seconds_of_step(plan, STEP_COSTS)
