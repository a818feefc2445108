"""A spec is executed by m3b: labels, masks, patients, split and the accounting of every file."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from spec_kit import mask, picture, read

from m3b.data.index import read_index
from m3b.data.spec.execute import write
from m3b.data.spec.model import IndexSpec
from m3b.dataset.reading import read_mask
from m3b.errors import DataError

CLASSES = {"a": ["benign"], "b": ["malignant"]}


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for part, n in (("train", 6), ("test", 2)):
        for grade in "012":
            for number in range(n):
                for side in "LR":
                    patient = int(grade) * 100 + number + (50 if part == "test" else 0)
                    picture(root / part / grade / f"{patient:04d}{side}.png")
    (root / "README.md").write_text("notes")
    return root


GRADED = {
    "task": "diagnosis",
    "images": {"files": {"pattern": "{part}/{grade:number}/{patient:number}{side:word}.png"}},
    "labels": {"sources": ["{grade}"], "classes": {"0": [], "1": [], "2": []}, "ordered": True},
    "patient": "{patient}",
    "split": {"source": "{part}", "train": ["train"], "test": ["test"]},
}


def test_class_folders_with_an_own_split(graded: Path, tmp_path: Path) -> None:
    made = read(graded, tmp_path, **GRADED)
    assert (len(made.train), len(made.test)) == (36, 12)
    assert made.values == {"0": 0, "1": 1, "2": 2}
    assert {record.patient for record in made.train}.isdisjoint(record.patient for record in made.test)
    assert made.train[0].image == "data/set/train/0/0000L.png"
    assert made.accounting.whole
    assert made.accounting.counts() == {"image": 48}
    assert made.accounting.reasons() == {"a document": (1, ("README.md",))}


def test_an_index_that_is_written_reads_back(graded: Path, tmp_path: Path) -> None:
    made = read(graded, tmp_path, **GRADED)
    write(made, tmp_path)
    index = read_index(tmp_path, "diagnosis")
    assert index.train == made.train
    kept = json.loads((tmp_path / "Datapath" / "accounting.json").read_text())
    assert IndexSpec.model_validate(kept["spec"]) == made.spec
    assert kept["accounting"]["files"] == 49
    assert kept["patients"] == "known"


def test_a_patient_on_both_sides_of_the_own_split_is_counted(graded: Path, tmp_path: Path) -> None:
    picture(graded / "test/0/0000R.png", 30)
    made = read(graded, tmp_path, **GRADED)
    assert made.crossing == 1
    assert not {record.patient for record in made.train} & {record.patient for record in made.test}


def test_an_own_split_without_one_side_gives_way_to_a_drawn_one(graded: Path, tmp_path: Path) -> None:
    made = read(graded, tmp_path, **{**GRADED, "split": {"source": "{part}", "train": ["train"], "test": ["later"]}})
    assert len(made.test) > 4
    assert any("a new one is drawn" in note for note in made.notes)


def test_images_that_do_not_open_and_copies_are_left_out_with_the_reason(graded: Path, tmp_path: Path) -> None:
    (graded / "train/0/0001L.png").write_bytes(b"no picture")
    shutil.copy(graded / "train/1/0101L.png", graded / "train/1/0102R.png")
    shutil.copy(graded / "train/2/0201L.png", graded / "train/0/0003R.png")
    made = read(graded, tmp_path, **GRADED)
    reasons = {reason: count for reason, (count, _) in made.accounting.reasons().items()}
    assert reasons == {"the image does not open": 1, "an exact copy of another image of the index": 1,
                       "the same pixels under different labels": 2, "a document": 1}  # fmt: skip
    assert len(made.train) == 32
    assert made.accounting.whole


def test_unknown_patients_are_a_state_of_their_own(graded: Path, tmp_path: Path) -> None:
    made = read(graded, tmp_path, **{**GRADED, "patient": None})
    assert not made.patients
    assert made.to_json()["patients"] == "unknown"
    assert len({record.patient for record in (*made.train, *made.test)}) == 48


def test_a_drawn_split_keeps_copies_and_patients_together(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(20):
        for copy in ("", "_turned_1", "_turned_2"):
            picture(root / "ab"[number % 2] / f"im{number:02d}{copy}.png")
    made = read(root, tmp_path, task="diagnosis", labels={"sources": ["{c}"], "classes": {"a": [], "b": []}},
                images={"files": {"pattern": r"re:(?P<c>[ab])/(?P<id>im\d+)(_turned_\d)?\.png"}}, together=["{id}"])  # fmt: skip
    sides = [{Path(str(record.image)).name[:4] for record in part} for part in (made.train, made.test)]
    assert sides[0].isdisjoint(sides[1])
    assert len(made.test) == 12
    assert {label for record in made.test for label in record.labels} == {"a", "b"}


def _studies(root: Path) -> Path:
    """Pictures of studies; one table names their patients' studies, another what those patients have."""
    for number in range(12):
        picture(root / "images" / f"i{number:02d}.png")
    rows = [f"i{number:02d},s{number // 2}" for number in range(12)]
    (root / "files.csv").write_text("\n".join(["image,study", *rows]))
    found = [f"S{study},{study % 3 == 0:d},{study % 3 == 1:d}" for study in range(5)]  # nobody wrote the sixth down
    (root / "studies.csv").write_text("\n".join(["study,mass,cyst", *found]))
    return root


