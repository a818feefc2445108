"""Why a run ended on data that cannot serve: told to the user, with what was found, an example, and what to do next."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from wrong_kit import WRONG

from m3b import Pipeline
from m3b.errors import UsageError

INTERNAL_TERMS = re.compile(
    r"Datapath|index_spec|train\.json|label_dict|readings/|resources/|work/|\bscript\b|Traceback"
)
"""What only an agent can act on."""
EXPECTED_MESSAGES = {
    "empty": ("refused", "holds no files", "point --data at"),
    "texts_only": (
        "failed",
        "12 text files (e.g. note_0.txt)",
        "Name the folder with the images (`--data` of `m3b run`)",
    ),
    "unreadable": ("rejected_data", "24 were tried, e.g. normal/s000.png", "export them again"),
    "masks_alone": ("failed", "masks (16 files with few values, e.g. masks/p00.png)", "Put the images into the folder"),
    "images_alone": ("failed", "24 pictures (e.g. images/s000.png)", "Add a table with a column that names the images"),
    "table_of_others": ("failed", "names none of the images (its column 'image' says 'case-700.jpg'", "Add a table"),
    "class_not_there": (
        "failed",
        "no label is called like 'tuberculosis'; there are 'pneumonia'",
        "Say in the request",
    ),
    "other_data": ("no_dataset", "data shows images of the chest", "Point --data at"),
    "one_class": ("rejected_data", "All images lie in one folder, `pneumonia`", "add data of another class"),
    "one_image_a_class": ("rejected_data", "2 cases for training and 0 for testing", "Add"),
    "wrong_modality": ("no_dataset", "data shows images of the chest", "Point --data at"),
    "zips": ("failed", "3 files packed into archives, e.g. part0.zip", "Unpack them"),
    "broken_tiff": ("failed", "slide_0.tiff", "Copy or export them again"),
    "dicom_without_pixels": ("rejected_data", "normal/s000.dcm", "export them again"),
    "no_permission": ("failed", "cannot be read", "permission"),
}
"""Folder -> status, what was found in it, and what the user is to do."""


@pytest.mark.parametrize("name", EXPECTED_MESSAGES)
def test_a_reason_speaks_to_the_user(tmp_path: Path, name: str) -> None:
    if name == "no_permission" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    data = tmp_path / "data"
    request = WRONG[name](data)
    try:
        result = Pipeline("rules", data=[data], out=tmp_path / "run", train_minutes=0.1).run(request)
        ended, reason = result.status, result.reason
    except UsageError as error:
        ended, reason = "refused", str(error)
        assert not (tmp_path / "run").exists()
    finally:
        for folder in [data, *data.iterdir()]:
            if folder.is_dir():
                os.chmod(folder, 0o700)
    status, *words = EXPECTED_MESSAGES[name]
    assert ended == status, reason
    for word in words:
        assert word in reason
    assert not INTERNAL_TERMS.search(reason), reason


def test_every_wrong_folder_has_its_words() -> None:
    assert set(EXPECTED_MESSAGES) == set(WRONG)
