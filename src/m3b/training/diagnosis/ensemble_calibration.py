"""Calibration of the average of several networks, from cases that only one of them was not trained on.

The logits z of one network are a noisy measurement of those of the average. Calibration is therefore fitted on the expected logits
of the average, given z (regression calibration; Carroll et al., "Measurement error in nonlinear models", 2006): m + r (z - n), with
m the mean logits of all networks, n and r the mean and the slope of this one. r = 1 - cov(z - average, z) / var(z) is measured on a
few cases that no network was trained on; no labels are needed. If networks differ by independent errors of variance v alone, r is
1 - (1 - 1/K) v / var(z).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

SLOPE_RANGE = (0.1, 5.0)
"""Minimum and maximum slope: few cases do not show others."""
CANDIDATES, DRAWS = 64, 16
"""Candidate logits of the average for a case, and the number of them drawn by its label."""
MAX_ROWS = 200_000


class EnsembleAverage:
    """Expected logits of the average of all networks for cases that one network predicted.

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
        self.means = np.array([network_logits.mean(axis=0) for network_logits in rows])
        offsets = shared - shared.mean(axis=1, keepdims=True)
        average = offsets.mean(axis=0)
        shares = [
            ((offset - average) * offset).sum(axis=0).mean()
            / max(len(offset) - 1, 1)
            / max(network_logits.var(axis=0).mean(), 1e-12)
            for offset, network_logits in zip(offsets, rows, strict=True)
        ]
        self.slopes = np.clip(1 - np.array(shares), *SLOPE_RANGE)
        self.errors = (average - self.slopes[:, None, None] * offsets).reshape(-1, logits.shape[1])
        self.expected = self.means.mean(axis=0) + self.slopes[networks, None] * (logits - self.means[networks])

    def _centred(self, logits: np.ndarray) -> np.ndarray:
        table = logits.astype(np.float64)
        return table - table.mean(axis=-1, keepdims=True) if self.exclusive else table

    def calibrate_networks(self, fitted: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return temperature and bias of each network: with them its logits mean what the expected ones mean with `fitted`."""
        temperature, candidates = np.asarray(fitted["temperature"], float), []
        for slope, means in zip(self.slopes, self.means, strict=True):
            bias = np.asarray(fitted["bias"]) + (self.means.mean(axis=0) - slope * means) / temperature
            candidates.append(
                {"temperature": np.round(temperature / slope, 4).tolist(), "bias": np.round(bias, 4).tolist()}
            )
        return candidates

    def figures(self) -> dict[str, Any]:
        """Return the entries of metrics.json."""
        return {"networks": len(self.slopes), "slopes": [round(float(slope), 3) for slope in self.slopes]}

    def draw_logits(self, rows: np.ndarray, truth: np.ndarray, fitted: Mapping[str, Any]) -> np.ndarray:
        """Return (D, R, K): adjusted logits that the average may have for some of the cases.

        They are distributed around the expected ones as those of the shared cases are. Candidates are weighted by the likelihood of
        the case's label and drawn at even quantiles, so that the result is deterministic.
        """
        table, rng = self.expected[rows], np.random.default_rng(0)
        count = int(np.clip(MAX_ROWS // max(len(table), 1), 8, CANDIDATES))
        errors = self.errors[rng.integers(0, len(self.errors), (count, len(table)))]
        candidates = (table + errors) / np.asarray(fitted["temperature"]) + np.asarray(fitted["bias"])
        if self.exclusive:
            maximum = candidates.max(axis=2, keepdims=True)
            logs = candidates - maximum - np.log(np.exp(candidates - maximum).sum(axis=2, keepdims=True))
            logs = (logs * truth).sum(axis=2, keepdims=True)
        else:  # each class separately
            logs = np.where(np.isnan(truth), 0.0, truth * candidates - np.logaddexp(0, candidates))
        weights = np.exp(logs - logs.max(axis=0)).cumsum(axis=0)
        quantiles = (np.arange(min(DRAWS, count)) + 0.5) / min(DRAWS, count)
        return np.stack(
            [
                np.take_along_axis(candidates, (weights < quantile * weights[-1]).sum(axis=0)[None], 0)[0]
                for quantile in quantiles
            ]
        )
