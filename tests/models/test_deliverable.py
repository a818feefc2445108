"""What may be delivered, and the model card that goes with it."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.metrics import ClassificationCase
from m3b.models import check_deliverable, write_metrics, write_model_card, write_provenance
from m3b.models.deliverable_check import find_content_problem
from m3b.tasks.diagnosis import score_diagnosis


def test_a_complete_folder_passes(folder: Path) -> None:
    assert check_deliverable(folder) == []


@pytest.mark.parametrize("name", ["predict.py", "config.json", "README.md", "requirements.txt", "model.safetensors"])
def test_each_required_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    problems = check_deliverable(folder)
    assert len(problems) == 1
    assert name.split(".")[-1] in problems[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("best.pt", b"x", "pickle"),
        ("weights", pickle.dumps({"w": 1}), "pickle"),
        ("weights.dat", b"PK\x03\x04data", "archive"),
        ("sub/scan.nii.gz", b"x", "image data"),
        ("sub/figure", b"\x89PNG\r\n", "PNG image"),
        ("series/IM1", b"\0" * 128 + b"DICM", "DICOM"),
        ("more.safetensors", b"nonsense", "no safetensors"),
        ("empty.safetensors", (2).to_bytes(8, "little") + b"{}", "no tensor"),
        ("utils.py", b"import os\nfrom m3b.models import load_model\n", "imports m3b"),
        ("net.py", b"root = '/home/jane/runs/7/best'\n", "path of this machine"),
        ("valid.json", b'[{"image": "data/chest/p001_a.png"}]', "names a case"),
        ("valid.json", b'[{"image": "data/x/a.npz#train_images[17]"}]', "names a case"),
    ],
)
def test_what_must_not_be_there(folder: Path, name: str, content: bytes, words: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    problems = check_deliverable(folder)
    assert len(problems) == 1
    assert words in problems[0]
    assert name in problems[0]


CSV = "patient_id;age;finding\n" + "".join(f"P{n};{50 + n};spot\n" for n in range(5))
DATES = "".join(f"Person {n},195{n}-0{n}-11,spot\n" for n in range(1, 6))
PATIENT_ROWS = [{"Patient_ID": f"p{n}", "label": 1} for n in range(3)]
OBJECTS = np.array([{"w": 1}], dtype=object)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _zip(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, b"x")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("vocab.txt", pickle.dumps({"w": 1}), "pickle"),
        ("vocab.json", pickle.dumps({"w": [1, "x"]}, protocol=0), "pickle"),
        ("vocab.txt", b"cposix\nsystem\n(S'id'\ntR.", "pickle"),
        ("notes.md", _zip("best/data.pkl"), "pickle"),
        ("notes.md", _zip("data.txt"), "archive"),
        ("weights.txt", _npy(OBJECTS), "NumPy array"),
        ("atlas.npy", _npy(np.zeros((4, 4))), "NumPy array"),
        ("notes.txt", b"\x7fELF\x02\x01\x01" + bytes(60), "program"),
        ("lib.py", b"\x7fELF\x02\x01\x01" + bytes(60), "program"),
        ("a.json", b"\x89PNG\r\n" + bytes(60), "PNG image"),
        ("scan.txt", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "WebP"),
        ("scan", b"\0" * 344 + b"n+1\0", "NIfTI"),
        ("scan.txt", b"ObjectType = Image\nNDims = 3\n", "MetaImage"),
        ("cases.txt", b"SQLite format 3\0", "database"),
        ("blob", bytes(range(256)) * 4, "neither text nor safetensors"),
        ("vocab.txt", CSV.encode(), "table with a row for each case (patient_id)"),
        ("notes.md", CSV.replace(";", " | ").encode(), "table with a row for each case"),
        ("names.csv", DATES.encode(), "a date in each row"),
        ("extra.json", json.dumps({"a": {"b": PATIENT_ROWS}}).encode(), "lists cases one by one (patient_id)"),
        ("extra.json", json.dumps({f"c{n}": {"image": n} for n in range(4)}).encode(), "lists cases"),
        ("extra.txt", "\n".join(map(json.dumps, PATIENT_ROWS)).encode(), "lists cases one by one"),
    ],
)
def test_what_a_file_is_goes_by_its_content(folder: Path, name: str, content: bytes, words: str) -> None:
    (folder / name).write_bytes(content)
    problems = check_deliverable(folder)
    assert len(problems) == 1, problems
    assert words in problems[0]
    assert problems[0].startswith(name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", b"case\ncaps\nclass\n(none)\n"),
        ("merges.txt", b"a b\nc d\ne f\n"),
        ("tokenizer.json", b'{"added_tokens": [{"id": 1, "content": "a"}, {"id": 2}, {"id": 3}, {"id": 4}]}'),
        ("labels.csv", b"label,number\nliver,1\nspleen,2\nkidney,3\npancreas,4\n"),
        ("spiece.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02"),
        ("PKnotes.txt", b"PK is the name of a kernel"),
        ("run.sh", b'#!/bin/sh\npython predict.py "$@"\n'),
        ("empty.txt", b""),
    ],
)
def test_what_models_need_may_be_there(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert check_deliverable(folder) == []


def test_bytes_behind_the_tensors(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"Jane Doe, 1950-01-01")
    assert "belong to no tensor" in check_deliverable(folder)[0]


@pytest.mark.parametrize("piece", ["a", "a.", "a/", "/home/a", ".png", "#[", "\n", " ", "a#[1", "|", '{"a":', "["])
def test_long_texts_take_a_short_time(folder: Path, piece: str) -> None:
    """80 KB of one piece made a pattern run for minutes; the time is bounded by the suite's own limit."""
    began = time.process_time()
    (folder / "notes.txt").write_text(piece * (200_000 // len(piece)))
    check_deliverable(folder)
    small = time.process_time() - began
    (folder / "notes.txt").write_text(piece * (1_600_000 // len(piece)))
    began = time.process_time()
    check_deliverable(folder)
    assert time.process_time() - began < 40 * max(small, 0.05), "grows with the square of the length"


def test_links(folder: Path) -> None:
    (folder / "inside").symlink_to("config.json")
    assert check_deliverable(folder) == []
    (folder / "outside").symlink_to("../secret")
    assert "link out of the folder" in check_deliverable(folder)[0]


def test_the_model_card_and_what_lies_beside_it(folder: Path) -> None:
    cases = [
        ClassificationCase(f"{i}", f"p{i}", ("ab"[i % 2],), {"a": 0.8 - 0.5 * (i % 2), "b": 0.2 + 0.5 * (i % 2)})
        for i in range(30)
    ]
    scores = score_diagnosis(cases, "ab", False)
    info = {
        "title": "Pneumonia on <b>chest</b> | X-ray",
        "request": "from /home/jane/data\n# not a heading",
        "classes": ["a", "b"],
        "split": {"train": {"a": 10, "b": 9}, "test": {"a": 5}},
        "scores": scores.to_dict(),
        "acceptable": [0.8, None],
        "limits": ["Adults only."],
    }
    card = write_model_card(folder, info).read_text()
    assert "\\<b\\>chest" in card
    assert "\n# not a heading" not in card
    assert "| auroc | 1.000 | 0.782 to 1.000 | 0.500 |" in card
    assert "| test | 5 | 0 |" in card
    assert "Acceptable from 0.8" in card
    assert "- Adults only." in card
    write_model_card(folder, {})
    metrics = json.loads(write_metrics(folder, scores).read_text())
    assert metrics["primary"]["value"] == 1
    provenance = json.loads(write_provenance(folder, {"seed": 3}).read_text())
    assert provenance["seed"] == 3
    assert provenance["files"]["predict.py"] == hashlib.sha256((folder / "predict.py").read_bytes()).hexdigest()
    assert "provenance.json" not in provenance["files"]
    assert check_deliverable(folder) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["", "(", "c", "]", "}", "V", "S'", "I1\n"]), st.binary(max_size=60))
def test_any_bytes_are_judged_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, begin: str, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("bytes") / "file.txt"
    file.write_bytes(begin.encode() + content)
    assert isinstance(find_content_problem(file, "file.txt"), str)
