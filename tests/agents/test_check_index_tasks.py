"""Hand-over of an index of masks, boxes or reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.agents.artifacts import DataIndex, Selection, from_json, to_json
from m3b.agents.checks.index import check_index
from m3b.errors import DataRejected

Records = list[dict[str, Any]]
Change = Callable[[Records], object]
TASKS = ("segmentation", "detection", "report")
CASES = 12


def choice(task: str, *classes: str) -> Selection:
    metric = {"segmentation": "dice", "detection": "map_50", "report": "bleu_4", "diagnosis": "auroc"}[task]
    return Selection("Cards", task, metric, "plan", classes=classes)


def make_work(work: Path, task: str, change: Change = lambda records: None, labels: Any = None) -> Path:
    """Noise, with a mask derived in the run, a box or a sentence for each; every fourth case is for testing."""
    random = np.random.default_rng(7)
    (work / "data" / "x").mkdir(parents=True)
    (work / "Datapath" / "masks").mkdir(parents=True)
    records: Records = []
    for at in range(CASES):
        Image.fromarray(random.integers(0, 256, (20, 24), dtype=np.uint8)).save(work / "data" / "x" / f"{at}.png")
        mask = np.zeros((20, 24), np.uint8)
        mask[2 : 6 + at % 5, 3 : 6 + at] = 4
        Image.fromarray(mask).save(work / "Datapath" / "masks" / f"{at}.png")
        target = {
            "segmentation": {"mask_path": f"Datapath/masks/{at}.png"},
            "detection": {"boxes": [{"label": "cyst", "box": [3, 2, 6 + at, 9]}] if at % 3 else []},
            "report": {"report": {"findings": f"A cyst of {at} mm.", "impression": ""}},
        }[task]
        records.append({"image_path": f"data/x/{at}.png", **target, "patient": f"p{at}"})
    change(records)
    dictionary = {"segmentation": {"cyst": 4}, "detection": {"cyst": 0}, "report": {}}[task]
    contents = {"train": records[4:], "test": records[:4], "label_dict": dictionary if labels is None else labels}
    for name, value in contents.items():
        (work / "Datapath" / f"{name}.json").write_text(json.dumps(value))
    return work


@pytest.mark.parametrize("task", TASKS)
def test_a_good_index(tmp_path: Path, task: str) -> None:
    verdict = check_index(make_work(tmp_path, task), choice(task))
    assert verdict.is_accepted, verdict.agent_messages
    data = verdict.artifact
    assert isinstance(data, DataIndex)
    assert data.task == task
    assert data.cases == {"train": 8, "test": 4}
    assert data.values == {"segmentation": {"cyst": 4}, "detection": {"cyst": 0}, "report": {}}[task]
    positive = {"segmentation": 4, "detection": 2}
    assert data.counts["test"] == ({"cyst": positive[task]} if task in positive else {})
    assert from_json(DataIndex, json.loads(json.dumps(to_json(data)))) == data


@pytest.mark.parametrize("task", TASKS)
def test_the_schema_of_the_task_counts(tmp_path: Path, task: str) -> None:
    work = make_work(tmp_path, task)
    fits = {task, "detection"} if task == "segmentation" else {task}  # masks in every image are detection too
    for other_task in {*TASKS, "diagnosis"} - fits:
        verdict = check_index(work, choice(other_task))
        assert not verdict.is_accepted
        assert verdict.issues[0].code == "index_unreadable"


@pytest.mark.parametrize(
    ("task", "change", "code", "expected_text"),
    [
        ("segmentation", {"mask_path": "/etc/hostname"}, "path_outside", "mask_path '/etc/hostname'"),
        ("segmentation", {"mask_path": "Datapath/../../x.png"}, "path_outside", "x.png"),
        ("segmentation", {"mask_path": ["Datapath/masks/1.png", "../0.png"]}, "path_outside", "../0.png"),
        ("segmentation", {"mask_path": "Datapath/masks/none.png"}, "missing_mask", "Datapath/masks/none.png"),
        ("segmentation", {"mask_path": "data/x/5.png"}, "mask_is_image", "data/x/5.png"),
        ("segmentation", {"mask_path": "Datapath/masks/6.png"}, "one_mask_two_images", "Datapath/masks/6.png"),
        ("detection", {"boxes": [{"label": "wart", "box": [1, 2, 3, 4]}]}, "unknown_label", "wart"),
        ("detection", {"boxes": [{"label": "cyst", "box": [1, 2, 3, 4, 5, 6]}]}, "box_dims", "volume"),
        ("report", {"report": {"findings": "", "impression": " "}}, "empty_report", "findings"),
        ("report", {"image_path": ["data/x/5.png", "../5.png"]}, "path_outside", "../5.png"),
    ],
)
def test_faults_that_go_back(tmp_path: Path, task: str, change: dict[str, Any], code: str, expected_text: str) -> None:
    verdict = check_index(make_work(tmp_path, task, lambda records: records[5].update(change)), choice(task))
    assert not verdict.is_accepted
    assert verdict.end_error is None, "the index is to blame, not the data"
    assert verdict.issues[0].code == code
    assert expected_text in verdict.agent_messages[0]


def test_a_mask_that_is_a_link_out_of_the_run(tmp_path: Path) -> None:
    work = make_work(tmp_path / "work", "segmentation")
    raw = tmp_path / "raw"
    (work / "data" / "x").rename(raw)
    (work / "data" / "x").symlink_to(raw)
    mask = work / "Datapath/masks/5.png"
    mask.rename(raw / "m5.png")
    mask.symlink_to(raw / "m5.png")
    assert check_index(work, choice("segmentation")).is_accepted, "a link into the raw data is as good as its path"
    (raw / "m5.png").rename(tmp_path / "m5.png")
    mask.unlink()
    mask.symlink_to(tmp_path / "m5.png")
    assert check_index(work, choice("segmentation")).issues[0].code == "path_outside"


def no_boxes(records: Records) -> None:
    for record in records:
        record["boxes"] = []


def one_text(records: Records) -> None:
    for record in records:
        record["report"] = {"findings": "Normal.", "impression": ""}


def two_patients(records: Records) -> None:
    for at, record in enumerate(records):
        record["patient"] = "a" if at < 4 else "b"


@pytest.mark.parametrize(
    ("task", "change"), [("detection", no_boxes), ("report", one_text), ("segmentation", two_patients)]
)
def test_data_that_nobody_can_train_on_is_rejected_as_data(tmp_path: Path, task: str, change: Change) -> None:
    assert check_index(make_work(tmp_path, task, change), choice(task)).end_error is DataRejected


def test_the_classes_of_the_selection(tmp_path: Path) -> None:
    work = make_work(tmp_path, "segmentation")
    assert check_index(work, choice("segmentation", "tumour")).issues[0].code == "other_classes"
    assert check_index(work, choice("segmentation", "Cyst")).is_accepted


def test_reports_need_no_classes_even_where_the_selection_names_findings(tmp_path: Path) -> None:
    assert check_index(make_work(tmp_path, "report"), choice("report", "cyst", "mass")).is_accepted
