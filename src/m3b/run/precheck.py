"""Checks before a run begins, without creating a folder or asking a language model.

Only certain mistakes are refused here. Whether a folder serves a request, the decision on it says (`m3b.run.decision`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from m3b.data.cards import Card
from m3b.data.links import WHAT_TO_DO, Inside
from m3b.errors import DataRejected, NoDatasetFound, UsageError
from m3b.request_words import fold_accents
from m3b.run.external_sources import ExternalSource, check_external_sources
from m3b.run.folder import get_runs_root

MAX_ENTRIES = 20_000


def check_data_folders(cards: Sequence[Card]) -> None:
    """Check that at least one card has a data folder that can be read and holds a file.

    Raises:
        NoDatasetFound: no card has a folder.
        DataRejected: no folder can be used; the message says what is wrong with each.
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


def check_data_is_there(cards: Sequence[Card]) -> None:
    """Refuse data that cannot be used at all, before anything is made.

    Raises:
        UsageError: see `check_data_folders`.
    """
    try:
        check_data_folders(cards)
    except (NoDatasetFound, DataRejected) as error:
        raise UsageError(str(error)) from error


def _find_folder_problem(folder: Path, data_roots: Inside) -> str:
    if not folder.is_dir():
        return f"The folder {folder} is not there; fix the `path` of its data card."
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"The folder {folder} cannot be read; check its permissions (ls -ld)."
    first_problem = ""
    entry_count = 0
    for parent, subfolders, files in os.walk(folder):
        entry_count += 1
        linked_folders = [path for name in subfolders if os.path.islink(path := f"{parent}/{name}")]
        if linked_folders and not first_problem:
            first_problem = _describe_linked_folder(linked_folders[0])
        for name in files:
            entry_count += 1
            if not name.startswith("."):
                if not (link_problem := _find_link_problem(f"{parent}/{name}", data_roots)):
                    return ""
                first_problem = first_problem or link_problem
        if entry_count > MAX_ENTRIES:
            break
    return first_problem or f"The folder {folder} holds no files; point --data at the folder with the images."


def _describe_linked_folder(path: str) -> str:
    return (
        f"The data holds no files, only links to folders, which are not followed: {path} leads to "
        f"{os.path.realpath(path)}. {WHAT_TO_DO}"
    )


def _find_link_problem(path: str, data_roots: Inside) -> str:
    """Return why a file that is a link cannot be read; '' if it can."""
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


_CLAUSE_START = r"(?:^|[.;:,!]\s*|\b(?:and|then|also|plus|that|which|und|dann|et|puis|qui|y|luego|que|to|zu)\s+)"
_FILLER_WORDS = r"(?:(?:and|then|also|please|to|can|auch|bitte|aussi|tambien)\s+)*"
_ORDER_START = _CLAUSE_START + _FILLER_WORDS
"""Beginning of a clause that gives an order, in texts without accents."""


def check_locations(cards: Iterable[Card], out: Path | None, external_sources: Iterable[ExternalSource] = ()) -> None:
    """Raise UsageError if the run folder or an external set overlaps with the data.

    Scripts may write to the run folder only, and training must not see external sets.
    """
    check_external_sources(external_sources, cards, out)
    run_folder = (out if out is not None else get_runs_root()).expanduser().absolute().resolve()
    subject = f"The run folder {out}" if out is not None else f"The folder for runs, {run_folder},"
    for card in cards:
        data = card.path.resolve() if card.path else None
        if data and run_folder.is_relative_to(data):
            raise UsageError(
                f"{subject} would lie inside the data {data}, which stays as it is. Give --out a folder outside of it."
            )
        if data and out is not None and data.is_relative_to(run_folder):
            raise UsageError(f"The data {data} lies inside the run folder {out}. Give --out a folder of its own.")


def check_request(request: str) -> None:
    """Raise UsageError if a request holds no words."""
    if not isinstance(request, str):
        raise UsageError(f'The request must be a text, such as "Tell pneumonia from normal"; it is {request!r}.')
    if not request.strip():
        raise UsageError("The request is empty. Say in a sentence what the model shall tell from which images.")
    if not re.search(r"[^\W\d_]", request):
        raise UsageError(
            f"The request {request.strip()[:60]!r} holds no word. Say what the model shall tell from which images."
        )


def find_ordered_tasks(request: str) -> list[str]:
    """Return the tasks that a request orders in separate clauses, in order and without duplicates."""
    from m3b.tasks import list_families

    text, families_by_name = (
        fold_accents(" ".join(request.split())),
        {task_family.name: task_family for task_family in list_families()},
    )
    mentions = sorted(
        (match.start(), match.end(), task)
        for task, task_family in families_by_name.items()
        for match in (
            re.finditer(f"{_ORDER_START}{task_family.order_pattern}", text) if task_family.order_pattern else ()
        )
    )
    tasks: list[str] = []
    previous_end, previous_task = 0, ""
    for start, end, task in mentions:
        can_be_same_order = (
            previous_task
            and families_by_name[previous_task].can_share_clause()
            and families_by_name[task].can_share_clause()
        )
        is_same_order = can_be_same_order and not re.search(r"\w", text[previous_end:start])
        if task not in tasks and not is_same_order:  # "segment and classify nuclei" is one task on the same objects
            tasks.append(task)
        previous_end, previous_task = end, task
    return tasks
