"""Patients and split of an image set: each a choice among its columns, by learnt weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import polars as pl

from m3b.dataset.manifest.model import Split, Table, ValueSource
from m3b.dataset.proposals.image_sets import Column, ImageSet, describe, mean_of
from m3b.dataset.proposals.roles import roles_of, split_words
from m3b.dataset.proposals.scoring import probability
from m3b.dataset.survey.facts import SplitFacts, Survey
from m3b.dataset.survey.words import side_of
from m3b.dataset.words.lexicon import get_lexicon

MAX_SIDE_TEXTS = 8
"""Distinct texts of a column that divides into parts."""
MAX_PART_COLUMNS = 3
MIN_NESTED = 0.9
"""Share of the values of smaller parts that the others have too, from which on they are numbers that start anew."""
MIN_HOLDER = 0.5
MIN_HOLDERS, MAX_HELD = 10, 5
"""Distinct values, and studies of each on average, of a column that may be the persons of studies."""
CLASS_KINDS = ("findings", "anatomy", "cells_tissues")
MIN_SUBJECTS = 5
"""Subjects of which the names of pictures must tell, for a split between them."""
_HASH = re.compile(r"[0-9a-f]{8,}", re.IGNORECASE)
MAX_COUNTED = 5
"""Values of a last part of a subject's name that counts its blocks, eyes or visits."""
SUBJECT_PROBABILITY = 0.8
"""Of the part of names before a position or a date."""


@dataclass(frozen=True)
class PatientChoice:
    """A column that says whose an image is.

    Args:
        probability: that it is right, from the weights of `patient`.
    """

    column: Column
    features: dict[str, float]
    probability: float


@dataclass(frozen=True)
class SplitChoice:
    """A column (or part of names) that says the side of an image.

    Args:
        sides: image -> train, val, test or null.
    """

    split: Split
    features: dict[str, float]
    probability: float
    sides: pl.Series
    title: str
    counts: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)


def entropy(counts: Mapping[str, int]) -> float:
    """Return the entropy of counts divided by its maximum, 0 to 1."""
    total = sum(counts.values())
    if len(counts) < 2 or not total:
        return 0.0
    return -sum(n / total * math.log(n / total) for n in counts.values() if n) / math.log(len(counts))


# --- patients ---------------------------------------------------------------------------------------------------------------


def patient_features(
    image_set: ImageSet, column: Column, cases: int, parts: Sequence[Column] = (), used: Sequence[str] = ()
) -> dict[str, float]:
    """Return what speaks for and against a column that says whose an image is.

    Args:
        cases: distinct cases of the set.
        parts: columns with the part of a split or the class of an image.
        used: templates of target and split.
    """
    stats, roles = column.stats, roles_of(column.name)
    per_value = stats.filled / stats.distinct if stats.distinct else 0.0
    return {
        "named_patient": float("patient" in roles or column.name in ("PatientID", "PatientName")),
        "named_identifier": float("identifier" in roles),
        "composite": float(column.is_composite),
        "named_other": float(bool(roles & {"label", "grade", "split", "attribute", "time", "event", "text"})),
        "unnamed": float(not column.name),
        "coverage": stats.coverage,
        "unique": float(stats.distinct == stats.filled),
        "log_per_value": math.log(max(per_value, 1.0)),
        "distinct_share": stats.distinct / max(cases, 1),
        "few_values": float(stats.distinct <= 5),
        "is_folder": float(column.source == "folder"),
        "is_slot": float(column.source == "slot"),
        "is_table": float(column.source == "table"),
        "is_tag": float(column.source == "tag"),
        "is_member": float(column.source == "member"),
        "crossing": 0.0 if column.is_composite else column.crossing,
        "restarts": column.crossing if column.is_composite else 0.0,
        "restarts_elsewhere": max(
            (
                item.crossing
                for item in image_set.columns
                if item.is_composite and item.template.endswith(f"/{column.template}")
            ),
            default=0.0,
        ),
        "counts_within": restart_of_others(image_set, column, used),
        "restarts_in_parts": float(restarts_in_parts(image_set, column, parts)),
        "numeric": stats.numeric,
        "long": float(stats.characters > 24),
        "chance": column.chance,
    }


