"""Segmentation by prompts: a model that can see, or a simulated person, draws boxes and points and corrects the mask."""

from __future__ import annotations

from m3b.interactive.agent import segment
from m3b.interactive.episode import Episode, Turn
from m3b.interactive.opening import open_segmenter
from m3b.interactive.prompts import BoxPrompt, Point
from m3b.interactive.result import SegmentationResult
from m3b.interactive.segmenter import MaskProposal, Segmenter

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
