"""A view of raw data that holds the files of some cases only: linked where possible, copied otherwise.

Files of many images that hold items of other cases too are written anew (`m3b.dataset.archive_subsets`).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

from m3b.data.links import WHAT_TO_DO, Inside, roots_of
from m3b.data.records import Record
from m3b.data.sides import WITH_SIDES, sides
from m3b.dataset.archive_subsets import Items, write_subset
from m3b.errors import DataError
from m3b.isolation.untrusted import clone_file, copy_file

FILES_PER_REPORT = 2000
"""Files between two signs of life."""
ReportProgress = Callable[[int, int], None]
CutArchive = Callable[[Path, Path, Mapping[str, Items]], bool]


@dataclass(frozen=True)
class NeededFiles:
    """What cases need, by path as their records have it: whole files, and items of archives by key.

    Of an array that is needed whole, the items are None.
    """

    files: AbstractSet[str]
    archives: Mapping[str, Mapping[str, Items]] = field(default_factory=dict)


@dataclass
class ViewCounts:
    """How many files a view got, and by which way."""

    linked: int = 0
    cloned: int = 0
    copied: int = 0
    rewritten: int = 0


def needed_files_of(records: Iterable[Record], base: Path) -> NeededFiles:
    """Files and archive items of these cases, with the data of detached headers and the members of folders.

    Raises:
        DataError: a header that names data outside its folder.
    """
    from m3b.dataset.formats.arrays import parse_item
    from m3b.dataset.reading import split_reference

    files: set[str] = set()
    archives: dict[str, dict[str, set[int] | None]] = defaultdict(dict)
    for path in (path for record in records for path in (*record.images, *record.masks)):
        if path in files and not path.lower().endswith(WITH_SIDES):
            continue
        file, item = split_reference(path, base) if "#" in path else (path, "")
        if not item or not _is_container(file, base):
            files.update(_closure(file, base))
            continue
        keys = archives[file]
        key, index = parse_item(item) or (item, None)
        if index is None:
            keys[key] = None
        elif (items := keys.setdefault(key, set())) is not None:
            items.add(index)
    return NeededFiles(files, archives)


def _is_container(file: str, base: Path) -> bool:
    """Return whether a file, or the folder of a Zarr store, holds many images; frames of clips and levels of pyramids belong to
    one."""
    from m3b.dataset.formats import find_format, get_format

    place = f"{base}/{file}"
    file_format = get_format(place) if os.path.isdir(place) else find_format(b"", file)
    return file_format is not None and file_format.is_container


def _closure(path: str, base: Path) -> list[str]:
    """Called for every file: plain strings, and no look into files that have no sides."""
    place = f"{base}/{path}"
    if os.path.isdir(place):
        from m3b.dataset.formats import get_format

        if get_format(place).is_container:  # a Zarr store: chunks in folders
            chunks = (item for item in sorted(Path(place).rglob("*")) if item.is_file())
            return [f"{path}/{item.relative_to(place).as_posix()}" for item in chunks]
        return [f"{path}/{item.name}" for item in Path(place).iterdir() if _is_image(item)]
    if not path.lower().endswith(WITH_SIDES):
        return [path]
    return [path, *((Path(path).parent / name).as_posix() for name in sides(Path(place)))]


def _is_image(item: Path) -> bool:
    """Return whether a file is an image by its name; only files with an unknown suffix are opened."""
    from m3b.dataset.formats import find_file_format, find_format

    if not item.is_file() or item.name.startswith("."):
        return False
    return find_format(b"", item.name) is not None or find_file_format(item) is not None


def shared_files(train: NeededFiles, test: NeededFiles) -> list[str]:
    """Return the files that cannot be given to the training part without what belongs to the test part."""
    common = train.files & test.files
    return sorted(common | (train.files & test.archives.keys()) | (train.archives.keys() & test.files))


# --- making it ----------------------------------------------------------------------------------------------------


def make_view(
    needed: NeededFiles,
    base: Path,
    place: Callable[[str], Path],
    *,
    link: bool,
    tick: ReportProgress | None = None,
    cut: CutArchive = write_subset,
) -> ViewCounts:
    """Put everything that is needed at the paths that `place` gives, which keeps what is in a folder in one folder.

    Args:
        base: what the paths count from.
        link: whether files may be hard-linked; only where nobody can write through the links.
        tick: called now and then with the files placed and their total.
        cut: takes archives apart, as `write_subset` does.

    Raises:
        DataError: an archive that cannot be read, or no room for the copies.
        OSError: a file that cannot be read or rewritten.
    """
    counts, data_roots = ViewCounts(), Inside(roots_of(base))
    total = len(needed.files) + len(needed.archives)
    disk_space, placed = DiskSpace(needed, base), 0
    for folder, paths in groupby(sorted(needed.files), lambda path: path.rpartition("/")[0]):
        while batch := [path.rpartition("/")[2] for path in islice(paths, FILES_PER_REPORT)]:
            if tick:
                tick(placed, total)
            _place_folder(folder, batch, base, place(folder), (counts, data_roots, disk_space, link))
            placed += len(batch)
    for path, keys in sorted(needed.archives.items()):
        target = place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = _resolve(path, base, data_roots)
        if cut(source, target, keys):
            counts.rewritten += 1
        elif source.is_dir():
            shutil.copytree(source, target, symlinks=True)
            counts.copied += 1
        else:
            place_file(source, target, counts, link=link, disk_space=disk_space)
    return counts


def _place_folder(
    folder: str, names: Sequence[str], base: Path, target: Path, context: tuple[ViewCounts, Inside, DiskSpace, bool]
) -> None:
    """The files of one folder. Those that are no links are linked by name from folder to folder, without a path or an
    object for each of them: there may be 200,000."""
    counts, data_roots, disk_space, link = context
    target.mkdir(parents=True, exist_ok=True)
    remaining, source = names, f"{base}/{folder}".rstrip("/")
    if link and source in data_roots:
        with _open_folder(data_roots.real(source)) as from_folder, _open_folder(str(target)) as to_folder:
            remaining = [name for name in names if not _try_link(name, from_folder, to_folder)]
        counts.linked += len(names) - len(remaining)
    for name in remaining:
        place_file(
            _resolve(f"{folder}/{name}".lstrip("/"), base, data_roots),
            target / name,
            counts,
            link=link,
            disk_space=disk_space,
        )


@contextmanager
def _open_folder(folder: str) -> Iterator[int]:
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _try_link(name: str, source: int, target: int) -> bool:
    """Whether a file could be hard-linked; a link that stands there is not, wherever it leads."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
            return False
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError:  # another file system, or a kernel that refuses links to files of others
        return False
    return True


