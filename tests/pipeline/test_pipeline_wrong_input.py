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
    "texts_only": ("no_dataset", "None of the 12 files", "Name the folder that holds the images"),
    "unreadable": ("no_dataset", "such as normal/s0", "export them again"),
    "masks_alone": ("no_dataset", "masks/p", "Add"),
    "images_alone": ("no_dataset", "24 images", "Add the labels"),
    "table_of_others": ("no_dataset", "labels.csv", "Add"),
    "class_not_there": ("undecided", "tuberculosis", "Edit the manifest, or name what is meant"),
    "other_data": ("undecided", "fundus photography", "Edit the manifest, or name what is meant"),
    "one_class": ("no_dataset", "24 images", "Add images of another class"),
    "one_image_a_class": ("no_dataset", "2 images", "Add the labels"),
    "wrong_modality": ("no_dataset", "24 images", "Add the masks"),
    "zips": ("below_range", "4 test cases", ""),
    "broken_tiff": ("no_dataset", "slide_0.tiff", "export them again"),
    "dicom_without_pixels": ("no_dataset", "normal/s0", "export them again"),
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
