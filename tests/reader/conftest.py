from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from m3b.isolation.reader.client import READER_LIMITS, Reader
from m3b.isolation.sandbox import Mounts
from sandbox_kit import backend

Make = Callable[..., Reader]
SMALL = replace(READER_LIMITS, memory_mib=512)


@pytest.fixture
def make_reader(tmp_path: Path) -> Iterator[Make]:
    readers: list[Reader] = []

    def make(name: str = "off", **options: object) -> Reader:
        (tmp_path / "data").mkdir(exist_ok=True)
        mounts = Mounts(read=(tmp_path / "data",))
        readers.append(Reader(backend(name), mounts, limits=SMALL, **options))  # type: ignore[arg-type]
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()
