"""Copies that were altered a little: noise, one pixel, another size, another contrast, mirrored or turned.

Compared is the fine structure of the images, less what all of them have in common: two people's radiographs agree in
their coarse look, a copy and its original in every edge. On ten public data sets (radiographs, skin, endoscopy, blood,
ultrasound, MR) different images correlate by less than 0.9, copies with 25 % of noise by more than 0.9, nearly always
more than 0.95. Crops of more than a few percent are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SIDE = 32
ALTERED = 0.93
"""Correlation of the fine structure above which two images are one picture."""
COARSE = 0.9
"""What the thumbnails must reach besides."""
MAX_TRAIN, MAX_TEST = 8_000, 2_000
MAX_PAIRS = 5_000
MIN_FOR_MEAN = 8
_BLOCK = 1024


class ProbedImage(Protocol):
    """What is known of an image that opened: small versions of it, its hash, and whether it has one value everywhere."""

    @property
    def digest(self) -> str: ...

    @property
    def thumbnail(self) -> NDArray[np.float32] | None: ...

    @property
    def detail(self) -> NDArray[np.float32] | None: ...

    @property
    def flat(self) -> bool: ...


_TURNS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a,
    lambda a: a[:, :, ::-1],
    lambda a: a[:, ::-1],
    lambda a: a[:, ::-1, ::-1],
    lambda a: a.swapaxes(1, 2),
    lambda a: a.swapaxes(1, 2)[:, :, ::-1],
    lambda a: a.swapaxes(1, 2)[:, ::-1],
    lambda a: a.swapaxes(1, 2)[:, ::-1, ::-1],
)
"""The ways to mirror and turn a stack of square pictures."""


def fine_structure(small: NDArray[np.float64]) -> NDArray[np.float32]:
    """A square of area means less its own blur over 5 x 5, unit norm."""
    import numpy as np

    padded = np.pad(small, 2, mode="edge")
    sums = np.cumsum(np.cumsum(np.pad(padded, ((1, 0), (1, 0))), axis=0), axis=1)
    blurred = (sums[5:, 5:] - sums[:-5, 5:] - sums[5:, :-5] + sums[:-5, :-5]) / 25
    rest = small - blurred
    return np.asarray(rest / max(float(np.linalg.norm(rest)), 1e-9), dtype=np.float32)


def altered_pairs(looks: Mapping[str, ProbedImage], train: Sequence[str], test: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a training and a test image that are one picture, altered; exact copies are left out.

    At most `MAX_TRAIN` training images are compared with `MAX_TEST` test images, those that come first.
    """
    import numpy as np

    ours, theirs = _usable(looks, train)[:MAX_TRAIN], _usable(looks, test)[:MAX_TEST]
    if not ours or not theirs:
        return []
    fine, coarse = _stack(looks, ours, "detail"), _stack(looks, ours, "thumbnail")
    fine_test, coarse_test = _stack(looks, theirs, "detail"), _stack(looks, theirs, "thumbnail")
    common = np.zeros_like(fine[0])
    if len(ours) + len(theirs) >= MIN_FOR_MEAN:
        common = np.concatenate([fine, fine_test]).mean(axis=0)
    mine = _unit(fine - common)
    found: dict[tuple[str, str], None] = {}
    for turn in _TURNS:
        other, small = _unit(turn(fine_test) - common), _flat(turn(coarse_test))
        for start in range(0, len(ours), _BLOCK):
            rows = slice(start, start + _BLOCK)
            alike = (mine[rows] @ other.T > ALTERED) & (_flat(coarse[rows]) @ small.T > COARSE)
            for row, column in zip(*np.nonzero(alike), strict=True):
                pair = (ours[start + row], theirs[column])
                if looks[pair[0]].digest != looks[pair[1]].digest:
                    found[pair] = None
                if len(found) >= MAX_PAIRS:
                    return list(found)
    return list(found)


def _usable(looks: Mapping[str, ProbedImage], keys: Sequence[str]) -> list[str]:
    return [key for key in keys if key in looks and looks[key].detail is not None and not looks[key].flat]


def _stack(looks: Mapping[str, ProbedImage], keys: Sequence[str], part: str) -> NDArray[np.float32]:
    import numpy as np

    stack = np.stack([getattr(looks[key], part) for key in keys])
    side = round(stack[0].size ** 0.5)
    return stack.reshape(-1, side, side)


def _flat(stack: NDArray[np.float32]) -> NDArray[np.float32]:
    return stack.reshape(len(stack), -1)


def _unit(stack: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    flat = _flat(stack)
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9), dtype=np.float32)
