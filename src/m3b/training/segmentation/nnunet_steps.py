"""nnU-Net's preprocessing, network and prediction without nnU-Net: what its trained weights need at prediction time.

Follows nnunetv2's DefaultPreprocessor, default resampling and predictor (Isensee et al., 2021): crop to what is not
zero, normalise, resample (cubic; slices apart where they are thick), windows with Gaussian weights, logits resampled
linearly, classes decided, everything put back.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from m3b.dataset.formats import DataError, Image
from m3b.training.segmentation.sliding_window import sliding
from m3b.training.voxel_spacing import true_spacing

ANISOTROPIC = 3.0


def load_nnunet(
    config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], device: torch.device
) -> torch.nn.Module:
    """The network that `config["architecture"]` names, with its weights, in evaluation mode."""
    kind = config["architecture"]
    module, _, name = kind["network_class_name"].rpartition(".")
    options = dict(kind["arch_kwargs"])
    for key in kind["_kw_requires_import"]:
        if options.get(key):
            place, _, what = options[key].rpartition(".")
            options[key] = getattr(importlib.import_module(place), what)
    network: torch.nn.Module = getattr(importlib.import_module(module), name)(
        input_channels=config["channels"], num_classes=config["outputs"], deep_supervision=False, **options
    )
    network.load_state_dict(dict(weights))
    return network.to(device).eval()


def to_nnunet(array: np.ndarray) -> np.ndarray:
    """(C, rows, columns[, slices]) to nnU-Net's (C, slices, rows, columns); 2D images get one slice."""
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array[:, None]


def spacing_for(image: Image, config: Mapping[str, Any]) -> list[float]:
    """mm along nnU-Net's axes; a 2D image's slice is as thick as nnU-Net has it (999 times the coarsest side)."""
    known = true_spacing(image.array.shape[1:], image.spacing, config.get("extent"))
    own = [float(v) for v in known] if known else [1.0] * image.dims
    if image.dims == 3:
        return [own[2], own[0], own[1]]
    return [max(own) * 999, own[0], own[1]] if config["dims"] == 2 else [float(config["thickness"]), own[0], own[1]]


def preprocess_nnunet(
    data: np.ndarray, spacing: Sequence[float], config: Mapping[str, Any]
) -> tuple[np.ndarray, dict[str, Any]]:
    """(C, z, y, x) to the network's input, and what `put_back` needs to undo it."""
    order = config["transpose_forward"]
    data = data.astype(np.float32).transpose(0, *(axis + 1 for axis in order))
    spacing = [spacing[axis] for axis in order]
    before = data.shape[1:]
    inside = ndimage.binary_fill_holes((data != 0).any(axis=0))
    spans = [np.flatnonzero(inside.any(axis=tuple(a for a in range(3) if a != axis))) for axis in range(3)]
    box = tuple(slice(int(s[0]), int(s[-1]) + 1) if len(s) else slice(0, n) for s, n in zip(spans, before, strict=True))
    data, inside = data[(slice(None), *box)].copy(), inside[box]
    cropped = data.shape[1:]
    for channel in range(len(data)):
        data[channel] = _normalise(data[channel], inside, config, channel)
    target = list(config["spacing"])
    target = [spacing[0], *target] if len(target) == 2 else target
    shape = tuple(round(s / t * n) for s, t, n in zip(spacing, target, cropped, strict=True))
    state = {"before": before, "box": box, "cropped": cropped, "spacing": spacing, "target": target}
    return resample(data, shape, spacing, target, 3), state


def _normalise(image: np.ndarray, inside: np.ndarray, config: Mapping[str, Any], channel: int) -> np.ndarray:
    scheme, masked = config["normalization"][channel], config["use_mask"][channel]
    if scheme == "ZScoreNormalization":
        values = image[inside] if masked else image
        scaled = (image - values.mean()) / max(float(values.std()), 1e-8)
        return np.where(inside, scaled, image) if masked else scaled
    if scheme == "CTNormalization":
        rule = config["intensities"][str(channel)]
        clipped = np.clip(image, rule["percentile_00_5"], rule["percentile_99_5"])
        return (clipped - rule["mean"]) / max(float(rule["std"]), 1e-8)
    raise DataError(f"the model was trained with {scheme}, which this predictor does not know")


