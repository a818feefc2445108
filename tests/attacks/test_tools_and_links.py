"""Tools that list and copy, against folders that a thread exchanges for links as fast as it can, and deep trees."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attacks.test_untrusted import deep_tree
from m3b.data.cards import Card
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.isolation import untrusted
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.resources import get_resources_folder
from m3b.run.folder import RunFolder
from m3b.run.provisioning import lay_out_run_folder
from m3b.run.sandbox_executor import SandboxExecutor
from m3b.tools import TOOLS, Roots, Toolbox, ToolResult
from sandbox_kit import LANDLOCK, OFF
from sandbox_kit import backend as sandbox

ROUNDS = 400


class Place:
    """A work folder, read-only material, and a folder outside with something to find."""

    def __init__(self, top: Path) -> None:
        self.work, self.resources, self.outside = top / "run/work", top / "run/resources", top / "outside"
        for folder in (self.work / "inner/sub", self.resources / "kit/deep", self.outside / "sub"):
            folder.mkdir(parents=True)
        (self.resources / "kit/deep/file.txt").write_text("kit")
        for name in ("sub/secret-name.txt", "secret-name.txt"):
            (self.outside / name).write_text("outside-secret")
        (self.work / "inner/sub/plain.txt").write_text("plain")
        self.box = Toolbox(Roots(self.work, {"resources": self.resources}), sandbox=choose_sandbox("off"))

    def use(self, name: str, **arguments: Any) -> ToolResult:
        return self.box.call(ToolCall("1", name, arguments), tuple(TOOLS))

    @contextmanager
    def swapping(self, name: str) -> Iterator[None]:
        """`name` is exchanged with a link to the outside all the time."""
        (self.work / "swap").symlink_to(self.outside)
        stop, libc = threading.Event(), ctypes.CDLL(None)
        folder_path, link_path = bytes(self.work / name), bytes(self.work / "swap")

        def swap() -> None:
            while not stop.is_set():
                libc.renameat2(-100, folder_path, -100, link_path, 2)  # AT_FDCWD, RENAME_EXCHANGE

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.box.close()
    untrusted.remove_tree(place.work)  # pytest's own clean-up fails on what is too deep


TOOL_CALLS: dict[str, Callable[[Place], ToolResult]] = {
    "list_files": lambda place: place.use("list_files", path="inner", depth=4),
    "preview_dirs": lambda place: place.use("preview_dirs", path="inner"),
    "preview_files": lambda place: place.use("preview_files", paths=["inner"]),
    "copy_files": lambda place: place.use("copy_files", source="inner", destination="copied"),
    "missing": lambda place: place.use("read_files", paths=["inner/secret-nam.txt"]),
}


@pytest.mark.parametrize("tool", TOOL_CALLS)
def test_a_folder_that_is_swapped_while_a_tool_looks(place: Place, tool: str) -> None:
    with place.swapping("inner"):
        for _ in range(ROUNDS):
            output = TOOL_CALLS[tool](place).text
            assert "secret-name" not in output.replace("inner/secret-nam.txt", ""), output
            assert "outside-secret" not in output
    copied = [file.name for file in (place.work / "copied").rglob("*")]
    assert "secret-name.txt" not in copied


def test_a_folder_that_is_swapped_while_a_tool_copies_into_it(place: Place) -> None:
    before = sorted(place.outside.rglob("*"))
    with place.swapping("inner"):
        for _ in range(ROUNDS):
            place.use("copy_files", source="resources/kit", destination="inner/sub")
    assert sorted(place.outside.rglob("*")) == before


@pytest.mark.parametrize("tool", [*TOOL_CALLS, "copy"])
def test_trees_deeper_than_a_path_may_be(place: Place, tool: str) -> None:
    deep_tree(place.work / "inner")
    result = (
        TOOL_CALLS[tool](place) if tool in TOOL_CALLS else place.use("copy_files", source="inner", destination="out")
    )
    assert result.text
    if "copy" in tool:
        assert "nested deeper" in result.text


def test_folders_that_may_only_be_passed_through(tmp_path: Path) -> None:
    """On shared machines `/home` or `/data` often let others through without showing what they hold."""
    top = Path(tempfile.mkdtemp(prefix="m3b-through-"))
    (top / "inner").mkdir()
    (top / "inner/file.txt").write_text("honest")
    (top / "inner").chmod(0o755)
    top.chmod(0o311)
    root = os.getuid() == 0
    try:
        if root:
            os.setegid(65534)
            os.seteuid(65534)
        assert untrusted.read_bytes(Path("/"), (top / "inner/file.txt").relative_to("/")) == b"honest"
        assert [entry.name for entry in untrusted.walk(Path("/"), (top / "inner").relative_to("/"))] == ["file.txt"]
    finally:
        if root:
            os.seteuid(0)
            os.setegid(0)
        untrusted.remove_tree(top)


@pytest.mark.parametrize("leftover", ["folder", "link", "file", "pipe", "deep"])
def test_a_run_that_is_laid_out_anew_where_a_script_swapped_its_links(tmp_path: Path, leftover: str) -> None:
    run, raw, outside_folder = RunFolder(tmp_path / "run"), tmp_path / "chest", tmp_path / "outside"
    for folder in (run.work, raw, outside_folder):
        folder.mkdir(parents=True)
    card = Card("chest", "", path=raw)
    lay_out_run_folder(run, [card], get_resources_folder())
    for name in ("data", "Logout"):
        untrusted.remove_tree(run.work / name)
        if leftover in ("folder", "deep"):
            (run.work / name / "chest").mkdir(parents=True)
            (run.work / name / "chest/planted.png").touch()
        if leftover == "deep":
            deep_tree(run.work / name / "chest")
        if leftover == "link":
            (run.work / name).symlink_to(outside_folder)
        if leftover == "file":
            (run.work / name).touch()
        if leftover == "pipe":
            os.mkfifo(run.work / name)
    roots = lay_out_run_folder(run, [card], get_resources_folder())
    assert os.readlink(run.work / "data/chest") == str(raw)
    assert untrusted.is_folder(run.work, "data")
    assert untrusted.is_folder(run.work, "Logout")
    assert roots.resolve("data/chest") == raw
    assert list(outside_folder.iterdir()) == []


DEEP = """
import json, os, sys
out = sys.argv[sys.argv.index("-o") + 1]
rows = json.load(open(sys.argv[sys.argv.index("--list") + 1]))
os.chdir(os.path.dirname(out))
json.dump([{"image": row, "prediction": "a", "probabilities": {"a": 0.9, "b": 0.1}} for row in rows], open(out, "w"))
for _ in range(1500):
    os.mkdir("d"); os.chdir("d")
"""


@pytest.mark.parametrize("backend", ["bubblewrap", LANDLOCK, OFF])
def test_answers_in_a_tree_of_1500_folders_leave_nothing_behind(tmp_path: Path, backend: str) -> None:
    run = RunFolder(tmp_path / "run")
    model = tmp_path / "model"
    for folder in (run.work, run.locked / "Datapath", model):
        folder.mkdir(parents=True)
    (model / "predict.py").write_text(DEEP)
    (model / "config.json").write_text('{"task": "diagnosis", "classes": ["a", "b"]}')
    (run.locked / "Datapath/a.png").write_bytes(b"x")
    record = Record("Datapath/a.png", labels=("a",), patient="p")
    executor = SandboxExecutor(sandbox(backend), run, (), lambda: False)
    rows = executor.predict(model, [record], Index((), (record,), ("a", "b")))
    assert len(rows) == 1
    assert [name for name in os.listdir(run.path) if name.startswith(".")] == []
