"""Views and sides in the names of images are no classes, unless a request is about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from proposals_kit import decide_folder, write_picture, write_rows


def write_mammograms(folder: Path) -> None:
    rows: list[list[object]] = [["file", "ACR"]]
    for number in range(48):
        view = ("CC", "ML")[number % 2]
        person = f"{np.random.default_rng(number // 4).integers(16**12):016x}"
        write_picture(folder / "images" / f"{20500 + 7 * number}_{person}_MG_{view}_ANON.png", number)
        if number > 1:
            rows.append([20500 + 7 * number, 1 + number // 4 % 4])
    write_rows(folder / "table.csv", rows)


def test_views_are_no_classes_of_density(tmp_path: Path) -> None:
    write_mammograms(tmp_path)
    outcome = decide_folder(tmp_path, "Grade ACR breast density on mammograms")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest.patient is not None
    sources = [item.manifest.labels.value for item in outcome.proposals if item.manifest.labels is not None]
    assert all(source is not None and "word" not in source.value for source in sources)


@pytest.mark.parametrize("request_text", ["Classify mammograms by view", "Tell CC from ML mammograms"])
def test_requested_views_are_classes(tmp_path: Path, request_text: str) -> None:
    write_mammograms(tmp_path)
    outcome = decide_folder(tmp_path, request_text)
    labels = outcome.proposals[0].manifest.labels
    assert labels is not None
    assert set(labels.classes) == {"CC", "ML"}
