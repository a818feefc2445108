"""Tools and checks of the user's own, in whole runs; what is refused of them before a run begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import MAKE_INDEX, TRAIN, call, check_end, choice, combine_calls, of_kind, say, script, write

from m3b import Metric, Pipeline, UsageError
from m3b.agents.artifacts import DataIndex
from m3b.metrics import metric_tables

scanned_patients: list[str] = []


def scanner(patient: str) -> str:
    """Name the scanner that a patient was examined with.

    Args:
        patient: as the table has it.
    """
    if not patient.startswith("p"):
        raise ValueError(f"{patient} is no patient")
    scanned_patients.append(patient)
    return "a 3 T scanner"


def test_agents_call_a_tool_of_the_users(build: Any) -> None:
    scanned_patients.clear()
    looks = combine_calls(call("scanner", patient="p007"), call("scanner", patient="7"), call("scanner", who="p007"))
    steps = [
        looks,
        combine_calls(write({"make_index.py": MAKE_INDEX}), script("python make_index.py")),
        say("Indexed."),
    ]
    result = build(index=steps, model=[say('{"given_up": "enough seen"}')], tools=[scanner])
    check_end(result, "failed", "enough seen")
    assert scanned_patients == ["p007"]
    tool_results = of_kind(Path(result.run_dir), "result", "data_engineer")
    assert [(tool_result["text"], tool_result["is_error"]) for tool_result in tool_results[:2]] == [
        ("a 3 T scanner", False), ("scanner: ValueError: 7 is no patient", True)
    ]  # fmt: skip
    assert "Unknown argument 'who'" in tool_results[2]["text"]


def test_a_check_of_the_users_sends_a_hand_over_back(build: Any) -> None:
    checked_indexes: list[DataIndex] = []

    def note(index: DataIndex, work: Path) -> list[str]:
        checked_indexes.append(index)
        return [] if (work / "NOTES.md").is_file() else ["Write NOTES.md: how were patients told apart?"]

    steps = [
        combine_calls(write({"make_index.py": MAKE_INDEX}), script("python make_index.py")),
        say("Indexed."),
        write({"NOTES.md": "by their files"}),
        say("Noted."),
    ]
    result = build(index=steps, checks={"data_engineer": note})
    check_end(result, result.status)
    assert result.model_dir
    assert [check["accepted"] for check in of_kind(Path(result.run_dir), "check", "data_engineer")] == [False, True]
    assert "Write NOTES.md" in json.dumps(of_kind(Path(result.run_dir), "check", "data_engineer")[0])
    assert checked_indexes[0].cases == checked_indexes[1].cases


def test_a_model_that_the_users_check_refuses_is_not_delivered_when_the_budget_ends(build: Any) -> None:
    result = build(
        model=[script(TRAIN), say("Trained and exported.")],
        checks={"model_trainer": lambda model, work: ["Never."]},
        max_iterations=1,
    )
    assert not result.ok
    assert result.model_dir is None
    assert "Never." in result.reason


def untold(patient: str) -> str:
    return patient


def untyped(patient) -> str:  # type: ignore[no-untyped-def]
    """Has no types."""
    return str(patient)


def complex_number_tool(patient: complex) -> str:
    """Has a type that JSON does not hold."""
    return str(patient)


def run_script(command: str) -> str:
    """Has the name of one of the eight."""
    return command


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (untold, "needs a docstring"),
        (untyped, "without a type: patient"),
        (complex_number_tool, "a JSON schema cannot describe"),
        (run_script, "'?run_script'? needs a name of its own"),
        (lambda patient: patient, "needs a name of its own"),
    ],
)
def test_a_tool_that_agents_cannot_be_told_of_is_refused(tool: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pipeline("rules", tools=[tool])


def test_a_check_of_an_unknown_role_is_refused() -> None:
    with pytest.raises(UsageError, match="names the roles trainer; known are task_manager"):
        Pipeline("rules", checks={"trainer": lambda model, work: []})


def test_the_option_of_the_same_name_stays() -> None:
    assert Pipeline("rules", tools="native").options.tools == "native"
    with pytest.raises(UsageError, match="tools must be one of"):
        Pipeline("rules", tools="loud")  # type: ignore[arg-type]


def test_a_model_is_judged_by_a_metric_of_the_users(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_tables, "_ADDED", {})  # no later test of this process measures it

    def hits(rows: Any) -> float:
        return sum(row["decided"] == row["labels"] for row in rows) / len(rows)

    metric = Metric("hits", "diagnosis", hits)
    result = build(selection=[choice("spots", metric="hits")], metrics=[metric])
    check_end(result, result.status)
    assert result.model_dir
    assert result.primary.name == "hits"
    assert result.metrics["hits"]["value"] == pytest.approx(result.metrics["accuracy"]["value"])
    assert result.metrics["hits"]["baseline"] == pytest.approx(result.metrics["accuracy"]["baseline"])
    assert "hits" in (Path(result.run_dir) / "report.html").read_text()
    assert "hits" in (Path(result.model_dir) / "README.md").read_text()
