"""A whole run by rules on a folder in which most images have no label: from `m3b look` to the delivered model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b import Pipeline
from m3b.data.index import UNLABELLED, read_index
from m3b.data.synthetic import radiograph
from m3b.run.training_overrides import TrainingOverrides
from warm.commands import run_m3b

REQUEST = "Tell pneumonia from normal on chest radiographs"
LABELLED, UNLABELLED_COUNT = 80, 100


def write_folder(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(3)
    rows = ["image,patient,diagnosis"]
    for number in range(LABELLED + UNLABELLED_COUNT):
        picture = radiograph(random, number % 2 == 1)
        Image.fromarray(picture).save(folder / f"images/img{number:04d}.png")
        label = ("normal", "pneumonia")[number % 2] if number < LABELLED else ""
        patient = number if number < LABELLED else number - 10  # ten labelled patients have an unlabelled image too
        rows.append(f"img{number:04d}.png,p{patient:04d},{label}")
        if number == LABELLED + 50:  # a copy of a labelled image under another patient
            Image.open(folder / "images/img0000.png").save(folder / f"images/img{number:04d}.png")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.slow
def test_unlabelled_images_from_the_request_to_the_model(tmp_path: Path) -> None:
    data, run, file = write_folder(tmp_path / "data"), tmp_path / "run", tmp_path / "manifest.json"
    finished = run_m3b("look", data, REQUEST, "-o", file)
    assert f"{UNLABELLED_COUNT} unlabelled images: may be used by self-training" in finished.stdout
    manifest = json.loads(file.read_text())
    assert manifest["labels"]["unlabelled"] == "keep"
    training = TrainingOverrides(steps=30, folds=2, settings={"self_training": True, "size": [64, 64]})
    result = Pipeline("rules", data=[data], out=run, manifest=file, training=training).run(REQUEST)
    assert result.status in ("completed", "below_range"), result.reason
    assert result.integrity == "clean"
    index = read_index(run / "locked", "diagnosis")
    tested = {record.patient for record in index.test}
    assert tested.isdisjoint(record.patient for record in index.unlabelled)
    assert len(index.unlabelled) < UNLABELLED_COUNT
    assert not any("img0130" in record.key for record in index.unlabelled), "a copy of a labelled image"
    assert len(json.loads((run / "work" / UNLABELLED).read_text())) == len(index.unlabelled)
    audit = json.loads((run / "data_audit.json").read_text())
    assert "unlabelled_left_out" in {finding["code"] for finding in audit["findings"]}
    choice = json.loads((run / "model/config.json").read_text())["plan"]["self_training"]
    assert 0 < choice["images"] <= len(index.unlabelled)
    sentence = f"{len(index.unlabelled)} images without a label are kept for self-training alone"
    assert sentence in (run / "model/README.md").read_text()
    for page in ("report.html", "model/README.md"):
        assert "self-training on pseudo-labels" in (run / page).read_text(), page
    assert run_m3b("verify", run).returncode == 0
