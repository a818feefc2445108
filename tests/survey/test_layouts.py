"""One tiny folder for each kind of layout: the facts that a right index of it needs are in the survey."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from survey_kit import blob, dicom, mask, picture, structure_set, volume, write

from m3b.data.survey import Survey, survey
from m3b.data.survey.facts import FileGroup, SurveyLimits
from m3b.data.survey.pairing_keys import match
from m3b.data.survey.relations import FoundSplit, Join, Pairing

LIMITS = SurveyLimits(seconds=600)


def look(top: Path) -> Survey:
    return survey(top, limits=LIMITS)


def group_of(found: Survey, part: str, *, without: str = "\0") -> FileGroup:
    some = [one for one in found.groups if part in one.template and without not in one.template]
    assert len(some) == 1, [one.template for one in found.groups]
    return some[0]


def pairing(found: Survey, left: FileGroup, right: FileGroup) -> Pairing:
    return next(one for one in found.pairings if (one.left, one.right) == (left.id, right.id))


def join_of(found: Survey, column: str, owner: str, kind: str = "path") -> Join:
    return next(
        one for one in found.joins if one.left.name == column and (one.right.owner, one.right.kind) == (owner, kind)
    )


def present(split: FoundSplit) -> dict[str, int]:
    return {part.name: part.present for part in split.parts}


# --- classes ------------------------------------------------------------------------------------------------------


def test_class_folders_within_split_folders(tmp_path: Path) -> None:
    for number, (side, name) in enumerate((s, c) for s in ("train", "val", "test") for c in ("0", "1", "2")):
        for at in range(3):
            for eye in "LR":
                picture(tmp_path / side / name / f"{9000 + 10 * number + at}{eye}.png", seed=20 * number + 2 * at)
    found = look(tmp_path)
    group = group_of(found, "number")
    assert group.count == 54
    parts = {part.slot: part for part in group.parts}
    assert [value.text for value in parts["level1"].values] == ["0", "1", "2"]
    assert parts["level1"].crossing == 0.0
    assert parts["name1"].kind == "side"
    assert present(found.splits[0]) == {"train": 18, "val": 18, "test": 18}
    patient = next(one for one in found.groupings if one.ends[0].name == "name0")
    assert (patient.distinct, patient.evidence) == (27, ("side_follows",))
    assert patient.crosses[0].count == 0


def test_class_folders_that_number_from_one_stay_one_group(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        for at in range(6):
            picture(tmp_path / name / f"{at + 1}.png", seed=at + len(name) * (name == "cats"))
    found = look(tmp_path)
    group = group_of(found, "{word}")
    assert group.count == 12
    assert group.parts[0].crossing == 1.0


def test_masks_beside_images_in_class_folders(tmp_path: Path) -> None:
    for name in ("benign", "malignant"):
        for at in range(1, 6):
            picture(tmp_path / name / f"{name} ({at}).png", seed=at + 10 * len(name))
            mask(tmp_path / name / f"{name} ({at})_mask.png", seed=at)
    mask(tmp_path / "benign" / "benign (2)_mask_1.png", seed=40)
    found = look(tmp_path)
    images = [one for one in found.groups if one.content and one.content.values == "picture"]
    masks = [one for one in found.groups if one.content and one.content.values == "mask"]
    assert sum(one.count for one in images) == 10
    assert sum(one.count for one in masks) == 11
    assert len(images) == 1
    assert [value.text for value in images[0].parts[0].values] == ["benign", "malignant"]
    some = [one for one in found.pairings if one.left == images[0].id]
    assert sum(one.right_matched for one in some) == 11
    assert max(one.left_matched for one in some) == 10


def test_a_class_written_into_free_names(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa"]
    for at, word in enumerate(words * 3):
        picture(
            tmp_path / f"{('Sick', 'Well')[at % 2]}_{word}_set{at // 4}{'_crop' if at % 3 else ''}_{at}.png", seed=at
        )
    found = look(tmp_path)
    first = next(part for part in found.groups[0].parts if part.slot == "name.first")
    assert {value.text for value in first.values} == {"Sick", "Well"}
    assert any(one.ends[0].name == "name.set" for one in found.groupings)


# --- masks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quality", [50, 75, 95])
def test_masks_saved_as_jpeg_are_two_levels_with_noise(tmp_path: Path, quality: int) -> None:
    for at in range(6):
        picture(tmp_path / "images" / f"{at}.jpg", seed=at, size=(64, 80))
        mask(tmp_path / "masks" / f"{at}.jpg", seed=at, size=(64, 80), quality=quality)
    found = look(tmp_path)
    masks = group_of(found, "masks")
    assert masks.content
    assert masks.content.values in ("lossy_mask", "mask")
    assert [round(one.value / 255) for one in masks.content.levels] == [0, 1]
    assert pairing(found, group_of(found, "images"), masks).kind == "one_to_one"


def test_one_mask_file_an_object(tmp_path: Path) -> None:
    for case in range(4):
        name = f"{case}a7f3b9c0d1e2f405162738495a6b7c8"
        picture(tmp_path / "train" / name / "images" / f"{name}.png", seed=case)
        for at in range(3 + case):
            mask(tmp_path / "train" / name / "masks" / f"{at}b8e4c0d1f2a3b51627384950617283{case}.png", seed=at)
    found = look(tmp_path)
    one = pairing(found, group_of(found, "/images/"), group_of(found, "/masks/"))
    assert (one.kind, one.left_matched, one.right_matched, one.per_left) == ("many_to_one", 4, 18, (3, 4, 6))


def test_one_mask_file_a_class(tmp_path: Path) -> None:
    for case in range(5):
        picture(tmp_path / "images" / f"p{case}.png", seed=case)
        for organ in ("liver", "spleen", "kidney"):
            mask(tmp_path / "masks" / f"p{case}_{organ}.png", seed=case + len(organ))
    found = look(tmp_path)
    images = group_of(found, "images")
    some = [one for one in found.pairings if one.left == images.id and one.role == "mask"]
    classes = {value.text for one in some for value in one.classes}
    separate = {value for family in found.families for value in family.values}
    assert {"liver", "spleen", "kidney"} <= classes | separate
    assert all(one.left_matched == 5 for one in some)


def test_two_observers_and_numbers_that_pair_names_of_other_words(tmp_path: Path) -> None:
    for at in range(1, 7):
        picture(tmp_path / "images" / f"{at:02d}_test.tif", seed=at, colour=True)
        mask(tmp_path / "1st_manual" / f"{at:02d}_manual1.gif", seed=at)
        mask(tmp_path / "2nd_manual" / f"{at:02d}_manual2.gif", seed=at + 1)
    found = look(tmp_path)
    images = group_of(found, "images")
    for name in ("1st_manual", "2nd_manual"):
        one = pairing(found, images, group_of(found, name))
        assert (one.kind, one.left_matched, one.right_matched) == ("one_to_one", 6, 6)


def test_sequences_side_by_side_and_a_mask_for_each_case(tmp_path: Path) -> None:
    for case in range(3):
        folder = tmp_path / ("train" if case < 2 else "test") / f"study_pat{case:04d}_1"
        volume(folder / "Flair.nii.gz", seed=case)
        volume(folder / "T1c.nii.gz", seed=case + 9)
        volume(folder / "Seg.nii.gz", labels=3)
        write(folder / "License.txt", "free")
    found = look(tmp_path)
    flair, t1, seg = (group_of(found, name) for name in ("Flair", "T1c", "Seg"))
    assert pairing(found, flair, seg).same_grid == 3
    assert pairing(found, t1, seg).left_matched == 3
    assert pairing(found, flair, t1).role == "image"
    assert seg.content
    assert seg.content.values == "labels"
    assert [level.value for level in seg.content.levels] == [0, 1, 2, 3]
    split = next(one for one in found.splits if one.owner == flair.id)
    assert present(split) == {"train": 2, "test": 1}
    patient = next(one for one in found.groupings if one.group == flair.id)
    assert "word_patient" in patient.evidence


def test_an_image_without_a_mask_is_named(tmp_path: Path) -> None:
    for at in range(8):
        volume(tmp_path / "images" / f"case_{at:03d}.nii.gz", seed=at)
        if at != 5:
            volume(tmp_path / "labels" / f"case_{at:03d}.nii.gz", labels=2)
    found = look(tmp_path)
    one = pairing(found, group_of(found, "images"), group_of(found, "labels"))
    assert (one.left_matched, one.left_files, one.right_matched) == (7, 8, 7)
    assert one.unmatched_left == ("images/case_005.nii.gz",)


def test_a_mask_on_another_grid_is_flagged(tmp_path: Path) -> None:
    for at in range(5):
        picture(tmp_path / "images" / f"{at}.png", seed=at, size=(40, 60))
        mask(tmp_path / "masks" / f"{at}.png", seed=at, size=(24, 32))
    found = look(tmp_path)
    one = pairing(found, group_of(found, "images"), group_of(found, "masks"))
    assert (one.compared, one.same_grid, one.fits) == (4, 0, 0.0)


def test_a_field_of_view_is_the_same_in_every_case(tmp_path: Path) -> None:
    from PIL import Image

    rows, columns = np.mgrid[:48, :64]
    field = (rows - 24) ** 2 + (columns - 32) ** 2 < 22**2
    for at in range(6):
        picture(tmp_path / "images" / f"{at}.png", seed=at, size=(48, 64))
        (tmp_path / "mask").mkdir(exist_ok=True)
        Image.fromarray((field * 255).astype(np.uint8)).save(tmp_path / "mask" / f"{at}.png")
    content = group_of(look(tmp_path), "mask/").content
    assert content
    assert (content.alike, content.covers_border) == (1.0, 1.0)


def test_image_and_label_in_one_file_with_lists_as_split(tmp_path: Path) -> None:
    import h5py

    ids = ["5FKQL4K14KCB72Y8YMC2", "8M99G0JLAXG9GLPV0O8G", "DQ5UYBGR5QP6L692QSG6", "ABCDEFTNVHZWKAKURJBN"]
    for at, name in enumerate(ids):
        folder = tmp_path / "cases set" / name
        folder.mkdir(parents=True)
        with h5py.File(folder / "scan.h5", "w") as file:
            file["image"] = np.random.default_rng(at).normal(size=(12, 10, 8)).astype(np.float32)
            file["label"] = (np.random.default_rng(at).random((12, 10, 8)) > 0.9).astype(np.uint8)
    write(tmp_path / "train.list", "\n".join([*ids[:3], "NOTHERE123456789ABCD"]))
    write(tmp_path / "test.list", ids[3] + "\nGONE56789ABCDEFGH123\n")
    found = look(tmp_path)
    one = found.pairings[0]
    assert (one.kind, one.left_key, one.right_key, one.left_matched) == ("per_key", "image", "label", 4)
    assert present(found.splits[0]) == {"train": 3, "test": 1}
    assert [part.named for part in sorted(found.splits[0].parts, key=lambda part: part.name)] == [2, 4]


# --- containers ---------------------------------------------------------------------------------------------------


def test_an_archive_of_arrays_with_its_own_split(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for side, count in (("train", 40), ("val", 10), ("test", 12)):
        arrays[f"{side}_images"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{side}_labels"] = (np.arange(count) % 2).reshape(-1, 1).astype(np.uint8)
    np.savez(tmp_path / "set.npz", **arrays)
    found = look(tmp_path)
    members = {one.key: one for one in found.containers[0].members}
    assert (members["train_images"].role, members["train_images"].rows) == ("image", 40)
    assert [(value.text, value.count) for value in members["val_labels"].values] == [("0", 5), ("1", 5)]
    assert {part.side: part.present for part in found.splits[0].parts} == {"train": 40, "val": 10, "test": 12}


def test_a_zip_is_listed_and_not_unpacked(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for at in range(5):
            archive.writestr(f"images/{at}.png", b"x")
    found = look(tmp_path)
    assert found.containers[0].format == "zip"
    assert [(one.key, one.keys) for one in found.containers[0].members] == [("images/#.png", 5)]


def test_animations_are_clips(tmp_path: Path) -> None:
    from PIL import Image

    for at in range(3):
        frames = [Image.fromarray((blob(seed) * 200).astype(np.uint8)) for seed in range(at, at + 4)]
        frames[0].save(tmp_path / f"clip{at}.gif", save_all=True, append_images=frames[1:])
    found = look(tmp_path)
    group = group_of(found, "clip")
    assert group.kind == "video"
    assert group.content
    assert group.content.frames == (4, 4)
    assert found.containers[0].format == "video"


def test_clips_of_a_video_container_are_opened(tmp_path: Path) -> None:
    import av

    for at in range(2):
        with av.open(str(tmp_path / f"vid{at}.mp4"), "w") as file:
            stream = file.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for seed in range(5):
                frame = av.VideoFrame.from_ndarray((blob(seed, (48, 64))[..., None] * np.full(3, 200)).astype(np.uint8))
                file.mux(stream.encode(frame))
            file.mux(stream.encode())
    group = group_of(look(tmp_path), "vid")
    assert group.content
    assert (group.content.failed, group.content.frames, group.content.shapes[0].shape) == (0, (5, 5), (48, 64))


def test_stacks_of_pages_and_volumes_of_several_channels(tmp_path: Path) -> None:
    import nibabel as nib
    from PIL import Image

    for at in range(3):
        pages = [
            Image.fromarray(np.random.default_rng(at + page).integers(0, 255, (20, 30), np.uint8)) for page in range(4)
        ]
        (tmp_path / "tif").mkdir(exist_ok=True)
        pages[0].save(tmp_path / "tif" / f"s{at}.tif", save_all=True, append_images=pages[1:])
        ome = '<OME><Pixels DimensionOrder="XYZCT" SizeX="30" SizeY="20" SizeZ="2" SizeC="2" SizeT="1"/></OME>'
        (tmp_path / "ome").mkdir(exist_ok=True)
        pages[0].save(tmp_path / "ome" / f"o{at}.ome.tif", save_all=True, append_images=pages[1:], tiffinfo={270: ome})
        (tmp_path / "nii").mkdir(exist_ok=True)
        four = np.random.default_rng(at).normal(size=(8, 9, 10, 2)).astype(np.float32)
        nib.save(nib.Nifti1Image(four, np.eye(4)), tmp_path / "nii" / f"v{at}.nii.gz")
    found = look(tmp_path)
    formats = {found.group(one.group).template.split("/")[0]: (one.format, one.axes) for one in found.containers}
    assert formats == {"tif": ("tiff_stack", ""), "ome": ("ome_tiff", "CZYX"), "nii": ("volume4d", "XYZT")}


# --- DICOM --------------------------------------------------------------------------------------------------------


def test_series_of_several_modalities_with_structure_sets(tmp_path: Path) -> None:
    for patient in ("P_002", "P_003", "P_008"):
        for modality, folder in (("CT", "CT"), ("MR", "MR_T1")):
            series = f"1.2.3.{len(folder)}.{patient[-1]}"
            tags = {"PatientID": patient, "StudyInstanceUID": f"1.2.{patient[-1]}"}
            for at in range(3):
                dicom(tmp_path / patient / folder / "image" / f"{at:06d}.dcm", Modality=modality,
                      SeriesInstanceUID=series, InstanceNumber=at, **tags)  # fmt: skip
            structure_set(tmp_path / patient / folder / "mask" / "RS.dcm", f"Tumour_{folder}", series,
                          SeriesInstanceUID=series + ".9", **tags)  # fmt: skip
    found = look(tmp_path)
    marks = {one.classes[0].text: one for one in found.annotations}
    assert set(marks) == {"Tumour_CT", "Tumour_MR_T1"}
    image = next(one for one in found.groups if one.id == marks["Tumour_CT"].images)
    assert "CT/image" in image.template
    assert (marks["Tumour_CT"].images_found, marks["Tumour_CT"].format) == (3, "rtstruct")
    series = next(one for one in found.series if one.group == image.id)
    assert (series.series, series.patients, series.slices, series.folders_are_series) == (3, 3, (3, 3), True)
    person = next(one for one in found.groupings if one.group == image.id and one.ends[0].name == "PatientID")
    assert (person.distinct, person.sensitive) == (3, "identity")


def test_dicom_files_without_extension_and_a_table(tmp_path: Path) -> None:
    rows = ["patient,label"]
    for at in range(6):
        rows.append(f"PAT{at:03d},{at % 2}")
        for number in range(2):
            dicom(tmp_path / "images" / f"PAT{at:03d}" / f"IM{number}", PatientID=f"x{at}", SeriesInstanceUID=f"1.{at}",
                  StudyInstanceUID=f"1.2.{at}")  # fmt: skip
    write(tmp_path / "labels.csv", "\n".join(rows))
    found = look(tmp_path)
    group = next(one for one in found.groups if one.kind == "dicom")
    assert group.count == 12
    join = join_of(found, "patient", group.id, "level")
    assert (join.left_matched, join.right_matched, join.files) == (6, 6, 12)


# --- tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        ("scans/{at:03d}.png", "path"), ("C:\\data\\scans\\{at:03d}.png", "tail"), ("{at:03d}.png", "name"),
        ("{at:03d}", "stem"), ("{at}", "unpadded"), ("case {at}", "number"), ("../raw/{at:03d}.PNG", "name"), ("{at:03d}.tif", "stem"),
    ],
)  # fmt: skip
def test_a_column_names_files_in_any_spelling(tmp_path: Path, cell: str, rule: str) -> None:
    rows = ["file;diagnosis"]
    for at in range(1, 13):
        picture(tmp_path / "scans" / f"{at:03d}.png", seed=at)
        rows.append(f"{cell.format(at=at)};{'Sick ' if at % 3 else 'well'}")
    rows.append(f"{cell.format(at=700)};well")
    write(tmp_path / "table.csv", "\n".join(rows))
    found = look(tmp_path)
    join = join_of(found, "file", group_of(found, "scans").id)
    assert (join.rule, join.left_matched, join.left_values, join.right_matched) == (rule, 12, 13, 12)
    column = found.tables[0].columns[1]
    assert (column.type, [(value.text, value.count) for value in column.values]) == (
        "category", [("Sick", 8), ("well", 5)],
    )  # fmt: skip


def test_a_column_names_files_with_several_numbers_padded_otherwise(tmp_path: Path) -> None:
    rows = ["file,finding"]
    for at in range(1, 13):
        picture(tmp_path / "scans" / f"covid-19-case-{at:05d}-day{at % 2}.JPG", seed=at)
        rows.append(f"covid-19_case_{at}_day{at % 2}.jpg,{'sick' if at % 3 else 'well'}")
    rows += ["covid-191-case-1-day0.jpg,well", "covid-19-case-11-day10.jpg,well"]
    write(tmp_path / "table.csv", "\n".join(rows))
    found = look(tmp_path)
    join = join_of(found, "file", group_of(found, "scans").id)
    assert (join.rule, join.left_matched, join.right_matched, join.most_right) == ("unpadded", 12, 12, 1)


def test_running_numbers_join_by_their_column_s_name_only(tmp_path: Path) -> None:
    rows = ["patient_id,age,score"] + [f"{at},{30 + at % 9},{at}" for at in range(1, 31)]
    write(tmp_path / "info.csv", "\n".join(rows))
    for at in (7, 19, 26):
        volume(tmp_path / "MNI" / f"patient{at:02d}" / "FLAIR.nii.gz", seed=at)
    found = look(tmp_path)
    group = group_of(found, "FLAIR")
    join = join_of(found, "patient_id", group.id, "level")
    assert (join.rule, join.left_matched, join.right_matched) == ("number", 3, 3)
    assert join.chance > 0.9
    assert not [one for one in found.joins if one.left.name == "score"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_tables_of_any_encoding_and_separator(tmp_path: Path, encoding: str) -> None:
    text = "name\tBefund\n" + "".join(f"a{at}\t{'Läsion' if at % 2 else 'ohne'}\n" for at in range(6))
    write(tmp_path / "t.csv", text.encode(encoding))
    table = look(tmp_path).tables[0]
    assert table.delimiter == "\t"
    assert {value.text for value in table.columns[1].values} == {"Läsion", "ohne"}


def test_a_workbook(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["id", "grade"])
    for at in range(8):
        picture(tmp_path / "img" / f"case{at}.png", seed=at)
        sheet.append([f"case{at}", at % 3])
    book.save(tmp_path / "labels.xlsx")
    found = look(tmp_path)
    assert (found.tables[0].format, found.tables[0].rows) == ("xlsx", 8)
    assert join_of(found, "id", group_of(found, "img").id).right_matched == 8


def test_nested_records_and_a_split_of_json_lines(tmp_path: Path) -> None:
    import json

    records = []
    for at in range(12):
        picture(tmp_path / "images" / f"MP{100 + at // 2}_s{at}.png", seed=at)
        records.append(
            {"uid": f"MP{100 + at // 2}", "image": f"MP{100 + at // 2}_s{at}", "d": {"Caption": "a b c d e f g h " * 3}}
        )
    write(tmp_path / "all.json", json.dumps(records))
    write(tmp_path / "data_train.jsonl", "\n".join(json.dumps(one) for one in records[:8]))
    write(tmp_path / "data_test.jsonl", "\n".join(json.dumps(one) for one in records[8:]))
    found = look(tmp_path)
    table = next(one for one in found.tables if one.path == "all.json")
    assert {one.name: one.sensitive for one in table.columns}["d.Caption"] == "free_text"
    images = group_of(found, "images")
    assert join_of(found, "image", images.id).right_matched == 12
    split = next(one for one in found.splits if one.source == "tables")
    assert present(split) == {"data_train": 8, "data_test": 4}
    case = next(one for one in found.groupings if one.ends[0].name == "uid" and one.ends[0].owner == table.id)
    assert case.distinct == 6


def test_a_split_column(tmp_path: Path) -> None:
    rows = ["image,subject_id,part"]
    for at in range(12):
        picture(tmp_path / f"x{at}.png", seed=at)
        rows.append(f"x{at}.png,s{at // 2},{('Training', 'Testing')[at % 4 == 3]}")
    write(tmp_path / "meta.csv", "\n".join(rows))
    found = look(tmp_path)
    split = next(one for one in found.splits if one.source == "column")
    assert present(split) == {"Training": 9, "Testing": 3}
    person = next(one for one in found.groupings if one.ends[0].name == "subject_id")
    assert (person.evidence, person.distinct, person.crosses[0].count) == (("column_patient",), 6, 3)


# --- annotations --------------------------------------------------------------------------------------------------


def test_pascal_voc(tmp_path: Path) -> None:
    for at in range(14):
        picture(tmp_path / "JPEG" / f"a{at}.jpg", seed=at)
        box = f"<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>{1 if at == 3 else 9}</xmax><ymax>9</ymax></bndbox>"
        objects = "".join(f"<object><name>{name}</name>{box}</object>" for name in ("red", "white")[: 1 + at % 2])
        write(tmp_path / "xml" / f"a{at}.xml", f"<annotation><filename>a{at}.jpg</filename>{objects}</annotation>")
    for side, numbers in (("train", range(9)), ("val", range(9, 14))):
        write(tmp_path / "sets" / f"{side}.txt", "\n".join(f"a{at}" for at in numbers))
    found = look(tmp_path)
    marks = found.annotations[0]
    images = group_of(found, "JPEG")
    assert (marks.format, marks.images, marks.images_found) == ("voc", images.id, 14)
    assert {one.text: one.count for one in marks.classes} == {"red": 14, "white": 7}
    assert dict(marks.faults)["no_area"] >= 1
    split = next(one for one in found.splits if one.owner == images.id)
    assert present(split) == {"train": 9, "val": 5}


def test_coco_that_names_absent_images(tmp_path: Path) -> None:
    import json

    for at in range(5):
        picture(tmp_path / "images" / f"i{at}.png", seed=at)
    document = {
        "images": [{"id": at, "file_name": f"i{at}.png"} for at in range(9)],
        "categories": [{"id": 1, "name": "lung"}, {"id": 2, "name": "heart"}],
        "annotations": [
            {"id": at, "image_id": at, "category_id": 1 + at % 2, "bbox": [1, 1, 5, 5],
             "segmentation": [[1, 1, 5, 1, 5, 5]]} for at in range(9)
        ],
    }  # fmt: skip
    write(tmp_path / "annotations.json", json.dumps(document))
    marks = look(tmp_path).annotations[0]
    assert (marks.format, marks.images_named, marks.images_found, marks.items) == ("coco", 9, 5, 9)
    assert marks.shapes == ("box", "polygon")


def test_yolo_with_names(tmp_path: Path) -> None:
    for at in range(6):
        picture(tmp_path / "images" / f"{at}.png", seed=at)
        write(tmp_path / "labels" / f"{at}.txt", f"{at % 2} 0.5 0.5 0.2 0.2\n0 0.1 0.1 0.1 0.1\n" if at != 4 else "")
    write(tmp_path / "data.yaml", "nc: 2\nnames: ['cell', 'dust']\n")
    found = look(tmp_path)
    marks = found.annotations[0]
    assert (marks.format, marks.images, marks.images_marked) == ("yolo", group_of(found, "images").id, 5)
    assert {one.text: one.count for one in marks.classes} == {"cell": 7, "dust": 3}


def test_boxes_in_a_table_and_circles(tmp_path: Path) -> None:
    boxes, circles = ["filename,kind,xmin,xmax,ymin,ymax"], ["ref tissue class x y radius"]
    for at in range(8):
        picture(tmp_path / "p" / f"mdb{at:03d}.png", seed=at)
        boxes.append(f"mdb{at:03d}.png,{'ab'[at % 2]},1,5,2,6")
        circles.append(f"mdb{at:03d} G {('CIRC', 'NORM')[at % 2]} 10 12 4")
    write(tmp_path / "boxes.csv", "\n".join(boxes))
    write(tmp_path / "circles.csv", "\n".join(one.replace(" ", ",") for one in circles))
    marks = {one.format: one for one in look(tmp_path).annotations}
    assert dict(marks["csv_boxes"].columns)["class"] == "kind"
    assert marks["csv_boxes"].images_found == 8
    assert dict(marks["csv_circles"].columns)["image"] == "ref"
    assert marks["csv_circles"].class_source == "class"


# --- copies -------------------------------------------------------------------------------------------------------


def test_copies_exact_near_and_by_name_and_the_splits_they_cross(tmp_path: Path) -> None:
    from PIL import Image

    for at in range(6):
        picture(tmp_path / "train" / f"im{at:03d}.png", seed=at * 11, size=(64, 64))
        picture(tmp_path / "test" / f"im{at + 100:03d}.png", seed=at * 11 + 5, size=(64, 64))
    (tmp_path / "test" / "im000_rotated_1.png").write_bytes((tmp_path / "train" / "im000.png").read_bytes())
    for at in (1, 2):
        picture(tmp_path / "train" / f"im{at:03d}_rotated_1.png", seed=900 + at)
    with Image.open(tmp_path / "train" / "im003.png") as image:
        image.save(tmp_path / "test" / "im203.png", compress_level=0)
    found = look(tmp_path)
    copies = {one.kind: one for one in found.copies}
    assert (copies["exact"].clusters, copies["exact"].crosses[0].count) == (1, 1)
    assert copies["named"].files == 3
    assert copies["named"].crosses[0].count == 1
    assert any("test/im203.png" in some for some in copies["near"].examples)


def test_a_pairing_s_recipe_finds_the_same_files_again(tmp_path: Path) -> None:
    for at in range(5):
        picture(tmp_path / "images" / f"{at}.png", seed=at)
        mask(tmp_path / "masks" / f"{at}_seg.png", seed=at)
    found = look(tmp_path)
    one = found.pairings[0]
    files = [[f"{name}/{at}{end}.png" for at in range(5)] for name, end in (("images", ""), ("masks", "_seg"))]
    pairs = match(files[0], files[1], one.left_slots, one.right_slots)
    assert pairs == {f"images/{at}.png": [f"masks/{at}_seg.png"] for at in range(5)}
