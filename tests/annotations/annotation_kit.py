"""Small folders with annotations, written by json, xml.etree and other libraries that are not m3b's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from m3b.dataset.annotations import AnnotationSet, AnnotationSource, detect_annotations
from m3b.dataset.inventory import Inventory


def write_files(root: Path, files: Mapping[str, Any]) -> Path:
    """Write files below a folder: bytes and texts as they are, other values as JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return root


def take_inventory(root: Path) -> Inventory:
    import polars as pl

    files = sorted(path for path in root.rglob("*") if path.is_file())
    rows = [(path.relative_to(root).as_posix(), path.stat().st_size) for path in files]
    return Inventory(root, pl.DataFrame(rows, schema={"path": pl.String, "bytes": pl.Int64}, orient="row"))


def detect_only(root: Path) -> AnnotationSource:
    """Return the one source of a folder."""
    (source,) = detect_annotations(take_inventory(root))
    return source


def iou(first: Any, second: Any) -> float:
    return float((first & second).sum() / max((first | second).sum(), 1))


def codes(annotations: AnnotationSet) -> dict[str, int]:
    """Return code -> count of the notes."""
    return {note.code: note.count for note in annotations.notes}


def approx_boxes(boxes: list[tuple[str, tuple[float, ...]]]) -> list[tuple[str, Any]]:
    """Return boxes to compare with, within 1e-6 pixels."""
    return [(label, pytest.approx(box, abs=1e-6)) for label, box in boxes]
