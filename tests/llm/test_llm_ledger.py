"""The ledger: what left the machine, to whom, and nothing of its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from m3b.errors import Authentication, RunFailed
from m3b.llm import CallableLLM, FallbackLLM, LLMRequest, Retry, ledger
from m3b.llm.ledger import Ledger
from m3b.messages import Message
from m3b.testing import ScriptedModel
from m3b.testing.conformance import CANARY, Clock, Server, ServerAnswer, Subject, builtin_subjects

START = [Message("system", "You are a tester."), Message("user", "The secret of the patient is xyzzy.")]

SUBJECTS_OF_WIRES = builtin_subjects()[:3]


def make_llm(subject: Subject, server: Server) -> Any:
    clock = Clock()
    return subject.make(server.url, Retry(sleep=clock.sleep, clock=clock), 30.0)


@pytest.mark.parametrize("subject", SUBJECTS_OF_WIRES, ids=lambda subject: subject.name)
@pytest.mark.parametrize("watched", [False, True])
def test_each_request_is_written_down_as_it_left(subject: Subject, watched: bool, tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    good = ServerAnswer(subject.dialect.text("the plain answer"))
    with Server() as server:
        server.queue_answers(
            ServerAnswer(subject.dialect.error("slow down"), status=429), ServerAnswer(drop=True), good
        )
        cancelled = (lambda: False) if watched else None
        reply = book.meter(make_llm(subject, server), "tester").ask(LLMRequest(START, is_cancelled=cancelled))
        requests, host = server.requests, server.url.removeprefix("http://")
    lines = ledger.read_ledger(book.file)
    assert [line["what"] for line in lines] == ["sent", "sent", "sent", "answered"]
    for line, request in zip(lines, requests, strict=False):
        assert (line["host"], line["path"], line["role"]) == (host, request.path, "tester")
        assert line["bytes"] == len(request.raw)
        assert line["sha256"] == hashlib.sha256(request.raw).hexdigest()
    end = lines[-1]
    assert (end["requests"], end["input_tokens"], end["cached_tokens"], end["reasoning_tokens"]) == (3, 100, 60, 3)
    assert end["cost_usd"] == pytest.approx(reply.usage.cost_usd, abs=1e-8)
    content = book.file.read_bytes()
    assert not any(secret in content for secret in (CANARY.encode(), b"xyzzy", b"plain answer"))


def test_functions_and_failures(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    book.meter(CallableLLM(lambda messages, tools: "ok", name="mine"), "a").ask(LLMRequest(START))
    with pytest.raises(Authentication):
        book.meter(ScriptedModel([Authentication("no")]), "a").ask(LLMRequest(START))
    sent, answered, failed = ledger.read_ledger(book.file)
    assert (sent["model"], sent["host"], answered["requests"]) == ("mine", "", 1)
    assert (failed["what"], failed["error"], failed["requests"]) == ("failed", "Authentication", 0)


def test_the_model_that_answered_is_named(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    subject = SUBJECTS_OF_WIRES[0]
    with Server() as server:
        server.queue_answers(
            ServerAnswer(subject.dialect.error("no"), status=401), ServerAnswer(subject.dialect.text("ok"))
        )
        book.meter(FallbackLLM([make_llm(subject, server), make_llm(subject, server)]), "a").ask(LLMRequest(START))
    assert [line["what"] for line in ledger.read_ledger(book.file)] == ["sent", "sent", "answered"]


def test_the_summary_adds_up(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    subject = SUBJECTS_OF_WIRES[0]
    with Server() as server:
        llm = book.meter(make_llm(subject, server), "a")
        for _ in range(3):
            server.queue_answers(ServerAnswer(subject.dialect.text("ok")))
            llm.ask(LLMRequest(START))
        sizes = [len(request.raw) for request in server.requests]
    (totals,) = ledger.summarize_by_model(book.file).values()
    assert (totals["requests"], totals["bytes"], totals["input_tokens"]) == (3, sum(sizes), 300)
    assert totals["cached_share"] == 0.6
    assert ledger.summarize_by_model(tmp_path / "missing") == {}


def test_a_full_disk_ends_the_run_in_words(tmp_path: Path) -> None:
    book = Ledger(tmp_path)  # a folder cannot be appended to
    with pytest.raises(RunFailed, match="Make room"):
        book.meter(ScriptedModel(["ok"]), "a").ask(LLMRequest(START))


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(json.dumps({"what": "sent"}) + '\n{"what": "answ')
    assert len(ledger.read_ledger(file)) == 1


def test_what_went_where(tmp_path: Path) -> None:
    """Of a chain, each host has its own requests, and the answer is counted where it came from."""
    book = Ledger(tmp_path / "ledger.jsonl")
    subject = SUBJECTS_OF_WIRES[0]
    with Server() as refusing, Server() as server:
        refusing.queue_answers(ServerAnswer(subject.dialect.error("no"), status=401))
        server.queue_answers(ServerAnswer(subject.dialect.text("ok")), ServerAnswer(subject.dialect.text("ok")))
        llm = book.meter(FallbackLLM([make_llm(subject, refusing), make_llm(subject, server)]), "a")
        llm.ask(LLMRequest(START))
        llm.ask(LLMRequest(START))
        book.meter(CallableLLM(lambda messages, tools: "ok", name="mine"), "b").ask(LLMRequest(START))
        sizes = [sum(len(request.raw) for request in host_server.requests) for host_server in (refusing, server)]
        hosts = [host_server.url.removeprefix("http://") for host_server in (refusing, server)]
    first, second, callable_row = ledger.summarize_by_host(book.file)
    assert [(row["host"], row["bytes"]) for row in (first, second)] == list(zip(hosts, sizes, strict=True))
    assert [(row["requests"], row["input_tokens"]) for row in (first, second)] == [(1, 0), (2, 200)]
    assert (callable_row["host"], callable_row["model"], callable_row["requests"]) == ("", "mine", 1)
    assert all(row["local"] for row in (first, second, callable_row))
    book.write("sent", "c", {"model": "m", "host": "models.example.org:443", "path": "/", "bytes": 3, "sha256": ""})
    assert not ledger.summarize_by_host(book.file)[-1]["local"]
