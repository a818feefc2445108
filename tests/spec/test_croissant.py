"""Croissant files: written so that mlcroissant accepts them, read back to the same index, and never fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spec_kit import picture, read

from m3b.data.spec.croissant import given_by, load, written
from m3b.data.spec.given import Given
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.proposals import Ask
from m3b.data.spec.proposals.croissant import propose_croissant
from m3b.data.survey import survey
from m3b.errors import DataError
from warm.commands import run_m3b

mlcroissant: Any = pytest.importorskip("mlcroissant")
TABLE = {"file": "labels.csv", "row": "{file}", "image": "{name}"}
SPEC = {"task": "diagnosis", "images": {"files": {"pattern": "img/{case}.png"}},
        "labels": {"sources": [{**TABLE, "column": "dx"}], "classes": {"normal": [], "pneumonia": []}},
        "patient": {**TABLE, "column": "who"}}  # fmt: skip


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    rows = ["file,dx,other,who"]
    for number in range(40):
        picture(tmp_path / "xrays/img" / f"s{number:02d}.png")
        rows.append(f"s{number:02d}.png,{('normal', 'pneumonia')[number % 2]},{'ab'[number // 2 % 2]},P{number // 2}x")
    (tmp_path / "xrays/labels.csv").write_text("\n".join(rows))
    return tmp_path / "xrays"


def test_a_reading_goes_to_croissant_and_back(xrays: Path, tmp_path: Path) -> None:
    made = written(IndexSpec.model_validate(SPEC), xrays, "xrays")
    file = tmp_path / "croissant.json"
    file.write_text(json.dumps(made))
    assert mlcroissant.Dataset(str(file)).metadata.name == "xrays"
    given = given_by(load(file))
    assert given.index is not None
    back = given.index.model_dump(mode="json", exclude_defaults=True)
    assert read(xrays, tmp_path / "one", **back).train == read(xrays, tmp_path / "two", **SPEC).train


def test_a_croissant_file_of_others_is_a_reading(xrays: Path, tmp_path: Path) -> None:
    made = written(IndexSpec.model_validate(SPEC), xrays, "xrays")
    del made["m3b:indexSpec"]
    (xrays / "croissant.json").write_text(json.dumps(made))
    assert given_by(load(xrays / "croissant.json")) == Given(
        labels="labels.csv", image_column="file", label_column="dx", patient_column="who"
    )
    (found,) = propose_croissant(survey(xrays), Ask("diagnosis", "Tell pneumonia from normal"), xrays)
    assert found.evidence[0] == "as the Croissant file croissant.json says"
    back = found.spec.model_dump(mode="json", exclude_defaults=True)
    labels = {one.image: (one.labels, one.patient) for one in read(xrays, tmp_path / "one", **back).train}
    assert labels == {one.image: (one.labels, one.patient) for one in read(xrays, tmp_path / "two", **SPEC).train}


@pytest.mark.parametrize(
    "context", ["https://example.org/context.json", {"@import": "https://example.org/c"}, ["https://x.org"]]
)
def test_a_context_that_lies_elsewhere_is_refused(
    xrays: Path, tmp_path: Path, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    file = tmp_path / "croissant.json"
    file.write_text(json.dumps({**written(IndexSpec.model_validate(SPEC), xrays, "xrays"), "@context": context}))
    with pytest.raises(DataError, match="m3b fetches nothing"):
        load(file)


def test_a_reading_is_written_on_the_command_line(xrays: Path, tmp_path: Path) -> None:
    spec, out = tmp_path / "manifest.json", tmp_path / "croissant.json"
    spec.write_text(json.dumps(SPEC))
    command = ("data", "croissant", spec, "--data", xrays, "-o", out)
    done = run_m3b(*command)
    assert done.returncode == 0, done.stderr
    assert given_by(load(out)).index == IndexSpec.model_validate(SPEC)
    again = run_m3b(*command)
    assert again.returncode == 2
    wrong = run_m3b(*command, "--force", "--data", tmp_path / "none")
    assert wrong.returncode == 2
