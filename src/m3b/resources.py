"""The location of the read-only resources: cards, prompts, index schemas and templates."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def get_resources_folder() -> Path:
    """Return the `resources` folder: inside the installed package, or next to `src/` in a checkout.

    Raises:
        FileNotFoundError: there is neither; the installation is broken.
    """
    package_folder = Path(__file__).resolve().parent
    for folder in (package_folder / "resources", package_folder.parents[1] / "resources"):
        if (folder / "prompts").is_dir():
            return folder
    raise FileNotFoundError(f"m3b's resources are missing next to {package_folder}; install m3b again.")
