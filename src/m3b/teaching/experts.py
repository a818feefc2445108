"""Expert episodes, simulated from the truth: a box first and corrective clicks, or clicks alone.

A step is kept only if it raises the IoU by more than a threshold, and is otherwise tried again elsewhere (MedSAM-Agent,
arXiv 2602.03320). The expert uses the agent's own tools, so what is learnt is what is called at work, on the tools'
grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import ndimage

from m3b.errors import UsageError
from m3b.interactive.agent import MAX_TURNS, EpisodeRequest, make_opening_messages
from m3b.interactive.episode import Episode
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle
from m3b.interactive.segmenter import (
    GRID,
    BoxPrompt,
    Mask,
    Point,
    Prompt,
    Segmenter,
    box_from_grid,
    point_from_grid,
    to_grid,
)
from m3b.interactive.simulated_user import add_click_noise, find_next_click, make_true_box
from m3b.interactive.targets import Target, compute_overlap
from m3b.interactive.toolbox import TOOLS, PromptTools
from m3b.messages import Message, ToolCall, ToolSpec
from m3b.teaching.reward import EpisodeOutcome, RewardBreakdown, RewardWeights
from m3b.tools.schema import make_tool_spec

PromptMode = Literal["hybrid", "points"]
PROMPT_MODES: tuple[PromptMode, ...] = ("hybrid", "points")
CLOSING_MESSAGE = "Done."
"""The expert's last message after its stop, without a call."""


@dataclass(frozen=True)
class Expert:
    """How the expert prompts, and which episodes are kept.

    Args:
        ways: prompt modes: `hybrid` begins with the box, `points` with a click; an episode each.
        max_turns: maximum masks of an episode.
        min_gain: minimum rise of the IoU in a step; the first step starts from 0.
        retries: further tries of a step that gains too little; then the episode stops in its current state.
        min_iou: minimum IoU of the last mask; other episodes are excluded.
        enough: IoU from which the expert stops.
        jitter: maximum error of each side of the box, as a share of the target's extent.
        tremor: standard deviation of a click in pixels.
        look: how pictures are drawn.

    Raises:
        UsageError: a setting is out of range.
    """

    ways: tuple[PromptMode, ...] = PROMPT_MODES
    max_turns: int = MAX_TURNS
    min_gain: float = 0.015
    retries: int = 5
    min_iou: float = 0.7
    enough: float = 0.95
    jitter: float = 0.08
    tremor: float = 2.0
    seed: int = 0
    look: PictureStyle = DEFAULT_STYLE

    def __post_init__(self) -> None:
        if not self.ways or not set(self.ways) <= set(PROMPT_MODES):
            raise UsageError(
                f"The expert's ways are {', '.join(PROMPT_MODES)}; found {', '.join(self.ways) or 'none'}."
            )
        if self.max_turns < 1 or self.retries < 0:
            raise UsageError("max_turns must be at least 1, and retries at least 0.")
        for name in ("min_gain", "min_iou", "enough", "jitter"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}; a share from 0 to 1 is needed.")
        if self.tremor < 0:
            raise UsageError(f"tremor is {self.tremor}; pixels from 0 on are needed.")


@dataclass(frozen=True)
class Demonstration:
    """An expert's episode.

    Args:
        messages: the conversation, from the system's turn to the closing message, with pictures.
        iou: after each turn.
        reason: why it is not kept; empty if it is.
    """

    messages: tuple[Message, ...]
    iou: tuple[float, ...]
    score: RewardBreakdown
    reason: str = ""


