"""Pictures of a run: drawn by the reader from the locked index and the kept answers, and kept for a page without data."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.data.index import write_records
from m3b.data.records import BoxLabel, Record
from m3b.isolation.reader.inprocess import InProcessReader
from m3b.models import Prediction
from m3b.models.case_pictures import CasesRequest, draw_cases
from m3b.models.example_images import draw_examples
from m3b.models.image_jobs import ExamplesRequest
from m3b.models.kept_answers import keep_answers
from m3b.models.predictions import DetectedBox
from m3b.report import write_report
from m3b.report.pictures import draw_pictures, load_pictures

GREEN, BLUE = (0, 200, 130), (86, 180, 233)


def make_index(locked: Path, records: list[Record], task: str, labels: dict[str, int]) -> None:
    (locked / "Datapath").mkdir(parents=True, exist_ok=True)
    write_records(locked / "Datapath/train.json", records[:1], task)
    write_records(locked / "Datapath/test.json", records[1:], task)
    (locked / "Datapath/label_dict.json").write_text(json.dumps(labels))


def near(picture: Image.Image, colour: tuple[int, int, int]) -> int:
    """Count the pixels close to a colour; JPEG changes it a little."""
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    return int((np.abs(pixels - colour).max(axis=-1) < 60).sum())


def test_a_volume_is_drawn_in_three_planes_with_truth_and_answer(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    records = []
    for number in range(2):
        volume = random.normal(50, 5, (40, 30, 8)).astype(np.float32)
        mask = np.zeros((40, 30, 8), np.uint8)
        mask[10:25, 8:20, 2:6] = 1
        for name, array in (("image", volume), ("mask", mask)):
            nib.save(nib.Nifti1Image(array, np.diag([1, 1, 4, 1])), tmp_path / f"{name}{number}.nii.gz")
        records.append(Record(f"image{number}.nii.gz", patient=f"p{number}", mask=f"mask{number}.nii.gz"))
    make_index(tmp_path, records, "segmentation", {"organ": 1})
    prediction = Prediction(records[1].image, mask=tmp_path / "mask1.nii.gz")
    request = CasesRequest(tmp_path, "segmentation", {"image1.nii.gz": prediction}, ["image1.nii.gz", "absent"], 2)
    pictures = draw_cases(request)
    (case,) = pictures.tests
    picture = Image.open(io.BytesIO(case.jpeg))
    assert picture.size == (case.width, case.height)
    assert (case.error, pictures.legend) == ("", [("organ", "#e69f00")])
    upper, lower = (
        picture.crop((0, top, picture.width, top + picture.height // 2)) for top in (0, picture.height // 2)
    )
    assert near(upper, (230, 159, 0)) > 50
    assert near(lower, (230, 159, 0)) > 50
    assert {example.split for example in pictures.examples} == {"training", "testing"}


@pytest.mark.parametrize("overlapping", [False, True])
def test_ignored_pixels_are_drawn_as_such_and_never_as_a_class(tmp_path: Path, overlapping: bool) -> None:
    """A pixel that nobody labelled was drawn as its class if the mask has one there, else as background."""
    colours = dict(zip(("organ", "labelled by nobody"), ((230, 159, 0), BLUE), strict=True))
    volume, mask, ignored = (np.zeros((40, 30, 24), np.uint8) for _ in range(3))
    mask[4:30, 4:12, 4:8] = 1
    mask[:, 20:] = 1
    ignored[:, 20:] = 1
    for name, array in (("image", volume), ("mask", mask), ("ignored", ignored)):
        nib.save(nib.Nifti1Image(array, np.diag([1, 1, 1, 1])), tmp_path / f"{name}.nii.gz")
    records = [
        Record("image.nii.gz", patient=f"p{number}", mask={"organ": "mask.nii.gz"} if overlapping else "mask.nii.gz",
               ignored=ignored_path)
        for number, ignored_path in enumerate(("ignored.nii.gz", None))
    ]  # fmt: skip
    make_index(tmp_path, records, "segmentation", {"organ": 1})
    pictures = draw_cases(CasesRequest(tmp_path, "segmentation", n_examples=2))
    examples = draw_examples(ExamplesRequest(tmp_path, "segmentation"))
    assert [name for name, _ in pictures.legend] == list(colours)
    assert list(examples.legend) == pictures.legend
    drawings = [[Image.open(io.BytesIO(case.jpeg)) for case in pictures.examples]]
    drawings.append([Image.open(io.BytesIO(base64.b64decode(case.png))) for case in examples.cases])
    for with_ignored, without in drawings:
        organ, nobody = ([near(drawing, colour) for drawing in (with_ignored, without)] for colour in colours.values())
        assert 0 < organ[0] < organ[1] - 200
        assert nobody[0] > 200
        assert nobody[1] == 0


def test_boxes_of_a_low_score_are_not_drawn_and_a_broken_image_says_why(tmp_path: Path) -> None:
    records = [Record(f"{n}.png", patient=f"p{n}", boxes=(BoxLabel("b", (5.0, 5.0, 20.0, 20.0)),)) for n in range(3)]
    for n in range(2):
        Image.new("RGB", (60, 40), (20, 20, 20)).save(tmp_path / f"{n}.png")
    (tmp_path / "2.png").write_bytes(b"no picture")
    make_index(tmp_path, records, "detection", {"a": 0, "b": 1})
    boxes = (DetectedBox("b", (30.0, 10.0, 50.0, 30.0), 0.9), DetectedBox("a", (2.0, 2.0, 9.0, 9.0), 0.1))
    pictures = draw_cases(
        CasesRequest(tmp_path, "detection", {"1.png": Prediction("1.png", boxes=boxes)}, ["1.png", "2.png"])
    )
    first, broken = pictures.tests
    picture = Image.open(io.BytesIO(first.jpeg))
    truth_half, answer_half = (
        picture.crop((x, 0, x + picture.width // 2, picture.height)) for x in (0, picture.width // 2)
    )
    assert near(truth_half, BLUE) > 50
    assert near(answer_half, BLUE) > 50
    assert near(picture, (230, 159, 0)) < 20
    assert (broken.jpeg, bool(broken.error)) == (b"", True)


def test_of_a_study_of_several_views_the_first_is_drawn(tmp_path: Path) -> None:
    """The views of a diagnosis were read as the slices of a volume, and no picture was drawn of views of different sizes."""
    records = []
    for number in range(2):
        for view, size in enumerate(((60, 40), (30, 50))):
            Image.new("L", size, 90).save(tmp_path / f"{number}_{view}.png")
        paths = (f"{number}_0.png", f"{number}_1.png")
        records.append(Record(paths, ("a",), patient=f"p{number}", views=True))
    make_index(tmp_path, records, "diagnosis", {"a": 0, "b": 1})
    (case,) = draw_cases(CasesRequest(tmp_path, "diagnosis", {}, [records[1].key])).tests
    assert (case.error, case.width > case.height) == ("", True)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a segmentation with four test cases, as far as the report reads it."""
    locked, records = tmp_path / "locked", []
    locked.mkdir()
    for n in range(5):
        Image.new("L", (30, 30), 40 * n).save(locked / f"{n}.png")
        mask = np.zeros((30, 30), np.uint8)
        mask[5:20, 5:20] = 1
        Image.fromarray(mask).save(locked / f"m{n}.png")
        records.append(Record(f"{n}.png", patient=f"p{n}", mask=f"m{n}.png"))
    make_index(locked, records, "segmentation", {"square": 1})
    predictions = [Prediction(record.image, mask=locked / str(record.mask)) for record in records[1:]]
    keep_answers(locked, "segmentation", records[1:], predictions, locked)
    (locked / "model").mkdir()
    (locked / "model/config.json").write_text(
        json.dumps({"task": "segmentation", "classes": ["square"], "labels": {"square": 1}})
    )
    rows = [{"image": f"{n}.png", "figures": {"square": [0.2 * n, 0.5, 1.0, 225, 225, 40.0]}} for n in range(1, 5)]
    (locked / "predictions.json").write_text(json.dumps(rows))
    (tmp_path / "run.json").write_text(
        json.dumps({"id": "r", "result": {"task": "segmentation", "status": "completed"}})
    )
    return tmp_path


def test_the_page_keeps_its_pictures_when_the_data_is_gone(run: Path) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == 4 + 5, "four test cases, five examples"
    assert len(page) < 5 * 2**20
    for file in run.glob("locked/*.png"):
        file.unlink()
    again = write_report(run).read_text(encoding="utf-8")
    assert again == page


def test_pictures_are_drawn_anew_only_if_cases_or_answers_changed(run: Path) -> None:
    calls = []

    def open_reader() -> InProcessReader:
        calls.append(1)
        return InProcessReader()

    for keys in (["1.png"], ["1.png"], ["2.png"]):
        draw_pictures(run, "segmentation", keys, open_reader)
    assert len(calls) == 2
    assert [case.key for case in load_pictures(run).tests] == ["2.png"]
    (run / "pictures.json").write_text('{"pictures": {"tests": 5}}')
    assert load_pictures(run).tests == []
