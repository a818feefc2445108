"""Exports compute what the model computes, are checked by other tools, and leave nothing behind where they do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_kit import make_deliverable, make_images
from PIL import Image
from typer.testing import CliRunner

import m3b
from m3b.cli.app import app
from m3b.errors import DataError, ModelError, UsageError
from m3b.isolation.reader.inprocess import open_reader
from m3b.models import load_model
from m3b.models.export.monai_bundle import COMPARE, OutputsToCompare, largest_difference

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    make_deliverable(folder / "model")
    make_images(folder / "images")
    return folder


@pytest.fixture(scope="module")
def graph(place: Path) -> Path:
    result = CliRunner().invoke(app, ["export", str(place / "model"), "--to", "onnx", "-o", str(place / "o"), "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["largest_difference"] <= summary["tolerance"] == 1e-4
    assert summary["files"] == ["README.md", "model.json", "model.onnx"]
    return place / "o"


@pytest.fixture(scope="module")
def bundle(place: Path) -> Path:
    images = [str(place / "images" / f"i{n}.png") for n in range(2)]
    result = m3b.export_model(place / "model", "monai-bundle", place / "b", verify=images)
    assert result.compared == "the predictions of 2 image(s)"
    assert result.largest_difference <= 1e-4
    return place / "b"


def test_a_graph_predicts_what_the_model_predicts(place: Path, graph: Path) -> None:
    """ONNX Runtime on images in one batch, prepared as model.json says, against predict.py one by one."""
    import onnxruntime
    from PIL import Image

    about = json.loads((graph / "model.json").read_text())
    assert about["classes"] == ["dark", "light"]
    assert about["verified"]["tolerance"] == 1e-4
    paths = sorted((place / "images").iterdir())
    batch = np.stack(
        [np.asarray(Image.open(path), np.float32)[None] / about["preprocessing"]["divide"] for path in paths]
    )
    session = onnxruntime.InferenceSession(str(graph / "model.onnx"), providers=["CPUExecutionProvider"])
    (rows,) = session.run(None, {"image": batch})
    answers = load_model(place / "model").predict(paths)
    assert len(rows) == 3
    for row, answer in zip(rows, answers, strict=True):
        assert dict(zip(about["classes"], row, strict=True)) == pytest.approx(dict(answer.probabilities), abs=1e-4)


def test_monai_loads_and_runs_the_bundle(place: Path, bundle: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """With MONAI's own functions in this process: its run, its workflow's properties, its metadata check."""
    import monai.bundle
    from monai.bundle import ConfigWorkflow

    config = str(bundle / "configs" / "inference.json")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # in the bundle of the other tests
    for name in [name for name in sys.modules if name.split(".")[0] in ("scripts", "parts", "predict", "net")]:
        monkeypatch.delitem(sys.modules, name)
    paths = [str(place / "images" / f"i{n}.png") for n in range(3)]
    out = tmp_path / "predictions.json"
    monai.bundle.run(config_file=config, bundle_root=str(bundle), images=paths, output=str(out))
    predictions, answers = json.loads(out.read_text()), load_model(place / "model").predict(paths)
    for item, answer in zip(predictions, answers, strict=True):
        assert item["image"] == answer.image
        assert item["probabilities"] == pytest.approx(dict(answer.probabilities), abs=1e-4)
    workflow = ConfigWorkflow(config, workflow_type="infer", bundle_root=str(bundle), images=paths, output=str(out))
    workflow.initialize()
    assert workflow.check_properties() == []
    monai.bundle.ckpt_export(
        "network_def",
        filepath=str(tmp_path / "model.ts"),
        ckpt_file=str(bundle / "models" / "model.pt"),
        meta_file=str(bundle / "configs" / "metadata.json"),
        config_file=config,
        bundle_root=str(bundle),
        use_trace=True,
    )
    import torch

    traced = torch.jit.load(str(tmp_path / "model.ts"))
    probe = torch.rand(1, 1, 8, 8)
    assert torch.allclose(traced(probe), workflow.parser.get_parsed_content("network").cpu()(probe), atol=1e-6)
    for name in ("scripts", "scripts.bridge", "parts", "predict", "net"):
        sys.modules.pop(name, None)


MANDATORY = (
    "version", "monai_version", "pytorch_version", "numpy_version", "required_packages_version", "task", "description",
    "authors", "copyright", "network_data_format",
)  # fmt: skip
TENSOR = ("type", "format", "num_channels", "spatial_shape", "dtype", "value_range", "is_patch_data", "channel_def")


def test_the_metadata_has_what_the_specification_asks_for(bundle: Path, tmp_path: Path) -> None:
    """MONAI's check, offline: with a schema of the specification's mandatory keys in place of the one it downloads."""
    from monai.bundle import verify_metadata

    pytest.importorskip("jsonschema")
    tensors = {
        "type": "object",
        "additionalProperties": {"type": "object", "required": list(TENSOR)},
        "minProperties": 1,
    }
    ends = {"type": "object", "properties": {"inputs": tensors, "outputs": tensors}, "required": ["inputs", "outputs"]}
    schema = {"type": "object", "required": list(MANDATORY), "properties": {"network_data_format": ends}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    meta = bundle / "configs" / "metadata.json"
    verify_metadata(meta_file=str(meta), filepath=str(tmp_path / "schema.json"))
    broken = json.loads(meta.read_text())
    del broken["network_data_format"]["inputs"]["image"]["dtype"]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match="dtype"):
        verify_metadata(meta_file=str(tmp_path / "broken.json"), filepath=str(tmp_path / "schema.json"))


def test_a_bundle_holds_tensors_and_no_foreign_code(bundle: Path) -> None:
    import torch

    state = torch.load(bundle / "models" / "model.pt", weights_only=True)
    assert set(state) == {"conv.weight", "conv.bias", "head.weight", "head.bias"}
    names = {file.name for file in bundle.rglob("*") if file.is_file()}
    assert not names & {"metrics.json", "provenance.json", "model.safetensors"}
    assert not list(bundle.rglob("__pycache__"))
    for file in bundle.rglob("*.py"):
        assert "m3b" not in file.read_text(), file


def test_an_export_that_differs_is_refused(place: Path, tmp_path: Path) -> None:
    """A branch on the data, which tracing freezes: the graph is wrong for the second batch."""
    model = make_deliverable(tmp_path / "model")
    text = (model / "net.py").read_text()
    (model / "net.py").write_text(
        text.replace("return self.head(maps)", "return self.head(maps * image.shape[0] ** 2)")
    )
    branch = (model / "net.py").read_text().replace("image.shape[0] ** 2", "(1 if float(image.sum()) < 50 else -3)")
    (model / "net.py").write_text(branch)
    with pytest.raises(ModelError, match="differs from the model"):
        m3b.export_model(model, "onnx", tmp_path / "out")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model"]


def test_what_cannot_be_exported(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'coreml'"):
        m3b.export_model(place / "model", "coreml", tmp_path / "x")
    with pytest.raises(UsageError, match="exists already"):
        m3b.export_model(place / "model", "onnx", place)
    with pytest.raises(ModelError, match=r"no predict\.py"):
        m3b.export_model(tmp_path, "onnx", tmp_path / "x")
    (tmp_path / "predict.py").write_text("")
    with pytest.raises(ModelError, match=r"no parts\.py"):
        m3b.export_model(tmp_path, "onnx", tmp_path / "x")
    (tmp_path / "parts.py").write_text("raise SystemExit('this network has no graph')")
    with pytest.raises(ModelError, match="this network has no graph"):
        m3b.export_model(tmp_path, "onnx", tmp_path / "x")
    result = CliRunner().invoke(
        app, ["export", str(place / "model"), "--to", "onnx", "-o", str(tmp_path / "y"), "--verify", "gone.png"]
    )
    assert isinstance(result.exception, UsageError)


def test_differences_are_found_wherever_they_are(tmp_path: Path) -> None:
    for name, value in (("a", 0), ("b", 0), ("c", 3)):
        (tmp_path / name / "masks").mkdir(parents=True)
        mask = np.zeros((10, 10), np.uint8)
        mask[0, :value] = 1
        np.save(tmp_path / name / "masks" / "m.npy", mask)

    def difference(first: Any, second: Any, second_folder: str = "b") -> float:
        return largest_difference(first, second, tmp_path / "a" / "p.json", tmp_path / second_folder / "p.json")

    predictions = [
        {"image": "x", "mask": "masks/m.npy", "volumes_ml": {"k": 1.0, "l": None}, "boxes": [{"box": [1, 2]}]}
    ]
    assert difference(predictions, predictions) == 0
    assert difference(predictions, predictions, "c") == pytest.approx(0.03)
    assert difference({"masks": {"k": "masks/m.npy"}}, {"masks": {"k": "masks/m.npy"}}, "c") == pytest.approx(0.03)
    assert difference(predictions, [predictions[0] | {"volumes_ml": {"k": 1.25, "l": None}}]) == 0.25
    assert difference([0.5, True], [0.25, True]) == 0.25
    for incomparable in (
        [predictions[0] | {"image": "y"}],
        [],
        [predictions[0] | {"volumes_ml": {"k": 1.0}}],
        [predictions[0] | {"boxes": []}],
    ):
        with pytest.raises(ModelError, match="predictions differ"):
            difference(predictions, incomparable)


@pytest.mark.confined
def test_outputs_are_compared_where_only_their_own_folders_are_seen(tmp_path: Path) -> None:
    """A model's code writes the paths of masks: one that leads elsewhere opens nothing."""
    outputs = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "mask.png")
        (folder / "predictions.json").write_text(json.dumps([{"image": "a.png", "mask": "mask.png"}]))
        outputs.append(folder / "predictions.json")
    with open_reader(outputs) as reader:
        assert reader.run_job(COMPARE, OutputsToCompare(*outputs)) == 0.0
        secret = tmp_path / "secret.png"
        Image.fromarray(np.ones((4, 4), np.uint8)).save(secret)
        for output in outputs:
            output.write_text(json.dumps([{"image": "a.png", "mask": str(secret)}]))
        with pytest.raises((DataError, ModelError)):
            reader.run_job(COMPARE, OutputsToCompare(*outputs))
