"""The nnU-Net engine: residual-encoder presets by memory, regions of overlapping classes, and mirrors that keep left and right."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from segmentation_kit import assemble_segmentation
from template_kit import call, load

from m3b.training.plan_table import PlanConditions, choose_settings


@pytest.fixture(scope="module")
def presets() -> ModuleType:
    return load("segmentation.nnunet_presets")


@pytest.mark.parametrize(
    ("gib", "hours", "planner"),
    [
        *[(0.0, 99, "plain"), (4.0, 99, "plain"), (7.8, 99, "M"), (15.7, 99, "M"), (23.6, 99, "L"), (39.4, 99, "XL")],
        *[
            (139.0, 1, "plain"),
            (139.0, 5.9, "plain"),
            (139.0, 6, "M"),
            (139.0, 20, "L"),
            (139.0, 40, "XL"),
            (23.6, 40, "L"),
        ],
    ],
)
def test_the_preset_follows_from_memory_and_time(presets: ModuleType, gib: float, hours: float, planner: str) -> None:
    """By memory alone, an hour on 80 GB had a network whose training takes 66."""
    conditions = PlanConditions(device="GPU", minutes=60 * hours, gib=gib)
    assert choose_settings("segmentation", conditions)["planner"] == planner
    assert planner in presets.PLANNERS


def test_logits_are_resampled_class_by_class() -> None:
    """All at once in float64, logits of 105 classes and 36 million voxels take 30 GB."""
    steps, logits = (
        load("segmentation.nnunet_steps"),
        np.random.default_rng(0).random((60, 24, 24, 24), dtype=np.float32),
    )
    tracemalloc.start()
    resampled = steps.resample(logits, (30, 30, 30), [1.0] * 3, [1.0] * 3, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * resampled.nbytes


def test_scoring_keeps_to_its_minutes() -> None:
    engine = load("segmentation.nnunet")
    assert engine.scoring_seconds(3600, 1000) == 360
    assert engine.scoring_seconds(3600, 10) == 102


@pytest.mark.slow
def test_processes_end_and_cases_are_scored_in_time(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2")
    project = assemble_segmentation(tmp_path / "work")
    call(project, "example/make_example.py", "--cases", "24", "--size", "16", "--dims", "2")
    call(project, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu", "workers=1")
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "max_steps": 2, "threads": 1}))
    code = """
