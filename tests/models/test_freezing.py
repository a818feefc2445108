"""A deliverable is copied once, link by link refused; what was delivered is noticed when it changes."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b import load_model
from m3b.errors import IntegrityError
from m3b.models import freeze, write_provenance
from m3b.models import frozen_copy as module


@pytest.fixture
def deliverable(tmp_path: Path) -> Path:
    folder = tmp_path / "Deliver"
    (folder / "sub").mkdir(parents=True)
    (folder / "predict.py").write_text("print('hello')\n")
    (folder / "config.json").write_text('{"classes": ["a", "b"]}')
    (folder / "sub" / "net.py").write_text("x = 1\n")
    return folder


def test_a_plain_folder_is_copied_with_hashes(deliverable: Path, tmp_path: Path) -> None:
    (deliverable / "predict.py").chmod(0o4755)
    (deliverable / "__pycache__").mkdir()
    (deliverable / "__pycache__" / "net.pyc").write_bytes(b"x")
    frozen = freeze(deliverable, tmp_path / "locked" / "model")
    assert frozen.refusals == ()
    assert list(frozen.hashes) == ["config.json", "predict.py", "sub/net.py"]
    assert frozen.hashes["predict.py"] == hashlib.sha256(b"print('hello')\n").hexdigest()
    assert (frozen.folder / "sub" / "net.py").read_text() == "x = 1\n"
    assert stat.S_IMODE((frozen.folder / "predict.py").stat().st_mode) == 0o644
    assert sorted(p.name for p in (tmp_path / "locked").iterdir()) == ["model"], "no part is left"
    (deliverable / "sub" / "net.py").unlink()
    again = freeze(deliverable, tmp_path / "locked" / "model")
    assert not (again.folder / "sub" / "net.py").exists(), "the copy is replaced as a whole"


def _link_to_file(folder: Path) -> None:
    (folder / "notes.txt").symlink_to(folder.parent / "secret.txt")


def _link_to_folder(folder: Path) -> None:
    (folder / "notes").symlink_to(folder.parent)


def _inside_link(folder: Path) -> None:
    (folder / "notes.py").symlink_to("predict.py")


def _socket(folder: Path) -> None:
    old_cwd = os.getcwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
    os.chdir(old_cwd)


def _deep(folder: Path) -> None:
    (folder / "/".join("abcdefghijkl")).mkdir(parents=True)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_link_to_file, "notes.txt is a link"),
        (_link_to_folder, "notes is a link"),
        (_inside_link, "notes.py is a link"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe is neither"),
        (_socket, "door is neither"),
        (lambda folder: (folder / ".env").write_text("KEY=1"), ".env is hidden"),
        (lambda folder: (folder / ".git").mkdir(), ".git is hidden"),
        (lambda folder: (folder / "a\x1b[2Jb").write_text("x"), "a name that not every system"),
        (lambda folder: (folder / os.fsdecode(b"\xff\xfe")).write_text("x"), "a name that not every system"),
        (_deep, "nested deeper than 8"),
    ],
)
def test_what_is_not_plain_is_refused_and_never_opened(
    deliverable: Path, tmp_path: Path, plant: Any, words: str
) -> None:
    (tmp_path / "secret.txt").write_text("the-secret-key")
    plant(deliverable)
    frozen = freeze(deliverable, tmp_path / "locked" / "model")
    assert len(frozen.refusals) == 1
    assert words in frozen.refusals[0]
    assert frozen.refusals[0].isprintable()
    copied = [file.read_text() for file in frozen.folder.rglob("*") if file.is_file()]
    assert not any("the-secret-key" in text for text in copied)


def test_too_much_is_refused_before_it_is_copied(
    deliverable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 5)
    for number, words in ((10, "more than 5 files"), (50, "too many files")):
        for name in range(number):
            (deliverable / f"{name}.txt").write_text("x")
        frozen = freeze(deliverable, tmp_path / "model")
        assert words in frozen.refusals[0]
        assert len(frozen.hashes) <= 5
    with (deliverable / "0.txt").open("wb") as file:
        file.truncate(2**40)  # sparse: nothing on the disk, all of it to copy
    monkeypatch.setattr(module, "MAX_FILES", 500)
    monkeypatch.setattr(module, "MAX_BYTES", 2**21)
    frozen = freeze(deliverable, tmp_path / "model")
    assert "GiB" in frozen.refusals[0]
    assert sum(p.stat().st_size for p in frozen.folder.rglob("*") if p.is_file()) < 2**23


def test_no_folder_or_a_link_to_one(deliverable: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(deliverable)
    for source in (tmp_path / "nowhere", tmp_path / "link", deliverable / "predict.py"):
        with pytest.raises(OSError):
            freeze(source, tmp_path / "locked" / "model")
    assert not (tmp_path / "locked").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=6
    )
)
def test_the_hashes_are_those_of_what_lies_in_the_copy(tmp_path_factory: Any, files: dict[str, bytes]) -> None:
    top = tmp_path_factory.mktemp("freeze")
    (top / "made").mkdir()
    for name, content in files.items():
        file = top / "made" / f"{name}.x"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    frozen = freeze(top / "made", top / "copy")
    assert frozen.hashes == {f"{name}.x": hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for name, content in files.items():
        assert (frozen.folder / f"{name}.x").read_bytes() == content


# --- the manifest --------------------------------------------------------------------------------------------------


@pytest.fixture
def delivered(deliverable: Path) -> Path:
    (deliverable / "README.md").write_text("# card")
    (deliverable / "metrics.json").write_text("{}")
    write_provenance(deliverable, {"seed": 1})
    return deliverable


def test_an_untouched_folder_loads(delivered: Path) -> None:
    assert load_model(delivered).classes == ("a", "b")


def test_people_may_rewrite_the_card_and_keep_their_predictions_there(delivered: Path) -> None:
    (delivered / "README.md").write_text("# My own words")
    (delivered / "answers").mkdir()
    (delivered / "answers" / "predictions.json").write_text("[]")
    assert load_model(delivered).card == "# My own words"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "sub" / "net.py").write_text("x = 2\n"), "sub/net.py was changed"),
        (lambda folder: (folder / "config.json").write_text('{"classes": ["b", "a"]}'), "config.json was changed"),
        (lambda folder: (folder / "metrics.json").write_text('{"auroc": 1}'), "metrics.json was changed"),
        (lambda folder: (folder / "sub" / "net.py").unlink(), "sub/net.py is missing"),
        (lambda folder: (folder / "numpy.py").write_text("steal()"), "numpy.py was added"),
        (lambda folder: (folder / "torch").symlink_to("/tmp/torch.so"), "torch was added"),
        (lambda folder: (folder / "provenance.json").write_text("["), "cannot be read"),
        (lambda folder: (folder / "provenance.json").write_text("[]"), "cannot be read"),
    ],
)
def test_a_changed_folder_is_not_loaded(delivered: Path, change: Any, words: str) -> None:
    change(delivered)
    with pytest.raises(IntegrityError, match=words):
        load_model(delivered)


def test_a_file_exchanged_for_a_link_to_the_same_content(delivered: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_bytes((delivered / "predict.py").read_bytes())
    (delivered / "predict.py").unlink()
    (delivered / "predict.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(IntegrityError, match=r"predict\.py is no longer a regular file"):
        load_model(delivered)


def test_planted_bytecode_is_not_executed(delivered: Path, tmp_path: Path) -> None:
    """Python takes bytecode whose header fits the source's time and size in place of the source."""
    import py_compile
    import subprocess
    import sys

    source = delivered / "sub" / "net.py"
    honest = source.read_text()
    evil = "open('seen', 'w')"
    source.write_text(evil)
    cached = Path(py_compile.compile(str(source), doraise=True))
    code = bytearray(cached.read_bytes())
    source.write_text(honest)
    about = source.stat()
    code[8:16] = int(about.st_mtime).to_bytes(4, "little") + about.st_size.to_bytes(4, "little")
    cached.write_bytes(code)
    run = [sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(source.parent)!r}); import net"]
    subprocess.run(run, cwd=tmp_path, check=True)
    assert (tmp_path / "seen").exists(), "the attack works where nobody looks"
    (tmp_path / "seen").unlink()
    load_model(delivered)
    subprocess.run(run, cwd=tmp_path, check=True)
    assert not (tmp_path / "seen").exists()


def test_a_folder_without_a_list_has_nothing_to_compare_with(delivered: Path) -> None:
    (delivered / "provenance.json").unlink()
    (delivered / "config.json").write_text(json.dumps({"classes": ["x", "y"]}))
    assert load_model(delivered).classes == ("x", "y")
