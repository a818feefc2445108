"""What became of every file: the words for those that nothing names."""

from __future__ import annotations

from m3b.data.spec.accounting import Accounting


def test_files_that_no_reading_names_are_told_apart_by_their_kind() -> None:
    """176 files were "not named by this reading", and nobody could tell that they were the tables of boxes."""
    paths = ["a/1.jpg", "a/2.jpg", "box/1.csv", "box/2.CSV", "README.md", "x.zip"]
    accounting = Accounting(total=len(paths))
    accounting.use(paths[:2], "image")
    accounting.leave_rest(paths, "not named by this reading of the folder")
    assert accounting.whole
    assert accounting.lines() == [
        "2 of 6 files used: 2 image",
        "2 left out: not named by this reading of the folder (.csv) (e.g. box/1.csv)",
        "1 left out: a document (e.g. README.md)",
        "1 left out: not named by this reading of the folder (.zip) (e.g. x.zip)",
    ]
