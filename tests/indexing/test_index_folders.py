"""build_index.py on class folders and archives, as a real process, and the split of its cases."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

INDEXING = Path(__file__).resolve().parents[2] / "resources" / "templates" / "indexing"
FOLDERS = ("--class-folders", "data/x")


def fill(desk: Any, pattern: str, count: int = 12, **names: str) -> None:
    for at in range(count):
        desk.image(pattern.format(at, half=at // 2, **names))


def test_plain_class_folders(desk: Any) -> None:
    fill(desk, "Normal/n{}.png", 12)
    fill(desk, "Tumour/t{}.png", 8)
    desk.write("Tumour/notes.txt", "no image")
    desk.write(".cache/c.png", "hidden")
    (desk.raw / "empty").mkdir()
    built = desk.build(*FOLDERS)
    assert built.labels == ["Normal", "Tumour"]
    assert built.counts() == {"Normal": 12, "Tumour": 8}
    assert built.counts("test") == {"Normal": 2, "Tumour": 2} or sum(built.counts("test").values()) == 4
    assert "patient unknown: 20 cases" in built.out


def test_numbered_class_folders_get_their_names(desk: Any) -> None:
    fill(desk, "0/n{}.png", 6)
    fill(desk, "1/t{}.png", 6)
    built = desk.build(*FOLDERS, "--names", "0=normal,1=tumour,7=cyst")
    assert built.labels == ["normal", "tumour"]
    assert "--names: no label is called 7; labels: 0, 1" in built.out


@pytest.mark.parametrize("top", ["wrap", "wrap/deep", "images", "wrap/images", "wrap/data"])
def test_wrapping_folders_are_looked_through(desk: Any, top: str) -> None:
    for name in ("a", "b", "c"):
        fill(desk, top + "/{name}/{}.png", name=name)
    desk.write("README.md", "about")
    desk.write("docs/readme.txt", "about")
    built = desk.build(*FOLDERS)
    assert built.counts() == {"a": 12, "b": 12, "c": 12}


def test_halves_with_classes(desk: Any) -> None:
    for half, count in (("train", 10), ("test", 4), ("val", 2)):
        for name in ("ill", "well"):
            fill(desk, half + "/{name}/" + half + "{}.png", count, name=name)
    built = desk.build(*FOLDERS)
    assert built.counts("train") == {"ill": 12, "well": 12}, "what was held out for validation is training data"
    assert all("/test/" in record["image_path"] for record in built.test)
    assert len(built.test) == 8
    assert len(desk.build(*FOLDERS, "--ignore-split", "--test-share", "0.5").test) == pytest.approx(16, abs=2)


def test_a_single_half_is_split_anew(desk: Any) -> None:
    for name in ("ill", "well"):
        fill(desk, "set/Training/{name}/{}.png", name=name)
    built = desk.build(*FOLDERS)
    assert built.counts() == {"ill": 12, "well": 12}
    assert min(built.counts("test").values()) >= 2


def test_folders_below_the_class_are_patients(desk: Any) -> None:
    for name in ("ill", "well"):
        fill(desk, "{name}/p{half:02d}/s{}.png", 24, name=name)
    built = desk.build(*FOLDERS)
    assert len(built.all) == 48
    assert {record["patient"] for record in built.all} == {f"p{at:02d}" for at in range(12)}
    assert not {r["patient"] for r in built.train} & {r["patient"] for r in built.test}


def test_a_volume_is_a_folder_of_slices(desk: Any) -> None:
    for patient in range(6):
        for scan in range(2):
            name = ("CP", "Normal")[patient % 2]
            for at in range(9):
                desk.image(f"{name}/{patient:03d}/scan{scan}/{at:04d}.png")
    built = desk.build(*FOLDERS)
    assert len(built.all) == 12
    assert {record["patient"] for record in built.all} == {f"{at:03d}" for at in range(6)}
    assert "data/x/CP/000/scan1" in built.by_image
    assert len(desk.build(*FOLDERS, "--unit", "file").all) == 108


def test_folders_of_images_and_masks(desk: Any) -> None:
    for name in ("COVID", "Normal"):
        fill(desk, "{name}/images/{name}-{}.png", name=name)
        fill(desk, "{name}/masks/{name}-{}.png", name=name)
    built = desk.build(*FOLDERS)
    assert built.counts() == {"COVID": 12, "Normal": 12}
    assert not any("masks" in path for path in built.by_image)
    assert len({record["patient"] for record in built.all}) == 24, "`images` is no patient"
    assert "12 images in folders of masks are left out" in built.out


def test_masks_beside_the_classes(desk: Any) -> None:
    for name in ("a", "b"):
        fill(desk, "images/{name}/{}.png", name=name)
        fill(desk, "masks/{name}/{}.png", name=name)
    assert all("/images/" in path for path in desk.build(*FOLDERS).by_image)


def test_a_few_folders_are_no_patients(desk: Any) -> None:
    for name in ("a", "b"):
        for site in ("north", "south"):
            fill(desk, "{name}/" + site + "/{}.png", name=name)
    built = desk.build(*FOLDERS)
    assert "too few to be patients" in built.out
    assert len({record["patient"] for record in built.all}) == 48


def test_folders_can_be_merged_left_out_and_skipped(desk: Any) -> None:
    for name in ("viral", "bacterial", "normal", "unseen"):
        fill(desk, "{name}/{}.png", name=name)
    built = desk.build(*FOLDERS, "--skip", "UNSEEN", "--map", "sick=viral|bacterial", "--map", "normal=normal")
    assert built.counts() == {"normal": 12, "sick": 24}
    assert built.labels == ["normal", "sick"]
    built = desk.build(*FOLDERS, "--skip", "unseen", "--map", "viral=viral", "--rest", "other")
    assert built.labels == ["other", "viral"]


def test_volumes_in_files(desk: Any) -> None:
    for name in ("large", "small"):
        (desk.raw / name).mkdir()
        for at in range(6):
            np.save(desk.raw / name / f"scan_{at}.npy", desk.random.normal(0, 9, (9, 10, 11)).astype(np.float32))
    assert desk.build(*FOLDERS).counts() == {"large": 6, "small": 6}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--class-folders", "data/absent"), "There is no data/absent"),
        (("--class-folders", "data/x/flat.txt"), "is no folder"),
        (FOLDERS, "no sub-folder with images"),
        (("--archive", "data/x/flat.txt"), "cannot be read this way"),
        (("--archive", "data/x/absent.npz"), "There is no data/x/absent.npz"),
        (("--archive", "data/x/other.npz"), "holds weights; expected pairs"),
    ],
)
def test_what_is_no_such_layout_is_named(desk: Any, arguments: tuple[str, ...], told: str) -> None:
    desk.write("flat.txt", "text")
    np.savez(desk.raw / "other.npz", weights=np.zeros(3))
    assert told in desk.fail(*arguments)


# --- archives ----------------------------------------------------------------------------------------------------


def pixels(desk: Any, count: int) -> np.ndarray:
    made: np.ndarray = desk.random.integers(0, 255, (count, 8, 8), dtype=np.uint8)
    return made


def test_an_archive_with_its_own_split(desk: Any) -> None:
    arrays = {}
    for half, count in (("train", 10), ("val", 4), ("test", 6)):
        arrays[f"{half}_images"] = pixels(desk, count)
        arrays[f"{half}_labels"] = np.arange(count)[:, None] % 2
    arrays["test_images"][0] = arrays["train_images"][0]
    np.savez(desk.raw / "a.npz", **arrays)
    built = desk.build("--archive", "data/x/a.npz", "--names", "0=normal, 1=pneumonia")
    assert built.labels == ["normal", "pneumonia"]
    assert len(built.train) + len(built.test) == 19, "the copy across the split is kept once"
    assert "data/x/a.npz#val_images[3]" in {record["image_path"] for record in built.train}
    assert all("#test_images[" in record["image_path"] for record in built.test)
    assert len({record["patient"] for record in built.all}) == 19


@pytest.mark.parametrize("keys", [("images", "labels"), ("X", "y"), ("x_train", "y_train"), ("data", "targets")])
def test_archives_with_other_keys(desk: Any, keys: tuple[str, str]) -> None:
    np.savez(desk.raw / "a.npz", **{keys[0]: pixels(desk, 20), keys[1]: np.arange(20) % 2.0})
    built = desk.build("--archive", "data/x/a.npz")
    assert built.counts() == {"0": 10, "1": 10}


def test_an_archive_with_several_labels_a_case(desk: Any) -> None:
    labels = np.array([[at % 2, at % 3 == 0, 0] for at in range(20)], dtype=np.uint8)
    np.savez(desk.raw / "a.npz", train_images=pixels(desk, 20), train_labels=labels)
    built = desk.build("--archive", "data/x/a.npz", "--names", "0=edema,1=mass")
    assert built.counts() == {"edema": 10, "mass": 7}
    assert built.by_image["data/x/a.npz#train_images[3]"]["labels"] == ["edema", "mass"]
    assert "--none" not in built.out


def test_an_archive_of_text_labels(desk: Any) -> None:
    np.savez(desk.raw / "a.npz", images=pixels(desk, 20), labels=np.array(["well", "ill"] * 10))
    assert desk.build("--archive", "data/x/a.npz", "--positive", "ill").labels == ["well", "ill"]


# --- the split ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> Iterator[ModuleType]:
    """The template's split module, with its neighbour `folder_layouts`."""
    sys.path.insert(0, str(INDEXING))
    try:
        yield importlib.import_module("split")
    finally:
        sys.path.remove(str(INDEXING))
        for name in ("split", "folder_layouts"):
            sys.modules.pop(name, None)


