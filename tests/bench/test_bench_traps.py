"""The faults of the real sets are in the stand-ins, and the readers know what to do with them."""

from __future__ import annotations

import csv
import pickle
from collections import Counter, defaultdict
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.bench.datasets import DATASET_NAMES, get_dataset
from m3b.bench.datasets.masks import read_mask


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def count_exclusions(reading, words: str) -> int:
    """Return how many cases were excluded for a reason; 0 if the reason does not occur."""
    return next((int(note.split()[0]) for note in reading.exclusions if words in note), 0)


def test_adni_drops_other_groups_and_orphans(stand_in) -> None:
    _, generated, reading = stand_in("ADNI")
    table = next(generated.folder.glob("*.csv"))
    assert '"Image Data ID","Subject","Group"' in table.read_text(encoding="utf-8")
    excluded_rows = [row for row in rows(table) if row["Group"] not in ("AD", "MCI", "CN")]
    assert count_exclusions(reading, "other groups") == len(excluded_rows) > 0
    assert count_exclusions(reading, "rows without a file") == count_exclusions(reading, "files without a row") == 2
    visits = Counter(case.patient for case in reading.cases)
    assert set(visits.values()) == {2}
    groups = defaultdict(set)
    for case in reading.cases:
        groups[case.patient].add(case.labels)
    assert all(len(labels) == 1 for labels in groups.values())


def test_adni_ids_match_with_and_without_their_letter(tmp_path: Path) -> None:
    generated = get_dataset("ADNI").make(tmp_path / "x", patients=6)
    table = next(generated.folder.glob("*.csv"))
    table.write_text(table.read_text(encoding="utf-8").replace('"I', '"').replace('"mage', '"Image'), encoding="utf-8")
    assert len(get_dataset("ADNI").read(generated.folder).cases) == generated.cases


def test_knee_stacks_have_the_slices_first_and_differ_in_size(stand_in) -> None:
    _, generated, reading = stand_in("KneeMRI")
    shapes = set()
    for case in reading.cases:
        with (generated.folder / case.images[0]).open("rb") as stream:
            volume = pickle.load(stream)
        assert volume.dtype == np.uint16
        assert volume.shape[0] < min(volume.shape[1:])
        shapes.add(volume.shape)
    assert len({shape[1:] for shape in shapes}) > 1
    assert len(reading.cases) > len(reading.patients)
    assert count_exclusions(reading, "without a file") == 1


def test_knees_as_published_lie_in_folders_and_are_not_balanced(stand_in) -> None:
    _, generated, reading = stand_in("KneeMRI", "official")
    assert {Path(case.images[0]).parts[0] for case in reading.cases} >= {"vol01", "vol02"}
    counts = Counter(case.labels[0] for case in reading.cases)
    assert counts["healthy"] > 2 * counts["partial tear"] > 2 * counts["complete rupture"] > 0
    box = rows(generated.folder / "metadata.csv")[0]
    assert {"roiX", "roiY", "roiZ", "roiHeight", "roiWidth", "roiDepth"} <= set(box)


def test_ct_scans_sort_their_slices_by_number(stand_in) -> None:
    _, generated, reading = stand_in("CC-CCII")
    png_cases = [case for case in reading.cases if case.images[0].endswith("/1.png")]
    assert png_cases
    numbers = [int(Path(path).stem) for path in png_cases[0].images]
    assert numbers == sorted(numbers)
    assert numbers != [int(name) for name in sorted(map(str, numbers))]
    suffixes = {Path(path).suffix for case in reading.cases for path in case.images}
    assert suffixes == {".png", ".jpg"}
    modes = {Image.open(generated.folder / case.images[0]).mode for case in reading.cases}
    assert modes == {"L", "RGB"}
    assert count_exclusions(reading, "without a slice") == 1
    assert any(generated.folder.joinpath(c.images[-1]).read_bytes() == generated.folder.joinpath(c.images[-2]).read_bytes()
               for c in reading.cases)  # fmt: skip


def test_kidneys_stay_in_runs_of_numbers(stand_in) -> None:
    for layout in ("card", "official"):
        _, _, reading = stand_in("CT-Kidney", layout)
        runs = defaultdict(list)
        for case in reading.cases:
            runs[case.patient].append(int(case.name.rpartition("(")[2].rstrip(")")))
        assert all(numbers == list(range(numbers[0], numbers[0] + len(numbers))) for numbers in runs.values())
        assert all(patient.split()[0] in ("Normal", "Cyst", "Stone", "Tumor") for patient in runs)
        assert count_exclusions(reading, "without a file") == (layout == "official")


