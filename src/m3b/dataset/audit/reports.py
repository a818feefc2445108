"""Checks of reports: there is text, it differs from case to case, and names nobody."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from m3b.data.records import Record
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding

MAX_SAME_SHARE = 0.5
MAX_QUOTED = 80
_IDENTITY = re.compile(
    r"\b(?:patient(?:'s)?\s+(?:name|id)|name\s+of\s+patient|name|mrn|medical\s+record(?:\s+(?:number|no\.?))?|accession"
    r"(?:\s+(?:number|no\.?))?|date\s+of\s+birth|birth\s*date|dob|ssn)\s*[:#]\s*(?![_X*\[<])\S",
    re.IGNORECASE,
)
"""A header field with something behind it that is no blank such as `___` or `XXXX`."""


class ReportCheck(AuditCheck):
    """A check of reports."""

    targets = ("report",)
    explained_by: tuple[str, ...] = ("too_few_cases",)


def _get_text(record: Record) -> str:
    return " ".join(record.report.text.lower().split()) if record.report else ""


def _count_texts(data: AuditData) -> Counter[str]:
    return Counter(text for record in data.index.records if (text := _get_text(record)))


def _quote(text: str) -> str:
    return f'"{text[:MAX_QUOTED]}{"..." if len(text) > MAX_QUOTED else ""}"'


class EmptyReport(ReportCheck):
    """Cases without a text."""

    code = "empty_report"
    severity = "fix"
    remedy = "Leave them out."

    def find(self, data: AuditData) -> Iterator[Finding]:
        empty = [record.key for record in data.index.records if not _get_text(record)]
        if empty:
            yield self.make_finding(
                f"{len(empty)} of {len(data.index.records)} cases have neither findings nor impression.",
                data.shorten_all(empty),
            )


class OneReport(ReportCheck):
    """The same text for all cases."""

    code = "one_report"
    severity = "reject"
    remedy = "Check the text column."

    def find(self, data: AuditData) -> Iterator[Finding]:
        texts = _count_texts(data)
        if len(texts) == 1:
            ((text, count),) = texts.items()
            yield self.make_finding(
                f"All {count} reports say the same: {_quote(text)}. There is nothing to learn from them."
            )


class SimilarReports(ReportCheck):
    """The same text for most cases."""

    code = "reports_alike"
    explained_by = ("too_few_cases", "one_report")

    def find(self, data: AuditData) -> Iterator[Finding]:
        texts = _count_texts(data)
        for text, count in texts.most_common(1):
            if count > MAX_SAME_SHARE * texts.total():
                yield self.make_finding(
                    f"{count} of {texts.total()} reports say the same: {_quote(text)}. A model that always says so will look "
                    "good."
                )


class ReportAcross(ReportCheck):
    """Test texts that training holds word for word."""

    code = "report_across"
    explained_by = ("too_few_cases", "one_report")

    def find(self, data: AuditData) -> Iterator[Finding]:
        train = {text for record in data.index.train if (text := _get_text(record))}
        repeated = [record.key for record in data.index.test if _get_text(record) in train]
        if repeated:
            yield self.make_finding(
                f"{len(repeated)} of {len(data.index.test)} test reports occur in training word for word.",
                data.shorten_all(repeated),
            )


class IdentityInReport(ReportCheck):
    """Headers that may name a person."""

    code = "report_identity"

    def find(self, data: AuditData) -> Iterator[Finding]:
        identifying = [
            record.key for record in data.index.records if record.report and _IDENTITY.search(record.report.text)
        ]
        if identifying:
            yield self.make_finding(
                f"{len(identifying)} reports have a header that may name a person (name, record number, date of birth). "
                "A text model can repeat what it was trained on: cut such lines off.",
                data.shorten_all(identifying),
            )


CHECKS = (EmptyReport(), OneReport(), SimilarReports(), ReportAcross(), IdentityInReport())
