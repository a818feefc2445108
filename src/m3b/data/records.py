"""One case of an index: its image, what is known of it, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

Covariate = float | str | None
Mask = str | tuple[str, ...] | Mapping[str, str]
UNKNOWN_PATIENT = "unknown-"
"""What the `patient` of a case begins with whose person nobody knows; what follows keeps copies of one picture together."""
Reference = str | Sequence[str] | Mapping[str, str]
"""What names an image: a file, folder or item of an archive; slices or views; or channel name -> one of these files."""
NO_VALUES: Mapping[str, Any] = {}
"""What all records have in common that have no extra values, attributes or covariates; nobody writes to it."""


@lru_cache(maxsize=4096)
def share_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same tuple for equal names, such as the labels of many records: an index holds a million of them."""
    return names


@dataclass(frozen=True, slots=True)
class Channels(Mapping[str, str]):
    """Several images of one case as the channels of one, in the order in which a model gets them.

    All lie on the grid of the first; others are resampled to it when they are read.

    Args:
        pairs: (channel name, path), names different.
    """

    pairs: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        for own, path in self.pairs:
            if own == name:
                return path
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


Image = str | tuple[str, ...] | Channels


def plain(image: Reference) -> str | list[str] | dict[str, str]:
    """A reference as JSON values, which is what readers and predict.py take."""
    if isinstance(image, str):
        return image
    return dict(image) if isinstance(image, Mapping) else list(image)


def paths_of(image: Reference) -> tuple[str, ...]:
    """Every path of a reference."""
    if isinstance(image, str):
        return (image,)
    return tuple(image.values()) if isinstance(image, Mapping) else tuple(image)


def relocated(image: Image, place: Callable[[str], str]) -> Image:
    """The same image at the paths that `place` gives."""
    if isinstance(image, str):
        return place(image)
    if isinstance(image, Channels):
        return Channels(tuple((name, place(path)) for name, path in image.pairs))
    return tuple(place(path) for path in image)


def frozen(image: Reference) -> Image:
    """A reference that can be compared and hashed."""
    if isinstance(image, str):
        return image
    return Channels(tuple(image.items())) if isinstance(image, Mapping) else tuple(image)


@dataclass(frozen=True, slots=True)
class BoxLabel:
    """A marked box: lower corner, then upper, in the file's own coordinates.

    Args:
        box: `(x0, y0, x1, y1)` in pixels (x along columns, a box over pixels 2 to 4 is 2 to 5), or
            `(x0, y0, z0, x1, y1, z1)` in voxels along the file's axes.
    """

    label: str
    box: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The two parts of a report; either may be empty, not both."""

    findings: str
    impression: str

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.findings.strip(), self.impression.strip()) if part)


@dataclass(frozen=True, slots=True)
class Record:
    """One case.

    Args:
        image: one path (a file, a slice folder, a DICOM series, or `archive.npz#key[17]`); several: the slices of
            a volume in order, and for reports the views of one study; or `Channels`. Relative to the working directory.
        labels: the names that apply. Diagnosis: exactly one unless the task is multi-label, then any number.
            Reports: findings, if known. Otherwise empty.
        patient: a pseudonym that all cases of one person share; `unknown-<n>` where nobody knows the person.
        mask: a path (or slices) whose values are label ids, or one binary mask a class; None if there is none.
        boxes: what is marked; empty for a healthy image; None where the index has no boxes.
        report: the text, for reports.
        attributes: of what kind patient and acquisition are (`{"sex": "F"}`), to tell figures apart by; no model is shown it.
        covariates: what a model is given beside the image (`{"age": 61.0, "sex": "F", "crp": None}`): numbers, texts, None where
            it is not known; the same names in all records.
        views: whether several paths are views of one study, each an image of its own, where the task does not say so anyway.
        ignored: path of a mask that is not 0 in pixels that nobody labelled; only beside `mask`. No loss and no figure counts them.
        extra: what else a kind of records knows of a case, as JSON values by key.
    """

    image: Image
    labels: tuple[str, ...] = ()
    patient: str = ""
    mask: Mask | None = field(default=None, hash=False)
    boxes: tuple[BoxLabel, ...] | None = None
    report: Report | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: NO_VALUES, hash=False)
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_VALUES, hash=False)
    covariates: Mapping[str, Covariate] = field(default_factory=lambda: NO_VALUES, hash=False)
    views: bool = False
    ignored: str | None = field(default=None, hash=False)

    @property
    def images(self) -> tuple[str, ...]:
        """The image's paths as they stand in the index."""
        return paths_of(self.image)

    @property
    def reference(self) -> str | list[str] | dict[str, str]:
        """The image as readers take it, and as JSON."""
        return plain(self.image)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of its channels; empty where the image is not put together of several."""
        return tuple(self.image) if isinstance(self.image, Channels) else ()

    @property
    def masks(self) -> tuple[str, ...]:
        """The paths of the mask and of its ignored pixels as they stand in the index."""
        ignored = () if self.ignored is None else (self.ignored,)
        if self.mask is None:
            return ()
        if isinstance(self.mask, str):
            return (self.mask, *ignored)
        return (*(self.mask.values() if isinstance(self.mask, Mapping) else self.mask), *ignored)

    @property
    def files(self) -> tuple[str, ...]:
        """The image's files, without the part that picks an item of an archive."""
        return tuple(path.split("#", 1)[0] for path in self.images)

    @property
    def targets(self) -> tuple[str, ...]:
        """The files of `masks`, without the part that picks an item of an archive."""
        return tuple(path.split("#", 1)[0] for path in self.masks)

    @property
    def patient_known(self) -> bool:
        """Whether the index says whose case it is."""
        return not self.patient.startswith(UNKNOWN_PATIENT)

    @property
    def key(self) -> str:
        """What tells this case's image from every other's."""
        return "|".join(self.images)


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "an empty list" if not value else "a list", str: "a text", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def relocate_record(record: Record, relocate_path: Callable[[str], str]) -> Record:
    """Return the record with its image and masks at the paths that `relocate_path` gives."""
    mask = record.mask
    if isinstance(mask, str):
        mask = relocate_path(mask)
    elif mask is not None:
        mask = (
            {k: relocate_path(v) for k, v in mask.items()}
            if isinstance(mask, Mapping)
            else tuple(map(relocate_path, mask))
        )
    ignored = record.ignored and relocate_path(record.ignored)
    return replace(record, image=relocated(record.image, relocate_path), mask=mask, ignored=ignored)
