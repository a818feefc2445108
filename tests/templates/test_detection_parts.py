"""The parts of the detection template by themselves: index, patches, boxes, lesions, loss, windows, plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from detection_kit import assemble_detection, box_plan, forget, load_project_module
from hypothesis import given, settings
from hypothesis import strategies as st
from segmentation_kit import nifti
from template_kit import load

from m3b.metrics import Box
from m3b.tasks.detection import DetectionCase, score_detection
from m3b.tasks.detection.lesions import match_lesions

Part = Callable[[str], ModuleType]
lesions = load("lesions")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble_detection(tmp_path_factory.mktemp("detection") / "work")


@pytest.fixture
def part(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    forget()
    monkeypatch.syspath_prepend(str(built))
    monkeypatch.chdir(tmp_path)
    yield lambda name: load_project_module(built, name)
    forget()


# --- lesions and boxes against m3b's own metrics ------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 3))
def test_lesions_are_matched_as_m3b_matches_them(seed: int, dims: int) -> None:
    rng = np.random.default_rng(seed)
    answer, truth = (rng.random((2, *(9,) * dims)) > 0.75)[:]
    expected = match_lesions(answer, truth)
    row = lesions.lesion_counts(answer, truth)
    assert row.tolist() == [expected.detected, expected.right + expected.wrong, expected.detected + expected.missed]


def test_small_lesions_are_dropped_and_boxes_lie_around_the_rest() -> None:
    mask = np.zeros((12, 12), bool)
    mask[2:5, 3:9], mask[10, 10] = True, True
    assert lesions.lesion_boxes(lesions.remove_small_lesions(mask, 2)) == [((2.0, 3.0, 5.0, 9.0), 1.0)]
    assert len(lesions.lesion_boxes(lesions.remove_small_lesions(mask, 1))) == 2
    assert not lesions.remove_small_lesions(mask, 100).any()


def _random_boxes(rng: np.random.Generator, count: int, dims: int) -> np.ndarray:
    low = rng.uniform(0, 60, (count, dims))
    return np.concatenate([low, low + rng.uniform(5, 30, (count, dims))], axis=1)


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(2, 3))
def test_precision_and_froc_are_those_of_m3b(seed: int, dims: int) -> None:
    forget()
    template_boxes = load_boxes()
    rng = np.random.default_rng(seed)
    answers, truths, cases = [], [], []
    for number in range(5):
        true = _random_boxes(rng, int(rng.integers(0, 4)), dims)
        near = true + rng.normal(0, 2, true.shape).clip(-2, 2)
        boxes = np.concatenate([near, _random_boxes(rng, 2, dims)])
        scores, labels = rng.random(len(boxes)).round(1), np.zeros(len(boxes), int)
        answers.append((boxes, scores, labels))
        truths.append((true, np.zeros(len(true), int)))
        predicted = tuple(Box(tuple(b), "a", float(s)) for b, s in zip(boxes, scores, strict=True))
        cases.append(
            DetectionCase(f"{number}", f"p{number}", predicted=predicted, truth=tuple(Box(tuple(b), "a") for b in true))
        )
    if not any(len(true) for true, _ in truths):
        return
    scores_m3b = score_detection(cases, ["a"], primary="mAP@0.5").metrics
    scores_, hit, count = template_boxes.rank_boxes(answers, truths, 1)[0]
    assert template_boxes.average_precision(scores_, hit, count) == pytest.approx(scores_m3b["map_50"].value, abs=1e-6)
    assert template_boxes.froc(scores_, hit, count, 5) == pytest.approx(scores_m3b["froc"].value, abs=1e-6)


def load_boxes() -> ModuleType:
    from m3b.training.detection import boxes

    return boxes


def test_suppression_keeps_classes_apart() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [0, 0, 10, 10], [30, 30, 40, 40]], float)
    kept_rows = load_boxes().suppress_overlaps(boxes, np.array([0.6, 0.9, 0.5, 0.1]), np.array([0, 0, 1, 0]))
    assert kept_rows.tolist() == [1, 2, 3]


def test_calibrated_scores_are_the_share_that_is_right_and_keep_their_order() -> None:
    template_boxes, rng = load_boxes(), np.random.default_rng(0)
    scores = rng.uniform(0.05, 0.95, 4000)
    right = rng.random(4000) < scores**2  # twice too sure
    chances = template_boxes.apply_logistic(scores, template_boxes.fit_logistic(scores, right))
    for low, high in ((0.1, 0.3), (0.4, 0.6), (0.7, 0.9)):
        in_range = (chances > low) & (chances < high)
        assert right[in_range].mean() == pytest.approx(chances[in_range].mean(), abs=0.06)
    assert (np.argsort(scores) == np.argsort(chances)).all()
    assert template_boxes.fit_logistic(np.array([0.5, 0.6]), np.array([1, 0])) == (1.0, 0.0)


# --- the index ----------------------------------------------------------------------------------------------------


def _picture(folder: Path, name: str, shape: tuple[int, ...] = (20, 30)) -> str:
    np.save(folder / name, np.random.default_rng(0).normal(size=shape).astype(np.float32))
    return name


def test_boxes_are_clipped_widened_and_left_out(part: Part, tmp_path: Path) -> None:
    index = part("m3b.training.detection.index")
    record = {"image_path": _picture(tmp_path, "a.npy")}
    record["boxes"] = [
        {"label": "disc", "box": [25, 5, 40, 9]},  # over the right border of 30 columns
        {"label": "square", "box": [4, 4, 4.5, 8]},  # half a pixel wide
        {"label": "disc", "box": [50, 5, 60, 9]},
    ]
    boxes, problems = index.true_boxes(record, ["disc", "square"])
    assert boxes.tolist() == [[5, 25, 9, 30, 0], [4, 3.25, 8, 5.25, 1]]
    assert len(problems) == 2
    assert "a.npy" in problems[0]
    assert "outside" in problems[1]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"label": "mass", "box": [1, 1, 5, 5]}, "label 'mass'"),
        ({"label": "disc", "box": [1, 1, 5]}, "not 4 or 6"),
        ({"label": "disc", "box": [9, 9, 5, 5]}, "width"),
        ({"label": "disc", "box": [1, 1, float("nan"), 5]}, "finite"),
    ],
)
def test_wrong_boxes_are_named_with_their_file(part: Part, tmp_path: Path, item: dict[str, Any], message: str) -> None:
    index, formats = part("m3b.training.detection.index"), part("m3b.dataset.formats")
    with pytest.raises(formats.DataError, match=message) as caught:
        index.true_boxes({"image_path": _picture(tmp_path, "a.npy"), "boxes": [item]}, ["disc", "square"])
    assert "a.npy" in str(caught.value)


def test_one_kind_of_truth_only(part: Part) -> None:
    target_of = part("m3b.training.detection.index").target_of
    assert target_of([{"image_path": "a", "boxes": []}]) == "boxes"
    assert target_of([{"image_path": "a", "mask_path": None}]) == "masks"
    for records in (
        [{"image_path": "a", "boxes": []}, {"image_path": "b", "mask_path": "m"}],
        [{"image_path": "a", "boxes": []}, {"image_path": "b"}],
        [{"image_path": "a"}],
    ):
        with pytest.raises(SystemExit):
            target_of(records)


@given(st.lists(st.integers(0, 8), min_size=2, max_size=40), st.integers(0, 100))
def test_validation_shares_no_patient_and_neither_part_is_empty(owners: list[int], seed: int) -> None:
    hold_out = _hold_out()
    records = [{"image_path": f"{k}", "patient": f"p{owner}"} for k, owner in enumerate(owners)]
    columns = np.random.default_rng(seed).integers(0, 3, (len(owners), 2)).astype(float)
    is_held_out = hold_out(records, columns, 0.2, seed)
    assert 0 < is_held_out.sum() < len(owners)
    if len(set(owners)) > 1:
        sides = {owner: {bool(c) for o, c in zip(owners, is_held_out, strict=True) if o == owner} for owner in owners}
        assert all(len(side) == 1 for side in sides.values())


_CACHE: dict[str, Any] = {}


def _hold_out() -> Any:
    """Imported once: Hypothesis calls the test many times within one fixture."""
    if not _CACHE:
        import tempfile

        forget()
        place = assemble_detection(Path(tempfile.mkdtemp()) / "work")
        _CACHE["hold_out"] = load_project_module(place, "m3b.training.detection.index").hold_out
        forget()
    return _CACHE["hold_out"]


def test_of_three_patients_one_with_lesions_is_held_out(part: Part) -> None:
    records = [{"image_path": f"{k}", "patient": f"{k}"} for k in range(3)]
    is_held_out = part("m3b.training.detection.index").hold_out(records, np.array([[0.0], [3.0], [9.0]]), 0.2)
    assert is_held_out.tolist() == [False, True, False]


# --- patches ------------------------------------------------------------------------------------------------------


def _cases(part: Part, tmp_path: Path, boxes: list[dict[str, Any]], **overrides: Any) -> Any:
    image = np.zeros((90, 100), np.float32)
    for item in boxes:
        x0, y0, x1, y1 = item["box"]
        image[y0:y1, x0:x1] = 5
    np.save(tmp_path / "a.npy", image)
    records = [{"image_path": "a.npy", "boxes": boxes, "patient": "p"}]
    return part("m3b.training.detection.dataset").DetectionCases(
        records, box_plan(intensity={"mode": "percentile"}, **overrides)
    )


BOXES = [{"label": "disc", "box": [10, 12, 16, 20]}, {"label": "square", "box": [60, 40, 90, 80]}]


def test_boxed_pictures_are_decoded_once(part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture was read a second time, one after the other, only to learn its size."""

    channels, read = part("m3b.training.channels"), []

    def count_read(path: Any, base: str = ".", _read_image: Any = channels.read_image) -> Any:
        read.append(path)
        return _read_image(path, base)

    monkeypatch.setattr(channels, "read_image", count_read)
    cases = _cases(part, tmp_path, BOXES)
    assert cases.volumes.shape(0) == (90, 100)
    assert len(cases.boxes[0]) == 2
    assert read == ["a.npy"]


