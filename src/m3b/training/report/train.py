"""Trains plan.json within its minutes. Exit code 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M] [--start-from DIR]

First the image encoder on the findings (Logout/encoder), then the writer on reports with their findings (Logout/words), then the whole
network (Logout/report). Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from safetensors.torch import load_file

from m3b.training.curves import draw_curves
from m3b.training.distributed import is_main, main_first
from m3b.training.earlier_weights import START_FILE
from m3b.training.entry import run_training
from m3b.training.folds import seconds_spent
from m3b.training.launch import parse_train_options
from m3b.training.loop import LOGOUT, TrainingParts, load_best, train_by_clock
from m3b.training.precision import device_of
from m3b.training.pretrained.trial import compare_starts, trial_seconds
from m3b.training.recipe import get_recipe
from m3b.training.report.dataset import TOKENIZER_FILE, StudyDataset
from m3b.training.report.evaluation import Evaluator, evaluate_texts, write_reports
from m3b.training.report.network import EncoderTraining, WriterTraining, build_model
from m3b.training.report.plan_cost import FINAL_REPORTS, measure_writing, stage_seconds
from m3b.training.report.tokenizer import ReportTokenizer
from m3b.training.report.writers import record_writer_start

STAGES = ("encoder", "words", "report")
MIN_STUDIES_FOR_BEST = 30
"""Minimum validation studies to select the best encoder; with fewer the last one is used."""
ENCODER_LR_FACTOR = 0.3
"""Learning rate factor of the trained encoder while the whole network learns."""


LORA_LR_FACTOR = 0.2
"""Learning rate factor of adapters: of 1e-3 the 2e-4 of LoRA's authors for GPT-2 and GPT-3."""


def main(argv: list[str] | None = None) -> int:
    """Train and return the exit code."""
    options = parse_train_options(__doc__, argv, networks=("report",))
    return options if isinstance(options, int) else run_training(lambda: train(*options))


def train(plan: dict[str, Any], minutes: float) -> None:
    """Train the stages, each within its share of the time, and write the results."""
    record_writer_start(plan)
    plan = compare_starts(plan, minutes * 60, "quality", _train_start)
    minutes -= trial_seconds() / 60
    with main_first():
        train_part, valid = get_recipe().build_datasets(plan)
    tokenizer = ReportTokenizer.load(TOKENIZER_FILE)
    seconds_used = {name: seconds_spent(LOGOUT / name) for name in STAGES}
    writing_time = writing_seconds(plan, len(valid))
    start = time.monotonic()
    times = stage_seconds({**plan, "minutes": minutes})
    total_seconds = sum(times.values())
    if (LOGOUT / "report" / START_FILE).exists():  # the whole network goes on from the weights of an earlier training
        times = {"report": total_seconds}
    print(f"{len(train_part)} training studies, {len(valid)} validation studies, {total_seconds:.0f} s", flush=True)
    evaluator = Evaluator(plan, valid, tokenizer)
    builders: dict[str, Callable[[dict[str, Any]], TrainingParts]] = {
        "encoder": lambda plan: _prepare_encoder(plan, train_part, evaluator),
        "words": lambda plan: _prepare_writer(plan, train_part, evaluator),
        "report": lambda plan: _prepare_network(plan, train_part, evaluator),
    }
    results: dict[str, dict[str, Any]] = {}
    for name in times:
        remaining = (
            total_seconds - writing_time - (time.monotonic() - start) - seconds_used["encoder"] - seconds_used["words"]
        )
        seconds = remaining if name == "report" else times[name]
        results[name] = train_by_clock(plan, name, builders[name], seconds=seconds, watch="quality")
    if is_main():
        write_results(plan, train_part, valid, tokenizer, results)


