"""The control: what is left of the figure when every image is another patient's. A model that looks loses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.index import Index, Record
from m3b.models import Prediction
from m3b.tasks import family

from .naming import image, write

SHUFFLES, SHUFFLES_OF_MASKS = 20, 2


def shuffled_figure(
    index: Index, answers: Sequence[Prediction], base: Path, scratch: Path, metric: str
) -> dict[str, Any]:
    """`value` (mean of the primary metric over shuffles) and `shuffles`; `value` is None where it cannot be told."""
    random = np.random.default_rng(0)
    masked = any(answer.mask is not None or answer.masks for answer in answers)
    times = SHUFFLES_OF_MASKS if masked else SHUFFLES
    of_task, found = family(index.task), []
    patients = [record.patient for record in index.test]
    for _ in range(times):
        order = derange(patients, random)
        rows = [
            of_task.measure(record, _moved(answers[other], record, base, scratch), index, base)
            for record, other in zip(index.test, order, strict=True)
        ]
        try:
            found.append(of_task.score_all(rows, index, primary=metric).primary.value)
        except ValueError:
            break
    known = [value for value in found if np.isfinite(value)]
    return {"value": float(np.mean(known)) if known else None, "shuffles": len(known)}


def _moved(answer: Prediction, record: Record, base: Path, scratch: Path) -> Prediction:
    """Somebody else's answer, its masks brought onto this image's grid by cutting or padding around the middle."""
    if answer.mask is not None:
        return replace(answer, mask=_fitted(answer.mask, record, base, scratch))
    if answer.masks:
        return replace(answer, masks={k: _fitted(file, record, base, scratch) for k, file in answer.masks.items()})
    return answer


def _fitted(file: Path, record: Record, base: Path, scratch: Path) -> Path:
    from m3b.data.reading import geometry, read_mask

    array, shape = read_mask(str(file)).array, tuple(geometry(image(record), str(base)).shape)
    fitted = np.zeros(shape, dtype=array.dtype)
    ours, theirs = [], []
    for size, other in zip(shape, array.shape, strict=True):
        common = min(size, other)
        ours.append(slice((size - common) // 2, (size - common) // 2 + common))
        theirs.append(slice((other - common) // 2, (other - common) // 2 + common))
    fitted[tuple(ours)] = array[tuple(theirs)]
    return write(fitted, record, base, scratch)


def derange(patients: Sequence[str], random: np.random.Generator) -> list[int]:
    """For every case another patient's case, as far as there are enough of them."""
    order = [int(one) for one in random.permutation(len(patients))]
    for place in range(len(order)):
        if patients[place] != patients[order[place]]:
            continue
        for other in random.permutation(len(order)):
            if patients[place] != patients[order[other]] and patients[other] != patients[order[place]]:
                order[place], order[other] = order[other], order[place]
                break
    return order
