"""Figures of the validation part: during the training on a few quickly written reports, at its end with the control."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from m3b.training.ranking_metrics import macro_auroc
from m3b.training.report.dataset import Studies, report_of, whole_text
from m3b.training.report.findings import stated
from m3b.training.report.plan_cost import QUICK
from m3b.training.report.text_metrics import best_constant, bleu, distinct, label_f1, shuffle_order
from m3b.training.report.tokenizer import Words
from m3b.training.step_cost import micro_batch

SHUFFLES = 5
Figures = dict[str, float]


class Judge:
    """Scores a model on the validation part."""

    def __init__(self, plan: Mapping[str, Any], valid: Studies, words: Words) -> None:
        self.plan, self.valid, self.words = plan, valid, words
        self.some = Subset(valid, range(min(QUICK, len(valid))))

    def _pass(self, model: torch.nn.Module, device: torch.device) -> tuple[np.ndarray, float]:
        """(N, K) finding probabilities, and the mean loss."""
        logits, losses = [], []
        for batch in DataLoader(self.valid, batch_size=micro_batch(self.plan)):
            output = model(**{key: value.to(device) for key, value in batch.items()})
            logits.append(output["logits"].float().cpu().numpy())
            losses.append(float(output["loss"]) * len(logits[-1]))
        return 1 / (1 + np.exp(-np.clip(np.concatenate(logits), -60, 60))), sum(losses) / len(self.valid)

    def findings(self, model: torch.nn.Module, device: torch.device) -> Figures:
        """Of the encoder alone. Kept by its loss: AUROC is high by chance long before anything is learnt."""
        chances, loss = self._pass(model, device)
        truth = self.valid.findings > 0.5
        area = auroc(truth, chances)
        f1 = label_f1(truth, chances > 0.5)
        return {"valid_loss": loss, "auroc": area, "label_f1": f1, "bleu_4": math.nan, "quality": math.exp(-loss)}

    def words_only(self, model: torch.nn.Module, device: torch.device) -> Figures:
        """Of the writer alone, given the true findings: the mean probability of the right word."""
        losses = []
        for batch in DataLoader(self.valid.without_pictures(), batch_size=micro_batch(self.plan)):
            loss = float(model(**{key: value.to(device) for key, value in batch.items()})["loss"])
            losses.append(loss * len(batch["tokens"]))
        loss = sum(losses) / len(self.valid)
        none = dict.fromkeys(("auroc", "label_f1", "bleu_4"), math.nan)
        return {"valid_loss": loss, **none, "quality": math.exp(-loss)}

    def report(self, model: Any, device: torch.device) -> Figures:
        """Of the whole: teacher-forced loss, findings, and BLEU-4 and label F1 of a few written reports."""
        chances, loss = self._pass(model, device)
        own: list[str] = []
        for batch in DataLoader(self.some, batch_size=2 * micro_batch(self.plan)):
            pixels, views = batch["pixel_values"].to(device), batch["views"].to(device)
            own += [whole_text(text) for text in model.write(pixels, views, self.plan, self.words, beams=1)]
        records = self.valid.records[: len(own)]
        truth = [whole_text(report_of(record)) for record in records]
        found = {"bleu_4": bleu(truth, own), "label_f1": stated_f1(truth, own, self.plan["findings"])}
        known = [value for value in found.values() if math.isfinite(value)]
        return {
            "valid_loss": loss,
            "auroc": auroc(self.valid.findings > 0.5, chances),
            "label_f1": found["label_f1"],
            "bleu_4": found["bleu_4"],
            "quality": sum(known) / len(known),
        }


def auroc(truth: np.ndarray, chances: np.ndarray) -> float:
    """Mean over the findings that some studies have and some have not; NaN without any."""
    mixed = truth.any(axis=0) & ~truth.all(axis=0)
    return macro_auroc(truth[:, mixed].astype(np.float32), chances[:, mixed]) if mixed.any() else math.nan


def stated_f1(truth: Sequence[str], own: Sequence[str], findings: Sequence[str]) -> float:
    return label_f1(stated(truth, findings), stated(own, findings))


def write_reports(
    model: Any, part: Studies, plan: Mapping[str, Any], words: Words, device: torch.device, most: int
) -> list[dict[str, Any]]:
    """{"image", "patient", "findings", "impression", "reference"} of the first studies of a part."""
    rows: list[dict[str, Any]] = []
    chosen = Subset(part, range(min(most, len(part))))
    for batch in DataLoader(chosen, batch_size=micro_batch(plan)):
        for text in model.write(batch["pixel_values"].to(device), batch["views"].to(device), plan, words):
            record = part.records[len(rows)]
            row = {"image": record["image_path"], "patient": record.get("patient"), **text}
            rows.append({**row, "reference": report_of(record)})
    return rows


def judge_texts(
    rows: Sequence[Mapping[str, Any]], valid: Studies, train: Studies, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """BLEU, label F1, what is left of them when each study gets another patient's text, and the best constant report."""
    truth, own = [whole_text(row["reference"]) for row in rows], [whole_text(dict(row)) for row in rows]
    patients = [str(row["patient"] or json.dumps(row["image"])) for row in rows]
    constant = best_constant([whole_text(report_of(record)) for record in train.records])
    f1 = stated_f1(truth, own, plan["findings"])
    orders = [order for order in (shuffle_order(patients, seed) for seed in range(SHUFFLES)) if order is not None]
    mixed = [[own[int(k)] for k in order] for order in orders]
    f1_mixed = float(np.mean([stated_f1(truth, texts, plan["findings"]) for texts in mixed])) if mixed else math.nan
    figures = {
        "cases": len(rows),
        "bleu_1": bleu(truth, own, 1),
        "bleu_4": bleu(truth, own),
        "label_f1": f1,
        "shuffled_bleu_4": float(np.mean([bleu(truth, texts) for texts in mixed])) if mixed else math.nan,
        "shuffled_label_f1": f1_mixed,
        "constant_bleu_4": bleu(truth, [constant] * len(truth)),
        "constant_label_f1": stated_f1(truth, [constant] * len(truth), plan["findings"]),
        "distinct": distinct(own),
    }
    rounded = {key: round(value, 4) if math.isfinite(value) else None for key, value in figures.items()}
    return {**rounded, "uses_image": bool(math.isfinite(f1_mixed) and f1 > 1.1 * f1_mixed and figures["distinct"] > 1)}
