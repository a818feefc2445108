"""Detection: lesions as masks or boxes, and a score for the image as a whole."""

from m3b.tasks.detection.family import FAMILY
from m3b.tasks.detection.lesions import LesionCounts, match_lesions, measure_channels
from m3b.tasks.detection.metrics import DetectionCase, score_detection

__all__ = ["DetectionCase", "FAMILY", "LesionCounts", "match_lesions", "measure_channels", "score_detection"]
