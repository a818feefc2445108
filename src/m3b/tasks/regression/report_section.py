"""The part of a report page that only a regression has: agreement of predicted and true numbers."""

from __future__ import annotations

from typing import Any

from m3b.markup.charts import PlotFrame, Point, draw_dots, make_path, make_svg, make_text, padded_range
from m3b.markup.formatting import count_decimals
from m3b.markup.html import Child, Html, join_html, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.tasks.report_section import CaseSummary, ReportSection

MAX_POINTS = 400


class RegressionReportSection(ReportSection):
    """See `ReportSection`."""

    is_case_value_lower_better = True

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return the absolute error of a case, with the model's interval."""
        true, predicted, interval = float(row["true"]), float(row["predicted"]), row.get("interval")
        n = count_decimals([true, predicted, *(interval or ())])
        span = f" ({interval[0]:.{n}f} to {interval[1]:.{n}f})" if interval else ""
        return CaseSummary(f"{true:.{n}f}", f"{predicted:.{n}f}{span}", abs(predicted - true), "Absolute error")

    def draw_charts(self, scores: dict[str, Any]) -> list[Html]:
        """Return the scatter and the Bland-Altman chart."""
        pairs = _read_value_pairs(scores)
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
            tag("figure", tag("figcaption", "Predicted against true"), _draw_scatter(pairs, quantity)),
            tag(
                "figure",
                difference_caption,
                _draw_bland_altman(pairs, to_finite_number(details.get("bias")), limits, quantity),
            ),
        ]

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return sentences on bias, limits of agreement and interval coverage."""
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
        return join_html(*(tag("p", sentence) for sentence in sentences))


def _read_value_pairs(scores: dict[str, Any]) -> list[Point]:
    """Return the stored (true, predicted) pairs of the test cases."""
    pairs = []
    for pair in as_list(as_dict(scores.get("details")).get("pairs"))[:MAX_POINTS]:
        values = [to_finite_number(value) for value in as_list(pair)[:2]]
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            pairs.append((values[0], values[1]))
    return pairs


def _draw_scatter(pairs: list[Point], quantity: str) -> Html:
    """Draw a dot for each case, with the diagonal of perfect predictions."""
    value_range = padded_range([value for pair in pairs for value in pair])
    frame = PlotFrame(value_range, value_range, 340, 330)
    elements: list[Child] = [*frame.draw_axes(f"true {quantity}", "predicted")]
    elements.append(
        make_path(
            [frame.to_pixels(value_range[0], value_range[0]), frame.to_pixels(value_range[1], value_range[1])],
            "reference",
        )
    )
    return make_svg(
        frame.width, frame.height, f"Predicted against true {quantity}", *elements, *draw_dots(frame, pairs)
    )


def _draw_bland_altman(pairs: list[Point], bias: float | None, limits: list[float], quantity: str) -> Html:
    """Draw predicted minus true over the mean of both."""
    points = [((true + predicted) / 2, predicted - true) for true, predicted in pairs]
    reference_values = [*limits, *([bias] if bias is not None else [])]
    frame = PlotFrame(
        padded_range([x for x, _ in points]), padded_range([*(y for _, y in points), *reference_values]), 340, 330
    )
    elements: list[Child] = [*frame.draw_axes(f"mean of both, {quantity}", "predicted minus true")]
    labels = []
    for value in reference_values:
        elements.append(
            make_path([frame.to_pixels(frame.x[0], value), frame.to_pixels(frame.x[1], value)], "reference")
        )
        labels.append(
            make_text(frame.right - 2, frame.to_pixels(frame.x[1], value)[1] - 4, f"{value:.3g}", "end", "tick halo")
        )
    title = f"Difference of predicted and true {quantity}"
    return make_svg(frame.width, frame.height, title, *elements, *draw_dots(frame, points), *labels)
