"""A simulated person who knows the truth: the embedded agent, which needs no model and no key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from m3b.interactive.clicks import find_next_click, make_true_box
from m3b.interactive.episode import Episode
from m3b.interactive.prompts import Point, Prompt
from m3b.interactive.segmenter import Mask

STOP_IOU = 0.98
"""IoU from which nobody clicks on."""


@dataclass(frozen=True)
class SimulatedUser:
    """How a simulated person prompts.

    Args:
        box_first: one box, then corrective clicks; else clicks alone.
        box_noise: share of the target's extent by which the box's sides are off.
        click_noise: standard deviation of a click in pixels; a click that leaves the region that it was meant for is set again
            where it was meant.
        max_clicks: at most.
    """

    box_first: bool = True
    box_noise: float = 0.0
    click_noise: float = 0.0
    max_clicks: int = 5


ORACLE_BOX = SimulatedUser(True, max_clicks=0)
ORACLE_CLICKS = SimulatedUser(False)
ORACLE_BOX_AND_CLICKS = SimulatedUser(True)
CAREFUL_USER = SimulatedUser(True, box_noise=0.08, click_noise=2.0)
"""As a careful person would: a box a few per cent off, clicks two pixels off."""

OnPrompt = Callable[[Prompt, Mask], None]


def prompt_from_truth(episode: Episode, truth: Mask, user: SimulatedUser, rng: np.random.Generator) -> list[Mask]:
    """Prompt until the mask is right or the turns are used.

    Returns:
        The mask after each prompt.
    """
    masks: list[Mask] = []
    if user.box_first:
        masks.append(episode.add(make_true_box(truth, user.box_noise, rng)).mask)
    for _ in range(user.max_clicks):
        current = episode.current.mask if episode.current else None
        if current is not None and _iou(current, truth) >= STOP_IOU:
            break
        click = find_next_click(current, truth, episode.points)
        if click is None:
            break
        masks.append(episode.add(add_click_noise(click, truth, user.click_noise, rng)).mask)
    return masks


def add_click_noise(click: Point, truth: Mask, click_noise: float, rng: np.random.Generator) -> Point:
    """A click as a hand sets it that is not quite steady; one that leaves its side of the border is set where it was meant.

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
