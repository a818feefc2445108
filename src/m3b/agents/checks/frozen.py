"""The hand-over of an index, frozen: copies of its files and of all that scripts made for its cases.

What is audited and accepted is this copy, which no script can reach; m3b writes the index files in it anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.checks.integrity import INDEX_FILES, RAW_FOLDER
from m3b.agents.checks.locked import RESERVED_NAMES, list_derived_files
from m3b.data.index import LABELS, TEST, TRAIN, Index, Mask, Record, read_index, write_records
from m3b.data.records import relocated
from m3b.data.schemas import json_schema
from m3b.data.sides import sides
from m3b.errors import DataError
from m3b.untrusted import UnsafePathError, is_folder, read_bytes, remove_tree, walk
from m3b.untrusted.trees import copy_file

MAX_INDEX_BYTES = 2**30


def freeze_index(work: Path, target: Path, raw_folders: Mapping[str, Path], task: str) -> list[str]:
    """Copy an index and what its records rest on to `target`, with links to the raw data below `target/data`.

    Links are not followed, but for those that lead into the raw data, of which the content is copied.

    Args:
        raw_folders: the folders of raw data by the names that records give them.

    Returns:
        What was left out of the index files, in words.

    Raises:
        DataError: a file that cannot be taken: a link to elsewhere, a pipe, a name that m3b uses itself.
    """
    remove_tree(target)
    (target / RAW_FOLDER).mkdir(parents=True)
    for name, folder in raw_folders.items():
        (target / RAW_FOLDER / name).symlink_to(folder, target_is_directory=True)
    notes: list[str] = []
    contents = {}
    for name in INDEX_FILES:
        try:
            contents[name] = _copy_index_file(work, target, name)
        except FileNotFoundError:
            continue  # the check says that it is missing
        except OSError as error:
            raise DataError(f"{name} cannot be taken: {error.strerror}.") from error
    try:
        index = read_index(target, task)
    except DataError:
        return notes  # the check says what is wrong
    for name in (TRAIN, TEST):
        notes += _describe_unknown_keys(name, contents[name], task)
    index = replace(index, train=_normalize_paths(index.train), test=_normalize_paths(index.test))
    write_index(target, index)
    for path in list_derived_files(index.records):
        _copy_derived(work, path, target, [Path(os.path.realpath(folder)) for folder in raw_folders.values()])
    return notes


def _copy_index_file(work: Path, target: Path, name: str) -> bytes:
    content = read_bytes(work, name, MAX_INDEX_BYTES)
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    (target / name).write_bytes(content)
    return content


def _describe_unknown_keys(name: str, content: bytes, task: str) -> list[str]:
    known_keys = set(json_schema(task)["items"]["properties"])
    items: list[dict[str, Any]] = json.loads(content.decode("utf-8-sig"))
    unknown_keys = sorted({key for item in items for key in item} - known_keys)
    if not unknown_keys:
        return []
    key_list = ", ".join(repr(key[:40]) for key in unknown_keys[:5]) + (", ..." if len(unknown_keys) > 5 else "")
    return [f"{name}: the keys {key_list} are not part of the index and were left out."]


def write_index(folder: Path, index: Index) -> None:
    """The three index files as m3b writes them: what the schema knows and nothing else."""
    write_records(folder / TRAIN, index.train, index.task)
    write_records(folder / TEST, index.test, index.task)
    (folder / LABELS).write_text(json.dumps(index.values, indent=1, ensure_ascii=False), encoding="utf-8")


def _normalize_paths(records: Sequence[Record]) -> tuple[Record, ...]:
    """Records whose paths are spelt in one way only, without `./` and `//`."""

    def normalize(path: str) -> str:
        file, mark, item = path.partition("#")
        normalized = "/".join(part for part in file.split("/") if part not in ("", "."))
        return f"{'/' if file.startswith('/') else ''}{normalized}{mark}{item}"

    def normalize_mask(mask: Mask | None) -> Mask | None:
        if mask is None or isinstance(mask, str):
            return mask and normalize(mask)
        if isinstance(mask, Mapping):
            return {name: normalize(path) for name, path in mask.items()}
        return tuple(map(normalize, mask))

    return tuple(
        replace(
            record,
            image=relocated(record.image, normalize),
            mask=normalize_mask(record.mask),
        )
        for record in records
    )


def _copy_derived(work: Path, path: str, target: Path, raw_folders: Sequence[Path]) -> None:
    """Copy one file or folder that a record names; one that is not there is left to the check."""
    if path.startswith("/") or ".." in path.split("/"):
        return  # the check refuses it
    if path.split("/")[0] in RESERVED_NAMES:
        raise DataError(f"{path!r}: {path.split('/')[0]} is a name that m3b uses; write below Datapath/.")
    try:
        root, name = _locate_source(work, path, raw_folders)
        if is_folder(root, name):
            for entry in walk(root, name):
                if entry.kind != "folder":
                    _copy_with_sidecars(work, f"{path}/{entry.name}", target, raw_folders)
        else:
            _copy_with_sidecars(work, path, target, raw_folders)
    except FileNotFoundError:
        return
    except UnsafePathError as error:
        raise DataError(
            f"{path!r} is a link to somewhere else, or no plain file ({error.strerror}); name the file in data/<name>/, "
            "or write a copy."
        ) from error


def _copy_with_sidecars(work: Path, path: str, target: Path, raw_folders: Sequence[Path]) -> None:
    root, name = _locate_source(work, path, raw_folders)
    copy_file(root, name, target, path)
    parent = path.rpartition("/")[0]
    for sidecar in sides(target / path, beside=(root / name).parent):  # told by the copy, which nobody changes any more
        copy_file(root, Path(name).parent / sidecar, target, f"{parent}/{sidecar}" if parent else sidecar)


def _locate_source(work: Path, path: str, raw_folders: Sequence[Path]) -> tuple[Path, str | Path]:
    """Where the content lies: in `work` under this very path, or in the raw data that a link leads to."""
    real = Path(os.path.realpath(work / path))
    for folder in raw_folders:
        if real.is_relative_to(folder):
            return folder, real.relative_to(folder)
    return work, path
