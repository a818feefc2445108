"""What a file a case says of its image: classes by number or text, patients; and what of it is asked about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layout_kit import Names
from layout_kit_arrays import TOLD, case_files, noise
from spec_kit import read

from m3b.data.spec.patterns import PatternError
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.data.survey.array_files import opened_members
from m3b.data.survey.array_texts import text_of
from m3b.dataset.reading import read_image

REQUEST = "Classify brain tumors into meningioma, glioma and pituitary tumor"


def test_numbers_that_nothing_names_are_asked_about_in_the_order_of_the_request(tmp_path: Path) -> None:
    case_files(tmp_path, Names(), "npz")
    found = propose(survey(tmp_path), Ask("diagnosis", REQUEST))
    assert "whether 1 is meningioma, 2 is glioma, 3 is pituitary tumor" in sufficient(found)
    assert found[0].spec.labels is not None
    assert found[0].spec.labels.classes == {"meningioma": ("1",), "glioma": ("2",), "pituitary tumor": ("3",)}
    assert sufficient(propose(survey(tmp_path), Ask("diagnosis", REQUEST, notes=TOLD))) == ""


NAMED = ("glioma", "meningioma", "pituitary")


@pytest.mark.parametrize("label", [lambda at: NAMED[at % 3], lambda at: np.bytes_(NAMED[at % 3].encode())])
def test_texts_are_classes(tmp_path: Path, label: Callable[[int], object]) -> None:
    for at in range(24):
        np.savez(tmp_path / f"{at}.npz", image=noise(at, (20, 24)), label=label(at))
    found = propose(survey(tmp_path), Ask("diagnosis", REQUEST))
    assert sufficient(found) == ""
    assert set(found[0].spec.classes) == {"glioma", "meningioma", "pituitary"}


def test_a_measurement_is_no_class_and_a_patient_neither(tmp_path: Path) -> None:
    for at in range(24):
        np.savez(tmp_path / f"{at}.npz", image=noise(at, (20, 24)), weight=60.5 + at % 3, pid=at // 4)
    assert propose(survey(tmp_path), Ask("diagnosis", "Tell benign from malignant lesions")) == []


def test_a_file_without_a_label_or_that_is_damaged_is_left_out_by_name(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for at in range(12):
        held = {"label": at % 2} if at != 3 else {}
        np.savez(tmp_path / "raw" / f"{at:02d}.npz", image=noise(at, (20, 24)), **held)
    images = {"files": {"pattern": "*.npz", "member": "image"}}
    spec = {
        "task": "diagnosis",
        "images": images,
        "labels": {"sources": [{"key": "label"}], "classes": {"0": [], "1": []}},
    }
    made = read(tmp_path / "raw", tmp_path, **spec)
    assert len(made.train) + len(made.test) == 11
    assert made.accounting.left == {"03.npz": "no label"}
    spec["labels"] = {"sources": [{"key": "labl"}], "classes": {"0": [], "1": []}}
    with pytest.raises(PatternError, match="has no array 'labl'"):
        read(tmp_path / "raw", tmp_path, **spec)


def test_matlab_texts_are_read_whatever_wrote_them(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "a.mat", "w") as out:
        for key, text, said in (
            ("told", "AB", b"char"),
            ("bare", "P17", b""),
            ("ages", "AAB", b"uint16"),
            ("two", "AB", b""),
        ):
            out[key] = np.array([[ord(one)] for one in text], np.uint16)
            if said:
                out[key].attrs["MATLAB_class"] = np.bytes_(said)
    with opened_members(tmp_path / "a.mat", ".mat") as (_, inners):
        found = {one.key: text_of(one.read(None)) for one in inners}
    assert found == {"told": "AB", "bare": "P17", "ages": None, "two": None}


def test_structures_of_older_matlab_files_are_opened_by_survey_and_templates(tmp_path: Path) -> None:
    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"cjdata": {"image": noise(1, (20, 24)), "in": {"x": 3.0}, "PID": "P1"}})
    assert read_image("a.mat#cjdata/image", str(tmp_path)).array.shape == (1, 20, 24)
    with opened_members(tmp_path / "a.mat", ".mat") as (_, inners):
        found = {one.key: text_of(one.read(None)) for one in inners}
    assert found == {"cjdata/image": None, "cjdata/in/x": "3", "cjdata/PID": "P1"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(2), "2"),
        ([[1.5]], "1.5"),
        (b"ill ", "ill"),
        (np.array(["x"]), "x"),
        ([0, 0, 1], "2"),
        ([0, 2, 1], None),
        ([], None),
    ],
)
def test_the_text_of_a_value(value: object, text: str | None) -> None:
    assert text_of(value) == text
