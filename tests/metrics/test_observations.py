"""The words of the usual observations, on sentences as reports have them."""

from __future__ import annotations

import pytest

from m3b.data.index import Index
from m3b.tasks import get_family
from m3b.tasks.report.findings import (
    OBSERVATIONS,
    build_finding_phrases,
    extract_findings,
    finding_synonyms,
    frequent_observations,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The heart is enlarged. No pleural fluid.", {"cardiomegaly"}),
        ("Blunting of the costophrenic angles; median sternotomy wires.", {"pleural effusion", "support devices"}),
        ("Mild pulmonary vascular congestion without pneumothorax.", {"edema"}),
        ("Calcified granuloma in the left apex.", {"granuloma"}),
        ("No acute cardiopulmonary process.", set()),
        ("Lungs are hyperexpanded. There is spondylosis.", {"emphysema", "degenerative change"}),
    ],
)
def test_sentences(text: str, expected: set[str]) -> None:
    assert extract_findings(text, OBSERVATIONS) == expected


def test_names_of_data_sets_get_the_words_of_their_observation() -> None:
    phrases = build_finding_phrases(["Effusion/Pleural_Thickening", "Cardiomegaly", "Nodule", "spleen rupture", "__"])
    assert "hydrothorax" in phrases["Effusion/Pleural_Thickening"]
    assert "pleural plaque*" in phrases["Effusion/Pleural_Thickening"]
    assert "enlarged heart" in phrases["Cardiomegaly"]
    assert phrases["spleen rupture"] == ("spleen rupture",)
    assert "__" not in phrases
    assert "mass" not in phrases["Nodule"]  # a mass is none
    assert finding_synonyms("Mass")
    assert "nodule*" not in finding_synonyms("Mass")


def test_an_observation_counts_that_enough_reports_state() -> None:
    texts = ["Small effusion."] * 3 + ["No effusion. Pneumonia."] * 2 + ["Normal."] * 45
    assert set(frequent_observations(texts)) == {"pleural effusion"}
    assert frequent_observations([]) == {}


def test_reports_without_named_findings_have_a_label_f1() -> None:
    family = get_family("report")
    rows = [
        {"image": f"{k}.png", "patient": str(k), "reference": reference, "prediction": prediction}
        for k, (reference, prediction) in enumerate(
            [("Small effusion.", "Hydrothorax."), ("Effusion on the left.", "Normal."), ("Large effusions.", "An effusion."),
             ("Normal heart.", "Normal heart.")]
        )
    ]  # fmt: skip
    scores = family.score(rows, Index((), (), ()), primary="bleu_1")
    assert scores.metrics["label_f1"].value == pytest.approx(0.8)  # 2 found of 3, none invented
