"""Quotients and means that say NaN where they are not defined."""

from __future__ import annotations

import numpy as np

from .cases import Floats


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """`above / below`, NaN where `denominator` is zero."""
    result = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def mean_defined(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN; NaN where nothing is."""
    is_defined = ~np.isnan(values)
    total = np.where(is_defined, values, 0.0).sum(axis=-1)
    return divide(total, is_defined.sum(axis=-1).astype(np.float64))
