"""Calibrated probabilities: temperature and bias fitted on validation logits, thresholds, and the calibration error.

Guo et al., 2017, "On calibration of modern neural networks". Single-label: one temperature and a bias for each class. Multi-label: a
temperature and a bias for each class, since the loss weighs classes and so shifts each logit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from m3b.training.diagnosis.ensemble_calibration import EnsembleAverage

MIN_CASES_PER_SIDE = 10
"""Minimum positive and negative cases for a temperature and bias of a class's own."""
BINS = 15
PRIOR_SPREAD = 0.5
"""Prior standard deviation of the log temperature: a few correct cases do not make a model certain."""


def probabilities(logits: np.ndarray, multi_label: bool) -> np.ndarray:
    """Return probabilities of (N, K) logits: sigmoid for multi-label, softmax for single-label."""
    if multi_label:
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def binary_labels(labels: np.ndarray) -> np.ndarray:
    """Return (N, K) 0 and 1, or NaN for unknown labels."""
    return np.where(np.isnan(labels), np.nan, labels > 0.5) if np.isnan(labels).any() else labels > 0.5


def select_known(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (N,) of one class and whether it applies, for the cases of which that is known."""
    is_known = ~np.isnan(labels)
    return values[is_known], labels[is_known] > 0.5


def log_loss(logits: np.ndarray, labels: np.ndarray, multi_label: bool) -> float:
    """Return the mean over cases (and classes, multi-label, of known labels), in nats."""
    if multi_label:
        return float(np.nanmean(np.logaddexp(0, logits) - labels * logits))
    maximum = logits.max(axis=1, keepdims=True)
    logs = logits - maximum - np.log(np.exp(logits - maximum).sum(axis=1, keepdims=True))
    return float(-(logs * labels).sum(axis=1).mean())


def fit_calibration(logits: np.ndarray, labels: np.ndarray, multi_label: bool) -> dict[str, Any]:
    """Fit {"temperature", "bias"} by log loss: a number and a list of K for single-label, two lists of K for multi-label."""
    logits, labels = logits.astype(np.float64), binary_labels(labels)
    grid = np.exp(np.linspace(np.log(0.25), np.log(4.0), 81))
    shared = float(
        min(grid, key=lambda value: log_loss(logits / value, labels, multi_label) + _penalty(value, len(labels)))
    )
    if not multi_label:
        temperature, bias = _fit_together(logits, labels, shared)
        return {"temperature": round(temperature, 4), "bias": [round(float(b), 4) for b in bias]}
    rows = [_fit_class(*select_known(logits[:, k], labels[:, k]), shared) for k in range(labels.shape[1])]
    return {"temperature": [round(t, 4) for t, _ in rows], "bias": [round(b, 4) for _, b in rows]}


def _penalty(temperature: float, cases: int) -> float:
    """Return the negative log of a normal prior of the log temperature, for each case."""
    return 0.5 * float(np.square(np.log(temperature) / PRIOR_SPREAD)) / cases


def _fit_together(logits: np.ndarray, labels: np.ndarray, shared: float) -> tuple[float, np.ndarray]:
    """Fit the temperature, and the bias of every class with `MIN_CASES_PER_SIDE` cases (others stay 0), regularised to 0."""
    from scipy.optimize import minimize

    is_fitted = labels.sum(axis=0) >= MIN_CASES_PER_SIDE
    no_bias = np.zeros(labels.shape[1])
    if is_fitted.sum() < 2:
        return shared, no_bias

    def spread(values: np.ndarray) -> np.ndarray:
        bias = no_bias.copy()
        bias[is_fitted] = values - values.mean()
        return bias

    def loss(values: np.ndarray) -> float:
        shifted = logits * np.exp(-values[0]) + spread(values[1:])
        prior = 0.5 * float(np.square(values[1:]).sum()) / len(labels)
        return log_loss(shifted, labels, False) + prior + _penalty(float(np.exp(values[0])), len(labels))

    result = minimize(loss, np.array([np.log(shared), *np.zeros(int(is_fitted.sum()))]), method="L-BFGS-B")
    if not np.isfinite(result.x).all() or result.fun > loss(
        np.array([np.log(shared), *np.zeros(int(is_fitted.sum()))])
    ):
        return shared, no_bias
    return float(np.exp(np.clip(result.x[0], *np.log((0.05, 20.0))))), spread(result.x[1:])


def _fit_class(logits: np.ndarray, truth: np.ndarray, shared: float) -> tuple[float, float]:
    """Fit slope and bias of one class by Newton's method, regularised to the shared slope and no bias."""
    if min(truth.sum(), (~truth).sum()) < MIN_CASES_PER_SIDE:
        return shared, 0.0
    weights, start = np.array([1 / shared, 0.0]), np.array([1 / shared, 0.0])
    inputs = np.stack([logits, np.ones_like(logits)], axis=1)
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(inputs @ weights, -60, 60)))
        gradient = inputs.T @ (p - truth) + (weights - start)
        step = np.linalg.solve((inputs * (p * (1 - p))[:, None]).T @ inputs + np.eye(2), gradient)
        weights = weights - step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
    if not np.isfinite(weights).all() or not 0.05 <= weights[0] <= 20:
        return shared, 0.0  # the network ranks this class the wrong way round
    return float(1 / weights[0]), float(weights[1])


