"""Checks of meaning for labels: are the classes classes, and those that were asked for?"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from m3b.data.audit_common import Finding, listed, people, some
from m3b.data.image_probe import ImageProbe
from m3b.data.index import Index, counts

MIN_IMAGES = 12
"""Images below which a part of the names, or a header field, agrees with the labels by chance."""
MIN_CLASSES = 3
IDENTIFIERS = 0.8
"""Share of class names that look like identifiers from which on all are taken for such."""
_IDENTIFIER = re.compile(
    r"(?:(?:pat(?:ient)?|case|subj?(?:ect)?|study|exam|scan|series|person|volunteer|img|image|file|slice|frame|sample)[\W_]*"
    r"(?:id|no)?[\W_]*\d+\w?"
    r"|[a-z]*[\W_]*\d{4,}\w?|(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f-]{8,})",
    re.IGNORECASE,
)
"""A word for a person or file with a number, a long number, or a hash."""
_RANGE = re.compile(r"(?<![\d.])(\d{1,2})\s*(?:-|–|to|bis|à|until|through)\s*(\d{1,2})(?![\d.])", re.IGNORECASE)


@dataclass(frozen=True)
class IndexRequest:
    """What an index is held against.

    Args:
        request: the user's words; empty where nobody asked.
        metric: by which the model shall be judged; empty for the task's own.
    """

    request: str = ""
    metric: str = ""


def classes(index: Index) -> list[Finding]:
    """What the labels of a diagnosis show by themselves; the gravest alone, since one reading error shows in several."""
    present = [name for name, count in counts(index.records, index.classes).items() if count]
    for check in (_identifiers, _patients, _one_case):
        if found := check(index, present):
            return [found]
    return []


def _identifiers(index: Index, present: Sequence[str]) -> Finding | None:
    odd = [name for name in present if _IDENTIFIER.fullmatch(name.strip())]
    if len(present) < MIN_CLASSES or len(odd) < IDENTIFIERS * len(present):
        return None
    what = f"The {len(present)} classes look like names of patients or files: {listed(odd)}"
    text = f"{what}. Take the labels from a table's column, a header field or another folder level."
    told = f"{what}. A model would learn who somebody is, and not what was asked for. Name the column or folder with the labels."
    return Finding("classes_are_identifiers", "fix", text, (), told)


def _patients(index: Index, present: Sequence[str]) -> Finding | None:
    if not index.patients_known or index.multi_label:
        return None
    of: dict[str, set[str]] = defaultdict(set)
    for record in index.records:
        for label in record.labels:
            of[label].add(record.patient)
    if any(len(of[name]) != 1 for name in present) or people(index.records) != len(present):
        return None
    what = f"Each of the {len(present)} classes is one patient's alone, and each patient has one: {listed(present)}"
    text = f"{what}. Take the labels or the patients from another column, name part or folder level."
    told = f"{what}. Class and patient cannot be told apart then."
    return Finding("classes_are_patients", "fix", text, (), told)


def _one_case(index: Index, present: Sequence[str]) -> Finding | None:
    together = counts(index.records, index.classes)
    single = [name for name in present if together[name] == 1]
    if len(present) <= MIN_CLASSES or len(single) < len(present) / 2:
        return None
    what = f"{len(single)} of {len(present)} classes have a single case, e.g. {listed(single)}"
    text = f"{what}. These are values of something else (an identifier, an age, a text): take another column, or group them."
    told = f"{what}. Nothing can be learnt of a class that is seen once."
    return Finding("one_case_a_class", "fix", text, (), told)


# --- held against the request -------------------------------------------------------------------------------------


def against(index: Index, asked: IndexRequest) -> list[Finding]:
    """Classes that are the request's numbers, or have nothing to do with what it lists."""
    return [*_numbers(index, asked.request), *_other_subject(index, asked.request)]


def _numbers(index: Index, request: str) -> list[Finding]:
    """The two ends of a range taken for the classes: `0 to 4` as 0 and 4."""
    for low, high in _RANGE.findall(request):
        if int(high) - int(low) > 1 and set(index.classes) == {low, high}:
            what = f"The request speaks of {low} to {high}, and the classes are the two numbers {low} and {high} alone"
            text = f"{what}. Take every value from {low} to {high} that the labels hold."
            told = f"{what}. The grades between them would be left out."
            return [Finding("numbers_of_request", "fix", text, (), told)]
    return []


def _other_subject(index: Index, request: str) -> list[Finding]:
    """None of the classes is one of those that the request lists; only where their names are words that could be."""
    from m3b.data.spec.proposals.language import listed as wanted
    from m3b.data.spec.proposals.language import named, telling
    from m3b.data.spec.proposals.matching import Said, means

    items = wanted(request)
    spoken = [name for name in index.classes if any(len(word) > 5 for word in telling(name))]
    if len(items) < 2 or len(spoken) < len(index.classes) or len(spoken) < 2:
        return []
    said = Said({}, {})
    if named(index.classes, request) or any(means(name, item, said) for name in index.classes for item in items):
        return []
    text = (
        f"The request asks for {listed(items)}, and the classes are {listed(index.classes)}: none of them is among those. "
        "Are there labels of what was asked for?"
    )
    return [Finding("classes_off_request", "warn", text)]


# --- labels that stand beside the pixels --------------------------------------------------------------------------


def told_beside(index: Index, looks: Mapping[str, ImageProbe]) -> list[Finding]:
    """Labels that a file's name or header gives away: a model that reads those needs no image."""
    if index.multi_label:
        return []
    labels = {record.key: record.labels[0] for record in index.records if record.labels}
    return [*_in_names(labels), *_in_headers(labels, looks)]


def _in_names(labels: Mapping[str, str]) -> list[Finding]:
    parts = {key: re.split(r"[\W_]+", PurePosixPath(key.split("|")[0].split("#")[0]).stem) for key in labels}
    if not parts:
        return []
    length, often = Counter(map(len, parts.values())).most_common(1)[0]
    if often < 0.95 * len(parts):
        return []
    for at in range(length):
        if _tells({key: some[at].casefold() for key, some in parts.items() if len(some) == length}, labels):
            first = next(iter(parts))
            text = (
                f"The file names hold the label (part {at + 1}, e.g. {PurePosixPath(first).name}). m3b measures on copies under "
                "invented names; whoever uses names elsewhere measures nothing."
            )
            return [Finding("label_in_name", "warn", text, some(list(labels)[:1]))]
    return []


def _in_headers(labels: Mapping[str, str], looks: Mapping[str, ImageProbe]) -> list[Finding]:
    fields: dict[str, dict[str, str]] = defaultdict(dict)
    headed = [key for key in labels if key in looks and looks[key].header]
    for key in headed:
        for keyword, value in looks[key].header.items():
            fields[keyword][key] = value
    telling = [
        keyword for keyword, values in fields.items() if _tells({key: values.get(key, "") for key in headed}, labels)
    ]
    if not telling:
        return []
    text = (
        f"The DICOM header tells the label by itself ({listed(telling)} in {len(headed)} files): a model that reads headers "
        "needs no image. m3b's templates see pixels alone."
    )
    return [Finding("label_in_header", "warn", text)]


def _tells(values: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether few different texts and the labels stand for each other, one to one."""
    if len(values) < MIN_IMAGES:
        return False
    pairs = {(text, labels[key]) for key, text in values.items()}
    texts, names = {text for text, _ in pairs}, {name for _, name in pairs}
    return len(names) > 1 and len(pairs) == len(texts) == len(names)
