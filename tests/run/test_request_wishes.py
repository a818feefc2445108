"""Wishes in a request that a setting serves."""

from __future__ import annotations

import pytest

from m3b.run.request_wishes import drop_unserved_wishes, parse_wishes
from m3b.run.training_overrides import TrainingOverrides


@pytest.mark.parametrize(
    ("request_text", "task", "values"),
    [
        ("Tell opacity from clear, use ResNet50 for 100 epochs, report accuracy", "",
         {"network": "resnet50", "epochs": 100, "metric": "accuracy"}),
        ("Segment polyps with a U-Net and 5-fold cross-validation on the CPU", "segmentation",
         {"network": "unet", "folds": 5, "device": "cpu"}),
        ("five folds, SegResNet; minimise HD95", "segmentation", {"folds": 5, "network": "segresnet", "metric": "hd95"}),
        ("a DenseNet-121 judged by the AUC after 1,500 training steps", "",
         {"network": "densenet121", "metric": "AUC", "steps": 1500}),
        ("efficientnet b3, F1 score as the metric", "diagnosis", {"network": "efficientnet-b3", "metric": "F1 score"}),
        ("Grade arthritis in 5 levels from a probability map", "", {}),
        ("Estimate accuracy of contours in 3 steps", "", {}),
        ("Predict bone age from hand X-rays", "", {}),
        ("Write a report with precision", "report", {}),
        ("Tell a resnet500 phantom from a patient", "", {}),
        ("Find a 5-fold increase of the volume", "", {}),
    ],
)  # fmt: skip
def test_wishes(request_text: str, task: str, values: dict[str, object]) -> None:
    assert parse_wishes(request_text, task).overrides.to_json() == values


@pytest.mark.parametrize(
    ("request_text", "minutes"),
    [
        ("Segment polyps, train for 20 minutes", 20.0),
        ("Segment polyps with two hours of training", 120.0),
        ("Classify images that were taken 10 minutes apart", None),
    ],
)
def test_minutes(request_text: str, minutes: float | None) -> None:
    assert parse_wishes(request_text).train_minutes == minutes


def test_a_wish_that_the_task_cannot_serve_is_named_and_dropped() -> None:
    wishes = parse_wishes("Segment polyps with ResNet50 for 9 epochs", "segmentation")
    assert wishes.overrides.to_json() == {"epochs": 9}
    assert len(wishes.unserved) == 1
    later, sentences = drop_unserved_wishes(
        TrainingOverrides(network="resnet50", folds=2, from_request=("network", "folds")), "segmentation"
    )
    assert (later.network, later.folds, later.from_request) == (None, 2, ("folds",))
    assert len(sentences) == 1
