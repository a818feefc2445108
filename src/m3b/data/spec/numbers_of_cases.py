"""The parts of a reading that are numbers of a case: what is measured, a time to an event, what is given beside the image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from m3b.data.spec.value_sources import SpecPart, Value


class Number(SpecPart):
    """A number of a case: what is measured, as people call it, and its unit, empty where nothing says it.
    `codes`: numbers that stand for "not known" (-1, 999); cases with them are left out.
    """

    source: Value
    name: str = Field(min_length=1)
    unit: str = ""
    codes: tuple[float, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


class TimeToEvent(SpecPart):
    """How long a case was followed, and whether the event came.

    Args:
        time: to the event, or to the last that is known; named after what it is to (`overall survival`).
        occurred, censored: texts of `event` that say that it came, and that it had not come until then. Other texts leave a case out.
    """

    time: Number
    event: Value
    occurred: tuple[str, ...] = Field(min_length=1)
    censored: tuple[str, ...] = ()


class Covariate(SpecPart):
    """What a model is given of a case beside its image.

    Args:
        kind: `number` (cells that hold none count as not known), or `category`, whose texts are taken as they stand.
        codes: numbers that stand for "not known" (-1, 999).
    """

    source: Value
    kind: Literal["number", "category"] = "number"
    codes: tuple[float, ...] = ()
