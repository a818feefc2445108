"""What is asked of a data folder, and what a proposal to read it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from m3b.data.spec.model import IndexSpec, Task
from m3b.data.spec.proposals.language import telling

Stacks = Literal["volume", "slices", "open"]


@dataclass(frozen=True)
class Ask:
    """What a model is wanted for.

    Args:
        request: the user's words.
        classes: the classes that were chosen before; empty leaves them to the data.
        notes: what the data card and notes in the folder say; weaker than the request.
        boxes: whether the request asks for boxes; None leaves it open.
        beside: clauses that say what a model shall be given beside the image, as folded words (`proposals.covariates`).
        studies: whether the views of a study are to be answered together (`proposals.study_views`).
        label_column: the column that a person has named as that of the labels.
    """

    task: Task
    request: str
    classes: tuple[str, ...] = ()
    notes: str = ""
    boxes: bool | None = None
    label_column: str = ""
    beside: tuple[str, ...] = ()
    studies: bool = False

    @property
    def words(self) -> frozenset[str]:
        """The telling words of the request."""
        return telling(self.request)

    @property
    def stacks(self) -> Stacks:
        """What a folder of numbered slices is, as the request speaks of images: `volume`, `slices`, or open."""
        text = self.request.casefold()
        if re.search(r"\b(3-?d|three-dimensional|volumes?|volumetric)\b", text):
            return "volume"
        if re.search(r"\b(slices?|2-?d|x-?rays?|radiographs?|photographs?|frames?|stills?|tiles?|patches)\b", text):
            return "slices"
        return "volume" if re.search(r"\b(cts?|mrs?|mris?|tomography|pets?|cbct|scans?)\b", text) else "open"


@dataclass(frozen=True)
class Proposal:
    """One reading of a folder, with its evidence.

    Args:
        title: in a line: what the images are and where the targets come from.
        score: 0 to 1; how well facts and request bear it out.
        evidence: measured facts that speak for it.
        doubts: what speaks against it or is not known.
        unclear: what a person should decide before this reading is taken; empty where nothing is.
        all_named: whether the request names every class.
        settles: whether it tells what a better scored reading of the same images leaves open.
    """

    spec: IndexSpec
    title: str
    score: float
    evidence: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    unclear: str = ""
    all_named: bool = False
    settles: bool = False

    @property
    def place(self) -> tuple[bool, float]:
        """Its place among others, the least first."""
        return not self.settles, -self.score
