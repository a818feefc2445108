"""The image sets of a survey: one group of files, or several of the same kind that lie side by side."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from m3b.data.spec.model import Files, Images
from m3b.data.spec.proposals.ask import Stacks
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.image_set import ImageSet, literal
from m3b.data.spec.proposals.item_images import item_images
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import VIEWS
from m3b.data.survey.facts import FileGroup, Member
from m3b.data.survey.modalities import NO_IMAGES
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of

KINDS = ("picture", "nifti", "itk", "dicom", "video", "array", "hdf5", "mat")
SLICES = 6
"""Numbered pictures a folder from which on they may be the slices of a volume."""
MASKED = ("mask", "lossy_mask", "labels")
_NAMED = re.compile(r"\(\?P<\w+>")


def image_sets(survey: Survey, stacks: Stacks = "slices") -> list[ImageSet]:
    """Every set of images, the largest first; masks, and what is no image, are none.

    Args:
        stacks: what a folder of numbered slices is: one volume, or as many images; open leaves it to a person.
    """
    groups = [group for group in survey.groups if is_images(survey, group)]
    sets = [_stacked(single_set(survey, group), stacks) for group in groups]
    sets += [union_of(survey, some) for some in _side_by_side(groups) if len({bool(one.modality) for one in some}) == 1]
    sets += item_images(survey)
    itemised = {id for one in survey.items for id in one.groups}
    sets += [found for group in survey.groups if group.id not in itemised for found in _members(survey, group)]
    sets += [single_set(survey, group) for group in survey.groups if _unopened(survey, group)]
    sets = [_clips(one) for one in sets]
    return sorted(sets, key=lambda one: (-one.count, one.title))


def _clips(one: ImageSet) -> ImageSet:
    """A set of clips, with what has to be done first where more than a label belongs to each: marks are those of a frame."""
    clips = sum(group.count for group in one.groups if group.kind == "video")
    if not clips:
        return one
    doubt = (f"which frames of the {clips:,} video clips count: a mark, or a text, belongs to a picture; write a few evenly spaced "
             "frames of each as pictures, in a folder a clip, so that those of one clip stay on one side")  # fmt: skip
    return replace(one, doubt=doubt)


def framed(one: ImageSet) -> ImageSet:
    """A set of clips with the middle frame of each as its case, for what is said of a whole clip; others as they are."""
    clips = sum(group.count for group in one.groups if _is_clips(group))
    if not clips or one.images.channels:
        return one
    if clips < sum(group.count for group in one.groups):
        return replace(one, doubt=f"whether the {clips:,} clips and the pictures beside them are to be learnt together")
    images = Images(files=one.images.files, frames=1)
    return replace(one, images=images, count=clips, doubt="")


def _is_clips(group: FileGroup) -> bool:
    """Whether a group's files are clips: videos and animations, or DICOM ultrasound of several frames."""
    if group.kind == "video":
        return True
    content = group.content
    return group.kind == "dicom" and content is not None and content.dims == 3 and content.modality == ("us",)


def told_clips(one: ImageSet) -> str:
    """What to say of a set of clips; empty of others."""
    if not one.images.frames:
        return ""
    return (f"of each of the {one.count:,} clips the middle frame is the case (`images.frames`: 1; more are read as the slices of a "
            "volume)")  # fmt: skip


def views_of(one: ImageSet) -> str:
    """What to say of images whose names tell views of one study: frontal and lateral, both eyes; empty where none do."""
    if one.images.several == "views":
        return f"{one.count:,} studies of several views, each seen by the same network and answered once"
    for part in one.single.parts if one.single is not None else ():
        values = [value.text for value in part.values]
        if 2 <= len(values) <= 6 and all(set(words(text)) and set(words(text)) <= VIEWS for text in values):
            return f"several views ({', '.join(sorted(values))}): each image is a case of its own, answered by itself"
    return ""


def other_views(survey: Survey, one: ImageSet, asked: frozenset[str]) -> str:
    """What a person should say where the same cases lie in another group under the name of another view."""
    mine = set(words(one.groups[0].template))
    if one.single is None or mine & VIEWS & asked:
        return ""
    takes = "a study was made of others" if one.images.several == "views" else "a model takes one view a case"
    for pair in survey.pairings:
        if pair.role == "image" and pair.kind == "one_to_one" and one.id in (pair.left, pair.right):
            other = survey.group(pair.right if pair.left == one.id else pair.left)
            its = set(words(other.template))
            if mine - its and its - mine and mine ^ its <= VIEWS:
                return f"whether the images of {other.template} are wanted too: they are other views of the same cases, and {takes}"
    return ""


