"""Words of everyday requests that name no class: sentences, and phrases that say where the labels are."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

from m3b.dataset.proposals.request import parse

CLAUSES = [
    "Tell whether the bone will heal",
    "Can you see if the knee has to be replaced?",
    "Tell whether the implant is loose",
    "Say whether the tumour has grown since the last scan",
]


def write_labels(folder: Path, values: tuple[object, object]) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(40):
        write_picture(folder / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", values[number // 2 % 2]])
    write_rows(folder / "labels.csv", rows)


@pytest.mark.parametrize("request_text", CLAUSES)
def test_a_sentence_is_no_name_of_a_class(tmp_path: Path, request_text: str) -> None:
    write_labels(tmp_path, (0, 1))
    outcome = decide_folder(tmp_path, request_text)
    assert set(outcome.proposals[0].classes) == {"no label", "label"}


@pytest.mark.parametrize(
    ("request_text", "name"),
    [
        ("Tell me if this needs surgery", "surgery"),
        ("Is a biopsy necessary?", "biopsy"),
        ("Say if there is a fracture on the X-ray", "fracture"),
        ("Entscheide, ob operiert werden muss", "operiert"),
    ],
)
def test_the_noun_of_a_sentence_names_the_class(tmp_path: Path, request_text: str, name: str) -> None:
    write_labels(tmp_path, (0, 1))
    outcome = decide_folder(tmp_path, request_text)
    assert set(outcome.proposals[0].classes) == {f"no {name}", name}


@pytest.mark.parametrize(
    "request_text",
    [
        "Classify the scans according to the table",
        "Classify the images by the last column",
        "Sortiere die Bilder so wie in der Tabelle",
        "Classe les images selon le tableau",
        "Clasifica las imágenes según la tabla",
    ],
)
def test_a_request_that_says_where_the_labels_are(tmp_path: Path, request_text: str) -> None:
    write_labels(tmp_path, ("fracture", "normal"))
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed", outcome.question
    assert set(outcome.proposals[0].classes) == {"fracture", "normal"}


@pytest.mark.parametrize(
    "request_text",
    [
        "Say if the patient should be operated",
        "Decide between operating and waiting",
        "Decide whether to operate or to wait",
    ],
)
def test_classes_are_called_as_in_the_folder(tmp_path: Path, request_text: str) -> None:
    write_labels(tmp_path, ("operate", "wait"))
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed", outcome.question
    assert set(outcome.proposals[0].classes) == {"operate", "wait"}


@pytest.mark.parametrize(
    ("names", "is_selected"),
    [(["CA", "FI", "IM"], False), (["tumour", "liver"], True)],
)
def test_a_wider_term_leaves_no_unknown_name_out(names: list[str], *, is_selected: bool) -> None:
    selected = parse("Segment the lesions").select_marked(names)
    assert (len(selected) < len(names)) == is_selected