import json, multiprocessing, torch
from m3b.training.segmentation import nnunet
from m3b.training.segmentation.dataset import read_index
parts = []
nnunet.train_nnunet(json.load(open("plan.json")), 300, lambda *found: parts.append(found))
assert not multiprocessing.active_children()
plan, table, (records,), done = parts[0]
assert len(table) == len(records) > 1
few, table = nnunet.score_cases(plan, read_index(), 0.0)
assert len(few) == len(table) == 1
"""
    call(project, "-c", code)


def test_the_planners_are_nnunets_own(presets: ModuleType) -> None:
    planners = pytest.importorskip(
        "nnunetv2.experiment_planning.experiment_planners.residual_unets.residual_encoder_unet_planners"
    )
    import inspect

    for name in ("M", "L", "XL"):
        kind, plans = presets.PLANNERS[name]
        parameters = inspect.signature(getattr(planners, kind).__init__).parameters
        assert parameters["plans_name"].default == plans


@pytest.mark.parametrize(
    ("axes", "order", "classes", "allowed"),
    [
        ((0, 1, 2), (0, 1, 2), ["liver", "spleen"], (0, 1, 2)),
        ((0, 1, 2), (0, 1, 2), ["kidney_left", "kidney_right"], (0, 1)),
        ((0, 1, 2), (2, 0, 1), ["kidney_left", "kidney_right"], (1, 2)),
        ((0, 1), (0, 1, 2), ["lung-R", "lung-L"], (0,)),
        ((0, 1), (0, 2, 1), ["lung-R", "lung-L"], (1,)),
        ((0, 1), (0, 1, 2), ["lung"], (0, 1)),
    ],
)
def test_left_and_right_are_not_mirrored(
    presets: ModuleType, axes: tuple[int, ...], order: tuple[int, ...], classes: list[str], allowed: tuple[int, ...]
) -> None:
    assert presets.allowed_mirror_axes(axes, order, classes) == allowed


def test_each_way_of_overlapping_has_a_number(presets: ModuleType) -> None:
    random = np.random.default_rng(0)
    masks = random.random((3, 12, 12)) < 0.4
    regions = presets.Regions(3)
    numbers = regions.encode(enumerate(masks), masks.shape[1:])
    labels = regions.labels()
    assert list(labels) == ["background", "class1", "class2", "class3"]
    for mask, name in zip(masks, list(labels)[1:], strict=True):
        assert np.array_equal(np.isin(numbers, labels[name]), mask)
    assert set(np.unique(numbers)) == set(range(8)), "7 ways, and background"
    again = regions.encode(enumerate(masks[:, ::-1]), masks.shape[1:])
    assert np.array_equal(again, numbers[::-1]), "the same ways keep their numbers in the next case"
    disjoint = presets.Regions(2)
    disjoint.encode(enumerate([numbers == 1, numbers == 2]), numbers.shape)
    assert disjoint.labels() == {"background": 0, "class1": 1, "class2": 2}, "classes that do not meet are no regions"


def test_too_many_ways_are_refused(presets: ModuleType) -> None:
    bits = np.arange(1, 300)
    masks = np.stack([(bits >> place & 1).astype(bool) for place in range(9)])
    with pytest.raises(SystemExit, match="use engine=trainer"):
        presets.Regions(9).encode(enumerate(masks), masks.shape[1:])


def _train(project: Path, *settings: str) -> dict[str, object]:
    """Plan, two steps, export; what the deliverable knows of nnU-Net."""
    call(project, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu", *settings)
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "max_steps": 2, "threads": 1}))
    call(project, "train.py")
    call(project, "export.py")
    nnunet_config: dict[str, object] = json.loads((project / "Deliver/config.json").read_text())["nnunet"]
    return nnunet_config


def _answer(project: Path) -> dict[str, object]:
    """Of the first test image, without nnU-Net."""
    block = "import sys; sys.modules['nnunetv2'] = None; sys.argv = ['p', *sys.argv[1:]]; "
    block += "sys.path.insert(0, 'Deliver'); import predict; sys.exit(predict.main())"
    path = json.loads((project / "Datapath/test.json").read_text())[0]["image_path"]
    answer: dict[str, object] = json.loads(call(project, "-c", block, path).stdout)[0]
    return answer


@pytest.mark.slow
def test_a_residual_encoder_of_sides_is_trained_and_delivered(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2")
    project = assemble_segmentation(tmp_path / "work")
    call(project, "example/make_example.py", "--cases", "12", "--size", "16", "--dims", "2")
    for name in ("train", "test"):
        file = project / f"Datapath/{name}.json"
        assert file.is_file()
    labels = json.loads((project / "Datapath/label_dict.json").read_text())
    sided = dict(zip(("kidney_left", "kidney_right"), labels.values(), strict=True))
    (project / "Datapath/label_dict.json").write_text(json.dumps(sided))
    config = _train(project, "planner=M")
    assert "ResidualEncoderUNet" in json.dumps(config["architecture"])
    assert config["mirror"] == [0], "up and down alone"
    mask = load("m3b.dataset.formats").read_labels(str(project / str(_answer(project)["mask"]))).array
    assert mask.shape == (16, 16)


@pytest.mark.slow
def test_overlapping_classes_are_regions(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2")
    project = assemble_segmentation(tmp_path / "work")
    call(project, "example/make_example.py", "--cases", "12", "--size", "16", "--dims", "2", "--objects")
    records = json.loads((project / "Datapath/train.json").read_text())
    first, second = list(records[0]["mask_path"])
    for record in records:  # the second class lies in the first one
        record["mask_path"] = {first: record["mask_path"][first], second: record["mask_path"][first]}
        if record is not records[0]:
            break
    (project / "Datapath/train.json").write_text(json.dumps(records))
    config = _train(project)
    assert config["regions"] is True
    assert config["outputs"] == 2
    answer = _answer(project)
    assert isinstance(answer["masks"], dict)
    assert set(answer["masks"]) == {first, second}
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert "dice" in metrics["validation"]
