"""Masks of the field of view: the part of the image that a camera lights, by their names, the notes or their shape. They mark no
finding and no organ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from m3b.dataset.archives import local_reference
from m3b.dataset.formats import DataError, read_labels
from m3b.dataset.manifest.resolve import Resolved
from m3b.dataset.proposals.roles import split_words

MIN_MASKS, MAX_MASKS = 5, 8
"""Masks below which nothing is said of their common shape, and those that are read."""
MAX_PIXELS = 10_000
"""Pixels of a mask whose values are counted."""
MIN_COMMON_DICE, MIN_SHARE = 0.97, 0.5
"""Dice of each mask with the first one, and the share of the image that masks cover, from which on they are a field of view."""
FIELD_OF_VIEW = re.compile(
    r"field[\s_-]*of[\s_-]*view|\bfov\b|sichtfeld|gesichtsfeld|bildfeld|champ de (?:vision|vue)|campo (?:de visi[oó]n|visual)|视野",
    re.IGNORECASE,
)


def find_field_of_view(resolved: Resolved, request_text: str, notes: str, root: Path) -> str:
    """Return why the masks of a manifest are fields of view; empty if nothing says so, or the request asks for them."""
    masks = resolved.manifest.masks
    if masks is None or masks.format != "image" or len(masks.classes) != 1 or masks.per_file:
        return ""
    if FIELD_OF_VIEW.search(request_text) or "mask_refs" not in resolved.frame.columns:
        return ""
    patterns = (masks.files,) if isinstance(masks.files, str) else masks.files
    names = {word for pattern in patterns for word in split_words(re.sub(r"\{[^{}]*\}", " ", pattern))}
    if "fov" in names or FIELD_OF_VIEW.search(" ".join(patterns)):
        return "they are called field of view"
    for line in notes.splitlines():
        first = next(iter(split_words(line)), "")
        if first in names and FIELD_OF_VIEW.search(line):
            return f"the notes say: {line.strip()}"
    if masks.member or masks.above is not None:
        return ""
    return _describe_common_shape(resolved.frame["mask_refs"].list.first().drop_nulls().to_list(), root)


def _describe_common_shape(refs: Sequence[str], root: Path) -> str:
    """Return what a sample of flat masks has in common if they are nearly the same and cover most of the image; else an empty text."""
    marked: list[Any] = []
    for ref in refs[:: max(1, len(refs) // MAX_MASKS)][:MAX_MASKS]:
        try:
            labels = read_labels(local_reference(root, ref)).array
        except (DataError, OSError):
            continue
        if len({*labels.flat[:: max(1, labels.size // MAX_PIXELS)]}) > 2:
            return ""
        marked.append(labels > 0)
        if marked[-1].ndim != 2 or marked[-1].shape != marked[0].shape or not marked[-1].any():
            return ""
    if len(marked) < MIN_MASKS or len(set(refs)) < MIN_MASKS:
        return ""
    share = median(float(mask.mean()) for mask in marked)
    dice = min(2 * float((mask & marked[0]).sum()) / float(mask.sum() + marked[0].sum()) for mask in marked[1:])
    if share < MIN_SHARE or dice < MIN_COMMON_DICE:
        return ""
    return f"they cover {share:.0%} of the image and are nearly the same in each (Dice {dice:.2f})"
