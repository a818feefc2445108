"""Images with a known target, out of an index: what simulated people prompt, and what is measured against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from m3b.data.index import Index, Record, read_index
from m3b.data.links import roots_of
from m3b.errors import DataError, WrongUse
from m3b.interactive.segmenter import Bytes, Mask
from m3b.models.pixels import MARK, MIN_PIXELS, ToMark
from m3b.reader import Reader
from m3b.reader.outside import reading

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Target:
    """One class in one picture, or in one slice of a volume.

    Args:
        case: the image's path in the index.
        patient: as the index has it; the case where it has none.
        image: (H, W, 3) uint8.
        truth: (H, W) bool, not empty.
    """

    case: str
    patient: str
    name: str
    image: Bytes
    truth: Mask
    slice_index: int | None = None


@dataclass
class Targets:
    """The targets of one split, opened one after the other.

    Args:
        base: the folder that the index's paths count from.
        left_out: filled while they are read: why cases gave no target, with counts.
        skip: cases (paths in the index) that are not opened.
    """

    index: Index
    base: Path
    split: Split
    skip: frozenset[str] = frozenset()
    left_out: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: str | Path, split: Split) -> Targets:
        """Those of a working folder or of a run.

        Raises:
            WrongUse: there is no index of masks.
        """
        path = Path(folder).expanduser().absolute()
        work_folder = next(
            (candidate for candidate in (path / "work", path) if (candidate / "Datapath" / "train.json").is_file()),
            None,
        )
        if work_folder is None:
            raise WrongUse(
                f"{path} holds no index (Datapath/train.json): give the folder of a run, or its work/ folder."
            )
        for task in ("segmentation", "detection"):
            try:
                index = read_index(work_folder, task)
            except DataError as error:
                problem = error
                continue
            if index.masked:
                return cls(index, work_folder, split)
            problem = DataError("its targets are not masks")
        raise WrongUse(f"{work_folder} holds no index of masks: {problem}")

    @property
    def records(self) -> tuple[Record, ...]:
        return self.index.train if self.split == "train" else self.index.test

    def __iter__(self) -> Iterator[Target]:
        """Images and masks are opened by a reader."""
        with reading(root for root in roots_of(self.base) if root.is_dir()) as reader:
            for record in self.records:
                if record.key not in self.skip:
                    yield from self._of(record, reader)

    def _of(self, record: Record, reader: Reader) -> Iterator[Target]:
        if record.mask is None:
            self._exclude("no mask")
            return
        values = {name: self.index.values[name] for name in self.index.classes}
        try:
            marked = reader.ask(MARK, ToMark(record, values, self.base))
        except DataError:
            self._exclude("cannot be read")
            return
        if marked.fault:
            self._exclude(marked.fault)
        for name, size in marked.sizes.items():
            if size < MIN_PIXELS:
                self._exclude(f"{name}: empty or below {MIN_PIXELS} pixels")
        for marked_target in marked.parts:
            truth = _array(marked_target.truth, marked.shape) > 0
            if int(truth.sum()) >= MIN_PIXELS and 0 <= marked_target.picture < len(marked.pictures):
                picture = _array(marked.pictures[marked_target.picture], (*marked.shape, 3))
                yield Target(
                    record.key,
                    record.patient or record.key,
                    marked_target.name,
                    picture,
                    truth,
                    marked_target.slice_index,
                )

    def _exclude(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def _array(content: bytes, shape: tuple[int, ...]) -> Bytes:
    if len(content) != math.prod(shape):
        raise DataError("The reader answered a picture of another size than it said. Try again.")
    return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def overlap(found: Mask, truth: Mask) -> tuple[float, float]:
    """Dice and IoU of a mask against a truth that is not empty."""
    intersection, union = float((found & truth).sum()), float((found | truth).sum())
    return 2 * intersection / (intersection + union), intersection / union


def spread_over(targets: Iterable[Target], most: int | None) -> list[Target]:
    """The first `most` targets; all where None."""
    selected: list[Target] = []
    for target in targets:
        if most is not None and len(selected) >= most:
            break
        selected.append(target)
    return selected


def names(targets: Sequence[Target]) -> tuple[str, ...]:
    """The classes that occur."""
    return tuple(dict.fromkeys(target.name for target in targets))
