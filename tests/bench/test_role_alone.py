"""One role alone, from a hand-over that the rules prepare."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_kit import actor, by_id, play

from m3b.bench.cell import Cell, run_cell
from m3b.bench.systems.pipeline_systems import SingleRoleSystem, parse_role_system
from m3b.bench.tables import make_tables
from m3b.testing.scripted_model import say


def cell(folder: Path, role: SingleRoleSystem) -> dict:
    task = by_id("ct-kidney")
    bench_cell = Cell(role.name, "scripted", task, 0, {"train_minutes": 0.2}, str(folder / "data"), patients=160)
    return run_cell(bench_cell, folder / "cell", role)


def test_a_role_that_hands_over(tmp_path: Path) -> None:
    row = cell(tmp_path, SingleRoleSystem("data_engineer", lambda spec: actor(play())))
    assert (row["ok"], row["kind"]) == (True, "success"), row["reason"]
    assert list(row["roles"]) == ["data_engineer"], "the roles that the rules played do not count"
    assert row["roles"]["data_engineer"]["actions"] == 2
    table = next(candidate for candidate in make_tables([row]) if candidate.name == "table3")
    assert table.rows[0][:2] == ("diagnosis: Data Engineer (role:data_engineer / scripted)", "1/1")


def test_a_role_whose_work_is_not_accepted(tmp_path: Path) -> None:
    idle = play(index=[say("All done.")])
    row = cell(tmp_path, SingleRoleSystem("data_engineer", lambda spec: actor(idle)))
    assert not row["ok"]
    assert row["kind"] == "no_model"
    assert row["roles"]["data_engineer"]["iterations"] > 0


@pytest.mark.parametrize("name", ["task_manager", "data_engineer", "module_architect", "model_trainer"])
def test_names(name: str) -> None:
    assert parse_role_system(f"role:{name}").name == f"role:{name}"
