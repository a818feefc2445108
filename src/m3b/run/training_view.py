"""From the acceptance of an index on: a working directory and a view of the data that hold training cases only.

The Data Engineer's `work/` is moved to `scratch/`, which no script can reach; `work/` starts again with the training
part of the index and what was made for its cases. `work/data/<name>` leads to `view/<name>` in place of the raw data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

from m3b.agents.checks.index import AUDIT
from m3b.agents.checks.inside import CUT, ToCut
from m3b.agents.checks.locked import for_training, made_files
from m3b.data.archives import subset
from m3b.data.index import LABELS, TEST, TRAIN, Index, read_index
from m3b.data.view import Cut, Tick, Wanted, make_view, wanted_by
from m3b.errors import DataError, Failed
from m3b.reader import Reader
from m3b.run.folder import Run
from m3b.run.leftovers import SCRATCH, WORK_PART
from m3b.tools import Roots
from m3b.untrusted import read_bytes, remove_tree, write_whole
from m3b.writing import rename

MakeReader = Callable[[Path, Sequence[Path]], Reader]
"""A reader of a folder and of the raw data that it leads to, which may write to some folders."""
VIEW = "view"
ABOUT = "Datapath/about.json"
"""What training projects may know of the images beside the index."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_PARTIAL_VIEW_FOLDER = ".view.part"
Needed = Callable[[], Wanted]
"""What training cases need, found when it is first asked for."""


def begin_training(
    run: Run,
    raw: Mapping[str, Path],
    chosen: str,
    task: str,
    *,
    link: bool,
    tick: Tick | None = None,
    reader: MakeReader | None = None,
    about: Mapping[str, str] = NOTHING,
) -> Roots:
    """Take test cases and raw data away from those who train. May be called again, after a crash at any point too.

    Args:
        raw: the folders of raw data by the names that records give them.
        chosen: the name among them of the data set at work.
        link: whether the view may hold hard links, which nobody can write through.
        reader: makes the reader process that takes archives apart; without one that is done here.
        about: what is known of the images, for the project: request, modality, anatomy.

    Returns:
        Where tools may go from now on.

    Raises:
        Failed: the view cannot be made.
    """
    index = read_index(run.locked, task)
    for name, folder in raw.items():
        _replace_link(run.locked / "data" / name, folder)
    find_needed_files: Needed = cache(lambda: wanted_by(index.train, run.locked))
    try:
        _make_training_view(run, find_needed_files, chosen, reader, allow_links=link, on_progress=tick)
        _restart_work_folder(run, index, find_needed_files, reader, about)
    except (DataError, OSError) as error:
        raise Failed(f"The view of the training cases cannot be made: {error}") from error
    _remove_test_files(run, index)
    views = {name: run.folder / VIEW / name for name in sorted(os.listdir(run.folder / VIEW))}
    _link_data_folders(run, views)
    return Roots(
        run.work, {**{f"data/{name}": view_folder for name, view_folder in views.items()}, "resources": run.resources}
    )


def _make_training_view(
    run: Run,
    find_needed_files: Needed,
    dataset_name: str,
    make_reader: MakeReader | None,
    *,
    allow_links: bool,
    on_progress: Tick | None,
) -> None:
    view, partial = run.folder / VIEW, run.folder / _PARTIAL_VIEW_FOLDER
    if view.is_dir():
        return
    remove_tree(partial)
    (partial / dataset_name).mkdir(parents=True)
    needed_files = _of(find_needed_files(), raw=True)
    with _open_archive_cutter(needed_files, run.locked, partial, make_reader) as cut_archive:
        make_view(
            needed_files,
            run.locked,
            lambda path: partial / path.partition("/")[2],
            link=allow_links,
            tick=on_progress,
            cut=cut_archive,
        )
    rename(partial, view)


@contextmanager
def _open_archive_cutter(
    needed_files: Wanted, root: Path, partial: Path, make_reader: MakeReader | None
) -> Iterator[Cut]:
    """What takes archives apart: a reader that may write below `part`, started only where there is an archive."""
    if not needed_files.archives or make_reader is None:
        yield subset
        return
    with make_reader(root, (partial,)) as reader:
        yield lambda source, target, keys: reader.ask(CUT, ToCut(source, target, dict(keys)))


