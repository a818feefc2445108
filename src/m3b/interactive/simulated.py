"""A simulated person who knows the truth: the embedded agent, which needs no model and no key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from m3b.interactive.clicks import next_click, true_box
from m3b.interactive.episode import Episode
from m3b.interactive.prompts import Point, Prompt
from m3b.interactive.segmenter import Mask

GOOD_ENOUGH = 0.98
"""IoU from which nobody clicks on."""


@dataclass(frozen=True)
class Hand:
    """How a simulated person prompts.

    Args:
        box_first: one box, then corrective clicks; else clicks alone.
        jitter: share of the target's extent by which the box's sides are off.
        tremor: standard deviation of a click in pixels; a click that leaves the region that it was meant for is set again
            where it was meant.
        clicks: at most.
    """

    box_first: bool = True
    jitter: float = 0.0
    tremor: float = 0.0
    clicks: int = 5


ORACLE_BOX = Hand(True, clicks=0)
ORACLE_CLICKS = Hand(False)
HYBRID = Hand(True)
PERSON = Hand(True, jitter=0.08, tremor=2.0)
"""As a careful person would: a box a few per cent off, clicks two pixels off."""

Heard = Callable[[Prompt, Mask], None]


def prompt_by_truth(episode: Episode, truth: Mask, hand: Hand, rng: np.random.Generator) -> list[Mask]:
    """Prompt until the mask is right or the turns are used.

    Returns:
        The mask after each prompt.
    """
    masks: list[Mask] = []
    if hand.box_first:
        masks.append(episode.add(true_box(truth, hand.jitter, rng)).mask)
    for _ in range(hand.clicks):
        current = episode.current.mask if episode.current else None
        if current is not None and _iou(current, truth) >= GOOD_ENOUGH:
            break
        click = next_click(current, truth, episode.points)
        if click is None:
            break
        masks.append(episode.add(shaken(click, truth, hand.tremor, rng)).mask)
    return masks


def shaken(click: Point, truth: Mask, tremor: float, rng: np.random.Generator) -> Point:
    """A click as a hand sets it that is not quite steady; one that leaves its side of the border is set where it was meant.

    Args:
        tremor: standard deviation in pixels along each axis.
    """
    if tremor <= 0:
        return click
    x = float(np.clip(click.x + rng.normal(0, tremor), 0.5, truth.shape[1] - 0.5))
    y = float(np.clip(click.y + rng.normal(0, tremor), 0.5, truth.shape[0] - 0.5))
    return Point(x, y, click.positive) if bool(truth[int(y), int(x)]) == click.positive else click


def _iou(found: Mask, truth: Mask) -> float:
    return float((found & truth).sum() / max((found | truth).sum(), 1))
