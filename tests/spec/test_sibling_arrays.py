"""Arrays of items in files of their own, and what siblings say of each item: found, read, accounted for, or asked about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layout_kit import Names
from layout_kit_arrays import _layered, course_arrays, fold_arrays, noise, patch_parts, pictures, rows_of_items, square

from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.survey import survey
from m3b.data.survey.sibling_names import one_word, parts_of
from m3b.dataset.view import make_view, needed_files_of

TISSUE = "Classify the tissue type of nuclei patches"


def best(root: Path, task: str, request: str, notes: str = "") -> Proposal:
    found = propose(survey(root), Ask(task, request, notes=notes))
    assert sufficient(found) == ""
    return found[0]


def made(root: Path, work: Path, proposal: Proposal) -> Executed:
    (work / "Datapath").mkdir(parents=True, exist_ok=True)
    return execute(proposal.spec, root, name="set", work=work)


def saved(root: Path, **arrays: Any) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    return root


@pytest.mark.parametrize(
    ("image", "other", "words"),
    [
        ("X_train.npy", "y_train.npy", ("X", "y")),
        ("xtrain.npy", "ytrain.npy", ("x", "y")),
        ("images/fold1/images.npy", "masks/fold1/masks.npy", ("images", "masks")),
        ("images/fold1/images.npy", "images/fold1/types.npy", ("images", "types")),
        ("photos_train.npy", "ground_truth_train.npy", ("photos", "ground truth")),
        ("scans.npy", "scans_labels.npy", ("", "labels")),
        ("a/split_test_x.h5", "a/split_test_meta.csv", ("x", "meta")),
        ("X_train.npy", "X_test.npy", None),
        ("X_train.npy", "y_test.npy", None),
        ("images/fold1/images.npy", "images/fold2/types.npy", None),
        ("train.npy", "train_test.npy", None),
        ("a/images.npy", "b/c/labels.npy", None),
    ],
)
def test_files_that_differ_in_a_word(image: str, other: str, words: tuple[str, str] | None) -> None:
    assert one_word(image, other) == words


def test_parts_of_a_set_are_slots_that_siblings_keep() -> None:
    parts = parts_of(["Fold 1/images/fold1/images.npy", "Fold 2/images/fold2/images.npy"])
    assert parts is not None
    assert parts.named("Fold 1/images/fold1/types.npy", parts.files[0])[0] == "Fold {fold}/images/fold{fold}/types.npy"
    parts = parts_of(["photos_train.npy", "photos_test.npy"])
    assert parts is not None
    key, pattern = parts.named("ground_truth_train.npy", "photos_train.npy")  # the test part has none: the slot stays
    assert (key, pattern) == ("ground_truth_{part}.npy", r"ground_truth_(?P<part>test|train)\.npy")
    assert parts_of(["a_1.npy", "a_b_1.npy"]) is None


def test_a_part_without_labels_is_left_out_and_gets_none_of_another_part(tmp_path: Path) -> None:
    saved(tmp_path / "raw", X_train=pictures(1, 30), X_test=pictures(2, 12), y_train=np.arange(30) % 2)
    found = best(tmp_path / "raw", "diagnosis", "Tell pneumonia from normal on chest X-rays")
    index = made(tmp_path / "raw", tmp_path, found)
    assert {str(one.image).partition("#")[0] for one in (*index.train, *index.test)} == {"data/set/X_train.npy"}
    assert len(index.train) + len(index.test) == 30
    assert index.accounting.left == {"X_test.npy": "no label"}
    assert index.accounting.whole


def test_rows_in_another_order_are_brought_together_by_the_number_of_the_item(tmp_path: Path) -> None:
    saved(tmp_path / "raw", images=pictures(1, 40))
    order = np.random.default_rng(0).permutation(40)
    rows = [f"{at},{('benign', 'malignant')[at // 2 % 2]},S{at // 2}" for at in order]
    (tmp_path / "raw/cases.csv").write_text("\n".join(["index,diagnosis,patient_id", *rows]))
    index = made(tmp_path / "raw", tmp_path, best(tmp_path / "raw", "diagnosis", "Tell benign from malignant lesions"))
    for one in (*index.train, *index.test):
        at = int(str(one.image).partition("[")[2][:-1])
        assert (one.labels, one.patient) == ((("benign", "malignant")[at // 2 % 2],), f"S{at // 2}")


def test_persons_of_an_array_are_patients_and_an_array_of_sides_the_split(tmp_path: Path) -> None:
    side = np.array(["train", "train", "test"])[np.arange(36) // 2 % 3]
    saved(tmp_path / "raw", images=pictures(1, 36), labels=np.array(["ill", "well"])[np.arange(36) // 2 % 2], split=side,
          patients=np.arange(36) // 2)  # fmt: skip
    index = made(tmp_path / "raw", tmp_path, best(tmp_path / "raw", "diagnosis", "Tell ill from well"))
    assert index.patients
    assert {one.patient for one in index.test} == {str(at) for at in range(18) if at % 3 == 2}
    assert index.accounting.counts() == {"image": 1, "array": 3}


def test_numbers_of_a_sibling_array_that_nothing_names_are_asked_about(tmp_path: Path) -> None:
    course_arrays(tmp_path, Names(), None)  # type: ignore[arg-type]
    found = propose(survey(tmp_path), Ask("diagnosis", "Tell covid, pneumonia and normal chest X-rays apart"))
    assert "whether 0 is covid, 1 is pneumonia, 2 is normal" in sufficient(found)


def test_folds_are_a_split_where_the_request_says_so_alone(tmp_path: Path) -> None:
    fold_arrays(tmp_path, Names(), None)  # type: ignore[arg-type]
    assert best(tmp_path, "diagnosis", TISSUE).spec.split.source is None
    for request in (f"{TISSUE}; train on folds 1 and 2, test on fold 3", f"{TISSUE}, evaluated on fold 3"):
        found = best(tmp_path, "diagnosis", request)
        assert (found.spec.split.train, found.spec.split.test) == (("1", "2"), ("3",))
        assert set(found.spec.classes) == {"Breast", "Colon", "Lung"}


def test_a_slide_stays_on_one_side_and_every_file_is_accounted_for(tmp_path: Path) -> None:
    patch_parts(tmp_path / "raw", Names(), None)  # type: ignore[arg-type]
    for one in (tmp_path / "raw").glob("*meta.csv"):  # the same slides in all parts
        one.write_text(one.read_text().replace("slide_train", "slide").replace("slide_test", "slide"))
    index = made(
        tmp_path / "raw", tmp_path, best(tmp_path / "raw", "diagnosis", "Detect metastases in lymph node patches")
    )
    assert index.crossing == 5
    assert len(index.train) == 40 + 16 - 20
    assert index.accounting.whole
    assert index.accounting.counts() == {"image": 3, "array": 3, "table": 3}
    assert index.notes[-1] == (
        "20 images of files that are used are left out: its patient, or a copy of it, is in the data set's own test part"
    )
    assert "column wsi of camelyonpatch_level_2_split_{part}_meta.csv" in index.to_json()["grouped_by"]


def test_training_sees_the_items_of_its_cases_alone_and_no_labels(tmp_path: Path) -> None:
    import h5py

    fold_arrays(tmp_path / "data/set", Names(), None)  # type: ignore[arg-type]
    patch_parts(tmp_path / "data/set/patches", Names(), None)  # type: ignore[arg-type]
    for task, request in (("diagnosis", "Detect metastases in lymph node patches"), ("diagnosis", TISSUE)):
        found = next(one for one in propose(survey(tmp_path / "data/set"), Ask(task, request)) if
                     ("types" in one.title) == (request == TISSUE))  # fmt: skip
        index = made(tmp_path / "data/set", tmp_path / request[:8], found)
        view = tmp_path / "view" / request[:8]
        make_view(needed_files_of(index.train, tmp_path), tmp_path, lambda path, view=view: view / path, link=False)
        there = {path.name for path in view.rglob("*") if path.is_file()}
        trained = {str(one.image) for one in index.train}
        assert there == {Path(one.partition("#")[0]).name for one in trained}, "no labels, no tables"
        for path in view.rglob("*.*"):
            key = "x" if path.suffix == ".h5" else ""
            items = h5py.File(path)["x"][()] if key else np.load(path)
            name = path.relative_to(view).as_posix()
            shown = {at for at in range(len(items)) if items[at].any()}
            assert shown == {at for at in range(len(items)) if f"{name}#{key}[{at}]" in trained}


# --- masks -----------------------------------------------------------------------------------------------------------


def test_layers_that_nothing_names_are_asked_about(tmp_path: Path) -> None:
    saved(tmp_path, images=pictures(1, 20, 3), masks=noise(2, (20, 24, 20, 5)) > 150)
    found = propose(survey(tmp_path), Ask("segmentation", "Segment nuclei"))
    assert "what the 5 layers of masks.npy are" in sufficient(found)


def test_layers_that_overlap_are_a_mask_each(tmp_path: Path) -> None:
    layers = np.zeros((20, 24, 20, 2), np.uint8)
    for at in range(20):
        layers[at, ..., 0] = square(at)
        layers[at, ..., 1] = square(at + 1)
    saved(tmp_path / "raw", images=pictures(1, 20, 3), masks=layers)
    found = best(tmp_path / "raw", "segmentation", "Segment lung and heart", "Layers: 0 = lung, 1 = heart")
    index = made(tmp_path / "raw", tmp_path, found)
    assert found.spec.masks is not None
    assert found.spec.masks.combine == "classes"
    case = next(one for one in index.train if isinstance(one.mask, dict))
    at = int(str(case.image).partition("[")[2][:-1])
    from m3b.dataset.reading import read_masks

    drawn = read_masks(case.mask, index.values, str(tmp_path))
    assert (drawn == np.moveaxis(layers[at] > 0, -1, 0)).all()


def test_layers_that_exclude_each_other_are_numbers_of_one_mask(tmp_path: Path) -> None:
    fold_arrays(tmp_path / "raw", Names(), None)  # type: ignore[arg-type]
    told = "0: neoplastic cells, 1: inflammatory cells, 2: background"
    found = best(tmp_path / "raw", "segmentation", "Segment neoplastic and inflammatory cells", told)
    index = made(tmp_path / "raw", tmp_path, found)
    from m3b.dataset.reading import read_mask

    for one in index.test[:4]:
        at = int(str(one.image).partition("[")[2][:-1])
        layers = _layered(30)[at]
        wanted = (layers[..., 0] > 0) + 2 * (layers[..., 1] > 0)
        assert (read_mask(one.mask, str(tmp_path)).array == wanted).all()


def test_a_value_of_masks_that_first_comes_late_is_a_class(tmp_path: Path) -> None:
    masks = np.stack([square(at) for at in range(200)])
    masks[190:] *= 2
    saved(tmp_path, images=pictures(1, 200), masks=masks)
    found = best(tmp_path, "segmentation", "Segment liver and spleen", "Masks: 1 = liver, 2 = spleen")
    assert found.spec.masks is not None
    assert found.spec.masks.classes == {"liver": 1, "spleen": 2}


def test_volumes_with_masks_in_files_of_their_own_are_no_stacks(tmp_path: Path) -> None:
    for at in range(10):
        saved(
            tmp_path,
            **{
                f"case{at:02d}_image": noise(at, (12, 24, 24)),
                f"case{at:02d}_mask": np.stack([square(at, (24, 24))] * 12),
            },
        )
    assert survey(tmp_path).items == ()


def test_arrays_of_one_length_that_say_nothing_of_each_other_are_no_set(tmp_path: Path) -> None:
    saved(tmp_path, ct=pictures(1, 30), pet=pictures(2, 30), other=np.arange(31))
    assert survey(tmp_path).items == ()


# --- going elsewhere -------------------------------------------------------------------------------------------------


def test_a_reading_of_items_goes_to_croissant_whole(tmp_path: Path) -> None:
    croissant = pytest.importorskip("m3b.data.spec.croissant")
    pytest.importorskip("mlcroissant")
    rows_of_items(tmp_path / "raw", Names(), None)  # type: ignore[arg-type]
    found = best(tmp_path / "raw", "diagnosis", "Tell benign from malignant lesions")
    raw = croissant.written(found.spec, tmp_path / "raw", "set")
    assert "(row)" not in json.dumps([raw["distribution"], raw["recordSet"]])
    (tmp_path / "set.json").write_text(json.dumps(raw))
    assert croissant.given_by(croissant.load(tmp_path / "set.json")).index == found.spec


def test_facts_of_items_come_back_from_json(tmp_path: Path) -> None:
    patch_parts(tmp_path, Names(), None)  # type: ignore[arg-type]
    found = survey(tmp_path)
    assert type(found).model_validate_json(found.model_dump_json()) == found
    from m3b.data.survey.render import render
    from m3b.data.survey.ten_lines import ten_lines

    assert "camelyonpatch_level_2_split_{part}_y.h5 (labels, 76 items, 0 x 38, 1 x 38)" in render(found)
    assert "own split by names of i1: train x 40, test x 20, valid x 16" in ten_lines(found)