def test_patches_carry_their_boxes_and_large_and_small_are_drawn_alike(part: Part, tmp_path: Path) -> None:
    loader = part("m3b.training.detection.dataset")
    cases = _cases(part, tmp_path, BOXES, foreground=1.0, patches=200)
    train = loader.Patches(cases, np.array([0]), fixed=False)
    torch.manual_seed(0)
    counts = np.zeros(2)
    for _ in range(200):
        item = train[0]
        assert item["pixel_values"].shape == (1, 32, 32)
        for row in item["boxes"].numpy():
            if row[5]:
                low, high = np.round(row[:2]).astype(int), np.round(row[2:4]).astype(int)
                assert float(item["pixel_values"][0, low[0] : high[0], low[1] : high[1]].min()) > 0
                counts[int(row[4])] += 1
    assert counts.min() > 0.3 * counts.max()
    batch = loader.collate([train[0], train[0]])
    assert batch["boxes"].shape[0] == 2
    assert batch["boxes"].shape[2] == 6


def test_images_are_shrunk_with_their_boxes(part: Part, tmp_path: Path) -> None:
    cases = _cases(part, tmp_path, BOXES, longest=50)
    assert cases.image(0).shape == (1, 45, 50)
    assert cases.boxes[0].tolist() == [[6, 5, 10, 8, 0], [20, 30, 40, 45, 1]]


