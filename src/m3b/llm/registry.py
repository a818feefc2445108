"""From `provider:model` to a model that can be asked."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from m3b.errors import UsageError

from . import keys, model_catalog, offline
from .base import LLM, ModelFacts
from .callable import CallableLLM
from .fallback import FallbackLLM
from .presets import PROVIDERS, Provider
from .provider import ProviderLLM
from .retry import Retry
from .specs import RULES, choose_default_spec, parse_spec, quote_spec, resolve_model
from .text_calls import RepairingLLM
from .wire import Wire
from .wire_anthropic import AnthropicWire
from .wire_chat import ChatWire
from .wire_responses import ResponsesWire

ToolMode = Literal["auto", "native"]
"""See `connect`."""

ENTRY_POINT_GROUP = "m3b.llm"
"""The entry point group in which other packages offer a provider: `factory(model, base_url) -> LLM`."""

NATIVE_TOOL_PROVIDERS = ("anthropic", "openai")
"""Providers whose models, at their own address, call tools by the protocol or not at all."""


IMPATIENT_RETRY = Retry(total_s=60.0)
"""How long a model is waited for that another one can replace."""


def connect(
    spec: str | LLM | Callable[..., Any] | None = None,
    *,
    fallback: str | LLM | Callable[..., Any] | None = None,
    tools: ToolMode = "auto",
    local_only: bool = False,
) -> LLM:
    """Return the model that `spec` names.

    Args:
        spec: `provider:model`; `provider` alone for its default model, or for the one that a server on this machine
            serves; `provider:model@BASE_URL` for a server that speaks the provider's protocol; `rules` for the
            embedded core; an `LLM` as it is; any function of `(messages, tools)`; None for the model in the user's
            configuration (`m3b config llm`), and `rules` without one. `first|second` names a model that takes over when the
            first one fails for good. `record:FILE:SPEC` also writes down what is said, and `replay:FILE` says it again
            (see `m3b.llm.recording`).
        fallback: the same as `first|second`, for what is not written as one text.
        tools: `auto` also takes calls that a model other than OpenAI's and Anthropic's own wrote into its text;
            `native` takes calls by the provider's protocol alone.
        local_only: refuse whatever another machine serves, as `M3B_OFFLINE` does; see `m3b.llm.offline.forbid_remote_models`.

    Raises:
        UsageError: no such provider, no model named, or a model of another machine where none is allowed.
        Authentication: the key is missing.
    """
    local_only = offline.is_offline(local_only)
    if spec is None:
        spec = RULES if local_only else choose_default_spec()
    if local_only:
        offline.forbid_remote_models((spec, fallback))
    if isinstance(spec, str) and spec.strip().startswith(("record:", "replay:")):
        from .recording import open_recording

        return open_recording(spec.strip(), partial(connect, fallback=fallback, tools=tools, local_only=local_only))
    first, *fallback_specs = spec.split("|") if isinstance(spec, str) else (spec,)
    if fallback is not None:
        fallback_specs = [*fallback_specs, *(fallback.split("|") if isinstance(fallback, str) else (fallback,))]
    if not fallback_specs:
        return _connect(first, None, tools)
    earlier_models = [_connect(candidate, IMPATIENT_RETRY, tools) for candidate in (first, *fallback_specs[:-1])]
    return FallbackLLM([*earlier_models, _connect(fallback_specs[-1], None, tools)])


def _connect(spec: str | LLM | Callable[..., Any], retry: Retry | None, tools: ToolMode) -> LLM:
    if not isinstance(spec, str):
        if isinstance(spec, LLM) and not isinstance(spec, type):
            return _require_tools(spec)
        if callable(spec) and not isinstance(spec, type):
            return CallableLLM(spec)
        raise UsageError(f"{spec!r} is no language model. Give 'provider:model', 'rules', an LLM object or a function.")
    if spec.strip() == RULES:
        from m3b.llm.rules import RulesLLM

        rules: LLM = RulesLLM()
        return rules
    name, model, base_url = parse_spec(spec)
    if name not in PROVIDERS:
        return _require_tools(_connect_plugin(spec, name, model, base_url))
    if not model:
        model = resolve_model(spec, name, base_url)
    llm = _require_tools(open_provider(name, model, base_url, retry))
    return llm if tools == "native" or (base_url is None and name in NATIVE_TOOL_PROVIDERS) else RepairingLLM(llm)


def _require_tools(llm: LLM) -> LLM:
    """Return the model, if it takes tool definitions.

    Raises:
        UsageError: its facts say that it takes none; m3b's agents work by tools alone.
    """
    if not llm.facts.tools:
        raise UsageError(
            f'{llm.name} takes no tool definitions (its facts say "tools": false), and agents work by calling tools. Name'
            " another model, or correct its facts (docs/llm.md)."
        )
    return llm


def open_provider(
    name: str,
    model: str,
    base_url: str | None = None,
    retry: Retry | None = None,
    timeout_s: float = 600.0,
    *,
    provider: Provider | None = None,
    key: keys.Key | None = None,
    facts: ModelFacts | None = None,
) -> LLM:
    """Return a model of a provider that speaks one of m3b's wires.

    Args:
        base_url: another server that speaks this provider's protocol, but has none of its peculiarities.
        retry: how patient to be.
        timeout_s: seconds without a byte after which a request counts as lost.
        provider: what to know of it; of `PROVIDERS` if not given.
        key: looked for in the environment if not given.
        facts: looked up if not given.

    Raises:
        Authentication: the key is missing.
    """
    provider = provider or PROVIDERS[name]
    if facts is None:
        default_facts = ModelFacts(provider.window, provider.max_output, known=False)
        facts = model_catalog.look_up(name, model, priced=base_url is None, default=default_facts)
    full_name, address = f"{name}:{model}", base_url or provider.base_url
    wire: Wire
    if provider.wire == "anthropic":
        wire = AnthropicWire(model, full_name)
    elif facts.wire == "responses":
        wire = ResponsesWire(model, full_name)
    else:
        peculiarities: dict[str, Any] = {"limit": provider.limit, "extra": provider.extra} if base_url is None else {}
        wire = ChatWire(model, full_name, is_openai=address is None, **peculiarities)
    return ProviderLLM(
        wire,
        key=key or keys.find_key(provider.variables, base_url, name),
        facts=facts,
        base_url=address,
        retry=retry,
        timeout_s=timeout_s,
        spec=_format_spec(name, model, base_url),
    )


def _format_spec(name: str, model: str, base_url: str | None) -> str:
    """Return what `connect` makes the same model again from; without the name and password that an address may hold."""
    if base_url is None:
        return f"{name}:{model}"
    scheme, _, host_and_path = base_url.partition("://")
    authority, slash, path = host_and_path.partition("/")
    return f"{name}:{model}@{scheme}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def find_entry_points(group: str) -> Any:
    """Return what installed packages offer; imported here, since reading their metadata is slow to load and rarely needed."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def check_provider(spec: str) -> None:
    """Check that the providers of a spec exist; nothing is opened, and no key is looked for.

    Raises:
        UsageError: a provider does not exist, or an address is none.
    """
    for part in spec.split("|"):
        name, _, _ = parse_spec(part)
        if part.strip() == RULES or name in PROVIDERS:
            continue
        if name not in {point.name for point in find_entry_points(group=ENTRY_POINT_GROUP)}:
            _connect_plugin(part, name, "", None)


