"""A model's answers in the true classes' names and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.models import Prediction
from m3b.tasks import get_family


def translate_answer(
    answer: Prediction, index: Index, model_values: Mapping[str, int], names: Mapping[str, str], record: Record, base: Path,
    scratch: Path,
) -> Prediction:  # fmt: skip
    """The answer as if the model had learnt the true names.

    Args:
        model_values: the model's class -> its number.
        names: the model's class -> the true class.

    Raises:
        ModelError: a true class that none of the model's stands for.
    """
    task_family = get_family(index.task)
    if not task_family.answers.requires_classes:
        return answer
    missing_classes = [name for name in index.classes if name not in names.values()]
    if missing_classes and ("labels" in task_family.records.targets or len(missing_classes) == len(index.classes)):
        raise ModelError(
            f"its classes {list(model_values)} do not say which of them means {', '.join(missing_classes)}"
        )
    if answer.probabilities:
        probabilities = {true_name: answer.probabilities[name] for name, true_name in names.items()}
        total = sum(probabilities.values())
        if len(probabilities) < len(answer.probabilities):
            probabilities = {
                name: value / total if total > 0 else 1 / len(probabilities) for name, value in probabilities.items()
            }
        predicted = tuple(names[name] for name in answer.prediction if name in names)
        answer = replace(answer, probabilities=probabilities, prediction=predicted)
    if answer.boxes is not None:
        boxes = tuple(replace(box, label=names[box.label]) for box in answer.boxes if box.label in names)
        answer = replace(answer, boxes=boxes)
    if answer.masks:
        answer = replace(answer, masks=_translate_masks(answer, index, names, record, base, scratch))
    return _renumber_mask(answer, index, model_values, names, record, base, scratch)


def _translate_masks(
    answer: Prediction, index: Index, names: Mapping[str, str], record: Record, base: Path, scratch: Path
) -> dict[str, Path]:
    """One mask a true class; a class that the model does not know is marked nowhere."""
    import numpy as np

    mask_files = {names[name]: file for name, file in answer.masks.items() if name in names}
    for name in index.classes:
        if name not in mask_files:
            mask_files[name] = write_mask_file(
                np.zeros(_image_shape(record, base), dtype=np.uint8), record, base, scratch
            )
    return {name: mask_files[name] for name in index.classes}


def _renumber_mask(
    answer: Prediction, index: Index, model_values: Mapping[str, int], names: Mapping[str, str], record: Record, base: Path,
    scratch: Path,
) -> Prediction:  # fmt: skip
    """The mask with the true numbers, where the model's are others."""
    if answer.mask is None:
        return answer
    value_map = {number: index.values[names[name]] for name, number in model_values.items() if name in names}
    if all(old == new for old, new in value_map.items()):
        return answer
    import numpy as np

    from m3b.data.reading import read_mask

    array = read_mask(str(answer.mask)).array
    new = np.zeros_like(array)
    for old, number in value_map.items():
        new[array == old] = number
    return replace(answer, mask=write_mask_file(new, record, base, scratch))


def _image_shape(record: Record, base: Path) -> tuple[int, ...]:
    from m3b.data.reading import geometry

    return tuple(geometry(image_reference(record), str(base)).shape)


def image_reference(record: Record) -> str | list[str] | dict[str, str]:
    """The image as readers take it."""
    return record.reference


def write_mask_file(array: object, record: Record, base: Path, scratch: Path) -> Path:
    """A mask file on the image's grid."""
    import uuid

    from m3b.data.reading import shared_masks

    return Path(
        shared_masks().write_mask(array, image_reference(record), str(scratch / f"mask-{uuid.uuid4().hex}"), str(base))
    )
