"""Images with a known target, out of an index: what simulated people prompt, and what is measured against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from m3b.data.index import Index, Record, read_index
from m3b.data.reading import read_image, read_masks
from m3b.errors import DataError, WrongUse
from m3b.interactive.segmenter import Bytes, Mask
from m3b.models.overlays.planes import shown

Split = Literal["train", "test"]
MIN_PIXELS = 16
"""Smaller targets are left out: a click into one says it all, and their IoU is noise."""


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
    """

    index: Index
    base: Path
    split: Split
    left_out: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: str | Path, split: Split) -> Targets:
        """Those of a working folder or of a run.

        Raises:
            WrongUse: there is no index of masks.
        """
        place = Path(folder).expanduser().absolute()
        work = next((one for one in (place / "work", place) if (one / "Datapath" / "train.json").is_file()), None)
        if work is None:
            raise WrongUse(
                f"{place} holds no index (Datapath/train.json): give the folder of a run, or its work/ folder."
            )
        for task in ("segmentation", "detection"):
            try:
                index = read_index(work, task)
            except DataError as error:
                fault = error
                continue
            if index.masked:
                return cls(index, work, split)
            fault = DataError("its targets are not masks")
        raise WrongUse(f"{work} holds no index of masks: {fault}")

    @property
    def records(self) -> tuple[Record, ...]:
        return self.index.train if self.split == "train" else self.index.test

    def __iter__(self) -> Iterator[Target]:
        for record in self.records:
            yield from self._of(record)

    def _of(self, record: Record) -> Iterator[Target]:
        if record.mask is None:
            self._leave("no mask")
            return
        path = record.image if isinstance(record.image, str) else list(record.image)
        try:
            image = read_image(path, str(self.base))
            picture = np.ascontiguousarray(shown(image.array, image.modality))
            given: Any = record.mask if isinstance(record.mask, str | Mapping) else list(record.mask)
            masks = np.asarray(read_masks(given, self.index.values, str(self.base), picture.shape[:-1]))
        except DataError:
            self._leave("cannot be read")
            return
        if masks.shape[1:] != picture.shape[:-1]:
            self._leave("the mask is of another shape than the image")
            return
        for name, mask in zip(self.index.classes, masks, strict=True):
            found = _plane(picture, mask)
            if found is None:
                self._leave(f"{name}: empty or below {MIN_PIXELS} pixels")
                continue
            yield Target(record.key, record.patient or record.key, name, *found)

    def _leave(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def _plane(picture: Bytes, mask: Mask) -> tuple[Bytes, Mask, int | None] | None:
    """The picture and its mask; of a volume the slice where the target is largest."""
    index = None
    if mask.ndim == 3:
        index = int(mask.sum(axis=(0, 1)).argmax())
        picture, mask = np.ascontiguousarray(picture[:, :, index]), np.ascontiguousarray(mask[:, :, index])
    return (picture, mask, index) if mask.sum() >= MIN_PIXELS else None


def overlap(found: Mask, truth: Mask) -> tuple[float, float]:
    """Dice and IoU of a mask against a truth that is not empty."""
    both, either = float((found & truth).sum()), float((found | truth).sum())
    return 2 * both / (both + either), both / either


def spread_over(targets: Iterable[Target], most: int | None) -> list[Target]:
    """The first `most` targets; all where None."""
    kept: list[Target] = []
    for target in targets:
        if most is not None and len(kept) >= most:
            break
        kept.append(target)
    return kept


def names(targets: Sequence[Target]) -> tuple[str, ...]:
    """The classes that occur."""
    return tuple(dict.fromkeys(target.name for target in targets))
