"""File names in Latin-1 or with control codes, and JSON nested without end: each costs at most its own file."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import MAKE_INDEX, REQUEST, actor, combine_calls, make_spots, play, say, script, write

from m3b import Pipeline, load_model
from m3b.cli.app import app
from m3b.data.index import read_records, write_records
from m3b.data.records import Record
from m3b.errors import DataError
from m3b.isolation.reader import protocol
from m3b.isolation.sandbox import choose_sandbox
from m3b.isolation.untrusted import TooDeep, parse_data_json, parse_json, read_json
from m3b.messages import ToolCall
from m3b.run.dataset_preview import preview_dataset
from m3b.tools import TOOLS, Roots, Toolbox
from m3b.writing import escape_control_codes

LATIN = os.fsdecode(b"M\xfcller")
PATIENTS = 24


def add_note(data: Path) -> None:
    (data / f"{LATIN}.txt").write_text("x")


def rename_image(data: Path) -> None:
    sorted((data / "spot").glob("p*.png"))[-1].rename(data / "spot" / f"{LATIN}.png")


def add_folder(data: Path) -> None:
    (data / LATIN).mkdir()
    (data / LATIN / "a.png").write_bytes(sorted((data / "spot").glob("p*.png"))[0].read_bytes())


def add_link(data: Path) -> None:
    (data / f"{LATIN}.png").symlink_to("/etc/passwd")


def add_deep_json(data: Path) -> None:
    (data / "meta.json").write_text("[" * 100_000)


def add_deep_objects(data: Path) -> None:
    (data / "spot" / "meta.json").write_text('{"a":' * 100_000)


def add_deep_lines(data: Path) -> None:
    (data / "meta.jsonl").write_text('{"a": 1}\n{"a": ' + "[" * 100_000 + "\n")


def add_half_characters(data: Path) -> None:
    rows = [{"image": file.name, "note": "\ud800", "\udcfc": 1} for file in sorted((data / "spot").iterdir())]
    (data / "rows.json").write_text(json.dumps(rows))


def add_control_codes(data: Path) -> None:
    (data / "e\x1b[31m\x9b\n.txt").write_text("x")
    sorted((data / "spot").glob("p*.png"))[-1].rename(data / "spot" / "p001\x1b]0;x\x07.png")


#: what is done to a folder -> files that may be lost of it
CASES_LOST: dict[Callable[[Path], None], int] = {
    add_note: 0, rename_image: 1, add_folder: 0, add_link: 0, add_deep_json: 0, add_deep_objects: 0, add_deep_lines: 0,
    add_half_characters: 0, add_control_codes: 0,
}  # fmt: skip


@pytest.mark.parametrize("spoil", CASES_LOST, ids=lambda spoil: spoil.__name__)
def test_a_look_reads_the_rest_of_the_folder(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    data = make_spots(tmp_path / "spots", patients=PATIENTS)
    spoil(data)
    (tmp_path / "place").mkdir()
    preview = preview_dataset(data, REQUEST, tmp_path / "place", with_examples=True)
    assert not preview.insufficient
    assert preview.counts["train"] + preview.counts["test"] == PATIENTS - CASES_LOST[spoil]
    every = sum(len(files) for _, _, files in os.walk(data)) - (spoil is add_link)
    assert preview.counts["accounting"]["files"] == every, "every file is accounted for"
    json.dumps(preview.to_json(), ensure_ascii=False).encode()


@pytest.mark.parametrize("spoil", CASES_LOST, ids=lambda spoil: spoil.__name__)
def test_tools_show_the_rest_of_the_folder(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    data = make_spots(tmp_path / "spots", patients=PATIENTS)
    spoil(data)
    (tmp_path / "work").mkdir()
    names = [file.relative_to(data).as_posix() for file in data.rglob("*") if file.is_file()]
    unusual_name = sorted(names, key=lambda name: (name.isascii() and name.isprintable(), not name.startswith("meta")))[
        0
    ]
    with Toolbox(Roots(tmp_path / "work", {"data/x": data}), sandbox=choose_sandbox("off")) as box:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("preview_dirs", {"path": "data/x"}), ("list_files", {"path": "data/x"}), ("list_files", {"path": "data/x/spot"}),
            ("preview_files", {"paths": ["data/x/spot/p003.png", f"data/x/{unusual_name}"]}),
            ("read_files", {"paths": [f"data/x/{unusual_name}"]}),
        ]  # fmt: skip
        for tool, arguments in calls:
            result = box.call(ToolCall("1", tool, arguments), tuple(TOOLS))
            result.text.encode()
            assert "\x1b" not in result.text
            if tool != "read_files":
                assert not result.is_error, result.text
        assert "24 x 24" in box.call(ToolCall("1", *calls[3]), tuple(TOOLS)).text.replace("width ", "").replace(
            "height ", ""
        )


def test_a_run_and_a_prediction_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a script that lists whatever it finds, as agents write it: the check names the file, and the next try leaves it out."""
    from typer.testing import CliRunner

    data = make_spots(tmp_path / "spots")
    for spoil in CASES_LOST:
        if spoil is not add_folder:  # a script of class folders takes it for a class
            spoil(data)
    careful = MAKE_INDEX.replace(
        "        cases[", "        if not file.name.isascii() or file.is_symlink(): continue\n        cases["
    )
    assert careful != MAKE_INDEX
    steps = [
        combine_calls(write({"make_index.py": source}), script("python make_index.py"))
        for source in (MAKE_INDEX, careful)
    ]
    result = Pipeline(actor(play(index=[steps[0], say("Indexed."), steps[1], say("Indexed.")])), data=[data],
                      out=tmp_path / "run").run(REQUEST)  # fmt: skip
    assert result.status == "completed", result.reason
    (tmp_path / "run/report.html").read_text(encoding="utf-8")
    images = sorted((data / "spot").glob("*.png"))
    predictions = load_model(tmp_path / "run/model").predict(images[:30])
    assert [item.image for item in predictions] == [str(image) for image in images[:30]]
    for out in ("x.csv", "x.json", "folder"):
        cli_result = CliRunner().invoke(
            app, ["predict", str(tmp_path / "run"), *map(str, images), "-o", str(tmp_path / out)]
        )
        assert cli_result.exit_code == 0, cli_result.output
        assert escape_control_codes(cli_result.output) == cli_result.output
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        assert [row["image"] for row in csv.DictReader(file)] == [escape_control_codes(str(image)) for image in images]
    for file in ("x.json", "folder/predictions.json"):
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert [item["image"] for item in json.loads(text)] == [str(image) for image in images]


