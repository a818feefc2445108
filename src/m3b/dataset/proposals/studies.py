"""Views of a study together: when a request asks for them, and which candidates then take a study as one case."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import polars as pl

from m3b.dataset.manifest.problems import list_names
from m3b.dataset.proposals.image_sets import ImageSet
from m3b.dataset.proposals.outcome import Evidence
from m3b.dataset.proposals.request import Request
from m3b.dataset.proposals.roles import VIEW_WORDS, is_view, split_words
from m3b.dataset.proposals.targets import Target

SEVERAL_VIEWS_DECISIONS = frozenset({"label", "number", "survival"})
"""Decisions of which a study of several views can be one case, if a request asks for it; a report always is of a study."""
MIN_REPEATED = 0.95
"""Minimum share of the studies of several images in which each image has the same report."""
_NOUN = (
    r"(?:views|projections|ansichten|projektionen|vues|incidences|vistas|proyecciones|incidencias"
    r"|\w+ansichten|\w+projektionen)"
)
_ALL = (
    r"(?:both|two|all|several|beide[nr]?|zwei|alle[nr]?|mehrere[nr]?|les deux|deux|toutes les|plusieurs|las dos|dos|ambas|todas las"
    r"|varias)"
)
_VIEW = "|".join(sorted(map(re.escape, VIEW_WORDS), key=len, reverse=True))
_TOGETHER = re.compile(
    rf"\b{_ALL}\s+(?:(?:the|of|their|its|der|des)\s+)*(?:\w+\s+)?{_NOUN}\b|\b{_NOUN}\s+(?:together|zusammen|ensemble|juntas)\b"
    r"|[两双多各](?:个|种)?(?:视图|视角|体位|投照)",
    re.IGNORECASE,
)
_NAMED_TOGETHER = re.compile(
    rf"\b(?P<first>{_VIEW})\s*(?:\band\b|\bund\b|\bet\b|\by\b|[&+,/和])\s*(?P<second>{_VIEW})\b", re.IGNORECASE
)


class _Candidate(Protocol):
    @property
    def image_set(self) -> ImageSet: ...
    @property
    def target(self) -> Target: ...


C = TypeVar("C", bound=_Candidate)
Studies = dict[tuple[tuple[str, ...], str], list[C]]
"""Groups of images and decision -> candidates that take a study of several views as one case."""


def asks_for_views(request: Request) -> bool:
    """Return whether a request asks for the views of a study together: "from both views", "on frontal and lateral films".

    Not if views are the classes that it asks for.
    """
    if any(is_view(word) for name in request.classes for word in split_words(name)):
        return False
    named = (
        match["first"].casefold() != match["second"].casefold() for match in _NAMED_TOGETHER.finditer(request.text)
    )
    return _TOGETHER.search(request.text) is not None or any(named)


def can_be_study(target: Target, *, is_asked: bool) -> bool:
    """Return whether a target can be that of several views of a study.

    Args:
        is_asked: whether the request asks for views together.
    """
    return target.decision == "text" or (is_asked and target.decision in SEVERAL_VIEWS_DECISIONS)


def describe_single_views(image_set: ImageSet, target: Target) -> Iterator[Evidence]:
    """Yield that each view of a study is a case, and how it is not, if the names of the images tell views."""
    if image_set.images.several != "one" or target.decision not in SEVERAL_VIEWS_DECISIONS:
        return
    for column in image_set.columns:
        views, is_used = list(column.stats.counts), column.template in target.templates
        if column.source in ("slot", "folder") and not is_used and len(views) > 1 and all(map(is_view, views)):
            message = f"{list_names(views)} are views, each a case of its own; a request for both views joins those of a study"
            yield Evidence(code="views_apart", message=message)
            return


def without_single_views(candidates: Sequence[C], *, is_asked: bool) -> list[C]:
    """Return candidates without those that take each view of a study as a case, or views as channels, where a study is one.

    A study is one case if the request asks for views together, or if each of its images has the same report.

    Args:
        is_asked: whether the request asks for views together.
    """
    studies: Studies[C] = defaultdict(list)
    for item in candidates:
        if item.image_set.images.several == "views":
            studies[item.image_set.groups, item.target.decision].append(item)
    return [
        item
        for item in candidates
        if not any(_is_part(item, study, is_asked=is_asked) for study in _list_studies(item, studies))
    ]


def _list_studies(item: C, studies: Studies[C]) -> Iterator[C]:
    if item.image_set.images.several != "views":
        yield from studies.get((item.image_set.groups, item.target.decision), ())


def _is_part(item: _Candidate, study: _Candidate, *, is_asked: bool) -> bool:
    return is_asked if item.target.decision != "text" else _repeats_text(item, study.image_set)


def _repeats_text(item: _Candidate, study: ImageSet) -> bool:
    """Whether the images of each study, of which most have several, have the same text, and studies have different ones."""
    templates = [template for template in item.target.templates if template]
    if not templates or item.image_set.images.patterns != study.images.patterns:
        return False
    table = pl.DataFrame({"study": study.values(study.images.case), "text": item.image_set.texts(templates[0])})
    per_study = table.drop_nulls().group_by("study").agg(n=pl.len(), texts=pl.col("text").n_unique())
    several = per_study.filter(pl.col("n") > 1)
    if 2 * len(several) < len(per_study) or not len(several):
        return False
    is_repeated = float((several["texts"] == 1).mean() or 0.0) >= MIN_REPEATED  # type: ignore[arg-type]
    return is_repeated and 2 * table["text"].n_unique() > len(per_study)
