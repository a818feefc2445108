from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from m3b.tools.previews import blocks, columns, tables
from m3b.tools.previews.blocks import count_lines

CELL = st.text(alphabet="ab1 ,;\"\n'\tä", max_size=6)
ROWS = st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=20)


def preview(text: str | bytes, name: str = "a.csv", phi: str = "mask") -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return "\n".join(tables.preview(path, phi))  # type: ignore[arg-type]


def test_columns_types_and_counts() -> None:
    rows = "".join(
        f"p{i},{i % 3},{i / 2},{'MF'[i % 2]},2020-01-{i % 28 + 1:02d},{'NA' if i % 10 == 0 else 'x'}\n"
        for i in range(90)
    )
    text = preview("patient,label,score,sex,date,note\n" + rows)
    assert "table, comma-separated, utf-8, 90 rows x 6 columns" in text
    assert "columns, of all rows:" in text
    assert "patient: text, 90 distinct" in text
    assert "label: integer, 0 to 2, 3 distinct: 0 x 30, 1 x 30, 2 x 30" in text
    assert "score: number, 0 to 44.5, 90 distinct" in text
    assert "sex: text, 2 distinct: M x 45, F x 45" in text
    assert "date: date, such as 2020-01-01, 28 distinct" in text
    assert "note: text, 9 missing ('NA' x 9), 1 distinct: x x 81" in text
    assert "\n  p0,0,0.0,M,2020-01-01,NA\n" in text


@pytest.mark.parametrize(("delimiter", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar"), (",", "comma")])
def test_delimiters(delimiter: str, name: str) -> None:
    text = preview("\n".join(delimiter.join(row) for row in [("id", "a, b", "c"), ("1", "x, y", "z"), ("2", "u", "v")]).replace(
        "a, b", "ab" if delimiter == "," else "a, b").replace("x, y", "xy" if delimiter == "," else "x, y"))  # fmt: skip
    assert f"{name}-separated" in text
    assert "2 rows x 3 columns" in text


def test_encodings_header_and_ragged_rows() -> None:
    assert "cp1252" in preview("größe,b\n1,2\n".encode("cp1252"))
    assert "größe: integer" in preview("größe,b\n1,2\n".encode("utf-16"))
    assert "\n  größe" not in preview("\ufeffgröße,b\n1,2\n").split("größe", 1)[0]
    assert "no header" in preview("a/1.png,0\na/2.png,1\n")
    assert "1 row with another number of cells than 2" in preview("a,b\n1,2\n1,2,3\n")
    assert "0 rows" in preview("a,b\n")


def test_identity_is_masked() -> None:
    content = "patient_id,Patient Name,dob,mail,finding\nP1,Jane Doe,1970-01-01,j@x.org,mass\nP2,Joe Roe,1980-02-02,k@y.org,mass\n"
    text = preview(content)
    for secret in ("Jane", "Joe", "1970", "1980", "x.org"):
        assert secret not in text
    assert "P1" in text
    assert "Patient Name: text, 2 distinct; looks like personal data: masked" in text
    assert "Jane Doe" in preview(content, phi="allow")


@given(rows=ROWS, delimiter=st.sampled_from([",", ";", "\t"]))
def test_counts_as_the_csv_module_does(rows: list[list[str]], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([["id", "b", "c"], *rows])
    head = out.getvalue().encode()
    layout = tables.sniff(head)
    assume(layout.delimiter == delimiter)
    assert layout.names == ["id", "b", "c"]
    assert f", {len(rows):,} row" in preview(head)


def test_a_header_may_hold_slashes_and_a_path_is_no_header() -> None:
    assert tables.sniff(b"Filename,Patient ID / Name,Lung /abdomen\na,1,x\nb,2,y\n").header
    assert not tables.sniff(b"scans/a.dat,sick\nscans/b.dat,well\n").header


@given(rows=ROWS, block=st.integers(1, 40), final=st.booleans())
def test_streamed_count_agrees_with_the_csv_module(rows: list[list[str]], block: int, final: bool) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    data = out.getvalue() if final else out.getvalue().rstrip("\n")
    before = blocks._BLOCK
    blocks._BLOCK = block
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.csv"
            path.write_text(data, newline="")
            count = count_lines(path, quotes=True)
    finally:
        blocks._BLOCK = before
    assert count.balanced
    assert count.lines == sum(1 for row in csv.reader(io.StringIO(data, newline="")) if row)


@given(
    lines=st.lists(st.text(alphabet="ab", max_size=3), max_size=30),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.integers(1, 20),
)
def test_empty_lines_are_not_counted(lines: list[str], end: str, block: int) -> None:
    before = blocks._BLOCK
    blocks._BLOCK = block
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.txt"
            path.write_text(end.join(lines) + end, newline="")
            count = count_lines(path, quotes=False)
    finally:
        blocks._BLOCK = before
    assert count.lines == sum(1 for line in lines if line)


def test_large_tables_say_what_they_looked_at(monkeypatch) -> None:
    monkeypatch.setattr(tables, "_WHOLE_UP_TO", 1000)
    monkeypatch.setattr(tables, "_FIRST_ROWS", 100)
    rows = "".join(f'{i},{"a" if i < 150_000 else "b"},"x, ""y"""\n' for i in range(300_000))
    text = preview("id,label,note\n" + rows)
    assert "300,000 rows x 3 columns" in text
    assert "columns, of the first 100 rows and " in text
    assert "label: text, 2 distinct: " in text


def test_distinct_values_beyond_the_limit_are_estimated() -> None:
    column = columns.ColumnTally("id")
    for start in range(0, 200_000, 5000):
        column.feed([f"scan_{i}" for i in range(start, start + 5000)])
    estimate, exact = column.distinct
    assert not exact
    assert abs(estimate - 200_000) < 20_000
    assert "about" in column.describe(False)


def test_quotes_that_never_close() -> None:
    text = preview('a,b\n1,"x\n2,y\n')
    assert "2 columns" in text
