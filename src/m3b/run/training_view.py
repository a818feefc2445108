"""Working directory and data view for training, which hold training cases only.

When the index is accepted, the Data Engineer's `work/` is moved to `scratch/`, which no script can reach. A new `work/`
starts with the training part of the index and the derived files of its cases. `work/data/<name>` links to
`view/<name>` instead of the raw data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

from m3b.agents.checks.index import AUDIT_FILE
from m3b.agents.checks.index_lock import list_derived_files, serialize_training_index
from m3b.agents.checks.worker_jobs import SUBSET_JOB, SubsetRequest
from m3b.data.index import LABELS, TEST, Index, read_index
from m3b.dataset.archive_subsets import write_subset
from m3b.dataset.view import CutArchive, NeededFiles, ReportProgress, make_view, needed_files_of
from m3b.errors import DataError, RunFailed
from m3b.isolation.reader import Reader
from m3b.isolation.untrusted import read_bytes, remove_tree, write_atomic
from m3b.run.folder import RunFolder
from m3b.run.provisioning import PARTIAL_WORK_FOLDER, SCRATCH_FOLDER, replace_link
from m3b.tools import Roots
from m3b.writing import rename_durably

MakeReader = Callable[[Path, Sequence[Path]], Reader]
"""Makes a reader of a folder and of the raw data that it links to; the second argument lists writable folders."""
VIEW_FOLDER = "view"
IMAGE_FACTS_FILE = "Datapath/about.json"
"""File with facts on the images for training projects, in addition to the index."""
NO_FACTS: Mapping[str, str] = MappingProxyType({})
_PARTIAL_VIEW_FOLDER = ".view.part"
FindNeededFiles = Callable[[], NeededFiles]
"""Returns the files that the training cases need; computed on the first call."""


def begin_training(
    run: RunFolder,
    raw_folders: Mapping[str, Path],
    dataset_name: str,
    task: str,
    *,
    allow_links: bool,
    on_progress: ReportProgress | None = None,
    make_reader: MakeReader | None = None,
    image_facts: Mapping[str, str] = NO_FACTS,
) -> Roots:
    """Hide test cases and raw data from training. May be called again, also after a crash at any point.

    Args:
        raw_folders: name in the records -> folder of raw data.
        dataset_name: name of the selected data set among them.
        allow_links: whether the view may hold hard links; nobody can write through them in the sandbox.
        make_reader: makes the reader process that extracts archive items; without it, that is done in this process.
        image_facts: facts on the images for the project: request, modality, anatomy.

    Returns:
        The folders of the tools from now on.

    Raises:
        RunFailed: the view cannot be made.
    """
    index = read_index(run.locked, task)
    for name, folder in raw_folders.items():
        replace_link(run.locked / "data" / name, folder)
    find_needed_files: FindNeededFiles = cache(lambda: needed_files_of(index.training_images, run.locked))
    try:
        _make_training_view(
            run, find_needed_files, dataset_name, make_reader, allow_links=allow_links, on_progress=on_progress
        )
        _restart_work_folder(run, index, find_needed_files, make_reader, image_facts)
    except (DataError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RunFailed(f"The view of the training cases cannot be made: {reason.removesuffix('.')}.") from error
    _remove_test_files(run, index)
    views = {name: run.path / VIEW_FOLDER / name for name in sorted(os.listdir(run.path / VIEW_FOLDER))}
    _link_data_folders(run, views)
    return Roots(
        run.work, {**{f"data/{name}": view_folder for name, view_folder in views.items()}, "resources": run.resources}
    )


def _make_training_view(
    run: RunFolder,
    find_needed_files: FindNeededFiles,
    dataset_name: str,
    make_reader: MakeReader | None,
    *,
    allow_links: bool,
    on_progress: ReportProgress | None,
) -> None:
    view, partial = run.path / VIEW_FOLDER, run.path / _PARTIAL_VIEW_FOLDER
    if view.is_dir():
        return
    remove_tree(partial)
    (partial / dataset_name).mkdir(parents=True)
    needed_files = _select_by_origin(find_needed_files(), is_raw=True)
    with _open_archive_cutter(needed_files, run.locked, partial, make_reader) as cut_archive:
        make_view(
            needed_files,
            run.locked,
            lambda path: partial / path.partition("/")[2],
            link=allow_links,
            tick=on_progress,
            cut=cut_archive,
        )
    rename_durably(partial, view)


@contextmanager
def _open_archive_cutter(
    needed_files: NeededFiles, root: Path, partial: Path, make_reader: MakeReader | None
) -> Iterator[CutArchive]:
    """Yield the function that extracts archive items; if there are any, in a reader that may write below `partial`."""
    if not needed_files.archives or make_reader is None:
        yield write_subset
        return
    with make_reader(root, (partial,)) as reader:
        yield lambda source, target, keys: reader.run_job(SUBSET_JOB, SubsetRequest(source, target, dict(keys)))


def _select_by_origin(needed_files: NeededFiles, *, is_raw: bool) -> NeededFiles:
    """Return the part of the needed files that is raw data, or the part that was derived in the run."""
    return NeededFiles(
        frozenset(path for path in needed_files.files if path.startswith("data/") == is_raw),
        {path: keys for path, keys in needed_files.archives.items() if path.startswith("data/") == is_raw},
    )


def _restart_work_folder(
    run: RunFolder,
    index: Index,
    find_needed_files: FindNeededFiles,
    make_reader: MakeReader | None,
    image_facts: Mapping[str, str],
) -> None:
    """Replace the working directory; the new one is complete before the old one is moved, in case of a crash."""
    partial, scratch = run.path / PARTIAL_WORK_FOLDER, run.path / SCRATCH_FOLDER
    if not scratch.is_dir():
        remove_tree(partial)
        for folder in ("Datapath", "Logout", "data"):
            (partial / folder).mkdir(parents=True)
        for name, pieces in serialize_training_index(index).items():
            with (partial / name).open("wb") as file:
                file.writelines(pieces)
        (partial / LABELS).write_bytes((run.locked / LABELS).read_bytes())
        (partial / IMAGE_FACTS_FILE).write_text(json.dumps(dict(image_facts), ensure_ascii=False), encoding="utf-8")
        needed_files = _select_by_origin(find_needed_files(), is_raw=False)
        with _open_archive_cutter(needed_files, run.locked, partial, make_reader) as cut_archive:
            make_view(needed_files, run.locked, lambda path: partial / path, link=False, cut=cut_archive)
        rename_durably(run.work, scratch)
    if partial.is_dir():
        remove_tree(run.work)
        rename_durably(partial, run.work)


def _link_data_folders(run: RunFolder, targets: Mapping[str, Path]) -> None:
    data = run.work / "data"
    if data.is_symlink() or not data.is_dir():
        remove_tree(data)
    for name in os.listdir(data) if data.is_dir() else []:
        if name not in targets and (data / name).is_symlink():
            (data / name).unlink()
    for name, target in targets.items():
        replace_link(data / name, target)
    replace_link(run.work / "resources", run.resources)


# --- after training -----------------------------------------------------------------------------------------------


def end_training(run: RunFolder, raw_folders: Mapping[str, Path], task: str, *, keep_view: bool) -> None:
    """Restore for people what was hidden from training: links to the raw data, and the test cases of the index.

    Args:
        keep_view: whether the run may be resumed, which needs the view again.
    """
    if not (run.path / SCRATCH_FOLDER).is_dir():
        return
    index = read_index(run.locked, task)
    _link_data_folders(run, raw_folders)
    write_atomic(run.work, TEST, read_bytes(run.locked, TEST))
    write_atomic(run.work, AUDIT_FILE, read_bytes(run.path, AUDIT_FILE))
    for path in _list_test_only_files(index, run.locked):
        write_atomic(run.work, path, read_bytes(run.locked, path, max_bytes=2**40))
    if not keep_view:
        remove_tree(run.path / VIEW_FOLDER)


def _remove_test_files(run: RunFolder, index: Index) -> None:
    """Undo `end_training` if a run is resumed."""
    for path in (TEST, AUDIT_FILE, *_list_test_only_files(index, run.locked)):
        copied_file = run.work / path
        if not os.path.lexists(copied_file):
            continue
        try:
            source_folder = run.path if path == AUDIT_FILE else run.locked
            is_same = read_bytes(run.work, path, max_bytes=2**40) == read_bytes(source_folder, path, max_bytes=2**40)
        except OSError:
            continue  # not a file of m3b
        if is_same:
            copied_file.unlink()


def _list_test_only_files(index: Index, locked: Path) -> list[str]:
    """Return the derived files of test cases that no training case has."""
    if not list_derived_files(index.test):
        return []
    test_files = needed_files_of(index.test, locked).files - needed_files_of(index.training_images, locked).files
    return sorted(path for path in test_files if not path.startswith("data/"))