def is_images(survey: Survey, group: FileGroup) -> bool:
    """Whether a group's files are images rather than masks, tables or containers of several arrays."""
    if group.stray or group.kind not in KINDS or group.kind in ("array", "hdf5", "mat"):
        return False
    if group.content is not None and group.content.values in MASKED:
        return False
    if any(one.group == group.id and one.format in ("rtstruct", "dicom_seg") for one in survey.annotations):
        return False
    return not any(one.group == group.id and one.modality in NO_IMAGES for one in survey.series)


def _unopened(survey: Survey, group: FileGroup) -> bool:
    """Arrays in a form that a survey does not open (pickles): images by their names alone."""
    looked = next((one for one in survey.containers if one.group == group.id), None)
    return group.kind == "array" and not group.stray and group.count > 1 and (looked is None or not looked.members)


def single_set(survey: Survey, group: FileGroup) -> ImageSet:
    """A group as a set, with a series as its case where it holds DICOM."""
    series = next((one for one in survey.series if one.group == group.id), None)
    files = pattern_of(survey, group)
    images, count = Images(files=files), group.count
    if series is not None and not series.per_file:
        count = series.series
        if series.folders_are_series:
            images = Images(files=files, unit="folder")
        else:
            images = Images(files=files, case="{tag.SeriesInstanceUID}", several="slices")
    return ImageSet((group,), images, count, _levels((group,)), series=series)


def _stacked(one: ImageSet, stacks: Stacks) -> ImageSet:
    """A set whose folders each hold the numbered slices of a volume, with a folder as its case."""
    folders = slices_in_folders(one.groups[0])
    if one.series is not None or stacks == "slices" or not folders:
        return one
    if stacks == "open":
        doubt = f"whether a case is one of {one.count:,} images or one of {folders:,} folders with numbered slices"
        return replace(one, doubt=doubt)
    images = one.images.model_copy(update={"unit": "folder"})
    return replace(one, images=images, count=folders, stack=True)


def slices_in_folders(group: FileGroup) -> int:
    """How many folders hold a series of numbered slices each; 0 where they do not."""
    if group.kind != "picture" or group.content is None or group.content.dims != 2 or "/" not in group.template:
        return 0
    numbers = [part for part in group.parts if part.slot.startswith("name")]
    depth = group.template.count("/") - 1
    last = next((part for part in group.parts if part.slot.split(".")[0] == f"level{depth}"), None)
    if last is None or last.kind == "word" or not numbers or numbers[-1].kind != "number":
        return 0
    number, folders = numbers[-1], max(last.distinct, 1)
    many = group.count >= SLICES * folders and number.distinct >= SLICES
    running = number.low in (0, 1) and number.high is not None and number.high <= 1.5 * number.distinct
    return folders if many and running and (number.crossing is None or number.crossing > 0.5) and folders > 1 else 0


def _side_by_side(groups: list[FileGroup]) -> list[tuple[FileGroup, ...]]:
    """Groups of one kind and depth that together make one set: names that differ from folder to folder."""
    by: dict[tuple[str, int, int | None], list[FileGroup]] = {}
    for group in groups:
        dims = group.content.dims if group.content else None
        by.setdefault((group.kind, group.template.count("/"), dims), []).append(group)
    found = [tuple(some) for some in by.values() if 1 < len(some) <= 60]
    kinds: dict[str, list[FileGroup]] = {}
    for group in groups:
        kinds.setdefault(group.kind, []).append(group)
    found += [tuple(some) for some in kinds.values() if 1 < len(some) <= 60 and tuple(some) not in found]
    return found


def union_of(survey: Survey, groups: tuple[FileGroup, ...]) -> ImageSet:
    """Several groups as one set."""
    each = [pattern_of(survey, group) for group in groups]
    text = "|".join(f"(?:{_NAMED.sub('(?:', one.pattern.removeprefix('re:'))})" for one in each)
    exclude = tuple(sorted({text for one in each for text in one.exclude} - {one.pattern for one in each}))
    count, kinds = sum(group.count for group in groups), sorted({name for group in groups for name in group.modality})
    tags = {"Modality": tuple(kinds)} if kinds else {}
    return ImageSet(
        groups, Images(files=Files(pattern=f"re:{text}", exclude=exclude, tags=tags)), count, _levels(groups)
    )


