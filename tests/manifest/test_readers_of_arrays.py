"""Values of arrays that a manifest asks for one after another are read from their file once."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from m3b.dataset import reading
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.survey.walk import walk


def test_a_file_of_many_groups_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read again for each group: a file of 20,000 cases would have taken a day."""
    with h5py.File(tmp_path / "cases.h5", "w") as store:
        for number in range(50):
            group = store.create_group(f"case{number}")
            group["label"], group["scores"] = number % 3, np.arange(4) + number
    counts = {"read_values": 0, "open_arrays": 0}
    for name in counts:
        read = getattr(reading, name)

        def count(path: Path, name: str = name, read: object = read) -> object:
            counts[name] += 1
            return read(path)  # type: ignore[operator]

        monkeypatch.setattr(reading, name, count)
    readers = FolderReaders(walk(tmp_path))
    assert [readers.member_values("cases.h5", f"case{n}/label") for n in range(50)] == [str(n % 3) for n in range(50)]
    assert readers.member_values("cases.h5", "case7/scores") == ["7", "8", "9", "10"]
    assert readers.member_values("cases.h5", "case8/scores") == ["8", "9", "10", "11"]
    assert counts == {"read_values": 1, "open_arrays": 1}
