"""Test images under anonymous, secretly shuffled names, so that predict.py learns nothing from names or order."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from m3b.data.links import WHAT_TO_DO, Inside, out_of, roots_of
from m3b.data.records import Image, Reference, frozen, paths_of, relocated
from m3b.dataset.minimal import write_minimal_copy
from m3b.dataset.view import clone
from m3b.errors import DataError, ModelError
from m3b.isolation.untrusted import announce_opening, copy_file

T = TypeVar("T")
ImageRef = Reference
"""A file, a folder of slices, `archive.npz#key[17]`, the slices of a volume in order, or channel name -> file."""

MIN_LINK_BYTES = 64 * 2**20
"""If the sandbox mounts the staged folder read-only, files of at least this size are put there by `place_links`."""
MAX_COPY_BYTES = 8 * 2**30
"""Large files of more than this in total, on a file system that cannot share blocks, are hard-linked.

A link has the inode and time of the raw file, which is only acceptable if copying would take minutes.
"""

_SUFFIX = re.compile(r"(\.nii\.gz|\.[A-Za-z][A-Za-z0-9]{0,7})$", re.IGNORECASE)
MAX_HEADER_BYTES = 16 * 2**20
"""Maximum bytes of a header whose voxels are in another file."""


StagedImage = str | list[str] | dict[str, str]
"""An `ImageRef` below the staging folder, as JSON values."""


@dataclass(frozen=True)
class StagedCases:
    """Test images ready for predict.py.

    Args:
        folder: the folder they are in.
        paths: relative to `folder`, in the shuffled order; a list of slices stays a list, an object of channels an
            object.
        order: `order[i]` is the position, among the given cases, of the one staged as `paths[i]`.
        links: files that `place_links` still has to put there, as source and target.
        verbatim: positions, among the given cases, of those with a file that is no minimal copy (`m3b.dataset.minimal`).
    """

    folder: Path
    paths: tuple[StagedImage, ...]
    order: tuple[int, ...]
    links: tuple[tuple[Path, Path], ...] = ()
    verbatim: tuple[int, ...] = ()

    def list_images(self) -> list[Image]:
        """Return the staged images with absolute paths, in the shuffled order."""
        root = str(self.folder.resolve())
        return [relocated(frozen(path), lambda name: f"{root}/{name}") for path in self.paths]

    def restore_order(self, results: Sequence[T]) -> list[T]:
        """Return results in staged order, put back into the order of the given cases.

        Raises:
            ModelError: there is not one result for each case.
        """
        if len(results) != len(self.order):
            raise ModelError(f"{len(results)} results for {len(self.order)} staged cases")
        results_by_index = dict(zip(self.order, results, strict=True))
        return [results_by_index[index] for index in range(len(results))]


def stage_cases(
    cases: Sequence[ImageRef],
    folder: Path,
    confined: bool,
    *,
    base: Path | None = None,
    defer_links: bool = False,
    min_link_bytes: int | None = None,
) -> StagedCases:
    """Write minimal copies of test images into `folder` as `case_0001.png` and so on, in an unpredictable order.

    Extensions stay. A copy holds what reading the image needs, and none of its texts (`m3b.dataset.minimal`). A file of which
    no such copy can be made is copied as it is, and its case is one of `StagedCases.verbatim`. A folder of slices becomes a
    folder with renamed slices in natural order. A list of slices becomes
    a list of files in a folder of their own. Channels keep their names, and their files are in a folder of their own.
    An archive item becomes a NPY file (same shape and dtype).

    Args:
        cases: image references, relative to `base` (the working directory; the current one if None).
        folder: new or empty; it has to be on the reader's side of the sandbox.
        confined: whether predict.py will see `folder` read-only. Only then may a large file be hard-linked: an
            unconfined script could write through a link into the raw data.
        defer_links: whether large files are left to `place_links`: a process that sees the two folders as two mounts
            cannot link between them.
        min_link_bytes: the size in bytes of a large file; `MIN_LINK_BYTES` by default.

    Raises:
        ModelError: an image is missing or cannot be staged, or is a link out of `base` and of the raw data to which
            `base/data` leads, or the folder is not empty.
    """
    data_roots = Inside(roots_of(base)) if base else None
    base = base or Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ModelError(f"the staging folder {folder} is not empty; give a new one")
    order = list(range(len(cases)))
    secrets.SystemRandom().shuffle(order)
    width = max(4, len(str(len(cases))))
    paths: list[StagedImage] = []
    links: list[tuple[Path, Path]] = []
    link = _make_linker(links if defer_links else None, min_link_bytes or MIN_LINK_BYTES) if confined else _never_link
    copier, verbatim = _Copier(link), []
    for number, index in enumerate(order, start=1):
        try:
            if data_roots:
                _check_links(cases[index], base, data_roots)
            copier.has_verbatim = False
            paths.append(_stage_case(cases[index], folder, f"case_{number:0{width}d}", base, copier))
        except (OSError, ValueError, DataError) as error:
            raise ModelError(f"test case {index} ({cases[index]}) cannot be staged: {error}") from error
        verbatim += [index] if copier.has_verbatim else []
    return StagedCases(folder, tuple(paths), tuple(order), tuple(links), tuple(sorted(verbatim)))


LinkFile = Callable[[Path, Path], bool]
"""Puts a large file at its target without copying it; returns False if it has to be copied."""


def _make_linker(deferred: list[tuple[Path, Path]] | None, min_link_bytes: int) -> LinkFile:
    def link_or_defer(real: Path, target: Path) -> bool:
        if real.stat().st_size < min_link_bytes:
            return False
        if deferred is None:
            return _try_link(real, target)
        deferred.append((real, target))
        return True

    return link_or_defer


def _never_link(real: Path, target: Path) -> bool:
    return False


class _Copier:
    """Makes minimal copies; files of which none can be made are linked or copied as they are, and remembered.

    Attributes:
        has_verbatim: whether such a file was among those since it was last set to False.
    """

    def __init__(self, link: LinkFile) -> None:
        self.link, self.has_verbatim = link, False

    @contextmanager
    def without_links(self) -> Iterator[None]:
        """Copy files that are extracted for a moment only."""
        link, self.link = self.link, _never_link
        try:
            yield
        finally:
            self.link = link

    def copy(self, real: Path, target: Path) -> None:
        """Put a file at its new place."""
        if _has_space(real, target) and write_minimal_copy(real, target):
            _clear_timestamps(target)
        else:
            self.has_verbatim = True
            self.copy_voxels(real, target)

    def copy_voxels(self, real: Path, target: Path) -> None:
        """Put a file without a header, or of an unknown kind, at its new place."""
        if not self.link(real, target):
            _copy_untimed(real, target)


def place_links(staged: StagedCases, base: Path) -> None:
    """Put the deferred large files into the staged folder: by sharing blocks, else by copying, else by linking.

    Raises:
        ModelError: a source outside of the data to which `base` leads, or a target outside of the staged folder.
        OSError: a file cannot be copied.
    """
    data_roots, staging_root = Inside(roots_of(base)), Path(os.path.realpath(staged.folder))
    exceeds_budget = sum(real.stat().st_size for real, _ in staged.links) > _copy_budget(staging_root)
    for real, target in staged.links:
        if str(real) not in data_roots or not Path(os.path.realpath(target.parent)).is_relative_to(staging_root):
            raise ModelError(f"{real} cannot be staged as {target}: it lies outside of the data.")
        source = Path(data_roots.real(str(real)))
        if clone(source, target):
            _clear_timestamps(target)
            continue
        target.unlink(missing_ok=True)
        if not exceeds_budget or not _try_link(source, target):
            _copy_untimed(source, target)


def _copy_budget(folder: Path) -> int:
    """Return the number of bytes that may be copied there."""
    return min(MAX_COPY_BYTES, shutil.disk_usage(folder).free // 2)


def _check_links(case: ImageRef, base: Path, data_roots: Inside) -> None:
    for path in paths_of(case):
        if outside_link := out_of(path, base, data_roots):
            raise ValueError(f"{outside_link[0]} is a link that leads out of the data. {WHAT_TO_DO}")


def _stage_case(case: ImageRef, folder: Path, name: str, base: Path, copier: _Copier) -> StagedImage:
    if isinstance(case, Mapping):
        (folder / name).mkdir()
        return {
            channel: f"{name}/{_stage_case(path, folder / name, f'image_{number:02d}', base, copier)}"
            for number, (channel, path) in enumerate(case.items(), start=1)
        }
    if not isinstance(case, str):
        if not case:
            raise ValueError("an empty list of slices is no image")
        return _stage_slices([base / item for item in case], folder, name, copier)
    from m3b.dataset.formats import get_format
    from m3b.dataset.formats.base import natural_key
    from m3b.dataset.reading import split_reference

    file, item = split_reference(case, base)
    source = base / file
    if item:
        return _stage_item(source, item, folder, name, copier)
    if source.is_dir() and get_format(source).is_container:
        copier.has_verbatim = True
        return _stage_store(source, folder, name)
    if source.is_dir():
        files = [item for item in source.iterdir() if item.is_file() and not item.name.startswith(".")]
        if not files:
            raise ValueError("no file in this folder")
        _stage_slices(sorted(files, key=lambda item: natural_key(item.name)), folder, name, copier)
        return name
    return _stage_file(source, folder, name, copier)


def _stage_slices(files: Sequence[Path], folder: Path, name: str, copier: _Copier) -> list[str]:
    (folder / name).mkdir()
    return [
        f"{name}/{_stage_file(file, folder / name, f'slice_{n:04d}', copier)}" for n, file in enumerate(files, start=1)
    ]


def _stage_item(source: Path, item: str, folder: Path, name: str, copier: _Copier) -> str:
    """Stage one image of a file that holds several; of a clip or pyramid the whole file, of a store with axes that array."""
    from m3b.dataset.archive_subsets import write_subset
    from m3b.dataset.formats import get_format
    from m3b.dataset.formats.archives import ArchiveFormat
    from m3b.dataset.formats.arrays import ArrayFormat, parse_item
    from m3b.dataset.formats.parquet import Parquet

    announce_opening(source)
    file_format = get_format(source)
    copier.has_verbatim |= file_format.is_folder and not isinstance(file_format, ArrayFormat)
    if file_format.is_folder and item.startswith("level="):
        return f"{_stage_store(source, folder, name)}#{item}"
    if file_format.is_folder and file_format.probe(source, item).spacing is not None:
        store, (key, index) = folder / f"{name}{source.suffix}", parse_item(item) or (item, None)
        if not write_subset(source, store, {key: None if index is None else {index}}):
            _stage_store(source, folder, name)
        for file in store.rglob("*"):
            _clear_timestamps(file)
        return f"{store.name}#{item}"
    if isinstance(file_format, ArrayFormat):
        import numpy as np

        np.save(folder / f"{name}.npy", file_format.read_array(source, item), allow_pickle=False)
        _clear_timestamps(folder / f"{name}.npy")
        return f"{name}.npy"
    if isinstance(file_format, ArchiveFormat):
        with file_format.image_file(source, item) as (file, inner_item), copier.without_links():
            staged = _stage_case(file.name, folder, name, file.parent, copier)
            return f"{staged}#{inner_item}" if inner_item else str(staged)
    if isinstance(file_format, Parquet):
        with file_format.image_file(source, item) as (file, _), copier.without_links():
            return _stage_file(file, folder, name, copier)
    return f"{_stage_file(source, folder, name, copier)}#{item}"


def _stage_store(source: Path, folder: Path, name: str) -> str:
    """Stage a folder of chunks (Zarr) with its subfolders."""
    for file in sorted(item for item in source.rglob("*") if item.is_file()):
        target = folder / f"{name}{source.suffix}" / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_untimed(file, target)
    return f"{name}{source.suffix}"


def _stage_file(source: Path, folder: Path, stem: str, copier: _Copier) -> str:
    from m3b.dataset.formats.sidecars import check_plain_file

    suffix_match = _SUFFIX.search(source.name)
    suffix = suffix_match.group(1) if suffix_match else ""
    real, target = source.resolve(strict=True), folder / f"{stem}{suffix}"
    announce_opening(real)
    check_plain_file(real)
    sidecars = _sidecars(real)
    if sidecars:
        _copy_detached(real, sidecars[0].name, target, copier)
    else:
        copier.copy(real, target)
    return target.name


def _sidecars(file: Path) -> tuple[Path, ...]:
    """Return the files that the library opens with a file. Raises DataError for one that may not be opened."""
    from m3b.dataset.formats import find_format
    from m3b.dataset.formats.sidecars import check_sidecar, header_kind

    file_format = find_format(b"", file.name)
    sidecars = file_format.sidecars(file) if file_format is not None else ()
    return tuple(check_sidecar(file, sidecar.name, required=bool(header_kind(file))) for sidecar in sidecars)


def _copy_untimed(real: Path, target: Path) -> None:
    copy_file(real.parent, real.name, target.parent, target.name)
    _clear_timestamps(target)


def _copy_detached(header: Path, data_name: str, target: Path, copier: _Copier) -> None:
    """Copy a header and its separate voxel file under one new name, and name that file in the header."""
    from m3b.dataset.formats.sidecars import rename_data_file

    suffix = Path(data_name).suffix
    data_target = target.with_name(f"{target.stem}{suffix if suffix != target.suffix else '.raw'}")
    copier.copy_voxels(header.parent / data_name, data_target)
    if header.stat().st_size > MAX_HEADER_BYTES:
        raise ValueError(f"{header.name} is larger than a header without voxels can be")
    is_minimal = write_minimal_copy(header, target)
    copier.has_verbatim |= not is_minimal
    target.write_bytes(rename_data_file(target if is_minimal else header, data_target.name))
    _clear_timestamps(target)


def renew_minimal_copy(file: Path) -> None:
    """Make a staged file that was written again a minimal copy, which other staged files are as well."""
    suffix_match = _SUFFIX.search(file.name)
    copy = file.with_name(f".renewed{suffix_match.group(1) if suffix_match else ''}")
    if write_minimal_copy(file, copy):
        copy.replace(file)
    _clear_timestamps(file)


def _has_space(real: Path, target: Path) -> bool:
    """Return whether a copy of at most twice the size leaves half of the free space."""
    return 4 * real.stat().st_size <= shutil.disk_usage(target.parent).free


def _try_link(real: Path, target: Path) -> bool:
    try:
        os.link(real, target)
    except OSError:  # another file system, or links are not allowed there
        return False
    return True


def _clear_timestamps(file: Path) -> None:
    os.utime(file, (0, 0))
