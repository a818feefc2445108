"""Before training: a person says whether the data is read rightly, or gives another reading, with which the run goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from m3b.agents.artifacts import DataIndex, Selection, kind_of, to_json
from m3b.agents.verdict import accepted
from m3b.data.audit_common import told_patients
from m3b.errors import Declined, WrongUse
from m3b.events import HandedOver, Noted
from m3b.run.acceptance import NEAREST, PAGE, READING
from m3b.run.context import RunContext
from m3b.run.performing import Performer
from m3b.run.stages import IndexStage

YES = ("yes", "y", "ja", "j", "oui", "si", "sí", "ok")
NO = ("no", "n", "nein", "non")
MAX_LINES, MAX_LINE = 10, 300
"""Of what was read, in the question."""
MAX_ASKED = 8
"""Answers that are neither, until the run ends."""


def confirm(run: RunContext, performer: Performer, stage: IndexStage) -> None:
    """Ask the user whether selection and index are as he wants them, where he is to be asked; what he wants is written down.

    Raises:
        Declined: the answer is no, or there is none.
    """
    ask, data = run.hooks.ask, run.made(DataIndex)
    if data.confirmed or ask is None or not (run.options.confirm is True or (run.options.confirm and data.weak)):
        return
    problem = ""
    for _ in range(MAX_ASKED):
        answer = (ask(question(run, run.made(Selection), run.made(DataIndex), problem)) or "").strip()
        if answer.casefold() in NO:
            raise Declined(f"Nothing was trained: the reading of the data was declined. {_describe_next_steps(run)}")
        if answer.casefold() in YES:
            performer.keep(stage, accepted(replace(run.made(DataIndex), confirmed=answer[:MAX_LINE])))
            return
        try:
            _apply_edited_manifest(run, performer, stage, Path(answer).expanduser() if answer else None)
            problem = ""
        except WrongUse as error:
            problem = str(error)
    raise Declined(f"Nothing was trained: nobody said whether the data is read rightly. {_describe_next_steps(run)}")


def question(run: RunContext, selection: Selection, data: DataIndex, fault: str = "") -> str:
    """What was read in some ten lines, where it can be seen and edited, and what may be answered."""
    lines = [fault, ""] if fault else []
    lines += [
        "Is the data read rightly?",
        *(f"  {line[:MAX_LINE]}" for line in read_lines(selection, data)[:MAX_LINES]),
    ]
    if data.weak:
        lines.append(f"To be decided: {data.weak}")
    lines.append(f"Page with examples: {run.folder.folder / PAGE}")
    manifest_file = _find_manifest_file(run)
    if manifest_file is None:
        lines.append("The index was not made from a reading.")
    elif manifest_file.name == READING:
        lines.append(f"The reading as JSON: {manifest_file}")
    else:
        lines.append(
            f"A script made the index and no reading says the same; the best that was proposed: {manifest_file}"
        )
    return "\n".join([*lines, "Answer yes (train), no (end here), or the path of an edited reading."])


def read_lines(selection: Selection, data: DataIndex) -> list[str]:
    """Task, classes, cases, patients, and what became of the files."""
    counts = {name: sum(split.get(name, 0) for split in data.counts.values()) for name in data.classes}
    classes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    split_lines = [
        f"{data.cases.get(split, 0):,} cases for {word} ({told_patients(data.patients.get(split, 0), known=data.patients_known)})"
        for split, word in (("train", "training"), ("test", "testing"))
    ]
    grouping_lines = [f"Kept together by {data.grouped_by}."] if data.grouped_by else []
    return [f"{selection.task}: {classes or 'no classes'}", *split_lines, *grouping_lines, *data.read]


def _apply_edited_manifest(run: RunContext, stage_runner: Performer, stage: IndexStage, file: Path | None) -> None:
    """Selection and index by a reading that the user edited, written down in place of what the journal held.

    Raises:
        WrongUse: it cannot be used; the index at hand stands.
    """
    from m3b.run.given import given_from, try_out

    selection, card = run.made(Selection), run.card
    if file is None or not file.is_file():
        raise WrongUse(f"{'An empty answer' if file is None else repr(str(file))} is neither yes nor no nor a file.")
    overrides = given_from(file, None)
    if overrides is None or overrides.index is None or card.path is None:
        raise WrongUse("The data is not on this machine, so that no reading of it can be executed.")
    if overrides.index.task != selection.task:
        raise WrongUse(
            f"{file} is for {overrides.index.task}; this run is for {selection.task}. Start another one for that."
        )
    try_out(overrides, card.path, run.sandbox)
    new_selection = replace(selection, classes=overrides.index.classes or selection.classes)
    check_result = run.inspector.read_again(new_selection, card, overrides)
    if not isinstance(check_result.artifact, DataIndex) or not check_result.accepted:
        raise WrongUse(f"{file} is not accepted: {' '.join(check_result.reasons)}")
    run.emit(Noted(f"The user gave another reading of the data: {file}"))
    if new_selection != selection:
        run.emit(HandedOver(kind_of(Selection), to_json(new_selection)))
    stage_runner.keep(stage, accepted(check_result.artifact))


def _find_manifest_file(run: RunContext) -> Path | None:
    """The accepted reading, or the nearest that was proposed; None where there is neither."""
    candidates = (run.folder.folder / name for name in (READING, NEAREST))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _describe_next_steps(run: RunContext) -> str:
    manifest_file = _find_manifest_file(run) or "a reading (`m3b look -o` writes one)"
    return f"Edit {manifest_file}; `{run.folder.command('resume')}` asks again and takes its path, and a new run takes it as --index."
