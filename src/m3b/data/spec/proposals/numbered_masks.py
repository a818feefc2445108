"""Masks of an image that are called alike and numbered: `_mask`, `_mask_1`, `_mask_2`."""

from __future__ import annotations

import re

from m3b.data.survey.relations import Pairing

MOST_WITH_SEVERAL = 0.5
"""Share of the images that have a second mask, above which it may be a class, or the mask of a second reader."""
_NUMBER = re.compile(r"[\s_\-.(]*\d+\)?$")


def numbered(pairing: Pairing) -> bool:
    """Whether the masks of an image differ by a number at their end alone."""
    names = [value.text for value in pairing.classes]
    return pairing.kind == "per_class" and len(names) > 1 and len({_NUMBER.sub("", name) for name in names}) == 1


def united(pairing: Pairing) -> Pairing:
    """A pairing whose numbered masks are one target in several files, where few images have more than one; else as it is."""
    if not numbered(pairing):
        return pairing
    counts = sorted(value.count for value in pairing.classes)
    if counts[-1] < pairing.left_matched or counts[-2] > MOST_WITH_SEVERAL * pairing.left_matched:
        return pairing
    return pairing.model_copy(update={"kind": "many_to_one", "class_slot": "", "classes": ()})
