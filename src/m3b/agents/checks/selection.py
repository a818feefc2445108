"""The check of what the Task Manager hands over."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.agents.artifacts import Selection
from m3b.agents.replies import find_object
from m3b.agents.verdict import Fault, Verdict, accepted, answered, rejected
from m3b.briefs import Answer
from m3b.data import kinds
from m3b.data.cards import Card
from m3b.data.kinds import DEFAULT
from m3b.errors import NoDataset
from m3b.metrics import canonical_metric
from m3b.metrics.table import table, tasks


def shape() -> str:
    """What a closing text must look like."""
    return (
        'Reply with one JSON object and nothing else: {"data_card": "<name>", "task": "diagnosis", "metric": "auroc", '
        f'"classes": [], "plan": "...", "reason": "..."}}; `task` is one of {", ".join(tasks())}.'
    )


NO_ANSWER = "The language model did not answer in the form that m3b asks for."
Ask = Callable[[str], str | None]


QUESTIONS = 3
"""So many questions of the agent are put to the user; then it decides by itself."""
YES = ("y", "yes", "ja", "j", "oui", "o", "si", "sí", "ok")
NO = ("n", "no", "none", "nein", "non", "keiner", "aucun", "ninguno")


def check_selection(text: str, cards: Mapping[str, Card], ask: Ask | None = None) -> Verdict:
    """The verdict on a first closing text; see `SelectionCheck`."""
    return SelectionCheck(cards, ask)(text)


class SelectionCheck:
    """Accepts a closing text that names a usable card, a task and a metric.

    Args:
        cards: all cards by name.
        ask: takes a question for the user and returns the answer; None where nobody can be asked. Which data set to use
            where none seems to serve is asked until the answer names one.
    """

    def __init__(self, cards: Mapping[str, Card], ask_user: Ask | None = None) -> None:
        self.cards, self.ask = cards, ask_user
        self._put = 0
        self._chosen = False

    def __call__(self, text: str) -> Verdict:
        raw = find_object(text)
        if raw is None:
            return rejected(Fault(f"Your reply holds no JSON object. {shape()}", NO_ANSWER))
        question = str(raw.get("question") or "").strip()
        if question and (answer := self._answer(question)):
            reply = f"The user answers your question ({question}): {answer} Decide now. {shape()}"
            return answered(reply, Answer(text=answer).plain())
        if raw.get("data_card") is None:
            return self._declined(str(raw.get("reason") or "No data card serves the request."))
        return _chosen(raw, self.cards)

    def _answer(self, question: str) -> str:
        if self.ask is None or self._put >= QUESTIONS:
            return ""
        self._put += 1
        return (self.ask(question) or "").strip()

    def _declined(self, reason: str) -> Verdict:
        """The end of the run, unless the user names a data set all the same."""
        available_cards = [card for card in self.cards.values() if card.path]
        if self._chosen or not available_cards:
            return rejected(reason, end=NoDataset, fatal=True)
        names = ", ".join(card.name for card in available_cards)
        answer = self._answer(
            f"No data set seems to serve the request: {reason} Which data set should be used? ({names})"
        )
        if not answer or answer.lower().strip(".! ") in NO:
            return rejected(reason, end=NoDataset, fatal=True)
        chosen_card = _named(answer, available_cards)
        self._chosen = chosen_card is not None
        instruction = f"use {chosen_card.name}." if chosen_card else answer
        facts = Answer(text=answer, card=chosen_card.name if chosen_card else "").plain()
        return answered(f"The user answers: {instruction} Decide again. {shape()}", facts)


def _named(answer: str, here: Sequence[Card]) -> Card | None:
    """The card that an answer is: its name or path, or yes where there is but one."""
    by_name = _card(answer.strip("'\".,! "), {card.name: card for card in here})
    by_path = [card for card in here if card.path and answer.rstrip("/") in (str(card.path), card.path.name)]
    if by_name or by_path:
        return by_name or by_path[0]
    return here[0] if len(here) == 1 and answer.lower().strip(".! ") in YES else None


def _chosen(raw: Mapping[str, Any], cards: Mapping[str, Card]) -> Verdict:
    name = raw["data_card"]
    card = _card(str(name), cards)
    if card is None:
        available_names = ", ".join(card.name for card in cards.values() if card.path)
        agent_message = f"There is no data card {name!r}. Those with data on this machine: {available_names}."
        user_message = (
            f"The agent chose {name!r}, and there is no such data set. On this machine there are: {available_names}."
        )
        return rejected(Fault(agent_message, user_message), end=NoDataset)
    if card.path is None or not os.access(card.path, os.R_OK | os.X_OK):
        state = "not on this machine" if card.path is None else f"not readable at {card.path}"
        agent_message = (
            f"The data of {card.name} is {state}. Choose a card whose data is here, or set data_card to null."
        )
        user_message = f"The data of {card.name}, which the agent chose, is {state}; point --data at its folder."
        return rejected(Fault(agent_message, user_message), end=NoDataset)
    issues = _faults(raw)
    if issues:
        return rejected(*issues)
    classes = tuple(str(item) for item in raw.get("classes") or ())
    selection = Selection(
        card=card.name,
        task=str(raw["task"]),
        metric=canonical_metric(str(raw["metric"]), str(raw["task"])),
        plan=str(raw["plan"]).strip(),
        classes=classes,
        reason=str(raw.get("reason") or "").strip(),
    )
    return accepted(selection)


def _card(name: str, cards: Mapping[str, Card]) -> Card | None:
    """By name, or by the folder name under data/, whatever the case."""
    normalized_name = name.strip().lower().removeprefix("data/").rstrip("/")
    return next((card for card in cards.values() if normalized_name in (card.name.lower(), card.root)), None)


def _faults(raw: Mapping[str, Any]) -> list[Fault]:
    issues = []
    task = raw.get("task")
    if not isinstance(task, str) or task not in tasks():
        user_message = f"The agent named no kind of model that m3b builds ({', '.join(tasks())}) but {task!r}."
        issues.append(Fault(f"`task` is {task!r}; m3b builds {', '.join(tasks())} models.", user_message))
        task = None
    issues += _metric(raw.get("metric"), task)
    if not isinstance(raw.get("plan"), str) or len(raw["plan"].strip()) < 20:
        agent_message = "`plan` is missing: say in three to eight sentences where labels and patients are found."
        issues.append(Fault(agent_message, "The agent made no plan."))
    classes = raw.get("classes") or []
    has_single_class = isinstance(classes, list) and len(classes) == 1 and kinds.of(task or DEFAULT).fewest_classes > 1
    if not isinstance(classes, list) or has_single_class or len(set(map(str, classes))) != len(classes):
        agent_message = f"`classes` is {classes!r}; give at least two different names, or an empty list."
        issues.append(Fault(agent_message, f"The agent named no classes that differ: {classes!r}."))
    return issues


def _metric(given: object, task: str | None) -> list[Fault]:
    """What is wrong with the metric; of an unknown task any metric will do."""
    try:
        canonical_metric(given if isinstance(given, str) else "", task)
    except ValueError:
        metric_names = table(task or DEFAULT).names
        user_message = f"The agent named no metric of such models ({', '.join(metric_names)}) but {given!r}."
        return [Fault(f"`metric` is {given!r}; choose one of {', '.join(metric_names)}.", user_message)]
    return []
