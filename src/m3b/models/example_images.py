"""Example cases of an index as pictures: each image with its masks, boxes, labels or report.

`m3b.models.image_jobs.DRAW_EXAMPLES_JOB` runs this in the reader process, since the images are untrusted. The results
are small PNGs and texts, for people only.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from m3b.data import kinds
from m3b.data.index import Index, Record, read_index
from m3b.dataset.reading import boxes_to_array, geometry, read_image, read_overview
from m3b.errors import DataError
from m3b.models.image_jobs import ExampleCase, ExampleCases, ExamplesRequest
from m3b.models.overlay import (
    DrawnBox,
    Panel,
    make_legend,
    make_panels,
    paint_panel,
    physical_extent,
    read_true_masks,
    to_display_rgb,
)

MAX_EXAMPLES = 12
MAX_SIDE_PX = 260
"""Longest side of a picture in pixels."""
MAX_TEXT_CHARS = 600


def draw_examples(request: ExamplesRequest) -> ExampleCases:
    """Worker job: draw example cases of an index. Raises DataError."""
    index = read_index(request.work, request.task)
    cases = tuple(_make_example(record, split, index, request.work) for split, record in choose_examples(index))
    has_marks = index.masked or any(record.boxes for record in (*index.train, *index.test))
    return ExampleCases(cases, tuple(make_legend(index)) if has_marks else ())


def choose_examples(index: Index) -> list[tuple[str, Record]]:
    """Return some cases of every class and of both splits, in the order of the index, as (split, record)."""
    records_by_group: dict[tuple[str, str], list[Record]] = {}
    for split, records in (("training", index.train), ("testing", index.test)):
        for record in records:
            records_by_group.setdefault((_example_group(record), split), []).append(record)
    n_per_group = max(1, MAX_EXAMPLES // max(1, len(records_by_group)))
    examples = []
    for (_, split), group_records in records_by_group.items():
        count = min(n_per_group, len(group_records))
        examples += [(split, group_records[position * len(group_records) // count]) for position in range(count)]
    return examples[:MAX_EXAMPLES]


def _example_group(record: Record) -> str:
    if "abnormal" in record.extra:
        return "abnormal" if record.extra["abnormal"] else "normal"
    if record.boxes is not None:
        return "marked" if record.boxes else "nothing marked"
    return ", ".join(record.labels) or ("marked" if record.masks else "")


def _make_example(record: Record, split: str, index: Index, work: Path) -> ExampleCase:
    text = record.report.text[:MAX_TEXT_CHARS] if record.report is not None else ""
    try:
        png, error = _encode_png(_make_panels(record, index, str(work))), ""
    except (DataError, ValueError) as cause:
        png, error = "", str(cause)[:300]
    return ExampleCase(_case_name(record), split, format_labels(record, index.classes), text, png, error)


def _case_name(record: Record) -> str:
    return record.images[0].removeprefix("data/").partition("/")[2] or record.images[0]


def format_labels(record: Record, classes: Sequence[str] = ()) -> str:
    """Return what is known of a case besides masks and texts, in words.

    Args:
        classes: of the index; the only one of a regression or survival is the quantity with its unit.
    """
    if record.boxes is not None:
        names = [box.label for box in record.boxes]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "nothing marked"
    quantity = classes[0] if len(classes) == 1 else ""
    facts = []
    for name, value in record.extra.items():
        if isinstance(value, bool):
            facts.append(name if value else f"no {name}")
        elif isinstance(value, int | float):
            facts.append(f"{quantity if quantity and name in ('value', 'time') else name} {value:g}")
    has_no_finding = not (record.labels or facts or record.masks or record.report)
    return ", ".join([*record.labels, *facts]) or ("none" if has_no_finding else "")


def _make_panels(record: Record, index: Index, base: str) -> list[Panel]:
    separate = kinds.of(index.task).separate_images
    path = record.images[0] if separate else record.image
    is_marked = index.masked or record.boxes is not None
    image = (read_image if is_marked else read_overview)(path if isinstance(path, str) else list(path), base)
    picture = to_display_rgb(image.array, image.modality)
    values = index.values if index.masked else {}
    masks, ignored = read_true_masks(record, values, base, picture.shape[:-1])
    boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), index.classes.index(box.label)) for box in record.boxes or ()
    ]
    has_orientation = image.array.ndim == 4 and isinstance(path, str) and geometry(path, base).affine is not None
    drawn_masks = np.concatenate([masks, ignored])
    return make_panels(picture, drawn_masks, boxes, image.spacing, has_orientation, guide_masks=masks)


def _encode_png(case_panels: Sequence[Panel]) -> str:
    from PIL import Image

    widest = max(physical_extent(panel) for panel in case_panels)
    pictures = [paint_panel(panel, MAX_SIDE_PX / widest) for panel in case_panels]
    canvas = Image.new(
        "RGB", (sum(picture.width + 4 for picture in pictures) - 4, max(picture.height for picture in pictures))
    )
    x_offset = 0
    for picture in pictures:
        canvas.paste(picture, (x_offset, 0))
        x_offset += picture.width + 4
    stream = io.BytesIO()
    canvas.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
