"""Structures of a row, out of votes for their middles; and the likeliest labels of structures that follow each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import ndimage, signal

RARE = 1e-3
"""Chance of a sequence that no training mask shows: one left out, one seen in two pieces."""
USUAL = 0.5
"""How far a structure's median number commonly is from its own, in numbers: the scale of a Cauchy distribution. Its heavy
tails keep one structure whose number is plainly wrong from shifting the labels of all the others."""
LEAST = 0.1
"""A structure has this part of the votes of the median one, or it is none."""
SHALLOW = 0.1
"""Between two structures the votes go down by this part of what is usual in the row."""


def structures(votes: np.ndarray, closest: float) -> list[tuple[float, float]]:
    """Intervals of votes, in order, each with a peak: cut at the lowest place between two.

    Args:
        closest: pitches between the two neighbours that lie closest.
    """
    if not len(votes):
        return []
    fine, low = 20, float(votes.min()) - 1
    bins = int((float(votes.max()) + 1 - low) * fine) + 1
    counts = np.bincount(((votes - low) * fine).astype(int), minlength=bins).astype(float)
    smooth = ndimage.gaussian_filter1d(counts, 0.15 * closest * fine)
    usual = float(np.median(smooth[smooth > 0.05 * smooth.max()]))
    peaks, _ = signal.find_peaks(smooth, distance=0.5 * closest * fine, prominence=SHALLOW * usual)
    cuts = [0, *(a + int(np.argmin(smooth[a:b])) for a, b in pairwise(peaks)), bins]
    mass = [counts[a:b].sum() for a, b in pairwise(cuts)]
    enough = LEAST * float(np.median(mass))
    return [(low + a / fine, low + b / fine) for (a, b), own in zip(pairwise(cuts), mass, strict=True) if own >= enough]


def sequence(seen: Sequence[float], chain: Mapping[str, Any]) -> list[int]:
    """The likeliest places in the row of structures with these median numbers, which follow each other along its axis."""
    if not seen:
        return []
    numbers, follows = np.array(chain["numbers"], float), transitions(chain)
    cost = np.log1p(((np.array(seen)[:, None] - numbers) / USUAL) ** 2)
    total, came = cost[0], []
    for row in cost[1:]:
        ways = total[:, None] + follows
        came.append(ways.argmin(0))
        total = ways.min(0) + row
    path = [int(total.argmin())]
    for step in reversed(came):
        path.append(int(step[path[-1]]))
    return path[::-1]


def transitions(chain: Mapping[str, Any]) -> np.ndarray:
    """(n, n) cost that the second follows the first: of counts in training masks; never backwards."""
    size = len(chain["classes"])
    counts = np.zeros((size, size))
    for first, second, often in chain["follows"]:
        counts[int(first), int(second)] = float(often)
    chance = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    apart = np.arange(size)[None] - np.arange(size)[:, None]
    chance = np.maximum(chance, np.where(apart >= 0, RARE ** np.maximum(1, apart), 0))
    return np.where(apart < 0, 1e6, -np.log(np.maximum(chance, 1e-300)))
