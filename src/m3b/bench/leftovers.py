"""Proof that nothing of a hidden case is left in the agent's copy."""

from __future__ import annotations

import os
import re
from pathlib import Path

from m3b.errors import DataError

from .datasets import DatasetSpec, RawCase
from .hidden import CarveOut

TEXT_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xml")


def verify_agent_copy(spec: DatasetSpec, carve_out: CarveOut, kept_cases: list[RawCase]) -> None:
    """Read the agent's copy with the trusted reader and look for any name of a hidden file.

    Raises:
        DataError: a hidden case is still there, another one has gone, or a hidden name is left somewhere.
    """
    case_names = {case.name for case in spec.read(carve_out.agent_folder).cases}
    remaining_hidden = sorted(case_names & {case.name for case in carve_out.cases})
    lost_names = sorted({case.name for case in kept_cases} - case_names)
    if remaining_hidden or lost_names:
        raise DataError(
            f"The agent's copy of {spec.name} is wrong: hidden cases left {remaining_hidden[:3]}, others lost {lost_names[:3]}."
        )
    leftover_places = find_leftovers(carve_out)
    if leftover_places:
        raise DataError(f"The agent's copy of {spec.name} still names hidden files: {', '.join(leftover_places[:5])}.")


def find_leftovers(carve_out: CarveOut) -> list[str]:
    """Places in the agent's copy where the name of a hidden file occurs: as a file, or inside a text.

    The slices of a volume are called alike for everybody; their folder counts instead.
    """
    names: set[str] = set()
    for case in carve_out.cases:
        names |= {str(Path(case.images[0]).parent)} if _has_numbered_slices(case) else {*case.images, case.mask} - {""}
    file_names = {Path(name).name.encode() for name in names}
    places = []
    for folder, _, files in os.walk(carve_out.agent_folder):
        for name in files:
            file = Path(folder, name)
            path = file.relative_to(carve_out.agent_folder).as_posix()
            if path in names or str(Path(path).parent) in names:
                places.append(path)
            elif name.lower().endswith(TEXT_SUFFIXES):
                words = set(re.split(rb'[",\n\r\t/\\]+', file.read_bytes()))
                places += [f"{word.decode()} in {path}" for word in sorted(words & file_names) if len(word) > 6]
    return places


def _has_numbered_slices(case: RawCase) -> bool:
    """Whether the images are numbered slices of a volume, called alike for everybody."""
    return len(case.images) > 1 and all(Path(path).stem.isdigit() for path in case.images)
