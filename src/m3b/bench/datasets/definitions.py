"""What M3Bench knows of a data set, and what reading or making one gives."""

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


README = """# {name}: synthetic stand-in

Drawn by a program in the layout of {name}; no person is behind any image, row or word. Not for clinical use.
Licence of these synthetic files: CC0 1.0 (public domain). The real data set has its own terms: {url}
"""


def make_empty_folder(folder: Path) -> None:
    """Make `folder`.

    Raises:
        UsageError: it exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
    folder.mkdir(parents=True, exist_ok=True)


def finish_stand_in(
    spec: DatasetSpec, generated: GeneratedSet, folder: Path, *, with_broken_image: bool
) -> GeneratedSet:
    """What every stand-in gets: a note on its licence, a stray file, and on request an image that does not open."""
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
    """A `.nii.gz` whose voxels are `array` (x, y, z in RAS order), stored in another orientation if asked.

    Args:
        spacing: mm along the three axes of `array`.
        orientation: three letters of the stored axes, e.g. `PIR`; the place of each voxel in space stays the same.
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
    """A PNG or JPEG from `(H, W)` or `(H, W, channels)`."""
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(array)
    if file.suffix.lower() in (".jpg", ".jpeg"):
        picture.save(file, quality=92)
    else:
        picture.save(file, compress_level=1)


def save_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]], *, quote_all: bool = False) -> None:
    """A CSV file with a header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(rows)


def save_json(file: Path, value: Any) -> None:
    """A JSON file, indented by one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_apple_double(file: Path) -> None:
    """The `._name` file that macOS archives leave beside `name`."""
    (file.parent / f"._{file.name}").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
