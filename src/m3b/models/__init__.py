"""Delivered models: check a folder, load it, predict with it, stage test images for it."""

from m3b.models.checksums import verify_integrity
from m3b.models.deliverable_check import check_deliverable
from m3b.models.frozen_copy import FrozenCopy, freeze
from m3b.models.model_card import write_metrics, write_model_card, write_provenance
from m3b.models.predict_process import CommandRunner, parse_predictions, read_model_info, run_predict, run_unconfined

from .loading import Model, load_model
from .predictions import DetectedBox, ModelInfo, Prediction, Saliency
from .staging import StagedCases, place_links, stage_cases

__all__ = [
    "DetectedBox",
    "FrozenCopy",
    "Model",
    "Prediction",
    "ModelInfo",
    "Saliency",
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
