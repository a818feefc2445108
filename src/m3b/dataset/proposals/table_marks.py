"""Boxes and run lengths in the rows of joined tables, with their meaning measured on the images."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from m3b.dataset.annotations.box_tables import (
    BoxColumns,
    BoxReading,
    ImageGrid,
    OriginalSize,
    find_paired_column,
    measure_boxes,
    propose_box_columns,
    propose_class_column,
    read_box_rows,
)
from m3b.dataset.annotations.geometry import ImageSize, VolumeGrid
from m3b.dataset.annotations.run_tables import find_run_column, measure_runs, parse_runs
from m3b.dataset.archives import local_reference
from m3b.dataset.manifest.image_frame import JoinedTable
from m3b.dataset.proposals.image_sets import ImageSet
from m3b.errors import DataError

MAX_SAMPLES = 24
"""Images whose sizes are measured."""


def find_boxes(
    image_set: ImageSet, name: str, originals: Sequence[OriginalSize] = ()
) -> tuple[BoxColumns, str, BoxReading, dict[str, int]] | None:
    """Return columns, class column and meaning of the boxes in a joined table, and the boxes a class; None if it has none.

    Args:
        originals: sizes of the images on which boxes may have been drawn.
    """
    table = image_set.frame.tables[name]
    frame = table.table.frame
    columns = propose_box_columns(frame)
    if columns is None:
        return None
    class_column = find_paired_column(frame, columns) or propose_class_column(
        frame, [*columns.columns.values(), *columns.image_size, *_key_columns(image_set, name)]
    )
    try:
        rows = read_box_rows(frame, columns, _row_images(image_set, table), class_column, "object")
        reading = measure_boxes(rows, _sizes(image_set, list(dict.fromkeys(rows.names))), originals)
    except DataError:
        return None
    return columns, class_column, reading, dict(Counter(rows.labels))


def find_runs(image_set: ImageSet, name: str) -> tuple[str, str, Any, dict[str, int]] | None:
    """Return the column of run lengths in a joined table, the class column, how runs count, and rows a class; None if none."""
    table = image_set.frame.tables[name]
    frame = table.table.frame
    column = find_run_column(frame)
    if not column:
        return None
    class_column = propose_class_column(frame, [column, *_key_columns(image_set, name)])
    runs: dict[str, list[list[int]]] = defaultdict(list)
    for image, cell in zip(_row_images(image_set, table), frame[column].to_list(), strict=True):
        parsed = parse_runs(cell)
        if image is not None and parsed:
            runs[image].append(parsed)
    images = {}
    for ref in _spread(list(runs), MAX_SAMPLES):
        array = _read_grey(image_set, ref)
        if array is not None:
            images[ref] = array
    if not runs:
        return None
    classes = dict(Counter(text for text in frame[class_column].to_list() if text)) if class_column else {}
    return column, class_column, measure_runs(runs, images), classes


def _key_columns(image_set: ImageSet, name: str) -> list[str]:
    from m3b.dataset.manifest.templates import columns_of

    return columns_of(image_set.tables[name].keys)


def _row_images(image_set: ImageSet, table: JoinedTable) -> list[str | None]:
    """The image of each row, as an index names it."""
    refs = image_set.frame.frame["ref"]
    names: list[str | None] = [None] * len(table.table.frame)
    for image_column, right in table.pairs.iter_rows():
        names[right] = refs[image_column]
    return names


def _sizes(image_set: ImageSet, refs: Sequence[str]) -> dict[str, ImageGrid]:
    import numpy as np

    from m3b.dataset.formats import probe_image

    sizes: dict[str, ImageGrid] = {}
    for ref in _spread(refs, MAX_SAMPLES):
        try:
            info = probe_image(local_reference(image_set.frame.readers.root, ref))
        except (DataError, OSError):
            continue
        if len(info.shape) == 2:
            sizes[ref] = ImageSize(info.shape[1], info.shape[0])
        elif len(info.shape) == 3:
            sizes[ref] = VolumeGrid(info.shape, info.affine if info.affine is not None else np.eye(4))
    return sizes


def _read_grey(image_set: ImageSet, ref: str) -> Any:
    from m3b.dataset.formats import read_image

    try:
        array = read_image(local_reference(image_set.frame.readers.root, ref)).array
    except (DataError, OSError):
        return None
    return array.mean(axis=0) if array.ndim == 3 else None


def _spread(items: Sequence[str], count: int) -> Iterator[str]:
    yield from (items[place * len(items) // count] for place in range(count)) if len(items) > count else items
