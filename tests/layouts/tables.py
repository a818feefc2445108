"""Tables in the dresses in which people keep them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import openpyxl

Cell = str | int | float | None


def write_table(
    base: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]], dress: str, language: str, title: str
) -> Path:
    """Write a table and return its file.

    Args:
        base: path without suffix.
        dress: a value of the axis `table_dress`.
        title: what stands above the header, or on the first sheet.
    """
    base.parent.mkdir(parents=True, exist_ok=True)
    if dress in ("xlsx", "xlsx_sheets"):
        return _write_workbook(base.with_name(base.name + ".xlsx"), header, rows, dress == "xlsx_sheets", title)
    separator = {"semicolon": ";", "tab": "\t", "legacy_encoding": ";", "utf16": "\t", "decimal_comma": ";"}.get(
        dress, ","
    )
    stream = io.StringIO()
    if dress == "title_rows":
        stream.write(f"{title}\nExport 2021-03-04\n\n")
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    extra = ["", ""] if dress == "trailing_cells" else []
    writer.writerow(header)
    for row in rows:
        writer.writerow([_to_text(cell, decimal_comma=dress == "decimal_comma") for cell in row] + extra)
    legacy = "gb18030" if language == "zh" else "cp1252"
    encoding = {"legacy_encoding": legacy, "utf16": "utf-16", "bom": "utf-8-sig"}.get(dress, "utf-8")
    file = base.with_name(base.name + (".tsv" if dress == "tab" else ".csv"))
    file.write_bytes(stream.getvalue().encode(encoding))
    return file


def _to_text(cell: Cell, *, decimal_comma: bool) -> str:
    if cell is None:
        return ""
    return str(cell).replace(".", ",") if decimal_comma and isinstance(cell, float) else str(cell)


def _write_workbook(
    file: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]], several_sheets: bool, title: str
) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    if several_sheets:
        sheet.title = "Info"
        sheet.append([title])
        sheet.append(["Version", "2"])
        sheet = book.create_sheet("Data")
    sheet.append(list(header))
    for row in rows:
        sheet.append(list(row))
    book.save(file)
    return file
