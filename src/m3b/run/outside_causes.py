"""Causes of a failed run that lie outside of it and that the user can remove: a full disk, data that were moved away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.agents.roles import BUILTIN_ROLES
from m3b.run.folder import RunFolder

MIN_FREE_BYTES = 4 << 20
"""Less free space than this counts as a full disk."""


@dataclass(frozen=True)
class OutsideCause:
    """Why a run failed.

    Args:
        code: `data_moved` or `disk_full`.
        remedy: what to do before the run is resumed.
    """

    code: str
    message: str
    remedy: str


def find_outside_cause(run: RunFolder, record: Mapping[str, Any]) -> OutsideCause | None:
    """Return what keeps the run from going on now; None if its data are there and its disk has room.

    Args:
        record: the content of run.json.
    """
    missing = [folder for folder in list_data_folders(record) if not Path(folder).exists()]
    if missing:
        message = f"The data folder {missing[0]} is not there any more: it was moved, renamed or unmounted."
        return OutsideCause("data_moved", message, f"Bring {missing[0]} back")
    free_bytes = shutil.disk_usage(run.path).free if run.path.is_dir() else None
    if free_bytes is not None and free_bytes < MIN_FREE_BYTES:
        message = f"The disk of {run.path} is full ({free_bytes / 2**20:.1f} MiB are free)."
        return OutsideCause("disk_full", message, "Make room on that disk")
    return None


def explain_outside_cause(cause: OutsideCause, run: RunFolder, reason: str) -> str:
    """Return the reason of a failed run with its cause first, without advice for other problems."""
    for role in BUILTIN_ROLES:
        reason = reason.removesuffix(role.failure_message.advice)
    return f"{cause.message} {cause.remedy}, then `{run.format_command('resume')}` goes on. {reason}".strip()


def list_data_folders(record: Mapping[str, Any]) -> list[str]:
    """Return the data folders of a run."""
    cards = record.get("data")
    cards = cards if isinstance(cards, list) else []
    return [str(card["path"]) for card in cards if isinstance(card, dict) and card.get("path")]
