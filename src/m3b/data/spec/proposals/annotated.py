"""The annotations of a survey as readings take them: the files of a set's parts as one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from m3b.data.spec.model import Files
from m3b.data.spec.proposals.group_files import escaped, pattern_of
from m3b.data.survey.facts import Value
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of
from m3b.data.survey.table_facts import Annotation

PARTED = ("coco", "cvat", "via", "csv_boxes", "csv_circles", "csv_lists", "csv_runs", "json_boxes")
"""Formats of which one file speaks of many images."""
AN_IMAGE = ("yolo", "voc", "labelme", "aperio")
"""Formats of a file an image."""
SHARED_NAME = "shared_name"
"""The fault of names that images of several folders have: which of them is meant is not said."""
MAX_SHARED = 0.02
IN_DICOM = ("rtstruct", "dicom_seg")


def annotated(survey: Survey) -> list[tuple[Annotation, Files]]:
    """Every annotation with the files that hold it."""
    found: list[tuple[Annotation, Files]] = []
    parts: dict[tuple[object, ...], list[Annotation]] = defaultdict(list)
    for one in (_looked(survey, each) for each in survey.annotations):
        if one.format in PARTED and one.files == 1:
            parts[one.format, one.images, one.columns, one.space, one.sizes_mm].append(one)
        else:
            found.append((one, _files(survey, one)))
    found = _joined(survey, found)
    for some in parts.values():
        if some[0].images and len(some) > 1 and _apart(some):
            paths = "|".join(re.escape(one.path) for one in some)
            found.append((_one(some), Files(pattern=f"re:(?:{paths})")))
        else:
            found += [(one, _files(survey, one)) for one in some]
    return found


def _joined(survey: Survey, found: list[tuple[Annotation, Files]]) -> list[tuple[Annotation, Files]]:
    """Groups of files of one format, a file an image, that speak of different images of one group: as one annotation."""
    alike: dict[tuple[str, str], list[tuple[Annotation, Files]]] = defaultdict(list)
    for one, files in found:
        alike[one.format, one.images].append((one, files))
    joined = []
    for (form, images), some in alike.items():
        there = max(one.images_found + one.images_without for one, _ in some)
        disjoint = sum(one.images_found for one, _ in some) <= there
        plain = all(files.pattern.startswith("re:") and not files.exclude for _, files in some)
        if form in AN_IMAGE and images and len(some) > 1 and disjoint and plain:
            bare = [re.sub(r"\(\?P<\w+>", "(?:", files.pattern[3:]) for _, files in some]
            joined.append((_one([one for one, _ in some]), Files(pattern=f"re:(?:{'|'.join(bare)})")))
        else:
            joined += some
    return joined


def _looked(survey: Survey, one: Annotation) -> Annotation:
    """An annotation with the fault of names that several images of its group have."""
    if one.files > 1 or one.format not in PARTED or not one.images:
        return one
    group = survey.group(one.images)
    more = group.count - one.images_without - one.images_found
    if group.kind != "picture" or more <= MAX_SHARED * one.images_found:
        return one
    return one.model_copy(update={"faults": tuple(sorted((*one.faults, (SHARED_NAME, more))))})


def _apart(some: Sequence[Annotation]) -> bool:
    """Whether files can be parts of one set: of some class in common, and together of no more images than there are."""
    there = max(one.images_found + one.images_without for one in some)
    names = [{value.text.strip().casefold() for value in one.classes} for one in some]
    sides = [_side(one) for one in some]
    one_file = len({one.path for one in some}) == 1
    told = some[0].format == "coco" or one_file or (all(sides) and len(set(sides)) == len(sides))
    return told and sum(one.images_found for one in some) <= there and bool(set.intersection(*names))


def _side(one: Annotation) -> str:
    """The side of a split that a file's name or its folder speaks of."""
    return next((side for part in reversed(one.path.split("/")) if (side := side_of(part.split(".")[0]))), "")


def _one(some: Sequence[Annotation]) -> Annotation:
    classes, faults = Counter[str](), Counter[str]()
    for one in some:
        classes.update({value.text: value.count for value in one.classes})
        faults.update(dict(one.faults))
    found = sum(one.images_found for one in some)
    there = max(one.images_found + one.images_without for one in some)
    return some[0].model_copy(update={
        "path": ", ".join(one.path for one in some[:4]), "files": sum(one.files for one in some),
        "items": sum(one.items for one in some),
        "shapes": tuple(sorted({shape for one in some for shape in one.shapes})),
        "classes": tuple(Value(text=text, count=count) for text, count in classes.items()),
        "numbers": tuple(sorted({pair for one in some for pair in one.numbers})),
        "images_named": sum(one.images_named for one in some), "images_marked": sum(one.images_marked for one in some),
        "images_found": found, "images_without": there - found, "faults": tuple(sorted(faults.items())),
    })  # fmt: skip


def _files(survey: Survey, one: Annotation) -> Files:
    if one.group and (one.files > 1 or one.format in IN_DICOM):
        return pattern_of(survey, survey.group(one.group))
    return Files(pattern=escaped(one.path))
