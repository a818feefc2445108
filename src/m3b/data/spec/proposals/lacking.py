"""What a folder lacks of which no reading could be proposed, for people: what is there, an example, what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from m3b.data import kinds
from m3b.data.links import WHAT_TO_DO
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.imagery import KINDS, MASKED, image_sets
from m3b.data.spec.proposals.parted import joined_tables
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Survey

FORMS = "PNG, JPEG, TIFF, DICOM, NIfTI, MetaImage, NRRD, NPY, NPZ, HDF5, MAT or video"
_ROWS = "Write each row's image into a file, and the other columns with its name into a table (CSV) beside them."
_SLIDES = "Export them as TIFF or PNG, whole slides at a level that fits into memory or as patches."
FOREIGN = {
    ".parquet": _ROWS, ".arrow": _ROWS, ".feather": _ROWS, ".tfrecord": _ROWS, ".tfrecords": _ROWS, ".mdb": _ROWS, ".lmdb": _ROWS,
    ".svs": _SLIDES, ".ndpi": _SLIDES, ".mrxs": _SLIDES, ".czi": _SLIDES, ".nd2": _SLIDES, ".lif": _SLIDES, ".vsi": _SLIDES,
".mnc": "Convert them to NIfTI (`mnc2nii`).", ".par": "Convert them to NIfTI (`dcm2niix`).",
    ".rec": "Convert them to NIfTI (`dcm2niix`).", ".mgz": "Convert them to NIfTI (`mri_convert`).",
    ".mgh": "Convert them to NIfTI (`mri_convert`).",
}  # fmt: skip
"""Suffix of a format in which medical images come and that is not read -> what to do."""
NAME_IT = "Name the folder with the images (`--data` of `m3b run`)."
"""A run takes the folder by an option, a look as its argument."""
MAX_KINDS = 4
"""Kinds of files that are named."""
WANTED = {
    "labels": "a table with a column that names the images and one with their labels, or a folder for each class",
    "masks": "a mask for each image, named like it, in a folder of its own",
    "boxes": "boxes as COCO, YOLO, VOC or a table",
    "value": "a table with a column that names the images and one with their numbers",
    "survival": "a table with a column that names the images, one with times and one that says whether the event came",
    "report": "a text for each image, in a table or in files named like the images",
}
"""Target of a task -> what of it a person can add."""


def lacking(survey: Survey, ask: Ask) -> str:
    """Sentences on why the folder gives no case at all for what is asked."""
    return f"{_describe_lack(survey, ask)}{_describe_links(survey)}"


def _describe_links(survey: Survey) -> str:
    """Return a sentence on links in the folder, which may lead to what is missing."""
    links = next((note for note in survey.notes if note.code == "link"), None)
    if links is None:
        return ""
    word = "link" if links.count == 1 else "links"
    return f" It also holds {links.count:,} {word} (e.g. {links.examples[0]}), which m3b does not follow. {WHAT_TO_DO}"


def _describe_lack(survey: Survey, ask: Ask) -> str:
    groups = [group for group in survey.groups if not group.stray]
    images = image_sets(survey, ask.stacks)
    if not images:
        return (
            _foreign(survey.groups) or _no_images(groups) if survey.files else f"The folder holds no files. {NAME_IT}"
        )
    broken = [group for group in groups if _none_opens(group)]
    if broken and all(group.id in {one.id for one in broken} for group in groups if group.kind in KINDS):
        return _none_open(broken)
    targets = kinds.of(ask.task).targets
    wanted = " or ".join(WANTED[one] for one in targets if one in WANTED)
    nothing = "Nothing in it says of an image what the request asks for."
    return f"{_found(groups)} {_tables(survey, ask)}{nothing} Add {wanted}."


def _no_images(groups: Sequence[FileGroup]) -> str:
    masks = [group for group in groups if group.content is not None and group.content.values in MASKED]
    packed = [group for group in groups if group.kind == "archive"]
    if masks:
        first = masks[0]
        return (
            f"The folder holds masks ({_counted(masks)} with few values, e.g. {_example(first)}) and no images that they belong "
            "to. Put the images into the folder too, named like their masks."
        )
    if packed:
        return (
            f"The folder holds {_counted(packed)} packed into archives, e.g. {_example(packed[0])}, and no image beside them. "
            "Unpack them, and name the folder with what they hold."
        )
    if broken := [group for group in groups if _none_opens(group)]:
        return _none_open(broken)
    if not groups:
        return f"{_found(groups)} {NAME_IT}"
    return f"{_found(groups)} None of them is an image that m3b reads ({FORMS}). {NAME_IT}"


def _foreign(groups: Sequence[FileGroup]) -> str:
    """Of files in formats that are not read: their names, and how to get at what they hold."""
    found = [(suffix, group) for group in groups for suffix in group.suffixes if suffix.lower() in FOREIGN]
    if not found:
        return ""
    named = sorted({suffix.lower() for suffix, _ in found})
    how = " ".join(dict.fromkeys(FOREIGN[suffix] for suffix in named))
    return f"The folder holds {', '.join(named)} files, which m3b does not read, and no images beside them. {how}"


def _none_opens(group: FileGroup) -> bool:
    look = group.content
    return group.kind in KINDS and look is not None and look.looked > 0 and look.failed == look.looked


def _none_open(groups: Sequence[FileGroup]) -> str:
    tried = sum(group.content.looked for group in groups if group.content is not None)
    return (
        f"The folder holds {_counted(groups)}, e.g. {_example(groups[0])}, and none of the {tried:,} that were tried holds an image "
        "that can be opened: they are damaged, cut off, or hold no pixels. Copy or export them again."
    )


def _found(groups: Sequence[FileGroup]) -> str:
    """The kinds of files that are there, the most frequent first, each with an example."""
    counts, first = Counter[str](), dict[str, FileGroup]()
    for group in groups:
        counts[group.kind] += group.count
        first.setdefault(group.kind, group)
    if not counts:
        return "The folder holds no data, only documents or system files."
    told = [
        f"{count:,} {_word(kind, count)} (e.g. {_example(first[kind])})"
        for kind, count in counts.most_common(MAX_KINDS)
    ]
    return f"The folder holds {', '.join(told)}."


def _tables(survey: Survey, ask: Ask) -> str:
    """Of the largest table that names no image: what it names in place of them."""
    if not survey.tables or any(joined_tables(survey, images) for images in image_sets(survey, ask.stacks)[:4]):
        return ""
    table = max(survey.tables, key=lambda one: one.rows)
    column = next((one for one in table.columns if one.type in ("path", "identifier") and not one.sensitive), None)
    such = (
        f" (its column {column.name!r} says {column.examples[0]!r}, for instance)" if column and column.examples else ""
    )
    return f"The table {table.path} with {table.rows:,} rows names none of the images{such}. "


def _counted(groups: Sequence[FileGroup]) -> str:
    count = sum(group.count for group in groups)
    return f"{count:,} file{'s' if count != 1 else ''}"


def _example(group: FileGroup) -> str:
    return group.examples[0] if group.examples else group.template


WORDS = {"picture": "pictures", "dicom": "DICOM files", "nifti": "NIfTI volumes", "itk": "volumes", "array": "arrays",
         "hdf5": "HDF5 files", "mat": "MAT files", "video": "videos", "archive": "archives", "table": "tables",
         "json": "JSON files", "xml": "XML files", "text": "text files", "list": "lists", "document": "documents"}  # fmt: skip
"""Kind of a group -> what people call its files."""


def _word(kind: str, count: int) -> str:
    word = WORDS.get(kind, "other files")
    return word[:-1] if count == 1 else word
