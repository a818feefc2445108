"""Every template on cases of two images by name, of two kinds: planned, trained for a moment, asked by name and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

import m3b
from m3b.dataset.reading import geometry, read_image
from m3b.errors import ModelError
from m3b.resources import copy_template
from warm.commands import run_python

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
EXAMPLES = {
    "diagnosis": ("--cases", "40"),
    "segmentation": ("--cases", "12", "--size", "16"),
    "detection": ("--cases", "16", "--size", "32"),
    "report": ("--cases", "40"),
}  # fmt: skip


def call(work: Path, *command: str) -> str:
    return run_python(*command, cwd=work, check=True).stdout


def second(path: Path) -> Path:
    """Another image of the same case: of other units, and of a volume every other voxel alone."""
    image = read_image(str(path)).array[0].astype(np.float32)
    if image.ndim == 2:
        file = path.with_name(f"{path.name}.second.npy")
        np.save(file, -1000 + 10 * image)
        return file
    stored = nib.load(path)
    affine = stored.affine @ np.diag([2.0, 2.0, 2.0, 1.0])
    file = path.with_name(f"second_{path.name}")
    nib.save(nib.Nifti1Image(-1000 + 10 * np.asarray(stored.dataobj, np.float32)[::2, ::2, ::2], affine), file)
    return file


def with_channels(work: Path) -> dict[str, str]:
    """Both index files with two named images a case; the first test case's, as absolute paths."""
    for part in ("train", "test"):
        file = work / "Datapath" / f"{part}.json"
        records: list[dict[str, Any]] = json.loads(file.read_text())
        for record in records:
            path = record["image_path"]
            record["image_path"] = {"first": path, "second": str(second(work / path).relative_to(work))}
        file.write_text(json.dumps(records))
    return {name: str(work / path) for name, path in records[0]["image_path"].items()}


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_a_model_of_named_channels(task: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    work = tmp_path / "work"
    copy_template(task, work)
    call(work, "example/make_example.py", *EXAMPLES[task])
    case = with_channels(work)
    call(work, "plan.py", "--minutes", "0.1", "--set", "device=cpu", "max_epochs=1")
    plan = json.loads((work / "plan.json").read_text())
    assert (plan["channels"], plan["channel_names"]) == (2, ["first", "second"])
    intensity = plan["intensity"]
    if intensity["mode"] != "foreground":  # which standardizes each channel by itself
        assert intensity["channels"]["first"] != intensity["channels"]["second"], "Hounsfield units are no brightness"
    call(work, "train.py")
    call(work, "export.py")

    model = m3b.load_model(work / "Deliver")
    assert model.channels == ("first", "second")
    out = tmp_path / "out"
    [answer] = model.predict(case, out=out)
    swapped = {"second": case["second"], "first": case["first"]}
    [again] = model.predict([swapped], out=tmp_path / "again")
    assert dict(again.image) == swapped
    assert (again.probabilities, again.boxes, again.findings) == (answer.probabilities, answer.boxes, answer.findings)
    if answer.mask:
        assert geometry(str(answer.mask)).shape == geometry(case["first"]).shape
        assert np.array_equal(read_image(str(answer.mask)).array, read_image(str(again.mask)).array)
    [partial] = model.predict({"first": case["first"]}, out=tmp_path / "partial")
    assert not partial.error
    assert "missing_channel" in json.dumps(partial.notes)
    with pytest.raises(ModelError, match="third"):
        model.predict({**case, "third": case["first"]}, out=out)
    [refused] = model.predict([{**case, "third": case["first"]}], strict=False, out=out)
    assert "third" in refused.error
    help_text = call(work, "Deliver/predict.py", "--help")
    assert "first=PATH second=PATH" in help_text
    assert "first=PATH second=PATH" in (work / "Deliver/README.md").read_text()

    for to, verify in (("onnx", ()), ("monai-bundle", (case,))):
        assert m3b.export_model(work / "Deliver", to, tmp_path / to, verify=verify).largest_difference <= 1e-4
    about = json.loads((tmp_path / "onnx/model.json").read_text())
    assert about["image"]["channel_names"] == ["first", "second"]
    meta = json.loads((tmp_path / "monai-bundle/configs/metadata.json").read_text())
    if task != "report":  # whose network takes views, each with these channels
        assert meta["network_data_format"]["inputs"]["image"]["channel_def"] == {"0": "first", "1": "second"}
    assert meta["preprocessing"]["channel_names"] == ["first", "second"]
