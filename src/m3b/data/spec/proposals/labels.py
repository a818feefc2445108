"""Readings of a folder for diagnosis and grading: classes from each place of labels, and how well the request bears them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from m3b.data import kinds
from m3b.data.spec.model import FromMember, FromPath, IndexSpec, Labels
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.channels import of_cases, with_channels
from m3b.data.spec.proposals.circumstances import with_asked_part, without_parts
from m3b.data.spec.proposals.classes import Classes, by_order, classes_for
from m3b.data.spec.proposals.covariates import asked_covariates
from m3b.data.spec.proposals.flags import told_uncertain
from m3b.data.spec.proposals.glossary import exactly, glosses, legend_of_labels, told_in_parentheses, told_names
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import framed, image_sets, other_views, slices_in_folders, told_clips, views_of
from m3b.data.spec.proposals.item_images import beside
from m3b.data.spec.proposals.label_source import LabelSource
from m3b.data.spec.proposals.label_sources import label_sources
from m3b.data.spec.proposals.language import (
    how_many_classes,
    initialled,
    listed,
    named,
    negative,
    shared,
    wants_all,
    words,
)
from m3b.data.spec.proposals.matching import Said
from m3b.data.spec.proposals.numbering import few
from m3b.data.spec.proposals.order import in_order
from m3b.data.spec.proposals.study_views import asked_studies
from m3b.data.spec.proposals.surroundings import around, leave_out, with_patient, without_unlabelled_part
from m3b.data.spec.proposals.vocabulary import SEQUENCES
from m3b.data.survey.relations import Survey

NONE = "none of these"
"""The class of cases that have none of several labels that are asked for."""


def propose_labels(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with class labels."""
    known = image_sets(survey, ask.stacks)[:12]
    sets = asked_studies(survey, known, ask)
    everything = max((one.count for one in sets), default=1)
    single = {one.id: one for one in sets if one.single is not None and one.member is None}
    graded = kinds.of(ask.task).ordered
    for plain in sets:
        together = of_cases(survey, ask, plain, single)
        images = framed(with_channels(plain, together))
        own = with_asked_part(around(survey, images), images, ask.request)
        for source in label_sources(survey, images, ask.label_column, ask.words):
            labelled = round(source.covered * sum(group.count for group in images.groups))
            surroundings = with_patient(without_unlabelled_part(survey, images, own, labelled), source.patient)
            classes = _classes(survey, source, without_parts(ask) if images.items is not None else ask)
            classes, rare = _split_among(classes, source)
            counted = _counted_folders(source, classes, ask)
            named_here = classes.hits > 1 or (classes.hits == 1 and not _channels(source))
            if len(classes.mapping) < 2 or (source.only_named and not named_here):
                continue
            if graded:
                if source.one_hot or source.separator or len(classes.mapping) < kinds.of(ask.task).fewest_classes:
                    continue  # no case has one grade of several
                classes = _graded(classes, ask)
            taken = (*source.sources, *surroundings.values)
            itemised, unused = beside(survey, images, taken)
            used = {*(group.id for group in images.groups), *together.groups, *itemised}
            spec = IndexSpec(
                task=ask.task,
                images=images.images,
                labels=Labels(
                    sources=source.sources, classes=classes.mapping, separator=source.separator, one_hot=source.one_hot,
                    ordered=graded or _ordered(classes), none=classes.none,
                ),
                patient=surroundings.patient,
                attributes=attributes(survey, images),
                covariates=asked_covariates(survey, images, ask),
                together=(*surroundings.together, *source.together),
                split=source.split or surroundings.split,
                left_out=(*unused, *leave_out(survey, used, {})),
            )  # fmt: skip
            counts = ", ".join(f"{name} {sum(source.values.get(v, 0) for v in some)}" for name, some in
                               list(classes.mapping.items())[:12] if some)  # fmt: skip
            shown = (views_of(images), told_clips(images), classes.why)
            told_apart = counted or (named_here and classes.hits >= len(classes.mapping))
            volumes = "" if told_apart and _are_the_stacks(images, source) else images.doubt
            doubt = volumes or other_views(survey, images, ask.words)
            unit = " (rows of the table, not files)" if source.rows else ""
            evidence = (f"labels from {source.title}: {counts}{unit}", *(one for one in shown if one), *rare,
                        f"{source.covered:.0%} of {images.count:,} images have a label", *source.told, *together.evidence,
                        *surroundings.evidence)  # fmt: skip
            doubts = (*(one for one in (classes.doubt, source.doubt, doubt) if one), *surroundings.doubts)
            neither, asks = told_uncertain({name: source.uncertain[name] for some in classes.mapping.values() for name in some
                                            if name in source.uncertain}, images.count)  # fmt: skip
            evidence = (*evidence, *([neither] if neither else []))
            unclear = classes.doubt or asks or source.apart or ("" if named_here or counted else source.weak) or doubt
            score = _score(everything, images, source, classes, ask)
            yield Proposal(
                spec,
                f"{images.title}, labels from {source.title}",
                score,
                evidence,
                doubts,
                unclear,
                classes.hits >= len(classes.mapping) - bool(classes.none),
            )


