from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from m3b.dataset.tables import TableLimits
from m3b.tools.previews import tables

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
def test_rows_are_counted_as_the_csv_module_does(rows: list[list[str]], delimiter: str) -> None:
    out = io.StringIO()
    rows = [[f"row {place}", *row] for place, row in enumerate(rows)]
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([["id", "b", "c", "d"], *rows])
    text = preview(out.getvalue())
    assume(f"{tables._SEPARATORS[delimiter]}-separated" in text and "no header" not in text)
    assert f", {len(rows):,} row" in text


def test_large_tables_say_what_they_looked_at(monkeypatch) -> None:
    monkeypatch.setattr(tables, "_LIMITS", TableLimits(rows=1000))
    rows = "".join(f"{i},{'a' if i < 150_000 else 'b'},x\n" for i in range(300_000))
    text = preview("id,label,note\n" + rows)
    assert "the first 1,000 rows of about 300,001 (read in part) x 3 columns" in text
    assert "columns, of the rows read:" in text
    assert "label: text, 1 distinct: a x 1,000" in text


def test_quotes_that_never_close() -> None:
    text = preview('a,b\n1,"x\n2,y\n')
    assert "2 columns" in text
