"""A whole run with networks of timm and torchvision, in the environment of its own that `make test-slow` makes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from m3b import Pipeline, TrainingOverrides, load_model


@pytest.mark.slow
@pytest.mark.parametrize("network", ["timm:resnet10t", "torchvision:mobilenet_v3_small"])
def test_a_run_delivers_a_network_of_a_library_by_its_name(network: str, tmp_path: Path, spots: Path) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed here")
    training = TrainingOverrides(network=network, steps=4)
    pipeline = Pipeline("rules", data=[spots], out=tmp_path / "run", training=training, train_minutes=0.2)
    result = pipeline.run("Tell bright spots from plain tissue on these drawn scans")
    assert result.status in ("completed", "below_range"), result.reason
    images = sorted(path for path in spots.rglob("*.png"))[:2]
    with load_model(tmp_path / "run") as model:
        assert [len(prediction.probabilities) for prediction in model.predict(images)] == [2, 2]
