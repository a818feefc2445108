"""What plan.py learns from the training texts: tokenizer, findings, lengths, and which repetitions are natural."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from m3b.training.plan_settings import given
from m3b.training.report.dataset import TOKENIZER, finding_table, held_out, report_of, whole_text
from m3b.training.report.findings import mine
from m3b.training.report.tokenizer import SECTIONS, Words


def learn_language(records: list[dict[str, Any]], plan: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """Tokenizer, mined findings and lengths, from the training part alone; all into the plan that stays unset."""
    chosen, kept = ~held_out(records, float(plan["validation_share"]), int(plan["seed"])), given(settings)
    training = [record for record, inside in zip(records, chosen, strict=True) if inside]
    reports = [report_of(record) for record in training]
    texts = [whole_text(report) for report in reports]
    words = _tokenizer(texts, plan, "vocabulary" in kept)
    words.save(TOKENIZER)
    if "findings" not in kept:
        plan["findings"] = mine(texts)
    lengths = {name: [len(words.encode(report[name])) for report in reports if report[name]] for name in SECTIONS}
    if "max_tokens" not in kept:
        most, asked = 400 if plan["network"]["layers"] > 2 else 200, dict(plan["max_tokens"])
        plan["max_tokens"] = {
            name: min(most, int(np.percentile(found, 99.5)) + 4) if found else 0 for name, found in lengths.items()
        } | {name: value for name, value in asked.items() if f"max_tokens.{name}" in kept}
    _check_lengths(plan["max_tokens"])
    if not kept & {"decode.no_repeat", "decode"}:
        plan["decode"]["no_repeat"] = _repeats(words, reports)
    table = finding_table(training, plan)
    shares = table.mean(axis=0) if plan["findings"] or plan["classes"] else np.zeros(0)
    plan["shares"] = [round(float(v), 4) for v in shares]
    plan |= {"vocabulary": len(words), "unknown": words.unknown, "pad": words.pad}
    if plan["network"].get("lora"):
        plan["marks"] = sorted(words.marks)
    cut = sum(length > plan["max_tokens"][name] for name in SECTIONS for length in lengths[name])
    names = [*plan["classes"], *plan["findings"]]
    return {
        "training": len(training),
        "lengths": {k: int(np.median(v)) for k, v in lengths.items() if v},
        "cut": cut,
        "unseen": [name for name, share in zip(names, shares, strict=True) if share == 0],
    }


def _tokenizer(texts: list[str], plan: Mapping[str, Any], asked: bool) -> Words:
    folder = plan["network"]["text_model"]
    if folder:
        if asked:
            raise SystemExit("--set vocabulary: the tokens are those of network.text_model, their number is fixed")
        return Words.borrow(folder)
    spoken = len({word for text in texts for word in text.split()})
    size = int(plan["vocabulary"]) if asked else int(np.clip(300 + 3 * spoken, 500, 4000))
    if size < 300:
        raise SystemExit(
            f"--set vocabulary={size}: every byte and the marks have a token of their own, 300 is the least"
        )
    return Words.train(texts, size)


def _check_lengths(lengths: Mapping[str, Any]) -> None:
    wrong = [name for name in SECTIONS if not isinstance(lengths.get(name), int) or lengths[name] < 0]
    if wrong or set(lengths) - set(SECTIONS):
        raise SystemExit(f"max_tokens {dict(lengths)}: whole numbers for {' and '.join(SECTIONS)} are needed")


def _repeats(words: Words, reports: list[dict[str, str]]) -> int:
    """The shortest run of tokens, from 4 on, that at most one section in a hundred has twice: longer ones are forbidden."""
    sections = [words.encode(text) for report in reports[:1000] for text in report.values() if text]
    for n in range(4, 24):
        doubled = sum(len({tuple(s[k : k + n]) for k in range(len(s) - n + 1)}) < len(s) - n + 1 for s in sections)
        if doubled <= 0.01 * len(sections):
            return n + 1
    return 0