def test_images_smaller_than_the_patch_lie_in_its_middle(part: Part) -> None:
    cut = part("m3b.training.detection.dataset").cut_image
    image = np.arange(12, dtype=np.float32).reshape(1, 3, 4) + 1
    piece = cut(image, [-2, -3], [8, 10])
    assert np.array_equal(piece[0, 2:5, 3:7], image[0])
    assert piece[0, 0, 0] == image[0, 0, 0]
    assert np.array_equal(cut(image, [1, 1], [2, 2])[0], image[0, 1:, 1:3])


def test_boxes_follow_the_image_through_augmentation(part: Part) -> None:
    augment = part("m3b.training.detection.augment_boxes").AugmentBoxes(
        {"rotate": 20, "zoom": 0.2, "shift": 0.1, "flip": ["h", "w"]}
    )
    torch.manual_seed(0)
    rows, columns = torch.meshgrid(torch.arange(64.0) + 0.5, torch.arange(64.0) + 0.5, indexing="ij")
    blob = (((rows - 24) / 6) ** 2 + ((columns - 40) / 10) ** 2 < 1).float()
    box = torch.tensor([[[18.0, 30.0, 30.0, 50.0, 0.0, 1.0]]])
    for _ in range(20):
        done = augment({"pixel_values": blob[None, None].clone(), "boxes": box.clone()})
        bright_pixels = (done["pixel_values"][0, 0] > 0.5).nonzero().float()
        bright_box = torch.cat([bright_pixels.amin(0), bright_pixels.amax(0) + 1])
        assert torch.allclose(done["boxes"][0, 0, :4], bright_box, atol=1.6)
        assert done["boxes"][0, 0, 4:].tolist() == [0.0, 1.0]


