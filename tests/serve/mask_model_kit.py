"""A segmenter by hand: voxels above 200 are a lesion, above 500 an implant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

PREDICT = """
import argparse, json
from pathlib import Path
import SimpleITK as sitk
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("--masks")
parser.add_argument("-o")
call = parser.parse_args()
masks = Path(call.masks)
masks.mkdir(exist_ok=True)
answers = []
for number, path in enumerate(json.loads(Path(call.list).read_text()), 1):
    try:
        if Path(path).is_dir():
            image = sitk.ReadImage(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(path))
        else:
            image = sitk.ReadImage(path)
        mask = sitk.Cast(image > 200, sitk.sitkUInt8) + sitk.Cast(image > 500, sitk.sitkUInt8)
        file = masks / f"{number:04d}_mask.nii.gz"
        sitk.WriteImage(mask, str(file))
        voxels = int((sitk.GetArrayFromImage(mask) == 1).sum())
        answers.append({"image": path, "mask": f"{masks.name}/{file.name}", "volumes_ml": {"lesion": voxels / 1000, "implant": 0.0}})
    except RuntimeError:
        answers.append({"image": path, "error": "cannot be read"})
Path(call.o).write_text(json.dumps(answers))
"""


def make_mask_model(folder: Path) -> Path:
    """Write the model; its labels are lesion 1 and implant 2."""
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(PREDICT)
    names, labels = ["lesion", "implant"], {"lesion": 1, "implant": 2}
    config = {"task": "segmentation", "classes": names, "labels": labels, "weights": ["model.safetensors"]}
    config["plan"] = {"task": "segmentation", "classes": names, "dims": 3}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "README.md").write_text("# Bright voxels\n")
    return folder
