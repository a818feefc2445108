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
    case_names = {case.name for case in spec.read(hidden.agent).cases}
    remaining_hidden = sorted(case_names & {case.name for case in hidden.cases})
    lost_names = sorted({case.name for case in kept} - case_names)
    if remaining_hidden or lost_names:
        raise DataError(
            f"The agent's copy of {spec.name} is wrong: hidden cases left {remaining_hidden[:3]}, others lost {lost_names[:3]}."
        )
    leftover_places = leftovers(hidden)
    if leftover_places:
        raise DataError(f"The agent's copy of {spec.name} still names hidden files: {', '.join(leftover_places[:5])}.")


def leftovers(hidden: Hidden) -> list[str]:
    """Places in the agent's copy where the name of a hidden file occurs: as a file, or inside a text.

    The slices of a volume are called alike for everybody; their folder counts instead.
    """
    names: set[str] = set()
    for case in hidden.cases:
        names |= {str(Path(case.images[0]).parent)} if _counted(case) else {*case.images, case.mask} - {""}
    file_names = {Path(name).name.encode() for name in names}
    places = []
    for folder, _, files in os.walk(hidden.agent):
        for name in files:
            file = Path(folder, name)
            path = file.relative_to(hidden.agent).as_posix()
            if path in names or str(Path(path).parent) in names:
                places.append(path)
            elif name.lower().endswith(TEXTS):
                words = set(re.split(rb'[",\n\r\t/\\]+', file.read_bytes()))
                places += [f"{word.decode()} in {path}" for word in sorted(words & file_names) if len(word) > 6]
    return places


def _counted(case: RawCase) -> bool:
    """Whether the images are numbered slices of a volume, called alike for everybody."""
    return len(case.images) > 1 and all(Path(path).stem.isdigit() for path in case.images)
