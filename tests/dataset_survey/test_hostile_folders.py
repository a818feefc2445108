"""Damaged, made-up and hostile files: every one is a note or a count, never an error."""

from __future__ import annotations

import io
import os
import random
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pydicom
import pytest
from dataset_folders import blocks, colour, fill, grey, save, save_nifti, save_slice, write_table

from m3b.dataset.survey.facts import Survey, SurveyLimits
from m3b.dataset.survey.names import FORMAT_OF_SUFFIX
from m3b.dataset.survey.render import render
from m3b.dataset.survey.survey import survey


def check(root: Path) -> Survey:
    facts = survey(root)
    assert Survey.model_validate_json(facts.model_dump_json()) == facts
    assert render(facts).count("\n") < 120
    return facts


def test_random_bytes_under_every_suffix(tmp_path: Path) -> None:
    rng = random.Random(0)
    for suffix in FORMAT_OF_SUFFIX:
        for number in range(2):
            (tmp_path / f"f{number}{suffix}").write_bytes(rng.randbytes(rng.randint(1, 2000)))
    facts = check(tmp_path)
    assert sum(group.count for group in facts.groups) == facts.files == 2 * len(FORMAT_OF_SUFFIX)


def test_changed_bytes_of_whole_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    save(source / "a.png", colour(0))
    save(source / "b.jpg", grey(0))
    save(source / "c.tif", blocks(0))
    save_nifti(source / "d.nii.gz", np.zeros((6, 6, 4), np.int16))
    save_slice(source / "e.dcm", "1", 3)
    np.savez_compressed(source / "f.npz", x=np.zeros((5, 9, 9), np.uint8), y=np.arange(5))
    write_table(source / "g.csv", [["file", "label"], *([f"{number}.png", number] for number in range(9))])
    rng = random.Random(1)
    for path in sorted(source.iterdir()):
        content = path.read_bytes()
        for number in range(6):
            data = bytearray(content[: rng.randint(1, len(content))] if number % 2 else content)
            for _ in range(8):
                data[rng.randrange(len(data))] = rng.randrange(256)
            target = tmp_path / "changed" / f"{path.stem}{number}{''.join(path.suffixes)}"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(bytes(data))
    check(tmp_path / "changed")


def test_names_that_look_like_patterns(tmp_path: Path) -> None:
    names = [
        "{a}.png",
        "**.png",
        "re:x.png",
        "a,b.png",
        "[1].png",
        "x{y,z}.png",
        "(row).png",
        "%s.png",
        "$1.png",
        " .png",
        "é\u0301.png",
        "\u202e.png",
    ]
    fill(tmp_path, [f"{folder}/{name}" for folder in ("one", "{two}") for name in names])
    facts = check(tmp_path)
    assert sum(group.count for group in facts.groups) == 24


@pytest.mark.parametrize("column", ["", "{x}", "a}b", "tag.PatientID", "(row)", "path", "x\ny"])
def test_columns_that_look_like_templates(tmp_path: Path, column: str) -> None:
    fill(tmp_path, [f"{number}.png" for number in range(40, 50)])
    write_table(tmp_path / "t.csv", [[column, "label"], *([f"{number}.png", number % 2] for number in range(40, 50))])
    check(tmp_path)


def test_a_picture_that_unpacks_to_gigabytes_is_not_read(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (60_000).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(b"\0" * 10**6))
            + chunk(b"IEND", b"")
        )
    facts = check(tmp_path)
    assert facts.groups[0].content is not None
    assert facts.groups[0].content.failed == 3


@pytest.mark.parametrize("syntax", [pydicom.uid.ExplicitVRLittleEndian, pydicom.uid.RLELossless])
def test_a_slice_that_declares_gigabytes_is_refused_before_memory_is_taken(
    tmp_path: Path, syntax: pydicom.uid.UID
) -> None:
    save_slice(tmp_path / "a.dcm", "1", 3)
    header = pydicom.dcmread(tmp_path / "a.dcm")
    header.Rows = header.Columns = 65_000
    if syntax.is_compressed:
        header.PixelData = pydicom.encaps.encapsulate([(1).to_bytes(4, "little") + bytes(60) + b"\x81\0" * 10_000])
        header["PixelData"].VR, header["PixelData"].is_undefined_length = "OB", True
    header.file_meta.TransferSyntaxUID = syntax
    header.save_as(tmp_path / "a.dcm")
    tracemalloc.start()
    facts = check(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "sample_large" in {note.code for note in facts.notes}
    assert peak < 100 * 2**20


def test_a_virtual_dataset_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout(shape=(1_000_000, 1_000, 1_000), dtype="u1")
    layout[0] = h5py.VirtualSource(".", "x", shape=(1_000, 1_000))
    with h5py.File(tmp_path / "a.h5", "w") as store:
        store["x"] = np.zeros((1_000, 1_000), np.uint8)
        store.create_virtual_dataset("image", layout, fillvalue=1)
    facts = check(tmp_path)
    assert not facts.containers


def test_millions_of_numbers_are_counted_and_not_written_one_by_one(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as store:
        store.create_dataset("image", shape=(4_000_000, 9, 9), dtype="u1", chunks=(1_000, 9, 9))
        store["label"] = np.arange(4_000_000, dtype=np.int32) // 1_000_000
    begin = time.process_time()
    facts = check(tmp_path)
    assert time.process_time() - begin < 0.8
    label = next(member for member in facts.containers[0].members if member.key == "label")
    assert [(value.text, value.count) for value in label.values] == [(str(n), 10**6) for n in range(4)]


def test_archives_within_archives_and_paths_that_lead_out(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("../../etc/passwd", "x")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
        archive.writestr("/abs/im.png", b"x")
    facts = check(tmp_path)
    assert [group.pattern for group in facts.groups] == ["a.zip/inner.zip"]


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    fill(tmp_path / "set", [f"{number}.png" for number in range(3)])
    (tmp_path / "set/9.png").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "set/table.csv")
    facts = check(tmp_path / "set")
    assert {note.code for note in facts.notes} == {"link", "special"}
    assert facts.files == 3


def test_limits_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, [f"x/{number}.png" for number in range(30)])
    write_table(tmp_path / "t.csv", [["file", "label"], *([f"{number}.png", number % 2] for number in range(30))])
    facts = survey(tmp_path, SurveyLimits(samples=2, tables=0, groups=1, keys=5))
    assert (len(facts.groups), len(facts.tables)) == (1, 0)
    assert facts.groups[0].content is not None
    assert facts.groups[0].content.samples <= 3
    sampled = survey(tmp_path, SurveyLimits(keys=5))
    assert sampled.joins[0].files_matched == 30
