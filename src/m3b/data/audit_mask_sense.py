"""Checks of meaning for masks: noise, one shape for everybody, the visible part of the image, lossy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from m3b.data.audit_common import Finding, some
from m3b.data.image_probe import ImageProbe
from m3b.data.mask_sense import Sense

MIN_MASKS = 5
"""Masks below which nothing is said of what all of them have in common."""
MEAN_SHAPE = 0.9
"""Dice of the mean shape from which on a model has hardly anything to learn."""
COVERS = 0.9
NOISE = 0.3
"""Share of marked voxels without a neighbour from which on a drawing is noise."""
MIN_MARKED = 40


def sense(looks: Mapping[str, ImageProbe], *, one_class: bool) -> list[Finding]:
    """Everything that the masks of different cases show together.

    Args:
        one_class: whether there is a single class; the regions of an organ together are what one sees of it anyway.
    """
    seen = {
        look.mask.file: look.mask.sense
        for look in looks.values()
        if look.mask and look.mask.sense is not None and not look.mask.empty
    }
    if lossy := _lossy(seen):
        return lossy  # what else is odd about them follows from that
    return [*_noise(seen), *_same(looks, seen, one_class=one_class)]


def _lossy(seen: Mapping[str, Sense]) -> list[Finding]:
    bad = [file for file, one in seen.items() if one.lossy]
    if not bad:
        return []
    what = f"{len(bad)} of {len(seen)} masks were saved with losses (as JPEG, for instance), e.g. {bad[0]}"
    text = (
        f"{what}: two levels with noise around them, of which single values are named. Cut them between the levels: set "
        "`masks.cut` in the reading (128 for 0 and 255), or write them anew into Datapath/masks/."
    )
    told = f"{what}, and were read value by value: compression noise would be taken for a structure."
    return [Finding("mask_lossy", "fix", text, some(bad), told)]


def _noise(seen: Mapping[str, Sense]) -> list[Finding]:
    bad = [file for file, one in seen.items() if one.alone >= NOISE and one.marked >= MIN_MARKED]
    if len(bad) < max(1, len(seen) / 2):
        return []
    what = (
        f"{len(bad)} of {len(seen)} masks are scattered single pixels rather than regions, e.g. {bad[0]} "
        f"({seen[bad[0]].alone:.0%} of what is marked touches nothing else that is)"
    )
    text = (
        f"{what}. Look at the values that the files hold: is the structure another value, and this one compression noise or "
        "dither? Name the right value in label_dict.json, or cut the masks between two levels."
    )
    told = f"{what}: that is noise, and no structure that anybody drew."
    return [Finding("mask_noise", "fix", text, some(bad), told)]


def _same(looks: Mapping[str, ImageProbe], seen: Mapping[str, Sense], *, one_class: bool) -> list[Finding]:
    """One shape in all cases, be it the very same voxels or nearly."""
    if len(seen) < MIN_MASKS:
        return []
    digests = {look.mask.digest for look in looks.values() if look.mask and look.mask.file in seen}
    files = list(seen)
    if len(digests) == 1:
        what = f"All {len(seen)} masks mark the very same voxels, e.g. {files[0]} and {files[1]}"
        return [_rejected("mask_constant", what, files)]
    return _one_shape(seen, files) if one_class else []


def _one_shape(seen: Mapping[str, Sense], files: Sequence[str]) -> list[Finding]:
    """A single class that is much the same place in every image, or what the image shows at all."""
    covers = median(one.covers for one in seen.values())
    dice = mean_shape([one.coarse for one in seen.values()])
    if dice >= MEAN_SHAPE and covers >= COVERS:
        what = (
            f"The masks mark what the image's dark border leaves free (overlap {covers:.2f}), and one shape serves for all "
            f"{len(seen)} of them (Dice {dice:.3f})"
        )
        return [_rejected("mask_field_of_view", what, files)]
    if dice >= MEAN_SHAPE:
        text = (
            f"One shape, the same for every image, would have Dice {dice:.3f} with these masks: what a model adds to that is "
            "little, and its figure has to be read against it."
        )
        return [Finding("mean_shape", "warn", text, some(files))]
    if covers >= COVERS:
        text = (
            f"The masks mark much the same as what the image's dark border leaves free (overlap {covers:.2f}): are they a "
            "field of view, or the body, rather than what was asked for?"
        )
        return [Finding("mask_visible_part", "warn", text, some(files))]
    return []


def _rejected(code: str, what: str, files: Sequence[str]) -> Finding:
    text = f"{what}. That is a field of view or a frame, and no finding: pair the images with other masks."
    told = f"{what}. Such masks are a field of view or a frame, and nothing can be learnt from them."
    return Finding(code, "fix", text, some(files), told)


def mean_shape(grids: Sequence[object]) -> float:
    """Median Dice of the mean of all other masks, on the coarse grid; 0 where sizes differ too much to compare."""
    import numpy as np

    sizes = {grid.shape for grid in grids if isinstance(grid, np.ndarray)}
    if len(sizes) != 1:
        return 0.0
    stack = np.stack([np.asarray(grid, dtype=np.float32) for grid in grids])
    total = stack.sum(axis=0)
    dices = []
    for one in stack:
        guess = (total - one) / (len(stack) - 1) > 0.5
        both = float(guess.sum() + one.sum())
        dices.append(2 * float((one * guess).sum()) / both if both else 0.0)
    return float(median(dices))
