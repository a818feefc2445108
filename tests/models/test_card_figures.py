"""The model card of each task: figures label by label, what they are compared with, and what few patients are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from m3b.metrics import Box, LabelMetrics
from m3b.models import write_model_card
from m3b.models.model_card import format_metrics_section, sample_size_caveats
from m3b.tasks.detection import DetectionCase, LesionCounts, score_detection
from m3b.tasks.report import ReportCase, score_reports
from m3b.tasks.segmentation import SegmentationCase, score_segmentation


def figures(dice: float) -> LabelMetrics:
    return LabelMetrics(dice, dice, 4.0 * (1 - dice), 100, 100, 60.0)


def segmentation(patients: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    cases = [
        SegmentationCase(f"{n}", f"p{n}", {"liver": figures(rng.uniform(0.8, 0.9)), "sple|en": figures(0.7)})
        for n in range(patients)
    ]
    return score_segmentation(cases, ("liver", "sple|en")).to_dict()


def detection() -> dict[str, Any]:
    cases = [
        DetectionCase(f"{n}", f"p{n}", figures={"lesion": figures(0.5)}, lesions={"lesion": LesionCounts(2, 1, 1, 0)})
        for n in range(12)
    ]
    return score_detection(cases, ("lesion",)).to_dict()


def test_each_label_of_a_segmentation() -> None:
    text = "\n".join(format_metrics_section(segmentation(20), ["hd95"]))
    assert "| label | cases | dice | nsd | hd95 |" in text
    assert "| sple\\|en | 20 | 0.700" in text
    assert "Lower is better for hd95. hd95 is in mm, or pixels" in text
    scores = segmentation(20)
    for unit, words in (("mm", "hd95 is in mm."), ("px", "hd95 is in pixels, as")):
        scores["details"] = {"distance_unit": unit}
        assert words in "\n".join(format_metrics_section(scores))
    assert "marking nothing" in text
    assert "image-blind baseline of masks: nothing marked" in text


def test_lesions_boxes_and_texts_are_counted() -> None:
    text = "\n".join(format_metrics_section(detection()))
    assert "lesion\\_f1" in text
    assert "- lesion: " in text
    boxes = [
        DetectionCase(f"{n}", f"p{n}", predicted=(Box((0, 0, 2, 2), "a", 0.9),), truth=(Box((0, 0, 2, 2), "a"),))
        for n in range(12)
    ]
    assert "map\\_50 | 1.000" in "\n".join(
        format_metrics_section(score_detection(boxes, ("a",), primary="map_50").to_dict())
    )
    texts = [ReportCase(f"{n}", f"p{n}", f"case {n % 3} is clear", f"case {n % 3} is clear") for n in range(12)]
    section = "\n".join(format_metrics_section(score_reports(texts).to_dict()))
    assert "- 3 different texts" in section
    assert "the best report that is the same for every image" in section


@pytest.mark.parametrize(("patients", "share"), [(1, "95%"), (3, "63%"), (9, "28%")])
def test_what_few_patients_are_worth(patients: int, share: str) -> None:
    """The rule of three in its exact form: 0.05 = (1 - rate) ** n."""
    (caveat,) = sample_size_caveats(segmentation(patients), 40)
    assert share in caveat
    assert sample_size_caveats(segmentation(10), 10) == []
    assert "Trained on 2 patients" in sample_size_caveats(segmentation(12), 2)[0]


@pytest.mark.parametrize(
    ("task", "words"), [("segmentation", "volumes_ml"), ("detection", "anomaly_score"), ("report", "impression")]
)
def test_the_card_says_how_to_use_it(tmp_path: Path, task: str, words: str) -> None:
    info = {"task": task, "scores": segmentation(3), "patients": {"train": 2, "test": 3}, "limits": ["Adults only."]}
    card = write_model_card(tmp_path, info).read_text()
    assert words in card
    limits = card[card.index("## Limits") :].splitlines()
    assert limits[2].startswith("- 3 test patients cannot show")
    assert limits[3].startswith("- Trained on 2 patients")
    assert limits[4] == "- Adults only."
