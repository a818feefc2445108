"""Probabilities that mean what they say: temperature and bias fitted on validation logits, thresholds, and their error.

Guo et al., 2017, "On calibration of modern neural networks": one temperature for one label a case, and a bias a class; for
several labels a temperature and a bias a class (the loss weighs classes, which moves every logit by an amount of its own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from m3b.training.diagnosis.ensemble_calibration import Average

ENOUGH = 10
"""Cases that a class must have on either side to be given its own temperature and bias."""
BINS = 15
PRIOR_SPREAD = 0.5
"""Standard deviation of the logarithm of temperatures that is assumed before any case is seen: a few cases that happen to be right
do not make a model certain."""


def probabilities(logits: np.ndarray, multi_label: bool) -> np.ndarray:
    """(N, K) logits to probabilities: sigmoid for several labels a case, softmax for one."""
    if multi_label:
        return 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def truth_of(labels: np.ndarray) -> np.ndarray:
    """(N, K) 0 and 1, or NaN where a label is not known."""
    return np.where(np.isnan(labels), np.nan, labels > 0.5) if np.isnan(labels).any() else labels > 0.5


def known_of(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (N,) of one class and whether it applies, of the cases of which that is known."""
    known = ~np.isnan(labels)
    return values[known], labels[known] > 0.5


def log_loss(logits: np.ndarray, labels: np.ndarray, multi: bool) -> float:
    """Mean over cases (and classes, for several labels, as far as these are known), in nats."""
    if multi:
        return float(np.nanmean(np.logaddexp(0, logits) - labels * logits))
    top = logits.max(axis=1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float(-(logs * labels).sum(axis=1).mean())


def fit(logits: np.ndarray, labels: np.ndarray, multi: bool) -> dict[str, Any]:
    """{"temperature", "bias"}: a number and a list of K for one label a case, two lists of K for several. Least log loss."""
    logits, labels = logits.astype(np.float64), truth_of(labels)
    grid = np.exp(np.linspace(np.log(0.25), np.log(4.0), 81))
    shared = float(min(grid, key=lambda value: log_loss(logits / value, labels, multi) + _penalty(value, len(labels))))
    if not multi:
        temperature, bias = _fit_together(logits, labels, shared)
        return {"temperature": round(temperature, 4), "bias": [round(float(b), 4) for b in bias]}
    rows = [_fit_class(*known_of(logits[:, k], labels[:, k]), shared) for k in range(labels.shape[1])]
    return {"temperature": [round(t, 4) for t, _ in rows], "bias": [round(b, 4) for _, b in rows]}


def _penalty(temperature: float, cases: int) -> float:
    """Negative log of a normal prior of the temperature's logarithm, a case."""
    return 0.5 * float(np.square(np.log(temperature) / PRIOR_SPREAD)) / cases


def _fit_together(logits: np.ndarray, labels: np.ndarray, shared: float) -> tuple[float, np.ndarray]:
    """Temperature, and the bias of every class that has `ENOUGH` cases (the others stay at 0), drawn slightly to none."""
    from scipy.optimize import minimize

    free = labels.sum(axis=0) >= ENOUGH
    nothing = np.zeros(labels.shape[1])
    if free.sum() < 2:
        return shared, nothing

    def spread(values: np.ndarray) -> np.ndarray:
        bias = nothing.copy()
        bias[free] = values - values.mean()
        return bias

    def loss(values: np.ndarray) -> float:
        moved = logits * np.exp(-values[0]) + spread(values[1:])
        drawn = 0.5 * float(np.square(values[1:]).sum()) / len(labels)
        return log_loss(moved, labels, False) + drawn + _penalty(float(np.exp(values[0])), len(labels))

    found = minimize(loss, np.array([np.log(shared), *np.zeros(int(free.sum()))]), method="L-BFGS-B")
    if not np.isfinite(found.x).all() or found.fun > loss(np.array([np.log(shared), *np.zeros(int(free.sum()))])):
        return shared, nothing
    return float(np.exp(np.clip(found.x[0], *np.log((0.05, 20.0))))), spread(found.x[1:])


def _fit_class(logits: np.ndarray, truth: np.ndarray, shared: float) -> tuple[float, float]:
    """Newton's method for the slope and the bias of one class, drawn slightly to the shared slope and no bias."""
    if min(truth.sum(), (~truth).sum()) < ENOUGH:
        return shared, 0.0
    weights, prior = np.array([1 / shared, 0.0]), np.array([1 / shared, 0.0])
    inputs = np.stack([logits, np.ones_like(logits)], axis=1)
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(inputs @ weights, -60, 60)))
        gradient = inputs.T @ (p - truth) + (weights - prior)
        step = np.linalg.solve((inputs * (p * (1 - p))[:, None]).T @ inputs + np.eye(2), gradient)
        weights = weights - step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
    if not np.isfinite(weights).all() or not 0.05 <= weights[0] <= 20:
        return shared, 0.0  # a class that the network ranks the wrong way round is left as it is
    return float(1 / weights[0]), float(weights[1])


