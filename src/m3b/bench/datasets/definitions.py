"""Data set specifications of M3Bench, the results of reading and generating one, and functions that write its files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.errors import DataError, UsageError
from m3b.resources import get_resources_folder

AcceptableRange = tuple[float, float | None]
CARD, OFFICIAL = "card", "official"
"""Layouts: as described in the data card (rearranged folders), and as unpacked from the publisher's archives."""


@dataclass(frozen=True, slots=True)
class PixelBox:
    """The box of a finding in pixels: `x1, y1` upper left, `x2, y2` lower right."""

    label: str
    x1: int
    y1: int
    x2: int
    y2: int


@dataclass(frozen=True, slots=True)
class RawCase:
    """One case of the raw data. Paths are relative to the folder of the data set, with forward slashes.

    Args:
        name: name, unique within the data set.
        images: one file, or the slices of one volume in order, or the views of one study.
        patient: cases with the same value must be in the same part of a split. If the data set does not record
            patients, this is the best substitute, and `DatasetSpec.patient_key` is empty.
        split: `train`, `validation` or `test` if the publisher defines a split, otherwise empty.
        labels: the true class (diagnosis), or the findings that occur (boxes).
        mask: the mask file, or empty.
        rescale: slope and intercept that convert stored values to HU, if the image file does not contain them.
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
    """A data set as read: its cases, its layout, and in words which data was excluded and why."""

    cases: tuple[RawCase, ...]
    layout: str
    exclusions: tuple[str, ...] = ()

    @property
    def patients(self) -> tuple[str, ...]:
        """All patients, each once, in order of appearance."""
        return tuple(dict.fromkeys(case.patient for case in self.cases))


@dataclass(frozen=True)
class GeneratorOptions:
    """Options of a generator."""

    folder: Path
    patients: int
    seed: int
    layout: str


@dataclass(frozen=True)
class GeneratedSet:
    """A generated data set.

    Args:
        cases: number of cases that the reader must find.
        patients: number of patients; 0 if the raw layout does not record them.
        ceiling: the metric on these cases of an ideal observer who sees the planted signal itself. The difference to 1
            is planted uncertainty (overlapping classes, wrong labels, outlines or words of another reader).
        planted_faults: the planted faults, in words.
    """

    cases: int
    patients: int
    ceiling: float
    planted_faults: tuple[str, ...]
    folder: Path = field(default=Path())


@dataclass(frozen=True)
class StandIn:
    """The stand-in of a data set. Reference values of the real data set do not apply to it.

    Args:
        patients: default number of patients.
        acceptable: range of the metric on held-out stand-in cases; the lower end is well above `baseline`.
        baseline: the image-blind baseline: chance, the mean atlas of the training masks, or the best constant report.
        ceiling: approximate value of `GeneratedSet.ceiling` at the default size.
        max_patients: maximum number of patients, if the number of real names is limited.
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
    """One of the fourteen data sets: facts from its data card, its generator and its trusted reader.

    Args:
        acceptable: range of `metric` on held-out cases of the real data set (proposed; the paper publishes none).
        patient_key: the field that names the patient in the raw data; empty if patients are not recorded.
        values: mask value -> structure, without the background.
        merged_class: the single class that is scored, if all findings count as one against the background; else empty.
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
        """Write the stand-in into `folder`, which must not exist or must be empty. The same seed gives the same files.

        Args:
            with_broken_image: also plant one image that does not open.

        Raises:
            UsageError: the folder is not empty, or the layout or the number of patients is not possible.
        """
        size = self.stand_in.patients if patients is None else patients
        if layout not in self.layouts:
            raise UsageError(f"{self.name} has no layout {layout!r}; choose {' or '.join(self.layouts)}.")
        if size < self.stand_in.min_patients or (self.stand_in.max_patients and size > self.stand_in.max_patients):
            bounds = f"at least {self.stand_in.min_patients}" + (
                f", at most {self.stand_in.max_patients}" if self.stand_in.max_patients else ""
            )
            raise UsageError(f"{size} patients cannot be generated for {self.name}: {bounds}.")
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
        """Read a copy of the data set, real or stand-in, in any of its layouts.

        Raises:
            DataError: the folder does not contain this data set; the message says what is missing and what was found.
        """
        if not folder.is_dir():
            raise DataError(
                f"There is no folder {folder} to read {self.name} from. Name the folder of the unpacked data set."
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
    """Return a specification with the published facts of `resources/datacards/<card>.json`."""
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


README = """# {name}: synthetic stand-in

Drawn by a program in the layout of {name}; no person is behind any image, row or word. Not for clinical use.
Licence of these synthetic files: CC0 1.0 (public domain). The real data set has its own terms: {url}
"""


def make_empty_folder(folder: Path) -> None:
    """Create `folder`.

    Raises:
        UsageError: it exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
    folder.mkdir(parents=True, exist_ok=True)


def finish_stand_in(
    spec: DatasetSpec, generated: GeneratedSet, folder: Path, *, with_broken_image: bool
) -> GeneratedSet:
    """Add the common parts of all stand-ins: a README with the licence, a stray file, and optionally a broken image."""
    planted_faults = [*generated.planted_faults, "a stray .DS_Store"]
    (folder / "README.md").write_text(README.format(name=spec.name, url=spec.url), encoding="utf-8")
    inner_folder = min((entry for entry in folder.iterdir() if entry.is_dir()), default=folder)
    (inner_folder / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    if with_broken_image:
        broken_image = folder / spec.read(folder).cases[-1].images[-1]
        broken_image.write_bytes(broken_image.read_bytes()[:64])
        planted_faults.append(f"an image that does not open: {broken_image.relative_to(folder).as_posix()}")
    return replace(generated, folder=folder, planted_faults=tuple(planted_faults))


def save_nifti(file: Path, array: NDArray[Any], spacing: Sequence[float] = (1, 1, 1), orientation: str = "RAS") -> None:
    """Write `array` (x, y, z in RAS order) as NIfTI file, stored in the given orientation.

    Args:
        spacing: mm along the three axes of `array`.
        orientation: three letters of the stored axes, e.g. `PIR`; the position of each voxel in space is the same.
    """
    import nibabel as nib
    from nibabel.orientations import axcodes2ornt, ornt_transform

    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = [-size * step / 2 for size, step in zip(array.shape, spacing, strict=True)]
    image = nib.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm")
    if orientation != "RAS":
        image = image.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(orientation)))
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(image, file)


def save_picture(file: Path, array: NDArray[np.uint8]) -> None:
    """Write an array `(H, W)` or `(H, W, channels)` as PNG or JPEG."""
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(array)
    if file.suffix.lower() in (".jpg", ".jpeg"):
        picture.save(file, quality=92)
    else:
        picture.save(file, compress_level=1)


def save_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]], *, quote_all: bool = False) -> None:
    """Write a CSV file with a header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(rows)


def save_json(file: Path, value: Any) -> None:
    """Write a JSON file, indented by one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_apple_double(file: Path) -> None:
    """Write the `._name` file that archives of macOS contain next to `name`."""
    (file.parent / f"._{file.name}").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
