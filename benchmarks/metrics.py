"""Measure the processor seconds of scoring fourteen findings of a thousand cases, and two hundred long reports.

python benchmarks/metrics.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from m3b.metrics import ClassificationCase
from m3b.tasks.diagnosis import score_diagnosis
from m3b.tasks.report import ReportCase, score_reports

FINDINGS = [f"f{k}" for k in range(14)]


def make_finding_cases() -> list[ClassificationCase]:
    """Make a thousand cases of 500 patients, with findings from rare to common."""
    rng = np.random.default_rng(0)
    truth = rng.random((1000, 14)) < np.linspace(0.004, 0.4, 14)
    p = np.clip(0.3 * truth + 0.7 * rng.random((1000, 14)), 0, 1)
    rows = zip(truth, p, strict=True)
    return [
        ClassificationCase(
            str(i),
            str(i // 2),
            tuple(n for n, t in zip(FINDINGS, row, strict=True) if t),
            dict(zip(FINDINGS, q, strict=True)),
        )
        for i, (row, q) in enumerate(rows)
    ]


def make_report_cases() -> list[ReportCase]:
    """Make two hundred pairs of reports of eighty words."""
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(300)] + ["the", "is", "no", "."] * 20
    texts = [" ".join(rng.choice(words, 80)) for _ in range(400)]
    return [ReportCase(str(k), "", texts[k], texts[200 + k]) for k in range(200)]


def time_scoring(name: str, score: Callable[[], object]) -> None:
    start = time.process_time()
    score()
    print(f"{name}: {time.process_time() - start:.2f} s of processor time")


if __name__ == "__main__":
    cases, texts = make_finding_cases(), make_report_cases()
    time_scoring("14 findings, 1000 cases, 1000 bootstrap samples", lambda: score_diagnosis(cases, FINDINGS, True))
    time_scoring("200 reports of 80 words, 1000 bootstrap samples", lambda: score_reports(texts))
