"""What external test sets ask of the reader process: masks with other numbers, and copies of what was learnt from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data.index import Index
from m3b.data.records import Channels, Record
from m3b.reader import Request

NUMBERING_S, COMPARING_S = 120.0, 600.0


@dataclass(frozen=True)
class ToRenumber:
    """Masks of records whose paths count from `base`, the numbers to change, and the folder for the new files."""

    records: list[Record]
    base: Path
    folder: Path
    numbers: list[tuple[int, int]]


@dataclass(frozen=True)
class ToCompare:
    """Images that were learnt from, and those of another set; both count from `base`. `seconds` for opening each."""

    training: list[Record]
    records: list[Record]
    base: Path
    seconds: float = 60.0


@dataclass(frozen=True)
class Overlap:
    """Keys of images that training had too, pixel for pixel; the number that are nearly the same; whether all were opened."""

    same: list[str]
    near: int
    whole: bool


RENUMBER: Request[ToRenumber, list[str]] = Request(
    "m3b.tasks.external_inside:renumber", ToRenumber, list[str], NUMBERING_S
)
COMPARE = Request("m3b.tasks.external_inside:compare", ToCompare, Overlap, COMPARING_S, parallel=True)


def renumber(asked: ToRenumber) -> list[str]:
    """Inside the reader: the new file of each record's mask, by its name in `folder`; empty where nothing is marked.

    Raises:
        DataError: a mask that cannot be read or written.
    """
    import numpy as np

    from m3b.data.reading import read_mask, write_mask

    made = []
    for at, record in enumerate(asked.records):
        if record.mask is None or isinstance(record.mask, Mapping):
            made.append("")
            continue
        path = record.mask if isinstance(record.mask, str) else list(record.mask)
        found = read_mask(path, str(asked.base)).array
        numbers = np.zeros(found.shape, np.uint16)
        for theirs, own in asked.numbers:
            numbers[found == theirs] = own
        like = path if isinstance(path, str) else path[0]
        made.append(Path(write_mask(numbers, like, asked.folder / f"{at:05d}", str(asked.base))).name)
    return made


def compare(asked: ToCompare) -> Overlap:
    """Inside the reader: which images of another set are copies of what was learnt from."""
    from m3b.data.altered import altered_pairs
    from m3b.data.audit_images import Looks, open_all
    from m3b.data.image_probe import near_pairs

    learnt, other = _images(asked.training), _images(asked.records)
    looks: Looks = {}
    for some in (learnt, other):
        looks |= open_all(some, asked.base, set(), time.monotonic() + asked.seconds, None)
    mine, theirs = ([one.key for one in some.train if one.key in looks] for some in (learnt, other))
    digests = {looks[key].digest for key in mine if not looks[key].error and not looks[key].flat}
    same = [key for key in theirs if looks[key].digest in digests and not looks[key].error]
    known = set(mine)
    pairs = [pair for pair in near_pairs(looks) if (pair[0] in known) != (pair[1] in known)]
    pairs += altered_pairs(looks, mine, theirs)
    near = {key for pair in pairs for key in pair if key not in known} - set(same)
    return Overlap(same, len(near), len(looks) == len(learnt.train) + len(other.train))


def _images(records: Sequence[Record]) -> Index:
    """The pictures alone: each view of a study by itself."""
    found: dict[str, Record] = {}
    for record in records:
        whole = isinstance(record.image, str | Channels)
        for image in [record.image] if whole else [record.image, *record.images]:
            one = Record(image)
            found.setdefault(one.key, one)
    return Index(tuple(found.values()), (), ("x",), "diagnosis")
