"""Times to an event, and survival curves, as arrays; NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST, EVENTS_EACH, LEAST = 12, 8, 3
"""Intervals at most, events that each should have, and intervals at least."""


def facts_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ends of the intervals, at quantiles of the times at which events came, and what there is of both."""
    times = np.array([float(record["time"]) for record in records if record["event"]])
    if not len(times):
        raise SystemExit("the event comes in no training case: nothing can be learnt from these times")
    count = int(np.clip(len(times) // EVENTS_EACH, LEAST, MOST))
    edges = (
        np.unique(np.quantile(times[times > 0], np.arange(1, count + 1) / count)) if (times > 0).any() else np.ones(1)
    )
    return {
        "edges": [float(f"{edge:.6g}") for edge in edges],
        "events": len(times),
        "censored": len(records) - len(times),
    }


def targets(labels: np.ndarray, edges: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) each: intervals that a case came through without the event, and the one in which it came.

    A censored case came through those of which it was followed for half or more. `labels` is (N, 2): time, event.
    """
    ends = np.asarray(edges, dtype=np.float64)
    starts = np.concatenate([[0.0], ends[:-1]])
    time, event = labels[:, :1].astype(np.float64), labels[:, 1:] > 0.5
    inside = event & (time <= ends) & ((time > starts) | (starts == 0))
    through = np.where(event, time > ends, time >= (starts + ends) / 2)
    return through.astype(np.float32), inside.astype(np.float32)


def curves(hazards: np.ndarray) -> np.ndarray:
    """(N, K) chances that the event has not come until the end of each interval, of (N, K) hazards."""
    return np.cumprod(1 - hazards, axis=1)


def risk_of(survival: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """(N,) the share of the time up to the last edge that is lost to the event on average, 0 to 1: one less the mean of (N, K)
    curves, with straight lines between the edges and 1 at the start."""
    ends = np.concatenate([[0.0], np.asarray(edges, dtype=np.float64)])
    values = np.concatenate([np.ones((len(survival), 1)), survival], axis=1)
    return 1 - ((values[:, 1:] + values[:, :-1]) / 2 * np.diff(ends)).sum(axis=1) / ends[-1]


def median_of(survival: np.ndarray, edges: Sequence[float]) -> float | None:
    """The time at which a (K,) curve reaches a half, by a straight line between edges; None where it does not."""
    times, values = [0.0, *edges], [1.0, *map(float, survival)]
    after = next((at for at, value in enumerate(values) if value <= 0.5), 0)
    if not after:
        return None
    share = (values[after - 1] - 0.5) / max(values[after - 1] - values[after], 1e-12)
    return float(times[after - 1] + share * (times[after] - times[after - 1]))
