"""Field tasks: generated folders with an `EXPECTED.json`, what is hidden of them, and how reading and model are judged."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_bench_scoring import model

from m3b.bench.benchmark_data import BenchmarkData
from m3b.bench.cell import Cell, make_row, score_cell
from m3b.bench.cell_verdict import judge_cell
from m3b.bench.field_carving import FieldCarveOut, FieldRemoval, carve_field_set, strip_any_suffix
from m3b.bench.field_sets import FieldSet, ReadingJudgement, find_differences, judge_reading, load_field_sets
from m3b.bench.scoring import Score
from m3b.bench.sweep import FIELD_TRAIN_MINUTES, SweepPlan, run_sweep
from m3b.bench.systems import CellOutcome
from m3b.bench.tables import make_tables
from m3b.bench.tasks import BenchmarkTask, load_field_tasks, parse_task
from m3b.data.index import read_records, write_records
from m3b.engines.local import LocalEngine
from m3b.errors import UsageError

PATIENTS, EYES = 40, ("L", "R")
REQUEST = "Tell healthy from ill eyes on fundus photographs"
ENTRY: dict[str, Any] = {
    "folder": "eyes",
    "request": REQUEST,
    "n": [80, 80],
    "classes": 2,
    "target": "diagnosis",
    "group_re": r"eye_(\d+)[LR]",
    "note": "for people",
}
BRIGHTNESS = """
from PIL import Image
import numpy as np
def answer(number, path):
    level = float(np.asarray(Image.open(path).convert("L")).mean())
    ill = min(max((level - 60) / 100, 0.01), 0.99)
    return {"probabilities": {"healthy": 1 - ill, "ill": ill}, "prediction": "ill" if ill > 0.5 else "healthy"}
