"""The part of a report page that only a survival model has: cases with time and event, and Kaplan-Meier curves by risk."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from m3b.data.kinds.survival import EVENT, TIME
from m3b.markup.charts import PlotFrame, Point, draw_legend, line_classes_of, make_path, make_svg, round_to_ticks
from m3b.markup.formatting import format_count, shorten
from m3b.markup.html import Child, Html, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.tasks.report_section import CaseSummary, ReportSection

MAX_GROUPS = 8


class SurvivalReportSection(ReportSection):
    """See `ReportSection`. A single case has no value: the C-index compares cases."""

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return the time of the event or of the last follow-up, and the predicted risk and median survival."""
        time, risk = float(row[TIME]), float(row["risk"])
        truth = f"event at {time:.4g}" if row[EVENT] is True else f"no event until {time:.4g}"
        curve = [(float(at), float(share)) for at, share in row["curve"]]
        median = next((at for at, share in curve if share <= 0.5), None)
        expected = f"median {median:.4g}" if median is not None else f"median beyond {curve[-1][0]:.4g}"
        return CaseSummary(truth, f"risk {risk:.3f}, {expected}")

    def draw_charts(self, scores: dict[str, Any]) -> list[Html]:
        """Return what was observed of the test cases with lower and with higher predicted risk."""
        details = as_dict(scores.get("details"))
        groups = [
            (_name_group(group), curve)
            for group in map(as_dict, as_list(details.get("by_risk"))[:MAX_GROUPS])
            if (curve := _read_curve(group))
        ]
        if not groups:
            return []
        caption = tag("figcaption", "Observed survival by predicted risk (Kaplan-Meier)")
        chart = _draw_kaplan_meier(groups, str(details.get("quantity", "time")))
        return [tag("figure", caption, chart, draw_legend([name for name, _ in groups]))]


def _name_group(group: dict[str, Any]) -> str:
    counts = f"{format_count(group.get('n'))} cases, {format_count(group.get('events'))} events"
    return f"{shorten(group.get('group', ''), 40)}: {counts}"


def _read_curve(group: dict[str, Any]) -> list[Point]:
    """Return the (time, share without the event) points of a group."""
    points = []
    for pair in as_list(group.get("curve")):
        time, share = (to_finite_number(value) for value in [*as_list(pair), None, None][:2])
        if time is not None and time >= 0 and share is not None and 0 <= share <= 1:
            points.append((time, share))
    return sorted(points)


def _draw_kaplan_meier(groups: list[tuple[str, list[Point]]], quantity: str) -> Html:
    """Draw a step curve for each group, from 1 at time 0."""
    last_time = max(time for _, curve in groups for time, _ in curve)
    frame = PlotFrame((0.0, round_to_ticks(0.0, last_time)[1] or 1.0), (0.0, 1.0), 340, 330)
    elements: list[Child] = [*frame.draw_axes(quantity, "share without the event")]
    for number, (_, curve) in enumerate(groups):
        corners = [(0.0, 1.0)]
        for (_, share_before), (time, share) in pairwise([(0.0, 1.0), *curve]):
            corners += [(time, share_before), (time, share)]
        elements.append(make_path([frame.to_pixels(*corner) for corner in corners], line_classes_of(number)))
    return make_svg(frame.width, frame.height, f"Observed survival by predicted risk over {quantity}", *elements)
