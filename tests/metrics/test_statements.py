"""What everyday sentences of reports state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.tasks.report.findings import OBSERVATIONS, extract_findings
from m3b.training.report.statements import list_stated_parts

EFFUSION, HEART, TUBE = "pleural effusion", "cardiomegaly", "support devices"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No pneumothorax, small left pleural effusion.", {EFFUSION}),
        ("No focal consolidation, mild cardiomegaly.", {HEART}),
        ("No change in the large right pleural effusion.", {EFFUSION}),
        ("No significant interval change in pleural effusion.", {EFFUSION}),
        ("Pneumothorax no longer seen.", set()),
        ("Interval removal of the endotracheal tube.", set()),
        ("Pleural effusion: none.", set()),
        ("History of pneumonia. Lungs are clear.", set()),
        ("No effusion, fracture or mass.", set()),
        ("No consolidation, large effusion, or pneumothorax.", set()),
        ("No consolidation, effusion, pneumothorax.", set()),
        ("No pneumothorax and small bilateral effusions.", {EFFUSION}),
        ("Without effusion or pneumothorax.", set()),
        ("Pneumothorax and effusion are not seen.", set()),
        ("Consolidation, effusion, or pneumothorax is not identified.", set()),
        ("Cardiomegaly without pleural effusion.", {HEART}),
        ("Cardiomegaly is stable, no effusion.", {HEART}),
        ("No fracture. Endotracheal tube in place.", {TUBE}),
        ("The left effusion has resolved.", set()),
        ("Pneumonia cannot be excluded.", {"pneumonia"}),
        ("The lungs are clear of consolidation, but there is cardiomegaly.", {HEART}),
        ("Evaluate for pneumothorax.", set()),
        ("Right chest tube has been removed, small effusion.", {EFFUSION}),
        ("No pneumothorax; moderate cardiomegaly with small effusion.", {HEART, EFFUSION}),
        ("Non-displaced rib fracture.", {"fracture"}),
        ("No increase in size of the nodule.", {"lung lesion"}),
    ],
)
def test_everyday_sentences(text: str, expected: set[str]) -> None:
    assert extract_findings(text, OBSERVATIONS) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Kein Pneumothorax, kleiner Erguss links.", "erguss"),
        ("Sin neumot\u00f3rax, peque\u00f1o derrame pleural.", "derrame"),
        ("Pas de pneumothorax, petit \u00e9panchement.", "\u00e9panchement"),
    ],
)
def test_denials_of_other_languages_end_as_well(text: str, word: str) -> None:
    parts = " ".join(list_stated_parts(text))
    assert word in parts
    assert "neumot" not in parts
    assert "pneumo" not in parts


@given(st.text(alphabet="ab ,.;:noandor", max_size=60))
def test_nothing_is_stated_that_the_text_does_not_hold(text: str) -> None:
    assert all(part in text.lower() for part in list_stated_parts(text) if "absent" not in part)
