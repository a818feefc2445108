"""The one decision about a folder and a request that `look`, `Pipeline.plan` and `run` share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from m3b.dataset.annotations import get_annotation_format
from m3b.dataset.annotations.base import AnnotatedImage
from m3b.dataset.annotations.geometry import SLACK, ImageSize
from m3b.dataset.archives import local_reference
from m3b.dataset.formats import DataError, probe_image, read_image
from m3b.dataset.inventory import KNOWN_SUFFIX_REGEX, Inventory
from m3b.dataset.manifest.annotated import AnnotatedImages
from m3b.dataset.manifest.model import CaseFilter, Labels, Manifest, Masks, Split, Task, ValueSource
from m3b.dataset.manifest.numbers import BOUND, says_no_number
from m3b.dataset.manifest.overrides import DRAWN
from m3b.dataset.manifest.patterns import parse_pattern
from m3b.dataset.manifest.pixels import find_factor
from m3b.dataset.manifest.problems import PatternError
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import Resolved, resolve
from m3b.dataset.proposals.altered_copies import AlteredCopies, find_altered_copies
from m3b.dataset.proposals.case_facts import add_case_facts, list_missing_covariates
from m3b.dataset.proposals.context import MAX_SIDE_TEXTS, PatientChoice, SplitChoice, choose_patient, list_splits
from m3b.dataset.proposals.field_of_view import find_field_of_view
from m3b.dataset.proposals.image_parts import find_image_parts
from m3b.dataset.proposals.image_sets import (
    MAX_CHANNELS,
    MIN_CHANCE,
    MIN_COMPLETE,
    Column,
    ImageSet,
    find_case_folder,
    find_image_modalities,
    guesses_volumes,
    list_image_sets,
    mean_of,
)
from m3b.dataset.proposals.outcome import (
    BLOCKING,
    Assumption,
    Doubt,
    Evidence,
    ManifestProposal,
    Outcome,
    Question,
    Refusal,
)
from m3b.dataset.proposals.overriding import (
    apply_overrides,
    choose_given_patient,
    describe_unmet,
    list_given_splits,
    narrow_joins,
)
from m3b.dataset.proposals.patient_series import PatientSeries, find_patient_series
from m3b.dataset.proposals.request import NO_OVERRIDES, Request
from m3b.dataset.proposals.restrictions import (
    find_forbidden_rows,
    find_general_prohibition,
    find_meaning_of_no_marks,
    find_reference,
)
from m3b.dataset.proposals.roles import laterality_of, roles_of, severity_ranks, split_words
from m3b.dataset.proposals.scoring import SET_FEATURES, logit, probability, without_set
from m3b.dataset.proposals.studies import asks_for_views, can_be_study, describe_single_views, without_single_views
from m3b.dataset.proposals.targets import (
    BOXES_AS_MASKS,
    MIN_INSIDE,
    Target,
    is_code,
    is_sequence,
    list_annotations,
    list_box_masks,
    list_boxes,
    list_labels,
    list_masks,
    list_numbers,
    list_survivals,
    list_texts,
)
from m3b.dataset.proposals.unused_splits import find_unused_split
from m3b.dataset.survey.contents import read_grid
from m3b.dataset.survey.facts import Legend, Survey, TableFacts
from m3b.dataset.tables import find_legends
from m3b.dataset.words.lexicon import get_lexicon
from m3b.dataset.words.matching import MATCH_SCORE, find_shared_words, is_negative, is_remainder
from m3b.dataset.words.requests import CONCRETE_KINDS, Claim, FolderWords, contradictions, select_modalities

TARGET_LISTS: dict[Task, tuple[Callable[[ImageSet, Survey, Request], Iterator[Target]], ...]] = {
    "diagnosis": (list_labels,),
    "grading": (list_labels,),
    "segmentation": (list_masks, list_box_masks),
    "detection": (list_boxes, list_masks),
    "regression": (list_numbers,),
    "survival": (list_survivals,),
    "report": (list_texts,),
}
"""Task -> what lists the targets that it can learn."""

LABEL_TASKS = frozenset({"diagnosis", "grading"})
"""Tasks that learn the same labels; which it is, the request says."""
IMAGE_TASKS = frozenset({"diagnosis", "grading", "regression", "survival", "report"})
"""Tasks whose targets are of whole images; masks of these images are no other images."""
REQUEST_SOURCE = "the request"
"""Source of a legend that the request itself gives."""
MAX_PROPOSALS, MAX_OPTIONS = 5, 4
"""Readings of an outcome, and those that a question offers."""
MAX_RESOLVED = 12
"""Candidates that are resolved, the best by names and tables."""
MAX_WIDER = 3
"""Readings of more images than the best one has that are looked at."""
MIN_SCORE = 0.5
"""Probability from which on a manifest is proposed."""
MIN_EQUAL = 0.98
"""Share of images for which two sources must say the same to be taken as one."""
MIN_MARGIN = 1.0
"""Difference of log odds to the best proposal that reads other targets."""
MIN_GUESSED_VOLUMES = 10
"""Folders of pictures below which it is unlikely that each is a volume, and more likely that each is a class or a part."""
MAX_DIVIDED = 0.5
"""Share of the test patients with training images above which a split was drawn by images, and is not kept."""
MAX_UNEXPLAINED = 0.02
"""Share of the images that may drop out without a stated reason."""
WITHOUT_TARGET: dict[str, str] = {
    "no_mask": "mask",
    "no_annotation": "annotation",
    "no_label": "label",
    "no_number": "number",
    "no_report": "report",
}
"""Code of exclusions -> what the images lack."""
MAX_WITHOUT_TARGET = 1 / 3
"""Share of the cases that may lack a target if all targets have their images."""
MIN_UNLABELLED = 1.0
"""Images without a label for each case, from which on a manifest keeps them for self-training."""
MAX_RENAMED = 0.05
"""Share of the images without a row, as far as rows without an image could be theirs, up to which single ones are missing; above
it a part of the images, such as a site, may be called otherwise in the table."""
MAX_CROSSING = 0.5
"""Share of the cases that the folder's own split may cost because it tests their patients."""
MIN_CASES, MIN_MARKED_CASES = 10, 3
"""Cases from which on they are a data set: a few volumes with masks are, a few labels are not."""
MIN_SIDE_WORD = 4
"""Letters of a word of a request that names a side."""
MAX_SIZED = 12
"""Images whose sizes are compared with those that annotations name."""
MIN_UNMATCHED = 10
"""Rows or files without images from which on they are targets of other images, and no legend."""
TOMOGRAPHY = frozenset({"computed tomography", "magnetic resonance imaging", "positron emission tomography"})
PATIENT_SCORE = 0.5
SPLIT_SCORE = 0.5
EXPLAINED_CODES = frozenset(
    {"stated", "not_asked_for", "few_slices", "text_without_class", "mask_of_no_class", "uncertain_label"}
)
"""Codes of exclusions that a manifest or the folder itself explains: by patterns, filters, the classes that it selects, and cells
that say that nobody knows."""
MAX_UNCERTAIN = 0.5
"""Share of the cases without a certain label, above which a person decides about them."""
MIN_SHARED = 0.25
"""Share of the names without a slot that occur with several of its values, from which on such images are kept on one side."""
MAX_GRIDS, MAX_OTHER_SIZES = 200, 0.1
"""Pairs whose sizes are compared, and the share of masks of another size up to which these are damaged files that are left out."""
MAX_COMPARED, MAX_DIFFERENCE = 3, 0.02
"""Pairs of files that are compared, and the mean difference of copies in another format, as a share of their mean above black."""
MAX_COPIES = 10
"""Images of one mean that share their names up to a random text, such as augmented copies; more are a series or a class."""
MIN_LIKE_VALUES = 3
"""Values that two columns share from which on they say the same kind of thing; yes and no are said of anything."""
STATED_EVIDENCE = {
    "altered_copies": "copies",
    "image_parts": "copies",
    "series_left_out": "series",
    "unlisted_negatives": "negatives",
}
"""Code of evidence that is stated as an assumption -> its kind."""
SETTLED_BY_USER = frozenset(
    {"fewer_classes", "target_not_marked", "legend_not_applied", "request_contradicted", "task_unclear"}
)
"""Codes of doubts that a user settles who says where the targets are, as a weak score and rivals."""


@dataclass(frozen=True)
class Candidate:
    """An image set with a target; its volumes are some of `series` if each patient has several with that target."""

    task: Task
    image_set: ImageSet
    target: Target
    features: Mapping[str, float]
    logit: float
    series: PatientSeries | None = None


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
    def shows_field_of_view(self) -> bool:
        """Whether its masks mark what the camera lights."""
        return bool(self.features.get("resolved:field_of_view"))

    @property
    def leaves_out_cases(self) -> bool:
        """Whether many images lack what it takes, such as masks of a second observer or a sheet of fewer rows."""
        return bool({"unexplained_exclusions", "images_without_target"} & {doubt.code for doubt in self.doubts})

    @property
    def is_contradicted(self) -> bool:
        """Whether the folder contradicts the request about its images or targets."""
        return any(claim.verdict == "contradicted" for claim in self.claims)


# --- candidates -------------------------------------------------------------------------------------------------------------


@contextmanager
def discard_on_error(title: str, failures: list[Evidence]) -> Iterator[None]:
    """Discard the candidates that a block lists or measures if anything is raised: the reason is added to `failures`.

    Files of a folder make tables, arrays and headers raise what they like; the other candidates do not depend on them.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - one candidate that cannot be executed must not end the decision
        reason = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        failures.append(Evidence(code="candidate_failed", message=f"{title} cannot be executed: {reason}"))


def list_candidates(
    survey: Survey,
    image_sets: Sequence[ImageSet],
    request: Request,
    tasks: Sequence[Task],
    failures: list[Evidence] | None = None,
) -> list[Candidate]:
    """Return all candidates, best first by what names, tables and samples tell.

    Args:
        failures: takes the reason if targets cannot be listed.
    """
    failures = [] if failures is None else failures
    masks = {image_set.count for image_set in image_sets if image_set.content.is_mask}
    total = max(
        (image_set.count for image_set in image_sets if not image_set.content.is_mask), default=max(masks, default=1)
    )
    wants_studies = asks_for_views(request) and any(item.images.several == "views" for item in image_sets)
    if not wants_studies:
        image_sets = select_requested(survey, image_sets, request)
    mask_groups = find_masks_of_images(survey)
    volume_patterns = {image_set.images.patterns for image_set in image_sets if is_volume(image_set)}
    study_patterns = {image_set.images.patterns for image_set in image_sets if image_set.images.several == "views"}
    n_signals = {image_set.groups: image_set.count for image_set in image_sets if image_set.has_signals}
    series = [
        patient_series
        for image_set in image_sets
        if (patient_series := find_patient_series(image_set, survey, request.text))
    ]
    candidates = []
    for task in tasks:
        for image_set in image_sets:
            if task in IMAGE_TASKS and mask_groups >= set(image_set.groups) and "mask" not in roles_of(request.text):
                continue
            is_divided = image_set.images.patterns in volume_patterns and not is_volume(image_set)
            shared = set_features(image_set, request, task, total, is_divided=is_divided)
            for list_targets in TARGET_LISTS[task]:
                with discard_on_error(f"{task} of {', '.join(image_set.images.patterns)}", failures):
                    for listed in list_targets(image_set, survey, replace(request, task=task)):
                        target = apply_overrides(image_set, listed, request) if request.overrides.options else listed
                        if target is None:
                            continue
                        if image_set.images.several == "views" and not can_be_study(target, is_asked=wants_studies):
                            continue  # a study has one report; its images have labels of their own
                        if target.decision == "text" and _is_view_of(image_set, image_sets, request):
                            continue
                        own_series = _find_series(image_set, target, series)
                        if own_series is not None and not own_series.is_meant(image_set):
                            continue
                        rows = row_features(image_set, target, is_divided=is_divided or target.decision == "text")
                        if (
                            0
                            < image_set.rows_of(target.templates)
                            <= n_signals.get(image_set.groups, 0)
                            < image_set.count
                        ):
                            continue  # the channels of a case share its row
                        if (
                            target.decision == "text"
                            and rows.get("row:shared")
                            and image_set.images.patterns in study_patterns
                        ):
                            continue
                        features = {**shared, **rows, **target.features}
                        log_odds = logit(target.decision, features)
                        candidates.append(Candidate(task, image_set, target, features, log_odds, own_series))
    divided = {key for image_set in image_sets for key in _list_divided(image_set)}
    candidates = [
        item
        for item in candidates
        if not any(
            (item.image_set.groups, template) in divided and not _is_named(template, request)
            for template in item.target.templates
        )
    ]
    candidates = without_single_views(candidates, is_asked=wants_studies)
    candidates = _without_needless_boxes(_without_other_grids(candidates))
    whole: dict[tuple[Any, ...], int] = defaultdict(int)
    for item in candidates:
        if _has_own_masks(item, survey) or _has_differing_names(item):
            whole[_target_key(item)] = max(whole[_target_key(item)], item.image_set.count)
    candidates = [item for item in candidates if item.image_set.count >= whole[_target_key(item)]]
    return sorted(_weigh_tasks(candidates), key=lambda item: -item.logit)


def _without_needless_boxes(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without boxes that would be learnt as masks, if any other target is likely."""
    others = [item for item in candidates if BOXES_AS_MASKS not in item.target.assumed]
    return (
        others
        if any(probability(item.target.decision, item.features) >= MIN_SCORE for item in others)
        else list(candidates)
    )


