"""What index files look like, a task each: JSON Schema, worked example and label dictionary."""

from __future__ import annotations

from typing import Any, Final

from m3b.errors import DataError

TASKS: Final = ("diagnosis", "segmentation", "detection", "report")
"""The four task families."""

_PATH: Final = {"type": "string", "minLength": 1}
_NAMES: Final = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_MASK: Final = [
    _PATH,
    {"type": "array", "items": _PATH, "minItems": 1},
    {"type": "object", "additionalProperties": _PATH, "minProperties": 1},
]
_NUMBERS: Final = {"type": "array", "items": {"type": "number"}}
_BOX: Final = {
    "type": "object",
    "required": ["label", "box"],
    "properties": {
        "label": {"type": "string", "minLength": 1},
        "box": {"anyOf": [{**_NUMBERS, "minItems": size, "maxItems": size} for size in (4, 6)]},
    },
}
_REPORT: Final = {
    "type": "object",
    "required": ["findings", "impression"],
    "properties": {"findings": {"type": "string"}, "impression": {"type": "string"}},
}
_TARGETS: Final[dict[str, dict[str, Any]]] = {
    "diagnosis": {"labels": _NAMES},
    "segmentation": {"mask_path": {"anyOf": _MASK}},
    "detection": {"mask_path": {"anyOf": [*_MASK, {"type": "null"}]}, "boxes": {"type": "array", "items": _BOX}},
    "report": {"report": _REPORT, "labels": _NAMES},
}


def known(task: str) -> str:
    """The task itself, or DataError."""
    if task in TASKS:
        return task
    raise DataError(f"There is no task {task!r}; there are {', '.join(TASKS)}.")


def json_schema(task: str = "diagnosis") -> dict[str, Any]:
    """JSON Schema of a task's `train.json` and `test.json`."""
    article = {"diagnosis": "a diagnosis", "segmentation": "a segmentation", "detection": "a detection"}
    targets = _TARGETS[known(task)]
    choice = {"oneOf": [{"required": ["mask_path"]}, {"required": ["boxes"]}]} if task == "detection" else {}
    needed = {"diagnosis": ["labels"], "segmentation": ["mask_path"], "detection": [], "report": ["report"]}[task]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Index of {article.get(task, 'a report')} data set: train.json or test.json",
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["image_path", *needed, "patient"],
            **choice,
            "additionalProperties": True,
            "properties": {
                "image_path": {"anyOf": [_PATH, {"type": "array", "items": _PATH, "minItems": 1}]},
                **targets,
                "patient": {"type": "string", "minLength": 1},
            },
        },
    }


def example(task: str = "diagnosis") -> list[dict[str, Any]]:
    """A few cases, one for each way in which an image and what is known of it can be named."""
    return {
        "diagnosis": _diagnosis(),
        "segmentation": _segmentation(),
        "detection": _detection(),
        "report": _report(),
    }[known(task)]


def example_labels(task: str = "diagnosis") -> dict[str, int]:
    """The label dictionary that goes with `example(task)`."""
    labels: dict[str, dict[str, int]] = {
        "diagnosis": {"normal": 0, "pneumonia": 1},
        "segmentation": {"spleen": 1, "liver": 6},
        "detection": {"nodule": 1, "effusion": 2},
        "report": {"cardiomegaly": 0, "effusion": 1},
    }
    return labels[known(task)]


def _diagnosis() -> list[dict[str, Any]]:
    return [
        {"image_path": "data/chest/images/p001_a.png", "labels": ["pneumonia"], "patient": "p001"},
        {"image_path": "data/chest/ct/p002/scan1", "labels": ["normal"], "patient": "p002"},
        {"image_path": ["data/chest/s/1.png", "data/chest/s/2.png"], "labels": ["normal"], "patient": "p003"},
        {"image_path": "data/chest/archive.npz#train_images[17]", "labels": ["pneumonia"], "patient": "p004"},
    ]


def _segmentation() -> list[dict[str, Any]]:
    return [
        {"image_path": "data/ct/i/01.nii.gz", "mask_path": "data/ct/l/01.nii.gz", "patient": "p001"},
        {"image_path": "data/ct/dicom/02", "mask_path": "Datapath/masks/02.nii.gz", "patient": "p002"},
        {"image_path": "data/ct/a.npz#images[3]", "mask_path": "data/ct/a.npz#masks[3]", "patient": "p003"},
        {
            "image_path": ["data/ct/04/1.png", "data/ct/04/2.png"],
            "mask_path": ["data/ct/04m/1.png", "data/ct/04m/2.png"],
            "patient": "p004",
        },
    ]


def _detection() -> list[dict[str, Any]]:
    return [
        {"image_path": "data/ct/i/01.nii.gz", "mask_path": "data/ct/l/01.nii.gz", "patient": "p001"},
        {
            "image_path": "data/ct/i/02.nii.gz",
            "mask_path": {"nodule": "data/ct/nodule/02.nii.gz", "effusion": "data/ct/effusion/02.nii.gz"},
            "patient": "p002",
        },
        {"image_path": "data/ct/i/03.nii.gz", "mask_path": None, "patient": "p003"},
    ]


def example_boxes() -> list[dict[str, Any]]:
    """Detection with boxes in place of masks: a picture, a volume and a healthy picture. Labels count from 0."""
    return [
        {
            "image_path": "data/chest/i/01.png",
            "boxes": [{"label": "nodule", "box": [31, 20.5, 44, 38]}],
            "patient": "p001",
        },
        {
            "image_path": "data/ct/i/02.nii.gz",
            "boxes": [
                {"label": "nodule", "box": [101, 88, 12, 109, 97, 17]},
                {"label": "effusion", "box": [20, 40, 3, 80, 130, 30]},
            ],
            "patient": "p002",
        },
        {"image_path": "data/chest/i/03.png", "boxes": [], "patient": "p003"},
    ]


def _report() -> list[dict[str, Any]]:
    return [
        {
            "image_path": ["data/cxr/01/frontal.png", "data/cxr/01/lateral.png"],
            "report": {"findings": "The heart is enlarged. No effusion.", "impression": "Cardiomegaly."},
            "labels": ["cardiomegaly"],
            "patient": "p001",
        },
        {
            "image_path": "data/cxr/02.png",
            "report": {"findings": "The heart is of normal size. The lungs are clear.", "impression": ""},
            "labels": [],
            "patient": "p002",
        },
        {
            "image_path": "data/ct/03.nii.gz",
            "report": {"findings": "", "impression": "Small pleural effusion on the left."},
            "patient": "p003",
        },
    ]
