"""What is known of a model by its name: `models.json`, and the file that `M3B_MODELS` names over it."""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from m3b.errors import UsageError

from .base import ModelFacts

CATALOG_VARIABLE = "M3B_MODELS"

MAX_REPLY_TOKENS = 32_000
"""Tokens of output that m3b asks for at most: enough for any file an agent writes, and done within a time-out."""

_DATE_SUFFIX = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_FIELDS = {
    "window": "window", "max_output": "max_output", "in": "price_in", "cached": "price_cached",
    "cache_write": "price_cache_write", "out": "price_out", "tools": "tools", "vision": "vision", "wire": "wire",
}  # fmt: skip
_REMARKS = ("why", "ended")
_UNPRICED: dict[str, Any] = {
    "price_in": None, "price_cached": None, "price_out": None, "price_cache_write": None, "wire": "",
}  # fmt: skip
_SECTIONS = ("models", "defaults", "as_of", "note")
"""Sections of a file of models."""
_warned: set[str] = set()


def look_up(provider: str, model: str, *, priced: bool = True, default: ModelFacts | None = None) -> ModelFacts:
    """Return the facts of a model.

    Looked for as `provider:model`, then `model`, each as given and then without a date at its end or an owner before a
    slash. A model that is nowhere gets careful guesses, and a warning, once; so does one that its vendor has ended.

    Args:
        provider: e.g. `openai`.
        model: its name there.
        priced: False if another server than the provider's answers, whose prices nobody here knows.
        default: what to guess of a model that is nowhere; 128k of window and 8k of output if not given.

    Raises:
        UsageError: the file that `M3B_MODELS` names cannot be used.
    """
    user_models = _load_user_models(os.environ.get(CATALOG_VARIABLE, ""))
    for name in _list_candidate_names(provider, model):
        if name in user_models:
            return _to_facts(user_models[name])
        if name in _load_shipped_models():
            entry = _load_shipped_models()[name]
            facts = _to_facts(entry)
            if priced and entry.get("ended", "9999") <= datetime.now(UTC).date().isoformat():
                _warn_once(provider, model, f"its vendor ended it on {entry['ended']}. Newer ones are in docs/llm.md.")
            return facts if priced else replace(facts, **_UNPRICED)
    default_facts = default or ModelFacts(known=False)
    _warn_once(
        provider,
        model,
        f"it is not in m3b's list of models: a window of {default_facts.window} tokens and {default_facts.max_output} of output are"
        f" assumed, its price is unknown, and a cost limit cannot hold it. Name a JSON file in {CATALOG_VARIABLE} to say better"
        " (docs/llm.md).",
    )
    return default_facts


def suggest_specs(model: str) -> list[str]:
    """Return `provider:model` for a listed model whose name was given without its provider."""
    lower_name = model.strip().lower()
    return [
        name for name in _load_shipped_models() if name.partition(":")[2] == lower_name and not name.startswith("any:")
    ]


def _warn_once(provider: str, model: str, message: str) -> None:
    """Warn, once for each model."""
    if (name := f"{provider}:{model}") not in _warned:
        _warned.add(name)
        logging.getLogger("m3b.llm").warning("%s: %s", name, message)


def _list_candidate_names(provider: str, model: str) -> list[str]:
    undated_name = _DATE_SUFFIX.sub("", model)
    base_name = undated_name.rsplit("/", 1)[-1]
    names = [candidate for name in (model, undated_name, base_name) for candidate in (f"{provider}:{name}", name)]
    if "/" in undated_name:  # owner/model, as relays write it
        names.append(f"{undated_name.rsplit('/', 2)[-2]}:{base_name}")
    return list(dict.fromkeys(name.lower() for name in names))


def _read_catalog_text() -> str:
    return Path(__file__).with_name("models.json").read_text("utf-8")


@cache
def _load_shipped_models() -> dict[str, dict[str, Any]]:
    models = {name.lower(): facts for name, facts in json.loads(_read_catalog_text())["models"].items()}
    # Open models are served by many; the provider in the key is then the one whose prices they are.
    return models | {name.split(":", 1)[1]: facts for name, facts in models.items() if name.startswith("any:")}


def find_user_default(provider: str) -> str:
    """Return the model that the file of `M3B_MODELS` gives a provider's name alone, below `defaults`; empty without one.

    Raises:
        UsageError: the file cannot be used.
    """
    path = os.environ.get(CATALOG_VARIABLE, "")
    data = _load_json(path) if path else {}
    defaults = data.get("defaults", {}) if isinstance(data, dict) else {}
    if not isinstance(defaults, dict) or not all(
        isinstance(model, str) and model.strip() for model in defaults.values()
    ):
        raise UsageError(
            f'{CATALOG_VARIABLE}={path}: "defaults" must be an object of texts, e.g. {{"openai": "gpt-5.4"}}.'
        )
    return str(defaults.get(provider, "")).strip()


def _load_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{CATALOG_VARIABLE}={path}: {error}. Name a JSON file like src/m3b/llm/models.json."
        ) from error


def _load_user_models(path: str) -> dict[str, dict[str, Any]]:
    if not path:
        return {}
    data = _load_json(path)
    has_sections = isinstance(data, dict) and ("models" in data or "defaults" in data)
    unknown_sections = sorted(set(data) - set(_SECTIONS)) if has_sections else []
    if unknown_sections:
        raise UsageError(
            f"{CATALOG_VARIABLE}={path}: there is no section {unknown_sections[0]!r}."
            f"{_suggest(unknown_sections[0], _SECTIONS)} Sections: {', '.join(_SECTIONS)}."
        )
    models = data.get("models", {}) if has_sections else data
    if not isinstance(models, dict):
        raise UsageError(
            f'{CATALOG_VARIABLE}={path}: no JSON object of models. Write {{"provider:model": {{"window": 128000}}}}.'
        )
    for name, facts in models.items():
        if not isinstance(facts, dict):
            raise UsageError(
                f"{CATALOG_VARIABLE}={path}: {name!r} must be an object of {', '.join(_FIELDS)}; it is {facts!r}."
            )
        if unknown_keys := [key for key in facts if key not in (*_FIELDS, *_REMARKS)]:
            raise UsageError(
                f"{CATALOG_VARIABLE}={path}: {name!r} has an unknown key {unknown_keys[0]!r}."
                f"{_suggest(unknown_keys[0], _FIELDS)} Keys: {', '.join(_FIELDS)}."
            )
        if invalid_keys := [key for key in facts if not _is_valid_value(key, facts[key])]:
            raise UsageError(
                f"{CATALOG_VARIABLE}={path}: {name!r}: {invalid_keys[0]} is {facts[invalid_keys[0]]!r}. window and "
                f"max_output are whole numbers"
                " above 0, prices are numbers, tools and vision are true or false."
            )
    return {name.lower(): facts for name, facts in models.items()}


def _suggest(word: str, names: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word, names, 1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def _is_valid_value(key: str, value: Any) -> bool:
    if key in ("tools", "vision"):
        return isinstance(value, bool)
    if key in ("wire", *_REMARKS):
        return isinstance(value, str)
    if key in ("window", "max_output"):
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)


def _to_facts(entry: dict[str, Any]) -> ModelFacts:
    fields = {_FIELDS[key]: value for key, value in entry.items() if key in _FIELDS}
    facts = ModelFacts(**fields)
    reply_limit = min(facts.max_output, MAX_REPLY_TOKENS, max(1, facts.window // 4))
    return ModelFacts(**{**fields, "max_output": reply_limit})
