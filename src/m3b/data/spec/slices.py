"""The order in which the slices of a DICOM series lie, whatever their files are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Slots = dict[str, str]
ASKED = "{tag.ImagePositionPatient}{tag.ImageOrientationPatient}{tag.InstanceNumber}"


def by_place(lookup: Callable[[str, Slots], Slots], slices: Sequence[Slots]) -> list[int]:
    """The slices along their common normal, else by their numbers; as they are given where a header is silent.

    Args:
        lookup: adds the header fields that a key asks for to the slots of a file.
    """
    places: list[float] = []
    numbers: list[float] = []
    for slots in slices:
        tags = lookup(ASKED, slots)
        place, lie = (_numbers(tags.get(f"tag.Image{name}Patient", "")) for name in ("Position", "Orientation"))
        if len(place) == 3 and len(lie) == 6:
            (a, b, c), (d, e, f) = lie[:3], lie[3:]
            normal = (b * f - c * e, c * d - a * f, a * e - b * d)
            places.append(sum(one * other for one, other in zip(place, normal, strict=True)))
        numbers += _numbers(tags.get("tag.InstanceNumber", ""))[:1]
    known = places if len(places) == len(slices) else numbers
    return sorted(range(len(slices)), key=lambda at: known[at] if len(known) == len(slices) else at)


def _numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text)]
