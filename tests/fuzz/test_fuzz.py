"""A small share of `python -m tests.fuzz`, for every day."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz.fuzzing import Place, fuzz_calls, fuzz_files
from sandbox_kit import backend

SEED = int.from_bytes(os.urandom(4), "big")


def test_mutated_files_have_typed_answers(tmp_path: Path) -> None:
    tally = fuzz_files(Place(tmp_path / "top"), backend("off"), 160, SEED)
    assert tally.inputs == 160, SEED
    assert not tally.ended, (SEED, tally.ended)


def test_fuzzed_calls_have_typed_answers(tmp_path: Path) -> None:
    tally = fuzz_calls(Place(tmp_path / "top"), backend("off"), 300, SEED)
    assert tally.inputs == 300, SEED
