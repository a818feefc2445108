"""Photographs beside pictures of their regions, such as superpixels whose numbers are written as colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_mask
from scipy import ndimage

SHAPE = (96, 120)


def _draw_regions(rng: np.random.Generator, n_regions: int, *, numbered: bool) -> np.ndarray:
    """Return a picture with a colour for each region that is nearest to a random point."""
    points = np.ones(SHAPE, bool)
    places = rng.choice(points.size, n_regions, replace=False)
    points.ravel()[places] = False
    nearest = ndimage.distance_transform_edt(points, return_distances=False, return_indices=True)
    order = np.zeros(points.size, int)
    order[places] = np.arange(n_regions)
    regions = order.reshape(SHAPE)[tuple(nearest)]
    colours = np.arange(n_regions) if numbered else rng.choice(2**24, n_regions, replace=False)
    values = colours[regions]
    return np.stack([values & 255, values >> 8 & 255, values >> 16], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("seed", [3, 11])
def test_pictures_of_regions_are_no_images(tmp_path: Path, seed: int, numbered: bool) -> None:
    rng = np.random.default_rng(seed)
    for number in range(14):
        name = f"lesion_{1000 + 7 * number}"
        photograph = np.clip(
            np.add.outer(np.arange(96), np.arange(120))[..., None] + rng.normal(0, 20, (96, 120, 3)), 0, 255
        )
        path = tmp_path / "input" / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(photograph.astype(np.uint8)).save(path)
        regions = _draw_regions(rng, int(rng.integers(80, 150)), numbered=numbered)
        Image.fromarray(regions).save(tmp_path / "input" / f"{name}_regions.png")
        write_mask(tmp_path / "truth" / f"{name}_segmentation.png", number, size=SHAPE)
    outcome = decide_folder(tmp_path, "Segment the skin lesion on photographs")
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert manifest.images.patterns == ("input/lesion_{number1:number}.jpg",)
    assert manifest.masks is not None
    assert manifest.masks.files == "truth/lesion_{number1:number}_segmentation.png"