def test_an_index_names_no_odd_file(tmp_path: Path) -> None:
    rows = [{"image_path": f"data/x/{name}.png", "labels": ["a"], "patient": "1"} for name in ("b", LATIN)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"record 1.*M\\udcfcller"):
        read_records(tmp_path / "train.json")
    write_records(tmp_path / "train.json", [Record("data/x/b.png", labels=("a",), patient="1")])
    assert len(read_records(tmp_path / "train.json")) == 1


# --- parts --------------------------------------------------------------------------------------------------------


def test_odd_names_cross_the_pipe(tmp_path: Path) -> None:
    sent = {LATIN: [Path(LATIN), (LATIN, 1.5, None, True)]}
    for of in (dict[str, list[Path | tuple[str, float, None, bool]]], Any):
        assert json.loads(json.dumps(protocol.to_json(of, sent))) == {LATIN: [LATIN, [LATIN, 1.5, None, True]]}
    assert protocol.from_json(dict[str, Path], protocol.to_json(dict[str, Path], {LATIN: Path(LATIN)})) == {
        LATIN: Path(LATIN)
    }


def test_json_of_others_is_a_value_or_a_value_error(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "[" * 50_000 + "]" * 50_000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(TooDeep):
            parse_json(text)
        with pytest.raises(TooDeep):
            parse_data_json(text)
        with pytest.raises(TooDeep):
            read_json(tmp_path, "x.json")
    assert parse_data_json('{"\\udcfc": "a\\ud800b", "c": "\\ud83d\\ude00"}') == {"?": "a?b", "c": "😀"}
    assert parse_json('"\\udcfc"') == "\udcfc"
    assert parse_data_json('\ufeff{"a": 1}'.encode("utf-16")) == {"a": 1}
