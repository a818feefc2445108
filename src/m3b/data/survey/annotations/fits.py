"""What the numbers of boxes in tables are, measured on the images that they name: two corners or a corner with sizes,
pixels or fractions or mm of the patient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from m3b.data.box_places import BoxGrid, Numbers, Space, grid_for, to_voxels
from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.annotations.box_columns import CENTRES, CORNERS, FORMS, SIDES, formed
from m3b.data.survey.annotations.marks import IN_PERCENT, OPEN, Marks
from m3b.data.survey.annotations.overlap import repeated
from m3b.errors import DataError

EITHER = "corners_or_sides"
"""The fault of boxes of which several forms may be meant."""
WHERE, AXES, SIZE, OUTSIDE, REPEATED = "pixels_or_mm", "lps_or_ras", "size_in_mm", "outside", "repeated"
"""Faults: coordinates that may be voxels or mm; mm of which the axes are not known; mm of images without a size of
pixels; boxes beside their images; boxes over another one of their class on one image, as several readers give them."""
UNMEASURED = "unmeasured"
"""The fault of boxes of which no image could be looked at."""
IMAGES = 40
"""Images that are measured."""
MIN_DRAWN = 6
"""Different boxes from which on whole numbers are no accident."""
FIT = 0.98
SLACK = 1.02
Fits = dict[tuple[str, Space], float]


def decide(marks: Marks, paths: Mapping[str, str], root: Path) -> None:
    """State of boxes in a table what form and space they have, and what stays open.

    Args:
        paths: image as it is named -> its file, or the folder of its slices.
    """
    if not marks.drawn or marks.form == "":
        return
    boxes = _by_image(marks.drawn, paths)
    grids = {name: grid for name in _spread(sorted(boxes)) if (grid := _grid(paths[name], root)) is not None}
    measured = [(numbers, grids[name]) for name in grids for numbers in boxes[name]]
    marks.volumes = bool(measured) and all(grid.volume for _, grid in measured)
    forms = FORMS if marks.form == OPEN else (marks.form, *((CENTRES,) if marks.form == SIDES else ()))
    turned = _turned(marks.drawn)
    fits: Fits = {
        (form, space): _share(form, space, measured, ball=marks.ball)
        for form, space in product(forms, _spaces(marks, measured))
        if not (form == CORNERS and turned)
    }
    good = _best(fits)
    marks.space = _space(marks, good, measured)
    form = _form(marks, {form for form, space in good if space == marks.space})
    marks.faults[UNMEASURED] = 0 if measured else len(marks.drawn)
    if measured and not good:
        marks.faults[OUTSIDE] = round((1 - max(fits.values(), default=0.0)) * len(marks.drawn)) or 1
    marks.settle(form)
    _sizes(marks, measured)
    marks.faults[REPEATED] = repeated(marks)


def _by_image(drawn: Sequence[tuple[str, Numbers]], paths: Mapping[str, str]) -> dict[str, list[Numbers]]:
    found: dict[str, list[Numbers]] = defaultdict(list)
    for name, numbers in drawn:
        if name in paths:
            found[name].append(numbers)
    return found


def _spread(names: Sequence[str]) -> Sequence[str]:
    return names[:: max(1, len(names) // IMAGES)][:IMAGES]


def _grid(path: str, root: Path) -> BoxGrid | None:
    try:
        return attempt(lambda: grid_for(path, root), root, path)
    except (Unreadable, DataError):
        return None


def _turned(drawn: Sequence[tuple[str, Numbers]]) -> bool:
    """Whether many boxes would end before they begin if their numbers were corners."""
    half = len(drawn[0][1]) // 2
    turned = sum(1 for _, one in drawn if any(b <= a for a, b in zip(one[:half], one[half:], strict=True)))
    return turned > (1 - FIT) * len(drawn)


def _spaces(marks: Marks, measured: Sequence[tuple[Numbers, BoxGrid]]) -> tuple[Space, ...]:
    every = [value for _, numbers in marks.drawn for value in numbers]
    if marks.class_source.endswith(IN_PERCENT) and min(every) >= 0 and max(every) <= 100:
        return ("percent",)
    if min(every) >= 0 and max(every) <= 1 and any(value not in (0, 1) for value in every):
        return ("fractions",)
    mm = marks.volumes and len(marks.drawn[0][1]) == 6 and all(grid.affine is not None for _, grid in measured)
    return ("pixels", "lps", "ras") if mm else ("pixels",)


def _share(form: str, space: Space, measured: Sequence[tuple[Numbers, BoxGrid]], *, ball: bool) -> float:
    return sum(_fits(form, space, one, grid, ball=ball) for one, grid in measured) / max(len(measured), 1)


def _fits(form: str, space: Space, numbers: Numbers, grid: BoxGrid, *, ball: bool) -> bool:
    """Whether a box, of a ball its middle, lies in its image."""
    try:
        box = to_voxels(formed(form, numbers), grid, space, ball=ball)
    except DataError:
        return False
    half = len(grid.extent)
    low, high = box[:half], box[half:]
    if any(b < a for a, b in zip(low, high, strict=True)):
        return False
    if ball:
        low = high = tuple((a + b) / 2 for a, b in zip(low, high, strict=True))
    return all(
        a >= side * (1 - SLACK) - 1 and b <= side * SLACK + 1 for a, b, side in zip(low, high, grid.extent, strict=True)
    )


def _best(fits: Fits) -> set[tuple[str, Space]]:
    """What fits every box; where nothing does, what fits nearly all."""
    return {one for one, share in fits.items() if share == 1} or {one for one, share in fits.items() if share >= FIT}


def _form(marks: Marks, good: set[str]) -> str:
    """The form that is named where it fits, else the one that alone fits; what stays open is a fault."""
    if marks.form != OPEN:
        if len(good) > 1 and (marks.unsure or marks.space == "fractions"):
            marks.faults[EITHER] = len(marks.drawn)
        return marks.form if marks.form in good or not good else next(iter(good))
    common = good if len(marks.drawn[0][1]) == 6 else good & {CORNERS, SIDES} or good
    if len(common) != 1:
        marks.faults[EITHER] = len(marks.drawn)
    return next((form for form in FORMS if form in common), CORNERS)


def _space(marks: Marks, good: set[tuple[str, Space]], measured: Sequence[tuple[Numbers, BoxGrid]]) -> Space:
    """The space that fits; of several the one that names or formats speak for."""
    some = {space for _, space in good}
    if len(some) < 2:
        return next(iter(some), _spaces(marks, measured)[0] if marks.drawn else "pixels")
    native = all(not str(grid.image).lower().endswith((".nii", ".nii.gz")) for _, grid in measured)
    if {"lps", "ras"} <= some:
        mm: Space = "lps"
        open_axes = not native
    else:
        mm, open_axes = ("lps" if "lps" in some else "ras"), False
    if "pixels" in some and not marks.in_mm:
        if not _same(marks, mm, measured) and not _on_voxels(marks, mm, measured):
            marks.faults[WHERE] = len(marks.drawn)
        return "pixels"
    if open_axes:
        marks.faults[AXES] = len(marks.drawn)
    return mm


def _same(marks: Marks, mm: Space, measured: Sequence[tuple[Numbers, BoxGrid]]) -> bool:
    """Whether both give the same boxes, within a voxel."""
    form = marks.form if marks.form != OPEN else CORNERS
    pairs: Iterator[tuple[Any, Any]] = (
        (to_voxels(formed(form, one), grid, mm, ball=marks.ball), formed(form, one)) for one, grid in measured
    )
    return all(max(abs(a - b) for a, b in zip(first, second, strict=True)) <= 1 for first, second in pairs)


def _on_voxels(marks: Marks, mm: Space, measured: Sequence[tuple[Numbers, BoxGrid]]) -> bool:
    """Whether boxes were drawn on voxels and written as such: their numbers are whole, and of mm would be none on a voxel's
    edge or middle."""
    if len({numbers for numbers, _ in measured}) < MIN_DRAWN or any(
        value % 1 for numbers, _ in measured for value in numbers
    ):
        return False
    form = marks.form if marks.form != OPEN else CORNERS
    off = [to_voxels(formed(form, one), grid, mm, ball=marks.ball) for one, grid in measured]
    return sum(any(abs(2 * value - round(2 * value)) > 0.02 for value in box) for box in off) > len(off) / 2


def _sizes(marks: Marks, measured: Sequence[tuple[Numbers, BoxGrid]]) -> None:
    """Sizes in mm beside pixels: images must say how large their pixels are."""
    if not marks.sizes_mm:
        return
    if marks.space != "pixels":
        marks.sizes_mm = False
    elif any(grid.spacing is None for _, grid in measured):
        marks.faults[SIZE] = len(marks.drawn)
