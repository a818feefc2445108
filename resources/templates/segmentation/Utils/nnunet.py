"""The nnunet engine: nnU-Net v2 through its Python API, in the minutes of the plan, resumable, on CPU or GPU.

Images and masks are written as NIfTI with their true geometry and consecutive labels; nnU-Net plans and preprocesses;
its trainer runs with a learning rate fitted to the time. The weights go to Logout/model0 as safetensors.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing.pool
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .channels import read_case
from .extent import true_spacing
from .formats import ImageError
from .grids import grid_of
from .mask_grid import load_masks
from .volumes import case_key

NAME, FOLDER = "Dataset001_m3b", Path("Logout/model0")
TRAINED = 0.5
"""Share of the minutes that training gets, however long planning and preprocessing took."""
Finish = Callable[[dict[str, Any], np.ndarray, list[dict[str, Any]], dict[str, Any]], None]


def train_nnunet(plan: dict[str, Any], seconds: float, finish: Finish) -> None:
    """From train.json to weights, nnunet.json and figures. Raises NotFinite, OutOfMemory, or nnU-Net's own error."""
    start = time.monotonic()
    from Datapath.dataloader import hold_out, read_index

    records = read_index()
    place = Path("Logout/cache/nnunet") / _key(records, plan)
    _environment(place, plan)
    held = hold_out(records, float(plan["validation_share"]), int(plan["seed"]))
    kept = write_dataset(records, held, plan, place)
    plan_and_preprocess(place, plan)
    FOLDER.mkdir(parents=True, exist_ok=True)
    valid = [records[item] for item in np.flatnonzero(held) if item in kept]
    from .nnunet_trainer import run

    prepared = time.monotonic() - start
    if prepared > TRAINED * seconds:
        print(
            f"preparing took {prepared:.0f} s; {TRAINED:.0%} of the minutes are for training all the same", flush=True
        )
    done = run(place, plan, max(seconds - prepared, TRAINED * seconds), FOLDER, len(valid))
    table = score(plan, valid)
    finish(plan, table, valid, done)


