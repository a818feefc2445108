"""Train nnU-Net by its own command line, plans and trainer, as an opponent of the templates in recipes.py and hippocampus.py.

    python nnunet_plain.py PROJECT MINUTES OUT.npz

Only its length is changed: the steps of the minutes, by a measured trial, are divided into up to fifty epochs (of up to
nnU-Net's own 250 steps), so that its learning rate falls to the end. It trains on every training case (fold "all"), as it
does without a choice of folds. Planning, the trial and prediction are not counted in the minutes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, MAX_STEPS, TRIAL, TRIAL_SHARE = 50, 250, 20, 0.2
TRAINER = """
import os
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

class nnUNetTrainerMinutes(nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs, self.num_iterations_per_epoch = int(os.environ["EPOCHS"]), int(os.environ["STEPS"])
        self.num_val_iterations_per_epoch = 1

    def perform_actual_validation(self, save_probabilities=False):
        pass
"""
TIMM_SHIM = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""
"""Replacement of timm if torchvision, which timm needs, is absent (there is none for some CPU builds of torch). nnU-Net's
command line imports every shipped trainer to find one by its name, including those of Primus with timm; none of them is used."""


def main() -> None:
    """Write a mask of each test image on its own grid: `0`, `1`, ... in the order of the cases."""
    import nibabel

    out = Path(sys.argv[3]).resolve()
    os.chdir(sys.argv[1])
    plan, test = json.loads(Path("plan.json").read_text()), json.loads(Path("test.json").read_text())
    if plan["task"] != "segmentation" or plan["overlap"]:
        raise SystemExit("nnunet_plain.py segments classes that do not overlap")
    raw = make_raw_folders(Path("found", "nnunet").resolve())
    train = json.loads(Path("Datapath/train.json").read_text())
    channels = [write_case(raw, "Tr", number, record, plan) for number, record in enumerate(train)]
    for number, record in enumerate(test):
        write_case(raw, "Ts", number, record, plan, with_mask=False)
    modality = "CT" if plan["intensity"]["mode"].startswith("window") else "MRI"
    names = [f"part{k}" for k in range(channels[0])] if channels[0] > 1 else [modality]
    labels = {name: k + 1 for k, name in enumerate(plan["classes"])}
    found = train_and_predict(raw, names, labels, "2d" if plan["dims"] == 2 else "3d_fullres", float(sys.argv[2]))
    masks = [np.asarray(nibabel.load(found / f"case_{k:04d}.nii.gz").dataobj) for k in range(len(test))]
    np.savez_compressed(out, **{str(k): mask for k, mask in enumerate(masks)})


def write_case(
    raw: Path, part: str, number: int, record: Mapping[str, Any], plan: Mapping[str, Any], with_mask: bool = True
) -> int:
    """Write image and mask of a case, as m3b reads them, as NIfTI files; return the number of channels."""
    import nibabel

    from m3b.training.channels import read_case
    from m3b.training.mask_grid import load_masks

    image = read_case(record["image_path"], plan)
    affine = np.diag([*(image.spacing or [1.0] * image.dims), *[1.0] * (3 - image.dims), 1.0])
    for channel, array in enumerate(image.array):
        file = raw / f"images{part}" / f"case_{number:04d}_{channel:04d}.nii.gz"
        nibabel.save(nibabel.Nifti1Image(np.asarray(array, np.float32), affine), file)
    if with_mask:
        masks = load_masks(record, plan, image)
        ids = (masks > 0).argmax(axis=0) + 1
        mask = np.where((masks > 0).any(axis=0), ids, 0).astype(np.uint8)
        nibabel.save(nibabel.Nifti1Image(mask, affine), raw / f"labels{part}" / f"case_{number:04d}.nii.gz")
    return len(image.array)


def make_raw_folders(folder: Path) -> Path:
    """Return an empty folder of nnU-Net's raw data with imagesTr, labelsTr and imagesTs."""
    shutil.rmtree(folder, ignore_errors=True)
    raw = folder / "raw" / "Dataset004_Plain"
    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (raw / part).mkdir(parents=True)
    return raw


def train_and_predict(
    raw: Path, channels: Sequence[str], labels: Mapping[str, int], configuration: str, minutes: float
) -> Path:
    """Plan, train for the minutes and predict imagesTs; return the folder of the predicted masks."""
    import torch

    folder, device = raw.parents[1], "cuda" if torch.cuda.is_available() else "cpu"
    dataset_json = {
        "channel_names": dict(enumerate(channels)),
        "labels": {"background": 0, **labels},
        "file_ending": ".nii.gz",
    }
    cases = len(list((raw / "labelsTr").iterdir()))
    (raw / "dataset.json").write_text(json.dumps({**dataset_json, "numTraining": cases}))
    (folder / "trainer").mkdir()
    (folder / "trainer" / "minutes.py").write_text(TRAINER)
    env = {f"nnUNet_{name}": str(folder / name) for name in ("raw", "preprocessed", "results")}
    if importlib.util.find_spec("torchvision") is None:
        for module in ("timm", "timm/layers", "timm/models", "timm/models/eva"):
            (folder / "shim" / module).mkdir(parents=True)
            (folder / "shim" / module / "__init__.py").write_text(TIMM_SHIM)
        env["PYTHONPATH"] = str(folder / "shim")
    env |= {"nnUNet_extTrainer": str(folder / "trainer"), "nnUNet_n_proc_DA": "1", "nnUNet_compile": "f"}
    run_command(
        ["nnUNetv2_plan_and_preprocess", "-d", "4", "-c", configuration, "-np", "1", "-npfp", "1"], folder, **env
    )
    env |= {"nnUNet_n_proc_DA": "0"} if device == "cpu" else {}
    command = ["nnUNetv2_train", "4", configuration, "all", "-tr", "nnUNetTrainerMinutes", "-device", device]
    for trial in (1, TRIAL):  # a first step is mostly warming up; of slow ones there is no time for more
        output = run_command(command, folder, **env, EPOCHS="1", STEPS=str(trial))
        seconds = float(re.findall(r"Epoch time: ([0-9.]+)", output)[0]) / (trial + 1 / 3)
        if seconds * TRIAL > TRIAL_SHARE * 60 * minutes:
            break
    steps = max(1, int(60 * minutes / seconds))
    epoch = min(MAX_STEPS, max(1, round(steps / EPOCHS)))
    print(f"nnU-Net: {seconds:.2f} s a step, {max(1, steps // epoch)} epochs of {epoch} steps", flush=True)
    output = run_command(command, folder, **env, EPOCHS=str(max(1, steps // epoch)), STEPS=str(epoch))
    trained = sum(float(value) for value in re.findall(r"Epoch time: ([0-9.]+)", output))
    print(f"nnU-Net: trained for {trained / 60:.1f} minutes", flush=True)
    run_command(
        ["nnUNetv2_predict", "-i", str(raw / "imagesTs"), "-o", str(folder / "found"), "-d", "4", "-c", configuration, "-f", "all",
         "-tr", "nnUNetTrainerMinutes", "-device", device, "-npp", "1", "-nps", "1"],
        folder, **env,
    )  # fmt: skip
    return folder / "found"


def run_command(command: list[str], cwd: Path, **environment: str) -> str:
    """Return standard output; show the end of all output if the command fails."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
