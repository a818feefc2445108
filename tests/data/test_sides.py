"""Headers with detached data: which files they name, and what hostile ones cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from m3b.data.sides import HEADER_BYTES, MAX_NAMES, WITH_SIDES, sides
from m3b.errors import DataError

NAMES = ("a.raw", "s 1.raw", "v001.raw")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sides")
    for name in NAMES:
        (folder / name).write_bytes(b"x")
    return folder


def list_detached_files(place: Path, content: str, ending: str = ".mhd") -> list[str]:
    file = place / f"header{ending}"
    file.write_bytes(content.encode("latin-1"))
    return sides(file)


@pytest.mark.parametrize(
    ("line", "expected_files"),
    [
        ("ElementDataFile = a.raw\r\n", ["a.raw"]),
        ("elementdatafile=s 1.raw", ["s 1.raw"]),
        ("ElementDataFile = LOCAL\n", []),
        ("ElementDataFile =\nElementDataFile = a.raw\n", ["a.raw"]),
        ("Comment = ElementDataFile = a.raw\n", []),
        ("ElementDataFile = gone.raw\n", []),
        ("ElementDataFile = v%03d.raw 0 2 1\n", ["v001.raw"]),
    ],
)
def test_the_line_that_names_the_voxels(place: Path, line: str, expected_files: list[str]) -> None:
    assert list_detached_files(place, f"NDims = 2\n{line}") == expected_files


@pytest.mark.parametrize(
    "content",
    [
        f"ElementDataFile = a{' ' * (HEADER_BYTES - 100)}b",  # a pattern that gives way to itself takes days for it
        f"ElementDataFile{' ' * (HEADER_BYTES - 100)}",
        "ElementDataFile\n" * (HEADER_BYTES // 20),
        "ElementDataFile = a\0b.raw",
    ],
)
def test_a_long_line_is_read_once(place: Path, content: str) -> None:
    assert list_detached_files(place, content) == []


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        ("ElementDataFile = v%0999999999d.raw 1 3 1\n", "numbers of 999999999 digits"),
        ("ElementDataFile = LIST\n" + "a\n" * (MAX_NAMES + 1), "lists 100,00"),
        ("ElementDataFile = ../a.raw\n", "outside its folder"),
    ],
)
def test_what_is_refused(place: Path, content: str, expected_text: str) -> None:
    with pytest.raises(DataError, match=expected_text):
        list_detached_files(place, content)


FIELD = st.sampled_from(["ElementDataFile = ", "data file: ", "datafile:", "ELEMENTDATAFILE=", "", "x"])
VALUE = st.one_of(
    st.sampled_from(
        [*NAMES, "LIST", "LOCAL", "../a.raw", "/etc/passwd", "v%03d.raw 1 2 1", "%d 0 99999999999 0", "%0²d ² ² ²"]
    ),
    st.text(st.characters(codec="latin-1"), max_size=30),
)


@given(lines=st.lists(st.tuples(FIELD, VALUE).map("".join), max_size=6), ending=st.sampled_from(WITH_SIDES))
@example(lines=["ElementDataFile = LIST", "a.raw", "../x"], ending=".mhd")
@example(lines=["data file: %d ² ² ²"], ending=".nhdr")
def test_any_header_names_files_of_its_folder_or_is_refused(place: Path, lines: list[str], ending: str) -> None:
    try:
        file_names = list_detached_files(place, "\n".join(lines), ending)
    except DataError:
        return
    assert all((place / name).resolve().parent == place.resolve() and (place / name).is_file() for name in file_names)
