"""Build HTML and SVG safely: everything is escaped unless it is `Html` already."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_CONTROL_PATTERN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\ud800-\udfff\ufffe\uffff]")
# Characters that reorder text could make a reader see something else than what was written.
_DIRECTION_PATTERN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_VOID_ELEMENTS = {"meta", "br", "hr", "path", "circle", "rect", "line", "polyline"}


class Html(str):
    """Markup that is already safe, also for jinja2."""

    def __html__(self) -> str:
        return str(self)


Child = object
"""`Html` is kept, None and False are dropped, lists and tuples are joined, anything else is escaped as text."""


def replace_control_characters(text: str) -> str:
    """Return the text with a replacement character for each control character and each that reorders text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL_PATTERN.sub("\ufffd", _DIRECTION_PATTERN.sub("\ufffd", text))


def escape(value: object) -> Html:
    """Return any value as text: control characters become a replacement character, special characters are escaped."""
    return Html(html.escape(replace_control_characters(str(value)), quote=True))


def join_html(*children: Child) -> Html:
    """Join children one after the other."""
    parts: list[str] = []
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, list | tuple):
            parts.append(join_html(*child))
        else:
            parts.append(escape(child))
    return Html("".join(parts))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element. `class_` is `class`, `_` in other attribute names becomes `-`; None omits an attribute."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID_ELEMENTS and not children:
        return Html(f"<{name}{attribute_text}/>" if name not in ("meta", "br", "hr") else f"<{name}{attribute_text}>")
    return Html(f"<{name}{attribute_text}>{join_html(*children)}</{name}>")


def table(head: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str = "", numbers: bool = True) -> Html:
    """Return a table whose first column names the row; `numbers` aligns the other columns right."""
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in map(list, rows)
        if row
    ]
    head_cells = [tag("th", cell, scope="col") if cell not in (None, "") else tag("td") for cell in head]
    header = tag("thead", tag("tr", *head_cells))
    content = join_html(tag("caption", caption) if caption else None, header, tag("tbody", *body))
    name = caption or ", ".join(
        str(cell) for cell in head if isinstance(cell, str) and not isinstance(cell, Html) and cell
    )
    return tag(
        "div",
        tag("table", content, class_="numbers" if numbers else None),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=name or "table",
    )


def section(anchor: str, title: str, *children: Child) -> Html:
    """Return a headed part of the page, or nothing if it has no content."""
    content = join_html(*children)
    if not content.strip():
        return Html("")
    return tag("section", tag("h2", title, id=anchor), content, aria_labelledby=anchor)


def subsection(title: str, *children: Child) -> Html:
    """Return a part of a section under its own heading."""
    return join_html(tag("h3", title), *children)
