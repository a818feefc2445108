"""The rules on real folders of many layouts: the right reading, and an index that the audit accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from m3b.agents.artifacts import parse_give_up
from m3b.data.synthetic import make_chest, make_volumes
from m3b.dataset.audit import audit_index
from m3b.messages import ToolCall

PNEUMONIA = "Build a model that detects pneumonia on chest X-rays"


def accepted(room: Any, request: str) -> Any:
    """The index the rules make, free of anything that the check would turn down."""
    index = room.index(request)
    audit = audit_index(index, room.run.work)
    assert not [finding for finding in audit.findings if finding.severity != "warn"], audit.findings
    return index


# --- class folders -----------------------------------------------------------------------------------------------


def test_two_class_folders_and_the_finding_named(room: Any) -> None:
    room.images("NORMAL/n{}.png", 20)
    room.images("PNEUMONIA/p{}.png", 20)
    assert "{folder0}" in room.first(PNEUMONIA)
    assert accepted(room, PNEUMONIA).classes == ("NORMAL", "PNEUMONIA")


def test_several_class_folders(room: Any) -> None:
    for name in ("cyst", "stone", "tumor"):
        room.images(f"{name}/{name[0]}{{}}.png", 12)
    assert accepted(room, "Tell cysts, stones and tumours apart on kidney CT slices").classes == (
        "cyst",
        "stone",
        "tumor",
    )


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Tell COVID from the rest on chest X-rays", ("other", "COVID")),
        ("Detect viral pneumonia", ("other", "Viral Pneumonia")),
        ("Distinguish COVID from normal", ("Normal", "COVID")),
        ("Sort chest X-rays into COVID, normal and viral pneumonia", ("Normal", "COVID", "Viral Pneumonia")),
        ("Erkenne COVID gegen alle anderen", ("other", "COVID")),
    ],
)  # fmt: skip
def test_one_class_against_the_rest(room: Any, request_text: str, expected: tuple[str, ...]) -> None:
    for name in ("COVID", "Normal", "Viral Pneumonia"):
        room.images(name + "/{}.png", 12)
    assert accepted(room, request_text).classes == expected


def test_of_one_class_alone_nothing_is_made(room: Any) -> None:
    room.images("PNEUMONIA/{}.png", 12)
    brief = room.brief(PNEUMONIA)
    assert brief.facts.unusable
    assert not brief.facts.readings


@pytest.mark.parametrize("top", ["archive/", "archive/chest/", "images/", "archive/images/"])
def test_wrapped_class_folders(room: Any, top: str) -> None:
    for name in ("ill", "well"):
        room.images(f"{top}{name}/{name[0]}{{}}.png", 12)
    room.write("README.md", "Chest radiographs.")
    room.write("docs/terms.txt", "Terms.")
    assert accepted(room, "Classify chest X-rays").classes == ("ill", "well")


def test_halves_and_unseen_images(room: Any) -> None:
    for half in ("train", "val", "test"):
        for name in ("NORMAL", "PNEUMONIA"):
            room.images(f"{half}/{name}/{half}" + "{}.png", 10)
    index = accepted(room, PNEUMONIA)
    assert all("/test/" in str(record.image) for record in index.test)


def test_volumes(room: Any) -> None:
    room.raw.rmdir()
    make_volumes(room.raw, patients=24, side=10)
    assert accepted(room, "Tell large from small balls").classes == ("large", "small")


def test_a_halved_class_is_split_anew(room: Any) -> None:
    room.images("train/cyst/c{}.png", 12)
    room.images("train/tumor/t{}.png", 12)
    room.images("test/cyst/x{}.png", 12)
    index = accepted(room, "Tell cysts from tumours")
    assert index.classes == ("cyst", "tumor")
    assert {record.labels for record in index.test} == {("cyst",), ("tumor",)}


def test_flags_of_which_one_applies_at_most(room: Any) -> None:
    table(room, "image,Edema,Mass", "im{0:03d}.png,{a},{b}", a=["0", "1", "0"], b=["0", "0", "1"], count=30)
    index = accepted(room, "Classify chest films by all findings")
    assert index.classes == ("no finding", "Edema", "Mass")
    assert not index.multi_label


# --- tables ------------------------------------------------------------------------------------------------------


def test_the_drawn_chests(room: Any) -> None:
    room.raw.rmdir()
    make_chest(room.raw, patients=40)
    request = "Build a model that finds opacity on chest X-rays"
    assert "{cases.finding}" in room.first(request)
    index = accepted(room, request)
    assert index.classes == ("clear", "opacity")
    assert not any("unseen" in str(record.image) for record in index.records)


def table(room: Any, header: str, row: str, count: int = 24, name: str = "t.csv", **sets: list[str]) -> None:
    """A table of `count` images; `{name}` in a row takes its values in turn."""
    lines = [header] if header else []
    for at in range(count):
        room.image(f"files/im{at:03d}.png")
        lines.append(row.format(at, half=at // 2, **{k: v[at % len(v)] for k, v in sets.items()}))
    room.write(name, "\n".join(lines) + "\n")


def test_a_table_with_many_columns(room: Any) -> None:
    table(
        room, "study,patientid,sex,age,finding,view,site,date,filename,notes",
        "{},{half},{sex},{},{f},{v},north,2020-01-{half:02d},im{0:03d}.png,note {}".replace("{}", "{0}"),
        sex=["F", "M"], f=["COVID-19", "COVID-19, ARDS", "SARS", "No Finding", "todo"], v=["PA", "AP"], count=40,
    )  # fmt: skip
    # the comma inside a finding needs quoting
    text = (room.raw / "t.csv").read_text(encoding="utf-8").replace("COVID-19, ARDS", '"COVID-19, ARDS"')
    room.write("t.csv", text)
    request = "Tell COVID-19 from all other findings on chest X-rays"
    assert "{t.finding}" in room.first(request)
    index = accepted(room, request)
    assert index.classes == ("other", "COVID-19")
    assert sum(record.labels == ("COVID-19",) for record in index.records) == 16, "with ARDS too"
    assert len(index.records) == 32, "todo is no label"


def test_a_finding_without_images_spoils_nothing(room: Any) -> None:
    table(room, "image,finding", "im{0:03d}.png,{f}", f=["COVID-19", "Normal", "Influenza"], count=30)
    text = (room.raw / "t.csv").read_text(encoding="utf-8")
    room.write("t.csv", text + "gone1.png,SARS\ngone2.png,SARS\n")
    assert accepted(room, "Tell COVID-19 from the rest").classes == ("other", "COVID-19")


def test_labels_too_rare_to_split_are_left_out_in_the_end(room: Any) -> None:
    table(room, "image,finding", "im{0:03d}.png,{f}", f=["mass", "cyst"], count=30)
    room.image("files/im900.png")
    room.write("t.csv", (room.raw / "t.csv").read_text(encoding="utf-8") + "im900.png,odd\n")
    assert accepted(room, "Classify").classes == ("cyst", "mass")


def test_a_request_for_one_class_is_never_answered_with_all(room: Any) -> None:
    for name in ("COVID", "Normal", "Viral"):
        room.images(name + "/{}.png", 2)
    index = room.index("Tell COVID from the rest")
    assert index.classes == ("other", "COVID")
    assert "the check does not accept what that gives" in parse_give_up(room.messages[-1].text)


def test_no_patient_column(room: Any) -> None:
    table(room, "img,label", "im{0:03d},{l}", l=["benign", "malignant"])
    request = "Is the skin lesion malignant?"
    assert len({record.patient for record in accepted(room, request).records}) == 24


def test_no_header(room: Any) -> None:
    table(room, "", "im{0:03d}.png,{l},p{half}", l=["ill", "ill", "well", "well"])
    assert accepted(room, "Tell ill from well").classes == ("ill", "well")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_delimiters(room: Any, mark: str) -> None:
    table(room, "image;diagnosis;subject", "im{0:03d}.png;{l};s{half}", l=["ill", "ill", "well", "well"])
    room.write("t.csv", (room.raw / "t.csv").read_text(encoding="utf-8").replace(";", mark))
    assert "{t.diagnosis}" in room.first("Classify")
    assert accepted(room, "Classify").classes == ("ill", "well")


def test_numbered_labels_named_by_the_card(room: Any) -> None:
    table(room, "image,label", "im{0:03d}.png,{l}", l=["0", "1", "2"])
    room.write("README.md", "Retina images. Labels: 0 none, 1 mild, 2 severe.")
    assert accepted(room, "Grade retinopathy").classes == ("none", "mild", "severe")


def test_a_column_named_after_its_finding(room: Any) -> None:
    table(room, "image,age,pneumonia", "im{0:03d}.png,5{0},{l}", l=["0", "1"])
    assert accepted(room, PNEUMONIA).classes == ("no pneumonia", "pneumonia")


def test_one_flag_of_several(room: Any) -> None:
    table(
        room,
        "image,Edema,Mass,Effusion",
        "im{0:03d}.png,{a},{b},{c}",
        a=["0", "1"],
        b=["0", "0", "1"],
        c=["1", "0", "0", "0"],
    )
    assert accepted(room, "Detect a mass on chest films").classes == ("no Mass", "Mass")


def test_several_flags(room: Any) -> None:
    table(
        room,
        "image,Edema,Mass,Effusion",
        "im{0:03d}.png,{a},{b},{c}",
        a=["0", "1"],
        b=["0", "0", "1"],
        c=["1", "0", "0", "0"],
    )
    request = "Classify chest films by all findings"
    index = accepted(room, request)
    assert index.multi_label
    assert set(index.classes) == {"Edema", "Mass", "Effusion"}


def test_flags_that_the_request_names(room: Any) -> None:
    """All that are named, and those alone: a column that the request speaks of is not the only one."""
    table(
        room,
        "image,Edema,Mass,Effusion",
        "im{0:03d}.png,{a},{b},{c}",
        a=["0", "1"],
        b=["0", "0", "1"],
        c=["1", "0", "0", "0"],
    )
    request = "Classify effusions and masses on chest films"
    assert set(accepted(room, request).classes) == {"Mass", "Effusion"}
    assert accepted(room, "Detect edema on chest films").classes == ("no Edema", "Edema")


def test_folders_of_patients_named_in_a_table(room: Any) -> None:
    """The table names no file: a row is a patient, whose folder of slices is the case, and not a class."""
    rows = [f"p{number:03d},{('clear', 'bleeding')[number % 2]}" for number in range(24)]
    room.write("labels.csv", "\n".join(["patient_id,diagnosis", *rows]))
    for number in range(24):
        room.images(f"series/p{number:03d}/IM{{0:04d}}.png", 6)
    request = "Tell bleeding from clear on head CT"
    index = accepted(room, request)
    assert len(index.train) + len(index.test) == 24
    assert set(index.classes) == {"clear", "bleeding"}


def test_folders_of_cases_are_no_classes(room: Any) -> None:
    for number in range(24):
        room.images(f"p{number:03d}/IM{{0:04d}}.png", 2)
    assert room.brief("Tell bleeding from clear on head CT").facts.unusable


def test_several_labels_in_a_cell(room: Any) -> None:
    table(
        room,
        "Image Index,Finding Labels,Patient ID",
        "im{0:03d}.png,{l},{half}",
        l=["Edema", "Edema|Mass", "Mass", "No Finding"],
        count=40,
    )
    request = "Find what is wrong on chest X-rays"
    assert accepted(room, request).multi_label


def test_an_own_split(room: Any) -> None:
    table(
        room,
        "image,label,split",
        "im{0:03d}.png,{l},{s}",
        l=["a", "b"],
        s=["train", "train", "train", "train", "test", "test"],
    )
    assert len(accepted(room, "Classify").test) == 8


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_json(room: Any, name: str) -> None:
    records = []
    for at in range(24):
        room.image(f"files/im{at:03d}.png")
        records.append(
            {"file_name": f"im{at:03d}.png", "finding": ["ill", "well"][at // 2 % 2], "patient": f"p{at // 2}"}
        )
    room.write(name, json.dumps(records) if name == "t.json" else "\n".join(map(json.dumps, records)))
    index = accepted(room, "Tell ill from well")
    assert index.classes == ("ill", "well")
    assert len({record.patient for record in index.records}) == 12


def test_folders_are_tried_when_the_table_says_nothing(room: Any) -> None:
    for name in ("ill", "well"):
        room.images(f"{name}/{name[0]}{{}}.png", 12)
    room.write("sizes.csv", "width,height\n8,8\n8,8\n8,8\n")
    assert "{folder0}" in room.first("Tell ill from well")


# --- archives ----------------------------------------------------------------------------------------------------


def archive(room: Any, classes: int = 2) -> None:
    arrays = {}
    for half, count in (("train", 30), ("val", 10), ("test", 20)):
        arrays[f"{half}_images"] = room.random.integers(0, 255, (count, 8, 8), dtype=np.uint8)
        arrays[f"{half}_labels"] = (np.arange(count)[:, None] % classes).astype(np.uint8)
    np.savez(room.raw / "set.npz", **arrays)


@pytest.mark.parametrize(
    ("about", "names"),
    [
        ("Labels: 0 normal, 1 pneumonia.", ("normal", "pneumonia")),
        ("Classes are 0: normal; 1: pneumonia", ("normal", "pneumonia")),
        ("label 0 = normal, 1 = bacterial, 2 = viral", ("normal", "bacterial", "viral")),
    ],
)
def test_an_archive_with_names_from_its_card(room: Any, about: str, names: tuple[str, ...]) -> None:
    archive(room, classes=len(names))
    room.write("SOURCE.md", f"Chest radiographs of children. {about}\n")
    index = accepted(room, f"Tell {', '.join(names[:-1])} and {names[-1]} apart on chest X-rays")
    assert set(index.classes) == set(names)
    assert len(index.test) == 20


# --- what is beyond ----------------------------------------------------------------------------------------------


def test_a_layout_that_is_beyond_the_rules(room: Any) -> None:
    room.images("{}.png", 12)
    assert room.brief(PNEUMONIA).facts.unusable


def test_a_table_of_images_that_are_not_there(room: Any) -> None:
    room.write("t.csv", "image,label\n" + "".join(f"gone{at}.png,{'ab'[at % 2]}\n" for at in range(12)))
    assert room.brief("Classify").facts.unusable


def test_what_is_not_clear_is_asked(room: Any) -> None:
    """Folders whose files have the same names may be channels of the same cases."""
    for name in ("alpha", "omega"):
        room.images(name + "/{}.png", 12)
    assert not room.brief("Classify").facts.readings[0].sufficient


def test_names_with_blanks_and_quotes(room: Any) -> None:
    for name in ("it's ill", "quite well"):
        room.images(f"{name}/{name[0]}{{}}.png", 12)
    assert accepted(room, "Tell it's ill from quite well").classes == ("it's ill", "quite well")


def test_a_copy_of_the_reading_is_all_that_they_make(room: Any) -> None:
    room.images("cyst/c{}.png", 12)
    room.images("tumor/t{}.png", 12)
    room.index("Tell cysts from tumours")
    calls: list[ToolCall] = [call for message in room.messages for call in message.calls]
    assert [call.name for call in calls] == ["copy_files"]
    assert Path(room.run.work, "Datapath", "train.json").is_file()