def resample(
    data: np.ndarray, shape: Sequence[int], spacing: Sequence[float], target: Sequence[float], order: int
) -> np.ndarray:
    """(C, ...) to another shape; where one axis is more than three times coarser, slices apart and then the nearest."""
    if tuple(shape) == data.shape[1:]:
        return data
    axis = _coarse_axis(spacing) if max(spacing) / min(spacing) > ANISOTROPIC else None
    if axis is None and max(spacing) / min(spacing) <= ANISOTROPIC and max(target) / min(target) > ANISOTROPIC:
        axis = _coarse_axis(target)
    result = np.zeros((len(data), *shape), np.float32)
    for channel in range(len(data)):
        part = data[channel].astype(np.float64)  # one at a time: logits of many classes are gigabytes
        if axis is None:
            result[channel] = _zoom(part, shape, order)
            continue
        flat = [n for place, n in enumerate(shape) if place != axis]
        slices = np.stack([_zoom(piece, flat, order) for piece in np.moveaxis(part, axis, 0)], axis)
        have, want = part.shape[axis], shape[axis]
        places = have / want * (np.arange(want) + 0.5) - 0.5
        nearest = np.clip(np.floor(places + 0.5).astype(int), 0, have - 1)
        result[channel] = slices.take(nearest, axis=axis) if have != want else slices
    return result


def _coarse_axis(spacing: Sequence[float]) -> int | None:
    coarsest = [axis for axis, value in enumerate(spacing) if value == max(spacing)]
    return coarsest[0] if len(coarsest) == 1 else None


def _zoom(part: np.ndarray, shape: Sequence[int], order: int) -> np.ndarray:
    """As skimage.transform.resize with mode "edge": voxel centres kept, values inside of the input's range."""
    if tuple(shape) == part.shape:
        return part
    factors = [want / have for want, have in zip(shape, part.shape, strict=True)]
    zoomed = ndimage.zoom(part, factors, order=order, mode="nearest", grid_mode=True)
    return np.asarray(np.clip(zoomed, part.min(), part.max()))


@torch.no_grad()
def logits_of(
    network: torch.nn.Module, data: np.ndarray, config: Mapping[str, Any], device: torch.device
) -> np.ndarray:
    """(C, z, y, x) preprocessed to logits (outputs, z, y, x); a 2D network goes slice by slice."""
    patch = [int(n) for n in config["patch"]]
    mirror = [int(axis) for axis in config.get("mirror") or []]
    tensor = torch.from_numpy(np.ascontiguousarray(data, np.float32))
    with torch.autocast(device.type, enabled=device.type == "cuda"):  # as nnU-Net's predictor
        if len(patch) == 3:
            return sliding(tensor, network, patch, 0.0, device, 1, mirror).numpy()
        layers = [sliding(tensor[:, z], network, patch, 0.0, device, 4, mirror) for z in range(tensor.shape[1])]
        return torch.stack(layers, 1).numpy()


def predict_nnunet(
    network: torch.nn.Module, image: Image, config: Mapping[str, Any], device: torch.device, name: str = "image"
) -> np.ndarray:
    """An image to uint8 in the axes of `read_image`: places of classes, 0 for background; of classes that may overlap (K, *shape) of
    0 and 1."""
    array = image.array if image.dims == config["dims"] else image.array[..., None]
    if array.ndim - 1 != config["dims"]:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    if len(array) != config["channels"]:
        raise DataError(f"{name}: {len(array)} channels, but the model was trained with {config['channels']}")
    data, state = preprocess_nnunet(to_nnunet(array), spacing_for(image, config), config)
    if not np.isfinite(data).all():
        raise DataError(f"{name}: holds values that are not finite")
    logits = resample(logits_of(network, data, config, device), state["cropped"], state["target"], state["spacing"], 1)
    if config.get("regions"):
        return np.stack([_placed(layer > 0, state, config, image) for layer in logits])
    found = _placed(logits.argmax(axis=0), state, config, image)
    if not config.get("overlap"):
        return found
    return np.stack([found == place for place in range(1, int(config["outputs"]))]).astype(np.uint8)


def _placed(decided: np.ndarray, state: Mapping[str, Any], config: Mapping[str, Any], image: Image) -> np.ndarray:
    """(z, y, x) of the cropped and turned image, put back into the image's own axes."""
    whole = np.zeros(state["before"], np.uint8)
    whole[state["box"]] = decided
    whole = whole.transpose(config["transpose_backward"])
    return np.moveaxis(whole, 0, -1).reshape(image.array.shape[1:])
