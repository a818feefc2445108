"""A view of raw data that holds the files of some cases only: linked where possible, copied otherwise.

Archives (NPY, NPZ, HDF5, pickles, PT) that hold items of other cases too are written anew: same keys and indices, items
of other cases zero.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.archive_writers import Items
from m3b.data.archives import subset
from m3b.data.links import WHAT_TO_DO, Inside, roots_of
from m3b.data.reading import shared
from m3b.data.records import Record
from m3b.data.sides import WITH_SIDES, sides
from m3b.errors import DataError
from m3b.isolation.untrusted import clone_file, copy_file

"""Linux: share the blocks of a file with a copy of it, on file systems that can (btrfs, XFS)."""
_A_TICK = 2000
"""Files between two signs of life."""
Tick = Callable[[int, int], None]
Cut = Callable[[Path, Path, Mapping[str, Items]], bool]


@dataclass(frozen=True)
class Wanted:
    """What cases need, by path as their records have it: whole files, and items of archives by key.

    Of an array that is wanted whole, the items are None.
    """

    files: frozenset[str]
    archives: Mapping[str, Mapping[str, Items]] = field(default_factory=dict)


@dataclass
class ViewCounts:
    """How many files a view got, and by which way."""

    linked: int = 0
    cloned: int = 0
    copied: int = 0
    written: int = 0


def wanted_by(records: Iterable[Record], base: Path) -> Wanted:
    """Files and archive items of these cases, with the data of detached headers and the members of folders.

    Raises:
        DataError: a header that names data outside its folder.
    """
    parse = shared().arrays.parse_reference
    files: set[str] = set()
    archives: dict[str, dict[str, set[int] | None]] = defaultdict(dict)
    for path in dict.fromkeys(path for record in records for path in (*record.images, *record.masks)):
        reference = parse(path) if "#" in path else None
        if reference is None or os.path.lexists(base / path):
            files.update(_closure(path, base))
            continue
        keys = archives[reference.file]
        if reference.index is None:
            keys[reference.key] = None
        elif (items := keys.setdefault(reference.key, set())) is not None:
            items.add(reference.index)
    return Wanted(frozenset(files), archives)


def _closure(path: str, base: Path) -> list[str]:
    """Called for every file: plain strings, and no look into files that have no sides."""
    place = f"{base}/{path}"
    if "#frames=" in path and not os.path.lexists(place) and (clip := shared().clips.parse(path)) is not None:
        return [clip[0]]
    if os.path.isdir(place):
        return [f"{path}/{item.name}" for item in Path(place).iterdir() if _is_image(item)]
    if not path.lower().endswith(WITH_SIDES):
        return [path]
    return [path, *((Path(path).parent / name).as_posix() for name in sides(Path(place)))]


def _is_image(item: Path) -> bool:
    return item.is_file() and not item.name.startswith(".") and bool(shared().kind_of(str(item)))


def shared_files(mine: Wanted, others: Wanted) -> list[str]:
    """Files that cannot be given to the one without what belongs to the other."""
    both = mine.files & others.files
    return sorted(both | (mine.files & others.archives.keys()) | (mine.archives.keys() & others.files))


# --- making it ----------------------------------------------------------------------------------------------------


def make_view(
    wanted: Wanted,
    base: Path,
    place: Callable[[str], Path],
    *,
    link: bool,
    tick: Tick | None = None,
    cut: Cut = subset,
) -> ViewCounts:
    """Put everything that is wanted at the paths that `place` gives, which keeps what is in a folder in one folder.

    Args:
        base: what the paths count from.
        link: whether files may be hard-linked; only where nobody can write through the links.
        tick: called now and then with the files done and their total.
        cut: takes archives apart, as `subset` does.

    Raises:
        DataError: an archive that cannot be read, or no room for the copies.
        OSError: a file that cannot be read or written.
    """
    made, inside = ViewCounts(), Inside(roots_of(base))
    total = len(wanted.files) + len(wanted.archives)
    room, done = _Room(wanted, base), 0
    for folder, names in _by_folder(wanted.files).items():
        for some in batched(names, _A_TICK):
            if tick:
                tick(done, total)
            _fill(folder, some, base, place(folder), (made, inside, room, link))
            done += len(some)
    for path, keys in sorted(wanted.archives.items()):
        target = place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = _real(path, base, inside)
        if cut(source, target, keys):
            made.written += 1
        else:
            put(source, target, made, link=link, room=room)
    return made


def batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The names, so many at a time."""
    return (names[start : start + size] for start in range(0, len(names), size))


def _by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Folder -> names in it, both in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        found[folder].append(name)
    return found


def _fill(
    folder: str, names: Sequence[str], base: Path, target: Path, how: tuple[ViewCounts, Inside, _Room, bool]
) -> None:
    """The files of one folder. Those that are no links are linked by name from folder to folder, without a path or an
    object for each of them: there may be 200,000."""
    made, inside, room, link = how
    target.mkdir(parents=True, exist_ok=True)
    left, source = names, f"{base}/{folder}".rstrip("/")
    if link and source in inside:
        with _opened(inside.real(source)) as from_folder, _opened(str(target)) as to_folder:
            left = [name for name in names if not _linked(name, from_folder, to_folder)]
        made.linked += len(names) - len(left)
    for name in left:
        put(_real(f"{folder}/{name}".lstrip("/"), base, inside), target / name, made, link=link, room=room)


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _linked(name: str, source: int, target: int) -> bool:
    """Whether a file could be hard-linked; a link that stands there is not, wherever it leads."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
            return False
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError:  # another file system, or a kernel that refuses links to files of others
        return False
    return True


def _real(path: str, base: Path, inside: Inside) -> Path:
    place = f"{base}/{path}"
    if place not in inside:
        raise DataError(f"{path} is a link that leads out of the data. {WHAT_TO_DO}")
    return Path(inside.real(place))


class _Room:
    """Asked before the first copy: is there room for all of them?"""

    def __init__(self, wanted: Wanted, base: Path) -> None:
        self.wanted, self.base, self.asked = wanted, base, False

    def check(self, target: Path) -> None:
        if self.asked:
            return
        self.asked = True
        paths: Sequence[str] = [*self.wanted.files, *self.wanted.archives]
        need = sum((self.base / path).stat().st_size for path in paths)
        free = shutil.disk_usage(target.parent).free
        if need > free:
            raise DataError(
                f"The files of the training cases ({need / 2**20:,.1f} MiB) have to be copied to {target.parent}, since "
                f"they cannot be linked there, and {free / 2**20:,.1f} MiB are free. Choose an --out on the file "
                "system of the data, or make room."
            )


def put(real: Path, target: Path, made: ViewCounts, *, link: bool, room: _Room | None = None) -> None:
    """One file: a hard link, else shared blocks, else a copy."""
    if link:
        try:
            os.link(real, target)
        except OSError:  # another file system, or a kernel that refuses links to files of others
            pass
        else:
            made.linked += 1
            return
    if clone(real, target):
        made.cloned += 1
        return
    if room:
        room.check(target)
    copy_file(real.parent, real.name, target.parent, target.name)
    made.copied += 1


def clone(real: Path, target: Path) -> bool:
    """A copy that shares its blocks with the original; False where the file system cannot."""
    return clone_file(real.parent, real.name, target.parent, target.name)
