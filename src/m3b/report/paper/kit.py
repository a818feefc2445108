"""Write a paper kit, and compare one with the facts of its run."""

from __future__ import annotations

import difflib
import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import m3b
from m3b.errors import UsageError
from m3b.isolation import untrusted
from m3b.markup.json_values import as_dict
from m3b.report.paper.checklists import CHECKLISTS
from m3b.report.paper.documents import (
    answer_items,
    build_documents,
    render_latex,
    render_main_latex,
    render_markdown,
)
from m3b.report.paper.facts import MAX_JSON_BYTES, PaperFacts, collect_facts
from m3b.report.paper.flow import build_flow, render_flow_latex, render_flow_markdown, render_flow_svg
from m3b.writing import json_text, write_text_atomically

FACTS_FILE, MAIN_LATEX_FILE = "facts.json", "paper.tex"
KIT_FORMAT = 1
MAX_DOCUMENT_BYTES = 16 * 2**20

KitCode = Literal[
    "paper_facts_unreadable", "paper_fact_changed", "paper_number_changed", "paper_number_added", "paper_number_removed",
    "paper_other_version",
]  # fmt: skip
"""What a comparison can find. `paper_number_added` and `paper_number_removed` are text of the authors, not errors."""
CHANGE_CODES: tuple[KitCode, ...] = ("paper_facts_unreadable", "paper_fact_changed", "paper_number_changed")
"""Codes that mean that the kit no longer agrees with the run."""


@dataclass(frozen=True)
class PaperKit:
    """A written paper kit.

    Args:
        files: its files, relative to `folder`.
        answered_items: title of a checklist -> (number of items with text from the run, number of items).
    """

    folder: Path
    files: tuple[str, ...]
    answered_items: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class KitFinding:
    """One difference between a kit and its run."""

    code: KitCode
    file: str
    detail: str

    @property
    def is_change(self) -> bool:
        return self.code in CHANGE_CODES


def is_paper_kit(folder: Path) -> bool:
    """Return whether a folder holds a paper kit."""
    try:
        return "paper_kit" in _read_facts_file(folder)
    except (OSError, ValueError, RecursionError):
        return False


def find_run_of_kit(folder: Path) -> Path:
    """Return the run folder that a kit names.

    Raises:
        UsageError: the kit names none.
    """
    run_dir = as_dict(_read_facts_file(folder).get("paper_kit")).get("run_dir")
    if not isinstance(run_dir, str):
        raise UsageError(f"{folder / FACTS_FILE} names no run. Name the run, and the kit with --paper.")
    return Path(run_dir)


# --- writing -------------------------------------------------------------------------------------------------------


def write_paper_kit(run_dir: Path, folder: Path) -> PaperKit:
    """Write methods, flow diagram, Table 1, results and checklists of a finished run, and the facts behind them.

    Existing files of a kit are replaced; other files of the folder stay.

    Raises:
        UsageError: the run has no accepted measurement, `folder` is no folder, or it holds files of another origin.
    """
    facts = collect_facts(run_dir)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder. Name a folder for the paper kit.")
    if folder.is_dir() and any(folder.iterdir()) and not is_paper_kit(folder):
        raise UsageError(f"{folder} holds other files. Name an empty folder, or that of an earlier paper kit.")
    contents = render_kit(facts)
    folder.mkdir(parents=True, exist_ok=True)
    contents[FACTS_FILE] = _render_facts(facts, run_dir)
    for name, text in contents.items():
        write_text_atomically(folder / name, text, errors="replace")
    answered_items = {}
    for checklist in CHECKLISTS:
        answers = answer_items(checklist, facts)
        answered_items[checklist.title] = (sum(bool(item.answer) for item in answers), len(answers))
    return PaperKit(folder, tuple(contents), answered_items)


def render_kit(facts: PaperFacts) -> dict[str, str]:
    """Return the text of every document by file name."""
    contents: dict[str, str] = {}
    for name, document in build_documents(facts).items():
        contents[f"{name}.md"], contents[f"{name}.tex"] = render_markdown(document), render_latex(document)
        if name == "methods":
            steps = build_flow(facts)
            contents["flow.svg"] = render_flow_svg(steps)
            contents["flow.md"], contents["flow.tex"] = render_flow_markdown(steps), render_flow_latex(steps)
    contents[MAIN_LATEX_FILE] = render_main_latex([name for name in contents if name.endswith(".tex")])
    return contents


def _render_facts(facts: PaperFacts, run_dir: Path) -> str:
    kit = {"format": KIT_FORMAT, "m3b": m3b.__version__, "run": facts.run_id, "run_dir": str(run_dir.absolute())}
    values = {name: fact.to_dict() for name, fact in facts.facts.items()}
    return json_text({"paper_kit": kit, "facts": values}, indent=1) + "\n"


# --- comparing -----------------------------------------------------------------------------------------------------


