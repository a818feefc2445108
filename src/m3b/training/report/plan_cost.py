"""Costs of each stage of the training on this machine, the division of the time, and whether any of it can succeed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from m3b.training.gpu_fitting import estimate_costs
from m3b.training.machine import machine_of
from m3b.training.precision import device_of
from m3b.training.report.gpu_fit import STAGE_COSTS, make_noise_batch, make_text_batch
from m3b.training.step_cost import TRAINER_STEP_SECONDS, micro_batch
from m3b.training.time_budget import TrainingCosts, median_seconds, min_seconds
from m3b.training.trial_step import make_trial_step

QUICK_REPORTS = 32
"""Studies that are written at each scoring while training, without beams."""
FINAL_REPORTS = 200
"""Studies that are written at the end, with beams."""
KERNELS_PER_LAYER = 40
"""Kernels for each layer and token, approximately, on remote machines."""
MIN_WRITER_STEPS = 200
"""Minimum steps of the writer, and then of the whole network, to say more than the commonest words."""
END_SECONDS = 3.0
"""Seconds at the end in addition to writing, and the share of the minutes between the stages."""
BETWEEN_SHARE = 0.03


def measure_costs(plan: Mapping[str, Any], cases: int) -> dict[str, TrainingCosts]:
    """Measure the costs of the stages "encoder", "words" and "report" on noise; `final` of the last is the writing at the end."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import EncoderTraining, WriterTraining, build_model

    device = device_of(plan)
    validation_cases = max(1, round(cases * float(plan["validation_share"])))
    if machine_of(plan).is_remote:
        return _estimate_costs(plan, validation_cases)
    image_batch, text_batch = _make_batches(plan)
    models = {"report": build_model(plan)}
    if plan["findings"]:  # without findings only the whole network is trained
        models |= {
            "encoder": EncoderTraining(plan, get_recipe().build_loss(plan)),
            "words": WriterTraining(plan, get_recipe().build_loss(plan)),
        }
    costs_by_stage: dict[str, TrainingCosts] = {}
    for name, model in models.items():
        model = model.to(device).train()
        batch = text_batch if name == "words" else {**image_batch, **text_batch}
        load: Callable[[], dict[str, Any]] = functools.partial(dict, batch)
        transforms = [] if name == "words" else get_recipe().build_transforms(plan, training=True)
        step = median_seconds(make_trial_step(model, plan, load, transforms), 5, 1.5) + TRAINER_STEP_SECONDS
        scoring = step / 3 * max(1.0, validation_cases / micro_batch(plan))
        final = 0.0
        if name == "report":
            scoring += _time_writing(model.eval(), plan, image_batch, 1) * min(QUICK_REPORTS, validation_cases)
            final = _time_writing(model, plan, image_batch, int(plan["decode"]["beams"])) * min(
                FINAL_REPORTS, validation_cases
            )
        costs_by_stage[name] = TrainingCosts(step, scoring, final)
    report_costs = costs_by_stage["report"]
    return {
        name: costs_by_stage.get(name, TrainingCosts(report_costs.step, report_costs.scoring))
        for name in ("encoder", "words", "report")
    }


def _estimate_costs(plan: Mapping[str, Any], validation_cases: int) -> dict[str, TrainingCosts]:
    """Estimate the costs on a remote machine; writing starts some kernels for each layer and token, in sequence."""
    plan_copy, machine = dict(plan), machine_of(plan)
    tokens = sum(int(length) for length in plan["max_tokens"].values()) / 2
    study = (
        tokens
        * KERNELS_PER_LAYER
        * int(plan["network"]["layers"])
        * machine.estimate_seconds(0.0, 0.0, 1.0, True)
        / micro_batch(plan)
    )
    costs_by_stage = {
        name: estimate_costs(plan_copy, stage_costs, validation_cases, lambda _: 0.0)
        for name, stage_costs in STAGE_COSTS.items()
    }
    report_costs, beams = costs_by_stage["report"], int(plan["decode"]["beams"])
    costs_by_stage["report"] = TrainingCosts(
        report_costs.step,
        report_costs.scoring + study * min(QUICK_REPORTS, validation_cases),
        beams * study * min(FINAL_REPORTS, validation_cases),
    )
    return (
        costs_by_stage
        if plan["findings"]
        else dict.fromkeys(("encoder", "words"), report_costs) | {"report": costs_by_stage["report"]}
    )


