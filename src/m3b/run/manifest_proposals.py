"""Decisions on the data folders of a run: for the selection of one, and the proposals that the Data Engineer is given.

Folders are surveyed in the confined reader (`m3b.dataset.jobs`), without a network, with the folder read-only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import Selection
from m3b.agents.proposal_text import format_survey_lines
from m3b.data.cards import Card
from m3b.dataset.jobs import PROPOSALS_FOLDER
from m3b.errors import DataRejected
from m3b.events import NoteAdded, StepStarted
from m3b.facts import SurveySummary
from m3b.isolation.untrusted import write_atomic
from m3b.run.decision import SURVEY_FAILED, Decision, decide, decide_by_manifest, make_decision_job, manifest_tasks
from m3b.run.manifests import (
    ASSUMPTIONS_FILE,
    DOUBT_FILE,
    EVIDENCE_FILE,
    JOB_FILE,
    PROPOSALS_FILE,
    ask_reader,
    store_survey_file,
)

if TYPE_CHECKING:
    from m3b.run.services import RunServices


def survey_card(services: RunServices, card: Card) -> SurveySummary:
    """Survey all files of a data set and decide how it is read for the request; emit both as a note.

    The summary is empty if the survey fails or the user gave a whole manifest.
    """
    overrides = services.overrides
    if card.path is None or not card.path.is_dir() or (overrides is not None and overrides.manifest is not None):
        return SurveySummary()
    decision = _decide_card(services, card, card.path)
    if decision.code == SURVEY_FAILED and not decision.lines:
        return SurveySummary(chosen=decision.summary if overrides is not None else None)
    others = {proposal.manifest["task"]: proposal for proposal in reversed(decision.proposals)}
    others.pop(decision.task, None)
    readings = [Decision("ask", task, (proposal,)).summary for task, proposal in others.items()]
    summary = SurveySummary(lines=decision.lines, readings=(decision.summary, *readings), chosen=decision.summary)
    services.emit(NoteAdded("\n".join([f"m3b read in data/{card.root}:", *format_survey_lines(summary)])))
    return summary


def _decide_card(
    services: RunServices, card: Card, root: Path, *, tasks: Sequence[str] = (), classes: Sequence[str] = ()
) -> Decision:
    """Return the decision on a card's folder, made once a process for the same question."""
    job = make_decision_job(services.request, card, services.overrides, tasks=tasks, classes=classes)
    key = json.dumps([card.root, job], sort_keys=True)
    if key not in services.decisions:
        services.emit(StepStarted("surveying the data folder"))
        services.decisions[key] = decide(lambda job: ask_reader(services, job, root), job)
    return services.decisions[key]


def propose_manifests(services: RunServices, selection: Selection) -> Decision:
    """Return the decision on the selected folder, and write its proposals to `work/Datapath/proposals`.

    A folder that cannot be surveyed is noted and gives no proposals.

    Raises:
        DataRejected: the survey failed and the user gave overrides.
    """
    card, overrides = services.card_of(selection), services.overrides
    if card.path is None or not card.path.is_dir():
        return Decision("refuse", selection.task, text="The data is not on this machine.")
    if overrides is not None and overrides.manifest is not None:
        return _write_proposals(services, decide_by_manifest(overrides.manifest))
    if selection.task not in manifest_tasks():
        return Decision("ask", selection.task, text=f"No manifest can be for {selection.task}: write the index files.")
    decision = _decide_card(services, card, card.path)
    if decision.task != selection.task or selection.classes:
        decision = _decide_card(services, card, card.path, tasks=[selection.task], classes=selection.classes)
    store_survey_file(
        services.folder,
        JOB_FILE,
        make_decision_job(services.request, card, overrides, tasks=[selection.task], classes=selection.classes),
    )
    if decision.code == SURVEY_FAILED:
        if overrides is not None:
            raise DataRejected(decision.text)
        services.emit(NoteAdded(decision.text))
        return decision
    return _write_proposals(services, decision)


def _write_proposals(services: RunServices, decision: Decision) -> Decision:
    """Write the proposals where agents find them, and return the decision with their files."""
    run = services.folder
    proposals = []
    for number, proposal in enumerate(decision.proposals, start=1):
        name = f"{PROPOSALS_FOLDER}/{number}.json"
        write_atomic(run.work, name, json.dumps(proposal.manifest, indent=1, ensure_ascii=False).encode())
        proposals.append(proposal.model_copy(update={"file": name}))
    values: list[dict[str, Any]] = [proposal.model_dump(mode="json", exclude={"file"}) for proposal in proposals]
    store_survey_file(run, PROPOSALS_FILE, [proposal.manifest for proposal in proposals])
    store_survey_file(run, EVIDENCE_FILE, values)
    store_survey_file(run, DOUBT_FILE, decision.text)
    store_survey_file(run, ASSUMPTIONS_FILE, list(decision.assumptions))
    return replace(decision, proposals=tuple(proposals))
