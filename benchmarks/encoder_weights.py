"""Compare rules for the weight of two networks that few validation cases choose (`encoder_choice`), by simulation.

    python benchmarks/encoder_weights.py [--repeats 12]

Two networks tell two classes apart with signals of 0 to 1.5 standard deviations; 30 % of the variance of their errors is common, and
their logits have random scales. Printed is the mean log loss on 4,000 further cases above that of the best weight, if the equal mean
is kept unless another weight lowers the validation loss by so many standard errors (jackknife): 0 takes the lowest loss, `inf` always
keeps the equal mean.
"""

from __future__ import annotations

import argparse

import numpy as np

from m3b.training.diagnosis.encoder_choice import WEIGHTS
from m3b.training.diagnosis.targets import get_target
from m3b.training.slice_encoder import EQUAL_WEIGHT

TARGET = get_target({"task": "diagnosis", "classes": ["a", "b"], "multi_label": False})
SIGNALS = ((0, 0), (0, 0.5), (0, 1), (0.3, 1), (0.5, 0.5), (0.5, 1), (0.7, 1), (1, 1), (1, 1.5))
ERRORS = (0.0, 0.5, 1.0, 2.0, float("inf"))
COMMON_VARIANCE = 0.3
PARTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=12)
    repeats = parser.parse_args().repeats
    print("cases  " + "  ".join(f"{errors:>6g}" for errors in ERRORS))
    for cases in (15, 30, 60):
        draws = [measure_regrets(cases, signals, seed) for signals in SIGNALS for seed in range(repeats)]
        means = np.mean([regrets for regrets in draws if regrets], axis=0)
        print(f"{cases:5}  " + "  ".join(f"{value:6.4f}" for value in means), flush=True)


def measure_regrets(cases: int, signals: tuple[float, float], seed: int) -> list[float]:
    """Return the loss above that of the best weight for each of `ERRORS`; [] without two cases of each class."""
    random = np.random.default_rng(seed)
    scales = random.uniform(0.5, 3, 2)
    (valid, labels), (test, truth) = (draw_mixtures(random, count, signals, scales) for count in (cases, 4000))
    if labels.sum(axis=0).min() < 2:
        return []

    def measure_gain(part: np.ndarray) -> float:
        equal, other = (TARGET.view_loss(valid[weight][part], labels[part]) for weight in (EQUAL_WEIGHT, best))
        return equal - other

    losses = {weight: TARGET.view_loss(mixture, labels) for weight, mixture in valid.items()}
    best = min(WEIGHTS, key=losses.__getitem__)
    parts = min(PARTS, cases)
    gains = np.array([measure_gain(np.arange(cases) % parts != part) for part in range(parts)])
    error = np.sqrt((parts - 1) * gains.var())
    test_losses = {weight: TARGET.view_loss(mixture, truth) for weight, mixture in test.items()}
    gain = losses[EQUAL_WEIGHT] - losses[best]
    chosen = [best if errors < np.inf and gain > errors * error else EQUAL_WEIGHT for errors in ERRORS]
    return [test_losses[weight] - min(test_losses.values()) for weight in chosen]


def draw_mixtures(
    random: np.random.Generator, count: int, signals: tuple[float, float], scales: np.ndarray
) -> tuple[dict[float, np.ndarray], np.ndarray]:
    """Return weight -> (N, 2) logits, and the labels (N, 2)."""
    truth = random.integers(0, 2, count)
    common = np.sqrt(COMMON_VARIANCE) * random.normal(size=count)
    parts = []
    for signal, scale in zip(signals, scales, strict=True):
        score = signal * (2 * truth - 1) + common + np.sqrt(1 - COMMON_VARIANCE) * random.normal(size=count)
        parts.append(scale / 2 * np.stack([-score, score], axis=1))
    return {w: (1 - w) * parts[0] + w * parts[1] for w in WEIGHTS}, np.eye(2)[truth]


if __name__ == "__main__":
    main()
