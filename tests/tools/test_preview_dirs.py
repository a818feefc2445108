from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.data.natural import natural
from m3b.data.patterns import extension, group_names
from m3b.tools import preview_dirs as preview_dirs_module
from m3b.tools.preview_dirs import walk_folder


def test_groups_cases(desk) -> None:
    for index in range(1, 201):
        (desk.data / f"case_{index:04d}.nii.gz").write_bytes(b"x" * 10)
    (desk.data / "labels.csv").write_text("a")
    text = desk.use("preview_dirs", path="data/chest").text
    assert "data/chest: 201 files in 0 sub-folders, 2.0 KiB" in text
    assert "case_{0001..0200}.nii.gz x 200" in text
    assert "labels.csv" in text
    assert ".nii.gz 200 (2.0 KiB), .csv 1 (1 B)" in text


def test_patient_folders_are_one_pattern(desk) -> None:
    for index in range(1, 61):
        folder = desk.data / f"p{index}"
        folder.mkdir()
        for name in ("image.nii.gz", "mask.nii.gz"):
            (folder / name).write_bytes(b"x")
    text = desk.use("preview_dirs", path="data/chest", samples=3).text
    assert "p{1..60}/image.nii.gz x 60" in text
    assert "p{1..60}/mask.nii.gz x 60" in text
    assert "... 50 more folders like p{11..60} with 2 files each, 100 in all" in text
    assert "examples: p1/image.nii.gz, p1/mask.nii.gz" in text


def test_class_folders_keep_their_counts(desk) -> None:
    for name, count in (("normal", 3), ("covid", 5)):
        (desk.data / "train" / name).mkdir(parents=True)
        for index in range(count):
            (desk.data / "train" / name / f"{index}.png").write_bytes(b"x")
    text = desk.use("preview_dirs", path="data/chest").text
    assert "    covid/ 5\n    normal/ 3" in text
    assert "train/covid/{0..4}.png x 5" in text


def test_odd_things_are_said(desk) -> None:
    (desk.data / "empty.png").touch()
    (desk.data / "full.png").write_bytes(b"x")
    (desk.data / "._full.png").write_bytes(b"x")
    (desk.data / ".DS_Store").write_bytes(b"x")
    (desk.data / "link").symlink_to("full.png")
    (desk.data / "folder").symlink_to(".")
    (desk.data / "out.png").symlink_to("/etc/passwd")
    os.mkfifo(desk.data / "pipe")
    (desk.data / "a\nb.png").write_bytes(b"x")
    text = desk.use("preview_dirs", path="data/chest").text
    assert "empty files: 1, such as empty.png" in text
    assert "._* x 1" in text
    assert ".DS_Store x 1" in text
    assert "links, not followed: 1" in text
    assert "links to files within the data, counted as files: 1" in text
    assert "so that no script can open them: 1, such as out.png. Only the user can help: Give --data" in text
    assert "/etc" not in text
    assert "pipes, sockets or devices: 1" in text


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_unreadable_folders_are_said(desk) -> None:
    (desk.data / "shut").mkdir(mode=0)
    assert "unreadable folders, not counted: 1: shut/" in desk.use("preview_dirs", path="data/chest").text


def test_unreadable_folders_do_not_end_the_walk(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.png").write_bytes(b"x")
    scan = preview_dirs_module._scan_folder

    def refuse(folder: Any, *args: Any):
        if folder.path.endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return scan(folder, *args)

    monkeypatch.setattr(preview_dirs_module, "_scan_folder", refuse)
    summary = walk_folder(tmp_path)
    assert summary.files == 1
    assert summary.unreadable == ["shut/ (Permission denied)"]


def test_free_names_are_grouped_by_extension(desk) -> None:
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(300)]
    for word in words:
        (desk.data / f"{word}.png").write_bytes(b"x")
        (desk.data / word).mkdir()
        (desk.data / word / "scan.dcm").write_bytes(b"x")
    text = desk.use("preview_dirs", path="data/chest").text
    assert "*.png x 300" in text
    assert "*/scan.dcm x 300" in text
    assert len(text) < 1500


def test_large_trees_are_measured_by_sample(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(preview_dirs_module, "_MAX_FULLY_MEASURED_FILES", 100)
    for folder in range(4):
        (tmp_path / str(folder)).mkdir()
        for index in range(100):
            (tmp_path / str(folder) / f"{index}.png").write_bytes(b"x" * 50)
    summary = walk_folder(tmp_path)
    assert not summary.is_exact
    assert summary.sizes[".png"].count == 400
    assert 0 < summary.sizes[".png"].n_measured < 100
    assert summary.sizes[".png"].estimated_bytes == 400 * 50


def test_the_data_folder_itself_and_faults(desk) -> None:
    assert "data/chest" in desk.use("preview_dirs", path="data").text
    (desk.data / "a.csv").write_text("a")
    assert "preview_files" in desk.use("preview_dirs", path="data/chest/a.csv").text
    assert desk.use("preview_dirs", path="data/other").is_error


def test_extensions_and_order() -> None:
    assert extension("a.NII.GZ") == ".nii.gz"
    assert extension("1.2.840.113619.2.55") == ""
    assert extension(".hidden") == ""
    assert extension("v1.5_scan.png") == ".png"
    assert sorted(["c10", "c2", "C1"], key=natural) == ["C1", "c2", "c10"]


NAMES = st.lists(
    st.from_regex(r"[a-c]{0,2}[0-9]{0,3}(_[0-9]{1,2})?\.(png|nii\.gz)", fullmatch=True), unique=True, max_size=40
)


@given(names=NAMES)
def test_groups_hold_every_name_within_its_range(names: list[str]) -> None:
    groups = {group.pattern: group for group in group_names(names)}
    assert sum(group.count for group in groups.values()) == len(names)
    for name in names:
        group = groups[re.sub("[0-9]+", "#", name)]
        runs = re.findall("[0-9]+", name)
        for run, (low, high) in zip(runs, group.ranges, strict=True):
            assert int(low) <= int(run) <= int(high)
            values = [
                int(re.findall("[0-9]+", other_name)[0])
                for other_name in names
                if re.sub("[0-9]+", "#", other_name) == group.pattern
            ]
        if runs:
            assert (int(group.ranges[0][0]), int(group.ranges[0][1])) == (min(values), max(values))
        assert re.sub("[0-9]+", "#", group.example) == group.pattern


@given(names=st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=30))
def test_any_names_are_counted(names: list[str]) -> None:
    groups = group_names(names)
    assert sum(group.count for group in groups) == len(names)
    for group in groups:
        assert group.format_ranges()
