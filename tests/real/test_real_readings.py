"""Real data sets, where somebody has them: read rightly as they are and after changes that mean nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import real_kit as kit

MUTATIONS = int(os.environ.get("M3B_FIELD_MUTATIONS", "2"))
RIGHT = 0.9


@pytest.mark.real
def test_real_sets_are_read_rightly_whatever_their_layout_and_never_wrongly_without_asking() -> None:
    kit.must_be_there()
    right, failures = 0, []
    for want in kit.SETS:
        verdicts = list(kit.verdicts(kit.FIELD, want, range(MUTATIONS)))
        wrong = [
            f"{want['folder']} {verdict.changes}: {verdict.wrong}"
            for verdict in verdicts
            if verdict.word == "WRONG-PASSED"
        ]
        assert not wrong
        if verdicts[0].word == "right":
            right += sum(verdict.word == "right" for verdict in verdicts[1:])
            failures += [
                f"{want['folder']} {verdict.changes}: {verdict.wrong} {verdict.reason}"
                for verdict in verdicts[1:]
                if verdict.word != "right"
            ]
    assert right >= RIGHT * (right + len(failures)), failures


def test_changes_keep_every_file_and_texts_follow_names(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    rows = ["filename,finding,patientid"]
    for at in range(12):
        (tmp_path / "images" / f"x_{at}.png").write_bytes(bytes([at]))
        rows.append(f"images/x_{at}.png,ill,{at}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (tmp_path / "README.md").write_text("x_1.png")
    change_names = set()
    for seed in range(40):
        tree, changes = kit.mutated(kit.original(tmp_path), random.Random(seed))
        change_names |= set(changes)
        tree.lay(tmp_path.parent / f"laid-{seed}")
        laid = tmp_path.parent / f"laid-{seed}"
        pictures = {file.name: file.read_bytes() for file in laid.rglob("*") if file.suffix.lower() == ".png"}
        assert sorted(pictures.values()) == [bytes([at]) for at in range(12)]
        (table,) = laid.rglob("t.csv")
        text = table.read_text()
        folded = {name.lower(): name for name in pictures}
        assert all(name in text.lower() for name in folded), (changes, text)
        assert (laid / "README.md").is_file()
    assert len(change_names) >= 5
