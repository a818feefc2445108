"""The cases as nnU-Net wants them: NIfTI with their true geometry and consecutive labels, dataset.json, the split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, grid_of
from m3b.training.channels import read_case
from m3b.training.mask_grid import iterate_masks, load_ids
from m3b.training.segmentation.nnunet_presets import Regions, described
from m3b.training.voxel_spacing import true_spacing

NAME = "Dataset001_m3b"


def write_dataset(
    records: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    place: Path,
    hold_out: Callable[[np.ndarray], np.ndarray],
) -> list[int]:
    """Write imagesTr, labelsTr, dataset.json and the split; return the numbers of the validation cases.

    Args:
        hold_out: (N, K) whether cases have classes to (N,) whether they are validation cases.
    """
    raw, ready = place / "raw" / NAME, place / "written.json"
    if ready.exists():
        return list(json.loads(ready.read_text()))
    for part in ("imagesTr", "labelsTr"):
        (raw / part).mkdir(parents=True, exist_ok=True)
    kept: list[int] = []
    presence = np.zeros((len(records), len(plan["classes"])), bool)
    regions = Regions(len(plan["classes"])) if plan["overlap"] else None
    for item, record in enumerate(records):
        try:
            presence[item] = _write_case(record, plan, raw, f"case_{item:05d}", regions)
            kept.append(item)
        except DataError as error:
            print(f"left out: {error}", flush=True)
    if len(kept) < max(2, 0.95 * len(records)):
        raise SystemExit(f"{len(records) - len(kept)} of {len(records)} cases cannot be used; correct the index")
    about = {
        "channel_names": _channels(plan),
        **described(regions, plan),
        "numTraining": len(kept),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    (raw / "dataset.json").write_text(json.dumps(about, indent=1))
    held = hold_out(presence)
    split = {"train": [f"case_{i:05d}" for i in kept if not held[i]], "val": [f"case_{i:05d}" for i in kept if held[i]]}
    (place / "preprocessed" / NAME).mkdir(parents=True, exist_ok=True)
    (place / "preprocessed" / NAME / "splits_final.json").write_text(json.dumps([split]))
    valid = [item for item in kept if held[item]]
    ready.write_text(json.dumps(valid))
    return valid


def _channels(plan: Mapping[str, Any]) -> dict[str, str]:
    """nnU-Net's names: it normalises what is called CT by the units of all cases, everything else image by image."""
    rule, names = plan["intensity"], plan["channel_names"]
    rules = list(rule["channels"].values()) if rule.get("channels") else [rule] * int(plan["channels"])
    own = names or [f"channel{place}" for place in range(len(rules))]
    safe = [f"m3b {name}" if str(name).casefold() in ("ct", "nonorm", "rgb_to_0_1") else str(name) for name in own]
    return {str(c): "CT" if one["mode"] == "window" else safe[c] for c, one in enumerate(rules)}


def _write_case(
    record: Mapping[str, Any], plan: Mapping[str, Any], raw: Path, name: str, regions: Regions | None
) -> np.ndarray:
    """Write one NIfTI a channel and one of labels, all on the grid of the original image; return (K,) which classes it has."""
    image = read_case(record["image_path"], plan)
    if image.dims == 3 and int(plan["dims"]) == 2:
        raise DataError(f"{record['image_path']}: a volume, but most images are 2D")
    if len(image.array) != int(plan["channels"]):
        raise DataError(f"{record['image_path']}: {len(image.array)} channels, most images have {plan['channels']}")
    if regions is None:
        ids = load_ids(record, plan, image)
    else:
        ids = regions.encode(iterate_masks(record, plan, image), image.array.shape[1:])
    numbers = np.unique(ids)
    ways = {place + 1: {place} for place in range(len(plan["classes"]))} if regions is None else regions.classes()
    present = np.zeros(len(plan["classes"]), bool)
    present[[place for number in numbers if number for place in ways[int(number)]]] = True
    affine = grid_of(record["image_path"]).affine
    spacing = true_spacing(image.array.shape[1:], image.spacing, plan["extent"]) or (1.0,) * image.dims
    for c, channel in enumerate(image.array):
        _write_nifti(channel.astype(np.float32), affine, spacing, plan, raw / "imagesTr" / f"{name}_{c:04d}.nii.gz")
    _write_nifti(ids, affine, spacing, plan, raw / "labelsTr" / f"{name}.nii.gz")
    return present


def _write_nifti(
    array: np.ndarray, affine: np.ndarray | None, spacing: Sequence[float], plan: Mapping[str, Any], file: Path
) -> None:
    """An array in the axes of `read_image` (rows along y, columns along x); true 2D where the plan is 2D."""
    import SimpleITK as sitk

    if array.ndim < int(plan["dims"]):
        array, spacing = array[..., None], (*spacing[:2], float((plan["spacing"] or [1.0, 1.0, 1.0])[2]))
    image = sitk.GetImageFromArray(np.ascontiguousarray(np.moveaxis(array, 2, 0) if array.ndim == 3 else array))
    image.SetSpacing([float(v) for v in (spacing[1], spacing[0], *spacing[2:])])
    if array.ndim == 3 and affine is not None:
        axes = affine[:3, [1, 0, 2]] / np.linalg.norm(affine[:3, [1, 0, 2]], axis=0)
        image.SetOrigin([float(v) for v in affine[:3, 3]])
        image.SetDirection([float(v) for v in axes.ravel()])
    sitk.WriteImage(image, str(file), True)
