"""The keys of a data card's JSON object: their types, other spellings, and what is said of a value that does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from m3b.errors import DataError

MUST_BE = {
    "dimension": "2 or 3",
    "acceptable": "[lowest, highest or null]",
    "classes": "a list of names",
}
"""Of the keys that are no text."""


def _spellings(key: str) -> tuple[str, ...]:
    """Those with a blank or an underscore are of the M3Builder cards."""
    return key, f"dataset {key}", f"dataset_{key}"


Range = tuple[float, float | None]


def _pair(value: Any) -> Any:
    """One bound alone is the lower one."""
    if isinstance(value, list | tuple):
        return (*value, None) if len(value) == 1 else tuple(value)
    return value if value is None else (value, None)


def _rising(value: Range | None) -> Range | None:
    if value is not None and value[1] is not None and value[1] < value[0]:
        raise ValueError("the highest is below the lowest")
    return value


def _number(value: Any) -> Any:
    """`"3D"` is 3."""
    match = re.fullmatch(r"([23])\s*[dD]?", value.strip()) if isinstance(value, str) else None
    return int(match.group(1)) if match else None if value == "" else value


def _names(value: Any) -> Any:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else () if value is None else value


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class CardFields(BaseModel):
    """What `m3b.data.cards.parse_card` makes a card of."""

    model_config = ConfigDict(
        strict=True, str_strip_whitespace=True, loc_by_alias=False, frozen=True, allow_inf_nan=False
    )

    name: str = Field(min_length=1, validation_alias=AliasChoices(*_spellings("name")))
    description: str = Field(validation_alias=AliasChoices(*_spellings("description")))
    path: Text = Field("", validation_alias=AliasChoices(*_spellings("path")))
    task: Text = ""
    modality: Text = ""
    anatomy: Text = ""
    dimension: Annotated[Literal[2, 3] | None, BeforeValidator(_number)] = None
    metric: Text = ""
    acceptable: Annotated[Range | None, AfterValidator(_rising), BeforeValidator(_pair)] = None
    patient_key: Text = ""
    classes: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()


def fields_of(raw: Mapping[str, Any]) -> CardFields:
    """The fields of a card's object.

    Raises:
        DataError: every key that is missing or does not fit, with what it must be and what was found.
    """
    try:
        return CardFields.model_validate(dict(raw))
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault for fault in error.errors()}
    if "name" in wrong:
        raise DataError(f"A data card needs a `name`; found the keys {sorted(map(str, raw))}.")
    name = _find_value("name", raw).strip()
    if "description" in wrong:
        raise DataError(f"The data card {name!r} needs a `description` in free text.")
    problems = [
        f"`{key}` must be {MUST_BE.get(key, 'text')}; found {repr(_find_value(key, raw))[:80]}" for key in wrong
    ]
    raise DataError(f"The data card {name!r} cannot be used: {'. '.join(problems)}.")


def _find_value(key: str, raw: Mapping[str, Any]) -> Any:
    return next(raw[spelling] for spelling in _spellings(key) if spelling in raw)
