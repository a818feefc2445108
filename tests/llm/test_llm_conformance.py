"""Every provider keeps every promise; the table in the documentation says so; a third party can run the suite."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from m3b.llm import LLM, PROVIDERS, LLMRequest, ModelFacts, Retry, registry
from m3b.llm.keys import Key
from m3b.messages import Reply
from m3b.testing.conformance import (
    BEHAVIOURS,
    CANARY,
    DIALECTS,
    Behaviour,
    Outcome,
    Subject,
    builtin_subjects,
    format_table,
    run_conformance,
)
from m3b.testing.conformance.__main__ import main

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"
SUBJECTS = {subject.name: subject for subject in builtin_subjects()}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("M3B_API_KEY", "M3B_MODELS", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    logging.getLogger("m3b.llm").setLevel(logging.ERROR)


@pytest.fixture(autouse=True, scope="module")
def loud_again() -> Any:
    yield
    logging.getLogger("m3b.llm").setLevel(logging.NOTSET)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
@pytest.mark.parametrize("name", ["anthropic", "openai", "openai (responses)"])
def test_the_wires(name: str, behaviour: Behaviour) -> None:
    behaviour.check(SUBJECTS[name])


PRESETS = [name for name in SUBJECTS if not name.startswith(("openai", "anthropic"))]
QUICK = ("text", "parallel_calls", "rate_limit_with_seconds", "dropped", "bad_key", "overflow", "key_is_nowhere")


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets(name: str) -> None:
    """They share the wire; what may differ is the request, the key and the errors' words."""
    for behaviour in BEHAVIOURS:
        if str(behaviour) in QUICK:
            behaviour.check(SUBJECTS[name])


@pytest.mark.slow
def test_the_table_is_true() -> None:
    assert format_table(run_conformance(builtin_subjects())) == TABLE.read_text(encoding="utf-8")


def test_the_table_names_everything_and_nothing_broken() -> None:
    outcomes = [Outcome(name, behaviour, "yes") for name in SUBJECTS for behaviour in BEHAVIOURS]
    assert TABLE.read_text(encoding="utf-8") == format_table(outcomes)


# --- a third party ---------------------------------------------------------------------------------------------------


def make_custom_provider(url: str, retry: Retry, timeout_s: float) -> LLM:
    facts = ModelFacts(window=8000, max_output=500)
    key = Key(CANARY, "THEIR_API_KEY")
    return registry.open_provider(
        "theirs", "m", url, retry, timeout_s, provider=PROVIDERS["vllm"], key=key, facts=facts
    )


class Careless:
    """A provider that keeps no promise: it says something whatever it is asked."""

    name = "careless"
    facts = ModelFacts()

    def __init__(self, url: str, retry: Retry, timeout_s: float) -> None:
        self.key = CANARY

    def ask(self, request: LLMRequest) -> Reply:
        return Reply("hello", model="careless")


GOOD = Subject("theirs", make_custom_provider, DIALECTS["openai"])
CARELESS = Subject("careless", Careless, DIALECTS["openai"])


def test_a_third_party_runs_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = run_conformance([GOOD])
    assert {outcome.mark for outcome in outcomes} == {"yes"}, [o for o in outcomes if o.mark != "yes"]


def test_broken_promises_are_found_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = run_conformance([CARELESS])
    passed = {str(outcome.behaviour) for outcome in outcomes if outcome.mark == "yes"}
    assert passed == {"text"}
    assert "- careless, 401 fails at once" in format_table(outcomes)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    file = tmp_path / "table.md"
    assert main([f"{__name__}:CARELESS", "--write", str(file)]) == 1
    assert "## Broken" in file.read_text()
    with pytest.raises(SystemExit, match="not m3b"):
        main([f"{__name__}:QUICK"])


def test_the_server_is_loopback_only() -> None:
    from m3b.testing.conformance import Server

    with Server() as server:
        assert server.url.startswith("http://127.0.0.1:")


def test_no_behaviour_is_listed_twice() -> None:
    names = [str(behaviour) for behaviour in BEHAVIOURS]
    assert len(set(names)) == len(names) >= 30
    assert all(isinstance(behaviour, Behaviour) for behaviour in BEHAVIOURS)
