"""build_index.py on tables of every kind, as a real process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from m3b.data.index import read_index
from m3b.dataset.audit import audit_index

TABLE = ("--table", "data/x/cases.csv", "--image", "image", "--label", "finding")


@pytest.fixture
def filled(desk: Any) -> Any:
    """20 images of 10 patients, half of them sick, in images/."""
    for at in range(20):
        desk.image(f"images/c{at:02d}.png")
    return desk


def rows(spell: str = "images/c{:02d}.png", delimiter: str = ",") -> str:
    head = delimiter.join(["image", "finding", "pid"])
    lines = [delimiter.join([spell.format(at), "sick" if at // 2 % 2 else "normal", f"p{at // 2}"]) for at in range(20)]
    return "\n".join([head, *lines]) + "\n"


@pytest.mark.parametrize(
    "spell",
    ["images/c{:02d}.png", "c{:02d}.png", "c{:02d}", "./images/c{:02d}.png", "C:\\export\\images\\C{:02d}.PNG",
     "/mnt/old/place/images/c{:02d}.png", "../images/c{:02d}.png", "c{:02d}.jpg"],
)  # fmt: skip
def test_images_are_found_by_path_name_or_stem(filled: Any, spell: str) -> None:
    filled.write("cases.csv", rows(spell))
    built = filled.build(*TABLE, "--patient", "pid")
    assert sorted(built.by_image) == [f"data/x/images/c{at:02d}.png" for at in range(20)]
    assert built.by_image["data/x/images/c02.png"] == {
        "image_path": "data/x/images/c02.png", "labels": ["sick"], "patient": "p1",
    }  # fmt: skip
    assert built.labels == ["normal", "sick"]
    assert not {r["patient"] for r in built.train} & {r["patient"] for r in built.test}


def test_the_check_of_m3b_accepts_what_was_written(filled: Any) -> None:
    filled.write("cases.csv", rows())
    filled.build(*TABLE, "--patient", "pid")
    audit = audit_index(read_index(filled.work), filled.work)
    assert {finding.code for finding in audit.findings} == {"small_test"}


def test_names_are_found_in_another_folder_and_the_right_one_is_taken(filled: Any) -> None:
    for at in range(20):
        filled.image(f"masks/c{at:02d}.png")
        filled.image(f"b/images/c{at:02d}.png")
    filled.write("tables/cases.csv", rows("c{:02d}.png"))
    built = filled.build(
        "--table", "data/x/tables/cases.csv", "--image", "image", "--label", "finding", "--images", "data/x"
    )
    assert not any("masks" in path for path in built.by_image)
    filled.write("tables/cases.csv", rows("b/images/c{:02d}"))
    built = filled.build(
        "--table", "data/x/tables/cases.csv", "--image", "image", "--label", "finding", "--images", "data/x"
    )
    assert all("/b/images/" in path for path in built.by_image)


def test_numbers_find_zero_padded_names(desk: Any) -> None:
    for at in range(12):
        desk.image(f"scans/{at:04d}.png")
    desk.write("cases.csv", "id,y\n" + "".join(f"{at},{at % 2}\n" for at in range(12)))
    built = desk.build("--table", "data/x/cases.csv", "--image", "id", "--label", "y", "--names", "0=well,1=ill")
    assert len(built.all) == 12
    assert built.by_image["data/x/scans/0003.png"]["labels"] == ["ill"]


@pytest.mark.parametrize(
    ("encoding", "delimiter"),
    [("utf-8", ";"), ("utf-8-sig", ","), ("cp1252", "\t"), ("utf-16", "|"), ("utf-8-sig", ";")],
)
def test_delimiters_and_encodings(filled: Any, encoding: str, delimiter: str) -> None:
    text = rows(delimiter=delimiter).replace("sick", '"Ödem, beidseitig"').replace("\n", "\r\n")
    filled.write("cases.csv", text, encoding)
    built = filled.build(*TABLE, "--patient", "pid")
    assert built.labels == ["normal", "Ödem, beidseitig"]
    assert len(built.all) == 20


def records() -> list[dict[str, Any]]:
    return [{"image": f"c{at:02d}", "finding": "sick" if at % 2 else "normal", "pid": at // 2} for at in range(20)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.json", records()),
        ("a.json", {"info": {"v": 1}, "tags": ["x"], "cases": records()}),
        ("a.json", {"cases": records(), "sites": [{"site": n} for n in range(40)]}),
        ("a.jsonl", "\n".join(map(json.dumps, records()))),
        ("a.json", [{"image": r["image"], "meta": {"finding": r["finding"], "pid": r["pid"]}} for r in records()]),
        ("a.json", {r["image"]: {"finding": r["finding"], "pid": r["pid"]} for r in records()}),
        ("a.json", {r["image"]: r["finding"] for r in records()}),
    ],
    ids=["list", "in-object", "longer-other-list", "lines", "nested", "map-of-objects", "map-of-labels"],
)
def test_json_of_every_shape(filled: Any, name: str, value: Any) -> None:
    filled.write(name, value if isinstance(value, str) else json.dumps(value))
    image, label = "image", "finding"
    if isinstance(value, list) and "meta" in value[0]:
        label = "meta.finding"
    if isinstance(value, dict) and "c00" in value:
        image, label = "(key)", "finding" if isinstance(value["c00"], dict) else "(value)"
    built = filled.build("--table", f"data/x/{name}", "--image", image, "--label", label)
    assert built.counts() == {"normal": 10, "sick": 10}


def test_lists_in_json_are_several_labels(filled: Any) -> None:
    value = [{"image": f"c{at:02d}", "finding": ["a", "b"][: at % 3]} for at in range(20)]
    filled.write("a.jsonl", "\n".join(map(json.dumps, value)))
    built = filled.build("--table", "data/x/a.jsonl", "--image", "image", "--label", "finding")
    assert built.by_image["data/x/images/c02.png"]["labels"] == ["a", "b"]
    assert built.by_image["data/x/images/c00.png"]["labels"] == []


def test_several_labels_in_a_cell(filled: Any) -> None:
    cells = ["No Finding", "Edema|Effusion", "Effusion", "Edema | Mass"]
    filled.write("cases.csv", "image,finding\n" + "".join(f"c{at:02d}.png,{cells[at % 4]}\n" for at in range(20)))
    built = filled.build(*TABLE, "--separator", "|")
    assert built.counts() == {"No Finding": 5, "Edema": 10, "Effusion": 10, "Mass": 5}
    assert built.by_image["data/x/images/c03.png"]["labels"] == ["Edema", "Mass"]
    built = filled.build(*TABLE, "--separator", "|", "--map", "fluid=E*", "--map", "Mass")
    assert built.counts() == {"fluid": 15, "Mass": 5}


def test_yes_no_columns(filled: Any) -> None:
    text = "image,a,b,note\n" + "".join(
        f"c{at:02d}.png,{at % 2},{'Yes' if at % 3 else 'no'},todo\n" for at in range(20)
    )
    filled.write("cases.csv", text)
    several = ("--table", "data/x/cases.csv", "--image", "image", "--label")
    built = filled.build(*several, "a,b")
    assert built.counts() == {"a": 10, "b": 13}
    assert built.by_image["data/x/images/c00.png"]["labels"] == []
    assert filled.build(*several, "a,b", "--none", "neither").counts()["neither"] == 4
    assert "'note' holds todo" in filled.fail(*several, "a,note")


def test_rows_of_one_image_are_joined_on_request(filled: Any) -> None:
    lines = [f"c{at:02d}.png,a" for at in range(20)] + [f"c{at:02d}.png,b" for at in range(0, 20, 2)]
    filled.write("cases.csv", "image,finding\n" + "\n".join(lines))
    built = filled.build(*TABLE)
    assert "--join-rows" in built.out
    assert len(built.all) == 10, "without it they contradict each other"
    built = filled.build(*TABLE, "--join-rows")
    assert built.counts() == {"a": 20, "b": 10}


def test_rows_without_an_image_or_a_label_are_left_out_and_counted(filled: Any) -> None:
    extra = "gone.png,sick,p1\n,sick,p1\nimages/c00.png,,p0\n"
    filled.write(
        "cases.csv", rows().replace("images/c00.png,normal,p0\n", extra).replace("c01.png,normal", "c01.png,NaN")
    )
    built = filled.build(*TABLE, "--patient", "pid")
    assert len(built.all) == 18
    assert "image absent: 2 (e.g. gone.png" in built.out
    assert "dropped, no label: 2" in built.out


def test_a_missing_patient_is_nobody_elses(filled: Any) -> None:
    filled.write("cases.csv", rows().replace(",p3\n", ",NA\n").replace(",p4\n", ",\n"))
    built = filled.build(*TABLE, "--patient", "pid")
    assert len({r["patient"] for r in built.all}) == 12
    assert "patient unknown: 4 cases" in built.out


def test_where_map_rest_and_positive(filled: Any) -> None:
    kinds = ["Viral pneumonia", "Bacterial Pneumonia", "normal", "unclear"]
    text = "image,finding,view\n" + "".join(
        f"c{at:02d}.png,{kinds[at % 4]},{'PA' if at < 12 else 'Lateral'}\n" for at in range(20)
    )
    filled.write("cases.csv", text)
    built = filled.build(*TABLE, "--where", "view=pa|AP", "--map", "pneumonia=*pneumonia", "--map", "normal=normal")
    assert built.counts() == {"normal": 3, "pneumonia": 6}
    built = filled.build(*TABLE, "--where", "finding!=unclear", "--map", "viral=viral*", "--rest", "rest")
    assert built.counts() == {"rest": 10, "viral": 5}
    assert built.labels[-1] == "viral"
    assert filled.build(*TABLE, "--map", "a=viral*|bact*", "--map", "b=normal", "--positive", "a").labels == ["b", "a"]


def test_a_label_whose_images_are_absent_may_be_mapped(filled: Any) -> None:
    filled.write("cases.csv", rows() + "gone.png,SARS,p90\n")
    built = filled.build(*TABLE, "--map", "ill=sick|SARS", "--map", "well=normal")
    assert built.counts() == {"ill": 10, "well": 10}
    assert "has the label 'SARS'" in built.out


def test_rare_labels_can_be_left_out(filled: Any) -> None:
    filled.write(
        "cases.csv", rows().replace("c00.png,normal,p0", "c00.png,odd,p0").replace("c17.png,normal", "c17.png,odder")
    )
    built = filled.build(*TABLE, "--patient", "pid", "--least", "2")
    assert built.labels == ["normal", "sick"]
    assert len(built.all) == 18
    assert "fewer than 2 patients: odd 1, odder 1" in built.out


def test_a_table_without_a_header(filled: Any) -> None:
    filled.write("cases.csv", rows().split("\n", 1)[1])
    built = filled.build("--table", "data/x/cases.csv", "--image", "0", "--label", "1", "--patient", "2")
    assert len(built.all) == 20


def test_columns_without_or_with_the_same_name(filled: Any) -> None:
    text = rows().replace("image,finding,pid", "image,,").replace("\n", ",x\n").replace("image,,,x", "image,,pid,pid")
    filled.write("cases.csv", text)
    built = filled.build("--table", "data/x/cases.csv", "--image", "image", "--label", "(column 1)", "--patient", "pid")
    assert built.labels == ["normal", "sick"]


def test_a_column_of_whole_reports_is_no_trap(filled: Any) -> None:
    report = '"' + "long text, " * 60 + '\nsecond line"'
    filled.write(
        "cases.csv", rows().replace("image,finding", "report,image,finding").replace("images/", f"{report},images/")
    )
    assert len(filled.build(*TABLE).all) == 20
    message = filled.fail("--table", "data/x/cases.csv", "--image", "report", "--label", "finding")
    assert "'report'" in message
    assert len(message) < 1000


def test_an_own_split(filled: Any) -> None:
    text = "image,finding,pid,set\n" + "".join(
        f"c{at:02d}.png,{'sick' if at % 2 else 'normal'},p{at},{'Test' if at < 6 else 'train' if at < 16 else 'val'}\n"
        for at in range(20)
    )
    filled.write("cases.csv", text.replace(",p19,", ",p0,"))
    own = (*TABLE, "--patient", "pid", "--split-column", "set")
    built = filled.build(*own)
    assert sorted(r["image_path"][-6:-4] for r in built.test) == [f"{at:02d}" for at in range(6)]
    assert len(built.train) == 13, "the training case of a patient in test is left out"
    assert "1 patients on both sides" in built.out
    assert len(filled.build(*own, "--test-values", "val").test) == 4
    assert len(filled.build(*own, "--ignore-split", "--test-share", "0.5").test) == pytest.approx(10, abs=1)
    built = filled.build(*own, "--test-values", "held-out")
    assert "no own split: set holds Test, train, val" in built.out


def test_an_own_split_that_leaves_nothing_to_train_on(filled: Any) -> None:
    text = rows().replace("finding,pid", "finding,pid,set").replace("\n", ",test\n").replace("pid,set,test", "pid,set")
    lines = [line.replace(",test", ",train") if at % 2 else line for at, line in enumerate(text.splitlines())]
    filled.write("cases.csv", "\n".join(lines))
    assert "--ignore-split" in filled.fail(*TABLE, "--patient", "pid", "--split-column", "set")


def test_patients_from_the_path(filled: Any) -> None:
    filled.write("cases.csv", rows())
    built = filled.build(*TABLE, "--patient-regex", r"/c(\d)\d\.png")
    assert {r["patient"] for r in built.all} == {"0", "1"}


def test_faulty_images_and_copies(filled: Any) -> None:
    filled.write("images/c00.png", "no image at all")
    (filled.raw / "images" / "c01.png").write_bytes((filled.raw / "images" / "c01.png").read_bytes()[:50])
    filled.image("images/c05.png", like="images/c04.png")  # both normal, of p2
    filled.image("images/c07.png", like="images/c09.png")  # sick p3, normal p4
    filled.image("images/c10.png", like="images/c18.png")  # sick p5, sick p9... the two patients are one
    filled.write("cases.csv", rows())
    built = filled.build(*TABLE, "--patient", "pid", "--test-share", "0.4")
    gone = {f"data/x/images/c{at:02d}.png" for at in range(20)} - set(built.by_image)
    assert {name[-6:-4] for name in gone} == {"00", "01", "05", "07", "09", "18"}
    for part in ("do not open: 2", "exact copies: 2", "under different labels: 2"):
        assert part in built.out
    left = built.by_image
    assert left["data/x/images/c10.png"]["patient"] == left["data/x/images/c19.png"]["patient"]
    assert len(filled.build(*TABLE, "--no-open").all) == 20


def test_limits_keep_every_label(filled: Any) -> None:
    for at in range(20, 60):
        filled.image(f"images/c{at}.png")
    text = "image,finding\n" + "".join(f"c{at:02d}.png,{'sick' if at % 12 == 0 else 'normal'}\n" for at in range(60))
    filled.write("cases.csv", text)
    built = filled.build(*TABLE, "--test-share", "0.5", "--max-train", "6", "--max-test", "5")
    assert (len(built.train), len(built.test)) == (6, 5)
    assert min(built.counts("train").values()) >= 2
    assert min(built.counts("test").values()) >= 2
    balanced = filled.build(*TABLE, "--test-share", "0.5", "--balanced")
    assert len(set(balanced.counts("train").values())) == 1
    assert balanced.counts("train")["sick"] >= 2


def test_the_same_seed_gives_the_same_files_and_another_does_not(filled: Any) -> None:
    filled.write("cases.csv", rows())
    one, two, other = (filled.build(*TABLE, "--patient", "pid", "--seed", seed) for seed in ("1", "1", "3"))
    assert one.test == two.test
    assert one.test != other.test


def test_names_in_any_script(desk: Any) -> None:
    for at in range(12):
        desk.image(f"图像/胸片 {at}².png")
    desk.write(
        "cases.csv", "image,finding\n" + "".join(f"胸片 {at}².png,{'肺炎' if at % 2 else '正常'}\n" for at in range(12))
    )
    built = desk.build(*TABLE, "--positive", "肺炎")
    assert built.labels == ["正常", "肺炎"]
    assert len(built.all) == 12


def test_a_file_name_that_is_no_utf8(desk: Any) -> None:
    for at in range(12):
        name = b"caf\xe9_%d.png" % at if at == 3 else b"cafe_%d.png" % at
        folder = desk.raw / ("sick" if at % 2 else "well")
        folder.mkdir(exist_ok=True)
        picture = Image.fromarray(desk.random.integers(0, 255, (8, 8), dtype="uint8"))
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            picture.save(file, format="png")
    built = desk.build("--class-folders", "data/x")
    assert len(built.all) == 12
    assert all(Path(desk.work, record["image_path"]).exists() for record in built.all)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"--image": "img"}, "no column 'img'. Columns: image, finding, pid"),
        ({"--label": "findings"}, "no column 'findings'"),
        ({"--label": ""}, "Give --image and --label. Columns:"),
        ({"--patient": "who"}, "no column 'who'"),
        ({"--split-column": "set"}, "no column 'set'"),
        ({"--table": "data/x/absent.csv"}, "There is no data/x/absent.csv"),
        ({"--table": "data/x/empty.csv"}, "has no rows"),
        ({"--table": "data/x/head.csv"}, "has no rows"),
        ({"--table": "data/x/broken.json"}, "not valid JSON"),
        ({"--table": "data/x/numbers.json"}, "no list of records"),
        ({"--table": "data/x"}, "cannot be read this way"),
        ({"--images": "data/y"}, "--images data/y is no folder"),
        ({"--image": "pid"}, "None of the names in column 'pid' is an image below data/x"),
        ({"--where": "sex=F"}, "no column 'sex'"),
        ({"--where": "finding=absent"}, "keeps no row"),
        ({"--map": "a=mass*"}, "no label value fits. Values: normal, sick"),
        ({"--positive": "pneumonia"}, "--positive 'pneumonia' is none of the labels: normal, sick"),
        ({"--patient-regex": "("}, "cannot be read this way"),
        ({"--test-share": "1.5"}, "between 0 and 1"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_named(filled: Any, change: dict[str, str], told: str) -> None:
    filled.write("cases.csv", rows())
    filled.write("empty.csv", "")
    filled.write("head.csv", "image,finding\n")
    filled.write("broken.json", '[{"image": ')
    filled.write("numbers.json", "[1, 2]")
    options = {"--table": "data/x/cases.csv", "--image": "image", "--label": "finding", **change}
    assert told in filled.fail(*(part for pair in options.items() for part in pair))


def test_nothing_opens(filled: Any) -> None:
    for at in range(20):
        filled.write(f"images/c{at:02d}.png", "no image")
    filled.write("cases.csv", rows())
    assert "No case is left" in filled.fail(*TABLE)


def test_no_layout_at_all(desk: Any) -> None:
    assert "--table, --class-folders, --archive" in desk.fail()