def _classes(survey: Survey, source: LabelSource, ask: Ask) -> Classes:
    if source.one_hot or source.separator:
        return _several(source, ask)
    numbers = {value: int(float(value)) for value in source.values if value.replace(".", "", 1).isdigit()}
    names: dict[str, str] = {}
    if numbers and len(numbers) == len(source.values):
        told = legend_of_labels(survey, numbers.values()) or told_names(ask.notes) or told_names(ask.request)
        told = told or exactly(told_in_parentheses(ask.request), numbers.values())
        if sorted(told) == sorted(numbers.values()):
            names = {value: told[number] for value, number in numbers.items()}
    if source.only_told and not names:
        return Classes({}, 0)
    said = Said(names, {**glosses(source.values, ask.request), **glosses(source.values, ask.notes)})
    found = classes_for(source.values, ask.request, ask.classes, said, source.named)
    held = any(isinstance(one, FromMember) for one in source.sources)
    return by_order(found, ask) if held and numbers and not names else found


def _counted_folders(source: LabelSource, classes: Classes, ask: Ask) -> bool:
    """Whether the request asks for as many classes as there are folders, each of which is a class."""
    folders = source.named.startswith("level") and all(isinstance(one, FromPath) for one in source.sources)
    number = len(source.values)
    return folders and not _channels(source) and how_many_classes(ask.request) == number == len(classes.mapping)


def _are_the_stacks(images: ImageSet, source: LabelSource) -> bool:
    """Whether the folders that give the labels are those that may each be a volume of numbered slices.

    As volumes, each class would have a single case.
    """
    group = images.groups[0]
    depth = group.template.count("/") - 1
    return bool(slices_in_folders(group)) and source.named.partition(".")[0] == f"level{depth}"


def _channels(source: LabelSource) -> bool:
    """Whether values may be the sequences or views of one case rather than classes."""
    return any(set(words(value)) & SEQUENCES for value in source.values)


def _split_among(classes: Classes, source: LabelSource) -> tuple[Classes, tuple[str, ...]]:
    """The classes of which there is more than one case, and what is said of the others: one case is on one side alone."""
    if source.one_hot or source.separator:
        return classes, ()
    counts = {name: sum(source.values.get(value, 0) for value in some) for name, some in classes.mapping.items()}
    kept = {name: some for name, some in classes.mapping.items() if counts[name] > 1}
    if len(kept) < 2 or len(kept) == len(counts):
        return classes, ()
    told = f"left out, a single case each: {', '.join(name for name in counts if name not in kept)}"
    return replace(classes, mapping=kept, hits=min(classes.hits, len(kept))), (told,)


def _several(source: LabelSource, ask: Ask) -> Classes:
    """Labels of which a case may have several: those that the request names, and none of them; or all."""
    hits = named(list(source.values), ask.request)
    chosen = [name for name in source.values if name.casefold() in {one.casefold() for one in ask.classes}]
    kept = chosen if len(chosen) > 1 else hits if len(hits) > 1 else list(source.values)
    others = [name for name in source.values if name not in kept]
    doubt = ""
    if len(hits) == 1 and len(listed(ask.request)) == 1 and not chosen:
        doubt = f"{hits[0]!r} is asked for alone; the labels hold {len(source.values)} findings of which a case may have several"
    mapping: dict[str, tuple[str, ...]] = {name: (name,) for name in kept}
    if source.one_hot or not others:
        return Classes(mapping, len(hits), "", doubt)
    if len(others) == 1 and negative(others[0]):
        return Classes({others[0]: (others[0],), **mapping}, len(hits), "", doubt, none=others[0])
    why = f"cases with other labels alone ({few(dict.fromkeys(others, 1))}) are {NONE!r}"
    return Classes({NONE: (), **mapping}, len(hits), why, doubt, none=NONE)


def _graded(classes: Classes, ask: Ask) -> Classes:
    """The classes from the lowest grade to the highest; a doubt where nothing tells their order."""
    order = in_order(list(classes.mapping), ask.request)
    if not order:
        doubt = f"nothing tells the order of the grades {', '.join(classes.mapping)}; list them in the request from low to high"
        return replace(classes, doubt=classes.doubt or doubt)
    return replace(classes, mapping={name: classes.mapping[name] for name in order})


def _ordered(classes: Classes) -> bool:
    return len(classes.mapping) > 2 and all(name.isdigit() for name in classes.mapping)


def _score(everything: int, images: ImageSet, source: LabelSource, classes: Classes, ask: Ask) -> float:
    """Evidence of the data, and how the request speaks of classes and place."""
    score = source.strength
    asked = shared(ask.words, source.named) if source.named else 0.0
    if source.one_hot or source.separator:
        asked = max(asked, float(wants_all(ask.request)))
    told = [some for name, some in classes.mapping.items() if name != classes.none]
    hits = classes.hits / max(len(told), 1)
    score += 0.25 * min(1.0, hits) + 0.2 * max(asked, initialled(source.named, ask.request))
    score += 0.15 * (how_many_classes(ask.request) == len(classes.mapping))
    counts = [sum(source.values.get(value, 0) for value in some) for some in told]
    if min(counts, default=0) < 2:
        score -= 0.1
    score *= 0.4 + 0.6 * min(1.0, source.covered)
    channels = len(images.images.channels)
    score *= 0.5 + 0.5 * min(1.0, images.count * max(1, channels) / everything)
    score += 0.05 * bool(channels)  # the sequences of a case rather than each as a case of its own
    return max(0.0, min(1.0, score))
