"""What the preview of a folder says: patterns of file names with their counts, and what may be masks among them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from m3b.llm.rules.words import of_masks

PICTURES = (
    ".nii.gz", ".nii", ".mha", ".mhd", ".nrrd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".dcm",
    ".npy", ".npz", ".pt", ".pck", ".pkl", ".h5",
)  # fmt: skip
VARIES = re.compile(r"\{[^{}]*\}|\*+")


@dataclass(frozen=True)
class Pattern:
    """Files whose names differ in numbers only, such as `imgs/case_{001..020}.png x 20`.

    Args:
        text: below the folder that is previewed.
    """

    text: str
    count: int

    @property
    def folder(self) -> str:
        return self.text.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    @property
    def root(self) -> str:
        """The folders above that are the same for all of the files."""
        fixed = VARIES.split(self.folder)[0]
        return fixed if fixed == self.folder else fixed.rpartition("/")[0]

    @property
    def by_case(self) -> bool:
        """Whether the files lie in a folder a case."""
        return bool(VARIES.search(self.folder))

    @property
    def is_picture(self) -> bool:
        return self.name.lower().endswith(PICTURES)

    @property
    def is_mask(self) -> bool:
        return self.is_picture and of_masks(VARIES.sub("0", self.text))

    @property
    def glob(self) -> str:
        """A pattern of the names alone: what stands after the numbers where that is more than the ending."""
        parts = VARIES.split(self.name)
        if len(parts) == 1:
            return self.name
        tail = parts[-1]
        return f"*{tail}" if re.search(r"[A-Za-z]", tail.split(".")[0]) else VARIES.sub("*", self.name)


def patterns(text: str) -> list[Pattern]:
    """The patterns that a preview of a folder lists."""
    block = re.search(r"^patterns:\n((?:  .*\n?)+)", text, re.MULTILINE)
    found = []
    for line in block.group(1).splitlines() if block else ():
        one = re.match(r"  (.+?)(?: x ([\d,]+))?$", line)
        if one and not one.group(1).startswith("..."):
            found.append(Pattern(one.group(1), int((one.group(2) or "1").replace(",", ""))))
    return found


def of_kind(listed: list[Pattern], ending: str, least: int = 4) -> dict[str, int]:
    """Files of one ending by the folder that holds all of them, if there are several."""
    counts: dict[str, int] = {}
    for one in listed:
        if one.name.lower().endswith(ending) and not one.name.lower().startswith(("readme", "license", "source")):
            counts[one.root] = counts.get(one.root, 0) + one.count
    return {root: count for root, count in counts.items() if count >= least}
