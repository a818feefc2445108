"""Choosing a data set by the words that request and data sets share, and the task by both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from m3b.facts import Answer, DatasetOption, SelectionBrief, TaskOption
from m3b.llm.rules.evidence import collect_card_text, find_target_kinds, has_only_masks
from m3b.llm.rules.view import StageView
from m3b.messages import ToolCall
from m3b.request_words import (
    BEYOND_IMAGE_PATTERNS,
    STOP_WORDS,
    extract_words,
    find_anatomy,
    find_modality,
    fold_accents,
    is_about_images,
)

MAX_EXPLAINED_CARDS = 3
"""Data sets of which it is said why they do not serve."""
ADVICE = "Point --data at a folder that shows it, or say in its README.md or data card what the images are."


def select_card(brief: SelectionBrief, view: StageView) -> str | list[ToolCall]:
    """The closing JSON of the selection stage."""
    if view.rejection:
        return _format_refusal(f"The rules cannot fix this: {' '.join(view.rejection.faults)[:300]}")
    if view.answer:
        return _follow_answer(brief, view.answer)
    matching_cards = [card for card in brief.cards if _matches_request(brief, card)] or _readable(brief)
    if not matching_cards:
        return _format_refusal(_why_none(brief))
    best = max(matching_cards, key=lambda candidate: _score_card(brief.request, candidate))
    task = choose_task(brief, best)
    if task is None:  # a task that the brief does not offer
        return _format_refusal(_why_none(brief))
    reason = "Its card or folder shares most with the request."
    return _format_choice(
        best, task, "The user named it, and nothing speaks against it." if _alone(brief, best) else reason
    )


def _why_none(brief: SelectionBrief) -> str:
    """What speaks against the one data set that the user named, or against each of several."""
    only = brief.cards[0] if len(brief.cards) == 1 else None
    if only is not None and only.read.chosen is not None:
        return only.read.chosen.insufficient or f"{only.name} cannot be read for the request."
    if only is not None and _alone(brief, only) and (against := contradiction(brief, only)):
        return f"{against}. {ADVICE}"
    requested = _find_requested_task(brief)
    need = f"what a {requested.name} model needs" if requested else "what the request asks for"
    differences = "; ".join(
        difference
        for card in brief.cards[:MAX_EXPLAINED_CARDS]
        if (difference := _describe_difference(brief.request, card))
    )
    explanation = f" {differences}." if differences else ""
    return f"No data on this machine speaks of {need}. Data here: {_list_card_names(brief)}.{explanation} {ADVICE}"


def _alone(brief: SelectionBrief, card: DatasetOption) -> bool:
    """Whether the user named this data set and no other is here: which one is meant is then no question."""
    return card.named and len(brief.cards) == 1


def _readable(brief: SelectionBrief) -> list[DatasetOption]:
    """Of several data sets that the user named, the only one that can be read for the request; none if several can."""
    cards = [card for card in brief.cards if card.named and _is_readable(card) and not contradiction(brief, card)]
    return cards if len(cards) == 1 else []


def _is_readable(card: DatasetOption) -> bool:
    """Whether `m3b look` shows a manifest for the request that may be taken without asking."""
    return card.read.chosen is not None and card.read.chosen.decision == "proposed"


def contradiction(brief: SelectionBrief, card: DatasetOption) -> str:
    """What a data set says against serving the request; empty if nothing.

    Of a folder that was surveyed the decision says it. Of others: another organ, another kind of image, a card of another
    task; a request for other signals or for the future of which the data tells nothing.
    """
    if card.read.chosen is not None:
        return card.read.chosen.insufficient if card.read.chosen.decision == "refuse" else ""
    request, task = brief.request, choose_task(brief, card)
    if task is None:
        requested = _find_requested_task(brief)
        return f"{card.name} does not show what a {requested.name if requested else card.task} model needs"
    shows_times = "times" in task.needs and "times" in find_target_kinds(card)
    if is_beyond_images(request, collect_card_text(card)) and not shows_times:
        return (
            f"The request asks for other signals than images, or for what will happen later, and {card.name} tells "
            "nothing of that"
        )
    return _describe_difference(request, card)


def _describe_difference(request: str, card: DatasetOption) -> str:
    """In which organ or kind of image a data set and the request differ; empty where in neither."""
    for find_terms, preposition in ((find_anatomy, "of the"), (find_modality, "as")):
        requested, available = find_terms(request), _find_card_terms(find_terms, card)
        if requested and available and not requested & available:
            return (
                f"{card.name} shows images {preposition} {' and '.join(sorted(available))} by its names and notes, "
                f"and the request asks for "
                f"{' and '.join(sorted(requested))}"
            )
    return ""


def _follow_answer(brief: SelectionBrief, answer: Answer) -> str:
    """The data set that the user's answer names, whatever its words have in common with the request."""
    answer_words = _pad_words(answer.text)
    named_cards = [card for card in brief.cards if card.name == answer.card or _pad_words(card.name) in answer_words]
    if not named_cards:
        return _format_refusal(
            f"The rules find no data set in the answer {answer.text[:100]!r}. Data here: {_list_card_names(brief)}."
        )
    best = max(named_cards, key=lambda card: len(card.name))
    task = choose_task(brief, best)
    if task is None:
        requested_task = _find_requested_task(brief)
        return _format_refusal(
            f"{best.name} does not show what a {requested_task.name if requested_task else best.task} model needs."
        )
    return _format_choice(best, task, "The user named it.")


