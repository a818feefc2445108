"""Tables of made-up rows: every figure with its interval, on the terminal, as CSV and as a page; and the command line."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from m3b.bench.render import to_csv, to_html, to_text, write_files, write_report
from m3b.bench.results_store import SweepStore, gather_rows
from m3b.bench.tables import make_tables
from m3b.bench.tasks import choose_tasks
from m3b.writing import csv_cell
from warm.commands import run_m3b


def row(task: str, run: int, ok: bool, **overrides: Any) -> dict[str, Any]:
    role = {"status": "done", "actions": 2, "iterations": 1, "input_tokens": 900, "output_tokens": 100}
    base = {
        "system": "m3b", "model": "rules", "task": task, "family": "diagnosis", "variant": "plain", "dataset": "CT-Kidney",
        "run": run, "ok": ok, "kind": "success" if ok else "below_range", "reason": "r", "labels": [], "status": "completed",
        "score": {"primary": {"name": "auroc", "value": 0.8, "low": 0.7, "high": 0.9, "n": 40, "baseline": 0.5},
                  "control": {"value": 0.51}, "acceptable": [0.7, None]},
        "claimed": None, "usage": {"actions": 12, "iterations": 1, "input_tokens": 9000, "output_tokens": 1000,
                                   "cost_usd": 0.5, "wall_s": 60.0},
        "roles": {"task_manager": role, "data_engineer": {**role, "status": "failed" if not ok else "done"}},
    }  # fmt: skip
    base.update(overrides)
    return {**base, "key": f"{base['system']}-{base['model']}-{task}-{run}"}


def sweep() -> list[dict[str, Any]]:
    names = [task.id for task in choose_tasks([])]
    m3b_rows = [row(task, run, not (task == "verse" and run)) for task in names for run in range(2)]
    single_rows = [
        row(task, run, number % 2 == 0, system="m3b-single") for number, task in enumerate(names) for run in range(2)
    ]
    bad = row("btcv", 5, False, kind="cheated", labels=["trains on test cases"])
    return [*m3b_rows, *single_rows, bad]


def test_every_table_is_there_and_says_what_it_stands_on() -> None:
    tables = {table.name: table for table in make_tables(sweep())}
    assert {"table1", "table2", "differences", "table3", "table10", "table17", "quality", "failures"} <= set(tables)
    completion = {cells[0]: cells[1:] for cells in tables["table1"].rows}
    assert completion["verse"][0] == "1/2 (9-91 %)"
    assert completion["verse"][1:3] == ("4/5", "4/5"), "as published, model by model"
    assert completion["ct-kidney"][0].startswith("2/2")
    assert completion["average, by task"][0].startswith("93.1 % (")
    assert completion["average, by task"][1] == "94.29 % (printed)"
    assert completion["all runs: Wilson"][1] == "94.3 % (86.2-97.8)"
    assert any("2 of 70" in note for note in tables["table1"].notes)
    gap = tables["differences"].rows[0]
    assert gap[0].startswith("m3b-single - m3b")
    assert " to " in gap[2], "no difference without its interval"
    published = {cells[0]: cells for cells in tables["table2"].rows if "(published)" in cells[0]}
    assert len(published) == 10
    assert published["Cursor Composer (published)"][1:6] == ("1/6 (42 / 7)", "3/8 (35.7 / 4.3)", "3/8 (36.3 / 4)",
                                                             "2/6 (51.5 / 5.5)", "9/28")  # fmt: skip
    executions = {cells[0]: cells[1:] for cells in tables["table10"].rows}
    assert executions["adni 1"] == ("1, 12 / 1", "0", "48", "4")
    assert any("disagree" in note for note in tables["table10"].notes)
    published_trainer = next(
        cells for cells in tables["table3"].rows if cells[0] == "diagnosis: Model Trainer (M3Builder, published)"
    )
    assert published_trainer[1] == "8/8"
    assert published_trainer[3:] == ("9.3", "2", "198,000")
    assert any("trains on test cases (1)" in cells[4] for cells in tables["failures"].rows)
    engineer = next(cells for cells in tables["table3"].rows if cells[0] == "diagnosis: Data Engineer (m3b / rules)")
    assert engineer[1] == "27/29"
    assert tables["quality"].rows[0][7] == "0.510", "the shuffled control"


def test_figures_of_sets_without_patients_carry_a_mark() -> None:
    rows = [row("ct-kidney", 0, True), row("verse", 0, True, dataset="VerSe"), row("own", 0, True, dataset="Mine")]
    (marked_table,) = [entry for entry in make_tables(rows) if entry.name == "quality"]
    marks = {entry[0].split(" / ")[0]: entry[0].endswith(" *") for entry in marked_table.rows}
    assert marks == {"ct-kidney": True, "verse": False, "own": False}
    assert "does not record patients" in marked_table.notes[0]
    (unmarked_table,) = [entry for entry in make_tables(rows[1:]) if entry.name == "quality"]
    assert unmarked_table.notes == ()


def test_systems_stand_under_one_judge() -> None:
    def rival(system: str, claim: dict[str, Any] | None, hidden: float, task: str = "adni", **overrides: Any) -> Any:
        score = {"primary": {"name": "auroc", "value": hidden}, "acceptable": [0.7, None]}
        usage = {"requests": 7, "input_tokens": 900, "output_tokens": 100}
        own = {"system": system, "claimed": claim, "score": score, "usage": usage, "roles": {}}
        return {**row(task, 0, True), **own, **overrides}

    rows = [
        rival("m3b", {"name": "auroc", "value": 0.82}, 0.80),
        rival("m3b", {"name": "auroc", "value": 0.90}, 0.84, task="kneemri"),
        rival("aide", {"name": "ROC AUC", "value": 0.99}, 0.69, labels=["raw data changed"], ok=False, kind="cheated"),
        rival("aide", None, 0.71, task="kneemri"),
        rival("react", {"name": "dice", "value": 0.9}, 0.7),
        row("adni", 0, False, system="command:x", score=None, usage={}, roles={}),
    ]
    (table,) = [entry for entry in make_tables(rows) if entry.name == "comparison"]
    cells = {entry[0].split(" / ")[0]: entry[1:] for entry in table.rows}
    assert cells["m3b"] == ("2/2", "auroc 0.820 (2)", "+0.040 (2, +0.020 to +0.060)", "0", "7.0", "1,000", "yes")
    assert cells["aide"][:4] == ("1/2", "auroc 0.700 (2)", "+0.300 (1)", "raw data changed (1)")
    assert cells["react"][2] == "", "a claim of another metric cannot be compared"
    assert cells["command:x"] == ("0/1", "", "", "0", "", "", "?")


def test_field_sets_are_in_none_of_the_papers_tables() -> None:
    own = {"variant": "field", "dataset": "eyes"}
    field_rows = [
        row("field:eyes", 0, True, reading={"verdict": "right", "differences": []}, **own),
        row(
            "field:eyes", 1, False, kind="wrong_reading", reading={"verdict": "wrong_passed", "differences": []}, **own
        ),
        row(
            "field:bones",
            0,
            False,
            kind="reading_only",
            score=None,
            reading={"verdict": "right", "differences": []},
            **own,
        ),
    ]
    mixed, alone = ({table.name: table for table in make_tables(rows)} for rows in (sweep() + field_rows, sweep()))
    assert set(mixed) - set(alone) == {"field"}
    for name in set(alone) - {"differences", "comparison", "failures"}:
        assert mixed[name] == alone[name]
    cells = {entry[0]: entry[1:] for entry in mixed["field"].rows}
    assert cells["eyes / m3b / rules"] == (
        "right 1/2, wrong_passed 1/2", "1/2", "auroc 0.800", "0.500", "0.510", "wrong_reading 1/2",
    )  # fmt: skip
    assert cells["bones / m3b / rules"] == ("right", "0/1", "", "", "", "reading_only")
    assert cells["all sets / m3b / rules"][:2] == ("right 2/3", "1/3 (6-79 %)")
    assert next(entry for entry in mixed["comparison"].rows if "field sets" in entry[0])[1] == "1/3"
    for name in ("comparison", "failures"):
        assert set(alone[name].rows) <= set(mixed[name].rows)


def test_declined_requests_have_a_row_of_their_own() -> None:
    rows = [row("ct-kidney", 0, True), row("decline:ecg", 0, False, family="decline", score=None, kind="not_declined")]
    first = {cells[0]: cells[1] for cells in make_tables(rows)[0].rows}
    assert first["average, by task"].startswith("100.0 %")
    assert first["requests to be declined"] == "0/1"


def test_a_sweep_of_declined_requests_alone_has_its_tables() -> None:
    rows = [row("decline:ecg", run, True, family="decline", score=None, kind="declined") for run in range(2)]
    tables = {table.name: table for table in make_tables(rows)}
    assert {cells[0]: cells[1] for cells in tables["table1"].rows} == {"requests to be declined": "2/2"}


def test_a_table_survives_csv(tmp_path: Path) -> None:
    for table in make_tables(sweep()):
        read = list(csv.reader(to_csv(table).splitlines()))
        assert read == [[csv_cell(text) for text in row] for row in (table.header, *table.rows)]
        assert [row[0] for row in read[1:]] == [row[0] for row in table.rows]
    files = write_files(make_tables(sweep()), tmp_path)
    assert (tmp_path / "bench.html") in files


class Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_escapes_what_it_shows() -> None:
    page = to_html(make_tables([row("<script>alert(1)</script>", 0, True), *sweep()]))
    assert "<script>" not in page
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.tags.count("svg") >= 2
    assert "http" not in page.replace("http-equiv", "")


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    return run_m3b("bench", *words)


@pytest.mark.parametrize("command", ["table", "report"])
def test_tables_that_were_edited_are_not_overwritten(tmp_path: Path, command: str) -> None:
    with SweepStore(tmp_path / "sweep") as store:
        for result_row in sweep():
            store.finish(result_row)
    place = tmp_path / "made"
    assert bench(command, tmp_path / "sweep", "-o", place).returncode == 0
    files = {file: file.read_text() for file in place.iterdir()}
    edited = place / ("section.tex" if command == "report" else "table1.csv")
    edited.write_text("edited by hand")
    ended = bench(command, tmp_path / "sweep", "-o", place)
    assert ended.returncode == 2
    assert "exists already" in ended.stderr
    assert "--force" in ended.stderr
    assert edited.read_text() == "edited by hand"
    assert bench(command, tmp_path / "sweep", "-o", place, "--force").returncode == 0
    assert {file: file.read_text() for file in place.iterdir()} == files


def test_the_command_shows_tables(tmp_path: Path) -> None:
    with SweepStore(tmp_path) as store:
        for entry in sweep():
            store.finish(entry)
    completed = bench("table", tmp_path, "-o", tmp_path / "out")
    assert completed.returncode == 0
    assert to_text(make_tables(sweep())) in completed.stdout
    assert (tmp_path / "out" / "table1.csv").is_file()
    output = json.loads(bench("table", tmp_path, "--json").stdout)
    assert [entry["name"] for entry in output["tables"]][:2] == ["table1", "table2"]


def test_parts_of_a_sweep_come_together_and_name_no_host(tmp_path: Path) -> None:
    for place, host in (("here", "http://gpu1.lan/v1"), ("there", "http://gpu2.lan/v1")):
        with SweepStore(tmp_path / place) as store:
            for result_row in sweep():
                store.finish({**result_row, "model": f"{result_row['model']}@{host}"})
    rows = gather_rows([tmp_path / "here", tmp_path / "there"])
    assert {result_row["model"] for result_row in rows} == {result_row["model"] for result_row in sweep()}
    assert len(rows) == 2 * len(sweep())
    assert len(gather_rows([tmp_path / "here", tmp_path / "here"])) == len(sweep()), "named twice is counted once"
    assert "gpu1" not in bench("table", tmp_path / "here", tmp_path / "there").stdout
    with SweepStore(tmp_path / "both") as store:
        for place in ("a", "b"):
            store.finish({**row("x", 0, True), "key": place, "model": f"openai:q@http://{place}/v1"})
    assert sorted(result_row["model"] for result_row in gather_rows([tmp_path / "both"])) == [
        "openai:q",
        "openai:q (2)",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table", "."], "no results"),
        (["run", "--tasks", "bananas"], "No task"),
        (["run", "--system", "Cursor"], "no headless form"),
        (["run", "--engine", "abacus"], "no engine"),
        (["run", "--data", "ADNI"], "NAME=FOLDER"),
        (["run", "--train-minutes", "0"], "--train-minutes must"),
        (["score", "."], "no results"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = bench(*words)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_tasks_and_systems_are_listed() -> None:
    listing = json.loads(bench("list", "--json").stdout)
    assert len(listing["tasks"]) >= 14 + 14 + 3
    assert listing["systems"]["m3b"] == ""


def test_the_command_writes_a_papers_section(tmp_path: Path) -> None:
    with SweepStore(tmp_path) as store:
        for result_row in sweep():
            store.finish({**result_row, "task": "50%_of & {all}\\"} if result_row["task"] == "adni" else result_row)
    ended = bench("report", tmp_path)
    assert ended.returncode == 0, ended.stderr
    place = tmp_path / "report"
    assert {file.name for file in place.iterdir()} == {Path(line).name for line in ended.stdout.split()}
    table = (place / "table1.tex").read_text()
    assert r"50\%\_of \& \{all\}\textbackslash{}" in table
    head = next(line for line in table.splitlines() if line.startswith("task &"))
    cells = [line for line in table.splitlines() if line.endswith(r" \\")]
    separator_counts = [line.replace(r"\&", "").count("&") for line in cells]
    assert set(separator_counts) == {head.count("&")}, "every row has the head's columns"
    assert "<svg xmlns" in (place / "table2_figure.svg").read_text()
    for name in re.findall(r"\\input\{(.*?)\}", (place / "section.tex").read_text()):
        assert (place / name).is_file()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_the_section_compiles(tmp_path: Path) -> None:
    write_report(make_tables(sweep()), tmp_path)
    ended = subprocess.run(["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "section.tex"], cwd=tmp_path,
                           capture_output=True, text=True, errors="replace", check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:]
    assert (tmp_path / "section.pdf").is_file()
