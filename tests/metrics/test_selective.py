"""Risk-coverage curves: the errors that remain among the most certain cases."""

from __future__ import annotations

import pytest

from m3b.metrics.selective import compute_selective_risks, read_risk


def test_risks_follow_the_order_of_the_uncertainties() -> None:
    risks = compute_selective_risks([0.3, 0.1, 0.2, 0.4], [True, False, False, True])
    assert risks == pytest.approx([0, 0, 1 / 3, 1 / 2])
    assert risks.mean() == pytest.approx((1 / 3 + 1 / 2) / 4)
    assert [read_risk(risks, coverage) for coverage in (0.5, 0.75, 0.8, 1.0)] == pytest.approx([0, 1 / 3, 1 / 2, 1 / 2])


def test_equal_uncertainties_say_nothing_about_the_order() -> None:
    assert compute_selective_risks([0.5] * 4, [True, False, False, False]) == pytest.approx([0.25] * 4)
    assert compute_selective_risks([0.1, 0.5, 0.5], [False, True, False]) == pytest.approx([0, 0.25, 1 / 3])