def restart_of_others(image_set: ImageSet, column: Column, used: Sequence[str] = ()) -> float:
    """How much the other parts of the names repeat from value to value, as the numbers of each person's images do, 0 to 1.

    Args:
        used: templates of target and split, which number no images.
    """
    other_templates = [
        other_column.template
        for other_column in image_set.columns
        if other_column.source == "slot" and other_column.template not in (column.template, *used)
    ]
    if column.source not in ("slot", "folder") or not other_templates or column.stats.filled <= column.stats.distinct:
        return 0.0
    rest_texts = image_set.values("/".join(other_templates)).drop_nulls()
    return 1 - rest_texts.n_unique() / max(len(rest_texts), 1)


def restarts_in_parts(image_set: ImageSet, column: Column, parts: Sequence[Column]) -> bool:
    """Whether each value occurs once in a class or part of a split, and nearly all again in the larger ones: a running number."""
    columns = [part for part in parts if part.template != column.template][:MAX_PART_COLUMNS]
    for size in range(1, len(columns) + 1):
        for part_columns in combinations(columns, size):
            part = image_set.values("/".join(item.template for item in part_columns))
            pairs = pl.DataFrame({"part": part, "value": image_set.values(column.template)}).drop_nulls()
            if not pairs.is_unique().all():
                continue
            largest = max(pairs["part"].value_counts()["count"].to_list(), default=0)
            repeated = len(pairs) - pairs["value"].n_unique()
            if repeated and repeated >= MIN_NESTED * (len(pairs) - largest):
                return True
    return False


def list_parts(image_set: ImageSet, used: Sequence[str]) -> list[Column]:
    """Return the columns that divide images into classes or parts: those with such a role, and names of findings or organs.

    Args:
        used: templates of target and split.
    """
    lexicon = get_lexicon()
    return [
        column
        for column in image_set.columns
        if 2 <= column.stats.distinct <= MAX_SIDE_TEXTS
        and (
            (column.template in used and column.source in ("folder", "slot"))
            or all(side_of(text) for text in column.stats.counts)
            or (
                column.source in ("folder", "slot")
                and all(lexicon.find_concepts(text, CLASS_KINDS) for text in column.stats.counts)
            )
        )
    ]


def is_called_patient(column: Column) -> bool:
    """Whether a column's name says that it tells persons apart; of one image a person only the name can."""
    return "patient" in roles_of(column.name) or column.name in ("PatientID", "PatientName") or column.is_composite


def _is_called_person(column: Column) -> bool:
    """Whether a column's name says that it tells persons, studies or samples apart."""
    return is_called_patient(column) or "identifier" in roles_of(column.name)


def _varies_within_cases(image_set: ImageSet, column: Column) -> bool:
    """Whether files of one case have different values, as slices have numbers."""
    images = image_set.images
    if images.several == "one":
        return False
    case = image_set.values("{folder}" if images.unit == "folder" else images.case)
    values = pl.DataFrame({"case": case, "value": image_set.values(column.template)}).drop_nulls()
    return len(values) > 0 and bool((values.group_by("case").agg(pl.col("value").n_unique())["value"] > 1).any())


def _starts_names(image_set: ImageSet, column: Column) -> bool:
    """Whether a folder is called like the first letters of a name in it, by which large stores divide their files."""
    if column.source != "folder":
        return False
    names = pl.DataFrame({"folder": image_set.values(column.template), "name": image_set.values("{stem}")}).drop_nulls()
    rest = names.select(
        pl.when(pl.col("name").str.starts_with(pl.col("folder"))).then(
            pl.col("name").str.slice(pl.col("folder").str.len_chars())
        )
    ).to_series()
    return len(rest) > 0 and mean_of(rest.str.contains(r"^[^\W_]").fill_null(False)) == 1.0


