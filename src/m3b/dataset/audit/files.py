"""Checks of files and of images that are listed more than once."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal

from m3b.data import kinds
from m3b.data.kinds import to_json
from m3b.data.records import Record
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding
from m3b.dataset.audit.probes import unit_keys


def find_missing_cases(data: AuditData) -> set[str]:
    """Return the keys of the cases with files that do not exist."""
    return {*_find_missing(data, "files"), *_find_missing(data, "targets")}


def _find_missing(data: AuditData, attribute: Literal["files", "targets"]) -> dict[str, str]:
    """Key of a case -> the first of its files that does not exist."""
    missing: dict[str, str] = {}
    for record in data.index.records:
        paths = record.files if attribute == "files" else record.targets
        path = next((path for path in paths if not os.path.exists(os.path.join(data.work, path))), None)
        if path is not None:
            missing[record.key] = path
    return missing


class MissingFile(AuditCheck):
    """Images or masks that do not exist."""

    severity = "fix"
    remedy = "Leave out rows without a file, or fix the paths (they count from the working directory)."

    def __init__(self, code: str, attribute: Literal["files", "targets"], word: str) -> None:
        self.code, self.attribute, self.word = code, attribute, word

    def find(self, data: AuditData) -> Iterator[Finding]:
        missing = _find_missing(data, self.attribute)
        if missing:
            yield self.make_finding(
                f"{len(missing)} of {len(data.index.records)} cases name {self.word} that are not there, "
                f"e.g. {next(iter(missing.values()))}.",
                data.shorten_all(missing.values()),
            )


def describe_target(record: Record, task: str) -> str:
    """Return what the record teaches, as a text."""
    ignored_keys = dict.fromkeys(("image_path", "patient", "covariates", kinds.SEVERAL))
    return json.dumps({**to_json(record, task), **ignored_keys}, sort_keys=True)


def _list_repeated(data: AuditData) -> dict[str, bool]:
    """Key of an image that is listed more than once -> whether its targets differ."""
    task = data.index.task
    keys = Counter(key for record in data.index.records for key in unit_keys(record, task))
    repeated = {key for key, count in keys.items() if count > 1}
    targets: dict[str, set[str]] = defaultdict(set)
    for record in data.index.records if repeated else ():
        for key in repeated.intersection(unit_keys(record, task)):
            targets[key].add(describe_target(record, task))
    return {key: len(targets[key]) > 1 for key in keys if key in repeated}


class Contradiction(AuditCheck):
    """An image that is listed with different targets."""

    code = "contradiction"
    severity = "fix"

    def find(self, data: AuditData) -> Iterator[Finding]:
        keys = [key for key, differs in _list_repeated(data).items() if differs]
        if keys:
            word, remedy, _ = kinds.of(data.index.task).taught
            message = f"{len(keys)} images are listed with different {word}."
            yield self.make_finding(message, data.shorten_all(keys), remedy=remedy)


class RepeatedImage(AuditCheck):
    """An image that is listed more than once."""

    code = "repeated"
    severity = "fix"
    remedy = "Keep one record of each."
    explained_by = ("contradiction",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if keys := _list_repeated(data):
            yield self.make_finding(f"{len(keys)} images are listed more than once.", data.shorten_all(keys))


CHECKS = (
    MissingFile("missing_file", "files", "files"),
    MissingFile("missing_mask", "targets", "masks"),
    Contradiction(),
    RepeatedImage(),
)
