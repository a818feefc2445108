"""Pictures for a model: the image with the current mask, and rulers that show the grid."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.segmenter import GRID, BoxPrompt, ByteImage, Mask, Point
from m3b.messages import ImageContent

DEFAULT_SIDE = 768
"""Pixels of the longer side in the picture; the grid does not depend on it."""
MASK_COLOUR, BOX_COLOUR, POSITIVE, NEGATIVE = (0, 220, 80), (255, 200, 0), (40, 160, 255), (255, 60, 60)
OPACITY = 0.4
RULER_STEP = 100
MARGIN = 26


@dataclass(frozen=True)
class PictureStyle:
    """How pictures are drawn for a model. A model should be shown the same style as in its training.

    Args:
        side: pixels of the longer side of the image in the picture.
        rulers: whether rulers of the grid are drawn around it.
    """

    side: int = DEFAULT_SIDE
    rulers: bool = True

    def __post_init__(self) -> None:
        if not 16 <= self.side <= 4096:
            raise UsageError(f"Pictures can be 16 to 4096 pixels a side, not {self.side}.")


DEFAULT_STYLE = PictureStyle()


def scale_to_side(shape: Sequence[int], side: int = DEFAULT_SIDE) -> tuple[int, int]:
    """Return rows and columns in the picture: the image's proportions, with a longer side of `side` pixels."""
    scale = side / max(shape)
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def draw_picture(
    image: ByteImage,
    mask: Mask | None = None,
    boxes: Sequence[BoxPrompt] = (),
    points: Sequence[Point] = (),
    style: PictureStyle = DEFAULT_STYLE,
) -> ImageContent:
    """Draw a PNG: the image inside rulers of the grid, the mask half-transparent with its contour, and the prompts.

    Args:
        image: (H, W, 3) uint8.
        mask: (H, W) bool.
    """
    from PIL import Image, ImageDraw

    rows, columns = scale_to_side(image.shape[:2], style.side)
    margin = MARGIN if style.rulers else 0
    picture = np.array(Image.fromarray(image).resize((columns, rows), Image.Resampling.BICUBIC))
    if mask is not None and mask.any():
        shown_mask = (
            np.array(Image.fromarray(mask.astype(np.uint8)).resize((columns, rows), Image.Resampling.NEAREST)) > 0
        )
        eroded = shown_mask.copy()
        eroded[1:-1, 1:-1] &= (
            shown_mask[:-2, 1:-1] & shown_mask[2:, 1:-1] & shown_mask[1:-1, :-2] & shown_mask[1:-1, 2:]
        )
        picture[shown_mask] = (picture[shown_mask] * (1 - OPACITY) + np.array(MASK_COLOUR) * OPACITY).astype(np.uint8)
        picture[shown_mask & ~eroded] = MASK_COLOUR
    canvas = Image.new("RGB", (columns + margin, rows + margin), (20, 22, 26))
    canvas.paste(Image.fromarray(picture), (margin, margin))
    drawing = ImageDraw.Draw(canvas)
    if style.rulers:
        _draw_rulers(drawing, rows, columns)
    row_scale, column_scale = rows / image.shape[0], columns / image.shape[1]
    for box in boxes:
        corners = [
            box.x0 * column_scale + margin,
            box.y0 * row_scale + margin,
            box.x1 * column_scale + margin,
            box.y1 * row_scale + margin,
        ]
        drawing.rectangle(corners, outline=BOX_COLOUR, width=2)
    for point in points:
        x, y = point.x * column_scale + margin, point.y * row_scale + margin
        colour = POSITIVE if point.positive else NEGATIVE
        drawing.ellipse([x - 5, y - 5, x + 5, y + 5], fill=colour, outline=(255, 255, 255))
    return ImageContent(_encode_png(canvas), "image/png")


def _draw_rulers(drawing: Any, rows: int, columns: int) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(11)
    for number in range(0, GRID, RULER_STEP):
        x, y = MARGIN + number / GRID * columns, MARGIN + number / GRID * rows
        drawing.line([x, MARGIN - 6, x, MARGIN], fill=(200, 200, 200))
        drawing.line([MARGIN - 6, y, MARGIN, y], fill=(200, 200, 200))
        drawing.text((x, MARGIN - 7), str(number), fill=(200, 200, 200), font=font, anchor="mb")
        drawing.text((MARGIN - 7, y), str(number), fill=(200, 200, 200), font=font, anchor="rm")


def _encode_png(canvas: Any) -> bytes:
    stream = io.BytesIO()
    canvas.save(stream, "PNG", optimize=False, compress_level=6)
    return stream.getvalue()