PATIENTS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6)), min_size=2, max_size=60)


def cases_of(split: ModuleType, patients: list[tuple[str, int]]) -> list[Any]:
    return [
        split.Case(f"{number}-{image}.png", [label], f"p{number}")
        for number, (label, images) in enumerate(patients)
        for image in range(images)
    ]


@given(patients=PATIENTS, share=st.floats(0.05, 0.6), seed=st.integers(0, 5))
def test_whole_patients_and_every_label_on_both_sides(
    split: ModuleType, patients: list[tuple[str, int]], share: float, seed: int
) -> None:
    cases = cases_of(split, patients)
    train, test = split.split_cases(cases, share, seed)
    assert sorted(case.image for case in (*train, *test)) == sorted(case.image for case in cases)
    assert not {case.patient for case in train} & {case.patient for case in test}
    held = Counter(label for label, _ in patients)
    for label, count in held.items():
        sides = [{case.patient for case in part if case.values == [label]} for part in (train, test)]
        assert sides[0], f"{label} is missing in train"
        assert bool(sides[1]) == (count >= 2), f"{label} has {count} patients"
    again = split.split_cases(cases_of(split, patients), share, seed)
    assert [case.image for case in again[1]] == [case.image for case in test]


@given(sizes=st.lists(st.integers(1, 4), min_size=60, max_size=200), share=st.floats(0.1, 0.5), seed=st.integers(0, 3))
def test_the_share_is_near_the_wish(split: ModuleType, sizes: list[int], share: float, seed: int) -> None:
    patients = [("ab"[at % 3 == 0], size) for at, size in enumerate(sizes)]
    _, test = split.split_cases(cases_of(split, patients), share, seed)
    for label in "ab":
        total = sum(size for name, size in patients if name == label)
        found = sum(case.values == [label] for case in test)
        assert abs(found - share * total) <= max(4, 0.15 * share * total)


