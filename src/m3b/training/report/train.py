"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

First the image encoder on the findings (Logout/encoder), then the writer on reports with their findings (Logout/words),
then the whole network (Logout/report). Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from safetensors.torch import load_file

from m3b.training.augment import Augment
from m3b.training.curves import draw_curves
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import guarded
from m3b.training.folds import seconds_spent
from m3b.training.launch import parse_call
from m3b.training.loop import LOGOUT, Batch, TrainingParts, load_best, train_by_clock
from m3b.training.precision import device_of
from m3b.training.pretrained.trial import settle_start, trial_seconds
from m3b.training.recipe import get_recipe
from m3b.training.report.dataset import TOKENIZER, Studies
from m3b.training.report.evaluation import Judge, judge_texts, write_reports
from m3b.training.report.network import Speaking, Warming, build_model
from m3b.training.report.plan_cost import MOST, measured_writing, seconds_of
from m3b.training.report.tokenizer import Words
from m3b.training.report.writers import note_writer

STAGES = ("encoder", "words", "report")
SURE = 30
"""Validation studies from which on the figures tell which encoder is best; with fewer the last one is kept."""
ENCODER_AGAIN = 0.3
"""What has learnt the findings goes on at so much of its rate while the whole network learns."""


LORA = 0.2
"""The share of the rate for a language model's adapters: of 1e-3 the 2e-4 that LoRA's authors took for GPT-2 and GPT-3."""


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    call = parse_call(__doc__, argv)
    return call if isinstance(call, int) else guarded(lambda: train(*call))


def train(plan: dict[str, Any], minutes: float) -> None:
    """Both parts of the training, each within its share of the time that is left, and the figures at the end."""
    note_writer(plan)
    plan = settle_start(plan, minutes * 60, "quality", _trial)
    minutes -= trial_seconds() / 60
    with main_first():
        train_part, valid = get_recipe().build_datasets(plan)
    words = Words.load(TOKENIZER)
    spent = {name: seconds_spent(LOGOUT / name) for name in STAGES}
    final = writing_seconds(plan, len(valid))
    start = time.monotonic()
    times = seconds_of({**plan, "minutes": minutes})
    whole = sum(times.values())
    print(f"{len(train_part)} training studies, {len(valid)} validation studies, {whole:.0f} s", flush=True)
    judge, prepare = Judge(plan, valid, words), _augmenting(Augment(plan["augment"]))
    makers: dict[str, Callable[[dict[str, Any]], TrainingParts]] = {
        "encoder": lambda plan: _warming(plan, train_part, judge, prepare),
        "words": lambda plan: _speaking(plan, train_part, judge),
        "report": lambda plan: _whole(plan, train_part, judge, prepare),
    }
    done: dict[str, dict[str, Any]] = {}
    for name in times:
        left = whole - final - (time.monotonic() - start) - spent["encoder"] - spent["words"]
        seconds = left if name == "report" else times[name]
        done[name] = train_by_clock(plan, name, makers[name], seconds=seconds, watch="quality")
    if is_main():
        finish(plan, train_part, valid, words, done)