def _resolve(path: str, base: Path, data_roots: Inside) -> Path:
    place = f"{base}/{path}"
    if place not in data_roots:
        raise DataError(f"{path} is a link that leads out of the data. {WHAT_TO_DO}")
    return Path(data_roots.real(place))


class DiskSpace:
    """A check before the first copy that there is room for all of them."""

    def __init__(self, needed: NeededFiles, base: Path) -> None:
        self.needed, self.base, self.checked = needed, base, False

    def check(self, target: Path) -> None:
        if self.checked:
            return
        self.checked = True
        paths: Sequence[str] = [*self.needed.files, *self.needed.archives]
        need = sum((self.base / path).stat().st_size for path in paths)
        free = shutil.disk_usage(target.parent).free
        if need > free:
            raise DataError(
                f"The files of the training cases ({need / 2**20:,.1f} MiB) have to be copied to {target.parent}, since "
                f"they cannot be linked there, and {free / 2**20:,.1f} MiB are free. Choose an --out on the file "
                "system of the data, or make room."
            )


def place_file(
    real: Path, target: Path, counts: ViewCounts, *, link: bool, disk_space: DiskSpace | None = None
) -> None:
    """One file: a hard link, else shared blocks, else a copy."""
    if link:
        try:
            os.link(real, target)
        except OSError:  # another file system, or a kernel that refuses links to files of others
            pass
        else:
            counts.linked += 1
            return
    if clone(real, target):
        counts.cloned += 1
        return
    if disk_space:
        disk_space.check(target)
    copy_file(real.parent, real.name, target.parent, target.name)
    counts.copied += 1


def clone(real: Path, target: Path) -> bool:
    """A copy that shares its blocks with the original; False where the file system cannot."""
    return clone_file(real.parent, real.name, target.parent, target.name)
