"""Targets: every way in which a folder could say what is to be learnt of the images of a set."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import polars as pl

from m3b.dataset.annotations.box_tables import IMAGE_SIZE_ROLES, BoxColumns, BoxReading
from m3b.dataset.manifest.annotated import ANY
from m3b.dataset.manifest.image_frame import ImageFrame
from m3b.dataset.manifest.model import Boxes, Files, Labels, Masks, Number, Report, Survival, ValueSource
from m3b.dataset.manifest.numbers import parse_durations
from m3b.dataset.manifest.problems import list_names
from m3b.dataset.proposals.context import entropy, is_part_level, restart_of_others
from m3b.dataset.proposals.image_sets import (
    Column,
    ImageSet,
    mean_of,
    median_of,
    part_form,
    sample_content,
    with_value,
)
from m3b.dataset.proposals.original_sizes import find_original_sizes
from m3b.dataset.proposals.pairs import list_pairings
from m3b.dataset.proposals.request import ClassMatch, Request
from m3b.dataset.proposals.restrictions import (
    find_forbidden_classes,
    find_forbidden_folder,
    is_finished_tag,
    is_unassessable_tag,
)
from m3b.dataset.proposals.roles import is_view_or_side, roles_of, severity_rank, severity_ranks, split_words
from m3b.dataset.proposals.table_marks import find_boxes, find_runs
from m3b.dataset.survey.facts import (
    AnnotationFacts,
    Content,
    FileGroup,
    Layers,
    Legend,
    Level,
    Pairing,
    Slot,
    Survey,
)
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables import EMPTY_LIST, LIST_SEPARATOR
from m3b.dataset.tables.columns import MISSING_WORDS, NO_NUMBER_WORDS, UNCLEAR_WORDS, fold
from m3b.dataset.tables.headers import is_number
from m3b.dataset.tables.loading import ARRAY_SUFFIXES
from m3b.dataset.tables.yes_no import NO, UNCERTAIN, YES
from m3b.dataset.words.lexicon import get_lexicon, split_tokens
from m3b.dataset.words.matching import MATCH_SCORE, is_negative, match_classes, match_term
from m3b.dataset.words.requests import is_clause
from m3b.dataset.words.units import contradict, find_column_unit, find_requested_unit, split_column_unit

MIN_COUNTED = 0.5
"""Share of the subjects with several images from which on a number can count these."""
MAX_CLASSES = 60
MIN_LIST_SHARE = 0.03
"""Share of the images that must have several labels, so that a column holds lists."""
MIN_TEXT_CHARS = 20
MAX_VERSIONS = 6
"""Values of a slot that tells apart several masks of one image."""
MIN_COUNTED_WORD = 3
"""Letters of a word, from which on a number or letter behind it counts what it names."""
MAX_LISTED_FILES = 6
"""Annotation files that a manifest names one by one."""
CERTAIN_SEPARATORS = (LIST_SEPARATOR, "\n", ";")
"""Signs that names of classes do not contain."""
SEPARATORS = (LIST_SEPARATOR, "\n", ";", ",", "+", "/", " ")
"""Between labels of lists, the first that is there first."""
MAX_READ_TEXTS = 50_000
"""Cells of a column that are looked through for separators at once."""
CODES_BY_BLANKS = r"^\d{1,3}(?: \d{1,3})*$"
"""Codes of classes with blanks between them, as in `0 16 2`."""
BACKGROUND = "background"
SEX_NAMES = {"m": "male", "f": "female", "w": "female"}
SEXES = frozenset({"m", "f", "male", "female", "w", "o", "männlich", "weiblich", "homme", "femme"})
NO_CLASS_WORDS = MISSING_WORDS - {
    "none",
    "nil",
    "-",
    "--",
    "---",
    "–",
    "—",
    "empty",
    "blank",
    "(blank)",
    "空",
    "vide",
    "vacío",
    "leer",
}
"""Cells that say that there is no label; the words left out are also said of images that show nothing."""
VOID_NAMES = ("void", "ignore", "unlabeled", "unlabelled", "border")
BOX_SHAPES = frozenset({"box", "outline"})
"""Shapes of annotation files from which boxes follow."""
BOXES_AS_MASKS = (
    "there are boxes and no masks: outlines are learnt from boxes, and the test compares boxes of the answers with them, so that no "
    "Dice of outlines is measured"
)
MAX_TITLE_WORDS = 3
"""Words of a request that name a time until an event, as `overall survival`; more are a description."""
MAX_GRADE = 10
"""Difference between the lowest and highest grade of a scale; larger whole numbers are measured."""
MIN_INSIDE = 0.9
"""Share of the boxes of a table that must lie in their images; tables have a few damaged ones."""
ACQUISITION_GROUPS = (0x0002, 0x0008, 0x0018, 0x0020, 0x0028)
"""Groups of DICOM that tell how an image was made, sorted and stored (PS3.6)."""
DESCRIBING_FIELDS = r"Comments|Description|Diagnos|Reason"
"""Fields of these groups in which people write what is to be seen."""


@dataclass(frozen=True)
class Target:
    """What is to be learnt of the images of a set, before patients and split are chosen.

    Args:
        parts: of the manifest (`labels`, `masks`, `tables`, ...).
        decision: whose weights score it: `label`, `mask`, `boxes`, `number`, `text`, `survival`.
        features: measured.
        templates: columns that it takes, which are then no patients or splits.
        assigned: what each image is assigned, as a text to compare candidates by; None if names do not tell.
        title: of the source.
        codes: classes that are bare codes without a legend.
        legend: path of the legend that names the classes.
        requested: request's class -> class of the folder.
        sizes: pair of a mask and image of different size, if there is one; how many boxes lie outside their images.
        assumed: what notes or the request suggest, and a person should confirm.
        not_asked: classes that are marked and not asked for.
        partial_legend: what a legend says that names some of the codes and not all.
    """

    parts: Mapping[str, Any]
    decision: str
    features: Mapping[str, float]
    title: str
    templates: tuple[str, ...] = ()
    assigned: pl.Series | None = None
    classes: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    legend: str = ""
    requested: Mapping[str, str] = field(default_factory=dict)
    unmatched_request: tuple[str, ...] = ()
    sizes: str = ""
    turned: int = 0
    assumed: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    partial_legend: str = ""


# --- naming classes ---------------------------------------------------------------------------------------------------------


VIEW_NOUN_LIST = """
view projection plane side laterality orientation eye ansicht projektion ebene seite auge vue incidence plan côté œil
vista proyección plano lado ojo
"""
VIEW_NOUNS = frozenset(VIEW_NOUN_LIST.split())
"""Words of requests for the view or side of an image."""


def is_code(text: str) -> bool:
    """Whether a text names nothing by itself: a number, a letter, or a letter with a number."""
    return bool(re.fullmatch(r"[A-Za-z]{0,2}[ _-]?\d+(?:\.0+)?|[A-Za-z]", text.strip()))


def find_legend(codes: Sequence[str], legends: Sequence[Legend], hint: str = "") -> tuple[dict[str, str], str]:
    """Return code -> name from the legend that knows all codes (numbers without zeros, colours without case), and its source."""
    best: tuple[float, dict[str, str], str] | None = None
    for legend in legends:
        names = {_fold_code(code): name for code, name in legend.names}
        vocabulary = {code: names[_fold_code(code)] for code in codes if _fold_code(code) in names}
        unknown = [
            code
            for code in codes
            if code not in vocabulary and _fold_code(code) not in ("0", "#000000", "255", "#ffffff")
        ]
        if not vocabulary or unknown:
            continue
        close = float(
            bool(hint) and (hint.casefold() in legend.hint.casefold() or hint.casefold() in legend.source.casefold())
        )
        rank = close + len(vocabulary) / max(len(names), 1)
        if best is None or rank > best[0]:
            best = rank, vocabulary, legend.source
    return (best[1], best[2]) if best else ({}, "")


def find_partial_legend(codes: Sequence[str], legends: Sequence[Legend]) -> tuple[dict[str, str], str]:
    """Return code -> name from the legend that knows most codes, at least half and not all, and what it says of which codes."""
    best: tuple[dict[str, str], str] = {}, ""
    for legend in legends:
        names = {_fold_code(code): name for code, name in legend.names}
        known_codes = {code: names[_fold_code(code)] for code in codes if _fold_code(code) in names}
        if len(codes) / 2 <= len(known_codes) < len(codes) and len(known_codes) > len(best[0]):
            present = {_fold_code(code) for code in codes} | {"0", "#000000"}
            absent = [f"{name} ({code})" for code, name in names.items() if code not in present]
            text = ", ".join(f"{name} ({code})" for code, name in known_codes.items())
            best = (
                known_codes,
                f"{legend.source} names {text}" + (f", and nothing has {', '.join(absent)}" if absent else ""),
            )
    return best


def _fold_code(code: str) -> str:
    text = code.strip().casefold()
    return str(int(float(text))) if re.fullmatch(r"-?\d+(?:\.0+)?", text) else text


# --- labels -----------------------------------------------------------------------------------------------------------------


def list_labels(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every column that could be the class of an image, and every set of yes/no columns."""
    yes_no_columns = _yes_no_columns(image_set)
    for column in image_set.columns:
        stats = column.stats
        if column.is_composite or _place_in_rows(image_set, column)[0] or is_part_level(image_set, column):
            continue
        if column.template in image_set.date_slots or _counts_images(image_set, column):
            continue
        if column.source == "table" and _is_key_alone(image_set, column):
            continue  # what the names of the images say by themselves
        if (
            _names_views(column, request)
            or _describes_acquisition(column, request)
            or (stats.counts and all(map(side_of, stats.counts)))
        ):
            continue
        series = image_set.texts(column.template)
        separator = _separator(column, series)
        has_several_rows = stats.conflicts > MIN_LIST_SHARE * stats.images
        texts = [] if has_several_rows else series.drop_nulls().unique().to_list()
        is_joint = bool(separator and texts) and _joins_classes(texts, separator, request)
        if (
            2 <= stats.distinct <= MAX_CLASSES
            and stats.counts
            and stats.distinct < min(stats.filled, image_set.case_count)
        ):
            target = _label_column(image_set, survey, request, column)
            is_chosen = _is_chosen_of_several(column, yes_no_columns, request)
            extra_features = {"joint_labels": float(is_joint), "one_of_columns": float(not is_chosen)}
            yield replace(target, features={**target.features, **extra_features})
        if (separator or has_several_rows) and series.n_unique() > 1:
            target = _label_lists(image_set, survey, request, column, series, separator or LIST_SEPARATOR)
            yield replace(target, features={**target.features, "several_match": float(request.has_several or is_joint)})
    yield from _one_hot(image_set, survey, request, yes_no_columns)


def _counts_images(image_set: ImageSet, column: Column) -> bool:
    """Whether a number in names, which no word explains, counts the images of each subject: 1, 2, 3 for one after the other."""
    other_templates = [
        item.template for item in image_set.columns if item.source in ("slot", "folder") and item is not column
    ]
    if column.source != "slot" or column.name or column.stats.numeric < 1 or not other_templates:
        return False
    values = image_set.values(column.template).cast(pl.Int64, strict=False)
    table = pl.DataFrame({"subject": image_set.values("/".join(other_templates)), "value": values}).drop_nulls()
    value = pl.col("value")
    groups = table.group_by("subject").agg(n=pl.len(), first=value.min(), last=value.max(), distinct=value.n_unique())
    counts = groups.select(
        is_count=(pl.col("first") == 1) & (pl.col("last") == pl.col("distinct")) & (pl.col("n") == pl.col("last"))
    )
    return mean_of(groups["n"] > 1) > MIN_COUNTED and bool(counts["is_count"].all())


