"""A delivered folder that names a patient of the index is refused, wherever the name stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from m3b.models.deliverable_check import find_patient_identifiers

PATIENTS = ["PAT-00417", "4711983", "12", "left", "Doe^Jane", "pneumonia"]


def weights(file: Path, name: str = "w", notes: dict[str, str] | None = None) -> None:
    save_file({name: np.zeros(2, np.float32)}, file, notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"classes": ["a"], "best": "pat-00417"}'),
        ("notes.txt", "seen: /data/PAT-00417/scan"),
        ("predict.py", "SKIP = {'4711983'}"),
        ("notes.md", "As with Doe^Jane, it is bright."),
        ("fold_4711983.txt", "nothing"),
        ("Utils/PAT-00417/net.py", "x = 1"),
    ],
)
def test_identifiers_are_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    matches = find_patient_identifiers(tmp_path, PATIENTS)
    assert matches
    assert not any(patient.lower() in "".join(matches).lower() for patient in PATIENTS[:2]) or name in matches[0]


def test_identifiers_in_weights(tmp_path: Path) -> None:
    weights(tmp_path / "a.safetensors", notes={"cases": "PAT-00417,PAT-2"})
    weights(tmp_path / "b.safetensors", name="hash.4711983")
    weights(tmp_path / "c.safetensors", name="layer.12.left")
    matches = find_patient_identifiers(tmp_path, PATIENTS)
    assert [text.split()[0] for text in matches] == ["a.safetensors", "b.safetensors"]


def test_what_any_model_holds_is_no_identifier(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"size": [12, 12], "classes": ["left", "pneumonia"], "seed": 47119830}')
    (tmp_path / "predict.py").write_text("PAT = 417  # PAT-004170 is longer")
    assert find_patient_identifiers(tmp_path, PATIENTS) == []
    assert find_patient_identifiers(tmp_path, []) == []
