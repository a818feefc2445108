"""Outlines on slides: Aperio ImageScope XML, ASAP XML, and QuPath's GeoJSON. Each image has a document with its stem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.documents import load_each, read_json, read_xml
from m3b.dataset.annotations.geometry import Polygon, Union, ellipse, rectangle
from m3b.dataset.annotations.yolo import add_stem_image
from m3b.errors import DataError

# --- Aperio -----------------------------------------------------------------------------------------------------------

RECTANGLE, ELLIPSE, ARROW, RULER, LINE = "1", "2", "3", "4", "5"
CLASS_ATTRIBUTES = ("description", "class", "label", "name", "type")


class Aperio(AnnotationFormat):
    """Aperio ImageScope: layers of regions."""

    name = "aperio"
    suffixes = (".xml",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the root is `Annotations`."""
        words = (b"<Annotation ", b"<Annotation>", b"MicronsPerPixel")
        return b"<Annotations" in head and b"<ASAP_" not in head and any(word in head for word in words)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the regions of documents; one without regions is an image without marks."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            document = _read_root(root, "Annotations", path)
            image = add_stem_image(builder, path)
            for layer in document.iterfind("./Annotation"):
                layer_name = _get_layer_name(layer)
                for region in layer.iterfind("./Regions/Region"):
                    label = layer_name or (region.get("Text") or "").strip()
                    try:
                        _add_aperio_region(builder, image, label, region)
                    except (ValueError, TypeError, OverflowError):
                        builder.notes.add("damaged_mark", path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


def _read_root(root: Path, root_name: str, path: str) -> Any:
    document = read_xml(root, path)
    tag = str(document.tag).rpartition("}")[2]
    if tag != root_name:
        raise DataError(f"{path}: the root is {tag!r} and not {root_name!r}.", code="not_this_format")
    return document


def _get_layer_name(layer: Any) -> str:
    """Return the name of a layer, else an attribute's value, else an attribute without value that is no heading."""
    if name := (layer.get("Name") or "").strip():
        return str(name)
    pairs = [
        ((element.get("Name") or "").strip(), (element.get("Value") or "").strip())
        for element in layer.iterfind("./Attributes/Attribute")
    ]
    valued = [value for name, value in pairs if value and name.casefold() in CLASS_ATTRIBUTES]
    without_value = [name for name, value in pairs if name and not value and name.casefold() not in CLASS_ATTRIBUTES]
    return next(iter([*valued, *without_value]), "")


def _add_aperio_region(builder: SetBuilder, image: AnnotatedImage, label: str, region: Any) -> None:
    points = [
        (float(vertex.get("X", "?")), float(vertex.get("Y", "?"))) for vertex in region.iterfind("./Vertices/Vertex")
    ]
    kind, is_hole = region.get("Type"), region.get("NegativeROA") == "1"
    if kind in (ARROW, RULER, LINE):
        builder.notes.add("line_without_area", image.name)
    elif kind == ELLIPSE and len(points) in (2, 4):  # corners of the box around it, or ends of its axes
        xs, ys = zip(*points, strict=True)
        middle = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
        radii = (max(xs) - min(xs)) / 2, (max(ys) - min(ys)) / 2
        builder.add_region(image, label, ellipse(*middle, *radii), hole=is_hole)
    elif kind == RECTANGLE and len(points) in (2, 4):
        xs, ys = zip(*points, strict=True)
        corners = Polygon.from_points(points) if len(points) == 4 else rectangle(min(xs), min(ys), max(xs), max(ys))
        builder.add_region(image, label, corners, "box", hole=is_hole)
    else:
        builder.add_region(image, label, Polygon.from_points(points), hole=is_hole)


# --- ASAP -------------------------------------------------------------------------------------------------------------


class Asap(AnnotationFormat):
    """ASAP (https://computationalpathologygroup.github.io/ASAP): annotations in groups, which are the classes."""

    name = "asap"
    suffixes = (".xml",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the root is `ASAP_Annotations`."""
        return b"<ASAP_Annotations" in head

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the annotations of documents."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            document = _read_root(root, "ASAP_Annotations", path)
            image = add_stem_image(builder, path)
            for element in document.iterfind("./Annotations/Annotation"):
                group = (element.get("PartOfGroup") or "").strip()
                label = group if group not in ("", "None") else ""
                try:
                    ordered = sorted(
                        element.iterfind("./Coordinates/Coordinate"), key=lambda point: int(point.get("Order", "0"))
                    )
                    points = [(float(point.get("X", "?")), float(point.get("Y", "?"))) for point in ordered]
                    if element.get("Type") in ("Dot", "PointSet"):
                        for x, y in points:
                            builder.add_point(image, label, x, y)
                    else:
                        kind = "box" if element.get("Type") == "Rectangle" else "outline"
                        builder.add_region(image, label, Polygon.from_points(points), kind)  # type: ignore[arg-type]
                except (ValueError, TypeError, OverflowError):
                    builder.notes.add("damaged_mark", path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


# --- QuPath -----------------------------------------------------------------------------------------------------------


class GeoJson(AnnotationFormat):
    """GeoJSON in pixels, as QuPath exports it: a collection or list of features."""

    name = "geojson"
    suffixes = (".geojson", ".json")
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the document begins like GeoJSON."""
        return b'"FeatureCollection"' in head or (b'"Feature"' in head and b'"geometry"' in head)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the features of documents."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            features = _list_features(read_json(root, path), path)
            image = add_stem_image(builder, path)
            for feature in features:
                try:
                    _add_geometry(
                        builder, image, _get_class(feature.get("properties") or {}), feature.get("geometry") or {}
                    )
                except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
                    builder.notes.add("damaged_mark", path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


def _list_features(document: Any, path: str) -> list[dict[str, Any]]:
    features = document
    if isinstance(document, dict):
        features = document.get("features") if document.get("type") == "FeatureCollection" else [document]
    elif not document:
        features = None
    if not isinstance(features, list) or not all(
        isinstance(item, dict) and item.get("type") == "Feature" for item in features
    ):
        raise DataError(f"{path} is no GeoJSON of features.", code="not_this_format")
    return features


def _get_class(properties: Mapping[str, Any]) -> str:
    """Return the classification's name, else the object's."""
    classification = properties.get("classification")
    if isinstance(classification, dict):
        names = classification.get("names")
        name = classification.get("name") or (": ".join(map(str, names)) if isinstance(names, list) else "")
        return str(name or "")
    texts = [classification, *(properties.get(key) for key in ("name", "label", "class"))]
    return next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")


def _add_geometry(builder: SetBuilder, image: AnnotatedImage, label: str, geometry: Mapping[str, Any]) -> None:
    coordinates = geometry.get("coordinates")
    match geometry.get("type"):
        case "Polygon":
            builder.add_region(image, label, _parse_rings(coordinates))
        case "MultiPolygon":
            polygons = tuple(_parse_rings(rings) for rings in coordinates or ())
            if not polygons:
                raise ValueError("a MultiPolygon has no polygon")
            builder.add_region(image, label, Union(polygons))
        case "Point":
            builder.add_point(image, label, *_parse_point(coordinates))
        case "MultiPoint":
            for point in coordinates or ():
                builder.add_point(image, label, *_parse_point(point))
        case "GeometryCollection":
            for part in geometry.get("geometries") or ():
                if part.get("type") != "GeometryCollection":
                    _add_geometry(builder, image, label, part)
        case "LineString" | "MultiLineString":
            builder.notes.add("line_without_area", image.name)
        case _:
            builder.notes.add("damaged_mark", image.name)


def _parse_rings(rings: Any) -> Polygon:
    """Return a polygon of an outer ring and holes, each of which repeats its first point at the end."""
    return Polygon.from_points(*(list(_parse_ring(ring)) for ring in rings))


def _parse_ring(ring: Any) -> Iterator[tuple[float, float]]:
    points = [_parse_point(point) for point in ring]
    yield from points[:-1] if len(points) > 1 and points[0] == points[-1] else points


def _parse_point(point: Any) -> tuple[float, float]:
    return float(point[0]), float(point[1])
