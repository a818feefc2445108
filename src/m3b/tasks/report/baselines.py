"""Baselines for reports that ignore the image: constant reports, random ones, and those of other patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m3b.metrics.bootstrap import paired_interval
from m3b.metrics.cases import Floats, patient_numbers
from m3b.metrics.metric_tables import canonical_metric
from m3b.tasks.report.findings import Findings
from m3b.tasks.report.metrics import (
    ReportCase,
    bootstrap_report_metric,
    compute_report_metrics,
    count_distinct_texts,
    replace_texts,
)
from m3b.tasks.report.text_similarity import MAX_NGRAM_ORDER, bleu, bleu_counts, tokenize

MAX_CANDIDATES = 200
MAX_REFERENCES = 400
MIN_SHUFFLES, MAX_SHUFFLES, TARGET_SHUFFLED_CASES = 20, 200, 20_000
BOOTSTRAPPED_SHUFFLES = 5
"""Number of shuffles that are bootstrapped."""


def best_constant_reports(
    training: Sequence[str], *, candidates: int = MAX_CANDIDATES, references: int = MAX_REFERENCES, seed: int = 0
) -> tuple[str, ...]:
    """Return the training reports that score best as a constant answer: one for each of BLEU-1 to BLEU-4.

    They are chosen on the training reports, never on test cases. All different reports are tried against all reports,
    or a random sample of each if there are too many.

    Args:
        training: the reports of the training part; empty ones are skipped.
        candidates: maximum number of reports to try.
        references: maximum number of reports to try them against.
        seed: of the samples.

    Returns:
        1 to 4 different reports, that for BLEU-4 first.

    Raises:
        ValueError: there is no report with words.
    """
    texts = [text for text in training if tokenize(text)]
    if not texts:
        raise ValueError("a constant report is chosen from training reports, and there is none with words")
    rng = np.random.default_rng(seed)
    reference_words = [tokenize(text) for text in _sample_texts(texts, references, rng)]
    candidate_texts = _sample_texts(list(dict.fromkeys(texts)), candidates, rng)
    scores: Floats = np.stack([_bleu_against(tokenize(text), reference_words) for text in candidate_texts])
    order = range(MAX_NGRAM_ORDER - 1, -1, -1)
    return tuple(dict.fromkeys(candidate_texts[int(scores[:, column].argmax())] for column in order))


def _sample_texts(texts: list[str], max_count: int, rng: np.random.Generator) -> list[str]:
    if len(texts) <= max_count:
        return texts
    return [texts[int(index)] for index in np.sort(rng.choice(len(texts), max_count, replace=False))]


def _bleu_against(words: list[str], references: Sequence[list[str]]) -> Floats:
    """Return (4,) BLEU-1 to BLEU-4 of one text as the answer to every reference."""
    return bleu(np.array([bleu_counts(words, reference) for reference in references], dtype=np.float64).sum(axis=0))


def draw_random_reports(training: Sequence[str], n: int, seed: int = 0) -> list[str]:
    """Draw a random training report for each of `n` cases: the answer of a model that has learnt only the style.

    Raises:
        ValueError: there are no training reports.
    """
    if not training:
        raise ValueError("random reports are drawn from training reports, and there are none")
    return [training[int(index)] for index in np.random.default_rng(seed).integers(0, len(training), n)]


def shuffle_between_patients(cases: Sequence[ReportCase], seed: int = 0) -> list[ReportCase]:
    """Return every case with the text that was written for the image of another patient.

    A report depends on the image and on nothing else of the case, so this is what the model would write if the images
    were shuffled, at no cost. The patients are put into random order and the texts are shifted by the number of images
    of the patient with the most images, so none comes back to its own patient.

    Raises:
        ValueError: one patient has more than half of the cases.
    """
    patient = patient_numbers(cases)
    max_images = int(np.bincount(patient).max()) if len(patient) else 0
    if not max_images or 2 * max_images > len(cases):
        raise ValueError("reports can be shuffled between patients only if no patient has more than half of the cases")
    patient_ranks = np.random.default_rng(seed).permutation(int(patient.max()) + 1)
    order = np.argsort(patient_ranks[patient], kind="stable")
    texts = [""] * len(cases)
    for index, donor in zip(order, np.roll(order, max_images), strict=True):
        texts[int(index)] = cases[int(donor)].prediction
    return replace_texts(cases, texts)


@dataclass(frozen=True)
class ImageUse:
    """Result of the image-shuffle control: whether a model looks at the image.

    Args:
        metric: canonical name.
        value: with each case's own image.
        shuffled_value: mean over the shuffles with the image of another patient.
        gain: 95 % interval of the difference, from bootstrap samples of patients; None if there is none.
        p_value: share of the shuffles, counting the texts as they are as one, that reach the value: the p-value of a
            permutation test of "the texts have nothing to do with the images" (Good, Permutation Tests, 2000, section
            3.2).
        distinct: different texts among `n`.
        n: cases.
    """

    metric: str
    value: float
    shuffled_value: float
    distinct: int
    n: int
    gain: tuple[float, float] | None = None
    p_value: float = 1.0

    @property
    def lost_share(self) -> float:
        """Share of the value that is lost by shuffling: 0 for a model that ignores the image, NaN for a value of 0."""
        return (self.value - self.shuffled_value) / self.value if self.value > 0 else float("nan")


def measure_image_use(
    cases: Sequence[ReportCase],
    findings: Findings | None = None,
    *,
    metric: str = "label_f1",
    shuffles: int | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> ImageUse:
    """Run the image-shuffle control: how much of a metric is lost when every image is another patient's.

    Args:
        cases: the test cases with the model's texts.
        findings: needed for the label F1.
        metric: any spelling in `metric_names("report")`.
        shuffles: number of shuffles to compare with; their seeds are 0, 1, 2... Default: 20 to 200, fewer for many
            cases.
        seed: of the bootstrap.
        draws: bootstrap samples; 0 for no interval.

    Raises:
        ValueError: as `shuffle_between_patients` and `compute_report_metrics`, fewer than one shuffle, a metric that
            needs findings without them.
    """
    name = canonical_metric(metric, "report")
    if shuffles is None:
        shuffles = min(MAX_SHUFFLES, max(MIN_SHUFFLES, TARGET_SHUFFLED_CASES // max(len(cases), 1)))
    if shuffles < 1:
        raise ValueError(f"at least one shuffle is needed, not {shuffles}")
    values = compute_report_metrics(cases, findings, only=name)
    if name not in values:
        raise ValueError(f"{name} needs the findings and their phrases")
    shuffled_sets = [shuffle_between_patients(cases, number) for number in range(shuffles)]
    shuffled_values = [compute_report_metrics(case_list, findings, only=name)[name] for case_list in shuffled_sets]
    samples = (
        [
            bootstrap_report_metric(case_list, findings, name, draws, seed)
            for case_list in (cases, *shuffled_sets[:BOOTSTRAPPED_SHUFFLES])
        ]
        if draws
        else []
    )
    patients = int(patient_numbers(cases).max()) + 1
    gain = paired_interval(samples[0], np.mean(samples[1:], axis=0), patients) if samples else None
    p_value = (1 + sum(shuffled_value >= values[name] for shuffled_value in shuffled_values)) / (1 + shuffles)
    return ImageUse(
        name, values[name], float(np.mean(shuffled_values)), count_distinct_texts(cases), len(cases), gain, p_value
    )
