"""Data that is small on the disk and endless to read; what killed and newer processes left behind."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pytest

from attacks.test_hand_over_files import in_child
from m3b.errors import UsageError
from m3b.events import ArtifactAccepted
from m3b.journal import make_event
from m3b.resources import get_resources_folder
from m3b.run.folder import RunFolder
from m3b.run.provisioning import lay_out_run_folder
from m3b.run.stages import check_resumed_state
from m3b.run.state import RunState
from m3b.tools.previews import archives

LOOK = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from m3b.messages import ToolCall
from m3b.isolation.sandbox import choose_sandbox
from m3b.tools import Roots, Toolbox
top = Path(sys.argv[1])
with Toolbox(Roots(top / "work", {"data/x": top / "data"}), sandbox=choose_sandbox("off")) as box:
    file = {"paths": ["data/x/" + sys.argv[2]]}
    folder = {"path": "data/x"}
    for tool, arguments in (("preview_files", file), ("read_files", file), ("preview_dirs", folder), ("list_files", folder)):
        result = box.call(ToolCall("1", tool, arguments), (tool,))
        assert len(result.text) <= 30_000, (tool, len(result.text))
        print(result.text)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def look(data: Path, name: str) -> str:
    """What all tools that look say of a file, in a process of 4 GiB."""
    return in_child(LOOK, data.parent, name)


@pytest.mark.parametrize("columns", [20_000, 50_000])
def test_tables_of_many_columns(data: Path, columns: int) -> None:
    with (data / "wide.csv").open("w") as file:
        file.write(",".join(f"gene{n}" for n in range(columns)) + "\n")
        for _ in range(100):
            file.write("1," * (columns - 1) + "2\n")
    preview = look(data, "wide.csv")
    assert "100 rows x " in preview
    if columns == 20_000:  # of a longer header line only the beginning is looked at
        assert "20,000 columns" in preview
        assert "up to gene19999" in preview


def test_a_line_of_delimiters(data: Path) -> None:
    (data / "commas.csv").write_text("," * 400_000)
    assert "400,001 columns" in look(data, "commas.csv") or "columns" in look(data, "commas.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.txt", "a.npy", "a.nii", "a.png", "a.pkl", "a.zip"])
def test_a_sparse_terabyte(data: Path, name: str) -> None:
    with (data / name).open("wb") as file:
        file.truncate(2**40)
    assert "holes" in look(data, name)


def test_a_line_without_end(data: Path) -> None:
    (data / "long.csv").write_bytes(b"a,b\n" + b"x" * (200 << 20))
    assert "table" in look(data, "long.csv")


def test_an_archive_of_60_000_members(data: Path) -> None:
    with zipfile.ZipFile(data / "many.npz", "w") as archive:
        content = io.BytesIO()
        np.save(content, np.zeros(4, np.uint8))
        for number in range(60_000):
            archive.writestr(f"a{number}.npy", content.getvalue())
    assert "60,000 arrays" in look(data, "many.npz")
    source = (
        "import sys; from pathlib import Path; from m3b.dataset.reading import open_arrays\n"
        "print(len(open_arrays(Path(sys.argv[1]))))"
    )
    assert in_child(source, data / "many.npz") == "60000\n"


@pytest.mark.parametrize("name", ["small.zip", "small.npz"])
def test_a_small_archive_costs_little_memory(data: Path, name: str) -> None:
    with zipfile.ZipFile(data / name, "w") as archive:
        archive.writestr("one.txt", "x")
    tracemalloc.start()
    try:
        with (data / name).open("rb") as file, archives.open_zip(file) as archive:
            assert archive.namelist() == ["one.txt"]
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_compressed_bomb(data: Path) -> None:
    inner = tarfile.TarInfo("zeros.bin")
    inner.size = 3 << 29
    block = gzip.compress(bytes(64 << 20), 1)
    with (data / "bomb.tar.gz").open("wb") as file:
        file.write(gzip.compress(inner.tobuf()))
        for _ in range(24):  # members of gzip add up to one stream
            file.write(block)
    assert "only its first 1.0 GiB were unpacked" in look(data, "bomb.tar.gz")


def test_a_volume_that_unpacks_to_gigabytes(data: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_shape((1024, 1024, 8000))
    header.set_data_dtype(np.uint8)
    header["vox_offset"] = 352
    block = gzip.compress(bytes(64 << 20), 1)
    with (data / "bomb.nii.gz").open("wb") as file:
        file.write(gzip.compress(header.binaryblock + bytes(4)))
        for _ in range(125):
            file.write(block)
    assert "1024 x 1024 x 8000 voxels" in look(data, "bomb.nii.gz")


@pytest.mark.parametrize("levels", [900, 1500])
def test_deep_folders(data: Path, levels: int) -> None:
    from attacks.test_untrusted import deep_tree
    from m3b.isolation.untrusted import remove_tree

    (data / "a.txt").write_text("x")
    deep_tree(data, levels)
    try:
        assert "a.txt" in look(data, "a.txt")
    finally:
        remove_tree(data)  # pytest cannot


# --- other versions, and kills ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_version", [3, 99, "x", None])
def test_runs_of_a_newer_version_are_refused(tmp_path: Path, format_version: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": format_version, "request": "x"}))
    with pytest.raises(UsageError, match="newer m3b"):
        RunFolder(tmp_path).load_record()


def test_a_journal_of_another_version_is_refused() -> None:
    for kind, data in (("reply", {"text": "", "usage": {"unheard_of": 1}}), ("unheard", {}), ("note", {"words": "x"})):
        with pytest.raises(ValueError, match=r"unheard|words"):
            make_event(kind, data)
    with pytest.raises(UsageError, match="version"):
        check_resumed_state((), RunState.from_events([ArtifactAccepted("unheard", {})]))
    with pytest.raises(UsageError, match="version"):
        check_resumed_state((), RunState.from_events([ArtifactAccepted("model", {"folder": "x", "unheard": 1})]))


def test_what_a_kill_left_is_removed_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    for name in ("m3b-probe-4194305-abc", "m3b-look-4194305-abc", f"m3b-look-{os.getpid()}-abc", "m3b-other"):
        (place / name).mkdir(parents=True)
        os.utime(place / name, (time.time() - 9999,) * 2)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    run = RunFolder.create(tmp_path / "run")
    (run.path / ".staged-abc/cases").mkdir(parents=True)
    (run.path / ".staged-abc/cases/case_0001.png").write_text("a test image")
    (run.path / ".output-abc").write_text("x")
    (tmp_path / "data").mkdir()
    lay_out_run_folder(run, [], get_resources_folder())
    assert not list(run.path.glob(".*-abc"))
    assert sorted(entry.name for entry in place.iterdir()) == sorted([f"m3b-look-{os.getpid()}-abc", "m3b-other"])
