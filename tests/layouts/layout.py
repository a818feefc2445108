"""A drawn layout: its cases, and where their files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layouts.axes import SETS, UNUSED, Axes
from layouts.carriers import SUFFIXES
from layouts.shapes import Shape
from layouts.terms import DOMAINS, FOLDERS, Domain
from layouts.truth import Truth

TRUNCATED_CASES = 3
COPIED_CASES, PREVIEWED_CASES, SCOUTED_CASES, OTHER_IMAGES = 8, 15, 10, 12
"""How many cases have copies, previews and localizers, and how many images of another kind lie beside them."""
ARCHIVES = {"zip": "images.zip", "tar_gz": "images.tar.gz"}


@dataclass(frozen=True)
class Case:
    """One case of a layout.

    Args:
        number: its place in the order of drawing.
        stem: name of its file (or folder) without suffix.
        key: what tables and lists call it.
        directory: of its image, relative to the base folder, without its case folder.
        side: train, val, test or None.
        is_labelled: whether the folder has its target.
        patient: None if the folder does not say.
        site, patient_number: the two parts of a patient that two columns name.
        counter: its number among the images of its patient.
        classes: positions of its classes.
        second_classes: what a second reader says.
    """

    number: int
    stem: str
    key: str
    directory: str
    side: str | None
    is_labelled: bool
    patient: str | None
    site: str
    patient_number: int
    counter: int
    size: tuple[int, ...]
    shapes: tuple[Shape, ...]
    classes: tuple[int, ...] = ()
    second_classes: tuple[int, ...] = ()
    value: float | None = None
    second_value: float | None = None
    event: bool | None = None
    report: str = ""

    def rng(self, seed: int) -> np.random.Generator:
        """Return the generator of its pixels."""
        return np.random.default_rng([seed, self.number])


@dataclass(frozen=True)
class Layout:
    """A drawn folder: axes, cases, request and truth.

    Args:
        classes: keys of terms; empty if the task has no named classes.
        class_names: how the folder calls them.
        base: the folder below the root that holds everything but notes.
        side_words: how the folder calls train, val and test.
        values: of each class, its number in masks.
        n_further: how many of the classes, the last ones, are marked and not asked for.
        requested_organ: what the request says the images show.
    """

    seed: int
    axes: Axes
    domain: Domain
    classes: tuple[str, ...]
    class_names: tuple[str, ...]
    quantity: str
    cases: tuple[Case, ...]
    base: str
    side_words: Mapping[str, str]
    values: tuple[int, ...]
    request: str
    truth: Truth
    n_further: int = 0
    requested_organ: str = ""

    @property
    def n_targets(self) -> int:
        """How many classes are asked for, the first ones."""
        return len(self.classes) - self.n_further

    @property
    def language(self) -> str:
        return self.axes.folder_language

    @property
    def language_of_names(self) -> str:
        """The language of names that stand for themselves, such as a folder of other images."""
        return self.language if self.axes.class_naming in ("local", "codes") else "en"

    def folder_word(self, key: str) -> str:
        """Return the folder's word for images, masks and the like."""
        return FOLDERS[key][self.language if self.axes.class_naming in ("local", UNUSED) else "en"]


def image_file(layout: Layout, case: Case) -> str:
    """Return the file of a case that names it (of series and slices the folder), relative to the base folder."""
    name = case.stem + SUFFIXES[layout.axes.carrier]
    if layout.axes.mask_place == "case_folder":
        inner = "series" if layout.axes.carrier in ("dicom_series", "slice_folder") else "image"
        name = f"{case.stem}/{inner}{SUFFIXES[layout.axes.carrier]}"
    return f"{case.directory}/{name}" if case.directory else name


def truncated_cases(layout: Layout) -> list[Case]:
    """Return the cases whose files are cut off."""
    return [case for case in layout.cases if case.is_labelled and case.side in (None, "train")][-TRUNCATED_CASES:]


