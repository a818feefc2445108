"""What is known of a model by its name: `models.json`, and the file that `M3B_MODELS` names over it."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from m3b.errors import UsageError

from .base import ModelFacts

CATALOG_VARIABLE = "M3B_MODELS"

MAX_REPLY_TOKENS = 32_000
"""Tokens of output that m3b asks for at most: enough for any file an agent writes, and done within a time-out."""

_DATE_SUFFIX = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_UNPRICED: dict[str, Any] = {
    "price_in": None, "price_cached": None, "price_out": None, "price_cache_write": None, "wire": "",
}  # fmt: skip
_warned: set[str] = set()


class CatalogEntry(BaseModel):
    """A model in the list: fields of `ModelFacts`, prices under shorter names, and remarks that nothing reads but people."""

    model_config = ConfigDict(extra="forbid", strict=True)

    window: int = Field(128_000, gt=0)
    max_output: int = Field(8_192, gt=0)
    price_in: float | None = Field(None, alias="in", ge=0)
    price_cached: float | None = Field(None, alias="cached", ge=0)
    price_cache_write: float | None = Field(None, alias="cache_write", ge=0)
    price_out: float | None = Field(None, alias="out", ge=0)
    tools: bool = True
    vision: bool = False
    wire: str = ""
    why: str = ""
    ended: str = "9999"
    """The day on which its vendor ended it."""

    def to_facts(self) -> ModelFacts:
        """Return the facts; a reply may hold a quarter of the window."""
        facts = ModelFacts(**self.model_dump(exclude={"why", "ended"}))
        return replace(facts, max_output=min(facts.max_output, MAX_REPLY_TOKENS, max(1, facts.window // 4)))


class Catalog(BaseModel):
    """A list of models.

    Args:
        models: by `provider:model` or `model`.
        defaults: the model that a provider's name alone takes.
    """

    models: dict[str, CatalogEntry] = {}
    defaults: dict[str, Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]] = {}


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
    user_models = {name.lower(): entry for name, entry in _load_user_catalog().models.items()}
    for name in _list_candidate_names(provider, model):
        if name in user_models:
            return user_models[name].to_facts()
        if name in _load_shipped_models():
            entry = CatalogEntry.model_validate(_load_shipped_models()[name])
            facts = entry.to_facts()
            if priced and entry.ended <= datetime.now(UTC).date().isoformat():
                _warn_once(provider, model, f"its vendor ended it on {entry.ended}. Newer ones are in docs/llm.md.")
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


def get_catalog_date() -> str:
    """Return the day on which the shipped list was last true."""
    return str(json.loads(_read_catalog_text())["as_of"])


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
    return _load_user_catalog().defaults.get(provider, "")


def _load_user_catalog() -> Catalog:
    path = os.environ.get(CATALOG_VARIABLE, "")
    if not path:
        return Catalog()
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        has_sections = isinstance(data, dict) and ("models" in data or "defaults" in data)
        return Catalog.model_validate(data if has_sections else {"models": data})
    except ValidationError as error:
        problem = error.errors()[0]
        location = ".".join(map(str, problem["loc"]))
        raise UsageError(
            f"{CATALOG_VARIABLE}={path}: {location} is {problem['input']!r}. {problem['msg']}. The form is that of"
            " src/m3b/llm/models.json."
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{CATALOG_VARIABLE}={path}: {error}. Name a JSON file like src/m3b/llm/models.json."
        ) from error
