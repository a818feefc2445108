"""Whether a class says on which side of the body it is: such a class is another one in a mirror."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
