"""A spec gives the same index whatever the order in which a file system lists its files."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_kit import mask, picture, read

TABLE = {"file": "labels.csv", "row": "{file}", "image": "{name}"}
DIAGNOSIS = {"task": "diagnosis", "images": {"files": {"pattern": "img/{case}.png"}},
             "labels": {"sources": [{**TABLE, "column": "dx"}], "classes": {"a": [], "b": []}}}  # fmt: skip
MASKS = {"task": "segmentation", "images": {"files": {"pattern": "img/{case}.png"}},
         "masks": {"files": {"pattern": "cells/{case}_{number}.png"}, "case": "{case}", "combine": "union",
                   "classes": {"cell": 1}}}  # fmt: skip


class Shuffled:
    """`os.scandir` in an order of its own."""

    def __init__(self, path: Any, seed: int, scan: Any) -> None:
        with scan(path) as entries:
            self.entries = list(entries)
        random.Random(f"{seed}{path}").shuffle(self.entries)

    def __enter__(self) -> Iterator[os.DirEntry[str]]:
        return iter(self.entries)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open any more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty images, of which two are copies and one is torn, with a table and two masks each."""
    root = tmp_path_factory.mktemp("set")
    rows = ["file,dx"]
    for number in range(30):
        picture(root / "img" / f"s{number}.png")
        rows.append(f"s{number}.png,{'ab'[number % 2]}")
        for cell in range(2):
            mask(root / "cells" / f"s{number}_{cell}.png", (2 + 4 * cell, 3, 5 + 4 * cell, 9))
    (root / "img/s4.png").write_bytes((root / "img/s2.png").read_bytes())
    (root / "img/s7.png").write_bytes(b"torn")
    (root / "labels.csv").write_text("\n".join(rows))
    return root


@settings(max_examples=8)
@given(seed=st.integers(1, 10_000), spec=st.sampled_from([DIAGNOSIS, MASKS]))
def test_the_order_of_the_file_system_does_not_matter(
    seed: int, spec: dict[str, Any], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = read(folder, tmp_path_factory.mktemp("plain"), **spec)
    with pytest.MonkeyPatch.context() as patched:
        scan = os.scandir
        patched.setattr(os, "scandir", lambda path=".": Shuffled(path, seed, scan))
        shuffled = read(folder, tmp_path_factory.mktemp("shuffled"), **spec)
    assert (shuffled.train, shuffled.test) == (plain.train, plain.test)
    assert shuffled.accounting.to_json() == plain.accounting.to_json()
