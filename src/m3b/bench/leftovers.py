"""Proof that nothing of a hidden case is left in the agent's copy."""

from __future__ import annotations

import os
import re
from pathlib import Path

from m3b.errors import DataError

from .datasets import DatasetSpec, RawCase
from .hidden import Hidden

TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xml")


def verify(spec: DatasetSpec, hidden: Hidden, kept: list[RawCase]) -> None:
    """Read the agent's copy with the trusted reader and look for any name of a hidden file.

    Raises:
        DataError: a hidden case is still there, another one has gone, or a hidden name is left somewhere.
    """
    there = {case.name for case in spec.read(hidden.agent).cases}
    left = sorted(there & {case.name for case in hidden.cases})
    lost = sorted({case.name for case in kept} - there)
    if left or lost:
        raise DataError(
            f"The agent's copy of {spec.name} is wrong: hidden cases left {left[:3]}, others lost {lost[:3]}."
        )
    names = leftovers(hidden)
    if names:
        raise DataError(f"The agent's copy of {spec.name} still names hidden files: {', '.join(names[:5])}.")


def leftovers(hidden: Hidden) -> list[str]:
    """Places in the agent's copy where the name of a hidden file occurs: as a file, or inside a text.

    The slices of a volume are called alike for everybody; their folder counts instead.
    """
    names: set[str] = set()
    for case in hidden.cases:
        names |= {str(Path(case.images[0]).parent)} if _counted(case) else {*case.images, case.mask} - {""}
    short = {Path(name).name.encode() for name in names}
    found = []
    for folder, _, files in os.walk(hidden.agent):
        for name in files:
            file = Path(folder, name)
            path = file.relative_to(hidden.agent).as_posix()
            if path in names or str(Path(path).parent) in names:
                found.append(path)
            elif name.lower().endswith(TEXTS):
                words = set(re.split(rb'[",\n\r\t/\\]+', file.read_bytes()))
                found += [f"{word.decode()} in {path}" for word in sorted(words & short) if len(word) > 6]
    return found


def _counted(case: RawCase) -> bool:
    """Whether the images are numbered slices of a volume, called alike for everybody."""
    return len(case.images) > 1 and all(Path(path).stem.isdigit() for path in case.images)
