"""Before any token is spent: can the user's folders be read, and is there anything in them?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from m3b.data.cards import Card
from m3b.data.links import WHAT_TO_DO, Inside
from m3b.errors import DataRejected, NoDatasetFound

MAX_ENTRIES = 20_000


def check_data_folders(cards: Sequence[Card]) -> None:
    """Look at the folders of all cards that have one.

    Raises:
        NoDatasetFound: no card has a folder at all.
        DataRejected: none of the folders can be read and holds a file; each is named with what is wrong.
    """
    cards_with_folder = [card for card in cards if card.path is not None]
    if not cards_with_folder:
        raise NoDatasetFound(
            "No data set is on this machine: give --data a folder with raw data, or a data card whose `path` exists."
        )
    data_roots = Inside(card.path for card in cards_with_folder if card.path)
    problems = [
        problem for card in cards_with_folder if card.path and (problem := _find_folder_problem(card.path, data_roots))
    ]
    if len(problems) == len(cards_with_folder):
        raise DataRejected(" ".join(problems))


def _find_folder_problem(folder: Path, data_roots: Inside) -> str:
    if not folder.is_dir():
        return f"The folder {folder} is not there; fix the `path` of its data card."
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"The folder {folder} cannot be read; check its permissions (ls -ld)."
    first_problem = ""
    entry_count = 0
    for parent, _, files in os.walk(folder):
        entry_count += 1
        for name in files:
            entry_count += 1
            if not name.startswith("."):
                if not (link_problem := _find_link_problem(f"{parent}/{name}", data_roots)):
                    return ""
                first_problem = first_problem or link_problem
        if entry_count > MAX_ENTRIES:
            break
    return first_problem or f"The folder {folder} holds no files; point --data at the folder with the images."


def _find_link_problem(path: str, data_roots: Inside) -> str:
    """Why a file cannot be read for being a link; empty where it can."""
    if not os.path.islink(path):
        return ""
    target = data_roots.real(path)
    if not os.path.exists(path):
        return (
            f"The files in the data are links to files that are not there: {path} leads to {target}. If the data is "
            "managed by datalad or git-annex, fetch the content first (datalad get . or git annex get .)."
        )
    if path in data_roots:
        return ""
    return f"The files in the data are links that lead out of it: {path} leads to {target}. {WHAT_TO_DO}"
