"""Cases of several views, such as a frontal and a lateral radiograph: each is seen by the same network, which pools them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError

MOST = 4
"""Views of a case that a network sees; further ones are left out."""


def count_of(records: Sequence[Mapping[str, Any]]) -> int:
    """Views of a case at most; 1 where cases are images (and lists of paths the slices of one)."""
    if not any(record.get("several") == "views" for record in records):
        return 1
    return min(MOST, max(len(images_of(record["image_path"])) for record in records))


def images_of(case: Any) -> list[Any]:
    """The images of a case of views."""
    return list(case) if isinstance(case, list | tuple) else [case]


def room(plan: Mapping[str, Any]) -> int:
    """Views that the network of a plan takes."""
    return int(plan.get("views") or 1)


def placed(cases: Sequence[Any], plan: Mapping[str, Any]) -> tuple[list[Any], np.ndarray]:
    """Every image of all cases, and (N, views): where each case's lie among them, -1 for none."""
    many, images = room(plan), []
    places = np.full((len(cases), many), -1, np.int64)
    for row, case in enumerate(cases):
        for at, image in enumerate(images_of(case)[:many]):
            places[row, at] = len(images)
            images.append(image)
    return images, places


def gathered(images: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, V, C, *size) float32 with zeros where a view is missing, and (B, V): 1 where it is there."""
    there = places >= 0
    found = np.zeros((*places.shape, *images.shape[1:]), np.float32)
    found[there] = images[places[there]]
    return found, there.astype(np.float32)


def prepared(case: Any, plan: Mapping[str, Any], prepare: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """What a network takes of a case: (C, *size) and None; of views (V, C, *size) and (V,).

    Raises:
        DataError: an image that cannot be read, or a case without any.
    """
    many = room(plan)
    if many == 1:
        return prepare(case, plan), None
    paths = images_of(case)[:many]
    if not paths:
        raise DataError("a case without an image")
    found = np.zeros((many, int(plan["channels"]), *map(int, plan["size"])), np.float32)
    there = np.zeros(many, np.float32)
    for at, path in enumerate(paths):
        found[at], there[at] = prepare(path, plan), 1.0
    return found, there


def shape_of(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Of a case's pixels."""
    many = room(plan)
    return (*([many] if many > 1 else []), int(plan["channels"]), *map(int, plan["size"]))


def example(plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """All views of so many cases, as a network takes them; empty where cases are images."""
    import torch

    return {"views": torch.ones(count, room(plan))} if room(plan) > 1 else {}


def each(plan: Mapping[str, Any], change: Any, pixels: Any) -> Any:
    """A change of images, (B, C, *size), on every view of (B, V, C, *size)."""
    if room(plan) == 1:
        return change(pixels)
    return change(pixels.flatten(0, 1)).unflatten(0, pixels.shape[:2])
