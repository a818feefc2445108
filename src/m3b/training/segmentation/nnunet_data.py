"""The cases in nnU-Net's format: NIfTI with their true geometry and consecutive labels, dataset.json, the split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, grid_of
from m3b.training.channels import read_case
from m3b.training.ignored_voxels import IGNORE, mark_ignored
from m3b.training.mask_grid import iterate_masks, load_ignored, load_label_ids
from m3b.training.segmentation.nnunet_presets import Regions, describe_labels
from m3b.training.voxel_spacing import true_spacing

DATASET_NAME = "Dataset001_m3b"


def write_dataset(
    records: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    folder: Path,
    hold_out: Callable[[np.ndarray], np.ndarray],
) -> list[int]:
    """Write imagesTr, labelsTr, dataset.json and the split; return the numbers of the validation cases.

    Args:
        hold_out: function of (N, K) class presence to (N,) whether cases are validation cases.
    """
    raw, ready_file = folder / "raw" / DATASET_NAME, folder / "written.json"
    if ready_file.exists():
        return list(json.loads(ready_file.read_text()))
    for subfolder in ("imagesTr", "labelsTr"):
        (raw / subfolder).mkdir(parents=True, exist_ok=True)
    usable: list[int] = []
    presence = np.zeros((len(records), len(plan["classes"])), bool)
    regions = Regions(len(plan["classes"])) if plan["overlap"] else None
    for item, record in enumerate(records):
        try:
            presence[item] = _write_case(record, plan, raw, f"case_{item:05d}", regions)
            usable.append(item)
        except DataError as error:
            print(f"excluded: {error}", flush=True)
    if len(usable) < max(2, 0.95 * len(records)):
        raise SystemExit(f"{len(records) - len(usable)} of {len(records)} cases cannot be used; correct the index")
    description = {
        "channel_names": _channel_names(plan),
        **describe_labels(regions, plan, _renumber_ignored(sorted((raw / "labelsTr").iterdir()), regions, plan)),
        "numTraining": len(usable),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    (raw / "dataset.json").write_text(json.dumps(description, indent=1))
    is_validation = hold_out(presence)
    split = {
        "train": [f"case_{i:05d}" for i in usable if not is_validation[i]],
        "val": [f"case_{i:05d}" for i in usable if is_validation[i]],
    }
    (folder / "preprocessed" / DATASET_NAME).mkdir(parents=True, exist_ok=True)
    (folder / "preprocessed" / DATASET_NAME / "splits_final.json").write_text(json.dumps([split]))
    valid_items = [item for item in usable if is_validation[item]]
    ready_file.write_text(json.dumps(valid_items))
    return valid_items


def _channel_names(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return channel names for nnU-Net: "CT" is normalised by the intensities of all cases, other names image by image."""
    intensity, names = plan["intensity"], plan["channel_names"]
    rules = list(intensity["channels"].values()) if intensity.get("channels") else [intensity] * int(plan["channels"])
    known_names = names or [f"channel{place}" for place in range(len(rules))]
    safe_names = [
        f"m3b {name}" if str(name).casefold() in ("ct", "nonorm", "rgb_to_0_1") else str(name) for name in known_names
    ]
    return {str(index): "CT" if rule["mode"] == "window" else safe_names[index] for index, rule in enumerate(rules)}


def _write_case(
    record: Mapping[str, Any], plan: Mapping[str, Any], raw: Path, name: str, regions: Regions | None
) -> np.ndarray:
    """Write one NIfTI per channel and one of labels, all on the grid of the original image; return (K,) class presence."""
    image = read_case(record["image_path"], plan)
    if image.dims == 3 and int(plan["dims"]) == 2:
        raise DataError(f"{record['image_path']}: a volume, but most images are 2D")
    if len(image.array) != int(plan["channels"]):
        raise DataError(f"{record['image_path']}: {len(image.array)} channels, most images have {plan['channels']}")
    if regions is None:
        ids = load_label_ids(record, plan, image)
    else:
        ids = regions.encode(iterate_masks(record, plan, image), image.array.shape[1:])
        ids = mark_ignored(ids, load_ignored(record, image))
    numbers = np.unique(ids[ids != IGNORE])
    class_sets = {k + 1: {k} for k in range(len(plan["classes"]))} if regions is None else regions.classes()
    presence = np.zeros(len(plan["classes"]), bool)
    presence[[k for number in numbers if number for k in class_sets[int(number)]]] = True
    affine = grid_of(record["image_path"]).affine
    spacing = true_spacing(image.array.shape[1:], image.spacing, plan["extent"]) or (1.0,) * image.dims
    for index, channel in enumerate(image.array):
        _write_nifti(channel.astype(np.float32), affine, spacing, plan, raw / "imagesTr" / f"{name}_{index:04d}.nii.gz")
    _write_nifti(ids, affine, spacing, plan, raw / "labelsTr" / f"{name}.nii.gz")
    return presence


def _renumber_ignored(files: Sequence[Path], regions: Regions | None, plan: Mapping[str, Any]) -> int | None:
    """Give ignored voxels of label files nnU-Net's number for them, the one after all others; None if there are none.

    With regions it is only known after all cases have been written.
    """
    import SimpleITK as sitk

    number = 1 + (len(plan["classes"]) if regions is None else len(regions.numbers))
    has_ignored = False
    for file in files:
        image = sitk.ReadImage(str(file))
        if int(sitk.GetArrayViewFromImage(image).max()) == IGNORE:
            has_ignored = True
            sitk.WriteImage(sitk.ChangeLabel(image, {IGNORE: number}), str(file), True)
    return number if has_ignored else None


def _write_nifti(
    array: np.ndarray, affine: np.ndarray | None, spacing: Sequence[float], plan: Mapping[str, Any], file: Path
) -> None:
    """Write an array in the axes of `read_image` (rows along y, columns along x); in 2D if the plan is 2D."""
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
