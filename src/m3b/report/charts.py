"""Charts as inline SVG; colours come from the style sheet's classes, so both themes and print work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .frame import Frame, Point, path, rounded, svg, text
from .markup import Child, Html, tag

COLOURS, DASHES = 8, 4
"""Series colours and line styles in the style sheet."""
SERIES = COLOURS * DASHES
"""So many lines can be told apart: no two share both colour and style."""
FEW_LINES = 6
"""More lines than these get a chart of the page's whole width."""
LABEL_GAP = 11.0
"""Least distance of two lines' names, in units of the drawing."""


def look(place: int) -> str:
    """The classes of a line: neighbours differ in colour and in style, so that print without colour serves too."""
    return f"series stroke{place % COLOURS} dash{(place + place // COLOURS) % DASHES}"


def legend(names: Sequence[str]) -> Html:
    """Names with their line's colour and style, as a list below a chart."""
    items = [
        tag(
            "li",
            tag("svg", path([(0, 6), (30, 6)], look(i)), viewBox="0 0 30 12", aria_hidden="true"),
            name,
        )
        for i, name in enumerate(names)
    ]
    return tag("ul", *items, class_="legend")


def roc_chart(curves: Sequence[tuple[str, Sequence[Point]]]) -> Html:
    """ROC curves, false positive rate to the right, true positive rate up, with the diagonal of a guess."""
    frame = Frame((0, 1), (0, 1), 340, 330)
    elements: list[Child] = [*frame.axes("false positive rate", "true positive rate")]
    elements.append(path([frame.at(0, 0), frame.at(1, 1)], "reference"))
    for i, (_, points) in enumerate(curves):
        elements.append(path([frame.at(x, y) for x, y in points], look(i)))
    return svg(frame.width, frame.height, f"ROC curve of {', '.join(name for name, _ in curves)}", *elements)


