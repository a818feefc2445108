"""Sizes of the originals of reduced images, as notes state them."""

from __future__ import annotations

import re

from m3b.dataset.annotations.box_tables import OriginalSize

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[;。；！？\n]")
_SIZE = re.compile(
    r"(?<![\d.,])(\d{2,5})\s*(?:px|pixels?|像素)?\s*(?:[x×*✕]|by|mal|par|por|乘)\s*(\d{2,5})(?!\d|[.,]\d)", re.I
)
_FACTOR = re.compile(
    r"\b(?:fa[ck]tor|facteur)\s*(?:of|von|um|de|:|=)?\s*(\d+(?:[.,]\d+)?)\b"
    r"|\b(\d+(?:[.,]\d+)?)\s*[-‑]?\s*(?:fold|fach|times|fois|veces|[x×])\b"
    r"|\b1\s*[:/]\s*(\d+)\b|(\d+(?:[.,]\d+)?)\s*倍",
    re.I,
)
_REDUCES = re.compile(
    r"reduc|reduz|réduit|shr[iau]nk|resiz|rescal|scaled|down|smaller|original|verklein|skalier|redimension|taille|tamaño|缩|原",
    re.I,
)
"""Words of sentences that say that images were reduced."""


def find_original_sizes(notes: str) -> tuple[OriginalSize, ...]:
    """Return the sizes that notes name, and the factors of sentences that say that images were reduced."""
    sizes = [OriginalSize(int(width), int(height)) for width, height in _SIZE.findall(notes)]
    factors = [
        OriginalSize(factor=float(next(filter(None, match.groups())).replace(",", ".")))
        for sentence in _SENTENCE_END.split(notes)
        if _REDUCES.search(sentence)
        for match in _FACTOR.finditer(_SIZE.sub(" ", sentence))
    ]
    return tuple(dict.fromkeys((*sizes, *factors)))
