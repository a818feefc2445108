"""Images in files of arrays: one case a file, and many cases along the first axis with labels and masks beside them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from proposals_kit import decide_folder

from m3b.dataset.manifest.execute import execute
from m3b.dataset.reading import read_image
from m3b.dataset.survey.survey import survey
from m3b.dataset.survey.walk import walk


def _noise(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(300, 20, shape).astype(np.int16)


def _write_cases(folder: Path, *, codes: tuple[int, ...] = (1, 2, 3)) -> None:
    """Write narrow pictures with a mask, a code and a patient, each in a file of its own."""
    for number in range(30):
        with h5py.File(folder / f"case{number:02d}.h5", "w") as file:
            file["image"], file["mask"] = _noise(number, (24, 20)), np.pad(np.ones((6, 5), np.uint8), ((9, 9), (8, 7)))
            file["label"], file["patient"] = float(codes[number // 2 % len(codes)]), f"P{number // 2}"


def test_narrow_pictures_and_single_values_of_a_case(tmp_path: Path) -> None:
    _write_cases(tmp_path)
    kinds = {member.key: member.kind for member in survey(tmp_path).containers[0].members}
    assert kinds == {"image": "images", "mask": "masks", "label": "scalar", "patient": "scalar"}


def test_rows_of_a_table_beside_a_stack_are_no_picture(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=_noise(0, (40, 16, 16)), y=np.eye(10)[np.arange(40) % 10])
    kinds = {member.key: member.kind for member in survey(tmp_path).containers[0].members}
    assert kinds == {"x": "images", "y": "vector"}


def test_codes_of_a_file_each_need_names(tmp_path: Path) -> None:
    _write_cases(tmp_path)
    outcome = decide_folder(tmp_path, "Classify brain tumors into meningioma, glioma and pituitary tumor")
    assert outcome.kind != "proposed"


def test_the_request_numbers_its_classes(tmp_path: Path) -> None:
    _write_cases(tmp_path, codes=(1, 2))
    outcome = decide_folder(tmp_path, "Tell meningioma (1) from glioma (2) on brain MRI slices")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"meningioma": 16, "glioma": 14}
    assert outcome.proposals[0].manifest.patient is not None


def test_a_document_numbers_the_classes(tmp_path: Path) -> None:
    _write_cases(tmp_path)
    (tmp_path / "README.txt").write_text("label: 1 for meningioma, 2 for glioma, 3 for pituitary tumor\n")
    outcome = decide_folder(tmp_path, "Classify brain tumors into meningioma, glioma and pituitary tumor")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"meningioma": 10, "glioma": 10, "pituitary tumor": 10}


def _write_parts(folder: Path, counts: dict[str, int], *, suffix: str = "y") -> None:
    """Write pictures of each part as one array, channels first, and their codes as another."""
    for part, count in counts.items():
        np.save(folder / f"X_{part}.npy", _noise(count, (count, 1, 20, 24)))
        np.save(folder / f"{suffix}_{part}.npy", np.arange(count) % 3)


@pytest.mark.parametrize("name", ["{part}_{kind}", "{kind}_{part}"])
def test_labels_and_patients_beside_arrays_of_each_part(tmp_path: Path, name: str) -> None:
    for part, count in {"train": 30, "test": 12}.items():
        arrays = {
            "images": np.clip(_noise(count, (count, 20, 24)) - 200, 0, 255).astype(np.uint8),
            "labels": np.array(["normal", "covid"])[np.arange(count) % 2],
            "patients": np.array([f"{part}{number // 2}" for number in range(count)]),
        }
        for kind, array in arrays.items():
            np.save(tmp_path / f"{name.format(part=part, kind=kind)}.npy", array)
    outcome = decide_folder(tmp_path, "Tell covid from normal chest X-rays")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert (best.classes, best.manifest.split.test) == ({"normal": 21, "covid": 21}, ("test",))
    assert best.manifest.patient is not None


def test_codes_beside_arrays_of_each_part(tmp_path: Path) -> None:
    _write_parts(tmp_path, {"train": 30, "test": 12})
    (tmp_path / "README.txt").write_text("Labels: 0 = normal, 1 = covid, 2 = pneumonia\n")
    outcome = decide_folder(tmp_path, "Tell covid, pneumonia and normal chest X-rays apart")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert (best.cases, best.classes) == (42, {"normal": 14, "covid": 14, "pneumonia": 14})
    assert best.manifest.split.test == ("test",)


def test_rows_in_the_order_of_items_are_a_join(tmp_path: Path) -> None:
    for fold, count in ((1, 20), (2, 24)):
        (tmp_path / f"fold {fold}").mkdir()
        np.save(tmp_path / f"fold {fold}/images.npy", _noise(fold, (count, 20, 24, 3)))
        np.save(tmp_path / f"fold {fold}/types.npy", np.array([("breast", "colon")[at % 2] for at in range(count)]))
    joins = [join for join in survey(tmp_path).joins if "{index}" in join.image]
    assert [(join.key, join.image, join.rows_matched, join.files_matched) for join in joins] == [
        ("{folder0}/{(row)}", "{folder0}/{index}", 44, 44)
    ]
    best = decide_folder(tmp_path, "Classify breast and colon in nuclei patches").proposals[0]
    assert best.classes == {"breast": 22, "colon": 22}


def test_other_numbers_of_rows_than_items_are_no_join(tmp_path: Path) -> None:
    _write_parts(tmp_path, {"train": 30, "test": 12})
    np.save(tmp_path / "y_test.npy", np.arange(11) % 3)
    assert not [join for join in survey(tmp_path).joins if "{index}" in join.image]


def test_one_hot_rows_are_named_by_a_document_or_asked(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", _noise(1, (45, 20, 24)))
    np.save(tmp_path / "labels.npy", np.eye(3, dtype=np.float32)[np.arange(45) % 3])
    assert decide_folder(tmp_path, "Classify chest X-rays").kind != "proposed"
    (tmp_path / "README.txt").write_text("Labels: 0 = normal, 1 = covid, 2 = pneumonia\n")
    best = decide_folder(tmp_path, "Tell covid, pneumonia and normal chest X-rays apart").proposals[0]
    assert best.classes == {"normal": 15, "covid": 15, "pneumonia": 15}


def _write_layers(folder: Path, *, with_background: bool = True) -> None:
    """Write pictures, and masks with a layer for each of two classes and one for what they leave."""
    count = 24
    masks = np.zeros((count, 24, 20, 3 if with_background else 2))
    for number in range(count):
        masks[number, 2 + number % 5 : 10, 3:9, 0] = number + 1
        masks[number, 13:20, 4 + number % 6 : 15, 1] = 1
    if with_background:
        masks[..., 2] = masks[..., :2].max(axis=-1) == 0
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 255, (count, 24, 20, 3)).astype(np.float64))
    np.save(folder / "masks.npy", masks)


def test_layers_are_masks_and_no_colours(tmp_path: Path) -> None:
    _write_layers(tmp_path)
    members = {container.group: container.members[0] for container in survey(tmp_path).containers}
    pictures, masks = (member.content for member in members.values())
    assert pictures is not None
    assert masks is not None
    assert (pictures.layers, pictures.is_mask) == (None, False)
    assert masks.is_mask
    assert masks.layers is not None
    assert (masks.layers.count, masks.layers.background) == (3, 2)


@pytest.mark.parametrize(
    ("notes", "names"),
    [
        (
            "Layers: 0: neoplastic cells, 1: inflammatory cells, 2: background",
            ("neoplastic cells", "inflammatory cells"),
        ),
        (
            "Channels: 1 = inflammatory cells, 2 = neoplastic cells, 3 = background",
            ("inflammatory cells", "neoplastic cells"),
        ),
    ],
)
def test_layers_are_named_by_a_document(tmp_path: Path, notes: str, names: tuple[str, str]) -> None:
    _write_layers(tmp_path)
    (tmp_path / "README.txt").write_text(notes)
    outcome = decide_folder(tmp_path, "Segment neoplastic and inflammatory cells")
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert masks.layers == {names[0]: (0,), names[1]: (1,)}


def test_layers_without_names_are_asked(tmp_path: Path) -> None:
    _write_layers(tmp_path, with_background=False)
    outcome = decide_folder(tmp_path, "Segment nuclei")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "legend_not_applied"


def test_masks_of_items_are_no_images(tmp_path: Path) -> None:
    _write_layers(tmp_path)
    np.save(tmp_path / "types.npy", np.array([("breast", "colon")[number % 2] for number in range(24)]))
    outcome = decide_folder(tmp_path, "Classify the tissue type of nuclei patches")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"breast": 12, "colon": 12}


@pytest.mark.parametrize("folders", [("",), ("fold1", "fold2")])
def test_values_of_several_names_are_columns_of_the_items(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for seed, folder in enumerate(folders):
        (tmp_path / folder).mkdir(exist_ok=True)
        rng = np.random.default_rng(seed)
        np.save(tmp_path / folder / "images.npy", rng.integers(0, 255, (40, 32, 48), np.uint8))
        np.save(tmp_path / folder / "time.npy", rng.uniform(1, 60, 40).round(1))
        np.save(tmp_path / folder / "event.npy", np.arange(40) % 2)
    best = decide_folder(tmp_path, "Predict overall survival from breast ultrasound").proposals[0]
    assert best.cases == 40 * len(folders)
    assert best.manifest.survival is not None
    assert best.manifest.survival.event.value == "{event.value}"


def test_slices_of_a_mask_are_no_layers(tmp_path: Path) -> None:
    for number in range(12):
        mask = np.zeros((40, 40, 12), np.uint8)
        mask[10 + number : 25, 12:26, 3:9] = 1
        np.savez(tmp_path / f"case{number:02d}.npz", image=_noise(number, (40, 40, 12)), mask=mask)
    members = {member.key: member for member in survey(tmp_path).containers[0].members}
    content = members["mask"].content
    assert content is not None
    assert (content.layers, content.values, content.dims) == (None, "binary", 3)


def test_items_of_arrays_in_an_archive(tmp_path: Path) -> None:
    folder, work = tmp_path / "set", tmp_path / "work"
    (work / "Datapath").mkdir(parents=True)
    folder.mkdir()
    arrays = {
        "images": np.random.default_rng(0).integers(0, 255, (40, 32, 48), np.uint8),
        "labels": np.array([("benign", "malignant")[number % 2] for number in range(40)]),
    }
    with zipfile.ZipFile(folder / "set.zip", "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, array)
    best = decide_folder(folder, "Tell benign from malignant lesions on ultrasound").proposals[0]
    executed = execute(best.manifest, walk(folder), name="set", work=work)
    records = [*executed.train, *executed.test]
    assert len(records) == 40
    first = next(record for record in records if str(record.image).endswith("set.zip#images.npy#[0]"))
    assert first.labels == ("benign",)
    assert np.array_equal(read_image("set.zip#images.npy#[0]", str(folder)).array[0], arrays["images"][0])


LEUKOCYTES = ("eosinophil", "monocyte", "basophil")


@pytest.mark.parametrize(
    "attributes",
    [
        {"class_names": list(LEUKOCYTES)},
        {"legend": json.dumps({code: name for code, name in enumerate(LEUKOCYTES)})},
        {"meaning": json.dumps({name: code for code, name in enumerate(LEUKOCYTES)})},
        {f"class_{code}": name for code, name in enumerate(LEUKOCYTES)},
    ],
)
@pytest.mark.parametrize("is_of_root", [False, True])
def test_names_of_codes_in_attributes(tmp_path: Path, attributes: dict[str, Any], *, is_of_root: bool) -> None:
    with h5py.File(tmp_path / "smears.h5", "w") as store:
        for key, array in _make_smears().items():
            store[key] = array
        (store if is_of_root else store["cell_type"]).attrs.update(attributes)
    outcome = decide_folder(tmp_path, "Classify white blood cells as monocyte, basophil or eosinophil")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == dict.fromkeys(LEUKOCYTES, 16)


def _make_smears() -> dict[str, np.ndarray]:
    return {
        "pictures": np.random.default_rng(0).integers(0, 255, (48, 32, 40, 3), np.uint8),
        "cell_type": (np.arange(48) % 3).astype(np.uint8),
        "donor": np.arange(48) // 4,
    }


@pytest.mark.parametrize("form", ["npz", "npz_bytes", "mat_cell", "mat_chars"])
def test_names_of_codes_in_arrays_of_texts(tmp_path: Path, form: str) -> None:
    names = np.array(LEUKOCYTES)
    if form.startswith("npz"):
        np.savez(tmp_path / "smears.npz", **_make_smears(), names=names.astype("S") if form == "npz_bytes" else names)
    else:
        names = names.astype(object) if form == "mat_cell" else names
        scipy.io.savemat(tmp_path / "smears.mat", {**_make_smears(), "names": names})
    outcome = decide_folder(tmp_path, "Classify white blood cells as monocyte, basophil or eosinophil")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == dict.fromkeys(LEUKOCYTES, 16)
