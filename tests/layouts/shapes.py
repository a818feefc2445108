"""What is drawn into an image: objects that differ by class in form and brightness, their masks, boxes and outlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BACKGROUND = 60
TINTS = ((1.0, 0.55, 0.55), (0.55, 1.0, 0.6), (0.55, 0.6, 1.0), (1.0, 0.95, 0.5), (0.9, 0.5, 0.95))
"""Colour of the objects of a class, as factors of red, green and blue."""


@dataclass(frozen=True)
class Shape:
    """An ellipse or block of pixels.

    Args:
        class_index: position of its class in the layout's classes.
        low: first row and column (for volumes: first slice, row and column).
        high: the first that does not belong to it any more, along each axis.
        is_round: whether it is an ellipse inside its box.
        is_notched: whether the lower right quarter of a block is missing, so that its outline is not that of its box.
    """

    class_index: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    is_round: bool
    is_notched: bool = False

    def mask(self, size: Sequence[int]) -> NDArray[np.bool_]:
        """Return which pixels of an image of this size belong to it."""
        mask = np.zeros(size, bool)
        block = tuple(slice(low, high) for low, high in zip(self.low, self.high, strict=True))
        mask[block] = self._inner()
        return mask

    def _inner(self) -> NDArray[np.bool_]:
        extent = [high - low for low, high in zip(self.low, self.high, strict=True)]
        if not self.is_round:
            block = np.ones(extent, bool)
            if self.is_notched:
                block[..., extent[-2] // 2 :, extent[-1] // 2 :] = False
            return block
        axes = [((np.arange(length) + 0.5) / length * 2 - 1) ** 2 for length in extent]
        return np.asarray(sum(np.meshgrid(*axes, indexing="ij")) <= 1.0)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, upper, right and lower edge in pixels, of the two axes within the image plane."""
        (y0, x0), (y1, x1) = self.low[-2:], self.high[-2:]
        return x0, y0, x1, y1

    def outline(self) -> list[tuple[float, float]]:
        """Return the corners (x, y) of its outline along pixel edges; only for blocks."""
        x0, y0, x1, y1 = self.box
        if self.is_notched:
            x, y = x0 + (x1 - x0) // 2, y0 + (y1 - y0) // 2
            return [(x0, y0), (x1, y0), (x1, y), (x, y), (x, y1), (x0, y1)]
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def place_shapes(
    rng: np.random.Generator,
    size: Sequence[int],
    classes: Sequence[int],
    *,
    is_round: bool,
    is_notched: bool = False,
    scale: float = 1.0,
) -> tuple[Shape, ...]:
    """Place a shape of each class (they may repeat) into cells of a grid of 3 x 3, so that none overlaps another.

    Args:
        size: rows and columns, before them slices of a volume.
        classes: at most nine.
        scale: size of the shapes relative to their cells, 0.2 to 1.
    """
    cells = rng.permutation(9)[: len(classes)]
    plane = size[-2:]
    shapes = []
    for cell, class_index in zip(cells, classes, strict=True):
        corner = (int(cell) // 3, int(cell) % 3)
        low, high = [], []
        for axis in range(2):
            room = plane[axis] // 3
            largest = max(4, int((room - 2) * scale))
            extent = int(rng.integers(max(4, int(largest * 0.7)), largest + 1))
            extent += extent % 2
            start = corner[axis] * room + int(rng.integers(0, max(1, room - extent)))
            start += start % 2
            start = min(start, plane[axis] - extent)
            low.append(start)
            high.append(start + extent)
        if len(size) == 3:
            depth = max(3, int(size[0] * 0.6 * max(scale, 0.5)))
            first = int(rng.integers(0, size[0] - depth + 1))
            low, high = [first, *low], [first + depth, *high]
        shapes.append(Shape(class_index, tuple(low), tuple(high), is_round, is_notched))
    return tuple(shapes)


def draw_pixels(
    rng: np.random.Generator, size: Sequence[int], shapes: Sequence[Shape], *, is_colour: bool, brightness: float = 1.0
) -> NDArray[np.uint8]:
    """Draw an image of 8 bits, grey or colour (colours are its last axis)."""
    grey = np.clip(rng.normal(BACKGROUND, 9, tuple(size)), 0, 255)
    levels = {}
    for shape in shapes:
        levels[shape.class_index] = min(250.0, (130 + 35 * shape.class_index) * brightness)
        grey[shape.mask(size)] = levels[shape.class_index] + rng.normal(0, 5)
    if not is_colour:
        return np.clip(grey, 0, 255).astype(np.uint8)
    colour = np.repeat(grey[..., None], 3, axis=-1) * np.array([0.95, 0.85, 0.8])
    for shape in shapes:
        region = shape.mask(size)
        colour[region] = grey[region][:, None] * np.array(TINTS[shape.class_index % len(TINTS)])
    return np.asarray(np.clip(colour, 0, 255), np.uint8)


def label_map(size: Sequence[int], shapes: Sequence[Shape]) -> NDArray[np.uint8]:
    """Return which class each pixel belongs to, counted from 1; 0 is the background."""
    labels = np.zeros(tuple(size), np.uint8)
    for shape in shapes:
        labels[shape.mask(size)] = shape.class_index + 1
    return labels
