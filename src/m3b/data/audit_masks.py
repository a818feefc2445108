"""The audit of masks: do they fit their images, their label dictionary, and the split?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from m3b.data.audit_classes import absent_classes, cases_with, few_patients, no_healthy
from m3b.data.audit_common import Finding, Weight, listed, some
from m3b.data.audit_images import Looks, mask_digests
from m3b.data.audit_mask_sense import sense
from m3b.data.image_probe import ImageProbe
from m3b.data.index import Index, Record
from m3b.data.mask_probe import LOOKS_LIKE_AN_IMAGE, MaskLook

SMALL_MOVE, LARGE_MOVE = 0.1, 1.0
"""Voxels by which a mask may lie beside its image: unsaid below the first, to be fixed above the second."""
REGRID = (
    "Resample them to their image's grid (nearest neighbour) into Datapath/masks/, pair the right files, or leave "
    "these cases out."
)


def before_opening(index: Index) -> list[Finding]:
    """What the index alone shows."""
    return [*few_patients(index), *_classes(index), *_same_files(index)]


def _classes(index: Index) -> list[Finding]:
    """Objects of masks with names that label_dict.json does not hold."""
    unknown: dict[str, list[str]] = defaultdict(list)
    for record in index.records:
        for name in record.mask if isinstance(record.mask, Mapping) else ():
            if name not in index.classes:
                unknown[name].append(record.key)
    if not unknown:
        return []
    text = (
        f"mask_path names classes that are not in label_dict.json ({', '.join(index.classes)}): "
        f"{listed(map(repr, sorted(unknown)))}. Map or drop them."
    )
    return [Finding("unknown_label", "fix", text, some(key for keys in unknown.values() for key in keys))]


def _same_files(index: Index) -> list[Finding]:
    """Masks that are images, and masks of two images."""
    findings = []
    pictures = {path for record in index.records for path in record.images}
    masks = {path for record in index.records for path in record.masks}
    if both := sorted(pictures & masks):
        text = (
            f"{len(both)} paths are named as image and as mask, e.g. {both[0]}. "
            "Give each image its own mask file, and leave masks out of the images."
        )
        findings.append(Finding("mask_is_image", "fix", text, some(both)))
    users: dict[str, list[Record]] = defaultdict(list)
    for record in index.records:
        for path in record.masks:
            users[path].append(record)
    shared = {path: found for path, found in users.items() if len({record.key for record in found}) > 1}
    strangers = {path: found for path, found in shared.items() if len({record.patient for record in found}) > 1}
    if strangers:
        path, found = next(iter(strangers.items()))
        text = (
            f"{len(strangers)} masks belong to images of different patients, e.g. {path} to {found[0].key} and "
            f"{found[1].key}. Pair each image with its own mask."
        )
        findings.append(Finding("one_mask_two_images", "fix", text, some(strangers)))
    elif shared:
        text = f"{len(shared)} masks serve several images of the same patient, e.g. {next(iter(shared))}."
        findings.append(Finding("one_mask_two_images", "warn", text, some(shared)))
    return findings


# --- one by one ---------------------------------------------------------------------------------------------------


def after_opening(index: Index, looks: Looks, complete: bool, *, healthy: bool = False) -> list[Finding]:
    """What the masks show.

    Args:
        complete: whether every case was opened, so that what was not seen is not there.
        healthy: whether a case in which nothing is marked is a healthy one, and not one that was left out.
    """
    seen = {key: look for key, look in looks.items() if look.mask}
    findings = [*_errors(seen), *_grids(seen), *_kinds(seen), *_unnamed(index, seen), *_meaning(index, looks)]
    empty = [look.mask.file for look in seen.values() if look.mask and look.mask.empty]
    good = [look for look in seen.values() if look.mask and not look.mask.error]
    if complete and len(empty) == len(good) and not any(look.mask and look.mask.error for look in seen.values()):
        return [*findings, _all_empty(index, seen)]
    if empty and not healthy:
        text = f"{len(empty)} of {len(seen)} masks are empty. Leave them out unless nothing was there to be marked."
        findings.append(Finding("empty_mask", "warn", text, some(empty)))
    findings += _healthy(looks) if healthy else []
    if not complete or (seen and not good):
        return findings
    values = sorted({value for look in good if look.mask for value in look.mask.unnamed})
    hint = f"The masks also hold {listed(values)}. " if values else ""
    return [*findings, *absent_classes(index, lambda record: _holds(record, looks), "mask holds", hint)]


def _all_empty(index: Index, seen: Looks) -> Finding:
    values = Counter(value for look in seen.values() if look.mask for value in look.mask.unnamed)
    text = f"Nothing is marked in any of the {len(index.records)} cases ({_named(index)})."
    if values:
        text += f" The masks hold the values {listed(sorted(values))}: give these in label_dict.json."
        return Finding("class_nowhere", "fix", text)
    return Finding("all_empty", "reject", f"{text} Check that the right files were taken as masks.")


def _named(index: Index) -> str:
    return ", ".join(f"{name} = {value}" for name, value in index.values.items())


def _errors(seen: Looks) -> list[Finding]:
    bad = {look.mask.file: look.mask.error for look in seen.values() if look.mask and look.mask.error}
    fractions = {file: error for file, error in bad.items() if "fractions" in error}
    others = {file: error for file, error in bad.items() if file not in fractions}
    findings = []
    if fractions:
        text = (
            f"{len(fractions)} masks hold fractions. Threshold or round them into Datapath/masks/ if they are "
            f"probabilities, or take the right files. The first says: {next(iter(fractions.values()))}"
        )
        findings.append(Finding("mask_fractions", "fix", text, some(fractions)))
    if others:
        text = f"{len(others)} masks cannot be used; leave these cases out or fix the masks. The first says: "
        findings.append(Finding("mask_unreadable", "fix", text + next(iter(others.values())), some(others)))
    return findings


def _group(
    seen: Looks,
    fault: Callable[[MaskLook], bool],
    code: str,
    weight: Weight,
    say: Callable[[int, str, ImageProbe], str],
) -> list[Finding]:
    """One finding for all masks with a fault; `say` gets their number, and the first one's image and look."""
    found = {key: look for key, look in seen.items() if look.mask and not look.mask.error and fault(look.mask)}
    if not found:
        return []
    key, look = next(iter(found.items()))
    return [Finding(code, weight, say(len(found), key, look), some(_files(found.values())))]


