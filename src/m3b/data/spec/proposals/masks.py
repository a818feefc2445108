"""Readings of a folder for masks: which files are the marks, of which images, and in which channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from m3b.data.spec.model import Files, IndexSpec, Masks
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.channels import of_masks, with_channels
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import image_sets, key_pattern, key_slots
from m3b.data.spec.proposals.item_masks import propose_item_masks
from m3b.data.spec.proposals.language import shared, telling, words
from m3b.data.spec.proposals.mask_classes import both_sides, in_folders, in_names
from m3b.data.spec.proposals.naming import (
    Named,
    class_name,
    names_of_values,
    of_values,
    other_organs,
    wanted,
)
from m3b.data.spec.proposals.numbered_masks import numbered, united
from m3b.data.spec.proposals.outlines import propose_outlines
from m3b.data.spec.proposals.rival_masks import doubt_of, doubt_of_unpaired, holds_more, rivals
from m3b.data.spec.proposals.surroundings import around, leave_out, without_bare_parts
from m3b.data.spec.proposals.twins import doubt_of_twins, joined
from m3b.data.survey.facts import Content, FileGroup
from m3b.data.survey.relations import Pairing, Survey

ROLES = frozenset(
    words("mask masks masksTr label labels labelsTr seg segmentation gt annotation manual reader observer rater")
)
"""Words of what a mask is rather than of what it marks."""
GREYS = 256
"""Number from which on a value of a picture with three channels is a colour."""
SAME = 0.9
"""Overlap of masks with each other from which on they are the same in every case."""


def propose_masks(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with masks."""
    every = image_sets(survey)
    sets = {one.id: one for one in every if one.single is not None and one.member is None}
    for pairing in map(united, survey.pairings):
        if pairing.role != "mask":
            continue
        if pairing.kind == "per_key":
            yield from _in_container(survey, ask, pairing)
        elif pairing.left in sets and pairing.left_matched >= 0.3 * pairing.left_files:
            yield from _beside(survey, ask, pairing, sets)
            yield from _joined(survey, ask, pairing, every)
            yield from _one_a_class(survey, ask, pairing, sets)
    for one in every:
        yield from propose_item_masks(survey, ask, one)
    yield from propose_outlines(survey, ask, sets)


def _beside(survey: Survey, ask: Ask, pairing: Pairing, sets: dict[str, ImageSet]) -> Iterator[Proposal]:
    """Mask files of their own."""
    images, masks = sets[pairing.left], survey.group(pairing.right)
    content = masks.content
    if content is None or content.values not in ("mask", "lossy_mask", "labels"):
        return
    around_it = around(survey, images)
    named, cut, told = _classes(survey, ask, pairing, masks, content)
    classes = named.classes
    unclear = named.unclear or _unclear(survey, ask, pairing, masks)
    around_it = without_bare_parts(around_it, pairing)
    together = of_masks(survey, ask, pairing, sets)
    colours = classes if _painted(content) and _combine(pairing) == "one" else {}
    if colours and (count := _shades(list(colours.values()))):
        unclear = unclear or f"whether the {count} shades of one colour in the masks number objects, or are classes"
    if colours:
        colours = {_of_colour(name, value): value for name, value in colours.items()}
        classes = {name: at for at, name in enumerate(colours, 1)}
        told = [*told, "masks are painted in colours: written anew with numbers"]
    part = Masks(
        files=pattern_of(survey, masks), by=pairing.left_slots, combine=_combine(pairing), classes=classes, cut=cut,
        colours=colours,
        class_key="{rest}" if pairing.kind == "per_class" else "",
    )  # fmt: skip
    used = {pairing.left, pairing.right, *together.groups}
    spec = IndexSpec(
        task=ask.task, images=with_channels(images, together).images, masks=part, patient=around_it.patient,
        attributes=attributes(survey, images),
        together=around_it.together, split=around_it.split, left_out=leave_out(survey, used, _reasons(survey, pairing, masks)),
    )  # fmt: skip
    matched = (f"{pairing.left_matched:,} of {pairing.left_files:,} images have a mask, {pairing.right_matched:,} of "
               f"{pairing.right_files:,} masks an image")  # fmt: skip
    evidence = (matched, *told, *together.evidence, *around_it.evidence)
    score, doubts = _score(survey, ask, pairing, masks, content)
    title = f"{images.title}, masks from {masks.template}"
    doubts = (*([unclear] if unclear else []), *doubts, *around_it.doubts)
    yield Proposal(spec, title, score, evidence, doubts, unclear)


