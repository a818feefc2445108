"""The agent loop against a model that behaves, and against one that misbehaves in every way it can."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from m3b.agents.agent_state import AgentState
from m3b.agents.budget import Budget
from m3b.agents.check_result import CheckResult, accept, reject
from m3b.agents.conversation import DROPPED_RESULT_NOTE, Conversation
from m3b.agents.loop import WRAP_UP_PROMPT
from m3b.errors import Authentication, BudgetExceeded, ContextOverflow, NoDatasetFound, RunCancelled, RunFailed
from m3b.llm import ModelFacts
from m3b.llm.conversation import validate_conversation
from m3b.messages import Message, Reply, Usage
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import (
    call,
    combine_calls,
    llm_error,
    malformed_call,
    nonsense_reply,
    overflow_error,
    refusal_reply,
    say,
    transient_error,
    truncated_reply,
    unknown_tool,
)

LOOK = call("list_files", path=".")


def until(word: str) -> Callable[[str], CheckResult]:
    """A check that accepts a closing text with a word in it."""
    return lambda text: accept(text) if word in text else reject(f"The word {word} is missing.")


def fails(times: int) -> Callable[[str], CheckResult]:
    failures_left = [times]

    def check(text: str) -> CheckResult:
        failures_left[0] -= 1
        return reject("Not yet.") if failures_left[0] >= 0 else accept(text)

    return check


# --- the straight way --------------------------------------------------------------------------------------------


def test_a_model_that_works_and_says_done(make_stage: Any) -> None:
    stage = make_stage(LOOK, combine_calls(call("read_files", paths=["notes.txt"]), LOOK), say("done"))
    assert stage.run().artifact == "done"
    assert "a line" in stage.results()[1]
    assert (stage.agent.usage.actions, stage.agent.usage.iterations) == (3, 0)
    assert stage.agent.budget.used_actions == 3
    assert [event.kind for event in stage.events] == [
        "prompt", "reply", "call", "result", "reply", "call", "result", "call", "result", "reply", "check",
    ]  # fmt: skip
    assert stage.restored().messages == stage.agent.conversation.messages


def test_tokens_are_counted_for_the_role_and_for_the_run(make_stage: Any) -> None:
    usage = Usage(100, 40, 7, 1, 0.25)
    stage = make_stage(Reply(calls=LOOK.calls, usage=usage), Reply("done", usage=usage))
    stage.run()
    assert stage.agent.budget.usage == usage + usage
    assert (stage.agent.usage.input_tokens, stage.agent.usage.output_tokens) == (200, 14)


def test_the_prefix_never_changes(make_stage: Any) -> None:
    stage = make_stage(LOOK, say("no"), LOOK, say("ok"))
    stage.run(until("ok"))
    requests = [list(messages) for messages, _ in stage.llm.requests]
    for earlier, later in pairwise(requests):
        assert later[: len(earlier)] == earlier
    assert all(tools == stage.llm.requests[0][1] for _, tools in stage.llm.requests)


def test_a_role_has_its_own_tools_only(make_stage: Any) -> None:
    stage = make_stage(call("write_files", files=[]), say("done"), allowed=("list_files", "read_files"))
    stage.run()
    assert [spec.name for spec in stage.llm.requests[0][1]] == ["list_files", "read_files"]
    assert "There is no tool 'write_files' here" in stage.results()[0]


# --- misbehaviour ------------------------------------------------------------------------------------------------


def test_nonsense_is_a_hand_over_that_the_check_rejects(make_stage: Any) -> None:
    stage = make_stage(nonsense_reply(), say("ok"))
    stage.run(until("ok"))
    assert "The check does not accept this yet:\n- The word ok is missing." in stage.sent_messages()[0]
    assert stage.agent.usage.iterations == 1


def test_an_unknown_tool_is_answered_with_those_that_there_are(make_stage: Any) -> None:
    stage = make_stage(unknown_tool("read_file"), say("done"))
    stage.run()
    assert "There is no tool 'read_file' here. Did you mean read_files?" in stage.results()[0]
    assert stage.of("result")[0]["is_error"]


def test_broken_json_is_answered_and_never_run(make_stage: Any) -> None:
    stage = make_stage(malformed_call("write_files"), say("done"))
    stage.run()
    assert "not a JSON object" in stage.results()[0]
    assert "write_files(files" in stage.results()[0]
    assert sorted(file.name for file in stage.work.iterdir()) == ["notes.txt"]


def test_wrong_arguments_are_answered_with_the_right_ones(make_stage: Any) -> None:
    stage = make_stage(call("list_files", folder="."), say("done"))
    stage.run()
    assert "folder" in stage.results()[0]
    assert "Use: list_files(path" in stage.results()[0]


@pytest.mark.parametrize(
    "bad",
    [
        lambda number: unknown_tool(f"tool{number}"),
        lambda number: malformed_call("list_files", f'{{"path": "{number}'),
        lambda number: call("list_files", **{f"x{number}": 1}),
    ],
)
def test_calls_that_nobody_can_understand_end_the_role(make_stage: Any, bad: Callable[[int], Reply]) -> None:
    """Three running bring one word of warning, three more the end; different each time, so that nothing repeats."""
    stage = make_stage(*map(bad, range(6)))
    with pytest.raises(RunFailed) as ended:
        stage.run()
    assert ended.value.code == "going_in_circles"
    assert len(stage.sent_messages()) == 1
    assert stage.llm.remaining_steps == 0


def test_an_empty_reply_is_asked_again(make_stage: Any) -> None:
    stage = make_stage(say(""), say(" \n"), say("done"))
    stage.run()
    assert all("was empty" in text for text in stage.sent_messages())
    validate_conversation(stage.agent.conversation.messages)
    assert Message("assistant", "(empty)") in stage.agent.conversation.messages
    assert stage.restored().messages == stage.agent.conversation.messages


def test_three_empty_replies_end_the_role(make_stage: Any) -> None:
    with pytest.raises(RunFailed) as ended:
        make_stage(say(""), repeat=True).run()
    assert ended.value.code == "unusable_replies"


def test_a_call_between_empty_replies_starts_the_count_anew(make_stage: Any) -> None:
    stage = make_stage(say(""), say(""), LOOK, say(""), say(""), say("done"))
    assert stage.run().is_accepted


def test_a_refusal_ends_the_role_with_advice(make_stage: Any) -> None:
    with pytest.raises(RunFailed) as ended:
        make_stage(refusal_reply(), repeat=True).run()
    assert ended.value.code == "refused"


def test_a_refusal_that_is_taken_back(make_stage: Any) -> None:
    assert make_stage(refusal_reply(), say("done")).run().artifact == "done"


def test_a_reply_that_was_cut_is_no_hand_over(make_stage: Any) -> None:
    stage = make_stage(truncated_reply(), say("done"))
    assert stage.run().artifact == "done"
    assert "cut off at its length limit" in stage.sent_messages()[0]


def test_the_calls_of_a_reply_that_was_cut_are_not_run(make_stage: Any) -> None:
    files = [{"path": "train.py", "text": "import to"}]
    half = Reply("", call("write_files", files=files).calls, stop="length")
    stage = make_stage(half, say("done"))
    stage.run()
    assert not (stage.work / "train.py").exists()
    assert stage.agent.budget.used_actions == 0
    validate_conversation(stage.agent.conversation.messages)


def test_a_model_that_never_finishes_runs_out_of_actions(make_stage: Any) -> None:
    number = [0]

    def on(messages: Any, tools: Any) -> Reply:
        number[0] += 1
        return call("list_files", path=f"folder{number[0]}")

    stage = make_stage(on, repeat=True, budget=Budget(max_actions=30))
    with pytest.raises(BudgetExceeded) as ended:
        stage.run()
    assert ended.value.code == "actions"
    assert stage.agent.usage.actions == 30
    assert number[0] == 32, "30 that ran, one that did not, and the last turn"


def test_saying_done_falsely_uses_the_rounds_up(make_stage: Any) -> None:
    stage = make_stage(say("done"), repeat=True, budget=Budget(max_iterations=5))
    with pytest.raises(RunFailed) as ended:
        stage.run(fails(99))
    assert ended.value.code == "rejected"
    assert "Not yet" in str(ended.value), "what the check found"
    assert len(stage.of("check")) == 6
    assert stage.agent.usage.iterations == 5


def test_a_rejection_may_name_how_the_run_ends(make_stage: Any) -> None:
    with pytest.raises(NoDatasetFound) as ended:
        make_stage(say("done")).run(lambda text: reject("There is no data.", end_error=NoDatasetFound, is_fatal=True))
    assert ended.value.code == "rejected"
    stage = make_stage(say("done"), repeat=True, budget=Budget(max_iterations=2))
    with pytest.raises(NoDatasetFound) as ended:
        stage.run(lambda text: reject("There is no data.", end_error=NoDatasetFound))
    assert ended.value.code == "rejected"


# --- the budget --------------------------------------------------------------------------------------------------


def test_parallel_calls_cannot_overshoot(make_stage: Any) -> None:
    parallel_calls = combine_calls(*(call("list_files", path=f"p{number}") for number in range(5)))
    stage = make_stage(parallel_calls, say("Nothing is trained yet."), budget=Budget(max_actions=3))
    with pytest.raises(BudgetExceeded, match=r"All 3 actions are spent\. Raise max_actions\. Nothing is trained yet\."):
        stage.run()
    assert stage.agent.usage.actions == stage.agent.budget.used_actions == 3
    assert len(stage.of("call")) == 3
    assert [result.startswith("Not run") for result in stage.results()] == [False] * 3 + [True] * 2
    assert stage.sent_messages() == [WRAP_UP_PROMPT]
    assert stage.llm.remaining_steps == 0, "one last turn, and no more"
    validate_conversation(stage.restored().messages)


def test_the_model_is_told_when_few_actions_are_left(make_stage: Any) -> None:
    looks = [call("list_files", path=f"p{number}") for number in range(5)]
    stage = make_stage(looks[0], combine_calls(*looks[1:3]), *looks[3:], say("done"), budget=Budget(max_actions=5 + 3))
    assert stage.run().is_accepted
    notices = [re.findall(r"\[.*(?:left|is left).*\]$", result) for result in stage.results()]
    assert notices[:2] == [[], []]
    assert notices[2:] == [[f"[{n} actions are left in this run.]"] for n in (5, 4, 3)]
    validate_conversation(stage.restored().messages)


def test_the_last_action_may_be_spent(make_stage: Any) -> None:
    stage = make_stage(LOOK, say("done"), budget=Budget(max_actions=1))
    assert stage.run().is_accepted
    assert stage.results()[0].endswith("[No action is left: hand over.]")


def test_calls_of_the_last_turn_are_not_run(make_stage: Any) -> None:
    files = [{"path": "late.txt", "text": "x"}]
    stage = make_stage(combine_calls(LOOK, LOOK), call("write_files", files=files), budget=Budget(max_actions=1))
    with pytest.raises(BudgetExceeded) as ended:
        stage.run()
    assert ended.value.code == "actions"
    assert not (stage.work / "late.txt").exists()
    validate_conversation(stage.restored().messages)


@pytest.mark.parametrize("trouble", [overflow_error(), llm_error(Authentication)])
def test_trouble_in_the_last_turn_hides_nothing(make_stage: Any, trouble: Exception) -> None:
    stage = make_stage(combine_calls(LOOK, LOOK), trouble, budget=Budget(max_actions=1))
    with pytest.raises(BudgetExceeded) as ended:
        stage.run()
    assert ended.value.code == "actions"


def test_tokens_are_looked_at_before_each_request(make_stage: Any) -> None:
    stage = make_stage(
        Reply(calls=LOOK.calls, usage=Usage(90_000, 0, 20_000)), say("done"), budget=Budget(max_tokens=100_000)
    )
    with pytest.raises(BudgetExceeded) as ended:
        stage.run()
    assert ended.value.code == "tokens"
    assert stage.llm.remaining_steps == 1
    assert len(stage.results()) == 1, "what was asked for is still done"


# --- scripts and jobs --------------------------------------------------------------------------------------------


def run_script(**arguments: Any) -> Reply:
    return call("run_script", **arguments)


def test_waiting_for_a_job_is_free_and_polling_is_not(make_stage: Any) -> None:
    stage = make_stage(
        run_script(command="sleep 2.5; echo ready", wait_s=0),
        run_script(job=1, wait_s=0),
        run_script(job=1, wait_s="1"),
        run_script(job=1, wait_s=20),
        say("done"),
    )
    stage.run()
    assert [data["cost"] for data in stage.of("call")] == [1, 1, 1, 0]
    assert stage.agent.budget.used_actions == 3
    assert "ready" in stage.results()[-1]


def test_a_job_that_has_ended_or_never_was_is_not_waited_for(make_stage: Any) -> None:
    """Otherwise a model that asks for job after job would go on for ever at no cost."""
    stage = make_stage(run_script(command="true"), run_script(job=1), run_script(job=77), say("done"))
    stage.run()
    assert [data["cost"] for data in stage.of("call")] == [1, 1, 1]


def test_a_long_silent_job_is_no_circle(make_stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("m3b.agents.loop.MIN_FREE_WAIT_S", 0.05)
    stage = make_stage(run_script(command="sleep 20", wait_s=0), *[run_script(job=1, wait_s=1)] * 4, say("done"))
    stage.run()
    assert stage.agent.budget.used_actions == 1
    assert stage.sent_messages() == []


def test_a_job_that_starts_in_the_same_reply_is_counted_as_it_was_reserved(make_stage: Any) -> None:
    stage = make_stage(
        combine_calls(run_script(command="sleep 1", wait_s=0), run_script(job=1, wait_s=20)), say("done")
    )
    stage.run()
    assert stage.agent.budget.used_actions == stage.agent.usage.actions == 2
    assert sum(data["cost"] for data in stage.of("call")) == 2


def test_a_script_after_a_failed_one_is_a_round_of_mending(make_stage: Any) -> None:
    stage = make_stage(
        run_script(command="exit 3"),
        run_script(command="exit 4"),
        run_script(command="true"),
        run_script(command="true"),
        say("done"),
    )
    stage.run()
    assert stage.agent.usage.iterations == 2
    assert [call["iteration"] for call in stage.of("call")] == [0, 1, 2, 0]


def test_rounds_of_mending_end(make_stage: Any) -> None:
    number = [0]

    def on(messages: Any, tools: Any) -> Reply:
        number[0] += 1
        return run_script(command=f"exit {number[0]}")

    stage = make_stage(on, repeat=True, budget=Budget(max_iterations=2))
    with pytest.raises(RunFailed) as ended:
        stage.run()
    assert ended.value.code == "script_failed"
    assert len(stage.of("result")) == 3


FULL_DISK = "echo 'OSError: [Errno 28] No space left on device' >&2; exit"


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_tries_on_a_full_disk_are_not_counted_after_a_resume(make_stage: Any, is_handed_over: bool) -> None:
    """They end one process as others do, and leave the next one all its debug iterations."""
    scripts = [run_script(command=f"{FULL_DISK} {code}") for code in (1, 2, 3)] + [run_script(command="true")]
    steps = [scripts[0], *[say("done")] * 3] if is_handed_over else scripts
    stage = make_stage(*steps, budget=Budget(max_iterations=2))
    with pytest.raises(RunFailed) as ended:
        stage.run(fails(99))
    assert ended.value.code == ("rejected" if is_handed_over else "script_failed")
    state = AgentState.from_events(stage.events)
    assert (state.iterations, state.script_failed, state.disk_was_full) == (0, True, True)
    steps = [run_script(command="exit 4"), run_script(command="true"), say("done")]
    conversation = Conversation.from_events(stage.events, keep_open_calls=True)
    next_stage = make_stage(*steps, budget=Budget(max_iterations=2), conversation=conversation)
    next_stage.agent.resume(state)
    next_stage.run(fails(int(is_handed_over)))
    assert next_stage.agent.usage.iterations == 1


def test_without_debugging_a_failed_script_is_the_last_one(make_stage: Any) -> None:
    steps = [run_script(command="exit 3"), run_script(command="touch second")]
    stage = make_stage(*steps, budget=Budget(max_iterations=0))
    with pytest.raises(RunFailed) as ended:
        stage.run()
    assert ended.value.code == "script_failed"
    assert not (stage.work / "second").exists()


def test_without_debugging_a_rejected_hand_over_is_the_end(make_stage: Any) -> None:
    stage = make_stage(say("done"), say("done"), budget=Budget(max_iterations=0))
    with pytest.raises(RunFailed) as ended:
        stage.run(fails(1))
    assert ended.value.code == "rejected"
    assert stage.llm.remaining_steps == 1


# --- circles -----------------------------------------------------------------------------------------------------


def test_a_circle_is_named_once_then_ends_the_role(make_stage: Any) -> None:
    stage = make_stage(LOOK, repeat=True)
    with pytest.raises(RunFailed) as ended:
        stage.run()
    assert ended.value.code == "going_in_circles"
    assert stage.agent.usage.actions == 8
    assert len(stage.sent_messages()) == 1
    assert "Do something else" in stage.sent_messages()[0]


def test_the_same_failing_script_is_a_circle(make_stage: Any) -> None:
    stage = make_stage(run_script(command="echo boom; exit 1"), repeat=True, budget=Budget(max_iterations=50))
    with pytest.raises(RunFailed) as ended:
        stage.run()
    assert ended.value.code == "going_in_circles"
    assert stage.agent.usage.actions == 8


def test_a_warning_may_be_heeded(make_stage: Any) -> None:
    assert make_stage(*[LOOK] * 4, say("done")).run().is_accepted


# --- reflection --------------------------------------------------------------------------------------------------


def accept_with_note(text: str) -> CheckResult:
    return accept(text, "The test split is small.")


def test_reflection_comes_once_and_with_the_findings(make_stage: Any) -> None:
    stage = make_stage(say("done"), say("still done"), reflection="Would you change anything?")
    assert stage.run(accept_with_note).artifact == "still done"
    (prompt,) = stage.sent_messages()
    noted_first = (
        "Would you change anything?\n\nThe check accepts your work, and noted:\n- The test split is small.\n\n"
    )
    assert prompt.startswith(f"{noted_first}Left in this run, for all roles together: ")
    assert stage.agent.usage.iterations == 0


def test_no_reflection_without_findings(make_stage: Any) -> None:
    stage = make_stage(say("done"), reflection="Would you change anything?")
    stage.run()
    assert stage.sent_messages() == []


def test_no_reflection_when_it_is_off(make_stage: Any) -> None:
    stage = make_stage(say("done"))
    assert stage.run(accept_with_note).warnings
    assert stage.sent_messages() == []


def test_what_reflection_breaks_goes_back(make_stage: Any) -> None:
    verdicts = [accept_with_note("a"), reject("Now it is broken."), accept_with_note("c")]
    stage = make_stage(say("a"), say("b"), say("c"), reflection="Sure?")
    assert stage.run(lambda text: verdicts.pop(0)).artifact == "c"
    assert [text.split("\n")[0] for text in stage.sent_messages()] == ["Sure?", "The check does not accept this yet:"]


# --- the world ---------------------------------------------------------------------------------------------------


def test_waits_for_the_provider_cost_no_action(make_stage: Any) -> None:
    stage = make_stage(transient_error(), transient_error(3.0), LOOK, transient_error(), say("done"))
    stage.run()
    assert stage.agent.budget.used_actions == 1
    waits = stage.of("waiting")
    assert len(waits) == 3
    assert waits[1]["seconds"] >= 3.0
    assert "429" in waits[0]["reason"]


def test_other_trouble_of_the_provider_is_raised(make_stage: Any) -> None:
    with pytest.raises(Authentication):
        make_stage(llm_error(Authentication, "No key.")).run()


def test_an_overflow_trims_and_asks_once_more(make_stage: Any) -> None:
    long, short = "\n".join(["word " * 12] * 90), "y"
    looks = [call("read_files", paths=[f"{number}.txt"]) for number in range(8)]
    stage = make_stage(*looks, overflow_error(), say("done"), facts=ModelFacts(window=16_000, max_output=1000))
    for number in range(8):
        (stage.work / f"{number}.txt").write_text(long if number < 4 else short)
    stage.run()
    results = [message.text for message in stage.llm.requests[-1][0] if message.role == "tool"]
    assert DROPPED_RESULT_NOTE in results
    assert not any(text == DROPPED_RESULT_NOTE for text in results[-4:])
    assert [DROPPED_RESULT_NOTE in (m.text for m in messages) for messages, _ in stage.llm.requests[:-1]] == [False] * 9


def test_an_overflow_that_stays_is_raised(make_stage: Any) -> None:
    stage = make_stage(overflow_error(), overflow_error(), say("done"))
    with pytest.raises(ContextOverflow):
        stage.run()
    assert stage.llm.remaining_steps == 1


def test_a_conversation_that_outgrows_the_window_is_trimmed_before_it_is_sent(make_stage: Any) -> None:
    facts = ModelFacts(window=9000, max_output=500)
    looks = [call("read_files", paths=["long.txt"], offset=number) for number in range(12)]
    stage = make_stage(*looks, say("done"), facts=facts, enforce_window=True)
    (stage.work / "long.txt").write_text("\n".join(["word " * 12] * 90))
    stage.run()
    assert any("dropped to fit" in note["text"] for note in stage.of("note"))


# --- cancelling --------------------------------------------------------------------------------------------------


def test_cancelled_before_anything_is_asked(make_stage: Any) -> None:
    stage = make_stage(say("done"), cancelled=lambda: True)
    with pytest.raises(RunCancelled):
        stage.run()
    assert stage.llm.remaining_steps == 1


def test_cancelled_between_two_calls(make_stage: Any) -> None:
    stage_: list[Any] = []
    stage = make_stage(
        combine_calls(LOOK, LOOK, LOOK), cancelled=lambda: bool(stage_ and len(stage_[0].results()) == 1)
    )
    stage_.append(stage)
    with pytest.raises(RunCancelled):
        stage.run()
    assert len(stage.results()) == 1
    validate_conversation(stage.restored().messages)


def test_cancelled_while_a_script_runs(make_stage: Any) -> None:
    stage_: list[Any] = []
    stage = make_stage(
        run_script(command="touch started; sleep 50", wait_s=60),
        cancelled=lambda: bool(stage_) and (stage_[0].work / "started").exists(),
    )
    stage_.append(stage)
    with pytest.raises(RunCancelled):
        stage.run()
    assert "because the run was cancelled" in stage.results()[0]
    assert not stage.agent.tools.jobs[0].is_running


# --- going on ----------------------------------------------------------------------------------------------------


def test_a_restored_agent_goes_on_where_the_other_stopped(make_stage: Any) -> None:
    first = make_stage(LOOK, llm_error(Authentication))
    with pytest.raises(Authentication):
        first.run()
    second = make_stage(say("done"), conversation=first.restored())
    assert second.run().artifact == "done"
    assert list(second.llm.requests[0][0]) == list(first.llm.requests[-1][0])


def test_a_hand_over_that_was_never_checked_is_checked_first(make_stage: Any) -> None:
    """m3b was killed between the reply and the check: nothing is asked again, and no turn of the model's comes last."""
    first = make_stage(LOOK, say("done"))
    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    second = make_stage(conversation=first.restored(), llm=ScriptedModel([]))
    assert second.run().artifact == "done"


def test_a_hand_over_that_is_rejected_after_a_resume_goes_on(make_stage: Any) -> None:
    first = make_stage(say("done"))
    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    second = make_stage(say("ok"), conversation=first.restored())
    assert second.run(until("ok")).artifact == "ok"
    assert second.llm.requests[0][0][-1].role == "user"


def interrupt(text: str) -> CheckResult:
    raise KeyboardInterrupt
