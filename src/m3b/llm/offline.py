"""Whether models of other machines are allowed at all, judged by the host of their address before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from m3b.errors import OfflineError, UsageError

from . import keys
from .base import LLM, spec_of
from .presets import PROVIDERS
from .specs import RULES, parse_spec, quote_spec

OFFLINE_VARIABLE = "M3B_OFFLINE"
"""Set to anything but nothing, 0, false or no, it forbids other machines to all that this environment starts."""

LOCAL_ALTERNATIVES = (
    f"With --offline (offline=True, {OFFLINE_VARIABLE}) there are {RULES}, a function of your own, or a server on this machine:"
    " PROVIDER:MODEL@http://127.0.0.1:PORT/v1."
)


def is_offline(offline: bool = False) -> bool:
    """Return whether other machines are forbidden, by the caller or by the environment."""
    return offline or os.environ.get(OFFLINE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def forbid_remote_models(models: Iterable[str | LLM | Callable[..., Any] | None]) -> None:
    """Refuse models that are asked over a network, members of fallback chains and recorded models included.

    A vendor's own address counts as another machine whatever `OPENAI_BASE_URL` says, and so does a provider of another
    package without an address. A function, or a model object of one's own, runs in this process: where it sends is for
    its author to know.

    Raises:
        OfflineError: one is.
        UsageError: a spec cannot be read.
    """
    for model in models:
        if isinstance(model, str):
            chain = model
        elif isinstance(model, LLM) and not isinstance(model, type):
            chain = spec_of(model)
        else:
            continue
        for spec in chain.split("|"):
            if host := _find_remote_host(spec, is_spec=isinstance(model, str)):
                raise OfflineError(
                    f"{quote_spec(spec.strip())} is served by {host}, and only this machine is allowed. {LOCAL_ALTERNATIVES}",
                    host,
                )


def _find_remote_host(spec: str, *, is_spec: bool) -> str:
    """Return the other machine that a spec without `|` names; empty for none.

    Args:
        is_spec: it was written as a spec; else it is what a model object calls itself, which may be no spec at all.
    """
    spec = spec.strip()
    if spec.startswith("replay:") or spec == RULES:
        return ""
    if spec.startswith("record:"):
        return _find_remote_host(spec.split(":", 2)[2] if spec.count(":") > 1 else "", is_spec=is_spec)
    try:
        provider, _, base_url = parse_spec(spec)
    except UsageError:
        if is_spec:
            raise
        return ""
    preset = PROVIDERS.get(provider)
    if preset is None and not is_spec:
        return ""
    address = base_url or (preset.base_url if preset else None)
    if address is None:
        return f"{provider}'s own address" if preset else f"an address that only the provider {provider!r} knows"
    return "" if keys.is_loopback(address) else urlsplit(address).hostname or address
