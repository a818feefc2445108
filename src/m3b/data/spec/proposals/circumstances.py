"""What belongs to cases beside their targets, as a reading takes it; of items of arrays, as sibling files tell it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from m3b.data.spec.model import FromPath, SplitRule, Value
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.item_images import grouping_values, own_split
from m3b.data.survey.grouping_words import WHY
from m3b.data.survey.item_facts import PART, ItemSet
from m3b.data.survey.relations import FoundSplit, Survey

_TESTED = re.compile(
    r"\b(?:test(?:ed|ing|s)?|evaluat(?:e|ed|ing)|hold(?:ing)?[ -]out|held[ -]out)\b[^.;\d]{0,30}?\b(?P<what>[a-z]+)\s*"
    r"(?P<which>\d+(?:\s*(?:,|and|&)\s*\d+)*)",
    re.IGNORECASE,
)
"""What a request wants tested on: `test on fold 3`, `evaluated on folds 2 and 3`."""
_CLAUSE = re.compile(
    r"[;,.]?\s*(?:\band\s+)?\b(?:train|test|validat|evaluat|hold)\w*\s+(?:it\s+)?(?:on|with|out)\s+(?:the\s+)?folds?\s*\d+"
    r"(?:\s*(?:,|and|&)\s*\d+)*",
    re.IGNORECASE,
)


@dataclass
class Around:
    """Patient, copies and split of an image set, with evidence and doubts.

    Args:
        grouped: evidence of patients and of what stays together, and `divided`, that of the split.
    """

    patient: Value | None = None
    together: tuple[Value, ...] = ()
    split: SplitRule = field(default_factory=SplitRule)
    grouped: list[str] = field(default_factory=list)
    divided: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    division: FoundSplit | None = None

    @property
    def evidence(self) -> list[str]:
        """For people and agents."""
        return [*self.grouped, *self.divided]

    @property
    def values(self) -> tuple[Value, ...]:
        """What patients, groups and split are read from."""
        known = (self.patient, self.split.source)
        return (*(one for one in known if one is not None), *self.together)


def of_items(survey: Survey, items: ItemSet, made: Around) -> None:
    """Persons and sources that sibling files name item by item, and a split by the names of files."""
    for code, value, place in grouping_values(survey, items):
        what = WHY.get(code, code)
        if code == "column_patient" and made.patient is None:
            made.patient = value
            made.grouped.append(f"patients: by {place} ({what})")
        elif code != "column_patient":
            made.together = (*made.together, value)
            made.grouped.append(f"kept on one side: groups by {place} ({what})")
    if (found := own_split(items)) is not None:
        made.split = found[0]
        made.divided.append(found[1])


def with_asked_part(around_it: Around, images: ImageSet, request: str) -> Around:
    """Surroundings with the split that a request asks for by the numbers of parts: `train on folds 1 and 2, test on fold 3`."""
    for slot in images.items.slots if images.items is not None else ():
        counts = {value.text: value.count for value in slot.values}
        found = _TESTED.search(request) if slot.name != PART else None
        if found is None or found["what"].casefold().rstrip("s") != slot.name.casefold().rstrip("s"):
            continue
        test = tuple(text for text in counts if text in re.findall(r"\d+", found["which"]))
        train = tuple(text for text in counts if text not in test)
        if not test or not train:
            continue
        rule = SplitRule(source=FromPath(value="{" + slot.name + "}"), train=train, test=test)
        told = ", ".join(f"{text} {counts[text]}" for text in test)
        return replace(around_it, split=rule, divided=[f"as asked for, tested on {slot.name} {told}"])
    return around_it


def without_parts(ask: Ask) -> Ask:
    """What is asked without the clauses on folds, which name no class."""
    return replace(ask, request=_CLAUSE.sub("", ask.request))
