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
    for known in [
        one for one in sys.modules if one in PARSERS or one.startswith(tuple(f"{name}." for name in PARSERS))
    ]:
        del sys.modules[known]


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
        sys.addaudithook(_heard)  # there is no way back, so one serves all
        _hooked.append(True)
    found: dict[str, str] = {}
    _watching.append((f"{top.resolve()}{os.sep}", found))
    try:
        yield found
    finally:
        _watching.pop()


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watching or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    place = os.path.realpath(os.fsdecode(arguments[0]))
    for inside, found in _watching:
        if place.startswith(inside) and not os.path.isdir(place):
            found.setdefault(place.removeprefix(inside), _by())


def _by() -> str:
    frames = [one for one in traceback.extract_stack() if "/m3b/" in one.filename or "shared" in one.filename]
    return " <- ".join(f"{'/'.join(Path(one.filename).parts[-2:])}:{one.name}" for one in reversed(frames[-6:]))