def test_boxes_that_leave_the_image_vanish(part: Part) -> None:
    module = part("m3b.training.detection.augment_boxes")
    boxes = torch.tensor([[[2.0, 2.0, 6.0, 6.0, 1.0, 1.0], [2.0, 20.0, 6.0, 30.0, 0.0, 1.0]]])
    moved = module.transform_boxes(boxes, torch.eye(2)[None], torch.tensor([[0.0, -7.0]]), torch.Size([32, 32]))
    assert moved[0, :, 4].tolist() == [-1.0, 0.0]
    halved = module.transform_boxes(boxes, torch.eye(2)[None], torch.tensor([[0.0, -5.0]]), torch.Size([32, 32]))
    assert halved[0, 0, 4:].tolist() == [1.0, 0.0]  # its centre is outside: cut, not asked for


# --- network, loss, windows ---------------------------------------------------------------------------------------


def test_giou_by_hand(part: Part) -> None:
    giou = part("m3b.training.detection.loss").generalised_iou
    first = torch.tensor([[0.0, 0.0, 2.0, 2.0]]).T
    assert giou(first, first).item() == pytest.approx(1.0)
    adjacent = torch.tensor([[2.0, 0.0, 4.0, 2.0]]).T
    assert giou(first, adjacent).item() == pytest.approx(0.0)
    half = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).T
    assert giou(first, half).item() == pytest.approx(2 / 6)


@pytest.mark.parametrize("dims", [2, 3])
def test_the_loss_falls_to_what_the_decoder_reads_back(part: Part, dims: int) -> None:
    """The output itself is optimised: its minimum must decode to the true boxes, two classes on one centre included."""
    detector, loss_of = part("m3b.training.detection.center_detector"), part("m3b.training.detection.loss")
    cell = [4] * dims
    true = torch.tensor([[*[6.0] * dims, *[17.0] * dims, 0, 1], [*[4.0] * dims, *[20.0] * dims, 1, 1]])
    far = torch.tensor([[*[20.0] * dims, *[29.0] * dims, 1, 1], [*[0.0] * (2 * dims), -1, 0]])
    output = torch.full((1, 2 + 4 * dims, *[8] * dims), -2.0, requires_grad=True)
    optimizer, loss = torch.optim.Adam([output], lr=0.1), loss_of.BoxLoss(2, cell)
    for _ in range(250):
        optimizer.zero_grad()
        value = loss(output, torch.cat([true, far])[None])
        value.backward()
        optimizer.step()
    boxes, scores, labels = detector.decode(output.detach(), 2, cell)[0]
    sure = scores > 0.5
    assert sorted(labels[sure].tolist()) == [0, 1, 1]
    expected = torch.cat([true, far[:1]])
    for box, label in zip(boxes[sure], labels[sure], strict=True):
        gaps = [(box - row[: 2 * dims]).abs().max() for row in expected if int(row[2 * dims]) == int(label)]
        assert min(gaps) < 1.0


