"""The control: what is left of the figure when every image is another patient's. A model that looks loses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.index import Index, Record
from m3b.models import Prediction
from m3b.tasks import get_family

from .naming import image_reference, write_mask_file

SHUFFLE_COUNT, MASK_SHUFFLE_COUNT = 20, 2


def compute_shuffled_metric(
    index: Index, answers: Sequence[Prediction], base: Path, scratch: Path, metric: str
) -> dict[str, Any]:
    """`value` (mean of the primary metric over shuffles) and `shuffles`; `value` is None where it cannot be told."""
    random = np.random.default_rng(0)
    has_masks = any(answer.mask is not None or answer.masks for answer in answers)
    repeats = MASK_SHUFFLE_COUNT if has_masks else SHUFFLE_COUNT
    task_family, values = get_family(index.task), []
    patients = [record.patient for record in index.test]
    for _ in range(repeats):
        order = derange(patients, random)
        rows = [
            task_family.measure(record, _transfer_answer(answers[other_case], record, base, scratch), index, base)
            for record, other_case in zip(index.test, order, strict=True)
        ]
        try:
            values.append(task_family.score_all(rows, index, primary=metric).primary.value)
        except ValueError:
            break
    finite_values = [value for value in values if np.isfinite(value)]
    return {"value": float(np.mean(finite_values)) if finite_values else None, "shuffles": len(finite_values)}


def _transfer_answer(answer: Prediction, record: Record, base: Path, scratch: Path) -> Prediction:
    """Somebody else's answer, its masks brought onto this image's grid by cutting or padding around the middle."""
    if answer.mask is not None:
        return replace(answer, mask=_fit_mask_to_image(answer.mask, record, base, scratch))
    if answer.masks:
        return replace(
            answer, masks={k: _fit_mask_to_image(file, record, base, scratch) for k, file in answer.masks.items()}
        )
    return answer


def _fit_mask_to_image(file: Path, record: Record, base: Path, scratch: Path) -> Path:
    from m3b.data.reading import geometry, read_mask

    array, shape = read_mask(str(file)).array, tuple(geometry(image_reference(record), str(base)).shape)
    fitted = np.zeros(shape, dtype=array.dtype)
    target_slices, source_slices = [], []
    for size, source_size in zip(shape, array.shape, strict=True):
        common_size = min(size, source_size)
        target_slices.append(slice((size - common_size) // 2, (size - common_size) // 2 + common_size))
        source_slices.append(slice((source_size - common_size) // 2, (source_size - common_size) // 2 + common_size))
    fitted[tuple(target_slices)] = array[tuple(source_slices)]
    return write_mask_file(fitted, record, base, scratch)


def derange(patients: Sequence[str], random: np.random.Generator) -> list[int]:
    """For every case another patient's case, as far as there are enough of them."""
    order = [int(index) for index in random.permutation(len(patients))]
    for position in range(len(order)):
        if patients[position] != patients[order[position]]:
            continue
        for candidate in random.permutation(len(order)):
            if patients[position] != patients[order[candidate]] and patients[candidate] != patients[order[position]]:
                order[position], order[candidate] = order[candidate], order[position]
                break
    return order
