"""The table that `python -m tests.attacks` prints."""

from __future__ import annotations

from pathlib import Path

from attacks import around, cheats
from attacks.__main__ import collect_nodes, count
from attacks.table import BACKENDS, rows_of, summary_table, table

ROOT = Path(__file__).resolve().parents[2]


def test_a_test_becomes_its_row_and_those_of_the_ways_it_tried() -> None:
    output = "stopped memory OSError denied\ntried\tits memory\tstopped\nOPEN nice None\ntried\tnice\topen\n"
    node = "tests/attacks/test_x.py::test_others_stay[bubblewrap]"
    assert rows_of(node, "passed", output, "") == [
        ("tests/attacks/test_x.py", "others stay", "bubblewrap", "", "stopped"),
        ("tests/attacks/test_x.py", "others stay: its memory", "bubblewrap", "", "stopped"),
        ("tests/attacks/test_x.py", "others stay: nice", "bubblewrap", "", "without effect"),
    ]
    assert rows_of(node, "failed", output, "")[2].outcome == "NOT STOPPED"


def test_users_and_reasons_are_told_apart() -> None:
    rows = rows_of("a.py::test_the_log[landlock-nobody-/proc/self]", "skipped", "", "Skipped: no\nuser")
    assert rows == [("a.py", "the log (/proc/self)", "landlock", "nobody", "not run: no user")]
    rows += rows_of("a.py::test_the_log[landlock-own-/proc/self]", "failed", "", "")
    text = table([("root", row) for row in rows])
    assert "| attack | landlock, nobody | landlock, root |" in text
    assert "| the log (/proc/self) | not run: no user | NOT STOPPED |" in text
    assert "landlock, root: 0 stopped, 1 not stopped, 0 not run" in text
    own_rows = rows_of(
        "tests/attacks/test_logs.py::test_the_log[landlock-own]", "passed", "tried\ta link\tstopped\n", ""
    )
    kind = "A script that turns the places where m3b keeps its output into links, pipes and devices"
    summary = summary_table([("root", row) for row in [*rows, *own_rows]]).splitlines()
    assert summary[0] == "| attack | landlock, nobody | landlock, root |"
    assert summary[2:] == [f"| {kind} |  | 2 |", "| a.py | 1 not run | **1 not stopped** |"]


def test_a_test_of_another_folder_is_a_row_of_its_attack() -> None:
    node = "tests/llm/test_streaming.py::test_a_key_in_a_good_answer_is_cut[anthropic]"
    name = "a server that repeats the key"
    assert rows_of(node, "passed", "", "") == [
        (name, f"{name}: a key in a good answer is cut (anthropic)", "", "", "stopped")
    ]
    assert len({attack.name for attack in around.ATTACKS}) == len(around.ATTACKS) >= 19


def test_attacks_are_counted_by_collecting_them() -> None:
    counts = count()
    everything = counts.pop("all")
    assert everything == sum(counts.values())
    assert min(counts[backend] for backend in BACKENDS) >= 80


def test_the_page_shows_cheats_and_attacks_and_their_tests_exist() -> None:
    assert len(cheats.CHEATS) == 12
    assert cheats.table() in (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert cheats.table(None, around.ATTACKS, "attack") in (ROOT / "docs/security.md").read_text(encoding="utf-8")
    for test in {test for cheat in (*cheats.CHEATS, *around.ATTACKS) for test in cheat.tests}:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_the_page_shows_all_kinds_of_attacks_as_they_were_tried() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- outcomes of attacks -->")[2].partition("<!-- /outcomes -->")[0].strip().splitlines()
    kinds = {line.split(" | ")[0].removeprefix("| ") for line in lines[2:]}
    assert {attack.name for attack in around.ATTACKS} <= kinds
    assert {row.kind for node in collect_nodes() for row in rows_of(node, "passed", "", "")} == kinds
    assert len(lines[0].split(" | ")) == 9
    assert "not stopped" not in text.partition("<!-- outcomes of attacks -->")[2].partition("<!-- /outcomes -->")[0]


def test_outcomes_of_cheats_are_told_by_their_tests() -> None:
    first, last = cheats.CHEATS[0], cheats.CHEATS[-1]
    ends = {first.tests[0]: "passed", f"{last.tests[0]}[by hash]": "passed", f"{last.tests[0]}[by look]": "failed"}
    lines = cheats.table(ends).splitlines()[2:]
    assert lines[0].endswith("| 1 passed |")
    assert lines[-1].endswith("| 1 passed, 1 FAILED |")
    assert lines[3].endswith("| not run |")
