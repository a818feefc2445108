"""Segmentation by prompts: a vision model, or a simulated user, sets boxes and points and corrects the mask."""

from __future__ import annotations

from m3b.interactive.agent import segment
from m3b.interactive.episode import Episode, SegmentationResult, Turn
from m3b.interactive.segmenter import BoxPrompt, MaskProposal, Point, Segmenter
from m3b.interactive.segmenters.loading import open_segmenter

__all__ = [
    "BoxPrompt",
    "Episode",
    "Point",
    "MaskProposal",
    "SegmentationResult",
    "Segmenter",
    "Turn",
    "open_segmenter",
    "segment",
]
