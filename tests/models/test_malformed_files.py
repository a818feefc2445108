"""Malformed JSON in a model folder: the model is refused in one sentence, or can be shown and given images."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from m3b import cli
from m3b.errors import ModelError
from m3b.models import load_model
from m3b.models.input_cases import InputCases

CLASSES = ["a", "b"]
TEXT = st.text(st.characters(codec=None), max_size=3) | st.sampled_from(
    ["a", "name", "number", "category", "\ud800", "n" * 300]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, 2, 3]) | st.floats() | TEXT,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXT, values, max_size=3),
    max_leaves=6,
)
RULE = st.fixed_dictionaries({}, optional={"name": JSON, "kind": JSON, "values": JSON, "centre": JSON})
PLAN = st.fixed_dictionaries(
    {"dims": st.sampled_from([2, 3]) | JSON},
    optional={"covariates": st.lists(RULE | JSON, max_size=2) | JSON, "channel_names": JSON, "spacing": JSON,
              "views": JSON, "channels": JSON, "frames": JSON, "intensity": JSON},
)  # fmt: skip
CONFIG = st.fixed_dictionaries(
    {"classes": st.just(CLASSES) | JSON, "task": st.sampled_from(["diagnosis", "segmentation"]) | JSON},
    optional={"labels": st.dictionaries(TEXT, JSON, max_size=2) | JSON, "multi_label": JSON, "plan": PLAN | JSON},
)
PRIMARY = st.fixed_dictionaries({}, optional={"name": JSON, "value": JSON, "low": JSON, "high": JSON, "n": JSON})


def write_model(folder: Path, config: Any, metrics: Any, files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "predict.py").write_text("")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "provenance.json").unlink(missing_ok=True)
    if files:
        (folder / "provenance.json").write_text(json.dumps({"files": files}))
    return folder


@settings(deadline=None, max_examples=150)
@given(
    CONFIG | JSON,
    st.fixed_dictionaries({}, optional={"primary": PRIMARY | JSON}) | JSON,
    st.just({}) | st.dictionaries(TEXT, JSON, max_size=2),
)
@example({"classes": CLASSES, "task": "segmentation", "labels": {"a": "x"}}, {}, {})
@example({"classes": CLASSES, "plan": {"channel_names": [1, 2]}}, {}, {})
@example({"classes": CLASSES, "plan": {"covariates": ["age"]}}, {}, {})
@example({"classes": CLASSES, "task": ["diagnosis"]}, {}, {})
@example({"classes": ["\ud800"]}, {}, {})
@example({"classes": CLASSES}, {"primary": ["auroc"]}, {})
@example({"classes": CLASSES}, {"primary": {"value": 10**400}}, {})
@example({"classes": CLASSES}, {}, {"n" * 300: ""})
def test_a_model_is_refused_or_usable(
    tmp_path_factory: pytest.TempPathFactory, config: Any, metrics: Any, files: Any
) -> None:
    folder = write_model(tmp_path_factory.getbasetemp() / "malformed", config, metrics, files)
    try:
        model = load_model(folder)
    except ModelError as error:
        str(error).encode()
        return
    (repr(model) + model._repr_html_()).encode()
    for array in (np.zeros((8, 8), np.uint8), np.zeros((8, 8, 8), np.uint8)):
        values = {rule["name"]: None for rule in model.covariates}
        image: Any = dict.fromkeys(model.channels, array) or array
        with contextlib.suppress(ModelError):
            InputCases(model.config, [{"image": image, **values} if values else image]).close()


@pytest.mark.parametrize(
    ("config", "metrics", "files"),
    [
        ({"classes": CLASSES, "task": "segmentation", "labels": {"a": "x"}}, {}, {}),
        ({"classes": CLASSES, "task": "segmentation", "labels": ["a", "b"]}, {}, {}),
        ({"classes": CLASSES, "labels": {"a": 2**32}}, {}, {}),
        ({"classes": CLASSES, "plan": {"channel_names": [1]}}, {}, {}),
        ({"classes": CLASSES, "plan": {"covariates": [{"name": "age", "kind": "number"}]}}, {}, {}),
        ({"classes": CLASSES, "plan": {"dims": 3, "spacing": [1, 1]}}, {}, {}),
        ({"classes": CLASSES, "plan": {"intensity": {"mode": "window", "low": "x"}}}, {}, {}),
        ({"classes": CLASSES}, {"primary": "auroc"}, {}),
        ({"classes": CLASSES}, {}, {"n" * 300: "0"}),
    ],
)
def test_m3b_predict_refuses(
    config: Any,
    metrics: Any,
    files: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = write_model(tmp_path / "model", config, metrics, files)
    (tmp_path / "a.png").write_bytes(b"")
    monkeypatch.setattr("sys.argv", ["m3b", "predict", str(model), str(tmp_path / "a.png")])
    with pytest.raises(ModelError):
        load_model(model)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code
    assert "Traceback" not in capsys.readouterr().err
