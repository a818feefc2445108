"""Language of the training texts: tokenizer, findings, lengths, and natural repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from m3b.training.plan_settings import overridden_keys
from m3b.training.report.dataset import TOKENIZER_FILE, assign_validation, join_sections, label_findings, read_report
from m3b.training.report.findings import mine_findings
from m3b.training.report.tokenizer import SECTIONS, ReportTokenizer


def learn_language(records: list[dict[str, Any]], plan: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """Fit tokenizer, findings and lengths on the training part, unless set by hand; return facts about them."""
    is_training, overrides = (
        ~assign_validation(records, float(plan["validation_share"]), int(plan["seed"])),
        overridden_keys(settings),
    )
    training = [record for record, is_selected in zip(records, is_training, strict=True) if is_selected]
    reports = [read_report(record) for record in training]
    texts = [join_sections(report) for report in reports]
    tokenizer = _build_tokenizer(texts, plan, "vocabulary" in overrides)
    tokenizer.save(TOKENIZER_FILE)
    if "findings" not in overrides:
        plan["findings"] = mine_findings(texts)
    lengths = {name: [len(tokenizer.encode(report[name])) for report in reports if report[name]] for name in SECTIONS}
    if "max_tokens" not in overrides:
        limit, requested = 400 if plan["network"]["layers"] > 2 else 200, dict(plan["max_tokens"])
        plan["max_tokens"] = {
            name: min(limit, int(np.percentile(lengths_of_section, 99.5)) + 4) if lengths_of_section else 0
            for name, lengths_of_section in lengths.items()
        } | {name: value for name, value in requested.items() if f"max_tokens.{name}" in overrides}
    _check_lengths(plan["max_tokens"])
    if not overrides & {"decode.no_repeat", "decode"}:
        plan["decode"]["no_repeat"] = _count_natural_repeats(tokenizer, reports)
    table = label_findings(training, plan)
    shares = table.mean(axis=0) if plan["findings"] or plan["classes"] else np.zeros(0)
    plan["shares"] = [round(float(v), 4) for v in shares]
    plan |= {"vocabulary": len(tokenizer), "unknown": tokenizer.unknown, "pad": tokenizer.pad}
    if plan["network"].get("lora"):
        plan["marks"] = sorted(tokenizer.marks)
    cut_sections = sum(length > plan["max_tokens"][name] for name in SECTIONS for length in lengths[name])
    names = [*plan["classes"], *plan["findings"]]
    return {
        "training": len(training),
        "lengths": {k: int(np.median(v)) for k, v in lengths.items() if v},
        "cut": cut_sections,
        "unseen": [name for name, share in zip(names, shares, strict=True) if share == 0],
    }


def _build_tokenizer(texts: list[str], plan: Mapping[str, Any], requested: bool) -> ReportTokenizer:
    folder = plan["network"]["text_model"]
    if folder:
        if requested:
            raise SystemExit("--set vocabulary: the tokens are those of network.text_model and cannot be changed")
        return ReportTokenizer.from_model_folder(folder)
    word_count = len({word for text in texts for word in text.split()})
    size = int(plan["vocabulary"]) if requested else int(np.clip(300 + 3 * word_count, 500, 4000))
    if size < 300:
        raise SystemExit(
            f"--set vocabulary={size}: must be at least 300, since every byte and mark has a token of its own"
        )
    return ReportTokenizer.train(texts, size)


def _check_lengths(lengths: Mapping[str, Any]) -> None:
    invalid = [name for name in SECTIONS if not isinstance(lengths.get(name), int) or lengths[name] < 0]
    if invalid or set(lengths) - set(SECTIONS):
        raise SystemExit(f"max_tokens {dict(lengths)}: must be whole numbers for {' and '.join(SECTIONS)}")


def _count_natural_repeats(tokenizer: ReportTokenizer, reports: list[dict[str, str]]) -> int:
    """Return the shortest run of tokens, from 4 on, that at most 1 % of the sections repeat; longer repetitions are forbidden."""
    sections = [tokenizer.encode(text) for report in reports[:1000] for text in report.values() if text]
    for n in range(4, 24):
        repeated = sum(len({tuple(s[k : k + n]) for k in range(len(s) - n + 1)}) < len(s) - n + 1 for s in sections)
        if repeated <= 0.01 * len(sections):
            return n + 1
    return 0
