"""The one decision about a folder and a request that `look`, `Pipeline.plan` and `run` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from m3b.dataset.inventory import KNOWN_SUFFIX_REGEX, Inventory
from m3b.dataset.manifest.model import CaseFilter, Manifest, Split, Task, ValueSource
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import Resolved, resolve
from m3b.dataset.proposals.context import PatientChoice, SplitChoice, choose_patient, list_splits
from m3b.dataset.proposals.image_sets import MAX_CHANNELS, MIN_CROSSING, ImageSet, list_image_sets, mean_of
from m3b.dataset.proposals.outcome import Assumption, Doubt, Evidence, ManifestProposal, Outcome, Question, Refusal
from m3b.dataset.proposals.request import Request
from m3b.dataset.proposals.scoring import logit, probability
from m3b.dataset.proposals.targets import (
    Target,
    list_boxes,
    list_labels,
    list_masks,
    list_numbers,
    list_survivals,
    list_texts,
)
from m3b.dataset.survey.facts import Survey
from m3b.dataset.words.lexicon import get_lexicon
from m3b.dataset.words.requests import FolderWords, contradictions

TARGET_LISTS: dict[Task, tuple[Callable[[ImageSet, Survey, Request], Iterator[Target]], ...]] = {
    "diagnosis": (list_labels,),
    "grading": (list_labels,),
    "segmentation": (list_masks,),
    "detection": (list_boxes, list_masks),
    "regression": (list_numbers,),
    "survival": (list_survivals,),
    "report": (list_texts,),
}
"""Task -> what lists the targets that it can learn."""

LABEL_TASKS = frozenset({"diagnosis", "grading"})
"""Tasks that learn the same labels; which it is, the request says."""
MAX_RESOLVED = 12
"""Candidates that are resolved, the best by names and tables."""
MIN_SCORE = 0.5
"""Probability from which on a manifest is proposed."""
MIN_EQUAL = 0.98
"""Share of images for which two sources must say the same to be taken as one."""
MIN_MARGIN = 1.0
"""Difference of log odds to the best proposal that reads other targets."""
MAX_UNEXPLAINED = 0.02
"""Share of the images that may drop out without a stated reason."""
CONCRETE_KINDS = ("anatomy", "findings", "cells_tissues", "devices")
MAX_ABBREVIATION = 3
"""Letters of a class name that may stand for nearly anything, so that it contradicts no request."""
PATIENT_SCORE = 0.5
SPLIT_SCORE = 0.5
EXPLAINED_CODES = frozenset({"stated", "unwanted", "no_split", "hidden_test"})
"""Codes of exclusions that a manifest itself explains."""


@dataclass(frozen=True)
class Candidate:
    """An image set with a target, patients and a split."""

    task: Task
    image_set: ImageSet
    target: Target
    features: Mapping[str, float]
    logit: float


@dataclass(frozen=True)
class MeasuredCandidate:
    """A candidate that was resolved."""

    candidate: Candidate
    manifest: Manifest
    resolved: Resolved
    features: Mapping[str, float]
    score: float
    logit: float
    patient: PatientChoice | None
    split: SplitChoice | None
    doubts: tuple[Doubt, ...]
    evidence: tuple[Evidence, ...]


# --- candidates -------------------------------------------------------------------------------------------------------------


def list_candidates(
    survey: Survey, image_sets: Sequence[ImageSet], request: Request, tasks: Sequence[Task]
) -> list[Candidate]:
    """Return all candidates, best first by what names, tables and samples tell."""
    total = max((image_set.count for image_set in image_sets), default=1)
    candidates = []
    for task in tasks:
        for image_set in image_sets:
            shared = set_features(image_set, request, task, total)
            for list_targets in TARGET_LISTS[task]:
                for target in list_targets(image_set, survey, replace(request, task=task)):
                    features = {**shared, **target.features}
                    candidates.append(Candidate(task, image_set, target, features, logit(target.decision, features)))
    return sorted(candidates, key=lambda item: -item.logit)


def set_features(image_set: ImageSet, request: Request, task: Task, largest: int) -> dict[str, float]:
    """Return what speaks for and against an image set, whatever the target."""
    content = image_set.content
    volumes = image_set.images.several == "slices" or content.dims == 3
    return {
        "set:share": image_set.count / largest,
        "set:is_mask": float(content.is_mask),
        "set:volumes": float(volumes),
        "set:wrong_dims": float(request.dims is not None and (request.dims == 3) != volumes),
        "set:slices": float(image_set.images.several == "slices"),
        "set:frames": float(image_set.images.frames > 0),
        "set:groups": float(len(image_set.groups) > 1),
        "set:failed": content.failed / max(content.samples, 1),
        "task:weight": request.tasks.get(task, 0.0),
    }


def build_manifest(candidate: Candidate, patient: PatientChoice | None, split: SplitChoice | None) -> Manifest:
    """Return the manifest of a candidate with the chosen patients and split."""
    image_set, target = candidate.image_set, candidate.target
    templates = [*target.templates, image_set.images.case]
    parts: dict[str, Any] = dict(target.parts)
    if patient is not None:
        templates.append(patient.column.template)
        parts["patient"] = ValueSource(value=patient.column.template)
    if split is not None and split.split.value is not None:
        templates.append(split.split.value.value)
        parts["split"] = split.split
    if together := shared_key(image_set):
        parts["together"] = (ValueSource(value=together),)
    return Manifest(task=candidate.task, images=image_set.images, tables=image_set.tables_of(templates), **parts)


def shared_key(image_set: ImageSet) -> str:
    """Return the template of what images share that a slot alone tells apart (views, stains, sequences); empty if there are none."""
    slots = [
        column
        for column in image_set.columns
        if column.source in ("slot", "folder") and not column.template.startswith("{folder")
    ]
    telling_columns = [
        column for column in slots if column.crossing >= MIN_CROSSING and column.stats.distinct <= MAX_CHANNELS
    ]
    if not telling_columns or len(telling_columns) == len(slots):
        return ""
    return "/".join(column.template for column in slots if column not in telling_columns)


def measure(
    candidate: Candidate, survey: Survey, inventory: Inventory, readers: FolderReaders, request: Request
) -> MeasuredCandidate | None:
    """Choose patients and split of a candidate, resolve it, and say what speaks against it."""
    image_set, target = candidate.image_set, candidate.target
    cases = (
        image_set.count
        if image_set.images.several == "one" and image_set.images.unit == "file"
        else image_set.values("{folder}" if image_set.images.unit == "folder" else image_set.images.case).n_unique()
    )
    splits = [
        item
        for item in list_splits(image_set, survey)
        if item.probability >= SPLIT_SCORE and not _uses_split(item.split, target)
    ]
    split = splits[0] if splits else None
    used = [
        *target.templates,
        *([split.split.value.value] if split is not None and split.split.value is not None else []),
    ]
    patients = [item for item in choose_patient(image_set, cases, used) if item.probability >= PATIENT_SCORE]
    patient = patients[0] if patients else None
    doubts, evidence = [], [Evidence(code="target", message=target.title)]
    resolved = resolve(build_manifest(candidate, patient, split), inventory, readers=readers)
    if split is not None and _is_hidden(resolved, split, image_set.count):
        if request.wants_own_test:
            doubts.append(
                Doubt(
                    code="test_part_without_targets",
                    message=f"the request asks for a test on the folder's test part, which has no targets ({split.title})",
                )
            )
        evidence.append(
            Evidence(
                code="hidden_test",
                message=f"the folder's test part has no targets ({split.title}): a new split is drawn",
            )
        )
        resolved = resolve(_without_test(build_manifest(candidate, patient, None), split), inventory, readers=readers)
        split = None
    if resolved.errors or not len(resolved.frame):
        return None
    hidden = _hidden_paths(image_set, splits[0]) if splits and split is None else frozenset()
    doubts += list(_doubts(candidate, resolved, request, survey, hidden))
    features = {**candidate.features, **_resolved_features(candidate, resolved)}
    log_odds = logit(target.decision, features)
    return MeasuredCandidate(
        candidate,
        resolved.manifest,
        resolved,
        features,
        probability(target.decision, features),
        log_odds,
        patient,
        split,
        tuple(doubts),
        tuple(evidence),
    )


def _without_test(manifest: Manifest, split: SplitChoice) -> Manifest:
    """A manifest without the cases of a test part that has no targets, which is stated."""
    value = split.split.value
    if manifest.boxes is None or value is None:
        return manifest
    texts = (*split.split.train, *split.split.val)
    only = CaseFilter(value=value, texts=texts, reason="the folder's test part has no targets")
    tables = {**split.tables, **manifest.tables}
    return manifest.model_copy(update={"only": (only,), "tables": tables})


def _hidden_paths(image_set: ImageSet, split: SplitChoice) -> frozenset[str]:
    """The images of a test part that has no targets."""
    return frozenset(image_set.frame.frame.filter((split.sides == "test").fill_null(False))["path"].to_list())


def _uses_split(split: Split, target: Target) -> bool:
    return split.value is not None and split.value.value in target.templates


def _is_hidden(resolved: Resolved, split: SplitChoice, images: int) -> bool:
    """Whether the test part of a split has no usable case, or nearly none."""
    if not len(resolved.frame) or "split" not in resolved.frame.columns:
        return bool(split.counts.get("test"))
    test = resolved.frame.filter(pl.col("split") == "test")
    cases_per_image = (len(resolved.frame) + len(resolved.excluded)) / max(images, 1)
    if len(test) < 0.1 * split.counts.get("test", 0) * cases_per_image:
        return True
    if "n_marks" not in test.columns:
        return False
    remaining_values = resolved.frame.filter(pl.col("split") != "test")
    return int(test["n_marks"].fill_null(0).sum()) == 0 < int(remaining_values["n_marks"].fill_null(0).sum())


def _resolved_features(candidate: Candidate, resolved: Resolved) -> dict[str, float]:
    cases, excluded = len(resolved.frame), len(resolved.excluded)
    counts = class_counts(resolved)
    return {
        "resolved:usable": cases / max(cases + excluded, 1),
        "resolved:few_cases": float(cases < 10),
        "resolved:empty_classes": sum(1 for count in counts.values() if not count) / max(len(counts), 1),
        "resolved:problems": float(len(resolved.problems)),
    }


def class_counts(resolved: Resolved) -> dict[str, int]:
    """Return cases a class, as far as names tell."""
    frame = resolved.frame
    names = list(resolved.classes)
    if "labels" in frame.columns and resolved.manifest.labels is not None:
        numbered_columns = (
            dict(frame["labels"].explode().drop_nulls().value_counts().iter_rows())
            if frame["labels"].dtype == pl.List
            else dict(frame["labels"].drop_nulls().value_counts().iter_rows())
        )
        return {name: int(numbered_columns.get(name, 0)) for name in names}
    return {}


# --- doubts -----------------------------------------------------------------------------------------------------------------


def _doubts(
    candidate: Candidate, resolved: Resolved, request: Request, survey: Survey, hidden: frozenset[str]
) -> Iterator[Doubt]:
    target, manifest = candidate.target, resolved.manifest
    for claim in contradictions(request.claims, folder_words(candidate, survey)):
        if claim.verdict == "contradicted" and (claim.kind not in ("target", "classes") or _is_concrete(request)):
            yield Doubt(
                code="request_contradicted", message=f"the request says {claim.asked}, and the folder: {claim.evidence}"
            )
    asked_classes = request.claims.classes
    if (
        len(asked_classes) > 1
        and target.unmatched_request
        and (target.requested or _is_concrete(request))
        and target.decision in ("label", "mask", "boxes")
        and not target.codes
    ):
        unmatched = ", ".join(target.unmatched_request[:6])
        yield Doubt(
            code="fewer_classes",
            message=f"the request names {', '.join(asked_classes[:8])}; nothing in {target.title} is called {unmatched} "
            f"(there: {', '.join(target.classes[:8])})",
        )
    if (
        target.codes
        and not (request.numbered_classes and set(target.codes) <= set(request.numbered_classes))
        and not _codes_suffice(manifest, target, request)
    ):
        yield Doubt(
            code="legend_not_applied", message=f"nothing says what {', '.join(target.codes[:8])} mean ({target.title})"
        )
    if target.turned:
        yield Doubt(code="turned_pixels", message=f"rows and columns of {target.turned} masks are exchanged")
    if target.sizes:
        yield Doubt(code="mask_size_differs", message=f"a mask has another size than its image: {target.sizes}")
    counts = class_counts(resolved)
    empty = [name for name, count in counts.items() if not count]
    if empty:
        yield Doubt(code="fewer_classes", message=f"no case has the class {', '.join(empty[:6])}")
    unexplained = resolved.excluded.filter(~pl.col("code").is_in(list(EXPLAINED_CODES)))
    if hidden:
        unexplained = unexplained.filter(~pl.col("paths").list.first().is_in(list(hidden)))
    total = len(resolved.frame) + len(resolved.excluded)
    if total and len(unexplained) > MAX_UNEXPLAINED * total and not _is_explained(candidate, resolved):
        reasons = "; ".join(f"{item.count:,}: {item.reason}" for item in resolved.excluded_cases[:3])
        yield Doubt(
            code="unexplained_exclusions", message=f"{len(unexplained):,} of {total:,} cases cannot be used ({reasons})"
        )
    if manifest.patient is None:
        yield Doubt(code="patients_unknown", message="nothing in names, tables or headers says whose an image is")


def _is_concrete(request: Request) -> bool:
    """Whether what is asked for names findings, organs, cells or the like, and not just marked objects."""
    lexicon = get_lexicon()
    requested = request.claims.classes or request.claims.targets
    positive = [name for name in requested if name not in request.claims.negatives]
    concrete = sum(bool(lexicon.find_concepts(name, CONCRETE_KINDS)) for name in positive)
    return bool(positive) and concrete > len(positive) / 2


def folder_words(candidate: Candidate, survey: Survey) -> FolderWords:
    """Return what the folder's words, headers and pixels say of a candidate's images and targets."""
    image_set, content = candidate.image_set, candidate.image_set.content
    ids = set(image_set.groups)
    groups = [survey.group(id) for id in image_set.groups]
    names = [re.sub(KNOWN_SUFFIX_REGEX, "", re.sub(r"\{[^{}]*\}", " ", group.pattern)) for group in groups]
    names += [
        value.text for group in groups for slot in group.slots if slot.kind == "word" for value in slot.values[:20]
    ]
    names += [table.files for table in survey.tables if table.id in image_set.table_ids.values()]
    modalities = tuple(
        dict.fromkeys([*content.modality, *(facts.modality for facts in survey.dicom if facts.group in ids)])
    )
    volumes = content.dims == 3 or image_set.images.several == "slices"
    return FolderWords(
        names=tuple(names),
        classes=tuple(
            name
            for name in candidate.target.classes
            if candidate.target.decision in ("label", "mask", "boxes")
            and not candidate.target.codes
            and (len(name) > MAX_ABBREVIATION or not name.isascii())
        ),
        notes="\n".join(document.text for document in survey.documents),
        header_modalities=modalities,
        dimension="3d" if volumes else "2d",
        is_colour=content.colour if content.channels and max(content.channels) > 1 else None,
        legend={code: name for legend in survey.legends for code, name in legend.names},
    )


def _codes_suffice(manifest: Manifest, target: Target, request: Request) -> bool:
    """Whether codes need no names: grades, and numbers that the request itself uses."""
    return (manifest.labels is not None and manifest.labels.ordered) or bool(
        request.classes and not target.unmatched_request
    )


def _is_explained(candidate: Candidate, resolved: Resolved) -> bool:
    """Whether the cases that drop out are those of a part that has no targets at all (a hidden test part, unlabelled images)."""
    return set(resolved.excluded["code"].to_list()) <= {
        "no_label",
        "no_mask",
        "no_row",
        "no_value",
        "no_report",
        "no_table_row",
    } and bool(candidate.features.get("partial", 0.0))


# --- outcome ----------------------------------------------------------------------------------------------------------------


def decide(
    survey: Survey,
    inventory: Inventory,
    request: Request,
    *,
    readers: FolderReaders | None = None,
    tasks: Sequence[Task] = (),
) -> Outcome:
    """Decide how a folder is to be read for a request.

    Args:
        tasks: that come into question; by default those of the request.
    """
    readers = readers or FolderReaders(inventory)
    tasks = tuple(tasks) or tuple(request.tasks) or tuple(TARGET_LISTS)
    image_sets = list_image_sets(survey, inventory, readers)
    if not image_sets:
        return Outcome(
            kind="refuse",
            task=tasks[0] if len(tasks) == 1 else None,
            refusal=Refusal(
                code="no_images",
                message=f"None of the {survey.files:,} files of the folder is an image that can be opened.",
                remedy="Name the folder that holds the images.",
            ),
        )
    measured_candidates = measure_candidates(survey, inventory, readers, image_sets, request, tasks)
    if not measured_candidates:
        return _refuse(survey, image_sets, request, tasks)
    return _settle(measured_candidates, request, survey)


def measure_candidates(
    survey: Survey,
    inventory: Inventory,
    readers: FolderReaders,
    image_sets: Sequence[ImageSet],
    request: Request,
    tasks: Sequence[Task],
) -> list[MeasuredCandidate]:
    """Return the resolved candidates, best first; of those that say the same of every image, the best."""
    measured_candidates: list[MeasuredCandidate] = []
    for candidate in list_candidates(survey, image_sets, request, tasks)[:MAX_RESOLVED]:
        item = measure(candidate, survey, inventory, readers, request)
        if item is None:
            continue
        place = next((at for at, second in enumerate(measured_candidates) if _says_same(item, second)), None)
        if place is None:
            measured_candidates.append(item)
        elif request.tasks.get(candidate.task, 0.0) > request.tasks.get(measured_candidates[place].candidate.task, 0.0):
            measured_candidates[place] = item
    return sorted(measured_candidates, key=lambda item: -item.logit)


def _says_same(item: MeasuredCandidate, second: MeasuredCandidate) -> bool:
    """Whether two readings give every image the same target, whatever the source is called."""
    if item.candidate.task != second.candidate.task and not {item.candidate.task, second.candidate.task} <= LABEL_TASKS:
        return False
    frames = [_describe_targets(measured_candidates) for measured_candidates in (item, second)]
    if frames[0] is None or frames[1] is None or len(frames[0]) != len(frames[1]):
        return item.manifest.model_dump(exclude={"patient", "split"}) == second.manifest.model_dump(
            exclude={"patient", "split"}
        )
    table = frames[0].join(frames[1], on="refs", how="inner", suffix="_other")
    return len(table) == len(frames[0]) and _is_equal(table, item)


def _agree(item: MeasuredCandidate, second: MeasuredCandidate) -> bool:
    """Whether two readings say the same of the images that both have, and have most of the smaller one's."""
    frames = [_describe_targets(measured_candidates) for measured_candidates in (item, second)]
    if item.candidate.task != second.candidate.task or frames[0] is None or frames[1] is None:
        return False
    table = frames[0].join(frames[1], on="refs", how="inner", suffix="_other")
    if len(table) < 0.9 * min(len(frames[0]), len(frames[1])):
        return False
    return _is_equal(table, item)


