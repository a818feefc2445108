"""Choice between the few-shot detector, the ordinary network and their ensemble, by scores of held-out cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from m3b.training.ranking_metrics import auroc

MIN_BETTER_SHARE = 0.95
"""Share of bootstrap samples of the patients in which another engine must be better to replace the ensemble."""
BOOTSTRAP_SAMPLES = 1000
ENGINE_NAMES = {
    "fewshot": "few-shot",
    "image": "the ordinary network",
    "both": "few-shot and ordinary networks together",
}


@dataclass
class HeldOutScores:
    """Scores of a detector for cases that it was not trained with.

    Args:
        people: (N,) patient of each case.
        truth: (N,) whether it is abnormal.
        value: (N,) higher is more abnormal: deviations above normal, or logits.
    """

    people: list[str]
    truth: np.ndarray
    value: np.ndarray


def choose_engine_by_auroc(scores: Mapping[str, Sequence[HeldOutScores]]) -> tuple[str, str]:
    """Return (engine, reason), from scores of each engine in every draw of examples.

    A few examples cannot distinguish engines: with four per state the AUROC of eight cases has a standard error of about 0.2. So the
    ensemble, an average of networks that err on different images, is kept unless bootstrap samples of the patients nearly always
    favour one engine alone.
    """
    names = list(scores)
    means = {name: _mean_defined([auroc(draw.truth, draw.value) for draw in scores[name]]) for name in scores}
    auroc_text = ", ".join(f"{ENGINE_NAMES[name].removeprefix('the ')} {means[name]:.3f}" for name in names)
    best_single = max((name for name in names if name != "both"), key=lambda name: means[name])
    if "both" not in scores:
        return best_single, f"mean validation AUROC {auroc_text}"
    share = _share_above(scores[best_single], scores["both"]) if means[best_single] > means["both"] else 0.0
    if share >= MIN_BETTER_SHARE:
        return (
            best_single,
            f"mean validation AUROC {auroc_text}; better in {share:.0%} of bootstrap samples of the patients",
        )
    remark = (
        ""
        if not share
        else f"; {ENGINE_NAMES[best_single]} is better in {share:.0%} of bootstrap samples of the patients, which is not decisive"
    )
    return "both", f"mean validation AUROC {auroc_text}{remark}"


def _share_above(first: Sequence[HeldOutScores], second: Sequence[HeldOutScores]) -> float:
    """Return the share of bootstrap samples of the patients, equal in every draw, in which the first has a higher mean AUROC."""
    names = {name: number for number, name in enumerate(sorted({name for draw in first for name in draw.people}))}
    counts = np.random.default_rng(0).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=BOOTSTRAP_SAMPLES
    )
    gains = []
    for first_draw, second_draw in zip(first, second, strict=True):
        weights = counts[:, [names[name] for name in first_draw.people]].astype(float)
        gains.append(_weighted_auroc(first_draw, weights) - _weighted_auroc(second_draw, weights))
    is_defined = np.isfinite(gains)
    mean = np.where(is_defined, gains, 0.0).sum(axis=0) / np.maximum(is_defined.sum(axis=0), 1)
    return float((mean > 0)[is_defined.any(axis=0)].mean()) if is_defined.any() else 0.0


def _weighted_auroc(scores: HeldOutScores, weights: np.ndarray) -> np.ndarray:
    """Return (samples,) AUROC with (samples, N) weights of the cases; NaN for samples of one state."""
    abnormal_values, normal_values = scores.value[scores.truth], scores.value[~scores.truth]
    wins = (abnormal_values[:, None] > normal_values).astype(float) + 0.5 * (abnormal_values[:, None] == normal_values)
    abnormal_weights, normal_weights = weights[:, scores.truth], weights[:, ~scores.truth]
    pair_weights = abnormal_weights.sum(axis=1) * normal_weights.sum(axis=1)
    weighted_wins = ((abnormal_weights @ wins) * normal_weights).sum(axis=1)
    result: np.ndarray = np.divide(
        weighted_wins, pair_weights, out=np.full(len(pair_weights), np.nan), where=pair_weights > 0
    )
    return result


def _mean_defined(values: Sequence[float]) -> float:
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else -1.0
