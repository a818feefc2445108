"""The participant flow diagram of a paper kit: as SVG, as text, and as TikZ for LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from m3b.markup.formatting import shorten
from m3b.markup.html import Html, join_html, tag
from m3b.markup.latex import escape_latex
from m3b.models.model_card import escape_markdown
from m3b.report.paper.facts import PaperFacts

TITLE = "Flow of cases"
_WIDTH, _MARGIN, _GAP, _LINE_HEIGHT, _PADDING = 760, 20, 36, 20, 12
_CHARS_PER_PIXEL = 1 / 7.6
_PIXELS_PER_CM = 46


@dataclass(frozen=True)
class FlowBox:
    """A box of the diagram.

    Args:
        column: `left`, `right`, or `center`.
        lines: text below the title.
    """

    title: str
    lines: tuple[str, ...]
    column: str = "center"


@dataclass(frozen=True)
class FlowStep:
    """One level of the diagram: its boxes, and what was left out before it."""

    boxes: tuple[FlowBox, ...]
    exclusions: FlowBox | None = None


@dataclass(frozen=True)
class _PlacedBox:
    box: FlowBox
    x: int
    y: int
    width: int
    lines: tuple[str, ...]

    @property
    def height(self) -> int:
        return 2 * _PADDING + _LINE_HEIGHT * (1 + len(self.lines))

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def bottom(self) -> int:
        return self.y + self.height


def build_flow(facts: PaperFacts) -> tuple[FlowStep, ...]:
    """Return the levels of the diagram, from the data folder to the measured cases."""
    steps = []
    if "files.all" in facts:
        excluded = None
        if facts.facts["files.excluded"].value:
            reasons = [
                f"{shorten(facts.text_of(name), 80)}: {facts.text_of(name.removesuffix('reason') + 'files')}"
                for name in facts.names_below("exclusions")
                if name.endswith(".reason")
            ]
            excluded = FlowBox("Not used", (f"{facts.text_of('files.excluded')} files", *reasons), "right")
        steps.append(FlowStep((FlowBox("Data folder", (f"{facts.text_of('files.all')} files",)),), excluded))
    absent = None
    if "files.absent" in facts:
        absent = FlowBox("Without an image", (f"{facts.text_of('files.absent')} cases of a table",), "right")
    steps.append(FlowStep((FlowBox("Index", _count_lines(facts, "all")),), absent))
    parts = [FlowBox("Training", _count_lines(facts, "train"), "left")]
    parts.append(FlowBox("Testing (locked)", _count_lines(facts, "test"), "right"))
    steps.append(FlowStep(tuple(parts)))
    last = []
    if "validation.n" in facts:
        last.append(FlowBox("Validation", (f"{facts.text_of('validation.n')} of the training cases",), "left"))
    if "primary.n" in facts:
        last.append(FlowBox("Measured", (f"{facts.text_of('primary.n')} cases",), "right"))
    steps.append(FlowStep(tuple(last)))
    external = tuple(
        f"{facts.text_of(name)}: {facts.text_of(prefix + 'cases')} cases"
        for name in facts.names_below("external")
        if name.endswith(".name") and (prefix := name.removesuffix("name")) + "cases" in facts
    )
    if external:
        steps.append(FlowStep((FlowBox("External testing", external, "right"),)))
    return tuple(step for step in steps if step.boxes)


def _count_lines(facts: PaperFacts, split: str) -> tuple[str, ...]:
    patients = f"patients.{split}"
    patients_line = f"{facts.text_of(patients)} patients" if patients in facts else "patients not identified"
    return (f"{facts.text_of(f'cases.{split}')} cases", patients_line)


# --- text ----------------------------------------------------------------------------------------------------------


def list_flow_lines(steps: Sequence[FlowStep]) -> list[str]:
    """Return one line for each box."""
    return [
        f"{box.title}: {'; '.join(box.lines)}"
        for step in steps
        for box in (*step.boxes, *filter(None, [step.exclusions]))
    ]


def render_flow_markdown(steps: Sequence[FlowStep]) -> str:
    lines = [f"{number}. {escape_markdown(line)}" for number, line in enumerate(list_flow_lines(steps), 1)]
    return "\n".join([f"# {TITLE}", "", "![Flow of cases](flow.svg)", "", *lines, ""])


# --- drawings ------------------------------------------------------------------------------------------------------


def _place_boxes(steps: Sequence[FlowStep]) -> list[list[_PlacedBox]]:
    """Return the placed boxes of each level; exclusions come last."""
    half = (_WIDTH - 2 * _MARGIN - _GAP) // 2
    left_x = {"left": _MARGIN, "right": _WIDTH - _MARGIN - half, "center": _MARGIN}
    levels, y = [], _MARGIN
    for step in steps:
        placed = []
        for box in (*step.boxes, *filter(None, [step.exclusions])):
            max_chars = int((half - 2 * _PADDING) * _CHARS_PER_PIXEL)
            lines = tuple(part for line in box.lines for part in textwrap.wrap(line, max_chars) or [""])
            placed.append(_PlacedBox(box, left_x[box.column], y, half, lines))
        levels.append(placed)
        y = max(item.bottom for item in placed) + _GAP
    return levels


def _list_arrows(steps: Sequence[FlowStep], levels: Sequence[Sequence[_PlacedBox]]) -> list[list[tuple[int, int]]]:
    """Return the corners of each arrow: down to each box of the next level, and sideways to exclusions."""
    arrows = []
    for step, placed, next_step, next_placed in zip(
        steps, levels, [*steps[1:], FlowStep(())], [*levels[1:], []], strict=True
    ):
        boxes = placed[: len(step.boxes)]
        if step.exclusions is not None:
            y = boxes[0].y + boxes[0].height // 2
            arrows.append([(boxes[0].x + boxes[0].width, y), (placed[-1].x, y)])
        for target in next_placed[: len(next_step.boxes)]:
            source = next((item for item in boxes if item.box.column == target.box.column), boxes[0])
            start, end = (source.middle, source.bottom), (target.middle, target.y)
            corner_y = target.y - _GAP // 2
            corners = [] if start[0] == end[0] else [(start[0], corner_y), (end[0], corner_y)]
            arrows.append([start, *corners, end])
    return arrows


def render_flow_svg(steps: Sequence[FlowStep]) -> str:
    """Return the diagram as SVG whose text stays text; `desc` holds it as sentences."""
    levels = _place_boxes(steps)
    height = max(item.bottom for placed in levels for item in placed) + _MARGIN
    marker = tag(
        "marker", tag("path", d="M0,0 L8,4 L0,8 z"), id="arrow", markerWidth=8, markerHeight=8, refX=8, refY=4,
        orient="auto",
    )  # fmt: skip
    shapes = [
        tag(
            "polyline",
            points=" ".join(f"{x},{y}" for x, y in corners),
            fill="none",
            stroke="black",
            marker_end="url(#arrow)",
        )
        for corners in _list_arrows(steps, levels)
    ]
    shapes += [_draw_box(item) for placed in levels for item in placed]
    drawing = tag(
        "svg", "\n", tag("title", TITLE), "\n", tag("desc", ". ".join(list_flow_lines(steps))), "\n", tag("defs", marker), "\n",
        join_html(*(join_html(shape, "\n") for shape in shapes)),
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH, height=height, role="img",
        font_family="Helvetica, Arial, sans-serif", font_size=14,
    )  # fmt: skip
    return f"{drawing}\n"


def _draw_box(item: _PlacedBox) -> Html:
    frame = tag("rect", x=item.x, y=item.y, width=item.width, height=item.height, fill="white", stroke="black", rx=4)
    texts = []
    for number, line in enumerate((item.box.title, *item.lines)):
        y = item.y + _PADDING + _LINE_HEIGHT * (number + 1) - 6
        texts.append(tag("text", line, x=item.x + _PADDING, y=y, font_weight="bold" if number == 0 else None))
    return join_html(frame, *texts)


def render_flow_latex(steps: Sequence[FlowStep]) -> str:
    """Return the diagram as TikZ picture in a figure; needs the package tikz."""
    levels = _place_boxes(steps)
    lines = [r"\begin{figure}[htbp]", r"\centering", r"\begin{tikzpicture}[x=1cm,y=-1cm,font=\small]"]
    for corners in _list_arrows(steps, levels):
        path = " -- ".join(f"({_to_cm(x)},{_to_cm(y)})" for x, y in corners)
        lines.append(rf"\draw[->] {path};")
    for item in (item for placed in levels for item in placed):
        content = r" \\ ".join([rf"\textbf{{{escape_latex(item.box.title)}}}", *map(escape_latex, item.lines)])
        size = f"text width={_to_cm(item.width - 2 * _PADDING)}cm,minimum height={_to_cm(item.height)}cm"
        place = f"({_to_cm(item.x)},{_to_cm(item.y)})"
        lines.append(rf"\node[draw,fill=white,anchor=north west,align=left,{size}] at {place} {{{content}}};")
    caption = rf"\caption{{{escape_latex(TITLE)}}}"
    return "\n".join([*lines, r"\end{tikzpicture}", caption, r"\end{figure}", ""])


def _to_cm(pixels: int) -> str:
    return f"{pixels / _PIXELS_PER_CM:.2f}"
