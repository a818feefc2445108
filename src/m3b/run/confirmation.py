"""Confirmation of the index by a person before training, who may also give another manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from m3b.agents.artifacts import DataIndex, Selection
from m3b.data.audit_common import told_patients
from m3b.errors import TrainingDeclined, UsageError
from m3b.events import NoteAdded
from m3b.run.folder import RunFolder
from m3b.run.index_validation import MANIFEST_FILE, PLAN_PAGE_FILE, PROPOSED_MANIFEST_FILE, revalidate_index
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
        try:
            _apply_edited_manifest(state, services, Path(answer).expanduser() if answer else None)
            problem = ""
        except UsageError as error:
            problem = str(error)
    raise TrainingDeclined(
        f"Nothing was trained: nobody said whether the data is read rightly. {_describe_next_steps(services.folder)}"
    )


def format_question(run: RunFolder, selection: Selection, data: DataIndex, problem: str = "") -> str:
    """Return the question: ten lines on how the data is read, where to see and edit it, and the possible answers."""
    lines = [problem, ""] if problem else []
    lines += [
        "Is the data read rightly?",
        *(f"  {line[:MAX_LINE_CHARS]}" for line in format_index_lines(selection, data)[:MAX_LINES]),
    ]
    if data.weak:
        lines.append(f"To be decided: {data.weak}")
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
    return "\n".join([*lines, "Answer yes (train), no (end here), or the path of an edited manifest."])


def format_index_lines(selection: Selection, data: DataIndex) -> list[str]:
    """Return lines on task, classes, cases, patients, and which files were used."""
    counts = {name: sum(split.get(name, 0) for split in data.counts.values()) for name in data.classes}
    classes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    split_lines = [
        f"{data.cases.get(split, 0):,} cases for {word} ({told_patients(data.patients.get(split, 0), known=data.patients_known)})"
        for split, word in (("train", "training"), ("test", "testing"))
    ]
    grouping_lines = [f"Kept together by {data.grouped_by}."] if data.grouped_by else []
    return [f"{selection.task}: {classes or 'no classes'}", *split_lines, *grouping_lines, *data.read]


def _apply_edited_manifest(state: RunState, services: RunServices, file: Path | None) -> None:
    """Make selection and index from a manifest that the user edited, and record them in place of the previous ones.

    Raises:
        UsageError: the manifest cannot be used; the previous index is kept.
    """
    from m3b.run.overrides import parse_overrides, validate_overrides

    selection = state.get_artifact(Selection)
    card = services.card_of(selection)
    if file is None or not file.is_file():
        raise UsageError(f"{'An empty answer' if file is None else repr(str(file))} is neither yes nor no nor a file.")
    overrides = parse_overrides(file, None)
    if overrides is None or overrides.index is None or card.path is None:
        raise UsageError("The data is not on this machine, so that no manifest of it can be executed.")
    if overrides.index.task != selection.task:
        raise UsageError(
            f"{file} is for {overrides.index.task}; this run is for {selection.task}. Start another one for that."
        )
    validate_overrides(overrides, card.path, services.sandbox)
    new_selection = replace(selection, classes=overrides.index.classes or selection.classes)
    check_result = revalidate_index(services, new_selection, overrides)
    if not isinstance(check_result.artifact, DataIndex) or not check_result.is_accepted:
        raise UsageError(f"{file} is not accepted: {' '.join(check_result.user_messages)}")
    services.emit(NoteAdded(f"The user gave another manifest of the data: {file}"))
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