def _levels(groups: tuple[FileGroup, ...]) -> dict[str, dict[str, int]]:
    """Folder values by level; of one group alone the varying piece of a folder, of several its whole name."""
    if len(groups) == 1:
        return {part.slot: {value.text: value.count for value in part.values} for part in groups[0].parts
                if part.slot.startswith("level") and part.distinct <= 60}  # fmt: skip
    found: dict[str, dict[str, int]] = {}
    for level in range(min(group.template.count("/") for group in groups)):
        values: Counter[str] = Counter()
        for group in groups:
            some = folder_values(group, level)
            if some is None or len(values) > 60:
                break
            values.update(some)
        else:
            if 1 < len(values) <= 60:
                found[f"level{level}"] = dict(values)
    return found


def folder_values(group: FileGroup, level: int) -> dict[str, int] | None:
    """Names of a folder level with their files; None where there are too many to know."""
    text = group.template.split("/")[level]
    slots = re.findall(r"\{\w+\}", text)
    if not slots:
        return {text: group.count}
    part = next((one for one in group.parts if one.slot == f"level{level}"), None)
    if part is None or len(slots) > 1 or part.distinct > 60:
        return None
    return {text.replace(slots[0], value.text): value.count for value in part.values}


def _members(survey: Survey, group: FileGroup) -> list[ImageSet]:
    """Image arrays of containers: one a file, or the items of stacks, those of several split parts together."""
    container = next((one for one in survey.containers if one.group == group.id), None)
    if container is None or container.format not in ("npz", "npy", "hdf5", "mat", "pt"):
        return []
    images = [one for one in container.members if one.role == "image"]
    stacks = [one for one in images if one.rows]
    found = []
    sides = {one.key: side_of(one.key) for one in stacks}
    if len(stacks) > 1 and all(sides.values()):
        key = _common(tuple(sides))
        if key:
            files = Files(pattern="re:" + group.pattern, member=f"{key}[#]")
            rows = sum(one.rows or 0 for one in stacks)
            found.append(ImageSet((group,), Images(files=files), rows, {}, member=stacks[0]))
            stacks = []
    for one in stacks:
        files = Files(pattern="re:" + group.pattern, member=f"{literal(one.key)}[#]")
        found.append(ImageSet((group,), Images(files=files), one.rows or 0, {}, member=one))
    for one in images:
        if not one.rows:
            files = Files(pattern="re:" + group.pattern, member=key_pattern(one))
            count = group.count * one.keys
            found.append(ImageSet((group,), Images(files=files), count, _levels((group,)), member=one))
    return found


def key_pattern(member: Member) -> str:
    """The pattern of a member's keys: as it stands, or of many keys of one form with their numbers as slots."""
    if member.keys == 1:
        return literal(member.key)
    pieces = member.key.split("#")
    return "re:" + "".join(
        re.escape(piece) + (rf"(?P<key{at}>\d+)" if at < len(pieces) - 1 else "") for at, piece in enumerate(pieces)
    )


def key_slots(member: Member) -> str:
    """What tells one of many keys of one form from another, as a key of a spec; empty for a key that is alone."""
    return "".join(f"/{{key{at}}}" for at in range(member.key.count("#"))) if member.keys > 1 else ""


def _common(keys: tuple[str, ...]) -> str:
    """`re:(?P<part>train|val|test)_images` for keys that differ in the word of the split alone; empty otherwise."""
    shortest = min(map(len, keys))
    head = next((at for at in range(shortest) if len({key[at] for key in keys}) > 1), shortest)
    rests = [key[head:] for key in keys]
    tail = next((at for at in range(min(map(len, rests))) if len({rest[len(rest) - 1 - at] for rest in rests}) > 1), 0)
    middles = [rest[: len(rest) - tail] for rest in rests]
    if not all(middles):
        return ""
    text = "|".join(map(re.escape, middles))
    end = rests[0][len(rests[0]) - tail :]
    return f"re:{re.escape(keys[0][:head])}(?P<part>{text}){re.escape(end)}"