def _connect_plugin(spec: str, name: str, model: str, base_url: str | None) -> LLM:
    plugins = {point.name: point for point in find_entry_points(group=ENTRY_POINT_GROUP)}
    if name not in plugins and " " in spec.strip() and ":" not in spec:
        raise UsageError(
            f"{quote_spec(spec)} is no language model. The request goes to run(): Pipeline(data=...).run({spec.strip()!r})."
        )
    if name not in plugins:
        providers = [*PROVIDERS, RULES, *sorted(plugins)]
        similar_specs = model_catalog.suggest_specs(spec) or difflib.get_close_matches(name.lower(), providers, 1)
        suggestions = "".join(f" Did you mean {similar_spec}?" for similar_spec in similar_specs)
        raise UsageError(
            f"{quote_spec(spec)}: no provider {name!r}.{suggestions} There are: {', '.join(providers)}. Write provider:model, or"
            " openai:MODEL@http://HOST:PORT/v1 for any server that speaks the OpenAI protocol."
        )
    plugin_llm = plugins[name].load()(model, base_url)
    if not isinstance(plugin_llm, LLM):
        raise UsageError(
            f"The entry point {name!r} of {ENTRY_POINT_GROUP!r} made {type(plugin_llm).__name__}, which is no LLM (name, facts, ask)."
        )
    return plugin_llm