def test_cut_boxes_are_neither_asked_for_nor_wrong(part: Part) -> None:
    loss = part("m3b.training.detection.loss").BoxLoss(1, [4, 4])
    cut = torch.tensor([[[0.0, 0.0, 16.0, 16.0, 0.0, 0.0]]])
    output = torch.full((1, 5, 8, 8), -6.0)
    marked = output.clone()
    marked[0, 0, :4, :4] = 6.0
    assert loss(marked, cut).item() == pytest.approx(loss(output, cut).item(), abs=0.02)
    assert loss(marked, torch.full((1, 1, 6), -1.0)).item() > 10


def test_a_weight_gives_a_rare_class_a_share_of_the_loss(part: Part) -> None:
    """Nine boxes of one class and one of the other: without weights the second is a tenth of what is asked."""
    rows = [[8.0 * n, 8.0 * n, 8.0 * n + 7, 8.0 * n + 7, 0.0, 1.0] for n in range(9)]
    boxes = torch.tensor([[*rows, [0.0, 64.0, 7.0, 71.0, 1.0, 1.0]]])
    shares = []
    for weights in (None, [1.0, 3.0]):
        output = torch.full((1, 2 + 8, 20, 20), -2.0, requires_grad=True)
        part("m3b.training.detection.loss").BoxLoss(2, [4, 4], 0.0, weights)(output, boxes).backward()
        class_gradients = output.grad[0, :2].clamp_max(0).abs().sum((1, 2))  # negative: a higher logit is asked for
        shares.append(float(class_gradients[1] / class_gradients.sum()))
    assert shares[0] == pytest.approx(0.1, abs=0.03)
    assert shares[1] > 0.2


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, 2.0, 3.0]])
def test_class_weights_that_do_not_fit_are_named(part: Part, weights: list[float]) -> None:
    with pytest.raises(ValueError, match="class_weights needs 2 numbers above 0"):
        part("m3b.training.detection.loss").BoxLoss(2, [4, 4], 1.0, weights)


def test_the_detector_takes_any_size(part: Part) -> None:
    plan = box_plan(
        3, network={"name": "centers", "width": 8, "strides": [[2, 2, 1], [2, 2, 2], [2, 2, 2]], "out_stage": 2}
    )
    model = part("m3b.training.detection.network").build_model(plan)
    assert model.cell == [4, 4, 2]
    output = model(pixel_values=torch.randn(1, 1, 22, 32, 9))["logits"]
    assert output.shape == (1, 2 + 12, 6, 8, 5)


class Marker(torch.nn.Module):
    """Calls bright pixels lesions, and so is the same in every window."""

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": pixel_values * 4.0}


@pytest.mark.parametrize("shape", [(50, 70), (20, 90), (30, 34, 20), (12, 12, 40)])
def test_windows_cover_the_image_once(part: Part, shape: tuple[int, ...]) -> None:
    inference = part("m3b.training.detection.inference")
    image = np.random.default_rng(0).normal(size=(1, *shape)).astype(np.float32)
    plan = {"patch": [32, 32, 16][: len(shape)], "classes": ["a"], "dims": len(shape)}
    chances = inference.mask_probabilities(Marker(), image, plan, torch.device("cpu"))
    assert chances.shape == image.shape
    assert np.allclose(chances, 1 / (1 + np.exp(-4 * image)), atol=1e-5)


class Finder(torch.nn.Module):
    """A 'detector' whose heat map is the image at a quarter of its size, and whose boxes are 8 pixels wide."""

    cell = (4, 4)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        heat = torch.nn.functional.max_pool2d(pixel_values, 4) * 8 - 4
        return {"logits": torch.cat([heat, torch.zeros_like(heat).repeat(1, 4, 1, 1)], dim=1)}


