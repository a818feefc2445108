"""Position embeddings at another image size than that of the pretraining."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from starts_kit import vit

from m3b.training.pretrained.backbones_2d import ViT, resize_positions


@pytest.mark.parametrize("grid", [(3, 3), (2, 5), (9, 4)])
def test_positions_are_those_of_bicubic_interpolation(grid: tuple[int, int]) -> None:
    embeddings = torch.randn(1, 8, 4, 4)
    expected = torch.nn.functional.interpolate(embeddings, size=grid, mode="bicubic", antialias=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(resize_positions(embeddings, grid), expected, atol=1e-5)


def test_a_vit_at_another_size_is_exported_to_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    network, image, file = ViT(2, 3, vit()[1]).eval(), torch.randn(2, 3, 48, 80), str(tmp_path / "graph.onnx")
    with torch.no_grad():
        expected = network(image)[-1].numpy()
        torch.onnx.export(network, (image,), file, dynamo=False, opset_version=20)
    session = runtime.InferenceSession(file)
    [values] = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    assert np.abs(values - expected).max() < 1e-4
