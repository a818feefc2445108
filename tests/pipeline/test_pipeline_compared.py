"""An index that a script made is held against the archive: labels that were made up and cases that are missing are seen."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import actor, choice, combine_calls, of_kind, play, say, script, write

from m3b import Pipeline
from m3b.errors import LLMError, UsageError
from m3b.run.accepted_manifest import load_accepted_manifest
from m3b.run.folder import RunFolder
from m3b.run.manifests import extract_reason, keep_reasons
from m3b.testing import llm_error

STOP = "Far enough for this test."
REQUEST = "Tell pneumonia from normal on chest X-rays"
HEAD = """
import csv, json, os
import numpy as np
from PIL import Image
rows = list(csv.DictReader(open("data/xrays/labels.csv")))
def mean(name):
    try:
        return float(np.asarray(Image.open("data/xrays/img/" + name)).mean())
    except OSError:
        return 0.0
level = {r["file"]: mean(r["file"]) for r in rows}
middle = sorted(level.values())[len(level) // 2]
"""
TAIL = """
os.makedirs("Datapath", exist_ok=True)
for name in ("train", "test"):
    part = [{"image_path": "data/xrays/img/" + r["file"], "labels": [label(r)], "patient": r["who"]}
            for r in rows if (int(r["who"][1:]) % 5 == 0) == (name == "test")]
    json.dump(part, open(f"Datapath/{name}.json", "w"))
json.dump({"normal": 0, "pneumonia": 1}, open("Datapath/label_dict.json", "w"))
"""
HONEST = 'label = lambda r: {"N": "normal", "P": "pneumonia"}[r["dx"]]'
BRIGHT = 'label = lambda r: "pneumonia" if level[r["file"]] > middle else "normal"'
SWAPPED = 'label = lambda r: {"N": "pneumonia", "P": "normal"}[r["dx"]]'
EASY = HONEST + "\nrows = [r for r in rows if abs(level[r['file']] - middle) > 8]"
UNREADABLE = HONEST + "\nrows = [r for r in rows if int(r['file'][1:4]) % 5]"


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    """120 pictures of 40 people; brightness tells the diagnosis in most of them."""
    folder, rng = tmp_path / "xrays", np.random.default_rng(0)
    (folder / "img").mkdir(parents=True)
    rows = ["file,dx,who"]
    for number in range(120):
        sick = number % 2
        level = 60 + 40 * sick if number % 10 > 2 else 70 + 20 * int(rng.random() > 0.5)
        picture = rng.integers(level, level + 40, (24, 24), np.uint8)
        Image.fromarray(picture).save(folder / "img" / f"s{number:03d}.png")
        rows.append(f"s{number:03d}.png,{'NP'[sick]},Q{number // 3:03d}")
    (folder / "labels.csv").write_text("\n".join(rows))
    (folder / "README.md").write_text("The column dx is P for pneumonia and N for normal.")
    return folder


def hand_over(tmp_path: Path, data: Path, body: str, *words: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The checks of an index that a script made, and the notes."""
    making = combine_calls(write({"make.py": HEAD + body + TAIL}), script("python make.py"))
    acts = play("xrays", index=[making, *(say(event) for event in words or ("Indexed.",)), llm_error(LLMError, STOP)],
                module=[llm_error(LLMError, STOP)])  # fmt: skip
    Pipeline(actor(acts), data=[data], out=tmp_path / "run", reflect=False).run(REQUEST)
    checks = [
        event for event in of_kind(tmp_path / "run", "check") if event.get("role", "data_engineer") == "data_engineer"
    ]
    return checks[1:] if len(checks) > 1 else checks, [event["text"] for event in of_kind(tmp_path / "run", "note")]


def rejection_codes(run: Path) -> list[str]:
    """The codes of the issues of the first rejection."""
    rejected = next(event for event in of_kind(run, "message") if event["reason"] == "rejected")
    return list(rejected["facts"][0]["codes"])


def test_an_honest_index_is_accepted_and_its_origin_said(tmp_path: Path, xrays: Path) -> None:
    checks, notes = hand_over(tmp_path, xrays, HONEST)
    assert checks[0]["accepted"], checks
    assert "The index was made by a script of the Data Engineer's." in notes
    assert any(note.endswith("in 120 of 120 cases.") and "{labels.dx}" in note for note in notes)
    used = next(note for note in notes if note.startswith("120 of 122 files of the data folder are used: "))
    assert "images" in used
    (index,) = [event["value"] for event in of_kind(tmp_path / "run", "artifact") if event["artifact"] == "index"]
    assert index["origin"] == "script"
    assert used in index["notes"], "which the model card holds"
    report = (tmp_path / "run" / "report.html").read_text()
    assert "made by a script of the Data Engineer" in report
    assert "2 files are left out: not in the index that a script made." in report
    with pytest.raises(UsageError):
        load_accepted_manifest(RunFolder.open(tmp_path / "run"))


@pytest.mark.parametrize("body", [BRIGHT, SWAPPED], ids=["brightness", "swapped"])
def test_labels_that_are_not_the_archives_are_rejected(tmp_path: Path, xrays: Path, body: str) -> None:
    if body == SWAPPED:
        table = (xrays / "labels.csv").read_text().replace(",N,", ",normal,").replace(",P,", ",pneumonia,")
        (xrays / "labels.csv").write_text(table)
        body = body.replace('"N"', '"normal"', 1).replace('"P"', '"pneumonia"', 1)
    checks, _ = hand_over(tmp_path, xrays, body)
    assert not checks[0]["accepted"]
    assert rejection_codes(tmp_path / "run") == ["other_targets"]
    assert "{labels.dx}" in checks[0]["faults"][0], "where the labels are"
    assert '"labels_from"' in checks[0]["faults"][0]


def test_other_labels_with_a_reason_are_said_to_people(tmp_path: Path, xrays: Path) -> None:
    checks, notes = hand_over(tmp_path, xrays, BRIGHT, '{"labels_from": "the request asks for what is bright"}')
    assert checks[0]["accepted"], checks
    assert (
        "Labels are not those of the archive, by the Data Engineer's word: the request asks for what is bright" in notes
    )
    assert any("agree with" in note and "in only" in note for note in notes)


def test_an_index_without_the_hard_cases_is_rejected(tmp_path: Path, xrays: Path) -> None:
    checks, _ = hand_over(tmp_path, xrays, EASY)
    assert not checks[0]["accepted"]
    assert rejection_codes(tmp_path / "run") == ["cases_left_out"]
    assert '"left_out"' in checks[0]["faults"][0]


def test_cases_left_out_with_a_reason_are_said_to_people(tmp_path: Path, xrays: Path) -> None:
    checks, notes = hand_over(tmp_path, xrays, EASY, '{"left_out": "the card says that they are phantoms"}')
    assert checks[0]["accepted"], checks
    assert "Cases are left out, by the Data Engineer's word: the card says that they are phantoms" in notes


def test_images_that_do_not_open_and_copies_may_be_left_out(tmp_path: Path, xrays: Path) -> None:
    first = (xrays / "img" / "s001.png").read_bytes()
    for number in range(0, 120, 5):
        file = xrays / "img" / f"s{number:03d}.png"
        file.write_bytes(first if number % 2 else b"\x89PNG\r\n torn")
    checks, _ = hand_over(tmp_path, xrays, UNREADABLE)
    assert checks[0]["accepted"], checks


MASKS = """
import json, os
import numpy as np
from PIL import Image
os.makedirs("Datapath/made", exist_ok=True)
parts = {"train": [], "test": []}
for at, name in enumerate(sorted(os.listdir("data/polyps/images"))):
    image = np.asarray(Image.open("data/polyps/images/" + name))
    drawn = np.asarray(Image.open("data/polyps/masks/" + name)) > 0
    Image.fromarray((DRAW).astype(np.uint8)).save(f"Datapath/made/{at}.png")
    parts["test" if at % 5 == 0 else "train"].append(
        {"image_path": "data/polyps/images/" + name, "mask_path": f"Datapath/made/{at}.png", "patient": f"p{at}"})
for part, records in parts.items():
    json.dump(records, open(f"Datapath/{part}.json", "w"))
json.dump({"polyp": 1}, open("Datapath/label_dict.json", "w"))
"""


@pytest.mark.parametrize(("draw", "accepted"), [("drawn", True), ("image > np.median(image)", False)])
def test_masks_that_a_script_wrote_are_held_against_the_archives(tmp_path: Path, draw: str, accepted: bool) -> None:
    data, rng = tmp_path / "polyps", np.random.default_rng(0)
    for folder in ("images", "masks"):
        (data / folder).mkdir(parents=True)
    for at in range(15):
        marked = np.zeros((24, 30), bool)
        marked[at // 2 : at // 2 + 9, 4 + at : 14 + at] = True
        picture = rng.integers(60, 120, marked.shape).astype(np.uint8)
        Image.fromarray(picture).save(data / "images" / f"case_{at:02d}.png")
        Image.fromarray(marked.astype(np.uint8) * 255).save(data / "masks" / f"case_{at:02d}.png")
    making = combine_calls(write({"make.py": MASKS.replace("DRAW", draw)}), script("python make.py"))
    selection = choice("polyps", task="segmentation", metric="dice")
    acts = play("polyps", selection=[selection], index=[making, say("Indexed."), llm_error(LLMError, STOP)],
                module=[llm_error(LLMError, STOP)])  # fmt: skip
    Pipeline(actor(acts), data=[data], out=tmp_path / "run", reflect=False).run("Segment polyps in colonoscopy images")
    check = [event for event in of_kind(tmp_path / "run", "check")][1]
    assert check["accepted"] == accepted, check
    notes = [event["text"] for event in of_kind(tmp_path / "run", "note")]
    if accepted:
        assert any(
            note.startswith("Its masks agree with masks masks/") and note.endswith("in 15 of 15 cases.")
            for note in notes
        ), notes
    else:
        assert rejection_codes(tmp_path / "run") == ["other_targets"]
        assert "15 of 15 cases" in check["faults"][0]
        assert '"labels_from"' in check["faults"][0]


def test_cases_that_a_manifest_excludes_with_a_reason_are_not_asked_about(tmp_path: Path, xrays: Path) -> None:
    manifest = {
        "task": "diagnosis", "images": {"files": "img/{case}.png"},
        "tables": {"labels": {"files": "labels.csv", "key": "{file}", "image": "{name}"}},
        "labels": {"value": "{labels.dx}", "classes": {"normal": ["N"], "pneumonia": ["P"]}},
        "patient": "{labels.who}", "together": "{labels.who}",
        "exclude": [{"files": "img/s00*.png", "reason": "phantoms"}, {"files": "img/s01*.png", "reason": "phantoms"}],
    }  # fmt: skip
    acts = play("xrays", index=[write({"Datapath/manifest.json": json.dumps(manifest)}), say("Indexed.")],
                module=[llm_error(LLMError, STOP)])  # fmt: skip
    Pipeline(actor(acts), data=[xrays], out=tmp_path / "run", reflect=False).run(REQUEST)
    checks = [
        event["accepted"]
        for event in of_kind(tmp_path / "run", "check")
        if event.get("role", "data_engineer") == "data_engineer"
    ]
    assert checks[-1:] == [True]
    assert not any(event["reason"] == "rejected" for event in of_kind(tmp_path / "run", "message"))


def test_a_reason_that_was_given_once_is_kept() -> None:
    services: Any = SimpleNamespace(index_reasons={})
    keep_reasons(services, '{"left_out": "they are phantoms"}')
    later = keep_reasons(services, "96 cases are indexed; df has one image.")
    assert extract_reason(later, "left_out") == "they are phantoms"
    assert extract_reason(later, "labels_from") == ""
    newer = keep_reasons(services, '{"left_out": "two phantoms"}')
    assert extract_reason(newer, "left_out") == "two phantoms"
