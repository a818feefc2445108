"""Calibration of the average of several networks, from cases that only one of them was not trained on.

The logits z of one network are a noisy measurement of those of the average. Calibration is therefore fitted on the expected logits
of the average, given z (regression calibration; Carroll et al., "Measurement error in nonlinear models", 2006): m + r (z - n), with
m the mean logits of all networks, n and r the mean and the slope of the one. r = 1 - cov(z - average, z) / var(z) is measured on a
few cases that no network was trained on; no labels are needed. If networks differ by independent errors of variance v alone, r is
1 - (1 - 1/K) v / var(z).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

SLOPES = (0.1, 5.0)
"""Least and largest slope that is assumed: a handful of cases does not show others."""
CANDIDATES, DRAWS = 64, 16
"""Logits of the average that are drawn for a case, and of these the ones kept by its label."""
MAX_ROWS = 200_000


class Average:
    """What the average of all networks is expected to say of cases that one network answered.

    Args:
        shared: (networks, M, K) logits of cases that no network was trained on.
        logits: (N, K) of cases, each by a network that was not trained on it.
        networks: (N,) the network of each.
        exclusive: whether only differences between classes count (softmax).

    Attributes:
        expected: (N, K) expected logits of the average.
    """

    def __init__(self, shared: np.ndarray, logits: np.ndarray, networks: np.ndarray, exclusive: bool) -> None:
        self.exclusive = exclusive
        logits, shared = self._centred(logits), self._centred(shared)
        rows = [logits[networks == network] for network in range(len(shared))]
        self.means = np.array([part.mean(axis=0) for part in rows])
        away = shared - shared.mean(axis=1, keepdims=True)
        average = away.mean(axis=0)
        shares = [
            ((one - average) * one).sum(axis=0).mean() / max(len(one) - 1, 1) / max(part.var(axis=0).mean(), 1e-12)
            for one, part in zip(away, rows, strict=True)
        ]
        self.slopes = np.clip(1 - np.array(shares), *SLOPES)
        self.errors = (average - self.slopes[:, None, None] * away).reshape(-1, logits.shape[1])
        self.expected = self.means.mean(axis=0) + self.slopes[networks, None] * (logits - self.means[networks])

    def _centred(self, logits: np.ndarray) -> np.ndarray:
        table = logits.astype(np.float64)
        return table - table.mean(axis=-1, keepdims=True) if self.exclusive else table

    def alone(self, fitted: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return temperature and bias of each network: with them its logits mean what the expected ones mean with `fitted`."""
        temperature, found = np.asarray(fitted["temperature"], float), []
        for slope, means in zip(self.slopes, self.means, strict=True):
            bias = np.asarray(fitted["bias"]) + (self.means.mean(axis=0) - slope * means) / temperature
            found.append({"temperature": np.round(temperature / slope, 4).tolist(), "bias": np.round(bias, 4).tolist()})
        return found

    def figures(self) -> dict[str, Any]:
        """Return what metrics.json says of it."""
        return {"networks": len(self.slopes), "slopes": [round(float(slope), 3) for slope in self.slopes]}

    def draw(self, rows: np.ndarray, truth: np.ndarray, fitted: Mapping[str, Any]) -> np.ndarray:
        """Return (D, R, K): adjusted logits that the average may have for some of the cases.

        They lie around the expected ones as those of the shared cases do. Candidates are weighed by the chance of the case's label,
        and drawn at even quantiles, so that the same input gives the same answer.
        """
        table, rng = self.expected[rows], np.random.default_rng(0)
        count = int(np.clip(MAX_ROWS // max(len(table), 1), 8, CANDIDATES))
        errors = self.errors[rng.integers(0, len(self.errors), (count, len(table)))]
        found = (table + errors) / np.asarray(fitted["temperature"]) + np.asarray(fitted["bias"])
        if self.exclusive:
            top = found.max(axis=2, keepdims=True)
            logs = found - top - np.log(np.exp(found - top).sum(axis=2, keepdims=True))
            logs = (logs * truth).sum(axis=2, keepdims=True)
        else:  # each class by itself
            logs = np.where(np.isnan(truth), 0.0, truth * found - np.logaddexp(0, found))
        weights = np.exp(logs - logs.max(axis=0)).cumsum(axis=0)
        marks = (np.arange(min(DRAWS, count)) + 0.5) / min(DRAWS, count)
        return np.stack(
            [np.take_along_axis(found, (weights < mark * weights[-1]).sum(axis=0)[None], 0)[0] for mark in marks]
        )
