"""Create ML: a JSON list of images with `annotations`, whose `coordinates` are the centre and size of a box in pixels
(https://developer.apple.com/documentation/createml/building-an-object-detector-data-source)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.documents import load_each, read_json
from m3b.dataset.annotations.names import clean_name
from m3b.errors import DataError

IMAGE_KEYS = ("image", "imagefilename")
LIST_KEYS = ("annotations", "annotation")


class CreateMl(AnnotationFormat):
    """Boxes of Create ML."""

    name = "createml"
    suffixes = (".json",)

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the list begins with an image whose annotations have coordinates."""
        words = (b'"image', b'"coordinates"', b'"annotation')
        return head.lstrip().startswith(b"[") and all(word in head for word in words)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the boxes of documents; an image without annotations has no objects."""
        builder = SetBuilder(self.name)
        for path, images in load_each(
            paths, self.name, lambda path: _check(read_json(root, path), path), builder.notes
        ):
            for name, marks in images:
                keys = (str(PurePosixPath(path).parent / name),)
                image = builder.add_image(name, path, keys)
                for mark in marks:
                    try:
                        place = mark["coordinates"]
                        x, y, width, height = (float(place[key]) for key in ("x", "y", "width", "height"))
                        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
                        builder.add_box(image, str(mark.get("label") or "").strip(), box)
                    except (ValueError, TypeError, KeyError):
                        builder.notes.add("damaged_mark", name)
        return builder.finish()


def _check(document: Any, path: str) -> list[tuple[str, list[Any]]]:
    """Return (name, marks) of each image."""
    images = []
    for entry in document if isinstance(document, list) and document else [None]:
        keys = entry if isinstance(entry, dict) else {}
        name = next((keys[key] for key in IMAGE_KEYS if isinstance(keys.get(key), str)), "")
        marks = next((keys[key] for key in LIST_KEYS if isinstance(keys.get(key), list)), None)
        if not name or marks is None:
            raise DataError(f"{path} is no Create ML document: no images with annotations.", code="not_this_format")
        images.append((clean_name(name), marks))
    return images
