"""Templates and the comparison of keys, against a slow reading of the same rules."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.manifest.model import Match
from m3b.dataset.manifest.problems import PatternError
from m3b.dataset.manifest.templates import match_keys, normalize, parse_template, take_text


def normalized(text: str, match: Match) -> str | None:
    return pl.DataFrame({"text": [text]}).select(normalize(pl.col("text"), match)).item()


@pytest.mark.parametrize(
    ("match", "text", "key"),
    [
        ("exact", " Left  Eye ", "left eye"),
        ("exact", "  ", None),
        ("basename", r"C:\data\IM 1.png", "im 1.png"),
        ("basename", "a/b/", "b"),
        ("stem", "a/Case.1.nii.gz", "case.1"),
        ("stem", "1.2.840.113", "1.2.840.113"),
        ("stem", "scan.left.png", "scan.left"),
        ("normalized", "Case_007-L.png", "case 7 l"),
        ("normalized", "case 7l", "case 7 l"),
        ("normalized", "Größe_00", "größe 0"),
        ("normalized", "1-05", "1 5"),
        ("normalized", "15", "15"),
        ("number", "Case_007-L2.png", "7 2"),
        ("number", "case", None),
        ("number", "2008", "2008"),
        ("path_tail", r".\images\\A.png", "images/a.png"),
        ("path_tail", "/mnt/x/a.png/", "mnt/x/a.png"),
    ],
)
def test_keys(match: Match, text: str, key: str | None) -> None:
    assert normalized(text, match) == key


@pytest.mark.parametrize("match", ["stem", "normalized", "number", "exact", "basename", "path_tail"])
@given(text=st.text("aB0 1_-./\\é", max_size=12))
def test_a_key_is_its_own_key(match: Match, text: str) -> None:
    key = normalized(text, match)
    assert key is None or normalized(key, match) == key


FIELDS = st.tuples(st.sampled_from(["a", "b", "tag.X", "t.col umn"]), st.text("x_ -", max_size=3))
COLUMN_CELLS = st.one_of(st.none(), st.text("yz1", min_size=1, max_size=3))


@given(parts=st.lists(FIELDS, min_size=1, max_size=4), cells=st.lists(COLUMN_CELLS, min_size=4, max_size=4))
def test_templates_agree_with_python(parts: list[tuple[str, str]], cells: list[str | None]) -> None:
    row = dict(zip(("a", "b", "tag.X", "t.col umn"), cells, strict=True))
    template = "".join(f"{{{name}}}{literal}" for name, literal in parts)
    values = [row[name] for name, _ in parts]
    expected = None if None in values else "".join(f"{row[name]}{literal}" for name, literal in parts).strip()
    frame = pl.DataFrame({name: [cell] for name, cell in row.items()}, schema=dict.fromkeys(row, pl.String))
    text = frame.select(parse_template(template).expression().alias("text")).item()
    assert text == expected


def test_columns_in_the_name_of_a_column() -> None:
    template = parse_template("{member.{part}_labels}-{a}")
    assert template.columns == ("part", "member.{part}_labels", "a")


@pytest.mark.parametrize("text", ["{a", "x{}", "{a{b}"])
def test_templates_that_cannot_be_read(text: str) -> None:
    with pytest.raises(PatternError) as error:
        parse_template(text)
    assert error.value.problem.code == "bad_template"


@pytest.mark.parametrize(
    ("find", "unknown", "missing", "text", "value"),
    [
        (r"^(\d+)_", (), None, "012_L", "012"),
        (r"\d+", (), None, "ab12", "12"),
        (r"x(\d+)?", (), None, "x", None),
        ("", ("NA", "-1"), None, " na ", None),
        ("", ("NA",), "no", "NA", "no"),
        (r"\d+", (), "none", "ab", "none"),
        ("", (), None, "  ", None),
    ],
)
def test_what_a_value_takes(
    find: str, unknown: tuple[str, ...], missing: str | None, text: str, value: str | None
) -> None:
    assert pl.DataFrame({"t": [text]}).select(take_text(pl.col("t"), find, unknown, missing)).item() == value


PATHS = st.lists(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join), max_size=6)


@given(first=PATHS, second=PATHS)
def test_path_tails_agree_with_python(first: list[str], second: list[str]) -> None:
    """A path belongs to those with which it has the longest end in common, of which one is all of it."""
    expected = set()
    for at, path in enumerate(first):
        common = {
            place: min(path.count("/"), candidate.count("/"))
            for place, candidate in enumerate(second)
            if f"/{path}".endswith(f"/{candidate}") or f"/{candidate}".endswith(f"/{path}")
        }
        expected |= {(at, place) for place, length in common.items() if length == max(common.values())}
    keys = [pl.Series("key", paths, dtype=pl.String) for paths in (first, second)]
    assert set(match_keys(keys[0], keys[1], "path_tail").iter_rows()) == expected


@given(
    first=st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=6),
    second=st.lists(st.sampled_from("abcd"), max_size=6),
)
def test_other_keys_are_joined_if_they_are_equal(first: list[str | None], second: list[str]) -> None:
    keys = [pl.Series("key", texts, dtype=pl.String) for texts in (first, second)]
    expected = {(i, j) for i, key in enumerate(first) for j, candidate in enumerate(second) if key == candidate}
    assert set(match_keys(keys[0], keys[1], "exact").iter_rows()) == expected


def test_separators_of_names_are_no_regular_expression() -> None:
    assert re.fullmatch(r"[a-z ]+", normalized("A.b+c", "normalized") or "")
