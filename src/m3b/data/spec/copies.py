"""Images with the same content, byte for byte."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path


def exact_copies(root: Path, cases: Sequence[Sequence[str]]) -> list[str]:
    """A text a case that only its copies share; empty for cases without one.

    Only cases of one file each are compared: a container holds many. Files are read where another has the same size.
    """
    sizes: dict[int, list[int]] = defaultdict(list)
    once = {path: 0 for files in cases for path in files}
    for files in cases:
        for path in files:
            once[path] += 1
    for place, files in enumerate(cases):
        if len(files) == 1 and once[files[0]] == 1:
            sizes[(root / files[0]).stat().st_size].append(place)
    found = [""] * len(cases)
    for places in sizes.values():
        if len(places) > 1:
            for place in places:
                with (root / cases[place][0]).open("rb") as stream:
                    found[place] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
