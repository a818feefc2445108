"""Cases that stay together, and the groups that are drawn for testing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.manifest.split import SplitUnit, draw_test_groups, group_cases

KEYS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c", "d"]), st.sampled_from(["", "x", "y", "z"])), max_size=12)


@given(KEYS)
def test_cases_that_share_a_key_are_a_group(keys: list[tuple[str, str]]) -> None:
    groups = list(range(len(keys)))
    for _ in keys:
        for place, pair in enumerate(keys):
            for other_place, other_pair in enumerate(keys):
                if any(key and key == other_key for key, other_key in zip(pair, other_pair, strict=True)):
                    groups[place] = groups[other_place] = min(groups[place], groups[other_place])
    assert list(group_cases(iter(keys))) == groups


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", ""])), max_size=80), st.integers(0, 5))
def test_whole_groups_are_drawn_and_no_class_is_lost(cases: list[tuple[int, str]], seed: int) -> None:
    units = [SplitUnit(group, (label,) if label else ()) for group, label in cases]
    tested = draw_test_groups(iter(units), 0.2, seed)
    groups_of = {label: {group for group, case_label in cases if case_label == label} for _, label in cases}
    assert tested <= {group for group, _ in cases}
    assert tested == draw_test_groups(units, 0.2, seed)
    rarest = min(groups_of, key=lambda label: (len(groups_of[label]), label or "(none)"), default=None)
    if rarest is not None and len(groups_of[rarest]) > 1:
        assert 0 < len(tested & groups_of[rarest]) < len(groups_of[rarest])
    assert Counter(unit.group in tested for unit in units)[True] <= 0.5 * len(units) + 5
