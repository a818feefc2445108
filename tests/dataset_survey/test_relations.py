"""Splits, shared parts of names, DICOM series, legends, documents, containers, duplicates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from dataset_folders import blocks, colour, fill, grey, save, save_slice, write_table

from m3b.dataset.survey.facts import SplitFacts, Survey
from m3b.dataset.survey.survey import survey


def sides(split: SplitFacts) -> dict[str, tuple[str, int]]:
    return {side.text: (side.side, side.count) for side in split.sides}


def only_split(facts: Survey) -> SplitFacts:
    assert len(facts.splits) == 1, facts.splits
    return facts.splits[0]


def test_split_by_folders(tmp_path: Path) -> None:
    fill(
        tmp_path,
        [
            f"{part}/{number}.png"
            for part, count in (("train", 9), ("valid", 3), ("test", 4))
            for number in range(100, 100 + count)
        ],
    )
    split = only_split(survey(tmp_path))
    assert (split.source, split.value, split.covers) == ("folder", "{folder0}", 1.0)
    assert sides(split) == {"test": ("test", 4), "train": ("train", 9), "valid": ("val", 3)}
    assert split.crossing == 4


def test_split_by_the_ends_of_folders(tmp_path: Path) -> None:
    fill(tmp_path, [f"imagesTr/a_{number}.png" for number in range(8)])
    fill(tmp_path, [f"imagesTs/a_{number}.png" for number in range(20, 24)])
    assert sides(only_split(survey(tmp_path))) == {"imagesTr": ("train", 8), "imagesTs": ("test", 4)}


def test_split_by_a_word_behind_the_number(tmp_path: Path) -> None:
    """Fault 10: `_006test.jpg` marks a test part."""
    fill(tmp_path, [f"RET_{number:03d}.jpg" for number in range(1, 13)])
    fill(tmp_path, [f"RET_{number:03d}test.jpg" for number in range(20, 27)])
    split = only_split(survey(tmp_path))
    assert (split.source, split.value, split.missing, split.covers) == ("name", "{stem}", "train", 1.0)
    assert sides(split) == {"test": ("test", 7)}
    import re

    assert re.search(split.find, "RET_021test")
    assert not re.search(split.find, "RET_003")


@pytest.mark.parametrize(
    ("unnamed", "counts", "missing"),
    [("_train", {"test": ("test", 3), "train": ("train", 9)}, ""), ("", {"test": ("test", 3)}, "train")],
)
def test_split_by_a_word_of_folders_that_all_differ(
    tmp_path: Path, unnamed: str, counts: dict[str, tuple[str, int]], missing: str
) -> None:
    names = [f"{number * 7919 % 65536:04x}{'_test' if number % 4 == 3 else unnamed}" for number in range(12)]
    fill(tmp_path, [f"images/{name}/image.png" for name in names])
    split = only_split(survey(tmp_path))
    assert (split.source, split.value, split.missing) == ("folder", "{folder1}", missing)
    assert sides(split) == counts


def test_groups_of_names_that_cross_the_split(tmp_path: Path) -> None:
    """Fault 10: `063_HC`, `063_2HC` on both sides."""
    for number in range(1, 11):
        fill(tmp_path, [f"{'test' if number % 4 == 0 else 'train'}/{number:03d}_HC.png"])
        if number % 2 == 0:
            fill(tmp_path, [f"train/{number:03d}_2HC.png"])
    facts = survey(tmp_path)
    (name_group,) = [group for group in facts.name_groups if group.value == "{number1}"]
    assert (name_group.groups, name_group.files, name_group.largest) == (10, 15, 2)
    assert name_group.crosses == {"{folder0}": 2}


def test_split_by_a_column(tmp_path: Path) -> None:
    fill(tmp_path, [f"im/{number}.png" for number in range(40, 52)])
    rows = [[f"{number}.png", number % 2, "Test" if number % 4 == 0 else "Training"] for number in range(40, 52)]
    write_table(tmp_path / "t.csv", [["file", "label", "subset"], *rows])
    split = only_split(survey(tmp_path))
    assert (split.source, split.value, split.covers, split.overlap) == ("column", "{t1.subset}", 1.0, 0)
    assert sides(split) == {"Test": ("test", 3), "Training": ("train", 9)}


def test_split_by_lists_without_their_union(tmp_path: Path) -> None:
    names = [f"img_{number:03d}" for number in range(30)]
    fill(tmp_path, [f"im/{name}.png" for name in names])
    for part, part_names in {
        "train": names[:20],
        "val": names[20:24],
        "trainval": names[:24],
        "test": names[24:],
    }.items():
        (tmp_path / "lists").mkdir(exist_ok=True)
        (tmp_path / f"lists/{part}.txt").write_text("\n".join(part_names) + "\n")
    facts = survey(tmp_path)
    split = only_split(facts)
    assert (split.source, split.overlap, split.covers) == ("lists", 0, 1.0)
    assert sides(split) == {"train": ("train", 20), "val": ("val", 4), "test": ("test", 6)}
    assert facts.table(split.owner).files.startswith("re:")


def test_tables_whose_stack_would_lose_rows_stay_apart(tmp_path: Path) -> None:
    fill(tmp_path, [f"im/{number}.png" for number in range(300, 320)])
    for part, numbers in {"train": range(300, 314), "test": range(314, 320)}.items():
        write_table(
            tmp_path / f"{part}.tsv", [["file", "months"], *([f"{number}", number % 7] for number in numbers)], "\t"
        )
    facts = survey(tmp_path)
    assert sum(table.rows for table in facts.tables) == 20
    assert sum({join.table: join.files_matched for join in facts.joins if join.key == "{file}"}.values()) == 20
    assert [split.source for split in facts.splits] == ["lists"]


def test_split_by_tables_of_equal_columns(tmp_path: Path) -> None:
    fill(tmp_path, [f"im/{number}.png" for number in range(300, 320)])
    for part, numbers in {"train": range(300, 314), "test": range(314, 320)}.items():
        write_table(
            tmp_path / f"{part}.csv", [["file", "label"], *([f"{number}.png", number % 2] for number in numbers)]
        )
    facts = survey(tmp_path)
    assert [(table.files, table.rows) for table in facts.tables] == [("{word1:word}.csv", 20)]
    assert sides(only_split(facts)) == {"train": ("train", 14), "test": ("test", 6)}


def test_split_of_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez_compressed(
        tmp_path / "set.npz",
        train_images=rng.integers(0, 255, (50, 28, 28), dtype=np.uint8),
        train_labels=rng.integers(0, 3, (50, 1)),
        test_images=rng.integers(0, 255, (20, 28, 28), dtype=np.uint8),
        test_labels=rng.integers(0, 3, (20, 1)),
    )
    facts = survey(tmp_path)
    assert sides(only_split(facts)) == {"test_images": ("test", 20), "train_images": ("train", 50)}
    members = {member.key: member for member in facts.containers[0].members}
    assert (members["train_images"].kind, members["train_images"].length, members["train_images"].content.dims) == (
        "images",
        50,
        2,
    )  # type: ignore[union-attr]
    assert (members["test_labels"].kind, members["test_labels"].length) == ("vector", 20)
    assert [value.text for value in sorted(members["train_labels"].values, key=lambda value: value.text)] == [
        "0",
        "1",
        "2",
    ]


def test_shapes_that_compress_extremely_are_read(tmp_path: Path) -> None:
    """Fault 6: 35 MB of binary shapes in few bytes are no bomb."""
    shapes = np.zeros((1500, 28, 28, 28), np.uint8)
    shapes[:, 8:20, 8:20, 8:20] = 1
    np.savez_compressed(tmp_path / "shapes.npz", train_images=shapes, train_labels=np.arange(1500) % 2)
    member = next(member for member in survey(tmp_path).containers[0].members if member.key == "train_images")
    assert (member.kind, member.length, member.content.dims, member.content.values) == ("masks", 1500, 3, "binary")  # type: ignore[union-attr]


def test_arrays_of_one_case_a_file(tmp_path: Path) -> None:
    import h5py

    for case in ("AX1", "BK7", "QZ4"):
        (tmp_path / case).mkdir()
        with h5py.File(tmp_path / case / "norm.h5", "w") as file:
            file["image"] = np.random.default_rng(1).normal(size=(20, 18, 12)).astype(np.float32)
            file["label"] = (np.indices((20, 18, 12)).sum(axis=0) < 12).astype(np.uint8)
    facts = survey(tmp_path)
    kinds = {member.key: (member.kind, member.length) for member in facts.containers[0].members}
    assert kinds == {"image": ("images", None), "label": ("masks", None)}


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Four series of eight slices: whole, with a gap, tilted, with a doubled slice and a localizer."""
    for number in range(8):
        save_slice(tmp_path / f"a/{number:02d}.dcm", "1", number)
        if number != 4:
            save_slice(tmp_path / f"b/{number:02d}.dcm", "2", number)
        save_slice(tmp_path / f"c/{number:02d}.dcm", "3", number, ImagePositionPatient=[0, 0.3 * number, number])
        save_slice(tmp_path / f"d/{number:02d}.dcm", "4", number, RescaleIntercept=0)
    save_slice(tmp_path / "d/07.dcm", "4", 6, RescaleIntercept=0, SOPInstanceUID="1.2.3")
    save_slice(tmp_path / "d/06.dcm", "4", 6, RescaleIntercept=0, SOPInstanceUID="1.2.3")
    save_slice(tmp_path / "a/99.dcm", "5", 1, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    return tmp_path


def test_series(series: Path) -> None:
    """Fault 11: localizers, doubles, gaps, tilt, rescaling."""
    write_table(series / "t.csv", [["folder", "contrast"], ["a", "no"], ["b", "no"], ["c", "no"], ["d", "yes"]])
    facts = survey(series)
    (series_facts,) = facts.dicom
    assert (series_facts.modality, series_facts.files, series_facts.series, series_facts.patients) == ("CT", 32, 5, 5)
    assert (
        series_facts.localizers,
        series_facts.duplicates,
        series_facts.gaps,
        series_facts.gap_examples,
        series_facts.tilted,
    ) == (1, 1, 1, ("b",), 1)
    assert series_facts.folders_are_series is False
    assert {value.text: value.count for value in series_facts.rescales} == {"1/-1024": 24, "1/0": 8}
    crossed = {(table.rows, table.columns): table.counts for table in facts.cross_tables}
    assert crossed["{folder0}", "{tag.RescaleIntercept}"][-1] == ("d", "0", 8)
    masked = next(tag for tag in series_facts.tags if tag.keyword == "PatientID")
    assert (masked.distinct, masked.sensitive) == (5, "identity")
    assert "P1" not in {value.text for value in masked.values}


def test_tables_join_tags(tmp_path: Path) -> None:
    for number in range(6):
        save_slice(tmp_path / f"x/{chr(97 + number)}{number * 37 % 11}.dcm", str(number + 70), 1)
    write_table(tmp_path / "t.csv", [["pid", "label"], *([f"P{number + 70}", number % 2] for number in range(6))])
    join = survey(tmp_path).joins[0]
    assert (join.key, join.image, join.files_matched) == ("{pid}", "{tag.PatientID}", 6)


def test_two_columns_and_tags(tmp_path: Path) -> None:
    """Two columns are not put together with tags, which no slot of a path is."""
    pairs = [(series, number) for series in (11, 12, 13) for number in range(1, 5)]
    for series, number in pairs:
        save_slice(tmp_path / f"s{series}/{number:03d}.dcm", str(series), number)
    write_table(
        tmp_path / "t.csv",
        [["series", "slice", "label"], *([f"s{series}", number, number % 2] for series, number in pairs)],
    )
    join = survey(tmp_path).joins[0]
    assert (join.files_matched, join.rows_per_file, join.files_per_row) == (12, 1, 1)
    assert "tag." not in join.image


def test_phases_at_one_position(tmp_path: Path) -> None:
    for number in range(12):
        save_slice(
            tmp_path / f"{number:02d}.dcm",
            "1",
            number,
            ImagePositionPatient=[0, 0, number % 4],
            TemporalPositionIdentifier=1 + number // 4,
        )
    assert survey(tmp_path).dicom[0].phases == 1


def test_small_texts_are_whole_and_masked(tmp_path: Path) -> None:
    fill(tmp_path, [f"im/{number}.png" for number in range(4)])
    (tmp_path / "labels.txt").write_text("_background_\ncyst\nsolid\n")
    (tmp_path / "README.md").write_text(
        "Masks: 0: background, 1: cyst, 2: solid.\nAsk anna@example.org.\n" + "x" * 6000
    )
    facts = survey(tmp_path)
    texts = {document.path: document for document in facts.documents}
    assert texts["labels.txt"].text == "_background_\ncyst\nsolid\n"
    assert texts["labels.txt"].cut is False
    assert "anna@example.org" not in texts["README.md"].text
    assert texts["README.md"].cut
    legends = {legend.source: dict(legend.names) for legend in facts.legends}
    assert legends["labels.txt"] == {"0": "_background_", "1": "cyst", "2": "solid"}
    assert legends["README.md"] == {"0": "background", "1": "cyst", "2": "solid"}


def test_a_table_brings_the_names_of_its_codes_and_its_units(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["healthy", "cyst"]}}}}
    table = pl.DataFrame({"image": [f"{number}.png" for number in range(8)], "label": [0, 1] * 4})
    table.write_parquet(tmp_path / "labels.parquet", metadata={"huggingface": json.dumps(features)})
    rows = "\n".join(f"{number}.png,{number + 1.5}" for number in range(8))
    (tmp_path / "volumes.csv").write_text(f"image,volume\n,ml\n{rows}\n")
    facts = survey(tmp_path)
    assert [(dict(legend.names), legend.hint) for legend in facts.legends] == [({"0": "healthy", "1": "cyst"}, "label")]
    assert [column.unit for table in facts.tables for column in table.columns if column.name == "volume"] == ["ml"]


