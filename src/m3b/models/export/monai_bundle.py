"""MONAI bundles: configs, weights and the delivered code, run and checked by MONAI's own tools."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.isolation import untrusted
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader
from m3b.isolation.untrusted import copy_file
from m3b.models.answers import answer_format_of, answer_tasks
from m3b.models.export.worker import (
    MAX_EXPORT_DIFFERENCE,
    STEP_TITLES,
    ChildProcesses,
    ExportResult,
    check_difference,
    package_versions,
    require_packages,
    write_json,
)
from m3b.models.loading import MAX_CARD_BYTES
from m3b.models.model_card import escape_markdown
from m3b.models.predict_process import read_raw_predictions
from m3b.resources import get_resources_folder

_MASK_KEYS = ("mask", "masks")
_IMAGE_ONLY_KEYS = ("out_of_distribution", "why")
"""Fields about the image rather than the network's answer; the bundle of a classifier only has the network."""


@dataclass(frozen=True)
class OutputsToCompare:
    """Two predictions.json at absolute paths, both written by a model's own code."""

    first: Path
    second: Path


COMPARE = WorkerJob("m3b.models.export.monai_bundle:compare_outputs", OutputsToCompare, float, 600.0)


def compare_outputs(outputs: OutputsToCompare) -> float:
    """Worker job: return the `largest_difference` of two outputs, whose masks the reader opens. Raises ModelError."""
    first, second = outputs.first, outputs.second
    return largest_difference(read_raw_predictions(first), read_raw_predictions(second), first, second)


def largest_difference(first: Any, second: Any, first_file: Path, second_file: Path, location: str = "") -> float:
    """Return the largest difference of any number, or of any share of voxels in which masks disagree.

    Args:
        first: JSON values, the content of `first_file`.
        second: likewise; mask paths are relative to the folder of their file.
        location: for messages.

    Raises:
        ModelError: they differ in type, length, keys or text.
    """
    first, second = (_drop_image_only_keys(value) for value in (first, second))
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        differences = [
            _mask_difference(first[key], second[key], first_file, second_file, f"{location}.{key}")
            if key in _MASK_KEYS and first[key] is not None
            else largest_difference(first[key], second[key], first_file, second_file, f"{location}.{key}")
            for key in first
        ]
        return max(differences, default=0.0)
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return max(
            (largest_difference(a, b, first_file, second_file, f"{location}[{i}]") for i, (a, b) in pairs), default=0.0
        )
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second)]
    if all(numbers):
        return abs(float(first) - float(second))
    if first != second:
        raise ModelError(
            f"predictions differ at {location or 'the top'}: {str(first)[:120]!r} and {str(second)[:120]!r}"
        )
    return 0.0


def _drop_image_only_keys(value: Any) -> Any:
    return (
        {key: entry for key, entry in value.items() if key not in _IMAGE_ONLY_KEYS}
        if isinstance(value, dict)
        else value
    )


def _mask_difference(first: Any, second: Any, first_file: Path, second_file: Path, location: str) -> float:
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        pairs = [_mask_difference(first[k], second[k], first_file, second_file, f"{location}.{k}") for k in first]
        return max(pairs, default=0.0)
    if not isinstance(first, str) or not isinstance(second, str):
        raise ModelError(f"predictions differ at {location}: {first!r} and {second!r}")
    from m3b.dataset.reading import read_image

    first_mask = read_image(first, str(first_file.parent)).array
    second_mask = read_image(second, str(second_file.parent)).array
    if first_mask.shape != second_mask.shape:
        raise ModelError(f"predictions differ at {location}: masks of shape {first_mask.shape} and {second_mask.shape}")
    return float((first_mask != second_mask).mean())


_RELATIVE = re.compile("([@%])(?=#|::)")
SCHEMA_URL = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"  # MONAI's


