"""Score written reports against the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .arithmetic import mean_defined
from .bootstrap import resample
from .cases import Floats
from .findings import Findings
from .measuring import Estimator, Settings, group, measure, plain_figures, weighted_means
from .meteor import meteor
from .ngram_metrics import ORDERS, bleu, bleu_counts, cider, rouge_l, tokens
from .scores import Scores
from .text_findings import label_estimator, stated_in
from .vocabulary import canonical_metric


@dataclass(frozen=True)
class ReportCase:
    """One test case.

    Args:
        image: what names the case in messages.
        patient: empty means a patient of its own.
        reference: the true report, not empty.
        prediction: the written one; an empty one is worth 0.
    """

    image: str
    patient: str
    reference: str
    prediction: str


def _check(cases: Sequence[ReportCase]) -> None:
    for number, case in enumerate(cases):
        if not isinstance(case.prediction, str):
            raise ValueError(f"case {number} ({case.image}): the prediction is not a text: {case.prediction!r}")
        if not tokens(case.reference):
            raise ValueError(
                f"case {number} ({case.image}): the true report has no words; leave cases without a report out of the "
                "test part"
            )


_SLOW_METRICS = ("meteor", "cider")


def _make_wording_estimator(cases: Sequence[ReportCase], include_slow: bool = True) -> Estimator:
    """BLEU, ROUGE-L, and with `slow` METEOR and CIDEr-D, each (draws,)."""
    candidates, references = [tokens(case.prediction) for case in cases], [tokens(case.reference) for case in cases]
    counts = np.array([bleu_counts(a, b) for a, b in zip(candidates, references, strict=True)], dtype=np.float64)
    per_case = {"rouge_l": np.array([rouge_l(a, b) for a, b in zip(candidates, references, strict=True)])}
    if include_slow:
        per_case["meteor"] = np.array([meteor(a, b) for a, b in zip(candidates, references, strict=True)])
        per_case["cider"] = cider(candidates, references)

    def estimate(weights: Floats) -> dict[str, Floats]:
        corpus = bleu(weights @ counts)
        figures = {f"bleu_{order + 1}": corpus[:, order] for order in range(ORDERS)}
        return figures | {name: weighted_means(value[:, None], weights)[:, 0] for name, value in per_case.items()}

    return estimate


def _estimator(cases: Sequence[ReportCase], findings: Findings | None, only: str | None = None) -> Estimator:
    parts: list[Estimator] = []
    if only is None or not only.startswith("label_"):
        parts.append(_make_wording_estimator(cases, only is None or only in _SLOW_METRICS))
    if findings:
        parts.append(label_estimator(stated_in(cases, findings)))
    return lambda weights: {name: value for part in parts for name, value in part(weights).items()}


def figures(
    cases: Sequence[ReportCase], findings: Findings | None = None, *, only: str | None = None
) -> dict[str, float]:
    """Metrics without interval or baseline; a label F1 is the mean over the findings.

    Args:
        cases: one for each test case.
        findings: needed for the label F1.
        only: a canonical name; what takes long and does not serve it is left out.

    Raises:
        ValueError: no cases, or one without a true report.
    """
    group(cases)
    _check(cases)
    values = plain_figures(_estimator(cases, findings, only), len(cases))
    return {name: float(value if value.ndim == 0 else mean_defined(value)) for name, value in values.items()}


def drawn_figure(cases: Sequence[ReportCase], findings: Findings | None, name: str, draws: int, seed: int) -> Floats:
    """(draws,) one metric, by its canonical name, on bootstrap samples of patients."""
    estimator = _estimator(cases, findings, name)
    values = resample(group(cases), lambda _, weights: {name: estimator(weights)[name]}, draws, seed)[name]
    return values if values.ndim == 1 else mean_defined(values)


def with_text(cases: Sequence[ReportCase], texts: Sequence[str]) -> list[ReportCase]:
    """The same cases with other predictions.

    Raises:
        ValueError: another number of texts than of cases.
    """
    if len(texts) != len(cases):
        raise ValueError(f"{len(texts)} texts for {len(cases)} cases")
    return [replace(case, prediction=text) for case, text in zip(cases, texts, strict=True)]


def distinct_texts(cases: Sequence[ReportCase]) -> int:
    """How many different reports were written; case, spaces and punctuation do not make a difference."""
    return len({tuple(tokens(case.prediction)) for case in cases})


def score_reports(
    cases: Sequence[ReportCase],
    findings: Findings | None = None,
    *,
    primary: str = "bleu_1",
    trivial: Sequence[str] = (),
    random: Sequence[str] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """BLEU-1..4, ROUGE-L, METEOR, CIDEr-D and label F1, with intervals from `draws` bootstrap samples of patients.

    Args:
        cases: one for each test case.
        findings: finding -> phrases that state it (`findings.stated`); no label F1 without.
        primary: the metric that counts, any spelling in `metric_names("report")`.
        trivial: constant reports, usually those of `constants.best_constants`: the baseline of each metric is what the
            best of them gets as the answer to every case. Without one there is no baseline, and no verdict.
        random: a text for each case that was drawn at random (`constants.random_reports`): a baseline as well.
        seed: of the bootstrap.
        draws: bootstrap samples; 0 for no intervals.

    Raises:
        ValueError: no cases, a case without a true report, an unknown or unfitting metric.
    """
    name = canonical_metric(primary, "report")
    patients = group(cases)
    _check(cases)
    if name.startswith("label_") and not findings:
        raise ValueError(f"{name} needs the findings and their phrases")
    baseline: dict[str, Floats] = {}
    answers = [[text] * len(cases) for text in dict.fromkeys(trivial)] + ([] if random is None else [list(random)])
    baseline_estimators = [_estimator(with_text(cases, answer), findings) for answer in answers]
    for estimator in baseline_estimators:
        estimates = plain_figures(estimator, len(cases))
        baseline = {key: np.fmax(value, baseline.get(key, value)) for key, value in estimates.items()}
    table = stated_in(cases, findings) if findings else None
    label_presence = np.zeros((len(cases), 0), dtype=np.bool_) if table is None else table.truth | table.chosen
    settings = Settings(draws, seed, baseline, label_presence, rivals=baseline_estimators)
    metrics, per_label = measure(patients, list(findings or ()), _estimator(cases, findings), settings)
    details: dict[str, Any] = {"distinct": distinct_texts(cases), "constant": list(dict.fromkeys(trivial))}
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
