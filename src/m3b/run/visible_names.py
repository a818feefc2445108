"""Names of files that tell labels: Landlock cannot hide from scripts that a file exists."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from m3b.data.index import Index, names_in
from m3b.errors import DataError, RunFailed
from m3b.run.folder import RunFolder
from m3b.run.index_validation import MANIFEST_FILE

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest
    from m3b.run.options import SandboxMode

_WORD = re.compile(r"[^\W\d_]+|\d+")


def check_visible_names(run: RunFolder, index: Index, sandbox_name: str, mode: SandboxMode) -> None:
    """Refuse a run under Landlock in which names of files tell labels of test cases.

    Args:
        mode: what the user asked for; `landlock` accepts such a run.

    Raises:
        RunFailed: names tell labels; the run can be resumed with another sandbox.
    """
    if sandbox_name != "landlock" or mode == "landlock":
        return
    if evidence := find_label_in_names(index, _read_manifest(run)):
        raise RunFailed(
            f"File names tell the labels of test cases ({evidence}), and Landlock, the only sandbox that works here, cannot hide "
            f"them from scripts: install bubblewrap and resume, or accept this with `{run.format_command('resume')} "
            "--sandbox landlock`."
        )


def _read_manifest(run: RunFolder) -> Manifest | None:
    from m3b.dataset.manifest.overrides import parse_manifest

    try:
        return parse_manifest(json.loads((run.path / MANIFEST_FILE).read_text("utf-8")))
    except (OSError, ValueError, DataError):
        return None  # a script made the index


def find_label_in_names(index: Index, manifest: Manifest | None) -> str:
    """Return the part of the manifest, or the class, that shows that file names tell labels of test cases; else ''.

    A file with several cases, such as an archive, tells the label of none. A class is named if the paths of all its test
    cases hold its words, and those of some other test case do not.
    """
    uses = Counter(file for record in index.test for file in set(record.files))
    paths = {
        record.key: [f" {_join_words(file)} " for file in record.files if uses[file] == 1] for record in index.test
    }
    if not any(paths.values()):
        return ""
    for part, template in _list_target_templates(manifest):
        if _has_path_column(template):
            return f"{part}: {template}"
    for name in index.classes:
        words = f" {_join_words(name)} "
        is_named = {True: [True], False: [True]}  # has the class -> is named, for each test case
        for record in index.test:
            is_named[name in names_in(record)].append(any(words in path for path in paths[record.key]))
        if len(is_named[True]) > 1 and all(is_named[True]) and not all(is_named[False]):
            return f"class {name}"
    return ""


def _join_words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _list_target_templates(manifest: Manifest | None) -> Iterator[tuple[str, str]]:
    """Yield the templates, with the parts that hold them, of what a model learns of a case as a whole."""
    if manifest is None:
        return
    if manifest.labels:
        values = [manifest.labels.value] if manifest.labels.value else manifest.labels.columns.values()
        yield from (("labels", value.value) for value in values)
    if manifest.states:
        yield "states", manifest.states.value.value
    if manifest.value:
        yield "value", manifest.value.value.value
    if manifest.survival:
        yield "survival", manifest.survival.time.value.value
        yield "survival", manifest.survival.event.value


def _has_path_column(template: str) -> bool:
    """Return whether a template takes something from the path: columns of tables and headers have a dot in their names."""
    from m3b.dataset.manifest.patterns import RESERVED_SLOTS
    from m3b.dataset.manifest.templates import parse_template

    return any("." not in field.name and field.name not in RESERVED_SLOTS for field in parse_template(template).fields)