"""


def write_eyes(root: Path, entry: dict[str, Any] = ENTRY) -> Path:
    """Write a folder with one field set: two eyes a patient, a table, a note beside each image, and a list of a split."""
    folder, random = root / "eyes", np.random.default_rng(0)
    rows = []
    for patient in range(PATIENTS):
        label = ("healthy", "ill")[patient % 2]
        for eye in EYES:
            name = f"eye_{patient:03d}{eye}"
            level = 150 if label == "ill" else 70
            pixels = random.normal(level, 8, (48, 48, 3)).clip(0, 255).astype(np.uint8)
            (folder / "images").mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
            (folder / "notes").mkdir(exist_ok=True)
            (folder / "notes" / f"{name}_reader2.txt").write_text("seen twice\n")
            rows.append([f"{name}.png", f"{patient:03d}", label])
    with (folder / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["image", "patient", "diagnosis"], *rows])
    (folder / "listed.txt").write_text("".join(f"{row[0].removesuffix('.png')}\n" for row in rows))
    (root / "EXPECTED.json").write_text(json.dumps([entry]))
    return root


@pytest.fixture(scope="module")
def field_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_eyes(tmp_path_factory.mktemp("field"))


@pytest.fixture(scope="module")
def data(field_root: Path) -> BenchmarkData:
    return BenchmarkData(field_root.parent / "bench-data")


@pytest.fixture(scope="module")
def task(field_root: Path) -> BenchmarkTask:
    return load_field_tasks(field_root)[0]


@pytest.fixture(scope="module")
def carve_out(task: BenchmarkTask, data: BenchmarkData) -> FieldCarveOut:
    assert task.field_set is not None
    return data.prepare_field_set(task.field_set)


def test_hidden_patients_are_nowhere_in_the_agents_copy(carve_out: FieldCarveOut) -> None:
    assert carve_out.no_exam == ""
    assert (carve_out.hidden, carve_out.kept) == (24, 56)
    assert carve_out.hidden_patients == 12
    hidden = {Path(record.images[0]).stem for record in read_records(carve_out.reference_folder / "Datapath/test.json")}
    assert len(hidden) == 24
    assert {name[:-1] for name in hidden} == {name[:-1] for name in hidden if name.endswith("R")}, "both eyes"
    files = [file for file in carve_out.agent_folder.rglob("*") if file.is_file()]
    assert not [file for file in files if strip_any_suffix(file.name).removesuffix("_reader2") in hidden]
    assert len(files) == 2 * 56 + 2
    for file in (carve_out.agent_folder / "labels.csv", carve_out.agent_folder / "listed.txt"):
        text = file.read_text()
        assert not [name for name in hidden if name in text]
        assert len(text.splitlines()) in (56, 57)


def test_a_carve_out_is_made_once(carve_out: FieldCarveOut, task: BenchmarkTask, data: BenchmarkData) -> None:
    assert task.field_set is not None
    assert data.prepare_field_set(task.field_set) == carve_out


def test_copies_of_a_hidden_image_are_hidden_too(tmp_path: Path) -> None:
    root = write_eyes(tmp_path / "field", {**ENTRY, "n": [70, 80]})
    shutil.copy(root / "eyes/images/eye_000L.png", root / "eyes/images/eye_002L.png")
    made = carve_field_set(load_field_sets(root)[0], tmp_path / "carved")
    assert made.no_exam == ""
    hidden = [Path(r.images[0]).name for r in read_records(made.reference_folder / "Datapath/test.json")]
    contents = {(root / "eyes/images" / name).read_bytes() for name in hidden}
    assert not [file for file in made.agent_folder.rglob("*.png") if file.read_bytes() in contents]


def test_links_out_of_the_set_are_not_copied(tmp_path: Path) -> None:
    """The agent's copy got the file, and so the agent what lies elsewhere on the machine."""
    root = write_eyes(tmp_path / "field")
    (tmp_path / "private.md").write_text("a secret")
    (root / "eyes/notes.md").symlink_to(tmp_path / "private.md")
    (root / "eyes/nowhere.md").symlink_to(tmp_path / "absent")
    (root / "eyes/README").write_text("two eyes of each patient")
    (root / "eyes/README.md").symlink_to("README")
    made = carve_field_set(load_field_sets(root)[0], tmp_path / "carved")
    assert made.no_exam == ""
    assert not [path for path in made.agent_folder.rglob("*") if path.is_symlink()]
    names = {path.name for path in made.agent_folder.iterdir() if path.is_file()}
    assert names == {"labels.csv", "listed.txt", "README", "README.md"}


def test_an_index_that_is_nested_deeply_is_no_index(tmp_path: Path) -> None:
    nested: Any = "data/x/a.png"
    for _ in range(900):
        nested = [nested]
    work = write_index(tmp_path / "work", [{"image_path": nested}], [{"image_path": nested}], ["a"])
    assert len(find_differences(work, FieldSet("/data/x", "request", group_pattern="(a)"))) == 1


def test_a_set_that_is_read_otherwise_has_no_exam(tmp_path: Path) -> None:
    root = write_eyes(tmp_path / "field", {**ENTRY, "classes": 5})
    made = carve_field_set(load_field_sets(root)[0], tmp_path / "carved")
    assert "2 classes" in made.no_exam
    assert made.hidden == 0
    assert len(list(made.agent_folder.rglob("*.png"))) == 80


