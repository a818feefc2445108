"""Texts of a case each: reports by their headings, fields with values, and what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.reading_texts import RECORD, fields_of, read_text, sections

REPORT = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 FINDINGS:

 There is no focal consolidation.  Note: small nodule.
 The heart is normal.

 IMPRESSION:  No acute process.
"""


def test_capitals_with_a_colon_are_headings() -> None:
    assert sections(REPORT) == {
        "examination": "CHEST (PA AND LAT)",
        "findings": "There is no focal consolidation. Note: small nodule. The heart is normal.",
        "impression": "No acute process.",
    }


def test_known_words_are_headings_where_nothing_is_in_capitals() -> None:
    text = "Findings: Clear lungs.\nLungs: clear\nImpression: Normal."
    assert sections(text) == {"findings": "Clear lungs. Lungs: clear", "impression": "Normal."}


def test_a_text_without_headings_is_one_column() -> None:
    assert sections("The lungs are\nclear.") == {"text": "The lungs are clear."}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Age: 45\nDiagnosis = benign", {"Age": "45", "Diagnosis": "benign"}),
        ("Age: 45\nbenign", None),
        ("Age: 45\nAge: 46", None),
        ("Age: 45", None),
        ("FINDINGS: clear\nIMPRESSION: normal", None),
    ],
)
def test_fields_are_lines_of_a_name_and_a_value(text: str, found: dict[str, str] | None) -> None:
    assert fields_of(text) == found


@pytest.mark.parametrize("text", ["0 0.1 0.2 0.3 0.4\n" * 8, "a01.png\na02.png\n" * 8, "normal", "Male 45\nnormal"])
def test_numbers_lists_and_single_values_are_no_prose(text: str) -> None:
    assert read_text(text, exact=True, encoding="utf-8") is None


def test_a_text_file_has_its_record_beside_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The lungs are clear\nThe heart is normal\n")
    tables = read_rows(tmp_path / "a.txt", ".txt", SurveyLimits())
    assert [(one.format, one.record_path, len(one.rows)) for one in tables][-1] == ("text", RECORD, 1)
    (tmp_path / "b.txt").write_bytes(b"\0\1\2" * 50)
    assert read_rows(tmp_path / "b.txt", ".txt", SurveyLimits()) == []


@given(st.text(max_size=400))
def test_no_text_breaks_it_and_no_word_is_lost(text: str) -> None:
    rows = read_text(text, exact=True, encoding="utf-8")
    if rows is not None and rows.names == ["text"]:
        assert rows.rows[0]["text"] == " ".join(text.split())
    for name, told in sections(text).items():
        assert told or not text.strip()
        assert told == " ".join(told.split())
        assert name == name.lower() or name == "text"