def _is_equal(table: pl.DataFrame, measured_candidates: MeasuredCandidate) -> bool:
    """Whether two columns say the same of each image; classes may have other names."""
    if measured_candidates.manifest.labels is None:
        return mean_of(table["said"] == table["said_other"]) >= MIN_EQUAL
    pairs = table.select("said", "said_other").unique()
    return pairs["said"].n_unique() == len(pairs) == pairs["said_other"].n_unique()


def _describe_targets(measured_candidates: MeasuredCandidate) -> pl.DataFrame | None:
    frame = measured_candidates.resolved.frame
    if "n_marks" in frame.columns:
        classes = frame["mark_classes"] if "mark_classes" in frame.columns else None
        targets_text = frame.select(
            pl.concat_str(pl.col("n_marks").cast(pl.String), pl.lit(" "))
            if classes is None
            else pl.concat_str(
                pl.col("n_marks").cast(pl.String), pl.lit(" "), pl.col("mark_classes").list.sort().list.join("|")
            )
        )
        return pl.DataFrame({"refs": frame["refs"].list.join("|"), "said": targets_text.to_series()})
    for name in ("labels", "number", "mask_refs", "findings", "time"):
        if name in frame.columns and frame[name].null_count() < len(frame):
            text = frame[name].list.join("|") if frame[name].dtype == pl.List else frame[name].cast(pl.String)
            return pl.DataFrame({"refs": frame["refs"].list.join("|"), "said": text.fill_null("")})
    return None


