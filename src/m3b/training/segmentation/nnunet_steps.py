"""nnU-Net's preprocessing, network and prediction without nnU-Net, as its trained weights need them at prediction time.

Follows DefaultPreprocessor, default resampling and predictor of nnunetv2 (Isensee et al., 2021): crop to non-zero voxels, normalise,
resample (cubic; thick slices one by one), windows with Gaussian weights, logits resampled linearly, argmax, inverse of the crop.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from m3b.dataset.formats import DataError, Image
from m3b.training.segmentation.sliding_window import predict_windows
from m3b.training.voxel_spacing import true_spacing

MAX_ISOTROPY_RATIO = 3.0
"""Ratio of the coarsest to the finest spacing above which slices are resampled one by one."""


def load_nnunet(
    config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], device: torch.device
) -> torch.nn.Module:
    """Return the network of `config["architecture"]` with its weights, in evaluation mode."""
    architecture = config["architecture"]
    module, _, name = architecture["network_class_name"].rpartition(".")
    options = dict(architecture["arch_kwargs"])
    for key in architecture["_kw_requires_import"]:
        if options.get(key):
            package, _, attribute = options[key].rpartition(".")
            options[key] = getattr(importlib.import_module(package), attribute)
    network: torch.nn.Module = getattr(importlib.import_module(module), name)(
        input_channels=config["channels"], num_classes=config["outputs"], deep_supervision=False, **options
    )
    network.load_state_dict(dict(weights))
    return network.to(device).eval()


def to_nnunet_axes(array: np.ndarray) -> np.ndarray:
    """Convert (C, rows, columns[, slices]) to nnU-Net's (C, slices, rows, columns); 2D images get one slice."""
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array[:, None]


def nnunet_spacing(image: Image, config: Mapping[str, Any]) -> list[float]:
    """Return mm along nnU-Net's axes; the slice thickness of a 2D image is as in nnU-Net (999 times the coarsest side)."""
    file_spacing = true_spacing(image.array.shape[1:], image.spacing, config.get("extent"))
    sides = [float(v) for v in file_spacing] if file_spacing else [1.0] * image.dims
    if image.dims == 3:
        return [sides[2], sides[0], sides[1]]
    thickness = max(sides) * 999 if config["dims"] == 2 else float(config["thickness"])
    return [thickness, sides[0], sides[1]]


