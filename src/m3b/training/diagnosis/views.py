"""Cases of several images, views of a study or tiles of a slide: one network processes each and pools them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError
from m3b.training.cache import CachedImages
from m3b.training.diagnosis.tiles import list_tiles, read_bag

MAX_VIEWS = 4
"""Maximum views of a case; further ones are ignored."""


def count_views(records: Sequence[Mapping[str, Any]]) -> int:
    """Return the maximum number of views of a case; 1 if cases are images (lists of paths are then slices)."""
    if not any(record.get("several") == "views" for record in records):
        return 1
    return min(MAX_VIEWS, max(len(list_images(record["image_path"])) for record in records))


def list_images(case: Any) -> list[Any]:
    """Return the images of a case."""
    return list(case) if isinstance(case, list | tuple) else [case]


def view_count(plan: Mapping[str, Any]) -> int:
    """Return the number of images of a case that the plan's network pools: views of a study, or tiles of a slide."""
    return int((plan.get("tiles") or {}).get("count") or plan.get("views") or 1)


def index_views(cases: Sequence[Any], plan: Mapping[str, Any]) -> tuple[list[Any], np.ndarray]:
    """Return the images of all cases, and (N, views): the indices of each case's images, -1 for none."""
    max_views = view_count(plan)
    images: list[Any] = []
    rows = np.full((len(cases), max_views), -1, np.int64)
    images_of_cases = list_tiles(cases, plan) if plan.get("tiles") else map(list_images, cases)
    for row, case_images in enumerate(images_of_cases):
        for position, image in enumerate(case_images[:max_views]):
            rows[row, position] = len(images)
            images.append(image)
    return images, rows


def gather_views(images: np.ndarray | CachedImages, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (B, V, C, *size) float32 with zeros for missing views, and (B, V): 1 for existing views."""
    is_present = rows >= 0
    stacked = np.zeros((*rows.shape, *images.shape[1:]), np.float32)
    stacked[is_present] = images[rows[is_present]]
    return stacked, is_present.astype(np.float32)


def prepare_case(case: Any, plan: Mapping[str, Any], prepare: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the network input of a case: (C, *size) and None; with views (V, C, *size) and (V,).

    Raises:
        DataError: an image cannot be read, or the case has none.
    """
    max_views = view_count(plan)
    if plan.get("tiles"):
        bag = read_bag(case, plan)
        return bag.pixels, bag.is_tile
    if max_views == 1:
        return prepare(case, plan), None
    paths = list_images(case)[:max_views]
    if not paths:
        raise DataError("a case without an image")
    stacked = np.zeros((max_views, int(plan["channels"]), *map(int, plan["size"])), np.float32)
    is_present = np.zeros(max_views, np.float32)
    for position, path in enumerate(paths):
        stacked[position], is_present[position] = prepare(path, plan), 1.0
    return stacked, is_present


def input_shape(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a case's pixels."""
    max_views = view_count(plan)
    return (*([max_views] if max_views > 1 else []), int(plan["channels"]), *map(int, plan["size"]))


def make_view_mask(plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return all views of so many cases as network inputs; {} if cases are images."""
    import torch

    return {"views": torch.ones(count, view_count(plan))} if view_count(plan) > 1 else {}


def apply_to_views(plan: Mapping[str, Any], transform: Any, pixels: Any) -> Any:
    """Apply a transform of images (B, C, *size) to every view of (B, V, C, *size)."""
    if view_count(plan) == 1:
        return transform(pixels)
    return transform(pixels.flatten(0, 1)).unflatten(0, pixels.shape[:2])
