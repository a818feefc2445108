"""The answers of a diagnosis."""

from __future__ import annotations

from m3b.tasks.classification import ClassificationAnswers


class DiagnosisAnswers(ClassificationAnswers):
    """Answers of a diagnosis; see `ClassificationAnswers`."""

    usage = 'Each prediction is `{"image": ..., "probabilities": {class: p}, "prediction": ...}`.'
    export_description = "Classification of medical images"
