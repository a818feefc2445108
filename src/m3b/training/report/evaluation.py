"""Figures of the validation part: on a few quickly written reports while training, with the shuffle control at the end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from m3b.training.ranking_metrics import macro_auroc
from m3b.training.report.dataset import StudyDataset, join_sections, read_report
from m3b.training.report.findings import label_reports
from m3b.training.report.plan_cost import QUICK_REPORTS
from m3b.training.report.text_metrics import best_constant, bleu, count_distinct, label_f1, shuffle_between_patients
from m3b.training.report.tokenizer import ReportTokenizer
from m3b.training.step_cost import micro_batch

SHUFFLE_COUNT = 5
Figures = dict[str, float]


class Evaluator:
    """Scores a model on the validation part."""

    def __init__(self, plan: Mapping[str, Any], valid: StudyDataset, tokenizer: ReportTokenizer) -> None:
        self.plan, self.valid, self.words = plan, valid, tokenizer
        self.quick_part = Subset(valid, range(min(QUICK_REPORTS, len(valid))))

    def _run_model(self, model: torch.nn.Module, device: torch.device) -> tuple[np.ndarray, float]:
        """Return (N, K) finding probabilities, and the mean loss."""
        logits, losses = [], []
        for batch in DataLoader(self.valid, batch_size=micro_batch(self.plan)):
            output = model(**{key: value.to(device) for key, value in batch.items()})
            logits.append(output["logits"].float().cpu().numpy())
            losses.append(float(output["loss"]) * len(logits[-1]))
        return 1 / (1 + np.exp(-np.clip(np.concatenate(logits), -60, 60))), sum(losses) / len(self.valid)

    def score_findings(self, model: torch.nn.Module, device: torch.device) -> Figures:
        """Score the encoder; by its loss, since AUROC is high by chance long before anything is learnt."""
        chances, loss = self._run_model(model, device)
        truth = self.valid.findings > 0.5
        area = auroc(truth, chances)
        f1 = label_f1(truth, chances > 0.5)
        return {"valid_loss": loss, "auroc": area, "label_f1": f1, "bleu_4": math.nan, "quality": math.exp(-loss)}

    def score_writer(self, model: torch.nn.Module, device: torch.device) -> Figures:
        """Score the writer, given the true findings, by the mean probability of the right token."""
        losses = []
        for batch in DataLoader(self.valid.without_images(), batch_size=micro_batch(self.plan)):
            loss = float(model(**{key: value.to(device) for key, value in batch.items()})["loss"])
            losses.append(loss * len(batch["tokens"]))
        loss = sum(losses) / len(self.valid)
        missing = dict.fromkeys(("auroc", "label_f1", "bleu_4"), math.nan)
        return {"valid_loss": loss, **missing, "quality": math.exp(-loss)}

    def score_reports(self, model: Any, device: torch.device) -> Figures:
        """Score the whole network: teacher-forced loss, findings, and BLEU-4 and label F1 of a few written reports."""
        chances, loss = self._run_model(model, device)
        written: list[str] = []
        for batch in DataLoader(self.quick_part, batch_size=2 * micro_batch(self.plan)):
            pixels, views = batch["pixel_values"].to(device), batch["views"].to(device)
            written += [join_sections(text) for text in model.write(pixels, views, self.plan, self.words, beams=1)]
        records = self.valid.records[: len(written)]
        truth = [join_sections(read_report(record)) for record in records]
        text_figures = {"bleu_4": bleu(truth, written), "label_f1": stated_f1(truth, written, self.plan["findings"])}
        finite = [value for value in text_figures.values() if math.isfinite(value)]
        return {
            "valid_loss": loss,
            "auroc": auroc(self.valid.findings > 0.5, chances),
            "label_f1": text_figures["label_f1"],
            "bleu_4": text_figures["bleu_4"],
            "quality": sum(finite) / len(finite),
        }


def auroc(truth: np.ndarray, chances: np.ndarray) -> float:
    """Return the mean over the findings that some studies have and some have not; NaN without any."""
    is_mixed = truth.any(axis=0) & ~truth.all(axis=0)
    return macro_auroc(truth[:, is_mixed].astype(np.float32), chances[:, is_mixed]) if is_mixed.any() else math.nan


def stated_f1(truth: Sequence[str], generated: Sequence[str], findings: Sequence[str]) -> float:
    return label_f1(label_reports(truth, findings), label_reports(generated, findings))


def write_reports(
    model: Any,
    dataset: StudyDataset,
    plan: Mapping[str, Any],
    tokenizer: ReportTokenizer,
    device: torch.device,
    max_reports: int,
) -> list[dict[str, Any]]:
    """Return {"image", "patient", "findings", "impression", "reference"} of the first studies of a part."""
    rows: list[dict[str, Any]] = []
    studies = Subset(dataset, range(min(max_reports, len(dataset))))
    for batch in DataLoader(studies, batch_size=micro_batch(plan)):
        for text in model.write(batch["pixel_values"].to(device), batch["views"].to(device), plan, tokenizer):
            record = dataset.records[len(rows)]
            row = {"image": record["image_path"], "patient": record.get("patient"), **text}
            rows.append({**row, "reference": read_report(record)})
    return rows


def evaluate_texts(
    rows: Sequence[Mapping[str, Any]], valid: StudyDataset, train: StudyDataset, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """Return BLEU and label F1, both with the texts shuffled between patients, and those of the best constant report."""
    truth, written = [join_sections(row["reference"]) for row in rows], [join_sections(dict(row)) for row in rows]
    patients = [str(row["patient"] or json.dumps(row["image"])) for row in rows]
    constant = best_constant([join_sections(read_report(record)) for record in train.records])
    f1 = stated_f1(truth, written, plan["findings"])
    orders = [
        order
        for order in (shuffle_between_patients(patients, seed) for seed in range(SHUFFLE_COUNT))
        if order is not None
    ]
    shuffled = [[written[int(k)] for k in order] for order in orders]
    f1_mixed = (
        float(np.mean([stated_f1(truth, texts, plan["findings"]) for texts in shuffled])) if shuffled else math.nan
    )
    figures = {
        "cases": len(rows),
        "bleu_1": bleu(truth, written, 1),
        "bleu_4": bleu(truth, written),
        "label_f1": f1,
        "shuffled_bleu_4": float(np.mean([bleu(truth, texts) for texts in shuffled])) if shuffled else math.nan,
        "shuffled_label_f1": f1_mixed,
        "constant_bleu_4": bleu(truth, [constant] * len(truth)),
        "constant_label_f1": stated_f1(truth, [constant] * len(truth), plan["findings"]),
        "distinct": count_distinct(written),
    }
    rounded = {key: round(value, 4) if math.isfinite(value) else None for key, value in figures.items()}
    return {**rounded, "uses_image": bool(math.isfinite(f1_mixed) and f1 > 1.1 * f1_mixed and figures["distinct"] > 1)}
