"""Real data sets, where somebody has them, are surveyed whole."""

from __future__ import annotations

import pytest
import real_kit as kit

from m3b.data.survey import Survey, survey
from m3b.data.survey.facts import SurveyLimits

NAMES = [one["folder"] for one in kit.SETS]


@pytest.mark.real
@pytest.mark.parametrize("folder", NAMES or [""])
def test_real_sets_are_surveyed_and_come_back_from_json(folder: str) -> None:
    kit.must_be_there()
    result = survey(kit.FIELD / folder, limits=SurveyLimits(seconds=600))
    assert result.groups
    assert any(group.content or group.kind in ("array", "hdf5") for group in result.groups)
    assert "damaged" not in {note.code for note in result.notes}
    assert Survey.model_validate_json(result.model_dump_json()) == result
