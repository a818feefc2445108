"""Digests of what a run's result relies on, which the journal keeps so that `m3b verify` finds later edits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from m3b.agents.checks.index import AUDIT_FILE
from m3b.isolation import untrusted
from m3b.llm.ledger import LEDGER_FILE
from m3b.run.external_sets import EXTERNAL_FOLDER
from m3b.run.folder import RunFolder

RECORDED_FILES = (LEDGER_FILE, AUDIT_FILE, "locked/scores.json", "locked/hashes.json", "locked/raw.json")
"""Files of a run that the result relies on and that no other entry of the journal covers."""

UNHASHED_ENTRIES = ("result", "ended", "journal", "run_dir")
"""Entries of run.json that `RunEnded` covers, or that depend on where the folder is."""

SESSION_ENTRIES = ("format", "id", "status", "reason", "cause", "options.sandbox", "sandbox", "sandboxes", "engine")
"""Entries of run.json that a resumed run may change."""


def digest_entries(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each entry of run.json; `options.sandbox`, which `resume` may change, is its own entry."""
    stored = json.loads(json.dumps(record, default=str))
    entries = {key: value for key, value in stored.items() if key not in UNHASHED_ENTRIES}
    if isinstance(options := entries.get("options"), dict):
        entries["options"] = {key: value for key, value in options.items() if key != "sandbox"}
        entries["options.sandbox"] = options.get("sandbox")
    texts = {key: json.dumps(value, sort_keys=True) for key, value in entries.items()}
    return {key: hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items()}


def hash_recorded_files(run: RunFolder) -> dict[str, str]:
    """Return name -> SHA-256 of the files in `RECORDED_FILES` and of the cases and predictions of external sets."""
    external_files = sorted((run.locked / EXTERNAL_FOLDER).glob("*/*.json"))
    names = [*RECORDED_FILES, *(file.relative_to(run.path).as_posix() for file in external_files)]
    return {name: untrusted.hash_file(run.path, name) for name in names if untrusted.is_file(run.path, name)}
