"""Confirmation of the index by a person before training, who may also give another manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.data.index import format_patient_count
from m3b.errors import TrainingDeclined, UsageError
from m3b.events import NoteAdded
from m3b.isolation import untrusted
from m3b.run.folder import RunFolder
from m3b.run.index_validation import MANIFEST_FILE, PLAN_PAGE_FILE, PROPOSED_MANIFEST_FILE, revalidate_index
from m3b.run.manifests import list_displayed_proposals
from m3b.run.services import RunServices
from m3b.run.state import RunState

YES_WORDS = ("yes", "y", "ja", "j", "oui", "si", "sí", "ok")
NO_WORDS = ("no", "n", "nein", "non")
MAX_LINES, MAX_LINE_CHARS = 10, 300
"""Size of the description of the data in the question."""
MAX_QUESTIONS = 8
"""Number of times the question is asked before the run ends without an answer."""


def confirm_index(state: RunState, services: RunServices) -> None:
    """Ask the user to confirm selection and index if the options say so; record the answer or the edited manifest.

    Raises:
        TrainingDeclined: the answer is no, or there is no answer.
    """
    ask, data = services.hooks.ask, state.get_artifact(DataIndex)
    if (
        data.confirmed
        or ask is None
        or not (services.options.confirm is True or (services.options.confirm and data.weak))
    ):
        return
    problem = ""
    for _ in range(MAX_QUESTIONS):
        answer = (
            ask(format_question(services.folder, state.get_artifact(Selection), state.get_artifact(DataIndex), problem))
            or ""
        ).strip()
        if answer.casefold() in NO_WORDS:
            raise TrainingDeclined(
                f"Nothing was trained: the manifest of the data was declined. {_describe_next_steps(services.folder)}"
            )
        if answer.casefold() in YES_WORDS:
            services.record_artifact(
                DataIndex, replace(state.get_artifact(DataIndex), confirmed=answer[:MAX_LINE_CHARS])
            )
            return
        alternatives = list_alternatives(services.folder, state.get_artifact(Selection).task)
        try:
            if answer.isdecimal() and answer != "1":
                _apply_manifest(state, services, _get_alternative(alternatives, answer), f"proposal {answer}")
            elif answer == "1":
                services.record_artifact(DataIndex, replace(state.get_artifact(DataIndex), confirmed=answer))
                return
            else:
                _apply_manifest(state, services, _find_file(answer), answer)
            problem = ""
        except UsageError as error:
            problem = str(error)
    raise TrainingDeclined(
        f"Nothing was trained: nobody said whether the data is read rightly. {_describe_next_steps(services.folder)}"
    )


def format_question(run: RunFolder, selection: Selection, data: DataIndex, problem: str = "") -> str:
    """Return the question: how the data is read, other ways to read it, where to see and edit it, and the answers."""
    lines = [problem, ""] if problem else []
    lines += [
        "Is the data read rightly?",
        *(f"  {line[:MAX_LINE_CHARS]}" for line in format_index_lines(selection, data)[:MAX_LINES]),
    ]
    if data.weak:
        lines.append(f"To be decided: {replace_placeholders(data.weak)}")
    alternatives = list_alternatives(run, selection.task)
    if alternatives:
        lines.append("Other ways to read it:")
    for number, proposal in enumerate(alternatives, start=FIRST_ALTERNATIVE):
        description = replace_placeholders(f"{proposal['title']}; {proposal.get('expected', '')}".rstrip("; "))
        lines.append(f"  {number}  {description[:MAX_LINE_CHARS]}")
    lines.append(f"Page with examples: {run.get_path(PLAN_PAGE_FILE)}")
    manifest_file = _find_manifest_file(run)
    if manifest_file is None:
        lines.append("The index was not made from a manifest.")
    elif manifest_file == run.get_path(MANIFEST_FILE):
        lines.append(f"The manifest as JSON: {manifest_file}")
    else:
        lines.append(
            f"A script made the index and no manifest says the same; the best that was proposed: {manifest_file}"
        )
    last_number = FIRST_ALTERNATIVE + len(alternatives) - 1
    numbers = "" if not alternatives else ", 2" if len(alternatives) == 1 else f", 2 to {last_number}"
    another_way = f"{numbers} (another way)" if alternatives else ""
    return "\n".join([*lines, f"Answer yes (train), no (end here){another_way}, or the path of an edited manifest."])


def format_index_lines(selection: Selection, data: DataIndex) -> list[str]:
    """Return lines on task, classes, cases, patients, and which files were used."""
    counts = {name: sum(split.get(name, 0) for split in data.counts.values()) for name in data.classes}
    classes = ", ".join(f"{name}: {count:,}" for name, count in counts.items())
    patients = {name: format_patient_count(n, known=data.patients_known) for name, n in data.patients.items()}
    split_lines = [
        f"{data.cases.get(split, 0):,} cases for {word} ({patients.get(split, 'no patients')})"
        for split, word in (("train", "training"), ("test", "testing"))
    ]
    grouping_lines = [f"Kept together by {replace_placeholders(data.grouped_by)}."] if data.grouped_by else []
    sentences = (replace_placeholders(line) for line in data.read)
    return [
        *data.assumptions,
        f"{selection.task}: {classes or 'no classes'}",
        *split_lines,
        *grouping_lines,
        *sentences,
    ]


PLACEHOLDER = re.compile(r"(?<![^\s,;:(])\{([A-Za-z_][^{}]*)\}(?![^\s,;:.)])|(?:\{[A-Za-z_][^{}]*\})+")


def replace_placeholders(text: str) -> str:
    """Return a text for people: a column in braces is its name, and file patterns have `*`, as in shells.

    `by {labels.finding}` becomes `by labels.finding`, `{level0}/{name:word}.png` becomes `*/*.png`.
    """
    return PLACEHOLDER.sub(lambda match: match[1] or "*", text)


FIRST_ALTERNATIVE = 2
"""Number of the first proposal that was not taken; 1 is the manifest at hand."""
MAX_ALTERNATIVES = 4


def list_alternatives(run: RunFolder, task: str) -> list[dict[str, Any]]:
    """Return the proposals for a task that differ from the manifest at hand, the best first."""
    try:
        accepted = untrusted.read_json(run.path, run.get_path(MANIFEST_FILE).name)
    except (OSError, ValueError):
        accepted = None
    proposals = list_displayed_proposals(run, accepted)[1:]
    return [item for item in proposals if item.get("manifest") and item["manifest"].get("task", task) == task][
        :MAX_ALTERNATIVES
    ]


def _get_alternative(alternatives: Sequence[Mapping[str, Any]], answer: str) -> Mapping[str, Any]:
    """Return the manifest of the alternative with a number.

    Raises:
        UsageError: there is none.
    """
    position = int(answer) - FIRST_ALTERNATIVE
    if not 0 <= position < len(alternatives):
        last_number = FIRST_ALTERNATIVE + len(alternatives) - 1
        raise UsageError(f"There is no way {answer} to read the data; the numbers are 1 to {last_number}.")
    manifest: Mapping[str, Any] = alternatives[position]["manifest"]
    return manifest


def _find_file(answer: str) -> Path:
    """Return the file that an answer names.

    Raises:
        UsageError: it names none.
    """
    if not answer or not Path(answer).expanduser().is_file():
        raise UsageError(
            f"{repr(answer) if answer else 'An empty answer'} is neither yes nor no nor a number nor a file."
        )
    return Path(answer).expanduser()


def _apply_manifest(state: RunState, services: RunServices, manifest: Path | Mapping[str, Any], name: str) -> None:
    """Make selection and index from another manifest, and record them in place of the previous ones.

    Args:
        manifest: a file that the user edited, or the values of a proposal.
        name: what messages call it.

    Raises:
        UsageError: the manifest cannot be used; the previous index is kept.
    """
    from m3b.run.overrides import list_classes, parse_overrides, validate_overrides

    selection = state.get_artifact(Selection)
    card = services.card_of(selection)
    overrides = parse_overrides(manifest, None)
    if overrides is None or overrides.manifest is None or card.path is None:
        raise UsageError("The data is not on this machine, so that no manifest of it can be executed.")
    if overrides.manifest.task != selection.task:
        raise UsageError(
            f"{name} is for {overrides.manifest.task}; this run is for {selection.task}. Start another one for that."
        )
    validate_overrides(overrides, card.path, services.sandbox)
    new_selection = replace(selection, classes=list_classes(overrides.manifest) or selection.classes)
    check_result = revalidate_index(services, new_selection, overrides)
    if not isinstance(check_result.artifact, DataIndex) or not check_result.is_accepted:
        raise UsageError(f"{name} is not accepted: {' '.join(check_result.user_messages)}")
    services.emit(NoteAdded(f"The user gave another manifest of the data: {name}"))
    if new_selection != selection:
        services.record_artifact(Selection, new_selection)
    services.record_artifact(DataIndex, check_result.artifact)


def _find_manifest_file(run: RunFolder) -> Path | None:
    """Return the file of the accepted manifest, else of the best proposed one; None if there is neither."""
    candidates = (run.get_path(name) for name in (MANIFEST_FILE, PROPOSED_MANIFEST_FILE))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _describe_next_steps(run: RunFolder) -> str:
    manifest_file = _find_manifest_file(run) or "a manifest (`m3b look -o` writes one)"
    return (
        f"Edit {manifest_file}; `{run.format_command('resume')}` asks again and takes its path, and a new "
        f"run takes it as --manifest."
    )
