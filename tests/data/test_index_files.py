"""Index files: the schema, what is read back, and the faults that are named."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.data import kinds
from m3b.data.index import (
    LABELS,
    TEST,
    TRAIN,
    Index,
    Record,
    counts,
    example,
    example_boxes,
    example_labels,
    format_records,
    json_schema,
    read_index,
    read_labels,
    read_records,
    write_records,
)
from m3b.data.kinds import names
from m3b.errors import DataError
from m3b.resources import get_resources_folder

TASKS = names()
FOLDER = get_resources_folder() / "indexes"


def read_json(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("task", TASKS)
def test_the_shipped_files_are_those_of_the_code(task: str) -> None:
    assert read_json(f"{task}.schema.json") == json_schema(task)
    assert read_json(f"{task}.example.json") == example(task)
    assert read_json(f"label_dict.{task}.example.json") == example_labels(task)
    assert read_json("detection.boxes.example.json") == example_boxes()


def test_the_shipped_examples_are_read_together() -> None:
    records = read_records(FOLDER / "diagnosis.example.json")
    labels = read_labels(FOLDER / "label_dict.diagnosis.example.json")
    assert len(records) == len(example())
    assert {label for record in records for label in record.labels} == set(labels)


def test_the_readme_names_every_key_and_file() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    keys = [key for task in TASKS for key in json_schema(task)["items"]["properties"]]
    for name in (*keys, *(f.name for f in FOLDER.glob("*.json"))):
        assert f"`{name}`" in text


def test_the_schema_and_the_reader_agree_on_the_keys() -> None:
    entry = example()[0]
    for key in json_schema()["items"]["required"]:
        with pytest.raises(DataError, match=key):
            read([{k: v for k, v in entry.items() if k != key}])


def read(records: Any, folder: Path | None = None) -> tuple[Record, ...]:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        file = (folder or Path(place)) / "train.json"
        file.write_text(json.dumps(records), encoding="utf-8")
        return read_records(file)


NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
RECORD = st.builds(
    Record,
    NAME | st.lists(NAME, min_size=1, max_size=4).map(tuple),
    st.lists(NAME, unique=True, max_size=3).map(tuple),
    NAME,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORD, min_size=1, max_size=6))
def test_what_is_written_is_read_back(tmp_path: Path, records: list[Record]) -> None:
    file = tmp_path / "deep" / "train.json"
    write_records(file, records)
    assert read_records(file) == tuple(records)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["image_path", "labels", "patient", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_an_index_or_a_data_error(value: Any) -> None:
    with contextlib.suppress(DataError):
        assert len(read(value)) == len(value)


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ({"image_path": ""}, "image_path"),
        ({"image_path": []}, "image_path"),
        ({"image_path": ["a", 1]}, "image_path"),
        ({"labels": "normal"}, "labels must be a list"),
        ({"labels": [1]}, "labels must be a list"),
        ({"labels": ["a", "a"]}, "twice"),
        ({"labels": ["a"], "unknown_labels": ["a"]}, "both name a"),
        ({"patient": ""}, "patient"),
        ({"patient": True}, "patient"),
        ({"patient": None}, "patient"),
    ],
)
def test_a_fault_names_record_and_key(change: dict[str, Any], expected_text: str) -> None:
    good = {"image_path": "a.png", "labels": ["normal"], "patient": "p"}
    with pytest.raises(DataError, match=rf"record 1: .*{expected_text}"):
        read([good, {**good, **change}])


def test_many_faults_are_counted() -> None:
    with pytest.raises(DataError, match="and 4 more"):
        read([{}] * 9)


def test_a_file_of_faults_alone_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(f"[{'0,' * 200_000}not json]", encoding="utf-8")
    with pytest.raises(DataError, match="and 995 or more"):
        read_records(file)


def test_a_number_is_a_patient_too() -> None:
    assert read([{"image_path": "a.png", "labels": [], "patient": 17}])[0].patient == "17"


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "\xff\xfe\x00"])
def test_broken_json_is_a_data_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=r"train\.json"):
        read_records(tmp_path / "train.json")


@pytest.mark.parametrize(
    "labels",
    [[], {}, {"a": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 2}, {"a": "0"}, {"a": False, "b": True}, {"a": None}, 3],
)
def test_labels_must_be_numbered_from_0(labels: Any, tmp_path: Path) -> None:
    file = tmp_path / "label_dict.json"
    file.write_text(json.dumps(labels), encoding="utf-8")
    with pytest.raises(DataError, match=r"label_dict\.json"):
        read_labels(file)


@given(st.lists(NAME, min_size=1, max_size=14, unique=True), st.randoms())
def test_labels_come_in_the_order_of_their_numbers(names: list[str], random: Any) -> None:
    import tempfile

    pairs = list(zip(names, range(len(names)), strict=True))
    random.shuffle(pairs)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "label_dict.json"
        file.write_text(json.dumps(dict(pairs)), encoding="utf-8")
        assert read_labels(file) == tuple(names)


def test_an_index_is_read_as_a_whole_or_the_missing_file_is_named(tmp_path: Path) -> None:
    first, second = Record("a.png", ("x",), "p"), Record(("b.png", "c.png"), ("y",), "q")
    write_records(tmp_path / TRAIN, [first])
    write_records(tmp_path / TEST, [second])
    with pytest.raises(DataError, match=LABELS):
        read_index(tmp_path)
    (tmp_path / LABELS).write_text('{"x": 0, "y": 1}', encoding="utf-8")
    assert read_index(tmp_path) == Index((first,), (second,), ("x", "y"))


def test_what_a_record_tells() -> None:
    archive = Record("data/a.npz#images[3]", ("x",), "p")
    slices = Record(("1.png", "2.png"), ("x", "y"), "p")
    assert archive.files == ("data/a.npz",)
    assert slices.files == ("1.png", "2.png")
    assert archive.key != Record("data/a.npz#images[4]", ("x",), "p").key
    assert not Index((archive,), (archive,), ("x", "y")).multi_label
    assert Index((archive,), (slices,), ("x", "y")).multi_label
    assert counts([archive, slices], ("y", "x")) == {"y": 1, "x": 2}


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [(b"[" * 200_000, "nested too deeply"), (b"[" + b"1" * 5000 + b"]", "cannot be read as JSON"), (b"\xff[]", "JSON"),
     (b"[" + b" " * 5000 + b"]", "more than the maximum of 4,096")],
)  # fmt: skip
def test_hostile_index_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected_text: str
) -> None:
    if b"  " in content:
        monkeypatch.setattr("m3b.data.index.MAX_BYTES", 4096)
    (tmp_path / "train.json").write_bytes(content)
    with pytest.raises(DataError, match=expected_text):
        read_records(tmp_path / "train.json")


def test_a_pipe_as_an_index_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.json")
    with pytest.raises(DataError, match="not a regular file"):
        read_records(tmp_path / "train.json")


def test_labels_that_are_not_known_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    items = [{"image_path": "a.png", "labels": ["a"], "unknown_labels": ["b"], "patient": "p"}]
    file.write_text(json.dumps(items))
    records = read_records(file)
    assert kinds.of("diagnosis").multi_label(records)
    write_records(tmp_path / "again.json", records, "diagnosis")
    assert json.loads((tmp_path / "again.json").read_text()) == items
    assert read_records(tmp_path / "again.json") == records


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_text_of_an_index_is_written_a_record_at_a_time(count: int) -> None:
    records = [Record(f"data/x/ä{number}.png", ("no\nrmal",), f"p{number}") for number in range(count)]
    pieces = list(format_records(records, "diagnosis"))
    items = [kinds.to_json(record, "diagnosis") for record in records]
    assert "".join(pieces) == json.dumps(items, indent=1, ensure_ascii=False)
    assert len(pieces) == count + 1
