"""Patterns of paths, against a slow reading of the same rules."""

from __future__ import annotations

import re
import time

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.problems import PatternError


def matches(pattern: str, *paths: str) -> list[dict[str, str | None]]:
    return parse_pattern(pattern).match(pl.DataFrame({"path": paths}, schema={"path": pl.String})).to_dicts()


@pytest.mark.parametrize(
    ("pattern", "path", "slots"),
    [
        ("images/{case}.png", "images/a 1.png", {"case": "a 1"}),
        ("images/{case}.png", "images/b/a.png", None),
        ("images/{case}.png", "IMAGES/A.PNG", {"case": "A"}),
        ("{patient:number}_{side:word}.{png,jpg}", "012_L.jpg", {"patient": "012", "side": "L"}),
        ("{patient:number}_{side:word}.{png,jpg}", "x12_L.jpg", None),
        ("{side:word}.png", "gauche_é.png", None),
        ("{side:word}.png", "droité.png", {"side": "droité"}),
        ("**/{case}.nii{,.gz}", "a.nii.gz", {"case": "a"}),
        ("**/{case}.nii{,.gz}", "x/y/a.nii", {"case": "a"}),
        ("x/**", "x/y/a.nii", {}),
        ("*/*.png", "x/y/a.png", None),
        ("{case}/{case}_seg.nii", "p1/p1_seg.nii", {"case": "p1"}),
        ("{case}/{case}_seg.nii", "p1/p2_seg.nii", None),
        (r"re:(?P<a>[ab])/(?P<id>im\d+)(_t_\d)?\.png", "a/im1_t_2.png", {"a": "a", "id": "im1"}),
        ("a (1).png", "a (1).png", {}),
        ("a+b.png", "aab.png", None),
    ],
)
def test_what_a_pattern_matches(pattern: str, path: str, slots: dict[str, str] | None) -> None:
    assert matches(pattern, path) == ([] if slots is None else [{"path": path, **slots}])


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("", "bad_pattern"), ("/data/x.png", "bad_pattern"), ("../x.png", "bad_pattern"), ("{a:colour}.png", "bad_pattern"),
        ("re:((", "bad_pattern"), (r"re:(?=x)x", "bad_pattern"), ("{path}.png", "reserved_slot"), ("{folder1}/x", "reserved_slot"),
        ("a{.png", "bad_pattern"),
    ],
)  # fmt: skip
def test_patterns_that_cannot_be_used(pattern: str, code: str) -> None:
    with pytest.raises(PatternError) as error:
        parse_pattern(pattern)
    assert error.value.problem.code == code
    assert error.value.problem.remedy


def test_of_several_patterns_the_first_that_matches_gives_the_slots() -> None:
    frame = pl.DataFrame({"path": ["b/2.png", "a/1.png", "c.txt"]})
    matched = match_any(frame, [parse_pattern("a/{n}.png"), parse_pattern("{folder_part}/{n}.png")])
    assert matched.select("path", "n", "folder_part").rows() == [("b/2.png", "2", "b"), ("a/1.png", "1", None)]


def test_no_name_takes_a_pattern_long() -> None:
    name = "a" * 5_000 + "!"
    start = time.monotonic()
    assert matches(r"re:(a+)+b", name) == []
    assert matches("{a}{b}{c}{d}{e}.png", name) == []
    assert time.monotonic() - start < 5


KINDS = {"number": "[0-9]+", "word": r"[^\W\d_]+", "text": "[^/]+?"}
LITERALS = st.text("ab1_-. (+[", min_size=1, max_size=4)
PIECES = st.lists(
    st.one_of(
        LITERALS.map(lambda text: ("text", text)),
        st.sampled_from([("slot", kind) for kind in KINDS]),
        st.just(("star", "")),
    ),
    min_size=1,
    max_size=5,
)


@given(pieces=PIECES, name=st.text("ab1_-. (+[é", min_size=1, max_size=12))
def test_matching_agrees_with_python(pieces: list[tuple[str, str]], name: str) -> None:
    pattern, regex = "x/", "x/"
    for at, (kind, text) in enumerate(pieces):
        if kind == "text":
            pattern, regex = pattern + text, regex + re.escape(text)
        elif kind == "slot":
            pattern, regex = f"{pattern}{{s{at}:{text}}}", f"{regex}(?P<s{at}>{KINDS[text]})"
        else:
            pattern, regex = pattern + "*", regex + "[^/]*"
    if "**" in pattern or pattern in ("x/.", "x/.."):  # folders, and no names of files
        return
    expected = re.fullmatch(regex, f"x/{name}", re.IGNORECASE)
    assert matches(pattern, f"x/{name}") == ([{"path": f"x/{name}", **expected.groupdict()}] if expected else [])
