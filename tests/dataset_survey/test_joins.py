"""Joins of tables with files, and of files with files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dataset_folders import blocks, fill, grey, save, save_nifti, write_table

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.patterns import parse_pattern
from m3b.dataset.survey.facts import Join, Pairing, Survey
from m3b.dataset.survey.survey import survey


def best_join(facts: Survey) -> Join:
    assert facts.joins, "no join"
    return facts.joins[0]


def pairing_of(facts: Survey, image_folder: str, partner_folder: str) -> Pairing:
    patterns = {group.id: group.pattern for group in facts.groups}
    pairings = [
        pairing
        for pairing in facts.pairings
        if image_folder in patterns[pairing.image_group] and partner_folder in patterns[pairing.partner_group]
    ]
    assert len(pairings) == 1, [
        (patterns[pairing.image_group], patterns[pairing.partner_group]) for pairing in facts.pairings
    ]
    return pairings[0]


@pytest.mark.parametrize(
    ("files", "cells", "match"),
    [
        ("scans/case_{n:03d}.png", "scans/case_{n:03d}.png", "path_tail"),
        ("scans/case_{n:03d}.png", "/home/x/scans/case_{n:03d}.png", "path_tail"),
        ("a/scans/case_{n:03d}.png", "scans/case_{n:03d}.png", "path_tail"),
        ("scans/case_{n:03d}.png", "C:\\data\\old\\case_{n:03d}.png", "basename"),
        ("scans/case_{n:03d}.png", "case_{n:03d}.png", "basename"),
        ("scans/case_{n:03d}.png", "CASE_{n:03d}", "exact"),
        ("scans/case_{n:03d}.png", "case_{n:03d}.dcm", "stem"),
        ("scans/case_{n:03d}.png", " case_{n:03d} ", "exact"),
        ("scans/case_{n:03d}.png", "Case-{n}", "normalized"),
        ("scans/case_{n:03d}.png", "{n}", "normalized"),
        ("scans/case_{n:03d}_t2.png", "case_{n:03d}", "exact"),
        ("scans/hosp_case_{n:03d}_t2.png", "case {n}", "normalized"),
        ("scans/case_{n:03d}.png", "subject no. {n:05d}", "number"),
        ("p{n:03d}/scan.png", "p{n:03d}", "exact"),
        ("p{n:03d}/scan.png", "{n}", "normalized"),
    ],
)
def test_a_column_that_names_files(tmp_path: Path, files: str, cells: str, match: str) -> None:
    numbers = [3 * number + 5 for number in range(12)]
    fill(tmp_path, [files.format(n=number) for number in numbers])
    rows = [[cells.format(n=number), number % 2, f"word {number % 5}"] for number in [*numbers, 500, 501]]
    write_table(tmp_path / "labels.csv", [["ref", "label", "remark"], *rows])
    join = best_join(survey(tmp_path))
    assert (join.key, join.match) == ("{ref}", match)
    assert (join.files_matched, join.files, join.rows_matched, join.rows) == (12, 12, 12, 14)
    assert (join.rows_per_file, join.files_per_row) == (1, 1)
    check_by_hand(tmp_path, join)


def check_by_hand(root: Path, join: Join) -> None:
    """Resolve the join with the templates as a manifest does."""
    import polars as pl

    from m3b.dataset.inventory import with_path_columns
    from m3b.dataset.manifest.templates import match_keys, normalize, parse_template
    from m3b.dataset.tables import load_table

    facts = survey(root)
    inventory = Inventory(
        root, pl.DataFrame({"path": [str(path.relative_to(root)) for path in sorted(root.rglob("*.png"))]})
    )
    files = parse_pattern(facts.group(join.group).pattern).match(inventory.files)
    image = parse_template(join.image)
    files = with_path_columns(files, image.columns)
    rows = load_table(root, [facts.table(join.table).files]).frame
    row_keys = rows.select(normalize(parse_template(join.key).expression(), join.match).alias("key")).to_series()
    file_keys = files.select(normalize(image.expression(), join.match).alias("key")).to_series()
    pairs = match_keys(row_keys, file_keys, join.match)
    assert pairs["right"].n_unique() == join.files_matched
    assert pairs["left"].n_unique() == join.rows_matched


def test_two_columns_together(tmp_path: Path) -> None:
    """Fault 8: patient and slice number give the name."""
    pairs = [(patient, number) for patient in (12, 31, 47) for number in range(4, 9)]
    fill(tmp_path, [f"slices/pat{patient:03d}_s{number:02d}.png" for patient, number in pairs])
    rows = [[f"{patient}", number, "yes" if (patient + number) % 2 else "no"] for patient, number in pairs]
    write_table(tmp_path / "t.csv", [["PatientNr", "Slice", "bleeding"], *rows])
    join = best_join(survey(tmp_path))
    assert (join.key, join.files_matched, join.files_per_row, join.rows_per_file) == ("{PatientNr}_{Slice}", 15, 1, 1)
    check_by_hand(tmp_path, join)


def test_two_columns_together_beside_a_column_of_other_images(tmp_path: Path) -> None:
    pairs = [(patient, number) for patient in range(1, 21) for number in range(1, 4)]
    names = [f"pat{patient:03d}_{number}" for patient, number in pairs]
    fill(tmp_path, [f"images/{name}.png" for name in names])
    rows = [
        [compared, number, f"pat{patient:03d}"]
        for compared, (patient, number) in zip(names[7:] + names[:7], pairs, strict=True)
    ]
    write_table(tmp_path / "t.csv", [["compared_with", "slice", "patient"], *rows])
    keys = {join.key for join in survey(tmp_path).joins if join.rows_per_file == join.files_per_row == 1}
    assert keys == {"{compared_with}", "{patient}_{slice}"}


def test_rows_that_name_the_folder_mean_no_file_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path, [f"图像/{number:04d}.png" for number in range(237, 277)])
    fill(tmp_path, [f"预览/{number:04d}.png" for number in range(240, 246)])
    write_table(tmp_path / "t.csv", [["image", "label"], *([f"图像/{n:04d}.png", n % 2] for n in range(237, 277))])
    facts = survey(tmp_path)
    assert [(join.match, join.files_matched, join.files_per_row) for join in facts.joins] == [("path_tail", 40, 1)]


def test_a_column_that_names_files_by_chance(tmp_path: Path) -> None:
    """Fault 8: `blur` holds the numbers that names have, and is no key."""
    fill(tmp_path, [f"cell_{number:02d}.png" for number in range(1, 25)])
    rows = [[f"cell_{number:02d}.png", 1 + number * 7 % 24, number % 3] for number in range(1, 25)]
    write_table(tmp_path / "t.csv", [["file", "blur", "stage"], *rows])
    facts = survey(tmp_path)
    assert {join.key for join in facts.joins} == {"{file}"}


def test_running_numbers_are_said_to_match_by_chance(tmp_path: Path) -> None:
    fill(tmp_path, [f"{number}.png" for number in range(1, 31)])
    write_table(tmp_path / "t.csv", [["nr", "label"], *([number, number % 2] for number in range(1, 31))])
    join = best_join(survey(tmp_path))
    assert (join.files_matched, join.chance) == (30, 1.0)
    write_table(tmp_path / "t.csv", [["nr", "label"], *([number * 97, number % 2] for number in range(1, 31))])
    for number in range(1, 31):
        (tmp_path / f"{number}.png").rename(tmp_path / f"{number * 97}.png")
    assert best_join(survey(tmp_path)).chance < 0.05


def test_patients_of_folders(tmp_path: Path) -> None:
    fill(tmp_path, [f"sub-{patient:02d}/img_{number}.png" for patient in range(1, 15) for number in range(3)])
    write_table(
        tmp_path / "participants.tsv",
        [["participant_id", "age"], *([f"sub-{patient:02d}", 40 + patient] for patient in range(1, 15))],
        "\t",
    )
    join = best_join(survey(tmp_path))
    assert (join.key, join.files_matched, join.files_per_row, join.rows_per_file) == ("{participant_id}", 42, 3, 1)
    assert "folder0" in join.image or "number1" in join.image


def test_classes_in_folder_and_column_are_a_cross_table_and_no_join(tmp_path: Path) -> None:
    names = [
        f"{name}/im{number:03d}.png"
        for at, name in enumerate(("nv", "mel"))
        for number in range(100 * at, 100 * at + 10)
    ]
    fill(tmp_path, names)
    rows = [[name.split("/")[1], "mel" if number == 3 else name.split("/")[0]] for number, name in enumerate(names)]
    write_table(tmp_path / "t.csv", [["file", "dx"], *rows])
    facts = survey(tmp_path)
    assert {join.key for join in facts.joins} == {"{file}"}
    (table,) = facts.cross_tables
    assert (table.rows, table.columns, table.agree) == ("{folder0}", "{t1.dx}", 0.95)
    assert table.counts == (("mel", "mel", 10), ("nv", "mel", 1), ("nv", "nv", 9))


def test_image_and_mask_of_one_name(tmp_path: Path) -> None:
    fill(tmp_path, [f"img/c{number:02d}.png" for number in range(8)])
    fill(tmp_path, [f"gt/c{number:02d}.png" for number in range(7)], blocks)
    save(tmp_path / "gt/c03.png", blocks(3, shape=(20, 24)))
    pairing = pairing_of(survey(tmp_path), "img", "gt")
    assert (pairing.key, pairing.image, pairing.match) == ("{stem}", "{stem}", "exact")
    assert (pairing.images_matched, pairing.image_files, pairing.partners_matched, pairing.partner_files) == (
        7,
        8,
        7,
        7,
    )
    assert pairing.compared == 4
    assert pairing.partner_words == ("gt",)


def test_masks_of_another_size_are_said(tmp_path: Path) -> None:
    fill(tmp_path, [f"img/{number}.png" for number in range(4)])
    fill(tmp_path, [f"gt/{number}.png" for number in range(4)], lambda seed: blocks(seed, shape=(20, 24)))
    pairing = pairing_of(survey(tmp_path), "img", "gt")
    assert (pairing.compared, pairing.same_grid) == (4, 0)
    assert pairing.sizes[0] == "img/0.png 40x48, gt/0.png 20x24"


def test_one_mask_an_instance_in_the_folder_of_the_image(tmp_path: Path) -> None:
    for case in range(5):
        name = f"{case * 7919:08x}{case:024x}ab"
        save(tmp_path / f"stage/{name}/images/{name}.png", grey(case))
        for number in range(case + 1):
            save(tmp_path / f"stage/{name}/masks/{case + 1:016x}{number:016x}cd.png", blocks(number))
    pairing = pairing_of(survey(tmp_path), "images", "masks")
    assert (pairing.images_matched, pairing.partners_matched, pairing.per_image) == (5, 15, (1, 3, 5))


def test_two_masks_of_one_name_are_told_apart_by_their_folder_and_not_by_its_part(tmp_path: Path) -> None:
    for number in range(22, 52):
        part = "testing" if number % 3 == 0 else "training"
        save(tmp_path / part / "images" / f"{number:04d}.png", grey(number))
        for kind in ("masks", "masks_auto"):
            save(tmp_path / part / kind / f"{number:04d}.png", blocks(number))
    facts = survey(tmp_path)
    assert [(pairing.per_image, pairing.extra_slot) for pairing in facts.pairings] == [((2, 2, 2), "folder1")]


def test_parts_that_share_names_are_not_paired_across(tmp_path: Path) -> None:
    """Fault 13: `test/` shares file names with `train/`."""
    for part in ("train", "test"):
        fill(tmp_path, [f"{part}/image/{number}.png" for number in range(6)])
        fill(tmp_path, [f"{part}/label/{number}.png" for number in range(6 if part == "train" else 4)], blocks)
    facts = survey(tmp_path)
    pairing = pairing_of(facts, "image", "label")
    assert "folder0" in pairing.key
    assert "folder0" in pairing.image
    assert (pairing.images_matched, pairing.partners_matched, pairing.images_per_partner) == (10, 10, 1)
    (split,) = facts.splits[:1]
    assert split.crossing == 6


def test_volumes_paired_by_number(tmp_path: Path) -> None:
    """Fault 14."""
    for number in (1, 2, 5, 10):
        save_nifti(
            tmp_path / f"ilist{number}.nii.gz",
            np.random.default_rng(number).normal(size=(12, 12, 6)).astype(np.float32),
        )
        labels = np.zeros((12, 12, 6), np.uint8)
        labels[2:6, 2:6, 1:4], labels[7:10, 7:10, 2:5] = 1, 2
        save_nifti(tmp_path / f"slist{number}.nii.gz", labels)
    pairing = pairing_of(survey(tmp_path), "ilist", "slist")
    assert (pairing.image, pairing.key, pairing.images_matched, pairing.same_grid) == ("{number1}", "{number1}", 4, 4)


def test_mat_files_side_by_side(tmp_path: Path) -> None:
    """Fault 13: `MR/`, `Label/`, `ROI/`."""
    from scipy.io import savemat

    for number in range(1, 6):
        for folder, array in {
            "MR": grey(number).astype(np.float64),
            "Label": blocks(number, (1, 2, 3)),
            "ROI": blocks(number),
        }.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            savemat(tmp_path / folder / f"{number}.mat", {"vol": array})
    facts = survey(tmp_path)
    assert {group.pattern: group.content.values for group in facts.groups if group.content} == {
        "Label/{number1:number}.mat": "few_integers",
        "MR/{number1:number}.mat": "grey",
        "ROI/{number1:number}.mat": "binary",
    }
    assert pairing_of(facts, "MR", "Label").images_matched == 5
    assert pairing_of(facts, "MR", "ROI").images_matched == 5


def test_text_files_beside_images(tmp_path: Path) -> None:
    fill(tmp_path, [f"im/x{number:02d}.png" for number in range(6)])
    for number in range(5):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / f"notes/x{number:02d}.txt").write_text(f"finding: none\nnumber: {number}\n")
    pairing = pairing_of(survey(tmp_path), "im/", "notes/")
    assert (pairing.images_matched, pairing.partners_matched) == (5, 5)
