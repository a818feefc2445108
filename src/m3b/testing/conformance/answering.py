"""Conformance tests of answers, whole or streamed.

The tests here and in `failing` use only `LLM.ask` of a provider, and only the HTTP requests that its server received. A
broken promise is an AssertionError.
"""

from __future__ import annotations

import json

from m3b.errors import LLMError
from m3b.messages import Message, ToolCall
from m3b.testing.conformance.exercise import START_MESSAGES, Exercise, register_behaviour

from .server import ServerAnswer, join_pieces

# --- answers -----------------------------------------------------------------------------------------------------


@register_behaviour("answers", "text is read, with the name of the model and the stop reason")
def text(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer("hello"))
    reply = case.ask()
    assert (reply.text, reply.calls, reply.stop) == ("hello", (), "end"), f"the reply is {reply}"
    assert reply.model, "the reply does not name its model"


@register_behaviour("answers", "usage is as reported by the provider: input, cached input, output, reasoning")
def usage(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer())
    used = case.ask().usage
    token_counts = (used.input_tokens, used.cached_tokens, used.output_tokens, used.reasoning_tokens)
    assert token_counts == (100, 60, 7, 3), f"usage is {used}"


@register_behaviour("answers", "parallel calls and their results are transmitted")
def parallel_calls(case: Exercise) -> None:
    calls = (("a1", "list_files", '{"path": "data"}'), ("a2", "read_files", "{}"))
    case.server.queue_answers(ServerAnswer(case.subject.dialect.calls(*calls)), case.text_answer("done"))
    llm = case.make_llm()
    reply = case.ask(llm)
    assert reply.stop == "tools", f"stop is {reply.stop!r}"
    assert reply.calls == (ToolCall("a1", "list_files", {"path": "data"}), ToolCall("a2", "read_files", {})), (
        reply.calls
    )
    answers = [Message("tool", "x.png", call_id="a1"), Message("tool", "nothing", call_id="a2", is_error=True)]
    assert case.ask(llm, messages=[*START_MESSAGES, reply.to_message(), *answers]).text == "done"
    sent = json.dumps(case.list_turns()[1])
    assert all(word in sent for word in ("a1", "a2", "list_files", "x.png", "nothing")), sent


@register_behaviour("answers", "a malformed call is reported as such, and sent back in a valid form")
def malformed_call(case: Exercise) -> None:
    bad = ToolCall("bad id/1", "list files", {}, "no JSON")
    messages = [
        *START_MESSAGES,
        Message("assistant", "", (bad,)),
        Message("tool", "", call_id="bad id/1", is_error=True),
    ]
    case.server.queue_answers(case.text_answer("ok"))
    assert case.ask(messages=messages).text == "ok"
    sent = json.dumps(case.list_turns()[0])
    assert "bad id/1" not in sent, "a call id was sent that providers refuse"
    assert sent.count("bad_id_1") == 2, "the call and its answer no longer belong together"


@register_behaviour("answers", "a truncated answer is marked as truncated")
def length_stop(case: Exercise) -> None:
    case.server.queue_answers(ServerAnswer(case.subject.dialect.text("so far", stop="length")))
    assert case.ask().stop == "length"


@register_behaviour("answers", "a refusal of the model is marked as refusal")
def refusal(case: Exercise) -> None:
    case.server.queue_answers(ServerAnswer(case.subject.dialect.text("I will not.", stop="refusal")))
    assert case.ask().stop == "refusal"


@register_behaviour("answers", "a body of five megabytes is read")
def huge_body(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer("x" * 5_000_000))
    assert len(case.ask().text) == 5_000_000


@register_behaviour("answers", "slow bytes are read to the end")
def slow_bytes(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer("slowly", pieces=12, pause_s=0.03))
    assert case.ask(case.make_llm(timeout_s=2.0)).text == "slowly"
    assert not case.waits, "the request was repeated"


@register_behaviour("answers", "JSON under another content type is read")
def wrong_content_type(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer("plain", headers={"Content-Type": "text/plain"}))
    assert case.ask(case.make_llm(attempts=1)).text == "plain"


@register_behaviour("answers", "a web page instead of an answer is an error that mentions the address")
def web_page(case: Exercise) -> None:
    case.server.queue_answers(ServerAnswer(b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    assert "address" in str(case.expect_error(LLMError, case.make_llm(attempts=1))).lower()


# --- streams -----------------------------------------------------------------------------------------------------


@register_behaviour("streams", "a stream gives the same reply, and the text piece by piece")
def stream(case: Exercise) -> str | None:
    if not _has_streams(case):
        return "does not stream"
    calls = case.subject.dialect.calls(("a1", "list_files", '{"path": "data"}'))
    bodies = [case.subject.dialect.text("word by word"), calls]
    for body in bodies:
        case.server.queue_answers(ServerAnswer(body), ServerAnswer(body, events=case.subject.dialect.events(body)))
    llm = case.make_llm()
    for _ in bodies:
        pieces: list[str] = []
        complete_reply, streamed = case.ask(llm), case.ask(llm, on_text=pieces.append)
        assert streamed == complete_reply, f"{streamed} is not {complete_reply}"
        assert join_pieces(pieces) == complete_reply.text, f"the pieces {pieces} are not {complete_reply.text!r}"
    return None


@register_behaviour("streams", "an interrupted stream is requested again, and no text is reported twice")
def half_a_stream(case: Exercise) -> str | None:
    if not _has_streams(case):
        return "does not stream"
    full_answer = case.text_answer("one two three four")
    size = len(b"".join(full_answer.events))
    case.server.queue_answers(ServerAnswer(full_answer.body, events=full_answer.events, cut=size // 2), full_answer)
    pieces: list[str] = []
    reply = case.ask(on_text=pieces.append)
    assert reply.text == join_pieces(pieces) == "one two three four", f"{reply.text!r}, streamed {pieces}"
    assert len(case.server.requests) == 2
    return None


def _has_streams(case: Exercise) -> bool:
    """Whether the protocol has streams, and the provider asks for one if somebody listens."""
    if not case.text_answer().events:
        return False
    case.server.queue_answers(case.text_answer())
    case.ask(on_text=lambda piece: None)
    (request,) = case.server.requests
    case.server.requests.clear()
    return bool(request.body.get("stream"))
