"""Layout of a run folder: links to the raw data, and the run's own copy of the read-only resources."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from m3b.data import kinds
from m3b.data.cards import ABSENT, Card, absent_lines
from m3b.data.schemas import example, example_labels, json_schema
from m3b.errors import UsageError
from m3b.isolation.untrusted import UnsafePathError, is_folder, make_folder, remove_tree, walk
from m3b.isolation.untrusted.temporary import sweep_temporary
from m3b.resources import copy_template
from m3b.run.folder import RunFolder
from m3b.tools import Roots
from m3b.writing import rename_durably

SCRATCH_FOLDER = "scratch"
"""The Data Engineer's working directory, moved here for the time of training; see `m3b.run.training_view`."""
PARTIAL_WORK_FOLDER = ".work.part"
"""The working directory for training while it is being made; it then replaces the Data Engineer's."""

FROZEN_FOLDER = ".frozen"
"""Folder with the frozen copies of artifacts while they are checked."""
RUN_LEFTOVER_PATTERNS = (".staged-*", ".output-*", ".model.part", ".resources.part", ".view.part", FROZEN_FOLDER)
"""Test images staged for predict.py, outputs of checks, incomplete copies."""
LOCKED_LEFTOVER_PATTERNS = (".model.part",)
"""An incomplete copy of a model."""

_REPLACE_TEXT_PATTERN = re.compile(r"\.[\w-]+\.(?:json|html|md)\.\d+")
"""Temporary file of `m3b.writing.write_text_atomically`."""
_ATOMIC_WRITE_PATTERN = re.compile(r"(?:.*/)?\.[^/]{1,100}\.[0-9a-f]{12}\.tmp")
"""Temporary file of `m3b.isolation.untrusted.write_atomic`."""


def remove_leftovers(run: RunFolder) -> None:
    """Remove what killed processes left in the run folder and in the temporary folder of the system.

    Only the process that holds the run's lock may call this.
    """
    for folder, patterns in ((run.path, RUN_LEFTOVER_PATTERNS), (run.locked, LOCKED_LEFTOVER_PATTERNS)):
        for pattern in patterns:
            for leftover in folder.glob(pattern):
                remove_tree(leftover)
    for folder in _list_protected_folders(run):
        for leftover in folder.glob(".*"):
            if _REPLACE_TEXT_PATTERN.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)
    if not (run.path / SCRATCH_FOLDER).is_dir():  # otherwise it is complete, and about to become the working directory
        remove_tree(run.path / PARTIAL_WORK_FOLDER)
    _remove_partial_files(run.work)
    sweep_temporary()


def _list_protected_folders(run: RunFolder) -> list[Path]:
    """Return the run folder and its subfolders to which no script can write."""
    script_folders = {run.work.name, SCRATCH_FOLDER, PARTIAL_WORK_FOLDER}
    subfolders = [
        entry
        for entry in run.path.iterdir()
        if entry.name not in script_folders and not entry.is_symlink() and entry.is_dir()
    ]
    return [run.path, *subfolders]


def _remove_partial_files(work: Path) -> None:
    if not is_folder(work.parent, work.name):
        return
    with contextlib.suppress(OSError, UnsafePathError):
        for entry in list(walk(work)):
            if entry.kind == "file" and _ATOMIC_WRITE_PATTERN.fullmatch(entry.name):
                remove_tree(work / entry.name)


NO_TEMPLATES: Mapping[str, Path] = MappingProxyType({})


def lay_out_run_folder(
    run: RunFolder, cards: Iterable[Card], resources: Path, templates: Mapping[str, Path] = NO_TEMPLATES
) -> Roots:
    """Make the links and copies that a run needs, and return the folders of its tools. May be called again.

    `work/data/<name>` links to the raw data, `work/resources` to a copy of the resources as they were when the run
    began.

    Args:
        templates: additional templates by name; they replace those of the same name in `resources`.

    Raises:
        OSError: the run folder cannot be written.
        UsageError: the run folder lies inside a data folder, to which scripts could then write.
    """
    readable_folders: dict[str, Path] = {}
    remove_leftovers(run)
    for folder in (run.work, run.locked):
        folder.mkdir(parents=True, exist_ok=True)
    ensure_plain_folder(run.work, "data")
    # A cluster job of a run that is resumed may be reading by the links into the view: they stay.
    is_training = (run.path / SCRATCH_FOLDER).is_dir()
    card_list = list(cards)
    for card in card_list:
        if card.path is None or not card.path.is_dir():
            continue
        if run.path.resolve().is_relative_to(card.path.resolve()):
            raise UsageError(f"The run folder {run.path} lies inside the data {card.path}. Choose another --out.")
        readable_folders[f"data/{card.root}"] = card.path
        if not (is_training and (run.work / "data" / card.root).is_symlink()):
            replace_link(run.work / "data" / card.root, card.path)
    if not run.resources.is_dir():
        try:
            _copy_resources(resources, templates, card_list, run.resources)
        except shutil.Error as error:
            *_, target, reason = error.args[0][0]  # the first of all files that could not be copied
            raise OSError(f"{target} cannot be written: {reason}") from error
    readable_folders["resources"] = run.resources
    replace_link(run.work / "resources", run.resources)
    ensure_plain_folder(run.work, "Logout")
    return Roots(run.work, readable_folders)


def ensure_plain_folder(work: Path, name: str) -> None:
    """Create a real folder, replacing a link or file that a script may have left there."""
    if not is_folder(work, name) and os.path.lexists(work / name):
        remove_tree(work / name)
    os.close(make_folder(work, name))


def replace_link(link: Path, target: Path) -> None:
    """Create a link to the target, replacing anything else at its path."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    if os.path.lexists(link):
        remove_tree(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target, target_is_directory=True)


def _copy_resources(resources: Path, templates: Mapping[str, Path], cards: Sequence[Card], target: Path) -> None:
    partial = target.with_name(".resources.part")
    shutil.rmtree(partial, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    partial.mkdir(parents=True)
    shutil.copytree(resources / "indexes", partial / "indexes", ignore=ignore)
    _write_index_schemas(partial / "indexes")
    (partial / ABSENT).write_text("\n".join([*absent_lines(cards), ""]), encoding="utf-8")
    shipped = resources / "templates"
    for name, template in {**{path.name: path for path in sorted(shipped.iterdir())}, **templates}.items():
        if template.is_dir() and not name.startswith((".", "_")):
            copy_template(template, partial / "templates" / name)
    rename_durably(partial, target)


def _write_index_schemas(folder: Path) -> None:
    """Write schema and example of the tasks whose files do not ship with m3b."""
    for task in kinds.names():
        if not (folder / f"{task}.schema.json").exists():
            parts = {"schema": json_schema(task), "example": example(task)}
            for name, content in parts.items():
                (folder / f"{task}.{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
            labels = json.dumps(example_labels(task), indent=1)
            (folder / f"label_dict.{task}.example.json").write_text(labels, encoding="utf-8")
