"""What M3Bench knows of a data set, and what reading or making one gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import DataError, UsageError
from m3b.resources import get_resources_folder

AcceptableRange = tuple[float, float | None]
CARD, OFFICIAL = "card", "official"
"""Layouts: as the data card promises (re-arranged folders), and as the publisher's archives unpack."""


@dataclass(frozen=True, slots=True)
class PixelBox:
    """A finding's box in pixels: `x1, y1` upper left, `x2, y2` lower right."""

    label: str
    x1: int
    y1: int
    x2: int
    y2: int


@dataclass(frozen=True, slots=True)
class RawCase:
    """One case as its raw layout names it. Paths are relative to the data set's folder, with forward slashes.

    Args:
        name: unique within the set.
        images: one file; or the slices of one volume in order; or the views of one study.
        patient: cases with the same value must stay on one side of a split. Where nobody recorded patients it is the
            best substitute, and `DatasetSpec.patient_key` is empty.
        split: `train`, `validation` or `test` where the publisher gives a split, else empty.
        labels: the true class (diagnosis), or the findings that occur (boxes).
        mask: the label file, or empty.
        rescale: slope and intercept that turn stored voxels into HU, where the image file does not know them.
    """

    name: str
    images: tuple[str, ...]
    patient: str
    split: str = ""
    labels: tuple[str, ...] = ()
    mask: str = ""
    boxes: tuple[PixelBox, ...] = ()
    findings: str = ""
    impression: str = ""
    rescale: tuple[float, float] | None = None


@dataclass(frozen=True)
class RawDataset:
    """A data set as read: its cases, which layout was found, and in words what was left out and why."""

    cases: tuple[RawCase, ...]
    layout: str
    exclusions: tuple[str, ...] = ()

    @property
    def patients(self) -> tuple[str, ...]:
        """Every patient once, in order of appearance."""
        return tuple(dict.fromkeys(case.patient for case in self.cases))


@dataclass(frozen=True)
class GeneratorOptions:
    """What a generator is asked for."""

    folder: Path
    patients: int
    seed: int
    layout: str


@dataclass(frozen=True)
class GeneratedSet:
    """What a generator wrote.

    Args:
        cases: how many the reader must find.
        patients: how many different patients they come from; 0 where the raw layout does not record them.
        ceiling: the metric on these cases of an observer who sees the planted signal itself; what is missing to 1 is
            planted doubt (overlapping classes, wrong labels, another hand's outlines or words).
        planted_faults: the planted faults, in words.
    """

    cases: int
    patients: int
    ceiling: float
    planted_faults: tuple[str, ...]
    folder: Path = field(default=Path())


@dataclass(frozen=True)
class StandIn:
    """The generated counterpart. Reference figures of the real set do not transfer to it.

    Args:
        patients: how many are made unless asked otherwise.
        acceptable: range of the metric on held-out stand-in cases; the lower end is well above `baseline`.
        baseline: what a model reaches that never looks at an image: chance, the mean atlas of the training masks, or the
            best constant report.
        ceiling: about what `GeneratedSet.ceiling` comes to at the default size.
        max_patients: the largest number of patients, where the real names are finite.
        minutes: training time on two processor cores after which a working pipeline is well inside the range.
    """

    patients: int
    acceptable: AcceptableRange
    baseline: float
    ceiling: float
    min_patients: int = 6
    max_patients: int | None = None
    minutes: float = 1.0


@dataclass(frozen=True)
class DatasetSpec:
    """One of the fourteen: its facts from the data card, its generator and its trusted reader.

    Args:
        acceptable: range of `metric` on held-out cases of the real set (proposed; the paper publishes none).
        patient_key: what names the patient in the raw data; empty where nobody recorded it.
        values: mask value -> structure, without the background.
        merged_class: the one class that the score counts, where it is any finding against background; else empty.
    """

    name: str
    task: str
    metric: str
    dimension: int
    acceptable: AcceptableRange
    patient_key: str
    classes: tuple[str, ...]
    values: Mapping[int, str]
    layouts: tuple[str, ...]
    url: str
    terms: str
    stand_in: StandIn
    generator: Callable[[GeneratorOptions], GeneratedSet]
    reader: Callable[[Path], RawDataset]
    merged_class: str = ""

    def make(
        self,
        folder: Path,
        *,
        patients: int | None = None,
        seed: int = 0,
        layout: str = CARD,
        with_broken_image: bool = False,
    ) -> GeneratedSet:
        """Write the stand-in into `folder`, which must not exist or be empty. The same seed gives the same files.

        Args:
            with_broken_image: also plant one image that does not open.

        Raises:
            UsageError: the folder is not empty, or there is no such layout or number of patients.
        """
        from m3b.bench.datasets.stand_in_files import finish_stand_in, make_empty_folder

        size = self.stand_in.patients if patients is None else patients
        if layout not in self.layouts:
            raise UsageError(f"{self.name} has no layout {layout!r}; choose {' or '.join(self.layouts)}.")
        if size < self.stand_in.min_patients or (self.stand_in.max_patients and size > self.stand_in.max_patients):
            bounds = f"at least {self.stand_in.min_patients}" + (
                f", at most {self.stand_in.max_patients}" if self.stand_in.max_patients else ""
            )
            raise UsageError(f"{size} patients cannot be made for {self.name}: {bounds}.")
        if seed < 0:
            raise UsageError(f"The seed (--seed) must not be negative; it is {seed}.")
        make_empty_folder(folder)
        return finish_stand_in(
            self,
            self.generator(GeneratorOptions(folder, size, seed, layout)),
            folder,
            with_broken_image=with_broken_image,
        )

    def read(self, folder: Path) -> RawDataset:
        """The cases of a copy of the data set, real or made, in whichever layout it lies there.

        Raises:
            DataError: the folder does not hold this set; the message says what is missing and what was found.
        """
        if not folder.is_dir():
            raise DataError(
                f"There is no folder {folder} to read {self.name} from. Name the unpacked data set's folder."
            )
        return self.reader(folder)


def make_spec(
    card: str,
    *,
    stand_in: StandIn,
    generator: Callable[[GeneratorOptions], GeneratedSet],
    reader: Callable[[Path], RawDataset],
    values: Mapping[int, str] | None = None,
    layouts: tuple[str, ...] = (CARD,),
    merged_class: str = "",
) -> DatasetSpec:
    """A spec whose published facts come from `resources/datacards/<card>.json`, so that they are written once."""
    raw: dict[str, Any] = json.loads(
        (get_resources_folder() / "datacards" / f"{card}.json").read_text(encoding="utf-8")
    )
    low, high = raw["acceptable"]
    return DatasetSpec(
        name=raw["name"],
        task=raw["task"],
        metric=raw["metric"],
        dimension=raw["dimension"],
        acceptable=(float(low), None if high is None else float(high)),
        patient_key=raw["patient_key"] or "",
        classes=tuple(raw["classes"]),
        values=dict(values or {}),
        layouts=layouts,
        url=raw["url"],
        terms=raw["terms"],
        stand_in=stand_in,
        generator=generator,
        reader=reader,
        merged_class=merged_class,
    )
