"""Overlays: a PNG for each prediction, the image with contours, boxes, probabilities or the report next to it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from m3b.data import kinds
from m3b.data.index import Index
from m3b.data.records import Record, Reference, paths_of, plain
from m3b.dataset.reading import align_mask, boxes_to_array, geometry, read_image, read_mask, read_masks, read_overview
from m3b.display import format_json_value
from m3b.errors import DataError
from m3b.models.predictions import ModelInfo, Prediction
from m3b.models.thresholds import DEFAULT_BOX_SCORE

SOFT_TISSUE_WINDOW_HU = (-160.0, 240.0)
"""Hounsfield window of CT if the model names none."""

HEAT_COLOUR, HEAT_OPACITY = (255, 60, 40), 0.65
"""Colour of the highest level of a saliency map, and its opacity there; the opacity falls with the level."""


@dataclass(frozen=True)
class DrawnBox:
    """A box in array coordinates `(r0, c0[, s0], r1, c1[, s1])`, its class number and score; None for a true box."""

    box: tuple[float, ...]
    class_index: int
    score: float | None = None


@dataclass(frozen=True)
class Panel:
    """One picture: (h, w, 3) uint8, masks (K, h, w) bool, boxes as (top, left, bottom, right, class number, score).

    `pixel_size` is the height and width of a pixel in mm, or (1, 1).
    """

    title: str
    picture: np.ndarray
    masks: np.ndarray
    boxes: tuple[tuple[float, float, float, float, int, float | None], ...]
    pixel_size: tuple[float, float]


def to_display_rgb(array: np.ndarray, modality: str, window: Mapping[str, Any] | None = None) -> np.ndarray:
    """Convert (C, ...) to uint8 (..., 3): colour as it is, else the first channel, windowed."""
    if array.dtype == np.uint8 and array.shape[0] == 3:
        return np.ascontiguousarray(np.moveaxis(array, 0, -1))
    grey = np.nan_to_num(array[0].astype(np.float32))
    low, high = choose_display_range(grey, modality, window)
    scaled = np.clip((grey - low) / max(high - low, 1e-6), 0, 1)
    return np.repeat((scaled * 255).astype(np.uint8)[..., None], 3, axis=-1)


def choose_display_range(
    grey: np.ndarray, modality: str, window: Mapping[str, Any] | None = None
) -> tuple[float, float]:
    """Return the values that are shown black and white."""
    if window and window.get("mode") == "window":
        return float(window["low"]), float(window["high"])
    if modality == "ct":
        return SOFT_TISSUE_WINDOW_HU
    low, high = np.percentile(grey[:: max(1, grey.shape[0] // 200)], (0.5, 99.5))
    return float(low), float(high)


def paint_heat(picture: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return a picture (..., 3) uint8 with a saliency map of the levels 0 to 255 laid over it."""
    opacity = levels[..., None].clip(0, 255) / np.float32(255) * np.float32(HEAT_OPACITY)
    return np.asarray((picture * (1 - opacity) + np.array(HEAT_COLOUR, np.float32) * opacity).astype(np.uint8))


def make_panels(
    picture: np.ndarray,
    masks: np.ndarray,
    boxes: Sequence[DrawnBox],
    spacing: Sequence[float] | None,
    has_orientation: bool,
    guide_masks: np.ndarray | None = None,
) -> list[Panel]:
    """Return one panel for a 2D image; for a volume axial, coronal and sagittal planes through the findings.

    Args:
        picture: (H, W[, D], 3) uint8.
        masks: (K, H, W[, D]) bool.
        boxes: in the same axes.
        spacing: of rows, columns and slices.
        has_orientation: whether the axes are anatomical (LPS).
        guide_masks: the masks through whose centre the planes of a volume go; those that are drawn by default.
    """
    dims = picture.ndim - 1
    size = tuple(spacing) if spacing and len(spacing) == dims else (1.0,) * dims
    if dims == 2:
        image_boxes = tuple((m.box[0], m.box[1], m.box[2], m.box[3], m.class_index, m.score) for m in boxes)
        return [Panel("", picture, masks, image_boxes, (size[0], size[1]))]
    centre = find_centre(masks if guide_masks is None else guide_masks, boxes, picture.shape[:3])
    return [_make_plane_panel(picture, masks, boxes, size, axis, centre[axis], has_orientation) for axis in (2, 0, 1)]