def _divides_alike(image_set: ImageSet, column: Column, template: str) -> bool:
    """Whether a column tells exactly the same images apart as a template does."""
    pairs = pl.DataFrame({"value": image_set.values(column.template), "other": image_set.values(template)}).drop_nulls()
    values = pairs["value"].n_unique()
    return values > 0 and values == pairs["other"].n_unique() == pairs.n_unique()


def choose_patient(
    image_set: ImageSet, cases: int, exclude: Sequence[str] = (), classes: Sequence[str] = ()
) -> list[PatientChoice]:
    """Return the columns that could say whose an image is, best first.

    Args:
        exclude: templates with another role already.
        classes: templates of the classes; a column that divides the images as they do tells no persons.
    """
    choices = []
    parts = list_parts(image_set, exclude)
    subject = find_subject_column(image_set, exclude)
    columns = [column for column in image_set.columns if column.template not in subject.later_slots]
    for column in columns:
        if any(template in column.template for template in exclude) or column.stats.distinct < 2:
            continue
        if column.source in ("table", "tag", "member") and not _is_called_person(column):
            continue  # values that repeat are attributes as likely; paths have no names, and repeat for a reason
        if _varies_within_cases(image_set, column) or _starts_names(image_set, column):
            continue
        if any(_divides_alike(image_set, column, template) for template in classes):
            continue
        if column.stats.distinct >= min(column.stats.filled, cases) and not is_called_patient(column):
            continue
        features = patient_features(image_set, column, cases, parts, exclude)
        choices.append(PatientChoice(column, features, probability("patient", features)))
    choices.sort(key=lambda choice: (-choice.probability, choice.column.template))
    if subject.column is not None and not (choices and choices[0].probability >= SUBJECT_PROBABILITY):
        choices.insert(0, PatientChoice(subject.column, {"before_position": 1.0}, SUBJECT_PROBABILITY))
    if not (choices and choices[0].probability >= MIN_HOLDER):
        unused = [column for column in columns if column.template not in exclude]
        shared = [column for column in unused if _is_shared_hash(image_set, column) or _is_shared_specimen(column)]
        choices[:0] = [PatientChoice(column, {"shared": 1.0}, SUBJECT_PROBABILITY) for column in shared[:1]]
    if choices:
        choices[0] = _complete_choice(image_set, choices[0])
    return sorted(choices, key=lambda choice: -_holds_best(image_set, choice, choices[0]))


def _is_shared_specimen(column: Column) -> bool:
    """Whether a column of a table is called like a slide or biopsy, of which several images are."""
    return (
        column.source == "table"
        and "specimen" in roles_of(column.name)
        and MIN_SUBJECTS <= column.stats.distinct < column.stats.filled
    )


def _is_shared_hash(image_set: ImageSet, column: Column) -> bool:
    """Whether a part of names is a random number in hexadecimal digits that several images share, so that it names what they show."""
    if column.source not in ("slot", "folder") or not MIN_SUBJECTS <= column.stats.distinct < column.stats.filled:
        return False
    texts = image_set.values(column.template).drop_nulls().unique().to_list()
    return all(map(_HASH.fullmatch, texts)) and any(re.search("[a-f]", text, re.IGNORECASE) for text in texts)


def _complete_choice(image_set: ImageSet, choice: PatientChoice) -> PatientChoice:
    """Return a choice by a column that divides the images alike and knows more of them, if there is one."""
    coverage = choice.column.stats.coverage
    alike = [
        column
        for column in image_set.columns
        if column.stats.coverage > coverage and _divides_alike(image_set, column, choice.column.template)
    ]
    if not alike:
        return choice
    return PatientChoice(max(alike, key=lambda column: column.stats.coverage), choice.features, choice.probability)


