"""From `provider:model` to a model that can be asked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from m3b.errors import WrongUse

from . import keys
from .base import LLM
from .callable import CallableLLM

GROUP = "m3b.llm"
"""The entry point group in which other packages offer a provider: `factory(model, base_url) -> LLM`."""

RULES = "rules"


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider.

    Args:
        wire: `openai` or `anthropic`, the protocol it speaks.
        variables: where its key usually is; empty where it needs none.
        base_url: its address where that is not the wire's own.
        default: the model that is used when the user names none.
    """

    wire: str
    variables: tuple[str, ...] = ()
    base_url: str | None = None
    default: str = ""


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider("anthropic", ("ANTHROPIC_API_KEY",), default="claude-sonnet-5-5"),
    "openai": Provider("openai", ("OPENAI_API_KEY",), default="gpt-5.4"),
    "gemini": Provider(
        "openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "https://generativelanguage.googleapis.com/v1beta/openai/"
    ),
    "deepseek": Provider("openai", ("DEEPSEEK_API_KEY",), "https://api.deepseek.com"),
    "qwen": Provider("openai", ("DASHSCOPE_API_KEY",), "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    "openrouter": Provider("openai", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
    "ollama": Provider("openai", (), "http://127.0.0.1:11434/v1"),
    "vllm": Provider("openai", (), "http://127.0.0.1:8000/v1"),
}


def connect(spec: str | LLM | Callable[..., Any] | None = None) -> LLM:
    """The model that `spec` names.

    Args:
        spec: `provider:model`, or `provider:model@BASE_URL` for a server that speaks the provider's protocol; `rules`
            for the embedded core; an `LLM` as it is; any function of `(messages, tools)`; None for the first provider
            whose usual key variable is set, and `rules` where none is.

    Raises:
        WrongUse: no such provider, or no model named.
        Authentication: the key is missing.
    """
    if spec is None:
        spec = default_spec()
    if not isinstance(spec, str):
        if isinstance(spec, LLM) and not isinstance(spec, type):
            return spec
        if callable(spec) and not isinstance(spec, type):
            return CallableLLM(spec)
        raise WrongUse(f"{spec!r} is no language model. Give 'provider:model', 'rules', an LLM object or a function.")
    if spec.strip() == RULES:
        from m3b.llm.rules import Rules

        rules: LLM = Rules()
        return rules
    name, model, base_url = _parts(spec)
    if name not in PROVIDERS:
        return _third_party(spec, name, model, base_url)
    if not model:
        raise WrongUse(
            f"{spec!r} names no model. Write provider:model, e.g. {name}:{PROVIDERS[name].default or 'MODEL'}."
        )
    return _open(name, PROVIDERS[name], model, base_url)


def _parts(spec: str) -> tuple[str, str, str | None]:
    """Provider, model and address; the last two may be missing."""
    provider, _, rest = spec.strip().partition(":")
    model, at, address = rest.rpartition("@")
    if not at:
        return provider.lower(), rest.strip(), None
    if re.fullmatch(r"https?://[^\s/]+\S*", address):
        return provider.lower(), model.strip(), address
    if re.search(r"[:/]|^localhost", address):
        raise WrongUse(f"{spec!r}: {address!r} is no address. Write it in full, e.g. @http://127.0.0.1:1234/v1.")
    return provider.lower(), rest.strip(), None  # a model may have an @ in its own name


def default_spec() -> str:
    """What `connect(None)` connects to."""
    for name, provider in PROVIDERS.items():
        if provider.default and any(os.environ.get(variable, "").strip() for variable in provider.variables):
            return f"{name}:{provider.default}"
    return RULES


def _open(name: str, provider: Provider, model: str, base_url: str | None) -> LLM:
    key = keys.find(provider.variables, base_url, name)
    address = base_url or provider.base_url
    if provider.wire == "anthropic":
        from .anthropic import Anthropic

        return Anthropic(model, base_url=address, key=key, provider=name)
    from .openai import OpenAI

    return OpenAI(model, base_url=address, key=key, provider=name)


def _third_party(spec: str, name: str, model: str, base_url: str | None) -> LLM:
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name not in others:
        known = ", ".join([*PROVIDERS, RULES, *sorted(others)])
        raise WrongUse(
            f"{spec!r}: no provider {name!r}. There are: {known}. Write provider:model, or"
            " openai:MODEL@http://HOST:PORT/v1 for any server that speaks the OpenAI protocol."
        )
    made = others[name].load()(model, base_url)
    if not isinstance(made, LLM):
        raise WrongUse(
            f"The entry point {name!r} of {GROUP!r} made {type(made).__name__}, which is no LLM (name, facts, ask)."
        )
    return made
