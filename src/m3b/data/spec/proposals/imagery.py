"""The image sets of a survey: one group of files, or several of the same kind that lie side by side."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from m3b.data.spec.model import Files, Images
from m3b.data.survey.facts import Group, Member, Series
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of

KINDS = ("picture", "nifti", "itk", "dicom", "video", "array", "hdf5", "mat")
MASKED = ("mask", "lossy_mask", "labels")
_NAMED = re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True)
class ImageSet:
    """Images that can be the cases of an index.

    Args:
        count: cases, as far as the survey can tell.
        levels: of each folder level, value -> files, where it has at most 60 values.
    """

    groups: tuple[Group, ...]
    images: Images
    count: int
    levels: dict[str, dict[str, int]]
    member: Member | None = None
    series: Series | None = None

    @property
    def id(self) -> str:
        """Of its first group."""
        return self.groups[0].id

    @property
    def single(self) -> Group | None:
        """Its group, where it is one alone."""
        return self.groups[0] if len(self.groups) == 1 else None

    @property
    def title(self) -> str:
        """For people."""
        name = self.groups[0].template if len(self.groups) == 1 else f"{len(self.groups)} groups of images"
        return f"{name}#{self.member.key}" if self.member else name


def image_sets(survey: Survey) -> list[ImageSet]:
    """Every set of images, the largest first; masks, and what is no image, are none."""
    groups = [group for group in survey.groups if is_images(survey, group)]
    sets = [_single(survey, group) for group in groups]
    sets += [_union(some) for some in _side_by_side(groups)]
    sets += [found for group in survey.groups for found in _members(survey, group)]
    return sorted(sets, key=lambda one: (-one.count, one.title))


def is_images(survey: Survey, group: Group) -> bool:
    """Whether a group's files are images rather than masks, tables or containers of several arrays."""
    if group.stray or group.kind not in KINDS or group.kind in ("array", "hdf5", "mat"):
        return False
    if group.content is not None and group.content.values in MASKED:
        return False
    if any(one.group == group.id and one.format in ("rtstruct", "dicom_seg") for one in survey.annotations):
        return False
    return not any(one.group == group.id and one.modality in ("RTSTRUCT", "SEG", "SR") for one in survey.series)


def pattern_of(group: Group) -> Files:
    """The files of a group."""
    return Files(pattern="re:" + group.pattern)


def _single(survey: Survey, group: Group) -> ImageSet:
    series = next((one for one in survey.series if one.group == group.id), None)
    images, count = Images(files=pattern_of(group)), group.count
    if series is not None and not series.per_file:
        count = series.series
        if series.folders_are_series:
            images = Images(files=pattern_of(group), unit="folder")
        else:
            images = Images(files=pattern_of(group), case="{tag.SeriesInstanceUID}", several="slices")
    return ImageSet((group,), images, count, _levels((group,)), series=series)


def _side_by_side(groups: list[Group]) -> list[tuple[Group, ...]]:
    """Groups of one kind and depth that together make one set: names that differ from folder to folder."""
    by: dict[tuple[str, int, int | None], list[Group]] = {}
    for group in groups:
        dims = group.content.dims if group.content else None
        by.setdefault((group.kind, group.template.count("/"), dims), []).append(group)
    found = [tuple(some) for some in by.values() if 1 < len(some) <= 60]
    kinds: dict[str, list[Group]] = {}
    for group in groups:
        kinds.setdefault(group.kind, []).append(group)
    found += [tuple(some) for some in kinds.values() if 1 < len(some) <= 60 and tuple(some) not in found]
    return found


def _union(groups: tuple[Group, ...]) -> ImageSet:
    text = "|".join(f"(?:{_NAMED.sub('(?:', group.pattern)})" for group in groups)
    count = sum(group.count for group in groups)
    return ImageSet(groups, Images(files=Files(pattern=f"re:{text}")), count, _levels(groups))


def _levels(groups: tuple[Group, ...]) -> dict[str, dict[str, int]]:
    """Folder values by level; of one group alone the varying piece of a folder, of several its whole name."""
    if len(groups) == 1:
        return {part.slot: {value.text: value.count for value in part.values} for part in groups[0].parts
                if part.slot.startswith("level") and part.distinct <= 60}  # fmt: skip
    found: dict[str, dict[str, int]] = {}
    for level in range(min(group.template.count("/") for group in groups)):
        values: Counter[str] = Counter()
        for group in groups:
            some = _folder_values(group, level)
            if some is None or len(values) > 60:
                break
            values.update(some)
        else:
            if 1 < len(values) <= 60:
                found[f"level{level}"] = dict(values)
    return found


def _folder_values(group: Group, level: int) -> dict[str, int] | None:
    """Names of a folder level with their files; None where there are too many to know."""
    text = group.template.split("/")[level]
    slots = re.findall(r"\{\w+\}", text)
    if not slots:
        return {text: group.count}
    part = next((one for one in group.parts if one.slot == f"level{level}"), None)
    if part is None or len(slots) > 1 or part.distinct > 60:
        return None
    return {text.replace(slots[0], value.text): value.count for value in part.values}


def _members(survey: Survey, group: Group) -> list[ImageSet]:
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
        files = Files(pattern="re:" + group.pattern, member=f"{_literal(one.key)}[#]")
        found.append(ImageSet((group,), Images(files=files), one.rows or 0, {}, member=one))
    for one in images:
        if not one.rows:
            files = Files(pattern="re:" + group.pattern, member=_literal(one.key))
            found.append(ImageSet((group,), Images(files=files), group.count, _levels((group,)), member=one))
    return found


def _literal(key: str) -> str:
    return "re:" + re.escape(key)


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
