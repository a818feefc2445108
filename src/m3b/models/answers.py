"""Answer formats: from the JSON of predict.py to the fields of a `Prediction`; and the registry of formats.

Each task defines its format in its package (`m3b.tasks`); `m3b.tasks.TaskFamily` has it as `answers`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from m3b.errors import ModelError
from m3b.markup.json_values import to_finite_number
from m3b.models.predictions import ModelInfo, Saliency
from m3b.plugins import TaskRegistry

RawAnswer = Mapping[str, Any]
"""One object of the JSON list that predict.py writes."""
MAX_MASK_BYTES = 4 * 2**30


class AnswerFormat(ABC):
    """The answer format of one task. Stateless; subclasses override what differs.

    Attributes:
        has_masks_option: whether predict.py takes `--masks DIR`, the folder for mask files; the network of such a model
            sees patches of an image.
        has_boxes: whether predictions hold boxes with scores.
        requires_classes: whether a model has to name its classes.
        usage: the model card's sentence on the form of a prediction, Markdown.
        baseline_description: the image-blind baseline, in the words of the model card.
        export_description: what the model does, for the metadata of an exported bundle.
    """

    has_masks_option: bool = False
    has_boxes: bool = False
    requires_classes: bool = True
    usage: str = "Each prediction is a JSON object with the key `image`."
    baseline_description: str = "the best answer that is the same for every image"
    export_description: str = "Medical images"

    @abstractmethod
    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        """Return the fields of a `Prediction` from the JSON of predict.py; unknown values go into `extra`.

        Args:
            location: which prediction it is, for messages.
            folder: the folder of predict.py's output; files that it names have to lie there.

        Raises:
            ModelError: something is missing or invalid.
        """

    def describe_details(self, details: Mapping[str, Any]) -> list[str]:
        """Return what the `details` of scores of this task hold as sentences of the model card, without a full stop."""
        return []

    def requires_output_folder(self) -> bool:
        """Return whether a prediction is useless without the files that predict.py writes."""
        return False

    def fits_dicom(self) -> bool:
        """Return whether predictions can be written as masks, classes or numbers in DICOM objects."""
        return True

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        """Return whether a model predicts mask files, numbered as in `model_info.labels`."""
        return False


def is_finite_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


MAX_REASON_CHARS = 500
"""Maximum length of an out-of-distribution reason."""
MAX_NOTES = 20
SALIENCY_METHODS = ("hirescam", "occlusion", "attention")


def parse_reliability(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    """Return the reliability fields of a `Prediction` that are present.

    Raises:
        ModelError: a field is invalid; the message names it.
    """
    fields: dict[str, Any] = {}
    is_ood = item.get("out_of_distribution")
    if is_ood is not None:
        if not isinstance(is_ood, bool):
            raise ModelError(f"{location}: `out_of_distribution` must be true or false, it is {is_ood!r}")
        fields |= {
            "out_of_distribution": is_ood,
            "why": str(item.get("why") or "")[:MAX_REASON_CHARS] if is_ood else "",
        }
    notes = item.get("notes")
    if notes is not None:
        if not isinstance(notes, list) or any(not isinstance(note, str) for note in notes):
            raise ModelError(f"{location}: `notes` must be a list of texts, it is {notes!r}")
        fields["notes"] = tuple(note[:MAX_REASON_CHARS] for note in notes[:MAX_NOTES])
    if item.get("prediction_set") is not None:
        fields |= _parse_prediction_set(location, item, model_info)
    return fields


def _parse_prediction_set(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    set_classes, level = item["prediction_set"], item.get("set_level")
    if (
        not isinstance(set_classes, list)
        or any(name not in model_info.classes for name in set_classes)
        or len(set(set_classes)) != len(set_classes)
    ):
        raise ModelError(f"{location}: `prediction_set` is {set_classes!r}; the classes are {list(model_info.classes)}")
    if not is_finite_number(level) or not 0 < level < 1:
        raise ModelError(f"{location}: `set_level` must be a share between 0 and 1, it is {level!r}")
    return {"prediction_set": tuple(set_classes), "set_level": float(level), "abstains": bool(item.get("abstains"))}


def parse_saliency(location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> Saliency | None:
    """Return what the answer depends on; None if the model was not asked for it, or could not say.

    Raises:
        ModelError: a field is invalid; the message names it.
    """
    raw = item.get("saliency")
    if raw is None or (isinstance(raw, dict) and "error" in raw):
        return None
    if not isinstance(raw, dict) or raw.get("method") not in SALIENCY_METHODS:
        raise ModelError(
            f"{location}: `saliency` must be an object with a `method` of {SALIENCY_METHODS}, it is {raw!r}"
        )
    target, outline = raw.get("class", ""), raw.get("outline")
    if target != "" and target not in model_info.classes:
        raise ModelError(
            f"{location}: `saliency` names the class {target!r}; the classes are {list(model_info.classes)}"
        )
    scores = [raw.get(name) for name in ("score", "score_hidden", "score_elsewhere")]
    numbers = [float(value) for value in scores if is_finite_number(value)]
    if len(numbers) != len(scores) or not isinstance(outline, int):
        raise ModelError(f"{location}: `saliency` lacks numbers, it is {raw!r}")
    return Saliency(resolve_output_file(location, raw.get("map"), folder), raw["method"], target, outline, *numbers)


def parse_masks(location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Path]:
    """Return the mask files that a prediction names in `masks`, one for each class.

    Raises:
        ModelError: a class is missing or unknown, or a file does not exist below `folder`.
    """
    masks = item["masks"]
    if not isinstance(masks, dict) or set(masks) != set(model_info.classes):
        mask_names = sorted(masks) if isinstance(masks, dict) else masks
        raise ModelError(
            f"{location}: `masks` must name one file for each of {sorted(model_info.classes)}; found {mask_names!r}"
        )
    return {name: resolve_output_file(location, masks[name], folder) for name in model_info.classes}


def resolve_output_file(location: str, name: Any, folder: Path | None) -> Path:
    """Return the path of a file that predict.py wrote; it must lie below the output folder and be no link.

    Raises:
        ModelError: there is no such file, or it is too large.
    """
    if not isinstance(name, str) or not name:
        raise ModelError(f"{location}: must name the mask file it wrote, in `mask` (or `masks`); found {name!r}")
    if folder is None:
        return Path(name)
    file = folder / name
    is_below_folder = file.resolve().is_relative_to(folder.resolve())
    if not is_below_folder or file.is_symlink() or not file.is_file():
        raise ModelError(f"{location}: the mask {name!r} is not a file below the folder of the output")
    if file.stat().st_size > MAX_MASK_BYTES:
        raise ModelError(f"{location}: the mask {name!r} has {file.stat().st_size} bytes, more than {MAX_MASK_BYTES}")
    return file


def describe_label_errors(details: Mapping[str, Any]) -> list[str]:
    """Return in how many test cases each label was missed entirely, or marked although it is not there; and ignored pixels."""
    phrases = {"missed": "missed altogether in", "invented": "marked where there is none in"}
    errors = [
        f"{name}: {phrase} {count} of the test cases"
        for key, phrase in phrases.items()
        for name, count in (details.get(key) or {}).items()
        if count
    ]
    return [*errors, *describe_boxed(details), *describe_ignored(details)]


def describe_ignored(details: Mapping[str, Any]) -> list[str]:
    """Return the sentence on test pixels that no figure counts; none if there are no such pixels."""
    share = to_finite_number(details.get("ignored_share"))
    return [f"{share:.1%} of the test pixels are labelled by nobody, and no figure counts them"] if share else []


def describe_boxed(details: Mapping[str, Any]) -> list[str]:
    """Return the sentence on figures of boxes; none if true masks are outlines."""
    return (
        ["the true masks are boxes, so the figures are of boxes, and nothing measures the outlines"]
        if details.get("boxed")
        else []
    )


_ANSWER_FORMATS: TaskRegistry[AnswerFormat] = TaskRegistry("kind of answers for")


def register_answer_format(task: str, answer_format: AnswerFormat) -> None:
    """Register the answer format of a task.

    Raises:
        ValueError: the task has another one.
    """
    _ANSWER_FORMATS.add(task, answer_format)


def answer_tasks() -> tuple[str, ...]:
    """Return the tasks with a known answer format."""
    return _ANSWER_FORMATS.names()


def answer_format_of(task: str) -> AnswerFormat:
    """Return the answer format of a task.

    Raises:
        ModelError: there is no such task.
    """
    answer_format = _ANSWER_FORMATS.get(task)
    if answer_format is None:
        raise ModelError(f"there is no task {task!r}; known are {', '.join(answer_tasks())}")
    return answer_format
