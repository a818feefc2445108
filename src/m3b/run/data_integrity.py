"""Integrity of raw data and locked files from before the first script to the delivery of the model."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.checks.index_lock import (
    RawFingerprint,
    check_integrity,
    digest_derived_files,
    fingerprint_folder,
    list_derived_files,
)
from m3b.data.index import read_index
from m3b.remote.origin import Origin
from m3b.remote.store import find_changes as find_mirror_changes
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from m3b.run.folder import RunFolder
    from m3b.run.services import RunServices

RAW_DATA_FILE = "raw.json"
"""File below `locked/` with the fingerprint of the raw data."""


def record_raw_fingerprint(services: RunServices, selection: Selection) -> None:
    """Take and store the fingerprint of the raw data before any script has run; a stored one is loaded instead."""
    file, card = services.folder.locked / RAW_DATA_FILE, services.card_of(selection)
    stored = _read_raw_fingerprint(file)
    if stored is not None:
        services.raw_fingerprint = stored
    elif card.path:
        change_times = services.sandbox.name == "off"
        services.raw_fingerprint = RawFingerprint(_fingerprint_data(card.path, card.origin, change_times), change_times)
        write_text_atomically(file, json.dumps(asdict(services.raw_fingerprint)))


def has_raw_data_changed(run: RunFolder, folder: Path, origin: Origin | None) -> bool:
    """Return whether the data folder of a run differs from its fingerprint; False if the run stored none.

    Args:
        origin: where the folder was mirrored from; None for local data.
    """
    stored = _read_raw_fingerprint(run.locked / RAW_DATA_FILE)
    return stored is not None and _fingerprint_data(folder, origin, stored.change_times) != stored.fingerprint


def _fingerprint_data(folder: Path, origin: Origin | None, change_times: bool) -> str:
    """Return a digest of a data folder.

    That of a mirrored one does not depend on inodes and change times: other mirrors link to the same files, and a folder
    that was removed can be fetched again. So contents are compared if scripts could have written to it.
    """
    if origin is None:
        return fingerprint_folder(folder, change_times=change_times)
    return "; ".join([f"mirror {origin.digest}", *find_mirror_changes(folder, origin, with_content=change_times)])


def _read_raw_fingerprint(file: Path) -> RawFingerprint | None:
    """Return the stored fingerprint; None if there is none or a crash left it incomplete.

    It is written before the first script runs, so an incomplete one can be made again.
    """
    with contextlib.suppress(OSError, ValueError):
        stored = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(stored, dict) and stored.get("fingerprint"):
            return RawFingerprint(str(stored["fingerprint"]), bool(stored.get("change_times", True)))
    return None


def verify_integrity(services: RunServices, selection: Selection, data: DataIndex) -> str:
    """Return what changed in the raw data, the index and all locked files since the index was accepted."""
    run, raw_before = services.folder, services.raw_fingerprint
    card = services.card_of(selection)
    raw_after = _fingerprint_data(card.path, card.origin, raw_before.change_times) if card.path else ""
    derived_files = list_derived_files(read_index(run.locked, data.task).all_images)
    return check_integrity(
        run.work,
        run.locked,
        data.hashes,
        raw_before.fingerprint,
        raw_after,
        data.task,
        derived_digest=digest_derived_files(run.locked, derived_files) if derived_files else None,
    )
