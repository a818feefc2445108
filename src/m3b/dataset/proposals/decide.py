"""The one decision about a folder and a request that `look`, `Pipeline.plan` and `run` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from m3b.dataset.inventory import KNOWN_SUFFIX_REGEX, Inventory
from m3b.dataset.manifest.model import CaseFilter, Manifest, Split, Task, ValueSource
from m3b.dataset.manifest.overrides import DRAWN, Overrides
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import Resolved, resolve
from m3b.dataset.proposals.context import MAX_SIDE_TEXTS, PatientChoice, SplitChoice, choose_patient, list_splits
from m3b.dataset.proposals.image_sets import MAX_CHANNELS, MIN_CROSSING, Column, ImageSet, list_image_sets, mean_of
from m3b.dataset.proposals.outcome import Assumption, Doubt, Evidence, ManifestProposal, Outcome, Question, Refusal
from m3b.dataset.proposals.overriding import (
    apply_overrides,
    choose_given_patient,
    describe_unmet,
    list_given_splits,
    narrow_joins,
)
from m3b.dataset.proposals.request import NO_OVERRIDES, Request
from m3b.dataset.proposals.roles import roles_of
from m3b.dataset.proposals.scoring import logit, probability
from m3b.dataset.proposals.targets import (
    Target,
    is_code,
    list_boxes,
    list_labels,
    list_masks,
    list_numbers,
    list_survivals,
    list_texts,
)
from m3b.dataset.survey.facts import Survey
from m3b.dataset.words.lexicon import get_lexicon
from m3b.dataset.words.requests import Claim, FolderWords, contradictions, select_modalities

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
MIN_GUESSED_VOLUMES = 10
"""Folders of pictures below which it is unlikely that each is a volume, and more likely that each is a class or a part."""
MAX_UNEXPLAINED = 0.02
"""Share of the images that may drop out without a stated reason."""
MIN_CASES, MIN_MARKED_CASES = 10, 3
"""Cases from which on they are a data set: a few volumes with masks are, a few labels are not."""
MIN_UNMATCHED = 10
"""Rows or files without images from which on they are targets of other images, and no legend."""
TOMOGRAPHY = frozenset({"computed tomography", "magnetic resonance imaging", "positron emission tomography"})
CONCRETE_KINDS = ("anatomy", "findings", "cells_tissues", "devices")
PATIENT_SCORE = 0.5
SPLIT_SCORE = 0.5
EXPLAINED_CODES = frozenset({"stated", "not_asked_for", "text_without_class"})
"""Codes of exclusions that a manifest itself explains: by its patterns, its filters, and the classes that it selects."""
MAX_COPIES = 10
"""Images of one mean that share their names up to a random text, such as augmented copies; more are a series or a class."""
SETTLED_BY_USER = frozenset({"fewer_classes", "legend_not_applied", "request_contradicted", "task_unclear"})
"""Codes of doubts that a user settles who says where the targets are, as a weak score and rivals."""


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
    claims: tuple[Claim, ...]

    @property
    def has_wrong_dimension(self) -> bool:
        """Whether it reads volumes where the request speaks of pictures, or the reverse."""
        return any(claim.kind == "dimension" and claim.verdict == "contradicted" for claim in self.claims)

    @property
    def guesses_few_volumes(self) -> bool:
        """Whether it takes a few folders of pictures as volumes, which are more likely classes or parts."""
        return bool(self.features.get("resolved:few_volumes"))

    @property
    def is_contradicted(self) -> bool:
        """Whether the folder contradicts the request about its images or targets."""
        return any(claim.verdict == "contradicted" for claim in self.claims)


# --- candidates -------------------------------------------------------------------------------------------------------------


def list_candidates(
    survey: Survey, image_sets: Sequence[ImageSet], request: Request, tasks: Sequence[Task]
) -> list[Candidate]:
    """Return all candidates, best first by what names, tables and samples tell."""
    masks = {image_set.count for image_set in image_sets if image_set.content.is_mask}
    total = max(
        (image_set.count for image_set in image_sets if not image_set.content.is_mask), default=max(masks, default=1)
    )
    candidates = []
    for task in tasks:
        for image_set in image_sets:
            shared = set_features(image_set, request, task, total)
            for list_targets in TARGET_LISTS[task]:
                for listed in list_targets(image_set, survey, replace(request, task=task)):
                    target = apply_overrides(image_set, listed, request) if request.overrides.options else listed
                    if target is None:
                        continue
                    if image_set.images.several == "views" and target.decision != "text":
                        continue  # a study has one report; its images have labels of their own
                    features = {**shared, **row_features(image_set, target), **target.features}
                    candidates.append(Candidate(task, image_set, target, features, logit(target.decision, features)))
    return sorted(_weigh_tasks(candidates), key=lambda item: -item.logit)


def _weigh_tasks(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates whose tasks are weighed among those that the folder has targets for: "detect" may ask for boxes or labels."""
    largest = max((candidate.features["task:weight"] for candidate in candidates), default=0.0)
    if not largest:
        return list(candidates)
    weighed = []
    for candidate in candidates:
        features = {**candidate.features, "task:weight": candidate.features["task:weight"] / largest}
        weighed.append(replace(candidate, features=features, logit=logit(candidate.target.decision, features)))
    return weighed


