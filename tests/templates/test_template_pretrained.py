"""Pretrained networks: tiny ones with random weights, saved as transformers and MONAI save theirs."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from template_kit import Run

from m3b.training.diagnosis import pretrained_classifier as pretrained
from m3b.training.diagnosis import pretrained_files as files

SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"},
    "convnext": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "vit": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    | {"image_size": 32, "patch_size": 8},
    "swin": {
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 2],
        "window_size": 4,
        "image_size": 32,
        "patch_size": 2,
    },
}


def _save(kind: str, place: Path, labels: int = 5) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForImageClassification

    torch.manual_seed(1)
    config = AutoConfig.for_model(kind, **SMALL[kind])
    config.num_labels = labels
    model = AutoModelForImageClassification.from_config(config)
    model.save_pretrained(place)
    return model


def _plan(place: Path | None, config: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    network = {"config": config, "dropout": 0.0} | ({"pretrained": str(place)} if place else {})
    return {"classes": ["a", "b", "c"], "dims": 2, "channels": 3, "network": network, **overrides}


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_the_body_is_loaded_and_the_head_is_new(tmp_path: Path, kind: str) -> None:
    import torch

    saved = _save(kind, tmp_path / "net")
    config = files.read_config(tmp_path / "net")
    assert "id2label" not in config
    torch.manual_seed(2)
    model = pretrained.build_pretrained(_plan(tmp_path / "net", config)).eval()
    loaded_state, saved_state = model.inner.state_dict(), saved.state_dict()
    body = [name for name, _ in saved.named_parameters() if not pretrained.is_head(name)]
    assert len(body) > 4
    assert all(torch.equal(loaded_state[name], saved_state[name]) for name in body)
    size = files.fit_size(config, [28, 28])
    assert size == ([32, 32] if kind in ("vit", "swin") else [64, 64])
    answer = model(torch.randn(2, 3, *size))
    assert answer.shape == (2, 3)
    shutil.rmtree(tmp_path / "net")  # the form alone must do for a deliverable
    again = pretrained.build_pretrained(_plan(None, config), load=False).eval()
    again.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, *size)
    assert torch.equal(again(images), model(images))


@pytest.mark.parametrize("naming", ["monai", "torchvision"])
def test_densenet_weights_from_one_file(tmp_path: Path, naming: str) -> None:
    import torch
    from monai.networks.nets import DenseNet121
    from safetensors.torch import save_file

    saved = DenseNet121(spatial_dims=2, in_channels=3, out_channels=7).state_dict()
    rename = {k: k.replace(".layers.norm", ".norm").replace(".layers.conv", ".conv") for k in saved}
    weights = {rename[k] if naming == "torchvision" else k: v.contiguous() for k, v in saved.items()}
    save_file(weights, str(tmp_path / "dense.safetensors"))
    config = files.read_config(tmp_path / "dense.safetensors")
    assert config == {"model_type": "monai-densenet121", "num_channels": 3, "dims": 2}
    state = pretrained.build_pretrained(_plan(tmp_path / "dense.safetensors", config)).state_dict()
    assert all(torch.equal(state[key], saved[key]) for key in state if not pretrained.is_head(key))
    with pytest.raises(files.PretrainedError, match="2D"):
        pretrained.build_pretrained({**_plan(tmp_path / "dense.safetensors", config), "dims": 3})


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"\x80\x02")
    (tmp_path / "pickle" / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(files.PretrainedError, match="pickle"):
        files.read_config(tmp_path / "pickle")
    _save("resnet", tmp_path / "half")
    save_file({"resnet.x": torch.zeros(2)}, str(tmp_path / "half" / "model.safetensors"))
    with pytest.raises(files.PretrainedError, match="missing"):
        pretrained.build_pretrained(_plan(tmp_path / "half", files.read_config(tmp_path / "half")))
    (tmp_path / "half" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(files.PretrainedError, match="bert"):
        files.read_config(tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").write_bytes(b"no tensors")
    (tmp_path / "half" / "config.json").unlink()
    with pytest.raises(files.PretrainedError, match="safetensors"):
        files.read_config(tmp_path / "half")


def test_a_network_of_the_local_cache_is_found_tuned_and_delivered(project: Path, run: Run, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    snapshot = hub / "models--someone--tiny" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (hub / "models--someone--tiny" / "refs").mkdir()
    (hub / "models--someone--tiny" / "refs" / "main").write_text(snapshot.name)
    _save("resnet", snapshot)
    (snapshot / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}')
    code = (
        f"import os, sys; os.environ['HF_HUB_CACHE'] = {str(hub)!r}\n"
        "from m3b.training.diagnosis import plan, train, export\n"
        "sys.path.insert(0, 'example'); import make_example; from pathlib import Path\n"
        "make_example.make_example(Path(), 40)\n"
        "plan.main(['--minutes', '1', '--set', 'device=cpu', 'max_steps=4', 'batch=8'])\n"
        "import torch; real = torch.optim.AdamW.__init__\n"
        "def spy(self, groups, *rest, **more):\n"
        "    print('RATES', [(group['lr'], len(group['params'])) for group in groups])\n"
        "    real(self, groups, *rest, **more)\n"
        "torch.optim.AdamW.__init__ = spy\n"
        "assert train.main([]) == 0\nexport.main([])"
    )
    printed = run("-c", code).stdout
    assert "weights start from models--someone--tiny" in printed
    rates = ast.literal_eval(printed.split("RATES ")[1].splitlines()[0])
    assert [rate for rate, _ in rates] == [1e-4, 1e-4, 1e-3, 1e-3]  # the body's weights and biases, then the head's
    assert [count for _, count in rates][2:] == [1, 1]
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["channels"], plan["size"]) == (3, [64, 64])
    assert plan["intensity"]["mean"] == [0.5, 0.4, 0.3]
    shutil.rmtree(hub)
    config = (project / "Deliver" / "config.json").read_text()
    assert str(tmp_path) not in config
    assert "transformers" in (project / "Deliver" / "requirements.txt").read_text()
    answer = json.loads(run("Deliver/predict.py", "data/example/case_000.png", "--saliency", "maps").stdout)[0]
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert answer["saliency"]["method"] in ("hirescam", "occlusion")
    code = f"""import json; from m3b.training.diagnosis import plan
facts = {{"cases": 40, "dims": 2}}
print(plan.add_pretrained({{}}, facts, ["network.pretrained=none"]))
made = {{"task": "diagnosis", "dims": 2, "batch": 8, "network": {{"dropout": 0}}}}
plan.add_pretrained(made, facts, ["network.pretrained={hub}"])"""
    failed = run("-c", code, check=False)
    assert "weights start at random, as requested" in failed.stdout
    assert failed.returncode != 0
    assert "there is no such folder, and no network of that name is known" in failed.stderr