def _files(looks: Iterable[ImageProbe]) -> list[str]:
    return [look.mask.file for look in looks if look.mask]


def _grids(seen: Looks) -> list[Finding]:
    def shape(number: int, key: str, look: ImageProbe) -> str:
        of_mask = "x".join(map(str, look.mask.shape)) if look.mask else ""
        of_image = "x".join(map(str, look.size[1:]))
        file = look.mask.file if look.mask else ""
        return f"{number} masks differ in shape from their image, e.g. {file} is {of_mask}, {key} {of_image}. {REGRID}"

    def moved(number: int, key: str, look: ImageProbe) -> str:
        far = look.mask.moved or 0.0 if look.mask else 0.0
        file = look.mask.file if look.mask else ""
        return (
            f"{number} masks lie beside their image, e.g. {file} by {far:.3g} voxels from {key} (their affines differ)."
        )

    header = "Copy the image's affine into the mask where the voxels match already, else resample (Datapath/masks/)."
    return [
        *_group(seen, lambda mask: not mask.same_shape, "mask_shape", "fix", shape),
        *_group(
            seen,
            lambda mask: (mask.moved or 0.0) > LARGE_MOVE,
            "mask_position",
            "fix",
            lambda number, key, look: f"{moved(number, key, look)} {header}",
        ),
        *_group(
            seen,
            lambda mask: SMALL_MOVE < (mask.moved or 0.0) <= LARGE_MOVE,
            "mask_affine",
            "warn",
            lambda number, key, look: f"{moved(number, key, look)} Less than a voxel: they are taken as they are.",
        ),
        *_group(
            seen,
            lambda mask: mask.unplaced and mask.same_shape,
            "mask_unplaced",
            "warn",
            lambda number, key, look: (
                f"{number} masks have no position in space while their images have, e.g. {_files([look])[0]}: "
                "whether they lie the right way round cannot be checked."
            ),
        ),
    ]


