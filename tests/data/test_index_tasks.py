"""Index files of segmentation, detection and report generation: what is read, written, refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.data.index import (
    LABELS,
    TEST,
    TRAIN,
    BoxLabel,
    Index,
    Record,
    Report,
    counts,
    example,
    example_boxes,
    example_labels,
    guess_task,
    json_schema,
    read_index,
    read_records,
    read_values,
    write_records,
)
from m3b.data.kinds import names, to_json
from m3b.errors import DataError

TASKS = names()

NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
IMAGE = NAME | st.lists(NAME, min_size=1, max_size=3).map(tuple)
NUMBER = st.floats(-1e6, 1e6, allow_nan=False).map(float)
BOX = st.builds(BoxLabel, NAME, st.tuples(*[NUMBER] * 4) | st.tuples(*[NUMBER] * 6))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LABEL_LIST = st.lists(NAME, unique=True, max_size=3).map(tuple)
CLASS_MASKS = st.dictionaries(NAME, NAME, min_size=1, max_size=3)

INDEXES: dict[str, st.SearchStrategy[list[Record]]] = {
    "diagnosis": st.lists(st.builds(Record, IMAGE, LABEL_LIST, NAME), min_size=1, max_size=4),
    "segmentation": st.lists(st.builds(Record, IMAGE, patient=NAME, mask=IMAGE), min_size=1, max_size=4)
    | st.lists(st.builds(Record, IMAGE, patient=NAME, mask=CLASS_MASKS), min_size=1, max_size=4),
    "detection": st.lists(st.builds(Record, IMAGE, patient=NAME, mask=IMAGE | st.none()), min_size=1, max_size=4)
    | st.lists(
        st.builds(Record, IMAGE, patient=NAME, boxes=st.lists(BOX, max_size=3).map(tuple)), min_size=1, max_size=4
    ),
    "grading": st.lists(st.builds(Record, IMAGE, st.tuples(NAME), NAME), min_size=1, max_size=4),
    "regression": st.lists(
        st.builds(Record, IMAGE, patient=NAME, extra=st.fixed_dictionaries({"value": NUMBER})), min_size=1, max_size=4
    ),
    "survival": st.lists(
        st.builds(
            Record,
            IMAGE,
            patient=NAME,
            extra=st.fixed_dictionaries({"time": st.floats(0, 1e6).map(float), "event": st.booleans()}),
        ),
        min_size=1,
        max_size=4,
    ),
    "report": st.lists(
        st.builds(Record, IMAGE, LABEL_LIST, NAME, report=st.builds(Report, TEXT, TEXT)), min_size=1, max_size=4
    ),
}
ANY = st.sampled_from(TASKS).flatmap(lambda task: st.tuples(st.just(task), INDEXES[task]))
ROUND = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ROUND
@given(ANY)
def test_what_is_written_is_read_back_and_fits_the_schema(tmp_path: Path, sample: tuple[str, list[Record]]) -> None:
    task, records = sample
    file = tmp_path / "deep" / "train.json"
    write_records(file, records, task)
    assert read_records(file, task) == tuple(records)
    jsonschema.validate(json.loads(file.read_text(encoding="utf-8")), json_schema(task))


@ROUND
@given(ANY)
def test_the_task_need_not_be_said_where_the_records_tell_it(tmp_path: Path, sample: tuple[str, list[Record]]) -> None:
    task, records = sample
    if task == "grading":  # in memory its records are what those of a diagnosis are
        return
    file = tmp_path / "train.json"
    write_records(file, records)
    if task != "detection" or any(record.mask is not None or record.boxes is not None for record in records):
        assert read_records(file, task) == tuple(records)


KEYS = [
    "image_path", "labels", "patient", "mask_path", "boxes", "abnormal", "report", "label", "box", "findings", "impression",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
STATES = [{"image_path": "a.png", "abnormal": True, "patient": "p"}]
VALID = {task: [*example(task), *([*example_boxes(), *STATES] if task == "detection" else [])] for task in TASKS}


@ROUND
@given(st.sampled_from(TASKS), st.data())
def test_any_change_of_a_record_is_read_or_named(tmp_path: Path, task: str, data: st.DataObject) -> None:
    record = dict(data.draw(st.sampled_from(VALID[task])))
    record[data.draw(st.sampled_from(KEYS))] = data.draw(JSON)
    file = tmp_path / "train.json"
    file.write_text(json.dumps([record]), encoding="utf-8")
    with contextlib.suppress(DataError):
        (read,) = read_records(file, task)
        again = [to_json(read, task)]
        jsonschema.validate(again, json_schema(task))
        file.write_text(json.dumps(again), encoding="utf-8")
        assert read_records(file, task) == (read,)


@pytest.mark.parametrize("task", TASKS)
def test_the_example_fits_schema_reader_and_dictionary(task: str, tmp_path: Path) -> None:
    write_index_files(
        tmp_path, example(task)[:1], example(task)[1:2], example_labels(task)
    ) if task != "detection" else write_index_files(
        tmp_path, example(task)[:1], example(task)[2:], example_labels(task)
    )
    index = read_index(tmp_path, task)
    assert index.values == example_labels(task)
    assert index.classes == tuple(example_labels(task))
    assert guess_task(tmp_path) == task
    jsonschema.validate(example(task), json_schema(task))
    jsonschema.validate(example_boxes(), json_schema("detection"))


def write_index_files(work: Path, train: Any, test: Any, labels: Mapping[str, Any]) -> Path:
    for name, value in ((TRAIN, train), (TEST, test), (LABELS, labels)):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(json.dumps(value), encoding="utf-8")
    return work


def base(**fields: Any) -> dict[str, Any]:
    return {"image_path": "a.png", "patient": "p", **fields}


@pytest.mark.parametrize(
    ("task", "record", "expected_text"),
    [
        ("segmentation", base(), "lacks mask_path"),
        ("segmentation", base(mask_path=None), "mask_path is null"),
        ("segmentation", base(mask_path=3), "mask_path must be"),
        ("segmentation", base(mask_path=[]), "mask_path must be"),
        ("segmentation", base(mask_path={}), "one path a class"),
        ("segmentation", base(mask_path={"liver": ["a"]}), "one path a class"),
        ("segmentation", base(boxes=[]), "lacks mask_path"),
        ("detection", base(), "lacks mask_path, boxes or abnormal"),
        ("detection", base(mask_path=None, boxes=[]), "both"),
        ("detection", base(boxes=None), "must be a list"),
        ("detection", base(mask_path=None, ignore_path="i.png"), "ignore_path belongs to a mask"),
        ("detection", base(boxes=[], ignore_path="i.png"), "ignore_path belongs to a mask"),
        ("detection", base(abnormal=True, ignore_path="i.png"), "ignore_path belongs to a mask"),
        ("segmentation", base(mask_path="m.png", ignore_path=["i.png"]), "ignore_path must be"),
        ("detection", base(boxes=[{"label": "x", "box": [1, 2, 3]}]), "4 numbers"),
        ("detection", base(boxes=[{"label": "x", "box": [1, 2, 3, True]}]), "4 numbers"),
        ("detection", base(boxes=[{"label": "x", "box": [1, 2, 3, float("nan")]}]), "4 numbers"),
        ("detection", base(boxes=[{"label": "x", "box": [1, 2, 3, 10**400]}]), "4 numbers"),
        ("detection", base(boxes=[{"label": "", "box": [1, 2, 3, 4]}]), r"boxes\[0\] must look like"),
        ("detection", base(boxes=[[1, 2, 3, 4]]), r"boxes\[0\] must look like"),
        ("report", base(), "lacks report"),
        ("report", base(report="text"), "findings"),
        ("report", base(report={"findings": "x"}), "impression"),
        ("report", base(report={"findings": "x", "impression": None}), "findings"),
        ("report", base(report={"findings": "x", "impression": ""}, labels="y"), "labels must be a list"),
    ],
)
def test_a_fault_is_named(task: str, record: dict[str, Any], expected_text: str, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([record]), encoding="utf-8")
    with pytest.raises(DataError, match=rf"record 0: .*{expected_text}"):
        read_records(tmp_path / "train.json", task)


BOXED, MASKED = base(boxes=[]), base(mask_path="m.png")
OBJECT = base(mask_path={"x": "m.png"})


@pytest.mark.parametrize(("first", "second"), [(BOXED, MASKED), (MASKED, OBJECT), (BOXED, base(mask_path=None))])
def test_one_kind_of_target_throughout(first: Any, second: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.json.*throughout"):
        read_index(write_index_files(tmp_path, [first, second], [first], {"x": 1}), "detection")
    with pytest.raises(DataError, match=r"do not fit together.*throughout"):
        read_index(write_index_files(tmp_path, [first], [second], {"x": 1}), "detection")


@pytest.mark.parametrize(
    "labels",
    [{}, [], {"a": 0}, {"a": 1, "b": 1}, {"a": 1.5}, {"a": True}, {"a": "1"}, {"a": -1}, {"background": 0, "a": 1}],
)
def test_values_of_masks_start_at_1_and_differ(labels: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label_dict\.json"):
        read_index(write_index_files(tmp_path, [MASKED], [MASKED], labels), "segmentation")


def test_gaps_are_kept_and_order_is_that_of_the_values(tmp_path: Path) -> None:
    index = read_index(write_index_files(tmp_path, [MASKED], [MASKED], {"liver": 6, "spleen": 1}), "segmentation")
    assert index.classes == ("spleen", "liver")
    assert index.values == {"spleen": 1, "liver": 6}
    assert index.masked
    assert not index.overlapping
    assert not index.multi_label


def test_masks_of_their_own_are_numbered_without_gaps(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 to 1"):
        read_index(write_index_files(tmp_path, [OBJECT], [OBJECT], {"x": 4}), "segmentation")
    index = read_index(write_index_files(tmp_path, [OBJECT], [OBJECT], {"x": 1}), "segmentation")
    assert index.overlapping
    assert index.multi_label


def test_boxes_are_numbered_from_0_and_reports_need_no_names(tmp_path: Path) -> None:
    index = read_index(write_index_files(tmp_path, [BOXED], [BOXED], {"x": 0}), "detection")
    assert index.boxed
    assert not index.masked
    with pytest.raises(DataError, match="0 to 0"):
        read_index(write_index_files(tmp_path, [BOXED], [BOXED], {"x": 1}), "detection")
    report = base(report={"findings": "x", "impression": ""})
    assert read_index(write_index_files(tmp_path, [report], [report], {}), "report").classes == ()
    with pytest.raises(DataError, match="label_dict"):
        read_index(write_index_files(tmp_path, [base(labels=[])], [base(labels=[])], {}), "diagnosis")


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no task 'guessing'"):
        read_index(write_index_files(tmp_path, [BOXED], [BOXED], {"x": 0}), "guessing")
    with pytest.raises(DataError, match="no task"):
        json_schema("guessing")


def test_what_a_record_tells_of_its_target() -> None:
    several = Record("a.nii", patient="p", mask={"x": "m.npz#x[1]", "y": "n.nii"})
    assert several.targets == ("m.npz", "n.nii")
    assert several.masks == ("m.npz#x[1]", "n.nii")
    assert Record("a.nii", patient="p", mask=("1.png", "2.png")).targets == ("1.png", "2.png")
    assert Record("a.nii", patient="p").targets == ()
    assert hash(several) == hash(Record("a.nii", patient="p")), "a record can be a key, whatever its mask"
    boxes = (BoxLabel("x", (0, 0, 1, 1)), BoxLabel("x", (2, 2, 3, 3)), BoxLabel("y", (0, 0, 1, 1)))
    assert counts([Record("a", patient="p", boxes=boxes)], ("x", "y", "z")) == {"x": 1, "y": 1, "z": 0}
    assert Report(" A. ", "B.").text == "A. B."


def test_numbers_that_are_not_given_follow_the_task(tmp_path: Path) -> None:
    record = Record("a", patient="p", mask="m")
    assert Index((record,), (record,), ("x", "y"), "segmentation").values == {"x": 1, "y": 2}
    assert Index((record,), (record,), ("x", "y")).values == {"x": 0, "y": 1}
    (tmp_path / "label_dict.json").write_text("{}", encoding="utf-8")
    assert read_values(tmp_path / "label_dict.json", empty=True) == {}