def test_kidney_pictures_are_rgb_with_a_space_before_the_bracket(stand_in) -> None:
    _, generated, reading = stand_in("CT-Kidney", "official")
    assert "- (" in reading.cases[0].images[0]
    sizes = {Image.open(generated.folder / case.images[0]).size for case in reading.cases}
    assert len(sizes) == 2
    assert Image.open(generated.folder / reading.cases[0].images[0]).mode == "RGB"
    stale = rows(generated.folder / "kidneyData.csv")[0]["path"]
    assert not Path(stale).exists()


def test_btcv_pairs_across_prefixes_and_leaves_testing_out(stand_in) -> None:
    spec, generated, reading = stand_in("BTCV")
    case = reading.cases[0]
    assert (case.images[0], case.mask) == ("Training/img/img0001.nii.gz", "Training/label/label0001.nii.gz")
    assert count_exclusions(reading, "Testing") == 2
    without = [c for c in reading.cases if 4 not in read_mask(generated.folder / c.mask, spec.values)]
    assert len(without) == 1


def test_verse_has_the_gap_floats_orientations_and_two_scans_of_one(stand_in) -> None:
    spec, generated, reading = stand_in("VerSe")
    masks = [nib.load(generated.folder / case.mask) for case in reading.cases]
    assert {"float64", "uint8"} == {str(mask.get_data_dtype()) for mask in masks}
    assert len({nib.aff2axcodes(mask.affine) for mask in masks}) == 4
    values = {
        int(value)
        for case in reading.cases
        for value in np.unique(read_mask(generated.folder / case.mask, spec.values))
    }
    assert {25, 28} <= values
    assert not {26, 27} & values
    assert Counter(case.patient for case in reading.cases).most_common(1)[0][1] == 2


def test_verse_as_published_gives_split_and_centroids(stand_in) -> None:
    _, generated, reading = stand_in("VerSe", "official")
    assert {case.split for case in reading.cases} == {"train", "validation", "test"}
    assert list(generated.folder.rglob("*_seg-subreg_ctd.json"))
    assert all("_seg-vert_msk" in case.mask for case in reading.cases)


def test_oasis_labels_are_not_the_brain_masks(stand_in) -> None:
    spec, generated, reading = stand_in("OASIS", "official")
    assert all(case.mask.startswith("labelsTr/") and case.mask.endswith("_0000.nii.gz") for case in reading.cases)
    assert [case.patient for case in reading.cases[:2]] == ["0001", "0002"]
    brain = nib.load(generated.folder / "masksTr" / Path(reading.cases[0].mask).name)
    assert set(np.unique(np.asarray(brain.dataobj))) == {0, 1}
    lacking = [c for c in reading.cases if 18 not in read_mask(generated.folder / c.mask, spec.values)]
    assert len(lacking) == 1


def test_covid_has_two_scales_and_shared_patients(stand_in) -> None:
    _, generated, reading = stand_in("COVID19")
    for case in reading.cases:
        image = np.asarray(nib.load(generated.folder / case.images[0]).dataobj)
        if case.name.startswith("coronacases"):
            assert image.min() < -900
        else:
            assert image.min() >= 0
            assert image.max() <= 255
    together = {case.name for case in reading.cases if case.patient == "radiopaedia_10"}
    assert together == {"radiopaedia_10_85902_1", "radiopaedia_10_85902_3"}


def test_bleedings_lie_in_thick_slices(stand_in) -> None:
    _, generated, reading = stand_in("INSTANCE22", "official")
    zooms = nib.load(generated.folder / reading.cases[0].images[0]).header.get_zooms()
    assert zooms[2] / zooms[0] > 10
    assert count_exclusions(reading, "evaluation") == 2


def test_pancreas_passes_over_what_macos_left(stand_in) -> None:
    for layout in ("card", "official"):
        _, generated, reading = stand_in("MSD-Pancreas", layout)
        assert len(list(generated.folder.rglob("._*.nii.gz"))) == 6
        numbers = [int(case.patient) for case in reading.cases]
        assert max(numbers) - min(numbers) > len(numbers)
    assert count_exclusions(reading, "no labels") == 2
    text = (generated.folder / "dataset.json").read_text(encoding="utf-8")
    assert '"relase"' in text
    assert '"./imagesTr/' in text