def _without_other_grids(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without those whose masks lie on another grid than the images, but on that of as many other images."""
    n_on_grid: dict[str, float] = defaultdict(float)
    n_marked = [item.features.get("image_share", 0.0) * item.image_set.count for item in candidates]
    files = [str(item.target.parts["masks"].files) if "masks" in item.target.parts else "" for item in candidates]
    for item, count, name in zip(candidates, n_marked, files, strict=True):
        if name and not item.target.sizes:
            n_on_grid[name] = max(n_on_grid[name], count)
    return [
        item
        for item, count, name in zip(candidates, n_marked, files, strict=True)
        if not (name and item.target.sizes and n_on_grid[name] >= max((1 - MAX_UNEXPLAINED) * count, 1))
    ]


def _is_view_of(image_set: ImageSet, image_sets: Sequence[ImageSet], request: Request) -> bool:
    """Whether pictures are one view of each study, or all of them as channels, and the request does not name this view."""
    studies = [study for study in image_sets if study.images.several == "views" and study.content.dims == 2]
    names = {word for pattern in image_set.images.patterns for word in split_words(pattern.rpartition("/")[2])}
    is_part = any(
        set(image_set.groups) <= set(study.groups)
        and image_set.count < study.count
        and image_set.images.several == "one"
        for study in studies
    )
    return is_part and (bool(image_set.images.channels) or not names & set(split_words(request.text)))


def _is_named(template: str, request: Request) -> bool:
    """Whether the request or a user names the column of a template."""
    column = template.strip("{}").partition(".")[2]
    words = split_words(column)
    text = split_words(request.text)
    is_in_text = any(text[start : start + len(words)] == words for start in range(len(text)))
    return is_in_text or request.overrides.label_column == column


def _list_divided(image_set: ImageSet) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the groups of the images and the columns that hold a value for some of the images of each row, such as one side, or the
    opinion of one of several readers."""
    for name, table in image_set.tables.items():
        for choice in table.choices.values():
            for column in choice.columns.values():
                yield image_set.groups, f"{{{name}.{column}}}"
        for agreement in table.agreements.values():
            for column in (*agreement.readers, agreement.consensus):
                yield image_set.groups, f"{{{name}.{column}}}"


def _target_key(candidate: Candidate) -> tuple[Any, ...]:
    """The groups of the images, and the columns or masks of the targets."""
    target = candidate.target
    return candidate.image_set.groups, target.decision, tuple(target.templates), str(target.parts.get("masks", ""))


def _has_own_masks(candidate: Candidate, survey: Survey) -> bool:
    """Whether each image of a group has a mask of its own: images of equal names in several folders are cases, not channels."""
    images, groups = candidate.image_set.images, candidate.image_set.groups
    if candidate.target.decision != "mask" or images.several != "one" or images.channels or len(groups) > 1:
        return False
    masks = candidate.target.parts["masks"].files
    return any(
        pairing.image_group == groups[0]
        and pairing.images_per_partner == 1
        and pairing.images_matched == pairing.image_files
        and survey.group(pairing.partner_group).pattern == masks
        for pairing in survey.pairings
    )


def _has_differing_names(candidate: Candidate) -> bool:
    """Whether the labels of all images differ among those of equal names up to a slot or folder: these are neither channels of a
    case nor kinds of which one is meant."""
    image_set, target = candidate.image_set, candidate.target
    rows = image_set.rows_of(target.templates)
    if target.decision != "label" or image_set.images.channels or not rows or rows != image_set.case_count:
        return False
    slots = [
        column for column in image_set.columns if column.source in ("slot", "folder") and column.stats.distinct > 1
    ]
    texts = [image_set.values(template).alias(template) for template in target.templates]
    for slot in slots:
        other_templates = "/".join(column.template for column in slots if column is not slot)
        if not other_templates or slot.crossing < MIN_SHARED or slot.stats.distinct > MAX_CHANNELS:
            continue
        labels = pl.DataFrame([image_set.values(other_templates).alias("(others)"), *texts]).drop_nulls()
        counts = labels.group_by("(others)").agg(pl.struct(pl.exclude("(others)")).n_unique().alias("n"))
        if mean_of(counts["n"] > 1) > MAX_UNEXPLAINED:
            return True
    return False


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


def _find_series(image_set: ImageSet, target: Target, series: Sequence[PatientSeries]) -> PatientSeries | None:
    """Return the series of patients that an image set takes, all or some of them, if a target is that of the patients."""
    if target.decision in ("mask", "boxes"):
        return None
    covering = [item for item in series if item.covers(image_set) and (item.value or item.image_set is image_set)]
    own = sorted(covering, key=lambda item: (item.image_set is not image_set, item.image_set.count))
    return next((item for item in own if item.shares_target(target.templates)), None)


def select_requested(survey: Survey, image_sets: Sequence[ImageSet], request: Request) -> list[ImageSet]:
    """Return the image sets without those of other planes, phases or sequences than those that the request names.

    Images of one kind each, such as `FLAIR.nii.gz` and `T1.nii.gz` of each case, are told apart by what only their names say.
    """
    targets = {word for phrase in (*request.claims.targets, *request.claims.classes) for word in split_words(phrase)}
    requested = {word for word in split_words(request.text) if not word.isdecimal()} - targets
    requested_kinds = set(request.claims.modalities)
    requested |= requested_kinds
    kinds: dict[tuple[str, ...], list[ImageSet]] = defaultdict(list)
    for image_set in image_sets:
        if key := _find_kinds_key(survey, image_set):
            kinds[key].append(image_set)
    left_out: list[ImageSet] = []
    for key, members in kinds.items():
        names = [_names_of_kind(survey, member) for member in members]
        shared = frozenset.intersection(*names)
        matches = [
            (kind_names - shared) & (requested_kinds if key[0] == "named" else requested) for kind_names in names
        ]
        wanted_members = [member for member, match in zip(members, matches, strict=True) if match]
        groups = {group for member in members for group in member.groups}
        wanted_groups = {group for member in wanted_members for group in member.groups}
        is_one_kind = len({frozenset(match) for match in matches if match}) == 1
        if is_one_kind and any(set(item.groups) == wanted_groups for item in image_sets):
            left_out += [
                item
                for item in image_sets
                if (groups - wanted_groups) & set(item.groups)
                or (item.groups == key and not any(item is member for member in wanted_members))
            ]
        elif not wanted_members and key == members[0].groups:
            counts = [item.count for item in members]
            left_out += members if min(counts) < MIN_COMPLETE * max(counts) else []  # kinds that some cases lack
        elif wanted_members and any(item.images.channels and set(item.groups) >= wanted_groups for item in image_sets):
            left_out += members  # several are named: they are channels of a case
    return [item for item in image_sets if not any(item is omitted_item for omitted_item in left_out)]


def _find_kinds_key(survey: Survey, image_set: ImageSet) -> tuple[str, ...]:
    """Return what images of one kind share with those of other kinds: the group, the folder of each case, or that their names say
    the kind by the term list; () of all others."""
    if image_set.images.channels or len(image_set.groups) > 1 or image_set.images.several != "one":
        return ()
    group = survey.group(image_set.groups[0])
    if image_set.images.patterns != (group.pattern,):
        return image_set.groups
    if folder := find_case_folder(group):
        return ("folder", folder)
    if image_set.content.modality:
        return ()  # headers say it
    concepts = get_lexicon().concepts
    says_kind = any(
        name in concepts and concepts[name].kind == "modalities" for name in _names_of_kind(survey, image_set)
    )
    return ("named", str(image_set.content.dims)) if says_kind and not image_set.content.is_mask else ()


def _names_of_kind(survey: Survey, image_set: ImageSet) -> frozenset[str]:
    """Words of the pattern of an image set, with the kinds of images that they are by the term list."""
    pattern = re.sub(r"\{[^{}]*\}", " ", " ".join(image_set.images.patterns))
    lexicon = get_lexicon()
    return frozenset(split_words(pattern)) | {
        name for name in lexicon.find_concepts(pattern) if lexicon.concepts[name].kind == "modalities"
    }


def find_masks_of_images(survey: Survey) -> frozenset[str]:
    """Return the ids of groups of masks that belong to images of the folder file by file."""
    is_mask = {group.id: group.content.is_mask for group in survey.groups if group.content is not None}
    pairs = [
        pair
        for pairing in survey.pairings
        for pair in (
            (pairing.partner_group, pairing.image_group, pairing.partners_matched / max(pairing.partner_files, 1)),
            (pairing.image_group, pairing.partner_group, pairing.images_matched / max(pairing.image_files, 1)),
        )
    ]
    return frozenset(
        masks
        for masks, images, share in pairs
        if share > 1 - MAX_UNEXPLAINED and is_mask.get(masks) and is_mask.get(images) is False
    )


def is_volume(image_set: ImageSet) -> bool:
    """Return whether the files of a case are joined to a volume."""
    return image_set.images.several == "slices" or image_set.images.unit == "folder"


def set_features(
    image_set: ImageSet, request: Request, task: Task, largest: int, *, is_divided: bool = False
) -> dict[str, float]:
    """Return what speaks for and against an image set, whatever the target.

    Args:
        is_divided: whether another image set joins its files to volumes.
    """
    content = image_set.content
    is_joined = is_volume(image_set)
    volumes = image_set.images.several == "slices" or content.dims == 3
    return {
        "set:share": min(1.0, image_set.count * (1 + len(image_set.images.channels)) / largest),
        "set:is_mask": float(content.is_mask),
        "set:volumes": float(volumes),
        "set:wrong_dims": float(request.dims is not None and (request.dims == 3) != volumes),
        "set:slices": float(image_set.images.several == "slices"),
        "set:tomography": float(
            guesses_volumes(image_set.images) and bool(TOMOGRAPHY & set(request.claims.modalities))
        ),
        "set:frames": float(image_set.images.frames > 0),
        "set:parts_as_cases": float(image_set.has_numbered_parts and is_divided),
        "set:parts_joined": float(image_set.has_numbered_parts and is_joined),
        "set:previews": image_set.preview_share,
        "set:groups": float(image_set.kinds > 1 and not image_set.images.channels),
        "set:channels": float(bool(image_set.images.channels)),
        "set:failed": content.failed / max(content.samples, 1),
        "task:weight": request.tasks.get(task, 0.0),
    }


def row_features(image_set: ImageSet, target: Target, *, is_divided: bool = True) -> dict[str, float]:
    """Return how many rows of the target's table go with a case: slices of one case share a row, cases have their own.

    Args:
        is_divided: whether another image set could join the images that share a row.
    """
    rows = image_set.rows_of(target.templates)
    if not rows:
        return {}
    cases = image_set.case_count
    return {
        "row:own": float(rows == cases),
        "row:shared": max(0.0, 1 - rows / cases) if is_divided else 0.0,
        "row:several": max(0.0, 1 - cases / rows),
    }


def build_manifest(
    candidate: Candidate, patient: PatientChoice | None, split: SplitChoice | None, only: tuple[CaseFilter, ...] = ()
) -> Manifest:
    """Return the manifest of a candidate with the chosen patients and split."""
    image_set, target = candidate.image_set, candidate.target
    templates = [*target.templates, image_set.images.case, *(item.value.value for item in only)]
    parts: dict[str, Any] = dict(target.parts)
    together: tuple[ValueSource, ...] = ()
    if patient is not None:
        templates.append(patient.column.template)
        source = ValueSource(value=patient.column.template)
        if _lacks_patients(patient.column):
            together = (source,)
        else:
            parts["patient"] = source
    if split is not None and split.split.value is not None:
        templates.append(split.split.value.value)
        parts["split"] = split.split
    used = (*target.templates, *([patient.column.template] if patient is not None else []))
    if shared := shared_key(image_set, used, split):
        together = (*together, ValueSource(value=shared))
    if together:
        parts["together"] = together
    images = image_set.images
    if candidate.series is not None and candidate.series.min_files:
        images = images.model_copy(update={"min_files": candidate.series.min_files})
    return Manifest(task=candidate.task, images=images, tables=image_set.tables_of(templates), only=only, **parts)


def _lacks_patients(column: Column) -> bool:
    """Whether names of another style lack the part that says whose an image is, so that it only keeps images together."""
    return column.source in ("slot", "folder") and column.stats.coverage < 1 - MAX_UNEXPLAINED


def _put_finding_last(labels: Labels) -> Labels:
    """Return labels of two classes in the order of a test: the finding, or the graver of both, is the second (positive) one."""
    if len(labels.classes) != 2 or labels.ordered or labels.multi_label:
        return labels
    first, second = labels.classes
    ranks = severity_ranks((first, second)) or {
        name: int(not (is_negative(name) or is_remainder(name))) for name in (first, second)
    }
    if ranks[first] <= ranks[second]:
        return labels
    return labels.model_copy(update={"classes": {name: labels.classes[name] for name in (second, first)}})


def header_modalities(image_set: ImageSet, survey: Survey) -> tuple[str, ...]:
    """Return the modalities that the headers of an image set name (`CT`, `MR`)."""
    if chosen_modalities := find_image_modalities(survey, [survey.group(id) for id in image_set.groups]):
        return chosen_modalities
    facts = (item.modality for item in survey.dicom if item.group in image_set.groups)
    return tuple(dict.fromkeys([*image_set.content.modality, *facts]))


def filter_modality(image_set: ImageSet, survey: Survey, request: Request) -> tuple[CaseFilter, ...]:
    """Return a filter for the modality of the request if the headers of an image set name several."""
    codes = header_modalities(image_set, survey)
    wanted_codes = select_modalities(request.claims, codes)
    if not 0 < len(wanted_codes) < len(codes):
        return ()
    reason = f"the request asks for {', '.join(request.claims.modalities)}"
    return (CaseFilter(value=ValueSource(value="{tag.Modality}"), texts=wanted_codes, reason=reason),)


def _filter_series(candidate: Candidate) -> tuple[CaseFilter, ...]:
    """Return a filter for the kind of series that is meant if an image set holds other kinds too."""
    series = candidate.series
    if series is None or not series.chosen or series.image_set is not candidate.image_set:
        return ()
    reason = f"another series of the patient than {series.chosen}"
    return (CaseFilter(value=ValueSource(value=series.value), texts=(series.chosen,), reason=reason),)


def _list_series_left_out(candidate: Candidate) -> list[Evidence]:
    series = candidate.series
    return [Evidence(code="series_left_out", message=series.describe())] if series and series.is_decided else []


def _find_open_category_keys(target: Target, survey: Survey, request: Request) -> Iterator[Doubt]:
    """Yield a doubt if several category keys of the same marks fit the request."""
    part = target.parts.get("masks") or target.parts.get("boxes")
    keys = sorted({facts.category_key for facts in list_annotations(survey, request) if facts.category_key})
    if part is not None and part.category_key and len(keys) > 1:
        message = f"{', '.join(keys)} name classes of marks, and nothing says which of them is meant"
        yield Doubt(code="rival", message=message)


def _find_open_series(candidate: Candidate) -> Iterator[Doubt]:
    """Yield a doubt if each patient has several kinds of series, and nothing says which is meant."""
    series = candidate.series
    if series is not None and not series.is_decided and series.image_set is candidate.image_set:
        yield Doubt(code="several_series", message=f"{series.describe()}, and nothing says which is meant")


def filter_side(image_set: ImageSet, target: Target, request: Request) -> Iterator[CaseFilter]:
    """Yield the side or level that the request names, of images whose labels lie in a column for each of them."""
    words = [word for word in split_words(request.text) if len(word) >= MIN_SIDE_WORD or not word.isascii()]
    sides = {laterality_of(word) for word in words} - {""}
    for table in image_set.tables_of(target.templates).values():
        for choice in table.choices.values():
            texts = tuple(
                text
                for text in choice.columns
                if ({laterality_of(text)} == sides if laterality_of(text) else text.casefold() in words)
            )
            if len(texts) == 1:
                yield CaseFilter(
                    value=ValueSource(value=choice.image), texts=texts, reason="another side than asked for"
                )


def filter_usable(image_set: ImageSet, target: Target, request: Request) -> tuple[CaseFilter, ...]:
    """Return filters for the rows that may be used if notes say that rows with a value of a column must not be."""
    used = set(image_set.tables_of(target.templates))
    filters = {}
    for column in sorted(image_set.columns, key=lambda column: bool(used & set(column.tables))):
        is_joined = used & set(column.tables) or column.stats.coverage > 1 - MAX_UNEXPLAINED
        if column.source != "table" or column.template in target.templates or not is_joined:
            continue
        values, has_blanks = list(column.stats.counts), column.stats.filled < image_set.count
        if forbidden := find_forbidden_rows(request.notes, column.name, values, has_blanks=has_blanks):
            reason = next(iter(forbidden.values()))
            source = ValueSource(value=column.template)
            filters[reason] = CaseFilter(value=source, without=tuple(forbidden), reason=reason)
    return tuple(filters.values())


def shared_key(image_set: ImageSet, used: Sequence[str], split: SplitChoice | None) -> str:
    """Return the template of what images share that a slot alone tells apart (views, stains, sequences), which is no class.

    Empty if there is none, or if the folder's own split divides what would be shared.

    Args:
        used: columns of the target and of the patients, which are no views.
    """
    slots = [
        column
        for column in image_set.columns
        if column.source in ("slot", "folder")
        and not column.template.startswith("{folder")
        and not _varies_within_cases(image_set, column)
    ]
    telling_columns = [
        column
        for column in slots
        if (column.crossing >= MIN_SHARED and column.stats.distinct <= MAX_CHANNELS and column.template not in used)
        or _tells_copies_apart(image_set, column, slots)
    ]
    if not telling_columns or len(telling_columns) == len(slots):
        return ""
    key = "/".join(column.template for column in slots if column not in telling_columns)
    return "" if split is not None and _crosses(image_set.values(key), split.sides) else key


def _crosses(keys: pl.Series, sides: pl.Series) -> bool:
    """Whether images with the same key are for testing and for training."""
    table = pl.DataFrame({"key": keys, "is_test": sides == "test"}).drop_nulls()
    return bool((table.group_by("key").agg(pl.col("is_test").n_unique())["is_test"] > 1).any())


def _varies_within_cases(image_set: ImageSet, column: Column) -> bool:
    """Whether files of one case differ in a column, as the numbers of slices do."""
    if image_set.images.several == "one" and image_set.images.unit != "folder":
        return False
    case = "{folder}" if image_set.images.unit == "folder" else image_set.images.case
    table = pl.DataFrame({"case": image_set.values(case), "value": image_set.values(column.template)})
    return bool((table.group_by("case").agg(pl.col("value").n_unique())["value"] > 1).any())


def _tells_copies_apart(image_set: ImageSet, column: Column, slots: Sequence[Column]) -> bool:
    """Whether a random text, which no two images share, is all that tells copies of an image apart."""
    if column.stats.numeric or column.stats.distinct < column.stats.filled or len(slots) < 2:
        return False
    rest_texts = image_set.values("/".join(slot.template for slot in slots if slot is not column)).drop_nulls()
    return len(rest_texts) / MAX_COPIES <= rest_texts.n_unique() < len(rest_texts)


def measure(
    candidate: Candidate, survey: Survey, inventory: Inventory, readers: FolderReaders, request: Request
) -> MeasuredCandidate | None:
    """Choose patients and split of a candidate, resolve it, and say what speaks against it."""
    if isinstance(labels := candidate.target.parts.get("labels"), Labels) and not request.overrides.classes:
        parts = {**candidate.target.parts, "labels": _put_finding_last(labels)}
        candidate = replace(candidate, target=replace(candidate.target, parts=parts))
    image_set, target = candidate.image_set, candidate.target
    doubts: list[Doubt] = []
    if request.overrides.split:
        splits = list_given_splits(image_set, survey, request.overrides)
        if not splits and request.overrides.split != DRAWN:
            return None
    else:
        choices = [item for item in list_splits(image_set, survey) if not _uses_split(item.split, target)]
        splits = [item for item in choices if item.probability >= SPLIT_SCORE]
        if not splits and (unused := find_unused_split(image_set, choices, inventory)):
            message = f"the folder divides these images into parts ({unused}), and this reading draws a new split"
            doubts.append(Doubt(code="split_not_used", message=message))
    split = splits[0] if splits else None
    used = [
        *target.templates,
        *([split.split.value.value] if split is not None and split.split.value is not None else []),
    ]
    classes = target.templates if target.decision == "label" else ()
    patients = [
        item
        for item in choose_patient(image_set, image_set.case_count, used, classes)
        if item.probability >= PATIENT_SCORE and not (split and _counts_each_part(image_set, item.column, split))
    ]
    patient = patients[0] if patients else None
    for name in (request.overrides.patient_column, request.patient_key):
        patient = (choose_given_patient(image_set, name) if name else None) or patient
    evidence = [Evidence(code="target", message=target.title)]
    only = (
        *filter_modality(image_set, survey, request),
        *filter_usable(image_set, target, request),
        *filter_side(image_set, target, request),
    )
    evidence += [Evidence(code="cases_left_out", message=f"left out: {item.reason}") for item in only]
    only = (*only, *_filter_series(candidate))
    evidence += _list_series_left_out(candidate)
    resolved = resolve(build_manifest(candidate, patient, split, only), inventory, readers=readers)
    hides_test = split is not None and _is_hidden(resolved, split, image_set.count)
    if request.wants_own_test and (split is None or hides_test):
        reason = f"which has no targets ({split.title})" if split is not None else "which these images do not have"
        message = f"the request asks for a test on the folder's test part, {reason}"
        doubts.append(Doubt(code="test_part_without_targets", message=message))
    if split is not None and hides_test:
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
    elif (
        split is not None
        and patient is not None
        and not (request.wants_own_test or request.overrides.split)
        and (share := _share_of_divided(image_set.values(patient.column.template), split.sides)) > MAX_DIVIDED
    ):
        message = f"the folder's own split ({split.title}) has {share:.0%} of its test patients for training, too: a new one is drawn"
        evidence.append(Evidence(code="split_divides_patients", message=message))
        resolved, split = resolve(build_manifest(candidate, patient, None, only), inventory, readers=readers), None
        splits = []
    if resolved.errors or not len(resolved.frame):
        return None
    patient, resolved, united = _keep_related_together(patient, resolved, image_set, inventory, readers, request)
    evidence += united
    if target.decision == "label" and max(class_counts(resolved).values(), default=0) < 2:
        return None  # nothing can be learnt and tested if each class has one case
    hidden = _hidden_paths(image_set, splits[0]) if splits and split is None else frozenset()
    unlisted = _find_stated_negatives(resolved, request) or _find_unlisted(candidate, resolved, hidden)
    if unlisted is not None and unlisted.are_negative:
        resolved = resolve(_with_unlisted_as_negatives(resolved.manifest), inventory, readers=readers)
        evidence.append(Evidence(code="unlisted_negatives", message=unlisted.message))
    claims = tuple(contradictions(request.claims, folder_words(candidate, survey, inventory, request)))
    if not target.sizes and (_has_only_other_sizes(resolved, inventory.root) or _has_masks_of_others(resolved)):
        return None  # the masks belong to other images
    candidate, resolved, size_evidence = _settle_sizes(candidate, resolved, inventory, readers)
    evidence += size_evidence
    doubts += (
        [Doubt(code="unlisted_images", message=unlisted.message)] if unlisted and not unlisted.are_negative else []
    )
    doubts += list(_doubts(candidate, survey, resolved, request, claims, hidden))
    doubts += list(_find_open_series(candidate))
    if reason := find_field_of_view(resolved, request.text, request.notes, inventory.root):
        message = f"{target.title} show the field of view of the camera, and nothing that is asked for: {reason}"
        doubts.insert(0, Doubt(code="target_not_marked", message=message))
    if sentence := find_general_prohibition(request.notes):
        doubts.append(Doubt(code="use_forbidden", message=f"the notes of the folder say: {sentence}"))
    doubts += list(_find_missing_images(image_set, survey))
    doubts += list(_find_other_sizes(resolved, readers))
    evidence += list(_describe_classes_left_out(target, resolved))
    evidence += describe_single_views(image_set, target)
    manifest, kept = _keep_unlabelled(resolved)
    evidence += kept
    features = {
        **candidate.features,
        **_resolved_features(candidate, resolved),
        "resolved:field_of_view": float(bool(reason)),
    }
    log_odds = logit(target.decision, features)
    return MeasuredCandidate(
        candidate,
        manifest,
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


def _keep_unlabelled(resolved: Resolved) -> tuple[Manifest, list[Evidence]]:
    """Return the manifest that keeps the images without a label if there are enough for self-training, and the evidence for it."""
    manifest, count = resolved.manifest, len(resolved.unlabelled)
    if manifest.labels is None or manifest.report is not None or count < MIN_UNLABELLED * len(resolved.frame):
        return manifest, []
    labels = manifest.labels.model_copy(update={"unlabelled": "keep"})
    message = f"{count:,} unlabelled images: may be used by self-training"
    return manifest.model_copy(update={"labels": labels}), [Evidence(code="unlabelled_images", message=message)]


def _describe_classes_left_out(target: Target, resolved: Resolved) -> Iterator[Evidence]:
    """Say which classes of cases, or of marks, the request does not name."""
    left_out = resolved.excluded.filter(pl.col("code") == "text_without_class")
    if len(left_out):
        message = f"{len(left_out):,} cases of classes that the request does not name are left out"
        yield Evidence(code="classes_left_out", message=message)
    if target.not_asked:
        message = f"marked and not asked for: {', '.join(target.not_asked[:8])}"
        yield Evidence(code="classes_left_out", message=message)


def _settle_sizes(
    candidate: Candidate, resolved: Resolved, inventory: Inventory, readers: FolderReaders
) -> tuple[Candidate, Resolved, list[Evidence]]:
    """Leave out masks of another size if they are few; bring masks and annotations to the size of their images if it is known how."""
    target = candidate.target
    if target.sizes and (share := _share_of_other_sizes(resolved, inventory.root)) <= MAX_OTHER_SIZES:
        message = f"{share:.0%} of the masks have another size than their image, and are left out: {target.sizes}"
        without_doubt = replace(candidate, target=replace(target, sizes=""))
        return without_doubt, resolved, [Evidence(code="mask_size_differs", message=message)]
    if target.sizes and (factor := _find_common_factor(resolved, inventory.root)):
        masks = target.parts["masks"].model_copy(update={"resized": True})
        resolved = replace(resolved, manifest=resolved.manifest.model_copy(update={"masks": masks}))
        assumed = f"the masks show the whole image at {factor:.2g} of its size, and are brought to it ({target.sizes})"
        candidate = replace(candidate, target=replace(target, sizes="", assumed=(*target.assumed, assumed)))
    elif name := _find_resized_part(resolved, readers):
        part = target.parts[name].model_copy(update={"resized": True})
        parts = {**target.parts, name: part}
        resolved = resolve(resolved.manifest.model_copy(update={name: part}), inventory, readers=readers)
        assumed = f"{name} were drawn on larger images, and are brought to the size of those that are there"
        candidate = replace(candidate, target=replace(target, parts=parts, assumed=(*target.assumed, assumed)))
    return candidate, resolved, []


def _keep_related_together(
    patient: PatientChoice | None,
    resolved: Resolved,
    image_set: ImageSet,
    inventory: Inventory,
    readers: FolderReaders,
    request: Request,
) -> tuple[PatientChoice | None, Resolved, list[Evidence]]:
    """Keep altered copies with their originals, and parts of a larger image with each other, on one side of the split."""
    if copies := find_altered_copies(_first_paths(resolved.frame)):
        is_given = bool(request.overrides.patient_column or request.patient_key)
        patient = None if not is_given and _numbers_originals(copies, resolved) else patient
        resolved = _keep_copies_together(copies, resolved, patient, inventory, readers)
        return patient, resolved, [Evidence(code="altered_copies", message=_describe_copies(copies, resolved))]
    if image_set.images.several != "one":
        return patient, resolved, []
    if parts := find_image_parts(*_list_images(resolved, image_set, inventory)):
        resolved = _keep_copies_together(parts, resolved, patient, inventory, readers)
        message = (
            f"{len(parts.copies):,} images are parts of {len(set(parts.groups.values())):,} larger ones by their names (such as "
            f"{parts.example[0]} of {parts.example[1]}); parts of one image stay on one side of the split"
        )
        return patient, resolved, [Evidence(code="image_parts", message=message)]
    return patient, resolved, []


def _first_paths(frame: pl.DataFrame) -> list[str]:
    """Return the first file of each case."""
    paths: list[str] = frame["paths"].list.first().to_list()
    return paths


def _list_images(resolved: Resolved, image_set: ImageSet, inventory: Inventory) -> tuple[list[str], list[str]]:
    """Return the paths of the cases, and of all other images of the folder by their suffixes."""
    paths = _first_paths(resolved.frame)
    other_files = inventory.files.filter(
        pl.col("path").str.to_lowercase().str.ends_with(PurePosixPath(paths[0]).suffix.lower())
        & ~pl.col("path").is_in(list(image_set.paths))
    )
    return paths, other_files["path"].to_list()


def _are_united(copies: AlteredCopies, resolved: Resolved) -> bool:
    """Whether altered copies and their originals have one patient each, so that no split divides them."""
    frame = resolved.frame
    if resolved.manifest.patient is None:
        return False
    patients = dict(zip(_first_paths(frame), frame["patient"], strict=True))
    patients_of: dict[str, set[str | None]] = defaultdict(set)
    for path, group in copies.groups.items():
        patients_of[group].add(patients[path])
    return all(len(united) == 1 and None not in united for united in patients_of.values())


def _keep_copies_together(
    copies: AlteredCopies,
    resolved: Resolved,
    patient: PatientChoice | None,
    inventory: Inventory,
    readers: FolderReaders,
) -> Resolved:
    """Return a manifest, resolved, by which altered copies and their originals lie in one part of the split."""
    if patient is not None and _are_united(copies, resolved):
        return resolved
    manifest = resolved.manifest
    update = {"together": (*manifest.together, copies.source), "patient": manifest.patient if patient else None}
    return resolve(manifest.model_copy(update=update), inventory, readers=readers)


def _numbers_originals(copies: AlteredCopies, resolved: Resolved) -> bool:
    """Whether what is taken as patients is a part of file names that differs in every original: numbers of images, not persons."""
    patient = resolved.manifest.patient
    if patient is None or "." in patient.value or roles_of(patient.value) & {"patient"}:
        return False
    frame = resolved.frame.filter(~pl.col("paths").list.first().is_in(list(copies.copies)))
    return len(frame) > 1 and frame["patient"].drop_nulls().n_unique() == len(frame)


def _describe_copies(copies: AlteredCopies, resolved: Resolved) -> str:
    """Say how many images are altered copies of others, and what the split does with them."""
    number = f"{len(copies.copies):,} of {len(resolved.frame):,} images"
    statement = f"{number} are altered copies of others by name (such as {copies.example[0]} of {copies.example[1]})"
    if "split" in resolved.frame.columns:
        sides = dict(zip(_first_paths(resolved.frame), resolved.frame["split"], strict=True))
        n_tested = sum(sides[path] == "test" for path in copies.copies)
        return f"{statement}; {n_tested:,} of them are in the folder's own test part"
    return f"{statement}; copies stay on the side of their original, and some are tested"


def _share_of_divided(patients: pl.Series, sides: pl.Series) -> float:
    """Return the share of the patients with images for testing that have images for training, too."""
    table = pl.DataFrame({"patient": patients, "is_test": sides == "test"}).drop_nulls()
    counts = table.group_by("patient").agg(pl.col("is_test").sum(), pl.len().alias("n")).filter(pl.col("is_test") > 0)
    return mean_of(counts["is_test"] < counts["n"])


def _counts_each_part(image_set: ImageSet, column: Column, split: SplitChoice) -> bool:
    """Whether names with numbers count the images of each part of a split anew, and so tell no persons apart."""
    values = pl.DataFrame({"value": image_set.values(column.template), "side": split.sides}).drop_nulls()
    parts = values.partition_by("side")
    crosses = values["value"].n_unique() < sum(part["value"].n_unique() for part in parts)
    return crosses and all(is_sequence(part["value"].str.extract(r"(\d+)\D*$")) for part in parts)


def _share_of_other_sizes(resolved: Resolved, root: Path) -> float:
    """The share of the cases whose mask has another size than their image."""
    opened = [image != mask for image, mask in _read_grids(resolved, root)]
    return sum(opened) / len(opened) if opened else 1.0


def _has_only_other_sizes(resolved: Resolved, root: Path) -> bool:
    """Whether no mask file of a few cases has the size of its image."""
    masks = resolved.manifest.masks
    if masks is None or masks.format != "image" or masks.member or masks.resized or resolved.manifest.images.member:
        return False
    grids = _read_grids(resolved, root, MAX_COMPARED)
    return bool(grids) and all(len(image) == len(mask) and image != mask for image, mask in grids)


def _has_masks_of_others(resolved: Resolved) -> bool:
    """Whether each volume of slices has more masks than slices, and the same as another volume: its key tells no volumes apart."""
    masks, frame = resolved.manifest.masks, resolved.frame
    if masks is None or masks.format != "image" or masks.per_file or resolved.manifest.images.several != "slices":
        return False
    too_many = frame["mask_refs"].list.len() > frame["refs"].list.len()
    return bool(too_many.all()) and bool(frame["mask_refs"].list.sort().list.join("\n").is_duplicated().all())


def _read_grids(
    resolved: Resolved, root: Path, count: int = MAX_GRIDS
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The sizes of image and mask, by the headers of at most `count` pairs."""
    if "mask_refs" not in resolved.frame.columns:
        return []
    pairs = resolved.frame.select(pl.col("refs").list.first(), pl.col("mask_refs").list.first()).drop_nulls()
    pairs = pairs.gather_every(max(1, len(pairs) // count))[:count]
    grids = [(read_grid(root, image), read_grid(root, mask)) for image, mask in pairs.iter_rows()]
    return [(image, mask) for image, mask in grids if image and mask]


def _find_common_factor(resolved: Resolved, root: Path) -> float | None:
    """The factor between the sides of all images and their masks; of images of one size it must be a whole one, as parts
    that are cut out have any size."""
    masks = resolved.manifest.masks
    grids = _read_grids(resolved, root)
    if masks is None or masks.format != "image" or masks.member or (factor := find_factor(grids)) is None:
        return None
    if len({image for image, _ in grids}) > 1:
        return factor
    (image, mask), *_ = grids
    wholes = [max(factor, 1 / factor) for factor in (mask[0] / image[0], mask[1] / image[1])]
    is_whole = all(whole > 1.5 and abs(whole - round(whole)) * min(*image, *mask) <= round(whole) for whole in wholes)
    return factor if is_whole else None


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
        "resolved:few_volumes": float(guesses_volumes(candidate.image_set.images) and cases < MIN_GUESSED_VOLUMES),
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


def count_several(resolved: Resolved) -> int:
    """Return how many cases have more than one class."""
    frame = resolved.frame
    if "labels" not in frame.columns or frame["labels"].dtype != pl.List:
        return 0
    return int((frame["labels"].list.len() > 1).sum())


# --- doubts -----------------------------------------------------------------------------------------------------------------


def _doubt_covariates(candidate: Candidate, request: Request) -> Iterator[Doubt]:
    if names := list_missing_covariates(candidate.image_set, request, candidate.target.templates):
        message = (
            f"the request gives {' and '.join(names)} to the model, and no table or header of the folder has it; if the request does "
            "not name it, the image alone is used"
        )
        yield Doubt(code="request_contradicted", message=message)


def _doubts(
    candidate: Candidate,
    survey: Survey,
    resolved: Resolved,
    request: Request,
    claims: Sequence[Claim],
    hidden: frozenset[str],
) -> Iterator[Doubt]:
    target, manifest = candidate.target, resolved.manifest
    yield from _doubt_covariates(candidate, request)
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
    asked_classes = (*request.claims.classes, *request.unions)
    if (
        len(asked_classes) > 1
        and target.unmatched_request
        and not _is_kind_of_all(target, asked_classes)
        and (target.requested or _is_concrete(request) or _are_words(target))
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
        partial = f"; {target.partial_legend}" if target.partial_legend else ""
        codes = f"{', '.join(target.codes[:8])} mean{'s' if len(target.codes) == 1 else ''}"
        yield Doubt(code="legend_not_applied", message=f"nothing says what {codes} ({target.title}{partial})")
    if target.turned:
        yield Doubt(code="turned_pixels", message=f"rows and columns of {target.turned} masks are exchanged")
    if target.sizes:
        subject = "boxes are" if target.decision == "boxes" else "a mask is"
        yield Doubt(code="mask_size_differs", message=f"{subject} of another size than the image: {target.sizes}")
    yield from _find_open_category_keys(target, survey, request)
    yield from _class_doubts(candidate.image_set, target, resolved, request)
    unexplained = resolved.excluded.filter(~pl.col("code").is_in(list(EXPLAINED_CODES)))
    if hidden:
        unexplained = unexplained.filter(~pl.col("paths").list.first().is_in(list(hidden)))
    total = len(resolved.frame) + len(resolved.excluded)
    lacking = {WITHOUT_TARGET.get(code, "") for code in unexplained["code"].unique()}
    if len(lacking) == 1 and "" not in lacking and _has_targets_used_up(candidate, survey, resolved, unexplained):
        message = f"{len(unexplained):,} of {total:,} images have no {lacking.pop()} and are left out"
        yield Doubt(code="images_without_target", message=message)
    elif total and len(unexplained) > MAX_UNEXPLAINED * total and not _find_part(candidate, unexplained)[0]:
        reasons = "; ".join(f"{item.count:,}: {item.reason}" for item in resolved.excluded_cases[:3])
        yield Doubt(
            code="unexplained_exclusions", message=f"{len(unexplained):,} of {total:,} cases cannot be used ({reasons})"
        )
    yield from _find_uncertain_cases(target, resolved)
    if crossing := _count_crossing(candidate, resolved):
        yield Doubt(code="groups_cross_split", message=crossing)
    if _count_crossing_cases(resolved) > MAX_CROSSING * len(resolved.frame):
        yield Doubt(code="unexplained_exclusions", message=crossing.rstrip("."))
    if manifest.patient is None:
        yield Doubt(code="patients_unknown", message="nothing in names, tables or headers says whose an image is")


def _find_uncertain_cases(target: Target, resolved: Resolved) -> Iterator[Doubt]:
    """Yield a doubt if most cases have a label that is uncertain."""
    total = len(resolved.frame) + len(resolved.excluded)
    count = int((resolved.excluded["code"] == "uncertain_label").sum())
    if "unknown_labels" in resolved.frame:
        count += int((resolved.frame["unknown_labels"].list.len() > 0).sum())
    if total and count > MAX_UNCERTAIN * total:
        message = f"{count:,} of {total:,} cases have no certain label in {target.title}; these labels are not learnt"
        yield Doubt(code="unexplained_exclusions", message=message)


@dataclass(frozen=True)
class UnlistedImages:
    """Images that annotations do not name, and that could have no mark or could not have been looked at.

    Args:
        are_negative: whether they have no mark, by the convention of the format or by the part that they are in.
        message: how many there are, and what they are taken for.
    """

    are_negative: bool
    message: str


def _find_unlisted(candidate: Candidate, resolved: Resolved, hidden: frozenset[str]) -> UnlistedImages | None:
    """Return the images that boxes do not name, if there are more than a few and nothing says that nobody looked at them.

    Annotations that name images without a mark name all images that people looked at.

    Args:
        hidden: images of a test part without targets.
    """
    annotated = resolved.annotated.get("boxes")
    unlisted = resolved.excluded.filter(pl.col("code") == "no_annotation")
    unlisted = unlisted.filter(~pl.col("paths").list.first().is_in(list(hidden)))
    total = len(resolved.frame) + len(unlisted)
    if annotated is None or len(unlisted) <= MAX_UNEXPLAINED * total:
        return None
    count = f"{len(unlisted):,} of {total:,} images"
    part, texts = _find_part(candidate, unlisted)
    if texts and all(is_negative(text) for text in texts):
        return UnlistedImages(True, f"{count} have no annotation and are negative ({part} {', '.join(texts)})")
    source = annotated.source
    if source is None:
        names_negatives, convention = not all(annotated.rows.values()), "unknown"
    else:
        names_negatives = any(not source.marks.get(image) for image in source.images)
        convention = get_annotation_format(source.format).unnamed_images
    if names_negatives or part or convention == "not_annotated":
        return None
    if convention == "negative" and len(unlisted) <= MAX_WITHOUT_TARGET * total:
        return UnlistedImages(
            True, f"{count} have no annotation file and are negative, as is usual for {source.format if source else ''}"
        )
    return UnlistedImages(
        False,
        f"{candidate.target.title} name no image without a mark, and {count} not at all: nothing says whether they show nothing "
        "or were not annotated",
    )


def _find_stated_negatives(resolved: Resolved, request: Request) -> UnlistedImages | None:
    """Return the images without a file of marks if the notes say that these show nothing, and no file of marks is left over."""
    unlisted = resolved.excluded.filter(pl.col("code").is_in(["no_mask", "no_annotation"]))
    sentence = find_meaning_of_no_marks(request.notes, (*request.claims.targets, *request.claims.classes))
    if not sentence or not len(unlisted):
        return None
    n_left = resolved.left_files.filter(pl.col("code") == "mask_without_image")["path"].n_unique()
    n_unmatched = sum(
        len(annotated.source.images) - len(set(annotated.images.values()))
        for annotated in resolved.annotated.values()
        if annotated.source is not None
    )
    if n_left + n_unmatched > MAX_UNEXPLAINED * len(resolved.frame):
        return None
    return UnlistedImages(True, f"{len(unlisted):,} images without marks show nothing, by the notes: {sentence}")


def _with_unlisted_as_negatives(manifest: Manifest) -> Manifest:
    """Return a manifest that takes images as negative which its masks or boxes do not name."""
    parts = {"masks": manifest.masks, "boxes": manifest.boxes}
    update = {name: part.model_copy(update={"empty": "healthy"}) for name, part in parts.items() if part is not None}
    return manifest.model_copy(update=update)


def _has_targets_used_up(candidate: Candidate, survey: Survey, resolved: Resolved, lacking: pl.DataFrame) -> bool:
    """Whether all masks, annotations or rows belong to images, so that the images that lack a target are simply left over.

    Names that do not meet leave over targets, too. A blank cell in the row of an image says that it has no target.

    Args:
        lacking: the cases without a target.
    """
    image_set, target, masks = candidate.image_set, candidate.target, resolved.manifest.masks
    if len(lacking) > MAX_WITHOUT_TARGET * (len(resolved.frame) + len(lacking)):
        return False
    if masks is not None and masks.format == "image":
        n_left = resolved.left_files.filter(pl.col("code") == "mask_without_image")["path"].n_unique()
        n_used = resolved.frame["mask_refs"].explode().n_unique()
        return n_left <= MAX_UNEXPLAINED * (n_left + n_used) and not _has_other_masks(
            image_set, survey, masks, len(lacking)
        )
    sources = [annotated for annotated in resolved.annotated.values() if annotated.source is not None]
    if sources:
        return all(
            len(set(annotated.images.values())) >= (1 - MAX_UNEXPLAINED) * len(annotated.source.images)
            for annotated in sources
            if annotated.source is not None
        )
    return _has_blank_cells_or_no_rows(image_set, resolved, target, lacking)


def _has_blank_cells_or_no_rows(image_set: ImageSet, resolved: Resolved, target: Target, lacking: pl.DataFrame) -> bool:
    """Whether cases that lack a target have a blank cell in the target's table, or no row while all rows belong to images or are
    so few that no part of the images is called otherwise there."""
    name, _, column = next(iter(target.templates), "").strip("{}").partition(".")
    table, labels = resolved.tables.get(name), resolved.manifest.labels
    if table is None or image_set.chances.get(name, 0.0) > MIN_CHANCE or "(row)" in resolved.manifest.tables[name].key:
        return False
    paths = lacking["paths"].explode().unique()
    images = resolved.images.select("path", left=pl.col("(image)")).filter(pl.col("path").is_in(paths.implode()))
    rows = images.join(table.pairs.cast(pl.UInt32), on="left")
    if len(rows) and (labels is not None and labels.value is None):
        return False  # yes/no columns of which none says yes
    if column in table.table.frame.columns:
        cells = table.table.frame[column].gather(rows["right"]).drop_nulls()
        if not pl.select(says_no_number(pl.lit(cells)) | pl.lit(cells).str.contains(BOUND)).to_series().all():
            return False
    n_rows_left = len(table.table.frame) - table.matched_rows
    n_without_row = len(paths) - rows["path"].n_unique()
    is_used_up = n_rows_left <= MAX_UNEXPLAINED * len(table.table.frame)
    return is_used_up or min(n_without_row, n_rows_left) <= MAX_RENAMED * len(resolved.images)


def _has_other_masks(image_set: ImageSet, survey: Survey, masks: Masks, n_lacking: int) -> bool:
    """Whether other files beside the masks could be those of the images that lack one."""
    patterns = (masks.files,) if isinstance(masks.files, str) else masks.files
    n_paired = {
        group.id: 0
        for group in survey.groups
        if group.content is not None and group.content.is_mask and not group.stray and group.pattern not in patterns
    }
    for pairing in survey.pairings:
        if pairing.image_group in image_set.groups and pairing.partner_group in n_paired:
            n_paired[pairing.partner_group] += pairing.images_matched
    folders = {pattern.rpartition("/")[0] for pattern in patterns}
    return any(
        n_images <= n_lacking if n_images else survey.group(id).pattern.rpartition("/")[0] in folders
        for id, n_images in n_paired.items()
    )


def _find_attribute(target: Target, request: Request) -> str:
    """Return the name of the column of labels if it describes the person or the recording (`sex`, `smoker`, `scanner`), and the
    request names neither it nor its classes; empty otherwise."""
    if target.decision != "label" or len(target.templates) != 1 or target.requested:
        return ""
    name = target.templates[0].strip("{}").rpartition(".")[2]
    return name if "attribute" in roles_of(name) and request.match_phrase(name) < MATCH_SCORE else ""


def _find_named_column(image_set: ImageSet, target: Target, request: Request) -> str:
    """Return the column that the request names if the target is another one of the same table with much the same values, such as
    that of one reader in place of the consensus; empty otherwise."""
    columns = {column.template: column for column in image_set.columns if column.source == "table"}
    if len(target.templates) != 1 or target.templates[0] not in columns or _is_named(target.templates[0], request):
        return ""
    target_column = columns[target.templates[0]]
    return next(
        (
            column.name
            for column in columns.values()
            if column.tables == target_column.tables
            and column.name
            and len(set(column.stats.counts) & set(target_column.stats.counts)) >= MIN_LIKE_VALUES
            and _is_named(column.template, request)
        ),
        "",
    )


def _is_kind_of_all(target: Target, asked_classes: Sequence[str]) -> bool:
    """Whether the only requested class that the folder lacks comes before others that are all there (`nodules, cystic or solid`)."""
    return (
        tuple(target.unmatched_request) == tuple(asked_classes[:1])
        and len(target.requested) >= 2
        and len(target.requested) == len(target.classes) == len(asked_classes) - 1
    )


def _class_doubts(image_set: ImageSet, target: Target, resolved: Resolved, request: Request) -> Iterator[Doubt]:
    """Yield what speaks against the names and the number of classes, and those of each case."""
    if target.decision in ("mask", "boxes") and not target.codes and request.names_none_of(target.classes):
        yield Doubt(
            code="target_not_marked",
            message=f"the request asks for {request.target}; nothing in {target.title} is called so "
            f"(there: {', '.join(target.classes[:8])})",
        )
    if name := _find_attribute(target, request):
        message = f"{target.title} describe the person or the recording ({name}), which the request does not ask for"
        yield Doubt(code="target_not_marked", message=message)
    if target.decision == "label" and request.class_count is not None and len(target.classes) < request.class_count:
        yield Doubt(
            code="fewer_classes",
            message=f"the request asks for {request.class_count} classes; {target.title} has {len(target.classes)}: "
            f"{', '.join(target.classes[:8])}",
        )
    if target.decision == "label" and (name := _find_named_column(image_set, target, request)):
        yield Doubt(
            code="target_not_marked", message=f"the request names the column {name}, which has such values, too"
        )
    counts = class_counts(resolved)
    empty = [name for name, count in counts.items() if not count]
    if empty:
        yield Doubt(code="fewer_classes", message=f"no case has the class {', '.join(empty[:6])}")
    several = count_several(resolved)
    if request.claims.is_distinction and not request.has_several and several > MAX_UNEXPLAINED * len(resolved.frame):
        yield Doubt(
            code="classes_overlap",
            message=f"{several:,} of {len(resolved.frame):,} cases have several classes ({target.title}), and the request tells "
            "one from another",
        )


def _names_other_formats(facts: TableFacts, key: str, suffixes: Collection[str]) -> bool:
    """Whether the key of a table names files by suffixes of images, and no column has a suffix of the images that are there."""
    named = {
        column.name: {match[0].casefold() for text in column.examples if (match := re.search(KNOWN_SUFFIX_REGEX, text))}
        for column in facts.columns
    }
    return bool(named.get(key.strip("{}"))) and not set().union(*named.values()) & set(suffixes)


def _find_missing_images(image_set: ImageSet, survey: Survey) -> Iterator[Doubt]:
    """Yield a doubt if targets name many more images than there are, and these are previews by their folder or another format."""
    folders = {group.pattern.rpartition("/")[0] for group in map(survey.group, image_set.groups)}
    annotated = [item for item in survey.annotations if item.images_group in image_set.groups]
    targets = [(item.images, item.images_found) for item in annotated if item.images_renamed > 0.5 * item.images_found]
    if all("preview" in roles_of(folder) for folder in folders):
        targets = [(item.images, item.images_found) for item in annotated]
        targets += [(item.rows, item.rows_matched) for item in survey.joins if item.group in image_set.groups]
    suffixes = {suffix.casefold() for id in image_set.groups for suffix in survey.group(id).suffixes}
    targets += [
        (item.rows, item.rows_matched)
        for item in survey.joins
        if item.group in image_set.groups and _names_other_formats(survey.table(item.table), item.key, suffixes)
    ]
    n_named, n_present = max(targets, default=(0, 0))
    if n_present < n_named / 2:
        message = (
            f"the targets name {n_named:,} images; {n_present:,} are there, under other names ({', '.join(folders)})"
        )
        yield Doubt(code="images_missing", message=message)


def _find_other_sizes(resolved: Resolved, readers: FolderReaders) -> Iterator[Doubt]:
    """Yield a doubt if annotations were drawn on images of another size than those that are there, by a sample of them."""
    for annotated in resolved.annotated.values():
        if annotated.source is None:
            continue
        ends = []
        for image, size in _read_sizes(annotated, readers).items():
            try:
                boxes = annotated.source.boxes(image, size)
            except DataError as error:
                if error.code == "size_differs":
                    yield Doubt(code="mask_size_differs", message=str(error))
                    return
                continue
            ends += [
                box[2] > size.width * (1 + SLACK) + 1 or box[3] > size.height * (1 + SLACK) + 1 for _, box in boxes
            ]
        if sum(ends) > (1 - MIN_INSIDE) * len(ends):
            message = (
                f"{sum(ends):,} of {len(ends):,} annotations reach beyond their image: they were drawn on larger ones"
            )
            yield Doubt(code="mask_size_differs", message=message)
            return


def _find_resized_part(resolved: Resolved, readers: FolderReaders) -> str:
    """Return which part of a manifest has annotations that were drawn on larger images; empty if none has."""
    return next(
        (
            name
            for name, annotated in resolved.annotated.items()
            if annotated.source is not None and annotated.source.is_resized(_read_sizes(annotated, readers))
        ),
        "",
    )


def _read_sizes(annotated: AnnotatedImages, readers: FolderReaders) -> dict[AnnotatedImage, ImageSize]:
    """The sizes of a sample of the flat images that have marks."""
    source = annotated.source
    paths = [path for path, image in annotated.images.items() if source is not None and source.marks.get(image)]
    sizes = {}
    for path in paths[:: max(1, len(paths) // MAX_SIZED)][:MAX_SIZED]:
        with suppress(DataError, OSError):
            info = probe_image(local_reference(readers.root, path))
            if len(info.shape) == 2:
                sizes[annotated.images[path]] = ImageSize(info.shape[1], info.shape[0], info.orientation)
    return sizes


def _are_words(target: Target) -> bool:
    """Whether classes have names, of which a request that lists classes should name some."""
    return target.decision == "label" and not any(
        is_code(name) or "yes_no" in roles_of(name) for name in target.classes
    )


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
    names += candidate.series.texts if candidate.series is not None else ()
    names += [
        next(iter(column.stats.counts))
        for column in image_set.columns
        if column.source == "table" and column.stats.distinct == 1 and column.stats.counts
    ]
    target = candidate.target
    columns = [column.name for column in image_set.columns if column.name and column.template in target.templates]
    volumes = content.dims == 3 or image_set.images.several == "slices"
    return FolderWords(
        folders=(inventory.root.name,),
        names=(*names, *columns),
        classes=_folder_classes(target, columns, request),
        notes=request.notes,
        header_modalities=header_modalities(image_set, survey),
        dimension="3d" if volumes else "2d",
        is_colour=content.colour if content.channels and max(content.channels) > 1 else None,
        legend={
            code: name for legend in survey.legends if legend.source != REQUEST_SOURCE for code, name in legend.names
        },
    )


def _folder_classes(target: Target, columns: Sequence[str], request: Request) -> tuple[str, ...]:
    """Return the names of classes that the folder gives itself, and not those that values took from the request."""
    requested = {request.target, *request.classes}
    labels, masks = target.parts.get("labels"), target.parts.get("masks")
    if target.codes or target.decision not in ("label", "mask", "boxes"):
        return ()
    has_legend = target.legend not in ("", REQUEST_SOURCE)
    if labels is not None and not has_legend and set(labels.classes) <= requested:
        texts = [text for texts in labels.classes.values() for text in texts]
        return tuple(columns) if all(is_code(text) or "yes_no" in roles_of(text) for text in texts) else target.classes
    if masks is not None and masks.per_file:
        return tuple(text for texts in masks.per_file.values() for text in texts)
    if masks is not None and masks.format == "image" and not has_legend:
        return tuple(name for name in target.classes if name not in requested)
    return target.classes


def _codes_suffice(manifest: Manifest, target: Target, request: Request) -> bool:
    """Whether codes need no names: grades, and codes that the request itself uses."""
    if target.partial_legend:
        return False
    return (manifest.labels is not None and manifest.labels.ordered) or set(target.codes) <= set(
        re.findall(r"\w+", request.text)
    )


def _find_part(candidate: Candidate, excluded: pl.DataFrame) -> tuple[str, tuple[str, ...]]:
    """Return the column and texts that all excluded images have and no others, such as a test part; empty if none does."""
    image_set = candidate.image_set
    is_excluded = image_set.frame.frame["path"].is_in(excluded["paths"].explode().to_list())
    for column in image_set.columns:
        if not 2 <= column.stats.distinct <= MAX_SIDE_TEXTS or column.template in candidate.target.templates:
            continue
        texts = image_set.values(column.template).fill_null("")
        outside, inside = set(texts.filter(is_excluded)), set(texts.filter(~is_excluded))
        if outside and inside and "" not in outside and not outside & inside:
            return column.template, tuple(sorted(outside))
    return "", ()


def _count_crossing_cases(resolved: Resolved) -> int:
    """Return the training cases that are left out because the folder's own split tests their patients."""
    frame = resolved.frame
    if not any(item.code == "patients_cross_split" for item in resolved.problems):
        return 0
    tested = frame.filter(pl.col("split") == "test")["patient"].unique().implode()
    return len(frame.filter((pl.col("split") != "test") & pl.col("patient").is_in(tested)))


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
        if column.source != "slot" or column.stats.distinct < 2 or column.template in candidate.target.templates:
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
    request = _with_named_column(survey, request)
    survey = narrow_joins(_with_stated_legends(survey, request), request.overrides)
    image_sets = list_image_sets(survey, inventory, readers)
    if not image_sets:
        return Outcome(
            kind="refuse",
            task=tasks[0] if len(tasks) == 1 else None,
            refusal=_refuse_images(survey),
        )
    failures: list[Evidence] = []
    measured_candidates = measure_candidates(survey, inventory, readers, image_sets, request, tasks, failures)
    if not measured_candidates and request.overrides.options:
        free_outcome = decide(survey, inventory, replace(request, overrides=NO_OVERRIDES), readers=readers, tasks=tasks)
        titles = [proposal.title for proposal in free_outcome.proposals]
        return Outcome(
            kind="refuse",
            task=tasks[0] if len(tasks) == 1 else None,
            refusal=Refusal(
                code="overrides_not_met",
                message=describe_unmet(request.overrides, titles, survey),
                remedy="Correct the options, or leave them out.",
            ),
        )
    outcome = _settle(measured_candidates, request) if measured_candidates else None
    if outcome is None:
        outcome = _refuse(survey, image_sets, tasks, request, measured_candidates)
    return _replace_patterns(_with_failures(outcome, tuple(dict.fromkeys(failures))), survey, inventory)


def _with_failures(outcome: Outcome, failures: Sequence[Evidence]) -> Outcome:
    """Return an outcome that states the candidates that could not be executed: with the best proposal, or with the refusal."""
    if not failures:
        return outcome
    if outcome.proposals:
        best = outcome.proposals[0]
        best = best.model_copy(update={"evidence": (*best.evidence, *failures)})
        return outcome.model_copy(update={"proposals": (best, *outcome.proposals[1:])})
    assert outcome.refusal is not None
    message = " ".join([outcome.refusal.message, *(f"{failure.message}." for failure in failures[:MAX_OPTIONS])])
    return outcome.model_copy(update={"refusal": outcome.refusal.model_copy(update={"message": message})})


def _replace_patterns(outcome: Outcome, survey: Survey, inventory: Inventory) -> Outcome:
    """Return an outcome whose question or refusal, which people read, has files and their number in place of patterns of names."""
    patterns = {group.pattern for group in survey.groups}
    patterns |= {pattern for proposal in outcome.proposals for pattern in _patterns_of(proposal.manifest)}

    def show(text: str) -> str:
        for pattern in sorted(patterns, key=lambda item: (-len(item), item)):
            if "{" not in pattern or pattern not in text:
                continue
            with suppress(PatternError):  # names with braces of their own
                paths = parse_pattern(pattern).match(inventory.files)["path"]
                if not len(paths):
                    continue
                files = f"{len(paths):,} files such as {paths[0]}"
                text = text.replace(f"masks {pattern}", f"masks in {files}").replace(pattern, files)
        return text

    if outcome.question is not None:
        question = outcome.question
        shown_texts = {"text": show(question.text), "options": tuple(map(show, question.options))}
        return outcome.model_copy(update={"question": question.model_copy(update=shown_texts)})
    if outcome.refusal is not None:
        refusal = outcome.refusal.model_copy(update={"message": show(outcome.refusal.message)})
        return outcome.model_copy(update={"refusal": refusal})
    return outcome


def _with_named_column(survey: Survey, request: Request) -> Request:
    """Take the only column that the request calls a column by its name: "predict the column Recurrence"."""
    overrides = request.overrides
    if overrides.names_target:
        return request
    pattern = r"(?i)(?:\b(?:column|Spalte|colonne|columna)\b|列)\s*[\"'`„«]?{}(?!\w)"
    names = {column.name for table in survey.tables for column in table.columns}
    named_columns = [name for name in names if re.search(pattern.format(re.escape(name)), request.text)]
    if len(named_columns) != 1:
        return request
    return replace(request, overrides=overrides.model_copy(update={"label_column": named_columns[0]}))


def _with_stated_legends(survey: Survey, request: Request) -> Survey:
    """Add the meaning of codes that the request, or the notes that came with it, give."""
    stated_legends = [
        Legend(source="the notes", names=tuple(legend.codes.items()), hint=legend.column, kind=legend.kind)
        for legend in find_legends({"notes": request.notes})
    ]
    if request.numbered_classes:
        stated_legends.insert(0, Legend(source=REQUEST_SOURCE, names=tuple(request.numbered_classes.items())))
    known_names = {legend.names for legend in survey.legends}
    return survey.model_copy(
        update={"legends": (*survey.legends, *(legend for legend in stated_legends if legend.names not in known_names))}
    )


def _refuse_images(survey: Survey) -> Refusal:
    """Return why there are no images: none is there, or none opens."""
    closed = [(group, group.content.samples) for group in survey.groups if group.content is not None]
    if {error for group in survey.groups if group.content is not None for error in group.content.errors} == {
        "no_permission"
    }:
        return Refusal(
            code="no_image_opens",
            message=f"Permission to read the images is denied, e.g. {closed[0][0].examples[0]}.",
            remedy="Make them readable (chmod a+r).",
        )
    if tried := sum(samples for _, samples in closed):
        count = sum(group.count for group, _ in closed)
        return Refusal(
            code="no_image_opens",
            message=f"None of the images opens: {tried} of {count:,} were tried, such as {closed[0][0].examples[0]}.",
            remedy="Copy or export them again.",
        )
    remedy = "Name the folder that holds the images."
    if not survey.files:
        return Refusal(code="no_images", message=f"The folder {survey.name} has no files.", remedy=remedy)
    examples = ", ".join(group.examples[0] for group in survey.groups[:3] if group.examples)
    subject = "The only file" if survey.files == 1 else f"None of the {survey.files:,} files"
    verb = "is no image" if survey.files == 1 else "is an image"
    example_text = f" ({examples})" if examples else ""
    message = f"{subject} in the folder {survey.name}{example_text} {verb} that can be opened."
    if links := [note for note in survey.notes if note.code == "link"]:
        message += (
            f" Links are not followed: {sum(note.count for note in links):,} are there, such as {links[0].examples[0]}."
        )
        remedy = "Give --data the folder that they lead to, or a copy of the files (cp -rL)."
    return Refusal(code="no_images", message=message, remedy=remedy)


def measure_candidates(
    survey: Survey,
    inventory: Inventory,
    readers: FolderReaders,
    image_sets: Sequence[ImageSet],
    request: Request,
    tasks: Sequence[Task],
    failures: list[Evidence],
) -> list[MeasuredCandidate]:
    """Return the resolved candidates, best first; of those that say the same of every image, the best.

    Args:
        failures: takes the reasons of candidates that cannot be executed.
    """

    def measure_or_discard(candidate: Candidate) -> MeasuredCandidate | None:
        with discard_on_error(candidate.target.title, failures):
            return measure(candidate, survey, inventory, readers, request)
        return None

    measured_candidates: list[MeasuredCandidate] = []
    candidates = list_candidates(survey, image_sets, request, tasks, failures)
    for candidate in candidates[:MAX_RESOLVED]:
        item = measure_or_discard(candidate)
        if item is None:
            continue
        place = next(
            (
                at
                for at, second in enumerate(measured_candidates)
                if _says_same(item, second) or _reads_copies(item, second, readers)
            ),
            None,
        )
        if place is None:
            measured_candidates.append(item)
        elif _rank(item, request) > _rank(measured_candidates[place], request):
            measured_candidates[place] = item
    measured_candidates.sort(
        key=lambda item: (
            item.shows_field_of_view,
            item.has_wrong_dimension or item.score < MIN_SCORE or item.guesses_few_volumes,
            -item.logit,
        ),
    )
    if not measured_candidates:
        return []
    measured_candidates = _with_other_names(measured_candidates, candidates, survey, measure_or_discard)
    best = measured_candidates[0]
    wider_candidates = [candidate for candidate in candidates if _has_further_images(candidate, best.candidate)][
        :MAX_WIDER
    ]
    for item in map(measure_or_discard, wider_candidates):
        if (
            item is None
            or item.score < MIN_SCORE
            or _count_targets(item) <= (1 + MAX_UNEXPLAINED) * _count_targets(best)
            or not _agree(best, item)
        ):
            continue
        if {doubt.code for doubt in item.doubts} & BLOCKING <= {doubt.code for doubt in best.doubts}:
            return [item, *measured_candidates]
        n_further = len(item.resolved.frame) - len(best.resolved.frame)
        patterns = item.candidate.image_set.images.files
        message = (
            f"{n_further:,} further images of the same kind have targets too and are left out ({', '.join(patterns)})"
        )
        doubts = (*best.doubts, Doubt(code="unexplained_exclusions", message=message))
        return [replace(best, doubts=doubts), *measured_candidates[1:]]
    return measured_candidates


def _with_other_names(
    measured_candidates: list[MeasuredCandidate],
    candidates: Sequence[Candidate],
    survey: Survey,
    measure_or_discard: Callable[[Candidate], MeasuredCandidate | None],
) -> list[MeasuredCandidate]:
    """Return the candidates with the best one united with images in the same folders that are called otherwise and have masks of
    their own; with a doubt if one key does not fit both."""
    best = measured_candidates[0].candidate
    other_candidates: dict[tuple[str, ...], Candidate] = {}
    for candidate in candidates:
        if _has_other_names(candidate, best, survey):
            other_candidates.setdefault(candidate.image_set.groups, candidate)
    parts = [best, *other_candidates.values()]
    n_further = sum(candidate.image_set.count for candidate in other_candidates.values())
    if n_further <= MAX_UNEXPLAINED * best.image_set.count:
        return measured_candidates
    masks = [candidate.target.parts["masks"] for candidate in parts]
    groups = {group for candidate in parts for group in candidate.image_set.groups}
    wholes = [item.image_set for item in candidates if set(item.image_set.groups) == groups]
    wholes = [whole for whole in wholes if whole.images.several == "one" and not whole.images.channels]
    if wholes and len({(item.key, item.image, item.match) for item in masks}) == 1:
        files = tuple(dict.fromkeys(pattern for item in masks for pattern in _list_patterns(item)))
        excluded = tuple(dict.fromkeys(pattern for item in masks for pattern in item.exclude if pattern not in files))
        united = masks[0].model_copy(update={"files": files, "exclude": excluded})
        target = replace(best.target, parts={**best.target.parts, "masks": united}, title=f"masks {', '.join(files)}")
        item = measure_or_discard(replace(best, image_set=wholes[0], target=target))
        n_masks = [_count_masks(each) for each in (item, measured_candidates[0]) if each is not None]
        if (
            item is not None
            and len(item.resolved.frame) > len(measured_candidates[0].resolved.frame)
            and n_masks[0] <= n_masks[1]
        ):
            return [item, *measured_candidates[1:]]
    patterns = ", ".join(pattern for item in other_candidates.values() for pattern in item.image_set.images.patterns)
    message = f"{n_further:,} images of other names in the same folders have masks too and are left out ({patterns})"
    doubts = (*measured_candidates[0].doubts, Doubt(code="unexplained_exclusions", message=message))
    return [replace(measured_candidates[0], doubts=doubts), *measured_candidates[1:]]


def _count_masks(item: MeasuredCandidate) -> int:
    """Return the most masks that a case has; numbers that names of two styles share give it those of two images."""
    return int(item.resolved.frame["mask_refs"].list.len().max() or 0)  # type: ignore[arg-type]


def _list_patterns(masks: Masks) -> tuple[str, ...]:
    return (masks.files,) if isinstance(masks.files, str) else masks.files


def _has_other_names(candidate: Candidate, best: Candidate, survey: Survey) -> bool:
    """Whether a candidate has images and masks of the same kind as another one, in the same folders, under names of their own."""
    sets = candidate.image_set, best.image_set
    masks = [item.target.parts.get("masks") for item in (candidate, best)]
    if candidate.task != best.task or not all(isinstance(item, Masks) and item.format == "image" for item in masks):
        return False
    if any(item.images.several != "one" or item.images.channels or len(item.groups) > 1 for item in sets):
        return False
    if candidate.features.get("set:is_mask") or candidate.features.get("image_is_mask"):
        return False
    if len({(item.content.dims, item.content.colour, survey.group(item.groups[0]).suffixes) for item in sets}) > 1:
        return False
    folders = [{pattern.rpartition("/")[0] for pattern in item.images.patterns} for item in sets]
    mask_folders = [{pattern.rpartition("/")[0] for pattern in _list_patterns(item)} for item in masks if item]
    left_out = {"files", "exclude", "key", "image", "match"}
    forms = [item.model_dump(exclude=left_out) for item in masks if item]
    stems = [{PurePosixPath(path).stem for path in item.paths} for item in sets]
    return (
        folders[0] == folders[1]
        and mask_folders[0] == mask_folders[1]
        and forms[0] == forms[1]
        and stems[0].isdisjoint(stems[1])
        and all(len(names) > 1 for names in stems)  # one name in each folder is a sequence of a case
    )


def _count_targets(item: MeasuredCandidate) -> int:
    """Return the cases, or their different masks: an image in two formats has one."""
    frame = item.resolved.frame
    if "mask_refs" in frame.columns:
        return frame["mask_refs"].list.join("|").n_unique()
    return len(frame)


def _has_further_images(candidate: Candidate, best: Candidate) -> bool:
    """Whether a candidate has the images of another one and more, under names of their own, for the same target: more of one kind, or
    of other formats and sizes in the same folders if rows of a table name them one by one."""
    image_set, narrow = candidate.image_set, best.image_set
    if (candidate.task, candidate.target.decision) != (best.task, best.target.decision):
        return False
    if image_set.kinds > 1 and not (image_set.has_one_content and _has_row_each(candidate)):
        return False
    if any(item.images.several != "one" or item.images.channels for item in (image_set, narrow)):
        return False
    if not image_set.paths > narrow.paths:
        return False
    folders = [{path.rpartition("/")[0] for path in item.paths} for item in (image_set, narrow)]
    if image_set.kinds > 1 and not folders[0] <= folders[1]:
        return False
    narrow_stems = {PurePosixPath(path).stem for path in narrow.paths}
    is_new = [PurePosixPath(path).stem not in narrow_stems for path in image_set.paths - narrow.paths]
    return sum(is_new) > len(is_new) / 2


def _has_row_each(candidate: Candidate) -> bool:
    """Whether the target comes from a table whose key, of file names, gives each image a row that no other image has."""
    image_set, tables = candidate.image_set, candidate.image_set.tables_of(candidate.target.templates)
    if len(tables) != 1:
        return False
    (name, table), *_ = tables.items()
    pairs = image_set.frame.tables[name].pairs
    is_name = not {"(row)", "index"} & set(re.findall(r"\{([^{}]+)\}", f"{table.keys[0]}{table.image}"))
    return is_name and table.match != "number" and pairs["left"].n_unique() == pairs["right"].n_unique() == len(pairs)


def _rank(item: MeasuredCandidate, request: Request) -> tuple[float, ...]:
    """Of two readings that say the same: the likelier task, fewer cases left out, classes of fewer words, the higher score."""
    shared_words = len(find_shared_words(item.candidate.target.classes))
    return request.tasks.get(item.candidate.task, 0.0), -len(item.resolved.excluded), item.logit - shared_words


def _says_same(item: MeasuredCandidate, second: MeasuredCandidate) -> bool:
    """Whether two readings give every image the same target, whatever the source is called."""
    tasks = {item.candidate.task, second.candidate.task}
    decisions = {item.candidate.target.decision, second.candidate.target.decision}
    if len(tasks) > 1 and not tasks <= LABEL_TASKS and decisions != {"mask"}:
        return False
    if _codes_of(item.manifest) != _codes_of(second.manifest):
        return False
    frames = [_describe_targets(measured_candidates) for measured_candidates in (item, second)]
    if frames[0] is None or frames[1] is None or len(frames[0]) != len(frames[1]):
        return item.manifest.model_dump(exclude={"patient", "split"}) == second.manifest.model_dump(
            exclude={"patient", "split"}
        )
    table = frames[0].join(frames[1], on="refs", how="inner", suffix="_other")
    return len(table) == len(frames[0]) and _is_equal(table, item)


def _codes_of(manifest: Manifest) -> list[tuple[int | str, ...]] | None:
    """What each class of masks is in their files, without its name."""
    if manifest.masks is None or manifest.masks.per_file or manifest.masks.layers:
        return None
    return sorted(manifest.masks.classes.values(), key=str)


def _reads_copies(item: MeasuredCandidate, second: MeasuredCandidate, readers: FolderReaders) -> bool:
    """Whether two readings take copies of the same pictures under the same names, and their targets are the same or copies, too."""
    first_frame, second_frame = (reading.resolved.frame for reading in (item, second))
    if (item.candidate.task, len(first_frame), _codes_of(item.manifest)) != (
        second.candidate.task,
        len(second_frame),
        _codes_of(second.manifest),
    ):
        return False
    tables = [_name_files(reading) for reading in (item, second)]
    pairs = tables[0].join(tables[1], on=["name", "files"], suffix="_other")
    if len(pairs) != len(first_frame) or pairs["name"].n_unique() != len(pairs):
        return False
    files = [("ref", "ref_other")]
    if pairs["mask"].null_count() == pairs["mask_other"].null_count() == 0:
        files.append(("mask", "mask_other"))
    elif (pairs["ref"] == pairs["ref_other"]).all() or not _is_equal(pairs, item):
        return False
    samples = pairs.gather_every(max(1, len(pairs) // MAX_COMPARED))[:MAX_COMPARED]
    return all(
        _is_same_picture(readers.root, row[left], row[right])
        for row in samples.iter_rows(named=True)
        for left, right in files
    )


def _name_files(reading: MeasuredCandidate) -> pl.DataFrame:
    """The name of each case without folder and suffix, its files, its mask if it has one file of it, and what is said of it."""
    frame, described = reading.resolved.frame, _describe_targets(reading)
    masks = pl.col("mask_refs") if "mask_refs" in frame.columns else pl.lit(None, pl.List(pl.String))
    return frame.select(
        name=pl.col("refs").list.first().str.extract(r"([^/#]+?)(?:\.[^/]*)?$").str.to_lowercase(),
        ref=pl.col("refs").list.first(),
        files=pl.col("refs").list.len(),
        mask=pl.when(masks.list.len() == 1).then(masks.list.first()),
        said=pl.lit("") if described is None else described["said"],
    )


def _is_same_picture(root: Path, first: str, second: str) -> bool:
    """Whether two files hold the same values, or nearly so where one of them is compressed with loss."""
    if first == second:
        return True
    try:
        left, right = (
            read_image(local_reference(root, ref)).array.astype("float32", copy=False) for ref in (first, second)
        )
    except (DataError, OSError):
        return False
    if left.shape != right.shape:
        return False
    darkest = min(left.min(), right.min())
    return float(abs(left - right).mean()) <= MAX_DIFFERENCE * float((left - darkest).mean())


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


def to_proposals(measured_candidates: Sequence[MeasuredCandidate], request: Request) -> tuple[ManifestProposal, ...]:
    """Return measured candidates as proposals; those with the title of the first say how they differ."""
    best_title = [item.candidate.target.title for item in measured_candidates[:1]]
    return tuple(
        ManifestProposal(
            manifest=add_case_facts(item.manifest, item.candidate.image_set, request),
            title=title,
            score=round(item.score, 4),
            features={name: round(value, 4) for name, value in item.features.items()},
            evidence=item.evidence,
            doubts=item.doubts,
            cases=len(item.resolved.frame),
            classes=class_counts(item.resolved),
        )
        for item, title in zip(measured_candidates, [*best_title, *_tell_apart(measured_candidates)[1:]], strict=True)
    )


def _settle(measured_candidates: Sequence[MeasuredCandidate], request: Request) -> Outcome | None:
    """Return what the best candidate leads to; None if it fits so badly that there are no targets."""
    overrides = request.overrides
    best = measured_candidates[0]
    task = best.candidate.task
    rivals = [
        item
        for item in measured_candidates[1:]
        if _margin(best, item) < MIN_MARGIN
        and item.score >= min(MIN_SCORE, best.score) / 2
        and (best.is_contradicted or not item.is_contradicted)
        and (best.guesses_few_volumes or not item.guesses_few_volumes)
        and (best.shows_field_of_view or not item.shows_field_of_view)
        and not (item.leaves_out_cases and not best.leaves_out_cases and _have_same_classes(item, best))
        and not _agree(best, item)
    ]
    titles = [item.candidate.target.title for item in (best, *rivals)]
    if rivals and (reference := find_reference(request.notes, titles)) is not None:
        best, rivals = (best, *rivals)[reference], []
    doubts = [doubt for doubt in best.doubts if not (overrides.names_target and doubt.code in SETTLED_BY_USER)]
    other_candidates = [
        item for item in measured_candidates if not any(item is settled_item for settled_item in (best, *rivals))
    ]
    proposals = list(to_proposals((best, *rivals, *other_candidates)[:MAX_PROPOSALS], request))
    options = _tell_apart((best, *rivals)[:MAX_OPTIONS])
    if rivals and not overrides.names_target:
        doubts.append(Doubt(code="rival", message=f"{' and '.join(options)} fit nearly as well"))
    if best.score < MIN_SCORE and not overrides.names_target:
        doubts.append(
            Doubt(code="weak_evidence", message=f"{best.candidate.target.title} fits weakly (score {best.score:.2f})")
        )
    proposals[0] = proposals[0].model_copy(update={"doubts": tuple(doubts)})
    blocking = proposals[0].blocking
    if not blocking:
        return Outcome(kind="proposed", task=task, proposals=tuple(proposals), assumptions=_assumptions(best))
    first = blocking[0]
    if first.code in ("weak_evidence", "legend_not_applied") and best.score < MIN_SCORE / 4:
        return None
    if first.code == "unlisted_images":
        n_unlisted = len(best.resolved.excluded.filter(pl.col("code") == "no_annotation"))
        update = {
            "manifest": _with_unlisted_as_negatives(best.manifest),
            "title": f"{proposals[0].title}, images that are not named as negatives",
            "cases": proposals[0].cases + n_unlisted,
        }
        proposals.insert(1, proposals[0].model_copy(update=update))
        options = ("They were not annotated: leave them out", "They show nothing: keep them as negatives")
        text = f"{first.message[:1].upper()}{first.message[1:]}. Which holds?"
        remedy = 'Write "leave_out" or "healthy" as `empty` of the boxes into the manifest.'
    elif first.code == "rival":
        text = f"Several readings fit the request: {'; '.join(options)}. Which one is meant?"
        remedy = "Name the column, the masks or the classes in the request, as in `column NAME`, or set it by `--label-column`, "
        remedy += "`--masks` or `--manifest`."
    elif best.score < MIN_SCORE / 4 or (first.code == "fewer_classes" and not best.candidate.target.requested):
        remedy = "Add what is missing to the folder, or change the request."
        refusal = Refusal(code=first.code, message=first.message, remedy=remedy)
        return Outcome(kind="refuse", task=task, proposals=tuple(proposals), refusal=refusal)
    else:
        options = (proposals[0].title,)
        text = f"{first.message[:1].upper()}{first.message[1:]}. Take it as it is?"
        remedy = _find_remedy(first, best, request)
    question = Question(code=first.code, text=text, options=options, remedy=remedy)
    return Outcome(kind="ask", task=task, proposals=tuple(proposals), question=question)


def _find_remedy(doubt: Doubt, best: MeasuredCandidate, request: Request) -> str:
    """Return what settles a doubt."""
    if doubt.code == "split_not_used":
        return "Name the column or the list by `--split`, or draw a new split by `--split drawn`."
    if doubt.code == "use_forbidden":
        return "Ask who gave the data; correct the note if training is allowed."
    part = "masks" if best.manifest.masks is not None else "boxes" if best.manifest.boxes is not None else "labels"
    if doubt.code == "legend_not_applied" and (codes := best.candidate.target.codes):
        unnamed = "it" if len(codes) == 1 else "them"
        example = f'as in {{"NAME": [{codes[0]}]}}, or in the request: NAME ({codes[0]})'
        return f"Name {unnamed} by `classes` of the {part} in the manifest, {example}."
    if doubt.code == "weak_evidence" and not request.tasks:
        return f'Say what is to be done with it: "Classify {request.text.strip()}", "Grade ...", "Segment ...", "Predict ...".'
    return "Edit the manifest, or name what is meant in the request."


def _have_same_classes(item: MeasuredCandidate, second: MeasuredCandidate) -> bool:
    """Whether two readings take something else for the same classes or numbers."""
    first, other_candidate = item.candidate, second.candidate
    return (first.task, set(first.target.classes)) == (other_candidate.task, set(other_candidate.target.classes))


def _tell_apart(items: Sequence[MeasuredCandidate]) -> tuple[str, ...]:
    """Titles of readings; those that share their title with what differs: images, cases, classes, patients, split."""
    facts = [
        {
            "images": ", ".join(_patterns_of(item.manifest)),
            "cases": f"{len(item.resolved.frame):,} cases",
            "classes": ", ".join(item.candidate.target.classes[:8]),
            "patients": f"patients by {item.patient.column.template}" if item.patient else "patients not known",
            "split": f"split {item.split.title}" if item.split else "no split of the folder's own",
        }
        for item in items
    ]
    titles = []
    for item, own_facts in zip(items, facts, strict=True):
        title = item.candidate.target.title
        facts_of_title = [
            item_facts
            for item_facts, second in zip(facts, items, strict=True)
            if second.candidate.target.title == title
        ]
        differing = [
            text for name, text in own_facts.items() if len({item_facts[name] for item_facts in facts_of_title}) > 1
        ]
        titles.append(f"{title} ({'; '.join(differing)})" if differing else title)
    return tuple(titles)


def _patterns_of(manifest: Manifest) -> tuple[str, ...]:
    """Patterns of the images and their channels."""
    return tuple(pattern for part in (manifest.images, *manifest.images.channels) for pattern in part.patterns)


def _margin(best: MeasuredCandidate, item: MeasuredCandidate) -> float:
    """How much better the best reading fits; of two targets of one image set by their own features, whatever speaks for the set."""
    margin = best.logit - item.logit
    same_set = best.candidate.image_set is item.candidate.image_set and all(
        best.features.get(name) == item.features.get(name)
        for name in {*best.features, *item.features}
        if name.startswith(SET_FEATURES)
    )
    decision = best.candidate.target.decision
    if not same_set or decision != item.candidate.target.decision:
        return margin
    return max(margin, logit(decision, without_set(best.features)) - logit(decision, without_set(item.features)))


def _assumptions(best: MeasuredCandidate) -> tuple[Assumption, ...]:
    """Images that lack a target or are copies of others, and what the request says and nothing in the folder confirms."""
    statements = tuple(
        Assumption(kind="exclusions", claim=doubt.message, message=doubt.message)
        for doubt in best.doubts
        if doubt.code == "images_without_target"
    )
    statements += tuple(Assumption(kind="classes", claim=text, message=text) for text in best.candidate.target.assumed)
    statements += tuple(
        Assumption(kind=STATED_EVIDENCE[fact.code], claim=fact.message, message=fact.message)
        for fact in best.evidence
        if fact.code in STATED_EVIDENCE
    )
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
    request: Request,
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
    nearest = next(
        (item for item in measured_candidates if item.candidate.image_set.tables_of(item.candidate.target.templates)),
        None,
    )
    if nearest is not None:
        reasons = [doubt.message for doubt in nearest.doubts if doubt.code in BLOCKING]
        reason = reasons[0] if reasons else f"it fits weakly (score {nearest.score:.2f})"
        title = nearest.candidate.target.title
        message = (
            f"Nothing is surely the {targets_word} of the {images.count:,} images. Nearest come {title}: {reason}."
        )
        remedy = f"Name the column, grades or classes in the request, or add the {targets_word} to the folder."
        refusal = Refusal(code="no_targets", message=message, remedy=remedy)
    if {"diagnosis", "grading"} & set(tasks) and (single := _find_single_class(images, request)):
        refusal = Refusal(
            code="one_class",
            message=f"All {images.count:,} images are of one class: {single}.",
            remedy="Add images of another class.",
        )
    if unmatched := _list_unmatched(survey, image_sets):
        refusal = Refusal(
            code="targets_unmatched",
            message=f"{', '.join(unmatched[:4])} match none of the {images.count:,} images by any name or number.",
            remedy="Add the images that they name, or the column that names these images.",
        )
    proposals = to_proposals(measured_candidates[:MAX_PROPOSALS], request)
    return Outcome(kind="refuse", task=tasks[0] if len(tasks) == 1 else None, proposals=proposals, refusal=refusal)


def _find_single_class(image_set: ImageSet, request: Request) -> str:
    """Return the only value of what could be the class of images: a column of labels, or a folder that is called like a class
    of the request; '' if there is none."""
    for column in image_set.columns:
        if (
            len(column.stats.counts) == 1
            and column.stats.coverage > 1 - MAX_UNEXPLAINED
            and "label" in roles_of(column.name)
        ):
            return f"{next(iter(column.stats.counts))} by {column.template}"
    folders = {path.rpartition("/")[2] for path in image_set.values("{folder}").unique().drop_nulls()}
    if len(folders) == 1 and request.match_classes((folder := folders.pop(),)).pairs:
        return f"the folder {folder}"
    return ""


def _list_unmatched(survey: Survey, image_sets: Sequence[ImageSet]) -> list[str]:
    """Return the tables, annotation files and masks that go with no image."""
    joined_ids = {id for image_set in image_sets for id in image_set.table_ids.values()}
    paired = {pairing.partner_group for pairing in survey.pairings} | {
        pairing.image_group for pairing in survey.pairings
    }
    tables = [table.files for table in survey.tables if table.id not in joined_ids and table.rows >= MIN_UNMATCHED]
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