def _make_batches(plan: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return images, and texts of half the maximum length."""
    plan_copy, cases = dict(plan), micro_batch(plan)
    text_batch = make_text_batch(plan_copy, cases)
    return {
        key: value for key, value in make_noise_batch(plan_copy, cases).items() if key not in text_batch
    }, text_batch


def _time_writing(model: Any, plan: Mapping[str, Any], image_batch: Mapping[str, torch.Tensor], beams: int) -> float:
    """Return the seconds of a study for texts of half the maximum length."""
    from m3b.training.report.dataset import TOKENIZER_FILE
    from m3b.training.report.tokenizer import ReportTokenizer

    tokenizer, device = ReportTokenizer.load(TOKENIZER_FILE), device_of(plan)
    half_lengths = {name: int(length) // 2 for name, length in plan["max_tokens"].items()}
    min_tokens = max(0, min((half_lengths[name] for name in plan["sections"]), default=1) - 1)
    shorter = {**plan, "max_tokens": half_lengths, "decode": {**plan["decode"], "min_tokens": min_tokens}}
    pixels, views = image_batch["pixel_values"].to(device), image_batch["views"].to(device)
    return min_seconds(lambda: model.write(pixels, views, shorter, tokenizer, beams), 1) / len(pixels)


def measure_writing(plan: Mapping[str, Any]) -> float:
    """Return the seconds to write a report with beams, by an untrained network."""
    from m3b.training.report.network import build_model

    model = build_model(plan, with_loss=False).to(device_of(plan)).eval()
    return _time_writing(model, plan, _make_batches(plan)[0], int(plan["decode"]["beams"]))


def stage_seconds(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each stage; the last includes writing the validation reports."""
    total = max(1.0, float(plan["minutes"]) * 60 * (1 - BETWEEN_SHARE) - END_SECONDS)
    if not plan["classes"] and not plan["findings"]:
        return {"report": total}
    encoder_seconds, writer_seconds = (
        float(plan["warm_share"]) * total,
        float(plan["words_share"]) * total,
    )
    return {
        "encoder": encoder_seconds,
        "words": writer_seconds,
        "report": max(0.0, total - encoder_seconds - writer_seconds),
    }


def share_time(plan: dict[str, Any], costs_by_stage: Mapping[str, TrainingCosts], cases: int) -> list[str]:
    """Move time from the image encoder to the writer or the whole network if they would get too few steps; return a line on it."""
    original = (plan["warm_share"], plan["words_share"])
    for _ in range(12):
        steps = stage_steps(plan, costs_by_stage, cases)
        starved = [name for name in ("words", "report") if steps.get(name, MIN_WRITER_STEPS) < MIN_WRITER_STEPS]
        if not starved or plan["warm_share"] < 0.3 or steps.get("encoder", 0) <= min(steps[name] for name in starved):
            break
        plan["warm_share"] = round(plan["warm_share"] - 0.05, 2)
        if "words" in starved and ("report" not in starved or steps["words"] <= steps["report"]):
            plan["words_share"] = round(plan["words_share"] + 0.05, 2)
    if original == (plan["warm_share"], plan["words_share"]):
        return []
    return [
        f"the writer's steps are slow, so it gets more of the time: warm_share {plan['warm_share']} instead of "
        f"{original[0]}, words_share {plan['words_share']} instead of {original[1]}"
    ]


def epoch_steps(plan: Mapping[str, Any], cases: int) -> int:
    """Return the steps of an epoch."""
    return max(1, -(-round(cases * (1 - float(plan["validation_share"]))) // int(plan["batch"])))


def stage_steps(plan: Mapping[str, Any], costs_by_stage: Mapping[str, TrainingCosts], cases: int) -> dict[str, int]:
    """Return the steps of each stage."""
    times, epoch = stage_seconds(plan), epoch_steps(plan, cases)
    return {name: costs_by_stage[name].count_steps(seconds, epoch) for name, seconds in times.items()}


def describe_stages(plan: Mapping[str, Any], costs_by_stage: Mapping[str, TrainingCosts], cases: int) -> str:
    """Return a line on the use of the time."""
    epoch, steps = epoch_steps(plan, cases), stage_steps(plan, costs_by_stage, cases)
    names = {"encoder": "image encoder", "words": "writer on findings", "report": "whole network"}
    parts = [
        f"{names[name]} {n} steps of {costs_by_stage[name].step:.3f} s ({n / epoch:.1f} epochs)"
        for name, n in steps.items()
    ]
    return (
        f"of {60 * float(plan['minutes']):.0f} s: {', '.join(parts)}; {costs_by_stage['report'].final:.0f} s for writing the "
        f"validation reports, in {plan['precision']}"
    )


def warn_if_hopeless(facts: Mapping[str, Any], plan: Mapping[str, Any], steps: Mapping[str, int]) -> list[str]:
    """Return a warning before training if the texts are not expected to be useful."""
    reasons = []
    is_diverse = facts["cases"] < 2000 and facts["different"] > 0.8 * facts["cases"]
    if is_diverse and not plan["network"]["text_model"]:
        reasons.append(
            f"nearly all reports differ ({facts['different']} of {facts['cases']}), and the writer learns the language from them "
            "alone (network.text_model can name a local pretrained one)"
        )
    short_stages = {name: n for name, n in steps.items() if name != "encoder" and n < MIN_WRITER_STEPS}
    if short_stages:
        steps_text = ", ".join(f"{name} {n}" for name, n in short_stages.items())
        reasons.append(f"too few steps for a writer ({steps_text}; at least {MIN_WRITER_STEPS} are needed)")
    if not reasons:
        return []
    return [f"WARNING: expect no better than a constant report: {'; '.join(reasons)}"]
