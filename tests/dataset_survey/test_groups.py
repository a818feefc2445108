"""Groups of files: by the form of names, format and content; patterns match exactly their files."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from dataset_folders import blocks, colour, fill, grey, save, save_nifti

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.patterns import parse_pattern
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.groups import Group, GroupFinder
from m3b.dataset.survey.render import render
from m3b.dataset.survey.survey import survey
from m3b.dataset.survey.walk import walk


def find(root: Path) -> dict[str, Group]:
    """Return pattern -> group, after checking that the patterns divide the files."""
    inventory = walk(root)
    groups = GroupFinder(inventory, SurveyLimits()).find()
    check_patterns(inventory, groups)
    return {group.pattern: group for group in groups}


def check_patterns(inventory: Inventory, groups: list[Group]) -> None:
    paths = inventory.files.select("path")
    assert sorted(path for group in groups for path in group.paths) == sorted(inventory.paths)
    for group in groups:
        matched = parse_pattern(group.facts.pattern).match(paths)
        for pattern in group.facts.exclude:
            matched = matched.join(parse_pattern(pattern).match(paths).select("path"), on="path", how="anti")
        assert sorted(matched["path"].to_list()) == sorted(group.paths), group.pattern
        slots = [
            slot.name for slot in group.facts.slots if not slot.is_whole or (slot.level < 0 and slot.name != "stem")
        ]
        assert all(slot in group.frame.columns for slot in slots)


def test_splits_and_classes_are_slots_of_one_group(tmp_path: Path) -> None:
    names = [
        f"{part}/{name}/{name}_{number:03d}.png"
        for part in ("train", "test")
        for name in ("cat", "dog")
        for number in range(6)
    ]
    fill(tmp_path, names)
    groups = find(tmp_path)
    assert list(groups) == ["*/*/{word1:word}_{number1:number}.png"]
    slots = {slot.name: slot for slot in groups.popitem()[1].facts.slots}
    assert [(value.text, value.count) for value in slots["folder0"].values] == [("test", 12), ("train", 12)]
    assert [value.text for value in slots["folder1"].values] == ["cat", "dog"]
    assert (slots["number1"].kind, slots["number1"].width, slots["number1"].low, slots["number1"].high) == (
        "number",
        3,
        0,
        5,
    )
    assert slots["folder0"].role_hint == "split"


def test_masks_beside_images_are_a_group_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path, [f"{part}/images/p{number}.png" for part in ("train", "val") for number in range(6)])
    fill(tmp_path, [f"{part}/masks/p{number}.png" for part in ("train", "val") for number in range(6)], blocks)
    groups = find(tmp_path)
    assert list(groups) == ["*/images/p{number1:number}.png", "*/masks/p{number1:number}.png"]
    contents = [group.facts.content for group in groups.values()]
    assert [content.values for content in contents if content] == ["grey", "binary"]


@pytest.mark.parametrize("mask_folder", ["masks", "a", "zz"])
def test_content_and_not_names_tell_masks(tmp_path: Path, mask_folder: str) -> None:
    fill(tmp_path, [f"m/{number}.png" for number in range(5)])
    fill(tmp_path, [f"{mask_folder}/{number}.png" for number in range(5)], blocks)
    assert {pattern.split("/")[0] for pattern in find(tmp_path)} == {"m", mask_folder}


def test_masks_told_by_a_word_of_the_name(tmp_path: Path) -> None:
    for number in range(6):
        for word in ("t1", "t1ce", "flair"):
            save(tmp_path / f"BRATS_{number:03d}_{word}.png", grey(number))
        save(tmp_path / f"BRATS_{number:03d}_seg.png", blocks(number, (1, 2, 4)))
    groups = find(tmp_path)
    masks = [group for group in groups.values() if group.facts.content and group.facts.content.is_mask]
    images = [group for group in groups.values() if group not in masks]
    assert [len(group.paths) for group in masks] == [6]
    assert sum(len(group.paths) for group in images) == 18
    assert [level.value for level in masks[0].facts.content.levels] == ["0", "1", "2", "4"]  # type: ignore[union-attr]


def test_masks_of_another_kind_of_name(tmp_path: Path) -> None:
    """Fault 14: `slist` beside `ilist`."""
    rng = np.random.default_rng(0)
    for number in range(1, 6):
        save_nifti(tmp_path / f"ilist{number}.nii.gz", rng.normal(size=(12, 12, 6)).astype(np.float32))
        save_nifti(tmp_path / f"slist{number}.nii.gz", _labels(number))
    groups = find(tmp_path)
    assert {pattern: group.facts.content.values for pattern, group in groups.items() if group.facts.content} == {
        "ilist{number1:number}.nii.gz": "grey",
        "slist{number1:number}.nii.gz": "few_integers",
    }


def _labels(seed: int) -> np.ndarray:
    volume = np.zeros((12, 12, 6), np.uint8)
    volume[2:6, 2:6, 1:4] = 1
    volume[6:10, 5:9, 2 + seed % 2 : 5] = 2
    return volume


def test_another_format_is_another_group(tmp_path: Path) -> None:
    fill(tmp_path, [f"x/{number}.png" for number in range(4)])
    for number in range(4):
        save_nifti(
            tmp_path / f"x/{number}.nii.gz", np.random.default_rng(number).normal(size=(8, 8, 4)).astype(np.float32)
        )
    assert sorted(find(tmp_path)) == ["x/{number1:number}.nii.gz", "x/{number1:number}.png"]


def test_suffixes_of_one_format_are_one_group(tmp_path: Path) -> None:
    fill(tmp_path, [f"x/{number}.png" for number in range(0, 8, 2)])
    fill(tmp_path, [f"x/{number}.jpg" for number in range(1, 8, 2)])
    assert list(find(tmp_path)) == ["x/{number1:number}.{jpg,png}"]


def test_thumbnails_are_told_by_their_grid(tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / f"full/{number}.png", colour(number, (60, 60)))
        save(tmp_path / f"small/{number}.png", colour(number, (15, 15)))
    assert sorted(find(tmp_path)) == ["full/{number1:number}.png", "small/{number1:number}.png"]


def test_folders_of_numbered_slices_stay_one_group(tmp_path: Path) -> None:
    for patient, (slices, side) in {"anna": (5, 20), "bert": (7, 24), "cleo": (6, 28)}.items():
        for number in range(slices):
            save(tmp_path / patient / f"{number:03d}.png", grey(number, (side, side)))
    assert list(find(tmp_path)) == ["*/{number1:number}.png"]


def test_a_word_behind_the_number_makes_a_family(tmp_path: Path) -> None:
    fill(tmp_path, [f"RET_{number:03d}.jpg" for number in range(1, 13)])
    fill(tmp_path, [f"RET_{number:03d}test.jpg" for number in range(1, 7)])
    groups = find(tmp_path)
    assert list(groups) == ["RET_{number1:number}.jpg", "RET_{number1:number}test.jpg"]
    assert {group.family for group in groups.values()} == {"f1"}


def test_counters_in_a_word_are_forms_of_one_group(tmp_path: Path) -> None:
    """Fault 10: `063_HC`, `063_2HC`, `063_3HC`."""
    names = [f"{number:03d}_{counter}HC.png" for number in range(1, 12) for counter in ("", "2", "3")[: 1 + number % 3]]
    fill(tmp_path, names)
    groups = find(tmp_path)
    assert list(groups) == ["{number1:number}_{form1}.png"]
    forms = groups.popitem()[1].facts.slot("form1")
    assert forms is not None
    assert [value.text for value in forms.values] == ["2HC", "3HC", "HC"]


def test_names_without_form_are_one_group(tmp_path: Path) -> None:
    rng = random.Random(1)
    names = {"".join(rng.choice("abcxyz019") for _ in range(22)) for _ in range(30)}
    fill(tmp_path, [f"photos/{name}.png" for name in sorted(names)])
    words = [
        "red-cell (2)",
        "x ray left",
        "a.b",
        "IMG 3",
        "scan_final_v2",
        "copy of it",
        "no 7b",
        "w-x-y-z",
        "Übersicht 1",
    ]
    fill(tmp_path, [f"mixed/{word}.png" for word in words])
    groups = find(tmp_path)
    assert {len(group.paths) for group in groups.values()} == {30, 9}
    assert "mixed/*.png" in groups


def test_short_hashes_of_digits_alone_are_no_other_form(tmp_path: Path) -> None:
    rng = random.Random(4)
    names = ["4769725403", "abcdefabcd", *(f"{rng.getrandbits(40):010x}" for _ in range(40))]
    fill(tmp_path, [f"a/{name}_v2.png" for name in names])
    assert [len(group.paths) for group in find(tmp_path).values()] == [42]


def test_arrays_side_by_side_are_told_by_what_they_hold(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 255, (30, 24, 24), dtype=np.uint8))
    np.save(tmp_path / "time.npy", np.arange(30) / 7)
    np.save(tmp_path / "event.npy", np.arange(30) % 2)
    assert sorted(len(group.paths) for group in find(tmp_path).values()) == [1, 2]


def test_names_with_braces_have_regular_expressions(tmp_path: Path) -> None:
    fill(tmp_path, [f"set {{a}}/img,{number}.png" for number in range(4)])
    assert next(iter(find(tmp_path))).startswith("re:")


def test_uids_hashes_and_dates(tmp_path: Path) -> None:
    rng = random.Random(2)
    names = [
        f"1.2.840.{number}.{number + 5}.7.{number * 3}_{rng.getrandbits(128):032x}_201903{number + 10}.png"
        for number in range(8)
    ]
    fill(tmp_path, names)
    (group,) = find(tmp_path).values()
    assert [slot.kind for slot in group.facts.slots] == ["uid", "hash", "date"]


def test_folders_called_like_persons_are_marked(tmp_path: Path) -> None:
    fill(
        tmp_path,
        [f"{name}/{number}.png" for name in ("Maier Anna", "Schulz Bert", "Lopez Ines") for number in range(3)],
    )
    (group,) = find(tmp_path).values()
    assert [slot.sensitive for slot in group.facts.slots] == ["identity", ""]
    text = render(survey(tmp_path))
    assert "Maier Anna x3" not in text
    assert "[masked" in text


def test_random_trees_are_divided_by_their_patterns(tmp_path: Path) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        levels = [
            [f"{rng.choice(['s', 'part_', 'K-'])}{number}" for number in range(rng.randint(1, 3))]
            for _ in range(rng.randint(0, 2))
        ]
        for count in range(rng.randint(4, 30)):
            folder = "/".join(rng.choice(level) for level in levels)
            name = rng.choice(
                [
                    f"{count:03d}",
                    f"im{count}_{rng.choice('LR')}",
                    f"w{rng.choice('abc')}-{count}",
                    f"x{count} ({count % 3})",
                ]
            )
            path = root / folder / f"{name}.{rng.choice(['txt', 'txt', 'csv'])}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("1")
        find(root)


def test_a_million_names_take_no_python_loop() -> None:
    paths = [f"site_{n % 7}/pat_{n // 100:04d}/img_{n:06d}_{'LR'[n % 2]}.txt" for n in range(60_000)]
    files = pl.DataFrame({"path": paths}).with_columns(bytes=pl.lit(None, pl.Int64))
    (group,) = GroupFinder(Inventory(Path("/nowhere"), files), SurveyLimits()).find()
    assert group.pattern == "site_{number1:number}/pat_{number2:number}/img_{number3:number}_{word1:word}.txt"
    assert group.facts.slots[2].distinct == 60_000
    assert group.facts.exact is False


def test_a_number_after_a_word_beside_ids_of_letters_and_digits_is_a_slot(tmp_path: Path) -> None:
    for number in range(30):
        save(tmp_path / f"{hashlib.sha1(bytes([number])).hexdigest()[:10]}_age{20 + 7 * number}.png", grey(number))
    (group,) = find(tmp_path).values()
    assert group.facts.pattern == "{text1}_age{number1:number}.png"
    assert sorted(map(int, group.frame["number1"])) == [20 + 7 * number for number in range(30)]


def test_many_texts_called_like_documents_are_one_group(tmp_path: Path) -> None:
    for number in range(40):
        save(tmp_path / f"case_{number:03d}.png", grey(number))
        (tmp_path / f"notice_{number:03d}.txt").write_text(f"Patient {number}", encoding="utf-8")
    assert {group.facts.pattern for group in find(tmp_path).values()} == {
        "case_{number1:number}.png",
        "notice_{number1:number}.txt",
    }
