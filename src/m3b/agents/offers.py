"""What briefings say of data sets and tasks, as data (`m3b.briefs`)."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.briefs import CardOffer, FolderRead, TaskOffer
from m3b.data.cards import Card
from m3b.data.spec.proposals.language import plain
from m3b.summaries import FolderSummary, Previews
from m3b.tasks import asked_task, families
from m3b.tools import ToolResult
from m3b.tools.phi import scrub

NOTHING_READ = FolderRead()


def task_offers(request: str) -> tuple[TaskOffer, ...]:
    """Every task family, and what a request's words say of it."""
    import re

    requested_task, text = asked_task(request), plain(request)
    return tuple(
        TaskOffer(
            name=task_family.name,
            asked=task_family.name == requested_task,
            hinted=bool(task_family.hinted and re.search(task_family.hinted, text)),
            needs=task_family.needs,
            kin=task_family.kin,
            metrics=tuple(dict.fromkeys((task_family.metrics.default, *task_family.metrics.names))),
            box_metrics=task_family.box_metrics,
            state_metrics=task_family.state_metrics,
            plan=task_family.usual_plan,
        )
        for task_family in families()
    )


def card_offer(
    card: Card, notes: str, folder: ToolResult, looks: Sequence[ToolResult], read: FolderRead = NOTHING_READ
) -> CardOffer:
    """A data set with what m3b's own looks at it found; a look that failed adds nothing.

    Args:
        notes: what the folder says of itself.
        read: what a survey of all its files found.
    """
    files = [file for preview in looks if not preview.is_error for file in Previews.model_validate(preview.data).files]
    return CardOffer(
        name=card.name,
        task=card.task,
        metric=card.metric,
        modality=card.modality,
        anatomy=card.anatomy,
        dimension=card.dimension,
        classes=card.classes,
        patient_key=card.patient_key,
        description=scrub(card.description),
        notes=scrub(notes),
        folder=FolderSummary() if folder.is_error else FolderSummary.model_validate(folder.data),
        files=tuple(files),
        read=read,
        named=card.own,
    )
