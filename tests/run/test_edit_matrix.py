"""Each edit of a finished run, and each pair of edits, is found by `m3b verify`, and docs/security.md shows it."""

from __future__ import annotations

from itertools import groupby

import pytest
from edit_matrix import EDITS, PAGE, EditMatrix, area_of, fill_page, make_edit_table, make_pair_table, make_run

from m3b.run.verification import VerificationResult

RESET = "`run.json`: set back to `working`"
LOOKS_INTERRUPTED = {"`journal.jsonl`: the last line removed", "`journal.jsonl`: the last three lines removed"}
"""Together with `RESET` they leave what a killed process leaves."""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> EditMatrix:
    top = tmp_path_factory.mktemp("matrix")
    return EditMatrix(make_run(top), top)


def assert_found(names: tuple[str, ...], result: VerificationResult) -> None:
    """Assert the kind of finding of at least one edit, and that the command fails if one of them makes it fail alone."""
    edits = [EDITS[name] for name in names if EDITS[name].code]
    states = {(comparison.code, comparison.state) for comparison in result.comparisons}
    expected = {(edit.code, edit.state) for edit in edits}
    if "`journal.jsonl`: emptied" in names or RESET in names:
        expected |= {("journal_end", "changed"), ("settings", "changed")}
    assert expected & states or not edits, (names, states)
    is_found = any(edit.state == "changed" for edit in edits) and not (
        RESET in names and LOOKS_INTERRUPTED & set(names)
    )
    assert result.ok is not is_found, names


@pytest.mark.parametrize("name", [name for name, edit in EDITS.items() if edit.code])
def test_an_edit_is_found(matrix: EditMatrix, name: str) -> None:
    edit, result = EDITS[name], matrix.singles[name]
    assert result is not None, "the edit is possible"
    assert_found((name,), result)
    details = [item.detail for item in result.comparisons if (item.code, item.state) == (edit.code, edit.state)]
    assert any(edit.detail in detail for detail in details), details


def test_what_no_comparison_covers_is_the_report_alone(matrix: EditMatrix) -> None:
    assert [name for name, edit in EDITS.items() if not edit.code] == ["`report.html`"]


def test_pairs_of_edits_of_different_kinds_are_found(matrix: EditMatrix) -> None:
    kinds = groupby(EDITS, key=lambda name: (area_of(name), EDITS[name].code))
    pairs = matrix.verify_pairs([next(names) for _, names in kinds])
    assert len(pairs) > 100
    for pair, result in pairs.items():
        assert_found(pair, result)


def test_the_page_shows_each_edit(matrix: EditMatrix) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert fill_page(text, {"single edits": make_edit_table(matrix)}) == text


def test_a_forger_is_found_by_a_fingerprint_that_was_kept(matrix: EditMatrix) -> None:
    for name, edit in EDITS.items():
        result = matrix.verify_forged(edit, expect=matrix.fingerprint)
        assert result is None or not result.ok or name == "`report.html`", name


@pytest.mark.slow
def test_every_pair_of_edits_is_found_and_the_page_shows_it(matrix: EditMatrix) -> None:
    for pair, result in matrix.pairs.items():
        assert_found(pair, result)
    text = PAGE.read_text(encoding="utf-8")
    assert fill_page(text, {"pairs of edits": make_pair_table(matrix)}) == text


def test_an_unedited_copy_is_the_same(matrix: EditMatrix) -> None:
    result = matrix.verify_edited()
    assert result is not None
    assert {comparison.state for comparison in result.comparisons} == {"same"}
