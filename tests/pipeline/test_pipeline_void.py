"""A whole run by rules on masks with a void border: from the request to a delivered model, whose figures leave the border out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from m3b import Pipeline, load_model
from m3b.data.index import read_index
from m3b.dataset.reading import read_mask

VOID = 255


def write_discs(folder: Path, count: int, seed: int = 0) -> Path:
    """Write pictures of two bright discs; their masks have a border of three pixels that is void."""
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    rows, columns = np.mgrid[:64, :64]
    for number in range(count):
        random, mask = np.random.default_rng(seed + number), np.zeros((64, 64), np.uint8)
        for _ in range(2):
            row, column, radius = (int(random.integers(*limits)) for limits in ((14, 50), (14, 50), (7, 12)))
            mask[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1
        picture = 90 + 70 * mask + random.normal(0, 8, (64, 64))
        mask[ndimage.binary_dilation(mask, iterations=2) & ~ndimage.binary_erosion(mask)] = VOID
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"images/case{number:03d}.png")
        Image.fromarray(mask).save(folder / f"masks/case{number:03d}.png")
    return folder


@pytest.mark.slow
def test_void_from_the_request_to_the_delivered_model(tmp_path: Path) -> None:
    data, external_data = write_discs(tmp_path / "polyps", 40), write_discs(tmp_path / "north", 12, 500)
    masks = {"files": "masks/{case}.png", "key": "{case}", "image": "{case}", "classes": {"polyp": [1]}, "void": [VOID]}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"task": "segmentation", "images": {"files": "images/{case}.png"}, "masks": masks}))
    run = tmp_path / "run"
    pipeline = Pipeline(
        "rules",
        data=[data],
        out=run,
        train_minutes=0.1,
        manifest=manifest,
        external={"north": (external_data, manifest)},
    )
    result = pipeline.run("Segment the polyps in these endoscopy pictures")
    assert (result.status, result.integrity) == ("completed", "clean"), result.reason
    for record in read_index(run / "locked", "segmentation").records:
        void = np.array(Image.open(data / "masks" / Path(str(record.image)).name)) == VOID
        assert np.array_equal(read_mask(str(record.ignored), str(run / "locked")).array > 0, void)
    scores = json.loads((run / "locked/scores.json").read_text())
    assert scores["details"]["ignored_share"] == pytest.approx(0.06, abs=0.02)
    assert scores["metrics"]["dice"]["value"] > 0.95
    external = result.external["north"]
    assert external.primary is not None, external.reason
    assert external.primary.value > 0.95
    stored = json.loads((run / "locked/external/north/predictions.json").read_text())
    assert all(row["ignored"] > 0 for row in stored["rows"])
    for page in ("report.html", "model/README.md"):
        assert f"{scores['details']['ignored_share']:.1%} of the test pixels" in (run / page).read_text(), page
    [answer] = load_model(run / "model").predict([data / "images/case000.png"], out=tmp_path / "out")
    assert Path(str(answer.mask)).is_file()
