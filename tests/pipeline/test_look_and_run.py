"""`m3b look` and a run by rules read every folder alike: the same task, reading and index, or the same question."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import target_kit
from look_kit import compare
from PIL import Image
from wrong_kit import WRONG, polyps

from m3b.bench.datasets import DATASET_NAMES, get_dataset
from m3b.bench.tasks import load_tasks

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "layout_kits"))
import layout_kit
from all_layouts import LAYOUTS

Make = Callable[[Path], str]
"""Makes a folder and returns the request for it."""


def plain_coco(root: Path, boxes: int = 3) -> str:
    """Pictures with boxes of one category, and no word that a request has."""
    rng = np.random.default_rng(3)
    images, marks = [], []
    for at in range(30):
        name = f"p{at:04d}.png"
        (root / "images").mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (128, 128), dtype=np.uint8)).save(root / "images" / name)
        images.append({"id": at, "file_name": name, "width": 128, "height": 128})
        for _ in range(boxes):
            x, y, width, height = (int(value) for value in rng.integers(5, 40, 4))
            box = [x, y, width, height]
            marks.append({"id": len(marks), "image_id": at, "category_id": 1, "bbox": box})
    document = {"images": images, "annotations": marks, "categories": [{"id": 1, "name": "cell"}]}
    (root / "annotations.json").write_text(json.dumps(document))
    return "Detect cells"


def many_boxes(root: Path) -> str:
    return plain_coco(root, boxes=300)


def lettered_types(root: Path) -> str:
    """Fifteen class folders whose files are numbered alike."""
    rng = np.random.default_rng(4)
    for letter in range(15):
        for at in range(20):
            file = root / f"type_{chr(97 + letter)}" / f"p{at:04d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(file)
    return "Classify the tissue into its 15 types"


def two_readers(root: Path) -> str:
    """Two columns with the same classes, of which the request means neither more than the other."""
    rng = np.random.default_rng(5)
    rows = ["image,patient,reader_a,reader_b"]
    for at in range(40):
        target_kit.picture(root / "images" / f"c{at:02d}.png", rng.integers(0, 255, (24, 24), dtype=np.uint8))
        first, second = (("benign", "malignant")[number % 2] for number in (at // 2, at // 3))
        rows.append(f"c{at:02d}.png,P{at // 2},{first},{second}")
    (root / "reads.csv").write_text("\n".join(rows))
    return "Tell benign from malignant lesions on mammograms"


def of_layout(layout: layout_kit.Layout) -> Make:
    def make(root: Path) -> str:
        root.mkdir(parents=True)
        want = layout.make(root, layout_kit.Names(), random.Random(layout.name))
        if want.notes:
            (root / "README.md").write_text(want.notes, encoding="utf-8")
        return want.request

    return make


def of_stand_in(name: str, layout: str) -> Make:
    def make(root: Path) -> str:
        spec = get_dataset(name)
        spec.make(root, patients=max(spec.stand_in.min_patients, min(20, spec.stand_in.patients)), layout=layout)
        (root / "card.json").unlink(missing_ok=True)
        return next(task.request for task in load_tasks() if task.dataset == name)

    return make


def of_target(make: Callable[[Path], Path], request: str) -> Make:
    def make_dataset(root: Path) -> str:
        make(root)
        return request

    return make_dataset


def polyp_masks(root: Path) -> str:
    polyps(root)
    return "Find polyps in endoscopy images"


TARGETS = {
    "voc": of_target(target_kit.voc, "Find round and square cells in blood smears, with boxes"),
    "boxed_volumes": of_target(target_kit.boxed_volumes, "Put boxes around the round and square inserts of MRI phantoms"),
    "outlined": of_target(target_kit.outlined, "Segment the nuclei on microscopy slides"),
    "decathlon": of_target(target_kit.decathlon, "Segment the round and square inserts on MRI"),
    "sequences": of_target(target_kit.sequences, "Segment the round and square inserts on FLAIR and T1 MRI"),
    "polygons": of_target(target_kit.polygons, "Segment round and square cells on microscopy images"),
    "nested": of_target(target_kit.nested, "Segment the tumor and its core on brain MRI slices"),
    "lesions": of_target(target_kit.lesions, "Detect lesions on brain MRI"),
    "several_labels": of_target(target_kit.several_labels, "Classify round and square shadows on chest X-rays"),
    "dicom_series": of_target(target_kit.dicom_series, "Tell bleeding from clear on head CT"),
    "brightened": of_target(target_kit.brightened, "Predict the bone density in g on wrist X-rays"),
    "aged": of_target(target_kit.aged, "Tell healthy from ill on chest films, using age and sex"),
    "followed": of_target(target_kit.followed, "Predict the overall survival on chest CT slices"),
    "two_views": of_target(target_kit.two_views, "Tell healthy from ill on chest films, from both views"),
    "reports": of_target(target_kit.reports, "Write the report of a chest X-ray"),
}  # fmt: skip
STAND_INS = {
    f"{name}-{layout}": of_stand_in(name, layout) for name in DATASET_NAMES for layout in get_dataset(name).layouts
}
DECLINED = {"other_data": "undecided", "wrong_modality": "no_dataset"}
"""Folders whose words contradict the request, and how a run ends: the first may be meant, the second cannot be."""
EARLY = ("empty", "unreadable", "no_permission", "dicom_without_pixels", "broken_tiff", "texts_only")
"""Folders that no survey gets through: `test_pipeline_wrong_input` says what becomes of them."""
EVERY: dict[str, Make] = {
    **{name: of_layout(layout) for name, layout in LAYOUTS.items()},
    **{f"target-{name}": make for name, make in TARGETS.items()},
    **{f"stand_in-{name}": make for name, make in STAND_INS.items()},
    **{f"wrong-{name}": make for name, make in WRONG.items() if name not in (*DECLINED, *EARLY)},
}
READ = {"plain_coco": plain_coco, "many_boxes": many_boxes, "lettered_types": lettered_types, "polyps": polyp_masks,
        "hidden_test": EVERY["hidden_test"]}  # fmt: skip
FAST = ("plain_coco", "lettered_types", "hidden_test", "two_readers")
AMBIGUOUS = {"two_readers": two_readers, "class_not_there": WRONG["class_not_there"]}


def shortened(names: Iterable[str]) -> list[object]:
    """The names, all but a few of them for slow tests."""
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", shortened(READ))
def test_a_run_takes_the_reading_that_look_shows(tmp_path: Path, name: str) -> None:
    request = READ[name](tmp_path / "data")
    comparison = compare(tmp_path / "data", request, tmp_path)
    assert (comparison.difference(), comparison.preview.insufficient) == ("", "")
    assert comparison.is_accepted
    assert comparison.origin == "proposed"


@pytest.mark.parametrize("name", shortened(AMBIGUOUS))
def test_what_look_asks_ends_a_run_with_the_same_question(tmp_path: Path, name: str) -> None:
    request = AMBIGUOUS[name](tmp_path / "data")
    comparison = compare(tmp_path / "data", request, tmp_path)
    assert comparison.difference() == ""
    assert comparison.preview.insufficient
    assert comparison.result.status == "undecided"
    assert comparison.preview.insufficient in comparison.result.reason


@pytest.mark.parametrize("name", shortened(DECLINED))
def test_a_contradiction_is_declined(tmp_path: Path, name: str) -> None:
    request = WRONG[name](tmp_path / "data")
    comparison = compare(tmp_path / "data", request, tmp_path)
    assert comparison.result.status == DECLINED[name]
    assert not comparison.is_accepted


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_layout_is_read_alike(tmp_path: Path, name: str) -> None:
    request = EVERY[name](tmp_path / "data")
    assert compare(tmp_path / "data", request, tmp_path).difference() == ""
