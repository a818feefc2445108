"""A survey of a data folder that nobody prepared: what is there, what it holds, and what belongs together.

`survey(root)` looks once, within limits, and states facts (`m3b.data.survey.facts`, `table_facts`, `relations`); it
decides nothing. Nothing here knows a particular data set, and nothing that a file holds can make it fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.data.survey.cache import cached_survey
    from m3b.data.survey.engine import survey
    from m3b.data.survey.facts import SurveyLimits
    from m3b.data.survey.relations import Survey

__all__ = ["SurveyLimits", "Survey", "cached_survey", "survey"]
_HOME = {"SurveyLimits": "facts", "Survey": "relations", "cached_survey": "cache", "survey": "engine"}


def __getattr__(name: str) -> Any:
    """The public names, imported when they are used: pydantic and numpy are heavy."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
