"""What readings of published layouts hold beside counts: channels by name, numbers of painted masks, rows that name several files."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from layout_kit import Names, Want
from layout_kit_known import marks, musculoskeletal, nnunet, sequences, volume
from layout_kit_told import both_eyes, coloured_masks, patient_groups, sidecars
from spec_kit import picture

from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.spec.proposals.lacking import lacking
from m3b.data.survey import survey
from m3b.dataset.reading import read_masks


def best(make: Callable[[Path, Names, random.Random], Want], place: Path) -> tuple[Executed, tuple[str, ...]]:
    root, work = place / "raw", place / "work"
    root.mkdir()
    work.mkdir()
    want = make(root, Names(), random.Random(0))
    found = propose(survey(root), Ask(want.task, want.request, boxes=want.boxes))
    assert sufficient(found) == ""
    return execute(found[0].spec, root, name="set", work=work), found[0].evidence


def test_channels_of_nnunet_are_called_as_its_document_calls_them(tmp_path: Path) -> None:
    made, _ = best(nnunet, tmp_path)
    assert [one.channels for one in (*made.train, *made.test)] == [("T2", "ADC")] * 10
    assert made.values == {"PZ": 1, "TZ": 2}, "and no channel is taken for a class"


def test_t1_and_t2_are_channels_beside_the_others(tmp_path: Path) -> None:
    made, evidence = best(sequences, tmp_path)
    assert {one.channels for one in (*made.train, *made.test)} == {("flair", "t1ce", "t1", "t2")}
    assert "4 images a case on one grid, as channels: flair, t1ce, t1, t2" in evidence


def test_numbers_that_not_every_case_has_are_no_channels(tmp_path: Path) -> None:
    for at in range(12):
        volume(tmp_path / f"p{at:02d}_000{at % 2}.nii.gz")
        marks(tmp_path / "labels" / f"p{at:02d}_000{at % 2}.nii.gz")
    found = survey(tmp_path)
    assert sorted(group.count for group in found.groups) == [12, 12]


def test_a_painted_mask_is_written_with_numbers(tmp_path: Path) -> None:
    made, evidence = best(coloured_masks, tmp_path)
    assert made.values == {"cup": 1, "disc": 2}
    layers = read_masks(made.train[0].mask, made.values, str(tmp_path / "work"))
    assert layers.any(axis=(1, 2)).all()
    assert not (layers[0] & layers[1]).any()
    assert "masks are painted in colours: written anew with numbers" in evidence


def test_colours_that_nothing_names_are_called_by_themselves(tmp_path: Path) -> None:
    def unnamed(root: Path, names: Names, rng: random.Random) -> Want:
        want = coloured_masks(root, names, rng)
        (root / "class_dict.csv").unlink()
        return want

    made, _ = best(unnamed, tmp_path)
    assert made.values == {"colour_00ff00": 1, "colour_ff0000": 2}


def test_groups_of_one_hdf5_file_are_a_case_each_with_its_own_mask(tmp_path: Path) -> None:
    made, _ = best(patient_groups, tmp_path)
    for one in (*made.train, *made.test):
        assert str(one.mask) == str(one.image).replace("/image", "/mask")
    assert len({str(one.image) for one in (*made.train, *made.test)}) == 12


def test_a_row_that_names_both_eyes_labels_both_and_keeps_them_together(tmp_path: Path) -> None:
    made, _ = best(both_eyes, tmp_path)
    labels: dict[str, set[str]] = {}
    for one in (*made.train, *made.test):
        labels.setdefault(str(one.image).rpartition("/")[2].partition("_")[0], set()).add(str(one.labels))
    assert len(labels) == 20
    assert all(len(some) == 1 for some in labels.values())


def test_two_columns_of_other_things_are_not_taken_for_views(tmp_path: Path) -> None:
    """A table that also names each image's neighbour gives the neighbour no label."""

    def neighbours(root: Path, names: Names, rng: random.Random) -> Want:
        rows = ["image,next_image,diagnosis"]
        for at in range(20):
            picture(root / "images" / f"a{at:02d}.png")
            rows.append(f"a{at:02d}.png,a{(at + 1) % 20:02d}.png,{('ill', 'well')[at // 3 % 2]}")
        (root / "t.csv").write_text("\n".join(rows))
        return Want("Tell ill from well", "diagnosis", 20)

    made, _ = best(neighbours, tmp_path)
    assert len([*made.train, *made.test]) == 20


