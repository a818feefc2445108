"""What requests in five languages claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3b.dataset.words import parse_request

PHRASINGS = json.loads((Path(__file__).parent / "phrasings.json").read_text(encoding="utf-8"))
"""Requests, each with its first task, its targets and some further claims, under the names of `RequestClaims`."""


@pytest.mark.parametrize("phrasing", PHRASINGS, ids=[entry["request"][:40] for entry in PHRASINGS])
def test_phrasings(phrasing):
    claims = parse_request(phrasing["request"])
    assert (claims.tasks or ("",))[0] == phrasing["task"]
    for name in set(phrasing) - {"request", "task"}:
        value = getattr(claims, name)
        assert (list(value) if isinstance(value, tuple) else value) == phrasing[name], name


def test_there_are_at_least_sixty_phrasings():
    assert len(PHRASINGS) >= 60


@pytest.mark.parametrize(
    "text", ["", " ", "?", "42", "tell me a joke", "a" * 5000, "and and and", "(((", "分", "1-2-3 vs. vs."]
)
def test_any_text_is_parsed(text):
    assert parse_request(text).text == text


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("Find what is wrong on chest X-rays", True),
        ("Classify chest X-rays by all findings", True),
        ("Detect abnormalities on chest X-rays", True),
        ("Detect pneumonia on chest X-rays", False),
        ("Segment lesions on CT", False),
    ],
)
def test_open_requests_want_all_findings(text: str, *, is_open: bool) -> None:
    assert parse_request(text).wants_all == is_open
