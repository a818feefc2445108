"""Damaged files of every format are read or refused with a DataError, never anything else."""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from formats.store_kit import FILMS, PHOTOGRAPHS, VOLUMES, film
from m3b.dataset.formats import DataError, all_suffixes, describe_file, probe_image, read_image, read_labels

STORES = ["png palette", "jpeg", "jpeg2000", "bmp", "webp", "gif", "ppm", "tiff lzw", "tiff tiled zstd", "ome tiff", "nii", "nifti2",
          "spm analyze", "mgz", ".mha raw", ".mhd raw", ".nrrd compressed", ".nhdr from nifti", "npy", "npz", "h5", "mat", "explicit",
          "rle", "deflated", "without preamble"]  # fmt: skip
EXAMPLES = int(os.environ.get("M3B_FUZZ_EXAMPLES", "12"))
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_all(path: Path) -> None:
    for read in (lambda: probe_image(str(path)), lambda: read_image(str(path)), lambda: read_labels(str(path)),
                 lambda: describe_file(path)):  # fmt: skip
        message = ""
        try:
            read()
        except DataError as error:
            message = str(error)
        assert not message or path.name in message or path.parent.name in message


@lru_cache(maxsize=64)
def whole_file(name: str, folder: Path) -> tuple[Path, bytes]:
    folder.mkdir(parents=True)
    if name == "parquet":
        Pillow.fromarray(film()).save(folder / "a.png")
        table = pa.table({"image": [(folder / "a.png").read_bytes()]})
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        return folder / "a.parquet", (folder / "a.parquet").read_bytes()
    if name in ("zip", "tar", "gztar"):
        (folder / "in").mkdir()
        Pillow.fromarray(film()).save(folder / "in/a.png")
        file = Path(shutil.make_archive(str(folder / "a"), name, folder / "in"))
        return file, file.read_bytes()
    file = folder / str({**VOLUMES, **PHOTOGRAPHS, **FILMS}[name](folder).image)
    return file, file.read_bytes()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", [*STORES, "parquet", "zip", "tar", "gztar"])
@FUZZ
@given(data=st.data())
def test_damaged_files(room: Path, name: str, data: st.DataObject) -> None:
    file, content = whole_file(name, room / name.replace(" ", "_"))
    if data.draw(st.booleans(), label="cut off"):
        damaged = content[: data.draw(st.integers(0, len(content)), label="length")]
    else:
        changed = bytearray(content)
        end = min(len(content), 600) if data.draw(st.booleans(), label="header") else len(content)
        for _ in range(data.draw(st.integers(1, 6))):
            changed[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
        damaged = bytes(changed)
    file.write_bytes(damaged)
    try:
        read_all(file)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    "suffix",
    [
        pytest.param(ending, marks=pytest.mark.slow if ending in (".pt", ".pth") else ())
        for ending in (*all_suffixes(), "")
    ],
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=700))
def test_random_bytes_under_every_suffix(room: Path, suffix: str, content: bytes) -> None:
    file = room / f"random{suffix}"
    file.write_bytes(content)
    read_all(file)
    file.unlink()
