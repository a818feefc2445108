"""Selective prediction: the errors that remain if a person decides the most uncertain cases.

Risk-coverage curve and its area, AURC: Geifman and El-Yaniv, NeurIPS 2017; Geifman et al., ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def compute_selective_risks(uncertainties: Sequence[float], errors: Sequence[bool]) -> NDArray[np.float64]:
    """Return the share of errors among the 1, 2, ... n most certain cases; its mean is the AURC.

    Cases of equal uncertainty come in random order: each counts with the share of errors among them.
    """
    _, groups = np.unique(np.asarray(uncertainties, np.float64), return_inverse=True)
    share_by_group = np.bincount(groups, np.asarray(errors, np.float64)) / np.bincount(groups)
    expected = share_by_group[np.sort(groups)]
    return np.asarray(expected.cumsum() / np.arange(1, len(expected) + 1))


def read_risk(risks: NDArray[np.float64], coverage: float) -> float:
    """Return the risk if at least this share of the cases is decided."""
    return float(risks[math.ceil(coverage * len(risks) - 1e-9) - 1])
