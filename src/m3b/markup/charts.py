"""Charts as inline SVG; colours come from the classes of the style sheet, so both themes and print work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from m3b.markup.html import Child, Html, tag

Point = tuple[float, float]
"""Position in the units of the data, or in pixels."""


def make_svg(width: int, height: int, title: str, *children: Child) -> Html:
    """Return a chart with a title for screen readers; sizes in drawing units."""
    view_box = f"0 0 {width} {height}"
    return tag("svg", tag("title", title), *children, viewBox=view_box, role="img", aria_label=title, class_="chart")


def make_text(x: float, y: float, content: object, anchor: str = "middle", class_: str = "tick") -> Html:
    """Return a text at a position in drawing units."""
    return tag("text", content, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def make_path(points: Sequence[Point], class_: str) -> Html:
    """Return a line through points in drawing units."""
    steps = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return tag("path", d=steps, class_=class_)


def _format_tick(value: float) -> str:
    return f"{value:.4g}"


def _tick_step(low: float, high: float) -> float:
    """Return the distance of about four ticks: 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / 4
    if not rough > 1e-300:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((power * nice for nice in (1, 2, 2.5, 5) if power * nice >= rough * 0.999), power * 10)


def _tick_values(low: float, high: float) -> list[float]:
    step = _tick_step(low, high)
    first = math.ceil(low / step - 1e-6)
    values = [(first + i) * step for i in range(8)]
    return [value for value in values if value <= high + step * 1e-6]


def round_to_ticks(low: float, high: float) -> tuple[float, float]:
    """Extend a range to the nearest ticks."""
    step = _tick_step(low, high)
    return math.floor(low / step + 1e-6) * step, math.ceil(high / step - 1e-6) * step


