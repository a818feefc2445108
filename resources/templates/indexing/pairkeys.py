"""What names of images and masks are compared by."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from folder_layouts import MASKS

MASK_WORDS = (
    "masks?", "seg", "segm", "segmentations?", "labels?", "lbl", "gt", "msk", "groundtruth", "ground_truth", "lesions?",
    "annotations?", "rois?", "seg-vert", "gold_standard", "manual",
)  # fmt: skip
IMAGE_WORDS = ("images?", "img", "ct", "mri?", "scan", "volume", "vol", "flair", "t1", "t2", "t1w", "t2w", "ct_scan")
Key = Callable[["Unit"], str]


@dataclass(frozen=True)
class Unit:
    """An image or a mask: a file, or a folder of slices.

    Args:
        inner: its path below the folder that was named.
        name: without ending.
    """

    path: Path
    inner: str
    name: str

    @property
    def place(self) -> str:
        """The folders above, without those that say image or mask and those of train and test."""
        above = self.inner.split("/")[:-1]
        return "/".join(part.lower() for part in above if not _says_nothing(part))


def _says_nothing(part: str) -> bool:
    words = re.split(r"[^a-z]+", part.lower())
    known = (*MASKS, "images", "image", "imgs", "img", "rawdata", "raw", "derivatives", "anat", "data", "scans", "ct")
    return all(word in known for word in words if word)


def bare(name: str) -> str:
    """Without words for image or mask at either end; 'img0001' and 'label0001' are both '0001'."""
    low = name.lower()
    words = "|".join((*MASK_WORDS, *IMAGE_WORDS))
    while True:
        cut = re.sub(rf"[ ._-](?:{words})$|^(?:{words})(?=[ ._-]|\d)[ ._-]?|_0000$", "", low)
        if cut == low or not cut:
            return low
        low = cut


KEYS: tuple[tuple[str, Key], ...] = (
    ("the same path", lambda one: f"{one.place}/{one.name}".lower()),
    ("the same name", lambda one: one.name.lower()),
    ("the same name but for a suffix", lambda one: f"{one.place}/{bare(one.name)}"),
    ("the same name but for a suffix, in any folder", lambda one: bare(one.name)),
    ("the folder of the case", lambda one: one.place),
    ("the same numbers", lambda one: " ".join(re.findall(r"\d+", bare(one.name)))),
    ("the same first number", lambda one: " ".join(re.findall(r"\d+", bare(one.name))[:1])),
)
"""Ways to tell that two files belong together, the surest first."""
