"""Small made slides: mostly white, tissue in an ellipse, classes that differ in the texture of one small region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tifffile

NUCLEUS = 8
"""Side of a nucleus in pixels of the full size."""


def draw_slide(side: int, seed: int, ill: bool = False) -> np.ndarray:
    """Return (side, side, 3) uint8. If `ill`, a small region has dark nuclei, else the colour that is their mean."""
    random = np.random.default_rng(seed)
    rows, columns = np.ogrid[:side, :side]
    middle, radii = random.uniform(0.4, 0.6, 2) * side, random.uniform(0.15, 0.25, 2) * side
    tissue = ((rows - middle[0]) / radii[0]) ** 2 + ((columns - middle[1]) / radii[1]) ** 2 < 1
    slide = np.array([241, 240, 242], np.uint8) + random.integers(0, 4, (side, side, 1), np.uint8)
    shade = random.integers(-15, 16, (side // 16, side // 16, 1)).repeat(16, 0).repeat(16, 1)
    slide[tissue] = (np.array([214, 150, 190]) + shade)[tissue]
    spot = middle + random.uniform(-0.4, 0.4, 2) * radii
    region = (rows - spot[0]) ** 2 + (columns - spot[1]) ** 2 < (0.05 * side) ** 2
    nuclei = (rows // NUCLEUS + columns // NUCLEUS) % 2 == 0
    slide[region] = [142, 95, 145]
    if ill:
        slide[region & nuclei], slide[region & ~nuclei] = [70, 40, 100], [214, 150, 190]
    return slide


def list_halved(pixels: np.ndarray, count: int) -> list[np.ndarray]:
    """Return `count` levels, each half as large as the one before."""
    levels = [pixels]
    while len(levels) < count:
        last = levels[-1]
        last = np.pad(last, ((0, last.shape[0] % 2), (0, last.shape[1] % 2), (0, 0)), mode="edge")
        blocks = last.reshape(last.shape[0] // 2, 2, last.shape[1] // 2, 2, 3)
        levels.append(np.round(blocks.mean(axis=(1, 3))).astype(np.uint8))
    return levels


def write_slide(
    file: Path, pixels: np.ndarray, storage: str, um: float = 0.0, compression: str | None = "deflate"
) -> Path:
    """Write a slide as `subifds`, `pages`, `svs`, `one level` or `strips`; `um` is the size of a pixel, 0 if it is not stated."""
    options: dict[str, Any] = {"photometric": "rgb", "compression": compression, "tile": (256, 256), "metadata": None}
    if storage in ("one level", "strips"):
        part = {"tile": None, "rowsperstrip": 32} if storage == "strips" else {}
        tifffile.imwrite(file, pixels, **{**options, **part}, **_resolution(um))
        return file
    levels = list_halved(pixels, 3)
    with tifffile.TiffWriter(file) as writer:
        if storage == "svs":
            rows, columns = pixels.shape[:2]
            about = f"Aperio Image Library v12\n{columns}x{rows} [0,0 {columns}x{rows}] (256x256) JPEG/RGB|AppMag = 20|MPP = {um}"
            writer.write(pixels, description=about, **options)
            thumbnail = {**options, "tile": None}
            writer.write(levels[2], description=f"Aperio Image Library v12\n{columns}x{rows} -> thumbnail", **thumbnail)
            for level in levels[1:]:
                writer.write(level, description="Aperio Image Library v12\nlevel", **options)
            return file
        writer.write(pixels, subifds=2 if storage == "subifds" else 0, **options, **_resolution(um))
        for number, level in enumerate(levels[1:], start=1):
            writer.write(level, subfiletype=1, **options, **_resolution(um * 2**number))
    return file


def _resolution(um: float) -> dict[str, Any]:
    return {"resolution": (1e4 / um, 1e4 / um), "resolutionunit": "CENTIMETER"} if um else {}
