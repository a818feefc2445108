"""Patients who are unknown: said wherever a figure stands, and never given out as a number of people."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline_kit import MAKE_INDEX, REQUEST, actor, combine_calls, play, say, script, write

from m3b import Pipeline
from m3b.cli.output import format_result
from m3b.run.result import Result

UNKNOWN = "patients unknown, so images of one person may be on both sides of the split"


def run(tmp_path: Path, spots: Path, patient: str) -> Result:
    make = MAKE_INDEX.replace("file.stem})", f"{patient}}})")
    index = [combine_calls(write({"make_index.py": make}), script("python make_index.py")), say("Indexed.")]
    return Pipeline(actor(play(index=index)), data=[spots], out=tmp_path / "run").run(REQUEST)


def everything(result: Result) -> str:
    """What people read of a run."""
    card = Path(str(result.model_dir), "README.md").read_text(encoding="utf-8")
    return "\n".join([*format_result(result), card, Path(str(result.report)).read_text(encoding="utf-8")])


def test_of_unknown_patients_no_number_is_given_out(tmp_path: Path, spots: Path) -> None:
    result = run(tmp_path, spots, "'unknown-' + file.stem")
    assert (result.patients_known, result.patients) == (False, None)
    assert result.tested_on == f"20 cases; {UNKNOWN}"
    output = everything(result)
    assert output.count(UNKNOWN) >= 3, "in the terminal, on the card and in the report"
    for words in ("20 patients", "40 patients", "patients that training never saw", "train: 40, test: 20"):
        assert words not in output
    metrics = json.loads(Path(str(result.model_dir), "metrics.json").read_text())
    assert (metrics["n_patients"], metrics["n_groups"], metrics["patients_known"]) == (None, 20, False)
    assert Result.from_json(result.to_json()) == result


def test_known_patients_are_counted(tmp_path: Path, spots: Path) -> None:
    result = run(tmp_path, spots, "file.stem")
    assert (result.patients_known, result.patients) == (True, 20)
    assert result.tested_on == "20 cases of 20 patients that training never saw"
    assert result.tested_on in everything(result)
    assert UNKNOWN not in everything(result)
    page = (tmp_path / "run" / "manifest.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= 6, "the page of the reading has examples"


def test_before_an_index_is_accepted_nothing_is_said_of_patients(tmp_path: Path, spots: Path) -> None:
    nothing = say(json.dumps({"data_card": None, "reason": "There is no such data here."}))
    result = Pipeline(actor(play(selection=[nothing])), data=[spots], out=tmp_path / "run").run(REQUEST)
    assert (result.status, result.patients_known, result.tested_on) == ("no_dataset", None, "")
