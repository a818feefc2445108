"""Checks of patients: none on both sides of the split, and enough of them."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.dataset.audit.base import MARKS, AuditCheck, AuditData, Finding, count_patients, join_names

MIN_PATIENTS, FEW_PATIENTS = 3, 20
MIN_CASES = 8
SMALL_TEST = 20
MIN_FOR_ONE_PATIENT = 50
"""Cases from which on a single patient means that patients were not read."""
PATIENT_TARGETS = (*MARKS, "states", "value", "survival", "")
"""Targets for which patients are counted; "" stands for those of tasks from outside."""


class PatientOverlap(AuditCheck):
    """A patient in training and test."""

    code = "patient_overlap"
    severity = "fix"
    remedy = "Split by patient, whole patients to one side."

    def find(self, data: AuditData) -> Iterator[Finding]:
        both = {record.patient for record in data.index.train} & {record.patient for record in data.index.test}
        if both:
            yield self.make_finding(f"{len(both)} patients are in train and in test ({join_names(sorted(both))}).")


class OnePatient(AuditCheck):
    """All cases of a large index from one patient."""

    code = "one_patient"
    severity = "fix"
    remedy = "If patients are unknown, call them unknown-<n>, a number each."

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len(data.index.records) > MIN_FOR_ONE_PATIENT and data.patient_count == 1:
            yield self.make_finding("All cases have the same patient.")


class TooFewPatients(AuditCheck):
    """Too few patients to train and test on."""

    code = "too_few_cases"
    severity = "reject"
    targets = PATIENT_TARGETS
    remedy = "If patients are unknown, call them unknown-<n>, a number each."
    explained_by = ("all_empty",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.patient_count < MIN_PATIENTS:
            unit = "patients" if data.index.patients_known else "cases (patients unknown)"
            yield self.make_finding(
                f"Only {data.patient_count} {unit}; at least {MIN_PATIENTS} are needed: two to learn from, one to test on."
            )


class FewPatients(AuditCheck):
    """So few patients that a figure says little."""

    code = "few_patients"
    targets = PATIENT_TARGETS
    explained_by = ("all_empty",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if MIN_PATIENTS <= data.patient_count < FEW_PATIENTS:
            unit = "patients" if data.index.patients_known else "cases (patients unknown)"
            yield self.make_finding(
                f"Only {data.patient_count} {unit}, {count_patients(data.index.test)} of them to test on: the model will know "
                "these and little else, and what is measured says next to nothing about other people."
            )


class TooFewCases(AuditCheck):
    """Too few cases to train and test on."""

    code = "too_few_cases"
    severity = "reject"
    targets = ("labels", "report", "value", "survival")

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len(data.index.records) < MIN_CASES:
            word = "reports" if data.target == "report" else "cases"
            yield self.make_finding(
                f"Only {len(data.index.records)} {word}; at least {MIN_CASES} are needed to train and test anything."
            )


class SmallTest(AuditCheck):
    """A small test split."""

    code = "small_test"
    explained_by = ("few_patients", "too_few_cases", "all_empty", "one_class")

    def find(self, data: AuditData) -> Iterator[Finding]:
        if 0 < len(data.index.test) < SMALL_TEST:
            yield self.make_finding(
                f"The test split has {len(data.index.test)} cases: whatever is measured on it will be uncertain."
            )


CHECKS = (PatientOverlap(), OnePatient(), TooFewPatients(), FewPatients(), TooFewCases(), SmallTest())