def _holds_best(image_set: ImageSet, choice: PatientChoice, best: PatientChoice) -> bool:
    """Whether each value of the best choice lies within one of another choice, as the studies of a person do.

    Persons whose studies were told apart could lie on both sides of a split.
    """
    if is_called_patient(best.column) or choice.probability < MIN_HOLDER or _is_called_person(choice.column):
        return choice is best
    distinct, inner = choice.column.stats.distinct, best.column.stats.distinct
    if not MIN_HOLDERS <= distinct < inner <= MAX_HELD * distinct:
        return False
    pairs = pl.DataFrame(
        {"inner": image_set.values(best.column.template), "outer": image_set.values(choice.column.template)}
    ).unique()
    return len(pairs) == pairs["inner"].n_unique()


@dataclass(frozen=True)
class SubjectColumn:
    """What the names of pictures say of their subject, if they end with a date or a position.

    Args:
        column: the part before that; None if each picture has its own, or too few share one.
        later_slots: templates of date and position, which tell no persons apart.
    """

    column: Column | None = None
    later_slots: frozenset[str] = frozenset()


_NAME_SLOT = re.compile(r"\{(\w+?)(?::\w+)?\}")


def find_subject_column(image_set: ImageSet, used: Sequence[str] = ()) -> SubjectColumn:
    """Return the part of names before a position (`_x3_y7`, `_slice12`) or a date (`_2021-03-04`).

    Pictures that differ in these alone are tiles, slices or visits of one subject.

    Args:
        used: templates of target and split, which are no part of the subject.
    """
    files = image_set.images.files
    pattern = files if isinstance(files, str) else files[0]
    *parents, name = pattern.split("/")
    is_folder = "{folder}" in (image_set.images.case, f"{{{image_set.images.unit}}}") or not _NAME_SLOT.search(name)
    if is_folder:  # which then has the name of the case
        name = next((part for part in reversed(parents) if _NAME_SLOT.search(part)), name)
    source = "folder" if is_folder else "slot"
    columns = {column.template: column for column in image_set.columns if column.source == source}
    slots = [f"{{{match[1]}}}" for match in _NAME_SLOT.finditer(name)]
    later = [
        template in image_set.date_slots or (template in columns and _is_position(columns[template].name))
        for template in slots
    ]
    if True not in later:
        return SubjectColumn(None, image_set.date_slots)
    first = later.index(True)
    templates = [template for template in slots[:first] if template in columns and template not in used]
    later_slots = image_set.date_slots.union(slots[first:])
    while len(templates) > 1 and columns[templates[-1]].stats.distinct <= MAX_COUNTED:
        shorter = describe(image_set.values("/".join(templates[:-1])))
        if shorter.distinct < MIN_SUBJECTS:
            break
        templates.pop()
    if not templates:
        return SubjectColumn(None, later_slots)
    template = "/".join(templates)
    stats = describe(image_set.values(template))
    folders = [column for column in image_set.columns if column.source == "folder" and column.stats.distinct > 1]
    is_shared = MIN_SUBJECTS <= stats.distinct < stats.filled
    if not is_shared or not all(
        _lies_within(image_set, template, folder) for folder in folders if folder.template not in used
    ):
        return SubjectColumn(None, later_slots)
    return SubjectColumn(Column(template, "slot", columns[templates[0]].name, stats), later_slots)


def _is_position(name: str) -> bool:
    """Whether the word before a slot says that a place in an image or series follows."""
    words = split_words(name)
    return bool(words) and "position" in roles_of(words[-1])


def _lies_within(image_set: ImageSet, template: str, folder: Column) -> bool:
    """Whether pictures that share a part of their names are in one folder, whose numbers do not start anew in others."""
    pairs = pl.DataFrame({"subject": image_set.values(template), "folder": image_set.values(folder.template)}).unique()
    return len(pairs) == pairs["subject"].n_unique()


# --- split ------------------------------------------------------------------------------------------------------------------


