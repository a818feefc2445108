"""Every stand-in is read back by the trusted reader, with what was promised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.bench.datasets import DATASET_NAMES, get_dataset
from m3b.bench.datasets.layout_reading import is_junk, natural_key
from m3b.bench.datasets.masks import read_mask
from m3b.data.cards import load_cards
from m3b.dataset.reading import read_image
from m3b.errors import DataError, UsageError
from m3b.resources import get_resources_folder

LAYOUTS = [(name, layout) for name in DATASET_NAMES for layout in get_dataset(name).layouts]
MASKED = [(name, layout) for name, layout in LAYOUTS if get_dataset(name).values]
parametrize_layouts = pytest.mark.parametrize(("name", "layout"), LAYOUTS)


def test_the_fourteen_are_the_real_cards() -> None:
    files = (get_resources_folder() / "datacards").glob("*.json")
    real = {raw["name"] for raw in map(json.loads, (file.read_text(encoding="utf-8") for file in files)) if raw["real"]}
    assert set(DATASET_NAMES) == real
    assert len(DATASET_NAMES) == 14


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_a_spec_agrees_with_its_card_and_with_itself(name: str) -> None:
    spec = get_dataset(name)
    cards = [card for file in (get_resources_folder() / "datacards").glob("*.json") for card in load_cards(file)]
    card = next(card for card in cards if card.name == name)
    assert (spec.task, spec.metric, spec.dimension, spec.acceptable) == (
        card.task, card.metric, card.dimension, card.acceptable)  # fmt: skip
    assert (spec.classes, spec.patient_key) == (card.classes, card.patient_key)
    assert spec.url.startswith("http")
    assert spec.terms
    assert bool(spec.values) == (spec.task in ("segmentation", "detection"))
    low, _ = spec.stand_in.acceptable
    assert spec.stand_in.baseline + 0.04 < low < spec.stand_in.ceiling - 0.15
    assert spec.layouts[0] == "card"


@pytest.mark.parametrize("name", ["ctkidney", "CT_kidney", "ct kidney"])
def test_spelling_of_names_is_forgiven(name: str) -> None:
    assert get_dataset(name).name == "CT-Kidney"


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"ADNI, KneeMRI.*IU-Xray"):
        get_dataset("mnist")


@parametrize_layouts
def test_the_reader_finds_what_the_generator_made(name: str, layout: str, stand_in) -> None:
    spec, generated, reading = stand_in(name, layout)
    assert reading.layout == layout
    assert len(reading.cases) == generated.cases
    assert len({case.name for case in reading.cases}) == generated.cases
    if generated.patients:
        assert len(reading.patients) == generated.patients
    for case in reading.cases:
        assert case.images
        assert case.patient
        assert all((generated.folder / path).is_file() for path in (*case.images, *([case.mask] if case.mask else [])))
        if spec.task == "diagnosis":
            assert len(case.labels) == 1
            assert case.labels[0] in spec.classes
        if spec.task == "report":
            assert case.findings or case.impression
    if spec.task == "diagnosis":
        assert {case.labels[0] for case in reading.cases} == set(spec.classes)


@parametrize_layouts
def test_strays_and_the_licence_are_there_and_no_case(name: str, layout: str, stand_in) -> None:
    _, generated, reading = stand_in(name, layout)
    assert [file for file in generated.folder.rglob(".DS_Store")]
    assert "synthetic" in (generated.folder / "README.md").read_text(encoding="utf-8")
    assert not [path for case in reading.cases for path in case.images if is_junk(Path(path).name)]


@parametrize_layouts
def test_images_open_as_m3b_opens_them(name: str, layout: str, stand_in) -> None:
    spec, generated, reading = stand_in(name, layout)
    for case in reading.cases[:: max(1, len(reading.cases) // 4)]:
        slices = spec.dimension == 3 and len(case.images) > 1
        image = read_image(list(case.images) if slices else case.images[0], str(generated.folder))
        assert image.dims == spec.dimension, case.name
        assert np.isfinite(image.array).all()
        assert image.array.std() > 0


@pytest.mark.parametrize(("name", "layout"), MASKED)
def test_masks_hold_known_values_and_fit_their_images(name: str, layout: str, stand_in) -> None:
    spec, generated, reading = stand_in(name, layout)
    masked = [case for case in reading.cases if case.mask]
    assert masked or all(case.boxes or not case.labels for case in reading.cases)
    mask_values: set[int] = set()
    for case in masked:
        mask = read_mask(generated.folder / case.mask, spec.values)
        mask_values |= set(np.unique(mask).tolist())
        if case.mask.endswith(".nii.gz"):
            image = nib.load(generated.folder / case.images[0])
            assert image.shape == mask.shape
            assert np.allclose(image.affine, nib.load(generated.folder / case.mask).affine)
    if name != "VerSe" and masked:
        assert mask_values == {0, *spec.values}


@pytest.mark.parametrize("name", ["ADNI", "KneeMRI", "CT-Kidney", "INSTANCE22"])
def test_the_same_seed_makes_the_same_files(name: str, tmp_path: Path) -> None:
    spec = get_dataset(name)

    def contents(folder: str, seed: int) -> dict[str, bytes]:
        generated = spec.make(tmp_path / folder, patients=spec.stand_in.min_patients, seed=seed)
        return {
            str(f.relative_to(generated.folder)): f.read_bytes() for f in generated.folder.rglob("*") if f.is_file()
        }

    first, second, third = contents("a", 3), contents("b", 3), contents("c", 4)
    assert first == second
    assert first != third


def test_a_wrong_order_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep", encoding="utf-8")
    for name, options in (("full", {}), ("a", {"layout": "dicom"}), ("b", {"patients": 1}), ("c", {"patients": 21})):
        with pytest.raises(UsageError):
            get_dataset("COVID19").make(tmp_path / name, **options)
    assert [entry.name for entry in tmp_path.rglob("*")] == ["full", "mine.txt"]


@pytest.mark.parametrize("name", ["ADNI", "CT-Kidney", "INSTANCE22"])
def test_an_image_that_does_not_open_can_be_asked_for(name: str, tmp_path: Path) -> None:
    spec = get_dataset(name)
    generated = spec.make(tmp_path / "x", patients=spec.stand_in.min_patients, with_broken_image=True)
    case = spec.read(generated.folder).cases[-1]
    with pytest.raises(DataError):
        read_image(case.images[-1], str(generated.folder))
    assert "does not open" in generated.planted_faults[-1]


@given(st.lists(st.integers(0, 10**6), min_size=2, unique=True))
def test_numbers_in_names_are_counted(numbers: list[int]) -> None:
    names = sorted((f"img{number}.png" for number in numbers), key=natural_key)
    assert names == [f"img{number}.png" for number in sorted(numbers)]


@pytest.mark.slow
@parametrize_layouts
def test_the_default_size_is_small_and_as_hard_as_said(name: str, layout: str, tmp_path: Path) -> None:
    spec = get_dataset(name)
    generated = spec.make(tmp_path / "x", layout=layout)
    assert sum(file.stat().st_size for file in generated.folder.rglob("*") if file.is_file()) < 100e6
    assert abs(generated.ceiling - spec.stand_in.ceiling) < 0.05
    assert len(spec.read(generated.folder).cases) == generated.cases
    shutil.rmtree(generated.folder)
