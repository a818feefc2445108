"""Every finding about masks, on real files: found where it is, and not found where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index, Record
from m3b.dataset.audit import Audit, audit_index

SHAPE = (18, 16, 12)
AFFINE = np.array([[-1.0, 0, 0, 90], [0, -1.0, 0, 80], [0, 0, 1.5, -40], [0, 0, 0, 1]])
VALUES = {"spleen": 1, "liver": 6}
COUNT = 24
TEST_FROM = 4


def volume(file: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> None:
    nib.save(nib.Nifti1Image(array, affine), file)


def draw_case(at: int) -> tuple[np.ndarray, np.ndarray]:
    """A noisy image and its mask: a liver of its own place in each, and a spleen."""
    random = np.random.default_rng(at)
    mask = np.zeros(SHAPE, np.uint8)
    mask[2 : 6 + at % 5, 3:9, 2 : 5 + at % 4] = 6
    mask[12:15, 10:13, 4 : 6 + at % 3] = 1
    image = random.normal(0, 60, SHAPE) + 150 * (mask > 0)
    return image.astype(np.int16), mask


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    for at in range(COUNT):
        image, mask = draw_case(at)
        mask[0, 0, 0] = 1 if at % 2 else 6
        mask[0, 0, 1 + at // 12] = 1
        mask[0, 1, at % 12] = 6
        volume(folder / f"i{at}.nii.gz", image)
        volume(folder / f"m{at}.nii.gz", mask)
    return folder


@pytest.fixture
def work(files: Path, tmp_path: Path) -> Path:
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


def record(at: int, **changes: Any) -> Record:
    return replace(Record(f"i{at}.nii.gz", patient=f"p{at}", mask=f"m{at}.nii.gz"), **changes)


def index(
    changed: Mapping[int, Record] | None = None,
    *,
    task: str = "segmentation",
    cases: int = COUNT,
    test: int = TEST_FROM,
    values: dict[str, int] | None = None,
) -> Index:
    records = [(changed or {}).get(at, record(at)) for at in range(cases)]
    values = values or VALUES
    return Index(tuple(records[test:]), tuple(records[:test]), tuple(values), task, values)


def weights(audit: Audit, *, but: tuple[str, ...] = ("small_test",)) -> dict[str, str]:
    return {finding.code: finding.severity for finding in audit.findings if finding.code not in but}


def only(audit: Audit, code: str) -> Any:
    (match,) = [finding for finding in audit.findings if finding.code == code]
    return match


def replaced(work: Path, name: str) -> Path:
    (work / name).unlink()
    return work / name


def test_clean_masks_have_no_finding_and_are_counted(work: Path) -> None:
    audit = audit_index(index(), work)
    assert weights(audit) == {}
    assert audit.counts == {"train": {"spleen": 20, "liver": 20}, "test": {"spleen": 4, "liver": 4}}
    assert audit.opened == COUNT
    assert "test: 4 cases (spleen: 4, liver: 4), 4 patients" in audit.summary()


def test_a_mask_of_another_shape(work: Path) -> None:
    volume(replaced(work, "m7.nii.gz"), draw_case(7)[1][:-1])
    finding = only(audit_index(index(), work), "mask_shape")
    assert finding.severity == "fix"
    assert finding.cases == ("m7.nii.gz",)
    for words in ("m7.nii.gz is 16x17x12", "i7.nii.gz 16x18x12", "Resample", "Datapath/masks/"):
        assert words in finding.agent_message


@pytest.mark.parametrize(
    ("affine", "code", "weight"),
    [
        (AFFINE + np.array([[0, 0, 0, 0.4], *[[0, 0, 0, 0]] * 3]), "mask_affine", "warn"),
        (np.eye(4), "mask_position", "fix"),
        (AFFINE @ np.diag([1, 1, 1.4, 1]), "mask_position", "fix"),
    ],
)
def test_a_mask_that_lies_elsewhere(work: Path, affine: np.ndarray, code: str, weight: str) -> None:
    volume(replaced(work, "m9.nii.gz"), np.asarray(nib.load(work / "m8.nii.gz").dataobj), affine)
    audit = audit_index(index(), work)
    assert weights(audit, but=("small_test", "same_mask"))[code] == weight
    assert only(audit, code).cases == ("m9.nii.gz",)
    assert "m9.nii.gz" in only(audit, code).agent_message


def test_a_mask_in_another_orientation_that_lies_where_its_image_lies(work: Path) -> None:
    mask = nib.load(work / "m9.nii.gz")
    flipped = nib.as_closest_canonical(mask)
    volume(replaced(work, "m9.nii.gz"), np.asarray(flipped.dataobj), flipped.affine)
    assert weights(audit_index(index(), work)) == {}


def test_a_mask_without_a_position(work: Path) -> None:
    array = np.transpose(draw_case(9)[1], (1, 0, 2))
    np.save(work / "m9.npy", array)
    audit = audit_index(index({9: record(9, mask="m9.npy")}), work)
    assert weights(audit) == {"mask_unplaced": "warn"}


def test_float_masks_of_whole_numbers_and_of_fractions(work: Path) -> None:
    integer_mask = np.asarray(nib.load(work / "m5.nii.gz").dataobj)
    volume(replaced(work, "m5.nii.gz"), integer_mask.astype(np.float32))
    audit = audit_index(index(), work)
    assert weights(audit) == {"mask_floats": "warn"}
    assert only(audit, "mask_floats").cases == ("m5.nii.gz",)
    volume(work / "m5.nii.gz", integer_mask.astype(np.float32) * 0.37)
    audit = audit_index(index(), work)
    assert weights(audit) == {"mask_fractions": "fix"}
    assert "m5.nii.gz" in only(audit, "mask_fractions").agent_message


def test_values_that_the_dictionary_does_not_name(work: Path) -> None:
    audit = audit_index(index(values={"liver": 6}), work)
    assert weights(audit) == {"unnamed_values": "warn"}
    assert "1 (24 masks" in only(audit, "unnamed_values").agent_message


def test_a_class_that_no_mask_holds(work: Path) -> None:
    audit = audit_index(index(values={"spleen": 1, "liver": 2}), work)
    assert weights(audit) == {"unnamed_values": "warn", "class_nowhere": "fix"}
    assert "liver (2)" in only(audit, "class_nowhere").agent_message
    assert "also hold 6" in only(audit, "class_nowhere").agent_message
    assert only(audit, "class_nowhere").absent == ()


def test_numbers_that_fit_no_mask_are_the_dictionarys_fault(work: Path) -> None:
    audit = audit_index(index(values={"spleen": 2, "liver": 3}), work)
    assert weights(audit)["class_nowhere"] == "fix"
    assert "1, 6" in only(audit, "class_nowhere").agent_message


def empty(work: Path, cases: Any) -> None:
    for at in cases:
        volume(replaced(work, f"m{at}.nii.gz"), np.zeros(SHAPE, np.uint8))


def test_empty_masks(work: Path) -> None:
    empty(work, [5, 6])
    audit = audit_index(index(), work)
    assert weights(audit) == {"empty_mask": "warn"}
    assert only(audit, "empty_mask").cases == ("m5.nii.gz", "m6.nii.gz")
    empty(work, [at for at in range(COUNT) if at not in (5, 6)])
    assert weights(audit_index(index(), work)) == {"all_empty": "reject"}


def test_a_class_that_the_test_split_lacks(work: Path) -> None:
    for at in range(TEST_FROM):
        mask = np.asarray(nib.load(work / f"m{at}.nii.gz").dataobj)
        volume(replaced(work, f"m{at}.nii.gz"), np.where(mask == 1, 0, mask).astype(np.uint8))
    audit = audit_index(index(), work)
    assert weights(audit) == {"class_absent_test": "fix"}
    audit = audit_index(index(cases=7), work)
    assert weights(audit) == {"class_absent_test": "warn", "few_patients": "warn"}, "too few to split otherwise"


def test_a_class_that_the_training_split_lacks(work: Path) -> None:
    def without_spleen(cases: Any) -> None:
        for at in cases:
            mask = np.asarray(nib.load(work / f"m{at}.nii.gz").dataobj)
            volume(replaced(work, f"m{at}.nii.gz"), np.where(mask == 1, 0, mask).astype(np.uint8))

    without_spleen(range(TEST_FROM, COUNT))
    assert weights(audit_index(index(), work)) == {"class_absent_train": "fix"}
    without_spleen(range(1, TEST_FROM))
    audit = audit_index(index(), work)
    assert weights(audit) == {"class_absent_train": "warn", "class_scarce_test": "warn"}
    assert "Only one patient" in only(audit, "class_absent_train").agent_message


def test_three_patients_pass_with_a_word_and_two_do_not(work: Path) -> None:
    audit = audit_index(index(cases=3, test=1), work)
    assert weights(audit) == {"few_patients": "warn"}
    assert "Only 3 patients, 1 of them to test on" in only(audit, "few_patients").agent_message
    assert weights(audit_index(index(cases=2, test=1), work)) == {"too_few_cases": "reject"}


def test_an_image_in_place_of_its_mask(work: Path) -> None:
    audit = audit_index(index({3: record(3, mask="i3.nii.gz")}), work)
    assert weights(audit)["mask_is_image"] == "fix"
    Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20)).save(work / "a.png")
    Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20)).save(work / "b.png")
    audit = audit_index(index({3: record(3, image="a.png", mask="b.png")}), work)
    assert weights(audit)["mask_equals_image"] == "fix"
    assert weights(audit)["mask_looks_like_image"] == "fix"


def test_one_mask_for_two_images(work: Path) -> None:
    audit = audit_index(index({8: record(8, mask="m9.nii.gz")}), work)
    assert weights(audit) == {"one_mask_two_images": "fix", "same_mask": "warn"}
    audit = audit_index(index({8: record(8, mask="m9.nii.gz", patient="p9")}), work)
    assert weights(audit) == {"one_mask_two_images": "warn", "same_mask": "warn"}


def test_copies_of_a_mask_under_other_names(work: Path) -> None:
    (work / "copy.nii.gz").write_bytes((work / "m9.nii.gz").read_bytes())
    assert weights(audit_index(index({8: record(8, mask="copy.nii.gz")}), work)) == {"same_mask": "warn"}


def test_one_image_with_two_masks(work: Path) -> None:
    twice = index({8: record(9, mask="m8.nii.gz")})
    audit = audit_index(twice, work)
    assert weights(audit) == {"contradiction": "fix"}
    assert "as an object" in only(audit, "contradiction").agent_message


def test_the_same_pixels_under_two_masks(work: Path) -> None:
    (work / "copy.nii.gz").write_bytes((work / "i9.nii.gz").read_bytes())
    audit = audit_index(index({8: record(8, image="copy.nii.gz")}), work)
    assert weights(audit) == {"same_image_two_classes": "fix"}
    assert "different masks" in only(audit, "same_image_two_classes").agent_message


def test_masks_that_are_not_there_or_do_not_open(work: Path) -> None:
    (work / "m5.nii.gz").unlink()
    replaced(work, "m6.nii.gz").write_bytes(b"no mask")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (18, 16, 3), dtype=np.uint8)).save(work / "m7.png")
    audit = audit_index(index({7: record(7, mask="m7.png")}), work)
    assert weights(audit) == {"missing_mask": "fix", "mask_unreadable": "fix"}
    assert only(audit, "missing_mask").cases == ("m5.nii.gz",)
    assert only(audit, "mask_unreadable").cases == ("m6.nii.gz", "m7.png")
    assert str(work) not in only(audit, "mask_unreadable").agent_message


def test_a_single_slice_among_volumes(work: Path) -> None:
    image, mask = draw_case(5)
    volume(replaced(work, "i5.nii.gz"), image[:, :, 5:6])
    volume(replaced(work, "m5.nii.gz"), mask[:, :, 5:6])
    audit = audit_index(index(), work)
    assert weights(audit) == {"one_slice": "warn"}
    assert only(audit, "one_slice").cases == ("i5.nii.gz",)


def test_thick_slices(work: Path) -> None:
    affine = AFFINE @ np.diag([1, 1, 4, 1])
    volume(replaced(work, "i5.nii.gz"), draw_case(5)[0], affine)
    volume(replaced(work, "m5.nii.gz"), draw_case(5)[1], affine)
    audit = audit_index(index(), work)
    assert weights(audit) == {"anisotropic": "warn"}
    assert "1 x 1 x 6 mm" in only(audit, "anisotropic").agent_message


def test_files_of_four_axes(work: Path) -> None:
    series = np.stack([draw_case(at)[0] for at in (100, 101, 102)], axis=-1)
    volume(replaced(work, "i5.nii.gz"), series)
    audit = audit_index(index(), work)
    assert weights(audit) == {"channels_differ": "fix"}
    assert only(audit, "channels_differ").cases == ("i5.nii.gz",)
    for at in range(COUNT):
        (work / f"i{at}.nii.gz").unlink()
        volume(work / f"i{at}.nii.gz", np.stack([draw_case(at)[0], draw_case(at)[0] // 2], axis=-1))
    assert weights(audit_index(index(), work)) == {"four_axes": "warn"}
    volume(replaced(work, "m5.nii.gz"), np.stack([draw_case(5)[1]] * 2, axis=-1))
    assert weights(audit_index(index(), work))["mask_unreadable"] == "fix"


def test_pictures_with_transparency_and_sixteen_bits(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for at in range(COUNT):
        mask = np.zeros((30, 40), np.uint8)
        mask[5 + at % 7 : 20, 6 + at % 11 : 30 - at % 3] = 255
        pixels = random.integers(0, 255, (30, 40, 4), dtype=np.uint8)
        if at % 2:
            Image.fromarray(pixels, "RGBA").save(tmp_path / f"i{at}.png")
        else:
            Image.fromarray(pixels[..., 0].astype(np.uint16) * 250).save(tmp_path / f"i{at}.png")
        Image.fromarray(mask).save(tmp_path / f"m{at}.png")
    cases = [Record(f"i{at}.png", patient=f"p{at}", mask=f"m{at}.png") for at in range(COUNT)]
    audit = audit_index(Index(tuple(cases[4:]), tuple(cases[:4]), ("skin",), "segmentation", {"skin": 255}), tmp_path)
    assert weights(audit, but=("small_test", "same_mask")) == {}
    assert audit.opened == COUNT


# --- a mask a class, and images in which nothing is marked -----------------------------------------------------------


def split_mask_by_class(work: Path, at: int) -> Record:
    mask = np.asarray(nib.load(work / f"m{at}.nii.gz").dataobj)
    for name, value in VALUES.items():
        volume(work / f"{name}{at}.nii.gz", (mask == value).astype(np.uint8) * 255)
    return record(at, mask={name: f"{name}{at}.nii.gz" for name in VALUES})


def test_a_mask_a_class(work: Path) -> None:
    values = {"spleen": 1, "liver": 2}
    cases = {at: split_mask_by_class(work, at) for at in range(COUNT)}
    audit = audit_index(index(cases, values=values), work)
    assert weights(audit) == {}
    assert audit.counts["test"] == {"spleen": 4, "liver": 4}
    volume(work / "liver5.nii.gz", draw_case(5)[1][1:])
    audit = audit_index(index(cases, values=values), work)
    assert weights(audit) == {"mask_shape": "fix"}
    assert only(audit, "mask_shape").cases == ("liver5.nii.gz",)
    cases[6] = record(6, mask={"kidney": "liver6.nii.gz"})
    assert weights(audit_index(index(cases, values=values), work))["unknown_label"] == "fix"


def test_healthy_images_of_a_detection_set(work: Path) -> None:
    assert weights(audit_index(index(task="detection"), work)) == {"no_healthy": "warn"}
    healthy_cases = {at: record(at, mask=None) for at in (0, 5, 6)}
    audit = audit_index(index(healthy_cases, task="detection"), work)
    assert weights(audit) == {}
    assert audit.counts == {"train": {"spleen": 18, "liver": 18}, "test": {"spleen": 3, "liver": 3}}
    nothing = {at: record(at, mask=None) for at in range(COUNT)}
    assert weights(audit_index(index(nothing, task="detection"), work)) == {
        "all_empty": "reject",
        "normal_only": "warn",
    }


def test_what_was_left_unopened_is_not_called_absent(work: Path) -> None:
    audit = audit_index(index(), work, max_seconds=0)
    assert weights(audit) == {"not_opened": "warn"}
    assert audit.opened == 0
