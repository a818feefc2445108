"""What is another thing in a mirror: a class that says on which side of the body it is, an image that has a left and a right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_SIDES = """left right l r lt rt lh rh od os sinister sinistra sinistro dexter destra destro links linke linker linkes rechts
rechte rechter rechtes gauche droit droite izquierda izquierdo derecha derecho esquerda esquerdo direita direito lewy prawy"""
SIDES = frozenset(_SIDES.split())


def tells_side(names: Iterable[str]) -> bool:
    """Whether any name holds a word for left or right, whole (`left_kidney`, `KidneyL`, `hippocampus-r`; not `L1`)."""
    words = {
        word.lower() for name in names for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+\d*|[A-Z]+\d*(?![a-z])", str(name))
    }
    return bool(words & SIDES)


def harmless(flips: Sequence[str], names: Iterable[str]) -> list[str]:
    """The axes that may be mirrored: none where a class tells a side."""
    return [] if tells_side(names) else list(flips)


ABOUT = Path("Datapath/about.json")
"""What m3b writes beside the index: the request, and modality and anatomy as the data card names them."""
ORIENTED = re.compile(
    r"x-?rays?\b|radiogra|roentgen|mammogra|tomogra|ultraso|sonogra|echocardio|fluorosc|\b(cts?|cbct|mrs?|mris?|flair|pets?|oct|cxr|dxa)\b",
    re.IGNORECASE,
)
"""Modalities whose pictures have an up and a left, however their files store them."""
FREE = re.compile(
    r"derm|\bskin|melanom|\bmoles?\b|\bwounds?\b|fundus|retina|histo|cyto|microscop|\bsmears?\b|\bcells?\b|nucle[iu]|\bstain"
    r"|endoscop|colonoscop|gastroscop|cystoscop|\bpolyps?\b",
    re.IGNORECASE,
)
"""What is photographed from anywhere: in a mirror and upside down it is as good."""


def turns(dims: int, channels: int, about: Path = ABOUT) -> bool:
    """Whether an image may be mirrored along both axes: by what request and data card say of it. A film that is stored in
    colour stays a film, and grey microscopy stays microscopy; where nothing is said, colour decides."""
    said = _said(about)
    if dims != 2 or ORIENTED.search(said):
        return False
    return channels >= 3 or FREE.search(said) is not None


def coloured(channels: int, about: Path = ABOUT) -> bool:
    """Whether an image is a colour image: a radiograph stored as RGB is greyscale."""
    return channels >= 3 and not ORIENTED.search(_said(about))


def _said(about: Path) -> str:
    try:
        return " ".join(str(text) for text in json.loads(about.read_text(encoding="utf-8")).values())
    except (OSError, ValueError, AttributeError):
        return ""
