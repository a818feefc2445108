"""COCO annotations: images, boxes or masks, and named categories."""

from __future__ import annotations

from collections import Counter
from typing import Any

from m3b.tools.text import pluralize


def is_coco(value: Any) -> bool:
    """Whether a JSON value has the two lists that every COCO file has."""
    return isinstance(value, dict) and all(isinstance(value.get(key), list) for key in ("images", "annotations"))


def marked(value: Any) -> list[str]:
    """What the annotations of a COCO file hold; nothing of any other value."""
    found = [one for one in value["annotations"] if isinstance(one, dict)] if is_coco(value) else []
    return [
        key for key in ("bbox", "segmentation", "keypoints", "caption") if any(one.get(key) for one in found[:1000])
    ]


def coco(value: Any) -> list[str] | None:
    """What a COCO file holds; nothing when the value is not one."""
    if not is_coco(value):
        return None
    categories = [one for one in value.get("categories") or [] if isinstance(one, dict)]
    images = [one for one in value["images"] if isinstance(one, dict)]
    found = [one for one in value["annotations"] if isinstance(one, dict)]
    names = {one.get("id"): str(one.get("name", one.get("id"))) for one in categories}
    counts = Counter(names.get(one.get("category_id"), f"unknown id {one.get('category_id')}") for one in found)
    for name in names.values():
        counts.setdefault(name, 0)
    annotated = len({one.get("image_id") for one in found})
    kinds = marked(value)
    shapes = Counter((one.get("width"), one.get("height")) for one in images)
    common = ", ".join(f"{w} x {h} px ({n:,})" for (w, h), n in shapes.most_common(3) if w and h)
    listed = ", ".join(f"{name} x {count:,}" for name, count in counts.most_common(40))
    return [
        f"COCO: {pluralize(len(images), 'image')}, {annotated:,} of them annotated; {pluralize(len(found), 'annotation')}"
        f" ({', '.join(kinds) or 'empty'}); {pluralize(len(categories), 'category', 'categories')}",
        f"annotations by category: {listed or 'none'}",
        *([f"image sizes: {common}"] if common else []),
    ]
