"""Small folders for tests of proposals."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from m3b.dataset.manifest.model import Task
from m3b.dataset.proposals.decide import decide, list_candidates
from m3b.dataset.proposals.image_sets import list_image_sets
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


def write_mask(
    path: Path, seed: int, values: tuple[int, ...] = (255,), size: tuple[int, int] = (40, 48), shift: int = 0
) -> None:
    """Write a mask with one square a value; `shift` moves them, as a second observer sees them elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    mask = np.zeros(size, np.uint8)
    for place, value in enumerate(values):
        top, left = int(rng.integers(2, 14)) + shift, 4 + 14 * place
        mask[top : top + 10, left : left + 10] = value
    Image.fromarray(mask).save(path)


def decide_folder(folder: Path, request: str) -> Outcome:
    """Survey a folder and decide how it is read for a request."""
    inventory = walk(folder)
    survey = survey_inventory(inventory, SurveyLimits())
    outcome = decide(survey, inventory, parse(request, "\n".join(document.text for document in survey.documents)))
    assert "candidate_failed" not in [fact.code for item in outcome.proposals for fact in item.evidence]
    return outcome


def write_rows(path: Path, rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_dicom(path: Path, seed: int, tags: Mapping[str, Any]) -> None:
    """Write a CT slice of its own patient."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(seed)])
    image = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    image.PatientID, image.SeriesInstanceUID = f"P{seed}", generate_uid(entropy_srcs=[f"series {seed}"])
    image.Modality, image.Rows, image.Columns, image.SamplesPerPixel = "CT", 40, 48, 1
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 12, 11, 0
    image.PhotometricInterpretation = "MONOCHROME2"
    image.PixelData = np.random.default_rng(seed).integers(0, 4000, (40, 48), np.uint16).tobytes()
    for keyword, value in tags.items():
        setattr(image, keyword, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save_as(path, enforce_file_format=True)


def list_targets(folder: Path, request: str, task: Task) -> set[str]:
    """Return the titles of all targets that a folder could have for a task."""
    inventory = walk(folder)
    survey = survey_inventory(inventory, SurveyLimits())
    candidates = list_candidates(survey, list_image_sets(survey, inventory), parse(request), (task,))
    return {candidate.target.title for candidate in candidates}