def _is_key_alone(image_set: ImageSet, column: Column) -> bool:
    """Whether a column of a table is the key of its images, or a part of the key that is not called a label."""
    key, part = image_set.tables[column.tables[0]].key, f"{{{column.template.partition('.')[2]}"
    return key == part or (part in key and not roles_of(column.name) & {"label", "grade"})


def _joins_classes(texts: Sequence[str], separator: str, request: Request) -> bool:
    """Whether texts are lists that name several classes at once: any, or several of those that the request names."""
    lists = [[part.strip() for part in text.split(separator)] for text in texts]
    names = dict.fromkeys(part for parts in lists for part in parts)
    match = request.match_classes(list(names))
    if match.unmatched or len(request.classes) < 2:  # "carcinoma, in situ" is one name, unless both stand alone, too
        return separator in CERTAIN_SEPARATORS or all([name] in lists for name in names)
    requested = {name for wanted, name in match.pairs.items() if wanted != match.remainder}
    return any(len(requested & set(parts)) > 1 for parts in lists)


def _is_chosen_of_several(column: Column, yes_no_columns: Mapping[str, Sequence[Column]], request: Request) -> bool:
    """Whether a column is no yes/no column beside others of its table, or is the one of them that the request means."""
    names = next(
        ([item.name for item in columns] for columns in yes_no_columns.values() if column in columns), [column.name]
    )
    if len(names) < 2 or roles_of(column.name) & {"label", "grade"}:
        return True
    return set(request.match_classes(names).pairs.values()) == {column.name} and len(request.classes) <= 2


def _place_in_rows(image_set: ImageSet, column: Column) -> tuple[str, str]:
    """The array and the place in its rows of a column that is one of several values of each item; empty of others."""
    is_array = column.source == "member" or (
        column.source == "table"
        and image_set.tables[column.tables[0]].patterns[0].lower().endswith(tuple(ARRAY_SUFFIXES))
    )
    match = re.fullmatch(r"(.+?)(?:\[(\d+)\]|\.(\d+))", column.name) if is_array else None
    return (match[1], match[2] or match[3]) if match else ("", "")


def _names_views(column: Column, request: Request) -> bool:
    """Whether a part of names is a view or side (`CC` and `ML`, `L` and `R`) and the request names neither these nor such a thing."""
    if (
        column.source not in ("slot", "folder")
        or not column.stats.counts
        or not all(map(is_view_or_side, column.stats.counts))
    ):
        return False
    words = [word for word in split_words(request.text) if len(word) > 1]
    return not any(is_view_or_side(word) or word.removesuffix("s") in VIEW_NOUNS for word in words)


def _describes_acquisition(column: Column, request: Request) -> bool:
    """Whether a column holds unique identifiers, or a header field that tells how an image was made or stored and that the
    request does not name."""
    if column.stats.counts and all(re.fullmatch(r"\d+(?:\.\d+){5,}", text) for text in column.stats.counts):
        return True
    from pydicom.datadict import tag_for_keyword

    if column.source != "tag" or request.match_phrase(column.name) >= MATCH_SCORE:
        return False
    tag = tag_for_keyword(column.name)
    return tag is not None and tag >> 16 in ACQUISITION_GROUPS and not _is_written_by_people(column)


def _is_written_by_people(column: Column) -> bool:
    """Whether a column is a header field for a description in words, such as `ImageComments`."""
    return column.source == "tag" and bool(re.search(DESCRIBING_FIELDS, column.name))


def _label_features(
    image_set: ImageSet, request: Request, column: Column, names: Sequence[str], counts: Mapping[str, int]
) -> dict[str, float]:
    stats, roles = column.stats, roles_of(column.name)
    values = list(counts)
    total = sum(counts.values()) or 1
    match = request.match_classes(names)
    words = [roles_of(value) for value in values]
    is_meant = request.match_phrase(column.name) >= MATCH_SCORE or (
        len(request.classes) > 1 and match.requested_share == match.available_share == 1
    )  # "tell male from female": what a column is otherwise used for says nothing, then
    are_sexes = {value.casefold() for value in values} <= SEXES
    codes = 0.0 if is_meant and are_sexes else sum(is_code(value) for value in names) / max(len(names), 1)
    return {
        "coverage": stats.coverage - 1,
        "partial": float(stats.coverage < 0.98),
        "log_classes": math.log(max(len(values), 1)),
        "classes_per_case": len(values) / min(total, image_set.case_count),
        "smallest_class": min(counts.values(), default=0) / total * len(values),
        "entropy": entropy(counts),
        "is_folder": float(column.source == "folder"),
        "is_slot": float(column.source == "slot"),
        "is_table": float(column.source == "table"),
        "is_tag": float(column.source == "tag"),
        "is_member": float(column.source == "member"),
        "named_label": float(bool(roles & ({"label", "grade"} if request.asks_for_grades else {"label"}))),
        "named_grade": float("grade" in roles),
        "named_other": float(
            bool(roles & {"split", "attribute", "time", "event", "text", "patient", "identifier"})
            and not roles & {"label", "grade"}
            and not is_meant
        ),
        "named_request": request.match_phrase(column.name),
        "values_request": 2 * match.requested_share - 1,
        "request_values": 2 * match.available_share - 1,
        "classes_counted": 0.0 if request.class_count is None else 1.0 if len(names) == request.class_count else -1.0,
        "values_side": sum(n for value, n in counts.items() if side_of(value)) / total,
        "values_words": 1 - codes if names else 0.0,
        "values_codes": codes,
        "values_yes_no": float(len(values) == 2 and all("yes_no" in item for item in words)),
        "values_normal": float(any("none" in item for item in words)),
        "values_media": sum(bool(item & {"image", "mask", "preview"}) for item in words) / max(len(words), 1),
        "values_sex": float(are_sexes and not is_meant),
        "crossing": column.crossing,
        "chance": column.chance,
        "conflicts": stats.conflicts / max(stats.images, 1),
    }


def _label_column(image_set: ImageSet, survey: Survey, request: Request, column: Column) -> Target:
    values = sorted(column.stats.counts, key=_natural)
    equations = list_equations(request.notes)
    named_values = [
        value
        for value in values
        if not (_is_unclear(value, equations) or _is_sentinel(value, values)) or request.contains(value)
    ]
    if len(named_values) > 1:
        values = named_values  # cases of which nobody knows the class are left out, and said
    forbidden = {
        value: sentence
        for value, sentence in find_forbidden_classes(request.notes, values).items()
        if not request.contains(value)
    }
    hidden = _find_hidden_part(image_set, column)
    values = [value for value in values if value not in forbidden and value not in hidden]
    if (ranks := severity_ranks(values)) is not None:
        values = sorted(values, key=lambda value: ranks[value])
    coded = all(is_code(value) or _is_yes_no(value) for value in values)
    names, legend = find_legend(values, survey.legends, column.name) if coded else ({}, "")
    if not names and "attribute" in roles_of(column.name) and {value.casefold() for value in values} <= set(SEX_NAMES):
        names, legend = {value: SEX_NAMES[value.casefold()] for value in values}, column.name
    classes: dict[str, tuple[str, ...]] = {names.get(value, value): (value,) for value in values}
    united_classes = _same_classes(image_set, column, values) if not coded else {}
    united_classes = (
        _unite_misspellings(united_classes or {value: (value,) for value in values}, column.stats.counts)
        if not coded
        else {}
    )
    united_classes = _unite_synonyms(united_classes, equations, request) if not coded else {}
    united_classes = united_classes if len(united_classes) < len(values) else {}
    outside_names = _list_outside(list(united_classes or classes), request)
    if outside_names:
        united_classes = {
            name: texts for name, texts in (united_classes or classes).items() if name not in outside_names
        }
        values = [value for texts in united_classes.values() for value in texts]
    if united_classes:
        classes = united_classes
    binary = _binary_names(values, column.name, request) if coded and not names else {}
    if binary:
        classes = {binary[value]: (value,) for value in values}
    assumed = tuple(f"{value} is left out: {sentence}" for value, sentence in forbidden.items())
    assumed += tuple(f"{value} is left out: it is none of the grades that are asked for" for value in outside_names)
    if hidden:
        names_of_hidden, verb = list_names(sorted(hidden, key=_natural)), "is" if len(hidden) == 1 else "are"
        assumed += (
            f"{names_of_hidden} {verb} left out: only the test part has this, and nothing of the other parts' classes",
        )
    unnamed = tuple(value for value in values if coded and not names and not binary)
    available = list(classes)
    if selected := request.select_classes(available):
        numbers_beside = [value for value in values if is_number(value)] if not coded else []
        named_by_selection = {label for group in selected.values() for label in group}
        # numbers beside names are other texts for the same classes, not classes that are left out
        unnamed = (*unnamed, *(value for value in numbers_beside if value not in named_by_selection))
        classes = {name: tuple(text for label in group for text in classes[label]) for name, group in selected.items()}
    if selected or united_classes:
        for name, texts in classes.items():
            other_texts = [f'"{text}"' for text in texts if text != name]
            if len(texts) > 1:
                assumed += (f"{', '.join(other_texts)} count{'s' if len(other_texts) == 1 else ''} as {name}",)
    ordered = request.asks_for_grades
    match = request.match_classes(list(classes))
    used, unmatched = dict(match.pairs), (*match.unmatched, *request.list_unmet_unions(available))
    counts = {value: column.stats.counts[value] for texts in classes.values() for value in texts}
    if united_classes and not selected:
        counts = {texts[0]: sum(counts[value] for value in texts) for texts in classes.values()}
    features = _label_features(image_set, request, column, list(classes), counts)
    features["legend"] = float(bool(legend))
    features["several_match"] = float(not request.has_several)
    numbers = sorted(int(value) for value in values if value.isdecimal())
    is_scale = len(numbers) == len(values) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    features["grade_codes"] = float(request.asks_for_grades and is_scale and not request.asks_for_number)
    labels = Labels(value=ValueSource(value=column.template), classes=classes, ordered=ordered)
    return Target(
        {"labels": labels},
        "label",
        features,
        f"classes by {column.template}",
        (column.template,),
        image_set.values(column.template),
        tuple(classes),
        unnamed,
        legend,
        used,
        unmatched,
        assumed=assumed,
    )


def _find_hidden_part(image_set: ImageSet, column: Column) -> frozenset[str]:
    """Return the names of folders that only the test part has, if it has none of the other parts' classes: `test/images` beside
    `train/mild` and `train/severe` is no class, but holds images without one."""
    if column.source not in ("slot", "folder"):
        return frozenset()
    for sides in image_set.columns:
        is_side = (
            sides.source in ("slot", "folder") and bool(sides.stats.counts) and all(map(side_of, sides.stats.counts))
        )
        if sides is column or not is_side:
            continue
        pairs = pl.DataFrame({"value": image_set.values(column.template), "side": image_set.values(sides.template)})
        pairs = pairs.drop_nulls().unique()
        tested = {value for value, side in pairs.iter_rows() if side_of(side) == "test"}
        others = {value for value, side in pairs.iter_rows() if side_of(side) != "test"}
        if len(others) > 1 and not any(match_term(name, other) >= MATCH_SCORE for name in tested for other in others):
            return frozenset(tested)
    return frozenset()


