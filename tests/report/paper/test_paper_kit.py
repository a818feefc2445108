"""The paper kit: written for every task family, every number from a locked fact, edits found, failed runs refused."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from latex_check import check_structure, compile_latex
from paper_runs import AGES, make_run

from m3b.errors import UsageError
from m3b.report.paper import compare_paper_kit, write_paper_kit
from m3b.report.paper.checklists import CHECKLISTS, read_items
from m3b.report.paper.kit import compare_numbers
from m3b.tasks import names

DOCUMENTS = ("methods", "flow", "table1", "results", "claim2024", "tripod-ai")
FILES = {*(f"{name}.{suffix}" for name in DOCUMENTS for suffix in ("md", "tex")), "flow.svg", "paper.tex", "facts.json"}
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", "diagnosis")


@pytest.fixture
def kit(run_dir: Path, tmp_path: Path) -> Path:
    return write_paper_kit(run_dir, tmp_path / "kit").folder


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def codes(kit: Path, run_dir: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.file) for finding in compare_paper_kit(kit, run_dir)]


def read_table(file: Path) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in file.read_text().splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


@pytest.mark.parametrize("task", names())
def test_a_kit_of_every_task_family(task: str, tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", task)
    kit = write_paper_kit(run_dir, tmp_path / "kit")
    assert {file.name for file in kit.folder.iterdir()} == set(kit.files) == FILES
    assert compare_paper_kit(kit.folder, run_dir) == []
    assert read_table(kit.folder / "table1.md")["Cases, n"] == ["24", "12", "36"]
    assert "mueller" not in "".join(file.read_text() for file in kit.folder.iterdir())
    assert "0.812 (95% CI 0.701 to 0.913) on 12 test cases of 6 patients" in (kit.folder / "results.md").read_text()
    for file in kit.folder.glob("*.tex"):
        check_structure(file.read_text(encoding="utf-8"))
    compile_latex(kit.folder)
    answered, total = kit.answered_items["CLAIM 2024 checklist"]
    assert total == 44
    assert answered >= 25


@pytest.mark.parametrize("name", ["methods.md", "flow.md", "flow.svg", "table1.md", "results.md"])
def test_every_number_has_a_source(kit: Path, name: str) -> None:
    """Numbers of the prose come from facts; so do those of tables, besides names of metrics."""
    facts = json.loads((kit / "facts.json").read_text())["facts"]
    assert all(fact["source"] for fact in facts.values())
    sourced_numbers = {number for fact in facts.values() for number in NUMBER.findall(fact["text"])}
    text = (kit / name).read_text(encoding="utf-8")
    if name == "flow.svg":
        text = " ".join(ElementTree.fromstring(text).itertext())
    if name == "flow.md":
        text = re.sub(r"^\d+\. ", "", text, flags=re.MULTILINE)
    text = re.sub(r"m3b|F1|Table 1|BLEU-\d|table1", "", text)
    assert set(NUMBER.findall(text)) <= sourced_numbers


def test_table_1_counts_patients_and_classes(kit: Path) -> None:
    table = read_table(kit / "table1.md")
    assert table["Patients, n"] == ["12", "6", "18"]
    assert table["&emsp;pneumonia"] == ["12 (50.0%)", "6 (50.0%)", "18 (50.0%)"]
    assert table["&emsp;F"] == ["6 (50.0%)", "3 (50.0%)", "9 (50.0%)"]
    test_ages = sorted(age for age in AGES if age is not None)
    assert table["Age, median (quartiles), patients"][1] == f"{test_ages[2]:g} ({test_ages[1]:g} to {test_ages[3]:g})"
    assert table["&emsp;not known, n (%)"] == ["2 (16.7%)", "1 (16.7%)", "3 (16.7%)"]


@pytest.mark.parametrize(
    ("task", "row", "cells"),
    [
        ("regression", "bone age (months), median (quartiles)", ["107.8 (84 to 131.5)"] * 3),
        ("survival", "overall survival (months), median (quartiles)", ["37.25 (14.5 to 60)"] * 3),
        ("detection", "&emsp;nodule", ["24", "12", "36"]),
        ("report", "Words of a report, median (quartiles)", ["2.5 (1 to 4)"] * 3),
    ],
)
def test_table_1_has_the_targets_of_the_task(task: str, row: str, cells: list[str], tmp_path: Path) -> None:
    kit = write_paper_kit(make_run(tmp_path / "run", task), tmp_path / "kit")
    assert read_table(kit.folder / "table1.md")[row] == cells


def test_the_flow_diagram_is_text_in_every_format(kit: Path) -> None:
    lines = ("42 files", "a document: 3", "no label in cases.csv: 2", "36 cases", "18 patients", "24 cases", "12 patients",
             "5 of the training cases", "4 cases of a table")  # fmt: skip
    drawing = ElementTree.fromstring((kit / "flow.svg").read_text(encoding="utf-8"))
    svg_texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    description = drawing.findtext("{http://www.w3.org/2000/svg}desc") or ""
    for line in lines:
        assert line in svg_texts
        assert line in description
        assert line in (kit / "flow.md").read_text()
        assert line in (kit / "flow.tex").read_text()


def test_external_sets_are_reported(tmp_path: Path) -> None:
    measure = {"name": "auroc", "value": 0.61, "low": 0.5, "high": 0.7, "n": 31, "baseline": 0.5, "patients": 31}
    clinic_b = {"name": "clinic_b", "primary": measure, "metrics": {"auroc": measure}, "cases": 31, "patients": 30}
    external = {"clinic_b": clinic_b, "clinic_c": {"name": "clinic_c", "primary": None, "reason": "no labels"}}
    kit = write_paper_kit(make_run(tmp_path / "run", "diagnosis", external=external), tmp_path / "kit").folder
    results = (kit / "results.md").read_text()
    assert "| clinic\\_b | AUROC | 0.610 | 0.500 to 0.700 | 31 | 0.500 |" in results
    assert "clinic\\_c was not measured: no labels" in results
    assert "clinic_b: 31 cases" in (kit / "flow.svg").read_text()


# --- checklists ----------------------------------------------------------------------------------------------------


def test_a_second_look_at_the_test_cases_is_reported(tmp_path: Path) -> None:
    for looks in (1, 2):
        run_dir = make_run(tmp_path / f"run{looks}", "diagnosis", result_changes={"test_looks": looks})
        kit = write_paper_kit(run_dir, tmp_path / f"kit{looks}").folder
        methods = (kit / "methods.md").read_text()
        assert ("2 models were evaluated on these cases" in methods) == (looks == 2)


def test_the_checklists_have_every_item_once() -> None:
    claim, tripod = (([item["number"] for item in read_items(checklist)]) for checklist in CHECKLISTS)
    assert claim == [str(number) for number in range(1, 45)]
    assert len(tripod) == len(set(tripod)) == 52
    assert list(dict.fromkeys(re.sub(r"\D", "", number) for number in tripod)) == [str(n) for n in range(1, 28)]


@pytest.mark.parametrize("name", ["claim2024", "tripod-ai"])
def test_every_item_has_an_answer_or_a_request(kit: Path, name: str) -> None:
    rows = [line for line in (kit / f"{name}.md").read_text().splitlines() if re.match(r"\| \d", line)]
    for row in rows:
        number, wording, _, text = row.strip("| ").split(" | ")
        assert text.strip(), number
        assert len(wording) < 160
    requests = sum("to be filled by the authors" in row for row in rows)
    assert 0 < requests < len(rows)


# --- comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("results.md", "0.812", "0.912"),
        ("results.tex", "0.701 to", "0.801 to"),
        ("methods.md", "24 cases of 12 patients", "24 cases of 21 patients"),
        ("methods.tex", "608,032", "60,803"),
        ("table1.md", "18 (50.0%)", "19 (50.0%)"),
        ("table1.tex", "12 (50.0\\%)", "12 (51.0\\%)"),
        ("flow.svg", ">24 cases<", ">42 cases<"),
        ("flow.tex", "24 cases", "42 cases"),
        ("claim2024.md", "24 cases for training", "25 cases for training"),
        ("tripod-ai.tex", "12 for testing", "13 for testing"),
    ],
)
def test_an_edited_number_is_found(kit: Path, run_dir: Path, file: str, old: str, new: str) -> None:
    edit(kit / file, old, new)
    assert codes(kit, run_dir) == [("paper_number_changed", file)]


def test_exchanged_numbers_are_found(kit: Path, run_dir: Path) -> None:
    edit(kit / "results.md", "0.701 to 0.913", "0.913 to 0.701")
    assert codes(kit, run_dir) == [("paper_number_changed", "results.md")]


def test_a_changed_run_is_found(kit: Path, run_dir: Path) -> None:
    edit(run_dir / "model/metrics.json", "0.812", "0.912")
    issue_codes = codes(kit, run_dir)
    assert ("paper_fact_changed", "facts.json") in issue_codes
    assert ("paper_number_changed", "results.md") in issue_codes


def test_edited_facts_are_found(kit: Path, run_dir: Path) -> None:
    edit(kit / "facts.json", "0.812", "0.912")
    assert codes(kit, run_dir) == [("paper_fact_changed", "facts.json")]
    (kit / "facts.json").write_text("{")
    assert codes(kit, run_dir) == [("paper_facts_unreadable", "facts.json")]


def test_authors_may_write(kit: Path, run_dir: Path) -> None:
    """Their own words and numbers, other wording around m3b's numbers, and a part of the kit alone."""
    text = (kit / "methods.md").read_text()
    text = re.sub(r"\\\[to be filled by the authors: source.*?\\\]", "Data come from Aachen, approval EK 123/26.", text)
    (kit / "methods.md").write_text(text.replace("were assigned to", "went to"))
    (kit / "flow.svg").write_text((kit / "flow.svg").read_text().replace('x="20"', 'x="25"'))
    (kit / "tripod-ai.tex").unlink()
    findings = compare_paper_kit(kit, run_dir)
    assert [(finding.code, finding.file) for finding in findings] == [("paper_number_added", "methods.md")]
    assert not any(finding.is_change for finding in findings)


