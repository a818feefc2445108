"""No header of the list shows what stands below it, whatever file it is in; no everyday term is masked."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
from privacy_places import HEADERS, PLACES, TERMS

from m3b.data.phi import cell, is_personal, masked_json, personal_columns
from m3b.dataset.tables import describe_columns
from m3b.tools.previews.arrays import preview as preview_arrays
from m3b.tools.previews.masking import masked_line
from m3b.tools.previews.plain import preview as preview_text
from m3b.tools.previews.records import preview as preview_records
from m3b.tools.previews.tables import preview as preview_table


def in_table(header: str, values: tuple[str, ...], folder: Path) -> str:
    rows = "\n".join(f"{at}.png\t{value}\t{at % 2}" for at, value in enumerate(values))
    (folder / "a.tsv").write_text(f"image\t{header}\tgrade\n{rows}", encoding="utf-8")
    return "\n".join(preview_table(folder / "a.tsv", "mask"))


def in_column(header: str, values: tuple[str, ...], folder: Path) -> str:
    columns = personal_columns([header], [[value] for value in values])
    sensitive = describe_columns(pl.DataFrame({header: values}))[0].sensitive
    return "" if columns == {0} and sensitive == "identity" else " ".join(values)


def in_json(header: str, values: tuple[str, ...], folder: Path) -> str:
    (folder / "a.json").write_text(json.dumps([{"image": "1", header: value} for value in values], ensure_ascii=False))
    text = "\n".join(preview_records(folder / "a.json", "mask"))
    return text if is_shape(header) else text + json.dumps(masked_json({header: values[0]}), ensure_ascii=False)


def in_lines(header: str, values: tuple[str, ...], folder: Path) -> str:
    if is_shape(header):
        return ""
    tag = header.replace(" ", "_").replace("°", "").replace(",", "")
    cell = html.escape(header)
    lines = (f"<r><{tag}>{values[0]}</{tag}></r>", f'<field name="{cell}">{values[0]}</field>', f"{header}: {values[0]}",
             f"<tr><th>{cell}</th><td>{values[0]}</td></tr>", f'<item key="{cell}" value="{values[0]}"/>',
             f"<dt>{cell}</dt><dd>{values[0]}</dd>", f"<b>{cell}:</b> {values[0]}<br>")  # fmt: skip
    return "\n".join(map(masked_line, lines))


def in_html(header: str, values: tuple[str, ...], folder: Path) -> str:
    """A table as pandas writes it, headings in a row of their own, and as a viewer does: a cell a line."""
    cells = [f"<tr>\n<td>{at}.png</td>\n<td><b>{value}</b></td></tr>" for at, value in enumerate(values)]
    head = f"<table border=1><thead><tr><th>image</th>\n<th>{html.escape(header)}</th></tr></thead>\n<tbody>"
    (folder / "a.html").write_text("\n".join([head, *cells, "</tbody></table>"]), "utf-8")
    return "\n".join(preview_text(folder / "a.html", "mask"))


def in_npz(header: str, values: tuple[str, ...], folder: Path) -> str:
    np.savez(folder / "a.npz", **{header.replace("/", "_"): np.array(values)})
    return "\n".join(preview_arrays(folder / "a.npz", "mask"))


def in_hdf5(header: str, values: tuple[str, ...], folder: Path) -> str:
    file = folder / f"{len(list(folder.iterdir()))}.h5"
    with h5py.File(file, "w") as store:
        store[f"cases/{header}"] = [value.encode() for value in values]
        store["image"] = np.zeros((4, 4))
        store["image"].attrs[header] = list(values)
    return "\n".join(preview_arrays(file, "mask"))


def is_shape(header: str) -> bool:
    """Whether several values tell, below a header that does not."""
    return header in ("who", "column_7", "d1", "x1", "Nom", "Nombre", "Name")


CARRIERS: dict[str, Callable[[str, tuple[str, ...], Path], str]] = {
    "table": in_table, "column": in_column, "json": in_json, "lines": in_lines, "html": in_html, "npz": in_npz, "hdf5": in_hdf5
}  # fmt: skip


def test_the_lists_are_long_enough() -> None:
    assert sum(len(headers) for headers, _ in PLACES.values()) * len(CARRIERS) >= 200
    assert len(set(TERMS)) >= 200


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("kind", PLACES)
def test_identity_is_masked_in_every_place(kind: str, carrier: str, tmp_path: Path) -> None:
    headers, values = PLACES[kind]
    texts = {header: CARRIERS[carrier](header, values, tmp_path) for header in headers}
    leaks = {header: text for header, text in texts.items() if any(value in text for value in values)}
    assert list(leaks) == [], leaks


def test_everyday_terms_are_never_masked() -> None:
    assert [term for term in TERMS if cell(term) != term or masked_json({"label": term}) != {"label": term}] == []
    assert [term for term in TERMS if is_personal("name", [term], ["image"])] == []
    assert not is_personal("label", TERMS)


def test_no_everyday_header_is_personal() -> None:
    values = ["0.2", "1.5", "0.7"]
    assert [header for header in HEADERS if is_personal(header, values, HEADERS)] == []


def test_dates_of_birth_are_told_from_dates_of_recordings() -> None:
    generator = np.random.default_rng(0)

    def days(first: int, last: int) -> list[str]:
        return [f"{generator.integers(first, last)}-{at % 12 + 1:02}-{at % 28 + 1:02}" for at in range(40)]

    for _ in range(50):
        assert is_personal("x", days(1925, 2012)), "patients of all ages"
        assert not is_personal("x", days(1985, 2026)), "scans of forty years"
    assert not is_personal("x", [f"{day} 14:05" for day in days(1925, 2012)])


def test_numbers_with_check_digits_are_told_from_other_numbers() -> None:
    generator = np.random.default_rng(0)

    def with_digit(numbers: list[str], weights: range) -> list[str]:
        sums = [
            -sum(int(sign) * weight for sign, weight in zip(number, weights, strict=True)) % 11 for number in numbers
        ]
        return [f"{number}{digit}" for number, digit in zip(numbers, sums, strict=True) if digit < 10]

    numbers = [str(number) for number in generator.integers(100_000_000, 999_999_999, 40)]
    assert is_personal("x", with_digit(numbers, range(10, 1, -1)))
    assert not is_personal("x", [f"{number}7" for number in numbers])
    assert not is_personal("x", numbers)
    letters = "TRWAGMYFPDXBNJZSQVHLCKE"
    assert is_personal("x", [f"{number[:8]}{letters[int(number[:8]) % 23]}" for number in numbers])
    assert not is_personal("x", [f"{number[:8]}A" for number in numbers])
    assert is_personal(
        "x", [f"{number}{97 - int(number) % 97:02}" for number in (f"1{at}06123456{at}" for at in range(20, 60))]
    )
