"""Where the read-only material lies: cards, prompts, index schemas and templates."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def get_resources_folder() -> Path:
    """The `resources` folder: inside the installed package, or beside `src/` in a checkout.

    Raises:
        FileNotFoundError: neither is there; the installation is broken.
    """
    package_folder = Path(__file__).resolve().parent
    for folder in (package_folder / "resources", package_folder.parents[1] / "resources"):
        if (folder / "prompts").is_dir():
            return folder
    raise FileNotFoundError(f"m3b's resources are missing beside {package_folder}; install m3b again.")
