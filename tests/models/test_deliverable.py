"""What may be delivered, and the papers that go with it."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from m3b.metrics import Case, score_diagnosis
from m3b.models import check_deliverable, write_metrics, write_model_card, write_provenance


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    target.mkdir()
    (target / "predict.py").write_text("from pathlib import Path\nHERE = Path(__file__).parent\n")
    (target / "config.json").write_text('{"classes": ["a", "b"], "inputs": [".png", ".nii.gz"]}')
    (target / "README.md").write_text("# card")
    (target / "requirements.txt").write_text("torch>=2.6\n")
    save_file({"w": np.zeros(3, np.float32)}, target / "model.safetensors")
    return target


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


def test_links(folder: Path) -> None:
    (folder / "inside").symlink_to("config.json")
    assert check_deliverable(folder) == []
    (folder / "outside").symlink_to("../secret")
    assert "link out of the folder" in check_deliverable(folder)[0]


def test_papers(folder: Path) -> None:
    cases = [
        Case(f"{i}", f"p{i}", ("ab"[i % 2],), {"a": 0.8 - 0.5 * (i % 2), "b": 0.2 + 0.5 * (i % 2)}) for i in range(30)
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
