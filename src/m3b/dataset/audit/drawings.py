"""Checks of what masks mean together: noise, one shape for all images, the visible part of the image, lossy files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from statistics import median

from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, Severity
from m3b.dataset.audit.probes import CoarseMask, DrawingFacts

MIN_MASKS = 5
"""Masks below which nothing is said of what all of them have in common."""
MIN_MEAN_SHAPE_DICE = 0.9
MIN_VISIBLE_OVERLAP = 0.9
MIN_SCATTER, MIN_MARKED = 0.3, 40
"""Share of marked voxels without a neighbour from which on a drawing is noise, and the voxels that it must have."""


class DrawingCheck(AuditCheck):
    """A check of masks as drawings."""

    severity: Severity = "fix"
    targets = ("masks",)
    needs_images = True
    explained_by: tuple[str, ...] = ("mask_lossy",)


def _get_drawings(data: AuditData) -> dict[str, DrawingFacts]:
    """Mask file -> its drawing, of masks that mark something."""
    return {mask.file: mask.drawing for mask in data.masks.values() if mask.drawing is not None and not mask.is_empty}


class LossyMask(DrawingCheck):
    """Masks that were saved with losses and are read value by value."""

    code = "mask_lossy"
    remedy = (
        "They hold two levels with noise around them: give `above` (128 for 0 and 255) for `masks` of the manifest, or write "
        "them anew into Datapath/masks/."
    )
    explained_by = ()

    def find(self, data: AuditData) -> Iterator[Finding]:
        drawings = _get_drawings(data)
        lossy = data.shorten_all(file for file, drawing in drawings.items() if drawing.is_lossy)
        if lossy:
            count = sum(drawing.is_lossy for drawing in drawings.values())
            yield self.make_finding(
                f"{count} of {len(drawings)} masks were saved with losses (as JPEG, for instance), e.g. {lossy[0]}, and were "
                "read value by value: compression noise would be taken for a structure.",
                lossy,
            )


class ScatteredMask(DrawingCheck):
    """Scattered single pixels instead of regions."""

    code = "mask_noise"
    remedy = (
        "Look at the values that the files hold: is the structure another value, and this one compression noise or dither? "
        "Name the right value in label_dict.json, or cut the masks between two levels."
    )

    def find(self, data: AuditData) -> Iterator[Finding]:
        drawings = _get_drawings(data)
        noisy = {
            file: drawing.scattered
            for file, drawing in drawings.items()
            if drawing.scattered >= MIN_SCATTER and drawing.marked >= MIN_MARKED
        }
        if len(noisy) >= max(1, len(drawings) / 2):
            file, share = next(iter(noisy.items()))
            yield self.make_finding(
                f"{len(noisy)} of {len(drawings)} masks are scattered single pixels rather than regions, e.g. "
                f"{data.shorten(file)} ({share:.0%} of the marked pixels touch no other): that is noise, and no structure that "
                "anybody drew.",
                data.shorten_all(noisy),
            )


class ConstantMask(DrawingCheck):
    """The same mask for every image."""

    code = "mask_constant"
    remedy = "Pair the images with other masks."

    def find(self, data: AuditData) -> Iterator[Finding]:
        drawings = _get_drawings(data)
        digests = {mask.digest for mask in data.masks.values() if mask.file in drawings}
        if len(drawings) >= MIN_MASKS and len(digests) == 1:
            files = data.shorten_all(drawings)
            yield self.make_finding(
                f"All {len(drawings)} masks mark the very same voxels, e.g. {files[0]} and {files[1]}. Such masks are a field "
                "of view or a frame, and nothing can be learnt from them.",
                files,
            )


class ShapeCheck(DrawingCheck):
    """A check of a single class that is much the same place in every image, or all that the image shows.

    The regions of an organ together are what the image shows anyway, so several classes are not checked.
    """

    explained_by = ("mask_lossy", "mask_constant")

    def find(self, data: AuditData) -> Iterator[Finding]:
        drawings = _get_drawings(data)
        if len(drawings) < MIN_MASKS or len(data.index.classes) != 1:
            return
        overlap = median(drawing.visible_overlap for drawing in drawings.values())
        dice = compute_mean_shape_dice([drawing.coarse for drawing in drawings.values()])
        message = self.describe(dice, overlap, len(drawings))
        if message:
            yield self.make_finding(message, data.shorten_all(drawings))

    @abstractmethod
    def describe(self, dice: float, overlap: float, count: int) -> str:
        """Return what is wrong, or an empty text.

        Args:
            dice: of the mean shape of the other masks, median over masks.
            overlap: of masks and visible part of the image, median over masks.
        """


class FieldOfView(ShapeCheck):
    """The field of view inside the image's dark border, nearly the same in every image."""

    code = "mask_field_of_view"
    remedy = "Pair the images with other masks."

    def describe(self, dice: float, overlap: float, count: int) -> str:
        if dice < MIN_MEAN_SHAPE_DICE or overlap < MIN_VISIBLE_OVERLAP:
            return ""
        return (
            f"The masks mark what the image's dark border leaves free (overlap {overlap:.2f}), and one shape serves for all "
            f"{count} of them (Dice {dice:.3f}). Such masks are a field of view or a frame, and nothing can be learnt from them."
        )


class MeanShape(ShapeCheck):
    """A class whose mean shape alone is nearly right."""

    code = "mean_shape"
    severity = "warn"

    def describe(self, dice: float, overlap: float, count: int) -> str:
        if dice < MIN_MEAN_SHAPE_DICE or overlap >= MIN_VISIBLE_OVERLAP:
            return ""
        return (
            f"One shape, the same for every image, would have Dice {dice:.3f} with these masks: what a model adds to that is "
            "little, and its figure has to be read against it."
        )


class VisiblePart(ShapeCheck):
    """The visible part of the image, with a shape that differs from image to image."""

    code = "mask_visible_part"
    severity = "warn"

    def describe(self, dice: float, overlap: float, count: int) -> str:
        if dice >= MIN_MEAN_SHAPE_DICE or overlap < MIN_VISIBLE_OVERLAP:
            return ""
        return (
            f"The masks mark much the same as what the image's dark border leaves free (overlap {overlap:.2f}): are they a "
            "field of view, or the body, rather than what was asked for?"
        )


def compute_mean_shape_dice(masks: Sequence[CoarseMask]) -> float:
    """Return the median Dice of each mask with the mean of all others; 0 if their grids differ in size."""
    import numpy as np

    if len({mask.shape for mask in masks}) != 1:
        return 0.0
    total = np.zeros(masks[0].shape, np.int64)
    for mask in masks:
        total += mask.unpack()
    dices = []
    for mask in masks:
        grid = mask.unpack()
        mean_shape = 2 * (total - grid) > len(masks) - 1
        size = int(mean_shape.sum()) + int(grid.sum())
        dices.append(2 * int((grid & mean_shape).sum()) / size if size else 0.0)
    return float(median(dices))


CHECKS = (LossyMask(), ScatteredMask(), ConstantMask(), FieldOfView(), MeanShape(), VisiblePart())