def test_chest_findings_overlap_and_the_smaller_wins(stand_in) -> None:
    spec, generated, reading = stand_in("ChestX-Det10", "official")
    assert {case.split for case in reading.cases} == {"train", "test"}
    positive = [case for case in reading.cases if case.boxes]
    assert 0 < len(reading.cases) - len(positive) < len(reading.cases) / 3

    def overlap(case) -> bool:
        return any(
            a.label != b.label and a.x1 < b.x2 and b.x1 < a.x2 and a.y1 < b.y2 and b.y1 < a.y2
            for a in case.boxes for b in case.boxes)  # fmt: skip

    assert 0.35 < np.mean([overlap(case) for case in positive]) < 0.95
    _, card_folder, cards = stand_in("ChestX-Det10", "card")
    masks = {case.name: read_mask(card_folder.folder / case.mask, spec.values) for case in cards.cases}
    value = {name: number for number, name in spec.values.items()}
    for case in positive:
        small = min(case.boxes, key=lambda box: (box.x2 - box.x1) * (box.y2 - box.y1))
        assert masks[case.name][small.y1, small.x1] == value[small.label]
    modes = {Image.open(generated.folder / case.images[0]).mode for case in reading.cases}
    assert modes == {"L", "RGBA"}


def test_ct_rate_keeps_one_reconstruction_and_the_split(stand_in) -> None:
    for layout in ("card", "official"):
        _, _, reading = stand_in("CT-RATE", layout)
        assert count_exclusions(reading, "further reconstructions") > 2
        assert count_exclusions(reading, "without a file") == 1
        sides = defaultdict(set)
        for case in reading.cases:
            sides[case.patient].add(case.split)
        assert all(len(splits) == 1 for splits in sides.values())
        assert {case.split for case in reading.cases} == {"train", "test"}


def test_ct_rate_as_published_needs_the_table_for_hu(stand_in) -> None:
    _, generated, reading = stand_in("CT-RATE", "official")
    assert {case.rescale for case in reading.cases} == {(1.0, -1024.0), (1.0, -8192.0)}
    for case in reading.cases[:4]:
        slope, intercept = case.rescale
        hu = np.asarray(nib.load(generated.folder / case.images[0]).dataobj).astype(float) * slope + intercept
        assert -1200 < hu.min() < -900
        assert hu.max() < 3100
    assert count_exclusions(reading, "another region") == 1
    assert any(not case.impression for case in reading.cases)
    assert all(case.rescale is None for case in stand_in("CT-RATE", "card")[2].cases)


def test_brain_sequences_share_a_patient_and_a_side(stand_in) -> None:
    _, _, reading = stand_in("RadGenome-BrainMRI")
    by_patient = defaultdict(list)
    for case in reading.cases:
        by_patient[case.patient].append(case)
    assert {len(cases) for cases in by_patient.values()} <= {2, 3, 4}
    for cases in by_patient.values():
        assert len({case.split for case in cases}) == 1
        assert len({case.impression for case in cases}) == 1
    assert any("aforementioned" in case.findings for case in reading.cases)


def test_iu_studies_have_gaps_views_and_removed_words(stand_in) -> None:
    for layout in ("card", "official"):
        _, _, reading = stand_in("IU-Xray", layout)
        assert {len(case.images) for case in reading.cases} == {1, 2}
        assert any(not case.findings for case in reading.cases)
        assert any("XXXX" in case.findings for case in reading.cases)
        assert any('"' in case.findings and "," in case.findings for case in reading.cases)
        assert count_exclusions(reading, "without any text") == 2
        assert count_exclusions(reading, "without an image") == 1
        assert all(
            path.rpartition("/")[2].startswith(f"{case.patient}_") for case in reading.cases for path in case.images
        )
    card_cases, official_cases = (stand_in("IU-Xray", layout)[2].cases for layout in ("card", "official"))
    assert {(c.name, c.findings) for c in card_cases} == {(c.name, c.findings) for c in official_cases}


def test_iu_archives_of_open_i_are_read(tmp_path: Path) -> None:
    (tmp_path / "ecgen-radiology").mkdir()
    (tmp_path / "NLMCXR_png").mkdir()
    report = ('<eCitation><Abstract><AbstractText Label="FINDINGS">Clear.</AbstractText><AbstractText Label="IMPRESSION"'
              '>Normal.</AbstractText></Abstract><parentImage id="CXR1_1_IM-0001-3001"/></eCitation>')  # fmt: skip
    (tmp_path / "ecgen-radiology" / "1.xml").write_text(report, encoding="utf-8")
    Image.new("L", (4, 4)).save(tmp_path / "NLMCXR_png" / "CXR1_1_IM-0001-3001.png")
    (case,) = get_dataset("IU-Xray").read(tmp_path).cases
    assert (case.patient, case.findings, case.impression) == ("1", "Clear.", "Normal.")
    assert case.images == ("NLMCXR_png/CXR1_1_IM-0001-3001.png",)


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_a_patient_stays_on_one_side_when_the_set_is_split_by_patient(name: str, stand_in) -> None:
    _, _, reading = stand_in(name)
    test_patients = set(reading.patients[::5])
    train, test = (
        [case for case in reading.cases if (case.patient in test_patients) == side] for side in (False, True)
    )
    assert train
    assert test
    assert not {path for case in train for path in case.images} & {path for case in test for path in case.images}
