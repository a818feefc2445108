"""What is given beside the image: held against the model, asked of by the audit, and said by a delivered model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from audit_kit import find_without_images
from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.metrics import judge
from m3b.models.covariate_input import split_covariates
from m3b.models.model_card import write_model_card
from m3b.tasks import get_family
from m3b.tasks.covariate_baseline import predict_classes
from m3b.tasks.regression.family import predict_from_covariates

CLASSES = ("clear", "ill")
RULES: list[dict[str, Any]] = [
    {"name": "age", "kind": "number", "centre": 61.0, "scale": 10.0, "unknown": 0},
    {"name": "sex", "kind": "category", "values": ["F", "M"], "unknown": 2},
]


def records(count: int, strength: float = 1.5, seed: int = 0, unknown: float = 0.1) -> tuple[Record, ...]:
    """Patients who are ill the sooner the older they are; a tenth of the ages is not known."""
    random, cases = np.random.default_rng(seed), []
    for at in range(count):
        age = float(random.normal(60, 12))
        ill = int(random.random() < 1 / (1 + np.exp(-strength * (age - 60) / 12)))
        known_age = None if random.random() < unknown else age
        covariates = {"age": known_age, "sex": "FM"[int(random.integers(2))]}
        cases.append(Record(f"data/x/{seed}-{at}.png", (CLASSES[ill],), f"p{seed}-{at}", covariates=covariates))
    return tuple(cases)


def answered(cases: tuple[Record, ...], ill: Any) -> list[dict[str, Any]]:
    """Rows of a model that gives these probabilities of being ill."""
    return [
        {"image": case.key, "patient": case.patient, "labels": list(case.labels), "decided": [CLASSES[int(p >= 0.5)]],
         "probabilities": {"clear": 1 - float(p), "ill": float(p)}}
        for case, p in zip(cases, ill, strict=True)
    ]  # fmt: skip


def test_the_covariates_alone_are_as_good_as_a_logistic_regression() -> None:
    training, testing = records(400), records(200, seed=1)
    index = Index(training, testing, CLASSES)
    predictions = predict_classes(training, testing, index)
    assert predictions is not None
    truth = [case.labels == ("ill",) for case in testing]

    def inputs(cases: tuple[Record, ...]) -> Any:
        ages = np.array(
            [record.covariates["age"] if record.covariates["age"] is not None else 60.0 for record in cases], float
        )
        men = np.array([record.covariates["sex"] == "M" for record in cases])
        return np.stack([(ages - 60) / 12, men], axis=1)

    model = LogisticRegression().fit(inputs(training), [case.labels == ("ill",) for case in training])
    expected_auroc = roc_auc_score(truth, model.predict_proba(inputs(testing))[:, 1])
    auroc = roc_auc_score(truth, [case["probabilities"]["ill"] for case in predictions])
    assert auroc == pytest.approx(expected_auroc, abs=0.02)
    assert auroc > 0.75
    assert predict_classes((), testing, index) is None


def test_labels_that_are_not_known_teach_the_baseline_nothing() -> None:
    cases, testing = records(300), records(50, seed=1)
    both = [replace(case, labels=(*case.labels, "old")) if case.labels == ("ill",) else case for case in cases]
    unknown = [
        replace(case, labels=tuple({*case.labels} - {"ill"}), extra={"unknown_labels": ["ill"]}) if at >= 200 else case
        for at, case in enumerate(both)
    ]
    index = Index(tuple(unknown), testing, (*CLASSES, "old"))
    mixed_rows, known_rows = (predict_classes(unknown, testing, index), predict_classes(both[:200], testing, index))
    assert mixed_rows is not None
    assert known_rows is not None
    for row, reference in zip(mixed_rows, known_rows, strict=True):
        assert row["probabilities"]["ill"] == pytest.approx(reference["probabilities"]["ill"], abs=0.05)


def test_a_model_that_only_repeats_the_covariates_is_not_better_than_they() -> None:
    training, testing = records(300), records(160, seed=1)
    index, diagnosis = Index(training, testing, CLASSES), get_family("diagnosis")
    trivial = diagnosis.predict_baseline(training, testing, index, Path())
    alone = [case["probabilities"]["ill"] for case in trivial["covariates"]]
    copied = diagnosis.score(answered(testing, alone), index, primary="auroc", baseline=trivial)
    assert copied.primary.baseline == pytest.approx(copied.primary.value)
    assert copied.details["covariates_alone"]["auroc"] == pytest.approx(copied.primary.value)
    assert not judge(copied, None).ok
    truth = np.array([case.labels == ("ill",) for case in testing])
    probabilities = np.clip(0.3 + 0.4 * truth + np.random.default_rng(2).normal(0, 0.15, len(truth)), 0, 1)
    better = diagnosis.score(answered(testing, probabilities), index, primary="auroc", baseline=trivial)
    assert better.primary.gain is not None
    assert better.primary.gain[0] > 0
    assert judge(better, None).ok
    without_baseline = diagnosis.score(answered(testing, alone), index, primary="auroc")
    assert without_baseline.primary.baseline == 0.5


def test_grades_and_numbers_are_held_against_their_covariates_too() -> None:
    random = np.random.default_rng(0)
    ages, slips = random.uniform(0, 1, 120), random.normal(0, 0.15, 120)
    graded = tuple(
        Record(f"data/x/{at}.png", (str(min(int(abs(age + slip) * 3), 2)),), f"p{at}", covariates={"age": age})
        for at, (age, slip) in enumerate(zip(ages, slips, strict=True))
    )
    index, grading = Index(graded[:80], graded[80:], ("0", "1", "2"), "grading"), get_family("grading")
    trivial = grading.predict_baseline(index.train, index.test, index, Path())
    rows = [
        {"image": record.key, "patient": record.patient, "labels": list(record.labels), "decided": list(record.labels),
         "probabilities": {name: float(name in record.labels) for name in index.classes}}
        for record in index.test
    ]  # fmt: skip
    scores = grading.score(rows, index, primary="qwk", baseline=trivial)
    assert 0.6 < (scores.primary.baseline or 0) < 1
    assert len(grading.make_baseline_rows(rows, index, trivial)) == 3 - (trivial["median"] == trivial["commonest"])
    numbers = tuple(
        Record(f"data/x/{at}.png", (), f"p{at}", extra={"value": 10 * age}, covariates={"age": age})
        for at, age in enumerate(ages)
    )
    index, regression = Index(numbers[:80], numbers[80:], ("length (mm)",), "regression"), get_family("regression")
    trivial = regression.predict_baseline(index.train, index.test, index, Path())
    predictions = [
        {"image": r.key, "patient": r.patient, "true": r.extra["value"], "predicted": r.extra["value"] + 1}
        for r in index.test
    ]
    scores = regression.score(predictions, index, primary="mae", baseline=trivial)
    assert scores.primary.baseline is not None
    assert scores.primary.baseline < 0.5, "the age gives the number, the median does not"
    assert not judge(scores, None).ok
    assert predict_from_covariates((), index.test, index) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda at, ill: {"age": 50.0 + 20 * ill + at % 7}, "covariate_tells"),
        (lambda at, ill: {"ward": "oncology" if ill else "surgery"}, "covariate_tells"),
        (lambda at, ill: {"crp": 3.0 + at % 11 if ill else None}, "covariate_tells"),
        (lambda at, ill: {"age": 60.0}, "covariate_constant"),
        (lambda at, ill: {"crp": 3.0 + at % 11 if at % 5 == at % 2 else None}, "covariate_unknown"),
        (lambda at, ill: {"site": "south" if at == 79 else "north" if at % 3 else "west"}, "covariate_new"),
        (lambda at, ill: {"age": 50.0 + at % 17, "sex": "FM"[at // 2 % 2]}, ""),
    ],
)  # fmt: skip
def test_what_the_audit_says(change: Any, code: str) -> None:
    cases = [
        Record(f"data/x/{at}.png", (CLASSES[at % 2],), f"p{at}", covariates=change(at, at % 2)) for at in range(80)
    ]
    findings = find_without_images(Index(tuple(cases[:60]), tuple(cases[60:]), CLASSES))
    assert [finding.code for finding in findings if finding.code.startswith("covariate")] == ([code] if code else [])
    assert all(finding.severity == "warn" for finding in findings if finding.code.startswith("covariate"))


def test_a_number_that_a_covariate_repeats_is_said() -> None:
    cases = tuple(
        Record(
            f"data/x/{at}.png",
            (),
            f"p{at}",
            extra={"value": float(at)},
            covariates={"weeks": at / 4 + at % 2, "sex": "FM"[at % 2]},
        )
        for at in range(60)
    )
    findings = find_without_images(Index(cases[:40], cases[40:], ("length (mm)",), "regression"))
    assert [finding.message for finding in findings if finding.code == "covariate_tells"] == [
        finding.message for finding in findings if "'weeks' alone tells" in finding.message
    ]
    assert any("rank correlation" in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("case", "expected_text"),
    [
        ("a.png", "it has no age; it has no sex"),
        ({"image": "a.png", "age": 3}, "it has no sex"),
        ({"image": "a.png", "age": "old", "sex": "F"}, "age must be a number"),
        ({"image": "a.png", "age": float("nan"), "sex": "F"}, "age must be a number"),
        ({"image": "a.png", "age": 3, "sex": "X"}, "the model knows F, M"),
        ({"image": "a.png", "age": 3, "sex": "F", "crp": 1}, "not given crp"),
    ],
)
def test_a_case_that_is_not_whole_is_refused(case: Any, expected_text: str) -> None:
    with pytest.raises(ModelError, match=expected_text) as error:
        split_covariates(case, RULES, 2)
    assert "case 2" in str(error.value)
    assert "'age': 61.0, 'sex': 'F'" in str(error.value)


def test_a_whole_case_is_taken_apart() -> None:
    assert split_covariates({"image": {"t1": "a"}, "age": None, "sex": "M"}, RULES) == (
        {"t1": "a"},
        {"age": None, "sex": "M"},
    )
    assert split_covariates({"t1": "a"}, []) == ({"t1": "a"}, {})
    assert split_covariates("a.png", RULES, strict=False) == ("a.png", {})


def test_the_card_says_what_is_given(tmp_path: Path) -> None:
    write_model_card(tmp_path, {"task": "diagnosis", "given beside the image": ["age (unknown of 3 cases)", "sex"]})
    text = (tmp_path / "README.md").read_text()
    assert "age (unknown of 3 cases), sex" in text
    assert "predict.py IMAGE... --with age=VALUE sex=VALUE -o" in text
    assert '`{"image": ..., "NAME": value or null}`' in text
