"""Images without a label that training must not be given: those of tested patients, and copies of labelled images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from m3b.data.records import Record
from m3b.dataset.audit.base import AuditData, Finding
from m3b.dataset.audit.opening import Probes, ProgressCallback, open_images
from m3b.dataset.audit.probes import ImageProbe, unit_keys
from m3b.dataset.similarity import MAX_FIRST, MAX_SECOND, find_near_copies

CODE = "unlabelled_left_out"
MISSING, REPEATED, TESTED = "missing", "listed more than once", "of patients that are tested"
UNOPENED, COPY = "not opened", "copies of labelled images"


def find_unusable(data: AuditData, deadline: float, on_progress: ProgressCallback | None = None) -> dict[str, str]:
    """Return the key of each unlabelled image that is left out -> the reason.

    A copy of a labelled image counts whichever part that is in: training holds out cases of its own for validation.

    Args:
        data: with the probes of the labelled images.
        deadline: what is not opened then is left out, since it was compared with nothing.
    """
    index = data.index
    labelled_keys = [key for record in index.test + index.train for key in unit_keys(record, index.task)]
    seen = set(labelled_keys)
    tested = {record.patient for record in index.test}
    excluded: dict[str, str] = {}
    for record in index.unlabelled:
        keys = unit_keys(record, index.task)
        if not all((data.work / path).exists() for path in record.files):
            excluded[record.key] = MISSING
        elif seen.intersection(keys):
            excluded[record.key] = REPEATED
        elif record.patient in tested:
            excluded[record.key] = TESTED
        seen.update(keys)
    candidates = tuple(record for record in index.unlabelled if record.key not in excluded)[:MAX_FIRST]
    probes = open_images(replace(index, train=candidates, test=(), unlabelled=()), data.work, (), deadline, on_progress)
    copies = _find_copies(probes, data.probes, labelled_keys)
    compared = {record.key for record in candidates}
    for record in index.unlabelled:
        keys = unit_keys(record, index.task)
        if record.key not in compared or any(key not in probes or probes[key].error for key in keys):
            excluded.setdefault(record.key, UNOPENED)
        elif copies.intersection(keys):
            excluded[record.key] = COPY
    return excluded


def _find_copies(probes: Probes, labelled: Mapping[str, ImageProbe], labelled_keys: Sequence[str]) -> set[str]:
    """Return the keys of images with the pixels of a labelled image, or nearly these."""
    digests = {probe.digest for probe in labelled.values() if not probe.error and not probe.flat}
    copies = {key for key, probe in probes.items() if probe.digest in digests}
    fingerprints = {key: probe for key, probe in {**labelled, **probes}.items() if not probe.error}
    for start in range(0, len(labelled_keys), MAX_SECOND):
        part = labelled_keys[start : start + MAX_SECOND]
        copies.update(first for first, _ in find_near_copies(fingerprints, list(probes), part))
    return copies


def describe_unusable(excluded: Mapping[str, str], records: Sequence[Record]) -> list[Finding]:
    """Return the finding that says how many unlabelled images are left out, and why."""
    if not excluded:
        return []
    counts = Counter(excluded[record.key] for record in records if record.key in excluded)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
    return [Finding(CODE, "warn", f"{counts.total():,} of {len(records):,} unlabelled images are left out: {reasons}.")]
