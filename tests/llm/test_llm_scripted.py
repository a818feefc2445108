"""The scripted model, and the conversations that no provider takes."""

from __future__ import annotations

import pytest

from m3b.errors import BadRequest, ContextOverflow, LLMError, RunCancelled, Transient, UsageError
from m3b.llm import LLM, LLMRequest, ModelFacts
from m3b.llm.conversation import validate_conversation
from m3b.messages import Message, Reply, ToolCall
from m3b.testing import ScriptedModel, ScriptExhausted, scripted_model

START = [Message("system", "s"), Message("user", "Go.")]


def test_steps_of_every_kind() -> None:
    llm = ScriptedModel(
        [
            "text",
            Reply("reply"),
            {"text": "dict"},
            lambda messages, tools: f"{len(messages)} messages",
            scripted_model.call("list_files", path="data"),
            scripted_model.combine_calls(scripted_model.call("a"), scripted_model.call("b"), text="two"),
        ]
    )
    assert isinstance(llm, LLM)
    replies = [llm.ask(LLMRequest(START)) for _ in range(6)]
    assert [reply.text for reply in replies[:4]] == ["text", "reply", "dict", "2 messages"]
    assert replies[4].calls[0].arguments == {"path": "data"}
    assert replies[4].stop == "tools"
    ids = [call.id for reply in replies for call in reply.calls]
    assert len(set(ids)) == 3
    assert llm.remaining_steps == 0
    assert len(llm.requests) == 6
    assert all(reply.usage.requests == 1 and reply.usage.input_tokens > 0 for reply in replies)


def test_exhausted_says_what_was_asked() -> None:
    llm = ScriptedModel(["one"])
    llm.ask(LLMRequest(START))
    with pytest.raises(ScriptExhausted, match=r"all 1 steps of the script are used.*'Go\.'"):
        llm.ask(LLMRequest(START))
    with pytest.raises(ScriptExhausted):
        ScriptedModel([], repeat=True).ask(LLMRequest(START))


def test_repeat_never_finishes() -> None:
    llm = ScriptedModel([scripted_model.call("list_files")], repeat=True)
    assert len({llm.ask(LLMRequest(START)).calls[0].id for _ in range(20)}) == 20


def test_transient_trouble_is_waited_out_without_waiting() -> None:
    reasons: list[str] = []
    llm = ScriptedModel([scripted_model.transient_error(30.0), scripted_model.transient_error(), "ok"])
    assert llm.ask(LLMRequest(START, on_wait=lambda reason, seconds: reasons.append(reason))).text == "ok"
    assert len(llm.waits) == len(reasons) == 2
    assert llm.waits[0][1] >= 30
    with pytest.raises(Transient, match="Given up"):
        ScriptedModel([scripted_model.transient_error(9999.0)]).ask(LLMRequest(START))


def test_misbehaviour() -> None:
    llm = ScriptedModel(
        [
            scripted_model.nonsense_reply(),
            scripted_model.unknown_tool(),
            scripted_model.malformed_call("write_files"),
            scripted_model.truncated_reply(),
            scripted_model.refusal_reply(),
        ]
    )
    nonsense, unknown, broken, cut, refusal = [llm.ask(LLMRequest(START)) for _ in range(5)]
    assert nonsense.text
    assert unknown.calls[0].name == "launch_rocket"
    assert broken.calls[0].arguments == {}
    assert "ends too early" in broken.calls[0].parse_error
    assert (cut.stop, refusal.stop) == ("length", "refusal")
    with pytest.raises(ContextOverflow):
        ScriptedModel([scripted_model.overflow_error()]).ask(LLMRequest(START))
    with pytest.raises(BadRequest):
        ScriptedModel([scripted_model.llm_error(BadRequest)]).ask(LLMRequest(START))
    with pytest.raises(LLMError):
        ScriptedModel([lambda messages, tools: scripted_model.llm_error()]).ask(LLMRequest(START))
    with pytest.raises(UsageError):
        ScriptedModel([7]).ask(LLMRequest(START))  # type: ignore[list-item]


def test_cancelled() -> None:
    with pytest.raises(RunCancelled):
        ScriptedModel(["x"]).ask(LLMRequest(START, is_cancelled=lambda: True))


def test_the_window_can_be_enforced() -> None:
    llm = ScriptedModel(["x"], facts=ModelFacts(window=1000, max_output=500), enforce_window=True)
    with pytest.raises(ContextOverflow, match="window of 1000"):
        llm.ask(LLMRequest([Message("user", "word " * 2000)]))


CALL = Message("assistant", "", (ToolCall("a", "x"), ToolCall("b", "x")))
ANSWERS = [Message("tool", "r", call_id="b"), Message("tool", "r", call_id="a")]


def test_good_conversations() -> None:
    validate_conversation([*START, CALL, *ANSWERS])
    validate_conversation([*START, CALL, *ANSWERS, Message("user", "on"), CALL, *ANSWERS])


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        ([], "no turn of the user"),
        ([Message("system", "s")], "no turn of the user"),
        ([Message("assistant", "x")], "first turn"),
        ([*START, Message("system", "s")], "system turn after others"),
        ([*START, Message("tool", "r", call_id="a")], "did not make"),
        ([*START, CALL, ANSWERS[0]], r"\['a'\] of turn 2 are not answered"),
        ([*START, CALL, ANSWERS[0], Message("user", "x")], "before the calls"),
        ([*START, CALL, ANSWERS[0], ANSWERS[0]], "did not make"),
        ([*START, Message("assistant", "", (ToolCall("a", "x"), ToolCall("a", "y")))], "equal or empty ids"),
        ([*START, Message("assistant", "", (ToolCall("", "x"),))], "equal or empty ids"),
    ],
)
def test_bad_conversations(talk: list[Message], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        validate_conversation(talk)
    with pytest.raises(BadRequest):
        ScriptedModel(["x"]).ask(LLMRequest(talk))
    assert ScriptedModel(["x"], strict=False).ask(LLMRequest(talk)).text == "x"