def _joined(survey: Survey, ask: Ask, pairing: Pairing, sets: Sequence[ImageSet]) -> Iterator[Proposal]:
    """Groups of images with masks of their own each, as cases of one set."""
    found = joined(survey, ask, pairing, sets)
    masks = survey.group(pairing.right)
    if found is None or masks.content is None or masks.content.values not in ("mask", "labels"):
        return
    images, files, pairs = found
    around_it = around(survey, images)
    named, _, told = _classes(survey, ask, pairing, masks, masks.content)
    part = Masks(files=files, by=pairing.left_slots, classes=named.classes)
    used = {id for one in pairs for id in (one.left, one.right)}
    spec = IndexSpec(
        task=ask.task, images=images.images, masks=part, patient=around_it.patient, attributes=attributes(survey, images),
        together=around_it.together, split=around_it.split, left_out=leave_out(survey, used, {}),
    )  # fmt: skip
    listed = ", ".join(survey.group(one.left).template for one in pairs)
    matched = f"{sum(one.left_matched for one in pairs):,} of {images.count:,} images have a mask; cases of {listed}"
    score, doubts = _score(survey, ask, pairing, masks, masks.content)
    yield Proposal(spec, f"{images.title}, each with masks of its own", min(1.0, score + 0.05),
                   (matched, *told, *around_it.evidence), (*doubts, *around_it.doubts), named.unclear)  # fmt: skip


def _one_a_class(survey: Survey, ask: Ask, pairing: Pairing, sets: dict[str, ImageSet]) -> Iterator[Proposal]:
    """Several groups of masks on the same images, of which each is a class that the request names."""
    if pairing.kind != "one_to_one":
        return
    others = [one.group for one in rivals(survey, pairing)]
    found = in_folders(survey, ask, pairing, others) or in_names(survey, ask, pairing, others)
    sides = None if found else both_sides(survey, ask, pairing, others)
    found = found or sides
    if found is None:
        return
    images = sets[pairing.left]
    around_it = without_bare_parts(around(survey, images), pairing)
    names = sorted(found.names) or [class_name(ask, survey.group(pairing.right))]
    part = Masks(
        files=found.files, by=_names_alone(pairing) if sides else pairing.left_slots, class_key=found.key,
        combine="union" if sides else "classes", classes={name: at for at, name in enumerate(names, 1)},
        names={} if sides else {name: (found.names[name],) for name in names},
    )  # fmt: skip
    spec = IndexSpec(
        task=ask.task, images=images.images, masks=part, patient=around_it.patient,
        attributes=attributes(survey, images), together=around_it.together,
        split=around_it.split, left_out=leave_out(survey, {pairing.left, *found.groups}, {}),
    )  # fmt: skip
    what = "a mask of the left and one of the right side, united" if sides else "one mask a class"
    told = f"{what}: {', '.join(names)}; {pairing.left_matched:,} of {pairing.left_files:,} images have them"
    yield Proposal(spec, f"{images.title}, masks of {', '.join(names)}", 0.9, (told, *around_it.evidence),
                   tuple(around_it.doubts))  # fmt: skip


def _names_alone(pairing: Pairing) -> tuple[str, ...]:
    """How files are brought together, without their folders."""
    return tuple(slot for slot in pairing.left_slots if not slot.startswith("folders"))


def _shades(colours: Sequence[int]) -> int:
    """How many steps of red, green or blue alone the colours are, 1, 2, 3, ...; 0 where they are colours to the eye."""
    for one in (1 << 16, 1 << 8):
        if len(colours) > 2 and sorted(colours) == [one * at for at in range(1, len(colours) + 1)]:
            return len(colours)
    return 0


def _painted(content: Content) -> bool:
    """Whether values are colours rather than numbers."""
    return 3 in content.channels and max((one.value for one in content.levels), default=0) >= GREYS


def _of_colour(name: str, value: int) -> str:
    """A class by its colour in six hexadecimal digits, where nothing names it."""
    return f"colour_{value:06x}" if name == f"label_{value}" else name


def _combine(pairing: Pairing) -> Literal["one", "union", "classes"]:
    if pairing.kind == "many_to_one":
        return "union"
    return "classes" if pairing.kind == "per_class" else "one"


def _classes(
    survey: Survey, ask: Ask, pairing: Pairing, masks: FileGroup, content: Content
) -> tuple[Named, float | None, list[str]]:
    """Class -> value, the cut of lossy masks, and what was found."""
    if pairing.kind == "per_class":
        every = [value.text for value in pairing.classes]
        names = wanted(every, ask)
        told = [f"one mask a class: {', '.join(names[:12])}"]
        if left := [name for name in every if name not in names]:
            told.append(f"not asked for, so background: {', '.join(left[:12])}")
        return Named({name: at for at, name in enumerate(names, 1)}), None, told
    levels = [int(one.value) for one in content.levels if one.value > 0 and float(one.value).is_integer()]
    if content.values == "lossy_mask":
        name = class_name(ask, masks)
        return Named({name: 1}), content.cut, [f"masks are lossy pictures of two levels: cut at {content.cut:g}"]
    if pairing.kind == "many_to_one":
        return (
            Named({class_name(ask, masks): 1}),
            None,
            [f"{pairing.per_left[0]} to {pairing.per_left[2]} masks an image (median {pairing.per_left[1]}), united"],
        )
    return of_values(survey, ask, masks, levels, content.counted)


