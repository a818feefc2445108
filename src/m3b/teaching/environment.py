"""The environment of reinforced training: an episode of prompting behind the methods that TRL uses as tools."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from m3b.interactive.agent import MAX_TURNS, SYSTEM_PROMPT, EpisodeRequest, describe_task, make_opening_messages
from m3b.interactive.episode import Episode
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle
from m3b.interactive.segmenter import BoxPrompt, ByteImage, MaskProposal, Point, Segmenter
from m3b.interactive.targets import Target
from m3b.interactive.toolbox import TOOLS, PromptTools
from m3b.messages import ImageContent, ToolCall
from m3b.teaching.reward import EpisodeOutcome, RewardBreakdown, RewardWeights

Blocks = list[dict[str, Any]]
EPISODE_OVER = "The episode is over: nothing can be called any more."


class SharedSegmenter:
    """One segmenter for many episodes that take turns: each gets its own image set before it prompts.

    Args:
        segmenter: holds one image at a time.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self.segmenter = segmenter
        self._holder: BorrowedSegmenter | None = None

    def borrow(self) -> BorrowedSegmenter:
        """Return a segmenter for one episode."""
        return BorrowedSegmenter(self)

    def acquire(self, borrower: BorrowedSegmenter) -> Segmenter:
        """Return the segmenter with the image of `borrower` set."""
        image, held_image = borrower.image, self._holder.image if self._holder is not None else None
        if image is not None and held_image is not image:
            self.segmenter.set_image(image)
        self._holder = borrower
        return self.segmenter


class BorrowedSegmenter:
    """The segmenter as one episode sees it; see `SharedSegmenter`."""

    def __init__(self, shared: SharedSegmenter) -> None:
        self.shared = shared
        self.image: ByteImage | None = None

    @property
    def name(self) -> str:
        return self.shared.segmenter.name

    def set_image(self, image: ByteImage) -> None:
        self.image = image

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        return self.shared.acquire(self).predict(boxes, points, previous)


@dataclass(frozen=True)
class EpisodeSetup:
    """The targets and settings of episodes.

    Args:
        targets: by number; a row of the data names the number.
        segmenter: shared by all episodes.
    """

    targets: Sequence[Target]
    segmenter: SharedSegmenter
    max_turns: int = MAX_TURNS
    style: PictureStyle = DEFAULT_STYLE
    reward: RewardWeights = field(default_factory=RewardWeights)

    def make_request(self, target: Target) -> EpisodeRequest:
        """Return the agent's request for a target."""
        return EpisodeRequest(target.name, self.max_turns, style=self.style)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the rows to train on: the first messages without the picture, and the target's number."""
        table_rows = []
        for number, target in enumerate(self.targets):
            text = describe_task(target.image.shape[:2], self.make_request(target))
            prompt = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]
            table_rows.append({"prompt": prompt, "number": number})
        return table_rows


class PromptingEnvironment:
    """One episode after the other, as TRL expects an environment.

    Its public methods except `reset` are the agent's tools; methods whose names begin with an underscore are m3b's own.

    Args:
        setup: targets and settings of the episodes.
    """

    def __init__(self, setup: EpisodeSetup) -> None:
        self._setup = setup
        self._target: Target | None = None

    def reset(self, number: int, **row: Any) -> Blocks:
        """Begin an episode on the target of this number; return the picture for the first turn."""
        setup = self._setup
        self._target = target = setup.targets[number]
        self._episode = Episode(setup.segmenter.borrow(), target.image)
        self._tools = PromptTools(self._episode, setup.max_turns, setup.style)
        self._last_call, self._fault_count, self._call_count = "", 0, 0
        pictures = make_opening_messages(self._episode, setup.make_request(target))[-1].images
        return [_to_block(picture) for picture in pictures]

    # Any arguments of a model are accepted, so that m3b's own tools see its errors and answer them; the schemas that it
    # is given are those of m3b's tools as well (`m3b.teaching.experts.get_tool_specs`).

    def add_box(self, **arguments: Any) -> Blocks:
        """Draw a box."""
        return self._call("add_box", arguments)

    def add_point(self, **arguments: Any) -> Blocks:
        """Click a place."""
        return self._call("add_point", arguments)

    def undo(self, **arguments: Any) -> Blocks:
        """Take the last prompt back."""
        return self._call("undo", arguments)

    def stop(self, **arguments: Any) -> Blocks:
        """End the episode."""
        return self._call("stop", arguments)

    def _call(self, name: str, arguments: dict[str, Any]) -> Blocks:
        """Run a call as the agent's own loop does; an error is reported to the model, and counted."""
        self._call_count += 1
        self._last_call = name
        if self._episode.is_stopped:
            self._fault_count += 1
            return [{"type": "text", "text": EPISODE_OVER}]
        result = self._tools.call(ToolCall(f"call_{self._call_count}", name, arguments), tuple(TOOLS))
        self._fault_count += result.is_error
        if result.is_error:
            self._last_call = ""
        return [{"type": "text", "text": result.text}, *(_to_block(picture) for picture in result.images)]

    def _score(self) -> RewardBreakdown:
        """Return the reward of the episode in its current state."""
        assert self._target is not None
        outcome = EpisodeOutcome.from_episode(
            self._episode,
            self._target,
            stopped=self._last_call == "stop" and self._episode.is_stopped,
            faults=self._fault_count,
        )
        return self._setup.reward.score(outcome)


def make_reward_functions(weights: RewardWeights) -> tuple[list[Callable[..., list[float]]], list[float]]:
    """Return the reward as functions of TRL and their weights: form, result and faults, each with its own log entry."""

    def form(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [environment._score().form for environment in environments]

    def result(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [environment._score().result for environment in environments]

    def faults(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [-float(environment._fault_count) for environment in environments]

    return [form, result, faults], [weights.form, weights.result, weights.fault]


def _to_block(picture: ImageContent) -> dict[str, Any]:
    """Return a picture as an opened image block of a turn."""
    from PIL import Image

    with Image.open(io.BytesIO(picture.data)) as image:
        return {"type": "image", "image": image.convert("RGB")}