def demonstrate(
    target: Target,
    segmenter: Segmenter,
    expert: Expert,
    mode: PromptMode,
    rng: np.random.Generator,
    reward: RewardWeights,
) -> Demonstration:
    """Prompt towards the truth, step by step."""
    episode = Episode(segmenter, target.image)
    tools = PromptTools(episode, expert.max_turns, expert.look)
    request = EpisodeRequest(target.name, expert.max_turns, style=expert.look)
    messages = make_opening_messages(episode, request)
    iou: list[float] = []
    while len(iou) < expert.max_turns and (not iou or iou[-1] < expert.enough):
        step = _find_step(episode, target, expert, mode == "hybrid" and not iou, rng, iou[-1] if iou else 0.0)
        if step is None:
            break
        _make_call(messages, tools, step)
        current = episode.current
        assert current is not None
        iou.append(compute_overlap(target.clear_ignored(current.mask), target.truth)[1])
    if iou:
        _make_call(messages, tools, ("stop", {"keep": len(iou)}))
    messages.append(Message("assistant", CLOSING_MESSAGE))
    score = reward.score(EpisodeOutcome.from_episode(episode, target, stopped=bool(iou)))
    reason = ""
    if not iou:
        reason = "no first prompt gained anything"
    elif iou[-1] < expert.min_iou:
        reason = f"final IoU below {expert.min_iou:g}"
    return Demonstration(tuple(messages), tuple(iou), score, reason)


def get_tool_specs() -> tuple[ToolSpec, ...]:
    """Return the tools that the agent is given."""
    return tuple(make_tool_spec(tool) for tool in TOOLS.values())


def _make_call(messages: list[Message], tools: PromptTools, step: tuple[str, dict[str, Any]]) -> None:
    """Make a call as the agent does, and append call and result to the messages."""
    call = ToolCall(f"call_{len(messages)}", *step)
    result = tools.call(call, tuple(TOOLS))
    if result.is_error:
        raise AssertionError(f"the expert's own call failed: {result.text}")
    messages.append(Message("assistant", "", (call,)))
    messages.append(Message("tool", result.text, call_id=call.id, images=result.images))


def _find_step(
    episode: Episode, target: Target, expert: Expert, with_box: bool, rng: np.random.Generator, current_iou: float
) -> tuple[str, dict[str, Any]] | None:
    """Return the next call that gains enough; None if no try does."""
    truth, current = target.truth, target.clear_ignored(episode.current.mask) if episode.current else None
    for attempt in range(expert.retries + 1):
        prompt: Prompt | None
        if with_box:
            prompt = make_true_box(truth, expert.jitter, rng)
        elif attempt == 0:
            prompt = find_next_click(current, truth, episode.points)
            prompt = add_click_noise(prompt, truth, expert.tremor, rng) if prompt is not None else None
        else:
            prompt = _sample_error_point(current, truth, rng)
        if prompt is None:
            return None
        grid_call, grid_prompt = _to_grid_call(prompt, episode.shape)
        preview = target.clear_ignored(episode.preview(grid_prompt).mask)
        gain = compute_overlap(preview, truth)[1] - current_iou
        if gain > expert.min_gain:
            return grid_call
    return None


def _to_grid_call(prompt: Prompt, shape: Sequence[int]) -> tuple[tuple[str, dict[str, Any]], Prompt]:
    """Return a prompt as a call on the grid, and the prompt that the tool makes of that call."""
    rows, columns = shape
    if isinstance(prompt, BoxPrompt):
        box = [min(to_grid(prompt.x0, columns), GRID - 2), min(to_grid(prompt.y0, rows), GRID - 2)]
        box += [max(to_grid(prompt.x1 - 1e-6, columns), box[0] + 1), max(to_grid(prompt.y1 - 1e-6, rows), box[1] + 1)]
        return ("add_box", {"box": box}), box_from_grid(box, shape)
    position = [to_grid(prompt.x, columns), to_grid(prompt.y, rows)]
    return ("add_point", {"point": position, "positive": prompt.positive}), point_from_grid(
        position, prompt.positive, shape
    )


def _sample_error_point(mask: Mask | None, truth: Mask, rng: np.random.Generator) -> Point | None:
    """Sample another position in any region of error, deeper ones more likely; None without an error."""
    error = truth.copy() if mask is None else truth ^ mask
    depth = ndimage.distance_transform_edt(np.pad(error, 1))[1:-1, 1:-1]
    total = depth.sum()
    if not total:
        return None
    row, column = divmod(int(rng.choice(depth.size, p=(depth / total).ravel())), truth.shape[1])
    return Point(column + 0.5, row + 0.5, bool(truth[row, column]))
