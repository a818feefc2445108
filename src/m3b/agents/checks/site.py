"""Before any token is spent: can the user's folders be read, and is there anything in them?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from m3b.data.cards import Card
from m3b.errors import NoDataset, RejectedData

LOOKED_AT = 20_000


def check_site(cards: Sequence[Card]) -> None:
    """Look at the folders of all cards that have one.

    Raises:
        NoDataset: no card has a folder at all.
        RejectedData: none of the folders can be read and holds a file; each is named with what is wrong.
    """
    here = [card for card in cards if card.path is not None]
    if not here:
        raise NoDataset(
            "No data set is on this machine: give --data a folder with raw data, or a data card whose `path` exists."
        )
    faults = [fault for card in here if card.path and (fault := _fault(card.path))]
    if len(faults) == len(here):
        raise RejectedData(" ".join(faults))


def _fault(folder: Path) -> str:
    if not folder.is_dir():
        return f"The folder {folder} is not there; mend the `path` of its data card."
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"The folder {folder} cannot be read; check its permissions (ls -ld)."
    for seen, (_, _, files) in enumerate(os.walk(folder)):
        if any(not name.startswith(".") for name in files):
            return ""
        if seen > LOOKED_AT:
            break
    return f"The folder {folder} holds no files; point --data at the folder with the images."
