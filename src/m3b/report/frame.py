"""The ground of a chart: the drawing, its axes, and what data comes to on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .markup import Child, Html, tag

Point = tuple[float, float]


def make_svg(width: int, height: int, title: str, *children: Child) -> Html:
    view_box = f"0 0 {width} {height}"
    return tag("svg", tag("title", title), *children, viewBox=view_box, role="img", aria_label=title, class_="chart")


def make_text(x: float, y: float, content: object, anchor: str = "middle", class_: str = "tick") -> Html:
    return tag("text", content, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def make_path(points: Sequence[Point], class_: str) -> Html:
    steps = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return tag("path", d=steps, class_=class_)


def _format_tick(value: float) -> str:
    return f"{value:.4g}"


def _tick_step(low: float, high: float) -> float:
    """Distance of about four ticks: 1, 2, 2.5 or 5 times a power of ten."""
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
    """The range from tick to tick."""
    step = _tick_step(low, high)
    return math.floor(low / step + 1e-6) * step, math.ceil(high / step - 1e-6) * step


class PlotFrame:
    """A plot area with axes: maps data to the drawing."""

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
