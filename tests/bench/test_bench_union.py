"""A set whose score counts any finding alike: truth and answers become one class, whatever classes the model has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.bench.cell_verdict import _iterate_figures
from m3b.bench.datasets import get_dataset
from m3b.bench.exam import merge_answer, merge_index
from m3b.data.index import Index, Record
from m3b.dataset.reading import read_mask
from m3b.models import Prediction
from m3b.tasks import get_family


def picture(file: Path, array: np.ndarray) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.astype(np.uint8)).save(file)
    return str(file)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    mask = np.zeros((16, 16))
    mask[2:6, 2:6], mask[8:12, 8:12] = 3, 7
    records = []
    for name in ("a", "b"):
        picture(tmp_path / "hidden" / "images" / f"{name}.png", np.full((16, 16), 90))
        picture(tmp_path / "hidden" / "masks" / f"{name}.png", mask if name == "a" else 0 * mask)
        records.append(Record(f"hidden/images/{name}.png", (), name, mask=f"hidden/masks/{name}.png"))
    return Index(tuple(records[:1]), tuple(records), ("x", "y"), "detection", {"x": 3, "y": 7})


def test_any_finding_counts(index: Index, tmp_path: Path) -> None:
    merged_index = merge_index(index, "abnormality", tmp_path)
    assert merged_index.classes == ("abnormality",)
    assert np.unique(read_mask(str(merged_index.test[0].mask), str(tmp_path)).array).tolist() == [0, 1]
    assert merge_index(index, "abnormality", tmp_path) == merged_index, "files are made once"
    nodule_mask, mass_mask = np.zeros((16, 16)), np.zeros((16, 16))
    nodule_mask[2:6, 2:6], mass_mask[8:12, 8:12] = 1, 1
    files = {
        "nodule": Path(picture(tmp_path / "m" / "1.png", nodule_mask)),
        "mass": Path(picture(tmp_path / "m" / "2.png", mass_mask)),
    }
    answer = Prediction(image="a", masks=files, anomaly_score=1.0)
    merged = merge_answer(answer, "abnormality", merged_index.test[0], tmp_path, tmp_path)
    row = get_family("detection").measure(merged_index.test[0], merged, merged_index, tmp_path)
    scores = get_family("detection").score([row], merged_index, primary="dice")
    assert scores.to_dict()["primary"]["value"] == pytest.approx(1.0)


def test_the_card_says_so() -> None:
    spec = get_dataset("ChestX-Det10")
    assert spec.merged_class == "abnormality"
    assert not any(get_dataset(name).merged_class for name in ("BTCV", "COVID19", "MSD-Pancreas"))


def test_validation_figures_are_no_claim() -> None:
    reported_metrics = {"validation": {"bleu_1": 0.9}, "train_bleu_1": 0.99, "fold0": {"bleu_1": 0.95}, "epochs": 3}
    assert list(_iterate_figures(reported_metrics, "bleu_1")) == []
    assert list(_iterate_figures({**reported_metrics, "test": {"bleu_1": 0.8}, "bleu_1": 0.7}, "bleu_1")) == [0.8, 0.7]
