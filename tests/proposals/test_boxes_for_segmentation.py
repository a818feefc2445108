"""A segmentation of a folder with boxes and no outlines learns from the boxes, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_picture


def _write_folder(folder: Path, *, with_outlines: bool = False, with_masks: bool = False) -> None:
    images, annotations = [], []
    for number in range(24):
        name = f"frame{number:02d}.png"
        write_picture(folder / "frames" / name, number)
        images.append({"id": number, "file_name": name, "width": 48, "height": 40})
        x, y = 4 + number % 9, 5 + number % 7
        outline = [[x, y, x + 9, y, x + 9, y + 8]]
        annotation = {"id": number, "image_id": number, "category_id": 1, "bbox": [x, y, 9, 8]}
        annotations.append(annotation | ({"segmentation": outline} if with_outlines else {}))
        if with_masks:
            mask = np.zeros((40, 48), np.uint8)
            mask[y : y + 8, x : x + 9] = 255
            (folder / "masks").mkdir(exist_ok=True)
            Image.fromarray(mask).save(folder / "masks" / name)
    coco = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "polyp"}]}
    (folder / "annotations.json").write_text(json.dumps(coco))


@pytest.mark.parametrize(
    ("request_text", "outlines", "masks", "part"),
    [
        ("Segment the polyps", False, False, "boxes"),
        ("Segment the polyps", True, False, "masks"),
        ("Segment the polyps", False, True, "masks"),
        ("Detect polyps with boxes", False, False, "boxes"),
    ],
)
def test_boxes_are_masks_if_there_is_nothing_better(
    tmp_path: Path, request_text: str, outlines: bool, masks: bool, part: str
) -> None:
    _write_folder(tmp_path, with_outlines=outlines, with_masks=masks)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    proposal = outcome.proposals[0]
    assert getattr(proposal.manifest, part) is not None
    is_weak = proposal.manifest.task == "segmentation" and part == "boxes"
    assert any("no Dice of outlines" in item.message for item in outcome.assumptions) == is_weak
    assert (proposal.manifest.task == "segmentation") == request_text.startswith("Segment")
