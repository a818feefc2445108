"""One image, one target: the prompts so far and the masks that they gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.segmenter import BoxPrompt, ByteImage, Mask, MaskProposal, Point, Prompt, Segmenter
from m3b.messages import Usage

Status = Literal["stopped", "turns_used", "absent", "failed"]
"""How an episode ended.

`stopped`: the agent stopped; `turns_used`: the last turn was used; `absent`: the agent says that the target is not in
the image; `failed`: the model or the budget ended it, see `reason`.
"""


@dataclass(frozen=True)
class SegmentationResult:
    """A mask and how it was made.

    Args:
        mask: (H, W) bool, or (H, W, D), in the axes of `m3b.dataset.reading.read_image`; empty if the target is absent or
            no mask was made.
        score: the IoU that the segmenter expects of the mask; 0 if there is none.
        kept_turn: the number of the turn whose mask this is; 0 for none.
        turns: every mask that was made.
        mask_file: the file of the mask, in the image's own geometry; None if nothing was written.
    """

    target: str
    status: Status
    reason: str
    mask: Mask
    score: float
    kept_turn: int
    turns: tuple[Turn, ...]
    usage: Usage
    segmenter: str
    llm: str
    mask_file: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values without the masks."""
        return {
            "target": self.target, "status": self.status, "reason": self.reason, "score": round(self.score, 4),
            "kept": self.kept_turn, "segmenter": self.segmenter, "llm": self.llm,
            "mask": None if self.mask_file is None else str(self.mask_file),
            "covers": round(float(self.mask.mean()), 6),
            "turns": [
                {"number": turn.number, **prompt_to_json(turn.prompt), "score": round(turn.proposal.score, 4)}
                for turn in self.turns
            ],
            "usage": {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens,
                      "requests": self.usage.requests, "cost_usd": round(self.usage.cost_usd, 6)},
        }  # fmt: skip


def prompt_to_json(prompt: Prompt | None) -> dict[str, Any]:
    """Return a prompt in pixels, as JSON."""
    if prompt is None:
        return {"prompt": "first proposal"}
    if isinstance(prompt, BoxPrompt):
        return {"prompt": "box", "box": [round(side, 2) for side in prompt.corners]}
    return {"prompt": "positive" if prompt.positive else "negative", "point": [round(prompt.x, 2), round(prompt.y, 2)]}


def conclude(
    episode: Episode, target: str, status: Status, reason: str, *, usage: Usage, llm: str, shape: Sequence[int]
) -> SegmentationResult:
    """Return the result of an episode in its current state: the best of all masks."""
    best_turn = None if episode.is_absent else episode.best
    mask = make_empty_mask(shape) if best_turn is None else best_turn.mask
    score, kept_turn = (0.0, 0) if best_turn is None else (best_turn.proposal.score, best_turn.number)
    turns = tuple(episode.turns)
    return SegmentationResult(target, status, reason, mask, score, kept_turn, turns, usage, episode.segmenter.name, llm)


CANCEL_DISTANCE_PX = 3.0
"""A click this near to an earlier one of the other sign replaces it: both together would tell a segmenter nothing."""


@dataclass(frozen=True)
class Turn:
    """A prompt, and the mask of all prompts up to it."""

    number: int
    prompt: Prompt | None
    proposal: MaskProposal

    @property
    def mask(self) -> Mask:
        return self.proposal.mask


