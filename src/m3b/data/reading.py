"""Opening medical images, with the very code that the templates train and predict with.

`resources/templates/shared/images.py` is loaded by its path, so that an image which m3b's checks can open is one
that the delivered model can open too, and the other way round.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

from m3b.errors import DataError
from m3b.resources import resources_dir

MODULE = "m3b_template_images"


@lru_cache(maxsize=1)
def shared() -> ModuleType:
    """The templates' `images` module."""
    file = resources_dir() / "templates" / "shared" / "images.py"
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise DataError(f"m3b's own file {file} is missing; install m3b again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def read_image(path: str | list[str], base: str = ".") -> Any:
    """One image or volume.

    Returns:
        An object with `array` (channel first, `(C, H, W)` or `(C, H, W, D)`), `spacing` (mm, or None) and `dims`.

    Raises:
        DataError: it cannot be opened; the message names the file and why.
    """
    images = shared()
    try:
        return images.read_image(path, base)
    except images.ImageError as error:
        raise DataError(str(error)) from error