def to_proposal(measured_candidates: MeasuredCandidate) -> ManifestProposal:
    """Return a measured candidate as a proposal."""
    return ManifestProposal(
        manifest=measured_candidates.manifest,
        title=measured_candidates.candidate.target.title,
        score=round(measured_candidates.score, 4),
        features={name: round(value, 4) for name, value in measured_candidates.features.items()},
        evidence=measured_candidates.evidence,
        doubts=measured_candidates.doubts,
        cases=len(measured_candidates.resolved.frame),
        classes=class_counts(measured_candidates.resolved),
    )


def _settle(measured_candidates: Sequence[MeasuredCandidate], request: Request, survey: Survey) -> Outcome:
    best = measured_candidates[0]
    proposals = [to_proposal(item) for item in measured_candidates[:5]]
    task = best.candidate.task
    rivals = [
        item
        for item in measured_candidates[1:]
        if item.logit > best.logit - MIN_MARGIN and item.score >= MIN_SCORE / 2 and not _agree(best, item)
    ]
    doubts = list(best.doubts)
    if rivals:
        titles = "; ".join(item.candidate.target.title for item in rivals[:3])
        doubts.append(Doubt(code="rival", message=f"{best.candidate.target.title} and {titles} fit nearly as well"))
    if best.score < MIN_SCORE:
        doubts.append(
            Doubt(code="weak_evidence", message=f"{best.candidate.target.title} fits weakly (score {best.score:.2f})")
        )
    proposals[0] = proposals[0].model_copy(update={"doubts": tuple(doubts)})
    blocking = proposals[0].blocking
    if not blocking:
        return Outcome(
            kind="proposed", task=task, proposals=tuple(proposals), assumptions=_assumptions(best, request, survey)
        )
    first = blocking[0]
    if first.code == "rival":
        options = tuple(item.title for item in proposals[: 1 + len(rivals)])
        return Outcome(
            kind="ask",
            task=task,
            proposals=tuple(proposals),
            question=Question(
                code="rival",
                text=f"Several readings fit the request: {'; '.join(options)}. Which one is meant?",
                options=options,
                remedy="Name the column, the masks or the classes in the request.",
            ),
        )
    if best.score < MIN_SCORE / 4 or (first.code == "fewer_classes" and not best.candidate.target.requested):
        return Outcome(
            kind="refuse",
            task=task,
            proposals=tuple(proposals),
            refusal=Refusal(
                code=first.code,
                message=first.message,
                remedy="Add what is missing to the folder, or change the request.",
            ),
        )
    return Outcome(
        kind="ask",
        task=task,
        proposals=tuple(proposals),
        question=Question(
            code=first.code,
            text=f"{first.message[:1].upper()}{first.message[1:]}. Take it as it is?",
            options=(proposals[0].title,),
            remedy="Edit the manifest, or name what is meant in the request.",
        ),
    )


