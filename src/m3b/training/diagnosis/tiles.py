"""Slides as bags of tiles: which tiles hold tissue, and the size at which they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image, Part, get_format, probe_image, read_image, split_item
from m3b.dataset.formats.slides import OVERVIEW_SIDE, overview_factor
from m3b.training.cache import MAX_UNREADABLE_SHARE, CacheError, cache_key
from m3b.training.preprocess import prepare_image

MIN_SLIDE_SHARE = 0.5
"""Share of the sampled images that are slides, above which all cases are seen by tiles."""
TILE_SIDE = {False: 128, True: 224}
MAX_TILES = {False: 256, True: 128}
"""Side of a tile and maximum tiles of a slide, without and with a GPU."""
LONG_MINUTES = 20.0
"""Minutes from which a processor may train on so many tiles; in less time a quarter of them gives enough steps."""
MIN_TILES = 16
"""Tiles of a slide below which the plan reduction does not halve the magnification."""
TISSUE_QUANTILE = 0.9
"""Share of the sampled slides whose tissue fits into the maximum tiles, at the magnification that is chosen."""
BORDER_TILES = 1.5
"""Tiles that tissue needs in its own area, since tiles at its border hold less."""
MIN_TISSUE_SHARE = 0.1
"""Minimum share of tissue in a tile."""


# --- tissue --------------------------------------------------------------------------------------------------------------


def find_tissue(array: np.ndarray) -> np.ndarray:
    """Return (H, W) bool for a colour image (C, H, W): where its colour is stronger than a threshold of its own (Otsu, 1979).

    Strength is the highest less the lowest channel, since the saturation of nearly black borders is noise.
    """
    from scipy import ndimage

    strength = ndimage.uniform_filter((array.max(axis=0).astype(np.float32) - array.min(axis=0)), 3)
    counts, edges = np.histogram(strength, 256)
    values = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    sums = (counts * values).cumsum()
    means_apart = sums / below.clip(1) - (sums[-1] - sums) / above.clip(1)
    return np.asarray(strength > edges[1:][np.argmax(below * above * np.square(means_apart))])


def measure_slide(image: Image) -> dict[str, Any]:
    """Return `tissue`, pixels of the full size, of the overview of a slide, and `reduced`, the factor of its sides; {} of others."""
    sides = next((note.values for note in image.notes if note.code == "slide"), None)
    if sides is None:
        return {}
    area = float(find_tissue(image.array).mean()) * sides["rows"] * sides["columns"]
    return {"tissue": area, "reduced": round(sides["rows"] / image.array.shape[1])}


# --- in the plan ---------------------------------------------------------------------------------------------------------


def summarise_slides(sample: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return `count`, `tissue` pixels and `um` of a pixel of the sampled slides; None if most images are none."""
    slides = [item for item in sample if "tissue" in item]
    if len(slides) <= MIN_SLIDE_SHARE * len(sample):
        return None
    steps = [item["spacing"][0] * 1e3 / item["reduced"] for item in slides if item["spacing"]]
    um = float(np.median(steps)) if len(steps) > len(slides) / 2 else None
    return {"count": len(slides), "tissue": [item["tissue"] for item in slides], "um": um}


def choose_tiles(slides: Mapping[str, Any] | None, has_gpu: bool, minutes: float) -> dict[str, Any]:
    """Return `tiles` and `size` of the plan for slides, at the highest magnification at which the tissue fits; {} without slides."""
    if not slides:
        return {}
    side, count = TILE_SIDE[has_gpu], MAX_TILES[has_gpu] // (1 if has_gpu or minutes >= LONG_MINUTES else 4)
    pixels = BORDER_TILES * float(np.quantile(slides["tissue"], TISSUE_QUANTILE))
    factor = 1
    while pixels / (side * factor) ** 2 > count:
        factor *= 2
    um = None if slides["um"] is None else round(slides["um"] * factor, 4)
    return {"tiles": {"count": count, "factor": factor, "um": um}, "size": [side, side]}


