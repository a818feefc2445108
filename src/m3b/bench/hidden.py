"""The carve-out: hidden test cases are taken away, by patient, before an agent sees the data.

`carve` turns a copy of a data set into two: `agent/`, in the same layout without anything of the hidden patients (files,
table rows, JSON records), and `hidden/` with their files alone and a manifest in m3b's own index format.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from m3b.errors import DataError

from .datasets import Box, Case, DatasetSpec
from .identity import IDENTITIES, Identity
from .subset import Removal, write_subset

AGENT, HIDDEN, MANIFEST = "agent", "hidden", "hidden.json"
SHARE = 0.2
LEAST = 2


@dataclass(frozen=True)
class Hidden:
    """A carve-out on disk.

    Args:
        folder: holds `agent/`, `hidden/` and the manifest.
        cases: the hidden ones, as the trusted reader reads them; paths count from `hidden/`.
        kept: how many cases the agent's copy holds.
        withheld: files that were left out because they could hold anything, archives for instance.
        stand_in: whether the data was drawn by a program, so that the stand-in's range holds.
    """

    folder: Path
    dataset: str
    cases: tuple[Case, ...]
    kept: int
    withheld: tuple[str, ...]
    stand_in: bool
    seed: int

    @property
    def agent(self) -> Path:
        return self.folder / AGENT

    @property
    def data(self) -> Path:
        return self.folder / HIDDEN

    def save(self) -> None:
        """Write the manifest; the last step, so that its presence says that the carve-out is whole."""
        from m3b.run.folder import replace_text

        raw = {**asdict(self), "folder": "."}
        replace_text(self.folder / MANIFEST, json.dumps(raw, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, folder: Path) -> Hidden:
        """A carve-out that was made before.

        Raises:
            DataError: there is none, or its manifest is broken.
        """
        file = folder / MANIFEST
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            cases = tuple(_case(one) for one in raw.pop("cases"))
            return cls(**{**raw, "folder": folder, "cases": cases, "withheld": tuple(raw["withheld"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is no manifest of hidden cases: {error}. Carve the data out again.") from error


def _case(raw: dict[str, Any]) -> Case:
    raw = {**raw, "images": tuple(raw["images"]), "labels": tuple(raw["labels"])}
    raw["boxes"] = tuple(Box(**box) for box in raw["boxes"])
    raw["rescale"] = tuple(raw["rescale"]) if raw["rescale"] else None
    return Case(**raw)


def choose_patients(cases: Iterable[Case], share: float, seed: int) -> set[str]:
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
    while len(chosen) < LEAST and len(rest) > LEAST:
        chosen.add(rest.pop())
    if len(chosen) < LEAST or len(rest) < LEAST:
        raise DataError(f"{len(placed)} patients are too few to hide some of them; at least {2 * LEAST} are needed.")
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
    from .leftovers import verify

    verify(spec, found, [case for case in reading.cases if case.patient not in patients])
    found.save()
    folder.parent.mkdir(parents=True, exist_ok=True)
    part.rename(folder)
    return replace(found, folder=folder)


def place(source: Path, target: Path, link: Callable[[Path, Path], None] = os.link) -> None:
    """`source` at `target`: linked, or copied where that is refused."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        link(source, target)
    except OSError:
        shutil.copy2(source, target)
