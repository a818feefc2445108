"""Folders that are made to trip a reader: every oddity becomes a note, and the work stays bounded."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from survey_kit import mask, picture, volume, write

from m3b.data.pixels import values_of as pixel_values
from m3b.data.survey import Survey, cached_survey, survey
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.keys import PATH_RULES, VALUE_RULES, key
from m3b.data.survey.parts import values_of
from m3b.data.survey.render import render
from m3b.data.survey.tokens import pieces, shape
from m3b.data.survey.walk import walk
from m3b.errors import DataError

LIMITS = SurveyLimits(seconds=600)


def codes(found: Survey) -> dict[str, int]:
    return {note.code: note.count for note in found.notes}


def test_links_pipes_sockets_and_loops_are_counted_and_not_entered(tmp_path: Path) -> None:
    top = tmp_path / "data"
    picture(top / "a.png")
    (top / "loop").symlink_to(top)
    (top / "out.png").symlink_to("/etc/passwd")
    os.mkfifo(top / "pipe.png")
    os.mkfifo(top / "table.csv")
    found = survey(top, limits=LIMITS)
    assert (found.files, codes(found)["link"], codes(found)["special"]) == (1, 2, 2)


def test_a_thousand_folders_deep_is_cut_at_the_limit(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1_000):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
    finally:
        os.close(here)
    try:
        found = survey(tmp_path, limits=SurveyLimits(depth=100, seconds=600))
    finally:  # Python's own removal recurses once a level
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
    assert codes(found)["deep"] == 1
    assert found.folders <= 102


def test_bombs_sparse_large_empty_and_damaged_files(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (60_000).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    write(
        tmp_path / "bomb" / "a.png",
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"x") + chunk(b"IEND", b""),
    )
    write(tmp_path / "empty" / "a.png", b"")
    write(tmp_path / "broken" / "a.png", b"\x89PNG\r\n\x1a\nnothing")
    write(tmp_path / "broken" / "b.h5", b"\x89HDF\r\n\x1a\n" + b"x" * 100)
    write(tmp_path / "broken" / "c.npz", b"PK\x03\x04" + b"y" * 100)
    write(tmp_path / "broken" / "d.nii.gz", b"\x1f\x8b" + b"z" * 100)
    write(tmp_path / "broken" / "e.json", b"[" * 100_000)
    write(tmp_path / "broken" / "f.dcm", b"\0" * 128 + b"DICM" + b"\xff" * 64)
    write(tmp_path / "broken" / "g.xlsx", b"PK\x03\x04" + b"q" * 10)
    write(tmp_path / "broken" / "h.mat", b"MATLAB 5.0" + b"\0" * 200)
    write(tmp_path / "broken" / "i.mp4", b"\0\0\0\x18ftyp" + b"w" * 64)
    write(tmp_path / "x.xml", b'<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;">]><a>&d;</a>')
    with (tmp_path / "sparse.nii").open("wb") as file:
        file.truncate(2**40)
    found = survey(tmp_path, limits=LIMITS)
    noted = codes(found)
    assert noted["empty"] >= 1
    assert noted["sparse"] == 1
    assert noted["damaged"] >= 5
    assert noted["bomb"] >= 2
    assert noted["large"] >= 1
    assert Survey.model_validate_json(found.model_dump_json()) == found


def test_a_zip_that_unpacks_to_terabytes_is_said_and_not_unpacked(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"\0" * (1 << 24))
    data = bytearray(buffer.getvalue())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # both headers now claim 4 GiB
        start = data.index(mark)
        data[start + at : start + at + 4] = (2**32 - 2).to_bytes(4, "little")
    write(tmp_path / "a.zip", bytes(data))
    assert survey(tmp_path, limits=LIMITS).containers[0].note == "bomb"


def test_objects_of_python_are_not_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(marker),))

    np.save(tmp_path / "evil.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "evil.npz", a=np.array([Evil()], dtype=object))
    survey(tmp_path, limits=LIMITS)
    assert not marker.exists()


def test_values_of_an_hdf5_file_that_lie_in_another_file_are_not_read(tmp_path: Path) -> None:
    import h5py

    secret = write(tmp_path / "secret", b"secret" * 100)
    data = tmp_path / "data"
    data.mkdir()
    with h5py.File(data / "a.h5", "w") as file:
        file.create_dataset("image", (20, 20), "u1", external=[(str(secret), 0, 400)])
        file["link"] = h5py.ExternalLink(str(secret), "/x")
        file["plain"] = np.zeros((20, 20), np.uint8)
    assert [one.key for one in survey(data, limits=LIMITS).containers[0].members] == ["plain"]


def test_an_unreadable_folder_is_a_note(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / "closed").mkdir(mode=0)
    assert codes(survey(tmp_path, limits=LIMITS))["unreadable"] == 1


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Name a folder"):
        survey(tmp_path / "nothing")


def test_time_that_is_over_leaves_facts_out_and_says_so(tmp_path: Path) -> None:
    for at in range(20):
        picture(tmp_path / f"{at}.png", seed=at)
    found = survey(tmp_path, limits=SurveyLimits(seconds=0))
    assert found.groups[0].count == 20
    assert found.groups[0].content is None
    assert "time" in codes(found)


def test_more_files_than_the_limit_are_counted(tmp_path: Path) -> None:
    for at in range(30):
        write(tmp_path / f"{at}.txt", "x")
    found = survey(tmp_path, limits=SurveyLimits(files=10, seconds=600))
    assert (found.files, codes(found)["cut_off"]) == (30, 20)


# --- the same facts, whatever the order ---------------------------------------------------------------------------


def layout(top: Path) -> Path:
    for at in range(8):
        picture(top / ("train" if at < 6 else "test") / "images" / f"p{at // 2}_{at}.png", seed=at)
        mask(top / ("train" if at < 6 else "test") / "masks" / f"p{at // 2}_{at}.png", seed=at)
    volume(top / "vol" / "v1.nii.gz")
    write(top / "t.csv", "file,label\n" + "".join(f"p{at // 2}_{at},{'ab'[at % 2]}\n" for at in range(8)))
    return top


def test_the_order_of_the_file_system_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = layout(tmp_path / "data")
    first = survey(top, limits=LIMITS)
    real = os.scandir

    class Shuffled:
        def __init__(self, path: str) -> None:
            with real(path) as entries:
                self.entries = list(entries)
            random.Random(5).shuffle(self.entries)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            return iter(self.entries)

        def __exit__(self, *_: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr("m3b.data.survey.walk.os.scandir", Shuffled)
    assert survey(top, limits=LIMITS) == first


@settings(max_examples=10)
@given(
    names=st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=9), min_size=2, max_size=2, unique=True)
)
def test_renaming_folders_keeps_the_structure(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    top = layout(tmp_path_factory.mktemp("renamed") / "data")
    for side in ("train", "test"):
        for old, new in zip(("images", "masks"), names, strict=True):
            (top / side / old).rename(top / side / f"{new}x")
    found = survey(top, limits=LIMITS)
    kinds = sorted(one.content.values for one in found.groups if one.content and one.kind == "picture")
    assert kinds == ["mask", "picture"]
    pairing = next(one for one in found.pairings if one.role == "mask")
    assert (pairing.left_matched, pairing.right_matched, pairing.kind) == (8, 8, "one_to_one")
    shutil.rmtree(top)


def test_a_survey_is_taken_from_the_cache_until_something_changes(tmp_path: Path) -> None:
    top, cache = layout(tmp_path / "data"), tmp_path / "cache"
    first = cached_survey(top, cache, limits=LIMITS)
    stored = next(cache.iterdir())
    stored.write_text(first.model_copy(update={"bytes": 7}).model_dump_json())
    assert cached_survey(top, cache, limits=LIMITS).bytes == 7
    assert stored.stat().st_mode & 0o077 == 0
    write(top / "t.csv", "file,label\nnew,a\n")
    assert cached_survey(top, cache, limits=LIMITS).tables[0].rows == 1


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    top, cache = layout(tmp_path / "data"), tmp_path / "cache"
    cached_survey(top, cache, limits=LIMITS)
    next(cache.iterdir()).write_text("{")
    assert cached_survey(top, cache, limits=LIMITS).files == 18


def test_what_a_killed_survey_left_in_the_cache_goes_later(tmp_path: Path) -> None:
    top, cache = layout(tmp_path / "data"), tmp_path / "cache"
    old, young = write(cache / ".survey-a.json.12", "{"), write(cache / ".survey-b.json.13", "{")
    os.utime(old, (1e9, 1e9))
    cached_survey(top, cache, limits=LIMITS)
    assert (old.exists(), young.exists()) == (False, True)


# --- pieces -------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(NAMES)
def test_the_pieces_of_a_name_are_the_name(name: str) -> None:
    assert "".join(text for _, text in pieces(name)) == name
    assert shape(name)


@given(NAMES, st.sampled_from([*PATH_RULES, *VALUE_RULES]))
def test_a_key_does_not_mind_case(name: str, rule: str) -> None:
    assert key(rule, name) == key(rule, name)  # type: ignore[arg-type]
    if name.isascii():
        assert key(rule, name.upper()) == key(rule, name.lower())  # type: ignore[arg-type]


@given(
    names=st.lists(
        st.from_regex(r"[a-z]{1,4}[_-]?[0-9]{1,4}[LR]?(_x)?", fullmatch=True), min_size=2, max_size=9, unique=True
    )
)
def test_every_path_matches_its_template(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    from m3b.data.survey.name_templates import fine_groups
    from m3b.data.survey.templates import template_of

    top = tmp_path_factory.mktemp("names")
    for name in names:
        write(top / "a" / f"{name}.dat", "x")
    for group in fine_groups(walk(top, LIMITS)):
        template = template_of([group], 1000)
        values = values_of(template, list(group.paths()))
        whole = [slot for slot in template.slots() if "." not in slot.name]
        assert all(value is not None for slot in whole for value in values[slot.name])


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.uint8, np.uint16, np.int16, np.float32, np.float64]))
def test_what_values_are_does_not_depend_on_their_type(seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    array = (rng.random((1, 40, 40)) > 0.7).astype(dtype)
    assert pixel_values(array).kind == "mask"
    array[0, :5, :5] = 2
    assert pixel_values(array).kind == "labels"
    many = rng.integers(0, 200, (1, 40, 40)).astype(dtype)
    assert pixel_values(many).kind == "picture"


def test_infinities_and_holes_are_no_error() -> None:
    assert pixel_values(np.full((1, 8, 8), np.nan)).kind == "constant"
    assert pixel_values(np.array([[[np.inf, 0.5], [1.0, -np.inf]]])).kind in ("picture", "mask", "labels")
    assert pixel_values(np.empty((1, 0, 4))).kind == "unknown"


# --- what may leave -----------------------------------------------------------------------------------------------


def test_names_are_masked_and_prose_is_withheld_in_the_text(tmp_path: Path) -> None:
    rows = ["image,Patient Name,report,patient_id"]
    for at in range(4):
        picture(tmp_path / f"i{at}.png", seed=at)
        rows.append(f"i{at}.png,Jane Doe{at},the lung of this person looks entirely normal to me and to her,P{at // 2}")
    write(tmp_path / "t.csv", "\n".join(rows))
    found = survey(tmp_path, limits=LIMITS)
    text = render(found)
    assert "Jane" not in text
    assert "lung of this" not in text
    assert "Patient Name" in text
    sensitive = {one.name: one.sensitive for one in found.tables[0].columns}
    assert (sensitive["Patient Name"], sensitive["report"]) == ("identity", "free_text")


def test_the_text_of_a_folder_is_short(tmp_path: Path) -> None:
    text = render(survey(layout(tmp_path / "data"), limits=LIMITS))
    assert len(text) < 3_000
    assert "images and masks:" in text
