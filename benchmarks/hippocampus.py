"""Compare m3b's whole pipeline, the segmentation template alone, and nnU-Net's command line on hippocampi on MRI.

All three train for the same minutes on the same training part and are scored by m3b.metrics on the same locked test part.

    python benchmarks/hippocampus.py --data DIR [--minutes 25] [--only m3b|nnunet|template ...] [--out DIR]

DIR holds `images/*.nii.gz` and `labels/*.nii.gz` of the same names (Medical Segmentation Decathlon, task 4; labels 1 and
2). Images without a label are left out. `--split RUN/work/Datapath` uses the split of an earlier run; otherwise `m3b` makes
it, or a manifest if m3b is not selected. nnU-Net trains on every training case (its fold "all"), with its
default recipe; only its length is changed (nnunet_plain.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from nnunet_plain import make_raw_folders, run_command, train_and_predict

from m3b.dataset.manifest.execute import execute, write
from m3b.dataset.manifest.model import Images, Manifest, Masks
from m3b.dataset.survey.walk import walk
from m3b.metrics.masks import measure_masks
from m3b.resources import copy_template

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "resources" / "templates"
REQUEST = "Segment the anterior and posterior hippocampus on MRI"
LABELS = {"anterior": 1, "posterior": 2}


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
    raw = make_raw_folders(out / "nnunet")
    for number, record in enumerate(train):
        shutil.copy(record["image_path"], raw / "imagesTr" / f"case_{number:04d}_0000.nii.gz")
        shutil.copy(record["mask_path"], raw / "labelsTr" / f"case_{number:04d}.nii.gz")
    for number, record in enumerate(test):
        shutil.copy(record["image_path"], raw / "imagesTs" / f"case_{number:04d}_0000.nii.gz")
    start = time.monotonic()
    found = train_and_predict(raw, ["MRI"], LABELS, "3d_fullres", minutes)
    return score([found / f"case_{number:04d}.nii.gz" for number in range(len(test))], test), time.monotonic() - start


if __name__ == "__main__":
    main()