def _key(records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    wanted = {"dims": plan["dims"], "classes": plan["classes"], "labels": plan["labels"], "seed": plan["seed"]}
    keys = [case_key(record, wanted) for record in records]
    return hashlib.sha256(json.dumps([wanted, plan["validation_share"], keys]).encode()).hexdigest()[:16]


def _environment(place: Path, plan: Mapping[str, Any]) -> None:
    """nnU-Net reads these when it is first imported."""
    for part in ("raw", "preprocessed", "results"):
        (place / part).mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{part}"] = str((place / part).resolve())
    os.environ.update(nnUNet_compile="f", nnUNet_def_n_proc="1")
    _processes(int(plan["workers"]))


def _processes(number: int) -> None:
    """Worker processes for augmentation; 0 lets the training process do it."""
    os.environ.update(nnUNet_n_proc_DA=str(number))


def write_dataset(
    records: Sequence[Mapping[str, Any]], held: np.ndarray, plan: Mapping[str, Any], place: Path
) -> set[int]:
    """imagesTr, labelsTr, dataset.json and the split; the numbers of the cases that could be read."""
    raw, ready = place / "raw" / NAME, place / "written.json"
    if ready.exists():
        return set(json.loads(ready.read_text()))
    for part in ("imagesTr", "labelsTr"):
        (raw / part).mkdir(parents=True, exist_ok=True)
    kept: list[int] = []
    for item, record in enumerate(records):
        try:
            _write_case(record, plan, raw, f"case_{item:05d}")
            kept.append(item)
        except ImageError as error:
            print(f"left out: {error}", flush=True)
    if len(kept) < max(2, 0.95 * len(records)):
        raise SystemExit(f"{len(records) - len(kept)} of {len(records)} cases cannot be used; correct the index")
    described = {
        "channel_names": _channels(plan),
        "labels": {"background": 0, **{f"class{k + 1}": k + 1 for k in range(len(plan["classes"]))}},
        "numTraining": len(kept),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    (raw / "dataset.json").write_text(json.dumps(described, indent=1))
    split = {"train": [f"case_{i:05d}" for i in kept if not held[i]], "val": [f"case_{i:05d}" for i in kept if held[i]]}
    (place / "preprocessed" / NAME).mkdir(parents=True, exist_ok=True)
    (place / "preprocessed" / NAME / "splits_final.json").write_text(json.dumps([split]))
    ready.write_text(json.dumps(kept))
    return set(kept)


def _channels(plan: Mapping[str, Any]) -> dict[str, str]:
    """nnU-Net's names: it normalises what is called CT by the units of all cases, everything else image by image."""
    rule, names = plan["intensity"], plan["channel_names"]
    rules = list(rule["channels"].values()) if rule.get("channels") else [rule] * int(plan["channels"])
    own = names or [f"channel{place}" for place in range(len(rules))]
    safe = [f"m3b {name}" if str(name).casefold() in ("ct", "nonorm", "rgb_to_0_1") else str(name) for name in own]
    return {str(c): "CT" if one["mode"] == "window" else safe[c] for c, one in enumerate(rules)}


def _write_case(record: Mapping[str, Any], plan: Mapping[str, Any], raw: Path, name: str) -> None:
    """One NIfTI a channel and one of labels, all on the grid of the original image."""
    image = read_case(record["image_path"], plan)
    if image.dims == 3 and int(plan["dims"]) == 2:
        raise ImageError(f"{record['image_path']}: a volume, but most images are 2D")
    if len(image.array) != int(plan["channels"]):
        raise ImageError(f"{record['image_path']}: {len(image.array)} channels, most images have {plan['channels']}")
    masks = load_masks(record, plan, image)
    ids = np.zeros(masks.shape[1:], np.uint8)
    for k, mask in enumerate(masks):
        ids[mask] = k + 1
    affine = grid_of(record["image_path"]).affine
    spacing = true_spacing(image.array.shape[1:], image.spacing, plan["extent"]) or (1.0,) * image.dims
    for c, channel in enumerate(image.array):
        _write_nifti(channel.astype(np.float32), affine, spacing, plan, raw / "imagesTr" / f"{name}_{c:04d}.nii.gz")
    _write_nifti(ids, affine, spacing, plan, raw / "labelsTr" / f"{name}.nii.gz")


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


def plan_and_preprocess(place: Path, plan: Mapping[str, Any]) -> None:
    """nnU-Net's own, with threads instead of its worker processes, so that an error inside is shown as it is."""
    folder = place / "preprocessed" / NAME
    ready = folder / "ready.json"
    if ready.exists():
        return
    from nnunetv2.experiment_planning import plan_and_preprocess_api as api
    from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
    from nnunetv2.preprocessing.preprocessors import default_preprocessor

    threads = SimpleNamespace(get_context=lambda _: SimpleNamespace(Pool=multiprocessing.pool.ThreadPool))
    for module in (fingerprint_extractor, default_preprocessor):
        module.multiprocessing = threads
    keep = (folder / "splits_final.json").read_text()
    print("nnU-Net plans and preprocesses", flush=True)
    workers = max(1, int(plan["workers"]))
    with (place / "nnunet.txt").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        _plan(api, workers, plan)
    (folder / "splits_final.json").write_text(keep)
    shutil.rmtree(place / "raw" / NAME / "imagesTr", ignore_errors=True)
    ready.write_text("{}")


def _plan(api: Any, workers: int, plan: Mapping[str, Any]) -> None:
    api.extract_fingerprints([1], num_processes=workers, check_dataset_integrity=False, clean=True, verbose=False)
    _processes(1)  # the planner sets torch's threads by it, and 0 would be none
    api.plan_experiments([1])
    _processes(int(plan["workers"]))
    api.preprocess([1], configurations=(configuration(plan),), num_processes=(workers,), show_progress_bar=False)


def configuration(plan: Mapping[str, Any]) -> str:
    return "2d" if int(plan["dims"]) == 2 else "3d_fullres"


def score(plan: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """(cases, K) Dice on the images' own grids, of the exported weights and by the exported steps."""
    import torch
    from safetensors.torch import load_file

    from .nnunet_steps import load_nnunet, predict_nnunet
    from .scoring import dice_of

    device = torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")
    config = json.loads((FOLDER / "nnunet.json").read_text())
    network = load_nnunet(config, load_file(str(FOLDER / "best.safetensors")), device)
    table = []
    for record in records:
        image = read_case(record["image_path"], plan)
        masks = load_masks(record, plan, image)
        found = predict_nnunet(network, image, config, device, str(record["image_path"]))
        truth = np.zeros(found.shape, np.uint8)
        for k, mask in enumerate(masks):
            truth[mask] = k + 1
        table.append(dice_of(found, truth, len(plan["classes"]), False))
    return np.array(table, float)