def list_splits(image_set: ImageSet, survey: Survey) -> list[SplitChoice]:
    """Return the divisions that the folder brings along for the images of a set, best first."""
    choices = []
    for column in image_set.columns:
        counts = column.stats.counts
        if len(counts) > MAX_SIDE_TEXTS or column.is_composite:
            continue
        sides = _test_on_validation({text: side for text in counts if (side := side_of(text))})
        if is_part_level(image_set, column):
            sides = {text: sides.get(text, "train") for text in counts}
        entries = "split" in roles_of(column.name)
        if not {"train", "test"} <= set(sides.values()) and not (entries and len(set(sides.values())) >= 1):
            continue
        choices.append(split_by(image_set, ValueSource(value=column.template), sides, column.source, entries))
    owners = {*image_set.groups, *(f"{group}#{image_set.images.member}" for group in image_set.groups)}
    vocabulary = {choice.split.value.value for choice in choices if choice.split.value is not None}
    for facts in survey.splits:
        if (
            (facts.group or facts.owner) not in owners
            or (facts.value in vocabulary and not facts.find)
            or facts.source == "lists"
        ):
            continue
        sides = {item.text: item.side for item in facts.sides if item.side}
        if facts.missing != "test":
            sides = _test_on_validation(sides)
        if set(sides.values()) | ({facts.missing} if facts.missing else set()) >= {"train", "test"}:
            choices.append(
                split_by(
                    image_set, ValueSource(value=facts.value, find=facts.find), dict(sides), facts.source, False, facts
                )
            )
    return sorted((choice for choice in choices if choice is not None), key=lambda choice: -choice.probability)


def is_part_level(image_set: ImageSet, column: Column) -> bool:
    """Whether one of two folders is called like a part for tests, and both hold folders of the same names."""
    level = re.fullmatch(r"\{folder(\d+)\}", column.template)
    sides = [side_of(text) for text in column.stats.counts]
    if level is None or len(sides) != 2 or sorted(map(bool, sides)) != [False, True] or "train" in sides:
        return False
    below = f"{{folder{int(level[1]) + 1}}}"
    if below not in {item.template for item in image_set.columns}:
        return False
    pairs = pl.DataFrame({"part": image_set.values(column.template), "name": image_set.values(below)}).unique()
    return not pairs["name"].has_nulls() and len(pairs) == 2 * pairs["name"].n_unique() > 2


def _test_on_validation(sides: dict[str, str]) -> dict[str, str]:
    """Parts of a folder: of two parts, the one for validation is that of the test."""
    if "test" in sides.values():
        return sides
    return {text: "test" if side == "val" else side for text, side in sides.items()}


def split_by(
    image_set: ImageSet,
    value: ValueSource,
    sides: Mapping[str, str],
    source: str,
    entries: bool,
    facts: SplitFacts | None = None,
) -> SplitChoice:
    """Return a split by texts and their sides, with its features."""
    missing = facts.missing if facts is not None else ""
    texts = image_set.values(value.value)
    if value.find:
        texts = texts.str.extract(value.find, 1)
    folded = {text.casefold(): side for text, side in sides.items()}
    assigned = texts.str.to_lowercase().replace_strict(folded, default=None, return_dtype=pl.String)
    if missing:
        assigned = assigned.fill_null(missing)
    counts = {side: int((assigned == side).sum()) for side in ("train", "val", "test")}
    filled = sum(counts.values())
    features = {
        "coverage": filled / max(image_set.count, 1),
        "other_values": float((texts.drop_nulls().n_unique() - len(sides)) > 0),
        "named": float(entries),
        "is_folder": float(source == "folder"),
        "is_table": float(source in ("table", "column")),
        "is_name": float(source in ("name", "slot")),
        "has_test": float(counts["test"] > 0),
        "test_share": counts["test"] / max(filled, 1),
        "train_larger": float(counts["train"] >= counts["test"]),
    }
    split = Split.model_validate(
        {
            "value": value.model_dump(exclude_defaults=True),
            **{side: tuple(text for text, its in sides.items() if its == side) for side in ("train", "val", "test")},
            **({"missing": missing} if missing else {}),
        }
    )
    title = ", ".join(f"{side} {count:,}" for side, count in counts.items() if count)
    return SplitChoice(
        split,
        features,
        probability("split", features),
        assigned,
        f"by {value.value} ({title})",
        counts,
        image_set.tables_of([value.value]),
    )
