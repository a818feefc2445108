"""Choice of the manifest proposal that answers a request, the same for `m3b look`, `Pipeline.plan` and runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from m3b.data.cards import Card, card_for_folder, own_notes
from m3b.errors import DataError, UsageError

if TYPE_CHECKING:
    from m3b.data.spec.given import Given

SURVEY_S = 90.0
MIN_PROPOSED_SCORE = 0.2
"""Minimum score of a proposal for a guessed task; below it, other tasks are tried."""
_CLASSES_WANTED = re.compile(
    r"\b(?:classif(?:y|ies|ication)|distinguish|differentiate|tell\b.+\b(?:from|apart)|whether)\b", re.I | re.S
)
"""Words that ask for the class of an image; the request is then not read as segmentation, even if there are masks."""

Propose = Callable[[str, bool | None], Mapping[str, Any]]
"""Returns the answer of the job `propose` for a task; if the second argument is True, for boxes as the only targets."""


@dataclass(frozen=True)
class ChosenProposal:
    """The task that fits request and folder, and the manifest proposals for it.

    Args:
        boxes: whether boxes alone were requested; None leaves it to the data.
        answer: answer of the job `propose`: `readings` (the proposals, best first), `insufficient`, and more.
    """

    task: str
    boxes: bool | None
    answer: Mapping[str, Any]


def proposal_job(request: str, card: Card, overrides: Given | None) -> dict[str, Any]:
    """Return a job that proposes manifests of a card's folder, without the task.

    For a folder without a card, only the notes in the folder are used.
    """
    return {
        "do": "propose",
        "request": request,
        "classes": [],
        "notes": _notes(card),
        "seconds": SURVEY_S,
        "patient_key": card.patient_key,
        "root": str(card.path),
        "given": overrides.model_dump(mode="json", exclude_defaults=True) if overrides is not None else {},
    }


def _notes(card: Card) -> str:
    if card.path is None:
        return card.text()
    notes = own_notes(card.path)
    has_card = replace(card, task="", classes=()) != card_for_folder(card.path)
    return f"{card.text()}\n{notes}" if has_card else notes


def choose_proposal(request: str, propose: Propose, *, task: str = "") -> ChosenProposal:
    """Return the proposal for the task of a request.

    If the request names no task and nothing is found for the guessed one, other tasks are tried.

    Args:
        task: the task named by the user or the data card; '' derives it from the request.

    Raises:
        UsageError: the request is empty, and no task is named.
    """
    guess = task or guess_task(request)
    choice = ChosenProposal(guess, _wants_boxes(guess, request), {})
    choice = replace(choice, answer=_propose_for_task(propose, choice))
    if task or any(proposal["score"] >= MIN_PROPOSED_SCORE for proposal in choice.answer["readings"]):
        return choice
    for name in other_tasks(request):
        alternative = ChosenProposal(name, _wants_boxes(name, request), {})
        answer = _propose_for_task(propose, alternative)
        if answer["readings"] and not (answer["insufficient"] and choice.answer["readings"]):
            return replace(alternative, answer=answer)
    return choice


def _propose_for_task(propose: Propose, choice: ChosenProposal) -> Mapping[str, Any]:
    """Return the answer for a task; if the job fails, an answer without proposals and with the error."""
    try:
        answer = propose(choice.task, choice.boxes)
    except DataError as error:
        answer = {"error": str(error)}
    if "error" in answer:
        return {"readings": [], "insufficient": str(answer["error"]), "error": str(answer["error"])}
    return answer


def _wants_boxes(task: str, request: str) -> bool | None:
    from m3b.tasks import get_family

    return True if get_family(task).list_metrics_of("boxes") and "box" in request.casefold() else None


def guess_task(request: str) -> str:
    """Return the task that a request names; diagnosis if it names none.

    Raises:
        UsageError: the request is empty.
    """
    from m3b.tasks import find_requested_task

    if not request.strip():
        raise UsageError("The request is empty. Say in a sentence what the model shall tell from which images.")
    return find_requested_task(request) or "diagnosis"


def other_tasks(request: str) -> tuple[str, ...]:
    """Return other tasks that a request without a named task may mean, hinted first; none if it asks for classes."""
    from m3b.agents.briefing import build_task_options

    if _CLASSES_WANTED.search(request):
        return ()
    task_options = build_task_options(request)
    if any(option.asked for option in task_options):
        return ()
    mask_options = [option for option in task_options if "masks" in option.needs]
    return tuple(option.name for option in sorted(mask_options, key=lambda option: not option.hinted))


def task_for_card(request: str, card_task: str) -> str:
    """Return the task for which the data of a card is read; '' if the card names none.

    This is the task that the request names if the card's data can serve it, else the card's own task.
    """
    from m3b.tasks import find_requested_task, get_family, list_families

    requested = find_requested_task(request)
    if not card_task or not requested or card_task not in {family.name for family in list_families()}:
        return card_task
    requested_family, card_family = get_family(requested), get_family(card_task)
    can_serve = (
        card_task == requested
        or card_task in requested_family.related_tasks
        or set(requested_family.required_targets) & set(card_family.required_targets)
    )
    return requested if can_serve else card_task
