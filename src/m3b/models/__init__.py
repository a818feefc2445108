"""Delivered models: check a folder, load it, predict with it, stage test images for it."""

from .cards import write_metrics, write_model_card, write_provenance
from .deliverable import check_deliverable
from .freezing import Frozen, freeze
from .loading import Model, load_model
from .manifest import verify
from .output import check_output
from .predictions import BoxAnswer, Prediction, Promise
from .running import RunCommand, read_promise, run_plain, run_predict
from .staging import Staged, place_links, stage_cases

__all__ = [
    "BoxAnswer",
    "Frozen",
    "Model",
    "Prediction",
    "Promise",
    "RunCommand",
    "Staged",
    "check_deliverable",
    "check_output",
    "freeze",
    "load_model",
    "read_promise",
    "run_plain",
    "run_predict",
    "place_links",
    "stage_cases",
    "verify",
    "write_metrics",
    "write_model_card",
    "write_provenance",
]