def test_files_of_equal_bytes(tmp_path: Path) -> None:
    fill(tmp_path, [f"train/{number}.png" for number in range(6)], colour)
    fill(tmp_path, [f"test/{number}.png" for number in range(10, 13)], lambda seed: colour(seed + 2))
    facts = survey(tmp_path)
    assert facts.duplicates is not None
    assert (facts.duplicates.sets, facts.duplicates.files, facts.duplicates.crossing_folders) == (3, 6, 3)


def test_annotations_and_the_images_that_they_name(tmp_path: Path) -> None:
    import json

    fill(tmp_path, [f"images/{number:03d}.png" for number in range(5)])
    fill(tmp_path, [f"masks/{number:03d}.png" for number in range(5)], blocks)
    coco = {
        "images": [{"id": number, "file_name": f"{number:03d}.png", "width": 48, "height": 40} for number in range(6)],
        "annotations": [{"id": 9, "image_id": 2, "category_id": 1, "bbox": [1, 2, 10, 10], "area": 100, "iscrowd": 0}],
        "categories": [{"id": 1, "name": "cell"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(coco))
    facts = survey(tmp_path)
    (source,) = facts.annotations
    assert (source.format, source.shapes, source.images, source.images_found) == ("coco", ("box",), 6, 5)
    assert facts.group(source.images_group).pattern == "images/{number1:number}.png"
    assert [(value.text, value.count) for value in source.classes] == [("cell", 1)]
    assert not facts.tables


def test_sheets_and_their_note(tmp_path: Path) -> None:
    """Fault 8: title rows, several sheets of which a note says which is valid, decimal commas."""
    import openpyxl

    fill(tmp_path, [f"Bilder/{number:04d}.png" for number in range(1, 13)])
    book = openpyxl.Workbook()
    note = book.active
    note.title = "Hinweise"
    note.append(['Blatt "Werte 2022" ist gültig; "Alt" enthält alte Messungen.'])
    values = book.create_sheet("Werte 2022")
    values.append(["Stand 12. März"])
    values.append([])
    values.append(["Bild-Nr.", "Dichte (g/cm²)"])
    for number in range(1, 13):
        values.append([f" {number}", f"1,{number:02d}"])
    old = book.create_sheet("Alt")
    old.append(["Bild-Nr.", "Dichte (g/cm²)"])
    for number in range(1, 31):
        old.append([f"{number}", "0,5"])
    book.save(tmp_path / "Werte.xlsx")
    facts = survey(tmp_path)
    main = facts.tables[0]
    density = next(column for column in main.columns if column.name.startswith("Dichte"))
    assert (main.rows, density.decimal_comma, density.unit, density.low, density.high) == (
        12,
        True,
        "g/cm²",
        1.01,
        1.12,
    )
    assert (facts.joins[0].table, facts.joins[0].key, facts.joins[0].files_matched) == (main.id, "{Bild-Nr.}", 12)
    assert "Alt" in {table.sheet for table in facts.tables}


def test_grey_pictures_of_noise_are_no_masks(tmp_path: Path) -> None:
    fill(tmp_path, [f"x/{number}.png" for number in range(4)], lambda seed: (grey(seed) > 128).astype(np.uint8) * 3)
    save(tmp_path / "x/9.png", grey(9))
    assert len(survey(tmp_path).groups) == 1
