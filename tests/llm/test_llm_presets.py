"""Vendors as data: addresses, peculiarities, the paper's models, and what is said of models that nobody knows."""

from __future__ import annotations

import inspect
import json
import logging
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from m3b.llm import LLMRequest, connect, model_catalog, presets, registry
from m3b.llm.base import LLM
from m3b.llm.keys import Key
from m3b.llm.presets import PAPER_MODELS, PROVIDERS
from m3b.messages import Message
from m3b.testing.conformance import Server, ServerAnswer, builtin_subjects

START = [Message("user", "Go.")]
CHAT = builtin_subjects()[1].dialect


@pytest.fixture(autouse=True)
def keys_and_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for variable in provider.variables:
            monkeypatch.setenv(variable, "sk-not-a-real-one")
    for name in ("M3B_MODELS", "M3B_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(model_catalog, "_warned", set())


def ask(name: str, model: str, answer: Any, changes: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """The request's body that a preset makes, and the reply."""
    with Server() as server:
        server.queue_answers(*(answer if isinstance(answer, list) else [answer]))
        preset = replace(PROVIDERS[name], base_url=server.url + "/v1", **(changes or {}))
        llm = registry.open_provider(name, model, provider=preset, key=Key("sk-x12345", "K"))
        reply = llm.ask(LLMRequest(START))
        return [request.body for request in server.requests], reply


def test_all_that_the_documentation_promises_is_there() -> None:
    assert set(PROVIDERS) == {
        "anthropic", "openai", "gemini", "deepseek", "qwen", "openrouter", "groq", "together", "ollama", "vllm",
        "lmstudio", "llama.cpp",
    }  # fmt: skip
    for name, provider in PROVIDERS.items():
        llm = connect(f"{name}:some-model")
        assert isinstance(llm, LLM)
        assert llm.name == f"{name}:some-model"
        assert provider.base_url is None or provider.base_url.startswith(("https://", "http://127.0.0.1:"))
        assert bool(provider.variables) == (provider.base_url is None or provider.base_url.startswith("https://"))
    assert len({provider.base_url for provider in PROVIDERS.values()}) == len(PROVIDERS) - 1


def test_a_preset_is_a_few_lines_of_data() -> None:
    source = inspect.getsource(presets)
    table = source[source.index("PROVIDERS: dict") : source.index("PAPER_MODELS: tuple")]
    assert len(table.splitlines()) / len(PROVIDERS) < 4
    assert "def " not in table
    assert "lambda" not in table


@pytest.mark.parametrize("core", PAPER_MODELS, ids=lambda core: core[0])
def test_the_papers_cores_and_their_successors_are_known(core: Any) -> None:
    _, specs, successors = core
    for spec in (*specs, *successors):
        llm = connect(spec)
        assert llm.name == spec
        if not spec.startswith("openrouter:"):
            assert llm.facts.known, f"{spec} is in no list"
    for spec in successors:
        provider, model = spec.split(":", 1)
        entry = model_catalog._load_shipped_models().get(f"{provider}:{model}", {})
        assert "ended" not in entry, f"{spec} is no successor"


def test_a_model_that_is_nowhere_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "m3b.llm"):
        for _ in range(3):
            llm = connect("llama.cpp:whatever")
    assert len([record for record in caplog.records if "llama.cpp:whatever" in record.message]) == 1
    assert "32768 tokens" in caplog.text
    assert (llm.facts.window, llm.facts.max_output, llm.facts.known) == (32_768, 4_096, False)
    assert connect("groq:whatever").facts.window == 131_072


def test_a_model_that_ended_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "m3b.llm"):
        connect("gemini:gemini-2.0-flash")
        connect("gemini:gemini-2.0-flash")
        connect("anthropic:claude-3-7-sonnet@http://127.0.0.1:1")  # a relay may still have it
    assert [record.message for record in caplog.records] == [
        "gemini:gemini-2.0-flash: its vendor ended it on 2026-06-01. Newer ones are in docs/llm.md."
    ]


def test_the_shipped_list_is_dated() -> None:
    data = json.loads(Path(model_catalog.__file__).with_name("models.json").read_text())
    date.fromisoformat(data["as_of"])
    for entry in data["models"].values():
        date.fromisoformat(entry.get("ended", "2026-01-01"))


def test_another_server_has_neither_prices_nor_peculiarities() -> None:
    hosted, local = connect("openrouter:gpt-4o"), connect("openrouter:gpt-4o@http://127.0.0.1:1/v1")
    assert hosted.facts.window == local.facts.window
    assert connect("openai:gpt-5-pro").facts.wire == "responses"
    assert connect("openai:gpt-5-pro@http://127.0.0.1:1/v1").facts.wire == ""
    assert connect("openai:gpt-4o@http://127.0.0.1:1/v1").facts.price_in is None


def test_peculiarities_of_the_request() -> None:
    good = ServerAnswer(CHAT.text("ok"))
    (body,), _ = ask("openrouter", "m", good)
    assert body["usage"] == {"include": True}
    (body,), _ = ask("groq", "m", good)
    assert "max_completion_tokens" in body
    assert "max_tokens" not in body
    (body,), _ = ask("deepseek", "m", good)
    assert "max_tokens" in body


def test_what_a_relay_bills_is_the_cost_where_no_price_is_known() -> None:
    body = CHAT.text("ok")
    body["usage"]["cost"] = 0.0125
    assert ask("openrouter", "nobody/knows", ServerAnswer(body))[1].usage.cost_usd == 0.0125
    priced = ask("openrouter", "openai/gpt-4o", ServerAnswer(body))[1].usage.cost_usd
    assert priced == pytest.approx((40 * 2.5 + 60 * 1.25 + 7 * 10) / 1e6)


def test_thinking_is_switched_off_where_a_model_demands_it() -> None:
    message = "parameter.enable_thinking must be set to false for non-streaming calls"
    refusal = ServerAnswer(CHAT.error(message, "invalid_request_error"), status=400)
    bodies, reply = ask("qwen", "qwen3-32b", [refusal, ServerAnswer(CHAT.text("ok"))])
    assert reply.text == "ok"
    assert [body.get("enable_thinking") for body in bodies] == [None, False]
