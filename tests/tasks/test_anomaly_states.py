"""Images of which it is only known whether they are abnormal, and anomaly maps: index, audit, measuring."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score

from audit_kit import find_metric_problem, find_without_images
from m3b.data.index import LABELS, TEST, TRAIN, Index, guess_task, read_index, write_records
from m3b.data.records import Record
from m3b.dataset.audit import AuditData
from m3b.errors import DataError, ModelError
from m3b.metrics import judge
from m3b.models import ModelInfo, Prediction, parse_predictions
from m3b.tasks import get_family

DETECTION = get_family("detection")


def states(n: int, ill: int, first: int = 0) -> tuple[Record, ...]:
    return tuple(
        Record(f"data/x/{first + k}.png", patient=f"p{first + k}", extra={"abnormal": k < ill}) for k in range(n)
    )


def test_an_index_of_states_is_written_and_read(tmp_path: Path) -> None:
    write_records(tmp_path / TRAIN, states(6, 0), "detection")
    write_records(tmp_path / TEST, states(4, 2, 6), "detection")
    (tmp_path / LABELS).write_text('{"anomaly": 0}')
    assert json.loads((tmp_path / TEST).read_text())[0]["abnormal"] is True
    index = read_index(tmp_path, guess_task(tmp_path))
    assert (index.task, index.stated, index.masked, index.boxed) == ("detection", True, False, False)
    assert [record.extra["abnormal"] for record in index.test] == [True, True, False, False]
    assert DETECTION.get_default_metric(index) == "image_auroc"


def test_states_and_masks_do_not_go_together(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    both = [
        {"image_path": "a", "patient": "p", "abnormal": True},
        {"image_path": "b", "patient": "q", "mask_path": None},
    ]
    file.write_text(json.dumps(both))
    from m3b.data.index import read_records

    with pytest.raises(DataError, match="use one of them throughout"):
        read_records(file, "detection")
    file.write_text(json.dumps([{**both[0], "abnormal": "yes"}]))
    with pytest.raises(DataError, match='abnormal must be true or false, is "yes"'):
        read_records(file, "detection")
    file.write_text(json.dumps([{**both[0], "boxes": []}]))
    with pytest.raises(DataError, match="has both boxes and abnormal"):
        read_records(file, "detection")


@pytest.mark.parametrize(
    ("train", "test", "code", "weight"),
    [
        (states(30, 0), states(20, 10, 30), "normal_only", "warn"),
        (states(30, 30), states(20, 10, 30), "state_absent_train", "fix"),
        (states(30, 5), states(20, 0, 30), "state_absent_test", "fix"),
        (states(30, 5), states(20, 20, 30), "state_absent_test", "fix"),
    ],
)
def test_the_audit_asks_for_both_states_where_they_are_measured(
    train: tuple[Record, ...], test: tuple[Record, ...], code: str, weight: str
) -> None:
    findings = find_without_images(Index(train, test, ("anomaly",), "detection"))
    assert (code, weight) in {(finding.code, finding.severity) for finding in findings}


def test_an_index_of_states_bears_metrics_of_images_alone() -> None:
    index = Index(states(30, 5), states(20, 10, 30), ("anomaly",), "detection")
    assert not [finding for finding in find_without_images(index) if finding.severity != "warn"]
    assert "image_auroc or image_ap" in find_metric_problem(index, "pixel_auroc")
    assert "image_auroc or image_ap" in find_metric_problem(index, "map_50")
    assert not find_metric_problem(index, "image_ap")
    assert AuditData(index, Path()).count_classes() == {"train": {"anomaly": 5}, "test": {"anomaly": 10}}


def test_states_are_measured_by_the_anomaly_score(tmp_path: Path) -> None:
    index = Index(states(10, 3), states(60, 25, 10), ("anomaly",), "detection")
    rng = np.random.default_rng(0)
    answers = [
        Prediction(r.image, anomaly_score=float(1 / (1 + np.exp(-rng.normal(3 * r.extra["abnormal"])))))
        for r in index.test
    ]
    rows = [DETECTION.measure(r, a, index, tmp_path) for r, a in zip(index.test, answers, strict=True)]
    trivial = DETECTION.predict_baseline(index.train, index.test, index, tmp_path)
    scores = DETECTION.score(
        json.loads(json.dumps(rows)), index, primary="image_auroc", baseline=json.loads(json.dumps(trivial))
    )
    truth = [r.extra["abnormal"] for r in index.test]
    assert scores.primary.value == pytest.approx(roc_auc_score(truth, [a.anomaly_score for a in answers]))
    expected = average_precision_score(truth, [a.anomaly_score for a in answers])
    assert scores.metrics["image_ap"].value == pytest.approx(expected)
    assert scores.primary.baseline == 0.5
    assert set(scores.metrics) == {"image_auroc", "image_ap"}
    assert judge(scores, (0.5, None)).ok
    with pytest.raises(ModelError, match="gives no `anomaly_score`"):
        DETECTION.measure(index.test[0], replace(answers[0], anomaly_score=None), index, tmp_path)


def test_answers_on_altered_copies_are_compared_by_their_scores() -> None:
    rows = [{"image": "a", "patient": "p", "abnormal": True, "anomaly_score": score} for score in (0.9, 0.6)]
    assert DETECTION.answer_distance(rows[0], rows[1]) == pytest.approx(0.3)
    assert DETECTION.mean_answer_change([(rows[0], rows[1])], rows) == pytest.approx(0.3)


def test_maps_are_measured_pixel_by_pixel(tmp_path: Path) -> None:
    rng, records, answers, truth, predicted_levels = np.random.default_rng(1), [], [], [], []
    for number in range(24):
        mask = np.zeros((30, 40), np.uint8)
        if number % 2:
            mask[5:12, 8 + number // 2 : 16 + number // 2] = 1
        levels = np.clip(rng.normal(300.0 + 250.0 * mask, 120), 0, 1000).astype(np.uint16)
        for name, array in (("i", mask * 0), ("m", mask), ("a", levels)):
            Image.fromarray(array).save(tmp_path / f"{name}{number}.png")
        records.append(Record(f"i{number}.png", patient=f"p{number}", mask=f"m{number}.png"))
        answers.append(
            Prediction(
                f"i{number}.png",
                masks={"lesion": tmp_path / f"m{number}.png"},
                anomaly_score=float(levels.max()) / 1000,
                anomaly_map=tmp_path / f"a{number}.png",
            )
        )
        truth.append(mask.ravel())
        predicted_levels.append(levels.ravel())
    index = Index((*records[:12],), (*records[12:],), ("lesion",), "detection", {"lesion": 1})
    rows = [DETECTION.measure(r, a, index, tmp_path) for r, a in zip(index.test, answers[12:], strict=True)]
    trivial = DETECTION.predict_baseline(index.train, index.test, index, tmp_path)
    scores = DETECTION.score(rows, index, primary="pixel_auroc", baseline=trivial)
    expected = roc_auc_score(np.concatenate(truth[12:]), np.concatenate(predicted_levels[12:]))
    assert scores.primary.value == pytest.approx(expected)
    assert scores.primary.baseline is not None
    assert 0.5 < scores.primary.baseline < expected  # the mean shape of the training masks knows roughly where
    assert {"pro", "pixel_ap", "dice", "image_ap"} <= set(scores.metrics)
    wrong = replace(answers[12], anomaly_map=tmp_path / "a0.png")
    Image.fromarray(np.full((30, 40), 2000, np.uint16)).save(tmp_path / "a0.png")
    with pytest.raises(ModelError, match="levels from 2000 to 2000; they are 0 to 1000"):
        DETECTION.measure(index.test[0], wrong, index, tmp_path)


def test_answers_may_be_a_score_alone_and_name_a_map(tmp_path: Path) -> None:
    promise = ModelInfo("detection", ("anomaly",), True)
    (answer,) = parse_predictions([{"image": "a.png", "anomaly_score": 0.25}], ["a.png"], promise)
    assert (answer.anomaly_score, answer.boxes, answer.anomaly_map) == (0.25, None, None)
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "a.png").write_bytes(b"x")
    item = {"image": "a.png", "anomaly_score": 0.25, "anomaly_map": "masks/a.png"}
    (answer,) = parse_predictions([item], ["a.png"], promise, folder=tmp_path)
    assert answer.anomaly_map == tmp_path / "masks" / "a.png"
    assert answer.to_dict()["anomaly_map"].endswith("a.png")
    with pytest.raises(ModelError, match="is not a file below the folder"):
        parse_predictions([{**item, "anomaly_map": "../a.png"}], ["a.png"], promise, folder=tmp_path)
    with pytest.raises(ModelError, match="neither `masks` nor `boxes` nor `anomaly_score`"):
        parse_predictions([{"image": "a.png"}], ["a.png"], promise)
