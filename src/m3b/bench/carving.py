"""The carve-out: hidden test cases are taken away, by patient, before an agent sees the data.

`carve` turns a copy of a data set into two: `agent/`, in the same layout without anything of the hidden patients (files,
table rows, JSON records), and `hidden/` with their files alone and a manifest in m3b's own index format.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from m3b.errors import DataError

from .datasets import DatasetSpec, RawCase
from .hidden import AGENT, HIDDEN, MANIFEST, Hidden
from .identity import IDENTITIES, Identity
from .leftovers import verify
from .placing import place
from .subset import Removal, write_subset

SHARE = 0.2
MIN_PATIENTS = 2


def choose_patients(cases: Iterable[RawCase], share: float, seed: int) -> set[str]:
    """About `share` of the patients of every class and of every part of a given split, at least two in all.

    Raises:
        DataError: fewer than two patients would be left on one side.
    """
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    placed: set[str] = set()
    for case in cases:
        if case.patient not in placed:
            placed.add(case.patient)
            label = case.labels[0] if len(case.labels) == 1 else ""
            strata[case.split, label].append(case.patient)
    draw = random.Random(seed)
    chosen: set[str] = set()
    rest: list[str] = []
    for _, patients in sorted(strata.items()):
        order = sorted(patients)
        draw.shuffle(order)
        take = min(len(order) - 1, max(1 if len(order) >= 3 else 0, round(share * len(order))))
        chosen.update(order[: max(take, 0)])
        rest += order[max(take, 0) :]
    draw.shuffle(rest)
    while len(chosen) < MIN_PATIENTS and len(rest) > MIN_PATIENTS:
        chosen.add(rest.pop())
    if len(chosen) < MIN_PATIENTS or len(rest) < MIN_PATIENTS:
        raise DataError(
            f"{len(placed)} patients are too few to hide some of them; at least {2 * MIN_PATIENTS} are needed."
        )
    return chosen


def carve(
    spec: DatasetSpec, source: Path, folder: Path, *, share: float = SHARE, seed: int = 0, stand_in: bool = False
) -> Hidden:
    """Make the two copies of `source` below `folder`, and check the agent's with the trusted reader.

    Files are hard-linked where the file system allows it, else copied; tables are written anew without the rows.

    Raises:
        DataError: the set cannot be read, or something of a hidden patient would remain.
    """
    if (folder / MANIFEST).is_file():
        return Hidden.load(folder)
    reading = spec.read(source)
    patients = choose_patients(reading.cases, share, seed)
    cases = tuple(case for case in reading.cases if case.patient in patients)
    removal = Removal.of(cases, patients, IDENTITIES.get(spec.name, Identity()))
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    withheld = write_subset(source, part / AGENT, removal, keep={p for c in reading.cases for p in (*c.images, c.mask)})
    for path in sorted({path for case in cases for path in (*case.images, case.mask) if path}):
        place(source / path, part / HIDDEN / path)
    kept = len(reading.cases) - len(cases)
    found = Hidden(part, spec.name, cases, kept, tuple(withheld), stand_in, seed)
    verify(spec, found, [case for case in reading.cases if case.patient not in patients])
    found.save()
    folder.parent.mkdir(parents=True, exist_ok=True)
    part.rename(folder)
    return replace(found, folder=folder)
