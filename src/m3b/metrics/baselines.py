"""What a model reaches that never looks at an image: the best constant prediction, per metric."""

from __future__ import annotations

import numpy as np

from .arithmetic import divide, mean_defined
from .cases import ClassificationTable, Floats
from .operating import SPECIFICITIES


def _best_constant_f1(prevalence: Floats) -> float:
    """Macro F1 of always answering one class, for the best choice: only that class has an F1 above zero."""
    return float((2 * prevalence / (1 + prevalence)).max()) / int((prevalence > 0).sum())


def _chance_average_precision(table: ClassificationTable, shares: Floats) -> Floats:
    """(draws,) average precision of scores that say nothing: the share of positives, of (draws, classes) shares."""
    if len(table.classes) == 2 and not table.multi_label:
        return np.where((shares[:, 1] > 0) & (shares[:, 1] < 1), shares[:, 1], np.nan)
    return mean_defined(np.where((shares > 0) & (shares < 1), shares, np.nan))


def _chance_ranking_metrics(table: ClassificationTable, prevalence: Floats) -> dict[str, float | None]:
    """Of scores that say nothing: of the positives as many are found as of the negatives are called positive."""
    area = float(_chance_average_precision(table, prevalence[None])[0])
    chance_sensitivities = {name: 1 - specificity for name, specificity in SPECIFICITIES.items()}
    return {"auprc": None if np.isnan(area) else area, **chance_sensitivities}


def constant_baselines(table: ClassificationTable) -> dict[str, float | None]:
    """Canonical name -> the best that a constant prediction gets on these cases; None where that says nothing.

    Exclusive classes: accuracy is the share of the commonest class, balanced accuracy one over the number of classes
    that occur, the average precision the share of positives, the Brier score that of predicting every class's share.
    Multi-label: the same for each finding, then the mean. Sensitivity and specificity are those of a coin (a constant
    prediction gets 1 on one and 0 on the other); a constant prediction of the shares is perfectly calibrated, so the
    calibration error has no baseline.
    """
    prevalence: Floats = table.truth.mean(axis=0)
    by_rank = _chance_ranking_metrics(table, prevalence)
    if table.multi_label:
        is_present = prevalence > 0
        f1 = float((2 * prevalence[is_present] / (1 + prevalence[is_present])).mean()) if is_present.any() else None
        return {
            "auroc": 0.5,
            "balanced_accuracy": 0.5,
            "accuracy": float(np.maximum(prevalence, 1 - prevalence).mean()),
            "f1": f1,
            "sensitivity": 0.5,
            "specificity": 0.5,
            **by_rank,
            "ece": None,
            "brier": float((prevalence * (1 - prevalence)).mean()),
        }
    return {
        "auroc": 0.5,
        "balanced_accuracy": 1 / int((prevalence > 0).sum()),
        "accuracy": float(prevalence.max()),
        "f1": _best_constant_f1(prevalence),
        "sensitivity": 0.5,
        "specificity": 0.5,
        **by_rank,
        "ece": None,
        "brier": float((prevalence * (1 - prevalence)).sum() / 2),
    }


def constant_draws(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Accuracy, F1, average precision and Brier score of the best constant prediction on weighted cases, each (draws,).

    The answer is chosen on all cases, as `constant_baselines` does, and the same in every draw. The other metrics give a
    constant prediction the same value on any cases.

    Args:
        weights: (draws, cases), see `bootstrap.weightings`.
    """
    total = weights.sum(axis=1)
    prevalence: Floats = table.truth.mean(axis=0)
    shares = (weights @ table.truth.astype(np.float64)) / total[:, None]
    single_class_f1 = 2 * shares / (1 + shares)
    errors = np.square(prevalence - table.truth)
    if table.multi_label:
        accuracy = np.where(prevalence >= 0.5, shares, 1 - shares).mean(axis=1)
        f1, brier = single_class_f1[:, prevalence > 0].mean(axis=1), errors.mean(axis=1)
    else:
        common = int(prevalence.argmax())
        accuracy = shares[:, common]
        f1 = divide(single_class_f1[:, common], (shares > 0).sum(axis=1).astype(np.float64))
        brier = errors.sum(axis=1) / 2
    precision = _chance_average_precision(table, shares)
    return {"accuracy": accuracy, "f1": f1, "auprc": precision, "brier": (weights @ brier) / total}
