"""Check that a data card names a task and a metric that exist."""

from __future__ import annotations

import difflib
from dataclasses import replace

from m3b.data.cards import Card
from m3b.data.kinds import names
from m3b.errors import DataError
from m3b.metrics import canonical_metric
from m3b.metrics.metric_tables import is_unbounded
from m3b.tasks import list_families


def validate_card(card: Card) -> Card:
    """Return the card with task and metric in m3b's spelling.

    Raises:
        DataError: the task or metric does not exist, the metric belongs to another task, or the range is impossible for
            it.
    """
    if not card.task and not card.metric:
        return card
    card_name, task = f"the data card {card.name!r}", card.task.strip().lower()
    if task and task not in names():
        suggestions = [
            task_family.name for task_family in list_families() if task in task_family.aliases
        ] or difflib.get_close_matches(task, names(), 1)
        hint = f" Did you mean {suggestions[0]!r}?" if suggestions else ""
        raise DataError(f"`task` of {card_name} is {card.task!r}; m3b builds models for {', '.join(names())}.{hint}")
    metric = card.metric
    if metric:
        try:
            metric = canonical_metric(metric, task or None)
        except ValueError as error:
            raise DataError(f"`metric` of {card_name} is {card.metric!r}: {error}.") from error
    bounds = [bound for bound in card.acceptable or () if bound is not None]
    if metric and not is_unbounded(metric) and not all(0 <= bound <= 1 for bound in bounds):
        raise DataError(f"`acceptable` of {card_name} is {bounds}; {metric} lies between 0 and 1.")
    return replace(card, task=task, metric=metric)
