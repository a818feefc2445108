"""Voxels that nobody labelled: known from the file to the metric, without a loss, a gradient, a point, or a figure."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from segmentation_kit import nifti
from template_kit import load

IGNORE = 255
PLAN: dict[str, Any] = {
    "dims": 3,
    "channels": 1,
    "channel_names": None,
    "spacing": None,
    "extent": None,
    "pixels": False,
    "intensity": {"mode": "percentile"},
    "classes": ["spleen", "liver"],
    "labels": {"spleen": 1, "liver": 6},
    "overlap": False,
}
SHAPE = (8, 9, 10)


def _ignored() -> np.ndarray:
    ignored = np.zeros(SHAPE, bool)
    ignored[:, 4] = True  # through both structures
    ignored[0] = True
    return ignored


def _case(folder: Path, name: str = "a", under: int = 0, overlap: bool = False) -> dict[str, Any]:
    """A case with two cuboids, and the label `under` in the ignored voxels, which nobody may see."""
    mask = np.zeros(SHAPE, np.uint8)
    mask[1:4, 2:6, 3:6], mask[5:7, 3:7, 5:9] = 1, 6
    mask[_ignored()] = under
    nifti(folder / f"{name}.nii.gz", np.random.default_rng(len(name)).normal(0, 1, SHAPE).astype(np.float32))
    nifti(folder / f"{name}_ignored.nii.gz", _ignored().astype(np.uint8))
    record = {"image_path": f"{name}.nii.gz", "ignore_path": f"{name}_ignored.nii.gz", "patient": name}
    if overlap:
        files = {"spleen": (mask == 1) | (mask == 6), "liver": mask == 6}
        return record | {
            "mask_path": {
                key: nifti(folder / f"{name}_{key}.nii.gz", layer.astype(np.uint8)) for key, layer in files.items()
            }
        }
    return record | {"mask_path": nifti(folder / f"{name}_seg.nii.gz", mask)}


@pytest.mark.parametrize("overlap", [False, True])
def test_labels_under_ignored_voxels_change_nothing_that_is_read(tmp_path: Path, overlap: bool) -> None:
    plan = {**PLAN, "overlap": overlap, "labels": None if overlap else PLAN["labels"]}
    cached = []
    for under in (0, 6):
        record = _case(tmp_path, under=under, overlap=overlap)
        image = load("m3b.dataset.formats").read_image(record["image_path"], tmp_path)
        _, mask, _ = load("volume_cache").prepare_case(record, plan, str(tmp_path))
        points = load("volume_cache").sample_points(mask, plan)
        layers = load("mask_grid").load_masks(record, plan, image, str(tmp_path))
        ignored = load("mask_grid").load_ignored(record, image, str(tmp_path))
        assert not (layers & ignored).any()
        assert np.array_equal(mask == IGNORE, np.broadcast_to(ignored, mask.shape))
        assert set(np.unique(mask)) == {0, 1, IGNORE} | ({2} - {2 * overlap})
        assert not ignored[tuple(points[:, 1:].T)].any()
        cached.append((mask, points, layers))
    for first, second in zip(*cached, strict=True):
        assert np.array_equal(first, second)


def test_a_case_of_ignored_voxels_only_is_refused(tmp_path: Path) -> None:
    record = _case(tmp_path)
    nifti(tmp_path / "a_ignored.nii.gz", np.ones(SHAPE, np.uint8))
    with pytest.raises(load("m3b.dataset.formats").DataError, match=r"a\.nii\.gz: every voxel is ignored"):
        load("volume_cache").prepare_case(record, PLAN, str(tmp_path))


def test_the_cache_knows_the_file_of_ignored_voxels(tmp_path: Path) -> None:
    record = _case(tmp_path)
    without_ignored = {key: value for key, value in record.items() if key != "ignore_path"}
    first, second = load("volume_cache").case_keys([record, without_ignored], PLAN, str(tmp_path))
    assert first != second


@pytest.mark.parametrize("size", [(6, 12), (4, 5), (24, 7), (13, 30)])
def test_resampling_invents_no_label_at_ignored_borders(size: tuple[int, int]) -> None:
    """A cell is ignored if its centre is; a label needs most of the labelled part of a cell."""
    resampling, random = load("resampling"), np.random.default_rng(0)
    ids = np.repeat(np.repeat(random.integers(0, 3, (3, 6)), 4, 0), 4, 1).astype(np.uint8)
    ids[random.random(ids.shape) < 0.4] = IGNORE
    resized = resampling.resize_ids(ids, size)
    nearest = resampling.take_nearest(ids, size)
    assert np.array_equal(resized == IGNORE, nearest == IGNORE)
    assert np.array_equal(
        resampling.resize_ids(np.where(ids == IGNORE, IGNORE, 0).astype(np.uint8), size) == 0, nearest != IGNORE
    )
    one_class = np.where(ids == IGNORE, IGNORE, 2).astype(np.uint8)
    assert set(np.unique(resampling.resize_ids(one_class, size))) == {2, IGNORE}  # no background from ignored voxels
    layer = resampling.resize_mask(one_class == 2, size, one_class == IGNORE)
    assert layer[nearest != IGNORE].all()


def test_scribbles_keep_their_share_on_a_coarser_grid() -> None:
    ids = np.full((96, 96), IGNORE, np.uint8)
    ids[np.arange(96), np.arange(96)] = 1
    share = (load("resampling").resize_ids(ids, (48, 48)) == 1).mean()
    assert share == pytest.approx((ids == 1).mean(), rel=1.1)
    assert share > 0


@pytest.mark.parametrize(
    "rule", [{}, {"voxel": "focal"}, {"alpha": 0.3, "beta": 0.7}, {"weights": [2.0, 3.0]}, {"rows": True}]
)
@pytest.mark.parametrize("overlap", [False, True])
def test_ignored_voxels_have_no_loss_and_no_gradient(rule: dict[str, Any], overlap: bool) -> None:
    """The loss is that of the labelled voxels alone, whatever logits and labels the others have."""
    generator, losses = torch.Generator().manual_seed(0), load("losses")
    classes = 20 if rule.get("rows") else 3
    loss = losses.build_mask_loss({"loss": {k: v for k, v in rule.items() if k != "rows"}, "overlap": overlap})
    if overlap:
        if "rows" in rule:
            pytest.skip("rows are for exclusive classes")
        mask = torch.randint(0, 2, (2, 2, 6, 7, 8), generator=generator).to(torch.uint8)
        classes = 2
    else:
        mask = torch.randint(0, classes, (2, 6, 7, 8), generator=generator).to(torch.uint8)
    logits = torch.randn(2, classes, 6, 7, 8, generator=generator)
    if rule.get("rows"):
        logits = logits.contiguous(memory_format=torch.channels_last_3d)
        assert losses._has_voxel_rows(logits)
    ignored = mask.clone()
    ignored[..., 4:] = IGNORE
    logits.requires_grad_()
    value = loss(logits, ignored)
    value.backward()
    assert logits.grad is not None
    assert float(logits.grad[..., 4:].abs().max()) == 0
    assert float(logits.grad[..., :4].abs().max()) > 0
    assert float(value.detach()) == pytest.approx(float(loss(logits.detach()[..., :4], mask[..., :4])), rel=1e-5)
    assert float(loss(logits.detach(), torch.full_like(mask, IGNORE))) == 0


def test_deep_supervision_and_rows_of_structures_leave_ignored_voxels_out() -> None:
    plan = {
        "classes": ["L1", "L2", "cord"],
        "patch": [8, 8, 8],
        "spacing": None,
        "chains": [
            {
                "classes": ["L1", "L2"],
                "numbers": [1, 2],
                "axis": 0,
                "pitch": 4.0,
                "closest": 1.0,
                "follows": [[0, 1, 1]],
            }
        ],
    }
    generator, loss = torch.Generator().manual_seed(0), load("segmentation.loss").build_loss(plan)
    channels = load("segmentation.network").count_outputs(plan)
    fine = torch.randn(1, channels, 8, 8, 8, generator=generator, requires_grad=True)
    coarse = torch.randn(1, channels, 4, 4, 4, generator=generator, requires_grad=True)
    mask = torch.randint(0, 4, (1, 8, 8, 8), generator=generator).to(torch.uint8)
    mask[..., 4:] = IGNORE
    loss([fine, coarse], mask).backward()
    for output, half in ((fine, 4), (coarse, 2)):
        assert output.grad is not None
        assert float(output.grad[..., half:].abs().max()) == 0
        assert float(output.grad[..., :half].abs().max()) > 0


def test_augmentation_moves_ignored_voxels_and_pads_with_background() -> None:
    augment = load("augment_masks").AugmentMasks(
        {"rotate": 180, "zoom": 0.3, "shift": 0.4, "often": 1.0, "flip": ["h"]}
    )
    image, mask = torch.zeros(1, 12, 12), torch.full((12, 12), IGNORE, dtype=torch.uint8)
    values: set[int] = set()
    for seed in range(8):
        random_move = augment.draw([12, 12], np.random.default_rng(seed))
        start, size, move = load("augment_masks").block_of_patch([0, 0], [12, 12], random_move)
        blocks = [load("augment_masks").cut_block(array, start, size, 0) for array in (image.numpy(), mask.numpy())]
        _, moved = augment.pair([torch.from_numpy(blocks[0])], [torch.from_numpy(blocks[1])], [move], [12, 12])
        values |= set(moved.unique().tolist())
    assert values == {0, IGNORE}


@pytest.mark.parametrize("overlap", [False, True])
def test_metrics_of_validation_leave_ignored_voxels_out(overlap: bool) -> None:
    random = np.random.default_rng(0)
    shape = (2, 12, 12) if overlap else (12, 12)
    truth, predicted = (random.integers(0, 2 if overlap else 3, shape).astype(np.uint8) for _ in range(2))
    ignored = np.zeros((12, 12), bool)
    ignored[:, 6:] = True
    marked_truth = load("ignored_voxels").mark_ignored(truth, ignored)
    plan = {"classes": ["a", "b"], "overlap": overlap, "dims": 2}
    scoring = load("segmentation.scoring")
    part = scoring.class_dice(predicted[..., :6], truth[..., :6], 2, overlap)
    assert scoring.class_dice(predicted, marked_truth, 2, overlap) == part
    zeroed = np.where(ignored, 0, predicted).astype(np.uint8)
    assert scoring.class_dice(zeroed, marked_truth, 2, overlap) == part
    assert (
        load("segmentation.postprocessing_selection")._score_operations(predicted, marked_truth, plan)[0].tolist()
        == part
    )
    mean = load("segmentation.mean_shape").mean_shape([truth, marked_truth], plan)
    assert np.isfinite(mean[..., :48]).all()


def test_a_position_that_half_of_the_masks_leave_open_counts_in_the_others() -> None:
    """The mean shape is the share of the labelled masks: with ignored voxels as background it is half as large."""
    plan = {"classes": ["a"], "overlap": False, "dims": 2}
    marked = np.zeros((96, 96), np.uint8)
    marked[20:60, 20:60] = 1
    part = np.full((96, 96), IGNORE, np.uint8)
    part[:10] = 0
    full = load("segmentation.mean_shape").mean_shape([marked, marked], plan)
    assert np.allclose(load("segmentation.mean_shape").mean_shape([marked, part], plan), full)


def test_detection_counts_no_lesion_in_ignored_voxels() -> None:
    scoring = load("detection.scoring")
    mask = np.zeros((1, 20, 20), np.uint8)
    mask[0, 2:6, 2:6], mask[0, 10:, :] = 1, IGNORE
    probability = np.zeros((1, 20, 20), np.float32)
    probability[0, 2:6, 2:6], probability[0, 12:16, 2:6] = 0.9, 0.9
    counts, overlap = scoring.score_settings(probability[0], mask[0])
    assert counts[4, 0].tolist() == [1, 1, 1]
    assert overlap[4, 0] == 1


@pytest.mark.parametrize("seed", range(3))
def test_minimum_sizes_of_lesions_count_their_ignored_voxels(seed: int) -> None:
    """Lesions drawn as thin strokes between ignored voxels: the model marks them whole, as the deliverable measures them."""
    scoring, random = load("detection.scoring"), np.random.default_rng(seed)
    mask = np.full((60, 60), IGNORE, np.uint8)
    probability = np.zeros((60, 60), np.float32)
    for row, column in ((5, 5), (5, 40), (40, 5), (40, 40)):
        side = int(random.integers(8, 12))
        probability[row : row + side, column : column + side] = 0.9
        mask[row + 2, column + 1 : column + 5] = 1  # four voxels of a lesion of 64 and more
    mask[25:30] = 0
    counts, overlap = scoring.score_settings(probability, mask)
    half = scoring.THRESHOLDS.index(0.5)
    size = scoring.MIN_SIZES.index(50)
    assert counts[half, size].tolist() == [4, 4, 4]
    assert overlap[half, size] == 1


def test_a_lesion_without_a_true_one_counts_by_where_it_lies() -> None:
    scoring = load("detection.scoring")
    mask = np.zeros((30, 30), np.uint8)
    mask[15:] = IGNORE
    for rows, lesions in ((slice(12, 20), 0), (slice(10, 18), 1)):  # three and five of eight rows are labelled
        predicted = np.zeros((30, 30), bool)
        predicted[rows, 5:10] = True
        counts, _ = scoring.score_settings(predicted * 0.9, mask)
        assert counts[scoring.THRESHOLDS.index(0.5), 0].tolist() == [0, lesions, 0]


@pytest.mark.parametrize("overlap", [False, True])
def test_the_fingerprint_counts_labelled_voxels_only(tmp_path: Path, monkeypatch: Any, overlap: bool) -> None:
    monkeypatch.chdir(tmp_path)
    facts = []
    for under in (0, 6):
        records = [_case(tmp_path, name, under, overlap) for name in ("a", "bb")]
        facts.append(load("segmentation.fingerprint").measure_cases(records, {"spleen": 1, "liver": 6}))
    assert facts[0]["ignored"] == pytest.approx(_ignored().mean())
    assert facts[0]["sizes"] == facts[1]["sizes"]
    assert facts[0]["sizes"]["liver"] == [2 * 3 * 4] * 2
    assert facts[0]["overlap"] is overlap
    for key in ("inside", "centres", "widths", "empty"):
        assert np.array_equal(np.array(facts[0][key], object), np.array(facts[1][key], object)) or str(
            facts[0][key]
        ) == str(facts[1][key])


@pytest.mark.parametrize("overlap", [False, True])
def test_nnunet_gets_its_own_ignore_label(tmp_path: Path, monkeypatch: Any, overlap: bool) -> None:
    sitk = pytest.importorskip("SimpleITK")
    monkeypatch.chdir(tmp_path)
    plan = {**PLAN, "overlap": overlap, "labels": None if overlap else PLAN["labels"]}
    records = [_case(tmp_path, name, 6, overlap) for name in ("a", "bb")]
    del records[1]["ignore_path"]
    data = load("segmentation.nnunet_data")
    data.write_dataset(records, plan, tmp_path / "nn", lambda presence: np.array([True, False]))
    raw = tmp_path / "nn/raw" / data.DATASET_NAME
    labels = json.loads((raw / "dataset.json").read_text())["labels"]
    numbers = [n for value in labels.values() for n in (value if isinstance(value, list) else [value])]
    assert labels["ignore"] == max(numbers)
    assert numbers.count(labels["ignore"]) == 1
    assert set(numbers) == set(range(max(numbers) + 1))
    exported_labels = np.moveaxis(sitk.GetArrayFromImage(sitk.ReadImage(str(raw / "labelsTr/case_00000.nii.gz"))), 0, 2)
    image = load("m3b.dataset.formats").read_image("a.nii.gz")
    assert np.array_equal(exported_labels == labels["ignore"], load("mask_grid").load_ignored(records[0], image))
    second = sitk.GetArrayFromImage(sitk.ReadImage(str(raw / "labelsTr/case_00001.nii.gz")))
    assert second.max() < labels["ignore"]
    handling = pytest.importorskip("nnunetv2.utilities.label_handling.label_handling")
    order = list(range(1, 3)) if overlap else None
    assert handling.LabelManager(labels, order).ignore_label == labels["ignore"]


def test_nnunet_without_ignored_voxels_has_no_ignore_label() -> None:
    assert "ignore" not in load("segmentation.nnunet_presets").describe_labels(None, PLAN)["labels"]


def test_fewshot_masks_leave_ignored_pixels_out(tmp_path: Path) -> None:
    from PIL import Image

    mask, ignored = np.zeros((64, 64), np.uint8), np.zeros((64, 64), np.uint8)
    mask[8:24, 8:24], ignored[:, 32:] = 1, 1
    mask[40:60, 40:60] = 1
    for name, array in (("mask", mask), ("ignored", ignored)):
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    cache = SimpleNamespace(plan={"classes": ["x"], "labels": {"x": 1}, "backbone": {"size": 32}}, base=str(tmp_path))
    image = SimpleNamespace(array=np.zeros((1, 64, 64), np.uint8))
    record = {"image_path": "mask.png", "mask_path": "mask.png", "ignore_path": "ignored.png"}
    read = load("detection.fewshot.case_cache").CaseCache._read_mask(cache, record, image)
    assert (read == 1).sum() == 64
    assert (read == IGNORE).sum() == 32 * 16
    labels = torch.from_numpy(read[None]).float()
    views, model = load("detection.fewshot.views"), load("detection.fewshot.model")
    _, warped = views.augment_eleven_times(torch.zeros(1, 3, 32, 32), labels)
    assert set(warped.unique().tolist()) == {0, 1, IGNORE}
    logits = torch.randn(1, 2, 32, 32, requires_grad=True)
    model.pixel_loss(logits, labels[:, 0]).backward()
    assert logits.grad is not None
    assert float(logits.grad[..., 16:].abs().max()) == 0
    assert float(logits.grad[..., :16].abs().max()) > 0
