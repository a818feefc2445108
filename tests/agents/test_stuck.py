"""Noticing an agent that goes round in circles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.agent_state import MAX_MALFORMED_CALLS, MAX_SAME_RESULTS, RepetitionDetector
from m3b.messages import ToolCall


def look(path: str, number: int = 0) -> ToolCall:
    return ToolCall(f"call_{number}", "list_files", {"path": path})


def test_the_fourth_time_is_a_circle_whatever_lies_between() -> None:
    stuck = RepetitionDetector()
    for number in range(MAX_SAME_RESULTS - 1):
        assert stuck.observe(look("a", number), "x", False) == ""
        assert stuck.observe(look(f"other{number}"), "x", False) == ""
    notice = stuck.observe(look("a", 9), "x", False)
    assert "`list_files` was called 4 times" in notice
    assert '"a"' in notice
    assert stuck.observe(look("a"), "x", False) == "", "counting starts anew"


def test_another_result_is_another_thing() -> None:
    stuck = RepetitionDetector()
    assert not any(stuck.observe(look("a"), f"{number} files", False) for number in range(20))


def test_the_order_of_arguments_does_not_hide_a_circle() -> None:
    stuck = RepetitionDetector()
    orders = [{"path": "a", "depth": 1}, {"depth": 1, "path": "a"}] * 2
    notices = [stuck.observe(ToolCall("1", "list_files", arguments), "x", False) for arguments in orders]
    assert [bool(text) for text in notices] == [False, False, False, True]


def test_the_same_failing_script_is_a_circle_though_its_time_and_log_differ() -> None:
    stuck = RepetitionDetector()
    call = ToolCall("1", "run_script", {"command": "python train.py"})
    notice = ""
    for number in range(MAX_SAME_RESULTS):
        result = f"Exit code 1 after {0.3 + number / 10:.1f} s\n--- output (Logout/jobs/{number + 1:03d}.log) ---\nboom"
        notice = stuck.observe(call, result, False)
    assert "run_script" in notice


def test_a_script_that_prints_other_figures_is_no_circle() -> None:
    stuck = RepetitionDetector()
    call = ToolCall("1", "run_script", {"command": "python train.py"})
    results = [f"Exit code 0 after 3.1 s\n--- output ---\nauroc 0.8{number}" for number in range(8)]
    assert not any(stuck.observe(call, result, False) for result in results)


def test_malformed_calls_count_only_when_they_follow_each_other() -> None:
    stuck = RepetitionDetector()
    for number in range(10):
        assert stuck.observe(look("a", number), f"bad {number}", True) == ""
        assert stuck.observe(look("b", number), f"bad {number}", True) == ""
        assert stuck.observe(look("c", number), f"good {number}", False) == ""
    notices = [stuck.observe(look("d"), f"worse {number}", True) for number in range(MAX_MALFORMED_CALLS)]
    assert [bool(text) for text in notices] == [False, False, True]
    assert "could not be understood" in notices[-1]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), max_size=60))
def test_it_speaks_exactly_at_each_fourth_repeat(steps: list[tuple[str, str, bool]]) -> None:
    stuck = RepetitionDetector()
    counts: dict[tuple[str, str], int] = {}
    bad = 0
    for path, result, malformed in steps:
        notice = stuck.observe(look(path), result, malformed)
        bad = bad + 1 if malformed else 0
        if bad == MAX_MALFORMED_CALLS:
            bad = 0
            assert "understood" in notice
            continue
        counts[path, result] = counts.get((path, result), 0) + 1
        assert bool(notice) == (counts[path, result] % MAX_SAME_RESULTS == 0)
