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
    found = survey(kit.FIELD / folder, limits=SurveyLimits(seconds=600))
    assert found.groups
    assert any(one.content or one.kind in ("array", "hdf5") for one in found.groups)
    assert "damaged" not in {note.code for note in found.notes}
    assert Survey.model_validate_json(found.model_dump_json()) == found
