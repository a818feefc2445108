"""Whole runs from the command line with a reading that a person gives: from the request to a delivered model.

The embedded rules choose and index; the project is the small one of the kit, which trains in a second.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import m3b_command, plugin
from terminal_kit import terminal

from m3b import load_model

pytestmark = pytest.mark.slow

REQUEST = "Tell pneumonia from normal on chest X-rays"
RULED = """
from m3b.llm import ask_llm
from m3b.llm.rules import RulesLLM
def ruled(messages, tools):
    return ask_llm(RulesLLM(), messages, tools)
acts = play(selection=[ruled], index=[ruled])
"""
"""A provider whose first two roles are the embedded rules, the other two the kit's small project."""


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    """A hundred and twenty pictures of sixty people; two readers' labels, two columns that name files, and a list of a test part.

    The first reader's labels go by brightness on the left, the second one's by brightness on the right.
    """
    folder, rng = tmp_path / "xrays", np.random.default_rng(0)
    (folder / "img").mkdir(parents=True)
    rows, second_visit = ["old_name,file,first,second,who"], []
    for number in range(120):
        sick = [number % 2 == 0, number // 2 % 2 == 0]
        picture = rng.integers(20, 60, (24, 24), np.uint8)
        picture[:, :12] += np.uint8(30 * sick[0])
        picture[:, 12:] += np.uint8(150 * sick[1])
        name = f"s{number:03d}.png"
        Image.fromarray(picture).save(folder / "img" / name)
        labels = ",".join("pneumonia" if is_sick else "normal" for is_sick in sick)
        rows.append(f"x{number * 7 % 120:03d}.png,{name},{labels},Q{number // 2:03d}x")
        if number // 2 % 4 < 2:
            second_visit.append(name)
    (folder / "labels.csv").write_text("\n".join(rows))
    (folder / "second_visit.txt").write_text("\n".join(second_visit))
    return folder


def spec(**fields: Any) -> dict[str, Any]:
    return {"task": "diagnosis", "images": {"files": "img/{case}.png"},
            "tables": {"labels": {"files": "labels.csv", "key": "{file}", "image": "{name}"}},
            "labels": {"value": "{labels.second}", "classes": {"normal": [], "pneumonia": []}},
            "patient": "{labels.who}", "split": {"share": 0.4, "seed": 5}, **fields}  # fmt: skip


def command(tmp_path: Path, data: Path, *options: object) -> list[str]:
    return m3b_command("run", REQUEST, "--llm", "played:x", "--data", data, "--out", tmp_path / "run", *options)


def finished(tmp_path: Path, data: Path, *options: object) -> dict[str, Any]:
    """The result of a run that completed, as it is printed."""
    ended = subprocess.run(
        command(tmp_path, data, "--json", *options), env=plugin(tmp_path / "plugin", RULED), cwd=tmp_path,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert result["status"] == "completed", result["reason"]
    return result


def locked(tmp_path: Path) -> dict[str, tuple[str, str, str]]:
    """Name of an image -> label, patient, part."""
    cases = {}
    for part in ("train", "test"):
        for case in json.loads((tmp_path / "run/locked/Datapath" / f"{part}.json").read_text()):
            cases[Path(case["image_path"]).name] = (case["labels"][0], case["patient"], part)
    return cases


def predicts(result: dict[str, Any], data: Path) -> None:
    """The delivered model answers a picture of either class rightly."""
    images = [str(data / "img" / name) for name in ("s000.png", "s002.png")]
    answers = [answer.prediction for answer in load_model(Path(result["model_dir"])).predict(images)]
    assert [tuple(answer) for answer in answers] == [("pneumonia",), ("normal",)]


def test_a_list_of_test_images_is_the_locked_split_of_a_delivered_model(tmp_path: Path, xrays: Path) -> None:
    second_visit = set((xrays / "second_visit.txt").read_text().split())
    result = finished(
        tmp_path, xrays, "--split", "second_visit.txt", "--label-column", "second", "--patient-column", "who"
    )
    cases = locked(tmp_path)
    parts = {name for name, (_, _, part) in cases.items() if part == "test"}
    assert parts == second_visit
    assert result["primary"]["n"] == len(parts)
    predicts(result, xrays)


def test_a_whole_reading_is_carried_out_to_a_delivered_model(tmp_path: Path, xrays: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(spec()))
    result = finished(tmp_path, xrays, "--manifest", tmp_path / "mine.json")
    cases = locked(tmp_path)
    assert cases["s000.png"][:2] == ("pneumonia", "Q000x")
    assert cases["s001.png"][0] == "pneumonia", "by the second reader"
    assert sum(part == "test" for _, _, part in cases.values()) in range(42, 54), "two fifths, by patients"
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["labels"]["value"]["value"] == "{labels.second}"
    assert manifest["split"] == {"share": 0.4, "seed": 5}
    card = (Path(result["model_dir"]) / "README.md").read_text()
    assert "manifest that the user gave" in card
    predicts(result, xrays)


def test_columns_and_table_are_taken_as_a_person_names_them(tmp_path: Path, xrays: Path) -> None:
    decoy = "\n".join(["file,second,who", *(f"s{n:03d}.png,normal,Z{n}" for n in range(120))])
    (xrays / "other.csv").write_text(decoy)
    options = (
        "--labels",
        "labels.csv",
        "--image-column",
        "file",
        "--label-column",
        "second",
        "--patient-column",
        "who",
    )
    result = finished(tmp_path, xrays, *options)
    cases = locked(tmp_path)
    assert cases["s001.png"][:2] == ("pneumonia", "Q000x")
    assert cases["s002.png"][:2] == ("normal", "Q001x")
    sides = {patient: {part for _, its, part in cases.values() if its == patient} for _, patient, _ in cases.values()}
    assert len(sides) == 60
    assert all(len(parts) == 1 for parts in sides.values())
    predicts(result, xrays)


def test_a_person_who_is_asked_edits_the_reading_agrees_and_gets_a_model(tmp_path: Path, xrays: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(spec()))
    arguments = command(tmp_path, xrays, "--confirm", "--label-column", "first", "--patient-column", "who")
    with terminal(arguments, env=plugin(tmp_path / "plugin", RULED), cwd=tmp_path) as screen:
        screen.wait_for("Your answer")
        assert "Is the data read rightly?" in screen.text
        screen.type(str(tmp_path / "mine.json"))
        while screen.text.count("Your answer") < 2:
            assert screen.read(), screen.text
        screen.type("yes")
        status, output = screen.end()
    assert status == 0, output
    assert "completed" in output
    assert locked(tmp_path)["s001.png"][0] == "pneumonia", "the edited reading's column"
    assert json.loads((tmp_path / "run/manifest.json").read_text())["split"] == {"share": 0.4, "seed": 5}
