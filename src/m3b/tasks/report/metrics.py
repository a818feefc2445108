"""The metrics of written reports, and the scoring of cases by comparison with the true reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from m3b.measure import Measure
from m3b.metrics.bootstrap import (
    Estimator,
    MeasureSettings,
    group_patients,
    measure_with_intervals,
    point_estimates,
    resample,
    weighted_means,
)
from m3b.metrics.cases import Floats, divide, mean_defined
from m3b.metrics.metric_tables import MetricTable, canonical_metric
from m3b.metrics.scores import Scores
from m3b.tasks.report.findings import Findings, extract_findings
from m3b.tasks.report.text_similarity import MAX_NGRAM_ORDER, bleu, bleu_counts, cider, meteor, rouge_l, tokenize

REPORT_METRICS = MetricTable(
    {
        "bleu_1": ("BLEU1", "BLEU@1"),
        "bleu_2": ("BLEU2", "BLEU@2"),
        "bleu_3": ("BLEU3", "BLEU@3"),
        "bleu_4": ("BLEU", "BLEU4", "BLEU@4"),
        "rouge_l": ("ROUGE", "ROUGEL"),
        "meteor": ("METEOR score",),
        "cider": ("CIDEr-D",),
        "label_f1": ("F1", "clinical F1", "clinical efficacy F1", "CE F1", "label F1 macro", "finding F1"),
        "label_f1_micro": ("micro label F1", "micro clinical F1"),
    },
    "bleu_4",
    unbounded=frozenset({"cider"}),
    best={"cider": 10.0},
    titles={
        "bleu_1": "BLEU-1",
        "bleu_2": "BLEU-2",
        "bleu_3": "BLEU-3",
        "bleu_4": "BLEU-4",
        "rouge_l": "ROUGE-L",
        "meteor": "METEOR",
        "cider": "CIDEr",
        "label_f1": "Finding F1 (macro)",
        "label_f1_micro": "Finding F1 (micro)",
    },
)


class ReportPair(Protocol):
    """A true and a written report."""

    @property
    def reference(self) -> str: ...
    @property
    def prediction(self) -> str: ...


@dataclass(frozen=True)
class FindingTable:
    """(cases, findings) findings that the true and the written reports state."""

    truth: NDArray[np.bool_]
    predicted: NDArray[np.bool_]


def tabulate_findings(cases: Sequence[ReportPair], findings: Findings) -> FindingTable:
    """Extract the findings of the true and the written reports."""
    names = list(findings)
    tables = []
    for texts in ([case.reference for case in cases], [case.prediction for case in cases]):
        stated_per_text = [extract_findings(text, findings) for text in texts]
        tables.append(
            np.array([[name in stated_names for name in names] for stated_names in stated_per_text], dtype=np.bool_)
        )
    return FindingTable(tables[0], tables[1])


def _label_counts(table: FindingTable, weights: Floats) -> tuple[Floats, Floats]:
    """Return 2 TP, and 2 TP + FP + FN; each (draws, findings)."""
    hits = weights @ (table.truth & table.predicted).astype(np.float64)
    return 2 * hits, weights @ table.truth.astype(np.float64) + weights @ table.predicted.astype(np.float64)


def make_label_estimator(table: FindingTable) -> Estimator:
    """Return an estimator of label_f1 (draws, findings) and of label_f1_micro (draws,), all findings pooled.

    label_f1 is undefined for findings that no report states.
    """

    def estimate(weights: Floats) -> dict[str, Floats]:
        numerator, denominator = _label_counts(table, weights)
        return {
            "label_f1": divide(numerator, denominator),
            "label_f1_micro": divide(numerator.sum(axis=1), denominator.sum(axis=1)),
        }

    return estimate


@dataclass(frozen=True)
class ReportCase:
    """One test case.

    Args:
        image: name of the case in messages.
        patient: empty means a patient of its own.
        reference: the true report, not empty.
        prediction: the written one; an empty one scores 0.
    """

    image: str
    patient: str
    reference: str
    prediction: str


def _check_cases(cases: Sequence[ReportCase]) -> None:
    for number, case in enumerate(cases):
        if not isinstance(case.prediction, str):
            raise ValueError(f"case {number} ({case.image}): the prediction is not a text: {case.prediction!r}")
        if not tokenize(case.reference):
            raise ValueError(
                f"case {number} ({case.image}): the true report has no words; leave cases without a report out of the "
                "test part"
            )


def _make_wording_estimator(cases: Sequence[ReportCase], only: str | None) -> Estimator:
    """Return an estimator of BLEU, ROUGE-L, METEOR and CIDEr-D, each (draws,); with `only`, of this metric's kind."""
    candidates, references = [tokenize(case.prediction) for case in cases], [tokenize(case.reference) for case in cases]
    pairs = list(zip(candidates, references, strict=True))
    counts, per_case = None, {}
    if only is None or only.startswith("bleu_"):
        counts = np.array([bleu_counts(*pair) for pair in pairs], dtype=np.float64)
    if only in (None, "rouge_l"):
        per_case["rouge_l"] = np.array([rouge_l(*pair) for pair in pairs])
    if only in (None, "meteor"):
        per_case["meteor"] = np.array([meteor(*pair) for pair in pairs])
    if only in (None, "cider"):
        per_case["cider"] = cider(candidates, references)

    def estimate(weights: Floats) -> dict[str, Floats]:
        corpus = None if counts is None else bleu(weights @ counts)
        figures = {} if corpus is None else {f"bleu_{order + 1}": corpus[:, order] for order in range(MAX_NGRAM_ORDER)}
        return figures | {name: weighted_means(value[:, None], weights)[:, 0] for name, value in per_case.items()}

    return estimate