def apply_calibration(logits: np.ndarray, fitted: Mapping[str, Any]) -> np.ndarray:
    """Return logits / temperature + bias."""
    return np.asarray(logits / np.asarray(fitted["temperature"]) + np.asarray(fitted["bias"]))


def calibration_error(scores: np.ndarray, labels: np.ndarray, multi_label: bool) -> float:
    """Return the expected calibration error in 15 equal bins: of the decided class, or the mean over classes (multi-label)."""
    if multi_label:
        return float(
            np.mean([_binned_error(*select_known(scores[:, k], labels[:, k])) for k in range(labels.shape[1])])
        )
    truth = labels > 0.5
    decided = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    return _binned_error(scores[rows, decided], truth[rows, decided])


def _binned_error(score: np.ndarray, is_correct: np.ndarray) -> float:
    bin_index = np.minimum((score * BINS).astype(int), BINS - 1)
    gap = np.bincount(bin_index, score, BINS) - np.bincount(bin_index, is_correct.astype(float), BINS)
    return float(np.abs(gap).sum() / max(len(score), 1))


def best_threshold(score: np.ndarray, truth: np.ndarray) -> float:
    """Return the threshold with the highest F1; 0.5 if only one side is present."""
    if not truth.any() or truth.all():
        return 0.5
    cuts = np.unique(score)[:: max(1, len(np.unique(score)) // 200)]
    return float(max(cuts, key=lambda cut: 2 * (truth & (score >= cut)).sum() / (truth.sum() + (score >= cut).sum())))


def score_decisions(scores: np.ndarray, truth: np.ndarray, cuts: np.ndarray, multi_label: bool) -> dict[str, Any]:
    """Score the decisions at `cuts` (N, K), and the best constant decision: accuracy, or balanced accuracy if a rare class has its own
    threshold; for multi-label the mean F1 over the classes that occur, and that of calling everything positive."""
    if not multi_label:
        decision = (scores / cuts).argmax(axis=1)
        is_correct = truth[np.arange(len(truth)), decision]
        if len(np.unique(cuts)) == 1:
            return {"accuracy": float(is_correct.mean()), "constant_accuracy": float(truth.mean(axis=0).max())}
        recalls = [float(is_correct[truth[:, k]].mean()) for k in range(truth.shape[1]) if truth[:, k].any()]
        return {"balanced_accuracy": float(np.mean(recalls)), "constant_balanced_accuracy": 1 / len(recalls)}
    is_known, truth = ~np.isnan(truth), truth > 0.5
    decided, occurs = (scores >= cuts) & is_known, truth.any(axis=0)
    hits, total = 2.0 * (decided & truth).sum(axis=0), decided.sum(axis=0) + truth.sum(axis=0)
    share = truth.sum(axis=0)[occurs] / is_known.sum(axis=0)[occurs]
    f1 = float((hits[occurs] / total[occurs]).mean()) if occurs.any() else float("nan")
    return {"f1": f1, "constant_f1": float((2 * share / (1 + share)).mean()) if occurs.any() else float("nan")}


LEFT_OUT = "left out"
"""Status of a calibration that was tried and does not lower the loss beyond chance."""
NO_GAIN = "temperature and bias were tried and left out, since they do not lower the loss beyond chance"


def describe_error(figures: Mapping[str, Any]) -> str:
    """Return the calibration error before and after the calibration, or that there is none."""
    if figures.get("status") == LEFT_OUT:
        return f"calibration error {figures['ece_before']}: {NO_GAIN}"
    return f"calibration error {figures['ece_before']}, calibrated {figures['ece_after']}"


CONSTANT_MODELS = {
    "accuracy": "a model that always answers the commonest class",
    "balanced_accuracy": "a model that always answers the same class",
    "f1": "a model that finds every class in every case",
}
"""The metric of decisions -> the constant model that they have to beat."""


def describe_decisions(figures: Mapping[str, Any], details: str = "") -> str:
    """Return a line on the decisions of the delivered model, and whether they beat a constant.

    Args:
        details: further figures of these decisions, with a comma at the end.
    """
    for name, constant_model in CONSTANT_MODELS.items():
        score, constant = figures.get(name), figures.get(f"constant_{name}")
        if score is not None and constant is not None:
            relation = "above" if score > constant else "NOT above"
            metric = name.replace("_", " ")
            return (
                f"decisions as delivered (calibration fitted on other cases): {details}{metric} {score}, {relation} the {constant} of "
                f"{constant_model}"
            )
    return ""


RARE_CLASS_SHARE = 0.2
"""Share of the cases below which one of two classes is decided for before it is the likelier one."""


def exclusive_cuts(truth: np.ndarray) -> list[float]:
    """Return the cuts of exclusive classes: the class with the highest probability / cut is decided for. If one of two classes is
    rare, cuts are their shares, else equal.

    With calibrated probabilities the shares give the best balanced accuracy: P(x | class) is proportional to P(class | x) / share.
    """
    shares = truth.mean(axis=0)
    if len(shares) != 2 or not 0 < shares.min() < RARE_CLASS_SHARE:
        return [0.5] * len(shares)
    return [round(float(share), 6) for share in shares]


def best_thresholds(scores: np.ndarray, truth: np.ndarray) -> list[float]:
    """Return the threshold of each class."""
    return [round(best_threshold(*select_known(scores[:, k], truth[:, k])), 4) for k in range(truth.shape[1])]


def calibrate(
    logits: np.ndarray, labels: np.ndarray, patients: list[str], multi_label: bool, cuts_of_classes: Sequence[float] = (),
    average: EnsembleAverage | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return temperature, bias, thresholds, and `figures`: log loss and calibration error before and after, scores of the decisions,
    and `"status": LEFT_OUT` if nothing is calibrated; `fair`, (R, K) cross-fitted probabilities, and `cases`, (R,) the case of each
    row.

    "After" and the decisions are cross-fitted over five groups of patients. If the fit does not lower the cross-fitted log loss, as
    with few cases, temperature is 1 and bias 0.

    Args:
        cuts_of_classes: of exclusive classes, from `exclusive_cuts`; equal ones if omitted.
        average: if each of `logits` is of one of several networks. Everything is then fitted for their average, `figures` are
            those of its expected logits, and `alone` has temperature, bias and thresholds of each network.
    """
    logits = logits if average is None else average.expected
    truth, fitted = binary_labels(labels), fit_calibration(logits, labels, multi_label)
    thresholds = list(cuts_of_classes) or [0.5] * labels.shape[1]
    names = {name: index for index, name in enumerate(sorted(set(patients)))}
    fold_of_case = np.random.default_rng(0).permutation(len(names))[[names[name] for name in patients]] % 5
    parts = [(fold_of_case == is_held_out, fold_of_case != is_held_out) for is_held_out in range(5)]
    fits = [
        fit_calibration(logits[is_training], labels[is_training], multi_label) if is_training.any() else fitted
        for _, is_training in parts
    ]
    fair = _apply_cross_fitted(logits, parts, fits)
    is_left_out = log_loss(fair, truth, multi_label) >= log_loss(logits, truth, multi_label)
    if is_left_out:
        network_fit = np.ones(labels.shape[1])
        fitted = {"temperature": network_fit.tolist() if multi_label else 1.0, "bias": (network_fit * 0).tolist()}
        fits, fair = [fitted] * 5, logits.astype(np.float64)
    before, after = probabilities(logits, multi_label), probabilities(fair, multi_label)
    cuts = np.tile(thresholds, (len(logits), 1))
    if multi_label:
        thresholds = best_thresholds(probabilities(apply_calibration(logits, fitted), multi_label), truth)
        for (is_held_out, is_training), fold_fit in zip(parts, fits, strict=True):
            cuts[is_held_out] = (
                best_thresholds(
                    probabilities(apply_calibration(logits[is_training], fold_fit), multi_label), truth[is_training]
                )
                if is_training.any()
                else 0.5
            )
    figures = {
        "log_loss_before": round(log_loss(logits, truth, multi_label), 4),
        "log_loss_after": round(log_loss(fair, truth, multi_label), 4),
        "ece_before": round(calibration_error(before, labels, multi_label), 4),
        "ece_after": round(calibration_error(after, labels, multi_label), 4),
        **{name: round(value, 4) for name, value in score_decisions(after, truth, cuts, multi_label).items()},
        **({"status": LEFT_OUT} if is_left_out else {}),
    }
    if average is None:
        cases = np.arange(len(logits))
        return {**fitted, "thresholds": thresholds, "figures": figures, "fair": after, "cases": cases}
    alone = [{**network_fit, "thresholds": thresholds} for network_fit in average.calibrate_networks(fitted)]
    draws = [
        average.draw_logits(is_held_out, truth[is_held_out], fold_fit)
        for (is_held_out, _), fold_fit in zip(parts, fits, strict=True)
    ]
    fair = np.concatenate([probabilities(rows.reshape(-1, logits.shape[1]), multi_label) for rows in draws])
    cases = np.concatenate(
        [np.tile(np.flatnonzero(is_held_out), len(rows)) for (is_held_out, _), rows in zip(parts, draws, strict=True)]
    )
    thresholds = best_thresholds(fair, truth[cases]) if multi_label else thresholds
    figures |= average.figures()
    return {**fitted, "thresholds": thresholds, "alone": alone, "figures": figures, "fair": fair, "cases": cases}


def _apply_cross_fitted(
    logits: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]], fits: Sequence[Any]
) -> np.ndarray:
    """Return (N, K) logits, each group of cases calibrated by its own fit."""
    fair = np.zeros_like(logits, dtype=np.float64)
    for (is_held_out, _), fold_fit in zip(parts, fits, strict=True):
        fair[is_held_out] = apply_calibration(logits[is_held_out], fold_fit)
    return fair
