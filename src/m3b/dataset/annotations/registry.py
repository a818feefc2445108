"""The registry of annotation formats, and which files of a folder are of which format."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationNote, AnnotationSet, ShapeKind
from m3b.dataset.annotations.coco import Coco
from m3b.dataset.annotations.createml import CreateMl
from m3b.dataset.annotations.cvat import Cvat
from m3b.dataset.annotations.documents import read_head
from m3b.dataset.annotations.kitti import Kitti, LineBoxes
from m3b.dataset.annotations.label_studio import LabelStudio
from m3b.dataset.annotations.labelme import LabelMe
from m3b.dataset.annotations.names import split_suffix
from m3b.dataset.annotations.pathology import Aperio, Asap, GeoJson
from m3b.dataset.annotations.supervisely import Supervisely
from m3b.dataset.annotations.via import Via
from m3b.dataset.annotations.voc import Voc
from m3b.dataset.annotations.volumes import DicomSeg, RtStruct, SegNrrd
from m3b.dataset.annotations.yolo import Yolo
from m3b.dataset.archives import local_file
from m3b.errors import DataError

if TYPE_CHECKING:
    from m3b.dataset.inventory import Inventory

ENTRY_POINT_GROUP = "m3b.annotations"
"""Entry points of this group name an `AnnotationFormat`: the class or an instance."""

ANNOTATIONS: dict[str, AnnotationFormat] = {
    annotation_format.name: annotation_format
    for annotation_format in (
        Coco(), CreateMl(), LabelStudio(), Via(), LabelMe(), Supervisely(), GeoJson(), Voc(), Cvat(), Aperio(), Asap(),
        Yolo(), Kitti(), LineBoxes(),
        RtStruct(), DicomSeg(), SegNrrd(),
    )
}  # fmt: skip
"""All annotation formats by name, in the order in which they are tried; installed ones are added by `load_annotation_plugins`."""

MAX_CHECKED_FILES = 256
"""Files of one folder and suffix whose start is read; of more files, evenly spaced ones and those of unusual size."""
MIN_MATCHING = 0.9
"""Share of the checked files of a folder that must be of a format for the others to be taken for it."""
TEXT_SUFFIXES = frozenset((".txt", ".csv", ".tsv", ".json", ".xml", ".yaml", ".yml", ".md"))
MAX_LOADED_FILES = 20_000
"""Files of one source that are loaded to count what they hold."""
MAX_SAME_STEMS = 0.2
"""Share of stems that two folders of one format may have in common without being two annotations of the same images."""


@dataclass(frozen=True)
class AnnotationSource:
    """Annotation files of one format that belong together.

    Args:
        format: name of the format.
        files: all of them, below the data folder.
        annotations: what they hold; of more than `MAX_LOADED_FILES` files, of the first.
    """

    format: str
    files: tuple[str, ...]
    annotations: AnnotationSet

    @property
    def classes(self) -> dict[str, int]:
        """Class -> number of its marks."""
        return self.annotations.classes

    @property
    def images(self) -> list[AnnotatedImage]:
        """The images that the files name."""
        return self.annotations.images

    @property
    def shapes(self) -> set[ShapeKind]:
        """Kinds of marks."""
        return self.annotations.shapes

    @property
    def notes(self) -> tuple[AnnotationNote, ...]:
        """What a reader of the data should know."""
        return self.annotations.notes

    @property
    def is_complete(self) -> bool:
        """Whether all files were loaded."""
        return len(self.files) <= MAX_LOADED_FILES


def register_annotation_format(annotation_format: AnnotationFormat) -> None:
    """Add a format; it is tried after those that there are.

    Raises:
        ValueError: the name is taken by another class.
    """
    present = ANNOTATIONS.setdefault(annotation_format.name, annotation_format)
    if type(present) is not type(annotation_format):
        raise ValueError(f"There is an annotation format {annotation_format.name!r} already; choose another name.")


@cache
def load_annotation_plugins() -> None:
    """Register the installed formats, once per process; warn of broken ones."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = point.load()
            register_annotation_format(loaded() if isinstance(loaded, type) else loaded)
        except (
            ImportError,
            AttributeError,
            TypeError,
            ValueError,
        ) as error:  # one broken plug-in does not stop the others
            message = f"The annotation format {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def get_annotation_format(name: str) -> AnnotationFormat:
    """Return the format of a name.

    Raises:
        DataError: code `unknown_format`.
    """
    load_annotation_plugins()
    if name not in ANNOTATIONS:
        raise DataError(
            f"There is no annotation format {name!r}; known are {', '.join(ANNOTATIONS)}.", code="unknown_format"
        )
    return ANNOTATIONS[name]


