"""Every image is opened once: those that cannot be, copies of the same pixels, and copies that contradict each other."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from m3b.data.reading import read_image
from m3b.data.records import Record
from m3b.errors import DataError

OPEN_AT_MOST = 30_000
OPEN_S = 300.0
THREADS = 4
UNREADABLE = "the image does not open"
COPY = "an exact copy of another image of the index"
TORN = "the same pixels under different labels"


class NothingOpens(DataError):
    """No image of any case opens: no other reading can mend that."""


@dataclass(frozen=True)
class Opened:
    """What came of opening the images of cases.

    Args:
        reasons: position -> why the case cannot be used.
        pixels: of each case a text that its copies share; empty where the image was not opened.
        unopened: cases for which there was no time.
    """

    reasons: dict[int, str]
    pixels: list[str]
    unopened: int


def open_all(
    root: Path, references: Sequence[Sequence[str]], records: Sequence[Record], tested: Sequence[bool]
) -> Opened:
    """Open every case.

    Args:
        references: of each case's images, below `root`.
        records: what is known of the cases; copies contradict each other under different labels alone.
        tested: whether a case is in the data set's own test part, which stays as its owners made it: of copies, those
            in it stay.
    """
    end = time.monotonic() + OPEN_S
    if len(references) > OPEN_AT_MOST:
        return Opened({}, [""] * len(references), len(references))
    with ThreadPoolExecutor(THREADS) as pool:
        looked = list(pool.map(lambda some: _look(root, some, end), references))
    reasons = {place: UNREADABLE for place, (_, fault) in enumerate(looked) if fault}
    same: dict[str, list[int]] = defaultdict(list)
    for place, (pixels, _) in enumerate(looked):
        if pixels:
            same[pixels].append(place)
    for places in same.values():
        if len({tuple(sorted(records[place].labels)) for place in places}) > 1:
            reasons |= dict.fromkeys(places, TORN)
            continue
        kept = [place for place in places if tested[place]] or places[:1]
        reasons |= {place: COPY for place in places if place not in kept}
    unopened = sum(not pixels and not fault for pixels, fault in looked)
    return Opened(reasons, [pixels for pixels, _ in looked], unopened)


def _look(root: Path, references: Sequence[str], end: float) -> tuple[str, str]:
    """(a text that copies share, what is wrong); both empty where there was no time."""
    if time.monotonic() >= end:
        return "", ""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for reference in references:
            array = read_image(reference, str(root)).array
            digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    except DataError as error:
        return "", str(error)
    return digest.hexdigest(), ""
