"""The page of a run for masks, boxes and reports: figures label by label, counts, what few patients are worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from m3b.metrics import Box, LabelMetrics
from m3b.report import write_report
from m3b.report.case_ranking import rank_cases
from m3b.report.measured_view import find_report_section
from m3b.tasks.detection import DetectionCase, LesionCounts, score_detection
from m3b.tasks.report import ReportCase, score_reports
from m3b.tasks.report_section import CaseSummary
from m3b.tasks.segmentation import SegmentationCase, score_segmentation
from m3b.tasks.survival.metrics import SurvivalCase, score_survival

Check = Callable[[str], Any]


def figures(dice: float, reference: int = 100, prediction: int = 100) -> LabelMetrics:
    return LabelMetrics(dice, dice, 4.0 * (1 - dice), reference, prediction, 60.0)


def page_of(folder: Path, scores: dict[str, Any], check: Check) -> str:
    (folder / "locked").mkdir()
    (folder / "locked" / "scores.json").write_text(json.dumps(scores))
    text: str = check(write_report(folder).read_text(encoding="utf-8")).text
    return text


def test_segmentation(tmp_path: Path, check: Check) -> None:
    rows = [{"liver": figures(0.9), "<b>": figures(0.0, 100, 0)}, {"liver": figures(0.8), "<b>": figures(0.6)}]
    cases = [SegmentationCase(f"{n}", f"p{n}", row) for n, row in enumerate(rows)]
    scores = score_segmentation(cases, ("liver", "<b>"), primary="hd95").to_dict()
    text = page_of(tmp_path, scores, check)
    assert "HD95 (less is better)" in text  # nobody said what these distances are in
    assert "on a scale from 0 to 1" not in text  # millimetres have no such scale
    assert "Test cases with a label missed altogether: <b> in 1." in text
    assert "2 test patients cannot show" in text


def test_detection(tmp_path: Path, check: Check) -> None:
    truth = (Box((0, 0, 4, 4), "node"),)
    cases = [
        DetectionCase(
            f"{n}",
            f"p{n}",
            figures={"node": figures(0.5)},
            lesions={"node": LesionCounts(3, 2, 1, 1)},
            predicted=(Box((0, 0, 4, 4), "node", 0.9),) if n % 2 else (),
            truth=truth,
        )
        for n in range(12)
    ]
    text = page_of(tmp_path, score_detection(cases, ("node",)).to_dict(), check)
    for words in ("Lesion F1", "mAP at IoU 0.5", "Regions found and missed", "Share of objects found (FROC)", "0.125"):
        assert words in text
    assert "test patients cannot show" not in text


def test_survival_shows_curves_of_both_risk_groups_and_its_cases(tmp_path: Path, check: Check) -> None:
    rows = [
        {"image": f"{n}.png", "patient": f"p{n}", "time": 10.0 + n, "event": n % 2 == 0, "risk": 0.1 * n,
         "curve": [[10, 0.9], [20, 0.8 - 0.1 * n]]}
        for n in range(6)
    ]  # fmt: skip
    cases = [
        SurvivalCase(row["image"], row["patient"], row["time"], row["event"], row["risk"], [(10, 0.9)]) for row in rows
    ]
    scores = score_survival(cases, "survival (months)", primary="c_index").to_dict()
    section = find_report_section("survival")
    (chart,) = section.draw_charts(scores)
    assert chart.count("<path d=") == 4, "two curves, and their signs in the legend"
    assert "lower risk: 3 cases, 2 events" in chart
    assert section.draw_charts({"details": {"by_risk": [{"curve": [[None, 3], "x"]}, 5]}}) == []
    ranking = rank_cases(rows, section)
    assert len(ranking.unranked) == 6
    assert ranking.cases[0].summary == CaseSummary("event at 10", "risk 0.000, median beyond 20")
    assert ranking.cases[5].summary == CaseSummary("no event until 15", "risk 0.500, median 20")
    assert "Observed survival" in page_of(tmp_path, scores, check)


def test_regression_has_a_scale_that_holds_the_baseline(tmp_path: Path, check: Check) -> None:
    measure = {"name": "mae", "value": 7.5, "low": 5.3, "high": 10.1, "baseline": 32.1, "n": 32}
    text = page_of(tmp_path, {"task": "regression", "primary": measure, "details": {"quantity": "density (g)"}}, check)
    assert "7.500 on a scale from 0 to 40" in text
    assert "density (g)" in text


def test_reports(tmp_path: Path, check: Check) -> None:
    cases = [ReportCase(f"{n}", f"p{n}", "the heart is large", f"the heart is large {n % 2}") for n in range(12)]
    text = page_of(tmp_path, score_reports(cases).to_dict(), check)
    assert "BLEU-4" in text
    assert "different texts on 12 cases" in text


def test_odd_details_break_nothing(tmp_path: Path, check: Check) -> None:
    details = {
        "lesions": {"a": 7, "b": {"x": "y"}},
        "missed": [1],
        "froc": {"rates": ["a", 1], "sensitivity": {"k": 3}},
    }
    scores = {
        "metrics": {"dice": {"value": None}},
        "per_label": ["x", {"name": 3, "metrics": {"dice": 4}}],
        "details": details,
    }
    page_of(tmp_path, scores, check)
