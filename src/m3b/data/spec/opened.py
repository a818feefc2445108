"""Every image is opened once: those that cannot be, copies of the same pixels, and copies that contradict each other."""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.reading import read_image
from m3b.data.records import Record, paths_of
from m3b.data.spec.series import series_of, thumbnail_of
from m3b.errors import DataError
from m3b.isolation.untrusted import should_open_one_by_one

OPEN_AT_MOST = 30_000
OPEN_S = 300.0
THREADS = 4
UNREADABLE = "the image does not open"
DENIED = "permission to read the file is denied"
APART = "its channels cannot be brought to one grid, or one of them is no single image"
COPY = "an exact copy of another image of the index"
TORN = "the same pixels under different labels"


class TooFewCases(DataError):
    """The folder holds too few files for training and testing: no other reading can fix that."""


class NothingOpens(DataError):
    """No image of any case opens: no other reading can fix that."""


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
    series: list[str] = field(default_factory=list)
    """Of each case a text that neighbours of one series share: pictures numbered one after the other that look the same."""


def open_all(
    root: Path,
    references: Sequence[Sequence[str] | Mapping[str, str]],
    records: Sequence[Record],
    tested: Sequence[bool],
) -> Opened:
    """Open every case.

    Args:
        references: of each case's images, below `root`; by name where they are the channels of one.
        records: what is known of the cases; copies contradict each other under different labels alone.
        tested: whether a case is in the data set's own test part, which stays as its owners made it: of copies, those
            in it stay.
    """
    end = time.monotonic() + OPEN_S
    if len(references) > OPEN_AT_MOST:
        return Opened({}, [""] * len(references), len(references))
    with ThreadPoolExecutor(1 if should_open_one_by_one() else THREADS) as pool:
        looked = list(pool.map(lambda some: _look(root, some, end), references))
    reasons = {place: fault for place, (_, fault, _) in enumerate(looked) if fault}
    same: dict[str, list[int]] = defaultdict(list)
    for place, (pixels, _, _) in enumerate(looked):
        if pixels:
            same[pixels].append(place)
    for places in same.values():
        if len({tuple(sorted(records[place].labels)) for place in places}) > 1:
            reasons |= dict.fromkeys(places, TORN)
            continue
        kept = [place for place in places if tested[place]] or places[:1]
        reasons |= {place: COPY for place in places if place not in kept}
    unopened = sum(not pixels and not fault for pixels, fault, _ in looked)
    thumbnails = [thumbnail for _, _, thumbnail in looked]
    series = series_of([paths_of(some)[0].partition("#frames=")[0] for some in references], thumbnails)
    return Opened(reasons, [pixels for pixels, _, _ in looked], unopened, series)


def _is_denied(root: Path, references: Sequence[str] | Mapping[str, str]) -> bool:
    """Return whether a file of a case is there and may not be read."""
    files = [root / path.partition("#")[0] for path in paths_of(references)]
    return any(file.exists() and not os.access(file, os.R_OK) for file in files)


def _look(root: Path, references: Sequence[str] | Mapping[str, str], end: float) -> tuple[str, str, Any]:
    """(a text that copies share, why it cannot be used, a thumbnail of a single picture); empty where there was no time."""
    if time.monotonic() >= end:
        return "", "", None
    thumbnail = None
    digest = hashlib.blake2b(digest_size=16)
    named = isinstance(references, Mapping)
    try:
        for reference in references.values() if isinstance(references, Mapping) else references:
            array = read_image(reference, str(root)).array
            digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
            thumbnail = thumbnail_of(array) if len(references) == 1 and array.ndim == 3 else None
    except DataError:
        return "", DENIED if _is_denied(root, references) else UNREADABLE, None
    if named:
        try:
            read_image(references, str(root))
        except DataError:
            return "", APART, None
    return digest.hexdigest(), "", thumbnail
