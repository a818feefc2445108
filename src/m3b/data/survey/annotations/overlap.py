"""Boxes that lie on each other: marks of several readers, or marks that were given twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from m3b.data.box_places import Numbers
from m3b.data.survey.annotations.box_columns import CORNERS, FORMS, formed
from m3b.data.survey.annotations.marks import Marks


def repeated(marks: Marks) -> int:
    """Boxes that lie over another one of their class on the same image: of several readers, or given twice."""
    of_image: dict[tuple[str, str], list[Numbers]] = defaultdict(list)
    count = Counter[str]()
    for (name, numbers), label in zip(marks.drawn, marks.labels, strict=True):
        box = formed(marks.form if marks.form in FORMS else CORNERS, numbers)
        some = of_image[name, label]
        count["again"] += any(_overlap(box, one) >= 0.5 for one in some[:50])
        some.append(box)
    return count["again"]


def _overlap(one: Numbers, other: Numbers) -> float:
    """Intersection over union."""
    half = len(one) // 2
    sides = [min(one[half + at], other[half + at]) - max(one[at], other[at]) for at in range(half)]
    if min(sides) <= 0:
        return 0.0

    def volume(sizes: Sequence[float]) -> float:
        whole = 1.0
        for size in sizes:
            whole *= size
        return whole

    both = volume(sides)
    each = [volume([box[half + at] - box[at] for at in range(half)]) for box in (one, other)]
    return both / max(sum(each) - both, 1e-12)