class PlotFrame:
    """A plot area with axes, which maps data to pixels."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], width: int = 360, height: int = 300) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height
        self.left, self.right, self.top, self.bottom = 58, width - 14, 14, height - 44

    def to_pixels(self, x: float, y: float) -> Point:
        x_share = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        y_share = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return self.left + x_share * (self.right - self.left), self.bottom - y_share * (self.bottom - self.top)

    def draw_axes(self, x_name: str, y_name: str) -> list[Html]:
        elements = []
        for value in _tick_values(*self.y):
            y = self.to_pixels(self.x[0], value)[1]
            elements.append(tag("line", x1=self.left, x2=self.right, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
            elements.append(make_text(self.left - 6, y + 4, _format_tick(value), "end"))
        for value in _tick_values(*self.x):
            elements.append(make_text(self.to_pixels(value, self.y[0])[0], self.bottom + 16, _format_tick(value)))
        elements.append(tag("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, class_="axis"))
        elements.append(make_text((self.left + self.right) / 2, self.height - 8, x_name, class_="label"))
        middle = (self.top + self.bottom) / 2
        rotation = f"rotate(-90 12 {middle:.0f})"
        elements.append(
            tag("text", y_name, x=12, y=f"{middle:.0f}", transform=rotation, text_anchor="middle", class_="label")
        )
        return elements


def padded_range(values: list[float]) -> tuple[float, float]:
    """Return the range of an axis that holds all values, also if they are equal."""
    low, high = min(values), max(values)
    return round_to_ticks(low, high) if high > low else (low - 0.5, high + 0.5)


def draw_dots(frame: PlotFrame, points: list[Point]) -> list[Child]:
    """Draw a dot at each point."""
    return [
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_="fill0 dot")
        for x, y in (frame.to_pixels(*point) for point in points)
    ]


COLOUR_COUNT, DASH_COUNT = 8, 4
"""Number of series colours and of line styles in the style sheet."""
MAX_SERIES = COLOUR_COUNT * DASH_COUNT
"""Maximum number of lines that can be told apart: no two share both colour and style."""
MAX_NARROW_LINES = 6
"""A chart with more lines gets the whole width of the page."""
MIN_LABEL_GAP = 11.0
"""Minimum distance between the names of two lines, in drawing units."""


def line_classes_of(position: int) -> str:
    """Return the CSS classes of a line: neighbours differ in colour and style, for print without colour."""
    return f"series stroke{position % COLOUR_COUNT} dash{(position + position // COLOUR_COUNT) % DASH_COUNT}"


def draw_legend(names: Sequence[str]) -> Html:
    """Return names with the colour and style of their lines, as a list below a chart."""
    items = [
        tag(
            "li",
            tag("svg", make_path([(0, 6), (30, 6)], line_classes_of(i)), viewBox="0 0 30 12", aria_hidden="true"),
            name,
        )
        for i, name in enumerate(names)
    ]
    return tag("ul", *items, class_="legend")


def draw_roc_chart(curves: Sequence[tuple[str, Sequence[Point]]]) -> Html:
    """Draw ROC curves, true positive rate over false positive rate, with the diagonal of chance."""
    frame = PlotFrame((0, 1), (0, 1), 340, 330)
    elements: list[Child] = [*frame.draw_axes("false positive rate", "true positive rate")]
    elements.append(make_path([frame.to_pixels(0, 0), frame.to_pixels(1, 1)], "reference"))
    for i, (_, points) in enumerate(curves):
        elements.append(make_path([frame.to_pixels(x, y) for x, y in points], line_classes_of(i)))
    return make_svg(frame.width, frame.height, f"ROC curve of {', '.join(name for name, _ in curves)}", *elements)


def draw_calibration_chart(bins: Sequence[tuple[float, float, float]]) -> Html:
    """Draw (confidence, share correct, cases) bins and the diagonal of perfect calibration.

    The area of a dot is proportional to its cases.
    """
    frame = PlotFrame((0, 1), (0, 1), 340, 330)
    elements: list[Child] = [*frame.draw_axes("predicted probability", "observed share")]
    elements.append(make_path([frame.to_pixels(0, 0), frame.to_pixels(1, 1)], "reference"))
    points = [frame.to_pixels(x, y) for x, y, _ in bins]
    elements.append(make_path(points, "series stroke0"))
    max_cases = max((n for _, _, n in bins), default=1) or 1
    for (x, y), (confidence, observed, n) in zip(points, bins, strict=True):
        tooltip = tag("title", f"predicted {confidence:.2f}, observed {observed:.2f}, {n:.0f} decisions")
        radius = 2.5 + 6.5 * (n / max_cases) ** 0.5
        elements.append(tag("circle", tooltip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:.1f}", class_="fill0 dot"))
    return make_svg(frame.width, frame.height, "Calibration: observed share against predicted probability", *elements)


HISTOGRAM_BINS = 20


def draw_histogram(
    title: str, values: Sequence[float], value_range: tuple[float, float] | None = None, marker: float | None = None
) -> Html:
    """Draw how many values lie in each of `HISTOGRAM_BINS` intervals, with a line at `marker`.

    Args:
        value_range: the range of the axis; that of the values by default.
    """
    low, high = value_range or padded_range(list(values))
    width = (high - low) / HISTOGRAM_BINS
    counts = [0] * HISTOGRAM_BINS
    for value in values:
        counts[min(max(int((value - low) / width), 0), HISTOGRAM_BINS - 1)] += 1
    frame = PlotFrame((low, high), (0.0, round_to_ticks(0, max(counts))[1] or 1.0), 340, 330)
    elements: list[Child] = [*frame.draw_axes(title, "test cases")]
    for number, count in enumerate(counts):
        if not count:
            continue
        bar_left, bar_top = frame.to_pixels(low + number * width, count)
        right, bottom = frame.to_pixels(low + (number + 1) * width, 0)
        tooltip = tag("title", f"{low + number * width:.3g} to {low + (number + 1) * width:.3g}: {count}")
        bar_size = {"width": f"{max(right - bar_left - 1, 1):.1f}", "height": f"{bottom - bar_top:.1f}"}
        elements.append(tag("rect", tooltip, x=f"{bar_left:.1f}", y=f"{bar_top:.1f}", class_="fill0", **bar_size))
    if marker is not None:
        elements.append(make_path([frame.to_pixels(marker, 0), frame.to_pixels(marker, frame.y[1])], "baseline"))
    return make_svg(frame.width, frame.height, f"Number of test cases by {title}", *elements)


def draw_line_chart(title: str, x_name: str, lines: Mapping[str, Sequence[Sequence[Point]]]) -> Html:
    """Draw named lines over a common x axis, each with its name at its end.

    Several runs of one name (folds) look alike.
    """
    points = [point for runs in lines.values() for run in runs for point in run]
    if not points:
        return Html("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    is_flat = max(ys) - min(ys) < 1e-9 * max(abs(max(ys)), 1e-9)
    y_range = round_to_ticks(min(ys) - 0.5, max(ys) + 0.5) if is_flat else round_to_ticks(min(ys), max(ys))
    is_wide = len(lines) > MAX_NARROW_LINES
    frame = PlotFrame((min(xs), max(xs)), y_range, *((760, 400) if is_wide else (420, 280)))
    frame.right -= LABEL_WIDTH
    elements: list[Child] = [*frame.draw_axes(x_name, title)]
    line_ends = []
    for i, (name, runs) in enumerate(lines.items()):
        for run in runs:
            pixels = [frame.to_pixels(x, y) for x, y in run]
            if len(pixels) == 1:
                elements.append(
                    tag(
                        "circle",
                        cx=f"{pixels[0][0]:.1f}",
                        cy=f"{pixels[0][1]:.1f}",
                        r=3,
                        class_=f"fill{i % COLOUR_COUNT}",
                    )
                )
            else:
                elements.append(make_path(pixels, line_classes_of(i) + (" faint" if len(runs) > 1 else "")))
        line_ends.append((name, frame.to_pixels(*runs[-1][-1])))
    elements += _draw_line_names(line_ends, frame)
    description = f"{title} over {x_name}: {', '.join(lines)}"
    drawing = make_svg(frame.width, frame.height, description, *elements)
    return tag("figure", drawing, draw_legend(list(lines)), class_="wide" if is_wide else None)


LABEL_WIDTH, MAX_LABEL_CHARS = 104, 17
"""Space for the names of lines on the right, and the characters that fit there; the legend has the whole name."""


def _draw_line_names(line_ends: Sequence[tuple[str, Point]], frame: PlotFrame) -> list[Html]:
    """Draw the names of lines in the margin, near the ends of their lines and connected to them by a thin line."""
    elements = []
    for position, (x, y), label_y in spread_labels(line_ends, frame.top + 4, frame.bottom):
        name = line_ends[position][0]
        shortened = name if len(name) <= MAX_LABEL_CHARS else f"{name[: MAX_LABEL_CHARS - 1]}…"
        elements.append(make_path([(x + 2, y), (frame.right + 8, label_y)], f"hair stroke{position % COLOUR_COUNT}"))
        elements.append(
            make_text(frame.right + 10, label_y + 3, shortened, "start", f"name fill{position % COLOUR_COUNT}")
        )
    return elements


def spread_labels(line_ends: Sequence[tuple[str, Point]], top: float, bottom: float) -> list[tuple[int, Point, float]]:
    """Return (position, end of the line, y of its name): names in the order of the ends, `MIN_LABEL_GAP` apart."""
    order = sorted(range(len(line_ends)), key=lambda position: line_ends[position][1][1])
    heights: list[float] = []
    for position in order:
        heights.append(max(line_ends[position][1][1], heights[-1] + MIN_LABEL_GAP if heights else top))
    max_height = max(bottom, top + MIN_LABEL_GAP * (len(line_ends) - 1))
    for i in range(len(heights) - 1, -1, -1):
        heights[i] = min(heights[i], max_height)
        max_height = heights[i] - MIN_LABEL_GAP
    return [(position, line_ends[position][1], height) for position, height in zip(order, heights, strict=True)]


def draw_gauge(
    value: float,
    interval: tuple[float, float] | None,
    baseline: float | None,
    acceptable: tuple[float, float] | None,
    scale_end: float = 1.0,
) -> Html:
    """Draw the primary metric from 0 to `scale_end` with its interval, the image-blind baseline and the acceptable range."""
    x_start, width, y = 16.0, 528.0, 34.0

    def to_x(x: float) -> float:
        return x_start + width * min(max(x / scale_end, 0.0), 1.0)

    elements: list[Child] = [tag("rect", x=x_start, y=y - 4, width=width, height=8, rx=4, class_="track")]
    if acceptable:
        start, end = to_x(acceptable[0]), to_x(acceptable[1])
        band_width = f"{max(end - start, 2):.1f}"
        elements.append(tag("rect", x=f"{start:.1f}", y=y - 9, width=band_width, height=18, rx=4, class_="band"))
        elements.append(make_text(min(max((start + end) / 2, 70), 490), y - 16, "acceptable"))
    if baseline is not None:
        x = f"{to_x(baseline):.1f}"
        elements.append(tag("line", x1=x, x2=x, y1=y - 11, y2=y + 11, class_="baseline"))
        elements.append(make_text(min(max(to_x(baseline), 128), 432), y + 26, f"image-blind baseline {baseline:.3f}"))
    if interval:
        x1, x2 = f"{to_x(interval[0]):.1f}", f"{to_x(interval[1]):.1f}"
        elements.append(tag("line", x1=x1, x2=x2, y1=y, y2=y, class_="interval"))
    elements.append(tag("circle", cx=f"{to_x(value):.1f}", cy=y, r=5, class_="fill0 dot"))
    title = f"{value:.3f} on a scale from 0 to {scale_end:g}"
    return make_svg(
        560,
        68,
        title,
        *elements,
        make_text(x_start, y + 26, "0", "start"),
        make_text(x_start + width, y + 26, f"{scale_end:g}", "end"),
    )
