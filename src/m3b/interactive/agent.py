"""A vision model that prompts a segmenter on one image: m3b's agent loop with four tools, a budget and a journal."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.agents.budget import Budget
from m3b.agents.check_result import CheckResult, accept, reject, relay_answer
from m3b.agents.conversation import Conversation
from m3b.agents.loop import Agent
from m3b.errors import LLMError, RunEnd, UsageError
from m3b.interactive.episode import Episode, SegmentationResult, Status, conclude
from m3b.interactive.episode_folder import EpisodeFolder
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle, draw_picture
from m3b.interactive.segmenter import ByteImage, Mask, MaskProposal, Segmenter
from m3b.interactive.segmenters.loading import open_segmenter
from m3b.interactive.toolbox import TOOLS, PromptTools
from m3b.llm import LLM, connect
from m3b.llm.base import require_vision
from m3b.messages import Message
from m3b.models import Model, load_model, read_model_info
from m3b.models.pixel_jobs import ConfinedImageIO, open_image_io
from m3b.writing import write_text_atomically


@dataclass(frozen=True)
class Picture2D:
    """The picture that is prompted.

    Args:
        plane: (H, W, 3) uint8.
        volume: (H, W, D, 3) uint8 if the plane is one slice of it.
        index: the slice.
        source: the file; None for an array.
    """

    plane: ByteImage
    volume: ByteImage | None = None
    index: int = 0
    source: str | None = None


def source_of(image: str | Path | ByteImage) -> str | None:
    """Return the absolute path of an image; None for an array."""
    return None if isinstance(image, np.ndarray) else str(Path(image).expanduser().absolute())


def load_picture(
    image: str | Path | ByteImage, opener: ConfinedImageIO | None, slice_index: int | None = None
) -> Picture2D:
    """Open an image; grey values are windowed as in overlays (CT: soft tissue).

    Args:
        opener: opens files; not needed for an array.

    Raises:
        DataError: it cannot be opened.
        UsageError: a slice is requested of an image without slices, or the slice does not exist.
    """
    if isinstance(image, np.ndarray):
        if slice_index is not None:
            raise UsageError("A slice can be chosen of a volume's file, not of an array.")
        return Picture2D(image)
    source = source_of(image)
    if opener is None or source is None:
        raise TypeError("a file needs an opener")
    picture = opener.read_image(source)
    if picture.ndim == 3:
        if slice_index is not None:
            raise UsageError(f"{image} is a single picture and has no slices.")
        return Picture2D(picture, source=source)
    depth = picture.shape[2]
    index = depth // 2 if slice_index is None else slice_index
    if not 0 <= index < depth:
        raise UsageError(f"{image} has the slices 0 to {depth - 1}; there is no slice {index}.")
    return Picture2D(np.ascontiguousarray(picture[:, :, index]), picture, index, source)


def write_result(
    result: SegmentationResult, picture: Picture2D, folder: Path | None, opener: ConfinedImageIO | None
) -> SegmentationResult:
    """Write mask and result into a folder: the mask with the image's geometry, 1 on the target.

    An empty mask is written if the target is said to be absent, but not if no mask was made, which would mean the same.
    """
    if folder is None:
        return result
    has_answer = result.kept_turn > 0 or result.status == "absent"
    if has_answer and picture.source is not None and opener is not None:
        result = replace(result, mask_file=opener.write_mask(result.mask, picture.source, folder))
    write_text_atomically(folder / "result.json", json.dumps(result.to_json(), indent=1, ensure_ascii=False))
    return result


DEFAULT_SCORE = 0.5
"""Assumed IoU of a delivered model's mask.

