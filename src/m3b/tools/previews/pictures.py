"""PNG, JPEG, TIFF and their like: size, mode, bits, range, values of masks."""

from __future__ import annotations

import warnings
from io import BufferedReader
from pathlib import Path
from typing import Any

from m3b.data.phi import Phi
from m3b.data.reading import shared
from m3b.facts import PictureSummary
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.lines import Lines
from m3b.tools.previews.numbers import describe
from m3b.tools.text import pluralize

_MAX_PIXELS = 64_000_000
MAX_COLOURS = 16
"""A picture with no more is no photograph."""
_MODES = {
    "1": "1-bit",
    "L": "8-bit grey",
    "LA": "8-bit grey with alpha",
    "P": "8-bit palette",
    "RGB": "8-bit RGB",
    "RGBA": "8-bit RGB with alpha",
    "CMYK": "8-bit CMYK",
    "I": "32-bit integer grey",
    "I;16": "16-bit grey",
    "I;16B": "16-bit grey",
    "F": "32-bit float grey",
}


def preview(path: Path, phi: Phi) -> Lines:
    """Lines about a picture; pixels are read up to 64 million of them."""
    from PIL import Image

    known = shared().formats.PICTURES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            with open_for_reading(path, path.name) as file, Image.open(BufferedReader(file), formats=known) as image:
                return _describe(image)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _describe(image: Any) -> Lines:
    import numpy as np

    width, height = image.size
    frames = int(getattr(image, "n_frames", 1))
    line = f"{image.format} picture, width {width} x height {height} px, {_MODES.get(image.mode, image.mode)}"
    if (orientation := shared().formats.exif_orientation(image)) > 1:
        width, height = (height, width) if orientation >= 5 else (width, height)
        line += f", EXIF orientation {orientation}: turned when read, to width {width} x height {height} px"
    if frames > 1:
        line += f", {pluralize(frames, 'frame')}"
    summary = PictureSummary(width=width, height=height, frames=frames, mode=str(image.mode))
    if width * height > _MAX_PIXELS:
        return Lines([line, "pixels not read: the picture is too large"], summary)
    pixels = np.asarray(image.convert("L") if image.mode == "1" else image)  # 0 and 255, as masks are read everywhere
    same = pixels.ndim == 3 and pixels.shape[2] >= 3 and _same(pixels)
    told = describe(pixels[..., 0] if same else pixels, counts=same or pixels.ndim == 2)
    lines = [line, ("first frame: " if frames > 1 else "") + told]
    if same:
        lines.append("the three channels are equal: a grey picture stored as RGB")
    elif pixels.ndim == 3 and pixels.shape[2] >= 3 and (colours := _colours(pixels)):
        lines.append(f"few colours, as of a painted mask: {colours}")
    return Lines(lines, summary)


def _colours(pixels: Any) -> str:
    """The colours of a picture that has a handful, with their counts; empty for photographs."""
    import numpy as np

    packed = pixels[..., 0].astype(np.uint32) << 16 | pixels[..., 1].astype(np.uint32) << 8 | pixels[..., 2]
    flat = packed.reshape(-1)
    if len(np.unique(flat[:: max(flat.size // 50_000, 1)])) > MAX_COLOURS:
        return ""
    values, counts = np.unique(flat, return_counts=True)
    if len(values) > MAX_COLOURS:
        return ""
    named = [(int(v) >> 16, int(v) >> 8 & 255, int(v) & 255, int(n)) for v, n in zip(values, counts, strict=True)]
    return ", ".join(f"({r}, {g}, {b}) x {n:,}" for r, g, b, n in named)


def _same(pixels: Any) -> bool:
    return bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all())