def test_a_kit_of_another_version_is_not_compared_word_for_word(kit: Path, run_dir: Path) -> None:
    edit(kit / "facts.json", '"m3b": "', '"m3b": "0.0.')
    edit(kit / "results.md", "0.812", "0.912")
    assert codes(kit, run_dir) == [("paper_other_version", "facts.json")]


def test_numbers_are_compared_with_their_surroundings() -> None:
    expected = "AUROC was 0.81 on 20 cases.\nSensitivity was 0.70.\n"
    assert compare_numbers("a.md", expected, expected) == []
    [finding] = compare_numbers("a.md", expected, expected.replace("0.70", "0.90"))
    assert (finding.code, finding.detail) == ("paper_number_changed", "line 2: 0.90, and not 0.70")
    [finding] = compare_numbers("a.tex", "bias $-9.9$ (-1.5 to 2.5)", "bias $9.9$ (-1.5 to 2.5)")
    assert (finding.code, finding.detail) == ("paper_number_changed", "line 1: 9.9, and not -9.9")
    [finding] = compare_numbers("a.md", expected, expected.replace("Sensitivity was 0.70.", ""))
    assert finding.code == "paper_number_removed"


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "no_dataset", "rejected_data", "out_of_budget", "cancelled"])
def test_a_run_without_a_model_is_refused_with_its_reason(status: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"status": status, "reason": "the disk was full", "primary": None}
    run_dir = make_run(tmp_path / "run", "diagnosis", result_changes=changes)
    with pytest.raises(UsageError, match="the disk was full"):
        write_paper_kit(run_dir, tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_a_run_at_work_is_refused(run_dir: Path, tmp_path: Path) -> None:
    file = run_dir / "journal.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match="has not ended"):
        write_paper_kit(run_dir, tmp_path / "kit")


@pytest.mark.parametrize(
    "name", ["journal.jsonl", "model/metrics.json", "model/provenance.json", "locked/Datapath/test.json"]
)
@pytest.mark.parametrize("content", [None, b"{"])
def test_a_damaged_run_is_refused(run_dir: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    (run_dir / name).unlink()
    if content is not None:
        (run_dir / name).write_bytes(content)
    with pytest.raises(UsageError, match="m3b verify"):
        write_paper_kit(run_dir, tmp_path / "kit")


def test_other_files_are_not_replaced(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/methods.md").write_text("my own")
    with pytest.raises(UsageError, match="other files"):
        write_paper_kit(run_dir, tmp_path / "mine")
    with pytest.raises(UsageError, match="no folder"):
        write_paper_kit(run_dir, tmp_path / "mine/methods.md")
    assert (tmp_path / "mine/methods.md").read_text() == "my own"


# --- hostile names -------------------------------------------------------------------------------------------------

HOSTILE = (
    r"\input{/etc/passwd} & 50% $x_1^2$ #", "a | b\n# heading", "<script>alert(1)</script>", "{{ 7 * 7 }} {% raw %}",
    "\u202etxet ärgern ≤ 5 µm 日本", "[x](javascript:alert(1))",
)  # fmt: skip


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    vocabulary = {name: number for number, name in enumerate(HOSTILE)}
    targets = [{"labels": [name]} for name in HOSTILE]
    run_dir = make_run(tmp_path / "run", "diagnosis", vocabulary=vocabulary, targets=targets)
    kit = write_paper_kit(run_dir, tmp_path / "kit").folder
    assert compare_paper_kit(kit, run_dir) == []
    for file in kit.glob("*.tex"):
        check_structure(file.read_text(encoding="utf-8"))
    compile_latex(kit)
    ElementTree.fromstring((kit / "flow.svg").read_text(encoding="utf-8"))
    for file in kit.glob("*.md"):
        text = file.read_text(encoding="utf-8")
        assert "\n# heading" not in text
        assert re.search(r"(?<!\\)<", text) is None
        assert "[x](" not in text
        assert "49" not in text
        assert "\u202e" not in text
        for line in (line for line in text.splitlines() if line.startswith("|")):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert cells in (3, 4, 5, 6, 7, 8), line


def test_a_confusion_matrix_is_of_exclusive_classes(run_dir: Path, tmp_path: Path) -> None:
    file = run_dir / "model/metrics.json"
    metrics = json.loads(file.read_text()) | {"confusion": [[4, 2], [1, 5]], "multi_label": False}
    file.write_text(json.dumps(metrics))
    table = read_table(write_paper_kit(run_dir, tmp_path / "kit").folder / "results.md")
    assert table["Reference normal"] == ["4", "2"]
    file.write_text(json.dumps(metrics | {"multi_label": True}))
    assert "Reference normal" not in read_table(write_paper_kit(run_dir, tmp_path / "kit").folder / "results.md")