def compare_paper_kit(folder: Path, run_dir: Path) -> list[KitFinding]:
    """Return the differences between a kit and the facts of its run, computed once more.

    Numbers of the documents are compared where the text around them is that of m3b, so authors may edit the rest.

    Raises:
        UsageError: the facts of the run cannot be collected.
    """
    try:
        content = _read_facts_file(folder)
    except (OSError, ValueError, RecursionError) as error:
        return [KitFinding("paper_facts_unreadable", FACTS_FILE, f"it cannot be read: {error}")]
    facts = collect_facts(run_dir)
    findings = list(_compare_facts(as_dict(content.get("facts")), facts))
    version = as_dict(content.get("paper_kit")).get("m3b")
    if version != m3b.__version__:
        detail = f"the kit was written by m3b {version}, so its text was not compared; write it once more"
        return [*findings, KitFinding("paper_other_version", FACTS_FILE, detail)]
    for name, expected in render_kit(facts).items():
        try:
            text = untrusted.read_text(folder, name, MAX_DOCUMENT_BYTES)
        except (OSError, ValueError):
            continue  # the authors may use a part of the kit
        findings += compare_numbers(name, expected, text)
    return findings


def _read_facts_file(folder: Path) -> dict[str, Any]:
    return as_dict(json.loads(untrusted.read_text(folder, FACTS_FILE, MAX_JSON_BYTES)))


def _compare_facts(recorded: dict[str, Any], facts: PaperFacts) -> Iterator[KitFinding]:
    current = {name: json.loads(json.dumps(fact.to_dict())) for name, fact in facts.facts.items()}
    for name in dict.fromkeys([*current, *recorded]):
        recorded_fact, current_fact = as_dict(recorded.get(name)), as_dict(current.get(name))
        if recorded_fact != current_fact:
            source = current_fact.get("source") or recorded_fact.get("source")
            recorded_text, current_text = (fact.get("text", "missing") for fact in (recorded_fact, current_fact))
            detail = f"{name} is {current_text} in {source}, and {recorded_text} in the kit"
            yield KitFinding("paper_fact_changed", FACTS_FILE, detail)


_TOKEN = re.compile(r"(?:(?<![\w.,)])-)?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?|[^\W\d]+|[^\w\s]")
_TAG = re.compile(r"<[^>]*>")


def compare_numbers(file: str, expected: str, text: str) -> list[KitFinding]:
    """Return the numbers of a document that differ from those of the expected text, line by line.

    A line that lost numbers and got others, or the same in another order, was changed; if it only lost or only got some,
    an author has shortened or extended it.
    """
    if expected == text:
        return []
    expected_tokens, tokens = (_tokenize(file, content) for content in (expected, text))
    matcher = difflib.SequenceMatcher(
        None, [token for token, _ in expected_tokens], [token for token, _ in tokens], autojunk=False
    )
    differences: dict[int, _LineDifference] = {}
    for operation, first, last, other_first, other_last in matcher.get_opcodes():
        if operation == "equal":
            continue
        removed = _count_numbers(expected_tokens[first:last])
        added = _count_numbers(tokens[other_first:other_last])
        if removed == added:
            continue
        expected_line = expected_tokens[first - 1 if operation == "insert" else first][1] if expected_tokens else 1
        line = tokens[min(other_first, len(tokens) - 1)][1] if tokens else 1
        difference = differences.setdefault(expected_line, _LineDifference(line))
        difference.removed += removed
        difference.added += added
    return [difference.describe(file) for difference in differences.values()]


@dataclass
class _LineDifference:
    """Numbers that a line lost and got."""

    line: int
    removed: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)

    def describe(self, file: str) -> KitFinding:
        removed_text, added_text = (", ".join(counter.elements()) for counter in (self.removed, self.added))
        if not self.removed:
            return KitFinding("paper_number_added", file, f"line {self.line}: {added_text} is not from the run")
        if not self.added:
            return KitFinding("paper_number_removed", file, f"line {self.line}: {removed_text} was removed")
        if self.removed == self.added:
            return KitFinding("paper_number_changed", file, f"line {self.line}: {added_text} stand in another place")
        return KitFinding("paper_number_changed", file, f"line {self.line}: {added_text}, and not {removed_text}")


def _tokenize(file: str, content: str) -> list[tuple[str, int]]:
    """Return the words, numbers and signs of a document with their lines; of a drawing, those of its texts."""
    tokens = []
    for number, line in enumerate(content.splitlines(), start=1):
        line_text = html.unescape(_TAG.sub(" ", line)) if file.endswith(".svg") else line
        tokens += [(token, number) for token in _TOKEN.findall(line_text)]
    return tokens


def _count_numbers(tokens: Sequence[tuple[str, int]]) -> Counter[str]:
    return Counter(token for token, _ in tokens if token.lstrip("-")[:1].isdigit())
