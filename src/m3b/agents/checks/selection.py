"""The check of what the Task Manager hands over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from m3b.agents.artifacts import Selection
from m3b.agents.verdict import Verdict, accepted, rejected
from m3b.data.cards import Card
from m3b.errors import NoDataset
from m3b.metrics import TASK_METRICS, canonical_metric

TASKS = tuple(TASK_METRICS)
SHAPE = (
    'Reply with one JSON object and nothing else: {"data_card": "<name>", "task": "diagnosis", "metric": "auroc", '
    f'"classes": [], "plan": "...", "reason": "..."}}; `task` is one of {", ".join(TASKS)}.'
)
Ask = Callable[[str], str | None]


def check_selection(text: str, cards: Mapping[str, Card], ask: Ask | None = None) -> Verdict:
    """Accept a closing text that names a usable card, a task and a metric.

    Args:
        cards: all cards by name.
        ask: takes a question for the user and returns the answer; None where nobody can be asked.
    """
    raw = find_object(text)
    if raw is None:
        return rejected(f"Your reply holds no JSON object. {SHAPE}")
    question, name = str(raw.get("question") or "").strip(), raw.get("data_card")
    if question and ask and (answer := ask(question)):
        return rejected(f"The user answers your question ({question}): {answer} Decide now. {SHAPE}")
    if name is None:
        return _declined(str(raw.get("reason") or "No data card serves the request."), ask)
    card = _card(str(name), cards)
    if card is None:
        here = ", ".join(card.name for card in cards.values() if card.path)
        return rejected(f"There is no data card {name!r}. Those with data on this machine: {here}.", end=NoDataset)
    if card.path is None or not os.access(card.path, os.R_OK | os.X_OK):
        where = "not on this machine" if card.path is None else f"not readable at {card.path}"
        fault = f"The data of {card.name} is {where}. Choose a card whose data is here, or set data_card to null."
        return rejected(fault, end=NoDataset)
    faults = _faults(raw)
    if faults:
        return rejected(*faults)
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


def _declined(reason: str, ask: Ask | None) -> Verdict:
    if ask and (answer := ask(f"No data set seems to serve the request: {reason} Which data set should be used?")):
        return rejected(f"The user answers: {answer} Decide again. {SHAPE}", end=NoDataset)
    return rejected(reason, end=NoDataset, fatal=True)


def _card(name: str, cards: Mapping[str, Card]) -> Card | None:
    """By name, or by the folder name under data/, whatever the case."""
    wanted = name.strip().lower().removeprefix("data/").rstrip("/")
    return next((card for card in cards.values() if wanted in (card.name.lower(), card.root)), None)


def _faults(raw: Mapping[str, Any]) -> list[str]:
    faults = []
    task = raw.get("task")
    if not isinstance(task, str) or task not in TASKS:
        faults.append(f"`task` is {task!r}; m3b builds {', '.join(TASKS)} models.")
        task = None
    faults += _metric(raw.get("metric"), task)
    if not isinstance(raw.get("plan"), str) or len(raw["plan"].strip()) < 20:
        faults.append("`plan` is missing: say in three to eight sentences where labels and patients are found.")
    classes = raw.get("classes") or []
    alone = isinstance(classes, list) and len(classes) == 1 and task in (None, "diagnosis")
    if not isinstance(classes, list) or alone or len(set(map(str, classes))) != len(classes):
        faults.append(f"`classes` is {classes!r}; give at least two different names, or an empty list.")
    return faults


def _metric(given: object, task: str | None) -> list[str]:
    """What is wrong with the metric; of an unknown task any metric will do."""
    try:
        canonical_metric(given if isinstance(given, str) else "", task)
    except ValueError:
        known = TASK_METRICS[task or TASKS[0]]
        return [f"`metric` is {given!r}; choose one of {', '.join(known)}."]
    return []


def find_object(text: str, key: str = "data_card") -> dict[str, Any] | None:
    """The first JSON object with `key` in a text that may also hold prose or a code fence."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and key in value:
            return value
        at = text.find("{", at + 1)
    return None
