"""Compare m3b's whole pipeline, the segmentation template alone, and nnU-Net's command line on hippocampi on MRI.

All three train for the same minutes on the same training part and are scored by m3b.metrics on the same locked test part.

    python benchmarks/hippocampus.py --data DIR [--minutes 25] [--only m3b|nnunet|template ...] [--out DIR]

DIR holds `images/*.nii.gz` and `labels/*.nii.gz` of the same names (Medical Segmentation Decathlon, task 4; labels 1 and
2). Images without a label are left out. `--split RUN/work/Datapath` uses the split of an earlier run; otherwise `m3b` makes
it, or a manifest if m3b is not selected. nnU-Net trains on every training case (its fold "all"), with its
default recipe; only the length is changed: epochs of 20 steps, and as many as its measured epoch time allows.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.manifest.execute import execute, write
from m3b.dataset.manifest.model import Images, Manifest, Masks
from m3b.dataset.survey.walk import walk
from m3b.metrics.masks import measure_masks
from m3b.resources import copy_template

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "resources" / "templates"
REQUEST = "Segment the anterior and posterior hippocampus on MRI"
LABELS = {"anterior": 1, "posterior": 2}
STEPS = 20
TRAINER = f"""
import os
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

class nnUNetTrainerMinutes(nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs = int(os.environ["EPOCHS"])
        self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = {STEPS}, 2

    def perform_actual_validation(self, save_probabilities=False):
        pass
"""


TIMM_SHIM = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""
"""Replacement of timm if torchvision, which timm needs, is absent (there is none for this CPU build of torch). nnU-Net's
command line imports every shipped trainer to find one by its name, including those of Primus with timm; none of them is used."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--only", nargs="*", default=["m3b", "nnunet"], choices=("m3b", "nnunet", "template"))
    parser.add_argument(
        "--split", type=Path, help="folder with train.json, test.json, label_dict.json of an earlier run"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="hippocampus_"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows, split = {}, options.split
    if "m3b" in options.only:
        rows["m3b run"], split = run_m3b(options.data.resolve(), options.minutes, out)
    split = split or make_split(options.data.resolve(), out)
    train, test = (load_cases(split, part) for part in ("train", "test"))
    for name, run in (("template", run_template), ("nnunet", run_nnunet)):
        if name in options.only:
            rows[name] = run(train, test, options.minutes, out)
    print(
        f"\n{len(train)} training cases, {len(test)} test cases, {options.minutes:g} training minutes; files in {out}"
    )
    print(f"{'':12} {'anterior':>9} {'posterior':>9} {'mean Dice':>9} {'wall min':>9}")
    for name, (dice, wall) in rows.items():
        print(f"{name:12} {dice[0]:9.4f} {dice[1]:9.4f} {np.mean(dice):9.4f} {wall / 60:9.1f}")


def run_command(command: list[str], cwd: Path, **environment: str) -> str:
    """Return standard output; show the end of all output if the command fails."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def run_m3b(data: Path, minutes: float, out: Path) -> tuple[tuple[list[float], float], Path]:
    """Run the pipeline; its model predicts the test part again and is scored like the others."""
    card = {"name": "hippocampus", "description": "MRI of the hippocampus: images/ and labels/ of the same names, "}
    card["description"] += "1 anterior, 2 posterior hippocampus. Organ segmentation."
    (out / "card.json").write_text(json.dumps([{**card, "path": str(data)}]))
    start, run = time.monotonic(), out / "run"
    command = [sys.executable, "-m", "m3b", "run", REQUEST, "--data", str(out / "card.json"), "--llm", "rules"]
    print(run_command([*command, "--train-minutes", str(minutes), "--out", str(run)], out)[-3000:])
    wall, split = time.monotonic() - start, run / "work" / "Datapath"
    return (predict_and_score(run / "model", load_cases(split, "test"), out / "m3b.json"), wall), split


def make_split(data: Path, out: Path) -> Path:
    """Write train.json and test.json by a manifest."""
    work = out / "index"
    (work / "data").mkdir(parents=True, exist_ok=True)
    if not (work / "data" / "hippocampus").exists():
        (work / "data" / "hippocampus").symlink_to(data)
    (work / "Datapath").mkdir(exist_ok=True)
    manifest = Manifest(
        task="segmentation",
        images=Images(files="images/{case}.nii.gz"),
        masks=Masks(
            files="labels/{case}.nii.gz",
            key="{case}",
            image="{case}",
            classes={name: (value,) for name, value in LABELS.items()},
        ),
    )
    write(execute(manifest, walk(data), name="hippocampus", work=work), work)
    return work / "Datapath"


def load_cases(split: Path, part: str) -> list[dict[str, Any]]:
    """Return records with absolute paths."""
    work = split.parent
    records = json.loads((split / f"{part}.json").read_text())
    return [
        {
            **r,
            "image_path": str((work / r["image_path"]).resolve()),
            "mask_path": str((work / r["mask_path"]).resolve()),
        }
        for r in records
    ]


def run_template(
    train: list[dict[str, Any]], test: list[dict[str, Any]], minutes: float, out: Path
) -> tuple[list[float], float]:
    """Plan, train, export and predict, without any agent."""
    work = out / "template"
    shutil.rmtree(work, ignore_errors=True)
    copy_template("segmentation", work)
    (work / "Datapath" / "train.json").write_text(json.dumps(train))
    (work / "Datapath" / "label_dict.json").write_text(json.dumps(LABELS))
    start = time.monotonic()
    print(run_command([sys.executable, "plan.py", "--minutes", str(minutes)], work))
    print(run_command([sys.executable, "train.py"], work)[-2000:])
    run_command([sys.executable, "export.py", "--out", "Deliver"], work)
    wall = time.monotonic() - start
    return predict_and_score(work / "Deliver", test, out / "template.json"), wall


def predict_and_score(model: Path, test: list[dict[str, Any]], file: Path) -> list[float]:
    paths = file.with_suffix(".list.json")
    paths.write_text(json.dumps([record["image_path"] for record in test]))
    masks = file.with_suffix("")
    run_command([sys.executable, "predict.py", "--list", str(paths), "-o", str(file), "--masks", str(masks)], model)
    return score([file.parent / result["mask"] for result in json.loads(file.read_text())], test)


def score(masks: list[Path], test: list[dict[str, Any]]) -> list[float]:
    """Return the mean Dice of each label over the test cases, by m3b's own measurement."""
    import nibabel as nib

    table = []
    for mask, record in zip(masks, test, strict=True):
        truth = nib.load(record["mask_path"])
        predicted = np.asarray(nib.load(mask).dataobj)
        figures = measure_masks(
            predicted, np.asarray(truth.dataobj), LABELS, [float(v) for v in truth.header.get_zooms()]
        )
        table.append([figures[name].dice for name in LABELS])
    return [float(v) for v in np.nanmean(table, axis=0)]


def run_nnunet(
    train: list[dict[str, Any]], test: list[dict[str, Any]], minutes: float, out: Path
) -> tuple[list[float], float]:
    """Run nnUNetv2_plan_and_preprocess, nnUNetv2_train, nnUNetv2_predict."""
    folder = out / "nnunet"
    shutil.rmtree(folder, ignore_errors=True)
    raw = folder / "raw" / "Dataset004_Hippocampus"
    for part in (raw / "imagesTr", raw / "labelsTr", folder / "test", folder / "trainer"):
        part.mkdir(parents=True)
    for number, record in enumerate(train):
        shutil.copy(record["image_path"], raw / "imagesTr" / f"case_{number:04d}_0000.nii.gz")
        shutil.copy(record["mask_path"], raw / "labelsTr" / f"case_{number:04d}.nii.gz")
    for number, record in enumerate(test):
        shutil.copy(record["image_path"], folder / "test" / f"test_{number:04d}_0000.nii.gz")
    dataset_json = {"channel_names": {"0": "MRI"}, "labels": {"background": 0, **LABELS}, "file_ending": ".nii.gz"}
    (raw / "dataset.json").write_text(json.dumps({**dataset_json, "numTraining": len(train)}))
    (folder / "trainer" / "minutes.py").write_text(TRAINER)
    env = {f"nnUNet_{name}": str(folder / name) for name in ("raw", "preprocessed", "results")}
    if importlib.util.find_spec("torchvision") is None:
        for module in ("timm", "timm/layers", "timm/models", "timm/models/eva"):
            (folder / "shim" / module).mkdir(parents=True)
            (folder / "shim" / module / "__init__.py").write_text(TIMM_SHIM)
        env["PYTHONPATH"] = str(folder / "shim")
    env |= {"nnUNet_extTrainer": str(folder / "trainer"), "nnUNet_n_proc_DA": "1", "nnUNet_compile": "f"}
    device = "cuda" if _has_gpu() else "cpu"
    run_command(
        ["nnUNetv2_plan_and_preprocess", "-d", "4", "-c", "3d_fullres", "-np", "1", "-npfp", "1"], folder, **env
    )
    env |= {"nnUNet_n_proc_DA": "0"} if device == "cpu" else {}
    command = ["nnUNetv2_train", "4", "3d_fullres", "all", "-tr", "nnUNetTrainerMinutes", "-device", device]
    output = run_command(command, folder, **env, EPOCHS="1")
    epoch = min(float(value) for value in re.findall(r"Epoch time: ([0-9.]+)", output))
    epochs = max(1, int(minutes * 60 / epoch))
    print(f"nnU-Net: {epoch:.1f} s for {STEPS} steps, {epochs} epochs in {minutes:g} minutes", flush=True)
    start = time.monotonic()
    run_command(command, folder, **env, EPOCHS=str(epochs))
    wall = time.monotonic() - start
    predict_paths = [
        "-i",
        str(folder / "test"),
        "-o",
        str(folder / "found"),
        "-d",
        "4",
        "-c",
        "3d_fullres",
        "-f",
        "all",
    ]
    predict_options = ["-tr", "nnUNetTrainerMinutes", "-device", device, "-npp", "1", "-nps", "1"]
    run_command(["nnUNetv2_predict", *predict_paths, *predict_options], folder, **env)
    return score([folder / "found" / f"test_{number:04d}.nii.gz" for number in range(len(test))], test), wall


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


if __name__ == "__main__":
    main()