def case_files(layout: Layout, case: Case) -> tuple[str, ...]:
    """Return the files or items of a case, relative to the root."""
    axes = layout.axes
    prefix = f"{layout.base}/" if layout.base else ""
    if axes.carrier in SETS:
        return (prefix + set_item(layout, case),)
    file = image_file(layout, case)
    if axes.carrier in ARCHIVES:
        return (f"{prefix}{ARCHIVES[axes.carrier]}#{file}",)
    if axes.carrier == "dicom_series":
        return tuple(f"{prefix}{file}/IM{position + 1:05d}" for position in range(case.size[0]))
    if axes.carrier == "slice_folder":
        return tuple(f"{prefix}{file}/{position:03d}.png" for position in range(case.size[0]))
    if axes.carrier == "nifti_pair":
        return (prefix + file, prefix + file.removesuffix(".hdr") + ".img")
    if axes.carrier == "mhd":
        return (prefix + file, prefix + file.removesuffix(".mhd") + ".raw")
    return (prefix + file,)


def set_item(layout: Layout, case: Case) -> str:
    """Return the item of a case in a file of all cases, relative to the base folder."""
    axes = layout.axes
    side = layout.side_words[case.side] if axes.split == "set_files" and case.side is not None else ""
    members = [member for member in layout.cases if axes.split != "set_files" or member.side == case.side]
    if axes.carrier == "webdataset":
        return f"{side or 'shard'}-000000.tar#{case.stem}.png"
    number = next(place for place, member in enumerate(members) if member.number == case.number)
    if axes.carrier == "parquet":
        return f"data/{side or 'train'}-00000-of-00001.parquet#{number}"
    if axes.carrier == "npy_set":
        return f"{side}_images.npy#{number}" if side else f"images.npy#{number}"
    suffix = {"npz_set": ".npz", "npz_volumes": ".npz", "mat_set": ".mat"}.get(axes.carrier, ".h5")
    return f"{side or 'dataset'}{suffix}#{number}"


def other_domain(layout: Layout) -> tuple[Domain, str]:
    """Return what the images of another kind show, and the folder that they lie in."""
    candidates = [domain for domain in DOMAINS.values() if domain.imaging["en"] != layout.domain.imaging["en"]]
    domain = candidates[layout.seed % len(candidates)]
    language = layout.language_of_names
    name = f"{domain.imaging[language]}_{domain.anatomy[language]}".replace(" ", "_").replace("'", "")
    return domain, name


def distractor_files(layout: Layout) -> dict[str, str]:
    """Return the images that are no cases, relative to the root, each with the reason."""
    distractor, cases = layout.axes.distractor, layout.cases
    has_images = layout.axes.solvability != "no_images"
    files: dict[str, str] = {}
    if distractor == "previews":
        word = layout.folder_word("previews")
        files = {f"{word}/{case.stem}.png": "preview" for case in cases[:PREVIEWED_CASES]}
    elif distractor == "other_modality":
        _, name = other_domain(layout)
        files = {f"{name}/extra{number:02d}.png": "another kind of image" for number in range(OTHER_IMAGES)}
    elif distractor == "copies" and has_images:
        prefix = f"{layout.base}/" if layout.base else ""
        copied = [file for case in cases[:COPIED_CASES] for file in case_files(layout, case)]
        files = {f"backup/{file.removeprefix(prefix)}": "copy" for file in copied}
    elif distractor == "localizers" and has_images:
        folders = [f"{case.directory}/" if case.directory else "" for case in cases[:SCOUTED_CASES]]
        files = {
            f"{folder}{case.stem}_scout/IM00001": "localizer" for folder, case in zip(folders, cases, strict=False)
        }
    archive = f"{ARCHIVES[layout.axes.carrier]}#" if layout.axes.carrier in ARCHIVES else ""
    base = f"{layout.base}/" if layout.base else ""
    return {f"{base}{archive}{file}": reason for file, reason in files.items()}
