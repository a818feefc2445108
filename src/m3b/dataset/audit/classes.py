"""Checks of classes: in the label dictionary, on both sides of the split, and with enough cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import ClassVar

from m3b.data.index import names_in
from m3b.dataset.audit.base import MARKS, SPLITS, AuditCheck, AuditData, Finding, join_names
from m3b.dataset.audit.patients import FEW_PATIENTS

MIN_SIDE_PATIENTS = 2
"""Patients (or groups) with a class below which its cases on a side of the split are no sample."""
MIN_CLASS_PATIENTS = 5
"""Patients with a class below which no split has enough of it on both sides."""
ENOUGH_PATIENTS = {"train": 2, "test": 5}
"""Patients with a class from which on every split can give some to this side."""
EXPLANATIONS = ("all_empty", "one_class", "too_few_cases")


class UnknownLabel(AuditCheck):
    """Names of labels, boxes or masks that label_dict.json does not hold."""

    code = "unknown_label"
    severity = "fix"
    targets = ("labels", "report", *MARKS)
    remedy = "Map or drop them."

    def find(self, data: AuditData) -> Iterator[Finding]:
        cases: dict[str, list[str]] = defaultdict(list)
        for record in data.index.records:
            for name in record.mask if isinstance(record.mask, Mapping) else names_in(record):
                if name not in data.index.classes:
                    cases[name].append(record.key)
        if cases:
            word = "classes of masks" if data.target == "masks" else "labels"
            yield self.make_finding(
                f"{len(cases)} {word} are not in label_dict.json ({', '.join(data.index.classes)}): "
                f"{join_names(map(repr, sorted(cases)))}.",
                data.shorten_all(key for keys in cases.values() for key in keys),
            )


class ClassNowhere(AuditCheck):
    """Classes that are marked nowhere."""

    code = "class_nowhere"
    severity = "fix"
    targets = MARKS
    remedy = "Correct label_dict.json, or drop these classes."
    explained_by = ("all_empty",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.target == "masks" and not (data.is_complete and data.readable_masks):
            return
        nowhere = [name for name, count in data.class_patients.items() if not count]
        if not nowhere:
            return
        values = sorted({value for mask in data.readable_masks.values() for value in mask.unnamed})
        names = ", ".join(f"{name} ({data.index.values[name]})" for name in nowhere)
        message = f"No {'mask holds' if data.target == 'masks' else 'box is labelled'}: {names}."
        hint = f" The masks also hold {join_names(values)}." if values else ""
        yield Finding(self.code, self.severity, message + hint, self.remedy, absent=() if values else tuple(nowhere))


class _SplitCheck(AuditCheck):
    """A check of one side of the split."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.code = f"{self.code}_{split}"

    def count(self, data: AuditData) -> dict[str, int]:
        """Return class -> cases of the split; empty if masks were not all opened."""
        if data.target == "masks" and not (data.is_complete and data.readable_masks):
            return {}
        table = data.count_classes()[self.split]
        return {name: table.get(name, 0) for name in data.index.classes}


class ClassAbsent(_SplitCheck):
    """Classes that one side of the split lacks."""

    code = "class_absent"
    severity = "fix"
    targets = ("labels",)
    remedy = "Split again, stratified by label."
    explained_by = EXPLANATIONS[:2]

    def find(self, data: AuditData) -> Iterator[Finding]:
        absent = [name for name, count in self.count(data).items() if not count]
        if not absent:
            return
        single = [name for name in absent if data.class_patients[name] == 1]
        message = f"The {self.split} split has no case of: {', '.join(absent)}."
        if not single:
            yield self.make_finding(message)
            return
        yield self.make_finding(
            f"{message} All cases of {', '.join(single)} are of one patient, or of one group that stays together (by the "
            "manifest, and series of nearly the same picture).",
            remedy="Make groups smaller if they are larger than the data calls for, or leave the class out.",
        )


class MarkedClassAbsent(_SplitCheck):
    """Classes that are marked on the other side of the split only; a warning if no split could give it some."""

    code = "class_absent"
    severity = "fix"
    targets = MARKS
    explained_by = ("all_empty",)
    remedies: ClassVar = {
        "train": "Only one patient has them: put that one into training, or drop these classes.",
        "test": "Too few patients have them: nothing can be measured for these classes.",
    }

    def find(self, data: AuditData) -> Iterator[Finding]:
        patients = data.class_patients
        absent = [name for name, count in self.count(data).items() if not count and patients[name]]
        if self.split == "train" and data.target == "masks" and not any(record.mask for record in data.index.train):
            return  # normal images alone to learn from
        for severity, remedy in (("fix", "Split again so that it has."), ("warn", self.remedies[self.split])):
            names = [name for name in absent if (patients[name] >= ENOUGH_PATIENTS[self.split]) == (severity == "fix")]
            if names:
                message = f"The {self.split} split has no case with: {', '.join(names)}."
                yield Finding(self.code, "fix" if severity == "fix" else "warn", message, remedy)


class FindingAbsent(_SplitCheck):
    """Findings of reports that a split lacks; a warning, since labels are optional here."""

    code = "class_absent"
    targets = ("report",)
    explained_by = EXPLANATIONS

    def find(self, data: AuditData) -> Iterator[Finding]:
        absent = [name for name, count in self.count(data).items() if not count]
        if absent:
            yield self.make_finding(f"No report of the {self.split} split is labelled: {', '.join(absent)}.")


class ClassRare(_SplitCheck):
    """Classes that a side of the split has of one patient (or group) alone, though another split could give it more."""

    code = "class_rare"
    targets = ("labels", *MARKS)
    explained_by = EXPLANATIONS[:2]
    is_scarce = False

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.target != "labels" and data.patient_count < FEW_PATIENTS:
            return
        patients_on_side, cases = data.count_class_patients(data.splits[self.split]), self.count(data)
        rare = [
            name
            for name in cases
            if 0 < patients_on_side[name] < MIN_SIDE_PATIENTS
            and (data.class_patients[name] < MIN_CLASS_PATIENTS) == self.is_scarce
        ]
        if not rare:
            return
        names = [
            f"{name}: {cases[name]}{f' (patients in all: {data.class_patients[name]})' if self.is_scarce else ''}"
            for name in rare
        ]
        message = f"Cases of one patient or group are all that the {self.split} split has of: {', '.join(names)}."
        yield self.make_finding(f"{message} Nothing can be measured for so few." if self.is_scarce else message)


class ClassScarce(ClassRare):
    """Classes of which no split has enough on both sides."""

    code = "class_scarce"
    is_scarce = True


class NoHealthyImage(AuditCheck):
    """Detection without a single image in which nothing is marked."""

    code = "no_healthy"
    tasks = ("detection",)
    targets = MARKS
    explained_by = ("all_empty",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.target == "boxes":
            has_healthy = any(not record.boxes for record in data.index.records)
        else:
            has_healthy = not data.readable_images or any(
                probe.mask is None or probe.mask.is_empty for probe in data.readable_images.values()
            )
        if not has_healthy:
            yield self.make_finding(
                "Something is marked in every image: how often the model sees something in a healthy image cannot be measured."
            )


CHECKS = (
    UnknownLabel(),
    ClassNowhere(),
    *(
        check(split)
        for check in (ClassAbsent, MarkedClassAbsent, FindingAbsent, ClassRare, ClassScarce)
        for split in SPLITS
    ),
    NoHealthyImage(),
)