@pytest.mark.parametrize("worth", ["good", "constant", "other reading"])
def test_reading_and_hidden_cases_decide(
    carve_out: FieldCarveOut, task: BenchmarkTask, data: BenchmarkData, tmp_path: Path, worth: str
) -> None:
    records = [*read_records(carve_out.reference_folder / "Datapath/train.json")]
    work = tmp_path / "work"
    for part, chosen in (("train", records[12:]), ("test", records[:12])):
        cut = chosen[:20] if worth == "other reading" else chosen
        write_records(work / f"Datapath/{part}.json", cut, "diagnosis")
    (work / "Datapath/label_dict.json").write_text('{"healthy": 0, "ill": 1}')
    code = BRIGHTNESS.replace("(level - 60) / 100", "0.5") if worth == "constant" else BRIGHTNESS
    delivered = model(tmp_path / "model", "diagnosis", code, ["healthy", "ill"])
    cell = Cell("m3b", "rules", task, 0, data=str(data.folder))
    outcome = CellOutcome("completed", "done", model=str(delivered), work=str(work))
    row = make_row(cell, tmp_path, outcome, score_cell(cell, tmp_path, outcome))
    expected_kind = {"good": "success", "constant": "constant", "other reading": "wrong_reading"}[worth]
    assert (row["kind"], row["ok"]) == (expected_kind, worth == "good"), row["reason"]
    assert row["reading"]["verdict"] == ("wrong_passed" if worth == "other reading" else "right")
    assert (row["score"]["primary"]["name"], row["score"]["primary"]["n"]) == ("auroc", 24)
    assert row["score"]["primary"]["value"] == (0.5 if worth == "constant" else 1.0)
    assert row["dataset"] == "eyes"
    tables = {table.name: table for table in make_tables([row])}
    assert {"field", "comparison"} <= set(tables)
    assert not {"table1", "table2", "quality"} & set(tables)
    field_cells, sums = tables["field"].rows
    assert field_cells[:3] == ("eyes / m3b / rules", row["reading"]["verdict"], "1/1" if worth == "good" else "0/1")
    assert field_cells[3].startswith("auroc 0.500" if worth == "constant" else "auroc 1.000 (")
    assert field_cells[-1] == ("" if worth == "good" else expected_kind)
    assert sums[:2] == ("all sets / m3b / rules", f"right {int(worth != 'other reading')}/1")


def test_a_model_from_a_set_without_hidden_patients_is_no_success(tmp_path: Path) -> None:
    root = write_eyes(tmp_path / "field", {**ENTRY, "n": [4, 4]})
    for file in (root / "eyes/images").iterdir():
        if int(file.stem[4:7]) > 1:
            file.unlink()
    task = load_field_tasks(root)[0]
    cell = Cell("m3b", "rules", task, 0, data=str(tmp_path / "data"))
    assert task.field_set is not None
    assert cell.benchmark_data.prepare_field_set(task.field_set).no_exam
    outcome = CellOutcome("no_dataset", "nothing fits", work=str(tmp_path))
    row = make_row(cell, tmp_path, outcome, score_cell(cell, tmp_path, outcome))
    assert (row["kind"], row["reading"]["verdict"], row["score"]) == ("declined", "refused", None)
    assert row["reading"]["no_exam"]


@pytest.mark.parametrize(
    ("score", "kind"),
    [
        (None, "reading_only"),
        (Score(False, "only 3 test patients", has_verdict=False), "reading_only"),
        (Score(False, "no better than the baseline"), "below_range"),
        (Score(False, "its masks are missing", error="masks", has_verdict=False), "broken_model"),
        (Score(True, "above the baseline"), "success"),
    ],
)
def test_too_few_hidden_patients_are_no_fault_of_the_model(task: BenchmarkTask, score: Score | None, kind: str) -> None:
    outcome, reading = CellOutcome("completed", "done"), ReadingJudgement("right")
    assert judge_cell(task, outcome, score, [], reading=reading).kind == kind
    assert judge_cell(task, outcome, score, [], reading=ReadingJudgement("wrong_passed")).kind == "wrong_reading"


def test_a_set_to_be_refused(tmp_path: Path) -> None:
    root = write_eyes(tmp_path / "field", {**ENTRY, "refuse": True, "request": "Predict the body height from eyes"})
    task = load_field_tasks(root)[0]
    assert task.family == "decline"
    cell = Cell("m3b", "rules", task, 0, data=str(tmp_path / "data"))
    for status, kind, verdict in (
        ("rejected_data", "success", "right"),
        ("no_dataset", "success", "right"),
        ("completed", "not_declined", "wrong_passed"),
    ):
        row = make_row(cell, tmp_path, CellOutcome(status, "", work=str(tmp_path)), None)
        assert (row["kind"], row["reading"]["verdict"]) == (kind, verdict)


