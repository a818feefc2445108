"""Outlines of (x, y) in pixels of an image, as the tools for marking images give them: polygons, rectangles, ellipses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
ROUND = 72
"""Corners of the polygon that stands for an ellipse; its area is 0.13 % smaller."""


@dataclass(frozen=True)
class DrawnOutline:
    """One mark on one image.

    Args:
        image: as the file names it.
        label: its class as the file names it; empty where nothing is marked and the image alone is named.
        points: three corners or more; none where nothing is marked.
        bounds: whether it bounds what is marked closer than a rectangle does.
    """

    image: str
    label: str = ""
    points: tuple[Point, ...] = ()
    bounds: bool = True


def rectangle(low: Point, high: Point, turned: float = 0.0) -> tuple[Point, ...]:
    """The corners of a rectangle that is turned about its middle, in degrees clockwise."""
    (x0, y0), (x1, y1) = low, high
    return _turned(((x0, y0), (x1, y0), (x1, y1), (x0, y1)), ((x0 + x1) / 2, (y0 + y1) / 2), turned)


def ellipse(middle: Point, wide: float, high: float, turned: float = 0.0) -> tuple[Point, ...]:
    """A polygon for an ellipse of two radii, turned in degrees clockwise; four corners are its ends."""
    angles = [2 * math.pi * at / ROUND for at in range(ROUND)]
    points = [(middle[0] + wide * math.cos(one), middle[1] + high * math.sin(one)) for one in angles]
    return _turned(points, middle, turned)


def _turned(points: Sequence[Point], middle: Point, degrees: float) -> tuple[Point, ...]:
    if not degrees:
        return tuple(points)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return tuple(
        (middle[0] + (x - middle[0]) * cosine - (y - middle[1]) * sine,
         middle[1] + (x - middle[0]) * sine + (y - middle[1]) * cosine)
        for x, y in points
    )  # fmt: skip


def around(points: Iterable[Point]) -> tuple[float, float, float, float]:
    """(x0, y0, x1, y1) of the box that encloses points.

    Raises:
        ValueError: there are none.
    """
    columns, rows = zip(*points, strict=True)
    return min(columns), min(rows), max(columns), max(rows)
