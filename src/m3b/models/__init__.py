"""Delivered models: check a folder, load it, predict with it, stage test images for it."""

from .cards import write_metrics, write_model_card, write_provenance
from .deliverable import check_deliverable
from .freezing import FrozenCopy, freeze
from .loading import Model, load_model
from .manifest import verify_integrity
from .output import parse_predictions
from .predictions import DetectedBox, ModelInfo, Prediction
from .running import CommandRunner, read_model_info, run_predict, run_unconfined
from .staging import StagedCases, place_links, stage_cases

__all__ = [
    "DetectedBox",
    "FrozenCopy",
    "Model",
    "Prediction",
    "ModelInfo",
    "CommandRunner",
    "StagedCases",
    "check_deliverable",
    "parse_predictions",
    "freeze",
    "load_model",
    "read_model_info",
    "run_unconfined",
    "run_predict",
    "place_links",
    "stage_cases",
    "verify_integrity",
    "write_metrics",
    "write_model_card",
    "write_provenance",
]
