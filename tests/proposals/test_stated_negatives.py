"""Notes that say what an image without a file of marks is: it shows nothing, or nobody has looked at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_mask, write_picture

from m3b.dataset.proposals.restrictions import find_meaning_of_no_marks


@pytest.mark.parametrize(
    ("note", "is_negative"),
    [
        ("No mask file = structure not present in this image.", True),
        ("no label file means no finding", True),
        ("Images without polyps have no mask.", True),
        ("Keine Maske = nicht vorhanden", True),
        ("Pas de masque : lésion absente", True),
        ("Sin máscara = sin lesión", True),
        ("无标注文件表示无病灶", True),
        ("No mask file = not yet annotated", False),
        ("No mask file: no consent", False),
        ("There are no masks for the test images.", False),
        ("Images without a mask are excluded", False),
        ("Files without labels: 12, none of them usable", False),
    ],
)
def test_meaning_of_an_image_without_marks(note: str, *, is_negative: bool) -> None:
    assert bool(find_meaning_of_no_marks(note, ("polyps",))) == is_negative


@pytest.mark.parametrize(
    ("note", "n_other", "cases"),
    [
        ("No mask = no polyp.", 0, 40),
        ("Some images have not been drawn yet.", 0, 30),
        ("", 0, 30),
        ("No mask = no polyp.", 8, 30),
    ],
)
def test_images_without_a_mask_are_cases_if_the_notes_say_what_they_are(
    tmp_path: Path, note: str, n_other: int, cases: int
) -> None:
    for number in range(40):
        write_picture(tmp_path / "images" / f"frame{number:02d}.png", number)
        if number < 30:
            write_mask(tmp_path / "masks" / f"frame{number:02d}.png", number)
    for number in range(n_other):  # masks of images that are not here: names may not meet
        write_mask(tmp_path / "masks" / f"frame{60 + number}.png", number)
    (tmp_path / "README.txt").write_text(f"Colonoscopy frames.\n{note}\n", "utf-8")
    outcome = decide_folder(tmp_path, "Segment polyps in colonoscopy frames")
    assert outcome.proposals[0].cases == cases


def test_masks_of_structures_that_nobody_asks_for_belong_to_images(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / "images" / f"F{number:02d}.png", number)
        for place, (name, is_there) in enumerate((("HE", number % 10), ("EX", number % 10 > 1), ("OD", True))):
            if is_there:
                path = tmp_path / "masks" / name / f"F{number:02d}_{name}.png"
                write_mask(path, number + 100 * place, shift=11 * place)
    (tmp_path / "README.txt").write_text("HE haemorrhages, EX exudates, OD optic disc.")
    outcome = decide_folder(tmp_path, "Segment haemorrhages and exudates on fundus photographs")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 36
