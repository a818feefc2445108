"""Reading the preview of a folder with masks: which folder or pattern holds images, which holds masks?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from m3b.llm.rules.names import value_options
from m3b.llm.rules.preview import Pattern, patterns
from m3b.llm.rules.view import View
from m3b.llm.rules.words import MASK_WORDS, STOP, bare_words, words

SEQUENCES = ("flair", "t1c", "t1ce", "ct", "t2w", "t2", "t1w", "t1", "dwi", "adc", "pet")
"""Of several images a case, the one to take where the request names none."""
SUREST = (
    "label",
    "labels",
    "lbl",
    "seg",
    "segmentation",
    "segmentations",
    "annotation",
    "annotations",
    "gt",
    "mask",
    "masks",
)
"""Of several folders of masks over the same images, the one that is likelier to hold the labels."""


def mask_attempts(view: View, root: str) -> list[list[str]]:
    """Options for every reading of a layout with masks, most likely first."""
    listed = patterns(view.preview)
    values = value_options(view)
    masks = [one for one in listed if one.is_mask]
    images = [one for one in listed if one.is_picture and not one.is_mask]
    found = _dataset_json(listed, root, values)
    if masks and images:
        apart = [one for one in masks if not one.by_case]
        whole = [one for one in images if not one.by_case]
        if apart and whole and sum(one.count for one in apart) >= 0.5 * sum(one.count for one in masks):
            found += _folders(apart, whole, root, values, view)
        if len(apart) < len(masks):
            found += _by_case(masks, images, root, values, view.request)
    return [*found, *[[*one, "--ignore-split"] for one in found]]


def _dataset_json(listed: list[Pattern], root: str, values: list[str]) -> list[list[str]]:
    folders = {one.folder.rpartition("/")[2] for one in listed}
    files = [one.text for one in listed if one.name.lower().endswith("dataset.json")]
    if not files or "imagesTr" not in folders:
        return []
    file = f"{root}/{files[0]}"
    own = [] if not values or values[1].endswith("dataset.json") else values
    return [["--dataset-json", file, *own]]


# --- a folder of images, a folder of masks -----------------------------------------------------------------------


def _folders(masks: list[Pattern], images: list[Pattern], root: str, values: list[str], view: View) -> list[list[str]]:
    places = list(dict.fromkeys(one.folder for one in masks))
    counts = {
        place: sum(one.count for one in images if one.folder == place) for place in {one.folder for one in images}
    }
    first = _likeliest(places, masks, view)
    image_place = _beside(first, counts)
    found = [[*_pair(image_place, first, masks, images, root), *values]]
    named = [(name, place) for place in places if (name := _class_of(place))]
    if len(named) > 1 and _beside(named[0][1], counts) == image_place:
        by_class = [part for name, place in named for part in ("--masks", f"{name}={root}/{place}")]
        split = [["--images", f"{root}/{image_place}".rstrip("/"), *by_class]]
        found = (
            [*found, *split]
            if first not in [place for _, place in named] or _unites(first, named)
            else [*split, *found]
        )
    return found


def _pair(image_place: str, mask_place: str, masks: list[Pattern], images: list[Pattern], root: str) -> list[str]:
    """Both folders; where they are one, the masks are told by their names."""
    options = ["--images", f"{root}/{image_place}".rstrip("/"), "--masks", f"{root}/{mask_place}".rstrip("/")]
    if image_place == mask_place:
        options += ["--mask", _globs(one for one in masks if one.folder == mask_place)]
        options += ["--image", _globs(one for one in images if one.folder == image_place)]
    return options


def _globs(found: object) -> str:
    return "|".join(dict.fromkeys(one.glob for one in found))  # type: ignore[attr-defined]


def _likeliest(places: list[str], masks: list[Pattern], view: View) -> str:
    """The folder that unites the others, else the one with the surest name, else the one with most files."""
    named = [(name, place) for place in places if (name := _class_of(place))]
    uniting = [place for place in places if _unites(place, named)]
    counts = {place: sum(one.count for one in masks if one.folder == place) for place in places}

    def rank(place: str) -> tuple[bool, int, int]:
        said = [word for word in bare_words(place.rpartition("/")[2]) if word in SUREST]
        sure = min((SUREST.index(word) for word in said), default=len(SUREST))
        return (place not in uniting, sure, -counts[place])

    return min(places, key=rank)


def _unites(place: str, named: Sequence[tuple[str, str]]) -> bool:
    """Whether a folder's name holds the words of two others, as `Lung_and_Infection_Mask` does."""
    own = set(bare_words(place.rpartition("/")[2]))
    inside = [other for name, other in named if other != place and set(name.split()) <= own]
    return len(inside) >= 2


def _class_of(place: str) -> str:
    """The class that a folder of masks is named after, as `Lung_Mask` is; nothing for `masks` or `labelsTr`."""
    kept = [
        word
        for word in bare_words(place.rpartition("/")[2])
        if word not in MASK_WORDS and word not in ("tr", "ts", "and", "train")
    ]
    return " ".join(kept)


def _beside(place: str, counts: dict[str, int]) -> str:
    """The folder of images that is nearest to a folder of masks, and the largest of those."""

    def near(other: str) -> tuple[int, int]:
        common = os.path.commonpath([place or ".", other or "."]) if bool(place) == bool(other) else ""
        return (len(common.split("/")) if common else 0, counts[other])

    return max(counts, key=near)


# --- a folder a case ---------------------------------------------------------------------------------------------


def _by_case(
    masks: list[Pattern], images: list[Pattern], root: str, values: list[str], request: str
) -> list[list[str]]:
    """Image and mask in one folder a case, or in two trees of such folders."""
    tops = {one.root for one in masks}
    own = (
        [one for one in images if one.by_case and one.root in tops] or [one for one in images if one.by_case] or images
    )
    globs = list(dict.fromkeys(one.glob for one in own))
    image = _sequence(globs, own, request)
    mask_globs = list(dict.fromkeys(one.glob for one in masks))
    shared = os.path.commonpath([one.root or "." for one in [*masks, *own]]).strip(".")
    place = f"{root}/{shared}".rstrip("/")
    named = [one for one in mask_globs if "*" not in one]
    start = ["--case-folders", place, "--image", image]
    if len(named) > 1 and len(named) == len(mask_globs):
        return [[*start, "--mask", "|".join(named), "--class-masks"]]
    if len(mask_globs) > 1 and len({glob.lstrip("*") for glob in mask_globs}) > 1 and len(tops) == 1:
        return [[*start, "--mask", glob, *values] for glob in mask_globs]
    return [[*start, "--mask", "|".join(mask_globs), *values]]


def _sequence(globs: list[str], images: list[Pattern], request: str) -> str:
    """Of several images a case, that which the request names, else by rule; names of one kind are all taken."""
    asked = words(request) - STOP
    counts = {glob: sum(one.count for one in images if one.glob == glob) for glob in globs}
    kinds = {glob: set(re.findall(r"[a-z]+\d*", glob.lower())) for glob in globs}
    hits = [glob for glob in globs if kinds[glob] & asked]
    if len(hits) == 1:
        return hits[0]
    for name in SEQUENCES:
        fitting = [
            glob for glob in globs if re.match(rf"\*?[_-]?{name}(?![a-z0-9])", glob.lower()) or name in kinds[glob]
        ]
        if fitting:
            return max(fitting, key=lambda glob: (glob.lower().startswith(name), counts[glob]))
    return max(globs, key=lambda glob: counts[glob])