def calibration_chart(bins: Sequence[tuple[float, float, float]]) -> Html:
    """(confidence, share correct, cases) bins against the diagonal of perfect calibration; area goes with cases."""
    frame = Frame((0, 1), (0, 1), 340, 330)
    elements: list[Child] = [*frame.axes("predicted probability", "observed share")]
    elements.append(path([frame.at(0, 0), frame.at(1, 1)], "reference"))
    points = [frame.at(x, y) for x, y, _ in bins]
    elements.append(path(points, "series stroke0"))
    max_cases = max((n for _, _, n in bins), default=1) or 1
    for (x, y), (confidence, observed, n) in zip(points, bins, strict=True):
        tooltip = tag("title", f"predicted {confidence:.2f}, observed {observed:.2f}, {n:.0f} decisions")
        radius = 2.5 + 6.5 * (n / max_cases) ** 0.5
        elements.append(tag("circle", tooltip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:.1f}", class_="fill0 dot"))
    return svg(frame.width, frame.height, "Calibration: observed share against predicted probability", *elements)


def line_chart(title: str, x_name: str, lines: Mapping[str, Sequence[Sequence[Point]]]) -> Html:
    """Named lines over a common x axis, each with its name at its end; several runs of one name (folds) look alike."""
    points = [point for runs in lines.values() for run in runs for point in run]
    if not points:
        return Html("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    is_flat = max(ys) - min(ys) < 1e-9 * max(abs(max(ys)), 1e-9)
    y_range = rounded(min(ys) - 0.5, max(ys) + 0.5) if is_flat else rounded(min(ys), max(ys))
    is_wide = len(lines) > FEW_LINES
    frame = Frame((min(xs), max(xs)), y_range, *((760, 400) if is_wide else (420, 280)))
    frame.right -= LABEL_ROOM
    elements: list[Child] = [*frame.axes(x_name, title)]
    line_ends = []
    for i, (name, runs) in enumerate(lines.items()):
        for run in runs:
            pixels = [frame.at(x, y) for x, y in run]
            if len(pixels) == 1:
                elements.append(
                    tag("circle", cx=f"{pixels[0][0]:.1f}", cy=f"{pixels[0][1]:.1f}", r=3, class_=f"fill{i % COLOURS}")
                )
            else:
                elements.append(path(pixels, look(i) + (" faint" if len(runs) > 1 else "")))
        line_ends.append((name, frame.at(*runs[-1][-1])))
    elements += _draw_line_names(line_ends, frame)
    description = f"{title} over {x_name}: {', '.join(lines)}"
    drawing = svg(frame.width, frame.height, description, *elements)
    return tag("figure", drawing, legend(list(lines)), class_="wide" if is_wide else None)


LABEL_ROOM, LABEL_LETTERS = 104, 17
"""Room for the lines' names at the right, and how much of a name fits there; the legend has the whole."""


def _draw_line_names(line_ends: Sequence[tuple[str, Point]], frame: Frame) -> list[Html]:
    """The lines' names in the margin, each as near to its line's end as the others leave room, tied to it by a hair."""
    elements = []
    for position, (x, y), label_y in apart(line_ends, frame.top + 4, frame.bottom):
        name = line_ends[position][0]
        shortened = name if len(name) <= LABEL_LETTERS else f"{name[: LABEL_LETTERS - 1]}…"
        elements.append(path([(x + 2, y), (frame.right + 8, label_y)], f"hair stroke{position % COLOURS}"))
        elements.append(text(frame.right + 10, label_y + 3, shortened, "start", f"name fill{position % COLOURS}"))
    return elements


def apart(ends: Sequence[tuple[str, Point]], top: float, bottom: float) -> list[tuple[int, Point, float]]:
    """(place, end of the line, height of its name): names in the order of the ends, `LABEL_GAP` apart."""
    order = sorted(range(len(ends)), key=lambda position: ends[position][1][1])
    heights: list[float] = []
    for position in order:
        heights.append(max(ends[position][1][1], heights[-1] + LABEL_GAP if heights else top))
    max_height = max(bottom, top + LABEL_GAP * (len(ends) - 1))
    for i in range(len(heights) - 1, -1, -1):
        heights[i] = min(heights[i], max_height)
        max_height = heights[i] - LABEL_GAP
    return [(position, ends[position][1], height) for position, height in zip(order, heights, strict=True)]


def gauge(
    value: float, interval: tuple[float, float] | None, baseline: float | None, acceptable: tuple[float, float] | None
) -> Html:
    """The primary figure from 0 to 1 with its interval, the image-blind baseline and the acceptable range."""
    x_start, width, y = 16.0, 528.0, 34.0

    def at(x: float) -> float:
        return x_start + width * min(max(x, 0.0), 1.0)

    elements: list[Child] = [tag("rect", x=x_start, y=y - 4, width=width, height=8, rx=4, class_="track")]
    if acceptable:
        start, end = at(acceptable[0]), at(acceptable[1])
        band_width = f"{max(end - start, 2):.1f}"
        elements.append(tag("rect", x=f"{start:.1f}", y=y - 9, width=band_width, height=18, rx=4, class_="band"))
        elements.append(text(min(max((start + end) / 2, 70), 490), y - 16, "acceptable"))
    if baseline is not None:
        x = f"{at(baseline):.1f}"
        elements.append(tag("line", x1=x, x2=x, y1=y - 11, y2=y + 11, class_="baseline"))
        elements.append(text(min(max(at(baseline), 100), 460), y + 26, f"image-blind baseline {baseline:.3f}"))
    if interval:
        x1, x2 = f"{at(interval[0]):.1f}", f"{at(interval[1]):.1f}"
        elements.append(tag("line", x1=x1, x2=x2, y1=y, y2=y, class_="interval"))
    elements.append(tag("circle", cx=f"{at(value):.1f}", cy=y, r=5, class_="fill0 dot"))
    title = f"{value:.3f} on a scale from 0 to 1"
    return svg(
        560, 68, title, *elements, text(x_start, y + 26, "0", "start"), text(x_start + width, y + 26, "1", "end")
    )
