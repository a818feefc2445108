"""What m3b's own look at a data set shows: masks, boxes, reports, as far as names and columns tell."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.facts import ColumnSummary, DatasetOption, DocumentSummary, NamePattern, TableSummary
from m3b.request_words import is_mask_path, split_name_words

IMAGE_SUFFIXES = (
    ".nii.gz", ".nii", ".mha", ".mhd", ".nrrd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".dcm",
    ".npy", ".npz", ".pt", ".pck", ".pkl", ".h5",
)  # fmt: skip
ANNOTATION_SUFFIXES = (".txt", ".xml")
NOTE_NAMES = ("readme", "license", "licence", "source")
BOX_COLUMN_SETS = (
    {"x1", "y1", "x2", "y2"}, {"xmin", "ymin", "xmax", "ymax"}, {"x0", "y0", "x1", "y1"}, {"x", "y", "width", "height"},
    {"x", "y", "w", "h"},
)  # fmt: skip
BOX_COLUMN_NAMES = ("boxes", "bboxes", "bbox", "box", "boundingboxes")
REPORT_WORDS = frozenset(
    [
        "finding",
        "findings",
        "report",
        "reports",
        "text",
        "befund",
        "caption",
        "narrative",
        "impression",
        "impressions",
        "conclusion",
        "conclusions",
        "summary",
        "beurteilung",
        "opinion",
    ]
)
TIME_WORDS = frozenset({"time", "survival", "os", "pfs", "dfs", "rfs", "efs", "followup", "follow", "duration"})
EVENT_WORDS = frozenset(
    {"event", "status", "death", "dead", "deceased", "died", "censored", "relapse", "recurrence", "progression"}
)
MIN_ANNOTATION_FILES = 4
"""From so many text or XML files on they are cases, not notes."""
MAX_CATEGORY_VALUES = 20
"""More different values than this are texts, where a column is called like one."""


def find_target_kinds(offer: DatasetOption) -> frozenset[str]:
    """What a task may need, and the data shows: `masks`, `boxes`, `texts`, `times` to an event."""
    annotation_suffixes = {
        suffix
        for suffix in ANNOTATION_SUFFIXES
        if sum(entry.count for entry in offer.folder.patterns if _is_annotation(entry, suffix)) >= MIN_ANNOTATION_FILES
    }
    files = offer.files
    boxes = bool(annotation_suffixes) or any(
        _has_boxes(entry) for entry in files if isinstance(entry, TableSummary | DocumentSummary)
    )
    texts = (
        bool(annotation_suffixes)
        or any(_is_report_column(entry) for entry in _iterate_columns(offer))
        or _has_report_table(offer)
    )
    evidence = {"masks": _has_masks(offer), "boxes": boxes, "texts": texts, "times": _has_times(offer)}
    return frozenset(name for name, is_present in evidence.items() if is_present)


def has_only_masks(offer: DatasetOption) -> bool:
    """Whether a folder holds masks beside as many images, and nothing that looks like classes."""
    image_patterns = [pattern for pattern in offer.folder.patterns if _is_image(pattern)]
    mask_patterns = [pattern for pattern in image_patterns if is_mask_path(fill_wildcards(pattern.text))]
    folders = {
        _folder_of(pattern)
        for pattern in image_patterns
        if pattern not in mask_patterns and not _has_wildcard(_folder_of(pattern))
    }
    max_count = max((pattern.count for pattern in image_patterns), default=0)
    return (
        bool(mask_patterns) and len(folders) <= 1 and 2 * sum(pattern.count for pattern in mask_patterns) >= max_count
    )


def collect_card_text(offer: DatasetOption) -> str:
    """All that a data set says of itself: card and notes, names of files, columns and labels. Nothing of it is m3b's prose."""
    texts = [offer.name, offer.task, offer.modality, offer.anatomy, *offer.classes, offer.description, offer.notes]
    texts += [entry.text for entry in offer.folder.patterns]
    texts += [entry.path for entry in offer.files]
    for column in _iterate_columns(offer):
        texts += [column.name, *(value for value, _ in column.values)]
    return "\n".join(texts)


def fill_wildcards(pattern: str) -> str:
    """A pattern of names with a 0 for each part that varies (`{001..020}`, `*`)."""
    pieces, remaining = [], pattern.replace("*", "0")
    while "{" in remaining:
        before, _, inner = remaining.partition("{")
        pieces.append(f"{before}0")
        remaining = inner.partition("}")[2]
    return "".join([*pieces, remaining])


def _has_masks(offer: DatasetOption) -> bool:
    mask_flags = [is_mask_path(fill_wildcards(pattern.text)) for pattern in offer.folder.patterns if _is_image(pattern)]
    return any(mask_flags) and not all(mask_flags)


def _is_image(pattern: NamePattern) -> bool:
    return pattern.text.lower().endswith(IMAGE_SUFFIXES)


def _is_annotation(pattern: NamePattern, suffix: str) -> bool:
    name = pattern.text.rpartition("/")[2].lower()
    return name.endswith(suffix) and not name.startswith(NOTE_NAMES)


def _folder_of(pattern: NamePattern) -> str:
    return pattern.text.rpartition("/")[0]


def _has_wildcard(text: str) -> bool:
    return "{" in text or "*" in text


def _iterate_columns(offer: DatasetOption) -> Iterator[ColumnSummary]:
    for summary in offer.files:
        if isinstance(summary, TableSummary):
            yield from summary.columns
        elif isinstance(summary, DocumentSummary):
            yield from summary.fields


def _has_times(offer: DatasetOption) -> bool:
    """Whether columns are called like a time to an event, and like whether it came."""
    word_sets = [set(split_name_words(_base_name(column))) for column in _iterate_columns(offer)]
    return any(column_words & TIME_WORDS for column_words in word_sets) and any(
        column_words & EVENT_WORDS for column_words in word_sets
    )


def _has_boxes(summary: TableSummary | DocumentSummary) -> bool:
    if isinstance(summary, DocumentSummary) and "bbox" in summary.marked:
        return True
    columns = summary.columns if isinstance(summary, TableSummary) else summary.fields
    names = {_base_name(column).replace("_", "") for column in columns}
    lists = {_base_name(column).replace("_", "") for column in columns if column.type == "list"}
    return any(corners <= names for corners in BOX_COLUMN_SETS) or bool(lists & set(BOX_COLUMN_NAMES))


def _is_report_column(column: ColumnSummary) -> bool:
    """Whether a column is called like a report's text and holds sentences, or more than a few different texts."""
    report_words = set(split_name_words(_base_name(column))) & REPORT_WORDS
    return bool(report_words) and column.type == "text" and (column.prose or column.distinct > MAX_CATEGORY_VALUES)


def _has_report_table(offer: DatasetOption) -> bool:
    """Whether a table that was not looked into is called like reports."""
    tables = [
        pattern.text for pattern in offer.folder.patterns if pattern.text.lower().endswith((".csv", ".json", ".jsonl"))
    ]
    return any(set(split_name_words(fill_wildcards(text))) & REPORT_WORDS for text in tables)


def _base_name(column: ColumnSummary) -> str:
    return column.name.rpartition(".")[2].lower()
