"""Safe access to files that a script of an agent may have created or replaced: open, list, copy, write and hash them.

Every function takes a root that m3b trusts and a name below it. The path from the root to the name is opened one folder
at a time by descriptors, and links in it are refused, so that a folder or file that is replaced between two steps
cannot lead elsewhere. Only regular files are opened, without blocking, and only up to a maximum size.
"""

from __future__ import annotations

from m3b.isolation.untrusted.file_watch import announce_opening, report_progress, should_open_one_by_one
from m3b.isolation.untrusted.json_text import TooDeep, iterate_json_list, parse_data_json, parse_json
from m3b.isolation.untrusted.paths import (
    UnsafePathError,
    hash_file,
    is_file,
    is_folder,
    make_folder,
    open_below,
    open_file,
    read_blocks,
    read_bytes,
    read_json,
    read_start,
    read_text,
    write_atomic,
)
from m3b.isolation.untrusted.temporary import TemporaryFolder, remove_tree
from m3b.isolation.untrusted.trees import TreeEntry, clone_file, copy_file, copy_tree, hash_tree, list_entries, walk

__all__ = [
    "TemporaryFolder",
    "TooDeep",
    "TreeEntry",
    "UnsafePathError",
    "clone_file",
    "copy_file",
    "copy_tree",
    "hash_tree",
    "list_entries",
    "is_file",
    "is_folder",
    "make_folder",
    "open_below",
    "open_file",
    "report_progress",
    "should_open_one_by_one",
    "announce_opening",
    "iterate_json_list",
    "parse_data_json",
    "parse_json",
    "read_blocks",
    "read_bytes",
    "read_json",
    "read_start",
    "read_text",
    "remove_tree",
    "hash_file",
    "walk",
    "write_atomic",
]
