"""The tables that plans start from: rows that are used, settings that are complete, evidence that exists."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from m3b.training.plan_table import PLAN_TABLES, PlanConditions, choose_rows, choose_settings, describe_rows

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "RESULTS.md"
CONDITIONS = [
    PlanConditions(dims, device, cases, minutes, gib if device == "GPU" else 0, target)
    for dims, device, cases, minutes, gib, target in itertools.product(
        (2, 3), ("GPU", "processor"), (20, 1000, 5000), (1, 5, 90, 400, 1100, 2000), (6, 8, 24, 80), ("boxes", "masks")
    )
]


@pytest.mark.parametrize("task", PLAN_TABLES)
def test_every_row_is_used_and_every_plan_has_all_settings(task: str) -> None:
    used, keys = [], dict[tuple[int, str], set[str]]()
    for conditions in CONDITIONS:
        used += [row for row, _ in choose_rows(task, conditions)]
        names = set(choose_settings(task, conditions))
        assert keys.setdefault((conditions.dims, conditions.device), names) == names
    assert [row for row in PLAN_TABLES[task] if row not in used] == []


@pytest.mark.parametrize("task", PLAN_TABLES)
def test_evidence_is_there(task: str) -> None:
    sections = {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-"): text
        for title, text in re.findall(
            r"^#+ (.*)\n((?:(?!#+ ).*\n)*)", RESULTS.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    for row in PLAN_TABLES[task]:
        assert re.search(r"RESULTS\.md#|not compared|et al\.|and \w+, |\d{4}|torchvision|nnU-Net", row.evidence), row
        for anchor, entry in re.findall(r"RESULTS\.md#([\w-]+)(?:: ([^;,]+))?", row.evidence):
            assert entry in sections[anchor], row


def test_the_first_row_counts() -> None:
    small = choose_settings("diagnosis", PlanConditions(2, "GPU", 499, 10))
    assert (small["network"]["name"], small["lr"], small["max_side"]) == ("resnet18", 3e-4, 320)
    sides = [
        choose_settings("diagnosis", PlanConditions(2, "processor", n))["max_side"] for n in (499, 500, 3000, 3001)
    ]
    assert sides == [128, 224, 224, 128]
    assert choose_settings("detection", PlanConditions(2, "processor", 20, target="masks"))["patch_voxels"] == 2**16
    assert choose_settings("segmentation")["engine"] == "trainer"


def test_the_line_of_plan_py_names_conditions() -> None:
    line = describe_rows("segmentation", PlanConditions(3, "GPU", 40, 400, 24.0))
    expected: list[Any] = ["GPU, from 7 GiB, from 360 minutes", "GPU, from 60 minutes", "3D, GPU", "GPU", "3D"]
    rows = [row for row, _ in choose_rows("segmentation", PlanConditions(3, "GPU", 40, 400, 24.0)) if row.conditions]
    assert [row.conditions for row in rows] == expected
    assert "; ".join(expected) in line


def test_a_condition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="4D"):
        PlanConditions().meet("4D")
