"""The answers of a grading."""

from __future__ import annotations

from m3b.tasks.classification import ClassificationAnswers


class GradingAnswers(ClassificationAnswers):
    """Answers of a grading, the same as those of a diagnosis with one label a case; see `ClassificationAnswers`."""

    usage = (
        'Each prediction is `{"image": ..., "probabilities": {grade: p}, "prediction": grade}`; grades are ordered from low to '
        "high."
    )
    baseline_description = "the better of the training cases' median and commonest grade for every image"
    export_description = "Grading of medical images"