def _make_report_estimator(
    cases: Sequence[ReportCase], findings: Findings | None, only: str | None = None
) -> Estimator:
    parts: list[Estimator] = []
    if only is None or not only.startswith("label_"):
        parts.append(_make_wording_estimator(cases, only))
    if findings and (only is None or only.startswith("label_")):
        parts.append(make_label_estimator(tabulate_findings(cases, findings)))
    return lambda weights: {name: value for part in parts for name, value in part(weights).items()}


def compute_report_metrics(
    cases: Sequence[ReportCase], findings: Findings | None = None, *, only: str | None = None
) -> dict[str, float]:
    """Compute metrics without interval or baseline; a label F1 is the mean over the findings.

    Args:
        cases: one for each test case.
        findings: needed for the label F1.
        only: a canonical name; metrics of other kinds are skipped.

    Raises:
        ValueError: no cases, or one without a true report.
    """
    group_patients(cases)
    _check_cases(cases)
    values = point_estimates(_make_report_estimator(cases, findings, only), len(cases))
    return {name: float(value if value.ndim == 0 else mean_defined(value)) for name, value in values.items()}


def bootstrap_report_metric(
    cases: Sequence[ReportCase], findings: Findings | None, name: str, draws: int, seed: int
) -> Floats:
    """Return (draws,) one metric, by its canonical name, on bootstrap samples of patients."""
    estimator = _make_report_estimator(cases, findings, name)
    values = resample(group_patients(cases), lambda _, weights: {name: estimator(weights)[name]}, draws, seed)[name]
    return values if values.ndim == 1 else mean_defined(values)


def replace_texts(cases: Sequence[ReportCase], texts: Sequence[str]) -> list[ReportCase]:
    """Return the same cases with other predictions.

    Raises:
        ValueError: the numbers of texts and cases differ.
    """
    if len(texts) != len(cases):
        raise ValueError(f"{len(texts)} texts for {len(cases)} cases")
    return [replace(case, prediction=text) for case, text in zip(cases, texts, strict=True)]


def _limit_bleu_intervals(metrics: Mapping[str, Measure]) -> dict[str, Measure]:
    """Return the metrics with no interval of BLEU-n above that of BLEU-(n-1).

    A text cannot have more right runs of n words than of n - 1, but the interval of a value of 0 is widened by the rule
    for events that were never seen, whatever the shorter runs say.
    """
    limited = dict(metrics)
    for order in range(2, MAX_NGRAM_ORDER + 1):
        shorter, longer = limited.get(f"bleu_{order - 1}"), limited.get(f"bleu_{order}")
        if shorter is None or longer is None or shorter.high is None or longer.high is None:
            continue
        if longer.value <= shorter.high < longer.high:
            limited[f"bleu_{order}"] = replace(longer, high=shorter.high)
    return limited


def count_distinct_texts(cases: Sequence[ReportCase]) -> int:
    """Return the number of different written reports; case, spaces and punctuation do not make a difference."""
    return len({tuple(tokenize(case.prediction)) for case in cases})


def score_reports(
    cases: Sequence[ReportCase],
    findings: Findings | None = None,
    *,
    primary: str = "bleu_1",
    baseline_reports: Sequence[str] = (),
    random_texts: Sequence[str] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Compute BLEU-1..4, ROUGE-L, METEOR, CIDEr-D and label F1, with bootstrap intervals over patients.

    Args:
        cases: one for each test case.
        findings: finding -> phrases that state it (`extract_findings`); without it there is no label F1.
        primary: the metric that counts, any spelling in `metric_names("report")`.
        baseline_reports: constant reports, usually `report_baselines.best_constant_reports`. The baseline of each
            metric is that of the best constant report. Without one there is no baseline, and no verdict.
        random_texts: a random text for each case (`report_baselines.draw_random_reports`): a baseline as well.
        seed: of the bootstrap.
        draws: bootstrap samples; 0 for no intervals.

    Raises:
        ValueError: no cases, a case without a true report, an unknown or unfitting metric.
    """
    name = canonical_metric(primary, "report")
    patients = group_patients(cases)
    _check_cases(cases)
    if name.startswith("label_") and not findings:
        raise ValueError(f"{name} needs the findings and their phrases")
    baseline: dict[str, Floats] = {}
    answers = [[text] * len(cases) for text in dict.fromkeys(baseline_reports)] + (
        [] if random_texts is None else [list(random_texts)]
    )
    baseline_estimators = [_make_report_estimator(replace_texts(cases, answer), findings) for answer in answers]
    for estimator in baseline_estimators:
        estimates = point_estimates(estimator, len(cases))
        baseline = {key: np.fmax(value, baseline.get(key, value)) for key, value in estimates.items()}
    table = tabulate_findings(cases, findings) if findings else None
    label_presence = np.zeros((len(cases), 0), dtype=np.bool_) if table is None else table.truth | table.predicted
    settings = MeasureSettings(draws, seed, baseline, label_presence, baseline_estimators=baseline_estimators)
    metrics, per_label = measure_with_intervals(
        patients, list(findings or ()), _make_report_estimator(cases, findings), settings
    )
    metrics = _limit_bleu_intervals(metrics)
    details: dict[str, Any] = {
        "distinct": count_distinct_texts(cases),
        "constant": list(dict.fromkeys(baseline_reports)),
    }
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=tuple(findings or ()),
        n_cases=len(cases),
        n_patients=patients.n_patients,
        multi_label=True,
        task="report",
        per_label=per_label,
        details=details,
    )