def make_metadata(facts: Mapping[str, Any], state: Mapping[str, Any], summary: str) -> dict[str, Any]:
    """Return the content of configs/metadata.json.

    Args:
        facts: the result of the deliverable's `parts.facts()`.
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
    """Return JSON content in which MONAI's bundle parser finds no program: a space goes before special characters.

    MONAI runs a string that begins with `$`, replaces one that begins with `%` by a file or another entry and one that
    is `@name` by that entry, resolves `@#` and `%#` anywhere, and calls what `_target_` names. Class and channel names
    come from the data and may contain any of these.
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
    """Return the meaning of each index of the input's channel axis.

    It is a channel in the model's order (the last one repeated), or a view.
    """
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
    return task in answer_tasks() and answer_format_of(task).has_masks_option


_EXCLUDED_PATTERNS = (
    "*.safetensors",
    "__pycache__",
    "*.pyc",
    "README.md",
    "metrics.json",
    "provenance.json",
    "requirements.txt",
)


def to_bundle(source: Path, target: Path, children: ChildProcesses) -> ExportResult:
    """Write the bundle of a deliverable into `target`; MONAI loads it, checks its shapes and runs it on the images."""
    require_packages(("torch", "monai"), "train")
    for name in ("configs", "models", "docs", "scripts"):
        (target / name).mkdir()
    images, output_folder = children.images, children.folder("state")
    state = children.act("state", source, {"images": images, "out": str(output_folder)}, output_folder)
    copy_file(output_folder, "model.pt", target / "models", "model.pt")
    _copy_code(source, target / "scripts" / "deliverable")
    shutil.copy(get_resources_folder() / "exports" / "bridge.py", target / "scripts" / "bridge.py")
    (target / "scripts" / "__init__.py").write_text('"""Code of the bundle."""\n', encoding="utf-8")
    facts = state["facts"]
    if covariate_names := facts.get("beside"):
        problem = f"a MONAI bundle takes an image alone, and this model is given {', '.join(covariate_names)} too"
        raise ModelError(f"{problem}; export it to ONNX")
    write_json(target / "configs" / "inference.json", inference_config(state["simple"]))
    write_json(target / "configs" / "metadata.json", make_metadata(facts, state, _read_card_title(source)))
    out = children.folder("bundle") / "predictions.json"
    request = {"images": images, "out": str(out), "pair": str(output_folder / "pair.npz")}
    largest = float(children.act("bundle", target, request, out.parent, (output_folder,))["network_difference"])
    check_difference(largest, "the bundle's network")
    if images:
        largest = max(largest, _compare_predictions(source, children, out))
        check_difference(largest, "the bundle's prediction")
    compared = f"the predictions of {len(images)} image(s)" if images else "the network's output on noise"
    _remove_caches(target)
    (target / "docs" / "README.md").write_text(_readme(facts, state["simple"], compared, largest), encoding="utf-8")
    return ExportResult("monai-bundle", target, compared, largest)


def inference_config(is_single_input: bool) -> dict[str, Any]:
    """Return configs/inference.json. `is_single_input`: one image is one input, as MONAI's own classes expect."""
    common = {
        "imports": ["$import sys", "$import torch", "$import pathlib"],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/images'",
        "images": "$[str(file) for file in sorted(pathlib.Path(@dataset_dir).iterdir()) if file.is_file()]",
        "output": "$@bundle_root + '/predictions.json'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "search_path": "$sys.path.insert(0, @bundle_root)",
        "network_def": {"_target_": "scripts.bridge.network", "_requires_": "@search_path"},
        "network": {
            "_target_": "scripts.bridge.trained",
            "module": "@network_def",
            "file": "$@bundle_root + '/models/model.pt'",
            "device": "@device",
        },
    }
    pipeline_entries = {
        "dataset_data": "$[{'image': path} for path in @images]",
        "preprocessing": {
            "_target_": "monai.transforms.Compose",
            "transforms": [{"_target_": "scripts.bridge.Prepare", "key": "image", "_requires_": "@search_path"}],
        },
        "dataset": {"_target_": "monai.data.Dataset", "data": "@dataset_data", "transform": "@preprocessing"},
        "inferer": {"_target_": "monai.inferers.SimpleInferer"},
        "postprocessing": {
            "_target_": "monai.transforms.Compose",
            "transforms": [{"_target_": "scripts.bridge.Answer", "_requires_": "@search_path"}],
        },
        "evaluator": {
            "_target_": "scripts.bridge.Evaluator",
            "_requires_": "@search_path",
            **{name: f"@{name}" for name in ("device", "dataset", "network", "inferer", "postprocessing", "output")},
        },
    }
    workflow_entries = {
        "evaluator": {
            "_target_": "scripts.bridge.Workflow",
            "_requires_": "@search_path",
            **{name: f"@{name}" for name in ("network", "images", "output")},
        }
    }
    return {
        **common,
        **(pipeline_entries if is_single_input else workflow_entries),
        "initialize": [],
        "run": ["$@evaluator.run()"],
    }


