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
from m3b.models.answers import of
from m3b.models.predictions import Prediction, Promise

from .paint import SIDE, Row, colour, extent, paint, sheet
from .planes import DrawnBox, Panel, panels, shown

__all__ = ["draw_overlay", "overlay_png"]

MAX_VIEWS = 4
SURE = 0.3
"""Boxes with a lower score are counted, but not drawn: detectors list many that they hardly believe in."""


def draw_overlay(
    prediction: Prediction, promise: Promise, file: Path, *, base: str = ".", window: Mapping[str, Any] | None = None
) -> Path:
    """Draw what a model said of an image into a PNG file and return its path; see `overlay_png`. Raises DataError."""
    png = overlay_png(prediction, promise, base=base, window=window)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png)
    return file


def overlay_png(
    prediction: Prediction, promise: Promise, *, base: str = ".", window: Mapping[str, Any] | None = None
) -> bytes:
    """What a model said of an image as a picture, a PNG.

    A volume is shown in three planes through the centre of mass of what was found, with the proportions of its spacing.

    Args:
        prediction: masks are read from the files it names.
        promise: what the model says of itself.
        base: what the image's path counts from.
        window: the plan's `intensity`; its CT window is used.

    Raises:
        DataError: the image or a mask cannot be read, or they do not fit.
    """
    path = plain(prediction.image)
    if of(promise.task).separate_images and isinstance(path, list):
        pictures = [panel for view in path[:MAX_VIEWS] for panel in _panels(view, prediction, promise, base, window)]
    else:
        pictures = _panels(path, prediction, promise, base, window)
    longest = SIDE * (1.7 if len(pictures) == 1 else 1.0)
    is_one_volume = len({panel.title for panel in pictures}) == len(pictures)  # of one volume: at one scale
    widest = max(extent(panel) for panel in pictures)
    caption = f"{Path(paths_of(prediction.image)[0]).name}  |  made by a research model, not for diagnosis"
    painted = [paint(panel, longest / (widest if is_one_volume else extent(panel))) for panel in pictures]
    stream = io.BytesIO()
    sheet(painted, _rows(prediction, promise), caption).save(stream, "PNG")
    return stream.getvalue()


def _panels(
    path: Reference, prediction: Prediction, promise: Promise, base: str, window: Mapping[str, Any] | None
) -> list[Panel]:
    image = read_image(path, base)
    grid = geometry(path, base)
    picture = shown(image.array[:1] if image.channels else image.array, image.modality, window)
    masks = _masks(prediction, promise, picture.shape[:-1])
    if masks.shape[1:] != picture.shape[:-1]:
        raise DataError(f"{path}: the image has the shape {picture.shape[:-1]}, its mask {masks.shape[1:]}")
    drawn_boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), promise.classes.index(box.label), box.score)
        for box in prediction.boxes or ()
        if box.score >= SURE
    ]
    return panels(picture, masks, drawn_boxes, image.spacing, grid.affine is not None)


def _masks(prediction: Prediction, promise: Promise, shape: tuple[int, ...]) -> np.ndarray:
    """(K, ...) bool, in the order of the classes."""
    values = {name: promise.labels.get(name, number + 1) for number, name in enumerate(promise.classes)}
    if prediction.mask is not None:
        return np.asarray(read_masks(str(prediction.mask), values))
    if prediction.masks:
        files = {name: str(prediction.masks[name]) for name in promise.classes}
        return np.asarray(read_masks(files, values))
    return np.zeros((0, *shape), bool)


def _rows(prediction: Prediction, promise: Promise) -> list[Row]:
    rows: list[Row] = []
    if prediction.probabilities:
        ranked = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:12]
        rows.append((f"says: {', '.join(prediction.prediction) or 'none of the findings'}", None, None))
        rows += [(f"{name}  {value:.3f}", colour(promise.classes.index(name)), value) for name, value in ranked]
    if prediction.anomaly_score is not None:
        rows.append((f"anomaly score {prediction.anomaly_score:.3f}", None, prediction.anomaly_score))
    if prediction.mask is not None or prediction.masks or prediction.boxes is not None:
        rows += [_legend(prediction, name, number) for number, name in enumerate(promise.classes)]
    for title, text in (("Findings", prediction.findings), ("Impression", prediction.impression)):
        if text:
            rows += [(title, colour(1), None), (text, None, None), ("", None, None)]
    rows += [(f"{name}  {value}", None, None) for name, value in prediction.extra.items()]
    return rows


def _legend(prediction: Prediction, name: str, number: int) -> Row:
    words = [name]
    if name in prediction.volumes_ml:
        volume = prediction.volumes_ml[name]
        words.append("volume unknown (no spacing)" if volume is None else f"{volume:.2f} ml")
    if prediction.boxes is not None:
        scores = [box.score for box in prediction.boxes if box.label == name]
        n_drawn = sum(score >= SURE for score in scores)
        words.append("1 box" if n_drawn == 1 else f"{n_drawn} boxes")
        if n_drawn < len(scores):
            words.append(f"{len(scores) - n_drawn} below {SURE} not drawn")
    return ", ".join(words), colour(number), None
