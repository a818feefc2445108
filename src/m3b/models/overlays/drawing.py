"""A PNG for each prediction: the image with contours, boxes, probabilities or the report beside it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.reading import boxes_to_array, geometry, read_image, read_masks
from m3b.data.records import Reference, paths_of, plain
from m3b.errors import DataError
from m3b.models.answers import answer_format_of
from m3b.models.predictions import ModelInfo, Prediction

from .paint import MAX_SIDE_PX, LegendRow, class_colour, compose_sheet, paint_panel, physical_extent
from .planes import DrawnBox, Panel, make_panels, to_display_rgb

__all__ = ["draw_overlay", "overlay_png"]

MAX_VIEWS = 4
MIN_DRAWN_SCORE = 0.3
"""Boxes with a lower score are counted, but not drawn: detectors list many that they hardly believe in."""


def draw_overlay(
    prediction: Prediction,
    model_info: ModelInfo,
    file: Path,
    *,
    base: str = ".",
    window: Mapping[str, Any] | None = None,
) -> Path:
    """Draw what a model said of an image into a PNG file and return its path; see `overlay_png`. Raises DataError."""
    png = overlay_png(prediction, model_info, base=base, window=window)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png)
    return file


def overlay_png(
    prediction: Prediction, model_info: ModelInfo, *, base: str = ".", window: Mapping[str, Any] | None = None
) -> bytes:
    """What a model said of an image as a picture, a PNG.

    A volume is shown in three planes through the centre of mass of what was found, with the proportions of its spacing.

    Args:
        prediction: masks are read from the files it names.
        model_info: what the model says of itself.
        base: what the image's path counts from.
        window: the plan's `intensity`; its CT window is used.

    Raises:
        DataError: the image or a mask cannot be read, or they do not fit.
    """
    path = plain(prediction.image)
    if answer_format_of(model_info.task).separate_images and isinstance(path, list):
        pictures = [
            panel for view in path[:MAX_VIEWS] for panel in _view_panels(view, prediction, model_info, base, window)
        ]
    else:
        pictures = _view_panels(path, prediction, model_info, base, window)
    longest = MAX_SIDE_PX * (1.7 if len(pictures) == 1 else 1.0)
    is_one_volume = len({panel.title for panel in pictures}) == len(pictures)  # of one volume: at one scale
    widest = max(physical_extent(panel) for panel in pictures)
    caption = f"{Path(paths_of(prediction.image)[0]).name}  |  made by a research model, not for diagnosis"
    painted = [
        paint_panel(panel, longest / (widest if is_one_volume else physical_extent(panel))) for panel in pictures
    ]
    stream = io.BytesIO()
    compose_sheet(painted, _legend_rows(prediction, model_info), caption).save(stream, "PNG")
    return stream.getvalue()


def _view_panels(
    path: Reference, prediction: Prediction, model_info: ModelInfo, base: str, window: Mapping[str, Any] | None
) -> list[Panel]:
    image = read_image(path, base)
    grid = geometry(path, base)
    picture = to_display_rgb(image.array[:1] if image.channels else image.array, image.modality, window)
    masks = _class_masks(prediction, model_info, picture.shape[:-1])
    if masks.shape[1:] != picture.shape[:-1]:
        raise DataError(f"{path}: the image has the shape {picture.shape[:-1]}, its mask {masks.shape[1:]}")
    drawn_boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), model_info.classes.index(box.label), box.score)
        for box in prediction.boxes or ()
        if box.score >= MIN_DRAWN_SCORE
    ]
    return make_panels(picture, masks, drawn_boxes, image.spacing, grid.affine is not None)


def _class_masks(prediction: Prediction, model_info: ModelInfo, shape: tuple[int, ...]) -> np.ndarray:
    """(K, ...) bool, in the order of the classes."""
    values = {name: model_info.labels.get(name, number + 1) for number, name in enumerate(model_info.classes)}
    if prediction.mask is not None:
        return np.asarray(read_masks(str(prediction.mask), values))
    if prediction.masks:
        files = {name: str(prediction.masks[name]) for name in model_info.classes}
        return np.asarray(read_masks(files, values))
    return np.zeros((0, *shape), bool)


def _legend_rows(prediction: Prediction, model_info: ModelInfo) -> list[LegendRow]:
    rows: list[LegendRow] = []
    if prediction.probabilities:
        ranked = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:12]
        rows.append((f"says: {', '.join(prediction.prediction) or 'none of the findings'}", None, None))
        rows += [
            (f"{name}  {value:.3f}", class_colour(model_info.classes.index(name)), value) for name, value in ranked
        ]
    if prediction.anomaly_score is not None:
        rows.append((f"anomaly score {prediction.anomaly_score:.3f}", None, prediction.anomaly_score))
    if prediction.mask is not None or prediction.masks or prediction.boxes is not None:
        rows += [_legend_row(prediction, name, number) for number, name in enumerate(model_info.classes)]
    for title, text in (("Findings", prediction.findings), ("Impression", prediction.impression)):
        if text:
            rows += [(title, class_colour(1), None), (text, None, None), ("", None, None)]
    rows += [(f"{name}  {value}", None, None) for name, value in prediction.extra.items()]
    return rows


def _legend_row(prediction: Prediction, name: str, number: int) -> LegendRow:
    words = [name]
    if name in prediction.volumes_ml:
        volume = prediction.volumes_ml[name]
        words.append("volume unknown (no spacing)" if volume is None else f"{volume:.2f} ml")
    if prediction.boxes is not None:
        scores = [box.score for box in prediction.boxes if box.label == name]
        n_drawn = sum(score >= MIN_DRAWN_SCORE for score in scores)
        words.append("1 box" if n_drawn == 1 else f"{n_drawn} boxes")
        if n_drawn < len(scores):
            words.append(f"{len(scores) - n_drawn} below {MIN_DRAWN_SCORE} not drawn")
    return ", ".join(words), class_colour(number), None
