"""The drawn data sets: reproducible, laid out as described, learnable but not trivial."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.data.synthetic import make_chest, make_volumes, radiograph
from m3b.errors import UsageError


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_same_seed_draws_the_same_files(tmp_path: Path) -> None:
    first, second, other_seed = (
        make_chest(tmp_path / n, patients=6, seed=s) for n, s in (("a", 3), ("b", 3), ("c", 4))
    )
    assert contents(first) == contents(second) != contents(other_seed)
    volumes = [
        contents(make_volumes(tmp_path / n, patients=4, side=8, seed=s)) for n, s in (("d", 1), ("e", 1), ("f", 2))
    ]
    assert volumes[0] == volumes[1] != volumes[2]


def test_the_layout_is_the_one_described(tmp_path: Path) -> None:
    folder = make_chest(tmp_path / "chest", patients=30)
    rows = list(csv.DictReader((folder / "cases.csv").open(encoding="utf-8")))
    files = {file.name for file in (folder / "images").glob("*.png")}
    table_images = {row["image"] for row in rows}
    assert list(rows[0]) == ["image", "patient_id", "age", "view", "finding"]
    assert files < table_images
    assert len(table_images - files) == 1, "one row names an image that is absent"
    assert len({row["patient_id"] for row in rows}) == 31
    assert len(rows) > 31, "some patients have two images"
    assert {row["finding"] for row in rows} == {"clear", "opacity"}
    unseen = sorted(file.name for file in (folder / "unseen").iterdir())
    assert len(unseen) == 4
    assert not table_images & set(unseen)
    with Image.open(folder / "images" / sorted(files)[0]) as picture:
        assert (picture.mode, picture.size) == ("L", (128, 128))
    for row in rows:
        assert row["image"].split("_")[1] == row["patient_id"][2:]


def test_the_volumes_are_laid_out_as_class_folders(tmp_path: Path) -> None:
    folder = make_volumes(tmp_path / "balls", patients=6, side=12)
    assert sorted(p.name for p in folder.iterdir()) == ["dataset_description.json", "large", "small"]
    for name in ("large", "small"):
        files = list((folder / name).glob("*.npy"))
        assert len(files) == 3
        assert {np.load(file).shape for file in files} == {(12, 12, 12)}


@pytest.mark.parametrize("make", [make_chest, make_volumes])
def test_a_folder_in_use_is_left_alone(make: object, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="not empty"):
        make(tmp_path)  # type: ignore[operator]
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_the_finding_can_be_learned_but_not_read_off() -> None:
    """Linear discriminant on block means: above chance, far from perfect. A trivial figure, mean grey, tells little."""
    random = np.random.default_rng(7)
    truth = np.array([at % 2 for at in range(700)])
    images = np.stack([radiograph(random, bool(sick)) for sick in truth]).astype(np.float64)
    small = images.reshape(len(images), 16, 8, 16, 8).mean((2, 4)).reshape(len(images), -1)
    small -= small[:400].mean(0)
    train, labels = small[:400], truth[:400]
    spread = train.T @ train / len(train) + 40 * np.eye(small.shape[1])
    direction = np.linalg.solve(spread, train[labels == 1].mean(0) - train[labels == 0].mean(0))
    assert 0.65 < auroc(truth[400:], small[400:] @ direction) < 0.97
    assert auroc(truth, images.mean((1, 2))) < 0.75


def auroc(truth: np.ndarray, score: np.ndarray) -> float:
    sick, well = score[truth == 1], score[truth == 0]
    return float((sick[:, None] > well[None]).mean())