def find_centre(masks: np.ndarray, boxes: Sequence[DrawnBox], shape: Sequence[int]) -> list[int]:
    """Return the crossing of the planes: the masks' centre of mass, else the box of highest score, else the middle."""
    union = masks.any(axis=0)
    if union.any():
        centre = []
        for axis in range(3):
            profile = union.sum(axis=tuple(other_axis for other_axis in range(3) if other_axis != axis))
            middle = round(float((profile * np.arange(len(profile))).sum() / profile.sum()))
            centre.append(middle if profile[middle] else int(profile.argmax()))
        return centre
    if boxes:
        best = max(boxes, key=lambda item: 1.0 if item.score is None else item.score).box
        return [min(max(int((best[i] + best[i + 3]) / 2), 0), shape[i] - 1) for i in range(3)]
    return [size // 2 for size in shape]


_ANATOMICAL_NAMES = {2: "axial", 0: "coronal", 1: "sagittal"}
_AXIS_NAMES = {2: "slice", 0: "row", 1: "column"}


def _make_plane_panel(
    picture: np.ndarray,
    masks: np.ndarray,
    boxes: Sequence[DrawnBox],
    size: Sequence[float],
    axis: int,
    slice_index: int,
    has_orientation: bool,
) -> Panel:
    """Return a plane across `axis`. Axial: rows down, columns right; else the slices go up (head on top)."""
    title = f"{_ANATOMICAL_NAMES[axis]}, slice {slice_index + 1} of {picture.shape[axis]}"
    if not has_orientation:
        title = f"{_AXIS_NAMES[axis]} {slice_index + 1} of {picture.shape[axis]}"
    plane_pixels, plane_masks = np.take(picture, slice_index, axis=axis), np.take(masks, slice_index, axis=axis + 1)
    in_plane_axes = [other_axis for other_axis in range(3) if other_axis != axis]
    plane_boxes = []
    for item in boxes:
        low, high = item.box[:3], item.box[3:]
        if low[axis] <= slice_index + 1 and high[axis] >= slice_index:
            plane_boxes.append(
                (
                    low[in_plane_axes[0]],
                    low[in_plane_axes[1]],
                    high[in_plane_axes[0]],
                    high[in_plane_axes[1]],
                    item.class_index,
                    item.score,
                )
            )
    if axis == 2:
        return Panel(title, plane_pixels, plane_masks, tuple(plane_boxes), (size[0], size[1]))
    n_slices = picture.shape[2]
    rotated_boxes = [
        (n_slices - d1, r0, n_slices - d0, r1, class_index, score) for r0, d0, r1, d1, class_index, score in plane_boxes
    ]
    picture_up = np.ascontiguousarray(plane_pixels.transpose(1, 0, 2)[::-1])
    masks_up = np.ascontiguousarray(plane_masks.transpose(0, 2, 1)[:, ::-1])
    return Panel(title, picture_up, masks_up, tuple(rotated_boxes), (size[2], size[in_plane_axes[0]]))


Colour = tuple[int, int, int]
COLOURS: tuple[Colour, ...] = (
    (230, 159, 0), (86, 180, 233), (0, 200, 130), (240, 228, 66), (90, 130, 255), (240, 90, 40), (230, 130, 190),
    (170, 220, 120), (190, 150, 255), (255, 255, 255),
)  # fmt: skip
"""Distinct for most colour-blind readers (after Okabe and Ito, brightened for a dark background)."""

BACKGROUND, TEXT_COLOUR, MUTED_COLOUR = (18, 20, 24), (235, 235, 235), (160, 165, 172)
MAX_SIDE_PX = 420
"""Longest side of one of three planes; a single picture gets 1.7 times that."""


def class_colour(class_index: int) -> Colour:
    """Return the colour of a class."""
    return COLOURS[class_index % len(COLOURS)]


def make_legend(index: Index) -> list[tuple[str, str]]:
    """Return the classes with their colours as `#rrggbb`, and that of ignored pixels if a case has some."""
    names = [*index.classes, *(["labelled by nobody"] if any(record.ignored for record in index.records) else [])]
    return [(name, "#{:02x}{:02x}{:02x}".format(*class_colour(number))) for number, name in enumerate(names)]


def read_true_masks(
    record: Record, values: Mapping[str, int], base: str, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (K, ...) bool masks of the classes, and (0 or 1, ...) of the pixels that nobody labelled, where no class is.

    Without a mask, K is 0.

    Args:
        values: class -> its number in a mask; empty if the targets are no masks.

    Raises:
        DataError: a mask cannot be read, or has another shape than the image.
    """
    nothing = np.zeros((0, *shape), bool)
    if record.mask is None or not values:
        return nothing, nothing
    mask = list(record.mask) if isinstance(record.mask, tuple) else record.mask
    masks = np.asarray(read_masks(mask, values, base, shape, record.reference))
    if record.ignored is None:
        return masks, masks[:0]
    ignored = np.asarray(align_mask(record.ignored, record.reference, base) != 0)
    if ignored.shape != masks.shape[1:]:
        raise DataError(
            f"{record.ignored}: the ignored pixels have the shape {ignored.shape}, the mask {masks.shape[1:]}"
        )
    return masks & ~ignored, ignored[None]


@lru_cache(maxsize=4)
def load_font(size: int = 15) -> Any:
    """Return Pillow's own font."""
    return ImageFont.load_default(size)


def physical_extent(panel: Panel) -> float:
    """Return the longer side in mm (or pixels)."""
    return max(float(side * step) for side, step in zip(panel.picture.shape, panel.pixel_size, strict=False))


def paint_panel(panel: Panel, scale: float) -> Image.Image:
    """Paint a panel with `scale` screen pixels a mm: contours two pixels wide, and boxes with their scores."""
    height, width = panel.picture.shape[:2]
    height_mm, width_mm = height * panel.pixel_size[0], width * panel.pixel_size[1]
    target = (max(1, round(width_mm * scale)), max(1, round(height_mm * scale)))
    picture = np.array(Image.fromarray(panel.picture).resize(target, Image.Resampling.BILINEAR))
    for class_index, mask in enumerate(panel.masks):
        if mask.any():
            scaled_mask = np.array(Image.fromarray(mask.astype(np.uint8)).resize(target, Image.Resampling.NEAREST)) > 0
            picture[mask_outline(scaled_mask)] = class_colour(class_index)
    image = Image.fromarray(picture)
    pen = ImageDraw.Draw(image)
    y_scale, x_scale = target[1] / height, target[0] / width
    for y_min, x_min, y_max, x_max, class_index, score in panel.boxes:
        corners = (
            x_min * x_scale,
            y_min * y_scale,
            max(x_max * x_scale - 1, x_min * x_scale),
            max(y_max * y_scale - 1, y_min * y_scale),
        )
        pen.rectangle(corners, outline=class_colour(class_index), width=2)
        if score is not None:
            pen.text(
                (corners[0] + 3, max(corners[1] - 15, 0)),
                f"{score:.2f}",
                fill=class_colour(class_index),
                font=load_font(13),
            )
    if panel.title:
        pen.text((6, 4), panel.title, fill=TEXT_COLOUR, font=load_font(13), stroke_width=1, stroke_fill=BACKGROUND)
    return image


def mask_outline(mask: np.ndarray, width: int = 2) -> np.ndarray:
    """Return the outermost `width` pixels of a mask; it also has an outline along the border of the picture."""
    inner = mask
    for _ in range(width):
        padded = np.pad(inner, 1)
        inner = padded[1:-1, 1:-1] & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outline: np.ndarray = mask & ~inner
    return outline


def wrap_text(text: str, width: int, size: int = 15) -> list[str]:
    """Return the lines of a text that fit a width in pixels; a word that is too long is cut."""
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        line = ""
        for word in paragraph.split():
            while load_font(size).getlength(word) > width and len(word) > 1:
                cut = max(1, int(len(word) * width / load_font(size).getlength(word)) - 1)
                lines += [line] if line else []
                lines.append(word[:cut])
                line, word = "", word[cut:]
            longer = f"{line} {word}".strip()
            if line and load_font(size).getlength(longer) > width:
                lines.append(line)
                line = word
            else:
                line = longer
        lines.append(line)
    return lines


LegendRow = tuple[str, Colour | None, float | None]
"""A line next to the picture: text, the colour of its swatch, the share of its bar."""


def compose_sheet(pictures: Sequence[Image.Image], rows: Sequence[LegendRow], caption: str) -> Image.Image:
    """Compose pictures side by side, the legend rows on their right and a caption below."""
    gap, line, column = 12, 21, 330
    pictures_width = sum(picture.width + gap for picture in pictures)
    caption_lines = wrap_text(caption, pictures_width + column - 2 * gap, 13)
    text_lines = [
        (text, swatch, bar, n) for row, swatch, bar in rows for n, text in enumerate(wrap_text(row, column - 50))
    ]
    content_height = max(
        [picture.height for picture in pictures] + [len(text_lines) * line + 8 * sum(r[2] is not None for r in rows)]
    )
    canvas = Image.new(
        "RGB", (pictures_width + column + gap, content_height + 3 * gap + 17 * len(caption_lines)), BACKGROUND
    )
    x = gap
    for picture in pictures:
        canvas.paste(picture, (x, gap))
        x += picture.width + gap
    pen, y = ImageDraw.Draw(canvas), gap
    for text, swatch, bar, number in text_lines:
        if swatch is not None and number == 0:
            pen.rectangle((x, y + 3, x + 14, y + 14), fill=swatch)
        pen.text((x + 22, y), text, fill=TEXT_COLOUR, font=load_font(15))
        y += line
        if bar is not None and number == 0:
            pen.rectangle((x + 22, y, x + 22 + 240, y + 4), fill=(60, 64, 70))
            pen.rectangle((x + 22, y, x + 22 + round(240 * min(max(bar, 0), 1)), y + 4), fill=swatch or COLOURS[1])
            y += 8
    for number, text in enumerate(caption_lines):
        pen.text((gap, content_height + 2 * gap + 17 * number), text, fill=MUTED_COLOUR, font=load_font(13))
    return canvas


__all__ = ["draw_overlay", "overlay_png"]

MAX_VIEWS = 4


def draw_overlay(
    prediction: Prediction,
    model_info: ModelInfo,
    file: Path,
    *,
    base: str = ".",
    window: Mapping[str, Any] | None = None,
    min_score: float = DEFAULT_BOX_SCORE,
) -> Path:
    """Draw a prediction into a PNG file and return its path; see `overlay_png`. Raises DataError."""
    png = overlay_png(prediction, model_info, base=base, window=window, min_score=min_score)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png)
    return file


def overlay_png(
    prediction: Prediction,
    model_info: ModelInfo,
    *,
    base: str = ".",
    window: Mapping[str, Any] | None = None,
    min_score: float = DEFAULT_BOX_SCORE,
) -> bytes:
    """Draw a prediction on its image, as a PNG.

    A volume is shown in three planes through the centre of mass of the masks, with the proportions of its spacing.

    Args:
        prediction: masks are read from the files it names.
        model_info: task, classes and labels of the model.
        base: folder to which the image's path is relative.
        window: the plan's `intensity`; its CT window is used.
        min_score: boxes with a lower score are counted, but not drawn.

    Raises:
        DataError: the image or a mask cannot be read, or they do not fit each other.
    """
    path = plain(prediction.image)
    if kinds.of(model_info.task).separate_images and isinstance(path, list):
        pictures = [
            panel
            for view in path[:MAX_VIEWS]
            for panel in _view_panels(view, prediction, model_info, base, window, min_score)
        ]
    else:
        pictures = _view_panels(path, prediction, model_info, base, window, min_score)
    longest = MAX_SIDE_PX * (1.7 if len(pictures) == 1 else 1.0)
    is_one_volume = len({panel.title for panel in pictures}) == len(pictures)  # planes of one volume share one scale
    widest = max(physical_extent(panel) for panel in pictures)
    caption = f"{Path(paths_of(prediction.image)[0]).name}  |  made by a research model, not for diagnosis"
    painted = [
        paint_panel(panel, longest / (widest if is_one_volume else physical_extent(panel))) for panel in pictures
    ]
    stream = io.BytesIO()
    compose_sheet(painted, _legend_rows(prediction, model_info, min_score), caption).save(stream, "PNG")
    return stream.getvalue()


def _view_panels(
    path: Reference,
    prediction: Prediction,
    model_info: ModelInfo,
    base: str,
    window: Mapping[str, Any] | None,
    min_score: float,
) -> list[Panel]:
    is_marked = prediction.mask is not None or prediction.masks or prediction.boxes is not None
    image = (read_image if is_marked else read_overview)(path, base)
    grid = geometry(path, base)
    picture = to_display_rgb(image.array[:1] if image.channels else image.array, image.modality, window)
    masks = _class_masks(prediction, model_info, picture.shape[:-1])
    guide_masks = masks
    if prediction.saliency is not None and path in (plain(prediction.image), paths_of(prediction.image)[0]):
        levels = np.asarray(read_mask(str(prediction.saliency.map_file)).array)
        if levels.shape == picture.shape[:-1]:
            picture, masks = paint_heat(picture, levels), (levels >= prediction.saliency.outline)[None]
            guide_masks = (levels == levels.max())[None]
    if masks.shape[1:] != picture.shape[:-1]:
        raise DataError(f"{path}: the image has the shape {picture.shape[:-1]}, its mask {masks.shape[1:]}")
    drawn_boxes = [
        DrawnBox(boxes_to_array(box.box, path, base), model_info.classes.index(box.label), box.score)
        for box in prediction.boxes or ()
        if box.score >= min_score
    ]
    return make_panels(picture, masks, drawn_boxes, image.spacing, grid.affine is not None, guide_masks)


def _class_masks(prediction: Prediction, model_info: ModelInfo, shape: tuple[int, ...]) -> np.ndarray:
    """Return (K, ...) bool masks, in the order of the classes."""
    values = {name: model_info.labels.get(name, number + 1) for number, name in enumerate(model_info.classes)}
    if prediction.mask is not None:
        return np.asarray(read_masks(str(prediction.mask), values))
    if prediction.masks:
        files = {name: str(prediction.masks[name]) for name in model_info.classes}
        return np.asarray(read_masks(files, values))
    return np.zeros((0, *shape), bool)


def _legend_rows(prediction: Prediction, model_info: ModelInfo, min_score: float) -> list[LegendRow]:
    rows: list[LegendRow] = []
    if prediction.probabilities:
        ranked = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:12]
        rows.append((f"says: {', '.join(prediction.prediction) or 'none of the findings'}", None, None))
        rows += [
            (f"{name}  {value:.3f}", class_colour(model_info.classes.index(name)), value) for name, value in ranked
        ]
    if prediction.saliency is not None:
        saliency = prediction.saliency
        rows += [
            (f"red: what {saliency.target or 'the answer'} depends on ({saliency.method})", HEAT_COLOUR, None),
            (f"{saliency.score_hidden:.3g} without the outlined part", class_colour(0), None),
        ]
    if prediction.anomaly_score is not None:
        rows.append((f"anomaly score {prediction.anomaly_score:.3f}", None, prediction.anomaly_score))
    if prediction.mask is not None or prediction.masks or prediction.boxes is not None:
        rows += [_legend_row(prediction, name, number, min_score) for number, name in enumerate(model_info.classes)]
    for title, text in (("Findings", prediction.findings), ("Impression", prediction.impression)):
        if text:
            rows += [(title, class_colour(1), None), (text, None, None), ("", None, None)]
    rows += [(f"{name}  {format_json_value(value)}", None, None) for name, value in prediction.extra.items()]
    return rows


def _legend_row(prediction: Prediction, name: str, number: int, min_score: float) -> LegendRow:
    words = [name]
    if name in prediction.volumes_ml:
        volume = prediction.volumes_ml[name]
        words.append("volume unknown (no spacing)" if volume is None else f"{volume:.2f} ml")
    if prediction.boxes is not None:
        scores = [box.score for box in prediction.boxes if box.label == name]
        n_drawn = sum(score >= min_score for score in scores)
        words.append("1 box" if n_drawn == 1 else f"{n_drawn} boxes")
        if n_drawn < len(scores):
            words.append(f"{len(scores) - n_drawn} below {min_score:g} not drawn")
    return ", ".join(words), class_colour(number), None
