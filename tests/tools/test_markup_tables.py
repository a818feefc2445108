"""Values in HTML and XML that a heading or an element in another line names as a person's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.tools.previews.markup_tables import mask_markup

TABLE = """<table>
<thead><tr><th>Image</th><th>Patient name</th><th>Grade</th></tr></thead>
<tr><td>a.png<td>Emily
Thornton<td>1
<tr><td>b.png<td>Jonas &amp; Meier<td>2
</table>
<table><tr><th>Grade</th></tr><tr><td>3</td></tr></table>"""
RECORD = """<Patient>
 <identifier>
  <system value="urn:hospital"/>
  <value value="4471923"/>
 </identifier>
 <grade value="2"/>
</Patient>"""


def test_cells_below_headings_of_persons() -> None:
    masked_text = mask_markup(TABLE)
    assert [secret for secret in ("Emily", "Thornton", "Jonas", "Meier") if secret in masked_text] == []
    assert [part for part in ("a.png", "b.png", "<td>1", "<td>2", "<td>3") if part not in masked_text] == []
    assert len(masked_text.split("\n")) == len(TABLE.split("\n"))


def test_identifiers_of_several_lines() -> None:
    masked_text = mask_markup(RECORD)
    assert "4471923" not in masked_text
    assert '<grade value="2"/>' in masked_text
    assert 'value="urn:hospital"' in masked_text


def test_a_page_of_a_table_that_begins_before_it(desk) -> None:
    rows = "".join(f"<tr>\n<td>{at}.png</td>\n<td>Emily Thornton</td></tr>\n" for at in range(30))
    desk.data.joinpath("list.html").write_text(f"<table><tr><th>file</th><th>Patient name</th></tr>\n{rows}</table>")
    page = desk.use("read_files", paths=["data/chest/list.html"], offset=40, limit=20).text
    assert "13.png" in page
    assert "Thornton" not in page


@given(st.text(alphabet='<>/tdrhable nm="1\n', max_size=200))
def test_any_text_keeps_its_lines(text: str) -> None:
    assert len(mask_markup(text).split("\n")) == len(text.split("\n"))


@pytest.mark.parametrize("piece", ["<table><tr><td>", "<td", "<identifier>", "<", "<value value='1' "])
def test_long_texts_take_a_short_time(piece: str) -> None:
    """The time is bounded by the suite's own limit."""
    mask_markup(piece * (400_000 // len(piece)))
