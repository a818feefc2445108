"""What each stage of the training costs on this machine, how the time is shared out, and whether any of it can work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from m3b.training.gpu_fitting import dry_costs
from m3b.training.machine import machine_of
from m3b.training.precision import device_of
from m3b.training.report.gpu_fit import STAGES, noise, texts
from m3b.training.step_cost import SPARE, micro_batch
from m3b.training.time_budget import Costs, quickest, typical
from m3b.training.trial_step import rehearsed

QUICK = 32
"""So many studies are written for at each look during the training, without beams."""
MOST = 200
"""So many are written for at the end, with beams."""
KERNELS = 40
"""Kernels a layer and word, roughly, for machines that are not here."""
WRITER = 200
"""Steps that the writer, and the whole network after it, need at least to say more than the commonest words."""
END = 3.0
"""Seconds at the end besides those for writing, and as a share of the minutes what is spent between the stages."""
BETWEEN = 0.03


def costs(plan: Mapping[str, Any], cases: int) -> dict[str, Costs]:
    """Of the stages "encoder", "words" and "report", measured with noise; `final` of the last is the writing at the end."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import Speaking, Warming, build_model

    device = device_of(plan)
    held = max(1, round(cases * float(plan["validation_share"])))
    if machine_of(plan).dry:
        return _dry(plan, held)
    pictures, spoken = _batches(plan)
    models = {"report": build_model(plan)}
    if plan["findings"]:  # without them the whole network alone is trained
        models |= {
            "encoder": Warming(plan, get_recipe().build_loss(plan)),
            "words": Speaking(plan, get_recipe().build_loss(plan)),
        }
    found: dict[str, Costs] = {}
    for name, model in models.items():
        model = model.to(device).train()
        batch = spoken if name == "words" else {**pictures, **spoken}
        step = typical(rehearsed(model, plan, lambda batch=batch: batch, _augmenting(plan, name)), 5, 1.5) + SPARE
        look = step / 3 * max(1.0, held / micro_batch(plan))
        final = 0.0
        if name == "report":
            look += _writing(model.eval(), plan, pictures, 1) * min(QUICK, held)
            final = _writing(model, plan, pictures, int(plan["decode"]["beams"])) * min(MOST, held)
        found[name] = Costs(step, look, final)
    whole = found["report"]
    return {name: found.get(name, Costs(whole.step, whole.scoring)) for name in ("encoder", "words", "report")}


def _dry(plan: Mapping[str, Any], held: int) -> dict[str, Costs]:
    """Estimated for a machine that is not here. Writing starts some kernels a layer for each word, one after the other."""
    now, machine = dict(plan), machine_of(plan)
    words = sum(int(length) for length in plan["max_tokens"].values()) / 2
    study = words * KERNELS * int(plan["network"]["layers"]) * machine.seconds(0.0, 0.0, 1.0, True) / micro_batch(plan)
    found = {name: dry_costs(now, looks, held, lambda _: 0.0) for name, looks in STAGES.items()}
    whole, beams = found["report"], int(plan["decode"]["beams"])
    found["report"] = Costs(whole.step, whole.scoring + study * min(QUICK, held), beams * study * min(MOST, held))
    return found if plan["findings"] else dict.fromkeys(("encoder", "words"), whole) | {"report": found["report"]}


