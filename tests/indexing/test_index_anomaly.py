"""build_index.py on folders of anomaly sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.index import read_index
from m3b.dataset.audit import AuditData, audit_index, get_checks, run_checks


def mask(desk: Any, name: str) -> None:
    file = desk.raw / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(next((desk.raw).rglob("*.png"))) as like:
        array = np.zeros(like.size[::-1], np.uint8)
    array[1:3, 1:3] = 255
    Image.fromarray(array).save(file)


def bmad(desk: Any, top: str, masks: bool) -> None:
    for half in ("valid", "test"):
        for number in range(6):
            inner = "img/" if masks else ""
            desk.image(f"{top}{half}/good/{inner}{number}.png")
            desk.image(f"{top}{half}/Ungood/{inner}{number}.png")
            if masks:
                mask(desk, f"{top}{half}/Ungood/anomaly_mask/{number}.png")


@pytest.mark.parametrize("top", ["", "Brain_AD/", "data/Brain_AD/"])
def test_bmad_with_masks(desk: Any, top: str) -> None:
    bmad(desk, top, masks=True)
    built = desk.build("--anomaly-folders", "data/x")
    assert (len(built.train), len(built.test), built.labels) == (12, 12, ["anomaly"])
    for path, record in built.by_image.items():
        expected = path.replace("/img/", "/anomaly_mask/") if "/Ungood/" in path else None
        assert record["mask_path"] == (expected and {"anomaly": expected})
    assert len({record["patient"] for record in built.all}) == 24
    index = read_index(desk.work, "detection")
    assert (index.masked, index.values) == (True, {"anomaly": 1})


def test_bmad_without_masks(desk: Any) -> None:
    bmad(desk, "", masks=False)
    built = desk.build("--anomaly-folders", "data/x")
    assert all(record["abnormal"] == ("/Ungood/" in path) for path, record in built.by_image.items())
    index = read_index(desk.work, "detection")
    assert index.stated
    assert not [one for one in run_checks(get_checks(), AuditData(index, desk.work)) if one.severity == "fix"]


def test_mvtec_has_normal_images_alone_to_learn_from(desk: Any) -> None:
    for number in range(10):
        desk.image(f"bottle/train/good/{number:03d}.png")
    for kind, count in (("good", 6), ("crack", 5), ("hole", 4)):
        for number in range(count):
            desk.image(f"bottle/test/{kind}/{number:03d}.png")
            if kind != "good":
                mask(desk, f"bottle/ground_truth/{kind}/{number:03d}_mask.png")
    (desk.raw / "bottle/ground_truth/hole/003_mask.png").unlink()
    built = desk.build("--anomaly-folders", "data/x")
    assert "abnormal images without a mask are left out: 1" in built.out
    assert (len(built.train), len(built.test)) == (10, 14)
    assert all(record["mask_path"] is None for record in built.train)
    marked = {path: record["mask_path"] for path, record in built.by_image.items() if record["mask_path"]}
    assert marked["data/x/bottle/test/crack/002.png"] == {"anomaly": "data/x/bottle/ground_truth/crack/002_mask.png"}
    assert len(marked) == 8
    index = read_index(desk.work, "detection")
    findings = audit_index(index, desk.work).findings
    assert "normal_only" in {one.code for one in findings}


def test_folders_that_are_none_say_what_is_looked_for(desk: Any) -> None:
    for number in range(4):
        desk.image(f"train/cats/{number}.png")
    assert "holds no normal images as anomaly sets have them" in desk.fail("--anomaly-folders", "data/x")
