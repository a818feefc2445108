"""What could be the patients of a set of images, where the set is several groups of files: a level or tag of all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import folder_values
from m3b.data.survey.relations import Grouping, Survey


def groupings_of(survey: Survey, images: ImageSet) -> list[Grouping]:
    """The groupings of a set's groups; those by the same level, tag or column of each are one."""
    mine = [one for one in survey.groupings if one.group in {group.id for group in images.groups}]
    if images.single is not None:
        return mine
    by: dict[tuple[tuple[str, str, str], ...], list[Grouping]] = defaultdict(list)
    for one in mine:
        by[tuple((end.kind, end.owner if end.kind == "column" else "", end.name) for end in one.ends)].append(one)
    found: list[Grouping] = []
    for some in by.values():
        several = len({one.group for one in some}) == len(some) > 1
        found += [_one(survey, images, some)] if several else some
    return found


def _one(survey: Survey, images: ImageSet, some: Sequence[Grouping]) -> Grouping:
    """Values of a folder level are the same person where they are called alike; of tags and columns each group's count."""
    told = (*dict.fromkeys(text for one in some for text in one.evidence), *_alone(images, some))
    counts = _counts(images, some)
    spread = (
        (min(counts.values()), int(median(counts.values())), max(counts.values())) if counts
        else (min(one.per_value[0] for one in some), some[0].per_value[1], sum(one.per_value[2] for one in some))
    )  # fmt: skip
    distinct = len(counts) if counts else min(sum(one.distinct for one in some), _most(survey, some[0]))
    return some[0].model_copy(update={
        "distinct": distinct, "files": sum(one.files for one in some),
        "per_value": spread, "strength": min(one.strength for one in some), "evidence": told,
        "crosses": tuple(crossing for one in some for crossing in one.crosses),
    })  # fmt: skip


def _most(survey: Survey, one: Grouping) -> float:
    """How many values there can be at most: of a column, those that it has."""
    end = one.ends[0]
    if end.kind != "column":
        return float("inf")
    return next(column.distinct for column in survey.table(end.owner).columns if column.name == end.name)


def _alone(images: ImageSet, some: Sequence[Grouping]) -> tuple[str, ...]:
    return () if _counts(images, some) else ("counted in each group of files",)


def _counts(images: ImageSet, some: Sequence[Grouping]) -> Counter[str]:
    """Files a value of a folder level, over all groups; empty where it is no such level, or not known."""
    found: Counter[str] = Counter()
    for one in some:
        if len(one.ends) != 1 or one.ends[0].kind != "level" or not one.ends[0].name.isdigit():
            return Counter()
        group = next(group for group in images.groups if group.id == one.group)
        values = folder_values(group, int(one.ends[0].name))
        if values is None:
            return Counter()
        found.update(values)
    return found
