"""Proposed readings of generated folders of many kinds: right, and right still after changes that mean nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import layout_kit as kit
import pytest
from layout_kit_archives import ARCHIVES
from layout_kit_arrays import ARRAYS
from layout_kit_boxes import BOXED
from layout_kit_known import KNOWN, volume
from layout_kit_more import MORE
from layout_kit_public import PUBLIC
from layout_kit_runs import RUNS
from layout_kit_steps import STEPS
from layout_kit_told import TOLD
from spec_kit import mask, picture

from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey

EVERY = (*kit.LAYOUTS, *BOXED, *MORE, *STEPS, *KNOWN, *TOLD, *PUBLIC, *RUNS, *ARRAYS, *ARCHIVES)
BY_NAME = {one.name: one for one in EVERY}
MUTATIONS = int(os.environ.get("M3B_LAYOUT_MUTATIONS", "1"))
"""Changed folders of each kind; more by the environment."""


def verdict(layout: kit.Layout, names: kit.Names, tmp_path: Path, seed: str) -> kit.Verdict:
    root, work = tmp_path / seed / "raw", tmp_path / seed / "work"
    root.mkdir(parents=True)
    work.mkdir()
    return kit.read(root, layout.make(root, names, random.Random(seed)), work)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_layout_is_read_rightly_without_asking(name: str, tmp_path: Path) -> None:
    found = verdict(BY_NAME[name], kit.Names(), tmp_path, name)
    assert (found.wrong, found.why) == ("", "")


def test_changes_that_mean_nothing_change_no_reading(tmp_path: Path) -> None:
    right, failed = 0, []
    for layout in EVERY:
        for at in range(MUTATIONS):
            seed = f"{layout.name}-{at}"
            names = kit.mutated(layout, random.Random(seed))
            found = verdict(layout, names, tmp_path, seed)
            assert not found.wrong or found.why, f"{seed} {names}: {found.wrong}"
            right += not found.wrong
            failed += [f"{seed}: {found.wrong}"] if found.wrong else []
    assert right >= 0.9 * MUTATIONS * len(EVERY), failed


# --- wrong readings that must not be taken ---------------------------------------------------------------------------


def asked(root: Path, want: kit.Want, work: Path) -> kit.Verdict:
    work.mkdir(exist_ok=True)
    return kit.read(root, want, work)


def test_a_field_of_view_is_no_target(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / "images" / f"{at:02d}.png", 80, (32, 32))
        mask(root / "masks" / f"{at:02d}.png", (2, 2, 30, 30), size=(32, 32))
    found = asked(root, kit.Want("Segment vessels on fundus photographs", "segmentation", 10), tmp_path / "w")
    assert found.why


def test_a_field_of_view_beside_the_target_is_left(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / "images" / f"{at:02d}.png", 80, (32, 32))
        mask(root / "fov" / f"{at:02d}.png", (2, 2, 30, 30), size=(32, 32))
        mask(root / "vessel" / f"{at:02d}.png", (at, 3 + at, at + 5, 9 + at), size=(32, 32))
    found = asked(root, kit.Want("Segment vessels on fundus photographs", "segmentation", 10), tmp_path / "w")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    assert found.best.spec.masks is not None
    assert "vessel" in found.best.spec.masks.files.pattern


def test_masks_of_another_organ_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / "images" / f"{at:02d}.png", 80, (32, 32))
        mask(root / "kidney" / f"{at:02d}.png", (at, 3 + at, at + 5, 9 + at), size=(32, 32))
    assert asked(root, kit.Want("Segment the liver on CT slices", "segmentation", 10), tmp_path / "w").why


def test_patients_are_no_classes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(30):
        picture(root / f"PAT{at // 5:03d}" / f"{at:04d}.png", 80)
    found = asked(root, kit.Want("Tell ill from healthy on chest X-rays", "diagnosis", 30), tmp_path / "w")
    assert found.why


def test_slices_or_volumes_are_asked_where_the_request_says_neither(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    kit.slices(root, kit.Names(), random.Random(0))
    found = asked(root, kit.Want("Tell COVID from healthy lungs", "diagnosis", 12), tmp_path / "w")
    assert "folders with numbered slices" in found.why


def test_half_of_the_images_without_masks_is_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(20):
        picture(root / "images" / f"p{at:02d}.png", 80, (32, 32))
        if at < 8:
            mask(root / "masks" / f"p{at:02d}.png", (at, 3 + at, at + 5, 9 + at), size=(32, 32))
    assert asked(root, kit.Want("Segment polyps", "segmentation", 8), tmp_path / "w").why


def test_two_groups_of_masks_of_which_none_is_named_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / "images" / f"p{at:02d}.png", 80, (32, 32))
        mask(root / "red" / f"p{at:02d}.png", (at, 3 + at, at + 5, 9 + at), size=(32, 32))
        mask(root / "blue" / f"p{at:02d}.png", (20 - at, 3, 25 - at, 9), size=(32, 32))
    assert "which are meant" in asked(root, kit.Want("Segment polyps", "segmentation", 10), tmp_path / "w").why


def test_a_second_opinion_is_no_second_class(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"im_{at:02d}.png", 80, (32, 32))
        for reader in ("1stHO", "2ndHO"):
            mask(root / f"im_{at:02d}_{reader}.png", (at, 3 + at, at + 5, 9 + at), size=(32, 32))
    found = asked(root, kit.Want("Segment vessels", "segmentation", 10, values=1), tmp_path / "w")
    assert (found.wrong, found.why) == ("", "")


def test_none_beside_other_words_is_a_class(tmp_path: Path) -> None:
    root, rows = tmp_path / "raw", []
    for at in range(30):
        picture(root / "images" / f"a{at:02d}.png", 80)
        rows.append((f"a{at:02d}.png", ("mass", "cyst", "none")[at % 3], at % 7))
    kit.table(root / "t.csv", kit.Names(), ("image", "finding", "age"), rows)
    want = kit.Want("Classify the findings on mammograms", "diagnosis", 30, frozenset({"mass", "cyst", "none"}))
    found = asked(root, want, tmp_path / "w")
    assert (found.wrong, found.why) == ("", "")


def test_a_case_that_a_table_calls_by_word_and_number(tmp_path: Path) -> None:
    root, found = tmp_path / "raw", []
    for at in range(14):
        for view in range(2 + at % 2):
            picture(root / "images" / f"MPX{1000 + 7 * at}_pic{300 + 3 * at + view}.png", 80)
        text = f"A round lesion of {at} mm lies in the left lobe and enhances at its border after contrast was given."
        found.append({"uid": f"MPX{1000 + 7 * at}", "Findings": text, "Title": f"Case of the week {at}"})
    (root / "cases.json").write_text(kit.json.dumps(found))
    got = asked(root, kit.Want("Write the findings of CT and MR images", "report", 14), tmp_path / "w")
    assert (got.wrong, got.why) == ("", "")


def test_two_columns_that_could_both_be_meant_are_asked_about(tmp_path: Path) -> None:
    root, rows = tmp_path / "raw", []
    for at in range(40):
        picture(root / "images" / f"a{at:02d}.png", 80)
        rows.append((f"a{at:02d}.png", ("red", "blue")[at % 2], ("round", "oval", "long")[at % 3]))
    kit.table(root / "t.csv", kit.Names(), ("image", "diagnosis", "category"), rows)
    found = asked(root, kit.Want("Classify the images", "diagnosis", 40), tmp_path / "w")
    assert "nearly as well" in found.why


def test_brain_masks_beside_labels_of_the_same_part_are_left(tmp_path: Path) -> None:
    import nibabel as nib
    import numpy as np

    root = tmp_path / "raw"
    for at in range(8):
        whole = np.zeros((10, 10, 6), np.uint8)
        whole[1:9, 1:9] = 1
        image = np.random.default_rng(at).integers(0, 900, whole.shape).astype(np.int16)
        labels = whole * np.random.default_rng(at).integers(1, 5, whole.shape).astype(np.uint8)
        for folder, array in (("imagesTr", image), ("labelsTr", labels), ("masksTr", whole)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(array, np.eye(4)), root / folder / f"brain_{at + 1:04d}_0000.nii.gz")
    found = asked(
        root, kit.Want("Segment the regions of the brain on MRI", "segmentation", 8, values=4), tmp_path / "w"
    )
    assert found.wrong == ""


def test_places_in_millimetres_that_lie_in_no_volume_are_asked_about(tmp_path: Path) -> None:
    """Centres and diameters in world coordinates were read as boxes of pictures, which ended in a KeyError."""
    root, rows = tmp_path / "raw", ["seriesuid,coordX,coordY,coordZ,diameter_mm"]
    for at in range(12):
        volume(root / f"subset{at % 3}/1.3.6.1.4.{1000 + 7 * at}.nii.gz")
        rows.append(f"1.3.6.1.4.{1000 + 7 * at},{-3.5 - at},4.0,5.0,4.5")
    (root / "annotations.csv").write_text("\n".join(rows))
    want = kit.Want("Find lung nodules with boxes on CT", "detection", 12, boxes=True)
    assert "would lie beside their images" in kit.read(root, want, tmp_path).why


def test_one_projection_of_two_is_taken_where_the_request_names_it(tmp_path: Path) -> None:
    """A report was learnt from the lateral view too, as a case of its own."""
    root, rows, reports = tmp_path / "raw", ["uid,filename,projection"], ["uid,findings,impression"]
    for at in range(1, 25):
        for view, code in (("Frontal", 1001), ("Lateral", 2001)):
            picture(root / f"images/{at}_IM-{at:04d}-{code}.dcm.png", 90, kit.SIZE)
            rows.append(f"{at},{at}_IM-{at:04d}-{code}.dcm.png,{view}")
        reports.append(f"{at},The heart is normal in size and the lungs show {at} opacities.,No acute disease {at}.")
    (root / "projections.csv").write_text("\n".join(rows))
    (root / "reports.csv").write_text("\n".join(reports))
    (tmp_path / "work").mkdir()
    both = kit.read(root, kit.Want("Write the findings of chest X-rays", "report", 48), tmp_path / "work")
    assert (both.wrong, both.best and both.best.spec.only) == ("", ())
    found = kit.read(root, kit.Want("Write the findings of frontal chest X-rays", "report", 24), tmp_path / "work")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    assert "Frontal alone, as asked for (the column 'projection'); left out: Lateral 24" in found.best.evidence


def test_one_plane_of_three_folders_is_taken_where_the_request_names_it(tmp_path: Path) -> None:
    for plane in ("axial", "coronal", "sagittal"):
        for at in range(20):
            picture(tmp_path / "raw" / plane / ("torn", "intact")[at % 2] / f"{at:04d}.png", 90, kit.SIZE)
    want = kit.Want(
        "Tell torn from intact ligaments on sagittal knee MRI slices", "diagnosis", 20, frozenset(("torn", "intact"))
    )
    assert kit.read(tmp_path / "raw", want, tmp_path).wrong == ""


@pytest.mark.parametrize(
    ("request_", "is_open"),
    [
        ("Classify the tissue into its 15 types", False),
        ("Classify the tissue into 15 classes", False),
        ("Classify the tissue into its 12 types", True),
        ("Tell ill from healthy tissue", True),
    ],
)
def test_folders_that_are_as_many_as_the_classes_asked_for_are_no_volumes(
    tmp_path: Path, request_: str, is_open: bool
) -> None:
    """Each class would have a single case if a folder of numbered pictures were one."""
    root = tmp_path / "raw"
    for letter in range(15):
        for at in range(8):
            picture(root / f"kind_{chr(97 + letter)}" / f"p{at:04d}.png", 12 * letter)
    found = propose(survey(root), Ask("diagnosis", request_))
    assert bool(sufficient(found)) is is_open
    if not is_open:
        assert (found[0].spec.images.unit, len(found[0].spec.classes)) == ("file", 15)


def test_slices_below_as_many_classes_as_are_asked_for_are_still_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    kit.slices(root, kit.Names(), random.Random(0))
    found = asked(root, kit.Want("Classify lungs into two types", "diagnosis", 12), tmp_path / "w")
    assert "folders with numbered slices" in found.why