def _compare_predictions(source: Path, children: ChildProcesses, bundle_output: Path) -> float:
    """Return the largest difference between the predictions of the bundle and of predict.py, masks included."""
    list_file, model_output = children.scratch / "asked.json", children.folder("predict") / "predictions.json"
    list_file.write_text(json.dumps(children.images), encoding="utf-8")
    argv = [sys.executable, "-B", str(source / "predict.py"), "--list", str(list_file), "-o", str(model_output)]
    children.on_step(STEP_TITLES["predict"])
    status, log = children.run(argv, model_output.parent, (source, list_file))
    if status not in (0, 1) or not model_output.is_file():
        raise ModelError(f"predict.py ended with status {status} and printed: {log.strip()[-800:] or 'nothing'}")
    if not bundle_output.is_file():
        raise ModelError("the bundle ran without writing predictions")
    with open_reader([model_output, bundle_output]) as reader:
        return reader.run_job(COMPARE, OutputsToCompare(model_output.resolve(), bundle_output.resolve()))


def _copy_code(source: Path, target: Path) -> None:
    """Copy the deliverable's code without weights, caches and texts.

    Raises:
        ModelError: it holds a link or a special file.
    """
    try:
        for entry in untrusted.walk(source, skip=("__pycache__",)):
            if entry.kind == "folder" or any(fnmatch(Path(entry.name).name, pattern) for pattern in _EXCLUDED_PATTERNS):
                continue
            target.mkdir(exist_ok=True)
            untrusted.copy_file(source, entry.name, target, entry.name)
    except untrusted.UnsafePathError as error:
        raise ModelError(f"{error}; take a fresh copy of the model folder") from error


def _read_card_title(source: Path) -> str:
    """Return the first line of the model card that has text."""
    text = untrusted.read_start(source, "README.md", MAX_CARD_BYTES) if untrusted.is_file(source, "README.md") else ""
    return next((line.lstrip("# ").strip() for line in text.splitlines() if line.strip()), "A model made by m3b")


def _remove_caches(folder: Path) -> None:
    for cache in list(folder.rglob("__pycache__")):
        shutil.rmtree(cache)


def _readme(facts: dict[str, Any], is_single_input: bool, compared: str, largest: float) -> str:
    chain = (
        "Preprocessing, dataset, inferer and postprocessing are entries of `configs/inference.json` that can be used one "
        "by one; preprocessing is the model's own code, because no MONAI transform computes the same."
        if is_single_input
        else "Files, patches and masks are handled by the model's own code in `scripts/deliverable`, with the bundle's "
        "network in its place: no MONAI transform computes the same."
    )
    installed = ", ".join(f"{name} {value}" for name, value in package_versions("monai", "torch").items())
    return f"""# MONAI bundle: {escape_markdown(facts.get("task", ""))}

    python -c "import monai.bundle as b; b.run(config_file='configs/inference.json', bundle_root='.', images=['IMAGE'],
    output='predictions.json')"

run in this folder, all on one line; without `images`, the files in `dataset_dir` are taken. Where `fire` is installed,
`python -m monai.bundle run --config_file configs/inference.json --bundle_root .` does the same. pytorch-ignite is not
needed.

{chain}

`models/model.pt` is what MONAI expects, a state dict: a pickle of tensors and nothing else, which is loaded with
`weights_only=True` so that no code in it can run.

Compared with the model on {compared}: largest difference {largest:.2g} (allowed: {MAX_EXPORT_DIFFERENCE:g}; {installed}).

A research model, not a medical device.
"""
