"""The verifiable reward of an episode of prompting: its form, and the quality of its masks.

As in MedSAM-Agent (arXiv 2602.03320), 0.2 of the reward is for the form and 0.8 for the result. The result is the
quality of the delivered mask, plus the improvement by later turns, minus what an earlier mask had better, minus a cost
a turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from m3b.errors import UsageError
from m3b.interactive.episode import Episode
from m3b.interactive.targets import Target, compute_overlap


@dataclass(frozen=True)
class EpisodeOutcome:
    """The facts of an episode that its reward needs.

    Args:
        dice: of each mask with the truth, in the order in which they were made.
        iou: likewise.
        delivered: (Dice, IoU) of the delivered mask; zeros if none is delivered.
        stopped: the last call was a stop.
        faults: calls that could not be run: unknown tools, wrong arguments, calls after the end.
    """

    dice: tuple[float, ...]
    iou: tuple[float, ...]
    delivered: tuple[float, float]
    stopped: bool
    faults: int = 0

    @classmethod
    def from_episode(cls, episode: Episode, target: Target, *, stopped: bool, faults: int = 0) -> EpisodeOutcome:
        """Return the outcome of an episode."""
        masks = [target.clear_ignored(turn.mask) for turn in episode.turns if turn.prompt is not None]
        overlaps = [compute_overlap(mask, target.truth) for mask in masks]
        best_turn = None if episode.is_absent else episode.best
        delivered = (0.0, 0.0)
        if best_turn is not None:
            delivered = compute_overlap(target.clear_ignored(best_turn.mask), target.truth)
        return cls(tuple(pair[0] for pair in overlaps), tuple(pair[1] for pair in overlaps), delivered, stopped, faults)


@dataclass(frozen=True)
class RewardBreakdown:
    """A reward and its parts; each part is given before weighting.

    Args:
        form: 1, 0.5 or 0.
        quality: of the delivered mask, 0 to 1.
        gain: sum of the steps by which IoU rose from mask to mask.
        overshoot: IoU of the best mask minus that of the delivered one.
        turns: number of masks.
        result: weighted sum of quality, gain, overshoot and turns, 0 to 1.
        total: the reward.
    """

    form: float
    quality: float
    gain: float
    overshoot: float
    turns: int
    result: float
    total: float


@dataclass(frozen=True)
class RewardWeights:
    """The weights of a reward. Those of gain, overshoot and turns only count in episodes of several masks.

    Args:
        form: for a call that prompts and for a stop as the last call, half each.
        result: for the quality of the masks.
        dice: share of Dice in the quality of the delivered mask; `iou` has the rest. If Dice is 0, so is the quality.
        gain: for each step by which IoU rose.
        overshoot: for IoU that an earlier mask had and the delivered one has not.
        turn: cost of each mask.
        fault: cost of each call that could not be run.

    Raises:
        UsageError: a weight is negative or not finite, or form and result are both 0.
    """

    form: float = 0.2
    result: float = 0.8
    dice: float = 0.5
    iou: float = 0.5
    gain: float = 0.1
    overshoot: float = 1.0
    turn: float = 0.01
    fault: float = 0.0

    def __post_init__(self) -> None:
        for weight_field in fields(self):
            weight = getattr(self, weight_field.name)
            if not math.isfinite(weight) or weight < 0:
                raise UsageError(f"The reward's weight {weight_field.name} is {weight}; a number from 0 on is needed.")
        if not self.form + self.result > 0 or not self.dice + self.iou > 0:
            raise UsageError("The reward would always be 0: give form or result, and dice or iou, a weight above 0.")

    def score(self, outcome: EpisodeOutcome) -> RewardBreakdown:
        """Return the reward of an episode: at most `form + result` if dice + iou is 1."""
        form = self.compute_form(outcome)
        quality = self.dice * outcome.delivered[0] + self.iou * outcome.delivered[1]
        turns = len(outcome.iou)
        gain = sum(max(0.0, later - earlier) for earlier, later in zip(outcome.iou, outcome.iou[1:], strict=False))
        overshoot = max(0.0, max(outcome.iou, default=0.0) - outcome.delivered[1])
        weighted_quality = quality
        if turns > 1:
            weighted_quality += self.gain * gain - self.overshoot * overshoot - self.turn * turns
        result = min(max(weighted_quality, 0.0), 1.0)
        total = self.form * form + self.result * result - self.fault * outcome.faults
        return RewardBreakdown(form, quality, gain, overshoot, turns, result, total)

    @staticmethod
    def compute_form(outcome: EpisodeOutcome) -> float:
        """Return 1 for an episode that prompts and whose last call is a stop, 0.5 for one of the two, 0 for neither."""
        return 0.5 * bool(outcome.iou) + 0.5 * outcome.stopped
