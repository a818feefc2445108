"""`benchmarks/medmnist.py`: the figures of MedMNIST's evaluator, on the archive's own labels and test part."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "medmnist.py"
IMAGES = 40


@pytest.fixture(scope="module")
def medmnist() -> Any:
    spec = importlib.util.spec_from_file_location("medmnist_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["medmnist_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def write_archive(folder: Path, labels: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "retinamnist_64.npz"
    np.savez(archive, train_labels=labels, test_labels=labels)
    return archive


def make_rows(truth: Any, probabilities: Any, names: list[str]) -> list[dict[str, Any]]:
    """Return the rows of a run, in another order than the archive and with its columns in another order."""
    order = np.random.default_rng(1).permutation(len(truth))
    return [
        {
            "image": f"data/set/retinamnist_64.npz#test_images[{number}]",
            "labels": [name for name, applies in zip(names, truth[number], strict=True) if applies],
            "probabilities": dict(reversed(list(zip(names, probabilities[number].tolist(), strict=True)))),
        }
        for number in order
    ]


def compute_values(medmnist: Any, part: Any) -> tuple[float, float]:
    figures = medmnist.compute_intervals(part)
    return figures["auroc"][0], figures["accuracy"][0]


def test_the_auroc_is_that_of_scikit_learn(medmnist: Any) -> None:
    random = np.random.default_rng(3)
    truth = np.eye(3, dtype=bool)[random.integers(0, 3, IMAGES)]
    probabilities = random.dirichlet(np.ones(3), IMAGES) + 0.2 * truth
    expected = roc_auc_score(truth.argmax(axis=1), probabilities / probabilities.sum(1)[:, None], multi_class="ovr")
    part = medmnist.TestPart(truth, probabilities / probabilities.sum(1)[:, None], False)
    assert compute_values(medmnist, part)[0] == pytest.approx(expected)


def test_a_perfect_ranking_with_a_poor_threshold(medmnist: Any, tmp_path: Path) -> None:
    labels = np.arange(IMAGES).reshape(-1, 1) % 2
    truth, is_multi_label = medmnist.read_truth(write_archive(tmp_path, labels))
    assert not is_multi_label
    disease = np.where(labels[:, 0] == 1, 0.4, 0.1)
    rows = make_rows(truth, np.stack([1 - disease, disease], axis=1), ["healthy", "ill"])
    part = medmnist.align_predictions(rows, truth, is_multi_label)
    figures = medmnist.compute_intervals(part)
    assert figures["auroc"] == (1.0, 1.0, 1.0)
    value, low, high = figures["accuracy"]
    assert value == 0.5
    assert 0.3 < low < 0.5 < high < 0.7


def test_three_classes_and_several_findings(medmnist: Any, tmp_path: Path) -> None:
    labels = np.arange(IMAGES).reshape(-1, 1) % 3
    truth, is_multi_label = medmnist.read_truth(write_archive(tmp_path / "three", labels))
    part = medmnist.align_predictions(make_rows(truth, truth * 0.8 + 0.1, ["a", "b", "c"]), truth, is_multi_label)
    assert compute_values(medmnist, part) == pytest.approx((1.0, 1.0))
    findings = np.random.default_rng(0).integers(0, 2, (IMAGES, 4))
    truth, is_multi_label = medmnist.read_truth(write_archive(tmp_path / "four", findings))
    assert is_multi_label
    probabilities = np.where(truth, 0.9, 0.2)
    probabilities[:, 3] = 1 - probabilities[:, 3]
    part = medmnist.align_predictions(make_rows(truth, probabilities, list("abcd")), truth, is_multi_label)
    assert compute_values(medmnist, part) == pytest.approx((0.75, 0.75))


@pytest.mark.parametrize("fault", ["missing image", "training image", "other labels"])
def test_another_test_part_or_reading_is_refused(medmnist: Any, tmp_path: Path, fault: str) -> None:
    truth, is_multi_label = medmnist.read_truth(write_archive(tmp_path, np.arange(IMAGES) % 2))
    rows = make_rows(truth, np.full(truth.shape, 0.5), ["healthy", "ill"])
    if fault == "missing image":
        rows.pop()
    elif fault == "training image":
        rows[0]["image"] = rows[0]["image"].replace("test", "train")
    else:
        rows[0]["labels"] = rows[1]["labels"] = ["ill"] if rows[0]["labels"] != ["ill"] else ["healthy"]
    with pytest.raises(ValueError, match=r"the run tested|no class of the run"):
        medmnist.align_predictions(rows, truth, is_multi_label)


def test_archives_are_found_by_name_in_any_size(medmnist: Any, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "deep", np.arange(IMAGES) % 2)
    np.savez(tmp_path / "other.npz", test_labels=np.zeros(3))
    assert list(medmnist.find_archives(tmp_path, ["retinamnist"])) == [("retinamnist", archive)]


def test_every_set_has_a_request_and_sourced_figures(medmnist: Any) -> None:
    published = json.loads(medmnist.PUBLISHED.read_text())
    assert len(published["sets"]) == 18
    for entry in published["sets"].values():
        assert entry["request"]
        for row in entry["published"]:
            assert row["source"] in published["sources"]
            assert 0.5 < row["auroc"] < 1