def _list_card_names(brief: SelectionBrief) -> str:
    return ", ".join(card.name for card in brief.cards) or "none"


def _pad_words(text: str) -> str:
    """The words of a text with a blank around each."""
    spaced = "".join(letter if letter.isalnum() else " " for letter in fold_accents(text))
    return f" {' '.join(spaced.split())} "


def _format_choice(best: DatasetOption, task: TaskOption, reason: str) -> str:
    choice: dict[str, object] = {
        "data_card": best.name,
        "task": task.name,
        "metric": _choose_metric(task, best),
        "classes": [],
        "plan": task.plan,
        "reason": reason,
    }
    return json.dumps(choice, ensure_ascii=False)


def _format_refusal(reason: str) -> str:
    return json.dumps({"data_card": None, "reason": reason}, ensure_ascii=False)


def _find_requested_task(brief: SelectionBrief) -> TaskOption | None:
    return next((task for task in brief.tasks if task.asked), None)


def choose_task(brief: SelectionBrief, card: DatasetOption) -> TaskOption | None:
    """The task for which a request may use a data set; None where the two do not go together.

    A folder that was surveyed serves the task of the decision. Of others, a card of a task that is kin to the one asked for
    serves that (grades are labels too); else a card's own task decides between tasks with a need in common, since "outline
    the tumour" may be segmentation or detection. A folder without a card must show what the task needs.
    """
    if card.read.chosen is not None and (decided_task := _offer(brief, card.read.chosen.task)) is not None:
        return decided_task
    requested, target_kinds = _find_requested_task(brief), find_target_kinds(card)
    card_task, alone = _offer(brief, card.task), _alone(brief, card)
    if card_task is not None:
        if requested is None:  # "detect" alone asks for places only where the data shows places
            return (
                card_task if alone or not card_task.needs or target_kinds & set(card_task.needs) - {"texts"} else None
            )
        if card_task.name in requested.kin:
            return requested
        return card_task if requested.name == card_task.name or set(requested.needs) & set(card_task.needs) else None
    if requested is not None:
        return (
            requested if len(brief.cards) == 1 or not requested.needs or target_kinds & set(requested.needs) else None
        )
    hinted_task = next((task for task in brief.tasks if task.hinted), None)
    if hinted_task is not None and "masks" in hinted_task.needs and has_only_masks(card):
        return hinted_task
    return next((task for task in brief.tasks if not task.needs), None)


def _offer(brief: SelectionBrief, name: str) -> TaskOption | None:
    return next((task for task in brief.tasks if task.name == name), None)


def _choose_metric(task: TaskOption, card: DatasetOption) -> str:
    """The card's metric if it is for this task, which knows it; of boxes one that boxes can be measured by, and of images that
    are known to be abnormal or not one of images."""
    metrics = _metrics_known(task, card)
    return card.metric if card.metric in metrics and card.task not in task.kin else metrics[0]


def _metrics_known(task: TaskOption, card: DatasetOption) -> tuple[str, ...]:
    """The metrics of a task that the data bears: those of the manifest's target, else by what previews show."""
    proposal = card.read.chosen
    if proposal is not None and proposal.task == task.name and proposal.target:
        by_target = {"boxes": task.box_metrics, "states": task.state_metrics}
        return by_target.get(proposal.target) or task.metrics
    return task.box_metrics if "boxes" in task.needs and "masks" not in find_target_kinds(card) else task.metrics


def _matches_request(brief: SelectionBrief, card: DatasetOption) -> bool:
    """Whether a data set serves: nothing in it contradicts the request, and both have something in common.

    The only data set that the user named needs nothing in common. Another that came without words may be in common with
    any request for a model on images, if there is no other.
    """
    if contradiction(brief, card):
        return False
    if _alone(brief, card):
        return True
    return _score_card(brief.request, card) > 0 or (len(brief.cards) == 1 and is_about_images(brief.request))


def is_beyond_images(request: str, card: str) -> bool:
    """Whether a request asks from other signals than images, or for the future, and the card knows nothing of that."""
    request_text, card_text = fold_accents(request), fold_accents(card)
    return any(
        re.search(pattern, request_text) and not re.search(pattern, card_text) for pattern in BEYOND_IMAGE_PATTERNS
    )


def _score_card(request: str, card: DatasetOption) -> float:
    request_words, card_text = extract_words(request) - STOP_WORDS, collect_card_text(card)
    shared_terms = len(find_anatomy(request) & _find_card_terms(find_anatomy, card)) + 0.5 * len(
        find_modality(request) & _find_card_terms(find_modality, card)
    )
    return len(request_words & extract_words(card_text)) / max(1, len(request_words)) + shared_terms


def _find_card_terms(find_terms: Callable[[str], set[str]], card: DatasetOption) -> set[str]:
    """The organs, or the kinds of image, that a data set is of: by its card's own field, and by all that it says."""
    return find_terms(card.anatomy if find_terms is find_anatomy else card.modality) | find_terms(
        collect_card_text(card)
    )
