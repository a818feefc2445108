"""The nnunet engine: nnU-Net v2 through its Python API, within the minutes of the plan, resumable, on CPU or GPU.

Images and masks are written as NIfTI with their true geometry and consecutive labels; nnU-Net plans and preprocesses; its trainer runs
with a learning rate fitted to the time. The weights go to Logout/model0 as safetensors.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing.pool
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from m3b.training.channels import read_case
from m3b.training.ignored_voxels import mark_ignored
from m3b.training.mask_grid import load_ignored, load_label_ids, load_masks
from m3b.training.recipe import get_recipe
from m3b.training.segmentation.nnunet_data import DATASET_NAME, write_dataset
from m3b.training.segmentation.nnunet_presets import PLANNERS, configuration_name, gpu_gib
from m3b.training.volume_cache import case_keys

FOLDER = Path("Logout/model0")
MIN_TRAINING_SHARE = 0.5
"""Share of the minutes that is left for training, however long planning and preprocessing took."""
MAX_SCORING_SHARE = 0.1
"""Share of the minutes that is reserved for the validation cases at most."""
FinishTraining = Callable[[dict[str, Any], np.ndarray, list[list[dict[str, Any]]], list[dict[str, Any]]], None]


def train_nnunet(plan: dict[str, Any], seconds: float, finish: FinishTraining) -> None:
    """Train from train.json to weights, nnunet.json and metrics.

    Raises DivergenceError, InsufficientMemoryError, or an error of nnU-Net.
    """
    start = time.monotonic()
    from m3b.training.segmentation.dataset import hold_out, read_index

    records = read_index()
    folder = Path("Logout/cache/nnunet") / _dataset_key(records, plan)
    _set_environment(folder, plan)
    share, seed = float(plan["validation_share"]), int(plan["seed"])
    valid_rows = write_dataset(records, plan, folder, lambda presence: hold_out(records, share, seed, presence))
    plan_and_preprocess(folder, plan)
    FOLDER.mkdir(parents=True, exist_ok=True)
    valid_records = [records[item] for item in valid_rows]
    from m3b.training.segmentation.nnunet_trainer import train_timed

    preparation = time.monotonic() - start
    if preparation > MIN_TRAINING_SHARE * seconds:
        print(
            f"preparation took {preparation:.0f} s; training still gets {MIN_TRAINING_SHARE:.0%} of the minutes",
            flush=True,
        )
    reserve = scoring_seconds(seconds, len(valid_records))
    training_record = train_timed(
        folder, plan, max(seconds - preparation, MIN_TRAINING_SHARE * seconds), FOLDER, reserve
    )
    remaining = max(seconds - (time.monotonic() - start), reserve)
    scored_records, table = score_cases(plan, valid_records, remaining)
    finish(plan, table, [scored_records], [training_record])


def _dataset_key(records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    settings = {"dims": plan["dims"], "classes": plan["classes"], "labels": plan["labels"], "seed": plan["seed"]}
    settings |= {"planner": plan["planner"], "overlap": plan["overlap"]}
    keys = case_keys(records, settings)
    return hashlib.sha256(json.dumps([settings, plan["validation_share"], keys]).encode()).hexdigest()[:16]


def _set_environment(folder: Path, plan: Mapping[str, Any]) -> None:
    """Set the environment variables that nnU-Net reads at its first import."""
    for subfolder in ("raw", "preprocessed", "results"):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{subfolder}"] = str((folder / subfolder).resolve())
    on_gpu = plan["device"] != "cpu" and gpu_gib() > 0
    os.environ.update(nnUNet_compile="t" if on_gpu else "f", nnUNet_def_n_proc="1")
    _set_process_count(int(plan["workers"]))


def _set_process_count(number: int) -> None:
    """Set the worker processes for augmentation; with 0 the training process augments."""
    os.environ.update(nnUNet_n_proc_DA=str(number))


def plan_and_preprocess(folder: Path, plan: Mapping[str, Any]) -> None:
    """Run nnU-Net's planning and preprocessing, with threads instead of worker processes, so that errors are visible."""
    preprocessed = folder / "preprocessed" / DATASET_NAME
    ready_file = preprocessed / "ready.json"
    if ready_file.exists():
        return
    from nnunetv2.experiment_planning import plan_and_preprocess_api as api
    from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
    from nnunetv2.preprocessing.preprocessors import default_preprocessor

    threads = SimpleNamespace(get_context=lambda _: SimpleNamespace(Pool=multiprocessing.pool.ThreadPool))
    for module in (fingerprint_extractor, default_preprocessor):
        module.multiprocessing = threads
    split = (preprocessed / "splits_final.json").read_text()
    print("nnU-Net: planning and preprocessing", flush=True)
    workers = max(1, int(plan["workers"]))
    with (folder / "nnunet.txt").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        _run_planner(api, workers, plan)
    (preprocessed / "splits_final.json").write_text(split)
    shutil.rmtree(folder / "raw" / DATASET_NAME / "imagesTr", ignore_errors=True)
    ready_file.write_text("{}")


def _run_planner(api: Any, workers: int, plan: Mapping[str, Any]) -> None:
    api.extract_fingerprints([1], num_processes=workers, check_dataset_integrity=False, clean=True, verbose=False)
    _set_process_count(1)  # the planner sets torch's threads to it, and 0 is invalid
    planner, plans = PLANNERS[plan["planner"]]
    api.plan_experiments([1], experiment_planner_class_name=planner)
    _set_process_count(int(plan["workers"]))
    api.preprocess(
        [1], plans, configurations=(configuration_name(plan),), num_processes=(workers,), show_progress_bar=False
    )


def scoring_seconds(seconds: float, cases: int) -> float:
    """Return the seconds of the training time that are reserved for predicting the validation cases."""
    return min(MAX_SCORING_SHARE * seconds, 2.0 + 10.0 * cases)


def score_cases(
    plan: Mapping[str, Any], records: Sequence[dict[str, Any]], seconds: float
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return cases and their (cases, K) Dice on the images' own grids, with the exported weights and `predict_nnunet`.

    Cases come in random order, at least one, as long as the next one is expected to end within `seconds`.
    """
    import torch
    from safetensors.torch import load_file

    from m3b.training.segmentation.nnunet_steps import load_nnunet, predict_nnunet
    from m3b.training.segmentation.scoring import class_dice

    device = torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")
    config = json.loads((FOLDER / "nnunet.json").read_text())
    network = load_nnunet(config, load_file(str(FOLDER / "best.safetensors")), device)
    table: list[list[float]] = []
    start, order = time.monotonic(), random.Random(0).sample(list(records), len(records))
    for record in order:
        spent = time.monotonic() - start
        if table and spent * (1 + 1 / len(table)) > seconds:
            print(f"{len(table)} of {len(order)} validation cases scored: the minutes are used up", flush=True)
            break
        image = read_case(record["image_path"], plan)
        predicted = predict_nnunet(network, image, config, device, str(record["image_path"]))
        predicted = get_recipe().postprocess(plan, predicted)
        if plan["overlap"]:
            truth = mark_ignored(load_masks(record, plan, image), load_ignored(record, image))
        else:
            truth = load_label_ids(record, plan, image)
        table.append(class_dice(predicted, truth, len(plan["classes"]), bool(plan["overlap"])))
    return order[: len(table)], np.array(table, float)
