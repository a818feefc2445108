"""The nnU-Net engine: residual-encoder presets by memory, regions of overlapping classes, and mirrors that keep left and right."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from segmentation_kit import assemble_segmentation, own
from template_kit import call


@pytest.fixture(scope="module")
def presets() -> ModuleType:
    return own("nnunet_presets")


@pytest.mark.parametrize(
    ("gib", "planner"),
    [(0.0, "plain"), (4.0, "plain"), (7.8, "M"), (15.7, "M"), (23.6, "L"), (39.4, "XL"), (139.0, "XL")],
)
def test_the_preset_follows_from_the_memory(presets: ModuleType, gib: float, planner: str) -> None:
    assert presets.planner_for(gib) == planner
    assert planner in presets.PLANNERS


def test_the_planners_are_nnunets_own(presets: ModuleType) -> None:
    planners = pytest.importorskip(
        "nnunetv2.experiment_planning.experiment_planners.residual_unets.residual_encoder_unet_planners"
    )
    import inspect

    for name in ("M", "L", "XL"):
        kind, plans = presets.PLANNERS[name]
        said = inspect.signature(getattr(planners, kind).__init__).parameters
        assert said["plans_name"].default == plans


@pytest.mark.parametrize(
    ("axes", "order", "classes", "left"),
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
    presets: ModuleType, axes: tuple[int, ...], order: tuple[int, ...], classes: list[str], left: tuple[int, ...]
) -> None:
    assert presets.mirrored(axes, order, classes) == left


def test_each_way_of_overlapping_has_a_number(presets: ModuleType) -> None:
    random = np.random.default_rng(0)
    masks = random.random((3, 12, 12)) < 0.4
    regions = presets.Regions(3)
    numbers = regions.encode(masks)
    labels = regions.labels()
    assert list(labels) == ["background", "class1", "class2", "class3"]
    for mask, name in zip(masks, list(labels)[1:], strict=True):
        assert np.array_equal(np.isin(numbers, labels[name]), mask)
    assert set(np.unique(numbers)) == set(range(8)), "7 ways, and background"
    again = regions.encode(masks[:, ::-1])
    assert np.array_equal(again, numbers[::-1]), "the same ways keep their numbers in the next case"
    apart = presets.Regions(2)
    apart.encode(np.stack([numbers == 1, numbers == 2]))
    assert apart.labels() == {"background": 0, "class1": 1, "class2": 2}, "classes that do not meet are no regions"


def test_too_many_ways_are_refused(presets: ModuleType) -> None:
    bits = np.arange(1, 300)
    masks = np.stack([(bits >> place & 1).astype(bool) for place in range(9)])
    with pytest.raises(SystemExit, match="use engine=trainer"):
        presets.Regions(9).encode(masks)


def _trained(project: Path, *settings: str) -> dict[str, object]:
    """Plan, two steps, export; what the deliverable knows of nnU-Net."""
    call(project, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu", *settings)
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "max_steps": 2, "threads": 1}))
    call(project, "train.py")
    call(project, "export.py")
    found: dict[str, object] = json.loads((project / "Deliver/config.json").read_text())["nnunet"]
    return found


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
    config = _trained(project, "planner=M")
    assert "ResidualEncoderUNet" in json.dumps(config["architecture"])
    assert config["mirror"] == [0], "up and down alone"
    mask = own("masks").read_mask(str(project / str(_answer(project)["mask"]))).array
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
    config = _trained(project)
    assert config["regions"] is True
    assert config["outputs"] == 2
    answer = _answer(project)
    assert isinstance(answer["masks"], dict)
    assert set(answer["masks"]) == {first, second}
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert "dice" in metrics["validation"]