def test_boxes_of_overlapping_windows_are_found_once(part: Part) -> None:
    image = np.zeros((1, 96, 120), np.float32)
    spots = [(5, 5), (33, 60), (49, 61), (90, 117), (60, 33)]
    for row, column in spots:
        image[0, row, column] = 1
    plan = {"patch": [48, 48], "classes": ["a"], "dims": 2}
    boxes, scores, _ = part("m3b.training.detection.inference").find_boxes(Finder(), image, plan, torch.device("cpu"))
    centres = ((boxes[:, :2] + boxes[:, 2:]) / 2)[scores > 0.5]
    assert len(centres) == len(spots)
    assert all(np.abs(centres - np.array(spot) - 0.5).max(axis=1).min() <= 2.5 for spot in spots)


def test_thresholds_are_chosen_for_lesions_and_stay_plain_without_any(part: Part) -> None:
    scoring = part("m3b.training.detection.scoring")
    truth = np.zeros((30, 30), bool)
    truth[5:10, 5:10] = True
    chance = np.full((30, 30), 0.05)
    chance[5:10, 5:10], chance[20, 20:23] = 0.35, 0.35  # too faint for 0.5, and a speck as sure as the lesion
    counts, overlap = scoring.score_settings(chance, truth)
    t, s = scoring.best_setting(counts, overlap[None])
    assert scoring.THRESHOLDS[t] == 0.3
    assert 3 < scoring.MIN_SIZES[s] <= 25
    assert counts[t, s].tolist() == [1, 1, 1]
    assert scoring.MIN_SIZES[scoring.best_setting(counts, overlap[None], max_size=3)[1]] <= 3
    assert scoring.largest_min_size([2, 20, 20, 200]) == 15.5, "three of four true lesions stay visible"
    counts, overlap = scoring.score_settings(chance * 0, truth & False)
    assert scoring.best_setting(counts, overlap[None]) == (scoring.THRESHOLDS.index(0.5), 0)


def test_a_class_of_few_cases_takes_the_threshold_of_all(part: Part) -> None:
    """Ten kinds of findings in thirteen validation pictures: thresholds of 0.1 fitted to one lesion marked half of the next."""
    scoring = part("m3b.training.detection.scoring")
    truth = np.zeros((30, 30), bool)
    truth[5:12, 5:12] = True
    usual, faint = np.where(truth, 0.65, 0.05), np.where(truth, 0.15, 0.05)
    usual[20:25, 20:25] = 0.55  # false unless the threshold is above
    rows = [(usual, truth, faint, truth if case == 0 else truth & False) for case in range(6)]
    swept = [[scoring.score_settings(row[0], row[1]), scoring.score_settings(row[2], row[3])] for row in rows]
    counts = np.array([[score[0] for score in row] for row in swept])
    overlap = np.array([[score[1] for score in row] for row in swept])
    common, rare = scoring.choose_settings(counts, overlap, [[49] * 6, [49]])
    assert scoring.THRESHOLDS[common[0]] == 0.6
    assert scoring.THRESHOLDS[rare[0]] >= 0.5, "not the 0.1 that its single case would ask for"
    assert scoring.THRESHOLDS[scoring.best_setting(counts[:, 1].sum(axis=0), overlap[:, 1], 49.0)[0]] == 0.1
    assert scoring.MIN_SIZES[rare[1]] <= 49


# --- the plan -----------------------------------------------------------------------------------------------------