def detect_annotations(inventory: Inventory) -> list[AnnotationSource]:
    """Return the annotations of a folder, in the order of formats. Files that look like a format and are not are left out,
    and so are hidden ones."""
    load_annotation_plugins()
    folders: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for path, size in zip(inventory.files["path"], inventory.files["bytes"], strict=True):
        folder, _, name = path.rpartition("/")
        if any(part.startswith(".") for part in path.split("/")):
            continue
        folders[folder, PurePosixPath(name).suffix.lower()].append((path, size))
    candidates: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    stems: set[str] | None = None
    for (folder, suffix), files in folders.items():
        for name, paths in _detect_in_folder(inventory, suffix, files).items():
            if ANNOTATIONS[name].needs_image:
                stems = _get_image_stems(inventory) if stems is None else stems
                paths = [path for path in paths if _get_stem(path) in stems]
            if paths:
                candidates[name][folder] += paths
    sources: list[AnnotationSource] = []
    for name, annotation_format in ANNOTATIONS.items():
        by_folder = candidates.get(name, {})
        groups = _group_folders(inventory, by_folder) if annotation_format.per_image else _join_folders(by_folder)
        for group in groups:
            sources += _load(inventory, annotation_format, group)
    return sources


def _get_stem(path: str) -> str:
    return split_suffix(path.rpartition("/")[2])[0]


def _get_image_stems(inventory: Inventory) -> set[str]:
    """Return the stems of files that are no texts."""
    names = (path.rpartition("/")[2] for path in inventory.paths)
    return {stem for stem, suffix in map(split_suffix, names) if suffix not in TEXT_SUFFIXES}


def _detect_in_folder(inventory: Inventory, suffix: str, files: Sequence[tuple[str, int]]) -> dict[str, list[str]]:
    """Return format -> files of one folder and suffix. Empty files belong to the format of the others."""
    formats = [
        item
        for item in ANNOTATIONS.values()
        if any(_ends_with(suffix, format_suffix) for format_suffix in item.suffixes)
    ]
    if not formats:
        return {}
    checked = _choose_files(files)
    by_format: dict[str, list[str]] = defaultdict(list)
    for path in checked:
        head = read_head(inventory.root, path)
        for annotation_format in formats:
            if head and annotation_format.detect(local_file(inventory.root, path), head):
                by_format[annotation_format.name].append(path)
                break
    sizes = dict(files)
    filled = sum(sizes[path] > 0 for path in checked)
    for name, paths in by_format.items():
        if not ANNOTATIONS[name].per_image:
            continue
        if len(checked) < len(files):
            by_format[name] = [path for path, _ in files] if len(paths) >= MIN_MATCHING * filled else []
        else:
            by_format[name] = [*paths, *(path for path, size in files if size == 0)]
    return {name: paths for name, paths in by_format.items() if paths}


def _ends_with(suffix: str, format_suffix: str) -> bool:
    return suffix == format_suffix or (format_suffix.count(".") > 1 and format_suffix.endswith(suffix) and bool(suffix))


def _choose_files(files: Sequence[tuple[str, int]]) -> list[str]:
    """Return the files that are opened, in the order of the folder."""
    if len(files) <= MAX_CHECKED_FILES:
        return [path for path, _ in files]
    step = len(files) // (MAX_CHECKED_FILES // 2) + 1
    spaced = [path for path, size in files[::step]]
    usual = sorted(size for _, size in files)[len(files) // 2]
    unusual = sorted(files, key=lambda item: -abs(item[1] - usual))[: MAX_CHECKED_FILES // 2]
    selected_paths = {*spaced, *(path for path, _ in unusual)}
    return [path for path, _ in files if path in selected_paths]


def _join_folders(by_folder: dict[str, list[str]]) -> list[list[str]]:
    files = [path for paths in by_folder.values() for path in paths]
    return [files] if files else []


def _group_folders(inventory: Inventory, by_folder: dict[str, list[str]]) -> list[list[str]]:
    """Return the files of folders that belong together: other readers' annotations of the same images are apart.

    Folders with the same stems annotate the same images if there are too few other files of these stems for each. One file of
    the same name in each folder is called after no image, but lies beside it.
    """
    stems = {folder: {_get_stem(path) for path in paths} for folder, paths in by_folder.items()}
    annotated = {path for paths in by_folder.values() for path in paths}
    claims = Counter(stem for names in stems.values() for stem in names)
    repeated = {stem for stem, count in claims.items() if count > 1}
    files_of_stem: Counter[str] = Counter()
    if repeated:
        for path in inventory.paths:
            if path not in annotated and (stem := _get_stem(path)) in repeated:
                files_of_stem[stem] += 1
    if len(claims) == 1 and not files_of_stem and all(len(paths) == 1 for paths in by_folder.values()):
        return [sorted(annotated)]
    groups: list[tuple[set[str], list[str]]] = []
    for folder, paths in by_folder.items():
        for members, files in groups:
            common = {stem for stem in members & stems[folder] if files_of_stem[stem] < claims[stem]}
            if len(common) <= MAX_SAME_STEMS * min(len(members), len(stems[folder])):
                members |= stems[folder]
                files += paths
                break
        else:
            groups.append((set(stems[folder]), list(paths)))
    return [files for _, files in groups]


def _load(inventory: Inventory, annotation_format: AnnotationFormat, files: Sequence[str]) -> list[AnnotationSource]:
    try:
        annotations = annotation_format.load(files[:MAX_LOADED_FILES], inventory.root)
    except DataError:
        return []
    failed = {example for note in annotations.notes if note.code == "file_not_this_format" for example in note.examples}
    files_of_format = tuple(path for path in files if path not in failed)
    return [AnnotationSource(annotation_format.name, files_of_format, annotations)] if annotations.images else []
