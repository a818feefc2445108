"""A student of random weights, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def student_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as any other of transformers; see `toy_student`."""
    pytest.importorskip("transformers")
    from toy_student import build

    return build(tmp_path_factory.mktemp("student") / "toy", width=24, layers=1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from threads, which wait for each other on a loaded machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
