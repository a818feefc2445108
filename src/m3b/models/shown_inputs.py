"""Input files of a request, made visible to a confined predict.py under names that keep their folders and suffixes."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from m3b.dataset.view import ViewCounts, place_file
from m3b.errors import DataError
from m3b.isolation.reader.inprocess import file_of_reader_path, to_reader_path
from m3b.isolation.untrusted import walk

MAX_MOUNTS = 64
"""Maximum number of folders that are mounted one by one; if there are more, their common parent is mounted."""


class ShownInputs:
    """Files of requests below a folder of m3b's own: linked there, and copied if they cannot be linked.

    A path `/data/a.png` is shown as `FOLDER/data/a.png`. Data files of headers and the content of folders come along.

    Args:
        folder: new, on the reader's side of the sandbox.
        mounted: folders that are mounted in the sandbox under their own names; their files stay where they are.
    """

    def __init__(self, folder: Path, mounted: Iterable[Path] = ()) -> None:
        self.folder, self.mounted = folder, tuple(mounted)

    def show(self, path: str) -> str:
        """Return the path under which the sandbox sees a file, a folder or an item (`scans.npz#images[3]`).

        A path that does not exist is returned as it is: predict.py reports it in its answer.

        Raises:
            OSError: it cannot be linked or copied.
        """
        reader_path = to_reader_path(path)
        source = file_of_reader_path(reader_path)
        if not source.exists() or self._is_mounted(source):
            return reader_path
        if source.is_dir():
            Path(f"{self.folder}{source}").mkdir(parents=True, exist_ok=True)
            files = [source / entry.name for entry in walk(source.resolve()) if entry.kind in ("file", "link")]
        else:
            files = [source, *(source.parent / name for name in _companions(source))]
        for file in files:
            self._link_or_copy(file)
        return f"{self.folder}{reader_path}"

    def original(self, text: str) -> str:
        """Return a text from predict.py with the user's own paths."""
        return text.replace(str(self.folder), "")

    def _is_mounted(self, source: Path) -> bool:
        """Return whether the sandbox sees all of `source`; a link may lead to where it sees nothing."""
        if not any(source.is_relative_to(folder) for folder in self.mounted) or source.is_symlink():
            return False
        return not source.is_dir() or all(entry.kind != "link" for entry in walk(source))

    def _link_or_copy(self, source: Path) -> None:
        real, target = Path(os.path.realpath(source)), Path(f"{self.folder}{source}")
        try:
            if not stat.S_ISREG(real.stat().st_mode):
                return
        except OSError:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            place_file(real, target, ViewCounts(), link=True)


def folders_to_mount(paths: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Return the folders of files that cannot be linked into `folder`, so that a sandbox has to mount them.

    A folder that holds the home folder or the temporary files is never among them.
    """
    needs_mount: dict[Path, bool] = {}
    for path in paths:
        source = file_of_reader_path(to_reader_path(path))
        above = source if source.is_dir() else source.parent
        if above not in needs_mount:
            needs_mount[above] = source.exists() and can_be_mounted(above) and not _can_link(source, folder)
    folders = tuple(above for above, needed in needs_mount.items() if needed)
    if len(folders) <= MAX_MOUNTS:
        return folders
    common = Path(os.path.commonpath(folders))
    return (common,) if can_be_mounted(common) else folders[:MAX_MOUNTS]


def can_be_mounted(folder: Path) -> bool:
    """Return whether a folder holds neither the user's home folder nor the temporary files of other programs."""
    private = (Path.home(), Path(tempfile.gettempdir()), Path("/tmp"))  # nosec B108  # only compared
    return not any(Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder)) for place in private)


def _can_link(source: Path, folder: Path) -> bool:
    """Try to link the file, or the first file of a folder."""
    if source.is_dir():
        source = next((item for item in sorted(source.iterdir()) if item.is_file()), source)
    trial = folder / "trial"
    try:
        os.link(os.path.realpath(source), trial)
    except OSError:
        return False
    trial.unlink()
    return True


def _companions(source: Path) -> tuple[str, ...]:
    """Return the files next to a header that its library opens too; a header that may not be opened has none."""
    from m3b.dataset.formats import find_format

    with contextlib.suppress(OSError, DataError):
        file_format = find_format(b"", source.name)
        return tuple(sidecar.name for sidecar in file_format.sidecars(source)) if file_format is not None else ()
    return ()
