"""Volumes that are seen whole keep their physical size where fields of view differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from template_kit import Run, load

extent, preprocess, formats, normalise = (
    load("voxel_spacing"),
    load("preprocess"),
    load("m3b.dataset.formats"),
    load("normalization"),
)
RULE = {"mode": "window", "low": 0, "high": 100, "mean": 0.4, "std": 0.3}
PLAN = {"dims": 3, "channels": 1, "spacing": None, "intensity": RULE, "size": [32, 32, 32]}


def ball(
    radius: float, voxel: float, side: float = 64.0, middle: tuple[float, float, float] = (0, 0, 0)
) -> tuple[np.ndarray, tuple[float, ...]]:
    """A ball of `radius` mm in a cube of `side` mm, `middle` mm beside its centre; the array (1, ...) and its spacing."""
    axis = (np.arange(round(side / voxel)) + 0.5) * voxel - side / 2
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij")) - np.reshape(middle, (3, 1, 1, 1))
    return np.where(np.linalg.norm(grid, axis=0) < radius, 90.0, 1.0).astype(np.float32)[None], (voxel,) * 3


def volume_facts(*volumes: tuple[np.ndarray, tuple[float, ...]]) -> dict[str, Any]:
    images = [
        {"shape": array.shape[1:], "spacing": spacing, "body": normalise.body_limits(array[0])}
        for array, spacing in volumes
    ]
    return dict(extent.measure_field(images))


def enter(plan: dict[str, Any], volume: tuple[np.ndarray, tuple[float, ...]]) -> np.ndarray:
    array, spacing = volume
    return np.asarray(preprocess.preprocess(formats.Image(array, spacing, 3), plan))


def test_balls_of_different_size_differ_and_equal_ones_do_not() -> None:
    """Balls of 10 and 20 mm in voxels of 1 and 2 mm, as many voxels each, gave the same input."""
    small, large, coarse = ball(10, 1.0), ball(20, 2.0, 128), ball(20, 1.0, 64, (4, -2, 6))
    plan = PLAN | extent.physical_grid(volume_facts(small, large, coarse, ball(10, 2.0, 96), large), 64)
    assert plan["fit"] == "field"
    first, second, third = (enter(plan, volume) for volume in (small, large, coarse))
    difference, residue = float(np.abs(first - second).mean()), float(np.abs(second - third).mean())
    assert difference > 0.5, "other balls"
    assert residue < difference / 10, "equal balls, in other voxels, elsewhere in the field of view"
    stretched = {**plan, "fit": "stretch"}
    assert float(np.abs(enter(stretched, small) - enter(stretched, large)).max()) < 0.1


@pytest.mark.parametrize(("widest", "fit"), [(64.0, "stretch"), (66.0, "stretch"), (80.0, "field"), (160.0, "field")])
def test_the_grid_follows_from_how_far_fields_of_view_differ(widest: float, fit: str) -> None:
    volumes = [ball(12, 2.0, side) for side in np.linspace(64.0, widest, 8)]
    assert extent.physical_grid(volume_facts(*volumes), 64)["fit"] == fit


def test_the_field_holds_the_bodies_with_voxels_no_finer_than_the_files() -> None:
    grid = extent.physical_grid(volume_facts(*(ball(24, 2.0, side) for side in (64.0, 96.0, 128.0))), 64)
    assert all(48 <= side <= 64 for side in grid["field"])
    assert [side / count for side, count in zip(grid["field"], grid["size"], strict=True)] == [2.0] * 3
    coarser = extent.physical_grid(volume_facts(*(ball(24, 0.5, side) for side in (64.0, 96.0))), 32)
    assert max(coarser["size"]) <= 32
    assert all(48 <= side < 56 for side in coarser["field"]), "voxels grow until the body fits"


def test_without_known_voxels_volumes_are_stretched() -> None:
    """No spacing at all; and a set of placeholders, of which the fields of view cannot be true."""
    shapes = [(64, 64, depth) for depth in (20, 40, 160)]
    for spacing in (None, (1.0, 1.0, 1.0)):
        images = [{"shape": shape, "spacing": spacing, "body": [(0.0, 1.0)] * 3} for shape in shapes]
        assert extent.physical_grid(extent.measure_field(images), 64)["fit"] == "stretch"


def test_a_placeholder_among_true_spacings_shows_the_usual_extent() -> None:
    facts = volume_facts(*(ball(24, 2.0, side) for side in (100.0, 120.0, 140.0)))
    plan = PLAN | extent.physical_grid(facts, 64)
    array, _ = ball(24, 2.5, 120.0)
    known_spacing, placeholder, nothing = (
        enter(plan, (array, (voxel,) * 3 if voxel else None)) for voxel in (2.5, 1.0, None)
    )
    assert float(np.abs(known_spacing - placeholder).max()) < 1e-3
    assert float(np.abs(known_spacing - nothing).max()) < 1e-3


@pytest.mark.parametrize("template", ["diagnosis", "report"])
def test_plans_of_volumes_keep_physical_size(template: str, tmp_path: Path) -> None:
    import functools

    import nibabel as nib
    from template_kit import call

    from m3b.resources import copy_template

    work = tmp_path / "work"
    copy_template(template, work)
    (work / "data").mkdir()
    records = []
    for k in range(8):
        array, spacing = ball(10 + 5 * (k % 2), 2.0, (48.0, 64.0, 96.0)[k % 3])
        nib.save(nib.Nifti1Image(array[0], np.diag([*spacing, 1.0])), work / f"data/{k}.nii.gz")
        truth = (
            {"labels": [("a", "b")[k % 2]]} if template == "diagnosis" else {"findings": "A ball.", "impression": ""}
        )
        records.append({"image_path": f"data/{k}.nii.gz", "patient": f"p{k}", **truth})
    (work / "Datapath/train.json").write_text(json.dumps(records))
    names = {"a": 0, "b": 1} if template == "diagnosis" else {}
    (work / "Datapath/label_dict.json").write_text(json.dumps(names))
    run: Run = functools.partial(call, work)
    code = (
        f"import json\nfrom m3b.training.{template} import plan\n"
        "read = lambda name: json.load(open(f'Datapath/{name}.json'))\n"
        "facts = plan.fingerprint(read('train'), read('label_dict'))\nprint(json.dumps(plan.make_plan(facts, 1.0, False)))"
    )
    plan = json.loads(run("-c", code).stdout.splitlines()[-1])
    assert plan["fit"] == "field"
    assert plan["why_fit"]
    assert [side / count for side, count in zip(plan["field"], plan["size"], strict=True)] == [2.0] * 3