def _same_classes(image_set: ImageSet, column: Column, values: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return class -> values if some differ in case or spaces alone, or if each part of a split has its own name of each class
    (`train/COVID`, `test/Covid-19`); else nothing."""
    folded: dict[str, list[str]] = {}
    for value in values:
        folded.setdefault(fold(value), []).append(value)
    classes = {texts[0]: tuple(texts) for texts in folded.values()}
    for sides in image_set.columns:
        if sides is column or not 2 <= sides.stats.distinct <= 3 or not all(map(side_of, sides.stats.counts)):
            continue
        pairs = pl.DataFrame({"value": image_set.values(column.template), "side": image_set.values(sides.template)})
        sides_of = {
            name: set(pairs.filter(pl.col("value").is_in(list(texts)))["side"].drop_nulls())
            for name, texts in classes.items()
        }
        partial = [name for name in classes if len(sides_of[name]) < sides.stats.distinct]
        united = dict(classes)
        for name in partial:
            partners = [
                item
                for item in partial
                if not sides_of[name] & sides_of[item] and match_term(name, item) >= MATCH_SCORE
            ]
            if len(partners) == 1 and name in united and partners[0] in united:
                united[name] = (*united[name], *united.pop(partners[0]))
                sides_of[name] |= sides_of[partners[0]]
        if len(united) > 1 and all(len(sides_of[name]) == sides.stats.distinct for name in united):
            classes = united
    return classes if len(classes) < len(values) else {}


MIN_MISSPELT_LETTERS = 5
"""Letters of a word of which one may be wrong: shorter words differ by a letter and mean something else (`lung`, `lunge`)."""
MISSPELT_PER_CORRECT = 0.1
"""Rows with a misspelling for each row with the name spelt right, at most."""


def _unite_misspellings(
    classes: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return classes with the rare ones united whose name differs from a frequent one by a letter, or two letters exchanged."""
    n_rows = {name: sum(counts.get(text, 0) for text in texts) for name, texts in classes.items()}
    united = dict(classes)
    for name in sorted(classes, key=lambda name: n_rows[name]):
        partners = [
            other
            for other in united
            if n_rows[name] <= MISSPELT_PER_CORRECT * n_rows[other] and _is_misspelt(fold(name), fold(other))
        ]
        if len(partners) == 1:
            united[partners[0]] = (*united[partners[0]], *united.pop(name))
    return united


def _is_misspelt(text: str, correct: str) -> bool:
    """Whether two names are the same but for one letter of one long word; its first letter and figures agree."""
    words, correct_words = text.split(), correct.split()
    pairs = [pair for pair in zip(words, correct_words, strict=False) if pair[0] != pair[1]]
    if len(words) != len(correct_words) or len(pairs) != 1:
        return False
    word, correct_word = pairs[0]
    if min(len(word), len(correct_word)) < MIN_MISSPELT_LETTERS or not (word + correct_word).isalpha():
        return False
    start = _count_shared(word, correct_word)
    word_rest, correct_rest = word[start:], correct_word[start:]
    end = _count_shared(word_rest[::-1], correct_rest[::-1])
    word_rest, correct_rest = word_rest[: len(word_rest) - end], correct_rest[: len(correct_rest) - end]
    return start > 0 and (
        max(len(word_rest), len(correct_rest)) == 1 or (len(word_rest) == 2 and word_rest == correct_rest[::-1])
    )


def _count_shared(first: str, second: str) -> int:
    """Number of letters with which both texts begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def list_equations(notes: str) -> dict[str, frozenset[str]]:
    """Return text -> other texts of which a line of notes says that they mean the same, folded: `severe = grave`."""
    equals: dict[str, set[str]] = {}
    for first, second in re.findall(r"^[\s*•-]*([^=\n]{1,30}?)\s*=\s*([^=\n]{1,40}?)[\s.;,]*$", notes, re.MULTILINE):
        equals.setdefault(fold(first), set()).add(fold(second))
        equals.setdefault(fold(second), set()).add(fold(first))
    return {text: frozenset(equal_texts) for text, equal_texts in equals.items()}


def _is_unclear(value: str, equations: Mapping[str, frozenset[str]]) -> bool:
    """Whether a value says that nobody knows the class, by itself or by the notes; a remark in brackets does not count."""
    text = fold(re.sub(r"\(.*\)", "", value)) or fold(value)
    return bool((UNCLEAR_WORDS | NO_CLASS_WORDS) & {fold(value), text, *equations.get(text, ())})


def _is_sentinel(value: str, values: Sequence[str]) -> bool:
    """Whether a value is a number that stands for no answer, among names."""
    return bool(re.fullmatch(r"-\d{1,4}|9{2,4}", value)) and not any(
        re.fullmatch(r"-?\d+(?:\.\d+)?", other_value)
        for other_value in values
        if not re.fullmatch(r"-\d{1,4}|9{2,4}", other_value)
    )


def _unite_synonyms(
    classes: Mapping[str, tuple[str, ...]], equations: Mapping[str, frozenset[str]], request: Request
) -> dict[str, tuple[str, ...]]:
    """Return classes with those united of which notes say that they are equal, which mean the same severity though the request names
    only one of them, and parts of a requested grade (`4A` of BI-RADS 4)."""
    names = list(classes)
    targets: dict[str, str] = {}
    for name in names:
        equal_names = [
            other_name
            for other_name in names
            if other_name != name and fold(other_name) in equations.get(fold(name), ())
        ]
        if not request.contains(name) and not equal_names:
            rank = severity_rank(name)
            equal_names = [
                other_name
                for other_name in names
                if rank is not None and severity_rank(other_name) == rank and request.contains(other_name)
            ]
        if request.claims.grade_range is not None and (part := re.fullmatch(r"(\d+)\s?[A-Da-d]", name)):
            equal_names = [other_name for other_name in names if other_name == part[1]] or [part[1]]
        if (
            len(equal_names) == 1
            and targets.get(equal_names[0]) is None
            and not (request.contains(name) and not request.contains(equal_names[0]))
        ):
            targets[name] = equal_names[0]
    united: dict[str, tuple[str, ...]] = {name: () for name in [targets.get(name, name) for name in names]}
    for name, texts in classes.items():
        target = targets.get(name, name)
        united[target] = (*texts, *united[target]) if target == name else (*united[target], *texts)
    return united


def _list_outside(names: Sequence[str], request: Request) -> tuple[str, ...]:
    """Return the grades outside the range that the request names, if all grades of the range are there."""
    if request.claims.grade_range is None or not all(name.isdecimal() for name in names):
        return ()
    lowest, highest = request.claims.grade_range
    outside_grades = tuple(name for name in names if not lowest <= int(name) <= highest)
    inside_grades = {int(name) for name in names if name not in outside_grades}
    return outside_grades if inside_grades == set(range(lowest, highest + 1)) else ()


def _is_yes_no(text: str) -> bool:
    """Whether a text is a word for yes or no, and nothing else."""
    return "yes_no" in roles_of(text) and len(split_tokens(text)) == 1


def _binary_names(values: Sequence[str], column: str, request: Request) -> dict[str, str]:
    """Names of a yes/no column: the column's own name, and `no` with it."""
    folded = {value.strip().casefold(): value for value in values}
    if len(values) != 2 or len(set(folded) & YES) != 1 or len(set(folded) & NO) != 1:
        return {}
    positive, negative = (
        next(folded[item] for item in folded if item in YES),
        next(folded[item] for item in folded if item in NO),
    )
    requested, negatives = request.classes, set(request.claims.negatives)
    if len(requested) == 2 and len(negatives & set(requested)) == 1:
        return {
            negative: next(item for item in requested if item in negatives),
            positive: next(item for item in requested if item not in negatives),
        }
    has_name = request.target and not is_clause(request.target) and len(requested) < 2
    name = request.target if has_name and roles_of(column) & {"label"} else column
    if not name or is_code(name):
        return {}
    return {negative: f"no {name}", positive: name}


def _natural(text: str) -> list[tuple[int, Any]]:
    return [(0, int(part)) if part.isdigit() else (1, part.casefold()) for part in re.findall(r"\d+|\D+", text)]


def _separator(column: Column, texts: pl.Series) -> str:
    """The separator of lists of labels in the cells of a column; empty if it holds no lists."""
    stats = column.stats
    if stats.filled < 4 or stats.characters > 200:
        return ""
    series = texts.drop_nulls()
    characters = set("".join(series.unique().to_list())) if len(series) <= MAX_READ_TEXTS else set(SEPARATORS)
    for separator in SEPARATORS:
        if separator not in characters or (separator in "/ " and column.source != "table"):
            continue
        if separator == " " and not series.str.contains(CODES_BY_BLANKS).all():
            continue  # words with blanks between them are one name
        share = mean_of(series.str.contains(separator, literal=True))
        if not share:
            continue
        parts = series.str.split(separator).explode().str.strip_chars().drop_nulls()
        parts = parts.filter(parts != "")
        vocabulary = parts.n_unique()
        alone = parts.filter(parts.is_in(series.implode())).n_unique()
        if (
            2 <= vocabulary <= MAX_CLASSES
            and (share >= MIN_LIST_SHARE or alone == vocabulary)
            and len(parts) >= 3 * vocabulary
            and alone >= vocabulary / 2
            and (separator not in ",./" or not mean_of(parts.str.contains(r"^[\d.]+$")) > 0.5)
        ):
            return separator
    return ""


def _label_lists(
    image_set: ImageSet, survey: Survey, request: Request, column: Column, series: pl.Series, separator: str
) -> Target:
    parts = series.drop_nulls().str.split(separator).list.eval(pl.element().str.strip_chars().unique()).explode()
    counts = dict(sorted(parts.filter(parts != "").value_counts().iter_rows(), key=lambda pair: _natural(pair[0])))
    none_values = {
        value
        for value in counts
        if value == EMPTY_LIST
        or "none" in roles_of(value)
        or value.casefold() in ("no finding", "none", "normal", "no findings", "-")
    }
    values = [value for value in counts if value not in none_values]
    coded = all(map(is_code, values))
    names, legend = find_legend(values, survey.legends, column.name) if coded else ({}, "")
    classes: dict[str, tuple[str, ...]] = {names.get(value, value): (value,) for value in values}
    match = request.match_classes(list(classes))
    assumed: tuple[str, ...] = ()
    if len(request.classes) > 1 and not match.unmatched and not match.remainder:
        if left_out := [name for name in classes if name not in match.pairs.values()]:
            assumed = (f"images with {', '.join(left_out[:6])} alone count as without any requested class",)
        classes = {name: classes[name] for name in classes if name not in left_out}
    is_single = not request.classes and len(request.claims.targets) == len(match.pairs) == 1 < len(classes)
    if is_single:  # one finding is asked for: whether an image has it
        name = next(iter(match.pairs.values()))
        classes = {f"no {name}": (ANY,), name: classes[name]}
    coverage = 1 - series.null_count() / max(len(series), 1)
    features = _label_features(image_set, request, column, list(classes), counts) | {
        "lists": 1.0,
        "coverage": coverage - 1,
        "partial": float(coverage < 0.98),
        "conflicts": 0.0,
        "legend": float(bool(legend)),
    }
    missing = None
    if coverage < 1 and _has_file_each(image_set, column):  # an empty file beside an image says that it has none
        missing, features["coverage"], features["partial"] = EMPTY_LIST, 0.0, 0.0
    value = ValueSource(value=column.template, missing=missing)
    labels = Labels(value=value, classes=classes, separator=separator, multi_label=not is_single)
    return Target(
        {"labels": labels},
        "label",
        features,
        f"{name} or not by {column.template}" if is_single else f"several classes by {column.template}",
        (column.template,),
        series,
        tuple(classes),
        tuple(values) if coded and not names else (),
        legend,
        match.pairs,
        match.unmatched,
        assumed=assumed,
    )


def _has_file_each(image_set: ImageSet, column: Column) -> bool:
    """Whether a column is the whole text of files of which each image has one."""
    if not column.tables or image_set.tables[column.tables[0]].form != "text":
        return False
    return image_set.frame.tables[column.tables[0]].pairs["left"].n_unique() == image_set.count


def _yes_no_columns(image_set: ImageSet) -> dict[str, list[Column]]:
    """The columns of each table, or items of each array, that say yes or no and may be classes."""
    by_table: dict[str, list[Column]] = {}
    for column in image_set.columns:
        array = _place_in_rows(image_set, column)[0]
        if not _says_yes_or_no(column) or (column.source == "member" and not array):
            continue
        roles = roles_of(column.name)
        if array:
            by_table.setdefault("/".join((*column.tables, array)), []).append(column)
        elif not roles & {"attribute", "split", "event", "identifier"} or "none" in roles:
            by_table.setdefault(column.tables[0], []).append(column)
    return by_table


def _says_yes_or_no(column: Column) -> bool:
    values = {value.casefold() for value in column.stats.counts}
    return column.source in ("table", "member") and 1 <= len(values) <= 3 and values <= YES | NO | UNCERTAIN


def _says_yes(column: Column) -> bool:
    return any(value.casefold() in YES for value in column.stats.counts)


def _one_hot(
    image_set: ImageSet, survey: Survey, request: Request, yes_no_columns: Mapping[str, Sequence[Column]]
) -> Iterator[Target]:
    """Yes/no columns of one table: the ones that the request names, or all next to each other."""
    for columns in yes_no_columns.values():
        missing = _meaning_of_blanks(image_set, columns)
        empty = [column for column in columns if not _says_yes(column)]
        for selected in _column_sets(columns, request):
            target = _one_hot_target(image_set, survey, request, selected, missing)
            if left_out := [column.name for column in empty if column.template not in target.templates]:
                assumed = (*target.assumed, f"no image has {', '.join(left_out[:6])}, which are left out")
                target = replace(target, assumed=assumed)
            yield target


def _meaning_of_blanks(image_set: ImageSet, columns: Sequence[Column]) -> str | None:
    """Return "0" if an empty cell of yes/no columns means no: none of them says no, or each image has a filled cell beside it."""
    columns_beside = [
        column for column in image_set.columns if column.tables == columns[0].tables and _says_yes_or_no(column)
    ]
    cells = {column.template: image_set.values(column.template) for column in columns_beside}
    if not any(cells[column.template].null_count() for column in columns):
        return None
    has_no = any(value.casefold() in NO for column in columns for value in column.stats.counts)
    has_unlabelled = bool(pl.DataFrame(cells).select(pl.all_horizontal(pl.all().is_null()).any()).item())
    return None if has_no and has_unlabelled else "0"


def _asks_for_several(request: Request, match: ClassMatch) -> bool:
    """Whether a request is about several yes/no columns: about all findings, or several that are all there."""
    return request.claims.wants_all or not request.claims.targets or (len(request.classes) > 1 and not match.unmatched)


def _column_sets(columns: Sequence[Column], request: Request) -> Iterator[tuple[Column, ...]]:
    match = request.match_classes([column.name for column in columns])
    columns = [column for column in columns if _says_yes(column) or column.name in match.pairs.values()]
    if len(columns) < 2:
        return
    yield tuple(columns)
    without_none = tuple(
        column for column in columns if not roles_of(column.name) & {"none"} or "no" not in column.name.casefold()
    )
    if 2 <= len(without_none) < len(columns):
        yield without_none
    entries = tuple(column for column in columns if column.name in match.pairs.values())
    if 2 <= len(entries) < len(columns):
        yield entries


def _one_hot_target(
    image_set: ImageSet, survey: Survey, request: Request, columns: Sequence[Column], missing: str | None
) -> Target:
    frame = pl.DataFrame({column.template: image_set.values(column.template) for column in columns})
    positive = frame.with_columns(pl.all().str.to_lowercase().is_in(list(YES)))
    rows = positive.sum_horizontal()
    exclusive = mean_of(rows == 1)
    names = [column.name for column in columns]
    legend = ""
    array, _ = _place_in_rows(image_set, columns[0])
    unnamed: list[str] = []
    headings = [column.template.rpartition(".")[2].removesuffix("}") for column in columns]
    if array or all(map(is_code, headings)):
        places = [_place_in_rows(image_set, column)[1] for column in columns] if array else headings
        meanings, legend = find_legend(places, survey.legends, array)
        names = [meanings.get(place, f"class {place}") for place in places]
        unnamed = [place for place in places if place not in meanings]
    counts = {name: int(positive[column.template].sum()) for name, column in zip(names, columns, strict=True)}
    match = request.match_classes(names)
    multi = exclusive < 0.98
    base = _label_features(image_set, request, columns[0], names, {name: max(n, 1) for name, n in counts.items()})
    features = base | {
        "one_hot": 1.0,
        "several_match": float(
            request.has_several or _asks_for_several(request, match) if multi else not request.has_several
        ),
        "one_hot_exclusive": float(not multi),
        "named_label": 0.0,
        "values_words": sum(not is_code(name) for name in names) / len(names),
        "values_codes": 0.0,
        "values_yes_no": 0.0,
        "coverage": 0.0 if missing else min(column.stats.coverage for column in columns) - 1,
        "partial": 0.0 if missing else base["partial"],
        "empty_class": float(min(counts.values()) == 0),
    }
    labels = Labels(
        columns={
            name: ValueSource(value=column.template, missing=missing)
            for name, column in zip(names, columns, strict=True)
        },
        multi_label=multi,
    )
    assumed = (f"an empty cell of {', '.join(names[:6])} means no",) if missing else ()
    assigned = frame.select(pl.concat_str(pl.all().fill_null("?"), separator="|")).to_series()
    return Target(
        {"labels": labels},
        "label",
        features,
        f"yes/no columns {', '.join(names[:6])}",
        tuple(column.template for column in columns),
        assigned,
        tuple(names),
        tuple(unnamed),
        legend,
        match.pairs,
        match.unmatched,
        assumed=assumed,
    )


# --- numbers, times, texts ---------------------------------------------------------------------------------------------------


def list_numbers(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every column of numbers that could be what is to be estimated."""
    numeric = [
        column
        for column in image_set.columns
        if (column.stats.numeric > 0.9 and column.stats.distinct > 3) or _has_unit(image_set, column)
    ]
    requested_unit = find_requested_unit(request.text)
    measured = [column for column in numeric if _may_measure(image_set, column)]
    for column in numeric:
        if _describes_acquisition(column, request) or contradict(requested_unit, find_column_unit(column.name)):
            continue
        if column.template in image_set.date_slots:
            continue
        if request.prefers_grades and _is_scale_of_grades(column):
            continue
        stats, roles, texts = column.stats, roles_of(column.name), image_set.values(column.template).drop_nulls()
        features = {
            "named_request": request.match_phrase(column.name),
            "named_identifier": float(
                bool(roles & {"identifier", "patient", "split"}) and not _is_written_by_people(column)
            ),
            "named_label": float(bool(roles & {"label", "grade"})),
            "named_attribute": float("attribute" in roles),
            "padded": mean_of(texts.str.contains(r"^0\d")),
            "repeats": math.log(max(stats.filled / max(stats.distinct, 1), 1.0)),
            "counts_within": restart_of_others(image_set, column),
            "unnamed": float(not column.name),
            "distinct_share": stats.distinct / max(stats.filled, 1),
            "coverage": stats.coverage,
            "is_table": float(column.source == "table"),
            "is_slot": float(column.source in ("slot", "folder")),
            "is_tag": float(column.source == "tag"),
            "is_member": float(column.source == "member"),
            "only_number": float(len(numeric) == 1 or measured == [column]),
            "sequential": float(is_sequence(image_set.values(column.template))),
            "fraction": float(bool(texts.str.contains(r"\d[.,]\d").any())),
            "chance": column.chance,
            "conflicts": stats.conflicts / max(stats.images, 1),
        }
        durations = parse_durations(texts, requested_unit) if column.stats.numeric < 1 else None
        number, assumed = _make_number(column, request, durations.units[0] if durations is not None else "")
        yield Target(
            {"value": number},
            "number",
            features,
            f"numbers by {column.template}",
            (column.template,),
            image_set.values(column.template),
            (number.title,),
            assumed=assumed,
        )


def _may_measure(image_set: ImageSet, column: Column) -> bool:
    """Whether a column of numbers is no part of a path, no key of images or persons, and no running number."""
    is_key = roles_of(column.name) & {"identifier", "patient", "split"} and not _is_written_by_people(column)
    return column.source not in ("slot", "folder") and not is_key and not is_sequence(image_set.values(column.template))


def _make_number(column: Column, request: Request, unit_of_texts: str = "") -> tuple[Number, tuple[str, ...]]:
    """Return a number by a column, called by the words of its name, and what is assumed of its unit.

    Args:
        unit_of_texts: unit of its texts if these are durations (`4 y 3 mo`), which are converted to what the request asks for.
    """
    name, column_unit = split_column_unit(column.name)
    title = name or request.target or "value"
    if unit_of_texts:
        return Number(value=ValueSource(value=column.template), title=title, unit=request.unit or unit_of_texts), ()
    number = Number(value=ValueSource(value=column.template), title=title, unit=column_unit or request.unit)
    requested_unit = find_requested_unit(request.text)
    if column_unit and requested_unit not in ("", column_unit):
        return number, (f"{column.name} is in {column_unit}, and is not converted to {requested_unit}",)
    return number, ()


def _is_scale_of_grades(column: Column) -> bool:
    """Whether a column holds whole numbers of a short scale that repeat, as the grades of a disease do."""
    stats = column.stats
    if not stats.counts or any(re.fullmatch(r"\d{1,2}(?:\.0)?", text) is None for text in stats.counts):
        return False
    levels = [float(text) for text in stats.counts]
    return max(levels) - min(levels) <= MAX_GRADE and 2 * stats.distinct <= stats.filled


def _has_unit(image_set: ImageSet, column: Column) -> bool:
    if column.stats.distinct <= 3 or column.stats.characters > 24 or column.source in ("slot", "folder"):
        return False
    series = image_set.values(column.template).drop_nulls()
    if parse_durations(series) is not None:
        return True
    return mean_of(series.str.contains(r"^\s*[<>~]?\s*[+-]?\d+(?:[.,]\d+)?\s*[a-zA-Zµ%/²³^]+[\w/²³^]*\s*$")) > 0.9


def is_sequence(series: pl.Series) -> bool:
    """Whether numbers count the images: whole, all different and nearly without gaps."""
    numbers = series.drop_nulls().cast(pl.Int64, strict=False).drop_nulls()
    if len(numbers) < 3 or len(numbers) < 0.9 * len(series.drop_nulls()):
        return False
    low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]
    return numbers.n_unique() == len(numbers) and high - low + 1 <= 1.3 * len(numbers)


def list_survivals(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every pair of a time and an event of one table."""
    times = [column for column in image_set.columns if column.stats.numeric > 0.9 and column.stats.distinct > 5]
    known_texts = {
        column.template: [text for text in column.stats.counts if fold(text) not in NO_NUMBER_WORDS]
        for column in image_set.columns
    }
    events = [column for column in image_set.columns if len(known_texts[column.template]) == 2]
    for event in events:
        for time in _times_of(event, times):
            is_beside = time.template.endswith(".value}") and event.template.endswith(".value}")
            if time.tables != event.tables and not is_beside:
                continue
            time_roles, event_roles = roles_of(time.name), roles_of(event.name)
            observed = _observed(event)
            features = {
                "time_named": float("time" in time_roles),
                "time_request": request.match_phrase(time.name),
                "time_other": float(bool(time_roles & {"identifier", "patient", "attribute"})),
                "event_named": float("event" in event_roles),
                "event_other": float(
                    bool(event_roles & {"attribute", "split", "identifier"}) and "event" not in event_roles
                ),
                "event_known": float(bool(observed)),
                "sequential": float(is_sequence(image_set.values(time.template))),
                "coverage": min(time.stats.coverage, event.stats.coverage),
            }
            values = known_texts[event.template]
            observed = observed or values[-1]
            number, assumed = _make_number(time, request)
            if 0 < len(request.target.split()) <= MAX_TITLE_WORDS:
                number = number.model_copy(update={"title": request.target})
            survival = Survival(
                time=number,
                event=ValueSource(value=event.template),
                observed=(observed,),
                censored=tuple(v for v in values if v != observed),
            )
            assigned = (
                pl.DataFrame({"t": image_set.values(time.template), "e": image_set.values(event.template)})
                .select(pl.concat_str(pl.all(), separator="|"))
                .to_series()
            )
            yield Target(
                {"survival": survival},
                "survival",
                features,
                f"time by {time.template}, event by {event.template}",
                (time.template, event.template),
                assigned,
                (number.title,),
                assumed=assumed,
            )


def _times_of(event: Column, times: Sequence[Column]) -> Sequence[Column]:
    """Return the times that are called like an event (`OS_months` of `OS_event`); all if none is."""
    words = set(split_words(event.name))
    return [time for time in times if words & set(split_words(time.name))] or times


def _observed(event: Column) -> str:
    """The value that means that the event took place."""
    vocabulary = {
        "1",
        "1.0",
        "yes",
        "true",
        "dead",
        "died",
        "deceased",
        "event",
        "observed",
        "ja",
        "oui",
        "si",
        "sí",
        "tot",
        "verstorben",
        "mort",
        "décédé",
        "muerto",
        "fallecido",
        "死亡",
        "是",
        "relapse",
        "recurrence",
        "progression",
    }
    censoring = bool(re.search(r"cens|zens", event.name.casefold()))
    matches = [value for value in event.stats.counts if value.casefold() in vocabulary]
    if len(matches) != 1:
        return ""
    return next(value for value in event.stats.counts if value != matches[0]) if censoring else matches[0]


def list_texts(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every column of prose, alone and as findings with an impression."""
    prose = []
    for column in image_set.columns:
        if (
            column.stats.characters >= MIN_TEXT_CHARS
            and column.source in ("table", "member")
            and column.stats.distinct > 3
        ):
            series = image_set.values(column.template).drop_nulls()
            words = median_of(series.str.count_matches(r"[\p{L}]{2,}|\p{Han}"))
            if words >= 4 and not mean_of(series.str.contains(r"^[^\s]+$")) > 0.5:
                prose.append((column, words))
    for column, words in prose:
        roles = roles_of(column.name)
        impression = bool(re.search(r"impression|beurteilung|conclusion|conclusión|印象", column.name.casefold()))
        features = {
            "named_text": float("text" in roles),
            "named_other": float(bool(roles & {"identifier", "patient", "attribute", "split"}) and "text" not in roles),
            "named_request": request.match_phrase(column.name.rpartition(".")[2]),
            "log_words": math.log(words),
            "coverage": column.stats.coverage,
            "distinct_share": column.stats.distinct / max(column.stats.filled, 1),
            "only_text": float(len(prose) == 1),
            "chance": column.chance,
            "sections_match": float(request.report_sections == ({"impression"} if impression else {"findings"})),
        }
        partner = next(
            (
                item
                for item, _ in prose
                if item.tables == column.tables and re.search(r"impression|beurteilung|印象", item.name.casefold())
            ),
            None,
        )
        source = ValueSource(value=column.template)
        if impression and len(prose) == 1:
            yield Target(
                {"report": Report(impression=source)},
                "text",
                features,
                f"reports by {column.template}",
                (column.template,),
                image_set.values(column.template),
            )
        elif (
            partner is not None
            and partner is not column
            and re.search(r"finding|befund|所见|description", column.name.casefold())
        ):
            report = Report(findings=source, impression=ValueSource(value=partner.template))
            yield Target(
                {"report": report},
                "text",
                features | {"both_parts": 1.0, "sections_match": float(len(request.report_sections) != 1)},
                f"reports by {column.template} and {partner.template}",
                (column.template, partner.template),
                image_set.values(column.template),
            )
        else:
            yield Target(
                {"report": Report(findings=source)},
                "text",
                features,
                f"reports by {column.template}",
                (column.template,),
                image_set.values(column.template),
            )


# --- masks and boxes ---------------------------------------------------------------------------------------------------------


def list_masks(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every group of masks that is paired with the images, members of containers, and outlines of annotation files."""
    for pairing, right, content, member in list_pairings(image_set, survey):
        if content.values == "colour_regions":
            continue  # superpixels, or objects whose numbers are written as colours
        if content.is_mask or content.values in ("float_probability", "grey"):
            targets = _paired_masks(image_set, survey, request, pairing, right, content, member)
            listed = (pairing.image,) if "." in pairing.image else ()  # a column of a table
            yield from (
                replace(target, templates=listed) for target in targets if not _is_forbidden(target, request.notes)
            )
    yield from _member_masks(image_set, survey, request)
    yield from _column_masks(image_set, survey, request)
    for facts in list_annotations(survey, request):
        if _takes_annotations(image_set, facts):
            continue  # files of annotations that open as images are no images
        shapes = set(facts.shapes)
        has_boxes = request.asks_for_boxes and shapes & BOX_SHAPES  # each outline gives a box
        if {"outline", "mask"} & shapes and not has_boxes:
            yield _annotated(image_set, survey, request, facts, "masks")
    for name in image_set.frame.tables:
        if (result := find_runs(image_set, name)) is not None:
            yield _table_runs(image_set, survey, request, name, *result)


def _is_forbidden(target: Target, notes: str) -> bool:
    """Whether notes say that a folder of these masks must not be used."""
    files = target.parts["masks"].files
    patterns = (files,) if isinstance(files, str) else tuple(files or ())
    return any(find_forbidden_folder(notes, pattern) for pattern in patterns)


def _table_runs(
    image_set: ImageSet,
    survey: Survey,
    request: Request,
    name: str,
    column: str,
    class_column: str,
    reading: Any,
    counts: Mapping[str, int],
) -> Target:
    table = image_set.frame.tables[name]
    names, legend, codes = _named_classes(survey, request, list(counts) if class_column else [], class_column)
    classes = _keep_asked(request, names, codes)
    match = request.match_classes(list(classes))
    features = {
        "images_found": table.matched_rows / max(len(table.table.frame), 1),
        "set_share": table.pairs["left"].n_unique() / max(image_set.count, 1),
        "named_set": 1.0,
        "image_is_mask": float(image_set.content.is_mask),
        "annotation": 1.0,
        "has_outline": 1.0,
        "runs": 1.0,
        "certain_order": float(reading.is_certain),
        "chance": image_set.chances[name],
    } | _class_features(request, list(classes))
    masks = Masks.model_validate(
        {
            "format": "table",
            "table": name,
            "classes": classes,
            "columns": {"runs": column, **({"class": class_column} if class_column else {})},
            "order": reading.rule.order,
            "first": reading.rule.first,
            "relative": reading.rule.relative,
        }
    )
    return Target(
        {"masks": masks},
        "mask",
        features,
        f"run lengths in {image_set.tables[name].patterns[0]}",
        (f"{{{name}.}}",),
        None,
        tuple(classes),
        codes,
        legend,
        match.pairs,
        match.unmatched,
        not_asked=_others(names, classes),
    )


def _paired_masks(
    image_set: ImageSet,
    survey: Survey,
    request: Request,
    pairing: Pairing,
    right: FileGroup,
    content: Content,
    member: str,
) -> Iterator[Target]:
    per_class, class_slot = _classes_of_files(image_set, request, pairing, right, survey.legends)
    features = _mask_features(image_set, request, content) | {
        "image_share": pairing.images_matched / max(pairing.image_files, 1),
        "partner_share": pairing.partners_matched / max(pairing.partner_files, 1),
        "set_share": pairing.images_matched
        / max(pairing.image_files if image_set.images.several != "one" else image_set.count, 1),
        "several_each": float(pairing.per_image[1] > 1),
        "shared": float(pairing.images_per_partner > 1),
        "same_grid": pairing.same_grid / pairing.compared if pairing.compared else 0.5,
        "words_mask": float(any("mask" in roles_of(word) for word in pairing.partner_words)),
        "words_preview": float(any("preview" in roles_of(word) for word in pairing.partner_words)),
        "words_automatic": float(any("automatic" in roles_of(word) for word in pairing.partner_words)),
        "words_reference": float(any("reference" in roles_of(word) for word in pairing.partner_words)),
        "words_request": max((request.match_phrase(word) for word in pairing.partner_words), default=0.0),
        "strict": {"exact": 1.0, "path_tail": 0.9, "basename": 0.9, "stem": 0.8, "normalized": 0.5, "number": 0.2}[
            pairing.match
        ],
    }
    base = {
        "files": right.pattern,
        "exclude": right.exclude,
        "member": member,
        "key": pairing.key,
        "image": pairing.image,
        "match": pairing.match,
    }
    sizes = pairing.sizes[0] if pairing.compared and pairing.same_grid < pairing.compared and pairing.sizes else ""
    title = f"masks {right.pattern}"
    overlap = pairing.overlap or 0.0
    common: dict[str, Any] = {"sizes": sizes, "turned": pairing.turned_grid}
    if _is_of_slices(image_set, pairing):
        features |= {"several_each": 0.0, "slice_masks": 1.0}
        yield from _valued_masks(survey, request, base, features, title, content, right, common)
        return
    values = list(_by_value(pairing, right))
    words_of_all = set(pairing.partner_words) - {word for _, value, *_ in values for word in split_words(value)}
    for files, value, rank, is_ordinal in values:
        versions = 1.0 if is_ordinal else overlap
        own_words = words_of_all | {value, *split_words(value)}
        own_features = features | {
            "one_of_several": 1.0,
            "one_of_versions": versions,
            "later_version": float(bool(rank)) * versions,
            "several_each": 0.0,
            "words_request": max(features["words_request"], request.match_phrase(value)),
            "words_automatic": float(any("automatic" in roles_of(word) for word in own_words)),
            "words_reference": float(any("reference" in roles_of(word) for word in own_words)),
            "slice_masks": float(_is_of_slices(image_set, pairing, len(values))),
        }
        assumed = (f"of several versions of the masks the first is the reference ({value})",) if rank == 0 else ()
        own_base = {**base, "files": files}
        for target in _valued_masks(survey, request, own_base, own_features, f"masks {files}", content, right, common):
            yield replace(target, assumed=(*assumed, *target.assumed))
    are_objects = not per_class and _are_objects(pairing, right)
    if pairing.per_image[1] > 1 or per_class or are_objects:
        if per_class:
            legend_names, _ = find_legend(list(per_class), survey.legends)
            per_class = {legend_names.get(name, name): texts for name, texts in per_class.items()}
            selected = request.select_marked(list(per_class))
            match = request.match_classes(list(per_class))
            for files, reader in _list_readers(pairing, right, class_slot, len(per_class)):
                masks = Masks.model_validate(
                    {
                        **base,
                        "files": files,
                        "classes": {name: ("*",) for name in selected},
                        "class_key": f"{{{class_slot}}}",
                        "per_file": {
                            name: [text for part in group for text in per_class[part]]
                            for name, group in selected.items()
                        },
                        "overlapping": True,
                    }
                )
                yield Target(
                    {"masks": masks},
                    "mask",
                    features
                    | _class_features(request, list(selected))
                    | {
                        "per_class": 1.0,
                        "classes_match": match.requested_share * match.available_share,
                        "names_more": mean_of(
                            pl.Series([request.is_more_than_asked(name) for name in chain(*selected.values())])
                        ),
                        "classes_overlap": overlap,
                        "one_of_several": float(bool(reader)),
                        "one_of_versions": float(bool(reader)),
                    },
                    f"masks {files}, one a class",
                    (),
                    None,
                    tuple(selected),
                    (),
                    "",
                    match.pairs,
                    match.unmatched,
                    **common,
                )
        name = request.target or "object"
        masks = Masks.model_validate({**base, "classes": {name: ("*",)}, "per_file": {}})
        yield Target(
            {"masks": masks},
            "mask",
            features
            | _class_features(request, [name], is_assumed=True)
            | {
                "united": 1.0,
                "united_overlap": overlap,
                "united_objects": float(are_objects),
            },
            title + ", united",
            (),
            None,
            (name,),
            **common,
        )
        return
    yield from _valued_masks(survey, request, base, features, title, content, right, common)


def _by_value(pairing: Pairing, right: FileGroup) -> Iterator[tuple[str, str, int | None, bool]]:
    """Masks with each value of the slot that tells apart several masks of one image: observers, versions, classes.

    Yields:
        Their pattern, the value, its place from 0 if the values are numbered, and whether they are ordinals.
    """
    slot = right.slot(pairing.extra_slot) if pairing.extra_slot else None
    if slot is None or not 2 <= slot.distinct <= MAX_VERSIONS or len(slot.values) < slot.distinct:
        return
    texts = [value.text for value in slot.values]
    ordinals, ranks = _order_ordinals(texts), _order_versions(texts)
    if pairing.per_image[1] < 2 and not ordinals:
        return
    for text in texts:
        yield with_value(right.pattern, slot, text), text, ranks.get(text), bool(ordinals)


def _is_of_slices(image_set: ImageSet, pairing: Pairing, versions: int = 1) -> bool:
    """Whether each slice of a volume has a mask, or several versions of one, in files of their own."""
    slices = round(image_set.count / max(pairing.image_files, 1))
    return image_set.images.several == "slices" and slices > 1 and pairing.per_image[1] == slices * versions


def _are_objects(pairing: Pairing, right: FileGroup) -> bool:
    """Whether the files of one image are numbered, or have names of their own, and differ in number from image to image."""
    slot = right.slot(pairing.extra_slot) if pairing.extra_slot else None
    is_numbered = slot is None or slot.kind != "word"
    return is_numbered and pairing.per_image[0] < pairing.per_image[2]


def _order_ordinals(texts: Sequence[str]) -> dict[str, int]:
    """Places of texts that are ordinals cut from their numbers, and the same besides (`stHO`, `ndHO` of `1stHO`, `2ndHO`)."""
    matches = {text: re.fullmatch(r"(st|nd|rd|th)(\D*)", text, re.IGNORECASE) for text in texts}
    if not all(matches.values()) or len({match[2] for match in matches.values() if match}) != 1:
        return {}
    return {text: ("st", "nd", "rd", "th").index(match[1].casefold()) for text, match in matches.items() if match}


def _order_versions(texts: Sequence[str]) -> dict[str, int]:
    """Places of texts that are one word with numbers (`mask`, `mask_1`), or ordinals."""
    stems = {re.sub(r"[ _.-]*\d+$", "", text.casefold()) for text in texts}
    if len(stems) == 1 and "" not in stems:
        return {text: place for place, text in enumerate(sorted(texts, key=_natural))}
    return _order_ordinals(texts)


def _classes_of_files(
    image_set: ImageSet, request: Request, pairing: Pairing, right: FileGroup, legends: Sequence[Legend]
) -> tuple[dict[str, tuple[str, ...]], str]:
    """Classes by a slot of mask files that occurs with the same few values at each image, and the slot; numbers need a legend."""
    slot = right.slot(pairing.extra_slot) if pairing.extra_slot else None
    if slot is None or not 2 <= slot.distinct <= MAX_CLASSES or len(slot.values) < slot.distinct:
        return {}, ""
    slot = _name_of_classes(image_set, request, right, slot)
    texts = [value.text for value in slot.values]
    if any(roles_of(text) & {"automatic", "reference"} for text in texts) or _order_versions(texts):
        return {}, ""
    if "reader" in roles_of(slot.before):  # `masks_reader1`, which a legend could take for a code
        return {}, ""
    if slot.kind != "number" and not all(is_code(text) for text in texts):
        return {text: (text,) for text in texts}, slot.name
    names, _ = find_legend(texts, legends)
    return ({names[text]: (text,) for text in texts}, slot.name) if len(names) == len(texts) else ({}, "")


def _list_readers(pairing: Pairing, right: FileGroup, class_slot: str, n_classes: int) -> list[tuple[str, str]]:
    """Patterns of the masks of each reader, with its name, if each image has a mask a class and reader; else that of all masks."""
    for slot in right.slots:
        is_whole = 2 <= slot.distinct <= MAX_VERSIONS and len(slot.values) == slot.distinct
        if slot.name == class_slot or not is_whole or pairing.per_image[1] != n_classes * slot.distinct:
            continue
        if "reader" in roles_of(slot.before) or any("reader" in roles_of(value.text) for value in slot.values):
            return [(with_value(right.pattern, slot, value.text), value.text) for value in slot.values]
    return [(right.pattern, "")]


def _name_of_classes(image_set: ImageSet, request: Request, right: FileGroup, slot: Slot) -> Slot:
    """Of the parts of paths that vary together with a slot (`2. Haemorrhages/007_HE.tif`), the one that the request fits best."""
    other_slots = [
        item
        for item in right.slots
        if item.name != slot.name and item.distinct == slot.distinct == len(item.values) and item.kind != "number"
    ]
    if not other_slots:
        return slot
    items = image_set.frame.readers.items(Files(files=right.pattern, exclude=right.exclude), "proposal")
    frame = ImageFrame(items, image_set.frame.readers, [])
    frame.add_columns([slot.name, *(item.name for item in other_slots)], "proposal")
    same_slots = [item for item in other_slots if frame.frame.select(slot.name, item.name).n_unique() == slot.distinct]

    def fit(item: Slot) -> float:
        texts = [value.text for value in item.values]
        match = match_classes(request.classes or request.claims.targets, texts, notes=request.notes)
        return sum(match.scores.values()) - len(match.ambiguous)

    return max(slot, *same_slots, key=fit) if same_slots else slot


def _valued_masks(
    survey: Survey,
    request: Request,
    base: dict[str, Any],
    features: dict[str, float],
    title: str,
    content: Content,
    right: FileGroup | None,
    common: dict[str, Any],
) -> Iterator[Target]:
    if content.layers is not None:
        yield from _layered_masks(survey, request, base, features, title, content.layers, common)
        return
    values = [level.value for level in content.levels]
    if (
        content.values in ("binary", "lossy_binary", "float_probability", "grey", "constant", "instance_ids")
        or len(values) == 2
    ):
        name = request.target or (request.classes[0] if len(request.classes) == 1 else "") or "object"
        marked = [value for value in values if not _is_background(value, values)]
        legends = [legend for legend in survey.legends if _is_of_two_values(legend)]
        legend_names, legend = find_legend(marked, legends) if content.values == "binary" else ({}, "")
        if len(legend_names) == 1:
            name = next(iter(legend_names.values()))
        entries = [name]
        masks = Masks.model_validate(
            {**base, "classes": {name: ("*",)}, "above": content.cut if content.values == "lossy_binary" else None}
        )
        match = request.match_classes(entries)
        yield Target(
            {"masks": masks},
            "mask",
            features | _class_features(request, entries, is_assumed=not legend),
            title,
            (),
            None,
            (name,),
            (),
            legend,
            match.pairs,
            match.unmatched,
            **common,
        )
        return
    marks = _marks(content)
    void = [code for codes in marks if _is_void_mark(codes, content) for code in codes]
    foreground = [
        codes
        for codes in marks
        if not any(_is_background(code, values) for code in codes) and not set(codes) & set(void)
    ]
    names, legend = _name_marks(foreground, survey.legends)
    if legend and right is not None and content.samples < right.count:
        unseen = _name_unseen_marks(names, survey.legends)
        names, foreground = names | unseen, [*foreground, *unseen]
    skipped = [codes for codes in foreground if names.get(codes, "").casefold() in VOID_NAMES]
    foreground = [
        codes for codes in foreground if codes not in skipped and names.get(codes, "").casefold() != BACKGROUND
    ]
    void += [code for codes in skipped for code in codes]
    unnamed = [codes for codes in foreground if codes not in names]
    assumed: tuple[str, ...] = ()
    if unnamed and not legend and (request_names := _names_of_request(foreground, request)):
        names |= request_names
        assumed = (
            "; ".join(
                f"value {codes[0]} is taken as {name}, in the order of the request"
                for codes, name in request_names.items()
            ),
        )
        unnamed = [codes for codes in foreground if codes not in names]
    partial_legend = ""
    if not names:
        partial, partial_legend = find_partial_legend([codes[0] for codes in foreground], survey.legends)
        told_apart = {
            code: name for code, name in request.numbered_classes.items() if partial and name not in partial.values()
        }
        stated_values = partial | told_apart
        names = {codes: stated_values[codes[0]] for codes in foreground if codes[0] in stated_values}
        unnamed = [codes for codes in foreground if codes not in names]
    codes_of_name = {names.get(codes, f"value {codes[0]}"): tuple(map(_code, codes)) for codes in foreground}
    classes = _keep_asked(request, codes_of_name, unnamed)
    match = request.match_classes(list(classes))
    if classes:
        masks = Masks.model_validate({**base, "classes": classes, "void": tuple(_code(code) for code in void)})
        yield Target(
            {"masks": masks},
            "mask",
            features | _class_features(request, list(classes)) | {"valued": 1.0, "legend": float(bool(legend))},
            title,
            (),
            None,
            tuple(classes),
            tuple(codes[0] for codes in unnamed),
            legend,
            match.pairs,
            match.unmatched,
            assumed=assumed,
            not_asked=_others(codes_of_name, classes),
            partial_legend=partial_legend,
            **common,
        )
    if len(classes) > 1 and request.target and not request.classes:
        name = request.target
        masks = Masks.model_validate({**base, "classes": {name: ("*",)}, "void": tuple(_code(value) for value in void)})
        yield Target(
            {"masks": masks},
            "mask",
            features | _class_features(request, [name], is_assumed=True) | {"united_values": 1.0},
            title + ", all values united",
            (),
            None,
            (name,),
            (),
            "",
            {},
            (),
            **common,
        )


def _layered_masks(
    survey: Survey,
    request: Request,
    base: dict[str, Any],
    features: dict[str, float],
    title: str,
    layers: Layers,
    common: dict[str, Any],
) -> Iterator[Target]:
    """Masks with a layer for each class: each by its name, and all of them united."""
    names, legend = _name_layers(layers, survey.legends, f"{base['files']} {base['member']}")
    places = [place for place in range(layers.count) if names.get(place, "").casefold() != BACKGROUND]
    if not legend:
        places = [place for place in places if place != layers.background]
        if len(request.classes) == len(places):
            names = dict(zip(places, request.classes, strict=True))
    assumed = tuple(
        f"layer {place} is taken as {name}, in the order of the request" for place, name in names.items() if not legend
    )
    unnamed = tuple(str(place) for place in places if place not in names)
    marked = {names.get(place, f"value {place}"): (place,) for place in places}
    places_of_class = _keep_asked(request, marked, unnamed)
    united = {request.target: tuple(places)} if request.target and not request.classes else {}
    for classes, is_united in ((places_of_class, False), (united, True)):
        if not classes or (is_united and len(places) < 2 and not unnamed):
            continue
        body = {"classes": dict.fromkeys(classes, ()), "layers": classes}
        match = ClassMatch() if is_united else request.match_classes(list(classes))
        yield Target(
            {"masks": Masks.model_validate({**base, **body})},
            "mask",
            features
            | _class_features(request, list(classes), is_assumed=is_united)
            | ({"united_values": 1.0} if is_united else {"valued": 1.0, "legend": float(bool(legend))}),
            f"{title}, all layers united" if is_united else f"{title}, a layer a class",
            classes=tuple(classes),
            codes=() if is_united else unnamed,
            legend="" if is_united else legend,
            requested=match.pairs,
            unmatched_request=match.unmatched,
            assumed=() if is_united else assumed,
            not_asked=() if is_united else _others(marked, classes),
            **common,
        )


def _keep_asked(
    request: Request, classes: Mapping[str, tuple[Any, ...]], unnamed: Sequence[object]
) -> dict[str, tuple[Any, ...]]:
    """Return the classes that are asked for, with their codes; all of them if codes have no name."""
    return dict(classes) if unnamed else {name: classes[name] for name in request.list_asked(list(classes))}


def _others(classes: Iterable[str], kept: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in classes if name not in kept)


def _name_layers(layers: Layers, legends: Sequence[Legend], hint: str) -> tuple[dict[int, str], str]:
    """Names of layers by a legend that counts them from 0, or from 1; the legend."""
    every = range(layers.count)
    for places in (every, [place for place in every if place != layers.background]):
        for first in (0, 1):
            codes = [str(place + first) for place in places]
            fitting = [item for item in legends if codes[0] in {_fold_code(code) for code, _ in item.names}]
            names, legend = find_legend(codes, fitting, hint)
            if names:
                return {int(code) - first: name for code, name in names.items()}, legend
    return {}, ""


def _is_of_two_values(legend: Legend) -> bool:
    """Whether a legend names one value, or one and the background."""
    codes = {_fold_code(code) for code, _ in legend.names}
    return len(codes) == 1 or (len(codes) == 2 and bool(codes & {"0", "#000000"}))


def _code(value: str) -> int | str:
    return int(float(value)) if re.fullmatch(r"-?\d+(?:\.0+)?", value) else value


def _is_background(value: str, values: Sequence[str]) -> bool:
    return value in ("0", "0.0", "#000000")


def _marks(content: Content) -> list[tuple[str, ...]]:
    """The codes of each class: a palette's number and its colour mean the same, also where other files have the colour alone."""
    marks: dict[str, list[str]] = {}
    for level in content.levels:
        codes = marks.setdefault(level.colour or level.value, [])
        codes.append(level.value)
        if level.colour and any(second.value == level.colour for second in content.levels):
            codes.append(level.colour)
    return [tuple(dict.fromkeys(codes)) for codes in marks.values()]


def _is_void_mark(codes: tuple[str, ...], content: Content) -> bool:
    return VOID_COLOUR in codes or any(level.value in codes and _is_void(level, content) for level in content.levels)


def _name_marks(marks: Sequence[tuple[str, ...]], legends: Sequence[Legend]) -> tuple[dict[tuple[str, ...], str], str]:
    """Names of classes by a legend of numbers or of colours, and the legend."""
    legends = [_count_marks(legend) for legend in legends]
    for place in (0, -1):
        result, source = find_legend([codes[place] for codes in marks], legends)
        if result:
            return {codes: result[codes[place]] for codes in marks if codes[place] in result}, source
    return {}, ""


def _name_unseen_marks(names: Mapping[tuple[str, ...], str], legends: Sequence[Legend]) -> dict[tuple[str, ...], str]:
    """Further numbers of a legend of which most names were seen in a sample of the masks, since others may have the rest.

    A legend that gives its numbers comes before a list that is counted, which may leave numbers out.
    """
    seen_codes = {_fold_code(codes[0]): name.casefold() for codes, name in names.items()}
    for legend in sorted(map(_count_marks, legends), key=lambda item: item.kind != "codes"):
        known_codes = {_fold_code(code): name for code, name in legend.names}
        known_codes = {code: name for code, name in known_codes.items() if code.isdecimal() and code != "0"}
        agrees = all(code in known_codes and known_codes[code].casefold() == name for code, name in seen_codes.items())
        if agrees and 2 * len(seen_codes) > len(known_codes):
            return {(code,): name for code, name in known_codes.items() if code not in seen_codes}
    return {}


def _count_marks(legend: Legend) -> Legend:
    """A list of names counts from 1 where values are marks, unless its first name is that of the background, which is 0."""
    first = legend.names[0][1] if legend.names else ""
    if legend.kind != "list" or _names_background(first):
        return legend
    names = tuple((str(number), name) for number, (_, name) in enumerate(legend.names, 1))
    return legend.model_copy(update={"names": names})


def _names_background(name: str) -> bool:
    concepts = {concept for unit in get_lexicon().find_units(name) for concept in unit.concepts}
    return bool(concepts & {"background", "other"}) or name.casefold() in VOID_NAMES or is_negative(name)


def _names_of_request(marks: Sequence[tuple[str, ...]], request: Request) -> dict[tuple[str, ...], str]:
    """Names by the numbers that the request gives; or in its order, if it names as many classes as there are values 1, 2, ..."""
    numbered = request.numbered_classes
    if numbered and all(codes[0] in numbered for codes in marks):
        return {codes: numbered[codes[0]] for codes in marks}
    if [codes[0] for codes in marks] == [str(number + 1) for number in range(len(marks))] and len(
        request.classes
    ) == len(marks):
        return dict(zip(marks, request.classes, strict=True))
    return {}


VOID_COLOUR = "#e0e0c0"
"""Colour of the border that PASCAL VOC leaves out of every class (Everingham et al., IJCV 2010)."""


def _is_void(level: Level, content: Content) -> bool:
    """Whether a value marks borders or unsure pixels: the highest of its type, far above the others, and rare."""
    remaining_values = [
        float(item.value) for item in content.levels if item is not level and re.fullmatch(r"-?[\d.]+", item.value)
    ]
    return level.value == "255" and len(remaining_values) >= 2 and max(remaining_values) < 128 and level.share < 0.2


def _mask_features(image_set: ImageSet, request: Request, content: Content) -> dict[str, float]:
    return {
        "binary": float(content.values == "binary"),
        "lossy": float(content.values == "lossy_binary"),
        "few_integers": float(content.values == "few_integers"),
        "colours": float(content.values == "colour_labels"),
        "instances": float(content.values == "instance_ids"),
        "soft": float(content.values in ("float_probability", "grey")),
        "image_is_mask": float(image_set.content.is_mask),
        "all_empty": float(content.samples > 0 and content.empty == content.samples),
        "same_dims": float(content.dims == image_set.content.dims),
    }


def _class_features(request: Request, names: Sequence[str], *, is_assumed: bool = False) -> dict[str, float]:
    """What the names of classes say.

    Args:
        is_assumed: whether the names are those of the request, which then says nothing for them.
    """
    match = ClassMatch() if is_assumed else request.match_classes(names)
    return {
        "log_classes": math.log(max(len(names), 1)),
        "values_request": match.requested_share,
        "request_values": match.available_share,
        "fewer_classes": float(len(request.classes) > len(names)),
        "unnamed_codes": float(any(name.startswith("value ") for name in names)),
    }


def _member_masks(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Masks in the containers of the images, or item by item in containers beside them."""
    own_member = image_set.images.member
    if not own_member:
        return
    stacked, key = own_member.endswith("[#]"), own_member.removesuffix("[#]")
    has_parts = "{part}" in key
    image = next(
        (
            member
            for container in survey.containers
            if container.group in image_set.groups
            for member in container.members
            if (part_form(member.key) if has_parts else member.key) == key
        ),
        None,
    )
    slots = sorted(set(re.findall(r"\{(\w+)\}", key)))
    for container in survey.containers:
        keys = _item_keys(image_set, survey, container.group, stacked)
        if keys is None:
            continue
        is_inside = container.group in image_set.groups
        if slots and is_inside:
            keys = ("/".join(["{path}", *(f"{{{slot}}}" for slot in slots), *["{index}"] * stacked]),) * 2
        forms: set[str] = set()
        for member in container.members:
            form = part_form(member.key)
            is_image = is_inside and (member.key == key or (form and form in (key, part_form(key))))
            if is_image or member.content is None or member.kind not in ("masks", "images"):
                continue
            if stacked and (image is None or member.length != image.length):
                continue
            if has_parts and (not is_inside or not form or form in forms):
                continue
            if slots and (
                not is_inside or set(re.findall(r"\{(\w+)\}", form if has_parts else member.key)) != set(slots)
            ):
                continue
            forms.add(form)
            name = form if has_parts else member.key
            group = survey.group(container.group)
            base = {
                "files": image_set.images.files if is_inside else group.pattern,
                "member": name + ("[#]" if stacked else ""),
                "key": keys[0],
                "image": keys[1],
            }
            words = f"{member.key} {group.pattern}"
            features = _same_file_features(image_set, request, member.content, member.key, words, is_inside=is_inside)
            title = f"masks {name} of the same files" if is_inside else f"masks {group.pattern} {name}"
            yield from _valued_masks(survey, request, base, features, title.strip(), member.content, None, {})


def _same_file_features(
    image_set: ImageSet, request: Request, content: Content, key: str, words: str, *, is_inside: bool
) -> dict[str, float]:
    """Return the features of masks of which each image has one in its own file, or at its place in another one."""
    return _mask_features(image_set, request, content) | {
        "image_share": 1.0,
        "partner_share": 1.0,
        "set_share": 1.0,
        "same_grid": 1.0,
        "strict": 1.0,
        "inside": float(is_inside),
        "words_mask": float("mask" in roles_of(words)),
        "words_request": request.match_phrase(key),
    }


def _column_masks(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Masks in another column of the Parquet tables that hold the images."""
    group = survey.group(image_set.groups[0])
    if group.suffixes != (".parquet",):
        return
    readers = image_set.frame.readers
    for column in readers.members(group.examples[0]):
        files = Files(files=image_set.images.files, member=f"{column}[#]")
        if files.member == image_set.images.member:
            continue
        content = sample_content(ImageFrame(readers.items(files, "masks"), readers, []))
        if content is None or not content.is_mask:
            continue
        base = {"files": files.files, "member": files.member, "key": "{path}/{index}", "image": "{path}/{index}"}
        features = _same_file_features(image_set, request, content, column, column, is_inside=True)
        yield from _valued_masks(survey, request, base, features, f"masks {column} of the same rows", content, None, {})


def _item_keys(image_set: ImageSet, survey: Survey, group: str, stacked: bool) -> tuple[str, str] | None:
    """The templates of masks and images that pair the items of a container with those of the images; None if nothing does."""
    item = "/{index}" if stacked else ""
    if group in image_set.groups:
        return "{path}" + item, "{path}" + item
    if not stacked:
        return None
    if survey.group(group).count == 1 == len(image_set.paths):
        return "{index}", "{index}"
    for pairing in survey.pairings:
        if pairing.image_group in image_set.groups and pairing.partner_group == group:
            return pairing.key + item, pairing.image + item
        if pairing.partner_group in image_set.groups and pairing.image_group == group:
            return pairing.image + item, pairing.key + item
    return None


def _annotated(image_set: ImageSet, survey: Survey, request: Request, facts: AnnotationFacts, part: str) -> Target:
    names = [value.text for value in facts.classes]
    coded = bool(names) and all(is_code(name) for name in names)
    legend_names, legend = find_legend(names, survey.legends) if coded else ({}, "")
    classes: dict[str, tuple[Any, ...]] = {
        legend_names.get(name, name): (_code(name) if coded and re.fullmatch(r"\d+", name) else name,) for name in names
    } or {request.target or "object": ("*",)}
    by_frequency = sorted(facts.classes, key=lambda value: -value.count)
    spellings = {} if coded else _unite_spellings([value.text for value in by_frequency])
    if spellings:
        classes = dict(spellings)
    match = request.match_classes(list(classes))
    selected: dict[str, tuple[Any, ...]] = dict(classes)
    if len(request.claims.targets) == 1 and len(request.classes) < 2 and len(classes) > 1:
        fitting = [name for name in classes if _fits_request(request, (name, *spellings.get(name, ())))]
        if len(fitting) > 1 and not all(map(request.contains, fitting)):
            name_of_all = request.classes[0] if request.classes else request.target
            selected = {name_of_all: tuple(code for name in fitting for code in classes[name])}
        else:
            selected = {name: classes[name] for name in fitting or request.list_asked(list(classes))}
    else:
        selected = _keep_asked(request, classes, ())
    n_found = facts.images_found
    if facts.images_group in image_set.groups:
        n_found = sum(facts.images_by_group.get(id, 0) for id in image_set.groups)
    n_images = image_set.case_count if facts.names_series else image_set.count
    features = {
        "images_found": min(1.0, n_found / max(facts.images, 1)),
        "set_share": min(1.0, n_found / max(n_images, 1)) if facts.images_group in image_set.groups else 0.0,
        "named_set": float(facts.images_group in image_set.groups),
        "image_is_mask": float(image_set.content.is_mask),
        "annotation": 1.0,
        "has_box": float("box" in facts.shapes),
        "has_outline": float(bool({"outline", "mask"} & set(facts.shapes))),
        "stale": float(any("stale" in note or "duplicate" in note for note in facts.notes)),
        "subset": float(len(selected) < len(classes)),
    } | _class_features(request, list(selected))
    files = _annotation_files(survey, facts)
    body: dict[str, Any] = {"format": facts.format, "files": files, "classes": selected}
    if facts.category_key:
        body["category_key"] = facts.category_key
    if part == "masks":
        body["overlapping"] = False
    else:
        body["empty"] = "leave_out"
    finished = next((tag for tag in facts.tags if is_finished_tag(tag.text, request.notes)), None)
    assumed = [
        f"{', '.join(group)} are spellings of one class"
        for group in spellings.values()
        if len(group) > 1 and any(set(group) & set(codes) for codes in selected.values())
    ]
    if finished is not None and finished.text not in selected:
        body["finished"] = finished.text
        assumed.append(
            f"{facts.images - finished.count:,} images without the tag {finished.text} are left out as not looked at"
        )
    if unassessable := tuple(tag.text for tag in facts.tags if is_unassessable_tag(tag.text)):
        body["unassessable"] = unassessable
        assumed.append(f"images without marks and with the tag {' or '.join(unassessable)} are left out")
    model = (Masks if part == "masks" else Boxes).model_validate(body)
    return Target(
        {part: model},
        "mask" if part == "masks" else "boxes",
        features,
        f"{part} of {files if isinstance(files, str) else f'{len(files)} files such as {files[0]}'}"
        + (f" by {facts.category_key}" if facts.category_key else ""),
        (),
        None,
        tuple(selected),
        tuple(name for name in selected if is_code(name)),
        legend,
        match.pairs,
        match.unmatched,
        assumed=tuple(assumed),
        not_asked=tuple(
            name
            for name, codes in classes.items()
            if any(value.count and value.text in {name, *map(str, codes)} for value in facts.classes)
            and not any(set(codes) & set(selected_codes) for selected_codes in selected.values())
        ),
    )


def _fits_request(request: Request, spellings: Sequence[str]) -> bool:
    """Whether a name of a class in any of its spellings is what the request asks for."""
    return any(request.match_phrase(name) >= MATCH_SCORE for name in spellings)


def _unite_spellings(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return name -> its spellings: names that differ in case and separators, in the plural, or in a number or letter at the end
    of a name that also occurs without it (`GTV`, `gtv`, `GTV-1`).

    Args:
        names: the most frequent first; of the spellings of fewest words it names the class.
    """
    words_of_name = {name: tuple(split_words(name)) for name in names}
    known_names = set(words_of_name.values())
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, words in words_of_name.items():
        if words[:-1] in known_names and _is_enumerating(words):
            words = words[:-1]
        if words and (singular := (*words[:-1], words[-1].removesuffix("s"))) in known_names:
            words = singular
        groups.setdefault(words or (name,), []).append(name)
    return {min(group, key=lambda name: len(words_of_name[name])): tuple(group) for group in groups.values()}


def _is_enumerating(words: Sequence[str]) -> bool:
    """Whether the last word of a name only counts: a number or a letter for no side, behind a word."""
    *base, last = words
    is_counter = last.isdecimal() or (len(last) == 1 and "laterality" not in roles_of(last))
    return is_counter and bool(base) and len(base[-1]) >= MIN_COUNTED_WORD and not base[-1].isdecimal()


def list_annotations(survey: Survey, request: Request) -> list[AnnotationFacts]:
    """Return the annotations of a folder; of those that name classes by several category keys, the keys whose classes the request
    names most, and all keys if it names none."""
    keyed = [facts for facts in survey.annotations if facts.category_key]
    n_named = {
        facts.category_key: len(request.match_classes([value.text for value in facts.classes]).pairs) for facts in keyed
    }
    highest = max(n_named.values(), default=0)
    return [facts for facts in survey.annotations if not facts.category_key or n_named[facts.category_key] == highest]


def _takes_annotations(image_set: ImageSet, facts: AnnotationFacts) -> bool:
    """Whether the files of annotations are images of a set; the field `where` of a manifest keeps them apart."""
    return facts.group in image_set.groups and not image_set.images.where


def _annotation_files(survey: Survey, facts: AnnotationFacts) -> str | tuple[str, ...]:
    """The files of an annotation: their paths, or the pattern of the group if there are many."""
    if len(facts.files) == facts.file_count <= MAX_LISTED_FILES or not facts.group:
        return facts.files[0] if len(facts.files) == 1 else tuple(facts.files)
    patterns = [survey.group(id).pattern for id in facts.groups]
    return tuple(patterns) if len(patterns) > 1 else survey.group(facts.group).pattern


def list_boxes(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield every annotation with boxes or outlines for the images; slices have boxes of their own."""
    if image_set.images.several == "slices":
        return
    for facts in list_annotations(survey, request):
        if BOX_SHAPES & set(facts.shapes) and not _takes_annotations(image_set, facts):
            yield _annotated(image_set, survey, request, facts, "boxes")
    originals = find_original_sizes("\n".join(document.text for document in survey.documents))
    for name in image_set.frame.tables:
        if (result := find_boxes(image_set, name, originals)) is not None:
            yield _table_boxes(image_set, survey, request, name, *result)


def list_box_masks(image_set: ImageSet, survey: Survey, request: Request) -> Iterator[Target]:
    """Yield the boxes from which masks can be learnt."""
    for target in list_boxes(image_set, survey, request):
        if not target.features.get("has_outline"):
            yield replace(target, assumed=(*target.assumed, BOXES_AS_MASKS))


def _table_boxes(
    image_set: ImageSet,
    survey: Survey,
    request: Request,
    name: str,
    columns: BoxColumns,
    class_column: str,
    reading: BoxReading,
    counts: Mapping[str, int],
) -> Target:
    table = image_set.frame.tables[name]
    images = table.pairs["left"].n_unique()
    names, legend, codes = _named_classes(survey, request, list(counts) if class_column else [], class_column)
    classes = _keep_asked(request, names, codes)
    match = request.match_classes(list(classes))
    features = {
        "images_found": table.matched_rows / max(len(table.table.frame), 1),
        "set_share": images / max(image_set.count, 1),
        "named_set": 1.0,
        "image_is_mask": float(image_set.content.is_mask),
        "table": 1.0,
        "fit": reading.fit,
        "rivals": float(bool(reading.rivals)),
        "has_box": 1.0,
        "chance": image_set.chances[name],
    } | _class_features(request, list(classes))
    roles = dict(columns.columns) | ({"class": class_column} if class_column else {})
    roles = _with_form(roles, reading)
    assumed = ""
    if reading.is_of_image_size:
        roles |= dict(zip(IMAGE_SIZE_ROLES, columns.image_size, strict=True))
        assumed = f"boxes were drawn on images of the size in {' and '.join(columns.image_size)}, and are scaled"
    elif reading.scale != (1.0, 1.0):
        times = " x ".join(f"{1 / factor:.3g}" for factor in dict.fromkeys(reading.scale))
        assumed = f"boxes were drawn on originals {times} times as large as the images, by the notes, and are scaled"
    is_outside = reading.n_measured and reading.fit < MIN_INSIDE
    boxes = Boxes.model_validate(
        {
            "format": "table",
            "table": name,
            "classes": classes,
            "columns": roles,
            "space": reading.space,
            "sizes_mm": reading.sizes_mm,
            "empty": "leave_out",
            "scale": reading.scale,
        }
    )
    return Target(
        {"boxes": boxes},
        "boxes",
        features,
        f"boxes in {image_set.tables[name].patterns[0]}",
        (f"{{{name}.}}",),
        None,
        tuple(classes),
        codes,
        legend,
        match.pairs,
        match.unmatched,
        not_asked=_others(names, classes),
        sizes=f"{1 - reading.fit:.0%} of {reading.n_measured:,} boxes reach beyond their image" if is_outside else "",
        assumed=(assumed,) if assumed else (),
    )


def _with_form(roles: dict[str, str], reading: BoxReading) -> dict[str, str]:
    """Roles of a list column follow what was measured."""
    for form in ("corners", "sides", "centres"):
        if form in roles and form != reading.form:
            column = roles.pop(form)
            return {reading.form: column, **roles}
    return roles


def _named_classes(
    survey: Survey, request: Request, names: Sequence[str], hint: str
) -> tuple[dict[str, tuple[int | str, ...]], str, tuple[str, ...]]:
    """Classes of texts in a file with their names by a legend, the legend, and codes that nothing names."""
    # marks without a name can only be those of the one class that is asked for
    only = request.target if len(request.classes) < 2 else ""
    if not names:
        return {only or "object": (ANY,)}, "", ()
    coded = all(is_code(name) for name in names)
    meanings, legend = find_legend(names, survey.legends, hint) if coded else ({}, "")
    if coded and not meanings and len(names) == 1 and only:
        return {only: (names[0],)}, "", ()
    classes: dict[str, tuple[int | str, ...]] = {
        meanings.get(name, name): (name,) for name in sorted(names, key=_natural)
    }
    return classes, legend, tuple(name for name in names if coded and name not in meanings)
