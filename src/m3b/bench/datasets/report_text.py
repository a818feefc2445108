"""Reports for synthetic findings in varying words, their BLEU-1, and reading of report lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.bench.datasets.layout_reading import read_json
from m3b.errors import DataError

USUAL_SHARE = 0.75
"""Probability that a sentence has its usual wording instead of another one."""

SentenceBank = Mapping[str, tuple[str, ...]]
"""Fact -> wordings, the usual one first. `{}` is replaced by the details of the fact, e.g. a side."""


def compose_text(bank: SentenceBank, facts: Sequence[str], random: np.random.Generator | None = None) -> str:
    """Return sentences for facts such as `effusion` or `effusion:left`; without `random`, in their usual wording."""
    sentences = []
    for fact in facts:
        name, _, detail = fact.partition(":")
        variants = bank[name]
        is_usual = random is None or len(variants) == 1 or random.random() < USUAL_SHARE
        sentence = variants[0] if is_usual or random is None else variants[int(random.integers(1, len(variants)))]
        sentences.append(sentence.format(*detail.split(":")))
    return " ".join(sentences)


def tokenize(text: str) -> list[str]:
    """Return the lower-case words and full stops of a text."""
    return re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*|\.", text.lower())


def bleu_1(references: Sequence[str], candidates: Sequence[str]) -> float:
    """Return the corpus BLEU-1 with one reference per text.

    Clipped unigram precision times the brevity penalty (Papineni et al. 2002).
    """
    matched = candidate_length = reference_length = 0
    for reference, candidate in zip(references, candidates, strict=True):
        reference_counts, candidate_counts = Counter(tokenize(reference)), Counter(tokenize(candidate))
        matched += sum((reference_counts & candidate_counts).values())
        candidate_length, reference_length = (
            candidate_length + candidate_counts.total(),
            reference_length + reference_counts.total(),
        )
    if not candidate_length:
        return 0.0
    return matched / candidate_length * float(np.exp(min(0.0, 1 - reference_length / candidate_length)))


def read_reports(file: Path) -> list[dict[str, Any]]:
    """Read a list of `{image_path, finding(s), impression}`; return it with the keys `findings` and `impression`.

    Raises:
        DataError: a record lacks a key, or a value is not a text.
    """
    records = []
    for number, raw in enumerate(read_json(file, list)):
        if not isinstance(raw, dict) or "image_path" not in raw or not ({"finding", "findings"} & set(raw)):
            raise DataError(f"{file}: record {number} needs image_path, finding and impression; found {raw!r:.200}.")
        record = {
            "image_path": raw["image_path"],
            "findings": raw.get("findings", raw.get("finding")) or "",
            "impression": raw.get("impression", raw.get("impressions")) or "",
        }
        if not all(isinstance(value, str) for value in record.values()):
            raise DataError(f"{file}: record {number} must contain text only; found {raw!r:.200}.")
        records.append(record)
    return records
