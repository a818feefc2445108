"""Readings in a run: proposed to the Data Engineer, executed by m3b, rejected with what is wrong, or asked about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import REQUEST, actor, call, make_spots, of_kind, play, say, write

from m3b import Pipeline
from m3b.dataset.croissant import load_croissant, parse_croissant
from m3b.errors import LLMError
from m3b.run.accepted_manifest import load_accepted_manifest
from m3b.run.folder import RunFolder
from m3b.testing.scripted_model import llm_error
from warm.commands import run_m3b

STOP = "Far enough for this test."
SPEC = "Datapath/manifest.json"


def by_rules(tmp_path: Path, data: Path, request: str) -> Any:
    """The rules select and index; the run then ends on purpose."""
    llm = {"default": "rules", "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}
    return Pipeline(llm, data=[data], out=tmp_path / "run").run(request)


def make_lossy(folder: Path, cases: int = 24) -> Path:
    """Endoscopy-like pictures with masks that were saved as JPEG."""
    rng = np.random.default_rng(5)
    for number in range(cases):
        image = rng.integers(90, 150, (48, 56, 3), np.uint8)
        mask = np.zeros((48, 56), np.uint8)
        row, column = rng.integers(4, 20, 2)
        mask[row : row + 18, column : column + 20] = 255
        image[mask > 0] = np.clip(image[mask > 0] + 60, 0, 255)
        for name, array in (("images", image), ("masks", mask)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(folder / name / f"q{number * 7:04d}.jpg", quality=70)
    return folder


def test_the_rules_take_a_reading_and_every_file_is_accounted_for(tmp_path: Path) -> None:
    data = make_lossy(tmp_path / "polyps")
    (data / "readme.txt").write_text("Pictures of an endoscopy study.")
    result = by_rules(tmp_path, data, "Segment polyps in colonoscopy images")
    assert result.reason == STOP
    calls = [event for event in of_kind(tmp_path / "run", "call") if event.get("name") != "look"]
    assert [tool_call["name"] for tool_call in calls] == ["copy_files"]
    notes = [event["text"] for event in of_kind(tmp_path / "run", "note")]
    assert "48 of 49 files of the data folder are used: 24 images, 24 masks." in notes
    assert any("left out: a document" in note for note in notes)
    labels = json.loads((tmp_path / "run/work/Datapath/label_dict.json").read_text())
    assert list(labels.values()) == [1], "the lesion, not the noise around it"
    train = json.loads((tmp_path / "run/work/Datapath/train.json").read_text())
    mask = np.asarray(Image.open(tmp_path / "run/work" / train[0]["mask_path"]))
    assert set(np.unique(mask)) == {0, 1}
    assert abs(int(mask.sum()) - 18 * 20) < 60
    spec, root = load_accepted_manifest(RunFolder.open(tmp_path / "run"))
    assert root == data
    assert spec.masks is not None
    assert spec.masks.above is not None
    croissant_file = tmp_path / "croissant.json"
    process = run_m3b("data", "croissant", tmp_path / "run", "-o", croissant_file)
    if process.returncode == 0:
        assert parse_croissant(load_croissant(croissant_file)).manifest == spec
    else:
        assert "m3b[croissant]" in process.stderr


def test_what_is_not_clear_is_said_and_not_guessed(tmp_path: Path) -> None:
    data, rng = tmp_path / "lungs", np.random.default_rng(0)
    rows = ["file,label"]
    for number, label in enumerate(["covid", "bacterial pneumonia", "viral pneumonia", "regular"] * 8):
        Image.fromarray(rng.integers(0, 255, (32, 32), np.uint8)).save(
            _create_folder(data / "img") / f"s{number:03d}.png"
        )
        rows.append(f"s{number:03d}.png,{label}")
    (data / "labels.csv").write_text("\n".join(rows))
    result = by_rules(tmp_path, data, "Tell covid, pneumonia and healthy lungs apart on lung ultrasound images")
    assert result.status in ("undecided", "no_dataset")


def _create_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("spec", "expected_text"),
    [
        ("no json", "is no JSON object"),
        ({"task": "diagnosis"}, "images is missing"),
        ({"task": "diagnosis", "images": {"files": "nothing/{x}.png"},
          "labels": {"value": "{x}", "classes": {"a": [], "b": []}}}, "no file"),
        ({"task": "report", "images": {"files": "*/*.png"}, "report": {"findings": "{name}"}}, "is for report"),
    ],
    ids=["no json", "not whole", "no file", "another task"],
)  # fmt: skip
def test_a_reading_that_cannot_be_executed_goes_back_with_what_is_wrong(
    tmp_path: Path, spec: Any, expected_text: str
) -> None:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    acts = play(index=[write({SPEC: text}), say("Done."), llm_error(LLMError, STOP)])
    Pipeline(actor(acts), data=[make_spots(tmp_path / "spots", patients=24)], out=tmp_path / "run").run(REQUEST)
    (fault_of,) = [check["faults"] for check in of_kind(tmp_path / "run", "check") if not check["accepted"]]
    assert expected_text in fault_of[0]
    assert SPEC in fault_of[0]


def test_a_model_takes_a_proposed_reading_with_one_action(tmp_path: Path) -> None:
    copy = call("copy_files", source="Datapath/proposals/1.json", destination=SPEC)
    acts = play(
        index=[copy, say("The first reading fits."), llm_error(LLMError, STOP)], module=[llm_error(LLMError, STOP)]
    )
    data = make_spots(tmp_path / "spots", patients=24)
    Pipeline(actor(acts), data=[data], out=tmp_path / "run").run(REQUEST)
    assert [check["accepted"] for check in of_kind(tmp_path / "run", "check")][:2] == [True, True]
    first, prompt = [event["text"] for event in of_kind(tmp_path / "run", "prompt")][:2]
    assert "m3b read in all files of data/spots:" in first, "before the Task Manager is asked"
    assert "- as diagnosis: " in first
    assert "Left in this run, for all roles together: 100 of 100 actions" in first
    surveys = [event["text"] for event in of_kind(tmp_path / "run", "stage") if "survey" in event["text"]]
    assert len(surveys) == 1, "what was read for the Task Manager serves the Data Engineer too"
    assert "## Proposed manifests" in prompt
    assert "Manifest Datapath/proposals/1.json: {" in prompt
    assert "manifest.json" in prompt


def test_a_look_before_a_run(tmp_path: Path) -> None:
    data = make_lossy(tmp_path / "polyps", cases=12)
    command = ("look", data, "Segment polyps in colonoscopy images")
    result = run_m3b(*command, "-o", tmp_path / "manifest.json")
    assert result.returncode == 0, result.stderr
    assert "24 of 24 files of the data folder are used" in result.stdout
    assert json.loads((tmp_path / "manifest.json").read_text())["task"] == "segmentation"
    again = run_m3b(*command, "-o", tmp_path / "manifest.json")
    assert again.returncode == 2
    assert "--force" in again.stderr
    preview = json.loads(run_m3b(*command, "--json").stdout)
    assert preview["counts"]["train"] + preview["counts"]["test"] == 12
    nothing = run_m3b("look", tmp_path / "none", "x")
    assert nothing.returncode == 2
    assert "There is no folder" in nothing.stderr
    assert "Name the folder with the images" in nothing.stderr
    of_file = run_m3b("look", tmp_path / "manifest.json", "x")
    assert of_file.returncode == 2
    assert "manifest.json is a file. Name the folder with the images" in of_file.stderr
    exchanged = run_m3b("look", "Segment polyps", data)
    assert exchanged.returncode == 2
    assert "the folder comes first" in exchanged.stderr


def test_a_manifest_that_an_agent_writes_is_answered_at_once(tmp_path: Path) -> None:
    data = make_spots(tmp_path / "spots", patients=24)
    proposal = "Datapath/proposals/1.json"
    edited = 'import json; m = json.load(open("{0}")); m["split"] = {{"share": 0.5}}; json.dump(m, open("{1}", "w"))'
    acts = play(
        index=[
            write({SPEC: json.dumps({"task": "diagnosis", "images": {"files": "*.png"}, "labels": {"values": "x"}})}),
            write({"edit.py": edited.format(proposal, SPEC)}),
            call("run_script", command="python edit.py"),
            call("copy_files", source=proposal, destination=SPEC),
            llm_error(LLMError, STOP),
        ]
    )
    Pipeline(actor(acts), data=[data], out=tmp_path / "run").run(REQUEST)
    texts = [event["text"] for event in of_kind(tmp_path / "run", "result", "data_engineer")]
    assert f"{SPEC} is not valid: labels" in texts[0]
    assert f"{SPEC} gives:" in texts[2]
    assert "training: " in texts[2]
    assert f"{SPEC} equals proposal 1" in texts[3]


def two_readers(folder: Path) -> Path:
    """Two columns with the same classes, of which the request means neither more than the other."""
    rng = np.random.default_rng(5)
    rows = ["image,patient,reader_a,reader_b"]
    for number in range(60):
        picture = rng.integers(0, 255, (24, 24), dtype=np.uint8)
        Image.fromarray(picture).save(_create_folder(folder / "images") / f"c{number:02d}.png")
        first, second = (("benign", "malignant")[at % 2] for at in (number // 2, number // 3))
        rows.append(f"c{number:02d}.png,P{number // 2},{first},{second}")
    (folder / "reads.csv").write_text("\n".join(rows))
    return folder


TWO_READERS_REQUEST = "Tell benign from malignant lesions on mammograms"


def test_an_open_question_is_decided_by_the_manifest_of_an_agent(tmp_path: Path) -> None:
    data = two_readers(tmp_path / "reads")
    manifest = {
        "task": "diagnosis",
        "images": {"files": "images/{case}.png"},
        "tables": {"reads": {"files": "reads.csv", "key": "{image}", "image": "{name}"}},
        "labels": {"value": "{reads.reader_b}", "classes": {"benign": [], "malignant": []}},
        "patient": "{reads.patient}",
    }
    acts = play(
        "reads",
        index=[write({SPEC: json.dumps(manifest)}), say("Reader B is the reference of the study.")],
        module=[llm_error(LLMError, STOP)],
    )
    result = Pipeline(actor(acts), data=[data], out=tmp_path / "run", reflect=False).run(TWO_READERS_REQUEST)
    assert result.reason == STOP, "the run goes on behind the index"
    briefing = next(
        event["text"] for event in of_kind(tmp_path / "run", "prompt") if event["text"].startswith("Stage: index")
    )
    assert "Open: Several readings fit the request" in briefing
    assert "## The form of a manifest" in briefing
    (index,) = [event["value"] for event in of_kind(tmp_path / "run", "artifact") if event["artifact"] == "index"]
    assert index["origin"] == "edited"
    labels = {
        Path(case["image_path"]).name: case["labels"][0]
        for part in ("train", "test")
        for case in json.loads((tmp_path / "run/locked/Datapath" / f"{part}.json").read_text())
    }
    assert labels == {f"c{number:02d}.png": ("benign", "malignant")[number // 3 % 2] for number in range(60)}


def test_an_open_question_ends_a_run_without_a_person(tmp_path: Path) -> None:
    data = two_readers(tmp_path / "reads")
    run = run_m3b("run", TWO_READERS_REQUEST, "--data", data, "--llm", "rules", "--out", tmp_path / "run", "--json")
    assert run.returncode == 2
    result = json.loads(run.stdout)
    assert result["status"] == "undecided"
    assert "{reads.reader_a}" in result["reason"]
    assert "{reads.reader_b}" in result["reason"]


def test_an_agent_may_leave_an_open_question_to_the_user(tmp_path: Path) -> None:
    question = "Which reader is the reference: reader_a or reader_b?"
    acts = play("reads", index=[say(json.dumps({"undecided": question}))])
    data = two_readers(tmp_path / "reads")
    result = Pipeline(actor(acts), data=[data], out=tmp_path / "run").run(TWO_READERS_REQUEST)
    assert (result.status, result.usage["iterations"]) == ("undecided", 0)
    assert question in result.reason
