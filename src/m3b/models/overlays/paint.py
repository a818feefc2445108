"""Painting with Pillow: contours, boxes, a legend, bars of probabilities, texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .planes import Panel

Colour = tuple[int, int, int]
COLOURS: tuple[Colour, ...] = (
    (230, 159, 0), (86, 180, 233), (0, 200, 130), (240, 228, 66), (90, 130, 255), (240, 90, 40), (230, 130, 190),
    (170, 220, 120), (190, 150, 255), (255, 255, 255),
)  # fmt: skip
"""Distinct for most colour-blind readers (after Okabe and Ito, brightened for a dark ground)."""

BACKGROUND, TEXT_COLOUR, MUTED_COLOUR = (18, 20, 24), (235, 235, 235), (160, 165, 172)
MAX_SIDE_PX = 420
"""Longest side of one of three planes; a single picture gets 1.7 times that."""


def class_colour(class_index: int) -> Colour:
    """The colour of a class."""
    return COLOURS[class_index % len(COLOURS)]


@lru_cache(maxsize=4)
def load_font(size: int = 15) -> Any:
    """Pillow's own font."""
    return ImageFont.load_default(size)


def physical_extent(panel: Panel) -> float:
    """The longer side in mm (or pixels)."""
    return max(float(side * step) for side, step in zip(panel.picture.shape, panel.pixel_size, strict=False))


def paint_panel(panel: Panel, scale: float) -> Image.Image:
    """The panel with `scale` screen pixels a mm: right proportions, contours two pixels wide, boxes with their scores."""
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
    """The outermost `width` pixels of a mask; where it meets the picture's border it has an edge too."""
    inner = mask
    for _ in range(width):
        padded = np.pad(inner, 1)
        inner = padded[1:-1, 1:-1] & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outline: np.ndarray = mask & ~inner
    return outline


def wrap_text(text: str, width: int, size: int = 15) -> list[str]:
    """Lines of a text that fit a width in pixels; a word that is too long is cut."""
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
"""A line beside the picture: text, the colour of its swatch, the share of its bar."""


def compose_sheet(pictures: Sequence[Image.Image], rows: Sequence[LegendRow], caption: str) -> Image.Image:
    """Pictures side by side, the rows at their right, a caption below."""
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
