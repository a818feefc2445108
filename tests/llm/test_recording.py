"""Recordings: complete, without secrets, and replayed only to what they were made of."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_server import Answer as answer
from llm_wires import START, TOOLS, OpenAIWire

from m3b.errors import ContextOverflow, LLMError, UsageError
from m3b.llm import LLMRequest, ModelFacts, ask_llm, connect
from m3b.llm.recording import (
    RecordingLLM,
    RecordingMismatch,
    ReplayLLM,
    diff_messages,
    message_to_json,
    normalize_text,
    reply_from_json,
    reply_to_json,
    scrub,
)
from m3b.messages import ImageContent, Message, Reply, ToolCall, ToolSpec, Usage
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, malformed_call, overflow_error, say, transient_error

RUN = [ToolSpec("run_script", "Runs.", {"type": "object", "properties": {"command": {"type": "string"}}})]
PNG = ImageContent(b"\x89PNG\r\n\x1a\n and so on")


def converse(llm: Any, results: tuple[str, str] = ("2 files", "took 3.5 s, 14 epochs")) -> tuple[list[Any], list[Any]]:
    """A conversation with a result, a malformed call, a wait and an overflow; what came of it, and the waits."""
    waits: list[Any] = []
    came: list[Any] = []
    talk = [*START]

    def turn(tools: Any = TOOLS) -> None:
        try:
            reply = llm.ask(LLMRequest(talk, tools, on_wait=lambda *wait: waits.append(wait)))
        except LLMError as error:
            came.append((type(error), str(error)))
            return
        came.append(reply)
        talk.append(reply.to_message())
        for at, tool_call in enumerate(reply.calls):
            text = results[0] if tool_call.name == "list_files" else results[1]
            talk.append(
                Message("tool", tool_call.parse_error or text, call_id=tool_call.id, images=(PNG,) if at else ())
            )

    for _ in range(5):
        turn()
    talk.append(Message("user", "And now?"))
    turn(RUN)
    turn(RUN)
    return came, waits


def script() -> ScriptedModel:
    steps = [
        call("list_files", path="data"),
        transient_error(30),
        malformed_call("write_files"),
        call("run_script", command="python train.py"),
        Reply("", (ToolCall("x1", "list_files"), ToolCall("x2", "run_script", {"command": "ls"})), stop="tools"),
        overflow_error(),
        call("run_script", command="ls"),
        Reply("Done, fertig, 好了.", usage=Usage(5, 1, 2, 1, 0.25)),
    ]
    return ScriptedModel(steps, facts=ModelFacts(window=999, price_in=1.0, price_out=2.0))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.jsonl"


@pytest.fixture
def taped(file: Path) -> tuple[list[Any], list[Any]]:
    return converse(RecordingLLM(script(), file))


def test_what_was_recorded_is_said_again(file: Path, taped: tuple[list[Any], list[Any]]) -> None:
    replay = ReplayLLM(file)
    assert converse(replay) == taped
    assert replay.remaining == 0
    assert replay.facts == ModelFacts(window=999, price_in=1.0, price_out=2.0)
    assert [kind for kind, _ in [outcome for outcome in taped[0] if isinstance(outcome, tuple)]] == [ContextOverflow]
    assert len(taped[1]) == 1


def test_the_recording_holds_everything_once(file: Path, taped: Any) -> None:
    text = file.read_text("utf-8")
    assert text.count("You are a tester.") == 1
    assert text.count("2 files") == 2
    assert text.count('"define"') == 2
    assert "fertig, 好了" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_recording_is_never_written_over(file: Path, taped: Any) -> None:
    with pytest.raises(UsageError, match="exists"):
        RecordingLLM(script(), file)
    with pytest.raises(UsageError, match="exists"):
        connect(f"record:{file}:rules")


def test_a_recording_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    llm = RecordingLLM(ScriptedModel(["hello"]), tmp_path / "absent" / "talk.jsonl")
    with pytest.raises(LLMError, match="cannot be written"):
        llm.ask(LLMRequest(START, TOOLS))


def test_another_conversation_is_noticed(file: Path, taped: Any) -> None:
    came, _ = converse(ReplayLLM(file), results=("3 files", "took 3.5 s, 14 epochs"))
    assert isinstance(came[0], Reply)
    kind, text = came[1]
    assert kind is RecordingMismatch
    assert "exchange 2 of 7" in text
    assert "-2 files" in text
    assert "+3 files" in text
    assert "Message 4 (from tool)" in text


def test_other_numbers_of_a_script_are_the_same(file: Path, taped: tuple[list[Any], list[Any]]) -> None:
    assert converse(ReplayLLM(file), results=("2 files", "took 41 s, 9 epochs"))[0] == taped[0]
    assert converse(ReplayLLM(file), results=("2 files", "took 41 s, 9 folds"))[0][3][0] is RecordingMismatch


def test_another_offer_of_tools_is_noticed(file: Path, taped: Any) -> None:
    with pytest.raises(RecordingMismatch, match="The tools:"):
        ReplayLLM(file).ask(LLMRequest(START, TOOLS[:1]))


def test_one_request_too_many_is_noticed(file: Path, taped: Any) -> None:
    replay = ReplayLLM(file)
    converse(replay)
    with pytest.raises(RecordingMismatch, match="ends after 7 exchanges"):
        replay.ask(LLMRequest(START, TOOLS))


def test_without_strictness_the_replies_come_whatever_is_asked(file: Path, taped: tuple[list[Any], list[Any]]) -> None:
    assert converse(ReplayLLM(file, strict=False), results=("other", "things"))[0] == taped[0]


def test_a_recording_can_be_recorded_anew(file: Path, taped: tuple[list[Any], list[Any]], tmp_path: Path) -> None:
    new = tmp_path / "new.jsonl"
    came, _ = converse(RecordingLLM(ReplayLLM(file, strict=False), new), results=("other", "things"))
    assert came == taped[0]
    assert converse(ReplayLLM(new), results=("other", "things"))[0] == taped[0]


@pytest.mark.parametrize("text", ["", "{}", "[]", "no json", '{"m3b_recording": 99, "facts": {}}'])
def test_other_files_are_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match="no recording"):
        ReplayLLM(file)
    with pytest.raises(UsageError, match="cannot be read"):
        connect(f"replay:{file}.absent")


@pytest.mark.parametrize("spec", ["record:", "record:file", "record::rules"])
def test_a_spec_names_file_and_model(spec: str) -> None:
    with pytest.raises(UsageError, match="record:FILE:SPEC"):
        connect(spec)


def test_connect_opens_both(file: Path) -> None:
    talk = [Message("system", "s"), Message("user", "Stage: nothing")]
    first = connect(f"record:{file}:rules")
    reply = first.ask(LLMRequest(talk, TOOLS))
    assert first.name == "rules"
    again = connect(f"replay:{file}")
    assert again.name == f"replay:{file}"
    assert again.ask(LLMRequest(talk, TOOLS)) == reply


def test_keys_are_not_recorded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary, api_key = "canary-in-the-environment-42", "sk-proj-abcdefghij0123456789"
    monkeypatch.setenv("SOME_API_KEY", canary)
    monkeypatch.setenv("HARMLESS", "harmless-and-long-value")
    talk = [*START[:1], Message("user", f"keys: {canary} {api_key} harmless-and-long-value hf_hub_download")]
    RecordingLLM(ScriptedModel([say(f"I saw {canary}.")]), file).ask(LLMRequest(talk, TOOLS))
    text = file.read_text("utf-8")
    assert canary not in text
    assert api_key not in text
    assert "keys: [key] [key] harmless-and-long-value hf_hub_download" in text
    assert ReplayLLM(file).ask(LLMRequest(talk, TOOLS)).text == "I saw [key]."


def test_the_key_of_a_provider_is_in_no_recording(provider: Any, clock: Any, file: Path) -> None:
    provider.will(answer(OpenAIWire.error("bad key sk-canary-0123456789abcdefCANARY"), status=401))
    llm = RecordingLLM(OpenAIWire.llm(provider.url, clock.retry()), file)
    with pytest.raises(LLMError):
        llm.ask(LLMRequest(START, TOOLS))
    assert "canary" not in file.read_text("utf-8").lower()


def test_scrubbing_leaves_code_alone() -> None:
    code = "from huggingface_hub import hf_hub_download\nkey = d['sk-learn']  # pk_field, rk-value\n"
    assert scrub(code) == code
    assert all(value not in scrub(f"x {value}") for name, value in os.environ.items() if name.endswith("_API_KEY"))


def test_words_come_through_a_recorder(provider: Any, clock: Any, file: Path) -> None:
    from m3b.testing.conformance.dialects import DIALECTS

    events = b"".join(DIALECTS["openai"].events(OpenAIWire.text("some words")))
    provider.will(answer(events, headers={"Content-Type": "text/event-stream"}))
    pieces: list[str] = []
    reply = ask_llm(
        RecordingLLM(OpenAIWire.llm(provider.url, clock.retry()), file), START, TOOLS, on_text=pieces.append
    )
    assert "".join(pieces) == reply.text == "some words"
    assert ReplayLLM(file).ask(LLMRequest(START, TOOLS)) == reply


# --- what counts as a difference ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss fell from 0.690 to 0.117", "loss fell from 1.2 to 0.3"),
        ("Exit code 0 after 10 s", "Exit code 0 after 9.7 s"),
        ("0.5 minutes on 2 CPU cores, no GPU.", "0.5 minutes on 1 GPU and 16 CPU cores."),
        ("<Net at 0x7f12ab>", "<Net at 0x7fffff>"),
        ("About 40 steps (few: more minutes, a smaller patch would help).", "About 40 steps."),
        (
            "AUROC 0.84 on 35 held-out cases, mean of 4 views of each; calibration",
            "AUROC 0.8 on 35 held-out cases; calibration",
        ),
        ("max_epochs ends it after 14 epoch(s) of 13 steps, 96 % of these in fp32", "8.7 epochs of 13 steps in fp32"),
        ("only 8.7 of max_epochs=14 epochs of 13 steps fit in fp32", "10.2 epochs of 13 steps in fp32"),
        ("max_epochs ends it after 14 epoch(s) of 13 steps, less than 1 % of these", "8.7 epochs of 13 steps"),
        ("accuracy 0.61, NOT above 0.62 of the commonest class", "accuracy 0.64, above 0.62 of the commonest class"),
    ],
)
def test_volatile_everywhere(first: str, second: str) -> None:
    assert normalize_text(first) == normalize_text(second)


def test_a_comma_after_a_whole_number_stays() -> None:
    """A figure that happens to be 0 is told apart from others by no sign."""
    texts = (f"errors: auroc {value}, accuracy 0.07" for value in ("0", "0.0142", "1,204"))
    assert {normalize_text(text, is_script_output=True) for text in texts} == {"errors: auroc #, accuracy #"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("306 images", "305 images"),
        ("Exit code 0 after 1 s", "Exit code 1 after 1 s"),
        ("cases 12, v2", "cases 12, v3"),
        ("1x128x128", "1x64x64"),
    ],
)
def test_not_volatile_outside_scripts(first: str, second: str) -> None:
    assert normalize_text(first) != normalize_text(second)


def test_a_training_may_take_more_or_fewer_epochs() -> None:
    def log(epochs: int) -> str:
        lines = [f"fold 0 epoch {n}: loss {1 / n:.3f}, lr {1e-3 / n:.0e}, {n} of 20 s" for n in range(1, epochs)]
        return "\n".join(["starts", *lines, f"best at epoch {epochs}"])

    assert normalize_text(log(4), is_script_output=True) == normalize_text(log(30), is_script_output=True)
    assert normalize_text(log(4), is_script_output=True) != normalize_text(
        log(4) + "\nTraceback", is_script_output=True
    )


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
made_calls = st.builds(ToolCall, texts, texts, st.dictionaries(texts, st.integers() | texts, max_size=2), texts)
pictures = st.builds(ImageContent, st.binary(max_size=9), st.just("image/png"))
messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), texts, st.lists(made_calls, max_size=2).map(tuple),
    texts, st.booleans(), st.lists(pictures, max_size=2).map(tuple),
)  # fmt: skip
replies = st.builds(
    Reply, texts, st.lists(made_calls, max_size=2).map(tuple),
    st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.floats(0, 9)),
    st.sampled_from(["end", "tools", "length", "refusal"]), texts,
)  # fmt: skip


@given(replies)
def test_lines_hold_all_of_a_reply(reply: Reply) -> None:
    assert reply_from_json(json.loads(json.dumps(reply_to_json(reply)))) == reply


@given(st.lists(messages, max_size=4))
def test_nothing_differs_from_itself(talk: list[Message]) -> None:
    recorded = [message_to_json(message) for message in talk]
    assert diff_messages(recorded, recorded) == ""
    assert diff_messages(recorded, [*recorded, {"role": "user", "text": "more"}]) != ""


@given(texts)
def test_settling_twice_is_settling_once(text: str) -> None:
    assert normalize_text(normalize_text(text)) == normalize_text(text)
