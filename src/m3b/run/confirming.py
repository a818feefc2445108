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
    fault = ""
    for _ in range(MAX_ASKED):
        said = (ask(question(run, run.made(Selection), run.made(DataIndex), fault)) or "").strip()
        if said.casefold() in NO:
            raise Declined(f"Nothing was trained: the reading of the data was declined. {_goes_on(run)}")
        if said.casefold() in YES:
            performer.keep(stage, accepted(replace(run.made(DataIndex), confirmed=said[:MAX_LINE])))
            return
        try:
            _read_again(run, performer, stage, Path(said).expanduser() if said else None)
            fault = ""
        except WrongUse as error:
            fault = str(error)
    raise Declined(f"Nothing was trained: nobody said whether the data is read rightly. {_goes_on(run)}")


def question(run: RunContext, selection: Selection, data: DataIndex, fault: str = "") -> str:
    """What was read in some ten lines, where it can be seen and edited, and what may be answered."""
    told = [fault, ""] if fault else []
    told += ["Is the data read rightly?", *(f"  {line[:MAX_LINE]}" for line in read_lines(selection, data)[:MAX_LINES])]
    if data.weak:
        told.append(f"To be decided: {data.weak}")
    told.append(f"Page with examples: {run.folder.folder / PAGE}")
    spec = _to_edit(run)
    if spec is None:
        told.append("The index was not made from a reading.")
    elif spec.name == READING:
        told.append(f"The reading as JSON: {spec}")
    else:
        told.append(f"A script made the index and no reading says the same; the best that was proposed: {spec}")
    return "\n".join([*told, "Answer yes (train), no (end here), or the path of an edited reading."])


def read_lines(selection: Selection, data: DataIndex) -> list[str]:
    """Task, classes, cases, patients, and what became of the files."""
    counts = {name: sum(part.get(name, 0) for part in data.counts.values()) for name in data.classes}
    classes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    parts = [
        f"{data.cases.get(part, 0):,} cases for {word} ({told_patients(data.patients.get(part, 0), known=data.patients_known)})"
        for part, word in (("train", "training"), ("test", "testing"))
    ]
    grouped = [f"Kept together by {data.grouped_by}."] if data.grouped_by else []
    return [f"{selection.task}: {classes or 'no classes'}", *parts, *grouped, *data.read]


def _read_again(run: RunContext, performer: Performer, stage: IndexStage, file: Path | None) -> None:
    """Selection and index by a reading that the user edited, written down in place of what the journal held.

    Raises:
        WrongUse: it cannot be used; the index at hand stands.
    """
    from m3b.run.given import given_from, try_out

    selection, card = run.made(Selection), run.card
    if file is None or not file.is_file():
        raise WrongUse(f"{'An empty answer' if file is None else repr(str(file))} is neither yes nor no nor a file.")
    given = given_from(file, None)
    if given is None or given.index is None or card.path is None:
        raise WrongUse("The data is not on this machine, so that no reading of it can be executed.")
    if given.index.task != selection.task:
        raise WrongUse(
            f"{file} is for {given.index.task}; this run is for {selection.task}. Start another one for that."
        )
    try_out(given, card.path, run.sandbox)
    changed = replace(selection, classes=given.index.classes or selection.classes)
    verdict = run.inspector.read_again(changed, card, given)
    if not isinstance(verdict.artifact, DataIndex) or not verdict.accepted:
        raise WrongUse(f"{file} is not accepted: {' '.join(verdict.reasons)}")
    run.emit(Noted(f"The user gave another reading of the data: {file}"))
    if changed != selection:
        run.emit(HandedOver(kind_of(Selection), to_json(changed)))
    performer.keep(stage, accepted(verdict.artifact))


def _to_edit(run: RunContext) -> Path | None:
    """The accepted reading, or the nearest that was proposed; None where there is neither."""
    places = (run.folder.folder / name for name in (READING, NEAREST))
    return next((place for place in places if place.is_file()), None)


def _goes_on(run: RunContext) -> str:
    place = _to_edit(run) or "a reading (`m3b look -o` writes one)"
    return f"Edit {place}; `{run.folder.command('resume')}` asks again and takes its path, and a new run takes it as --index."
