"""Data that cannot serve a diagnosis, because it is all of one class."""

from __future__ import annotations

from m3b.data import kinds
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.imagery import KINDS, image_sets
from m3b.data.spec.proposals.label_source import LABEL_WORDS
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.parted import joined_tables
from m3b.data.spec.proposals.vocabulary import GENERIC
from m3b.data.survey.relations import Survey

REMEDY = "A classifier needs at least two; add data of another class."


def one_class(survey: Survey, ask: Ask) -> str:
    """What shows that all images are of one class, for people; empty where nothing does."""
    if kinds.of(ask.task).fewest_classes < 2:
        return ""
    for images in image_sets(survey, ask.stacks)[:4]:
        for tables in joined_tables(survey, images):
            alike = [one for one in tables.first.columns if one.distinct == 1 and not one.missing]
            named = next((one for one in alike if set(words(one.name)) & LABEL_WORDS), None)
            if named is not None and tables.rows > 1:
                told = f"{tables.title} has only one class: `{named.name}` is the same in all {tables.rows:,} rows"
                return f"{told}. {REMEDY}"
    groups = [group for group in survey.groups if group.kind in KINDS and not group.stray]
    folders = {group.template.rpartition("/")[0] for group in groups}
    place = folders.pop() if len(folders) == 1 else ""
    if place and "{" not in place and not set(words(place.rpartition("/")[2])) <= GENERIC and not survey.tables:
        return f"All images lie in one folder, `{place}`, which is one class at most. {REMEDY}"
    return ""
