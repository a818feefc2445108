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
    drawn: list[Child] = [*frame.axes("false positive rate", "true positive rate")]
    drawn.append(path([frame.at(0, 0), frame.at(1, 1)], "reference"))
    for i, (_, points) in enumerate(curves):
        drawn.append(path([frame.at(x, y) for x, y in points], look(i)))
    return svg(frame.width, frame.height, f"ROC curve of {', '.join(name for name, _ in curves)}", *drawn)


def calibration_chart(bins: Sequence[tuple[float, float, float]]) -> Html:
    """(confidence, share correct, cases) bins against the diagonal of perfect calibration; area goes with cases."""
    frame = Frame((0, 1), (0, 1), 340, 330)
    drawn: list[Child] = [*frame.axes("predicted probability", "observed share")]
    drawn.append(path([frame.at(0, 0), frame.at(1, 1)], "reference"))
    points = [frame.at(x, y) for x, y, _ in bins]
    drawn.append(path(points, "series stroke0"))
    most = max((n for _, _, n in bins), default=1) or 1
    for (x, y), (confidence, share, n) in zip(points, bins, strict=True):
        about = tag("title", f"predicted {confidence:.2f}, observed {share:.2f}, {n:.0f} decisions")
        radius = 2.5 + 6.5 * (n / most) ** 0.5
        drawn.append(tag("circle", about, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:.1f}", class_="fill0 dot"))
    return svg(frame.width, frame.height, "Calibration: observed share against predicted probability", *drawn)


def line_chart(title: str, x_name: str, lines: Mapping[str, Sequence[Sequence[Point]]]) -> Html:
    """Named lines over a common x axis, each with its name at its end; several runs of one name (folds) look alike."""
    points = [point for runs in lines.values() for run in runs for point in run]
    if not points:
        return Html("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    flat = max(ys) - min(ys) < 1e-9 * max(abs(max(ys)), 1e-9)
    height = rounded(min(ys) - 0.5, max(ys) + 0.5) if flat else rounded(min(ys), max(ys))
    many = len(lines) > FEW_LINES
    frame = Frame((min(xs), max(xs)), height, *((760, 400) if many else (420, 280)))
    frame.right -= LABEL_ROOM
    drawn: list[Child] = [*frame.axes(x_name, title)]
    ends = []
    for i, (name, runs) in enumerate(lines.items()):
        for run in runs:
            at = [frame.at(x, y) for x, y in run]
            if len(at) == 1:
                drawn.append(
                    tag("circle", cx=f"{at[0][0]:.1f}", cy=f"{at[0][1]:.1f}", r=3, class_=f"fill{i % COLOURS}")
                )
            else:
                drawn.append(path(at, look(i) + (" faint" if len(runs) > 1 else "")))
        ends.append((name, frame.at(*runs[-1][-1])))
    drawn += _names_at(ends, frame)
    about = f"{title} over {x_name}: {', '.join(lines)}"
    drawing = svg(frame.width, frame.height, about, *drawn)
    return tag("figure", drawing, legend(list(lines)), class_="wide" if many else None)


LABEL_ROOM, LABEL_LETTERS = 104, 17
"""Room for the lines' names at the right, and how much of a name fits there; the legend has the whole."""


def _names_at(ends: Sequence[tuple[str, Point]], frame: Frame) -> list[Html]:
    """The lines' names in the margin, each as near to its line's end as the others leave room, tied to it by a hair."""
    drawn = []
    for place, (x, y), low in apart(ends, frame.top + 4, frame.bottom):
        name = ends[place][0]
        short = name if len(name) <= LABEL_LETTERS else f"{name[: LABEL_LETTERS - 1]}…"
        drawn.append(path([(x + 2, y), (frame.right + 8, low)], f"hair stroke{place % COLOURS}"))
        drawn.append(text(frame.right + 10, low + 3, short, "start", f"name fill{place % COLOURS}"))
    return drawn


def apart(ends: Sequence[tuple[str, Point]], top: float, bottom: float) -> list[tuple[int, Point, float]]:
    """(place, end of the line, height of its name): names in the order of the ends, `LABEL_GAP` apart."""
    order = sorted(range(len(ends)), key=lambda place: ends[place][1][1])
    heights: list[float] = []
    for place in order:
        heights.append(max(ends[place][1][1], heights[-1] + LABEL_GAP if heights else top))
    floor = max(bottom, top + LABEL_GAP * (len(ends) - 1))
    for at in range(len(heights) - 1, -1, -1):
        heights[at] = min(heights[at], floor)
        floor = heights[at] - LABEL_GAP
    return [(place, ends[place][1], height) for place, height in zip(order, heights, strict=True)]


def gauge(
    value: float, interval: tuple[float, float] | None, baseline: float | None, acceptable: tuple[float, float] | None
) -> Html:
    """The primary figure from 0 to 1 with its interval, the image-blind baseline and the acceptable range."""
    left, width, y = 16.0, 528.0, 34.0

    def at(x: float) -> float:
        return left + width * min(max(x, 0.0), 1.0)

    drawn: list[Child] = [tag("rect", x=left, y=y - 4, width=width, height=8, rx=4, class_="track")]
    if acceptable:
        start, end = at(acceptable[0]), at(acceptable[1])
        wide = f"{max(end - start, 2):.1f}"
        drawn.append(tag("rect", x=f"{start:.1f}", y=y - 9, width=wide, height=18, rx=4, class_="band"))
        drawn.append(text(min(max((start + end) / 2, 70), 490), y - 16, "acceptable"))
    if baseline is not None:
        x = f"{at(baseline):.1f}"
        drawn.append(tag("line", x1=x, x2=x, y1=y - 11, y2=y + 11, class_="baseline"))
        drawn.append(text(min(max(at(baseline), 100), 460), y + 26, f"image-blind baseline {baseline:.3f}"))
    if interval:
        x1, x2 = f"{at(interval[0]):.1f}", f"{at(interval[1]):.1f}"
        drawn.append(tag("line", x1=x1, x2=x2, y1=y, y2=y, class_="interval"))
    drawn.append(tag("circle", cx=f"{at(value):.1f}", cy=y, r=5, class_="fill0 dot"))
    title = f"{value:.3f} on a scale from 0 to 1"
    return svg(560, 68, title, *drawn, text(left, y + 26, "0", "start"), text(left + width, y + 26, "1", "end"))
