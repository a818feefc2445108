"""What index files look like, a task each: JSON Schema, worked example and label dictionary."""

from __future__ import annotations

from typing import Any

from m3b.data import kinds
from m3b.data.kinds.covariates import COVARIATES
from m3b.data.kinds.detection import example_boxes
from m3b.data.kinds.parts import ATTRIBUTES, IMAGE

__all__ = ["example", "example_boxes", "example_labels", "json_schema"]


def json_schema(task: str = kinds.DEFAULT) -> dict[str, Any]:
    """JSON Schema of a task's `train.json` and `test.json`.

    Raises:
        DataError: there is no such task.
    """
    mine = kinds.of(task)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Index of {mine.title or f'a {task}'} data set: train.json or test.json",
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["image_path", *mine.needed, "patient"],
            **mine.choice(),
            "additionalProperties": True,
            "properties": {
                "image_path": {"anyOf": IMAGE},
                **({kinds.SEVERAL: {"const": kinds.VIEWS}} if mine.takes_views else {}),
                **mine.properties(),
                "patient": {"type": "string", "minLength": 1},
                **({"covariates": COVARIATES} if mine.takes_covariates else {}),
                "attributes": ATTRIBUTES,
            },
        },
    }


def example(task: str = kinds.DEFAULT) -> list[dict[str, Any]]:
    """A few cases, one for each way in which an image and what is known of it can be named."""
    return kinds.of(task).example()


def example_labels(task: str = kinds.DEFAULT) -> dict[str, int]:
    """The label dictionary that goes with `example(task)`."""
    return kinds.of(task).example_labels()
