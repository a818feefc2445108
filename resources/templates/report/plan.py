"""StepCosts at the training studies and writes plan.json and Model/tokenizer.json, which every other file here obeys.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 size=[128,128] network.text_model=/models/gpt2 ...]
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py does, so that the pace is that of training
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from Datapath.dataloader import read_index, report_of, views_of, whole_text
from Model.words import SECTIONS
from Utils.channels import names_of
from Utils.fitting import fit_gpu, for_machine, share_gpus
from Utils.formats import ImageError
from Utils.gpu_fit import STEP_COSTS, ways_of
from Utils.images import read_image
from Utils.language import learn_language
from Utils.machine import machine_of
from Utils.named import by_channel, channels_of, intensity_of, measured, told_names
from Utils.pace import choose_precision, fit, steps_of, told
from Utils.people import people
from Utils.plan_options import read_options
from Utils.price import costs, hopeless, share_out, stage_steps
from Utils.price import told as told_stages
from Utils.scales import averaged, by_itself, colour, count_scales, mixed, scale_of, told_averaged
from Utils.settings import given, override, priced, save_plan
from Utils.step_cost import step_seconds as seconds_of_step
from Utils.thrift import hurry
from Utils.using import shown, start_from, without_start
from Utils.writers import start_writer

SAMPLE = 200
MAX_VIEWS = 4
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
    save_plan(plan)
    print(summary(facts, plan))
    print("\n".join([*said, told_stages(plan, found, facts["cases"]), *hopeless(facts, plan, steps)]))


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """What was measured: texts of every record, image properties of up to 200 sampled images."""
    everything = json.loads(Path("Datapath/train.json").read_text(encoding="utf-8"))
    sample = random.Random(0).sample(records, min(SAMPLE, len(records)))
    paths = [views_of(record)[k % len(views_of(record))] for k, record in enumerate(sample)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(_measure, paths))
    read = [item for item in found if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {found[0]}")
    dims = Counter(item["dims"] for item in read).most_common(1)[0][0]
    same = [item for item in read if item["dims"] == dims]
    reports = [report_of(record) for record in records]
    counts = Counter(len(views_of(record)) for record in records)
    return {
        "cases": len(records),
        "without_text": len(everything) - len(records),
        "patients": len({str(r.get("patient") or r["image_path"]) for r in records}),
        "people": people(r.get("patient") or r["image_path"] for r in records),
        "present": {name: sum(bool(report[name]) for report in reports) for name in SECTIONS},
        "different": len({whole_text(report) for report in reports}),
        "classes": [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])],
        "views": dict(sorted(counts.items())),
        "dims": dims,
        "channels": colour(same),
        "channel_names": (names := names_of(records)),
        "by_channel": by_channel(same, names),
        "averaged": averaged(same, colour(same)),
        "modality": Counter(item["modality"] for item in same).most_common(1)[0][0],
        "eight_bit": all(item["eight_bit"] for item in same),
        "scales": count_scales(same),
        "shapes": np.array([item["shape"] for item in same]),
        **{key: float(np.mean([item[key] for item in same])) for key in ("low", "high", "mean", "std")},
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def _measure(path: Any) -> dict[str, Any] | str:
    try:
        image = read_image(path)
    except ImageError as error:
        return str(error)
    low, high = (float(v) for v in np.percentile(image.array, (0.5, 99.5)))
    return {
        "dims": image.dims,
        "channels": int(image.array.shape[0]),
        "shape": image.array.shape[1:],
        "modality": image.modality,
        "eight_bit": image.array.dtype == np.uint8,
        "scale": scale_of(image.array, image.modality, high),
        "low": low,
        "high": high,
        "mean": float(image.array.mean()),
        "std": float(image.array.std()),
        "by_channel": measured(image),
    }


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """The choices but those about the language; `summary` tells their reasons."""
    small, dims = facts["cases"] < 500, facts["dims"]
    size, views = _size(facts, gpu), min(MAX_VIEWS, max(facts["views"]))
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
        "fit": "stretch" if dims == 3 else "pad",
        "intensity": intensity_of(facts, _intensity),
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
        "augment": _augment(facts, small),
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
    return [int(np.clip(round(float(v) / 8) * 8, 16, 128 if gpu else 64)) for v in median]


def _intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units. 8-bit pictures: 0..1, since brightness can tell. MR, mixtures: each by itself."""
    if len(facts["scales"]) > 1:
        return by_itself(facts)
    if _in_units(facts):
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        low, high = (low, high) if high - low > 100 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return by_itself(facts)


