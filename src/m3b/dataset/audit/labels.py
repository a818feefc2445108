"""Checks of the labels of images: are the classes classes, and does something besides the pixels give them away?"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from m3b.data.index import counts
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, join_names

MIN_TELLING_IMAGES = 12
"""Images below which a part of the names, or a header field, agrees with the labels by chance."""
MIN_CLASSES = 3
MIN_IDENTIFIER_SHARE = 0.8
MIN_SAME_FORM = 0.95
_IDENTIFIER = re.compile(
    r"(?:(?:pat(?:ient)?|case|subj?(?:ect)?|study|exam|scan|series|person|volunteer|img|image|file|slice|frame|sample)[\W_]*"
    r"(?:id|no)?[\W_]*\d+\w?"
    r"|[a-z]*[\W_]*\d{4,}\w?|(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f-]{8,})",
    re.IGNORECASE,
)
"""A word for a person or file with a number, a long number, or a hash."""


class OneClass(AuditCheck):
    """A single class has cases."""

    code = "one_class"
    severity = "reject"
    targets = ("labels",)
    remedy = "Check that the label column or the class folders were read, or add data of another class."

    def find(self, data: AuditData) -> Iterator[Finding]:
        table = counts(data.index.records, data.index.classes)
        present = [name for name, count in table.items() if count]
        if len(data.index.classes) < 2 or (len(present) < 2 and not data.index.multi_label):
            counts_text = ", ".join(f"{name}: {count}" for name, count in table.items())
            yield self.make_finding(f"Only one class has cases ({counts_text}); a classifier needs at least two.")


class MissingLabel(AuditCheck):
    """Cases without a label, if nothing says that several labels, or none, may apply."""

    code = "no_label"
    severity = "fix"
    targets = ("labels",)
    remedy = "Leave them out, or give them a class of their own (such as 'none') if they are known to have none of the findings."

    def find(self, data: AuditData) -> Iterator[Finding]:
        unlabelled = [record.key for record in data.index.records if not record.labels]
        if unlabelled and not any(
            len(record.labels) > 1 or UNKNOWN_LABELS in record.extra for record in data.index.records
        ):
            yield self.make_finding(
                f"{len(unlabelled)} of {len(data.index.records)} cases have no label, and none has two.",
                data.shorten_all(unlabelled),
            )


# --- classes that are something else ------------------------------------------------------------------------------


class ClassesAreIdentifiers(AuditCheck):
    """Classes with names of patients or files."""

    code = "classes_are_identifiers"
    severity = "fix"
    targets = ("labels",)
    remedy = "Take the labels from a table's column, a header field or another folder level."

    def find(self, data: AuditData) -> Iterator[Finding]:
        present = _list_present_classes(data)
        identifiers = [name for name in present if _IDENTIFIER.fullmatch(name.strip())]
        if len(present) >= MIN_CLASSES and len(identifiers) >= MIN_IDENTIFIER_SHARE * len(present):
            yield self.make_finding(
                f"The {len(present)} classes look like names of patients or files: {join_names(identifiers)}. A model would "
                "learn who somebody is, and not what was asked for. Name the column or folder with the labels."
            )


class ClassesArePatients(AuditCheck):
    """Each class belongs to a single patient."""

    code = "classes_are_patients"
    severity = "fix"
    targets = ("labels",)
    remedy = "Take the labels or the patients from another column, name part or folder level."
    explained_by = ("classes_are_identifiers",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        index, present = data.index, _list_present_classes(data)
        if not index.patients_known or index.multi_label:
            return
        patients: dict[str, set[str]] = defaultdict(set)
        for record in index.records:
            for label in record.labels:
                patients[label].add(record.patient)
        if all(len(patients[name]) == 1 for name in present) and data.patient_count == len(present):
            yield self.make_finding(
                f"Each of the {len(present)} classes is one patient's alone, and each patient has one: {join_names(present)}. "
                "Class and patient cannot be told apart then."
            )


class OneCaseAClass(AuditCheck):
    """Half of the classes or more have a single case."""

    code = "one_case_a_class"
    severity = "fix"
    targets = ("labels",)
    remedy = "These are values of something else (an identifier, an age, a text): take another column, or group them."
    explained_by = ("classes_are_identifiers", "classes_are_patients")

    def find(self, data: AuditData) -> Iterator[Finding]:
        table = counts(data.index.records, data.index.classes)
        present = _list_present_classes(data)
        single = [name for name in present if table[name] == 1]
        if len(present) > MIN_CLASSES and len(single) >= len(present) / 2:
            yield self.make_finding(
                f"{len(single)} of {len(present)} classes have a single case, e.g. {join_names(single)}. Nothing can be learnt "
                "of a class that is seen once."
            )


def _list_present_classes(data: AuditData) -> list[str]:
    return [name for name, count in counts(data.index.records, data.index.classes).items() if count]


# --- labels outside of the pixels ---------------------------------------------------------------------------------


class LabelInName(AuditCheck):
    """A part of the file names corresponds to the labels one to one."""

    code = "label_in_name"
    targets = ("labels",)
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        labels = _get_single_labels(data)
        parts = {
            key: re.split(r"[\W_]+", PurePosixPath(key.split("|")[0].split("#")[0]).stem.casefold()) for key in labels
        }
        if not parts:
            return
        length, number = Counter(map(len, parts.values())).most_common(1)[0]
        if number < MIN_SAME_FORM * len(parts):
            return
        for place in range(length):
            texts = {key: names[place] for key, names in parts.items() if len(names) == length}
            if _correspond(texts, labels):
                first = next(iter(parts))
                yield self.make_finding(
                    f"The file names hold the label (part {place + 1}, e.g. {PurePosixPath(first).name}). m3b measures on copies "
                    "under invented names; whoever uses names elsewhere measures nothing.",
                    data.shorten_all([first]),
                )
                return


class LabelInHeader(AuditCheck):
    """A field of DICOM headers corresponds to the labels one to one."""

    code = "label_in_header"
    targets = ("labels",)
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        labels = _get_single_labels(data)
        headers = {key: data.probes[key].header for key in labels if key in data.probes and data.probes[key].header}
        keywords = dict.fromkeys(keyword for header in headers.values() for keyword in header)
        telling = [
            keyword
            for keyword in keywords
            if _correspond({key: header.get(keyword, "") for key, header in headers.items()}, labels)
        ]
        if telling:
            yield self.make_finding(
                f"The DICOM header tells the label by itself ({join_names(telling)} in {len(headers)} files): a model that "
                "reads headers needs no image. m3b's templates see pixels alone."
            )


def _get_single_labels(data: AuditData) -> dict[str, str]:
    if data.index.multi_label:
        return {}
    return {record.key: record.labels[0] for record in data.index.records if record.labels}


def _correspond(texts: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether few different texts and the labels stand for each other, one to one."""
    if len(texts) < MIN_TELLING_IMAGES:
        return False
    pairs = {(text, labels[key]) for key, text in texts.items()}
    names = {name for _, name in pairs}
    return len(names) > 1 and len(pairs) == len({text for text, _ in pairs}) == len(names)


CHECKS = (
    OneClass(), MissingLabel(), ClassesAreIdentifiers(), ClassesArePatients(), OneCaseAClass(), LabelInName(), LabelInHeader(),
)  # fmt: skip
