"""build_index.py on reports: tables, two tables joined, Open-i XML, text files; views, studies and empty texts."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mask_kit import picture, volume

TEXTS = ("--findings", "findings", "--impression", "impression")


def table(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.fixture
def filled(desk: Any) -> Any:
    """Ten studies of two views each, the last without a text, one without an impression."""
    rows = []
    for at in range(10):
        for view in (1, 2):
            picture(desk, f"images/{at}_IM-{view}.png", (8, 8 + view))
            text = {"findings": f'Heart, "large",\nnumber {at}.', "impression": "" if at == 3 else f"Case {at}."}
            rows.append(
                {"uid": f"u{at}", "file": f"{at}_IM-{view}.png", **(text if at < 9 else dict.fromkeys(text, ""))}
            )
    desk.write("reports.csv", table(rows))
    return desk


@pytest.mark.parametrize("study", [("--study", "uid"), ("--study-regex", r"(\d+)_IM"), ("--study-regex", "auto")])
def test_views_of_a_study_are_one_case(filled: Any, study: tuple[str, ...]) -> None:
    built = filled.build("--table", "data/x/reports.csv", "--image", "file", *TEXTS, *study)
    assert len(built.all) == 9
    assert "dropped, no text: 1" in built.out
    record = next(one for one in built.all if one["report"]["impression"] == "Case 4.")
    assert record["image_path"] == ["data/x/images/4_IM-1.png", "data/x/images/4_IM-2.png"]
    assert record["report"]["findings"] == 'Heart, "large", number 4.'
    assert "labels" not in record
    assert json.loads((filled.work / "Datapath/label_dict.json").read_text()) == {}


def test_views_stay_with_their_patient(filled: Any) -> None:
    built = filled.build("--table", "data/x/reports.csv", "--image", "file", *TEXTS)
    assert len(built.all) == 18
    assert not {one["patient"] for one in built.train} & {one["patient"] for one in built.test}


def test_two_tables_joined(filled: Any) -> None:
    files = [{"uid": f"u{at}", "name": f"{at}_IM-1.png"} for at in range(10)]
    texts = [{"id": f"U{at}", "findings": f"Text {at}.", "impression": "None."} for at in range(8)]
    filled.write("files.csv", table(files))
    filled.write("texts.csv", table(texts))
    options = ("--table", "data/x/files.csv", "--join", "data/x/texts.csv", "--image", "name", *TEXTS)
    built = filled.build(*options, "--on", "uid=id", "--empty", "None.")
    assert len(built.all) == 8
    assert {one["report"]["impression"] for one in built.all} == {""}
    assert "give --on COL" in filled.fail(*options, "--on", "nothing")


def test_of_several_volumes_of_a_study_the_first(desk: Any) -> None:
    for half, numbers in (("train", range(6)), ("test", range(6, 8))):
        listed = []
        for at in numbers:
            for rebuilt in (1, 2):
                volume(desk, f"{half}_{at}/{half}_{at}_a_{rebuilt}.nii.gz")
                name = f"{half}_{at}/{half}_{at}_a_{rebuilt}.nii.gz"
                listed.append({"image_path": name, "finding": f"Nodule {at}.", "impression": "Not given."})
        desk.write(f"{half}.json", json.dumps(listed))
    built = desk.build(
        "--table", "data/x/train.json", "--test-table", "data/x/test.json", "--image", "image_path",
        "--findings", "finding", "--impression", "impression", "--empty", "Not given.", "--study-regex", "auto",
    )  # fmt: skip
    assert (len(built.train), len(built.test)) == (6, 2)
    assert all(str(one["image_path"]).endswith("_1.nii.gz") for one in built.all)
    assert "further volumes left out: 8" in built.out
    assert {one["patient"] for one in built.test} == {"test_6", "test_7"}


def test_one_file_with_its_own_split_and_lists_of_views(filled: Any) -> None:
    raw = {
        half: [{"report": f"Text {at}.", "image_path": [f"{at}_IM-1.png", f"{at}_IM-2.png"]} for at in numbers]
        for half, numbers in (("train", range(6)), ("val", range(6, 8)), ("test", range(8, 10)))
    }
    filled.write("annotation.json", json.dumps(raw))
    built = filled.build("--table", "data/x/annotation.json", "--image", "image_path", "--findings", "report")
    assert (len(built.train), len(built.test)) == (8, 2)
    assert built.all[0]["image_path"] == ["data/x/images/0_IM-1.png", "data/x/images/0_IM-2.png"]


def test_labels_beside_the_text(filled: Any) -> None:
    rows = [{"file": f"{at}_IM-1.png", "findings": f"T {at}.", "mass": str(at % 2), "edema": "1"} for at in range(10)]
    filled.write("r.csv", table(rows))
    built = filled.build(
        "--table", "data/x/r.csv", "--image", "file", "--findings", "findings", "--label", "mass,edema"
    )  # fmt: skip
    assert built.labels == ["edema", "mass"]
    assert built.by_image["data/x/images/1_IM-1.png"]["labels"] == ["edema", "mass"]


def test_open_i_xml(filled: Any) -> None:
    for at in range(9):
        parts = f'<AbstractText Label="FINDINGS">Lungs {at}.</AbstractText><AbstractText Label="IMPRESSION"/>'
        views = "".join(f'<parentImage id="{at}_IM-{view}"/>' for view in (1, 2, 3))
        filled.write(f"xml/{at}.xml", f"<e><Abstract>{parts}</Abstract>{views}</e>")
    filled.write("xml/broken.xml", "<e>")
    built = filled.build("--xml", "data/x/xml", "--images", "data/x/images")
    assert len(built.all) == 9
    assert len(built.all[0]["image_path"]) == 2
    assert "images absent 9" in built.out
    assert "no valid XML" in built.out


def test_text_files(filled: Any) -> None:
    for at in range(8):
        filled.write(f"texts/{at}_IM-1.txt", f"HISTORY: pain\nFINDINGS: Nodule {at}.\nMore.\n\nIMPRESSION: Small.\n")
    filled.write("texts/README.txt", "about")
    built = filled.build("--texts", "data/x/texts", "--images", "data/x/images")
    assert len(built.all) == 8
    assert built.by_image["data/x/images/2_IM-1.png"]["report"] == {
        "findings": "Nodule 2. More.",
        "impression": "Small.",
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--table", "data/x/reports.csv", "--image", "file", "--findings", "text"), "has no column 'text'"),
        (("--table", "data/x/reports.csv", "--image", "uid", "--findings", "findings"), "None of the names"),
        (("--xml", "data/x/images"), "No report in"),
        (("--texts", "data/x/images"), "No text file in"),
        (("--table", "data/x/reports.csv", "--image", "file", *TEXTS, "--study", "no"), "has no column 'no'"),
    ],
)
def test_what_cannot_be_read_is_said(filled: Any, options: tuple[str, ...], told: str) -> None:
    assert told in filled.fail(*options)
