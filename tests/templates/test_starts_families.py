"""Each family of the registry: a tiny network with random weights in its own file layout is fetched from a folder, converted,
named by `--set network.pretrained=`, trained for two steps, exported, and asked without its files.

torchvision, torchxrayvision and open_clip are not installed: their layouts are those that m3b's own networks have, under
the names of these packages. timm's own networks are built where timm can be imported.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starts_kit import assemble, densenet, nnunet, resnet, sam_original, stunet, swin, transformers_model, vit
from template_kit import call

from m3b.isolation.sandbox import choose_sandbox
from m3b.models.pretrained.install import fetch

pytestmark = pytest.mark.slow
Source = Callable[[Path], None]
EXAMPLE = {"diagnosis": "24", "segmentation": "12", "report": "16"}
SETTINGS = {
    "diagnosis": ["device=cpu", "max_steps=2", "batch=8", "folds=1", "tta.use=false"],
    "segmentation": ["device=cpu", "max_steps=2", "batch=2", "patch=[32,32,32]"],
    "report": ["device=cpu", "max_steps=2", "batch=4"],
}


def pickle_source(
    file: str, build_weights: Callable[[], tuple[dict[str, Any], dict[str, Any]]], wrap: str = "", prefix: str = ""
) -> Source:
    """A checkpoint as the publisher's `torch.save` writes it, with what else such files hold."""

    def write(folder: Path) -> None:
        import torch

        state, arch = build_weights()
        state = {prefix + name: value for name, value in state.items()}
        checkpoint: Any = {wrap: state, "epoch": 3, "optimizer": {"lr": 0.1}} if wrap else state
        torch.save(checkpoint, folder / file)
        (folder / "m3b-start.json").write_text(json.dumps({"arch": arch}))

    return write


def saved_model_source(kind: str) -> Source:
    def write(folder: Path) -> None:
        transformers_model(kind).save_pretrained(folder)

    return write


def whole_module(folder: Path) -> None:
    """A pickled module, as torchxrayvision's files are: weights_only refuses it."""
    import torch

    state, arch = densenet()

    class Holder(torch.nn.Module):
        pass

    model = torch.nn.Module()
    for name, value in state.items():
        *path, last = name.split(".")
        place = model
        for part in path:
            if part not in place._modules:
                place.add_module(part, torch.nn.Module())
            place = place._modules[part]
        place.register_buffer(last, value) if "running" in last or "tracked" in last else place.register_parameter(
            last, torch.nn.Parameter(value)
        )
    torch.save(model, folder / "nih-densenet121-d121-tw-lr001-rot45-tr15-sc15-seed0-best.pt")
    (folder / "m3b-start.json").write_text(json.dumps({"arch": arch}))


def nnunet_folder(folder: Path) -> None:
    import torch

    (folder / "fold_0").mkdir()
    torch.save({"network_weights": nnunet(), "trainer_name": "x"}, folder / "fold_0" / "checkpoint_final.pth")
    values = {"percentile_00_5": -1000.0, "percentile_99_5": 1000.0, "mean": 0.0, "std": 400.0}
    (folder / "plans.json").write_text(json.dumps({"foreground_intensity_properties_per_channel": {"0": values}}))


FAMILIES: dict[str, tuple[str, Source]] = {
    "timm/resnet18.a1_in1k": ("diagnosis", pickle_source("pytorch_model.bin", resnet)),
    "timm/vit_small_patch16_224.augreg_in21k": ("diagnosis", pickle_source("pytorch_model.bin", vit)),
    "torchvision/densenet121": ("report", pickle_source("densenet121-a639ec97.pth", lambda: densenet(3))),
    "torchxrayvision/densenet121-res224-nih": ("diagnosis", whole_module),
    "dinov2/small": ("diagnosis", saved_model_source("dinov2")),
    "dinov3/vits16": ("diagnosis", saved_model_source("dinov3")),
    "rad-dino": ("report", saved_model_source("dinov2")),
    "clip/vit-base-patch16": ("diagnosis", saved_model_source("clip")),
    "siglip/base-patch16-224": ("diagnosis", saved_model_source("siglip")),
    "biomedclip": ("report", pickle_source("open_clip_pytorch_model.bin", vit, prefix="visual.trunk.")),
    "medsam/vit-base": ("diagnosis", saved_model_source("sam")),
    "medsam/original": ("diagnosis", pickle_source("medsam_vit_b.pth", sam_original)),
    "swinunetr-ssl": ("segmentation", pickle_source("model_swinvit.pt", swin, "state_dict", "module.")),
    "suprem/swinunetr": (
        "segmentation", pickle_source("supervised_suprem_swinunetr_2100.pth", swin, "net", "module.backbone.swinViT."),
    ),
    "stunet/small": ("segmentation", pickle_source("small_ep4k.model", stunet, "state_dict")),
    "totalsegmentator/total-3mm": ("segmentation", nnunet_folder),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_fetched_converted_trained_exported_and_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, write = FAMILIES[name]
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    (tmp_path / "source").mkdir()
    write(tmp_path / "source")
    monkeypatch.setattr(
        "m3b.models.pretrained.install.published_digest", lambda *_: ""
    )  # a tiny network is not the published one
    folder, installed = fetch(name, str(tmp_path / "source"), choose_sandbox("auto"))
    assert installed.tensors > 10
    if name.startswith("torchxrayvision"):
        assert installed.method == "inert records"
    project = assemble(template, tmp_path / "work")
    settings = [f"network.pretrained={name}", *SETTINGS[template]]
    code = (
        "import sys; sys.path.insert(0, 'example'); import make_example; from pathlib import Path\n"
        f"make_example.make_example(Path(), {EXAMPLE[template]})\n"
        f"from m3b.training.{template} import plan; plan.main(['--minutes', '1', '--set', *{settings!r}])\n"
        f"from m3b.training.{template} import train; assert train.main([]) == 0\n"
        f"from m3b.training.{template} import export; export.main([])"
    )
    printed = call(project, "-c", code).stdout
    assert "tensors loaded" in printed
    assert f"with the weights of {name}" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert plan["network"]["pretrained"] == str(folder)
    shutil.rmtree(folder)
    config = json.loads((project / "Deliver/config.json").read_text())
    assert config["start"]["chosen"] in ("pretrained", "scratch")
    assert str(tmp_path) not in json.dumps(config)
    image = next(str(file.relative_to(project)) for file in sorted((project / "data").rglob("*.*")) if file.is_file())
    record = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    image = record if isinstance(record, str) else record[0] if isinstance(record, list) else image
    done = call(project, "Deliver/predict.py", image, "-o", "answers.json")
    (answer,) = json.loads((project / "answers.json").read_text())
    assert not answer.get("error"), done.stdout
