"""A montage of training cases for a language model: case numbers, outlines of what is labelled and answered, no names.

`DRAW_MONTAGE_JOB` runs in the reader process, since images and masks are untrusted. Images with text in their pixels are
left out.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.index import Index, Record, read_index
from m3b.data.records import paths_of
from m3b.errors import DataError, ModelError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.base64_bytes import Blob
from m3b.models.predictions import Prediction

if TYPE_CHECKING:
    from m3b.models.overlay import Panel

MAX_MONTAGE_SIDE_PX = 1092
"""Longer side of a montage: providers charge at most 1,600 tokens for so many pixels, or scale it down."""
MAX_PANEL_SIDE_PX, TITLE_STRIP_PX, GAP_PX = 512, 20, 6


@dataclass(frozen=True)
class MontageRequest:
    """Cases to draw.

    Args:
        locked: the folder of the locked index.
        keys: keys of training cases, in order; test cases are never drawn.
        answers: case key -> the model's answer, drawn beside the truth.
        hides_text: whether images with text in their pixels are left out; it needs the extra `ocr`.
    """

    locked: Path
    task: str
    keys: list[str]
    answers: dict[str, Prediction] = field(default_factory=dict)
    hides_text: bool = True


@dataclass(frozen=True)
class MontageCase:
    """A case of a montage: its number in the training index, its labels, and why it is not drawn, if so."""

    number: int
    labels: str
    error: str = ""


@dataclass(frozen=True)
class Montage:
    """A PNG, empty if no case can be drawn, and each class with its colour as `#rrggbb` if regions are drawn."""

    png: Blob
    cases: list[MontageCase]
    legend: list[tuple[str, str]]


DRAW_MONTAGE_JOB = WorkerJob("m3b.models.montage:draw_montage", MontageRequest, Montage, 120.0)


def draw_montage(request: MontageRequest) -> Montage:
    """Worker job: draw cases of the training part of a locked index. Raises DataError."""
    from m3b.models.example_images import format_labels
    from m3b.models.overlay import make_legend

    index = read_index(request.locked, request.task)
    numbered = {record.key: (number, record) for number, record in enumerate(index.train, start=1)}
    cases: list[MontageCase] = []
    cells: list[tuple[str, list[Panel]]] = []
    for number, record in (numbered[key] for key in request.keys if key in numbered):
        case = MontageCase(number, format_labels(record, index.classes))
        try:
            panels = _make_panels(record, index, request)
        except (DataError, ModelError, ValueError, OSError):
            case = replace(case, error="the image or its mask cannot be read")
        except _TextInPixels:
            case = replace(case, error="text stands in its pixels")
        else:
            cells.append((f"case {number}", panels))
        cases.append(case)
    has_regions = index.masked or any(record.boxes for record in index.train)
    return Montage(_paint_cells(cells), cases, make_legend(index) if has_regions else [])


class _TextInPixels(Exception):
    """An image with text other than markers, or whose header states such text.

    The whole image is left out: a reader of text that finds one line may miss a fainter one beside it.
    """


def _make_panels(record: Record, index: Index, request: MontageRequest) -> list[Panel]:
    """Return the panel with the truth and, if there is an answer with regions, the panel with it."""
    from m3b.models.case_pictures import make_panel_rows

    panels = [row[0] for row in make_panel_rows(record, index, str(request.locked), request.answers.get(record.key))]
    if not request.hides_text:
        return panels
    from m3b.dataset.audit.probes import find_burnt_in_text, read_header_codes
    from m3b.dataset.pixel_text import find_pixel_texts

    header = read_header_codes(paths_of(record.images[0])[0], request.locked)
    if find_burnt_in_text(header) == "stated" or any(
        not text.is_marker for text in find_pixel_texts(panels[0].picture)
    ):
        raise _TextInPixels
    return panels


def _paint_cells(cells: Sequence[tuple[str, Sequence[Panel]]]) -> bytes:
    """Return a PNG of the cells in rows, each with its title above its panels; empty without cells."""
    from PIL import Image, ImageDraw

    from m3b.models.overlay import BACKGROUND, TEXT_COLOUR, load_font, paint_panel, physical_extent

    if not cells:
        return b""
    panels_per_cell = max(len(panels) for _, panels in cells)
    columns = max(1, round(math.sqrt(len(cells) / panels_per_cell) + 0.49))
    rows = -(-len(cells) // columns)
    side = min(
        MAX_PANEL_SIDE_PX,
        (MAX_MONTAGE_SIDE_PX // columns - GAP_PX) // panels_per_cell - GAP_PX,
        MAX_MONTAGE_SIDE_PX // rows - TITLE_STRIP_PX - GAP_PX,
    )
    cell_width, cell_height = panels_per_cell * (side + GAP_PX) + GAP_PX, side + TITLE_STRIP_PX + GAP_PX
    canvas = Image.new("RGB", (columns * cell_width, rows * cell_height), BACKGROUND)
    pen: Any = ImageDraw.Draw(canvas)
    for position, (title, panels) in enumerate(cells):
        x, y = position % columns * cell_width, position // columns * cell_height
        for number, panel in enumerate(panels):
            picture = paint_panel(replace(panel, title=""), side / physical_extent(panel))
            text = title if not number else "model"
            pen.text((x + 2, y + 1), text, fill=TEXT_COLOUR, font=load_font(TITLE_STRIP_PX - 5))
            canvas.paste(picture, (x, y + TITLE_STRIP_PX))
            x += side + GAP_PX
    stream = io.BytesIO()
    canvas.save(stream, "PNG", optimize=True)
    return stream.getvalue()
