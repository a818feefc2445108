"""What a promptable segmenter is to m3b: an image is set once, then prompts give masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from m3b.interactive.prompts import BoxPrompt, Point

ByteImage = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskProposal:
    """A mask that a segmenter answered.

    Args:
        mask: (H, W) bool, in the pixels of the image that was set.
        score: what the segmenter expects the mask's IoU to be, 0 to 1.
        state: the segmenter's own (low-resolution logits for instance), to be given back as `previous`.
    """

    mask: Mask
    score: float
    state: Any = field(default=None, repr=False, compare=False)


@runtime_checkable
class Segmenter(Protocol):
    """Anything with these names segments by prompts; no base class is needed."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    def set_image(self, image: ByteImage) -> None:
        """Take an image, (H, W, 3) uint8; what was known of another one is forgotten."""
        ...

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        """The mask for all prompts so far, in pixels of the image.

        Args:
            boxes: at most one, or none where points are given.
            points: in the order in which they were set.
            previous: the mask to refine.

        Raises:
            UsageError: no image was set, or there are no prompts.
        """
        ...