@pytest.mark.parametrize(("none", "left"), [("", 8), ("clear", 10)])
def test_yes_no_columns_of_a_table_that_another_one_leads_to(tmp_path: Path, none: str, left: int) -> None:
    """`through`: the key of a row comes from another table; `none`: what a case is in which no column says yes."""
    through = {"file": "files.csv", "row": "{image}", "image": "{id}", "column": "study"}
    sources = [
        {"file": "studies.csv", "row": "{study}", "column": name, "rule": "folded", "through": through}
        for name in ("mass", "cyst")
    ]
    classes = {"mass": ["mass"], "cyst": ["cyst"], **({"clear": []} if none else {})}
    made = read(_studies(tmp_path / "raw"), tmp_path, task="diagnosis", images={"files": {"pattern": "images/{id}.png"}},
                labels={"sources": sources, "classes": classes, "one_hot": True, "none": none},
                patient=through)  # fmt: skip
    cases = {Path(str(one.image)).stem: one for one in (*made.train, *made.test)}
    assert {name: one.labels for name, one in cases.items() if one.labels} == {
        f"i{number:02d}": ((("mass", "cyst", none)[number // 2 % 3]),) for number in range(10) if number // 2 % 3 < 2 or none
    }  # fmt: skip
    assert len([one for one in cases.values() if one.labels]) == left
    assert made.patients


def test_lossy_masks_are_cut_in_two(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(6):
        picture(root / "images" / f"p{number}.jpg", size=(48, 64))
        mask(root / "masks" / f"p{number}.jpg", (8, 8, 32, 40), size=(48, 64), quality=60)
    made = read(root, tmp_path, task="segmentation", images={"files": {"pattern": "images/{id}.jpg"}},
                masks={"files": {"pattern": "masks/{id}.jpg"}, "case": "{id}", "classes": {"polyp": 1}, "cut": 127})  # fmt: skip
    array = read_mask(made.train[0].mask, str(tmp_path)).array
    assert set(np.unique(array)) == {0, 1}
    assert abs(int(array.sum()) - 24 * 32) < 40
    assert made.accounting.counts() == {"mask": 6, "image": 6}


def test_one_mask_an_instance_is_united_and_unmatched_ones_are_said(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(5):
        picture(root / f"c{number}" / "images" / "i.png")
        for at in range(3):
            mask(root / f"c{number}" / "masks" / f"{at}.png", (at * 4, 0, at * 4 + 3, 5))
    mask(root / "lost" / "masks" / "0.png")
    picture(root / "bare" / "images" / "i.png")
    made = read(root, tmp_path, task="segmentation", images={"files": {"pattern": "{id}/images/*.png"}},
                masks={"files": {"pattern": "{id}/masks/*.png"}, "case": "{id}", "combine": "union",
                       "classes": {"nucleus": 1}})  # fmt: skip
    assert len(made.train) + len(made.test) == 5
    assert read_mask(made.train[0].mask, str(tmp_path)).array.sum() == 45
    assert {reason: count for reason, (count, _) in made.accounting.reasons().items()} == {
        "a mask without its image": 1, "no mask": 1,
    }  # fmt: skip


def test_a_mask_of_another_size_leaves_its_case_out_with_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(6):
        picture(root / f"p{number}_image.png")
        mask(root / f"p{number}_mask.png", size=(12, 16) if number else (10, 16))
    made = read(root, tmp_path, task="segmentation", images={"files": {"pattern": "{id}_image.png"}},
                masks={"files": {"pattern": "{id}_mask.png"}, "case": "{id}", "classes": {"x": 255}})  # fmt: skip
    assert len(made.train) + len(made.test) == 5
    assert made.accounting.whole
    assert any("10x16, its image 12x16" in reason for reason in made.accounting.reasons())


def test_containers_have_items_members_and_their_own_labels(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    rng = np.random.default_rng(0)
    images = {f"{part}_images": rng.integers(0, 255, (n, 8, 8), np.uint8) for part, n in (("train", 9), ("test", 4))}
    np.savez(root / "all.npz", **images, train_labels=np.arange(9) % 2, test_labels=np.arange(4).reshape(4, 1) % 2)
    made = read(root, tmp_path, task="diagnosis", images={"files": {"pattern": "*.npz", "member": "{part}_images[#]"}},
                labels={"sources": [{"key": "{part}_labels[#]"}], "classes": {"no": ["0"], "yes": ["1"]}},
                split={"source": "{part}", "train": ["train"], "test": ["test"]})  # fmt: skip
    assert (len(made.train), len(made.test)) == (9, 4)
    assert made.test[1].image == "data/set/all.npz#test_images[1]"
    assert made.test[1].labels == ("yes",)


def test_lists_name_the_sides_and_what_they_name_in_vain_does_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(8):
        picture(root / "x" / f"{number:03d}.png")
    (root / "test.txt").write_text("6\n7\n99\n")
    (root / "train.txt").write_text("\n".join(map(str, range(6))))
    made = read(root, tmp_path, task="diagnosis", images={"files": {"pattern": "x/{n:number}.png"}},
                labels={"sources": ["{stem}"], "classes": {"low": ["000", "001", "006"], "high": ["003", "002", "007"]}},
                split={"source": {"lists": {"train": ["train.txt"], "test": ["test.txt"]}, "rule": "number"},
                       "train": ["train"], "test": ["test"]})  # fmt: skip
    assert (len(made.train), len(made.test)) == (4, 2)
    assert made.accounting.reasons()["its label '004' is no class of this index"][0] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": {"files": {"pattern": "nothing/{x}.png"}}}, "No file matches"),
        ({"images": {"files": {"pattern": "../{x}.png"}}}, "below the data folder"),
        ({"images": {"files": {"pattern": "re:(("}}}, "cannot be used"),
        ({"images": {"files": {"pattern": "{a:colour}.png"}}}, "no known kind"),
        ({"images": {**GRADED["images"], "case": "{eye}"}}, "no slot of the pattern"),  # type: ignore[dict-item]
        ({"labels": {"sources": ["{grade}"], "classes": {"x": ["7"], "y": ["8"]}}}, "None of the 48 cases"),
    ],
)
def test_a_spec_that_does_not_fit_says_what_and_where(
    graded: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(DataError, match=said.replace("(", r"\(")):
        read(graded, tmp_path, **{**GRADED, **change})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({**GRADED, "task": "segmentation"}, "needs one of masks"),
        ({**GRADED, "colour": 1}, "colour"),
        ({**GRADED, "split": {"share": 1.5}}, "less than 1"),
        ({**GRADED, "left_out": [{"pattern": "x", "reason": ""}]}, "at least 3"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        IndexSpec.model_validate(spec)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.randoms(use_true_random=False))
def test_the_order_of_the_file_system_does_not_matter(graded: Path, tmp_path: Path, order: st.Random) -> None:  # type: ignore[name-defined]
    from m3b.data.spec.execute import execute
    from m3b.data.spec.readers import Readers

    class Shuffled(Readers):
        def files(self) -> list[str]:
            found = super().files()
            order.shuffle(found)
            return found

    spec = IndexSpec.model_validate({**GRADED, "split": {}})
    made = execute(spec, graded, name="set", work=tmp_path, readers=Shuffled(graded))
    plain = execute(spec, graded, name="set", work=tmp_path)
    assert (made.train, made.test) == (plain.train, plain.test)
    assert made.accounting.to_json() == plain.accounting.to_json()


SEQUENCES = {
    "task": "diagnosis",
    "images": {
        "files": {"pattern": "{case}/flair.nii"},
        "case": "{case}",
        "channels": [
            {"name": name, "files": {"pattern": f"{{case}}/{name}.nii"}, "case": "{case}"} for name in ("flair", "t1")
        ],
    },
    "labels": {"sources": [{"value": "{case}", "find": "^[a-z]+"}], "classes": {"ill": [], "well": []}},
}


def sequences(root: Path, case: str, t1: tuple[int, int, int] = (6, 6, 4), spacing: float = 1.0) -> None:
    random = np.random.default_rng(zlib.crc32(case.encode()))
    (root / case).mkdir(parents=True)
    for name, shape, step in (("flair", (6, 6, 4), 1.0), ("t1", t1, spacing)):
        voxels = random.normal(size=shape).astype(np.float32)
        nib.save(nib.Nifti1Image(voxels, np.diag([step, step, step, 1.0])), root / case / f"{name}.nii")


def test_sequences_become_channels_by_name_and_nothing_is_stacked(tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    for number in range(6):
        sequences(root, f"{'ill' if number % 2 else 'well'}{number}", (3, 3, 2) if number == 4 else (6, 6, 4), 2.0)
    sequences(root, "well8")
    (root / "well8/t1.nii").unlink()
    sequences(root, "well9", spacing=1.0)
    header = nib.load(root / "well9/t1.nii")
    far = np.eye(4)
    far[:3, 3] = 900
    nib.save(nib.Nifti1Image(header.get_fdata(), far), root / "well9/t1.nii")
    made = read(root, work, **SEQUENCES)
    write(made, work)
    index = read_index(work)
    assert index.channels == ("flair", "t1")
    assert all(list(record.reference) == ["flair", "t1"] for record in index.records)
    assert len(index.records) == 6
    assert not list(work.rglob("*.nii*")), "files stay where they are"
    reasons = {reason: count for reason, (count, _) in made.accounting.reasons().items()}
    assert reasons["the case has no t1"] == 1
    assert reasons["its channels cannot be brought to one grid, or one of them is no single image"] == 2