def adjust(logits: np.ndarray, fitted: Mapping[str, Any]) -> np.ndarray:
    """logits / temperature + bias."""
    return logits / np.asarray(fitted["temperature"]) + np.asarray(fitted["bias"])


def calibration_error(scores: np.ndarray, labels: np.ndarray, multi: bool) -> float:
    """Expected calibration error, 15 equal bins: of the class decided for, or the mean over classes of each alone."""
    if multi:
        return float(np.mean([_binned(*known_of(scores[:, k], labels[:, k])) for k in range(labels.shape[1])]))
    truth = labels > 0.5
    called = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    return _binned(scores[rows, called], truth[rows, called])


def _binned(score: np.ndarray, right: np.ndarray) -> float:
    place = np.minimum((score * BINS).astype(int), BINS - 1)
    gap = np.bincount(place, score, BINS) - np.bincount(place, right.astype(float), BINS)
    return float(np.abs(gap).sum() / max(len(score), 1))


def best_threshold(score: np.ndarray, truth: np.ndarray) -> float:
    """The cut with the highest F1; 0.5 where only one side is present."""
    if not truth.any() or truth.all():
        return 0.5
    cuts = np.unique(score)[:: max(1, len(np.unique(score)) // 200)]
    return float(max(cuts, key=lambda cut: 2 * (truth & (score >= cut)).sum() / (truth.sum() + (score >= cut).sum())))


def decisions(scores: np.ndarray, truth: np.ndarray, cuts: np.ndarray, multi: bool) -> dict[str, Any]:
    """What the decisions at `cuts` (N, K) are worth beside the best that look at no image: accuracy and the commonest class, or,
    where a rare class has a cut of its own, balanced accuracy; for several labels the mean F1 over the classes that occur, and that of
    calling everything positive."""
    if not multi:
        found = (scores / cuts).argmax(axis=1)
        right = truth[np.arange(len(truth)), found]
        if len(np.unique(cuts)) == 1:
            return {"accuracy": float(right.mean()), "constant_accuracy": float(truth.mean(axis=0).max())}
        recalls = [float(right[truth[:, k]].mean()) for k in range(truth.shape[1]) if truth[:, k].any()]
        return {"balanced_accuracy": float(np.mean(recalls)), "constant_balanced_accuracy": 1 / len(recalls)}
    known, truth = ~np.isnan(truth), truth > 0.5
    called, some = (scores >= cuts) & known, truth.any(axis=0)
    hits, total = 2.0 * (called & truth).sum(axis=0), called.sum(axis=0) + truth.sum(axis=0)
    share = truth.sum(axis=0)[some] / known.sum(axis=0)[some]
    f1 = float((hits[some] / total[some]).mean()) if some.any() else float("nan")
    return {"f1": f1, "constant_f1": float((2 * share / (1 + share)).mean()) if some.any() else float("nan")}


ONE_FOR_ALL = {
    "accuracy": "the commonest class for everybody",
    "balanced_accuracy": "one class for everybody",
    "f1": "every class for everybody",
}


def decisions_told(figures: Mapping[str, Any]) -> str:
    """A line about the decisions, for people; a model whose decisions are worse than a constant's is told so."""
    for name, one in ONE_FOR_ALL.items():
        own, constant = figures.get(name), figures.get(f"constant_{name}")
        if own is not None and constant is not None:
            said = "above" if own > constant else "NOT above"
            words = name.replace("_", " ")
            return f"decisions as delivered (cross-fitted): {words} {own}, {said} {constant} of {one}"
    return ""


RARE = 0.2
"""Share of the cases below which one of two classes is decided for before it is the likelier one."""


def exclusive_cuts(truth: np.ndarray) -> list[float]:
    """The class with the highest probability / cut is decided for: equal cuts, or, where one of two classes is rare, their shares.

    With calibrated probabilities the shares give the best balanced accuracy: P(x | class) is proportional to P(class | x) / share.
    """
    shares = truth.mean(axis=0)
    if len(shares) != 2 or not 0 < shares.min() < RARE:
        return [0.5] * len(shares)
    return [round(float(share), 6) for share in shares]


def thresholds_of(scores: np.ndarray, truth: np.ndarray) -> list[float]:
    """The cut of each class."""
    return [round(best_threshold(*known_of(scores[:, k], truth[:, k])), 4) for k in range(truth.shape[1])]


def calibrate(
    logits: np.ndarray, labels: np.ndarray, patients: list[str], multi: bool, cuts_of_classes: Sequence[float] = (),
    average: Average | None = None,
) -> dict[str, Any]:  # fmt: skip
    """temperature, bias, thresholds, and before and after: log loss and calibration error; what the decisions are worth;
    `fair`, (R, K) probabilities of which each case had no part in the fit, and `cases`, (R,) the case of each row.

    "After", and decisions, are measured on cases that the fit has not seen: five groups of patients take turns. Where it
    does not lower the log loss there, as with a handful of cases, nothing is fitted.

    Args:
        cuts_of_classes: of exclusive classes, as of `exclusive_cuts`; equal ones if left out.
        average: if each of `logits` is of one of several networks. Everything is then fitted for their average, `figures` are
            those of its expected logits, and `alone` holds temperature, bias and thresholds of each network.
    """
    logits = logits if average is None else average.expected
    truth, fitted = truth_of(labels), fit(logits, labels, multi)
    thresholds = list(cuts_of_classes) or [0.5] * labels.shape[1]
    names = {name: place for place, name in enumerate(sorted(set(patients)))}
    turn = np.random.default_rng(0).permutation(len(names))[[names[name] for name in patients]] % 5
    parts = [(turn == part, turn != part) for part in range(5)]
    fits = [fit(logits[rest], labels[rest], multi) if rest.any() else fitted for _, rest in parts]
    fair = _each_part(logits, parts, fits)
    if log_loss(fair, truth, multi) >= log_loss(logits, truth, multi):
        one = np.ones(labels.shape[1])
        fitted = {"temperature": one.tolist() if multi else 1.0, "bias": (one * 0).tolist()}
        fits, fair = [fitted] * 5, logits.astype(np.float64)
    before, after = probabilities(logits, multi), probabilities(fair, multi)
    cuts = np.tile(thresholds, (len(logits), 1))
    if multi:
        thresholds = thresholds_of(probabilities(adjust(logits, fitted), multi), truth)
        for (part, rest), chosen in zip(parts, fits, strict=True):
            cuts[part] = (
                thresholds_of(probabilities(adjust(logits[rest], chosen), multi), truth[rest]) if rest.any() else 0.5
            )
    figures = {
        "log_loss_before": round(log_loss(logits, truth, multi), 4),
        "log_loss_after": round(log_loss(fair, truth, multi), 4),
        "ece_before": round(calibration_error(before, labels, multi), 4),
        "ece_after": round(calibration_error(after, labels, multi), 4),
        **{name: round(value, 4) for name, value in decisions(after, truth, cuts, multi).items()},
    }
    if average is None:
        cases = np.arange(len(logits))
        return {**fitted, "thresholds": thresholds, "figures": figures, "fair": after, "cases": cases}
    alone = [{**one, "thresholds": thresholds} for one in average.alone(fitted)]
    drawn = [average.draw(part, truth[part], chosen) for (part, _), chosen in zip(parts, fits, strict=True)]
    fair = np.concatenate([probabilities(rows.reshape(-1, logits.shape[1]), multi) for rows in drawn])
    cases = np.concatenate(
        [np.tile(np.flatnonzero(part), len(rows)) for (part, _), rows in zip(parts, drawn, strict=True)]
    )
    thresholds = thresholds_of(fair, truth[cases]) if multi else thresholds
    figures |= average.figures()
    return {**fitted, "thresholds": thresholds, "alone": alone, "figures": figures, "fair": fair, "cases": cases}


def _each_part(logits: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]], fits: Sequence[Any]) -> np.ndarray:
    """(N, K) logits, each part of the cases adjusted by its own fit."""
    fair = np.zeros_like(logits, dtype=np.float64)
    for (part, _), chosen in zip(parts, fits, strict=True):
        fair[part] = adjust(logits[part], chosen)
    return fair