@pytest.mark.parametrize("name", ["images/{1}{0:02d}.png", "{1}/x{0:02d}.png", "images/{2:03d}.png"])
def test_rows_of_two_images_that_are_no_views_are_asked_about(tmp_path: Path, name: str) -> None:
    rows = ["image1,image2,diagnosis"]
    for at in range(20):
        names = [name.format(at, word, 2 * at + place) for place, word in enumerate(("first", "second"))]
        for one in names:
            picture(tmp_path / one)
        rows.append(f"{names[0]},{names[1]},{('grown', 'stable')[at // 3 % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    found = propose(survey(tmp_path), Ask("diagnosis", "Tell grown from stable lesions"))
    assert sufficient(found)
    assert any("'image1' and 'image2' of a row are one case or two" in one.unclear for one in found)


@pytest.mark.parametrize(("image", "channels"), [("brain MRI", True), ("chest CT", False)])
def test_t1_and_t2_of_another_modality_are_no_channels(tmp_path: Path, image: str, channels: bool) -> None:
    rows = ["patient,diagnosis"]
    for at in range(12):
        for word in ("T1", "T2"):
            volume(tmp_path / "images" / f"p{at:03d}_{word}.nii.gz")
        rows.append(f"p{at:03d},{('grown', 'stable')[at // 3 % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    found = propose(survey(tmp_path), Ask("diagnosis", f"Tell grown from stable lesions on {image}"))
    assert bool(found[0].spec.images.channels) is channels


def test_the_number_of_a_study_is_no_part_of_its_class(tmp_path: Path) -> None:
    def several(root: Path, names: Names, rng: random.Random) -> Want:
        want = musculoskeletal(root, names, rng)
        for at in range(4):
            study = root / "train/XR_WRIST" / f"patient{at:03d}" / f"study2_{('negative', 'positive')[at % 2]}"
            picture(study / "image1.png")
        return want

    made, _ = best(several, tmp_path)
    assert list(made.values) == ["negative", "positive"]


def test_documents_beside_images_are_rows_of_one_table(tmp_path: Path) -> None:
    made, evidence = best(sidecars, tmp_path)
    assert len([*made.train, *made.test]) == 24
    assert any("24 files like descriptions/ISIC_000.json" in one for one in evidence)


def test_a_packed_folder_is_asked_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as out:
        for at in range(12):
            out.write(picture(tmp_path.parent / "loose" / f"{at}.png"), f"images/{at}.png")
    (tmp_path / "labels.csv").write_text("image,label\n" + "\n".join(f"{at}.png,{'ab'[at % 2]}" for at in range(12)))
    ask = Ask("diagnosis", "Tell a from b")
    found = survey(tmp_path)
    assert propose(found, ask) == []
    assert "images.zip" in lacking(found, ask)
    assert "Unpack them" in lacking(found, ask)


def test_an_empty_folder_is_not_said_to_hold_documents(tmp_path: Path) -> None:
    said = lacking(survey(tmp_path), Ask("diagnosis", "Tell a from b"))
    assert said.startswith("The folder holds no files. Name the folder with the images")
    (tmp_path / "README.md").write_text("Images follow.")
    said = lacking(survey(tmp_path), Ask("diagnosis", "Tell a from b"))
    assert said.startswith("The folder holds no data, only documents or system files. Name the folder with the images")


def test_links_in_place_of_files_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "store" / "1.png")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shared").symlink_to(tmp_path / "store")
    sentences = lacking(survey(tmp_path / "data"), Ask("diagnosis", "Tell a from b"))
    assert "1 link (e.g. shared)" in sentences
    assert "--data" in sentences


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train-00000-of-00001.parquet", "Write each row's image"),
        ("s1.ndpi", "Export them as TIFF"),
        ("t1.mgz", "mri_convert"),
    ],
)
def test_formats_that_are_not_read_are_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1" * 99)
    told = lacking(survey(tmp_path), Ask("diagnosis", "Tell a from b"))
    assert f"{Path(name).suffix} files, which m3b does not read" in told
    assert said in told
