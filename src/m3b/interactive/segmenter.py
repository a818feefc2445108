"""The interface of a promptable segmenter: an image is set once, then prompts give masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

GRID = 1000


@dataclass(frozen=True, slots=True)
class BoxPrompt:
    """A rectangle in pixels, `x0 <= x < x1`, `y0 <= y < y1`."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def corners(self) -> tuple[float, float, float, float]:
        return self.x0, self.y0, self.x1, self.y1


@dataclass(frozen=True, slots=True)
class Point:
    """A click in pixels; positive on the target, negative outside of it."""

    x: float
    y: float
    positive: bool = True


Prompt = BoxPrompt | Point


def to_pixels(step: int, size: int) -> float:
    """Convert a grid coordinate to a position in pixels along an axis of `size` pixels."""
    return (step + 0.5) / GRID * size


def to_grid(position: float, size: int) -> int:
    """Return the grid coordinate that contains a position in pixels."""
    return min(max(int(position / size * GRID), 0), GRID - 1)


def box_from_grid(corners: Sequence[int], shape: Sequence[int]) -> BoxPrompt:
    """Convert a grid box to pixels of an image of `shape` (rows, columns); it includes its first and its last step.

    Raises:
        ValueError: not four grid coordinates, or no area; the message tells the agent what is expected.
    """
    if len(corners) != 4:
        raise ValueError(f"a box has four numbers, [x0, y0, x1, y1]; got {len(corners)}")
    x0, y0, x1, y1 = corners
    _check_on_grid(corners)
    if x1 <= x0 or y1 <= y0:
        raise ValueError(f"[{x0}, {y0}, {x1}, {y1}] has no area: x0 < x1 and y0 < y1 are needed (y counts downwards)")
    rows, columns = shape
    return BoxPrompt(x0 / GRID * columns, y0 / GRID * rows, (x1 + 1) / GRID * columns, (y1 + 1) / GRID * rows)


def point_from_grid(position: Sequence[int], positive: bool, shape: Sequence[int]) -> Point:
    """Convert a grid point to a click on an image of `shape` (rows, columns).

    Raises:
        ValueError: not two grid coordinates.
    """
    if len(position) != 2:
        raise ValueError(f"a point has two numbers, [x, y]; got {len(position)}")
    _check_on_grid(position)
    return Point(to_pixels(position[0], shape[1]), to_pixels(position[1], shape[0]), positive)


def _check_on_grid(numbers: Sequence[int]) -> None:
    for number in numbers:
        if not 0 <= number < GRID:
            raise ValueError(
                f"{number} is not on the grid: coordinates run from 0 to {GRID - 1} across the whole image, "
                "x to the right, y downwards, whatever its size in pixels"
            )


ByteImage = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskProposal:
    """A mask that a segmenter returned.

    Args:
        mask: (H, W) bool, in the pixels of the image that was set.
        score: the IoU that the segmenter expects of the mask, 0 to 1.
        state: the segmenter's own state (for example low-resolution logits), to be passed back as `previous`.
    """

    mask: Mask
    score: float
    state: Any = field(default=None, repr=False, compare=False)


@runtime_checkable
class Segmenter(Protocol):
    """Anything with these members is a promptable segmenter; no base class is needed."""

    @property
    def name(self) -> str:
        """The name of the segmenter in reports."""
        ...

    def set_image(self, image: ByteImage) -> None:
        """Set an image, (H, W, 3) uint8; the previous image is forgotten."""
        ...

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        """Return the mask for all prompts so far, in pixels of the image.

        Args:
            boxes: at most one, or none if points are given.
            points: in the order in which they were set.
            previous: the mask to refine.

        Raises:
            UsageError: no image was set, or there are no prompts.
        """
        ...