def preprocess_nnunet(
    data: np.ndarray, spacing: Sequence[float], config: Mapping[str, Any]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Convert (C, z, y, x) to the network's input; also return the state that the inverse needs."""
    order = config["transpose_forward"]
    data = data.astype(np.float32).transpose(0, *(axis + 1 for axis in order))
    spacing = [spacing[axis] for axis in order]
    original_shape = data.shape[1:]
    foreground = ndimage.binary_fill_holes((data != 0).any(axis=0))
    boxes = ndimage.find_objects(foreground.view(np.uint8))
    box = boxes[0] if boxes else tuple(slice(0, length) for length in original_shape)
    data, foreground = data[(slice(None), *box)].copy(), foreground[box]
    cropped = data.shape[1:]
    for channel in range(len(data)):
        data[channel] = _normalise(data[channel], foreground, config, channel)
    target = list(config["spacing"])
    target = [spacing[0], *target] if len(target) == 2 else target
    shape = tuple(round(s / t * n) for s, t, n in zip(spacing, target, cropped, strict=True))
    state = {"before": original_shape, "box": box, "cropped": cropped, "spacing": spacing, "target": target}
    return resample(data, shape, spacing, target, 3), state


def _normalise(image: np.ndarray, foreground: np.ndarray, config: Mapping[str, Any], channel: int) -> np.ndarray:
    scheme, masked = config["normalization"][channel], config["use_mask"][channel]
    if scheme == "ZScoreNormalization":
        values = image[foreground] if masked else image
        scaled = (image - values.mean()) / max(float(values.std()), 1e-8)
        return np.where(foreground, scaled, image) if masked else scaled
    if scheme == "CTNormalization":
        properties = config["intensities"][str(channel)]
        clipped = np.clip(image, properties["percentile_00_5"], properties["percentile_99_5"])
        return np.asarray((clipped - properties["mean"]) / max(float(properties["std"]), 1e-8))
    raise DataError(f"the model was trained with {scheme}, which this predictor does not support")


def resample(
    data: np.ndarray, shape: Sequence[int], spacing: Sequence[float], target: Sequence[float], order: int
) -> np.ndarray:
    """Resample (C, ...) to another shape; if one axis is more than three times coarser, slice by slice and then to the nearest
    slice.
    """
    if tuple(shape) == data.shape[1:]:
        return data
    anisotropic = [grid for grid in (spacing, target) if max(grid) / min(grid) > MAX_ISOTROPY_RATIO]
    axis = _coarse_axis(anisotropic[0]) if anisotropic else None
    result = np.zeros((len(data), *shape), np.float32)
    for channel in range(len(data)):
        volume = data[channel].astype(np.float64)  # one channel at a time: logits of many classes are gigabytes
        if axis is None:
            result[channel] = _zoom(volume, shape, order)
            continue
        slice_shape = [n for other_axis, n in enumerate(shape) if other_axis != axis]
        slices = np.stack([_zoom(piece, slice_shape, order) for piece in np.moveaxis(volume, axis, 0)], axis)
        length, target_length = volume.shape[axis], shape[axis]
        positions = length / target_length * (np.arange(target_length) + 0.5) - 0.5
        nearest = np.clip(np.floor(positions + 0.5).astype(int), 0, length - 1)
        result[channel] = slices.take(nearest, axis=axis) if length != target_length else slices
    return result


def _coarse_axis(spacing: Sequence[float]) -> int | None:
    coarsest = [axis for axis, value in enumerate(spacing) if value == max(spacing)]
    return coarsest[0] if len(coarsest) == 1 else None


def _zoom(array: np.ndarray, shape: Sequence[int], order: int) -> np.ndarray:
    """Resize as skimage.transform.resize with mode "edge": voxel centres stay, values stay in the range of the input."""
    if tuple(shape) == array.shape:
        return array
    factors = [target / length for target, length in zip(shape, array.shape, strict=True)]
    zoomed = ndimage.zoom(array, factors, order=order, mode="nearest", grid_mode=True)
    return np.asarray(np.clip(zoomed, array.min(), array.max()))


@torch.no_grad()
def predict_logits(
    network: torch.nn.Module, data: np.ndarray, config: Mapping[str, Any], device: torch.device
) -> np.ndarray:
    """Return logits (outputs, z, y, x) of preprocessed (C, z, y, x); a 2D network predicts slice by slice."""
    patch = [int(n) for n in config["patch"]]
    mirror = [int(axis) for axis in config.get("mirror") or []]
    tensor = torch.from_numpy(np.ascontiguousarray(data, np.float32))
    with torch.autocast(device.type, enabled=device.type == "cuda"):  # as nnU-Net's predictor
        if len(patch) == 3:
            return np.asarray(predict_windows(tensor, network, patch, 0.0, device, 1, mirror))
        layers = [predict_windows(tensor[:, z], network, patch, 0.0, device, 4, mirror) for z in range(tensor.shape[1])]
        return np.asarray(torch.stack(layers, 1))


def predict_nnunet(
    network: torch.nn.Module, image: Image, config: Mapping[str, Any], device: torch.device, name: str = "image"
) -> np.ndarray:
    """Return the prediction for an image as uint8 in the axes of `read_image`: class ids, 0 for background.

    Classes that may overlap give (K, *shape) of 0 and 1.
    """
    array = image.array if image.dims == config["dims"] else image.array[..., None]
    if array.ndim - 1 != config["dims"]:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    if len(array) != config["channels"]:
        raise DataError(f"{name}: {len(array)} channels, but the model was trained with {config['channels']}")
    data, state = preprocess_nnunet(to_nnunet_axes(array), nnunet_spacing(image, config), config)
    if not np.isfinite(data).all():
        raise DataError(f"{name}: holds values that are not finite")
    logits = resample(
        predict_logits(network, data, config, device), state["cropped"], state["target"], state["spacing"], 1
    )
    if config.get("regions"):
        return np.stack([_restore_geometry(layer > 0, state, config, image) for layer in logits])
    predicted = _restore_geometry(logits.argmax(axis=0), state, config, image)
    if not config.get("overlap"):
        return predicted
    return np.stack([predicted == class_id for class_id in range(1, int(config["outputs"]))]).astype(np.uint8)


def _restore_geometry(
    prediction: np.ndarray, state: Mapping[str, Any], config: Mapping[str, Any], image: Image
) -> np.ndarray:
    """Put a (z, y, x) prediction of the cropped and transposed image back into the image's own axes."""
    full = np.zeros(state["before"], np.uint8)
    full[state["box"]] = prediction
    full = full.transpose(config["transpose_backward"])
    return np.moveaxis(full, 0, -1).reshape(image.array.shape[1:])
