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
    annotations = [item for item in value["annotations"] if isinstance(item, dict)] if is_coco(value) else []
    return [
        key
        for key in ("bbox", "segmentation", "keypoints", "caption")
        if any(item.get(key) for item in annotations[:1000])
    ]


def coco(value: Any) -> list[str] | None:
    """What a COCO file holds; nothing when the value is not one."""
    if not is_coco(value):
        return None
    categories = [item for item in value.get("categories") or [] if isinstance(item, dict)]
    images = [item for item in value["images"] if isinstance(item, dict)]
    annotations = [item for item in value["annotations"] if isinstance(item, dict)]
    names = {category.get("id"): str(category.get("name", category.get("id"))) for category in categories}
    counts = Counter(
        names.get(annotation.get("category_id"), f"unknown id {annotation.get('category_id')}")
        for annotation in annotations
    )
    for name in names.values():
        counts.setdefault(name, 0)
    annotated = len({annotation.get("image_id") for annotation in annotations})
    kinds = marked(value)
    shapes = Counter((image.get("width"), image.get("height")) for image in images)
    common = ", ".join(f"{w} x {h} px ({n:,})" for (w, h), n in shapes.most_common(3) if w and h)
    categories_text = ", ".join(f"{name} x {count:,}" for name, count in counts.most_common(40))
    return [
        f"COCO: {pluralize(len(images), 'image')}, {annotated:,} of them annotated; {pluralize(len(annotations), 'annotation')}"
        f" ({', '.join(kinds) or 'empty'}); {pluralize(len(categories), 'category', 'categories')}",
        f"annotations by category: {categories_text or 'none'}",
        *([f"image sizes: {common}"] if common else []),
    ]
