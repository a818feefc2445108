"""Checks of copies: the same pixels with other targets or on both sides of the split, and near copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from m3b.data import kinds
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, is_derived
from m3b.dataset.audit.files import describe_target
from m3b.dataset.audit.probes import unit_keys


def _group_copies(data: AuditData) -> list[list[str]]:
    """Return groups of images with the same pixels; blank ones are no copies."""
    first_keys: dict[str, str] = {}
    groups: dict[str, list[str]] = defaultdict(list)
    for key, probe in data.readable_images.items():
        if not probe.flat and first_keys.setdefault(probe.digest, key) != key:
            groups[probe.digest].append(key)
    return [[key, *groups[digest]] for digest, key in first_keys.items() if digest in groups]


def _get_training_keys(data: AuditData) -> set[str]:
    return {key for record in data.index.train for key in unit_keys(record, data.index.task)}


def _has_other_targets(data: AuditData, group: list[str]) -> bool:
    """Whether copies teach different things; masks by their content, since copies have mask files of their own."""

    def describe(key: str) -> str:
        if data.target == "masks":
            mask = data.masks.get(key)
            return mask.digest if mask and not mask.is_empty else ""
        return describe_target(data.owners[key], data.index.task)

    return len({describe(key) for key in group}) > 1


def _is_across(group: list[str], training_keys: set[str]) -> bool:
    return len({key in training_keys for key in group}) > 1


class SameImageOtherTarget(AuditCheck):
    """Copies with different labels, masks or boxes."""

    code = "same_image_two_classes"
    severity = "fix"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        groups = [group for group in _group_copies(data) if _has_other_targets(data, group)]
        if groups:
            word, _, remedy = kinds.of(data.index.task).taught
            word = data.target if data.target in ("boxes", "masks") else word
            yield self.make_finding(
                f"{len(groups)} images occur under different {word} (same pixels), e.g. "
                f"{' and '.join(map(data.shorten, groups[0][:2]))}.",
                data.shorten_all(key for group in groups for key in group),
                remedy=remedy,
            )


class DuplicateAcross(AuditCheck):
    """Copies on both sides of the split."""

    code = "duplicate_across"
    severity = "fix"
    needs_images = True
    remedy = "Keep one copy of each, on one side."

    def find(self, data: AuditData) -> Iterator[Finding]:
        training_keys = _get_training_keys(data)
        groups = [group for group in _group_copies(data) if _is_across(group, training_keys)]
        if groups:
            yield self.make_finding(
                f"{len(groups)} images are in train and in test with the same pixels.",
                data.shorten_all(key for group in groups for key in group),
            )


class DuplicateWithin(AuditCheck):
    """Copies on one side of the split."""

    code = "duplicate_within"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        training_keys = _get_training_keys(data)
        groups = [
            group
            for group in _group_copies(data)
            if not _is_across(group, training_keys) and not _has_other_targets(data, group)
        ]
        if groups:
            yield self.make_finding(
                f"{len(groups)} groups of images have the same pixels on one side of the split.",
                data.shorten_all(key for group in groups for key in group),
            )


class NearDuplicateAcross(AuditCheck):
    """Near copies on both sides of the split under different patients."""

    code = "near_duplicate_across"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        pairs = data.near_copies
        strangers = [
            pair
            for pair in pairs
            if not _is_made_copy(data, pair) and data.owners[pair[0]].patient != data.owners[pair[1]].patient
        ]
        if strangers:
            yield self.make_finding(
                f"{len(strangers)} pairs of nearly the same image lie on both sides of the split under different patients, "
                f"e.g. {' and '.join(map(data.shorten, strangers[0]))}. The test figure may be too high.",
                data.shorten_all(key for pair in strangers for key in pair),
            )


class AlteredCopyAcross(AuditCheck):
    """Near copies that a script of a run made of images on the other side."""

    code = "altered_copy_across"
    severity = "fix"
    needs_images = True
    remedy = "Leave them out, or give both the same patient and one side."

    def find(self, data: AuditData) -> Iterator[Finding]:
        pairs = [pair for pair in data.near_copies if _is_made_copy(data, pair)]
        if pairs:
            yield self.make_finding(
                f"{len(pairs)} images that scripts made are copies, altered a little, of images on the other side of the "
                f"split, e.g. {' and '.join(map(data.shorten, pairs[0]))}.",
                data.shorten_all(key for pair in pairs for key in pair),
            )


def _is_made_copy(data: AuditData, pair: tuple[str, str]) -> bool:
    """Whether a script wrote one of the two; in a run raw data is below `data/`, and everything else was written there."""
    return (data.work / "data").is_dir() and any(is_derived(data.owners[key]) for key in pair)


CHECKS = (SameImageOtherTarget(), DuplicateAcross(), DuplicateWithin(), AlteredCopyAcross(), NearDuplicateAcross())