def _in_units(facts: dict[str, Any]) -> bool:
    """Whether values are Hounsfield units."""
    return bool(facts["modality"] == "ct" or (facts["dims"] == 3 and facts["low"] < -500))


def _augment(facts: dict[str, Any], small: bool) -> dict[str, Any]:
    """Never a flip: reports say left and right."""
    more = 1.5 if small else 1.0
    tiny = max(np.median(facts["shapes"], axis=0)) <= 64
    light = 0.0 if _in_units(facts) else more  # Hounsfield units: how bright it is may be the finding
    return {
        "flip": [],
        "rotate": round(6 * more),
        "zoom": round(0.06 * more, 3),
        "shift": round(0.04 * more, 3),
        "contrast": round(0.15 * light, 3),
        "brightness": round(0.1 * light, 3),
        "gamma": 0.0 if tiny or not light else 0.15,
        "noise": 0.05,
        "erase": 0.0,  # a hidden finding would still be in the report
    }


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """The quicker precision, and an input that the minutes hold; on a GPU one that its memory holds too. What was set is kept."""
    kept = given(settings)
    if "precision" not in kept and not machine_of(plan).dry:
        choose_precision(plan, step_seconds)
    if machine_of(plan).gpus:
        return fit_gpu(plan, STEP_COSTS, ways_of(plan, facts, kept, _smaller_input), _steps, LEAST, kept)
    fixed = "size" in kept or plan["network"]["image_model"]
    said = fit(plan, [] if fixed else [_smaller_input], _steps, LEAST)
    if said and "precision" not in kept:
        choose_precision(plan, step_seconds)
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


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, findings = facts["shapes"], plan["findings"]
    lines = [
        f"{facts['cases']} studies of {facts['people']}, {facts['different']} different texts; findings in "
        f"{facts['present']['findings']}, impression in {facts['present']['impression']}; views a study {facts['views']}",
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}",
        f"input {plan['views']} view(s) of {plan['size']} ({plan['fit']}), intensity {plan['intensity']}",
        f"{plan['vocabulary']} tokens; median length {facts['lengths']}, at most {plan['max_tokens']}; "
        f"writes {' and '.join(plan['sections'])}",
        f"{len(findings)} findings mined from {facts['training']} training reports"
        + (f", {len(plan['classes'])} given" if plan["classes"] else "")
        + f": {', '.join(findings[:12])}{', ...' if len(findings) > 12 else ''}",
        facts["start"],
        f"network {shown(plan['network'])}, batch {plan['batch']}, lr {plan['lr']}"
        + (" (few studies: image tokens hidden often, small image gradient)" if facts["cases"] < 500 else ""),
        f"{plan['minutes']} minutes, {plan['warm_share']:.0%} of them for the image encoder on the findings alone, "
        f"{plan['words_share']:.0%} for the writer on reports with their findings",
    ]
    lines += [*told_names(plan), *mixed(facts), *told_averaged(plan, facts)]
    if facts["unseen"]:
        lines.append(f"in no training report, so nothing can be learnt of them: {', '.join(facts['unseen'])}")
    if facts["without_text"]:
        lines.append(f"{facts['without_text']} records have no text in either section and are left out")
    if facts["cut"]:
        lines.append(f"{facts['cut']} sections are longer than the limit and are cut (max_tokens)")
    if max(facts["views"]) > plan["views"]:
        lines.append(f"some studies have up to {max(facts['views'])} views; the first {plan['views']} are used")
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled images cannot be read: {facts['unreadable'][0]}")
    if not plan["shares"]:
        lines.append("all reports say nearly the same: no finding to learn, so the texts can hardly follow the images")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


if __name__ == "__main__":
    main()
