"""Specs, keys, facts, and what is imported when."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import re
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.config import user_file, write_setting
from m3b.errors import Authentication, M3bError, Transient, UsageError
from m3b.llm import (
    LLM,
    PROVIDERS,
    CallableLLM,
    LLMRequest,
    choose_default_spec,
    connect,
    describe_unused_keys,
    find_provider_keys,
    keys,
    model_catalog,
    registry,
    tokens,
)
from m3b.llm.base import ModelFacts, spec_of
from m3b.messages import Message, Reply, ToolCall, ToolSpec
from m3b.testing import ScriptedModel

START = [Message("user", "Go.")]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for variable in provider.variables:
            monkeypatch.delenv(variable, raising=False)
    for variable in ("M3B_API_KEY", "M3B_MODELS"):
        monkeypatch.delenv(variable, raising=False)


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, m3b.llm as l\n"
        "l.connect('openai:gpt-4o@http://127.0.0.1:9/v1'); l.connect('anthropic:claude-sonnet-5-5@http://localhost:9')\n"
        "print([m for m in ('httpx', 'httpx2', 'openai', 'anthropic', 'torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_specs() -> None:
    local = connect("openai:some/model:8b@http://127.0.0.1:1234/v1")
    assert local.name == "openai:some/model:8b"
    assert connect("ollama:llama3:8b").name == "ollama:llama3:8b"
    script = ScriptedModel(["x"])
    assert connect(script) is script


@pytest.mark.parametrize("name", [name for name, provider in PROVIDERS.items() if provider.variables])
def test_a_providers_name_alone_takes_its_default_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = PROVIDERS[name].variables[-1]
    monkeypatch.setenv(variable, "sk-x-1234567")
    spec = f"{name}:{PROVIDERS[name].default}"
    assert registry.connect(f" {name.upper()} ").name == spec
    assert choose_default_spec() == "rules", "a key alone names no model"
    assert f"m3b config llm {name}" in describe_unused_keys("rules")
    assert find_provider_keys() == {name: variable}
    assert connect(f"{name}|rules").name.startswith(spec)


def test_the_default_model_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "sk-x-1234567")
    monkeypatch.setenv("M3B_MODELS", str(tmp_path / "mine.json"))
    (tmp_path / "mine.json").write_text('{"defaults": {"gemini": "gemini-2.5-pro"}}')
    assert connect("gemini").name == "gemini:gemini-2.5-pro"
    assert connect("gemini").facts.known, "the shipped list still holds"
    (tmp_path / "mine.json").write_text('{"defaults": ["gemini-2.5-pro"]}')
    with pytest.raises(UsageError, match=r"M3B_MODELS.*defaults"):
        connect("gemini")


def test_an_at_within_a_models_own_name() -> None:
    for model in ("m@20250219", "m@latest", "qwen2.5-7b@q4_k_m", "m@4bit", "m@fp16", "m@v1.2"):
        assert connect(f"lmstudio:{model}").name == f"lmstudio:{model}"


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["only-one", "text-embedding-3"], ""),
        (["a", "b"], "has several: a, b. Name one, e.g. ollama:a@http"),
        ([], "serves none"),
        (None, "gives no list of models"),
    ],
)
def test_a_server_is_asked_what_it_serves(models: list[str] | None, message: str) -> None:
    body = b"[1" if models is None else json.dumps({"data": [{"id": name} for name in models]}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        spec = f"ollama@http://127.0.0.1:{server.server_port}/v1"
        if message:
            with pytest.raises(UsageError, match=re.escape(message)):
                connect(spec)
        else:
            assert connect(spec).name == "ollama:only-one"
            assert spec_of(connect(spec)) == f"ollama:only-one@http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_server_that_is_down_is_named(closed_port: int) -> None:
    with pytest.raises(
        UsageError, match=rf"no server answers at http://127\.0\.0\.1:{closed_port}/v1 \(Connection refused"
    ):
        connect(f"ollama@http://u:secret@127.0.0.1:{closed_port}/v1")


def test_the_configuration_names_the_default_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "k-openai-123")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-anthropic-123")
    assert connect(None).name == "rules"
    write_setting(user_file(), "llm", "anthropic")
    assert connect(None).name == f"anthropic:{PROVIDERS['anthropic'].default}"
    assert connect(None).facts.known
    assert describe_unused_keys(choose_default_spec()) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nobody:x", "There are: anthropic"),
        ("gpt-4o", "no provider"),
        ("openai:", "names no model. Write openai:MODEL, or openai alone"),
        ("openai:m@notaurl", "'notaurl' is no address. Write it in full, e.g. openai:m@http://"),
        ("openai:m@gpu-box:8000/v1", "'gpu-box:8000/v1' is no address"),
        ("openai:m@192.168.0.7", "is no address"),
        ("openai:m@http://", "'http://' is no address"),
        ("openai:m@http://h:port/v1", "is no address"),
        ("openai:m@http://h:99999/v1", "is no address"),
        ("openai@localhost:8000", "'localhost:8000' is no address"),
        ("anthropic@http://127.0.0.1:9", "names no model"),
        ("gpt-4o", "Did you mean openai:gpt-4o"),
        ("ruls", "Did you mean rules"),
        ("antropic:claude", "Did you mean anthropic"),
        ("openai:m@127.0.0.1:1234/v1", "Write it in full"),
        ("openai:m@localhost", "Write it in full"),
        ("", "no provider"),
    ],
)
def test_wrong_specs(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        connect(spec)
    with pytest.raises(UsageError):
        connect(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        connect(ScriptedModel)


@given(st.text(max_size=30))
def test_no_spec_breaks_it(spec: str) -> None:
    with contextlib.suppress(M3bError):
        assert isinstance(connect(spec if spec.strip() != "rules" else "openai:x"), LLM)


def test_missing_keys_are_named() -> None:
    with pytest.raises(Authentication, match="ANTHROPIC_API_KEY"):
        connect("anthropic:claude-sonnet-5-5")
    with pytest.raises(Authentication, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        connect("gemini:x")


def test_a_providers_key_never_goes_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-real-one")
    with pytest.raises(Authentication, match="M3B_API_KEY"):
        connect("openai:m@https://example.org/v1")
    assert keys.find_key(("OPENAI_API_KEY",), "http://127.0.0.1:1/v1", "openai").value == keys.NO_KEY
    monkeypatch.setenv("M3B_API_KEY", "sk-other")
    key = keys.find_key(("OPENAI_API_KEY",), "https://example.org/v1", "openai")
    assert key.value == "sk-other"
    assert "sk-other" not in repr(key) + str(key) + f"{key}"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8/v1", True),
        ("http://127.0.0.1.example.org", False),
        ("https://localhost@example.org", False),
    ],
)
def test_loopback(url: str, local: bool) -> None:
    assert keys.is_loopback(url) is local


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:make_mine", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(
        registry, "find_entry_points", lambda group: [point] if group == registry.ENTRY_POINT_GROUP else []
    )
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    assert connect("mine:a@http://h:1").name == "a http://h:1"
    with pytest.raises(UsageError, match="mine"):
        connect("other:a")


def make_mine(model: str, base_url: str | None) -> LLM:
    return ScriptedModel(name=f"{model} {base_url}")


# --- facts -------------------------------------------------------------------------------------------------------


def test_known_models() -> None:
    dated = model_catalog.look_up("openai", "gpt-4o-2024-11-20")
    assert (dated.window, dated.max_output, dated.price_in, dated.known) == (128_000, 16_384, 2.5, True)
    assert model_catalog.look_up("openrouter", "openai/gpt-4o").price_out == 10.0
    open_model = model_catalog.look_up("vllm", "Qwen/Qwen3-32B")
    assert (open_model.window, open_model.price_in, open_model.known) == (40_960, None, True)
    assert model_catalog.look_up("openai", "gpt-4o", priced=False).price_in is None


def test_every_shipped_entry_makes_sense() -> None:
    data = json.loads(Path(model_catalog.__file__).with_name("models.json").read_text())
    for name in data["models"]:
        provider, model = name.split(":", 1)
        facts = model_catalog.look_up(provider, model)
        assert facts.known
        assert 0 < facts.max_output <= min(facts.window / 4, model_catalog.MAX_REPLY_TOKENS)
        if facts.price_in is not None:
            assert facts.price_cached is not None
            assert facts.price_out is not None
            assert facts.price_cached <= facts.price_in <= facts.price_out
    for provider in PROVIDERS:
        if PROVIDERS[provider].default:
            assert model_catalog.look_up(provider, PROVIDERS[provider].default).price_in


def test_unknown_models_work_and_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            facts = model_catalog.look_up("vllm", "never-heard-of")
    assert (facts.window, facts.max_output, facts.known) == (128_000, 8_192, False)
    assert len(caplog.records) == 1


def test_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "models.json"
    monkeypatch.setenv("M3B_MODELS", str(path))
    path.write_text('{"models": {"openai:gpt-4o": {"window": 64000, "max_output": 4000, "in": 9, "out": 9}}}')
    assert model_catalog.look_up("openai", "gpt-4o").price_in == 9
    assert model_catalog.look_up("openai", "gpt-4o", priced=False).price_in == 9
    for wrong in ("{", "[]", '{"a": 1}', '{"a": {"window": "big"}}', '{"a": {"price": 1}}', '{"a": {"window": 0}}'):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="M3B_MODELS"):
            model_catalog.look_up("openai", "gpt-4o")
    for section in ("model", "default"):  # misspelt beside one that is right
        path.write_text(json.dumps({"models": {}, "defaults": {}, section: {}}))
        with pytest.raises(UsageError, match=rf"M3B_MODELS.*'{section}s'"):
            model_catalog.look_up("openai", "gpt-4o")
    path.write_text('{"models": {"openai:gpt-4o": {"windw": 64000}}}')
    with pytest.raises(UsageError, match=r"'windw'.*'window'"):
        model_catalog.look_up("openai", "gpt-4o")


def test_token_estimate_is_near_and_grows() -> None:
    prose = "The quick brown fox jumps over the lazy dog. " * 100
    assert 900 < tokens.estimate_text_tokens(prose) < 1500
    assert tokens.estimate_text_tokens("") == 0
    spec = ToolSpec("t", "d", {"type": "object"})
    call = Message("assistant", "", (ToolCall("a", "write", {"text": prose}),))
    assert tokens.estimate_request_tokens([Message("user", prose), call], [spec]) > 2 * tokens.estimate_text_tokens(
        prose
    )


# --- functions ---------------------------------------------------------------------------------------------------


def test_a_function_is_a_model() -> None:
    def mine(messages: list[Message], tools: list[ToolSpec]) -> str:
        return f"{len(messages)} {len(tools)}"

    llm = connect(mine)
    reply = llm.ask(LLMRequest(START))
    assert (reply.text, reply.stop) == ("1 0", "end")
    assert reply.usage.input_tokens > 0
    assert "mine" in llm.name


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "t", "calls": [{"name": "x", "arguments": {"a": 1}}]},
        {"content": "t", "tool_calls": [{"id": "", "function": {"name": "x", "arguments": '{"a": 1}'}}]},
        Reply("t", (ToolCall("", "x", {"a": 1}),)),
        Message("assistant", "t", (ToolCall("", "x", {"a": 1}),)),
    ],
)
def test_shapes(answer: object) -> None:
    reply = CallableLLM(lambda messages, tools: answer).ask(LLMRequest(START))
    assert (reply.text, reply.stop) == ("t", "tools")
    assert [(call.name, call.arguments) for call in reply.calls] == [("x", {"a": 1})]
    assert reply.calls[0].id


@pytest.mark.parametrize(
    "answer", [None, 3, {"txt": "x"}, {"calls": "x"}, {"calls": [{}]}, {"calls": [3]}, {"text": 3}]
)
def test_wrong_shapes(answer: object) -> None:
    with pytest.raises(UsageError):
        CallableLLM(lambda messages, tools: answer).ask(LLMRequest(START))


def test_a_functions_repeated_ids_are_replaced() -> None:
    llm = CallableLLM(lambda messages, tools: {"calls": [{"id": "c", "name": "x"}, {"id": "c", "name": "y"}]})
    talk = [*START, Message("assistant", "", (ToolCall("c", "x"),)), Message("tool", "r", call_id="c")]
    assert len({"c", *(call.id for call in llm.ask(LLMRequest(talk)).calls)}) == 3


def test_a_functions_faults_are_its_own(clock: object) -> None:
    def broken(messages: object, tools: object) -> str:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        CallableLLM(broken).ask(LLMRequest(START))
    steps: list[object] = [ConnectionError("x"), Transient("y"), "ok"]

    def flaky(messages: object, tools: object) -> object:
        step = steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    retry = clock.retry()  # type: ignore[attr-defined]
    assert CallableLLM(flaky, retry=retry, facts=ModelFacts()).ask(LLMRequest(START)).text == "ok"
