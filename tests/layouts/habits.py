"""Habits of people who hand over folders: each changes a drawn layout before its request and truth are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from layouts.layout import Case, Layout
from layouts.shapes import Shape, place_shapes
from layouts.terms import FURTHER_STRUCTURES

MIN_OUTSIDE, MAX_OUTSIDE = 0.15, 0.3
"""Share of the images that a list of annotations does not name."""
FURTHER_SHARE = 0.8
"""Share of the images that show a further structure."""
MAX_CLASSES = 5
"""Classes for which masks have colours and annotations numbers."""


def leave_images_out_of_list(rng: np.random.Generator, layout: Layout) -> Layout:
    """Take some images from the list of annotations: nobody looked at them."""
    count = round(float(rng.uniform(MIN_OUTSIDE, MAX_OUTSIDE)) * len(layout.cases))
    unlisted_numbers = {int(number) for number in rng.permutation(len(layout.cases))[:count]}
    cases = [replace(case, is_labelled=False) if case.number in unlisted_numbers else case for case in layout.cases]
    return replace(layout, cases=tuple(cases))


def mark_further_structures(rng: np.random.Generator, layout: Layout) -> Layout:
    """Mark one or two structures that are not asked for, such as the outline of the body or another organ."""
    domain, axes = layout.domain, layout.axes
    pool = domain.objects if axes.task == "detection" else domain.structures
    candidates = [
        *FURTHER_STRUCTURES[3 if axes.is_volume else 2],
        *(name for name in pool if name not in layout.classes),
    ]
    count = min(int(rng.integers(1, 3)), MAX_CLASSES - len(layout.classes))
    further = [candidates[int(number)] for number in rng.permutation(len(candidates))[:count]]
    step = layout.values[0]
    first = len(layout.classes)
    cases = []
    for case in layout.cases:
        shapes = case.shapes
        for position in range(first, first + count):
            if rng.random() < FURTHER_SHARE:
                shapes = (*shapes, *_place_in_gap(rng, case, shapes, position))
        cases.append(replace(case, shapes=shapes))
    return replace(
        layout,
        classes=(*layout.classes, *further),
        values=tuple((number + 1) * step for number in range(first + count)),
        cases=tuple(cases),
        n_further=count,
    )


def _place_in_gap(rng: np.random.Generator, case: Case, shapes: tuple[Shape, ...], position: int) -> tuple[Shape, ...]:
    """Return a shape of a class that covers no other; none if there is no room."""
    is_round = bool(shapes) and shapes[0].is_round
    is_notched = bool(shapes) and shapes[0].is_notched
    for shape in place_shapes(rng, case.size, [position] * 9, is_round=is_round, is_notched=is_notched, scale=0.8):
        if not any(_overlaps(shape, placed) for placed in shapes):
            return (shape,)
    return ()


def _overlaps(shape: Shape, other_shape: Shape) -> bool:
    (x0, y0, x1, y1), (left, upper, right, lower) = shape.box, other_shape.box
    return x0 < right and left < x1 and y0 < lower and upper < y1


HABIT_CHANGES: Mapping[str, Callable[[np.random.Generator, Layout], Layout]] = {
    "images_outside_list": leave_images_out_of_list,
    "further_structures": mark_further_structures,
}
"""Value of the axis `habit` -> what it changes."""