class Episode:
    """The state between an agent and a segmenter.

    Args:
        segmenter: gets the image at once.
        image: (H, W, 3) uint8.
        start: a first proposal, for example of a delivered model, which prompts correct.

    Attributes:
        turns: every mask that was made, in order; undone ones stay, so that the best is never lost.
        is_stopped: the agent has said that it is done.
        is_absent: the agent has said that the target is not in the image.
    """

    def __init__(self, segmenter: Segmenter, image: ByteImage, start: MaskProposal | None = None) -> None:
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
            raise UsageError(f"an image of (H, W, 3) uint8 is needed, got {image.shape} {image.dtype}")
        self.segmenter, self.image = segmenter, image
        segmenter.set_image(image)
        self.turns: list[Turn] = []
        self.is_stopped = self.is_absent = False
        self._chosen_number: int | None = None
        self._active_turns: list[Turn] = []  # without undone turns
        if start is not None:
            self._add(None, start)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.image.shape[0], self.image.shape[1]

    @property
    def boxes(self) -> tuple[BoxPrompt, ...]:
        """The active box: a new one replaces an older one."""
        return tuple(turn.prompt for turn in self._active_turns if isinstance(turn.prompt, BoxPrompt))[-1:]

    @property
    def points(self) -> tuple[Point, ...]:
        """The active clicks, without those that a later one of the other sign replaced."""
        active_points: list[Point] = []
        for turn in self._active_turns:
            if isinstance(turn.prompt, Point):
                active_points = [point for point in active_points if not _is_cancelled_by(turn.prompt, point)]
                active_points.append(turn.prompt)
        return tuple(active_points)

    @property
    def current(self) -> Turn | None:
        """The active mask."""
        return self._active_turns[-1] if self._active_turns else None

    @property
    def best(self) -> Turn | None:
        """The mask to deliver: the agent's choice, else the one with the highest score, the later of equals."""
        if self._chosen_number is not None:
            return self.turns[self._chosen_number - 1]
        return max(reversed(self.turns), key=lambda turn: turn.proposal.score, default=None)

    def add(self, prompt: Prompt) -> Turn:
        """Set a prompt and segment."""
        return self._add(prompt, self.preview(prompt))

    def preview(self, prompt: Prompt) -> MaskProposal:
        """Return what the segmenter would answer to a further prompt, without setting it."""
        current_turn = self.current
        boxes = (prompt,) if isinstance(prompt, BoxPrompt) else self.boxes
        points = self.points
        if isinstance(prompt, Point):
            points = (*(point for point in points if not _is_cancelled_by(prompt, point)), prompt)
        previous = None if isinstance(prompt, BoxPrompt) or current_turn is None else current_turn.proposal
        return self.segmenter.predict(boxes, points, previous)

    def undo(self) -> Turn | None:
        """Undo the last prompt and return the turn that is then active.

        Raises:
            ValueError: there is no prompt to undo.
        """
        if not self._active_turns or self._active_turns[-1].prompt is None:
            raise ValueError("there is no prompt to take back")
        self._active_turns.pop()
        return self.current

    def stop(self, keep: int | None = None, *, absent: bool = False) -> None:
        """End the episode.

        Args:
            keep: the number of the mask to deliver; None leaves the choice to `best`.
            absent: the target is not in the image: no mask is delivered.

        Raises:
            ValueError: there is no mask of that number.
        """
        if keep is not None and not 1 <= keep <= len(self.turns):
            numbers_text = f"1 to {len(self.turns)}" if self.turns else "none yet"
            raise ValueError(f"there is no mask {keep}; there are {numbers_text}")
        self._chosen_number, self.is_absent, self.is_stopped = keep, absent, True

    def _add(self, prompt: Prompt | None, proposal: MaskProposal) -> Turn:
        if proposal.mask.shape != self.shape:
            raise UsageError(
                f"The segmenter {self.segmenter.name} answered a mask of {proposal.mask.shape} for an image of {self.shape}."
            )
        turn = Turn(len(self.turns) + 1, prompt, proposal)
        self.turns.append(turn)
        self._active_turns.append(turn)
        return turn


def _is_cancelled_by(new: Point, old: Point) -> bool:
    return new.positive != old.positive and float(np.hypot(new.x - old.x, new.y - old.y)) <= CANCEL_DISTANCE_PX


def compute_area_share(mask: Mask) -> float:
    """Return the share of the image that a mask covers."""
    return float(mask.mean())


def make_empty_mask(shape: Sequence[int]) -> Mask:
    """Return an empty mask."""
    return np.zeros(tuple(shape), dtype=bool)
