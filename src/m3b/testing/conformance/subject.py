"""What is tested: a way to make a model that talks to the test's server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from m3b.llm import registry
from m3b.llm.base import LLM
from m3b.llm.keys import Key
from m3b.llm.presets import PROVIDERS
from m3b.llm.retry import Retry
from m3b.llm.text_tools import adapt_tools

from .dialects import DIALECTS, Dialect

CANARY = "sk-canary-Zq7x0123456789abcdef"
"""The key with which a subject's model is to be made; it must turn up in its requests and nowhere else."""


@dataclass(frozen=True)
class Subject:
    """One provider.

    Args:
        name: what the table calls it.
        make: from the server's address (without a path), the patience and the time-out in seconds, a model that keeps
            to them and whose key is `CANARY`.
        dialect: how the server is to answer.
    """

    name: str
    make: Callable[[str, Retry, float], LLM]
    dialect: Dialect


def builtin_subjects() -> list[Subject]:
    """Every provider that m3b knows by name and reaches over a network, and OpenAI's second protocol."""
    subjects = [_make_subject(name, "m" if name != "openai" else "gpt-4o") for name in PROVIDERS]
    second = _make_subject("openai", "gpt-5-pro", DIALECTS["openai-responses"])
    subjects.insert(2, replace(second, name="openai (responses)"))
    return subjects


def _make_subject(name: str, model: str, dialect: Dialect | None = None) -> Subject:
    provider = PROVIDERS[name]

    def make(url: str, retry: Retry, timeout_s: float) -> LLM:
        path = "" if provider.wire == "anthropic" else "/v1"
        local_provider = replace(provider, base_url=url + path)
        key = Key(CANARY, (*provider.variables, "M3B_API_KEY")[0])
        llm = registry.open_provider(name, model, retry=retry, timeout_s=timeout_s, provider=local_provider, key=key)
        return adapt_tools(llm, "auto", repairs=name not in registry.NATIVE_TOOL_PROVIDERS)

    return Subject(name, make, dialect or DIALECTS[provider.wire])
