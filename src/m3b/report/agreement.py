"""Predicted numbers against true ones: both on one scale, and their difference after Bland and Altman."""

from __future__ import annotations

from typing import Any

from .frame import PlotFrame, Point, make_path, make_svg, make_text, round_to_ticks
from .gather import as_dict, as_list, to_finite_number
from .markup import Child, Html, tag

MAX_POINTS = 400


def read_value_pairs(scores: dict[str, Any]) -> list[Point]:
    """(true, predicted) of the test cases, as far as they are kept."""
    pairs = []
    for pair in as_list(as_dict(scores.get("details")).get("pairs"))[:MAX_POINTS]:
        values = [to_finite_number(value) for value in as_list(pair)[:2]]
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            pairs.append((values[0], values[1]))
    return pairs


def draw_agreement_charts(scores: dict[str, Any]) -> list[Html]:
    """The two charts; none where there are no numbers."""
    pairs = read_value_pairs(scores)
    if len(pairs) < 2:
        return []
    details = as_dict(scores.get("details"))
    limits = [
        limit for limit in map(to_finite_number, as_list(details.get("limits_of_agreement"))) if limit is not None
    ]
    quantity = str(details.get("quantity", "number"))
    difference_caption = tag(
        "figcaption", "Difference against the mean of both (Bland-Altman); dashed: bias and limits of agreement"
    )
    return [
        tag("figure", tag("figcaption", "Predicted against true"), draw_scatter(pairs, quantity)),
        tag(
            "figure",
            difference_caption,
            draw_bland_altman(pairs, to_finite_number(details.get("bias")), limits, quantity),
        ),
    ]


def describe_agreement(scores: dict[str, Any]) -> list[str]:
    """Sentences on bias and intervals."""
    details, sentences = as_dict(scores.get("details")), []
    bias = to_finite_number(details.get("bias"))
    limits = [
        limit for limit in map(to_finite_number, as_list(details.get("limits_of_agreement"))) if limit is not None
    ]
    if bias is not None and len(limits) == 2:
        sentences.append(
            f"Bias (mean of predicted minus true): {bias:.4g}; limits of agreement (1.96 standard deviations): {limits[0]:.4g} "
            f"to {limits[1]:.4g}."
        )
    intervals = as_dict(details.get("intervals"))
    covered_share, nominal_share, mean_width = (
        to_finite_number(intervals.get(key)) for key in ("held", "promised", "mean_width")
    )
    if covered_share is not None and nominal_share is not None and mean_width is not None:
        sentences.append(
            f"The model's {nominal_share:.0%} intervals hold the true number in {covered_share:.0%} of the test "
            f"cases; they are {mean_width:.4g} wide "
            "on average."
        )
    return sentences


def _padded_range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return round_to_ticks(low, high) if high > low else (low - 0.5, high + 0.5)


def _draw_dots(frame: PlotFrame, points: list[Point]) -> list[Child]:
    return [
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_="fill0 dot")
        for x, y in (frame.to_pixels(*point) for point in points)
    ]


def draw_scatter(pairs: list[Point], quantity: str) -> Html:
    """A dot a case, with the diagonal of perfect answers."""
    value_range = _padded_range([value for pair in pairs for value in pair])
    frame = PlotFrame(value_range, value_range, 340, 330)
    elements: list[Child] = [*frame.draw_axes(f"true {quantity}", "predicted")]
    elements.append(
        make_path(
            [frame.to_pixels(value_range[0], value_range[0]), frame.to_pixels(value_range[1], value_range[1])],
            "reference",
        )
    )
    return make_svg(
        frame.width, frame.height, f"Predicted against true {quantity}", *elements, *_draw_dots(frame, pairs)
    )


def draw_bland_altman(pairs: list[Point], bias: float | None, limits: list[float], quantity: str) -> Html:
    """Predicted minus true over the mean of both."""
    points = [((true + predicted) / 2, predicted - true) for true, predicted in pairs]
    reference_values = [*limits, *([bias] if bias is not None else [])]
    frame = PlotFrame(
        _padded_range([x for x, _ in points]), _padded_range([*(y for _, y in points), *reference_values]), 340, 330
    )
    elements: list[Child] = [*frame.draw_axes(f"mean of both, {quantity}", "predicted minus true")]
    for value in reference_values:
        elements.append(
            make_path([frame.to_pixels(frame.x[0], value), frame.to_pixels(frame.x[1], value)], "reference")
        )
        elements.append(make_text(frame.right - 2, frame.to_pixels(frame.x[1], value)[1] - 4, f"{value:.3g}", "end"))
    return make_svg(
        frame.width, frame.height, f"Difference of predicted and true {quantity}", *elements, *_draw_dots(frame, points)
    )
