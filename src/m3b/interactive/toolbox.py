"""The four tools of a segmenting agent; every result shows the mask."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence

from m3b.errors import ToolError
from m3b.interactive.episode import Episode, Turn, compute_area_share
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle, draw_picture
from m3b.interactive.segmenter import Prompt, box_from_grid, point_from_grid
from m3b.messages import ToolCall, ToolSpec
from m3b.tools import ToolResult
from m3b.tools.schema import coerce_arguments, make_tool_spec


class PromptTools:
    """Binds the tools to an episode, with the interface of a toolbox that `m3b.agents.loop` needs.

    Args:
        max_turns: maximum number of masks; the last one ends the episode.
        style: how pictures are drawn.
    """

    def __init__(self, episode: Episode, max_turns: int, style: PictureStyle = DEFAULT_STYLE) -> None:
        self.episode, self.max_turns, self.style, self.nudge_count = episode, max_turns, style, 0

    @property
    def prompt_count(self) -> int:
        """Number of masks that were made by prompts."""
        return sum(turn.prompt is not None for turn in self.episode.turns)

    def tool_specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        return tuple(make_tool_spec(tool) for name, tool in TOOLS.items() if name in names)

    def call(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult:
        """Run one call; errors of the model are returned as results that name the remedy."""
        tool = TOOLS.get(call.name) if call.name in allowed else None
        if tool is None:
            close_names = difflib.get_close_matches(call.name, TOOLS, 1)
            hint = f" Did you mean {close_names[0]}?" if close_names else ""
            return _make_fault(f"There is no tool {call.name!r}.{hint} Tools: {', '.join(TOOLS)}.")
        usage = f"Use {call.name}({', '.join(list(inspect.signature(tool).parameters)[1:])})."
        if call.parse_error:
            return _make_fault(f"The arguments of {call.name} were not a JSON object ({call.parse_error}). {usage}")
        try:
            return tool(self, **coerce_arguments(tool, call.arguments))
        except (ToolError, ValueError) as error:
            return _make_fault(f"{call.name}: {error}. {usage}")

    def add_prompt(self, prompt: Prompt) -> ToolResult:
        """Segment with one more prompt, if a turn is left."""
        if self.prompt_count >= self.max_turns:
            return ToolResult("All turns are used: the episode ends.", True, {"done": True})
        return self.show_turn(self.episode.add(prompt))

    def show_turn(self, turn: Turn | None) -> ToolResult:
        """Return the current mask, in words and as a picture."""
        episode, remaining = self.episode, self.max_turns - self.prompt_count
        if turn is None:
            return ToolResult(
                "There is no mask now. Set a box or a point.", images=(draw_picture(episode.image, style=self.style),)
            )
        picture = draw_picture(episode.image, turn.mask, episode.boxes, episode.points, self.style)
        turns_text = (
            "This was the last turn: the episode ends."
            if not remaining
            else f"{remaining} turn{'s' if remaining > 1 else ''} left."
        )
        area_text = f"covers {compute_area_share(turn.mask):.1%} of the image" if turn.mask.any() else "is empty"
        text = (
            f"Mask {turn.number} {area_text}; the segmenter expects an IoU of {turn.proposal.score:.2f}. {turns_text}"
        )
        if remaining and not turn.mask.any():
            text += " A positive click in the middle of the target often helps."
        return ToolResult(text, False, {"mask": turn.number, "done": remaining == 0}, images=(picture,))


def add_box(tools: PromptTools, box: list[int]) -> ToolResult:
    """Draw a box around the whole target and segment what is inside. Replaces an earlier box. The usual first step: the
    box should touch the target on all four sides.

    Args:
        box: [x0, y0, x1, y1], whole numbers from 0 to 999 across the whole image as its rulers show them; x to the right,
            y downwards, (x0, y0) the upper left corner.
    """
    return tools.add_prompt(box_from_grid(box, tools.episode.shape))


def add_point(tools: PromptTools, point: list[int], positive: bool) -> ToolResult:
    """Click one place to correct the mask, then segment again with all prompts that stand.

    Args:
        point: [x, y], whole numbers from 0 to 999 across the whole image as its rulers show them.
        positive: true where the target is and the mask is missing; false where the mask is too large.
    """
    return tools.add_prompt(point_from_grid(point, positive, tools.episode.shape))


def undo(tools: PromptTools) -> ToolResult:
    """Take the last prompt back, when it made the mask worse. The mask that it made still counts as a turn."""
    return tools.show_turn(tools.episode.undo())


def stop(tools: PromptTools, keep: int = 0, absent: bool = False) -> ToolResult:
    """End: the mask is right, or prompts no longer improve it.

    Args:
        keep: the number of the best mask; 0 keeps the one that the segmenter trusts most.
        absent: true if the target is not in this image at all; no mask is kept then.
    """
    tools.episode.stop(keep or None, absent=absent)
    return ToolResult("Stopped.", False, {"done": True})


def _make_fault(text: str) -> ToolResult:
    return ToolResult(text, True, {"malformed": True})


TOOLS: dict[str, Callable[..., ToolResult]] = {tool.__name__: tool for tool in (add_box, add_point, undo, stop)}
