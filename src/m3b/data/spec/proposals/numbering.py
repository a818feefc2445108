"""Folder and file names that only count: cases and patients rather than classes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.language import telling, words
from m3b.data.survey.relations import Survey

GRADES = telling("grade stage class label category score level kl birads type")
"""Words before a number that grades a case rather than counting it."""


def runs(images: ImageSet) -> bool:
    """Whether file names only count, from 0 or 1, so that equal names in two folders mean nothing."""
    parts = [part for part in images.groups[0].parts if part.slot.startswith("name")] if images.single else []
    named = re.sub(r"\{\w+\}", "", images.groups[0].template.rsplit("/", 1)[-1].split(".")[0]) if images.single else ""
    numbers = [part for part in parts if part.kind == "number"]
    return len(numbers) == 1 and len(parts) == 1 and numbers[0].low in (0, 1) and not re.search(r"\d", named)


def few(values: Mapping[str, int]) -> str:
    return ", ".join(list(values)[:4]) + (" ..." if len(values) > 4 else "")


def may_be_grades(images: ImageSet, slot: str, values: Mapping[str, int]) -> bool:
    """Whether numbered folders could be grades all the same, if a request speaks of the first to the last: they count up to
    ten from 0 or 1, one word before all of them, and hold images of their own, several each, that are not its slices."""
    found = [re.fullmatch(r"([^\W\d_]+[\W_]?)?(\d)", text) for text in values]
    numbers = sorted(int(one[2]) for one in found if one)
    one_word = len({(one[1] or "").casefold() for one in found if one}) == 1
    counts = numbers in (list(range(len(values))), list(range(1, len(values) + 1)))
    part = next((one for one in images.single.parts if one.slot == slot), None) if images.single else None
    own = part is not None and not part.crossing and images.images.unit == "file" and min(values.values()) > 1
    return all(found) and one_word and counts and own


def numbers_cases(survey: Survey, images: ImageSet, slot: str, values: Mapping[str, int]) -> bool:
    """Whether folders are numbered patients, cases or parts of an archive rather than classes."""
    texts = list(values)
    bare = [re.sub(r"\d+", "", text).casefold() for text in texts]
    if len(texts) > 2 and len(set(bare)) == 1 and any(re.search(r"\d", text) for text in texts):
        before = next((part.before for part in images.single.parts if part.slot == slot), "") if images.single else ""
        numbers = sorted(int(found[0]) for text in texts if (found := re.findall(r"\d+", text)))
        stem = words(bare[0] + before)
        grades = numbers in (list(range(len(texts))), list(range(1, len(texts) + 1))) and len(texts) <= 10
        if not grades or (stem and not set(stem) & GRADES) or any(len(t) > 2 for t in texts if t.isdigit()):
            return True
    level = slot.removeprefix("level")
    return any(one.group == images.id and one.strength >= 0.8 and any(end.kind == "level" and end.name == level
               for end in one.ends) for one in survey.groupings)  # fmt: skip
