"""What m3b's own look at a data set shows: masks, boxes, reports, as far as names and columns tell."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.briefs import CardOffer
from m3b.llm.rules.words import bare_words, of_masks
from m3b.summaries import ColumnSummary, DocumentSummary, NamePattern, TableSummary

PICTURES = (
    ".nii.gz", ".nii", ".mha", ".mhd", ".nrrd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".dcm",
    ".npy", ".npz", ".pt", ".pck", ".pkl", ".h5",
)  # fmt: skip
ANNOTATIONS = (".txt", ".xml")
NOTES = ("readme", "license", "licence", "source")
CORNERS = (
    {"x1", "y1", "x2", "y2"}, {"xmin", "ymin", "xmax", "ymax"}, {"x0", "y0", "x1", "y1"}, {"x", "y", "width", "height"},
    {"x", "y", "w", "h"},
)  # fmt: skip
BOXES = ("boxes", "bboxes", "bbox", "box", "boundingboxes")
REPORTS = frozenset(
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
TIMES = frozenset({"time", "survival", "os", "pfs", "dfs", "rfs", "efs", "followup", "follow", "duration"})
EVENTS = frozenset(
    {"event", "status", "death", "dead", "deceased", "died", "censored", "relapse", "recurrence", "progression"}
)
SEVERAL = 4
"""From so many text or XML files on they are cases, not notes."""
TEXTS = 20
"""More different values than this are texts, where a column is called like one."""


def shown(offer: CardOffer) -> frozenset[str]:
    """What a task may need, and the data shows: `masks`, `boxes`, `texts`, `times` to an event."""
    beside = {
        ending
        for ending in ANNOTATIONS
        if sum(one.count for one in offer.folder.patterns if _annotates(one, ending)) >= SEVERAL
    }
    files = offer.files
    boxes = bool(beside) or any(_has_boxes(one) for one in files if isinstance(one, TableSummary | DocumentSummary))
    texts = bool(beside) or any(_is_report(one) for one in _columns(offer)) or _names_reports(offer)
    found = {"masks": _has_masks(offer), "boxes": boxes, "texts": texts, "times": _has_times(offer)}
    return frozenset(name for name, there in found.items() if there)


def only_marked(offer: CardOffer) -> bool:
    """Whether a folder holds masks beside as many images, and nothing that looks like classes."""
    pictures = [one for one in offer.folder.patterns if _is_picture(one)]
    masks = [one for one in pictures if of_masks(fixed(one.text))]
    places = {_folder(one) for one in pictures if one not in masks and not _varies(_folder(one))}
    most = max((one.count for one in pictures), default=0)
    return bool(masks) and len(places) <= 1 and 2 * sum(one.count for one in masks) >= most


def spoken(offer: CardOffer) -> str:
    """All that a data set says of itself: card and notes, names of files, columns and labels. Nothing of it is m3b's prose."""
    said = [offer.name, offer.task, offer.modality, offer.anatomy, *offer.classes, offer.description, offer.notes]
    said += [one.text for one in offer.folder.patterns]
    said += [one.path for one in offer.files]
    for column in _columns(offer):
        said += [column.name, *(value for value, _ in column.values)]
    return "\n".join(said)


def fixed(pattern: str) -> str:
    """A pattern of names with a 0 for each part that varies (`{001..020}`, `*`)."""
    pieces, rest = [], pattern.replace("*", "0")
    while "{" in rest:
        before, _, inner = rest.partition("{")
        pieces.append(f"{before}0")
        rest = inner.partition("}")[2]
    return "".join([*pieces, rest])


def _has_masks(offer: CardOffer) -> bool:
    marked = [of_masks(fixed(one.text)) for one in offer.folder.patterns if _is_picture(one)]
    return any(marked) and not all(marked)


def _is_picture(one: NamePattern) -> bool:
    return one.text.lower().endswith(PICTURES)


def _annotates(one: NamePattern, ending: str) -> bool:
    name = one.text.rpartition("/")[2].lower()
    return name.endswith(ending) and not name.startswith(NOTES)


def _folder(one: NamePattern) -> str:
    return one.text.rpartition("/")[0]


def _varies(text: str) -> bool:
    return "{" in text or "*" in text


def _columns(offer: CardOffer) -> Iterator[ColumnSummary]:
    for one in offer.files:
        if isinstance(one, TableSummary):
            yield from one.columns
        elif isinstance(one, DocumentSummary):
            yield from one.fields


def _has_times(offer: CardOffer) -> bool:
    """Whether columns are called like a time to an event, and like whether it came."""
    called = [set(bare_words(_own(column))) for column in _columns(offer)]
    return any(one & TIMES for one in called) and any(one & EVENTS for one in called)


def _has_boxes(one: TableSummary | DocumentSummary) -> bool:
    if isinstance(one, DocumentSummary) and "bbox" in one.marked:
        return True
    columns = one.columns if isinstance(one, TableSummary) else one.fields
    names = {_own(column).replace("_", "") for column in columns}
    lists = {_own(column).replace("_", "") for column in columns if column.type == "list"}
    return any(corners <= names for corners in CORNERS) or bool(lists & set(BOXES))


def _is_report(column: ColumnSummary) -> bool:
    """Whether a column is called like a report's text and holds sentences, or more than a few different texts."""
    called = set(bare_words(_own(column))) & REPORTS
    return bool(called) and column.type == "text" and (column.prose or column.distinct > TEXTS)


def _names_reports(offer: CardOffer) -> bool:
    """Whether a table that was not looked into is called like reports."""
    tables = [one.text for one in offer.folder.patterns if one.text.lower().endswith((".csv", ".json", ".jsonl"))]
    return any(set(bare_words(fixed(text))) & REPORTS for text in tables)


def _own(column: ColumnSummary) -> str:
    return column.name.rpartition(".")[2].lower()
