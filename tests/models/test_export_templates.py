"""Every template's deliverable, really trained for a moment, in both formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import m3b
from m3b.models import check_deliverable
from m3b.resources import copy_template
from warm.commands import run_python

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
EXAMPLES = {
    "diagnosis": ("--cases", "40"),
    "segmentation": ("--cases", "12", "--size", "16"),
    "detection": ("--cases", "16", "--size", "32"),
    "report": ("--cases", "40",),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_a_trained_model_exports(task: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    work = tmp_path / "work"
    copy_template(task, work)
    fast = ("plan.py", "--minutes", "0.1", "--set", "device=cpu", "max_epochs=1")
    for command in (("example/make_example.py", *EXAMPLES[task]), fast, ("train.py",), ("export.py",)):
        run_python(*command, cwd=work, check=True)
    assert check_deliverable(work / "Deliver") == []
    record = json.loads((work / "Datapath" / "test.json").read_text())[0]["image_path"]
    image = str(work / record) if isinstance(record, str) else [str(work / view) for view in record]
    for to, verify in (("onnx", ()), ("monai-bundle", (image,))):
        result = m3b.export_model(work / "Deliver", to, tmp_path / to, verify=verify)
        assert result.largest_difference <= 1e-4
    assert (tmp_path / "monai-bundle" / "models" / "model.pt").is_file()
    about = json.loads((tmp_path / "onnx" / "model.json").read_text())
    assert about["task"] == task
    names = {graph["name"] for graph in about["graphs"]}
    assert names == ({"encoder", "decoder_step"} if task == "report" else {"model"})
