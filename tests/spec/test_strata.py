"""A drawn split gives each part of every class that masks mark, however rare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from spec_kit import picture, read

from m3b.data.spec import strata
from m3b.data.spec.split import JUDGED, Unit, draw
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS

SPEC = {"task": "segmentation", "images": {"files": {"pattern": "img/{case}.png"}},
        "masks": {"files": {"pattern": "gt/{case}.png"}, "case": "{case}", "classes": {"organ": 1, "tumour": 2}}}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty organs, four of them with a tumour."""
    root = tmp_path_factory.mktemp("set")
    (root / "gt").mkdir()
    for at in range(40):
        picture(root / "img" / f"s{at:02d}.png")
        marked = np.zeros((12, 16), np.uint8)
        marked[2:8, 3:9] = 1
        marked[4:6, 4:6] = 2 if at % 10 == 3 else 1
        Image.fromarray(marked).save(root / "gt" / f"s{at:02d}.png")
    return root


def with_tumour(folder: Path, work: Path, seed: int) -> list[int]:
    made = read(folder, work, **SPEC, split={"seed": seed})
    return [sum(str(one.image)[-5] == "3" for one in side) for side in (made.train, made.test)]


def test_a_rare_class_is_on_both_sides(folder: Path, tmp_path: Path) -> None:
    assert [with_tumour(folder, tmp_path, seed) for seed in range(6)] == [[3, 1]] * 6


@pytest.mark.parametrize(("groups", "tested"), [(14, 3), (15, 5), (20, 5), (25, 5), (40, 8)])
def test_a_drawn_split_has_as_many_patients_for_testing_as_a_verdict_needs(groups: int, tested: int) -> None:
    units = [Unit(f"p{at // 2}", ("marked",)) for at in range(2 * groups)]
    assert {len(draw(units, 0.2, seed)) for seed in range(5)} == {tested}
    halves = [Unit(f"p{at}", (("ill", "well")[at % 2],)) for at in range(2 * groups)]
    for seed in range(5):
        held = draw(halves, 0.2, seed)
        assert {sum(one.group in held for one in halves if one.classes == (name,)) for name in ("ill", "well")} == {
            tested
        }
    assert JUDGED == MIN_VERDICT_PATIENTS


def test_masks_of_many_cases_are_not_opened(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "MAX_OPENED", {2: 39})
    monkeypatch.setattr(strata, "read_mask", lambda *_: pytest.fail("opened"))
    assert sum(with_tumour(folder, tmp_path, 0)) == 4
