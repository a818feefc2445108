"""Times to an event, and survival curves, as arrays; NumPy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAX_INTERVALS, EVENTS_PER_INTERVAL, MIN_INTERVALS = 12, 8, 3
"""Maximum intervals, desired events of each, minimum intervals."""


def choose_intervals(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ends of the intervals, at quantiles of the event times, and the numbers of events and censored cases."""
    times = np.array([float(record["time"]) for record in records if record["event"]])
    if not len(times):
        raise SystemExit("no training case has the event: survival cannot be learnt from these times")
    count = int(np.clip(len(times) // EVENTS_PER_INTERVAL, MIN_INTERVALS, MAX_INTERVALS))
    edges = (
        np.unique(np.quantile(times[times > 0], np.arange(1, count + 1) / count)) if (times > 0).any() else np.ones(1)
    )
    return {
        "edges": [float(f"{edge:.6g}") for edge in edges],
        "events": len(times),
        "censored": len(records) - len(times),
    }


def encode_intervals(labels: np.ndarray, edges: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, K) intervals that a case survived, and (N, K) the one of its event.

    A censored case survived the intervals of which it was followed for half or more. `labels` is (N, 2): time, event.
    """
    interval_ends = np.asarray(edges, dtype=np.float64)
    starts = np.concatenate([[0.0], interval_ends[:-1]])
    time, event = labels[:, :1].astype(np.float64), labels[:, 1:] > 0.5
    has_event = event & (time <= interval_ends) & ((time > starts) | (starts == 0))
    is_survived = np.where(event, time > interval_ends, time >= (starts + interval_ends) / 2)
    return is_survived.astype(np.float32), has_event.astype(np.float32)


def survival_curves(hazards: np.ndarray) -> np.ndarray:
    """Return (N, K) probabilities of no event until the end of each interval, from (N, K) hazards."""
    return np.cumprod(1 - hazards, axis=1)


def survival_risk(survival: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """Return (N,) the mean share of the time up to the last edge that is lost to the event, 0 to 1: one minus the mean of (N, K)
    curves, linear between the edges and 1 at the start."""
    interval_ends = np.concatenate([[0.0], np.asarray(edges, dtype=np.float64)])
    values = np.concatenate([np.ones((len(survival), 1)), survival], axis=1)
    area = ((values[:, 1:] + values[:, :-1]) / 2 * np.diff(interval_ends)).sum(axis=1)
    return np.asarray(1 - area / interval_ends[-1])


def median_time(survival: np.ndarray, edges: Sequence[float]) -> float | None:
    """Return the time at which a (K,) curve reaches a half, linear between edges; None if it does not."""
    times, values = [0.0, *edges], [1.0, *map(float, survival)]
    index = next((at for at, value in enumerate(values) if value <= 0.5), 0)
    if not index:
        return None
    share = (values[index - 1] - 0.5) / max(values[index - 1] - values[index], 1e-12)
    return float(times[index - 1] + share * (times[index] - times[index - 1]))
