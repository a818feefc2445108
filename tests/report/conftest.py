"""A strict reader of the page, shared by the report's tests."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest


class Page(HTMLParser):
    """Checks nesting, and collects tags, text and everything that could load or run something."""

    VOID = frozenset({"meta", "br", "hr", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.active: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._attributes(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._attributes(tag, attrs)

    def _attributes(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("iframe", "link", "object", "embed", "base", "form"):
            self.active.append(tag)
        if tag == "script" and set(values) - {"type", "id"}:
            self.active.append("script with attributes")
        if tag == "img" and not (values.get("src") or "").startswith("data:"):
            self.active.append("img")
        if tag == "a" and not (values.get("href") or "").startswith("#"):
            self.active.append("a")
        self.active += [name for name in values if name.startswith("on") or name in ("style", "action", "srcset")]
        self.active += [name for name in ("src", "href") if name in values and tag not in ("img", "a")]
        assert len({name for name, _ in attrs}) == len(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def strictly(text: str) -> Page:
    page = Page(text)
    assert page.active == []
    assert page.tags.count("h1") == page.tags.count("main") == 1
    return page


@pytest.fixture(scope="session")
def check() -> Callable[[str], Page]:
    """Parses a page; fails on bad nesting, on anything that could run or load something, and on doubled landmarks."""
    return strictly
