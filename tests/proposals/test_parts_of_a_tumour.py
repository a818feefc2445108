"""A tumour or organs of a region are asked for, and masks have a class for each part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_mask, write_picture

from m3b.dataset.proposals.request import parse


@pytest.mark.parametrize(
    ("request_text", "names", "names_none"),
    [
        ("Segment the brain tumour on MRI", ["necrosis", "oedema", "non-enhancing", "enhancing"], False),
        ("Segment the glioma", ["tumor core", "edema"], False),
        ("Segment the brain tumour", ["necrosis", "oedema"], True),
        ("Segment the brain tumour", ["ventricle", "oedema", "enhancing"], True),
        ("Segment the glioma", ["meningioma", "oedema"], True),
        ("Segment the stroke on MRI", ["necrosis", "oedema", "enhancing"], True),
        ("Segmenter les organes de l'abdomen (foie, rate et les autres)", ["spleen", "left kidney", "aorta"], False),
        ("Segment liver tumours on abdominal CT", ["liver", "spleen"], True),
        ("Segment the lung nodules", ["lung"], True),
        ("Segment liver tumours", ["liver", "tumour"], False),
        ("Segment the organs of the abdomen", ["femur", "tibia", "patella"], True),
    ],
)
def test_parts_together_are_the_tumour(request_text: str, names: list[str], *, names_none: bool) -> None:
    assert parse(request_text).names_none_of(names) == names_none


@pytest.mark.parametrize(
    ("names", "kind"), [(("necrosis", "edema", "enhancing"), "proposed"), (("ventricle", "edema", "cyst"), "ask")]
)
def test_all_parts_are_classes(tmp_path: Path, names: tuple[str, str, str], kind: str) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"slice{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"slice{number:02d}.png", number, values=(1, 2, 3))
    (tmp_path / "labels.json").write_text(json.dumps(dict(zip("123", names, strict=True))))
    outcome = decide_folder(tmp_path, "Segment the brain tumour on MRI")
    assert outcome.kind == kind
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert set(masks.classes) == set(names)
