"""Series of names that a column of patients tears apart."""

from __future__ import annotations

import pytest

from m3b.data.spec.name_series import torn

CLIPS = [
    "convex/Pneu_set1_vid1.avi",
    "convex/Pneu_set1_vid2.avi",
    "convex/Pneu_set2_vid1.avi",
    "convex/Pneu_set2_vid2.avi",
]


@pytest.mark.parametrize(
    ("names", "groups", "said"),
    [
        (CLIPS, ["1", "2", "3", "4"], "2 series of names, such as Pneu_set1_vid1.avi and Pneu_set1_vid2.avi"),
        (CLIPS, ["1", "1", "2", "2"], ""),  # the column agrees with the names
        (CLIPS, ["1", "2", "3", "3"], ""),  # one such series may be a slip of the names
        ([f"a/{n}.png" for n in range(8)], [str(n) for n in range(8)], ""),  # numbered through
        ([f"a/scan2020_{n}.png" for n in range(60)], [str(n) for n in range(60)], ""),  # likewise, behind a date
        (["left.png", "right.png"], ["1", "2"], ""),
        ([], [], ""),
    ],
)
def test_series_that_are_torn_apart_are_said(names: list[str], groups: list[str], said: str) -> None:
    told = torn(names, groups)
    assert told.startswith(said)
    assert bool(told) == bool(said)
