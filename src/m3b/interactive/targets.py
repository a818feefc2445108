"""Target sets: images of an index with a known target, for simulated users and for measuring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from m3b.data.index import Index, Record, read_index
from m3b.data.links import roots_of
from m3b.errors import DataError, UsageError
from m3b.interactive.segmenter import ByteImage, Mask
from m3b.isolation.reader import Reader
from m3b.isolation.reader.inprocess import open_reader
from m3b.models.pixel_jobs import MIN_TARGET_PIXELS, TARGET_PLANES_JOB, TargetPlanesRequest
from m3b.tasks import list_families

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Target:
    """One class in one picture, or in one slice of a volume.

    Args:
        case: the image's path in the index.
        patient: the patient of the index; the case if there is none.
        image: (H, W, 3) uint8.
        truth: (H, W) bool, not empty.
        ignored: (H, W) bool: pixels that nobody labelled, where `truth` is False; None if there are none.
    """

    case: str
    patient: str
    name: str
    image: ByteImage
    truth: Mask
    slice_index: int | None = None
    ignored: Mask | None = None

    def clear_ignored(self, mask: Mask) -> Mask:
        """Return a mask without its ignored pixels, which are neither right nor wrong."""
        return mask if self.ignored is None else mask & ~self.ignored


@dataclass
class TargetSet:
    """The targets of one split, opened one after the other.

    Args:
        base: the folder to which the index's paths are relative.
        exclusions: filled while the targets are read: why cases gave no target, with counts.
        skip: cases (paths in the index) that are not opened.
    """

    index: Index
    base: Path
    split: Split
    skip: frozenset[str] = frozenset()
    exclusions: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: str | Path, split: Split) -> TargetSet:
        """Return the targets of a working folder or of a run.

        Raises:
            UsageError: there is no index of masks.
        """
        path = Path(folder).expanduser().absolute()
        work_folder = next(
            (candidate for candidate in (path / "work", path) if (candidate / "Datapath" / "train.json").is_file()),
            None,
        )
        if work_folder is None:
            raise UsageError(
                f"{path} holds no index (Datapath/train.json): give the folder of a run, or its work/ folder."
            )
        tasks = [task_family.name for task_family in list_families() if "masks" in task_family.required_targets]
        for task in tasks:
            try:
                index = read_index(work_folder, task)
            except DataError as error:
                problem = error
                continue
            if index.masked:
                return cls(index, work_folder, split)
            problem = DataError("its targets are not masks")
        raise UsageError(f"{work_folder} holds no index of masks: {problem}")

    @property
    def records(self) -> tuple[Record, ...]:
        return self.index.train if self.split == "train" else self.index.test

    def __iter__(self) -> Iterator[Target]:
        """Iterate over the targets; a reader opens images and masks."""
        with open_reader(root for root in roots_of(self.base) if root.is_dir()) as reader:
            for record in self.records:
                if record.key not in self.skip:
                    yield from self._iterate_targets(record, reader)

    def _iterate_targets(self, record: Record, reader: Reader) -> Iterator[Target]:
        if record.mask is None:
            self._exclude("no mask")
            return
        values = {name: self.index.values[name] for name in self.index.classes}
        try:
            target_planes = reader.run_job(TARGET_PLANES_JOB, TargetPlanesRequest(record, values, self.base))
        except DataError:
            self._exclude("cannot be read")
            return
        if target_planes.error:
            self._exclude(target_planes.error)
        for name, size in target_planes.sizes.items():
            if size < MIN_TARGET_PIXELS:
                self._exclude(f"{name}: empty or below {MIN_TARGET_PIXELS} pixels")
        for plane in target_planes.planes:
            truth = _to_array(plane.mask, target_planes.shape) > 0
            if int(truth.sum()) >= MIN_TARGET_PIXELS and 0 <= plane.picture_index < len(target_planes.pictures):
                picture = _to_array(target_planes.pictures[plane.picture_index], (*target_planes.shape, 3))
                ignored = target_planes.ignored[plane.picture_index :][:1]
                yield Target(
                    record.key,
                    record.patient or record.key,
                    plane.name,
                    picture,
                    truth,
                    plane.slice_index,
                    _to_array(ignored[0], target_planes.shape) > 0 if ignored else None,
                )

    def _exclude(self, reason: str) -> None:
        self.exclusions[reason] = self.exclusions.get(reason, 0) + 1


def _to_array(content: bytes, shape: tuple[int, ...]) -> ByteImage:
    if len(content) != math.prod(shape):
        raise DataError("The reader returned a picture whose size differs from the stated one. Try again.")
    return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def compute_overlap(mask: Mask, truth: Mask) -> tuple[float, float]:
    """Return Dice and IoU of a mask and a truth that is not empty."""
    intersection, union = float((mask & truth).sum()), float((mask | truth).sum())
    return 2 * intersection / (intersection + union), intersection / union


def take_targets(targets: Iterable[Target], max_count: int | None) -> list[Target]:
    """Return the first `max_count` targets; all if None."""
    selected: list[Target] = []
    for target in targets:
        if max_count is not None and len(selected) >= max_count:
            break
        selected.append(target)
    return selected


def list_class_names(targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the classes that occur."""
    return tuple(dict.fromkeys(target.name for target in targets))
