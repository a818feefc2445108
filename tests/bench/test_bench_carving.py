"""The carve-out: nothing of a hidden patient is left in the agent's copy, and everything else is."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from bench_kit import by_id

from m3b.bench.benchmark_data import BenchmarkData, load_card
from m3b.bench.carve_out import CarveOut, carve, choose_patients, find_leftovers
from m3b.bench.datasets import DATASET_NAMES, RawCase, get_dataset
from m3b.bench.exam import build_exam_index, learn_names, match_class_names
from m3b.bench.subset import PATIENT_LOOKUPS
from m3b.data.index import write_records
from m3b.errors import DataError

PAIRS = [(name, layout) for name in DATASET_NAMES for layout in get_dataset(name).layouts]


@pytest.mark.parametrize(("name", "layout"), PAIRS)
def test_every_layout_is_carved(stand_in, tmp_path: Path, name: str, layout: str) -> None:
    spec, generated, reading = stand_in(name, layout)
    hidden = carve(spec, generated.folder, tmp_path / "carved", seed=2)
    remaining = {case.name for case in spec.read(hidden.agent_folder).cases}
    hidden_names = {case.name for case in hidden.cases}
    assert hidden_names
    assert remaining | hidden_names == {case.name for case in reading.cases}
    assert not remaining & hidden_names
    patients = {case.patient for case in hidden.cases}
    if spec.patient_key:  # elsewhere the reader names people by their place, which moves
        assert not patients & {case.patient for case in spec.read(hidden.agent_folder).cases}
    assert find_leftovers(hidden) == []
    owner = PATIENT_LOOKUPS[name].find_patient
    files = [f.relative_to(hidden.agent_folder).as_posix() for f in hidden.agent_folder.rglob("*") if f.is_file()]
    assert not [path for path in files if owner(path) in patients], "not even files that no reader lists"
    for case in hidden.cases:
        for path in (*case.images, *([case.mask] if case.mask else [])):
            assert (hidden.hidden_folder / path).read_bytes() == (generated.folder / path).read_bytes()
    assert CarveOut.load(tmp_path / "carved") == hidden


def test_rows_of_hidden_patients_leave_the_tables(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("ADNI")
    hidden = carve(spec, generated.folder, tmp_path / "carved", seed=2)
    hidden_patients = {case.patient for case in hidden.cases}
    with next(generated.folder.glob("*.csv")).open(newline="") as stream:
        before = list(csv.DictReader(stream))
    with next(hidden.agent_folder.glob("*.csv")).open(newline="") as stream:
        after = list(csv.DictReader(stream))
    assert {row["Subject"] for row in before} >= hidden_patients
    assert not {row["Subject"] for row in after} & hidden_patients
    assert after == [row for row in before if row["Subject"] not in hidden_patients], (
        "excluded groups and all other rows stand"
    )


def test_counts_in_a_list_follow(stand_in, tmp_path: Path) -> None:
    spec, generated, reading = stand_in("MSD-Pancreas", "official")
    hidden = carve(spec, generated.folder, tmp_path / "carved")
    dataset_json = json.loads(next(hidden.agent_folder.rglob("dataset.json")).read_text())
    assert len(dataset_json["training"]) == len(reading.cases) - len(hidden.cases)
    if "numTraining" in dataset_json:
        assert dataset_json["numTraining"] == len(dataset_json["training"])


def test_archives_are_withheld(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("KneeMRI")
    source = tmp_path / "source"
    os.system(f"cp -r {generated.folder} {source}")
    (source / "vol01.7z").write_bytes(b"7z could hold anybody")
    hidden = carve(spec, source, tmp_path / "carved")
    assert hidden.withheld == ("vol01.7z",)
    assert not list(hidden.agent_folder.rglob("*.7z"))


def test_a_remaining_name_is_an_error(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("INSTANCE22")
    hidden = carve(spec, generated.folder, tmp_path / "carved")
    name = Path(hidden.cases[0].images[0]).name
    (hidden.agent_folder / "notes.csv").write_text(f"a,b\nx/{name},1\n")
    assert find_leftovers(hidden) == [f"{name} in notes.csv"]


def test_every_class_is_hidden_and_left(stand_in) -> None:
    _, _, reading = stand_in("CT-Kidney")
    hidden_patients = choose_patients(reading.cases, 0.2, seed=1)
    for label in {case.labels for case in reading.cases}:
        patients = {case.patient for case in reading.cases if case.labels == label}
        assert patients & hidden_patients
        assert patients - hidden_patients
    with pytest.raises(DataError, match="too few"):
        choose_patients(reading.cases[:1], 0.2, seed=1)


def test_stand_ins_have_their_own_range(tmp_path: Path) -> None:
    benchmark_data = BenchmarkData(tmp_path, patients=160)
    card = benchmark_data.load_cards(by_id("ct-kidney"))[0]
    assert card["acceptable"] == [0.7, None]
    assert Path(card["path"]).is_dir()
    real = CarveOut.load(tmp_path / "ct-kidney")
    assert load_card(CarveOut(**{**vars_of(real), "stand_in": False}))["acceptable"] == [0.8, None]


def vars_of(hidden: CarveOut) -> dict:
    return {name: getattr(hidden, name) for name in hidden.__dataclass_fields__}


def test_the_agents_own_label_names_are_understood(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("KneeMRI")
    hidden = carve(spec, generated.folder, tmp_path / "carved")
    index = build_exam_index(hidden, spec)
    agent_names = {"healthy": "0", "partial tear": "torn a bit", "complete rupture": "2"}
    rows = [
        type(r)(r.image.replace("agent/", "data/kneemri/"), (agent_names[r.labels[0]],), r.patient) for r in index.train
    ]
    for split in ("train", "test"):
        write_records(tmp_path / "work" / "Datapath" / f"{split}.json", rows[split == "test" :: 2])
    truth = {path: case.labels[0] for case in spec.read(hidden.agent_folder).cases for path in case.images}
    learnt = learn_names(tmp_path / "work", truth)
    label_dict = {"0": 0, "torn a bit": 1, "2": 2}
    assert match_class_names(list(spec.classes), label_dict, {n: k for k, n in enumerate(spec.classes)}, learnt) == {
        v: k for k, v in agent_names.items()
    }


def test_names_by_spelling_and_by_value() -> None:
    truth = {"spleen": 1, "right kidney": 2, "liver": 6}
    assert match_class_names(list(truth), {"Spleen": 1, "RKid": 2, "LIVER": 6}, truth, {}) == {
        "Spleen": "spleen", "LIVER": "liver", "RKid": "right kidney"
    }  # fmt: skip


def test_hidden_masks_lie_on_their_images(stand_in, tmp_path: Path) -> None:
    from m3b.tasks.aligned_masks import read_true_channels

    spec, generated, _ = stand_in("VerSe")
    hidden = carve(spec, generated.folder, tmp_path / "carved")
    index = build_exam_index(hidden, spec)
    channels = read_true_channels(index.test[0], index.values, hidden.folder)
    assert channels.shape[0] == len(spec.values)
    assert np.count_nonzero(channels.any(axis=tuple(range(1, channels.ndim)))) > 3, "several vertebrae are there"


@pytest.mark.parametrize(("patients", "hidden"), [(4, 2), (14, 3), (15, 5), (20, 5), (40, 8)])
def test_as_many_patients_are_hidden_as_a_verdict_needs(patients: int, hidden: int) -> None:
    cases = [RawCase(f"c{at}", (f"{at}.nii.gz",), f"p{at}", mask=f"{at}_m.nii.gz") for at in range(patients)]
    assert {len(choose_patients(cases, 0.2, seed)) for seed in range(4)} == {hidden}


@pytest.mark.parametrize(("patients", "hidden"), [(4, 1), (9, 3), (20, 6), (60, 12)])
def test_as_many_patients_of_a_class_are_hidden_as_its_interval_needs(patients: int, hidden: int) -> None:
    cases = [
        RawCase(f"{label}{at}", (f"{label}{at}.nii.gz",), f"{label}{at}", labels=(label,))
        for label in ("normal", "torn")
        for at in range(patients)
    ]
    chosen = choose_patients(cases, 0.2, seed=0)
    assert {label: sum(name.startswith(label) for name in chosen) for label in ("normal", "torn")} == {
        "normal": hidden,
        "torn": hidden,
    }