def _unclear(survey: Survey, ask: Ask, pairing: Pairing, masks: FileGroup) -> str:
    """What a person should say before these masks are taken."""
    if other := other_organs(ask.request, masks.template):
        return other
    if pairing.kind == "per_class":
        names = [value.text for value in pairing.classes]
        alike = any(set(words(name)) & ROLES for name in names) and not any(shared(ask.words, name) for name in names)
        if alike or numbered(pairing):
            return f"whether {', '.join(names[:6])} are classes or different masks of the same thing"
    if pairing.shared:
        return (f"whose the masks are: {pairing.shared:,} images of several folders are called alike, and each of their masks is "
                "found for several")  # fmt: skip
    if pairing.left_matched < 0.5 * pairing.left_files:
        return f"only {pairing.left_matched:,} of {pairing.left_files:,} images have a mask"
    return (
        doubt_of_twins(survey, ask, pairing)
        or doubt_of(survey, ask, pairing)
        or doubt_of_unpaired(survey, ask, pairing)
    )


def _reasons(survey: Survey, pairing: Pairing, masks: FileGroup) -> dict[str, str]:
    """Other masks of the same images, by reason."""
    found = {}
    for one in survey.pairings:
        if one.role == "mask" and one.right not in (pairing.right, pairing.left):
            found[one.right] = f"other masks of the same images; {masks.template[-60:]} was taken"
    return found


def _score(
    survey: Survey, ask: Ask, pairing: Pairing, masks: FileGroup, content: Content
) -> tuple[float, tuple[str, ...]]:
    score, doubts = 0.55, []
    score += (
        0.1
        * (pairing.left_matched / max(pairing.left_files, 1))
        * (pairing.right_matched / max(pairing.right_files, 1))
    )
    name = masks.template.rsplit("/", 1)[-1]
    score += 0.2 * shared(ask.words, name) + 0.1 * shared(ask.words, masks.template)
    score += 0.1 * shared(ask.words, survey.group(pairing.left).template.rsplit("/", 1)[-1])
    if pairing.fits is not None and pairing.fits < 0.9:
        score -= 0.3
        doubts.append(f"only {pairing.fits:.0%} of the masks that were looked at fit their image's grid")
    if content.alike is not None and content.alike > SAME:
        score -= 0.35
        doubts.append(f"the masks are nearly the same in every case (mean Dice with each other {content.alike:.2f})")
    elif (content.alike or 0) > 0.75 and content.values == "mask" and not telling(name) & ask.words:
        score -= 0.25
        doubts.append("one large region, much the same in every case: rather the body or the field of view")
    if content.covers_border is not None and content.covers_border > 0.5:
        score -= 0.35
        doubts.append("the masks look like a field of view")
    if content.values == "labels":
        score += 0.1 if not holds_more(survey, ask, pairing) else -0.2
    largest = max((one.left_matched for one in survey.pairings if one.role == "mask"), default=1)
    score *= 0.6 + 0.4 * pairing.left_matched / largest
    return max(0.0, min(1.0, score)), tuple(doubts)


def _in_container(survey: Survey, ask: Ask, pairing: Pairing) -> Iterator[Proposal]:
    """Image and mask as keys of the same file."""
    images = next((one for one in image_sets(survey) if one.id == pairing.left and one.member is not None and
                   one.member.key == pairing.left_key), None)  # fmt: skip
    container = next(one for one in survey.containers if one.group == pairing.left)
    member = next(one for one in container.members if one.key == pairing.right_key)
    if images is None or member.content is None:
        return
    around_it = around(survey, images)
    each = "[#]" if images.images.files.member.endswith("[#]") else ""
    levels = [int(one.value) for one in member.content.levels if one.value > 0]
    group = survey.group(pairing.left)
    one = Named({class_name(ask, group): levels[0] if levels else 1})
    named = one if len(levels) <= 1 else names_of_values(survey, levels, ask)
    part = Masks(
        files=Files(pattern=images.images.files.pattern, member=key_pattern(member) + each),
        case="{path}{index}" if each else "{path}" + key_slots(member), classes=named.classes,
        cut=member.content.cut if member.content.values == "lossy_mask" else None,
    )  # fmt: skip
    spec = IndexSpec(
        task=ask.task, images=images.images, masks=part, patient=around_it.patient,
        attributes=attributes(survey, images), together=around_it.together,
        split=around_it.split, left_out=leave_out(survey, {pairing.left}, {}),
    )  # fmt: skip
    many = f", {member.keys} pairs each" if member.keys > 1 else ""
    told = f"{pairing.left_matched} files hold both {pairing.left_key!r} and {pairing.right_key!r}{many}"
    yield Proposal(spec, f"{group.template}, image {pairing.left_key}, mask {pairing.right_key}", 0.75,
                   (told, *around_it.evidence), tuple(around_it.doubts), named.unclear)  # fmt: skip