def _facts(**overrides: Any) -> dict[str, Any]:
    facts = {"target": "masks", "cases": 30, "patients": 30, "classes": ["lesion"], "labels": {"lesion": 1}, "dims": 3}
    facts |= {"channels": 1, "modality": "ct", "eight_bit": False, "spacing": [0.45, 0.45, 5.0], "low": -1000.0}
    facts |= {"scales": {"Hounsfield units": 30}, "window": None, "uneven": False, "extent": None, "placeholders": []}
    facts |= {"high": 900.0, "inside_low": 40.0, "inside_high": 80.0, "mean": 0.0, "std": 1.0, "ill_share": 1.0}
    facts |= {"shapes": np.array([[512, 512, 28]] * 3), "sides": np.array([[40.0, 40.0, 3.0]] * 5), "odd": []}
    return {
        **facts,
        "counts": {"lesion": 5},
        "unreadable": [],
        "objects": False,
        "channel_names": None,
        "by_channel": {},
        **overrides,
    }


def test_thick_slices_stay_thick_and_the_window_is_that_of_the_lesions(part: Part) -> None:
    plan = part("m3b.training.detection.plan").make_plan(_facts(), 10, False)
    assert plan["spacing"][2] == 5.0
    assert 0.45 <= plan["spacing"][0] <= 2.0
    assert plan["network"]["strides"][1] == [2, 2, 1]
    assert plan["network"]["kernels"][0] == [3, 3, 1]
    assert all(n % s == 0 for n, s in zip(plan["patch"], np.prod(plan["network"]["strides"], axis=0), strict=True))
    assert (plan["intensity"]["low"], plan["intensity"]["high"]) == (-80, 200)
    assert plan["augment"]["flip"] == []


def test_small_boxes_keep_pixels_and_large_pictures_are_shrunk(part: Part) -> None:
    picture = {"target": "boxes", "dims": 2, "spacing": None, "modality": "", "eight_bit": True, "labels": None}
    shapes = np.array([[1024, 1024]] * 3)
    large = part("m3b.training.detection.plan").make_plan(
        _facts(**picture, shapes=shapes, sides=np.array([[300.0, 300.0]] * 5)), 10, False
    )
    small = part("m3b.training.detection.plan").make_plan(
        _facts(**picture, shapes=shapes, sides=np.array([[14.0, 14.0]] * 5)), 10, False
    )
    assert large["longest"] == 256
    assert small["longest"] > 400
    assert small["patch"][0] % 32 == 0


def test_the_plan_is_honest_about_few_patients(part: Part) -> None:
    worth = part("m3b.training.patients").describe_reliability
    assert "no interval" in worth(3, 0.2)
    assert "say nothing about other patients" in worth(1, 0.2)
    assert "rough" in worth(20, 0.2)
    assert worth(86, 0.2) == "validation on about 17 of 86 patients"
    assert worth(86, 0.2, are_known=False) == "validation on about 17 of 86 cases", (
        "patients whom nobody knows are not counted"
    )


def test_labels_without_sense_are_refused(part: Part) -> None:
    check = part("m3b.training.detection.fingerprint")._check_labels
    with pytest.raises(SystemExit, match="start at 1"):
        check({"lesion": 0}, "masks")
    with pytest.raises(SystemExit, match="same number"):
        check({"a": 1, "b": 1}, "masks")
    check({"a": 0, "b": 1}, "boxes")


def test_memory_is_saved_by_smaller_patches_until_there_is_nothing_left(part: Part) -> None:
    shrink = part("m3b.training.detection.train").shrink_patch
    plan = {"dims": 3, "patch": [64, 48, 16], "network": {"strides": [[1, 1, 1], [2, 2, 2], [2, 2, 2]]}}
    sizes = []
    while shrink(plan):
        sizes.append(json.dumps(plan["patch"]))
    assert sizes[0] == "[32, 48, 16]"
    assert len(sizes) == len(set(sizes))
    assert plan["patch"] == [8, 12, 8]


