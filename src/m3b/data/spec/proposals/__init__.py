"""Readings of a data folder, proposed from what a survey measured and ranked by the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from m3b.data import kinds
from m3b.data.spec.model import TARGETS, FromPath, IndexSpec
from m3b.data.spec.proposals.anomalies import propose_states
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import without_taught
from m3b.data.spec.proposals.boxes import propose_boxes
from m3b.data.spec.proposals.covariates import sound, without_covariates
from m3b.data.spec.proposals.labels import propose_labels
from m3b.data.spec.proposals.masks import propose_masks
from m3b.data.spec.proposals.reports import propose_reports
from m3b.data.spec.proposals.study_views import told_together
from m3b.data.spec.proposals.survivals import propose_survival
from m3b.data.spec.proposals.values import propose_values
from m3b.data.spec.proposals.views import of_views
from m3b.data.survey.relations import Survey

__all__ = ["ENOUGH", "MARGIN", "Ask", "Proposal", "propose", "rival", "sufficient"]

PROPOSERS: dict[str, Callable[[Survey, Ask], Iterator[Proposal]]] = {
    "labels": propose_labels, "masks": propose_masks, "boxes": propose_boxes, "report": propose_reports,
    "states": propose_states, "value": propose_values, "survival": propose_survival,
}  # fmt: skip
"""What proposes readings, by what is to be learnt."""

ENOUGH = 0.5
"""Score from which on a reading may be taken without asking."""
MARGIN = 0.05
"""What the best reading must have over the next that says something else."""


def propose(survey: Survey, ask: Ask, most: int = 5) -> list[Proposal]:
    """Readings in order of their scores, the best first; the same targets twice are said once."""
    found: list[Proposal] = []
    ask = told_together(without_covariates(survey, ask))
    for target in kinds.of(ask.task).targets:
        if target in PROPOSERS and (target, ask.boxes) not in (("masks", True), ("boxes", False), ("states", True)):
            made = (replace(one, spec=without_taught(one.spec)) for one in PROPOSERS[target](survey, ask))
            found += [sound(ask, one) for one in made]
    found = of_views(survey, ask, found)
    found.sort(key=lambda one: (-round(one.score, 3), one.title))
    unique: dict[str, Proposal] = {}
    for one in found:
        unique.setdefault(_what(one.spec), one)
    return _settled(list(unique.values()))[:most]


def _what(spec: IndexSpec) -> str:
    """What a reading says, as a key: the same channels in another order say the same."""
    said = spec.model_dump(mode="json", exclude={"left_out"})
    if spec.images.channels:
        said["images"] = sorted(one.files.pattern for one in spec.images.channels)
        for part, how in (("masks", ("by", "image", "case")), ("boxes", ("image",))):
            said[part] = {name: value for name, value in (said[part] or {}).items() if name not in how}
        said = {name: said[name] for name in ("task", "images", *TARGETS)}
    return json.dumps(said, sort_keys=True)


def _settled(found: list[Proposal]) -> list[Proposal]:
    """Where the labels of the best reading leave open what a class is, the names of the same files that say each of as many
    classes go first: that is how the data set itself tells them apart."""
    best = found[0] if found else None
    if best is None or best.spec.labels is None or not best.unclear:
        return found
    for other in found[1:]:
        labels = other.spec.labels
        if (labels is None or other.unclear or other.score < ENOUGH or other.spec.images != best.spec.images
                or len(labels.classes) != len(best.spec.labels.classes) or not other.all_named):  # fmt: skip
            continue
        if all(isinstance(source, FromPath) for source in labels.sources):
            told = f"taken before {best.title}, which leaves open what is meant: {best.unclear}"
            return [
                replace(other, evidence=(*other.evidence, told), settles=True),
                *(one for one in found if one is not other),
            ]
    return found


def sufficient(proposals: Sequence[Proposal]) -> str:
    """Empty where the first proposal may be taken as it is, else why not."""
    if not proposals:
        return "Nothing in the folder could be read as images with what the request asks for."
    best = proposals[0]
    if best.score < ENOUGH:
        return f"The best reading ({best.title}) is weakly borne out by the data (score {best.score:.2f})."
    if best.unclear:
        return f"The best reading ({best.title}) leaves open what is meant: {best.unclear}."
    for other in proposals[1:]:
        if best.settles and other.unclear:
            continue
        if other.score >= best.score - MARGIN and _says_else(best, other):
            if best.spec.value is not None or best.spec.survival is not None:
                return f"Two readings are borne out nearly as well: {best.title}, and {other.title}. Name the column that is meant."
            return (
                f"Two readings are borne out nearly as well: {best.title} (classes {_classes(best)}), and {other.title} "
                f"(classes {_classes(other)})."
            )
    return ""


def rival(proposals: Sequence[Proposal]) -> str:
    """What must be said beside the best reading where another, of other images or targets, is borne out just as well.

    Classes of a diagnosis are `sufficient`'s matter: there the best may not be taken then. Two observers' masks, reports of
    two tables, grades of two columns may each be right, so that the first is taken, but never without a word.
    """
    if not proposals:
        return ""
    best = proposals[0]
    labels = best.spec.labels
    if labels is not None and not labels.ordered and best.spec.report is None:
        return ""
    others = [one for one in proposals[1:] if round(one.score, 2) >= round(best.score, 2) and _differs(best, one)]
    if not others:
        return ""
    titles = "; ".join(one.title for one in others)
    return f"borne out as well as the reading that was taken: {titles}; nothing in the folder or the request says which is meant"


def _differs(best: Proposal, other: Proposal) -> bool:
    """Whether another reading has other images or targets; another split or patient is no other reading."""
    about = {"images", *TARGETS}
    return best.spec.model_dump(include=about) != other.spec.model_dump(include=about)


def _says_else(best: Proposal, other: Proposal) -> bool:
    """Whether another reading has other classes for a diagnosis, or numbers of another place; numbers and names of one
    count may be the same classes."""
    if best.spec.value is not None and other.spec.value is not None:
        return best.spec.value.name != other.spec.value.name
    if best.spec.survival is not None and other.spec.survival is not None:
        return best.spec.survival != other.spec.survival
    mine, its = best.spec.labels, other.spec.labels
    if "labels" not in kinds.of(best.spec.task).targets or mine is None or its is None:
        return False
    names = [{name.casefold() for name in one.classes} for one in (mine, its)]
    numbers = [all(name.isdigit() for name in some) for some in names]
    same = len(names[0]) == len(names[1]) and (any(numbers) or _cut_short(*names))
    return names[0] != names[1] and not same


def _cut_short(mine: Collection[str], its: Collection[str]) -> bool:
    """Whether each class of one is how one class of the other begins, and no other: `nor`, `cov` and `normal`, `COVID-19`."""
    for short, long in ((mine, its), (its, mine)):
        begun = [{name for name in long if name.startswith(one)} for one in short]
        if all(len(some) == 1 for some in begun) and len(set.union(*begun)) == len(long):
            return True
    return False


def _classes(one: Proposal) -> str:
    named = list(one.spec.classes)
    return ", ".join(named[:5]) + (" ..." if len(named) > 5 else "")