def set_features(image_set: ImageSet, request: Request, task: Task, largest: int) -> dict[str, float]:
    """Return what speaks for and against an image set, whatever the target."""
    content = image_set.content
    is_joined = image_set.images.several == "slices" or image_set.images.unit == "folder"
    volumes = image_set.images.several == "slices" or content.dims == 3
    return {
        "set:share": min(1.0, image_set.count * (1 + len(image_set.images.channels)) / largest),
        "set:is_mask": float(content.is_mask),
        "set:volumes": float(volumes),
        "set:wrong_dims": float(request.dims is not None and (request.dims == 3) != volumes),
        "set:slices": float(image_set.images.several == "slices"),
        "set:tomography": float(guesses_volumes(image_set) and bool(TOMOGRAPHY & set(request.claims.modalities))),
        "set:frames": float(image_set.images.frames > 0),
        "set:parts_as_cases": float(image_set.has_numbered_parts and not is_joined),
        "set:parts_joined": float(image_set.has_numbered_parts and is_joined),
        "set:previews": image_set.preview_share,
        "set:groups": float(len(image_set.groups) > 1 and not image_set.images.channels),
        "set:channels": float(bool(image_set.images.channels)),
        "set:failed": content.failed / max(content.samples, 1),
        "task:weight": request.tasks.get(task, 0.0),
    }


def row_features(image_set: ImageSet, target: Target) -> dict[str, float]:
    """Return how many rows of the target's table go with a case: slices of one case share a row, cases have their own."""
    rows = image_set.rows_of(target.templates)
    if not rows:
        return {}
    cases = image_set.case_count
    return {
        "row:own": float(rows == cases),
        "row:shared": max(0.0, 1 - rows / cases),
        "row:several": max(0.0, 1 - cases / rows),
    }


def guesses_volumes(image_set: ImageSet) -> bool:
    """Return whether folders of pictures are taken as volumes, which no header says."""
    images = image_set.images
    return images.several == "slices" and images.unit == "file" and images.case == "{folder}"


def build_manifest(
    candidate: Candidate, patient: PatientChoice | None, split: SplitChoice | None, only: tuple[CaseFilter, ...] = ()
) -> Manifest:
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
    return Manifest(
        task=candidate.task, images=image_set.images, tables=image_set.tables_of(templates), only=only, **parts
    )


def header_modalities(image_set: ImageSet, survey: Survey) -> tuple[str, ...]:
    """Return the modalities that the headers of an image set name (`CT`, `MR`)."""
    facts = (item.modality for item in survey.dicom if item.group in image_set.groups)
    return tuple(dict.fromkeys([*image_set.content.modality, *facts]))


