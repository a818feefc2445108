"""Layouts of the kits: nearly all are read rightly, and none wrongly without asking."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "layout_kits"))
import layout_kit
from all_layouts import LAYOUTS

MIN_RIGHT = 0.97
FAST = ("class_folders", "labelled_table", "masks_apart", "slices")


def judge(name: str, top: Path) -> str:
    """What became of a layout: right, asked, refused or wrong (and accepted)."""
    root, work = top / "raw", top / "work"
    root.mkdir(parents=True)
    (work / "Datapath").mkdir(parents=True)
    want = LAYOUTS[name].make(root, layout_kit.Names(), random.Random(0))
    verdict = layout_kit.read(root, want, work)
    if verdict.kind != "proposed":
        return {"ask": "asked", "refuse": "refused"}[verdict.kind]
    return f"wrong: {verdict.wrong}" if verdict.wrong else "right"


@pytest.mark.parametrize("name", FAST)
def test_a_plain_layout_is_read_rightly(name: str, tmp_path: Path) -> None:
    assert judge(name, tmp_path) == "right"


@pytest.mark.slow
def test_the_layouts_are_read_rightly_and_none_wrongly_without_asking(tmp_path: Path) -> None:
    verdicts = {name: judge(name, tmp_path / name) for name in LAYOUTS}
    counts = Counter(verdict.partition(":")[0] for verdict in verdicts.values())
    failures = {name: verdict for name, verdict in verdicts.items() if verdict != "right"}
    assert not counts["wrong"], failures
    assert counts["right"] >= MIN_RIGHT * len(verdicts), failures
