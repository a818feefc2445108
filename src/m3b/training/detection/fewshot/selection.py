"""Which of the few-shot detector, the ordinary network and both together is kept, by what each says of cases that it was not taught
with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from m3b.training.ranking_metrics import auroc

DECIDED = 0.95
"""Share of resamplings of the patients in which another engine has to be better to take the place of both together."""
DRAWS = 1000
NAMES = {"fewshot": "few-shot", "image": "the ordinary network", "both": "few-shot and ordinary networks together"}


@dataclass
class Held:
    """What a detector says of cases that it was not taught with.

    Args:
        people: (N,) whose each is.
        truth: (N,) whether it is abnormal.
        value: (N,) higher is more abnormal: deviations above normal, or logits.
    """

    people: list[str]
    truth: np.ndarray
    value: np.ndarray


def preferred(held: Mapping[str, Sequence[Held]]) -> tuple[str, str]:
    """(engine, why), of engines with what they say in every draw of examples.

    A few examples tell engines apart badly: with four a state the AUROC of eight cases has a standard error of about 0.2. So both
    together, an average of networks that err on different images, stays unless patients drawn anew nearly always say that one alone
    is better.
    """
    names, means = list(held), {name: _mean([auroc(one.truth, one.value) for one in held[name]]) for name in held}
    told = ", ".join(f"{NAMES[name].removeprefix('the ')} {means[name]:.3f}" for name in names)
    other = max((name for name in names if name != "both"), key=lambda name: means[name])
    if "both" not in held:
        return other, f"mean validation AUROC {told}"
    share = _share_above(held[other], held["both"]) if means[other] > means["both"] else 0.0
    if share >= DECIDED:
        return other, f"mean validation AUROC {told}; better in {share:.0%} of resamplings of the patients"
    doubt = (
        ""
        if not share
        else f"; {NAMES[other]} is better in {share:.0%} of resamplings of the patients, which decides nothing"
    )
    return "both", f"mean validation AUROC {told}{doubt}"


def _share_above(one: Sequence[Held], other: Sequence[Held]) -> float:
    """Share of resamplings of the patients, the same ones in every draw, in which the mean AUROC of the first is higher."""
    names = {name: number for number, name in enumerate(sorted({name for held in one for name in held.people}))}
    counts = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS)
    gains = []
    for mine, theirs in zip(one, other, strict=True):
        weights = counts[:, [names[name] for name in mine.people]].astype(float)
        gains.append(_areas(mine, weights) - _areas(theirs, weights))
    known = np.isfinite(gains)
    mean = np.where(known, gains, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return float((mean > 0)[known.any(axis=0)].mean()) if known.any() else 0.0


def _areas(held: Held, weights: np.ndarray) -> np.ndarray:
    """(draws,) AUROC with (draws, N) weights of the cases; NaN where all that were drawn are of one state."""
    ill, well = held.value[held.truth], held.value[~held.truth]
    above = (ill[:, None] > well).astype(float) + 0.5 * (ill[:, None] == well)
    of_ill, of_well = weights[:, held.truth], weights[:, ~held.truth]
    both = of_ill.sum(axis=1) * of_well.sum(axis=1)
    found = ((of_ill @ above) * of_well).sum(axis=1)
    result: np.ndarray = np.divide(found, both, out=np.full(len(both), np.nan), where=both > 0)
    return result


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else -1.0
