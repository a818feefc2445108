"""Cases that came later: a new run trains on them and is measured on the test part of the first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_kit import REQUEST, actor, draw, make_table, play

from m3b import DataError, Pipeline, UsageError
from m3b.errors import LLMError
from m3b.run.extending import extend_data
from m3b.testing.scripted_model import llm_error
from warm.commands import run_m3b

STOP = "Far enough for this test."


def run_to_index(out: Path, data: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """Run the rules up to the accepted index, and return its records by part."""
    llm: Any = {"default": "rules", "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}
    assert Pipeline(llm, data=[data], out=out, **options).run(REQUEST).reason == STOP
    return {
        "train": json.loads((out / "work/Datapath/train.json").read_text()),
        "test": json.loads((out / "locked/Datapath/test.json").read_text()),
    }


def make_rows(patients: int = 24) -> list[list[str]]:
    """Rows of a table with one image a patient."""
    return [[f"s{number:03d}.png", f"p{number}", ("plain", "spot")[number % 2]] for number in range(patients)]


def write_rows(folder: Path, rows: list[list[str]]) -> None:
    """Write the table again, and no images."""
    lines = ["image,patient_id,finding", *(",".join(row) for row in rows)]
    (folder / "cases.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_run_on_a_grown_folder_keeps_the_test_part(tmp_path: Path) -> None:
    rows = make_rows()
    data = make_table(tmp_path / "spots", rows)
    before = run_to_index(tmp_path / "first", data)
    tested_name = Path(before["test"][0]["image_path"]).name
    tested_row = next(row for row in rows if row[0] == tested_name)
    random = np.random.default_rng(7)
    for number in range(12):
        finding = ("plain", "spot")[number % 2]
        draw(finding == "spot", random).save(data / f"images/s{24 + number:03d}.png")
        rows.append([f"s{24 + number:03d}.png", f"q{number}", finding])
    draw(tested_row[2] == "spot", random).save(data / "images/s036.png")  # of a patient of the test part
    shutil.copy(data / "images" / tested_name, data / "images/s037.png")
    write_rows(data, [*rows, ["s036.png", *tested_row[1:]], ["s037.png", "q99", tested_row[2]]])
    manifest = tmp_path / "larger.json"
    process = run_m3b("data", "extend", tmp_path / "first", data, "-o", manifest, "--json")
    assert process.returncode == 0, process.stderr
    counts = json.loads(process.stdout)
    assert (counts["added"], counts["lost"], counts["changed"]) == (12, 0, [])
    assert counts["testing"] == len(before["test"])
    assert counts["training"] == len(before["train"]) + 12
    after = run_to_index(tmp_path / "second", data, manifest=manifest)
    paths = [{record["image_path"] for record in part["test"]} for part in (before, after)]
    assert paths[0] == paths[1]
    assert len(after["train"]) == counts["training"]


def test_test_cases_that_changed_or_are_gone_and_nothing_new(tmp_path: Path) -> None:
    rows = make_rows()
    data = make_table(tmp_path / "spots", rows)
    name = Path(run_to_index(tmp_path / "run", data)["test"][0]["image_path"]).name
    with pytest.raises(DataError):
        extend_data(tmp_path / "run", data)
    draw(True, np.random.default_rng(7)).save(data / "images/s024.png")
    opposite = {"plain": "spot", "spot": "plain"}
    changed_rows = [[*row[:2], opposite[row[2]] if row[0] == name else row[2]] for row in rows]
    write_rows(data, [*changed_rows, ["s024.png", "p24", "spot"]])
    assert [Path(path).name for path in extend_data(tmp_path / "run", data).changed] == [name]
    (data / "images" / name).unlink()
    with pytest.raises(DataError) as error:
        extend_data(tmp_path / "run", data)
    assert name in str(error.value)
    with pytest.raises(UsageError):
        extend_data(tmp_path / "run", tmp_path / "nowhere")
