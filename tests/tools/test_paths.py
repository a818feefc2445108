from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import ToolError
from m3b.tools.paths import Roots, open_for_reading, open_without_links, write_atomic


@pytest.fixture(scope="module")
def tree() -> Path:
    top = Path(tempfile.mkdtemp())
    for name in ("work/sub/deep", "work/data", "raw/images", "outside"):
        (top / name).mkdir(parents=True)
    (top / "outside/secret.txt").write_text("secret")
    (top / "raw/images/a.png").write_text("a")
    (top / "work/sub/x.txt").write_text("x")
    (top / "work/data/chest").symlink_to(top / "raw")
    (top / "work/leak").symlink_to(top / "outside")
    (top / "work/sub/up").symlink_to("../..")
    (top / "work/own").symlink_to("sub")
    (top / "work/picture").symlink_to(top / "raw/images/a.png")
    (top / "work/loop").symlink_to("loop")
    (top / "raw/gone").symlink_to("/etc/passwd")
    return top


@pytest.fixture(scope="module")
def roots(tree: Path) -> Roots:
    return Roots(tree / "work", {"data/chest": tree / "raw"})


def test_plain_paths(roots: Roots, tree: Path) -> None:
    assert roots.resolve(".") == tree / "work"
    assert roots.resolve("./sub//x.txt") == tree / "work/sub/x.txt"
    assert roots.resolve("new/file.py", write=True) == tree / "work/new/file.py"
    assert roots.resolve("data/chest/images/a.png") == tree / "raw/images/a.png"
    assert roots.resolve("own/x.txt") == tree / "work/sub/x.txt"
    assert roots.resolve("picture") == tree / "raw/images/a.png"


def test_absolute_paths_only_within_roots(roots: Roots, tree: Path) -> None:
    assert roots.resolve(f"{tree}/raw/images/a.png") == tree / "raw/images/a.png"
    assert roots.resolve(f"{tree}/work/sub/x.txt", write=True) == tree / "work/sub/x.txt"
    with pytest.raises(ToolError, match=r"outside of the allowed folders.*data/chest/"):
        roots.resolve("/etc/passwd")
    with pytest.raises(ToolError, match="read-only"):
        roots.resolve(f"{tree}/raw/new.txt", write=True)


@pytest.mark.parametrize(
    "path", ["", "  ", "a\0b", "../outside/secret.txt", "sub/../x", "leak/secret.txt", "sub/up/outside"]
)
def test_refused(roots: Roots, path: str) -> None:
    with pytest.raises(ToolError):
        roots.resolve(path)


@pytest.mark.parametrize("path", ["data/chest/gone", "loop/x", "\ud800"])
def test_refused_links_and_names(roots: Roots, path: str, tree: Path) -> None:
    try:
        resolved = roots.resolve(path)
    except ToolError:
        return
    assert resolved.is_relative_to(tree / "work")
    assert not resolved.exists()


@pytest.mark.parametrize("path", ["data/chest/new.txt", "data/new.txt", "data", "own/x.txt", "picture", "leak/new.txt"])
def test_not_written(roots: Roots, path: str) -> None:
    with pytest.raises(ToolError, match=r"read-only|link"):
        roots.resolve(path, write=True)


def test_shown_as_the_agent_spells_it(roots: Roots, tree: Path) -> None:
    assert roots.display_path(tree / "raw/images") == "data/chest/images"
    assert roots.display_path(tree / "work/sub/x.txt") == "sub/x.txt"
    assert roots.display_path(tree / "work") == "."
    assert roots.display_path(Path("/etc/passwd")) == "passwd"


PARTS = st.lists(
    st.sampled_from(
        [
            "..",
            ".",
            "",
            "sub",
            "deep",
            "up",
            "leak",
            "own",
            "data",
            "chest",
            "images",
            "gone",
            "x.txt",
            "outside",
            "loop",
            "~",
            "%2e%2e",
            "..\u200b",
            "\\..",
            "secret.txt",
            "etc",
        ]
    )
    | st.text(max_size=4),
    max_size=6,
)


@given(parts=PARTS, absolute=st.booleans(), write=st.booleans())
def test_nothing_resolves_outside(roots: Roots, tree: Path, parts: list[str], absolute: bool, write: bool) -> None:
    path = ("/" if absolute else "") + "/".join(parts)
    try:
        resolved = roots.resolve(path, write=write)
    except ToolError:
        return
    real = Path(os.path.realpath(resolved))
    allowed = [tree / "work"] if write else [tree / "work", tree / "raw"]
    assert any(real.is_relative_to(base) for base in allowed)
    if write:
        assert not real.is_relative_to(tree / "work/data")


def test_a_link_swapped_in_after_resolving_is_not_followed(tmp_path: Path) -> None:
    roots = Roots(tmp_path / "work", {})
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    target = roots.resolve("sub/file.txt", write=True)
    (tmp_path / "work/sub").rmdir()
    (tmp_path / "work/sub").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        write_atomic(target, b"x")
    assert not list((tmp_path / "outside").iterdir())
    with pytest.raises(OSError):
        open_without_links(target, os.O_RDONLY)


def test_pipes_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolError, match="regular"):
        open_for_reading(tmp_path / "pipe", "pipe")


def test_writing_keeps_the_executable_bit(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    write_atomic(script, b"new")
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o111
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]
