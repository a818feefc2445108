"""Reading what names a model: `provider`, `provider:model`, `provider:model@ADDRESS`."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from m3b.errors import WrongUse

from . import keys, model_catalog
from .presets import PROVIDERS

RULES = "rules"

_OWN_AT = re.compile(r"v?\d[\w-]*(?:\.\d+){0,2}|i?q\d\w*|(?:b?f|fp|int)\d+|latest|default", re.IGNORECASE)
"""What stands behind an @ that is a part of a model's own name: a date, a version, a quantisation."""


class Spec(NamedTuple):
    """The parts of a spec; `model` is empty and `base_url` None where they are not given."""

    provider: str
    model: str
    base_url: str | None


def parse(spec: str) -> Spec:
    """The parts of a spec.

    Raises:
        WrongUse: what follows an @ is no address that a request can be sent to.
    """
    addressed = re.fullmatch(r"(.*?)@(https?:.*)", spec.strip(), re.DOTALL)
    if addressed:
        provider, _, model = addressed[1].partition(":")
        return Spec(provider.strip().lower(), model.strip(), _checked(addressed[2], spec))
    provider, colon, model = (part.strip() for part in spec.partition(":"))
    inside = model if colon and "@" not in provider else spec.strip()
    before, at, end = inside.rpartition("@")
    if at and (inside is not model or not before or not _OWN_AT.fullmatch(end)):
        raise WrongUse(
            f"{shown(spec)}: {shown(end)} is no address. Write it in full, e.g."
            f" {provider.partition('@')[0] or 'openai'}:{before if inside is model and before else 'MODEL'}"
            "@http://127.0.0.1:1234/v1."
        )
    return Spec(provider.lower(), model, None)


def _checked(address: str, spec: str) -> str:
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, half an IPv6 address
        good = False
    if not good or re.search(r"\s", address):
        raise WrongUse(
            f"{shown(spec)}: {shown(address)} is no address. Write scheme, host and port, e.g. http://127.0.0.1:1234/v1."
        )
    return address


def shown(spec: str) -> str:
    """A spec as an error may show it: without the name and password of an address."""
    return repr(re.sub(r"//[^/\s]*@", "//", spec))


def model_of(spec: str, provider: str, base_url: str | None) -> str:
    """The model that a spec without one takes: the provider's default, or the one that its server serves.

    Raises:
        WrongUse: there is no such model, or there are several.
    """
    from . import served  # opens connections, which few starts need

    known, given = PROVIDERS[provider], "" if base_url is None else f"@{served.plain(base_url)}"
    if base_url is None and spec.strip().endswith(":"):  # as an empty variable leaves it
        raise WrongUse(f"{shown(spec)} names no model. Write {provider}:MODEL, or {provider} alone for its usual one.")
    if default := default_model(provider) if base_url is None else "":
        return default
    address = base_url or known.base_url
    if address is None or known.wire != "openai":
        raise WrongUse(f"{shown(spec)} names no model. Write {provider}:MODEL{given}.")
    found = served.models(provider, address, keys.find(known.variables, base_url, provider))
    if len(found) == 1:
        return found[0]
    if not found:
        raise WrongUse(
            f"{shown(spec)} names no model, and the server at {served.plain(address)} serves none. Load one there, or"
            f" name it: {provider}:MODEL{given}."
        )
    many = ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    raise WrongUse(
        f"{shown(spec)} names no model, and the server at {served.plain(address)} has several: {many}. Name one, e.g."
        f" {provider}:{found[0]}{given}."
    )


def default_model(provider: str) -> str:
    """The model that a provider's name alone stands for: of the file `M3B_MODELS`, else m3b's own choice; or none."""
    return model_catalog.own_default(provider) or PROVIDERS[provider].default


def keys_set() -> dict[str, str]:
    """Each provider whose key is in the environment, and the variable that holds it, in the order they are taken."""
    found = {}
    for name, provider in PROVIDERS.items():
        for variable in provider.variables:
            if os.environ.get(variable, "").strip():
                found[name] = variable
                break
    return found


def default_spec() -> str:
    """What `connect(None)` connects to: the first provider whose key is set, else the rules."""
    return next((f"{name}:{default_model(name)}" for name in keys_set()), RULES)