def write_index(work: Path, train: list[dict[str, Any]], test: list[dict[str, Any]], labels: list[str]) -> Path:
    (work / "Datapath").mkdir(parents=True)
    for part, records in (("train", train), ("test", test)):
        (work / f"Datapath/{part}.json").write_text(json.dumps(records))
    (work / "Datapath/label_dict.json").write_text(json.dumps({name: k for k, name in enumerate(labels)}))
    return work


@pytest.mark.parametrize(
    ("changes", "removed", "count"),
    [
        ({}, 0, 0),
        ({"min_cases": 6, "max_cases": 8}, 0, 1),
        ({"min_cases": 6, "max_cases": 8}, 2, 0),
        ({"classes": 3}, 0, 1),
        ({"target": "boxes"}, 0, 1),
        ({"split_pattern": "/test/"}, 0, 0),
        ({"split_pattern": "/other/"}, 0, 1),
        ({"group_pattern": r"p(\d)"}, 0, 1),
        ({"group_pattern": r"(p\d_\d)"}, 0, 0),
        ({"mask_pattern": "_seg"}, 0, 0),
        ({"mask_pattern": "_brain"}, 0, 1),
        ({"min_cases": 9, "classes": 9, "target": "report"}, 0, 3),
    ],
)
def test_each_difference_is_named(tmp_path: Path, changes: dict[str, Any], removed: int, count: int) -> None:
    def record(part: str, name: str) -> dict[str, Any]:
        return {"image_path": {"t1": f"data/x/{part}/{name}.nii"}, "mask_path": {"a": f"data/x/{name}_seg.nii"}}

    train, test = [record("train", f"p1_{k}") for k in range(3)], [record("test", "p1_9")]
    work = write_index(tmp_path / "work", train, test, ["a", "b"])
    field_set = FieldSet("/data/x", "request", **{"target": "masks", "classes": 2, **changes})
    assert len(find_differences(work, field_set, removed)) == count
    passed = judge_reading(field_set, "completed", work, removed)
    assert passed.verdict == ("wrong_passed" if count else "right")
    assert judge_reading(field_set, "failed", work, removed).verdict == ("wrong" if count else "right")
    assert judge_reading(field_set, "no_dataset", tmp_path / "nowhere").verdict == "refused"


def test_no_expression_makes_the_judgement_hang(tmp_path: Path) -> None:
    """With Python's own engine, each of these takes longer than the universe exists."""
    name = f"data/x/{'a' * 2000}!"
    train, test = [{"image_path": name, "mask_path": name}], [{"image_path": name, "mask_path": name}]
    work = write_index(tmp_path / "work", train, test, ["a", "b"])
    endless = "((a+)+)+$"
    field_set = FieldSet("/data/x", "request", group_pattern=endless, split_pattern=endless, mask_pattern=endless)
    assert len(find_differences(work, field_set)) == 2
    removal = FieldRemoval(frozenset(), set(), groups=frozenset({"b"}), group_pattern=endless)
    assert not removal.is_hidden_path(name)


def test_names_are_hidden_with_what_belongs_to_them() -> None:
    removal = FieldRemoval(
        frozenset({"a/case_07.nii.gz"}),
        {"case_07", "p5"},
        kept_files=frozenset({"a/case_07_b.nii.gz"}),
        folders=frozenset({"a/p5"}),
        id_columns=frozenset({"subject"}),
    )
    hidden = ("a/case_07.nii.gz", "b/case_07.txt", "case_07_seg.png", "a/p5/x.png", "case_07")
    assert [removal.is_hidden_path(path) for path in hidden] == [True] * 5
    assert [removal.is_hidden_path(path) for path in ("a/case_07_b.nii.gz", "a/case_071.png", "p50/x")] == [False] * 3
    assert removal.is_hidden_row({"subject": "case_07", "age": "61"})
    assert not removal.is_hidden_row({"other": "case_07", "age": "61"})
    assert not removal.names_file("12")


