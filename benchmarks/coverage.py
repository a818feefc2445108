"""Measure how often 95 % intervals contain the true figure, at a perfect figure and just below, for each task's main metric.

Each answer is correct or, for a share of the patients, as wrong as such answers usually are. The true figure is computed on
a test set so large that chance plays no part.

    python benchmarks/coverage.py [SETS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from m3b.metrics import Box, ClassificationCase, Scores
from m3b.metrics.masks import LabelMetrics
from m3b.tasks.detection import DetectionCase, score_detection
from m3b.tasks.diagnosis import score_diagnosis
from m3b.tasks.grading import score_grading
from m3b.tasks.regression import RegressionCase, score_regression
from m3b.tasks.report import ReportCase, score_reports
from m3b.tasks.segmentation import SegmentationCase, score_segmentation
from m3b.tasks.survival import SurvivalCase, score_survival

Generator = np.random.Generator
LABELS = ("a", "b", "c", "d", "e")
PREVALENCES = np.array([0.06, 0.1, 0.2, 0.3, 0.4])
GRADES = ("0", "1", "2", "3", "4")
SHARES = (0.001, 0.01, 0.05)
"""Shares of patients whose answers are wrong."""


def binary(rng: Generator, n: int, wrong: float, draws: int, metric: str = "auroc") -> Scores:
    """Simulate a diagnosis: a fifth is positive; a wrong answer has a random probability."""
    truth = np.arange(n) < max(2, n // 5)
    score = np.where(truth, 0.8, 0.2) + rng.uniform(-0.1, 0.1, n)
    score = np.where(rng.random(n) < wrong, rng.random(n), score)
    rows = [
        ClassificationCase(str(i), "", ("yes" if truth[i] else "no",), {"no": 1 - p, "yes": p})
        for i, p in enumerate(score)
    ]
    return score_diagnosis(rows, ("no", "yes"), False, primary=metric, draws=draws)


def overlapping(rng: Generator, n: int, wrong: float, draws: int) -> Scores:
    """Simulate scores of two normal distributions, further apart if fewer are wrong: no patient fails altogether."""
    from scipy.special import ndtri

    truth = np.arange(n) < n // 2
    separation = 2**0.5 * float(ndtri(1 - wrong)) if wrong else 30.0
    score = 1 / (1 + np.exp(-(rng.normal(size=n) + separation * truth - separation / 2)))
    rows = [
        ClassificationCase(str(i), "", ("yes" if truth[i] else "no",), {"no": 1 - p, "yes": p})
        for i, p in enumerate(score)
    ]
    return score_diagnosis(rows, ("no", "yes"), False, draws=draws)


def several(rng: Generator, n: int, wrong: float, draws: int, metric: str = "auroc", together: bool = True) -> Scores:
    """Simulate five findings, the rarest in three patients of 52; an answer is wrong on all of them together, or on each alone."""
    truth = np.zeros((n, 5), dtype=bool)
    for k, prevalence in enumerate(PREVALENCES):
        truth[rng.permutation(n)[: max(2, round(prevalence * n))], k] = True
    score = np.where(truth, 0.8, 0.2) + rng.uniform(-0.1, 0.1, (n, 5))
    fails = np.repeat(rng.random((n, 1)) < wrong, 5, axis=1) if together else rng.random((n, 5)) < wrong
    score = np.where(fails, 1 - score, score)
    rows = [
        ClassificationCase(
            str(i), "", tuple(np.array(LABELS)[truth[i]]), dict(zip(LABELS, score[i].tolist(), strict=True))
        )
        for i in range(n)
    ]
    return score_diagnosis(rows, LABELS, True, primary=metric, draws=draws)


def grading(rng: Generator, n: int, wrong: float, draws: int) -> Scores:
    """Simulate five grades; a wrong one is the grade of a random patient."""
    truth = np.arange(n) % 5
    predicted = np.where(rng.random(n) < wrong, rng.integers(0, 5, n), truth)
    rows = [
        ClassificationCase(str(i), "", (GRADES[truth[i]],), {g: float(g == GRADES[predicted[i]]) for g in GRADES})
        for i in range(n)
    ]
    return score_grading(rows, GRADES, constant_grades=["2"], draws=draws)


def segmentation(rng: Generator, n: int, wrong: float, draws: int, kind: str = "exact") -> Scores:
    """Simulate masks: a wrong mask has a random Dice, the others 1 ("exact") or up to 0.01 less ("failures").

    With the kind "inexact", no mask is exact, and the mean of all is as far below 1 as `wrong` says.
    """

    def dice_of_a_mask() -> float:
        if kind != "inexact" or not wrong:
            right = 1.0 if kind == "exact" else 1 - 0.01 * float(rng.random())
            return float(rng.random()) if rng.random() < wrong else right
        return float(rng.beta(2 / wrong - 2, 2))

    rows = []
    for i in range(n):
        values = {label: dice_of_a_mask() for label in ("a", "b")}
        figures = {k: LabelMetrics(v, v, 0.0 if v == 1 else 20.0, 9, 9, 50.0) for k, v in values.items()}
        rows.append(SegmentationCase(str(i), "", figures))
    return score_segmentation(rows, ("a", "b"), draws=draws)


def detection(rng: Generator, n: int, wrong: float, draws: int) -> Scores:
    """Simulate no to three boxes in an image; a wrong answer misses them all, or finds one in an empty image."""
    rows = []
    for i in range(n):
        truth = tuple(Box((20.0 * k, 0.0, 20.0 * k + 10, 10.0), "a") for k in range(i % 4))
        detections = tuple(Box(box.corners, "a", score=float(rng.uniform(0.6, 1))) for box in truth)
        if rng.random() < wrong:
            detections = () if truth else (Box((50.0, 50.0, 60.0, 60.0), "a", score=float(rng.random())),)
        rows.append(DetectionCase(str(i), "", predicted=detections, truth=truth))
    return score_detection(rows, ("a",), primary="map_50", draws=draws)


def reports(rng: Generator, n: int, wrong: float, draws: int) -> Scores:
    """Simulate texts of 8 to 20 words; a wrong one has other words."""
    rows = []
    for i in range(n):
        size = int(rng.integers(8, 20))
        truth = " ".join(f"w{k}" for k in rng.integers(0, 400, size))
        wrong_text = " ".join(f"v{k}" for k in rng.integers(0, 400, size))
        rows.append(ReportCase(str(i), "", truth, wrong_text if rng.random() < wrong else truth))
    return score_reports(rows, primary="bleu_4", draws=draws)


def regression(rng: Generator, n: int, wrong: float, draws: int, metric: str = "mae") -> Scores:
    """Simulate numbers of a normal distribution; a wrong answer is their mean."""
    truth = rng.normal(100, 15, n)
    predicted = np.where(rng.random(n) < wrong, 100.0, truth)
    rows = [RegressionCase(str(i), "", float(truth[i]), float(predicted[i])) for i in range(n)]
    return score_regression(rows, "size", constant_values=[100.0], primary=metric, draws=draws)


def survival(rng: Generator, n: int, wrong: float, draws: int) -> Scores:
    """Simulate survival with a third of censored cases; a wrong risk is random."""
    time, event = rng.exponential(10, n) + 0.01, rng.random(n) < 2 / 3
    event[0] = True
    risk = np.where(rng.random(n) < wrong, -rng.exponential(10, n), -time)
    rows = [SurvivalCase(str(i), "", float(time[i]), bool(event[i]), float(risk[i])) for i in range(n)]
    return score_survival(rows, "death", draws=draws)


SIMULATIONS: Mapping[str, Callable[[Generator, int, float, int], Scores]] = {
    "diagnosis: auroc": binary,
    "diagnosis: auroc, overlapping scores": overlapping,
    "diagnosis: balanced_accuracy": partial(binary, metric="balanced_accuracy"),
    "diagnosis: specificity": partial(binary, metric="specificity"),
    "five findings: auroc": several,
    "five findings: auroc, each fails alone": partial(several, together=False),
    "five findings: specificity": partial(several, metric="specificity"),
    "five findings: sensitivity": partial(several, metric="sensitivity"),
    "grading: qwk": grading,
    "segmentation: dice": segmentation,
    "segmentation: dice, none exact": partial(segmentation, kind="inexact"),
    "detection: map_50": detection,
    "report: bleu_4": reports,
    "regression: mae": regression,
    "regression: r2": partial(regression, metric="r2"),
    "survival: c_index": survival,
}

NOT_COVERED = "segmentation: dice, none exact, some fail"
"""A known limit: rare failures that no test patient shows, in a mean that never reaches its edge."""
ALL = {**SIMULATIONS, NOT_COVERED: partial(segmentation, kind="failures")}


@dataclass(frozen=True)
class Coverage:
    """The true figure, the share of intervals that contain it, the number of sets with an interval, and the median lower limit."""

    true: float
    covered_share: float
    with_interval: float
    median_low: float


def true_figure(name: str, wrong: float, seed: int = 1) -> float:
    """Return the figure on so many cases that chance plays little part."""
    if not wrong:
        return ALL[name](np.random.default_rng(seed), 200, 0.0, 0).primary.value
    n, repeats = (500, 4) if name.startswith(("survival", "report", "detection")) else (4000, 1)
    rng = np.random.default_rng(seed)
    return float(np.mean([ALL[name](rng, n, wrong, 0).primary.value for _ in range(repeats)]))


def coverage(name: str, n: int, wrong: float, sets: int, draws: int, seed: int = 0) -> Coverage:
    """Score `sets` test sets of `n` cases and count the intervals that contain the true figure; a missing one does not."""
    true, rng = true_figure(name, wrong), np.random.default_rng(seed)
    measures = [ALL[name](rng, n, wrong, draws).primary for _ in range(sets)]
    spans = [(m.low, m.high) for m in measures if m.low is not None and m.high is not None]
    covered = sum(low - 1e-9 <= true <= high + 1e-9 for low, high in spans)
    low = float(np.median([low for low, _ in spans])) if spans else float("nan")
    return Coverage(true, covered / sets, len(spans) / sets, low)


def table_row(name: str, n: int, sets: int) -> str:
    cells = [coverage(name, n, share, sets, 300) for share in SHARES]
    return f"| {name} | {n} | " + " | ".join(f"{c.true:.3f}: {100 * c.covered_share:.0f} %" for c in cells) + " |"


if __name__ == "__main__":
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print("| metric | n | " + " | ".join(f"{share:.1%} wrong" for share in SHARES) + " |")
    print("|---|---|" + "---|" * len(SHARES))
    jobs = [(name, n) for name in ALL for n in (20, 52)]
    with ProcessPoolExecutor(2) as pool:
        for row in pool.map(table_row, *zip(*jobs, strict=True), [sets] * len(jobs)):
            print(row, flush=True)
