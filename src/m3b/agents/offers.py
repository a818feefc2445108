"""What briefings say of data sets and tasks, as data (`m3b.briefs`)."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.briefs import DatasetOption, SurveySummary, TaskOption
from m3b.data.cards import Card
from m3b.data.spec.proposals.language import plain
from m3b.summaries import FolderSummary, Previews
from m3b.tasks import find_requested_task, list_families
from m3b.tools import ToolResult
from m3b.tools.phi import scrub

EMPTY_SURVEY = SurveySummary()


def build_task_options(request: str) -> tuple[TaskOption, ...]:
    """Every task family, and what a request's words say of it."""
    import re

    requested_task, text = find_requested_task(request), plain(request)
    return tuple(
        TaskOption(
            name=task_family.name,
            asked=task_family.name == requested_task,
            hinted=bool(task_family.hint_pattern and re.search(task_family.hint_pattern, text)),
            needs=task_family.required_targets,
            kin=task_family.related_tasks,
            metrics=tuple(dict.fromkeys((task_family.metrics.default_metric, *task_family.metrics.names))),
            box_metrics=task_family.box_metrics,
            state_metrics=task_family.state_metrics,
            plan=task_family.default_plan,
        )
        for task_family in list_families()
    )


def build_card_option(
    card: Card,
    notes: str,
    folder_preview: ToolResult,
    previews: Sequence[ToolResult],
    survey: SurveySummary = EMPTY_SURVEY,
) -> DatasetOption:
    """A data set with what m3b's own looks at it found; a look that failed adds nothing.

    Args:
        notes: what the folder says of itself.
        survey: what a survey of all its files found.
    """
    files = [
        file for preview in previews if not preview.is_error for file in Previews.model_validate(preview.data).files
    ]
    return DatasetOption(
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
        folder=FolderSummary() if folder_preview.is_error else FolderSummary.model_validate(folder_preview.data),
        files=tuple(files),
        read=survey,
        named=card.own,
    )
