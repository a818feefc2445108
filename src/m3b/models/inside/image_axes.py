"""Axes of an image file from its header alone, read in the confined process of a delivered model.

m3b itself is not imported there: its package of file formats, which needs nothing else of it, is loaded by its path.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FORMATS_FOLDER = Path(__file__).resolve().parents[2] / "dataset" / "formats"
PACKAGE_NAME = "m3b_image_formats"

Axes = dict[str, int]
"""`dims` is 2 or 3; `pages` counts the pages of a picture file, `volumes` the volumes of a series."""


@cache
def load_formats() -> ModuleType:
    """Import the package of file formats."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE_NAME, FORMATS_FOLDER / "__init__.py", submodule_search_locations=[str(FORMATS_FOLDER)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{FORMATS_FOLDER} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE_NAME] = module
    spec.loader.exec_module(module)
    return module


def read_axes(path: str) -> Axes | None:
    """Return the axes of an image file; None if its header does not say them or cannot be read."""
    if not Path(path).is_file():
        return None
    formats = load_formats()
    try:
        file_format = formats.get_format(path)
        if file_format.is_container and file_format.name != "npy":
            return None
        info = file_format.probe(Path(path))
    except Exception:  # noqa: BLE001 - the script reports a file that no library opens
        return None
    axes = {"dims": info.dims}
    if file_format.name in ("nifti", "mgh", "metaimage", "nrrd"):
        axes["volumes"] = info.frames
    elif file_format.name == "npy":
        axes["volumes"] = info.channels if info.dims == 3 else 1
    elif file_format.name not in ("dicom", "video"):
        axes["pages"] = info.frames
    return axes