def halve_magnification(plan: dict[str, Any]) -> str:
    """Reduce a plan of slides: a quarter of the tiles shows the same tissue. Return "" if it has too few tiles."""
    rule = plan["tiles"]
    if rule["count"] // 4 < MIN_TILES:
        return ""
    rule |= {"count": rule["count"] // 4, "factor": rule["factor"] * 2, "um": rule["um"] and rule["um"] * 2}
    return f"up to {describe_tiles(plan)}"


def describe_tiles(plan: Mapping[str, Any]) -> str:
    """Return number, size and magnification of the tiles of a slide."""
    rule = plan["tiles"]
    scale = f"{rule['um']:g} µm a pixel" if rule["um"] else f"every side reduced {rule['factor']} times"
    return f"{rule['count']} tiles of {plan['size'][0]} pixels with tissue, {scale}"


# --- tiles of a case -----------------------------------------------------------------------------------------------------


def overview_of(path: Any) -> str:
    """Return the path of the overview of a slide.

    Raises:
        DataError: the case is no file that tiles can be read of.
    """
    if not isinstance(path, str) or get_format(split_item(path)[0]).name != "tiff" or split_item(path)[1]:
        raise DataError(f"{path}: the model takes slides as TIFF files (.tif, .tiff, .svs), of which it reads tiles")
    return f"{path}#overview={OVERVIEW_SIDE}"


def list_parts(path: str, plan: Mapping[str, Any], overview: Image) -> list[Part]:
    """Return at most `tiles.count` tiles of the plan that hold tissue, evenly spaced; if there is no tissue, of the whole slide."""
    rule, info = plan["tiles"], probe_image(path)
    factor = int(rule["factor"])
    if rule["um"] and info.spacing:
        factor = 1 << max(0, round(np.log2(rule["um"] / (info.spacing[0] * 1e3))))
    sides = [factor * int(side) for side in plan["size"]]
    shares = measure_cells(find_tissue(overview.array), info.shape, sides)
    places = np.argwhere(shares >= min(MIN_TISSUE_SHARE, float(shares.max())))
    if len(places) > rule["count"]:
        places = places[np.linspace(0, len(places) - 1, rule["count"]).round().astype(int)]
    return [Part(int(row) * sides[0], int(column) * sides[1], sides[0], sides[1], factor) for row, column in places]


def measure_cells(mask: np.ndarray, shape: Sequence[int], sides: Sequence[int]) -> np.ndarray:
    """Return (rows, columns): the share of a reduced mask in each cell of a grid over the full size.

    Args:
        shape: the full size.
        sides: of a cell, in pixels of the full size.
    """
    sums = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    limits = []
    for length, whole, side in zip(mask.shape, shape, sides, strict=True):
        starts = np.arange(-(-whole // side)) * side
        first = (starts * length // whole).clip(0, length - 1)
        limits.append((first, np.maximum(np.minimum(starts + side, whole) * length // whole, first + 1)))
    (top, bottom), (left, right) = limits
    inside = (
        sums[np.ix_(bottom, right)] - sums[np.ix_(top, right)] - sums[np.ix_(bottom, left)] + sums[np.ix_(top, left)]
    )
    return np.asarray(inside / np.outer(bottom - top, right - left))


@dataclass(frozen=True)
class Bag:
    """A slide as the network sees it.

    Attributes:
        pixels: (T, C, H, W) float32 of all tiles that a slide may have; zeros from the number of `parts` on.
        is_tile: (T,) 1 for its tiles.
        reduced: times that the sides of the overview are reduced.
    """

    pixels: np.ndarray
    is_tile: np.ndarray
    parts: list[Part]
    overview: Image
    reduced: int


def read_bag(path: Any, plan: Mapping[str, Any]) -> Bag:
    """Return the tiles of a slide. Raises DataError."""
    overview = read_image(overview_of(path))
    parts, count = list_parts(path, plan, overview), int(plan["tiles"]["count"])
    pixels = np.zeros((count, int(plan["channels"]), *map(int, plan["size"])), np.float32)
    for place, part in enumerate(parts):
        pixels[place] = prepare_image(f"{path}#{part.to_item()}", plan)
    is_tile = (np.arange(count) < len(parts)).astype(np.float32)
    return Bag(pixels, is_tile, parts, overview, overview_factor(probe_image(path).shape))


def list_tiles(paths: Sequence[Any], plan: Mapping[str, Any], folder: Path = Path("Logout/cache")) -> list[list[str]]:
    """Return the paths of the tiles of each slide, found once and kept in `folder`; none of slides that cannot be read.

    Raises:
        CacheError: too many slides cannot be read.
    """
    file = folder / f"tiles-{cache_key(paths, plan, folder=folder)}.json"
    if not file.exists():
        with ThreadPoolExecutor(max(1, int(plan.get("workers") or os.cpu_count() or 1))) as pool:
            found_tiles = list(pool.map(lambda path: _list_tiles(path, plan), paths))
        failed = [tiles for tiles in found_tiles if isinstance(tiles, str)]
        if len(failed) > MAX_UNREADABLE_SHARE * len(paths):
            raise CacheError(
                f"{len(failed)} of {len(paths)} slides cannot be read; correct the index. First: {failed[0]}"
            )
        for reason in failed:
            print(f"excluded: {reason}", flush=True)
        tiles_of_slides = [[] if isinstance(tiles, str) else tiles for tiles in found_tiles]
        folder.mkdir(parents=True, exist_ok=True)
        part_file = file.with_suffix(".part")
        part_file.write_text(json.dumps(tiles_of_slides))
        os.replace(part_file, file)
    listed: list[list[str]] = json.loads(file.read_text())
    return listed


def _list_tiles(path: Any, plan: Mapping[str, Any]) -> list[str] | str:
    """Return the paths of the tiles of a slide, or the reason why it cannot be read."""
    try:
        return [f"{path}#{part.to_item()}" for part in list_parts(path, plan, read_image(overview_of(path)))]
    except DataError as error:
        return str(error)
