"""What requests in five languages claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3b.dataset.words import parse_request

PHRASINGS = json.loads((Path(__file__).parent / "phrasings.json").read_text(encoding="utf-8"))
"""Requests, each with its first task, its targets and some further claims, under the names of `RequestClaims`."""


@pytest.mark.parametrize("phrasing", PHRASINGS, ids=[entry["request"][:40] for entry in PHRASINGS])
def test_phrasings(phrasing):
    claims = parse_request(phrasing["request"])
    assert (claims.tasks or ("",))[0] == phrasing["task"]
    for name in set(phrasing) - {"request", "task"}:
        value = getattr(claims, name)
        assert (list(value) if isinstance(value, tuple) else value) == phrasing[name], name


def test_there_are_at_least_sixty_phrasings():
    assert len(PHRASINGS) >= 60


@pytest.mark.parametrize(
    "text", ["", " ", "?", "42", "tell me a joke", "a" * 5000, "and and and", "(((", "分", "1-2-3 vs. vs."]
)
def test_any_text_is_parsed(text):
    assert parse_request(text).text == text


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("Find what is wrong on chest X-rays", True),
        ("Classify chest X-rays by all findings", True),
        ("Detect abnormalities on chest X-rays", True),
        ("Detect pneumonia on chest X-rays", False),
        ("Segment lesions on CT", False),
        ("Segment the annotated structures in dental radiographs", True),
        ("Segmentar las estructuras anotadas en radiografías", True),
        ("Segmenter les structures annotées sur des radiographies", True),
        ("Segmentiere alles, was markiert ist", True),
        ("Segmenter tout ce qui est annoté", True),
        ("Detectar los hallazgos marcados", True),
        ("检测标注的病灶", True),
        ("Segment the marked tumours", False),
        ("Segment the labelled nuclei", False),
    ],
)
def test_open_requests_want_all_findings(text: str, *, is_open: bool) -> None:
    assert parse_request(text).wants_all == is_open


@pytest.mark.parametrize(
    ("text", "targets", "classes", "n_classes", "wants_all"),
    [
        (
            "Segment the abdominal organs on contrast-enhanced CT: thirteen organs such as liver, spleen, kidneys and pancreas.",
            ("abdominal organs",), (), 13, True,
        ),
        ("Segment the organs of the abdomen (liver, spleen and so on) on CT", ("organs of the abdomen",), (), None, True),
        ("Segmenter les organes de l'abdomen (foie, rate et les autres) sur des scanners", ("organes de l'abdomen",), (), None, True),
        ("Localise abnormal findings on chest X-rays: effusion, nodules and the like.", ("abnormal findings",), (), None, True),
        ("Detect cells, e.g. lymphocytes, in blood smears", ("cells",), (), None, True),
        ("Segment the regions of the brain on MRI", ("regions of the brain",), (), None, True),
        ("Sort dermoscopy pictures into melanoma, nevus and other", None, ("melanoma", "nevus", "other"), 3, False),
        ("Classify the ligament on knee MRI as intact or torn", ("ligament",), ("intact", "torn"), 2, False),
        ("Segment the liver and the spleen on CT", None, ("liver", "spleen"), 2, False),
    ],
)  # fmt: skip
def test_examples_are_not_the_whole_list(
    text: str, targets: tuple[str, ...] | None, classes: tuple[str, ...], n_classes: int | None, *, wants_all: bool
) -> None:
    claims = parse_request(text)
    assert targets is None or claims.targets == targets
    assert (claims.classes, claims.n_classes, claims.wants_all) == (classes, n_classes, wants_all)


@pytest.mark.parametrize(
    ("text", "targets", "task"),
    [
        ("Detect and outline haemorrhage on head CT without contrast.", ("haemorrhage",), "segmentation"),
        ("Segment the liver on portal venous CT", ("liver",), "segmentation"),
        ("Segmentiere die Leber im CT mit Kontrastmittel", ("Leber",), "segmentation"),
        ("A model that segments and labels every visible vertebra on spine CT", ("vertebra",), "segmentation"),
        ("Find lung infection, together with the lungs, on chest CT and outline them", ("lung infection", "lungs"), "segmentation"),
        ("Find tumours on CT and outline them, together with the pancreas.", ("tumours", "pancreas"), "segmentation"),
    ],
)  # fmt: skip
def test_how_images_were_made_and_joined_wishes_are_no_targets(text: str, targets: tuple[str, ...], task: str) -> None:
    claims = parse_request(text)
    assert (claims.targets, claims.tasks[0], claims.second_half) == (targets, task, "")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("Segmenter foie, rate et rein sur les images de scanner (abdomen)", ("foie", "rate", "rein")),
        ("Predecir: edad, a partir de imágenes de fotografía de fondo de ojo (retina)", ("edad",)),
        ("用边界框检测视网膜眼底照片上的出血和渗出物", ("出血", "渗出物")),
    ],
)
def test_words_that_look_like_others_are_targets(text: str, targets: tuple[str, ...]) -> None:
    assert parse_request(text).targets == targets


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Predict the subcellular location in microscopy, using all four stains.", "subcellular location"),
        ("Segment the tumour with all 4 MRI sequences", "tumour"),
        ("Segmentiere den Tumor auf MRT unter Verwendung aller vier Sequenzen", "Tumor"),
        ("Segmenta el tumor usando las cuatro secuencias", "tumor"),
        ("Segmente la tumeur en utilisant toutes les séquences", "tumeur"),
    ],
)
def test_channels_of_the_images_are_no_target(text: str, target: str) -> None:
    assert parse_request(text).targets == (target,)
