"""The survey as a whole: JSON, cache, limits, what does not depend on the order of files, and the text."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataset_folders import blocks, fill, grey, save, write_table

from m3b.dataset.survey.facts import Survey, SurveyLimits
from m3b.dataset.survey.render import render, summarize
from m3b.dataset.survey.survey import survey
from m3b.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    fill(root, [f"{part}/images/case_{number:02d}.png" for part in ("train", "test") for number in range(5)])
    fill(root, [f"{part}/masks/case_{number:02d}.png" for part in ("train", "test") for number in range(5)], blocks)
    rows = [[part, f"case_{number:02d}", 30 + number] for part in ("train", "test") for number in range(5)]
    write_table(root / "table.csv", [["part", "name", "age"], *rows])
    (root / "README.md").write_text("Masks: 1 = liver.\n")
    return root


def test_facts_come_back_from_json(folder: Path) -> None:
    facts = survey(folder)
    assert Survey.model_validate_json(facts.model_dump_json()) == facts


def test_the_order_of_the_file_system_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = survey(folder)
    real = os.scandir

    class Shuffled:
        def __init__(self, path: Any) -> None:
            with real(path) as entries:
                self.entries = list(entries)
            random.Random(len(str(path))).shuffle(self.entries)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            return iter(self.entries)

        def __exit__(self, *args: object) -> None:
            return None

    monkeypatch.setattr("m3b.dataset.survey.walk.os.scandir", Shuffled)
    assert survey(folder) == expected


def test_an_unrelated_file_changes_nothing_else(folder: Path) -> None:
    before = survey(folder)
    (folder / "zz_notes.pdf").write_bytes(b"%PDF-1.7 nothing")
    after = survey(folder)
    assert after.groups[: len(before.groups)] == before.groups
    for part in (
        "tables",
        "joins",
        "pairings",
        "splits",
        "name_groups",
        "cross_tables",
        "legends",
        "documents",
        "annotations",
    ):
        assert getattr(after, part) == getattr(before, part), part
    assert after.files == before.files + 1


def test_a_survey_is_stored_until_the_folder_changes(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = survey(folder, cache=cache)
    (stored,) = cache.iterdir()
    assert stored.stat().st_mode & 0o077 == 0
    stored.write_text(first.model_copy(update={"documents": ()}).model_dump_json())
    assert survey(folder, cache=cache).documents == ()
    assert survey(folder, SurveyLimits(samples=3), cache=cache).documents != ()
    (folder / "new.txt").write_text("new")
    assert survey(folder, cache=cache).documents != ()
    assert len(list(cache.iterdir())) == 2


def test_a_survey_that_ran_out_of_time_says_so_and_is_not_stored(folder: Path, tmp_path: Path) -> None:
    facts = survey(folder, SurveyLimits(seconds=0), cache=tmp_path / "cache")
    assert "time" in {note.code for note in facts.notes}
    assert facts.files == 22
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Name a folder"):
        survey(tmp_path / "none")


def test_an_empty_folder(tmp_path: Path) -> None:
    assert survey(tmp_path).groups == ()
    assert render(survey(tmp_path)).count("\n") < 5


def test_the_text_has_what_decides(folder: Path) -> None:
    text = render(survey(folder))
    for expected in (
        "*/images/case_{number1:number}.png",
        "values 0 ",
        "Masks: 1 = liver.",
        "test (test) 5",
        "{part}_{name} = ",
        "same grid 4 of 4",
    ):
        assert expected in text, (expected, text)


def test_the_lines_about_a_folder_name_files_and_no_ids(folder: Path) -> None:
    facts = survey(folder)
    ids = {group.id for group in facts.groups} | {table.id for table in facts.tables}
    lines = summarize(facts)
    assert any(line.startswith("split by") for line in lines)
    assert not ids & set(re.findall(r"\w+", "\n".join(lines)))


def test_lists_of_a_split_are_named_by_their_files(tmp_path: Path) -> None:
    """`split by lists ... {t2.word1}` named a table that was called by its files above it, and 880 cases where 152 were."""
    fill(tmp_path, [f"images/case{chr(97 + number)}x.png" for number in range(20)])
    for side, letters in (("train", "abcdefghijklmnop"), ("val", "qrstuvw")):
        (tmp_path / f"{side}.txt").write_text("".join(f"case{letter}x\n" for letter in letters))
    facts = survey(tmp_path)
    assert [split.source for split in facts.splits] == ["lists"]
    line = next(line for line in summarize(facts) if line.startswith("split by"))
    assert not {table.id for table in facts.tables} & set(re.findall(r"\w+", line))
    assert "val (val) 7 listed" in line


@pytest.mark.parametrize("budget", [12, 40, 120])
def test_the_text_keeps_its_budget(tmp_path: Path, budget: int) -> None:
    for at in range(12):
        fill(
            tmp_path,
            [f"part{chr(97 + at)}x/{'ab'[at % 2]}{number}.{'png' if at % 3 else 'tif'}" for number in range(3)],
        )
        write_table(
            tmp_path / f"t{at}.csv", [[f"c{at}_{column}" for column in range(20)], *([row] * 20 for row in range(5))]
        )
        (tmp_path / f"note{at}.md").write_text("\n".join(f"line {line}" for line in range(30)))
    text = render(survey(tmp_path), budget)
    assert text.count("\n") < budget
    assert re.search(r"\d+ more lines", text)
    assert text.startswith(tmp_path.name)


def test_lines_are_cut_between_values(tmp_path: Path) -> None:
    """What is left out is counted, and a long value loses its end, not its neighbours."""
    words = [f"finding {number:02d} of the left lower lobe" for number in range(12)]
    rows = [f"c{number},{words[number % 12]},{'an opinion that goes on ' * 20}{number}" for number in range(48)]
    (tmp_path / "labels.csv").write_text("id,finding,opinion\n" + "\n".join(rows) + "\n")
    lines = [line.strip() for line in render(survey(tmp_path)).splitlines()]
    findings = next(line for line in lines if line.startswith("finding"))
    shown_words = [word for word in words if f"{word} x4" in findings]
    assert len(findings) <= 300
    assert 0 < len(shown_words) < 12
    assert findings.endswith(f"{shown_words[-1]} x4, and {12 - len(shown_words)} more")
    assert max(len(line) for line in lines if line.startswith("opinion")) < 300


@pytest.mark.parametrize("values", [["mild", "severe"], ["0", "1"], ["12.5", "3.25"]])
def test_a_column_called_label_holds_labels_and_a_column_of_mask_files_masks(tmp_path: Path, values: list[str]) -> None:
    names = [f"case_{number:02d}.png" for number in range(20)]
    fill(tmp_path, [f"images/{name}" for name in names])
    fill(tmp_path, [f"masks/{name}" for name in names], blocks)
    rows = [[name, values[at % 2], f"masks/{name}"] for at, name in enumerate(names)]
    write_table(tmp_path / "table.csv", [["name", "label", "mask_file"], *rows])
    hints = {column.name: column.role_hint for column in survey(tmp_path).tables[0].columns}
    assert (hints["label"], hints["mask_file"]) == ("label", "mask")


def test_the_column_of_patients_is_in_the_lines_about_a_folder(tmp_path: Path) -> None:
    names = [f"case_{number:02d}.png" for number in range(40)]
    fill(tmp_path, [f"images/{name}" for name in names])
    measurements = [f"a measurement with a long name {number}" for number in range(12)]
    rows = [[*(at % 3 for _ in measurements), name, f"P{at // 2:03d}"] for at, name in enumerate(names)]
    write_table(tmp_path / "table.csv", [[*measurements, "name", "patient_id"], *rows])
    line = next(line for line in summarize(survey(tmp_path)) if "table.csv" in line)
    assert "patient_id [patient]" in line


def test_a_readme_beside_lists_of_the_same_suffix_is_a_document(tmp_path: Path) -> None:
    for number in range(30):
        save(tmp_path / "images" / f"{number:03d}.png", grey(number))
    for name, numbers in (("train", range(120)), ("test", range(120, 160))):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{number:03d}" for number in numbers), encoding="utf-8")
    (tmp_path / "README.txt").write_text("Mammographies de deux hôpitaux\n", encoding="utf-8")
    result = survey(tmp_path)
    assert [document.path for document in result.documents] == ["README.txt"]
    assert "{word1:word}.txt" in [group.pattern for group in result.groups]