def filter_modality(image_set: ImageSet, survey: Survey, request: Request) -> tuple[CaseFilter, ...]:
    """Return a filter for the modality of the request if the headers of an image set name several."""
    codes = header_modalities(image_set, survey)
    wanted = select_modalities(request.claims, codes)
    if not 0 < len(wanted) < len(codes):
        return ()
    reason = f"the request asks for {', '.join(request.claims.modalities)}"
    return (CaseFilter(value=ValueSource(value="{tag.Modality}"), texts=wanted, reason=reason),)


def shared_key(image_set: ImageSet) -> str:
    """Return the template of what images share that a slot alone tells apart (views, stains, sequences); empty if there are none."""
    slots = [
        column
        for column in image_set.columns
        if column.source in ("slot", "folder") and not column.template.startswith("{folder")
    ]
    telling_columns = [
        column
        for column in slots
        if (column.crossing >= MIN_CROSSING and column.stats.distinct <= MAX_CHANNELS)
        or _tells_copies_apart(image_set, column, slots)
    ]
    if not telling_columns or len(telling_columns) == len(slots):
        return ""
    return "/".join(column.template for column in slots if column not in telling_columns)


def _tells_copies_apart(image_set: ImageSet, column: Column, slots: Sequence[Column]) -> bool:
    """Whether a random text, which no two images share, is all that tells copies of an image apart."""
    if column.stats.numeric or column.stats.distinct < column.stats.filled or len(slots) < 2:
        return False
    rest = image_set.values("/".join(slot.template for slot in slots if slot is not column)).drop_nulls()
    return len(rest) / MAX_COPIES <= rest.n_unique() < len(rest)


def measure(
    candidate: Candidate, survey: Survey, inventory: Inventory, readers: FolderReaders, request: Request
) -> MeasuredCandidate | None:
    """Choose patients and split of a candidate, resolve it, and say what speaks against it."""
    image_set, target = candidate.image_set, candidate.target
    if request.overrides.split:
        splits = list_given_splits(image_set, survey, request.overrides)
        if not splits and request.overrides.split != DRAWN:
            return None
    else:
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
    patients = [
        item for item in choose_patient(image_set, image_set.case_count, used) if item.probability >= PATIENT_SCORE
    ]
    patient = patients[0] if patients else None
    for name in (request.overrides.patient_column, request.patient_key):
        patient = (choose_given_patient(image_set, name) if name else None) or patient
    doubts, evidence = [], [Evidence(code="target", message=target.title)]
    only = filter_modality(image_set, survey, request)
    resolved = resolve(build_manifest(candidate, patient, split, only), inventory, readers=readers)
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
        resolved = resolve(
            _without_test(build_manifest(candidate, patient, None, only), split), inventory, readers=readers
        )
        split = None
    if resolved.errors or not len(resolved.frame):
        return None
    if target.decision == "label" and max(class_counts(resolved).values(), default=0) < 2:
        return None  # nothing can be learnt and tested if each class has one case
    hidden = _hidden_paths(image_set, splits[0]) if splits and split is None else frozenset()
    claims = tuple(contradictions(request.claims, folder_words(candidate, survey, inventory, request)))
    doubts += list(_doubts(candidate, resolved, request, claims, hidden))
    doubts += list(_find_missing_images(image_set, survey))
    left_out = resolved.excluded.filter(pl.col("code") == "text_without_class")
    if len(left_out):
        evidence.append(
            Evidence(
                code="classes_left_out",
                message=f"{len(left_out):,} cases of classes that the request does not name are left out",
            )
        )
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
        claims,
    )


