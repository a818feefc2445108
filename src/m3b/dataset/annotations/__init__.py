"""Annotations that people drew: one class a format, all of which give boxes, masks, points and texts by image.

    sources = detect_annotations(inventory)                    # or: get_annotation_format("coco").load(paths, root)
    images = sources[0].annotations.match(image_paths)         # path -> AnnotatedImage
    annotations.boxes(image, ImageSize(width, height, exif_orientation))   # [(class, (x0, y0, x1, y1))], upright pixels
    annotations.masks(image, ImageSize(...))                   # {class: (height, width) bool}; of volumes with a VolumeGrid

Tables of boxes and of run lengths are found and measured by `box_tables` and `run_tables`.
"""

from __future__ import annotations

from m3b.dataset.annotations.base import (
    UNNAMED,
    AnnotatedImage,
    AnnotationFormat,
    AnnotationNote,
    AnnotationSet,
    Mark,
    VolumeAnnotationSet,
)
from m3b.dataset.annotations.geometry import ImageSize, Polygon, VolumeGrid
from m3b.dataset.annotations.registry import (
    ANNOTATIONS,
    AnnotationSource,
    detect_annotations,
    get_annotation_format,
    register_annotation_format,
)

__all__ = [
    "ANNOTATIONS",
    "UNNAMED",
    "AnnotatedImage",
    "AnnotationFormat",
    "AnnotationNote",
    "AnnotationSet",
    "AnnotationSource",
    "ImageSize",
    "Mark",
    "Polygon",
    "VolumeAnnotationSet",
    "VolumeGrid",
    "detect_annotations",
    "get_annotation_format",
    "register_annotation_format",
]
