"""What a model doubts of its own answers: read from predict.py, shown, and measured on the test cases."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import Measure, Scores
from m3b.models.model_card import format_metrics_section
from m3b.models.predict_process import parse_predictions
from m3b.tasks.score_details import add_uncertainty, add_uncertainty_scores

ANSWER = {"image": "a.png", "probabilities": {"x": 0.6, "y": 0.4}, "prediction": "x"}
DOUBTS = {
    "out_of_distribution": True,
    "why": "it is noise",
    "prediction_set": ["x", "y"],
    "set_level": 0.9,
    "abstains": True,
}


def test_doubts_are_read_and_given_again() -> None:
    [prediction] = parse_predictions([{**ANSWER, **DOUBTS}], ["a.png"], ["x", "y"])
    assert prediction.out_of_distribution is True
    assert prediction.prediction_set == ("x", "y")
    assert {**DOUBTS}.items() <= prediction.to_dict().items()
    assert "OUT OF DISTRIBUTION, it is noise" in repr(prediction)
    [without_doubts] = parse_predictions([ANSWER], ["a.png"], ["x", "y"])
    assert without_doubts.out_of_distribution is None
    assert set(without_doubts.to_dict()) == {"image", "probabilities", "prediction"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"out_of_distribution": "yes"}, "true or false"),
        ({"prediction_set": ["z"], "set_level": 0.9}, "the classes are"),
        ({"prediction_set": "x", "set_level": 0.9}, "the classes are"),
        ({"prediction_set": ["x"], "set_level": 2}, "a share between 0 and 1"),
        ({"prediction_set": ["x"]}, "a share between 0 and 1"),
    ],
)
def test_doubts_that_cannot_be_right(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_predictions([{**ANSWER, **wrong}], ["a.png"], ["x", "y"])


def test_coverage_and_flags_are_measured() -> None:
    answers = parse_predictions([{**ANSWER, **DOUBTS}, {**ANSWER, "out_of_distribution": False, "prediction_set": ["x"],
                             "set_level": 0.9, "abstains": False}] * 2, ["a.png"] * 4, ["x", "y"])  # fmt: skip
    labels = ("x", "y", "x", "x")
    rows = [
        add_uncertainty({}, Record("a.png", (label,)), answer) for label, answer in zip(labels, answers, strict=True)
    ]
    primary = Measure("auroc", 0.9, 0.8, 1.0, 4)
    scores = add_uncertainty_scores(Scores(primary, {"auroc": primary}, ("x", "y"), 4, 4), rows)
    assert scores.details["out_of_distribution"] == {"flagged": 2, "n": 4}
    coverage = scores.details["prediction_sets"]
    assert coverage == {"promised": 0.9, "held": 0.75, "mean_size": 1.5, "abstained": 2, "n": 4}
    card = "\n".join(format_metrics_section(scores.to_dict()))
    assert "2 of 4 test images are flagged" in card
    assert "90% prediction sets hold 75%" in card
