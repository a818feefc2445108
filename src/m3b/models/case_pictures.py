"""Small pictures of cases for a report: the image as read with its labels, and test cases with the model's answer.

`DRAW_CASES_JOB` runs in the reader process, since images and masks are untrusted. Pictures are JPEG, for people only.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data import kinds
from m3b.data.index import Index, Record, read_index
from m3b.errors import DataError, ModelError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.base64_bytes import Blob
from m3b.isolation.untrusted import report_progress
from m3b.models.predictions import Prediction, Saliency
from m3b.models.thresholds import DEFAULT_BOX_SCORE

if TYPE_CHECKING:
    import numpy as np

    from m3b.models.overlay import DrawnBox, Panel

PANEL_SIDE_PX = {2: 300, 3: 190}
"""Longest side of a panel in pixels, by the dimensions of the image."""
JPEG_QUALITY = 84
TITLE_STRIP_PX = 25
"""Height of the strip with the title above a row of panels; pages show pictures at about half their size."""
ANSWER_TITLES, SALIENCY_TITLES = ("labelled", "model"), ("image", "saliency")


@dataclass(frozen=True)
class CasesRequest:
    """Cases to draw.

    Args:
        locked: the folder of the locked index; paths of the index are relative to it.
        task: the task of the index.
        answers: case key -> the model's answer; drawn beside the truth.
        test_keys: keys of test cases to draw, each with its answer if there is one.
        saliency: case key -> what the answer depends on; drawn beside the image.
        n_examples: number of cases of the whole index to draw without answers, from all classes and both splits.
    """

    locked: Path
    task: str
    answers: dict[str, Prediction] = field(default_factory=dict)
    test_keys: list[str] = field(default_factory=list)
    n_examples: int = 0
    saliency: dict[str, Saliency] = field(default_factory=dict)


@dataclass(frozen=True)
class CasePicture:
    """A case with its JPEG, or the reason why there is none; `saliency` if it is drawn."""

    key: str
    split: str
    labels: str
    jpeg: Blob = b""
    width: int = 0
    height: int = 0
    text: str = ""
    error: str = ""
    saliency: Saliency | None = None


@dataclass(frozen=True)
class CasePictures:
    """Pictures of test cases and of examples, and each class with its colour as `#rrggbb` if regions are drawn."""

    tests: list[CasePicture] = field(default_factory=list)
    examples: list[CasePicture] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)


DRAW_CASES_JOB = WorkerJob("m3b.models.case_pictures:draw_cases", CasesRequest, CasePictures, 120.0)


def draw_cases(request: CasesRequest) -> CasePictures:
    """Worker job: draw cases of a locked index. Raises DataError."""
    from m3b.models.example_images import choose_examples
    from m3b.models.overlay import make_legend

    index = read_index(request.locked, request.task)
    tests_by_key = {record.key: record for record in index.test}
    test_records = [tests_by_key[key] for key in request.test_keys if key in tests_by_key]
    examples = choose_examples(index)[: request.n_examples]
    total = len(test_records) + len(examples)
    tests, drawn_examples = [], []
    for number, record in enumerate(test_records):
        answer, saliency = request.answers.get(record.key), request.saliency.get(record.key)
        tests.append(_draw_case(record, "test", index, request.locked, answer, saliency))
        report_progress(number + 1, total)
    for number, (split, record) in enumerate(examples, start=len(tests)):
        drawn_examples.append(_draw_case(record, split, index, request.locked, None))
        report_progress(number + 1, total)
    has_regions = index.masked or any(record.boxes for record in index.records)
    return CasePictures(tests, drawn_examples, make_legend(index) if has_regions else [])


def _draw_case(
    record: Record,
    split: str,
    index: Index,
    locked: Path,
    answer: Prediction | None,
    saliency: Saliency | None = None,
) -> CasePicture:
    from m3b.models.example_images import MAX_TEXT_CHARS, format_labels

    text = record.report.text[:MAX_TEXT_CHARS] if record.report is not None else ""
    labels = format_labels(record, index.classes)
    try:
        if saliency is not None:
            with contextlib.suppress(DataError):  # a map that does not fit its image is left out
                rows = _make_saliency_rows(record, index, str(locked), saliency)
                jpeg, size = _encode_rows(rows, SALIENCY_TITLES)
                shown = replace(saliency, map_file=Path(saliency.map_file.name))
                return CasePicture(record.key, split, labels, jpeg, *size, text=text, saliency=shown)
        rows = make_panel_rows(record, index, str(locked), answer)
        jpeg, size = _encode_rows(rows)
    except (DataError, ModelError, ValueError, OSError) as error:
        return CasePicture(record.key, split, labels, text=text, error=" ".join(str(error).split())[:300])
    return CasePicture(record.key, split, labels, jpeg, *size, text=text)


def _read_picture(record: Record, index: Index, base: str) -> tuple[Any, Any, np.ndarray, bool]:
    """Return the path of the displayed image, the image, its picture, and whether its axes are anatomical."""
    from m3b.dataset.reading import geometry, read_image, read_overview
    from m3b.models.overlay import to_display_rgb

    path: Any = record.images[0] if kinds.separate(record, index.task) else record.reference
    is_marked = index.masked or record.boxes is not None
    image = (read_image if is_marked else read_overview)(path, base)
    picture = to_display_rgb(image.array[:1] if image.channels else image.array, image.modality)
    return path, image, picture, image.array.ndim == 4 and geometry(path, base).affine is not None


def _make_saliency_rows(record: Record, index: Index, base: str, saliency: Saliency) -> list[list[Panel]]:
    """Return the panels of the image through the highest level of the map, and below them those with the map.

    Raises:
        DataError: the map cannot be read, or has another shape than the image.
    """
    import numpy as np

    from m3b.dataset.reading import read_mask
    from m3b.models.overlay import make_panels, paint_heat

    _, image, picture, has_orientation = _read_picture(record, index, base)
    levels = np.asarray(read_mask(str(saliency.map_file)).array)
    if levels.shape != picture.shape[:-1]:
        raise DataError(f"the saliency map has the shape {levels.shape}, the image {picture.shape[:-1]}")
    peak, nothing = (levels == levels.max())[None], np.zeros((0, *levels.shape), bool)
    rows = ((picture, nothing), (paint_heat(picture, levels), (levels >= saliency.outline)[None]))
    return [
        [
            replace(panel, title=_shorten_title(panel.title))
            for panel in make_panels(pixels, masks, (), image.spacing, has_orientation, guide_masks=peak)
        ]
        for pixels, masks in rows
    ]


def make_panel_rows(record: Record, index: Index, base: str, answer: Prediction | None) -> list[list[Panel]]:
    """Return the panels of the truth, and below them those of the answer in the same planes."""
    import numpy as np

    from m3b.dataset.reading import boxes_to_array
    from m3b.models.overlay import DrawnBox, make_panels, read_true_masks

    path, image, picture, has_orientation = _read_picture(record, index, base)
    shape = picture.shape[:-1]
    true_masks, ignored = read_true_masks(record, index.values if index.masked else {}, base, shape)
    answer_masks = read_answer_masks(answer, index, shape, base, path)
    true_boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), index.classes.index(box.label)) for box in record.boxes or ()
    ]
    answer_boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), index.classes.index(box.label), box.score)
        for box in (answer.boxes if answer else None) or ()
        if box.score >= DEFAULT_BOX_SCORE and box.label in index.classes
    ]
    has_truth = index.masked or record.boxes is not None
    has_answer = has_truth and answer is not None and (answer.boxes is not None or bool(get_answer_source(answer)))

    def make_row(masks: np.ndarray, boxes: Sequence[DrawnBox], guide_masks: np.ndarray) -> list[Panel]:
        panels = make_panels(picture, masks, boxes, image.spacing, has_orientation, guide_masks=guide_masks)
        return [replace(panel, title=_shorten_title(panel.title)) for panel in panels]

    guide = np.concatenate([true_masks, answer_masks]) if not true_masks.any() else true_masks
    true_row = make_row(np.concatenate([true_masks, ignored]), true_boxes, guide)
    return [true_row, make_row(answer_masks, answer_boxes, guide)] if has_answer else [true_row]


def _shorten_title(title: str) -> str:
    """Return `axial 18/35` for `axial, slice 18 of 35`, which fits a small plane."""
    return title.replace(", slice ", " ").replace(" of ", "/")


def get_answer_source(answer: Prediction | None) -> Any:
    if answer is None or (answer.mask is None and not answer.masks):
        return None
    return str(answer.mask) if answer.mask is not None else {name: str(file) for name, file in answer.masks.items()}


def read_answer_masks(
    answer: Prediction | None, index: Index, shape: tuple[int, ...], base: str, path: Any
) -> np.ndarray:
    """Return (K, ...) bool masks of the classes; no masks at all without an answer that has some."""
    import numpy as np

    from m3b.dataset.reading import read_masks

    source = get_answer_source(answer)
    if source is None or not index.masked:
        return np.zeros((0, *shape), bool)
    return np.asarray(read_masks(source, index.values, base, shape, path))


def _encode_rows(
    rows: Sequence[Sequence[Panel]], row_titles: tuple[str, str] = ANSWER_TITLES
) -> tuple[bytes, tuple[int, int]]:
    """Return a JPEG of the rows and its size. Two rows have a title each.

    Two rows of one 2D panel each stand side by side.
    """
    from PIL import Image, ImageDraw

    from m3b.models.overlay import BACKGROUND, TEXT_COLOUR, load_font, paint_panel, physical_extent

    side = PANEL_SIDE_PX[3 if len(rows[0]) > 1 else 2]
    widest = max(physical_extent(panel) for panel in rows[0])
    painted = [[paint_panel(panel, side / widest) for panel in row] for row in rows]
    titles = [[title] for title in row_titles] if len(rows) > 1 else [[]]
    if len(rows) > 1 and len(rows[0]) == 1:
        painted, titles = [[picture for row in painted for picture in row]], [list(row_titles)]
    gap, strip = 4, TITLE_STRIP_PX if len(rows) > 1 else 0
    width = max(sum(picture.width + gap for picture in row) - gap for row in painted)
    heights = [max(picture.height for picture in row) + strip for row in painted]
    canvas = Image.new("RGB", (width, sum(heights) + gap * (len(heights) - 1)), BACKGROUND)
    pen, y = ImageDraw.Draw(canvas), 0
    for row, height, panel_titles in zip(painted, heights, titles, strict=True):
        x = 0
        for number, picture in enumerate(row):
            if number < len(panel_titles):
                pen.text((x + 5, y + 1), panel_titles[number], fill=TEXT_COLOUR, font=load_font(TITLE_STRIP_PX - 5))
            canvas.paste(picture, (x, y + strip))
            x += picture.width + gap
        y += height + gap
    stream = io.BytesIO()
    canvas.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0, optimize=True)
    return stream.getvalue(), canvas.size