def test_a_ct_set_of_which_half_is_8_bit_is_brought_to_one_window(part: Part, tmp_path: Path) -> None:
    rng, records = np.random.default_rng(0), []
    for number in range(8):
        mask = np.zeros((24, 24, 12), np.uint8)
        mask[4:12, 4:20], mask[14:20, 4:20] = 1, 2
        image = np.select([mask == 1, mask == 2], [-850.0, -300.0], 40.0) + rng.normal(0, 40, mask.shape)
        image[0] = -1000.0
        if number % 2:
            image = np.clip((image + 1250) / 1500 * 255, 0, 255)
        array = image.astype(np.uint8 if number % 2 else np.int16)
        names = [nifti(tmp_path / f"{kind}{number}.nii.gz", data) for kind, data in (("i", array), ("m", mask))]
        records.append({"image_path": names[0], "mask_path": names[1], "patient": str(number)})
    facts = part("m3b.training.detection.fingerprint").measure_cases(records, {"lung": 1, "infection": 2})
    plan = part("m3b.training.detection.plan")
    rule = plan.make_plan(facts, 10, False)["intensity"]
    assert (rule["mode"], rule["eight_bit"]) == ("window", "windowed")
    assert (rule["low"], rule["high"]) == pytest.approx((-1250, 250), abs=30)
    assert "the 8-bit images cover" in plan.describe_plan(facts, plan.make_plan(facts, 10, False))


def test_what_was_chosen_is_told_by_class(part: Part) -> None:
    description = part("m3b.training.detection.export")._describe_thresholds(
        ["a", "b"], {"thresholds": [0.4, 0.65], "least_sizes": [1, 25]}
    )
    assert description == ": a: threshold 0.4; b: threshold 0.65, regions below 25 voxels of the working grid removed"
    assert part("m3b.training.detection.export")._describe_thresholds(["a"], {"calibration": [1.0, 0.0]}) == ""


def test_windows_cover_the_content_of_an_image_with_a_margin(part: Part) -> None:
    content_box = part("m3b.training.detection.inference").content_box
    image = np.zeros((1, 20, 30), np.float32)
    image[0, 5, 8] = image[0, 9, 28] = 1
    assert content_box(image) == (slice(3, 12), slice(6, 30))
    assert content_box(np.ones((1, 4, 5), np.float32)) == (slice(0, 4), slice(0, 5)), "nothing but border: everything"


def test_overlapping_boxes_are_dropped_and_fused_as_one_by_one() -> None:
    """Both compared each box in Python with all that were kept: large volumes give thousands of boxes."""
    boxes, rng = load_boxes(), np.random.default_rng(3)
    corners = rng.uniform(0, 60, (120, 2))
    table = np.concatenate([corners, corners + rng.uniform(8, 25, (120, 2))], axis=1)
    scores, labels = rng.random(120), rng.integers(0, 3, 120)
    kept_rows: list[int] = []
    for row in np.argsort(-scores, kind="stable"):
        rivals = [kept_row for kept_row in kept_rows if labels[kept_row] == labels[row]]
        if not rivals or boxes.box_iou(table[row : row + 1], table[rivals]).max() <= 0.3:
            kept_rows.append(int(row))
    for limit in (200, 7):
        assert boxes.suppress_overlaps(table, scores, labels, limit, 0.3).tolist() == kept_rows[:limit]
    views = [(table[part], scores[part], labels[part]) for part in (slice(0, 40), slice(40, 80), slice(80, 120))]
    fused, fused_scores, fused_labels = boxes.fuse_boxes(views)
    view_of_row, groups = np.repeat([0, 1, 2], 40), []
    for row in np.argsort(-scores, kind="stable"):
        fitting = [g for g in groups if labels[g[0]] == labels[row] and view_of_row[row] not in view_of_row[g]]
        overlaps = [boxes.box_iou(table[row : row + 1], table[g[:1]])[0, 0] for g in fitting]
        if overlaps and max(overlaps) >= boxes.FUSION_IOU:
            fitting[int(np.argmax(overlaps))].append(int(row))
        else:
            groups.append([int(row)])
    assert len(fused) == len(groups)
    assert np.allclose(np.sort(fused_scores), np.sort([scores[g].sum() / 3 for g in groups]))
    assert np.bincount(fused_labels).tolist() == np.bincount([labels[g[0]] for g in groups]).tolist()