def _assumptions(best: MeasuredCandidate, request: Request, survey: Survey) -> tuple[Assumption, ...]:
    """What the request says and nothing in the folder confirms."""
    statements = tuple(Assumption(kind="classes", claim=text, message=text) for text in best.candidate.target.assumed)
    return statements + tuple(
        Assumption(
            kind=claim.kind,
            claim=claim.asked,
            message=f"nothing in the folder says {claim.asked}: taken from your request",
        )
        for claim in contradictions(request.claims, folder_words(best.candidate, survey))
        if claim.verdict == "silent"
    )


def _refuse(survey: Survey, image_sets: Sequence[ImageSet], request: Request, tasks: Sequence[Task]) -> Outcome:
    needed = {
        "diagnosis": "labels",
        "grading": "grades",
        "segmentation": "masks",
        "detection": "boxes",
        "regression": "numbers",
        "survival": "times with events",
        "report": "reports",
    }
    targets_word = " or ".join(dict.fromkeys(needed[task] for task in tasks))
    images = max(image_sets, key=lambda item: item.count)
    return Outcome(
        kind="refuse",
        task=tasks[0] if len(tasks) == 1 else None,
        refusal=Refusal(
            code="no_targets",
            message=f"There are {images.count:,} images, and nothing in names, tables or files that could be their {targets_word}.",
            remedy=f"Add the {targets_word} to the folder.",
        ),
    )
