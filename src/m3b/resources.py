"""The location of the read-only resources: cards, prompts, index schemas and templates."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

SHARED_TEMPLATE_FOLDER = "shared"
UTILS_FOLDER = "Utils"


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
    """Copy a template with what a project needs to run without m3b into `target`; other files there are kept.

    The parts that all templates share become `Utils`, and the package `m3b.dataset.formats` becomes `Utils/formats`;
    `Utils/statements.py` reads reports.

    Args:
        template: a folder, or the name of one of m3b's own.
    """
    templates = get_resources_folder() / "templates"
    folders = {
        templates / SHARED_TEMPLATE_FOLDER: target / UTILS_FOLDER,
        Path(__file__).resolve().parent / "dataset" / "formats": target / UTILS_FOLDER / "formats",
        templates / template: target,
    }
    for source, destination in folders.items():
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
        shutil.copytree(source, destination, ignore=ignore, dirs_exist_ok=True)
    shutil.copy(Path(__file__).resolve().parent / "tasks" / "report" / "statements.py", target / UTILS_FOLDER)