def _train_start(start_plan: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
    """Train the encoder on the findings, to compare pretrained weights with scratch."""
    with main_first():
        train_part, valid = get_recipe().build_datasets(start_plan)
    evaluator = Evaluator(start_plan, valid, ReportTokenizer.load(TOKENIZER_FILE))
    return train_by_clock(
        start_plan,
        name,
        lambda current: _prepare_encoder(current, train_part, evaluator),
        seconds=seconds,
        watch="quality",
    )


def _prepare_encoder(plan: dict[str, Any], train_part: StudyDataset, evaluator: Evaluator) -> TrainingParts:
    """Prepare the training of encoder and head on the findings; a pretrained image model has a lower rate."""
    model = EncoderTraining(plan, get_recipe().build_loss(plan))
    groups = parameter_groups(plan, model, model.encoder, [])
    keep_last = len(evaluator.valid) < MIN_STUDIES_FOR_BEST
    transforms = get_recipe().build_transforms(plan, training=True)
    return TrainingParts(
        model, train_part, evaluator.score_findings, transforms, train_part.collate, groups=groups, keep_last=keep_last
    )


def _prepare_writer(plan: dict[str, Any], train_part: StudyDataset, evaluator: Evaluator) -> TrainingParts:
    """Prepare the training of the writer from stated findings, without images."""
    model = WriterTraining(plan, get_recipe().build_loss(plan))
    groups = parameter_groups(plan, model, None, [])
    return TrainingParts(
        model, train_part.without_images(), evaluator.score_writer, (), train_part.collate, groups=groups
    )


def _prepare_network(plan: dict[str, Any], train_part: StudyDataset, evaluator: Evaluator) -> TrainingParts:
    """Prepare the training of the whole network from its trained parts; encoder and head continue at a lower rate."""
    model = build_model(plan)
    for name in ("encoder", "words"):
        weights = LOGOUT / name / "best.safetensors"
        if weights.exists():
            loaded = model.load_state_dict(load_file(str(weights)), strict=False)
            if loaded.unexpected_keys:
                raise SystemExit(f"{weights} does not fit plan.json any more: start train.py without --resume")
    warm_parameters = [*model.encoder.parameters(), *model.head.parameters()]
    warm_files = (LOGOUT / "encoder" / "best.safetensors", LOGOUT / "report" / START_FILE)
    has_warm_encoder = any(file.exists() for file in warm_files)
    groups = parameter_groups(plan, model, model.encoder, warm_parameters if has_warm_encoder else [])
    transforms = get_recipe().build_transforms(plan, training=True)
    return TrainingParts(model, train_part, evaluator.score_reports, transforms, train_part.collate, groups=groups)


def parameter_groups(
    plan: dict[str, Any], model: Any, encoder: Any, warm_parameters: list[Any]
) -> list[tuple[list[Any], float]]:
    """Return parameter groups with their shares of the learning rate: `network.image_lr` for a pretrained image model, a tenth for a
    pretrained language model (a fifth for its adapters), `ENCODER_LR_FACTOR` for `warm_parameters` (of its share, if pretrained), all
    of it for the rest."""
    network = plan["network"]
    image_parameters = (
        list(encoder.features.parameters()) if encoder is not None and _has_pretrained_encoder(network) else []
    )
    text_parameters = (
        list(model.writer.text.parameters()) if network.get("text_model") and hasattr(model, "writer") else []
    )
    image_lr = float(network.get("image_lr") or 0.05) * (ENCODER_LR_FACTOR if warm_parameters else 1.0)
    text_lr = LORA_LR_FACTOR if network.get("lora") else 0.1
    grouped: set[int] = set()
    groups = []
    for parameters, factor in (
        (image_parameters, image_lr),
        (text_parameters, text_lr),
        (warm_parameters, ENCODER_LR_FACTOR),
        (list(model.parameters()), 1.0),
    ):
        part_parameters = [
            parameter for parameter in parameters if parameter.requires_grad and id(parameter) not in grouped
        ]
        grouped |= {id(parameter) for parameter in part_parameters}
        if part_parameters:
            groups.append((part_parameters, factor))
    return groups


def _has_pretrained_encoder(network: dict[str, Any]) -> bool:
    """Return whether the image encoder was pretrained."""
    return bool(network.get("image_model") or network.get("pretrained"))


def writing_seconds(plan: dict[str, Any], validation_studies: int) -> float:
    """Return the seconds reserved for writing the validation reports; at most a fifth of the minutes."""
    seconds = measure_writing(plan) * min(FINAL_REPORTS, validation_studies)
    return min(1.2 * seconds, 0.2 * 60 * float(plan["minutes"]))


def write_results(
    plan: dict[str, Any],
    train_part: StudyDataset,
    valid: StudyDataset,
    tokenizer: ReportTokenizer,
    results: dict[str, dict[str, Any]],
) -> None:
    """Write metrics.json with the shuffle control, valid_predictions.json and curves.png."""
    device = device_of(plan)
    model = load_best(build_model(plan, with_loss=False), "report", device)
    rows = write_reports(model, valid, plan, tokenizer, device, max_reports=FINAL_REPORTS)
    figures = evaluate_texts(rows, valid, train_part, plan)
    metrics = {
        "validation": figures,
        "epochs": {name: result["epochs"] for name, result in results.items()},
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
    }
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    reports = json.dumps(rows, indent=1, ensure_ascii=False)
    (LOGOUT / "valid_predictions.json").write_text(reports, encoding="utf-8")
    draw_curves()
    print(
        f"done: {figures['cases']} held-out studies, BLEU-1 {figures['bleu_1']}, BLEU-4 {figures['bleu_4']} (that of one "
        f"constant report: {figures['constant_bleu_4']}), F1 of stated findings {figures['label_f1']}, with images shuffled "
        f"{figures['shuffled_label_f1']}; {figures['distinct']} of these {figures['cases']} reports differ",
        flush=True,
    )
    if not figures["uses_image"]:
        print("the texts hardly depend on the images: more minutes or more studies may help; see the findings above")
