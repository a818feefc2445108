"""Prompts of a simulated user with perfect knowledge: the box of the truth, clicks into the largest error.

A click goes to the pixel that lies deepest inside the largest region of error, by Euclidean distance transform of the
padded error maps, as in the CVPR 2025 interactive challenge (JunMa11/CVPR-MedSegFMCompetition) and in RITM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from m3b.interactive.episode import Episode
from m3b.interactive.segmenter import BoxPrompt, Mask, Point
from m3b.interactive.targets import Target

STOP_IOU = 0.98
"""IoU from which the user stops clicking."""


@dataclass(frozen=True)
class SimulatedUser:
    """How a simulated user prompts.

    Args:
        box_first: whether a box precedes the corrective clicks; else there are only clicks.
        box_noise: error of the box's sides, as a share of the target's extent.
        click_noise: standard deviation of a click in pixels; a click that leaves its intended region is set without
            noise.
        max_clicks: maximum number of clicks.
    """

    box_first: bool = True
    box_noise: float = 0.0
    click_noise: float = 0.0
    max_clicks: int = 5


ORACLE_BOX = SimulatedUser(True, max_clicks=0)
ORACLE_CLICKS = SimulatedUser(False)
ORACLE_BOX_AND_CLICKS = SimulatedUser(True)
CAREFUL_USER = SimulatedUser(True, box_noise=0.08, click_noise=2.0)
"""A careful user: a box a few per cent off, clicks two pixels off."""


def prompt_from_truth(episode: Episode, target: Target, user: SimulatedUser, rng: np.random.Generator) -> list[Mask]:
    """Prompt until the mask is right or the turns are used.

    Returns:
        The mask after each prompt.
    """
    masks: list[Mask] = []
    truth = target.truth
    if user.box_first:
        masks.append(episode.add(make_true_box(truth, user.box_noise, rng)).mask)
    for _ in range(user.max_clicks):
        current = target.clear_ignored(episode.current.mask) if episode.current else None
        if current is not None and _iou(current, truth) >= STOP_IOU:
            break
        click = find_next_click(current, truth, episode.points)
        if click is None:
            break
        masks.append(episode.add(add_click_noise(click, truth, user.click_noise, rng)).mask)
    return masks


def add_click_noise(click: Point, truth: Mask, click_noise: float, rng: np.random.Generator) -> Point:
    """Add noise to a click, as of an unsteady hand; a click that would cross the border of the target stays as it is.

    Args:
        click_noise: standard deviation in pixels along each axis.
    """
    if click_noise <= 0:
        return click
    x = float(np.clip(click.x + rng.normal(0, click_noise), 0.5, truth.shape[1] - 0.5))
    y = float(np.clip(click.y + rng.normal(0, click_noise), 0.5, truth.shape[0] - 0.5))
    return Point(x, y, click.positive) if bool(truth[int(y), int(x)]) == click.positive else click


def _iou(mask: Mask, truth: Mask) -> float:
    return float((mask & truth).sum() / max((mask | truth).sum(), 1))


def make_true_box(truth: Mask, box_noise: float = 0.0, rng: np.random.Generator | None = None) -> BoxPrompt:
    """Return the tight box of a mask, each side moved by up to `box_noise` of the box's extent along its axis.

    Raises:
        ValueError: the mask is empty.
    """
    rows, columns = np.flatnonzero(truth.any(axis=1)), np.flatnonzero(truth.any(axis=0))
    if not len(rows):
        raise ValueError("the target is empty: nothing can be boxed")
    corners = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=float)
    if box_noise and rng is not None:
        extent = np.array([corners[2] - corners[0], corners[3] - corners[1]] * 2)
        corners += rng.uniform(-box_noise, box_noise, 4) * extent
    size = np.array([truth.shape[1], truth.shape[0]] * 2, dtype=float)
    x0, y0, x1, y1 = np.clip(corners, 0, size)
    return BoxPrompt(x0, y0, max(x1, x0 + 1), max(y1, y0 + 1))


def find_next_click(mask: Mask | None, truth: Mask, previous_clicks: Sequence[Point] = ()) -> Point | None:
    """Return the click that corrects most; None if all is right.

    It is positive in a missed region and negative in an excess one.

    Args:
        mask: the mask so far; None for none.
        previous_clicks: earlier clicks, whose pixels are not clicked again.
    """
    mask = np.zeros_like(truth) if mask is None else mask
    best: tuple[float, Point] | None = None
    for error, positive in ((truth & ~mask, True), (mask & ~truth, False)):
        depth = _compute_error_depth(error)
        for point in previous_clicks:
            row, column = int(point.y), int(point.x)
            if 0 <= row < depth.shape[0] and 0 <= column < depth.shape[1]:
                depth[row, column] = 0.0
        position = int(depth.argmax())
        if depth.flat[position] > (best[0] if best else 0.0):
            row, column = divmod(position, depth.shape[1])
            best = float(depth.flat[position]), Point(column + 0.5, row + 0.5, positive)
    return best[1] if best else None


def _compute_error_depth(error: Mask) -> np.ndarray:
    """Return the distance of each pixel of the largest error region to its border; 0 elsewhere.

    The edge of the image is a border.
    """
    regions, count = ndimage.label(error, structure=np.ones((3, 3)))
    if not count:
        return np.zeros(error.shape)
    sizes = np.bincount(regions.ravel())
    sizes[0] = 0
    largest = np.pad(regions == sizes.argmax(), 1)
    depth: np.ndarray = ndimage.distance_transform_edt(largest)[1:-1, 1:-1]
    return depth