Such a model gives no score for single images; any prompted mask with a higher score wins.
"""


def predict_first_proposal(
    folder: Path | Model, picture: Picture2D, opener: ConfinedImageIO | None, class_name: str = ""
) -> MaskProposal:
    """Run a delivered model, given or loaded from its folder, on the image's file; its code runs confined.

    Args:
        opener: opens the mask that the model writes, in its own folder.
        class_name: the class of the mask; may be empty if the model has one class.

    Raises:
        UsageError: the model writes no masks, has several classes and none was named, or the image is no file.
    """
    model = folder if isinstance(folder, Model) else load_model(folder)
    if picture.source is None or opener is None:
        raise UsageError("A delivered model reads files: give the image's path, not an array.")
    resolved_class = class_name or (model.classes[0] if len(model.classes) == 1 else "")
    if resolved_class not in model.classes:
        raise UsageError(f"Name the class of the first mask; {model.folder} has {', '.join(model.classes)}.")
    with model, tempfile.TemporaryDirectory(prefix="first-", dir=opener.folder) as output_folder:
        answer = model.predict([picture.source], out=output_folder)[0]
        if answer.masks.get(resolved_class) is not None:
            mask = opener.read_mask(str(answer.masks[resolved_class])) > 0
        elif answer.mask is not None:
            value = read_model_info(model.folder).labels.get(resolved_class, model.classes.index(resolved_class) + 1)
            mask = opener.read_mask(str(answer.mask), value) > 0
        else:
            raise UsageError(f"{model.folder} is a {model.task} model and writes no masks.")
    return MaskProposal(_take_slice(mask, picture), DEFAULT_SCORE)


def _take_slice(mask: Mask, picture: Picture2D) -> Mask:
    return mask if picture.volume is None else np.ascontiguousarray(mask[:, :, picture.index])


MAX_TURNS = 5
SYSTEM_PROMPT = """\
You segment one target in one medical image by prompting a segmenter. You are shown the image; after each prompt you are shown
it again with the mask in green, the box in yellow, positive clicks in blue and negative ones in red.
The rulers run from 0 to 999 across the whole image, x to the right and y downwards. All coordinates are on this grid.
Begin with one box that fits the whole target tightly. Look at the mask that comes back: click what it misses (positive) or what
it should not hold (negative), in the middle of the largest error. Call stop as soon as the mask fits: most targets need one to
three turns. If a prompt made it worse, stop and keep the better mask, or undo it. One call at a time."""
MAX_NUDGES = 2
NUDGE_MESSAGE = "Call a tool: add_box, add_point, undo or stop."


@dataclass(frozen=True)
class EpisodeRequest:
    """The target of an episode, and its limits.

    Args:
        target: what to segment, in words.
        max_turns: maximum number of masks.
        max_tokens: input summed over every request, plus output; None is no limit.
        style: how pictures are drawn for the model.
    """

    target: str
    max_turns: int = MAX_TURNS
    max_tokens: int | None = None
    max_cost: float | None = None
    style: PictureStyle = DEFAULT_STYLE

    def __post_init__(self) -> None:
        if not self.target.strip():
            raise UsageError("Say what to segment: the target is empty.")
        if self.max_turns < 1:
            raise UsageError(f"max_turns is {self.max_turns}; at least one turn is needed.")


def segment(
    image: str | Path | ByteImage,
    target: str,
    *,
    llm: str | LLM | Callable[..., Any] | None = None,
    segmenter: str | Path | Segmenter,
    start: str | Path | Model | MaskProposal | None = None,
    max_turns: int = MAX_TURNS,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    slice_index: int | None = None,
    out: str | Path | None = None,
    offline: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> SegmentationResult:
    """Segment a target given in words: a model looks at the image, prompts a segmenter and corrects the mask.

    Args:
        image: a file that m3b reads, or (H, W, 3) uint8. For a volume, one slice is prompted and the mask is
            propagated.
        target: for instance "the left kidney".
        llm: `provider:model`, an `LLM` or a function; it has to take images. None takes the first whose key is set.
        segmenter: a folder (see `open_segmenter`) or an object with `set_image` and `predict`.
        start: a first mask for the agent to correct: a delivered m3b segmentation model (its folder, or the result of
            `load_model`), or a proposal.
        max_turns: maximum number of masks.
        slice_index: the slice of a volume to prompt; by default the middle one.
        out: a new folder for the mask in the image's own geometry, a picture of every turn, `result.json` and the
            journal.
        offline: refuse a model that another machine serves.
        cancelled: polled while waiting for the model.

    Returns:
        The best mask of all turns, even if the model fails or never stops; `status` and `reason` say how it ended.

    Raises:
        UsageError: the model takes no images, or is on another machine although that is forbidden; the folder holds no
            segmenter; a setting is out of range.
        DataError: the image cannot be read.
    """
    request = EpisodeRequest(target, max_turns, max_tokens, max_cost)
    model = require_vision(connect(llm, local_only=offline), "segmenting")
    loaded_segmenter = open_segmenter(segmenter) if isinstance(segmenter, str | Path) else segmenter
    source = source_of(image)
    with open_image_io(source) if source is not None else nullcontext() as files:
        picture = load_picture(image, files, slice_index)
        episode_folder = EpisodeFolder(None if out is None else Path(out))
        with episode_folder:
            episode = Episode(loaded_segmenter, picture.plane, _load_first_proposal(start, picture, files))
            result = run_episode(episode, request, model, episode_folder=episode_folder, cancelled=cancelled)
            return episode_folder.finish(
                write_result(
                    _propagate_to_volume(result, loaded_segmenter, picture), picture, episode_folder.folder, files
                )
            )


def _propagate_to_volume(result: SegmentationResult, segmenter: Segmenter, picture: Picture2D) -> SegmentationResult:
    """Return the result with the mask of the volume, if the picture is a slice of one."""
    if picture.volume is None:
        return result
    if not result.kept_turn:
        return replace(result, mask=np.zeros(picture.volume.shape[:3], dtype=bool))
    from m3b.interactive.propagation import propagate

    return replace(result, mask=propagate(segmenter, picture.volume, picture.index, result.mask))


def run_episode(
    episode: Episode,
    request: EpisodeRequest,
    llm: LLM,
    *,
    episode_folder: EpisodeFolder | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> SegmentationResult:
    """Let a model prompt until it stops, its turns are used, or it fails; the best mask is kept in any case.

    Raises:
        RunCancelled: `cancelled` returned true.
    """
    episode_folder = episode_folder or EpisodeFolder(None)
    tools = PromptTools(episode, request.max_turns, request.style)
    # turns may be undone and calls may be wrong, so actions limit the episode even if the model never stops
    budget = Budget(max_actions=4 * request.max_turns + 4, max_tokens=request.max_tokens, max_cost_usd=request.max_cost)
    agent = Agent(
        llm=llm,
        tools=tools,
        allowed_tools=tuple(TOOLS),
        budget=budget,
        emit=episode_folder.emit,
        conversation=Conversation(make_opening_messages(episode, request)),
        is_cancelled=cancelled,
    )
    episode_folder.begin(episode, agent.conversation)
    status: Status = "failed"
    try:
        agent.run(lambda text: _check_finished(episode, tools, text))
        status = "absent" if episode.is_absent else "stopped" if episode.is_stopped else "turns_used"
        reason = ""
    except RunEnd as end:
        if end.status == "cancelled":
            raise
        reason = str(end)
    except LLMError as error:
        reason = str(error)
    result = conclude(episode, request.target, status, reason, usage=budget.usage, llm=llm.name, shape=episode.shape)
    episode_folder.write_turn_pictures(episode)
    return result


def make_opening_messages(episode: Episode, request: EpisodeRequest) -> list[Message]:
    """Return the first messages: the system's turn, and the user's turn with the image."""
    current = episode.current
    text = describe_task(episode.shape, request)
    if current is not None:
        text += "\nA trained model has made a first mask (mask 1, green). Correct it, or stop if it fits."
    picture = draw_picture(episode.image, current.mask if current else None, style=request.style)
    return [Message("system", SYSTEM_PROMPT), Message("user", text, images=(picture,))]


def describe_task(shape: Sequence[int], request: EpisodeRequest) -> str:
    """Return the target, the image's rows and columns, and the number of turns, in words."""
    rows, columns = shape
    target = request.target.strip()
    return f"Target: {target}\nThe image has {columns} x {rows} pixels. You have {request.max_turns} turns."


def _check_finished(episode: Episode, tools: PromptTools, text: str) -> CheckResult:
    """Check whether the episode is over when the model calls no tool."""
    if episode.is_stopped or tools.prompt_count >= tools.max_turns:
        return accept(None)
    if episode.turns:
        episode.stop()  # text without a call after a mask: the model is satisfied
        return accept(None)
    tools.nudge_count += 1
    return (
        relay_answer(NUDGE_MESSAGE)
        if tools.nudge_count <= MAX_NUDGES
        else reject(f"The model called no tool. It said: {text}", is_fatal=True)
    )


def _load_first_proposal(
    start: str | Path | Model | MaskProposal | None, picture: Picture2D, files: ConfinedImageIO | None
) -> MaskProposal | None:
    if start is None or isinstance(start, MaskProposal):
        return start

    return predict_first_proposal(start if isinstance(start, Model) else Path(start), picture, files)
