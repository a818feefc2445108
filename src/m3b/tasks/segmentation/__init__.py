"""Segmentation: masks of the classes in an image."""

from m3b.tasks.segmentation.family import FAMILY
from m3b.tasks.segmentation.metrics import SegmentationCase, score_segmentation

__all__ = ["FAMILY", "SegmentationCase", "score_segmentation"]
