"""The manifest that the accepted index of a run was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.errors import DataError, UsageError
from m3b.journal import salvage_journal
from m3b.run.folder import RunFolder
from m3b.run.index_validation import MANIFEST_FILE
from m3b.run.manifests import ORIGIN_SCRIPT
from m3b.run.record import restore_workspace
from m3b.run.state import RunState

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest


def load_accepted_manifest(run: RunFolder) -> tuple[Manifest, Path]:
    """Return the manifest of a run's accepted index, and the data folder that it describes.

    Raises:
        UsageError: no index was accepted, a script made the index, or the data folder is missing.
    """
    from m3b.dataset.manifest.overrides import parse_manifest

    state = RunState.from_events(salvage_journal(run.journal_file).events)
    index, selection = state.index, state.selection
    if index is None or selection is None:
        raise UsageError(f"The run {run.id} has no index that was accepted.")
    if index.origin == ORIGIN_SCRIPT:
        raise UsageError(
            f"The index of the run {run.id} was made by a script of the Data Engineer, so there is no manifest of it. "
            "`m3b look DIR ... -o manifest.json` proposes one, which can be written as Croissant."
        )
    cards = restore_workspace(run.load_record()).cards
    root = cards[selection.card].path if selection.card in cards else None
    if root is None or not root.is_dir():
        raise UsageError(f"The data of the run {run.id} ({selection.card}) is not there any more. Name it with --data.")
    manifest_file = run.get_path(MANIFEST_FILE)
    try:
        return parse_manifest(json.loads(manifest_file.read_text("utf-8"))), root
    except (OSError, ValueError, DataError) as error:
        raise UsageError(
            f"{manifest_file} cannot be used: {error}. Earlier versions wrote another form; `m3b look DIR ... -o manifest.json` "
            "proposes a manifest in the form of this one."
        ) from error
