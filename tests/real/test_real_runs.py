"""Real data sets, where somebody has them, from request to delivered model on the embedded rules; a minute or two each.

Nothing is asked of the figures: the trainings are as short as they can be. A set of which too little can be said for a verdict
may end below one, but not without a model, a reason and the right index.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import real_kit as kit

from m3b import Pipeline, load_model
from m3b.run.verification import verify

pytestmark = pytest.mark.real
MINUTES = 0.3
NAMES = [entry["folder"] for entry in kit.SETS if not entry.get("refuse")]


@pytest.mark.parametrize("folder", NAMES or [""])
def test_a_real_set_becomes_a_model_that_answers(folder: str, tmp_path: Path) -> None:
    kit.must_be_there()
    [want] = [candidate for candidate in kit.SETS if candidate["folder"] == folder]
    result = Pipeline("rules", data=[kit.FIELD / folder], out=tmp_path / "run", train_minutes=MINUTES).run(
        want["request"]
    )
    assert result.status in ("completed", "below_range"), result.reason
    assert result.integrity == "clean"
    assert not kit.differs_in_run(tmp_path / "run", want)
    assert verify(tmp_path / "run").ok
    assert result.primary is not None
    assert result.tested_on
    first = kit.first_test_case(tmp_path / "run", folder)
    [answer] = load_model(str(result.model_dir)).predict([first], out=tmp_path / "answers")
    assert not answer.error
    assert not repr(answer).endswith(": nothing>")
