"""What an episode ended with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from m3b.interactive.episode import Episode, Turn, make_empty_mask
from m3b.interactive.prompts import BoxPrompt, Prompt
from m3b.interactive.segmenter import Mask
from m3b.messages import Usage

Status = Literal["stopped", "turns_used", "absent", "failed"]
"""`stopped` by the agent; `turns_used`: the last turn was made; `absent`: the agent says that the target is not there;
`failed`: the model or the budget ended it, `reason` says how."""


@dataclass(frozen=True)
class SegmentationResult:
    """A mask and how it came about.

    Args:
        mask: (H, W) bool, or (H, W, D), in the axes of the image as `m3b.data.reading.read_image` gives them; empty where
            the target is absent or no mask was made.
        score: what the segmenter expects of the mask's IoU; 0 where there is none.
        kept_turn: the number of the turn whose mask this is; 0 for none.
        turns: every mask that was made.
        mask_file: where the mask was written, in the image's own geometry; None where nothing was written.
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
        """Without the masks."""
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
    """A prompt in pixels, as JSON."""
    if prompt is None:
        return {"prompt": "first proposal"}
    if isinstance(prompt, BoxPrompt):
        return {"prompt": "box", "box": [round(side, 2) for side in prompt.corners]}
    return {"prompt": "positive" if prompt.positive else "negative", "point": [round(prompt.x, 2), round(prompt.y, 2)]}


def conclude(
    episode: Episode, target: str, status: Status, reason: str, *, usage: Usage, llm: str, shape: Sequence[int]
) -> SegmentationResult:
    """The result of an episode as it stands: the best mask of all that were made."""
    best_turn = None if episode.is_absent else episode.best
    mask = make_empty_mask(shape) if best_turn is None else best_turn.mask
    score, kept_turn = (0.0, 0) if best_turn is None else (best_turn.proposal.score, best_turn.number)
    turns = tuple(episode.turns)
    return SegmentationResult(target, status, reason, mask, score, kept_turn, turns, usage, episode.segmenter.name, llm)
