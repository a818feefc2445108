"""Checks of masks: they belong to their images, open, lie on their grid, and hold the values of the label dictionary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from m3b.data.records import Record
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, Severity, join_names
from m3b.dataset.audit.probes import MaskProbe

SMALL_OFFSET, LARGE_OFFSET = 0.1, 1.0
"""Voxels by which a mask may lie beside its image: below the first nothing is said, above the second it must be fixed."""
MIN_VALUES_OF_IMAGE = 100
REGRID = (
    "Resample them to their image's grid (nearest neighbour) into Datapath/masks/, pair the right files, or leave "
    "these cases out."
)


class MaskIsImage(AuditCheck):
    """Files that are named as image and as mask."""

    code = "mask_is_image"
    severity = "fix"
    targets = ("masks",)
    remedy = "Give each image its own mask file, and leave masks out of the images."

    def find(self, data: AuditData) -> Iterator[Finding]:
        pictures = {path for record in data.index.records for path in record.images}
        both = sorted(pictures & {path for record in data.index.records for path in record.masks})
        if both:
            yield self.make_finding(
                f"{len(both)} paths are named as image and as mask, e.g. {data.shorten(both[0])}.",
                data.shorten_all(both),
            )


class SharedMask(AuditCheck):
    """Masks of several images."""

    code = "one_mask_two_images"
    severity = "fix"
    targets = ("masks",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        users: dict[str, dict[str, Record]] = defaultdict(dict)
        for record in data.index.records:
            for path in replace(record, ignored=None).masks:
                users[path][record.key] = record
        shared = {path: list(cases.values()) for path, cases in users.items() if len(cases) > 1}
        strangers = {path: cases for path, cases in shared.items() if len({case.patient for case in cases}) > 1}
        if strangers:
            path, (first, second, *_) = next(iter(strangers.items()))
            yield self.make_finding(
                f"{len(strangers)} masks belong to images of different patients, e.g. {data.shorten(path)} to "
                f"{data.shorten(first.key)} and {data.shorten(second.key)}.",
                data.shorten_all(strangers),
                remedy="Pair each image with its own mask.",
            )
        elif shared:
            message = f"{len(shared)} masks serve several images of the same patient, e.g. {data.shorten(next(iter(shared)))}."
            yield self.make_finding(message, data.shorten_all(shared), severity="warn")


class NothingMarked(AuditCheck):
    """Masks in which nothing is marked anywhere, and which hold no other values."""

    code = "all_empty"
    severity = "reject"
    targets = ("masks",)
    needs_images = True
    remedy = "Check that the right files were taken as masks."

    def find(self, data: AuditData) -> Iterator[Finding]:
        is_empty = all(mask.is_empty and not mask.unnamed for mask in data.masks.values())
        if data.is_complete and is_empty:
            yield self.make_finding(
                f"Nothing is marked in any of the {len(data.index.records)} cases ({data.values_text})."
            )


class EmptyMask(AuditCheck):
    """Some masks in which nothing is marked; in detection these are healthy images."""

    code = "empty_mask"
    tasks = ("segmentation",)
    targets = ("masks",)
    needs_images = True
    remedy = "Leave them out unless nothing was there to be marked."
    explained_by = ("all_empty",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        empty = [mask.file for mask in data.masks.values() if mask.is_empty]
        if empty and len(empty) < len(data.masks):
            yield self.make_finding(f"{len(empty)} of {len(data.masks)} masks are empty.", data.shorten_all(empty))


# --- files and grids ----------------------------------------------------------------------------------------------


class UnreadableMask(AuditCheck):
    """Masks that do not open."""

    severity = "fix"
    targets = ("masks",)
    needs_images = True

    def __init__(self, code: str, has_fractions: bool, message: str, remedy: str) -> None:
        self.code, self.has_fractions, self.message, self.remedy = code, has_fractions, message, remedy

    def find(self, data: AuditData) -> Iterator[Finding]:
        errors = {
            mask.file: mask.error
            for mask in data.masks.values()
            if mask.error and ("fractions" in mask.error) == self.has_fractions
        }
        if errors:
            yield self.make_finding(
                f"{len(errors)} masks {self.message}. The first says: {next(iter(errors.values()))}",
                data.shorten_all(errors),
            )


class MaskFileCheck(AuditCheck):
    """A check of single masks; `message` is about the first of them."""

    targets = ("masks",)
    needs_images = True

    def __init__(
        self, code: str, severity: Severity, has_problem: Callable[[MaskProbe], bool], message: str, remedy: str = ""
    ) -> None:
        self.code, self.severity, self.has_problem = code, severity, has_problem
        self.message, self.remedy = message, remedy

    def find(self, data: AuditData) -> Iterator[Finding]:
        masks = {key: mask for key, mask in data.readable_masks.items() if self.has_problem(mask)}
        if masks:
            key, mask = next(iter(masks.items()))
            example = self.message.format(
                file=data.shorten(mask.file),
                image=data.shorten(key),
                shape="x".join(map(str, mask.shape)),
                image_shape="x".join(map(str, data.probes[key].size[1:])),
                offset=f"{mask.offset or 0:.3g}",
            )
            yield self.make_finding(
                f"{len(masks)} masks {example}", data.shorten_all(mask.file for mask in masks.values())
            )


_OFFSET_MESSAGE = "lie beside their image, e.g. {file} by {offset} voxels from {image} (their affines differ)."


# --- values -------------------------------------------------------------------------------------------------------


class MaskLooksLikeImage(AuditCheck):
    """Masks with as many values as an image."""

    code = "mask_looks_like_image"
    severity = "fix"
    targets = ("masks",)
    needs_images = True
    remedy = "Take the right files, or threshold them."

    def find(self, data: AuditData) -> Iterator[Finding]:
        files = [mask.file for mask in data.masks.values() if len(mask.unnamed) >= MIN_VALUES_OF_IMAGE]
        if files:
            yield self.make_finding(
                f"{len(files)} masks hold {MIN_VALUES_OF_IMAGE} and more values that label_dict.json does not name, "
                f"e.g. {data.shorten(files[0])}: are they images, or masks that were saved as JPEG?",
                data.shorten_all(files),
            )


class UnnamedValues(AuditCheck):
    """Values of masks that label_dict.json does not name."""

    code = "unnamed_values"
    targets = ("masks",)
    needs_images = True
    remedy = "Name them if they are among the classes that are asked for."
    explained_by = ("mask_looks_like_image",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        masks = [mask for mask in data.masks.values() if mask.unnamed]
        cases = Counter(value for mask in masks for value in mask.unnamed)
        if cases:
            voxels: Counter[int] = Counter()
            for mask in masks:
                voxels.update(mask.unnamed)
            values = ", ".join(f"{value} ({n} masks, {voxels[value]} voxels)" for value, n in cases.most_common(8))
            yield self.make_finding(
                f"The masks hold {len(cases)} values that label_dict.json ({data.values_text}) does not name, and which count "
                f"as background: {values}.",
                data.shorten_all(mask.file for mask in masks),
            )


class SameMask(AuditCheck):
    """Masks of different images that are the same, voxel for voxel."""

    code = "same_mask"
    targets = ("masks",)
    needs_images = True
    explained_by = ("mask_constant",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        groups: dict[str, list[str]] = defaultdict(list)
        for key, mask in data.readable_masks.items():
            if not mask.is_empty:
                groups[mask.digest].append(key)
        repeated = [keys for keys in groups.values() if len({data.probes[key].digest for key in keys}) > 1]
        if repeated:
            files = data.shorten_all(data.masks[key].file for keys in repeated for key in keys)
            yield self.make_finding(
                f"{len(repeated)} masks mark exactly the same voxels in different images, e.g. {join_names(files[:2])}.",
                files,
            )


CHECKS = (
    MaskIsImage(),
    SharedMask(),
    NothingMarked(),
    EmptyMask(),
    UnreadableMask("mask_fractions", True, "hold fractions",
                   "Threshold or round them into Datapath/masks/ if they are probabilities, or take the right files."),
    UnreadableMask("mask_unreadable", False, "cannot be used", "Leave these cases out or fix the masks."),
    MaskFileCheck("mask_shape", "fix", lambda mask: not mask.has_image_shape,
                  "differ in shape from their image, e.g. {file} is {shape}, {image} {image_shape}.", REGRID),
    MaskFileCheck("mask_position", "fix", lambda mask: (mask.offset or 0.0) > LARGE_OFFSET, _OFFSET_MESSAGE,
                  "Copy the image's affine into the mask if the voxels match already, else resample (Datapath/masks/)."),
    MaskFileCheck("mask_affine", "warn", lambda mask: SMALL_OFFSET < (mask.offset or 0.0) <= LARGE_OFFSET,
                  f"{_OFFSET_MESSAGE} Less than a voxel: they are taken as they are."),
    MaskFileCheck("mask_unplaced", "warn", lambda mask: mask.is_unplaced and mask.has_image_shape,
                  "have no position in space while their images have, e.g. {file}: whether they lie the right way round "
                  "cannot be checked."),
    MaskFileCheck("mask_equals_image", "fix", lambda mask: mask.equals_image,
                  "are their image, pixel for pixel, e.g. {file}.", "Take the right mask files."),
    MaskFileCheck("mask_floats", "warn", lambda mask: mask.is_float,
                  "are stored as floating-point numbers, e.g. {file}; their values are whole and are read as such."),
    MaskLooksLikeImage(),
    UnnamedValues(),
    SameMask(),
)  # fmt: skip