def _without_test(manifest: Manifest, split: SplitChoice) -> Manifest:
    """A manifest without the cases of a test part that has no targets, which is stated."""
    value = split.split.value
    if manifest.boxes is None or value is None:
        return manifest
    texts = (*split.split.train, *split.split.val)
    only = CaseFilter(value=value, texts=texts, reason="the folder's test part has no targets")
    tables = {**split.tables, **manifest.tables}
    return manifest.model_copy(update={"only": (*manifest.only, only), "tables": tables})


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
    cases = len(resolved.frame)
    excluded = len(resolved.excluded.filter(~pl.col("code").is_in(list(EXPLAINED_CODES))))
    counts = class_counts(resolved)
    is_marked = candidate.target.decision in (
        "mask",
        "boxes",
    )  # a few volumes with masks are a set; a few labels are none
    return {
        "resolved:few_volumes": float(guesses_volumes(candidate.image_set) and cases < MIN_GUESSED_VOLUMES),
        "resolved:usable": cases / max(cases + excluded, 1),
        "resolved:few_cases": float(cases < (MIN_MARKED_CASES if is_marked else MIN_CASES)),
        "resolved:empty_classes": sum(1 for count in counts.values() if not count) / max(len(counts), 1),
        "resolved:problems": float(any(item.code not in EXPLAINED_CODES for item in resolved.problems)),
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
    candidate: Candidate, resolved: Resolved, request: Request, claims: Sequence[Claim], hidden: frozenset[str]
) -> Iterator[Doubt]:
    target, manifest = candidate.target, resolved.manifest
    for claim in claims:
        if claim.verdict == "contradicted":
            yield Doubt(
                code="request_contradicted", message=f"the request says {claim.asked}, and the folder: {claim.evidence}"
            )
        elif claim.verdict == "unknown" and target.decision != "survival":  # times and events are what it asks for
            yield Doubt(
                code="request_contradicted",
                message=f"the request asks for {claim.asked}, which nothing in the folder mentions and which is no clinical term",
            )
    if request.claims.second_half:
        yield Doubt(
            code="part_of_request_not_served",
            message=f'one model has one task: "{request.claims.second_half}" is left for a second request',
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
    if total and len(unexplained) > MAX_UNEXPLAINED * total and not _find_part(candidate, unexplained):
        reasons = "; ".join(f"{item.count:,}: {item.reason}" for item in resolved.excluded_cases[:3])
        yield Doubt(
            code="unexplained_exclusions", message=f"{len(unexplained):,} of {total:,} cases cannot be used ({reasons})"
        )
    if crossing := _count_crossing(candidate, resolved):
        yield Doubt(code="groups_cross_split", message=crossing)
    if manifest.patient is None:
        yield Doubt(code="patients_unknown", message="nothing in names, tables or headers says whose an image is")


def _find_missing_images(image_set: ImageSet, survey: Survey) -> Iterator[Doubt]:
    """Yield a doubt if targets name many more images than there are, and these are previews by the name of their folder."""
    folders = {group.pattern.rpartition("/")[0] for group in map(survey.group, image_set.groups)}
    if not all("preview" in roles_of(folder) for folder in folders):
        return
    annotated = [
        (item.images, item.images_found) for item in survey.annotations if item.images_group in image_set.groups
    ]
    joined = [(item.rows, item.rows_matched) for item in survey.joins if item.group in image_set.groups]
    named, present = max([*annotated, *joined], default=(0, 0))
    if present < named / 2:
        message = (
            f"the targets name {named:,} images; {present:,} are there, in a folder of previews ({', '.join(folders)})"
        )
        yield Doubt(code="images_missing", message=message)


def _is_concrete(request: Request) -> bool:
    """Whether what is asked for names findings, organs, cells or the like, and not just marked objects."""
    lexicon = get_lexicon()
    requested = request.claims.classes or request.claims.targets
    positive = [name for name in requested if name not in request.claims.negatives]
    concrete = sum(bool(lexicon.find_concepts(name, CONCRETE_KINDS)) for name in positive)
    return bool(positive) and concrete > len(positive) / 2


def folder_words(candidate: Candidate, survey: Survey, inventory: Inventory, request: Request) -> FolderWords:
    """Return what the folder's words, headers and pixels say of a candidate's images and targets."""
    image_set, content = candidate.image_set, candidate.image_set.content
    groups = [survey.group(id) for id in image_set.groups]
    names = [re.sub(KNOWN_SUFFIX_REGEX, "", re.sub(r"\{[^{}]*\}", " ", group.pattern)) for group in groups]
    names += [
        value.text for group in groups for slot in group.slots if slot.kind == "word" for value in slot.values[:20]
    ]
    names += [table.files for table in survey.tables if table.id in image_set.table_ids.values()]
    target = candidate.target
    columns = [column.name for column in image_set.columns if column.name and column.template in target.templates]
    volumes = content.dims == 3 or image_set.images.several == "slices"
    return FolderWords(
        folders=(inventory.root.name,),
        names=(*names, *columns),
        classes=_folder_classes(target, columns, request),
        notes="\n".join(document.text for document in survey.documents),
        header_modalities=header_modalities(image_set, survey),
        dimension="3d" if volumes else "2d",
        is_colour=content.colour if content.channels and max(content.channels) > 1 else None,
        legend={code: name for legend in survey.legends for code, name in legend.names},
    )


def _folder_classes(target: Target, columns: Sequence[str], request: Request) -> tuple[str, ...]:
    """Return the names of classes that the folder gives itself, and not those that values took from the request."""
    requested = {request.target, *request.classes}
    labels, masks = target.parts.get("labels"), target.parts.get("masks")
    if target.decision == "number":
        return tuple(columns)
    if target.codes or target.decision not in ("label", "mask", "boxes"):
        return ()
    if labels is not None and not target.legend and set(labels.classes) <= requested:
        texts = [text for texts in labels.classes.values() for text in texts]
        return tuple(columns) if all(is_code(text) or "yes_no" in roles_of(text) for text in texts) else target.classes
    if masks is not None and masks.format == "image" and not target.legend:
        return tuple(name for name in target.classes if name not in requested)
    return target.classes


def _codes_suffice(manifest: Manifest, target: Target, request: Request) -> bool:
    """Whether codes need no names: grades, and numbers that the request itself uses."""
    return (manifest.labels is not None and manifest.labels.ordered) or bool(
        request.classes and not target.unmatched_request
    )


def _find_part(candidate: Candidate, excluded: pl.DataFrame) -> str:
    """Return the column and text that all excluded images have and no others, such as a test part; empty if none does."""
    image_set = candidate.image_set
    is_excluded = image_set.frame.frame["path"].is_in(excluded["paths"].explode().to_list())
    for column in image_set.columns:
        if not 2 <= column.stats.distinct <= MAX_SIDE_TEXTS or column.template in candidate.target.templates:
            continue
        texts = image_set.values(column.template).fill_null("")
        outside, inside = set(texts.filter(is_excluded)), set(texts.filter(~is_excluded))
        if outside and inside and not outside & inside:
            return f"{column.template} {', '.join(sorted(outside))}"
    return ""


def _count_crossing(candidate: Candidate, resolved: Resolved) -> str:
    """Return which patients, or groups of equal names, lie on both sides of the folder's own split; empty if none do."""
    crossing = next((item for item in resolved.problems if item.code == "patients_cross_split"), None)
    if crossing is not None:
        return crossing.finding
    frame = resolved.frame
    if resolved.manifest.patient is not None or "split" not in frame.columns:
        return ""
    image_set = candidate.image_set
    sides = frame.select(pl.col("paths").list.first().alias("path"), (pl.col("split") == "test").alias("is_test"))
    for column in image_set.columns:
        if column.source != "slot" or column.stats.distinct < 2:
            continue
        names = pl.DataFrame({"path": image_set.frame.frame["path"], "text": image_set.values(column.template)}).unique(
            "path"
        )
        groups = (
            sides.join(names, on="path").drop_nulls().group_by("text").agg(pl.col("is_test").sum(), pl.len().alias("n"))
        )
        has_groups = bool((groups["is_test"] > 1).any() or (groups["n"] - groups["is_test"] > 1).any())
        n_crossing = len(groups.filter((pl.col("is_test") > 0) & (pl.col("is_test") < pl.col("n"))))
        if n_crossing and has_groups and len(groups) * MAX_COPIES >= len(sides) > len(groups):
            return (
                f"{n_crossing:,} of {len(groups):,} groups of images with the same {column.template} are in both parts of the "
                "folder's own split"
            )
    return ""


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
    if not tasks and not request.is_understood:
        return Outcome(
            kind="refuse",
            refusal=Refusal(
                code="task_unclear",
                message=f"The request names nothing that a model could learn from images: {request.text[:120]!r}.",
                remedy='Say what is to be classified, segmented, detected or measured, e.g. "Segment the liver on CT".',
            ),
        )
    readers = readers or FolderReaders(inventory)
    tasks = tuple(tasks) or tuple(request.tasks) or tuple(TARGET_LISTS)
    survey = narrow_joins(survey, request.overrides)
    image_sets = list_image_sets(survey, inventory, readers)
    if not image_sets:
        return Outcome(
            kind="refuse",
            task=tasks[0] if len(tasks) == 1 else None,
            refusal=_refuse_images(survey),
        )
    measured_candidates = measure_candidates(survey, inventory, readers, image_sets, request, tasks)
    if not measured_candidates and request.overrides.options:
        others = decide(survey, inventory, replace(request, overrides=NO_OVERRIDES), readers=readers, tasks=tasks)
        titles = [proposal.title for proposal in others.proposals]
        return Outcome(
            kind="refuse",
            task=tasks[0] if len(tasks) == 1 else None,
            refusal=Refusal(
                code="overrides_not_met",
                message=describe_unmet(request.overrides, titles, survey),
                remedy="Correct the options, or leave them out.",
            ),
        )
    if not measured_candidates:
        return _refuse(survey, image_sets, tasks, ())
    outcome = _settle(measured_candidates, request.overrides)
    return outcome if outcome is not None else _refuse(survey, image_sets, tasks, measured_candidates)


def _refuse_images(survey: Survey) -> Refusal:
    """Return why there are no images: none is there, or none opens."""
    closed = [(group, group.content.samples) for group in survey.groups if group.content is not None]
    if tried := sum(samples for _, samples in closed):
        count = sum(group.count for group, _ in closed)
        return Refusal(
            code="no_image_opens",
            message=f"None of the images opens: {tried} of {count:,} were tried, such as {closed[0][0].examples[0]}.",
            remedy="Copy or export them again.",
        )
    return Refusal(
        code="no_images",
        message=f"None of the {survey.files:,} files of the folder is an image that can be opened.",
        remedy="Name the folder that holds the images.",
    )


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
        elif _rank(item, request) > _rank(measured_candidates[place], request):
            measured_candidates[place] = item
    return sorted(
        measured_candidates,
        key=lambda item: (item.has_wrong_dimension or item.score < MIN_SCORE or item.guesses_few_volumes, -item.logit),
    )


def _rank(item: MeasuredCandidate, request: Request) -> tuple[float, ...]:
    """Of two readings that say the same: the likelier task, fewer cases left out, the higher score."""
    return request.tasks.get(item.candidate.task, 0.0), -len(item.resolved.excluded), item.logit


def _says_same(item: MeasuredCandidate, second: MeasuredCandidate) -> bool:
    """Whether two readings give every image the same target, whatever the source is called."""
    tasks = {item.candidate.task, second.candidate.task}
    decisions = {item.candidate.target.decision, second.candidate.target.decision}
    if len(tasks) > 1 and not tasks <= LABEL_TASKS and decisions != {"mask"}:
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
    if {item.candidate.task, second.candidate.task} == LABEL_TASKS and (
        item.candidate.target.templates,
        item.candidate.image_set.images,
    ) == (second.candidate.target.templates, second.candidate.image_set.images):
        return True  # the same labels, as classes and as grades
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
    files = frame["paths"].list.join("|")  # a file with one image is the same whether its array is named or not
    refs = frame["refs"].list.join("|") if files.n_unique() < len(frame) else files
    if "n_marks" in frame.columns:
        classes = frame["mark_classes"] if "mark_classes" in frame.columns else None
        targets_text = frame.select(
            pl.concat_str(pl.col("n_marks").cast(pl.String), pl.lit(" "))
            if classes is None
            else pl.concat_str(
                pl.col("n_marks").cast(pl.String), pl.lit(" "), pl.col("mark_classes").list.sort().list.join("|")
            )
        )
        return pl.DataFrame({"refs": refs, "said": targets_text.to_series()})
    for name in ("labels", "number", "mask_refs", "findings", "time"):
        if name in frame.columns and frame[name].null_count() < len(frame):
            text = frame[name].list.join("|") if frame[name].dtype == pl.List else frame[name].cast(pl.String)
            return pl.DataFrame({"refs": refs, "said": text.fill_null("")})
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


def _settle(measured_candidates: Sequence[MeasuredCandidate], overrides: Overrides) -> Outcome | None:
    """Return what the best candidate leads to; None if it fits so badly that there are no targets."""
    best = measured_candidates[0]
    proposals = [to_proposal(item) for item in measured_candidates[:5]]
    task = best.candidate.task
    rivals = [
        item
        for item in measured_candidates[1:]
        if item.logit > best.logit - MIN_MARGIN
        and item.score >= min(MIN_SCORE, best.score) / 2
        and (best.is_contradicted or not item.is_contradicted)
        and (best.guesses_few_volumes or not item.guesses_few_volumes)
        and not _agree(best, item)
    ]
    doubts = [doubt for doubt in best.doubts if not (overrides.names_target and doubt.code in SETTLED_BY_USER)]
    if rivals and not overrides.names_target:
        titles = "; ".join(item.candidate.target.title for item in rivals[:3])
        doubts.append(Doubt(code="rival", message=f"{best.candidate.target.title} and {titles} fit nearly as well"))
    if best.score < MIN_SCORE and not overrides.names_target:
        doubts.append(
            Doubt(code="weak_evidence", message=f"{best.candidate.target.title} fits weakly (score {best.score:.2f})")
        )
    proposals[0] = proposals[0].model_copy(update={"doubts": tuple(doubts)})
    blocking = proposals[0].blocking
    if not blocking:
        return Outcome(kind="proposed", task=task, proposals=tuple(proposals), assumptions=_assumptions(best))
    first = blocking[0]
    if first.code == "weak_evidence" and best.score < MIN_SCORE / 4:
        return None
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


def _assumptions(best: MeasuredCandidate) -> tuple[Assumption, ...]:
    """What the request says and nothing in the folder confirms."""
    statements = tuple(Assumption(kind="classes", claim=text, message=text) for text in best.candidate.target.assumed)
    return statements + tuple(
        Assumption(
            kind=claim.kind,
            claim=claim.asked,
            message=f"nothing in the folder says {claim.asked}: taken from your request",
        )
        for claim in best.claims
        if claim.verdict == "silent"
    )


def _refuse(
    survey: Survey,
    image_sets: Sequence[ImageSet],
    tasks: Sequence[Task],
    measured_candidates: Sequence[MeasuredCandidate],
) -> Outcome:
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
    message = (
        f"There are {images.count:,} images, and nothing in names, tables or files that could be their {targets_word}."
    )
    refusal = Refusal(code="no_targets", message=message, remedy=f"Add the {targets_word} to the folder.")
    if unmatched := _list_unmatched(survey, image_sets):
        refusal = Refusal(
            code="targets_unmatched",
            message=f"{', '.join(unmatched[:4])} match none of the {images.count:,} images by any name or number.",
            remedy="Add the images that they name, or the column that names these images.",
        )
    proposals = tuple(to_proposal(item) for item in measured_candidates[:5])
    return Outcome(kind="refuse", task=tasks[0] if len(tasks) == 1 else None, proposals=proposals, refusal=refusal)


def _list_unmatched(survey: Survey, image_sets: Sequence[ImageSet]) -> list[str]:
    """Return the tables, annotation files and masks that go with no image."""
    joined = {id for image_set in image_sets for id in image_set.table_ids.values()}
    paired = {pairing.partner_group for pairing in survey.pairings} | {
        pairing.image_group for pairing in survey.pairings
    }
    tables = [table.files for table in survey.tables if table.id not in joined and table.rows >= MIN_UNMATCHED]
    annotations = [facts.files[0] for facts in survey.annotations if not facts.images_found]
    masks = [
        group.pattern
        for group in survey.groups
        if group.content is not None
        and group.content.is_mask
        and group.id not in paired
        and group.count >= MIN_UNMATCHED
    ]
    return [*tables, *annotations, *masks]