def _trial(side: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
    """The encoder alone, on the findings: what the weights are for."""
    with main_first():
        train_part, valid = get_recipe().build_datasets(side)
    judge, prepare = Judge(side, valid, Words.load(TOKENIZER)), _augmenting(Augment(side["augment"]))
    return train_by_clock(
        side, name, lambda now: _warming(now, train_part, judge, prepare), seconds=seconds, watch="quality"
    )


def _augmenting(augment: Augment) -> Any:
    def prepare(batch: Batch) -> Batch:
        """Each view is changed by itself; missing ones stay empty."""
        pixels = batch["pixel_values"]
        changed = augment(pixels.flatten(0, 1)).view(pixels.shape)
        there = batch["views"].view(*batch["views"].shape, *(1,) * (pixels.ndim - 2))
        return {**batch, "pixel_values": changed * there}

    return prepare


def _warming(plan: dict[str, Any], train_part: Studies, judge: Judge, prepare: Any) -> TrainingParts:
    """The encoder and its head, on the findings; a pretrained image model at the rate that such models bear."""
    model = Warming(plan, get_recipe().build_loss(plan))
    groups = rates(plan, model, model.encoder, [])
    last = len(judge.valid) < SURE
    return TrainingParts(model, train_part, judge.findings, prepare, train_part.collate, groups=groups, keep_last=last)


def _speaking(plan: dict[str, Any], train_part: Studies, judge: Judge) -> TrainingParts:
    """The writer, from the findings that reports state; no image is looked at."""
    model = Speaking(plan, get_recipe().build_loss(plan))
    rate = rates(plan, model, None, [])
    return TrainingParts(model, train_part.without_pictures(), judge.words_only, None, train_part.collate, groups=rate)


def _whole(plan: dict[str, Any], train_part: Studies, judge: Judge, prepare: Any) -> TrainingParts:
    """The network, with what its parts have learnt; the encoder and its head go on at a third of the rate."""
    model = build_model(plan)
    for name in ("encoder", "words"):
        weights = LOGOUT / name / "best.safetensors"
        if weights.exists():
            found = model.load_state_dict(load_file(str(weights)), strict=False)
            if found.unexpected_keys:
                raise SystemExit(f"{weights} does not fit plan.json any more: start train.py without --resume")
    slow = [*model.encoder.parameters(), *model.head.parameters()]
    warm = (LOGOUT / "encoder" / "best.safetensors").exists()
    rate = rates(plan, model, model.encoder, slow if warm else [])
    return TrainingParts(model, train_part, judge.report, prepare, train_part.collate, groups=rate)


def rates(plan: dict[str, Any], model: Any, encoder: Any, slow: list[Any]) -> list[tuple[list[Any], float]]:
    """Parameters that are trained and their shares of the learning rate: `network.image_lr` for a pretrained image model, a tenth
    for a pretrained language model (a fifth for its adapters), a third for `slow` (of its share again, where it is pretrained),
    all of it for the rest."""
    network = plan["network"]
    pictures = list(encoder.features.parameters()) if encoder is not None and _pictured(network) else []
    text = list(model.writer.text.parameters()) if network.get("text_model") and hasattr(model, "writer") else []
    image_lr = float(network.get("image_lr") or 0.05) * (ENCODER_AGAIN if slow else 1.0)
    text_lr = LORA if network.get("lora") else 0.1
    taken: set[int] = set()
    found = []
    for part, factor in ((pictures, image_lr), (text, text_lr), (slow, ENCODER_AGAIN), (list(model.parameters()), 1.0)):
        mine = [parameter for parameter in part if parameter.requires_grad and id(parameter) not in taken]
        taken |= {id(parameter) for parameter in mine}
        if mine:
            found.append((mine, factor))
    return found


def _pictured(network: dict[str, Any]) -> bool:
    """Whether what sees the images was pretrained."""
    return bool(network.get("image_model") or network.get("pretrained"))


def writing_seconds(plan: dict[str, Any], held: int) -> float:
    """Kept free for the validation reports at the end; at most a fifth of the minutes."""
    found = measured_writing(plan) * min(MOST, held)
    return min(1.2 * found, 0.2 * 60 * float(plan["minutes"]))


def finish(
    plan: dict[str, Any], train_part: Studies, valid: Studies, words: Words, done: dict[str, dict[str, Any]]
) -> None:
    """metrics.json, valid_predictions.json, curves.png, and the control: what is left when images are shuffled."""
    device = device_of(plan)
    model = load_best(build_model(plan, with_loss=False), "report", device)
    rows = write_reports(model, valid, plan, words, device, most=MOST)
    figures = judge_texts(rows, valid, train_part, plan)
    metrics = {
        "validation": figures,
        "epochs": {name: part["epochs"] for name, part in done.items()},
        "seconds": round(sum(part["seconds"] for part in done.values()), 1),
    }
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    (LOGOUT / "valid_predictions.json").write_text(text, encoding="utf-8")
    draw_curves()
    print(
        f"done: {figures['cases']} held-out studies, BLEU-1 {figures['bleu_1']}, BLEU-4 {figures['bleu_4']} (that of one "
        f"constant report: {figures['constant_bleu_4']}), F1 of stated findings {figures['label_f1']}, with images shuffled "
        f"{figures['shuffled_label_f1']}; {figures['distinct']} of these {figures['cases']} reports differ",
        flush=True,
    )
    if not figures["uses_image"]:
        print("the texts hardly follow the images: give it more minutes, more studies, or look at the findings above")