def _kinds(seen: Looks) -> list[Finding]:
    return [
        *_group(
            seen,
            lambda mask: mask.is_image,
            "mask_equals_image",
            "fix",
            lambda number, key, look: (
                f"{number} masks are their image, pixel for pixel, e.g. {_files([look])[0]}. Take the right mask files."
            ),
        ),
        *_group(
            seen,
            lambda mask: mask.floats,
            "mask_floats",
            "warn",
            lambda number, key, look: (
                f"{number} masks are stored as floating-point numbers, e.g. {_files([look])[0]}; "
                "their values are whole and are read as such."
            ),
        ),
    ]


def _unnamed(index: Index, seen: Looks) -> list[Finding]:
    cases: Counter[int] = Counter()
    voxels: Counter[int] = Counter()
    files: dict[str, None] = {}
    many = []
    for look in seen.values():
        if look.mask and look.mask.unnamed:
            files[look.mask.file] = None
            cases.update(look.mask.unnamed.keys())
            voxels.update(look.mask.unnamed)
            if len(look.mask.unnamed) >= LOOKS_LIKE_AN_IMAGE:
                many.append(look.mask.file)
    if many:
        text = (
            f"{len(many)} masks hold {LOOKS_LIKE_AN_IMAGE} and more values that label_dict.json does not name, "
            f"e.g. {many[0]}: are they images, or masks that were saved as JPEG? Take the right files, or threshold them."
        )
        return [Finding("mask_looks_like_image", "fix", text, some(many))]
    if not cases:
        return []
    shown = ", ".join(f"{value} ({number} masks, {voxels[value]} voxels)" for value, number in cases.most_common(8))
    text = (
        f"The masks hold {len(cases)} values that label_dict.json ({_named(index)}) does not name, and which count as "
        f"background: {shown}. Name them if they are among the classes that are asked for."
    )
    return [Finding("unnamed_values", "warn", text, some(files))]


def _meaning(index: Index, looks: Looks) -> list[Finding]:
    """What the masks mean together; single copies are said where not all are one shape."""
    found = sense(looks, one_class=len(index.classes) == 1)
    return found if any(finding.code == "mask_constant" for finding in found) else [*_copies(looks), *found]


def _copies(looks: Looks) -> list[Finding]:
    groups = mask_digests(looks)
    if not groups:
        return []
    files = [_files([looks[key]])[0] for group in groups for key in group]
    text = f"{len(groups)} masks mark exactly the same voxels in different images, e.g. {' and '.join(files[:2])}."
    return [Finding("same_mask", "warn", text, some(files))]


# --- together -----------------------------------------------------------------------------------------------------


def class_counts(index: Index, looks: Looks) -> dict[str, dict[str, int]]:
    """Cases in which each class occurs, a split each, as far as they were opened."""
    return cases_with(index, lambda record: _holds(record, looks))


def _holds(record: Record, looks: Looks) -> set[str]:
    """The classes that occur in a case, as far as it was opened."""
    look = looks.get(record.key)
    return {name for name, voxels in look.mask.found.items() if voxels} if look and look.mask else set()


def _healthy(looks: Looks) -> list[Finding]:
    """Detection without a single image in which nothing is marked."""
    if not looks:
        return []
    healthy = [key for key, look in looks.items() if not look.error and (not look.mask or look.mask.empty)]
    return [] if healthy else [no_healthy()]
