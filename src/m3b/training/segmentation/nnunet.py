"""The nnunet engine: nnU-Net v2 through its Python API, in the minutes of the plan, resumable, on CPU or GPU.

Images and masks are written as NIfTI with their true geometry and consecutive labels; nnU-Net plans and preprocesses;
its trainer runs with a learning rate fitted to the time. The weights go to Logout/model0 as safetensors.
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
from m3b.training.mask_grid import load_ids, load_masks
from m3b.training.segmentation.nnunet_data import NAME, write_dataset
from m3b.training.segmentation.nnunet_presets import PLANNERS, gpu_gib
from m3b.training.volume_cache import case_key

FOLDER = Path("Logout/model0")
TRAINED = 0.5
"""Share of the minutes that training gets, however long planning and preprocessing took."""
SCORED = 0.1
"""Share of the minutes that is kept free for the validation cases at most."""
Finish = Callable[[dict[str, Any], np.ndarray, list[list[dict[str, Any]]], list[dict[str, Any]]], None]


def train_nnunet(plan: dict[str, Any], seconds: float, finish: Finish) -> None:
    """From train.json to weights, nnunet.json and figures. Raises DivergenceError, InsufficientMemoryError, or nnU-Net's own error."""
    start = time.monotonic()
    from m3b.training.segmentation.dataset import hold_out, read_index

    records = read_index()
    place = Path("Logout/cache/nnunet") / _key(records, plan)
    _environment(place, plan)
    share, seed = float(plan["validation_share"]), int(plan["seed"])
    held = write_dataset(records, plan, place, lambda presence: hold_out(records, share, seed, presence))
    plan_and_preprocess(place, plan)
    FOLDER.mkdir(parents=True, exist_ok=True)
    valid = [records[item] for item in held]
    from m3b.training.segmentation.nnunet_trainer import run

    prepared = time.monotonic() - start
    if prepared > TRAINED * seconds:
        print(
            f"preparing took {prepared:.0f} s; {TRAINED:.0%} of the minutes are for training all the same", flush=True
        )
    done = run(place, plan, max(seconds - prepared, TRAINED * seconds), FOLDER, scoring_seconds(seconds, len(valid)))
    scored, table = score(plan, valid, max(seconds - (time.monotonic() - start), scoring_seconds(seconds, len(valid))))
    finish(plan, table, [scored], [done])


def _key(records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    wanted = {"dims": plan["dims"], "classes": plan["classes"], "labels": plan["labels"], "seed": plan["seed"]}
    wanted |= {"planner": plan["planner"], "overlap": plan["overlap"]}
    keys = [case_key(record, wanted) for record in records]
    return hashlib.sha256(json.dumps([wanted, plan["validation_share"], keys]).encode()).hexdigest()[:16]


def _environment(place: Path, plan: Mapping[str, Any]) -> None:
    """nnU-Net reads these when it is first imported."""
    for part in ("raw", "preprocessed", "results"):
        (place / part).mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{part}"] = str((place / part).resolve())
    on_gpu = plan["device"] != "cpu" and gpu_gib() > 0
    os.environ.update(nnUNet_compile="t" if on_gpu else "f", nnUNet_def_n_proc="1")
    _processes(int(plan["workers"]))


def _processes(number: int) -> None:
    """Worker processes for augmentation; 0 lets the training process do it."""
    os.environ.update(nnUNet_n_proc_DA=str(number))


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
    planner, plans = PLANNERS[plan["planner"]]
    api.plan_experiments([1], experiment_planner_class_name=planner)
    _processes(int(plan["workers"]))
    api.preprocess([1], plans, configurations=(configuration(plan),), num_processes=(workers,), show_progress_bar=False)


def configuration(plan: Mapping[str, Any]) -> str:
    return "2d" if int(plan["dims"]) == 2 else "3d_fullres"


def scoring_seconds(seconds: float, cases: int) -> float:
    """Return what is kept free for predicting the validation cases, of all seconds."""
    return min(SCORED * seconds, 2.0 + 10.0 * cases)


def score(
    plan: Mapping[str, Any], records: Sequence[dict[str, Any]], seconds: float
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return cases and their (cases, K) Dice on the images' own grids, of the exported weights and by the exported steps.

    Cases come in random order, at least one, as long as the next one is expected to end within `seconds`.
    """
    import torch
    from safetensors.torch import load_file

    from m3b.training.segmentation.nnunet_steps import load_nnunet, predict_nnunet
    from m3b.training.segmentation.scoring import dice_of

    device = torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")
    config = json.loads((FOLDER / "nnunet.json").read_text())
    network = load_nnunet(config, load_file(str(FOLDER / "best.safetensors")), device)
    table: list[list[float]] = []
    start, order = time.monotonic(), random.Random(0).sample(list(records), len(records))
    for record in order:
        spent = time.monotonic() - start
        if table and spent * (1 + 1 / len(table)) > seconds:
            print(f"{len(table)} of {len(order)} validation cases are scored: the minutes are over", flush=True)
            break
        image = read_case(record["image_path"], plan)
        found = predict_nnunet(network, image, config, device, str(record["image_path"]))
        truth = (load_masks if plan["overlap"] else load_ids)(record, plan, image)
        table.append(dice_of(found, truth, len(plan["classes"]), bool(plan["overlap"])))
    return order[: len(table)], np.array(table, float)
