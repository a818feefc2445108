"""What briefings say of how m3b reads a folder: ten lines before anything is chosen, then the proposed readings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import shorten

from m3b.briefs import FolderRead, ProposedReading, TaskReading
from m3b.data.cards import Card
from m3b.data.spec.places import SPEC
from m3b.data.spec.proposals import ENOUGH
from m3b.tools.phi import scrub
from m3b.writing import inert, one_line

MAX_TASKS, MAX_LINE = 3, 260
"""Tasks whose best reading is told, and characters of each line."""

INDEXING = "templates/indexing"
READINGS = "## Proposed readings"
TAKE = (
    "`score` (0 to 1) is how well what was measured in the folder and the words of the request bear a reading out; "
    f"`sufficient` marks the one that may be taken as it is: {ENOUGH:g} or more, nothing unclear, and no other reading with "
    "other classes as near; `expected` is what the index would hold, before copies and images that do not open are left out. "
    "What later readings share with the first is not said again. m3b itself keeps copies, and series of nearly the same "
    "picture, on one side.\n"
    f"To take one: copy its file to {SPEC}; m3b then makes the index from it (labels from the data, split, accounting of "
    "every file), and no script is needed. Where it is nearly right, write an edited one there."
)
MAX_SPEC = 2500
"""Characters of a spec that is shown; a longer one (of a hundred classes) is in its file."""
FORM = "indexes/index_spec.md"
NO_SPEC = (
    f"Where no spec can say it: what the indexing script can stands in resources/{INDEXING}/README.md, and the form of index "
    "files in resources/indexes/README.md."
)
SCRIPT = (
    f"Should none of these readings be right: resources/{FORM} says how a spec is written, and "
    f"resources/{INDEXING}/README.md what the indexing script can."
)


STANDS = (
    "The user gave this reading, and it stands: m3b makes the index from it, whatever else is written. Look at what it may "
    "have overlooked if you like, and reply with a sentence."
)


def read_lines(read: FolderRead) -> list[str]:
    """What was read, and which tasks the folder could serve; values of people are masked."""
    best_by_task: dict[str, TaskReading] = {}
    for entry in sorted(read.readings, key=lambda entry: -entry.score):
        best_by_task.setdefault(entry.task, entry)
    # scores of different tasks do not say which task is meant: they are not shown
    task_lines = [f"as {_title(entry)}" for entry in list(best_by_task.values())[:MAX_TASKS]]
    if read.lines and not task_lines:
        task_lines = ["for no task does a reading follow from this: the index would have to be made by a script"]
    return [one_line(entry) for entry in (*read.lines, *task_lines)]


def _title(one: TaskReading) -> str:
    boxes = " with boxes" if one.boxes else ""
    caveat = f"; open: {one.insufficient}" if one.insufficient else ""
    return scrub(shorten(f"{one.task}{boxes}: {one.title}{caveat}", MAX_LINE, placeholder=" ..."))


def folder_told(card: Card, read: FolderRead) -> list[str]:
    """What a survey of all files found, in some ten lines."""
    lines = read_lines(read)
    return (
        ["\n".join([f"m3b read in all files of data/{card.root}:", *(f"- {line}" for line in lines)])] if lines else []
    )


def _short(one: ProposedReading, first: ProposedReading | None) -> ProposedReading:
    """A reading without what was just said: the doubt that is why it is unclear, and what it shares with the first."""
    evidence = dict.fromkeys(one.evidence)
    doubts = [sentence for sentence in one.doubts if sentence != one.unclear]
    if first is not None:
        evidence = {sentence: None for sentence in evidence if sentence not in first.evidence}
        doubts = [sentence for sentence in doubts if sentence not in first.doubts]
    return one.model_copy(update={"evidence": tuple(evidence), "doubts": tuple(doubts)})


def readings_told(readings: Sequence[ProposedReading]) -> list[str]:
    """What a survey of the whole folder proposes, the best with its spec; what names files is masked like previews."""
    if not readings:
        return []
    excluded_keys = {"spec", "given"}
    shortened = [_short(item, None if rank == 0 else readings[0]) for rank, item in enumerate(readings)]
    payload = [
        {key: value for key, value in item.model_dump(mode="json", exclude=excluded_keys).items() if value}
        for item in shortened
    ]
    # what is no part of it is in its file, and said by m3b in any case
    manifest = json.dumps(
        {key: item for key, item in readings[0].spec.items() if key != "left_out"}, ensure_ascii=False
    )
    manifest_text = f"Spec of {readings[0].file}: {inert(scrub(manifest))}\n" if len(manifest) <= MAX_SPEC else ""
    instructions = STANDS if any(item.given for item in readings) else TAKE
    return [
        f"{READINGS}\n{inert(scrub(json.dumps(payload, ensure_ascii=False, indent=1)))}\n{manifest_text}{instructions}"
    ]
