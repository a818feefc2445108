"""Tables of a few rows in several files: train.tsv, test.tsv."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3b.dataset.tables import load_table


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_small_tables_are_stacked_row_by_row(tmp_path: Path, suffix: str, separator: str) -> None:
    for part in ("train", "test"):
        rows = [["file", "months", "event"], *([f"{part}{number}", f"{number}.5", "1"] for number in range(3))]
        text = "\n".join(separator.join(row) for row in rows) + "\n"
        (tmp_path / f"{part}.{suffix}").write_text(text, encoding="utf-8")
    files = {f"{part}.{suffix}": {"part": part} for part in ("train", "test")}
    table = load_table(tmp_path, files)
    assert table.frame.height == 6
    assert table.frame["months"].to_list() == ["0.5", "1.5", "2.5"] * 2
    assert table.frame["part"].to_list() == ["train"] * 3 + ["test"] * 3


def test_a_list_beside_texts_is_a_cell_of_the_record_of_each_file(tmp_path: Path) -> None:
    labels = [["1"], ["0", "1"], [], ["0", "1", "2"]]
    for number, values in enumerate(labels):
        text = json.dumps({"labels": values, "patient": f"p{number}"})
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
    frame = load_table(tmp_path, [f"{number}.json" for number in range(4)]).frame
    assert frame["labels"].to_list() == ["1", "0|1", "[]", "0|1|2"]
    assert frame["patient"].to_list() == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("names", [("age", "sex"), ("a.png", "b.png"), ("p1", "p2"), ("anna", "berta")])
def test_named_elements_of_xml_documents_are_fields_if_every_document_has_them(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """Names of files and numbered names are those of cases, and so are names that one document alone has."""
    for number in range(3):
        suffix = "abc"[number] * (names[0] == "anna")
        elements = "".join(f'<item name="{name}{suffix}">{name} {number}</item>' for name in names)
        (tmp_path / f"{number}.xml").write_text(f"<doc><site>north</site>{elements}</doc>", encoding="utf-8")
    frame = load_table(tmp_path, [f"{number}.xml" for number in range(3)]).frame
    if names[0] == "age":
        assert frame["site"].to_list() == ["north"] * 3
        assert frame["item.sex"].to_list() == ["sex 0", "sex 1", "sex 2"]
    else:
        assert frame["text"].to_list() == [f"{name} {number}" for number in range(3) for name in names]
