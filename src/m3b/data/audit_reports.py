"""The audit of reports: is there text, does it differ from case to case, and does it name a person?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from m3b.data.audit_common import Finding, small_test, some
from m3b.data.audit_labels import vocabulary
from m3b.data.index import Index, Record

MIN_CASES = 8
MAX_ALIKE = 0.5
_IDENTITY = re.compile(
    r"\b(?:patient(?:'s)?\s+(?:name|id)|name\s+of\s+patient|name|mrn|medical\s+record(?:\s+(?:number|no\.?))?|accession"
    r"(?:\s+(?:number|no\.?))?|date\s+of\s+birth|birth\s*date|dob|ssn)\s*[:#]\s*(?![_X*\[<])\S",
    re.IGNORECASE,
)
"""A header field with something behind it that is no blank such as `___` or `XXXX`."""


def reports(index: Index) -> list[Finding]:
    """Everything about the texts of a report index, and the findings that they are labelled with."""
    if len(index.records) < MIN_CASES:
        text = f"Only {len(index.records)} reports; at least {MIN_CASES} are needed to train and test anything."
        return [Finding("too_few_cases", "reject", text)]
    return [
        *vocabulary(index),
        *_empty(index.records),
        *_alike(index),
        *_identity(index.records),
        *_absent(index),
        *small_test(index),
    ]


def _text(record: Record) -> str:
    return " ".join(record.report.text.lower().split()) if record.report else ""


def _empty(records: Sequence[Record]) -> list[Finding]:
    bare = [record.key for record in records if not _text(record)]
    if not bare:
        return []
    text = f"{len(bare)} of {len(records)} cases have neither findings nor impression. Leave them out."
    return [Finding("empty_report", "fix", text, some(bare))]


def _alike(index: Index) -> list[Finding]:
    texts = Counter(text for record in index.records if (text := _text(record)))
    if not texts:
        return []
    total = sum(texts.values())
    text, often = texts.most_common(1)[0]
    shown = f'"{text[:80]}{"..." if len(text) > 80 else ""}"'
    if len(texts) == 1:
        said = f"All {total} reports say the same: {shown}. There is nothing to learn from them; check the text column."
        return [Finding("one_report", "reject", said)]
    findings = []
    if often > MAX_ALIKE * total:
        said = f"{often} of {total} reports say the same: {shown}. A model that always says so will look good."
        findings.append(Finding("reports_alike", "warn", said))
    train = {_text(record) for record in index.train}
    known = [record.key for record in index.test if _text(record) and _text(record) in train]
    if known:
        said = f"{len(known)} of {len(index.test)} test reports occur in training word for word."
        findings.append(Finding("report_across", "warn", said, some(known)))
    return findings


def _identity(records: Sequence[Record]) -> list[Finding]:
    named = [record.key for record in records if record.report and _IDENTITY.search(record.report.text)]
    if not named:
        return []
    text = (
        f"{len(named)} reports have a header that may name a person (name, record number, date of birth). "
        "A text model can repeat what it was trained on: cut such lines off."
    )
    return [Finding("report_identity", "warn", text, some(named))]


def _absent(index: Index) -> list[Finding]:
    """Findings in label_dict.json that a split lacks; a warning, since labels are optional here."""
    findings = []
    for split, records in (("train", index.train), ("test", index.test)):
        have = {label for record in records for label in record.labels}
        absent = [name for name in index.classes if name not in have]
        if absent:
            text = f"No report of the {split} split is labelled: {', '.join(absent)}."
            findings.append(Finding(f"class_absent_{split}", "warn", text))
    return findings
