"""Plan, train, export, predict with the detection template: for real, on tiny data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from detection_kit import assemble_detection
from template_kit import NO_MEMORY, call, train_until_killed

SMALL = ("--set", "device=cpu", "batch=4", "patches=8", "max_epochs=2")
UNET = ("network.filters=[4,8,16,16]",)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return assemble_detection(tmp_path / "work")


def _train(work: Path, *example: str, minutes: float = 0.3, settings: tuple[str, ...] = ()) -> dict[str, object]:
    call(work, "example/make_example.py", *example)
    call(work, "plan.py", "--minutes", str(minutes), *SMALL, *settings)
    call(work, "train.py")
    call(work, "export.py")
    assert (work / "Logout/curves.png").stat().st_size > 1000
    metrics: dict[str, object] = json.loads((work / "Logout/metrics.json").read_text())
    return metrics


def _predict(work: Path, moved: Path, *paths: str) -> list[dict[str, object]]:
    (work / "Deliver").rename(moved)
    (work / "list.json").write_text(json.dumps([*paths, "data/example/gone.png"]))
    done = call(work, str(moved / "predict.py"), "--list", "list.json", "-o", "answers/out.json", check=False)
    assert done.returncode == 1, done.stderr
    results: list[dict[str, object]] = json.loads((work / "answers/out.json").read_text())
    assert "gone.png" in str(results[-1]["error"])
    assert [result["image"] for result in results[:-1]] == list(paths)
    assert all(0 <= float(str(result["anomaly_score"])) <= 1 for result in results[:-1])
    assert not list(moved.glob("**/*.p*kl"))
    assert str(work) not in (moved / "config.json").read_text()
    return results[:-1]


def test_2d_boxes_from_data_to_prediction_in_a_clean_process(work: Path, tmp_path: Path) -> None:
    metrics = _train(work, "--cases", "20", settings=("network.width=8",))
    assert set(metrics) >= {"validation", "epochs", "seconds", "by_class"}
    rows = json.loads((work / "Logout/valid_predictions.json").read_text())
    assert set(rows[0]) >= {"image", "patient", "anomaly_score", "abnormal"}
    paths = [record["image_path"] for record in json.loads((work / "Datapath/test.json").read_text())]
    for result in _predict(work, tmp_path / "elsewhere", *paths):
        assert isinstance(result["boxes"], list)
        for box in result["boxes"]:
            assert box["label"] in ("disc", "square")
            x0, y0, x1, y1 = box["box"]
            assert 0 <= x0 < x1 <= 64
            assert 0 <= y0 < y1 <= 64
            assert 0 <= box["score"] <= 1


def test_3d_object_masks_keep_overlaps_and_geometry(work: Path, tmp_path: Path) -> None:
    import nibabel as nib

    _train(work, "--truth", "objects", "--dims", "3", "--size", "24", "--cases", "10", settings=UNET)
    config = json.loads((work / "Deliver/config.json").read_text())
    config["thresholds"], config["least_sizes"] = [0.001, 0.001], [1, 1]  # everything is marked, for both classes
    (work / "Deliver/config.json").write_text(json.dumps(config))
    path = json.loads((work / "Datapath/test.json").read_text())[1]["image_path"]
    result = _predict(work, tmp_path / "elsewhere", path)[0]
    assert isinstance(result["masks"], dict)
    masks = {name: nib.load(work / "answers" / file) for name, file in result["masks"].items()}
    assert set(masks) == {"disc", "square"}
    image = nib.load(work / path)
    for mask in masks.values():
        assert mask.shape == image.shape
        assert np.allclose(mask.affine, image.affine)
        assert set(np.unique(np.asarray(mask.dataobj))) <= {0, 1}
    both = [np.asarray(mask.dataobj) > 0 for mask in masks.values()]
    assert (both[0] & both[1]).any()
    assert isinstance(result["boxes"], list)
    assert len(result["boxes"][0]["box"]) == 6


@pytest.mark.slow
def test_a_detector_learns_where_discs_and_squares_are(work: Path) -> None:
    metrics = _train(work, "--cases", "120", minutes=3.0, settings=("max_epochs=45", "patches=96", "batch=16"))
    assert isinstance(metrics["validation"], dict)
    assert metrics["validation"]["map_50"] > 0.6
    assert metrics["validation"]["image_auroc"] > 0.9


@pytest.mark.slow
def test_3d_boxes_in_voxels_of_the_file(work: Path, tmp_path: Path) -> None:
    _train(
        work, "--dims", "3", "--size", "32", "--cases", "20", minutes=1.5, settings=("max_epochs=30", "network.width=8")
    )
    record = next(r for r in json.loads((work / "Datapath/train.json").read_text()) if r["boxes"])
    result = _predict(work, tmp_path / "elsewhere", record["image_path"])[0]
    assert isinstance(result["boxes"], list)
    near = []
    for box in (box for box in result["boxes"] if box["score"] >= 0.02):
        for true in record["boxes"]:
            centres = [(np.array(b["box"][:3]) + np.array(b["box"][3:])) / 2 for b in (box, true)]
            near.append(np.abs(centres[0] - centres[1]).max())
    assert min(near) < 6  # any other order of axes would put it elsewhere


@pytest.mark.slow
def test_three_patients_train_and_the_output_says_what_they_are_worth(work: Path) -> None:
    call(work, "example/make_example.py", "--truth", "masks", "--cases", "6", "--size", "48")
    records = json.loads((work / "Datapath/train.json").read_text())
    assert len({record["patient"] for record in records}) == 3
    plan = call(work, "plan.py", "--minutes", "0.4", *SMALL, *UNET).stdout
    assert "3 patients: one is held out" in plan
    printed = call(work, "train.py").stdout
    assert "of 1 patient; this is too few patients to generalise" in printed
    assert "kept the last weights" in printed
    call(work, "export.py")


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["boxes", "masks"])
def test_a_killed_training_goes_on_with_the_same_schedule(work: Path, truth: str) -> None:
    call(work, "example/make_example.py", "--cases", "20", "--truth", truth)
    network = "network.width=8" if truth == "boxes" else UNET[0]
    call(work, "plan.py", "--minutes", "1", *SMALL[:-1], network, "max_epochs=5000", "max_steps=40")
    train_until_killed(work)
    printed = call(work, "train.py", "--resume").stdout
    assert "going on from checkpoint" in printed
    rows = list(csv.DictReader((work / "Logout/log.csv").open()))
    assert int(rows[-1]["step"]) == 40, "earlier steps are counted"
    assert float(rows[-1]["lr"]) < 0.2 * max(float(row["lr"]) for row in rows)  # annealed at the end


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_clearly(work: Path) -> None:
    call(work, "example/make_example.py", "--cases", "10")
    call(work, "plan.py", "--minutes", "4", *SMALL, "lr=1e38", "ema=0", "network.width=8", "max_steps=1")
    done = call(work, "train.py", check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the loss is" in done.stdout
    assert not (work / "Logout/metrics.json").exists()


@pytest.mark.slow
def test_out_of_memory_makes_batch_and_patch_smaller_then_ends(work: Path) -> None:
    call(work, "example/make_example.py", "--cases", "10")
    call(work, "plan.py", "--minutes", "4", *SMALL, "network.width=8")
    recipe = work / "recipe.py"
    recipe.write_text(recipe.read_text() + NO_MEMORY)
    done = call(work, "train.py", check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "going on with batch 1" in done.stdout
    assert "going on with a smaller input, [32, 64]" in done.stdout
    assert "even with batch 1" in done.stdout
