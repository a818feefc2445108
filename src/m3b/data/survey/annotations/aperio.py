"""Aperio ImageScope: an XML file an image, with outlines of regions and, at times, what each layer of them is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.annotations.marks import UNNAMED, Marks
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.reading_documents import xml_root

_MOST = 20_000
_SAMPLE = 6
_NO_AREA = ("3", "4", "5")
"""Types of regions that are arrows and rulers."""
_ELLIPSE = "2"


@dataclass(frozen=True)
class Region:
    """One outline of (x, y) in pixels; `hole`: what it bounds is left out."""

    name: str
    points: tuple[tuple[float, float], ...]
    hole: bool = False


def find(found: Gathering) -> Iterator[Marks]:
    """Groups of XML files with such regions."""
    for group in found.groups:
        if group.fact.kind == "xml" and not group.fact.stray and _is_aperio(found, group):
            yield _marks(found, group)


def _is_aperio(found: Gathering, group: Gathered) -> bool:
    step = max(group.merged.count // _SAMPLE, 1)
    roots = [root for path in group.paths[::step][:_SAMPLE] if (root := _root(found, path)) is not None]
    return bool(roots) and all(_tag(one) == "Annotations" for one in roots) and any(
        one.find("./Annotation/Regions") is not None for one in roots
    )  # fmt: skip


def _root(found: Gathering, path: str) -> Any:
    try:
        return attempt(lambda: xml_root(found.tree.root / path), found.tree.root, path)
    except Unreadable as error:
        found.tree.notes.add(error.code, path)
        return None


def _marks(found: Gathering, group: Gathered) -> Marks:
    marks = Marks("aperio", group.paths[0], group.merged.count, group=group.id, shapes={"polygon"},
                  class_source="Annotation", exact=group.merged.count <= _MOST)  # fmt: skip
    for path in group.paths[:_MOST]:
        if found.tree.late:
            marks.exact = False
            break
        root = _root(found, path)
        try:
            some = [one for one in in_root(root) if not one.hole] if root is not None else []
        except ValueError:
            marks.faults["unreadable_outline"] += 1
            continue
        marks.classes.update(one.name for one in some)
        marks.items += len(some)
        marks.marked += bool(some)
    marks.named = list(group.paths)
    return marks


def in_root(root: Any) -> Iterator[Region]:
    """The regions of a document that bound an area.

    Raises:
        ValueError: a place is no number, or the document is another.
    """
    if _tag(root) != "Annotations":
        raise ValueError(f"its root is {_tag(root)!r} and not 'Annotations'")
    for layer in root.findall("./Annotation"):
        own = _called(layer)
        for one in layer.findall("./Regions/Region"):
            points = tuple((float(v.get("X", "?")), float(v.get("Y", "?"))) for v in one.findall("./Vertices/Vertex"))
            if one.get("Type") in _NO_AREA or len(points) < 3:
                continue
            if one.get("Type") == _ELLIPSE and len(points) == 4:
                raise ValueError("it has an ellipse, of which only the corners are known")
            name = own or (one.get("Text") or "").strip() or UNNAMED
            yield Region(name, points, one.get("NegativeROA") == "1")


def _called(layer: Any) -> str:
    """What a layer is called: by its name, else by an attribute's value, else by an attribute that is no heading."""
    if name := (layer.get("Name") or "").strip():
        return str(name)
    some = [
        ((one.get("Name") or "").strip(), (one.get("Value") or "").strip())
        for one in layer.findall("./Attributes/Attribute")
    ]
    valued = [
        value for name, value in some if value and name.casefold() in ("description", "class", "label", "name", "type")
    ]
    plain = [name for name, value in some if name and not value and name.casefold() != "description"]
    return next(iter([*valued, *plain]), "")


def _tag(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]