def _of(whole: Wanted, *, raw: bool) -> Wanted:
    """Of what training cases need, the raw data, or what was made in the run."""
    return Wanted(
        frozenset(path for path in whole.files if path.startswith("data/") == raw),
        {path: keys for path, keys in whole.archives.items() if path.startswith("data/") == raw},
    )


def _restart_work_folder(
    run: Run, index: Index, find_needed_files: Needed, make_reader: MakeReader | None, image_facts: Mapping[str, str]
) -> None:
    """The new folder is whole before the old one is moved away, so that a crash in between leaves no doubt."""
    partial, scratch = run.folder / WORK_PART, run.folder / SCRATCH
    if not scratch.is_dir():
        remove_tree(partial)
        for folder in ("Datapath", "Logout", "data"):
            (partial / folder).mkdir(parents=True)
        (partial / TRAIN).write_bytes(for_training(index))
        (partial / LABELS).write_bytes((run.locked / LABELS).read_bytes())
        (partial / ABOUT).write_text(json.dumps(dict(image_facts), ensure_ascii=False), encoding="utf-8")
        needed_files = _of(find_needed_files(), raw=False)
        with _open_archive_cutter(needed_files, run.locked, partial, make_reader) as cut_archive:
            make_view(needed_files, run.locked, lambda path: partial / path, link=False, cut=cut_archive)
        rename(run.work, scratch)
    if partial.is_dir():
        remove_tree(run.work)
        rename(partial, run.work)


def _replace_link(link: Path, target: Path) -> None:
    """A link that leads there, in place of whatever else stands there."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    if os.path.lexists(link):
        remove_tree(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target, target_is_directory=True)


def _link_data_folders(run: Run, targets: Mapping[str, Path]) -> None:
    data = run.work / "data"
    if data.is_symlink() or not data.is_dir():
        remove_tree(data)
    for name in os.listdir(data) if data.is_dir() else []:
        if name not in targets and (data / name).is_symlink():
            (data / name).unlink()
    for name, target in targets.items():
        _replace_link(data / name, target)
    _replace_link(run.work / "resources", run.resources)


# --- for people, afterwards ---------------------------------------------------------------------------------------


def end_training(run: Run, raw: Mapping[str, Path], task: str, *, keep_view: bool) -> None:
    """Put back for people what training did not see: the links to the raw data, the test cases of the index.

    Args:
        keep_view: whether the run may be resumed, which needs the view again.
    """
    if not (run.folder / SCRATCH).is_dir():
        return
    index = read_index(run.locked, task)
    _link_data_folders(run, raw)
    write_whole(run.work, TEST, read_bytes(run.locked, TEST))
    write_whole(run.work, AUDIT, read_bytes(run.folder, AUDIT))
    for path in _list_test_only_files(index, run.locked):
        write_whole(run.work, path, read_bytes(run.locked, path, most=2**40))
    if not keep_view:
        remove_tree(run.folder / VIEW)


def _remove_test_files(run: Run, index: Index) -> None:
    """Undo `end_training` where a run is resumed."""
    for path in (TEST, AUDIT, *_list_test_only_files(index, run.locked)):
        copied_file = run.work / path
        if not os.path.lexists(copied_file):
            continue
        try:
            source_folder = run.folder if path == AUDIT else run.locked
            is_same = read_bytes(run.work, path, most=2**40) == read_bytes(source_folder, path, most=2**40)
        except OSError:
            continue  # not what m3b put there
        if is_same:
            copied_file.unlink()


def _list_test_only_files(index: Index, locked: Path) -> list[str]:
    """Whole files that were made for test cases and that no training case has."""
    if not made_files(index.test):
        return []
    test_files = wanted_by(index.test, locked).files - wanted_by(index.train, locked).files
    return sorted(path for path in test_files if not path.startswith("data/"))
