"""Small folders for tests of proposals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from m3b.dataset.proposals.decide import decide
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk


def write_picture(path: Path, seed: int, *, size: tuple[int, int] = (40, 48)) -> None:
    """Write a grey picture of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    base = np.add.outer(np.arange(size[0]), np.arange(size[1])) + rng.integers(0, 90, size)
    Image.fromarray(base.astype(np.uint8)).save(path)


def write_mask(path: Path, seed: int, values: tuple[int, ...] = (255,), size: tuple[int, int] = (40, 48)) -> None:
    """Write a mask with one square a value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    mask = np.zeros(size, np.uint8)
    for place, value in enumerate(values):
        top, left = int(rng.integers(2, 14)), 4 + 14 * place
        mask[top : top + 10, left : left + 10] = value
    Image.fromarray(mask).save(path)


def decide_folder(folder: Path, request: str) -> Outcome:
    """Survey a folder and decide how it is read for a request."""
    inventory = walk(folder)
    survey = survey_inventory(inventory, SurveyLimits())
    return decide(survey, inventory, parse(request, "\n".join(document.text for document in survey.documents)))
