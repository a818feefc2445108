"""Real data sets, where somebody has them, are surveyed whole."""

from __future__ import annotations

import pytest
import real_kit as kit

from m3b.dataset.survey.facts import Survey, SurveyLimits
from m3b.dataset.survey.survey import survey

NAMES = [entry["folder"] for entry in kit.SETS]


@pytest.mark.real
@pytest.mark.parametrize("folder", NAMES or [""])
def test_real_sets_are_surveyed_and_come_back_from_json(folder: str) -> None:
    kit.must_be_there()
    result = survey(kit.FIELD / folder, limits=SurveyLimits(seconds=600))
    assert result.groups
    assert any(group.content for group in result.groups) or result.containers
    assert "damaged" not in {note.code for note in result.notes}
    assert Survey.model_validate_json(result.model_dump_json()) == result
