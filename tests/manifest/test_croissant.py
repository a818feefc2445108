"""Croissant files: written so that mlcroissant accepts them, read back to the same index, and never fetched."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from m3b.dataset.croissant import MANIFEST_KEY, decide_by_croissant, export_croissant, load_croissant, parse_croissant
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.overrides import Overrides
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk
from m3b.errors import DataError

mlcroissant: Any = pytest.importorskip("mlcroissant")
MANIFEST = {
    "task": "diagnosis",
    "images": {"files": "img/{case}.png"},
    "tables": {"labels": {"files": "labels.csv", "key": "{file}", "image": "{name}"}},
    "labels": {"value": "{labels.dx}", "classes": {"normal": [], "pneumonia": []}},
    "patient": "{labels.who}",
}


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    (tmp_path / "xrays/img").mkdir(parents=True)
    rows = ["file,dx,other,who"]
    for number in range(40):
        Image.linear_gradient("L").rotate(number).resize((32, 32)).save(tmp_path / f"xrays/img/s{number:02d}.png")
        rows.append(f"s{number:02d}.png,{('normal', 'pneumonia')[number % 2]},{'ab'[number // 2 % 2]},P{number // 2}x")
    (tmp_path / "xrays/labels.csv").write_text("\n".join(rows))
    return tmp_path / "xrays"


def export(folder: Path) -> dict[str, Any]:
    return export_croissant(Manifest.model_validate(MANIFEST), walk(folder), "xrays")


def decide(folder: Path) -> Outcome | None:
    inventory = walk(folder)
    request = parse("Tell pneumonia from normal")
    return decide_by_croissant(
        survey_inventory(inventory, SurveyLimits()), inventory, request, readers=FolderReaders(inventory)
    )


def test_a_manifest_goes_to_croissant_and_back(xrays: Path) -> None:
    (xrays / "croissant.json").write_text(json.dumps(export(xrays)))
    assert mlcroissant.Dataset(str(xrays / "croissant.json")).metadata.name == "xrays"
    assert parse_croissant(load_croissant(xrays / "croissant.json")).manifest == Manifest.model_validate(MANIFEST)
    outcome = decide(xrays)
    assert outcome is not None
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest == Manifest.model_validate(MANIFEST)


def test_a_croissant_file_of_others_is_a_proposal(xrays: Path) -> None:
    document = export(xrays)
    del document[MANIFEST_KEY]
    (xrays / "croissant.json").write_text(json.dumps(document))
    expected = Overrides(labels="labels.csv", image_column="file", label_column="dx", patient_column="who")
    assert parse_croissant(load_croissant(xrays / "croissant.json")) == expected
    outcome = decide(xrays)
    assert outcome is not None
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.evidence[0].code == "croissant"
    assert best.manifest.labels is not None
    assert best.manifest.labels.value is not None
    assert best.manifest.labels.value.value == "{labels.dx}"
    assert best.manifest.patient is not None
    assert best.manifest.patient.value == "{labels.who}"


@pytest.mark.parametrize(
    "context", ["https://example.org/context.json", {"@import": "https://example.org/c"}, ["https://x.org"]]
)
def test_a_context_elsewhere_is_refused(
    xrays: Path, tmp_path: Path, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    file = tmp_path / "croissant.json"
    file.write_text(json.dumps({**export(xrays), "@context": context}))
    with pytest.raises(DataError, match="m3b fetches nothing"):
        load_croissant(file)


def test_a_manifest_that_does_not_fit_is_no_proposal(xrays: Path) -> None:
    document = export(xrays)
    document[MANIFEST_KEY] = json.dumps({**MANIFEST, "images": {"files": "films/{case}.png"}})
    (xrays / "croissant.json").write_text(json.dumps(document))
    assert decide(xrays) is None
