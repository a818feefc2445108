"""The check of the Task Manager's selection."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.agents.artifacts import Selection, find_json_object
from m3b.agents.check_result import CheckResult, Issue, accept, reject, relay_answer
from m3b.data import kinds
from m3b.data.cards import Card
from m3b.data.kinds import DEFAULT
from m3b.errors import NoDatasetFound
from m3b.facts import Answer
from m3b.metrics import canonical_metric
from m3b.metrics.metric_tables import metric_table, tasks_with_metrics


def describe_format() -> str:
    """Return the required form of the closing text."""
    return (
        'Reply with one JSON object and nothing else: {"data_card": "<name>", "task": "diagnosis", "metric": "auroc", '
        f'"classes": [], "plan": "...", "reason": "..."}}; `task` is one of {", ".join(tasks_with_metrics())}.'
    )


NO_ANSWER_MESSAGE = "The language model did not answer in the form that m3b asks for."
AskUser = Callable[[str], str | None]


MAX_QUESTIONS = 3
"""Maximum number of questions of the agent that the user is asked; then the agent decides by itself."""
YES_WORDS = ("y", "yes", "ja", "j", "oui", "o", "si", "sí", "ok")
NO_WORDS = ("n", "no", "none", "nein", "non", "keiner", "aucun", "ninguno")


def check_selection(text: str, cards: Mapping[str, Card], ask_user: AskUser | None = None) -> CheckResult:
    """Return the check result on a first closing text; see `SelectionCheck`."""
    return SelectionCheck(cards, ask_user)(text)


class SelectionCheck:
    """Accepts a closing text that names a usable card, a task and a metric.

    Args:
        cards: all cards by name.
        ask_user: takes a question and returns the user's answer; None if nobody can be asked. If no data set seems to
            serve the request, the user is asked which one to use, until the answer names one.
    """

    def __init__(self, cards: Mapping[str, Card], ask_user: AskUser | None = None) -> None:
        self.cards, self.ask_user = cards, ask_user
        self._question_count = 0
        self._user_has_chosen = False

    def __call__(self, text: str) -> CheckResult:
        raw = find_json_object(text)
        if raw is None:
            return reject(Issue(f"Your reply holds no JSON object. {describe_format()}", NO_ANSWER_MESSAGE, "no_json"))
        question = str(raw.get("question") or "").strip()
        if question and (answer := self._ask_question(question)):
            reply = f"The user answers your question ({question}): {answer} Decide now. {describe_format()}"
            return relay_answer(reply, Answer(text=answer).to_json())
        if raw.get("data_card") is None:
            return self._handle_no_card(str(raw.get("reason") or "No data card serves the request."))
        return _check_choice(raw, self.cards)

    def _ask_question(self, question: str) -> str:
        if self.ask_user is None or self._question_count >= MAX_QUESTIONS:
            return ""
        self._question_count += 1
        return (self.ask_user(question) or "").strip()

    def _handle_no_card(self, reason: str) -> CheckResult:
        """End the run without a data set, unless the user names one."""
        available_cards = [card for card in self.cards.values() if card.path]
        if self._user_has_chosen or not available_cards:
            return reject(reason, end_error=NoDatasetFound, is_fatal=True)
        names = ", ".join(card.name for card in available_cards)
        answer = self._ask_question(
            f"No data set seems to serve the request: {reason} Which data set should be used? ({names})"
        )
        if not answer or answer.lower().strip(".! ") in NO_WORDS:
            return reject(reason, end_error=NoDatasetFound, is_fatal=True)
        chosen_card = _find_answered_card(answer, available_cards)
        self._user_has_chosen = chosen_card is not None
        instruction = f"use {chosen_card.name}." if chosen_card else answer
        facts = Answer(text=answer, card=chosen_card.name if chosen_card else "").to_json()
        return relay_answer(f"The user answers: {instruction} Decide again. {describe_format()}", facts)


def _find_answered_card(answer: str, available_cards: Sequence[Card]) -> Card | None:
    """Return the card that an answer names by its name or path, or the only card if the answer is yes; else None."""
    by_name = _find_card(answer.strip("'\".,! "), {card.name: card for card in available_cards})
    by_path = [card for card in available_cards if card.path and answer.rstrip("/") in (str(card.path), card.path.name)]
    if by_name or by_path:
        return by_name or by_path[0]
    return available_cards[0] if len(available_cards) == 1 and answer.lower().strip(".! ") in YES_WORDS else None


def _check_choice(raw: Mapping[str, Any], cards: Mapping[str, Card]) -> CheckResult:
    name = raw["data_card"]
    card = _find_card(str(name), cards)
    if card is None:
        available_names = ", ".join(card.name for card in cards.values() if card.path)
        agent_message = f"There is no data card {name!r}. Those with data on this machine: {available_names}."
        user_message = (
            f"The agent chose {name!r}, and there is no such data set. On this machine there are: {available_names}."
        )
        return reject(Issue(agent_message, user_message, "unknown_card"), end_error=NoDatasetFound)
    if card.path is None or not os.access(card.path, os.R_OK | os.X_OK):
        state = "not on this machine" if card.path is None else f"not readable at {card.path}"
        agent_message = (
            f"The data of {card.name} is {state}. Choose a card whose data is here, or set data_card to null."
        )
        user_message = f"The data of {card.name}, which the agent chose, is {state}; point --data at its folder."
        return reject(Issue(agent_message, user_message, "card_without_data"), end_error=NoDatasetFound)
    issues = _find_issues(raw)
    if issues:
        return reject(*issues)
    classes = tuple(str(item) for item in raw.get("classes") or ())
    selection = Selection(
        card=card.name,
        task=str(raw["task"]),
        metric=canonical_metric(str(raw["metric"]), str(raw["task"])),
        plan=str(raw["plan"]).strip(),
        classes=classes,
        reason=str(raw.get("reason") or "").strip(),
    )
    return accept(selection)


def _find_card(name: str, cards: Mapping[str, Card]) -> Card | None:
    """Return the card with a name or a folder name under data/, case-insensitive."""
    normalized_name = name.strip().lower().removeprefix("data/").rstrip("/")
    return next((card for card in cards.values() if normalized_name in (card.name.lower(), card.root)), None)


def _find_issues(raw: Mapping[str, Any]) -> list[Issue]:
    issues = []
    task = raw.get("task")
    if not isinstance(task, str) or task not in tasks_with_metrics():
        user_message = (
            f"The agent chose {task!r}, which is no kind of model that m3b builds ({', '.join(tasks_with_metrics())})."
        )
        agent_message = f"`task` is {task!r}; m3b builds {', '.join(tasks_with_metrics())} models."
        issues.append(Issue(agent_message, user_message, "unknown_task"))
        task = None
    issues += _find_metric_issues(raw.get("metric"), task)
    if not isinstance(raw.get("plan"), str) or len(raw["plan"].strip()) < 20:
        agent_message = "`plan` is missing: say in three to eight sentences where labels and patients are found."
        issues.append(Issue(agent_message, "The agent made no plan.", "no_plan"))
    classes = raw.get("classes") or []
    has_single_class = isinstance(classes, list) and len(classes) == 1 and kinds.of(task or DEFAULT).fewest_classes > 1
    if not isinstance(classes, list) or has_single_class or len(set(map(str, classes))) != len(classes):
        agent_message = f"`classes` is {classes!r}; give at least two different names, or an empty list."
        user_message = f"The agent named fewer than two different classes: {classes!r}."
        issues.append(Issue(agent_message, user_message, "invalid_classes"))
    return issues


def _find_metric_issues(metric: object, task: str | None) -> list[Issue]:
    """Return the issues of the metric; for an unknown task any known metric is accepted."""
    try:
        canonical_metric(metric if isinstance(metric, str) else "", task)
    except ValueError:
        metric_names = metric_table(task or DEFAULT).names
        user_message = f"The agent chose {metric!r}, which is no metric of such models ({', '.join(metric_names)})."
        agent_message = f"`metric` is {metric!r}; choose one of {', '.join(metric_names)}."
        return [Issue(agent_message, user_message, "unknown_metric")]
    return []