def _batches(plan: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pictures, and texts of half the length that is allowed."""
    now, cases = dict(plan), micro_batch(plan)
    spoken = texts(now, cases)
    return {key: value for key, value in noise(now, cases).items() if key not in spoken}, spoken


def _augmenting(plan: Mapping[str, Any], name: str) -> Any:
    from m3b.training.augment import Augment

    augment = Augment(plan["augment"])

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        pixels = batch["pixel_values"]
        return {**batch, "pixel_values": augment(pixels.flatten(0, 1)).view(pixels.shape)}

    return None if name == "words" else prepare


def _writing(model: Any, plan: Mapping[str, Any], pictures: Mapping[str, torch.Tensor], beams: int) -> float:
    """Seconds a study, for texts of half the length that is allowed."""
    from m3b.training.report.dataset import TOKENIZER
    from m3b.training.report.tokenizer import Words

    words, device = Words.load(TOKENIZER), device_of(plan)
    half = {name: int(length) // 2 for name, length in plan["max_tokens"].items()}
    least = max(0, min((half[name] for name in plan["sections"]), default=1) - 1)
    shorter = {**plan, "max_tokens": half, "decode": {**plan["decode"], "min_tokens": least}}
    pixels, views = pictures["pixel_values"].to(device), pictures["views"].to(device)
    return quickest(lambda: model.write(pixels, views, shorter, words, beams), 1) / len(pixels)


def measured_writing(plan: Mapping[str, Any]) -> float:
    """Seconds that writing a report with beams takes, by an untrained network."""
    from m3b.training.report.network import build_model

    model = build_model(plan, with_loss=False).to(device_of(plan)).eval()
    return _writing(model, plan, _batches(plan)[0], int(plan["decode"]["beams"]))


def seconds_of(plan: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each stage; writing the validation reports comes out of the last one's."""
    whole = max(1.0, float(plan["minutes"]) * 60 * (1 - BETWEEN) - END)
    if not plan["classes"] and not plan["findings"]:
        return {"report": whole}
    first, second = float(plan["warm_share"]) * whole, float(plan["words_share"]) * whole
    return {"encoder": first, "words": second, "report": max(0.0, whole - first - second)}


def share_out(plan: dict[str, Any], found: Mapping[str, Costs], cases: int) -> list[str]:
    """Takes time from the image encoder where the writer, or the whole network, would get too few steps; what was done."""
    before = (plan["warm_share"], plan["words_share"])
    for _ in range(12):
        steps = stage_steps(plan, found, cases)
        poor = [name for name in ("words", "report") if steps.get(name, WRITER) < WRITER]
        if not poor or plan["warm_share"] < 0.3 or steps.get("encoder", 0) <= min(steps[name] for name in poor):
            break
        plan["warm_share"] = round(plan["warm_share"] - 0.05, 2)
        if "words" in poor and ("report" not in poor or steps["words"] <= steps["report"]):
            plan["words_share"] = round(plan["words_share"] + 0.05, 2)
    if before == (plan["warm_share"], plan["words_share"]):
        return []
    return [
        f"the writer's steps are slow, so more of the time is its own: warm_share {plan['warm_share']} instead of "
        f"{before[0]}, words_share {plan['words_share']} instead of {before[1]}"
    ]


def epoch_steps(plan: Mapping[str, Any], cases: int) -> int:
    """Steps of an epoch."""
    return max(1, -(-round(cases * (1 - float(plan["validation_share"]))) // int(plan["batch"])))


def stage_steps(plan: Mapping[str, Any], found: Mapping[str, Costs], cases: int) -> dict[str, int]:
    """Steps that each stage gets."""
    times, epoch = seconds_of(plan), epoch_steps(plan, cases)
    return {name: found[name].steps(seconds, epoch) for name, seconds in times.items()}


def told(plan: Mapping[str, Any], found: Mapping[str, Costs], cases: int) -> str:
    """A line on where the time goes."""
    epoch, steps = epoch_steps(plan, cases), stage_steps(plan, found, cases)
    names = {"encoder": "image encoder", "words": "writer on findings", "report": "whole network"}
    parts = [
        f"{names[name]} {n} steps of {found[name].step:.3f} s ({n / epoch:.1f} epochs)" for name, n in steps.items()
    ]
    return (
        f"of {60 * float(plan['minutes']):.0f} s: {', '.join(parts)}; {found['report'].final:.0f} s for writing the "
        f"validation reports, in {plan['precision']}"
    )


def hopeless(facts: Mapping[str, Any], plan: Mapping[str, Any], steps: Mapping[str, int]) -> list[str]:
    """A line, before any training, where it can be foreseen that the texts will not be worth reading."""
    said = []
    several = facts["cases"] < 2000 and facts["different"] > 0.8 * facts["cases"]
    if several and not plan["network"]["text_model"]:
        said.append(
            f"nearly every report is a text of its own ({facts['different']} of {facts['cases']}), and the writer learns "
            "its language from them alone (network.text_model names a local pretrained one)"
        )
    few = {name: n for name, n in steps.items() if name != "encoder" and n < WRITER}
    if few:
        told_steps = ", ".join(f"{name} {n}" for name, n in few.items())
        said.append(f"too few steps for a writer ({told_steps}; {WRITER} are needed)")
    if not said:
        return []
    return [f"WARNING: expect no better than a constant report: {'; '.join(said)}"]
