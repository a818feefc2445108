"""Which result belongs to which call, what the page is called, and lines that can be told apart."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.markup.charts import MAX_SERIES, MIN_LABEL_GAP, draw_line_chart, line_classes_of, spread_labels
from m3b.report import write_report
from m3b.report.measured_view import format_metric_name
from m3b.report.run_files import RunFiles, read_run_files
from m3b.report.summary_view import describe_status, make_page_title
from m3b.run.result import STATUSES
from m3b.writing import write_list_atomically

Check = Callable[[str], Any]


def step(kind: str, role: str, at: float, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "role": role, "data": {"id": "rules-0", "name": "run_script", **data}, "at": at}


def test_a_result_is_shown_with_the_call_of_its_own_role(tmp_path: Path, check: Check) -> None:
    events = [
        step("call", "data_engineer", 1.0, arguments={"command": "python build_index.py"}),
        step("result", "data_engineer", 2.0, text="the index is written"),
        step("call", "model_trainer", 3.0, arguments={"command": "python train.py"}),
        step("result", "model_trainer", 4.0, text="epoch 1"),
        step("call", "model_trainer", 5.0, arguments={"command": "python export.py"}),
        step("result", "model_trainer", 6.0, text="exported", is_error=True),
        step("call", "model_trainer", 7.0, arguments={"command": "python again.py"}),
    ]
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    check(text)
    sections = re.split(r"<code>run_script</code>", text)[1:]
    for part, command, result in zip(
        sections, ("build_index", "train", "export"), ("the index is written", "epoch 1", "exported"), strict=False
    ):
        assert command in part
        assert result in part
    assert "no answer" in sections[3]
    assert [">error<" in part for part in sections] == [False, False, True, False]


def test_a_delivery_is_told_by_its_files_and_not_as_json(tmp_path: Path, check: Check) -> None:
    event = {
        "kind": "delivered",
        "role": "",
        "data": {"hashes": {"README.md": "ab" * 32, "predict.py": "cd" * 32}},
        "at": 1.0,
    }
    (tmp_path / "journal.jsonl").write_text(f"{json.dumps(event)}\n")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    check(text)
    assert "2 files; the journal holds the SHA-256 of each" in text
    assert "abab" not in text


def files(task: str, names: list[str], delivered: bool = True) -> RunFiles:
    result = {"task": task, "data_card": "ours"} if delivered else {}
    run = {"request": "find it", "result": result}
    return RunFiles(
        Path("r"), record=run, scores={"classes": names}, delivered_files=[("predict.py", 1)] if delivered else []
    )


@pytest.mark.parametrize(
    ("task", "names", "title"),
    [
        ("diagnosis", ["clear", "opacity"], "Classifier of clear or opacity, made from ours"),
        ("segmentation", ["liver"], "Segmentation of liver, made from ours"),
        ("detection", list("abcdefg"), "Detector of a, b, c, d and 3 more, made from ours"),
        ("report", ["edema"], "Report writer, made from ours"),
    ],
)
def test_the_title_says_what_was_built(task: str, names: list[str], title: str) -> None:
    assert make_page_title(files(task, names)) == title
    assert make_page_title(files(task, names, delivered=False)) == "Asked for: find it"


def test_every_status_has_words_that_claim_no_range() -> None:
    """`below_range` is also a model that is no better than the baseline, or too good, where no range was given."""
    descriptions = [describe_status(status)[0] for status in STATUSES]
    assert len(set(descriptions)) == len(STATUSES)
    assert not [words for words in descriptions if "range" in words.lower() or "_" in words]


def test_no_two_lines_look_alike() -> None:
    assert len({line_classes_of(place) for place in range(MAX_SERIES)}) == MAX_SERIES
    for place in range(MAX_SERIES - 1):
        assert not set(line_classes_of(place).split()[1:]) & set(line_classes_of(place + 1).split()[1:])


@given(st.lists(st.floats(14, 236), min_size=1, max_size=MAX_SERIES))
def test_names_of_lines_do_not_overlap(heights: list[float]) -> None:
    placed = spread_labels([(str(n), (300.0, y)) for n, y in enumerate(heights)], 18, 236)
    lows = [low for _, _, low in placed]
    assert all(b - a >= MIN_LABEL_GAP - 1e-6 for a, b in itertools.pairwise(lows))
    assert sorted(place for place, _, _ in placed) == list(range(len(heights)))
    assert [y for _, (_, y), _ in placed] == sorted(heights)


def test_every_line_is_named_at_its_end_and_in_the_legend(check: Check) -> None:
    names = [f"organ {n}" for n in range(13)]
    chart = draw_line_chart(
        "validation", "epoch", {name: [[(1, 0.1 * n), (2, 0.05 * n)]] for n, name in enumerate(names)}
    )
    for n, name in enumerate(names):
        assert chart.count(f">{name}<") == 2 or chart.count(f"{name}</") == 2, name
        assert chart.count(f'class="{line_classes_of(n)}"') == 2, "the line, and its sample in the legend"


@pytest.mark.parametrize(
    ("unit", "title"),
    [
        ("mm", "HD95, mm (less"),
        ("px", "HD95, pixels (less"),
        ("mixed", "mm or pixels"),
        (None, "HD95 (less"),
        ([], "HD95 ("),
    ],
)
def test_millimetres_only_where_there_are_some(unit: Any, title: str) -> None:
    assert title in format_metric_name("hd95", unit)
    assert format_metric_name("dice", unit) == "Dice"


def test_measured_cases_of_more_than_64_mib_are_shown(tmp_path: Path) -> None:
    """The page of 10,000 cases with 100 classes had none of them: the file was too large to be read at once."""
    (tmp_path / "locked").mkdir()
    rows = ({"image": f"{n}.png", "text": "x" * 2**20} for n in range(66))
    write_list_atomically(tmp_path / "locked/predictions.json", rows)
    assert [row["image"] for row in read_run_files(tmp_path).test_rows] == [f"{n}.png" for n in range(66)]
    (tmp_path / "locked/predictions.json").write_text('[\n{"image": "a"},\n{"ima')
    assert read_run_files(tmp_path).test_rows == []
    (tmp_path / "locked/predictions.json").write_text('[{"image": "a"}, 5]')
    assert read_run_files(tmp_path).test_rows == [{"image": "a"}]
