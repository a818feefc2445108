"""Images without the tag of those that were looked at are left out, and are no negatives."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture

from m3b.dataset.proposals.restrictions import is_finished_tag

IMAGES = 45


def _write_task(folder: Path, tag: str, *, n_tagged: int, note: str = "") -> None:
    """Write frames of which every third has no box; the first have a tag, and only they have boxes."""
    elements = []
    for number in range(IMAGES):
        name = f"clip{number // 5}_{number % 5}.png"
        write_picture(folder / "frames" / name, number)
        x, y = 2 + number % 9, 3 + number % 7
        box = f'<box label="caries" xtl="{x}" ytl="{y}" xbr="{x + 9}" ybr="{y + 8}" occluded="0"/>'
        content = box if number % 3 and number < n_tagged else ""
        content += f'<tag label="{tag}" source="manual"/>' if tag and number < n_tagged else ""
        elements.append(f'<image id="{number}" name="{name}" width="48" height="40">{content}</image>')
    text = f"<annotations><version>1.1</version>{''.join(elements)}</annotations>"
    (folder / "annotations.xml").write_text(text)
    if note:
        (folder / "LIESMICH.txt").write_text(note, encoding="utf-8")


@pytest.mark.parametrize(
    ("tag", "n_tagged", "note", "cases"),
    [
        ("reviewed", 39, "", 39),
        ("reviewed", 24, "", 24),
        ("ok_a", 33, "Bilder mit ok_a sind fertig.", 33),
        ("ok_a", 33, "Bilder mit ok_a sind unscharf.", IMAGES),
        ("blurred", 33, "", IMAGES),
        ("not_reviewed", 33, "", IMAGES),
        ("reviewed", IMAGES, "", IMAGES),
        ("", IMAGES, "", IMAGES),
    ],
)
def test_images_without_the_tag_are_left_out(tmp_path: Path, tag: str, n_tagged: int, note: str, cases: int) -> None:
    _write_task(tmp_path, tag, n_tagged=n_tagged, note=note)
    outcome = decide_folder(tmp_path, "Detect caries with boxes")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == cases


@pytest.mark.parametrize(
    ("tag", "notes", "is_finished"),
    [
        ("done", "", True),
        ("geprüft", "", True),
        ("todo", "", False),
        ("unfinished", "", False),
        ("set2", "Images of set2 have been checked.", True),
        ("set2", "Images of set2 have not been checked.", False),
        ("set2", "Images of set3 have been checked.", False),
    ],
)
def test_tags_of_images_that_were_looked_at(tag: str, notes: str, *, is_finished: bool) -> None:
    assert is_finished_tag(tag, notes) == is_finished
