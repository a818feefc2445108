"""Folders of studies: several pictures under names of their own with one report, of which some are empty or not yet written."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture

STUDIES = 40
FINDINGS = (
    "Heart of normal size.",
    "No effusion.",
    "Streaky opacity at the left base.",
    "Old rib fractures on the right.",
)


def _write_studies(folder: Path, *, views: tuple[str, ...], blank: tuple[str, ...]) -> None:
    """Write a folder for each study, whose last reports are `blank`."""
    for number in range(1, STUDIES + 1):
        for place, view in enumerate(views):
            write_picture(folder / f"E{number:03d}" / f"{view}.png", 10 * number + place)
        at = number - (STUDIES - len(blank)) - 1
        sentences = " ".join(text for place, text in enumerate(FINDINGS) if number >> place & 1 or place == number % 4)
        text = blank[at] if at >= 0 else f"Chest radiograph\n\n{sentences}\nThe mediastinum is not widened."
        (folder / f"E{number:03d}" / "report.txt").write_text(text)


@pytest.mark.parametrize(
    ("blank", "cases"),
    [
        (("",), STUDIES - 1),
        (("", "Report to follow."), STUDIES - 2),
        (("Befund folgt",), STUDIES - 1),
        (("No finding.",), STUDIES),
        ((), STUDIES),
    ],
)
def test_studies_without_a_report_are_left_out(tmp_path: Path, blank: tuple[str, ...], cases: int) -> None:
    _write_studies(tmp_path, views=("pa", "lateral"), blank=blank)
    outcome = decide_folder(tmp_path, "Write the report of chest radiographs")
    assert outcome.kind == "proposed"
    proposal = outcome.proposals[0]
    assert (proposal.manifest.images.several, proposal.cases) == ("views", cases)


def test_many_empty_reports_are_asked_about(tmp_path: Path) -> None:
    _write_studies(tmp_path, views=("pa",), blank=("",) * 20)
    outcome = decide_folder(tmp_path, "Write the report of chest radiographs")
    assert (outcome.kind, outcome.question and outcome.question.code) == ("ask", "unexplained_exclusions")
