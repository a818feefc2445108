"""The annotations of a survey as readings take them: the COCO files of a set's parts as one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from m3b.data.spec.model import Files
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.surroundings import escaped
from m3b.data.survey.facts import Value
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Annotation

IN_DICOM = ("rtstruct", "dicom_seg")


def annotated(survey: Survey) -> list[tuple[Annotation, Files]]:
    """Every annotation with the files that hold it."""
    found = [(one, _files(survey, one)) for one in survey.annotations if one.format != "coco"]
    parts: dict[str, list[Annotation]] = defaultdict(list)
    for one in survey.annotations:
        if one.format == "coco":
            parts[one.images].append(one)
    for images, some in parts.items():
        if images and len(some) > 1 and _apart(some):
            paths = "|".join(re.escape(one.path) for one in some)
            found.append((_one(some), Files(pattern=f"re:(?:{paths})")))
        else:
            found += [(one, _files(survey, one)) for one in some]
    return found


def _apart(some: Sequence[Annotation]) -> bool:
    """Whether files can be parts of one set: of some class in common, and together of no more images than there are."""
    there = max(one.images_found + one.images_without for one in some)
    names = [{value.text.strip().casefold() for value in one.classes} for one in some]
    return sum(one.images_found for one in some) <= there and bool(set.intersection(*names))


def _one(some: Sequence[Annotation]) -> Annotation:
    classes, faults = Counter[str](), Counter[str]()
    for one in some:
        classes.update({value.text: value.count for value in one.classes})
        faults.update(dict(one.faults))
    found = sum(one.images_found for one in some)
    there = max(one.images_found + one.images_without for one in some)
    return some[0].model_copy(update={
        "path": ", ".join(one.path for one in some[:4]), "files": len(some), "items": sum(one.items for one in some),
        "shapes": tuple(sorted({shape for one in some for shape in one.shapes})),
        "classes": tuple(Value(text=text, count=count) for text, count in classes.items()),
        "images_named": sum(one.images_named for one in some), "images_marked": sum(one.images_marked for one in some),
        "images_found": found, "images_without": there - found, "faults": tuple(sorted(faults.items())),
    })  # fmt: skip


def _files(survey: Survey, one: Annotation) -> Files:
    if one.group and (one.files > 1 or one.format in IN_DICOM):
        return pattern_of(survey, survey.group(one.group))
    return Files(pattern=escaped(one.path))
