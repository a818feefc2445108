"""The walks of CONTRIBUTING.md are files that work, with tests that pass."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from warm.commands import run_python

ROOT = Path(__file__).resolve().parents[2]
FILE_BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^### (?:A|An) (.+?)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
WALKS = dict(SECTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))


def test_there_is_a_walk_for_each_kind_of_thing() -> None:
    assert set(WALKS) == {
        "file format", "annotation format", "audit check", "metric", "tool", "provider", "task",
    }  # fmt: skip


@pytest.mark.parametrize("kind", sorted(WALKS))
def test_a_walk_passes_its_own_test(kind: str, tmp_path: Path) -> None:
    files = FILE_BLOCK.findall(WALKS[kind])
    assert any(name.startswith("test_") for name, _ in files)
    for name, source in files:
        (tmp_path / name).write_text(source, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "examples/landmarks")])
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    env = {**os.environ, "PYTHONPATH": path}
    finished = run_python(*command, cwd=tmp_path, env=env, check=True, server="m3b")
    assert " passed" in finished.stdout


@pytest.mark.parametrize("path", re.findall(r"`((?:src|tests|docs)/[\w./]+?)`", "\n".join(WALKS.values())))
def test_named_paths_exist(path: str) -> None:
    assert (ROOT / path).exists()