@given(
    st.lists(st.lists(st.lists(st.sampled_from("abc"), unique=True), min_size=1, max_size=4), min_size=8, max_size=40)
)
def test_patients_with_several_labels(split: ModuleType, patients: list[list[list[str]]]) -> None:
    cases = [
        split.Case(f"{number}-{at}", list(labels), f"p{number}")
        for number, images in enumerate(patients)
        for at, labels in enumerate(images)
    ]
    train, test = split.split_cases(cases, 0.3, 0)
    assert not {case.patient for case in train} & {case.patient for case in test}
    held: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for label in split.strata(case):
            held[label].add(case.patient)
    in_train = {label for case in train for label in split.strata(case)}
    assert {label for label in held if len(held[label]) > 3} <= in_train


def test_one_large_patient_does_not_swamp_the_test_part(split: ModuleType) -> None:
    patients = [("a", 200), *[("a", 2)] * 40, *[("b", 5)] * 30]
    _, test = split.split_cases(cases_of(split, patients), 0.2, 0)
    assert len({case.patient for case in test if case.values == ["a"]}) > 5
    assert not any(case.patient == "p0" for case in test)


def test_many_patients_are_split_in_a_moment(split: ModuleType) -> None:
    cases = cases_of(split, [("abcd"[at % 4], 1) for at in range(60_000)])
    _, test = split.split_cases(cases, 0.2, 0)
    assert len(test) == 12_000


@given(patients=PATIENTS, most=st.integers(0, 30), balanced=st.booleans())
def test_a_limit_holds(split: ModuleType, patients: list[tuple[str, int]], most: int, balanced: bool) -> None:
    cases = cases_of(split, patients)
    kept = split.limit(cases, most, balanced, 0)
    assert [case for case in cases if case in kept] == kept, "in the order in which they came"
    labels = Counter(case.values[0] for case in kept)
    if balanced:
        assert len(set(labels.values())) == 1
    elif most:
        assert len(kept) == min(most, len(cases))
    if not most or most >= len({case.values[0] for case in cases}):
        assert set(labels) == {case.values[0] for case in cases} or (most and most < 2 * len(labels) + 2)


# --- its own guide -----------------------------------------------------------------------------------------------


def test_readme_and_help_name_the_same_options(desk: Any) -> None:
    said = desk.run("--help")
    assert said.code == 0
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", said.out)) - {"--help"}
    guide = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", (INDEXING / "README.md").read_text(encoding="utf-8")))
    assert guide == options
    assert len(options) > 20


def test_an_option_that_does_not_exist(desk: Any) -> None:
    assert "--labels" in desk.fail("--class-folders", "data/x", "--labels", "a")


def test_an_own_test_part_keeps_its_copies_and_training_loses_its(desk: Any) -> None:
    """The test part stays as its owners made it, so that figures can be compared with theirs."""
    random = np.random.default_rng(3)
    images = random.integers(0, 255, (20, 16, 16), dtype=np.uint8)
    test = random.integers(0, 255, (8, 16, 16), dtype=np.uint8)
    test[2] = test[0]  # a copy within the test part
    images[4] = test[0]  # and one in training
    labels, test_labels = np.arange(20) % 2, np.arange(8) % 2
    np.savez(desk.raw / "a.npz", train_images=images, train_labels=labels, test_images=test, test_labels=test_labels)
    built = desk.build("--archive", "data/x/a.npz")
    assert (len(built.test), len(built.train)) == (8, 19)
