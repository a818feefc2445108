"""configs/metadata.json of a MONAI bundle, by MONAI's bundle specification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from m3b.models.answers import answer_format_of, answer_tasks

from .child import package_versions

_RELATIVE = re.compile("([@%])(?=#|::)")
SCHEMA_URL = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"  # MONAI's


def make_metadata(facts: Mapping[str, Any], state: Mapping[str, Any], summary: str) -> dict[str, Any]:
    """The file's content.

    Args:
        facts: what the deliverable's `parts.facts()` says.
        state: `inputs` and `outputs`, the shapes of one pass through the network.
        summary: the model card's title.
    """
    installed = package_versions("monai", "torch", "numpy")
    content = {
        "schema": SCHEMA_URL,
        "version": "1.0.0",
        "changelog": {"1.0.0": "exported"},
        "monai_version": installed["monai"],
        "pytorch_version": installed["torch"],
        "numpy_version": installed["numpy"],
        "required_packages_version": package_versions("nibabel", "pydicom", "simpleitk", "pillow", "h5py"),
        "task": answer_format_of(task).export_description
        if (task := str(facts.get("task"))) in answer_tasks()
        else "Medical images",
        "description": summary,
        "authors": "Made with m3b",
        "copyright": "That of whoever trained the model and of the owners of the data",
        "intended_use": "Research. Not a medical device.",
        "preprocessing": facts.get("preprocessing", {}),
        "classes": list(facts.get("classes", [])),
        "network_data_format": {"inputs": _describe_inputs(facts, state), "outputs": _describe_outputs(facts, state)},
    }
    return {key: as_data(value) for key, value in content.items()}


def as_data(value: Any) -> Any:
    """Return JSON content in which MONAI's bundle parser finds no program: a space is put in front of its signs.

    MONAI runs a string that begins with `$`, replaces one that begins with `%` by a file or another entry and one that
    is `@name` by that entry, resolves `@#` and `%#` anywhere, and calls what `_target_` names. Class and channel names
    come from the data and may hold any of these.
    """
    if isinstance(value, Mapping):
        return {_plain_key(str(key)): as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _RELATIVE.sub(r"\1 ", value)
    return f" {text}" if text.startswith(("$", "@", "%")) else text


def _plain_key(key: str) -> str:
    text = key.replace("::", ": :")
    return f" {text}" if text.startswith(("_", "+", "~", "$", "@", "%")) else text


def _describe_inputs(facts: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    shape = state["inputs"][0]
    return {
        "image": {
            "type": "image",
            "format": "magnitude",
            "num_channels": shape[1],
            "spatial_shape": shape[2:],
            "dtype": "float32",
            "value_range": [],
            "is_patch_data": _is_patch_based(facts),
            "channel_def": _channel_definitions(facts, state),
        }
    }


def _channel_definitions(facts: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, str]:
    """What each entry of the input's second axis is: a channel in the model's order, the last repeated, or a view."""
    image, number = facts.get("image") or {}, state["inputs"][0][1]
    if image.get("views"):
        return {str(index): f"view {index + 1}" for index in range(number)}
    names = image.get("channel_names") or ["image"]
    return {str(index): names[min(index, len(names) - 1)] for index in range(number)}


def _describe_outputs(facts: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    shape = state["outputs"][0]
    names = list(facts.get("channels") or facts.get("classes") or [])
    channel_names = {str(channel): names[channel] if channel < len(names) else "output" for channel in range(shape[1])}
    return {
        "pred": {
            "type": "image" if len(shape) > 2 else "probabilities",
            "format": "segmentation" if len(shape) > 2 else "classes",
            "num_channels": shape[1],
            "spatial_shape": shape[2:],
            "dtype": "float32",
            "value_range": [0, 1],
            "is_patch_data": _is_patch_based(facts),
            "channel_def": channel_names,
        }
    }


def _is_patch_based(facts: Mapping[str, Any]) -> bool:
    task = str(facts.get("task"))
    return task in answer_tasks() and answer_format_of(task).is_patch_based
