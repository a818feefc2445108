"""The location of the read-only resources: cards, prompts, index schemas and templates."""

from __future__ import annotations

import shutil
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


def copy_template(template: str | Path, target: Path) -> None:
    """Copy a training project into `target`, with a folder for its index; other files there are kept.

    Args:
        template: a folder, or the name of one of m3b's own.
    """
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(get_resources_folder() / "templates" / template, target, ignore=ignore, dirs_exist_ok=True)
    (target / "Datapath").mkdir(exist_ok=True)
