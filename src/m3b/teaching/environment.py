"""What a model acts in while it is reinforced: an episode of prompting behind the methods that TRL takes for tools."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from m3b.interactive.agent import MAX_TURNS, SYSTEM, EpisodeRequest, opening, task
from m3b.interactive.episode import Episode
from m3b.interactive.pictures import USUAL, Look
from m3b.interactive.prompts import BoxPrompt, Point
from m3b.interactive.segmenter import Bytes, MaskProposal, Segmenter
from m3b.interactive.targets import Target
from m3b.interactive.toolbox import TOOLS, PromptTools
from m3b.messages import Picture, ToolCall
from m3b.teaching.reward import Played, Reward, Scored

Blocks = list[dict[str, Any]]
OVER = "The episode is over: nothing can be called any more."


class SharedSegmenter:
    """One segmenter for many episodes that take turns: each gets its own image back before it prompts.

    Args:
        segmenter: holds one image at a time.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self.segmenter = segmenter
        self._holder: BorrowedSegmenter | None = None

    def borrow(self) -> BorrowedSegmenter:
        """A segmenter for one episode."""
        return BorrowedSegmenter(self)

    def hold(self, borrower: BorrowedSegmenter) -> Segmenter:
        """The segmenter with the image of `borrower` set."""
        image, held_image = borrower.image, self._holder.image if self._holder is not None else None
        if image is not None and held_image is not image:
            self.segmenter.set_image(image)
        self._holder = borrower
        return self.segmenter


class BorrowedSegmenter:
    """The segmenter as one episode sees it; see `SharedSegmenter`."""

    def __init__(self, shared: SharedSegmenter) -> None:
        self.shared = shared
        self.image: Bytes | None = None

    @property
    def name(self) -> str:
        return self.shared.segmenter.name

    def set_image(self, image: Bytes) -> None:
        self.image = image

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        return self.shared.hold(self).predict(boxes, points, previous)


@dataclass(frozen=True)
class PlayedOn:
    """What episodes are played on.

    Args:
        targets: by number; a row of the data names the number.
        segmenter: shared by all episodes.
    """

    targets: Sequence[Target]
    segmenter: SharedSegmenter
    max_turns: int = MAX_TURNS
    look: Look = USUAL
    reward: Reward = field(default_factory=Reward)

    def asked(self, target: Target) -> EpisodeRequest:
        """What the agent is asked for a target."""
        return EpisodeRequest(target.name, self.max_turns, look=self.look)

    def rows(self) -> list[dict[str, Any]]:
        """The rows to train on: what the agent is told first, without its picture, and the target's number."""
        table_rows = []
        for number, target in enumerate(self.targets):
            text = task(target.image.shape[:2], self.asked(target))
            prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
            table_rows.append({"prompt": prompt, "number": number})
        return table_rows


class PromptingEnvironment:
    """One episode after the other. Its public methods but `reset` are the agent's tools; those of a name that begins with
    an underscore are m3b's own.

    Args:
        stage: what is played on.
    """

    def __init__(self, stage: PlayedOn) -> None:
        self._stage = stage
        self._target: Target | None = None

    def reset(self, number: int, **row: Any) -> Blocks:
        """Begin an episode on the target of this number; returns the picture that goes into the first turn."""
        setup = self._stage
        self._target = target = setup.targets[number]
        self._episode = Episode(setup.segmenter.borrow(), target.image)
        self._tools = PromptTools(self._episode, setup.max_turns, setup.look)
        self._last, self._faults, self._calls = "", 0, 0
        pictures = opening(self._episode, setup.asked(target))[-1].images
        return [_block(picture) for picture in pictures]

    # Whatever a model gives as arguments is taken, so that m3b's own tools see its faults and answer them; the schemas that
    # it is told are theirs as well (`m3b.teaching.experts.specs`).

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
        """Run a call as the agent's own loop does; a fault is told, and counted."""
        self._calls += 1
        self._last = name
        if self._episode.stopped:
            self._faults += 1
            return [{"type": "text", "text": OVER}]
        result = self._tools.call(ToolCall(f"call_{self._calls}", name, arguments), tuple(TOOLS))
        self._faults += result.is_error
        if result.is_error:
            self._last = ""
        return [{"type": "text", "text": result.text}, *(_block(picture) for picture in result.images)]

    def _scored(self) -> Scored:
        """The reward of the episode as it stands."""
        assert self._target is not None
        outcome = Played.of(
            self._episode,
            self._target.truth,
            stopped=self._last == "stop" and self._episode.stopped,
            faults=self._faults,
        )
        return self._stage.reward.score(outcome)


def rewards(weights: Reward) -> tuple[list[Callable[..., list[float]]], list[float]]:
    """The reward as functions of TRL and their weights: form, result and faults, each shown in the log by itself."""

    def form(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [environment._scored().form for environment in environments]

    def result(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [environment._scored().result for environment in environments]

    def faults(environments: Sequence[PromptingEnvironment], **batch: Any) -> list[float]:
        return [-float(environment._faults) for environment in environments]

    return [form, result, faults], [weights.form, weights.result, weights.fault]


def _block(picture: Picture) -> dict[str, Any]:
    """A picture as a block of a turn, opened."""
    from PIL import Image

    with Image.open(io.BytesIO(picture.data)) as image:
        return {"type": "image", "image": image.convert("RGB")}
