"""A watch on this process: which parsers of foreign formats it imports, and which files below a folder it opens."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PARSERS = (
    "nibabel",
    "pydicom",
    "SimpleITK",
    "PIL",
    "h5py",
    "openpyxl",
    "scipy.io",
    "imageio",
    "tifffile",
    "cv2",
    "mlcroissant",
)
imported: dict[str, str] = {}
_watching: list[tuple[str, dict[str, str]]] = []
_hooked: list[bool] = []


class Watcher(MetaPathFinder):
    """Notes who imports a parser first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Never finds anything; the next finder does."""
        if fullname in PARSERS and fullname not in imported:
            imported[fullname] = _by()
        return None


def forget() -> None:
    """Let every parser be imported anew."""
    for module_name in [
        loaded_name
        for loaded_name in sys.modules
        if loaded_name in PARSERS or loaded_name.startswith(tuple(f"{name}." for name in PARSERS))
    ]:
        del sys.modules[module_name]


def begin() -> list[str]:
    """Watch the imports of this process from here on; what a first one of a parser made the watch notice."""
    forget()
    sys.meta_path.insert(0, Watcher())
    from PIL import Image  # noqa: F401 - shows that the watch works

    noticed = list(imported)
    imported.clear()
    forget()
    return noticed


@contextmanager
def opens_below(top: Path) -> Iterator[dict[str, str]]:
    """Files below this folder that this process opens meanwhile, counted from it, and by whom first."""
    if not _hooked:
        sys.addaudithook(_audit_hook)  # there is no way back, so one serves all
        _hooked.append(True)
    callers: dict[str, str] = {}
    _watching.append((f"{top.resolve()}{os.sep}", callers))
    try:
        yield callers
    finally:
        _watching.pop()


def _audit_hook(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watching or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    place = os.path.realpath(os.fsdecode(arguments[0]))
    for folder_prefix, callers in _watching:
        if place.startswith(folder_prefix) and not os.path.isdir(place):
            callers.setdefault(place.removeprefix(folder_prefix), _by())


def _by() -> str:
    frames = [frame for frame in traceback.extract_stack() if "/src/m3b/" in frame.filename]
    return " <- ".join(f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.name}" for frame in reversed(frames[-6:]))
