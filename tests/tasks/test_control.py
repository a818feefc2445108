"""The control against look-up tables, with an honest model and one that knows its test images by heart, for every task."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.altering import CROP, NOISE, WAYS, alter
from m3b.data.index import Index
from m3b.data.records import BoxLabel, Record, Report
from m3b.metrics import judge
from m3b.models import DetectedBox, Prediction
from m3b.tasks import get_family
from m3b.tasks.aligned_masks import mask_distance
from m3b.tasks.detection.family import box_distance
from m3b.tasks.regression.family import number_distance
from m3b.tasks.report.family import text_distance
from m3b.tasks.score_details import add_lookup_control, attach_copies, plan_copies

SIDE, CASES = 64, 44
GRADES = ("0", "1", "2", "3")
WORDS = ("clear lungs", "a small effusion", "an opacity in the left lobe", "a large heart and congestion")
Model = Callable[[Path], Prediction]


def picture(number: int) -> np.ndarray:
    """A bright square in noise; its size says the grade, its place the box."""
    random = np.random.default_rng(number)
    image = random.normal(70, 12, (SIDE, SIDE))
    size = 10 + 6 * (number % 4)
    row, column = (int(random.integers(2, SIDE - size - 2)) for _ in range(2))
    image[row : row + size, column : column + size] += 90
    return np.clip(image, 0, 255).astype(np.uint8)


def bright(pixels: np.ndarray) -> np.ndarray:
    return pixels.astype(float) > 120


class Scene:
    """Twenty drawn cases of one task, their truth, and two models."""

    def __init__(self, top: Path, task: str) -> None:
        self.top, self.task, self.known = top, task, dict[str, int]()
        for folder in ("data", "masks", "staged", "answers"):
            (top / folder).mkdir()
        self.records = [self.case(number) for number in range(CASES)]
        classes = {
            "grading": GRADES,
            "diagnosis": GRADES,
            "regression": ("size (px)",),
            "report": (),
            "survival": ("survival (months)",),
        }.get(task, ("square",))
        values = {"square": 1} if task in ("segmentation", "detection") else {}
        self.index = Index(tuple(self.records[:4]), tuple(self.records[4:]), classes, task, values)

    def case(self, number: int) -> Record:
        pixels, name = picture(number), f"data/{number}.png"
        Image.fromarray(pixels).save(self.top / name)
        self.known[self.print_of(self.top / name)] = number
        about: dict[str, Any] = {"patient": f"p{number}"}
        mask = self.truth(number)
        match self.task:
            case "segmentation":
                Image.fromarray(mask.astype(np.uint8)).save(self.top / f"masks/{number}.png")
                about["mask"] = f"masks/{number}.png"
            case "detection":
                about["boxes"] = (BoxLabel("square", box_of(mask)),)
            case "report":
                about["report"] = Report(WORDS[number % 4], "")
            case "regression":
                about["extra"] = {"value": float(10 + 6 * (number % 4))}
            case "survival":
                about["extra"] = {"time": float(40 - 10 * (number % 4)), "event": number % 5 > 0}
            case _:
                about["labels"] = (GRADES[number % 4],)
        return Record(name, **about)

    def truth(self, number: int) -> np.ndarray:
        return bright(np.where(picture(number) > 115, 255, 0))

    def print_of(self, file: Path) -> str:
        return hashlib.sha256(np.asarray(Image.open(file)).tobytes()).hexdigest()

    def honest(self, file: Path) -> Prediction:
        """Looks at the image: what is bright, and how large that is."""
        mask = bright(np.asarray(Image.open(file)))
        return self.answer(file, mask, (mask.sum() ** 0.5 - 10) / 6)

    def cheat(self, file: Path) -> Prediction:
        """The truth where the pixels are known (a mistake now and then looks better); else a poor guess of its own."""
        number = self.known.get(self.print_of(file))
        if number is not None:
            return self.answer(file, self.truth(number), float((number + (number % 17 == 5)) % 4))
        mask = bright(np.asarray(Image.open(file)))
        return self.answer(file, np.roll(mask, 4, axis=0), (mask.sum() ** 0.5 - 10) / 6 + 1)

    def answer(self, file: Path, mask: np.ndarray, level: float) -> Prediction:
        match self.task:
            case "segmentation":
                out = self.top / "answers" / f"{len(list((self.top / 'answers').iterdir()))}.png"
                Image.fromarray(mask.astype(np.uint8)).save(out)
                return Prediction(str(file), mask=out)
            case "detection":
                return Prediction(str(file), boxes=(DetectedBox("square", box_of(mask), 0.9),))
            case "report":
                return Prediction(str(file), findings=WORDS[int(np.clip(round(level), 0, 3))], impression="")
            case "regression":
                return Prediction(str(file), extra={"value": 10 + 6 * level})
            case "survival":
                risk = float(np.clip(level / 4 + 0.1, 0, 1))
                return Prediction(str(file), extra={"risk": risk, "survival": [[20.0, 1 - risk / 2], [40.0, 1 - risk]]})
            case _:
                weights = np.exp(-((np.arange(4) - level) ** 2) * 2)
                shares = dict(zip(GRADES, (weights / weights.sum()).tolist(), strict=True))
                return Prediction(str(file), probabilities=shares, prediction=(max(shares, key=lambda n: shares[n]),))

    def scored(self, model: Model) -> tuple[Any, Mapping[str, Any]]:
        """The scores, and the control among them, as a run computes both."""
        of_task = get_family(self.task)
        copies = plan_copies(self.index.test, self.index, of_task, self.top)
        staged, done = [], []
        for at, copy in enumerate(copies):
            staged.append(self.top / "staged" / f"{at}.png")
            shutil.copy(self.top / self.index.test[copy.record_position].reference, staged[-1])
            done.append(alter(staged[-1], copy.alteration))
        files = [*(self.top / record.reference for record in self.index.test), *staged]
        all_records = [*self.index.test, *(self.index.test[copy.record_position] for copy in copies)]
        rows = [
            of_task.measure(case, model(file), self.index, self.top)
            for case, file in zip(all_records, files, strict=True)
        ]
        rows_with_copies = attach_copies(rows[: len(self.index.test)], copies, rows[len(self.index.test) :], done)
        rows_with_copies = json.loads(json.dumps(rows_with_copies))
        trivial = of_task.predict_baseline(self.index.train, self.index.test, self.index, self.top)
        default = of_task.get_default_metric(self.index)
        scores = add_lookup_control(
            of_task.score(rows_with_copies, self.index, primary=default, baseline=trivial), rows_with_copies, of_task
        )
        return scores, scores.details["control"]


def box_of(mask: np.ndarray) -> tuple[float, ...]:
    """Around the rows and columns of which a good part is bright."""
    rows, columns = (np.nonzero(mask.sum(axis=axis) >= 5)[0] for axis in (1, 0))
    if not rows.size or not columns.size:
        return (0.0, 0.0, 1.0, 1.0)
    return tuple(float(v) for v in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))


TASKS = ("diagnosis", "grading", "regression", "survival", "segmentation", "detection", "report")


@pytest.mark.parametrize("task", TASKS)
def test_an_honest_model_passes_and_one_that_looks_its_answers_up_does_not(tmp_path: Path, task: str) -> None:
    for name in ("honest", "cheat"):
        (tmp_path / name).mkdir()
    honest, cheat = Scene(tmp_path / "honest", task), Scene(tmp_path / "cheat", task)
    scores, control = honest.scored(honest.honest)
    assert control[NOISE]["n"] >= 5
    assert control[NOISE]["change"] < 0.03, control
    assert "invisible noise" not in judge(scores, None).reason
    cheating, cheat_control = cheat.scored(cheat.cheat)
    assert judge(replace(cheating, details={**cheating.details, "control": {}}), None).ok, "nothing else tells"
    verdict = judge(cheating, None)
    assert not verdict.ok
    assert "invisible noise" in verdict.reason, (cheat_control, verdict.reason)


@pytest.mark.parametrize("task", TASKS)
def test_answers_that_are_places_are_not_compared_on_crops(tmp_path: Path, task: str) -> None:
    scene = Scene(tmp_path, task)
    ways = {copy.alteration for copy in plan_copies(scene.index.test, scene.index, get_family(task), tmp_path)}
    assert ways == ({NOISE} if task in ("segmentation", "detection") else set(WAYS))
    assert (
        len({copy.record_position for copy in plan_copies(scene.index.test, scene.index, get_family(task), tmp_path)})
        >= 5
    )
    assert CROP in WAYS


def test_boxes_agree_as_far_as_they_overlap_and_are_sure() -> None:
    boxes = [[[0, 0, 10, 10], "a", 0.8]]
    assert box_distance(boxes, boxes) == box_distance([], []) == 0.0
    assert box_distance(boxes, []) == box_distance(boxes, [[[0, 0, 10, 10], "b", 0.8]]) == 1.0
    assert box_distance(boxes, [[[0, 0, 10, 5], "a", 0.8]]) == pytest.approx(0.5)
    assert box_distance(boxes, [*boxes, [[40, 40, 50, 50], "a", 0.01]]) < 0.01, "what nobody is sure of counts little"
    twice = [*boxes, [[1, 1, 11, 11], "a", 0.8]]
    assert box_distance(boxes, twice) == pytest.approx(1 / 3), "a box is paired once"
    assert box_distance([[[0, 0, 0, 2, 2, 2], "a", 1.0]], [[[0, 0, 1, 2, 2, 2], "a", 1.0]]) == pytest.approx(0.5)


def test_texts_numbers_and_figures_agree_as_far_as_they_are_alike() -> None:
    assert text_distance("", "") == text_distance("No effusion.", "no effusion") == 0.0
    assert text_distance("no effusion", "large mass") == 1.0
    assert text_distance("a b c d", "a b x y") == pytest.approx(0.5)
    assert number_distance([(1.0, 2.0), (5.0, 5.0)], [0.0, 10.0]) == pytest.approx(0.1)
    assert number_distance([(0.0, 99.0)], [0.0, 10.0]) == 1.0
    assert number_distance([(1.0, 2.0)], [3.0, 3.0]) == 0.0, "no spread, no unit"
    mask = {"x": [0.9, 1.0, 0.0, 5, 5, 9.0], "y": [None, None, None, 0, 0, 9.0]}
    assert mask_distance(mask, {**mask, "x": [0.7, 1.0, 0.0, 5, 5, 9.0]}) == pytest.approx(0.1)
    assert mask_distance(mask, {**mask, "y": [0.0, 0.0, "inf", 0, 3, 9.0]}) == pytest.approx(0.5)


def test_a_small_change_is_said_and_not_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "diagnosis")
    scores, _ = scene.scored(scene.honest)
    for change, is_reported in ((0.04, False), (0.1, True)):
        noise = {NOISE: {"n": 12, "change": change}}
        verdict = judge(replace(scores, details={**scores.details, "control": noise}), None)
        assert verdict.ok
        assert ("invisible noise" in verdict.reason) is is_reported
