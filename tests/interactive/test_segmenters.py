"""Small segmenters of each kind, built from a config with random weights, in their own file layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interactive_kit import make_disk_image

from m3b.errors import UsageError
from m3b.interactive import BoxPrompt, MaskProposal, Point, open_segmenter


def shaken(model: Any) -> Any:
    """The model with weights large enough that its answers depend on its input."""
    import torch

    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def sam(folder: Path) -> None:
    from transformers import SamConfig, SamModel

    vision = {
        "hidden_size": 16, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64,
        "patch_size": 8, "mlp_dim": 32, "num_pos_feats": 8, "global_attn_indexes": [1], "window_size": 4,
    }  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
    decoder = {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }
    config = SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    shaken(SamModel(config)).save_pretrained(folder)


def sam2(folder: Path) -> None:
    from transformers import Sam2Config, Sam2Model

    backbone = {
        "model_type": "sam2_hiera_det_model", "hidden_size": 8, "num_attention_heads": 1, "blocks_per_stage": [1, 1, 1, 1],
        "embed_dim_per_stage": [8, 16, 32, 64], "num_attention_heads_per_stage": [1, 1, 2, 4],
        "window_size_per_stage": [4, 4, 4, 4], "global_attention_blocks": [], "image_size": [64, 64],
        "window_positional_embedding_background_size": [4, 4],
    }  # fmt: skip
    vision = {
        "backbone_config": backbone, "backbone_channel_list": [64, 32, 16, 8], "fpn_hidden_size": 16,
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    }  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 4}
    decoder = {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }
    config = Sam2Config(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    shaken(Sam2Model(config)).save_pretrained(folder)


def promptnet(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from m3b.interactive.segmenters.promptnet import build_network

    torch.manual_seed(0)
    config = {"model_type": "m3b_promptnet", "size": 32, "widths": [4, 8]}
    folder.mkdir()
    save_file(build_network(config).state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


MAKERS = {"sam": sam, "sam2": sam2, "promptnet": promptnet}


@pytest.fixture(params=list(MAKERS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    MAKERS[request.param](tmp_path / "model")
    return tmp_path / "model"


def test_prompts_give_masks_in_the_pixels_of_the_image(folder: Path) -> None:
    segmenter = open_segmenter(folder, "cpu")
    for shape in ((60, 90), (90, 60), (33, 33)):
        image, _ = make_disk_image(shape)
        segmenter.set_image(image)
        first = segmenter.predict([BoxPrompt(10, 10, 30, 25)], [])
        second = segmenter.predict([BoxPrompt(10, 10, 30, 25)], [Point(20, 20), Point(5, 5, positive=False)], first)
        for proposal in (first, second):
            assert proposal.mask.shape == shape
            assert proposal.mask.dtype == bool
            assert 0 <= proposal.score <= 1


def test_a_mask_of_another_origin_can_be_refined(folder: Path) -> None:
    segmenter = open_segmenter(folder, "cpu")
    image, truth = make_disk_image()
    segmenter.set_image(image)
    assert segmenter.predict([], [Point(50, 30)], MaskProposal(truth, 0.5)).mask.shape == truth.shape


def test_the_same_prompt_gives_the_same_mask_and_another_image_another(folder: Path) -> None:
    segmenter = open_segmenter(folder, "cpu")
    image, _ = make_disk_image()
    segmenter.set_image(image)
    prompt = BoxPrompt(20, 10, 70, 50)
    first = segmenter.predict([prompt], [])
    again = segmenter.predict([prompt], [])
    assert np.array_equal(first.mask, again.mask)
    assert first.score == again.score
    segmenter.set_image(255 - image)
    inverted = segmenter.predict([prompt], [])
    assert not np.allclose(inverted.state, first.state)


def test_without_image_or_prompt_the_segmenter_says_so(folder: Path) -> None:
    segmenter = open_segmenter(folder, "cpu")
    with pytest.raises(UsageError, match="image"):
        segmenter.predict([BoxPrompt(0, 0, 1, 1)], [])
    segmenter.set_image(make_disk_image()[0])
    with pytest.raises(UsageError, match="box or a point"):
        segmenter.predict([], [])


def test_partial_weights_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    weights = load_file(file)
    weights.pop(max(weights))
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"missing|does not fit"):
        open_segmenter(folder, "cpu")


def test_a_pickle_is_refused(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"pytorch_model\.bin.*save_pretrained"):
        open_segmenter(folder, "cpu")


@pytest.mark.parametrize(
    ("config", "message"),
    [(None, "no config.json"), ("{", "cannot be read"), ("[]", "no JSON object"), ('{"model_type": "bert"}', "bert")],
)
def test_other_folders_are_explained(tmp_path: Path, config: Any, message: str) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(UsageError, match=message):
        open_segmenter(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no segmenter folder .*absent.*m3b interactive train"):
        open_segmenter(tmp_path / "absent")


@pytest.mark.parametrize("change", [{"size": 33}, {"size": "x"}, {"widths": [4]}, {"widths": [4, 0]}])
def test_settings_out_of_range_are_named(tmp_path: Path, change: dict[str, Any]) -> None:
    promptnet(tmp_path / "model")
    config = {"model_type": "m3b_promptnet", "size": 32, "widths": [4, 8], **change}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"size|widths"):
        open_segmenter(tmp_path / "model")