@pytest.mark.parametrize(
    "entry",
    [
        {"folder": "eyes"},
        {**ENTRY, "folder": "absent"},
        {**ENTRY, "folder": "../eyes"},
        {**ENTRY, "folder": ".."},
        {**ENTRY, "folder": "."},
        {**ENTRY, "folder": ""},
        {**ENTRY, "manifest": "/etc/hostname"},
        {**ENTRY, "manifest": 5},
        {**ENTRY, "n": 60},
        {**ENTRY, "n": [4, "many"]},
        {**ENTRY, "target": "voxels"},
        {**ENTRY, "group_re": "eye_("},
        {**ENTRY, "group_re": "no group"},
        {**ENTRY, "refused": True},
        {**ENTRY, "Manifests": "m.json"},
        {**ENTRY, "group_re": r"(a)\1"},
        {**ENTRY, "mask_re": "(?<=a)b"},
        {**ENTRY, "split_re": "a" * 5000},
        {**ENTRY, "split_re": 5},
        {**ENTRY, "refuse": "no"},
        {**ENTRY, "manifest": "m\0.json"},
    ],
)
def test_malformed_expectations_are_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    (tmp_path / "eyes").mkdir()
    (tmp_path / "EXPECTED.json").write_text(json.dumps([entry]))
    with pytest.raises(UsageError, match=r"EXPECTED\.json"):
        load_field_sets(tmp_path)


def test_notes_that_resemble_a_key_are_named(field_root: Path) -> None:
    (field_root.parent / "noted" / "eyes").mkdir(parents=True)
    entry = {**ENTRY, "masks": "none", "faults": "none", "targets": "for people, since there is a `target`"}
    (field_root.parent / "noted" / "EXPECTED.json").write_text(json.dumps([entry]))
    notes: list[str] = []
    load_field_sets(field_root.parent / "noted", notes.append)
    (note,) = notes
    assert "entry 1" in note
    assert "`masks`" in note
    assert "`mask_re`" in note


def test_a_sweep_whose_expectations_change_is_not_continued(tmp_path: Path) -> None:
    root, out = write_eyes(tmp_path / "field"), tmp_path / "sweep"
    manifest = root / "manifest.json"

    def begin(**changes: Any) -> None:
        (root / "EXPECTED.json").write_text(json.dumps([{**ENTRY, **changes}]))
        run_sweep(SweepPlan(load_field_tasks(root), simulate=0.0), out, LocalEngine(1))

    begin()
    begin(n=[70, 80])  # nothing was divided yet
    (out / "data/field-eyes").mkdir(parents=True)
    FieldCarveOut(out / "data/field-eyes", "eyes", root / "eyes").save()
    begin(n=[70, 80], note="another")
    with pytest.raises(UsageError, match=r"eyes: `n` was \[70, 80\] and is \[60, 80\], `classes` was 2 and is 3"):
        begin(n=[60, 80], classes=3)
    manifest.write_text("{}")
    with pytest.raises(UsageError, match="eyes: the content of its manifest"):
        begin(n=[70, 80], manifest="manifest.json")
    begin(n=[70, 80])


def test_tasks_are_chosen_and_travel_as_json(field_root: Path, tmp_path: Path) -> None:
    for selectors in ([], ["eyes"], ["field:eyes"], ["diagnosis"]):
        assert [task.id for task in load_field_tasks(field_root, selectors)] == ["field:eyes"]
    with pytest.raises(UsageError, match="there are eyes"):
        load_field_tasks(field_root, ["ears"])
    with pytest.raises(UsageError, match=r"EXPECTED\.json"):
        load_field_tasks(tmp_path)
    task = load_field_tasks(field_root)[0]
    cell = Cell("m3b", "rules", task, 0)
    assert Cell.from_json(json.loads(json.dumps(cell.to_json()))).task == task
    assert parse_task(json.loads(json.dumps(cell.to_json()))["task"]) == task
    assert SweepPlan((task,)).options_of(task)["train_minutes"] == FIELD_TRAIN_MINUTES
