"""Whole runs with the embedded rules on images in arrays: labels and masks beside them, one file a case or items of sibling files.

Pictures are drawn with what is to be learnt in plain sight, so that a short training finds it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_kit import m3b_command

pytestmark = pytest.mark.slow

SIDE = 32


def draw_images(seed: int, kinds: np.ndarray) -> np.ndarray:
    """Pictures of so many kinds, `(n, 32, 32)` in 8 bits: how large a bright square is says which, wherever it lies."""
    noise = np.random.default_rng(seed)
    images = noise.integers(20, 70, (len(kinds), SIDE, SIDE)).astype(np.uint8)
    for picture, kind in zip(images, kinds, strict=True):
        side = 5 + 6 * int(kind)
        row, column = noise.integers(0, SIDE - side, 2)
        picture[row : row + side, column : column + side] += 120
    return images


def finished(tmp_path: Path, data: Path, request: str, *options: str) -> dict[str, Any]:
    """The result of a run that was delivered, as it is printed."""
    command = m3b_command("run", request, "--llm", "rules", "--data", data, "--out", tmp_path / "run", "--json",
                          "--train-minutes", "0.25", *options)  # fmt: skip
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert ended.stdout, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert result["status"] in ("completed", "below_range"), result["reason"]
    return result


def index(tmp_path: Path, part: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((tmp_path / "run/locked/Datapath" / f"{part}.json").read_text())
    return cases


def test_a_file_a_case_with_its_class_and_patient(tmp_path: Path) -> None:
    import h5py

    data = tmp_path / "data"
    data.mkdir()
    for at in range(48):
        with h5py.File(data / f"{at + 1}.mat", "w", userblock_size=512) as out:
            out["cjdata/image"] = draw_images(at, np.array([at // 2 % 3]))[0].astype(np.int16)
            out["cjdata/label"] = np.array([[1.0 + at // 2 % 3]])
            out["cjdata/PID"] = np.array([[ord(case)] for case in f"{100360 + at // 2}"], np.uint16)
    (data / "README.txt").write_text("cjdata.label: 1 for meningioma, 2 for glioma, 3 for pituitary tumor\n")
    result = finished(tmp_path, data, "Classify brain tumors into meningioma, glioma and pituitary tumor")
    assert result["primary"]["value"] > 0.9
    cases = {part: index(tmp_path, part) for part in ("train", "test")}
    assert {case["labels"][0] for case in cases["test"]} == {"meningioma", "glioma", "pituitary tumor"}
    people = [{case["patient"] for case in part_cases} for part_cases in cases.values()]
    assert len(people[0] | people[1]) == 24
    assert not people[0] & people[1]


def test_parts_of_images_and_labels_with_a_table_of_their_slides(tmp_path: Path) -> None:
    import h5py

    data = tmp_path / "data"
    data.mkdir()
    for seed, (part, count) in enumerate((("train", 60), ("valid", 20), ("test", 40))):
        labels = np.arange(count) % 2
        for name, array in (
            ("x", draw_images(seed, 2 * labels)[..., None].repeat(3, axis=-1)),
            ("y", labels.reshape(count, 1, 1, 1)),
        ):
            with h5py.File(data / f"patches_{part}_{name}.h5", "w") as out:
                out[name] = array
        rows = [f"{at},slide_{part}_{at // 4}" for at in range(count)]
        (data / f"patches_{part}_meta.csv").write_text("\n".join([",wsi", *rows]))
    result = finished(tmp_path, data, "Detect metastases in lymph node patches")
    assert result["primary"]["value"] > 0.9
    assert [case["image_path"] for case in index(tmp_path, "test")] == [
        f"data/data/patches_test_x.h5#x[{at}]" for at in range(40)
    ]
    assert len(index(tmp_path, "train")) == 80
    accounting = json.loads((tmp_path / "run/scratch/Datapath/accounting.json").read_text())["accounting"]
    assert (accounting["used"], accounting["left_out"]) == ({"image": 3, "table": 6}, [])


def test_masks_beside_arrays_of_images(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for seed, (part, count) in enumerate((("train", 60), ("test", 24))):
        images = draw_images(seed, np.arange(count) % 3)
        np.save(data / f"images_{part}.npy", images)
        np.save(data / f"masks_{part}.npy", (images > 110).astype(np.uint8) * 255)
    result = finished(tmp_path, data, "Segment polyps in colonoscopy images")
    assert result["primary"]["value"] > 0.8
    mask_paths = {case["image_path"]: case["mask_path"] for case in index(tmp_path, "test")}
    assert set(mask_paths) == {f"data/data/images_test.npy#[{at}]" for at in range(24)}
    assert all((tmp_path / "run/work" / path).is_file() for path in mask_paths.values())
