"""Reading what names a model: `provider`, `provider:model`, `provider:model@ADDRESS`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from m3b.config import read_config
from m3b.errors import UsageError

from . import keys, model_catalog
from .presets import PROVIDERS

RULES = "rules"

_VERSION_SUFFIX = re.compile(r"v?\d[\w-]*(?:\.\d+){0,2}|i?q\d\w*|(?:b?f|fp|int)\d+|latest|default", re.IGNORECASE)
"""What stands behind an @ that is a part of a model's own name: a date, a version, a quantisation."""


class ModelSpec(NamedTuple):
    """The parts of a spec; `model` is empty and `base_url` None if they are not given."""

    provider: str
    model: str
    base_url: str | None


def parse_spec(spec: str) -> ModelSpec:
    """Return the parts of a spec.

    Raises:
        UsageError: what follows an @ is no address that a request can be sent to.
    """
    match = re.fullmatch(r"(.*?)@(https?:.*)", spec.strip(), re.DOTALL)
    if match:
        provider, _, model = match[1].partition(":")
        return ModelSpec(provider.strip().lower(), model.strip(), _validate_address(match[2], spec))
    provider, colon, model = (part.strip() for part in spec.partition(":"))
    model_part = model if colon and "@" not in provider else spec.strip()
    before, separator, suffix = model_part.rpartition("@")
    if separator and (model_part is not model or not before or not _VERSION_SUFFIX.fullmatch(suffix)):
        raise UsageError(
            f"{quote_spec(spec)}: {quote_spec(suffix)} is no address. Write it in full, e.g."
            f" {provider.partition('@')[0] or 'openai'}:{before if model_part is model and before else 'MODEL'}"
            "@http://127.0.0.1:1234/v1."
        )
    return ModelSpec(provider.lower(), model, None)


def _validate_address(address: str, spec: str) -> str:
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, half an IPv6 address
        is_valid = False
    if not is_valid or re.search(r"\s", address):
        raise UsageError(
            f"{quote_spec(spec)}: {quote_spec(address)} is no address. Write scheme, host and port, e.g. http://127.0.0.1:1234/v1."
        )
    return address


def quote_spec(spec: str) -> str:
    """Return a spec as an error may show it: without the name and password of an address."""
    return repr(re.sub(r"//[^/\s]*@", "//", spec))


def resolve_model(spec: str, provider: str, base_url: str | None) -> str:
    """Return the model that a spec without one takes: the provider's default, or the one that its server serves.

    Raises:
        UsageError: there is no such model, or there are several.
    """
    from m3b.llm.model_list import list_models  # opens connections, which few starts need

    preset, address_suffix = PROVIDERS[provider], "" if base_url is None else f"@{keys.strip_credentials(base_url)}"
    if base_url is None and spec.strip().endswith(":"):  # as an empty variable leaves it
        raise UsageError(
            f"{quote_spec(spec)} names no model. Write {provider}:MODEL, or {provider} alone for its usual one."
        )
    if default := get_default_model(provider) if base_url is None else "":
        return default
    address = base_url or preset.base_url
    if address is None or preset.wire != "openai":
        raise UsageError(f"{quote_spec(spec)} names no model. Write {provider}:MODEL{address_suffix}.")
    served_models = list_models(provider, address, keys.find_key(preset.variables, base_url, provider))
    if len(served_models) == 1:
        return served_models[0]
    if not served_models:
        raise UsageError(
            f"{quote_spec(spec)} names no model, and the server at {keys.strip_credentials(address)} serves none. Load one there, or"
            f" name it: {provider}:MODEL{address_suffix}."
        )
    model_list = ", ".join(served_models[:10]) + (
        f" and {len(served_models) - 10} more" if len(served_models) > 10 else ""
    )
    raise UsageError(
        f"{quote_spec(spec)} names no model, and the server at {keys.strip_credentials(address)} has several: "
        f"{model_list}. Name one, e.g."
        f" {provider}:{served_models[0]}{address_suffix}."
    )


def get_default_model(provider: str) -> str:
    """Return the model that a provider's name alone stands for: of the file `M3B_MODELS`, else m3b's own choice; or none."""
    return model_catalog.find_user_default(provider) or PROVIDERS[provider].default


def find_provider_keys() -> dict[str, str]:
    """Return each provider whose key is in the environment, and the variable that holds it, in the order they are taken."""
    variable_by_provider = {}
    for name, provider in PROVIDERS.items():
        for variable in provider.variables:
            if os.environ.get(variable, "").strip():
                variable_by_provider[name] = variable
                break
    return variable_by_provider


def list_key_variables() -> tuple[str, ...]:
    """Return all variables that may hold the key of a provider or of a server."""
    variables = [variable for provider in PROVIDERS.values() for variable in provider.variables]
    return tuple(dict.fromkeys([*variables, keys.CUSTOM_SERVER_KEY_VARIABLE]))


def needs_key(spec: str) -> bool:
    """Return whether a model, or one of several between `|`, needs a key of a provider or of a server."""
    for part in spec.split("|"):
        name, _, base_url = parse_spec(part)
        if base_url is not None:
            if not keys.is_loopback(base_url):
                return True
        elif name in PROVIDERS and PROVIDERS[name].variables:
            return True
    return False


def choose_default_spec(data_folders: Iterable[Path] = ()) -> str:
    """Return what `connect(None)` connects to: the model in the user's configuration, else the rules.

    A key in the environment alone chooses nothing: what a run sends must have been asked for.

    Args:
        data_folders: see `m3b.config.read_config`.
    """
    return str(read_config(data_folders).get("llm") or RULES)


def describe_unused_keys(spec: str) -> str:
    """Return a sentence if the rules are used by default although keys of providers are set; else ''."""
    keys = find_provider_keys()
    if spec != RULES or not keys:
        return ""
    (provider, variable), *_ = keys.items()
    return (
        f"{variable} is set and was not used, since no model was named: `m3b config llm {provider}` names it for all runs, "
        f"--llm {provider} for one."
    )
