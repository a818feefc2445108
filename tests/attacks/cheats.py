"""Twelve cheats for a test figure that the model does not deserve, the outcome of each, and the tests that try it.

`python -m tests.attacks cheats` runs these tests and prints the table with their outcomes; docs/security.md shows it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PREVENTED, LABELLED, PARTLY = "prevented", "labelled", "prevented; labelled if hidden in derived images"
ROOT = Path(__file__).resolve().parents[2]
TEST_NODE_PREFIX = "tests/attacks/test_cheats.py::"
FROZEN, TAMPERED = "tests/pipeline/test_pipeline_frozen.py::", "tests/pipeline/test_pipeline_tampering.py::"
TABLES = "tests/attacks/test_lookup_tables.py::test_answers_in_the_weights_show_on_altered_copies"


@dataclass(frozen=True)
class Cheat:
    """One cheat.

    Args:
        end: prevented (the figure is an honest model's), or labelled (the result says what was found).
        how: the mechanism that prevents or labels it.
        tests: ids of the tests that try it.
    """

    name: str
    end: str
    how: str
    tests: tuple[str, ...]


CHEATS = (
    Cheat("training on the raw test labels", PREVENTED, "training sees only the files of training cases",
          (f"{TEST_NODE_PREFIX}test_training_on_the_raw_test_labels",)),
    Cheat("a table of labels by hash or by appearance", PARTLY, "the Data Engineer's other files are gone; altered copies of "
          "test images", (f"{TEST_NODE_PREFIX}test_a_table_of_labels_by_perceptual_hash", TABLES)),
    Cheat("one-pixel copies of test images", PREVENTED, "the audit rejects them; copies that the index does not name are gone",
          (f"{TEST_NODE_PREFIX}test_altered_copies_of_test_images_in_the_training_index[one pixel]",
           f"{TEST_NODE_PREFIX}test_copies_behind_the_index")),
    Cheat("edits of the index after the lock", LABELLED, "hashes; m3b measures with the locked copy",
          (f"{TAMPERED}test_the_index_is_changed_after_the_lock",)),
    Cheat("another split between audit and lock", PREVENTED, "the audited copy is the locked one",
          (f"{TEST_NODE_PREFIX}test_an_index_that_is_swapped_while_it_is_audited",)),
    Cheat("another model between measuring and delivery", PREVENTED, "the measured copy is the delivered one; a change of it "
          "ends the run", (f"{FROZEN}test_what_is_measured_is_what_is_delivered",
                           f"{FROZEN}test_a_measured_model_that_changes_is_not_delivered")),
    Cheat("an own metrics file", PREVENTED, "m3b computes its figures and overwrites the file",
          (f"{TEST_NODE_PREFIX}test_own_metrics_and_a_patched_m3b_gain_nothing",)),
    Cheat("a patched m3b, or patched templates", PREVENTED, "both are out of reach; planted modules are not imported",
          (f"{TEST_NODE_PREFIX}test_own_metrics_and_a_patched_m3b_gain_nothing",
           "tests/attacks/test_attack_escapes.py::test_modules_that_a_script_plants_are_not_imported",
           "tests/attacks/test_attack_escapes.py::test_writes_outside")),
    Cheat("memory of m3b's process", PREVENTED, "a filter of system calls; only the sandbox's own /proc",
          ("tests/attacks/test_attack_escapes.py::test_calls_that_reach_the_kernel_or_others",)),
    Cheat("times, inode numbers and order of files", PREVENTED, "fresh copies in random order with one time; files from 64 MiB "
          "are links, which keep both, if together they exceed 8 GiB and blocks cannot be shared",
          ("tests/models/test_staging.py::test_files_tell_neither_by_time_nor_by_number",)),
    Cheat("near-copies on both sides of the split", PARTLY.replace("hidden in derived images", "the archive has them"),
          "the audit rejects derived ones; those of the archive are a warning in audit and model card",
          (f"{TEST_NODE_PREFIX}test_altered_copies_of_test_images_in_the_training_index[noise]",
           "tests/audit/test_audit_findings.py::test_nearly_the_same_image_on_both_sides",
           "tests/audit/test_audit_findings.py::test_an_altered_copy_that_a_script_made_goes_back")),
    Cheat("answers in the weights", LABELLED, "altered copies of test images get other answers", (TABLES,)),
)  # fmt: skip


def table(outcomes: dict[str, str] | None = None, cheats: tuple[Cheat, ...] = CHEATS, kind: str = "cheat") -> str:
    """Markdown: a cheat a line; with outcomes of tests by id a column for them."""
    head = [kind, "end", "by what", *(["tests"] if outcomes is not None else [])]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for cheat in cheats:
        cells = [cheat.name, cheat.end, cheat.how]
        if outcomes is not None:
            cells.append(_format_outcome([outcomes[node] for node in outcomes if _of(node, cheat)]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _of(node: str, cheat: Cheat) -> bool:
    return any(node == test or node.startswith(f"{test}[") for test in cheat.tests)


def _format_outcome(ends: list[str]) -> str:
    passed, failed = ends.count("passed"), ends.count("failed")
    return f"{passed} passed" + (f", {failed} FAILED" if failed else "") if passed or failed else "not run"


class Outcomes:
    """A pytest plug-in that writes down how each test ended."""

    def __init__(self, file: Path) -> None:
        self.file, self.ends = file, dict[str, str]()

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "when", "") == "call" or getattr(report, "failed", False):
            self.ends[getattr(report, "nodeid", "")] = getattr(report, "outcome", "")

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps(self.ends))


def main() -> int:
    """Run the tests of all cheats and print the table; 1 where one failed or could not be run."""
    tests = sorted({test for cheat in CHEATS for test in cheat.tests})
    with tempfile.TemporaryDirectory(prefix="m3b-cheats-") as place:
        file = Path(place, "ends.json")
        program = (
            "import pathlib, sys, pytest; from attacks.cheats import Outcomes; "
            "sys.exit(pytest.main(sys.argv[2:], plugins=[Outcomes(pathlib.Path(sys.argv[1]))]))"
        )
        options = ["-o", "addopts=", "-q", "-p", "no:cacheprovider", f"--basetemp={place}/tests"]
        subprocess.run(
            [sys.executable, "-c", program, str(file), *options, *tests],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}, stdout=sys.stderr, check=False,
        )  # fmt: skip
        ends: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    print(table(ends))
    complete = all(any(node == test or node.startswith(f"{test}[") for node in ends) for test in tests)
    return int("failed" in ends.values() or not complete)
