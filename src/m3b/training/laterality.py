"""Laterality: classes for which a left-right flip would change the label, and images that have a left and a right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_SIDE_WORDS = """left right l r lt rt lh rh od os sinister sinistra sinistro dexter destra destro links linke linker linkes rechts
rechte rechter rechtes gauche droit droite izquierda izquierdo derecha derecho esquerda esquerdo direita direito lewy prawy"""
SIDE_WORDS = frozenset(_SIDE_WORDS.split())


def has_side_word(names: Iterable[str]) -> bool:
    """Return whether any name has a whole word for left or right (`left_kidney`, `KidneyL`, `hippocampus-r`; not `L1`)."""
    words = {
        word.lower() for name in names for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+\d*|[A-Z]+\d*(?![a-z])", str(name))
    }
    return bool(words & SIDE_WORDS)


def allowed_flips(flips: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the axes that may be mirrored: none if a class names a side."""
    return [] if has_side_word(names) else list(flips)


ABOUT_FILE = Path("Datapath/about.json")
"""File that m3b writes beside the index: the request, and modality and anatomy from the data card."""
ORIENTED_MODALITY = re.compile(
    r"x-?rays?\b|radiogra|roentgen|mammogra|tomogra|ultraso|sonogra|echocardio|fluorosc|\b(cts?|cbct|mrs?|mris?|flair|pets?|oct|cxr|dxa)\b",
    re.IGNORECASE,
)
"""Modalities whose images have an orientation."""
ORIENTATION_FREE = re.compile(
    r"derm|\bskin|melanom|\bmoles?\b|\bwounds?\b|fundus|retina|histo|cyto|microscop|\bsmears?\b|\bcells?\b|nucle[iu]|\bstain"
    r"|endoscop|colonoscop|gastroscop|cystoscop|\bpolyps?\b",
    re.IGNORECASE,
)
"""Subjects that are photographed from any direction, so that mirrored images are as plausible."""


def can_flip_both_axes(dims: int, channels: int, file: Path = ABOUT_FILE) -> bool:
    """Return whether an image may be mirrored along both axes, by request and data card. A radiograph stored in colour keeps its
    orientation, and grey microscopy has none; without a description, colour decides."""
    description = _read_description(file)
    if dims != 2 or ORIENTED_MODALITY.search(description):
        return False
    return channels >= 3 or ORIENTATION_FREE.search(description) is not None


def is_colour_image(channels: int, file: Path = ABOUT_FILE) -> bool:
    """Return whether an image is a colour image; a radiograph stored as RGB is greyscale."""
    return channels >= 3 and not ORIENTED_MODALITY.search(_read_description(file))


def _read_description(file: Path) -> str:
    try:
        return " ".join(str(text) for text in json.loads(file.read_text(encoding="utf-8")).values())
    except (OSError, ValueError, AttributeError):
        return ""
