"""Proposals of manifests for the data folders of a run, before the Data Engineer begins.

Folders are surveyed in the confined reader (`m3b.data.spec.inside`), without a network, with the folder read-only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from m3b.agents.artifacts import Selection
from m3b.agents.proposal_text import format_survey_lines
from m3b.data import kinds
from m3b.data.cards import Card
from m3b.data.spec.places import OFFERS
from m3b.errors import DataRejected
from m3b.events import NoteAdded, StepStarted
from m3b.facts import ManifestProposal, SurveySummary, TaskProposal
from m3b.isolation.untrusted import write_atomic
from m3b.run.folder import RunFolder
from m3b.run.manifests import (
    CHOICE_FILE,
    DOUBT_FILE,
    EVIDENCE_FILE,
    JOB_FILE,
    PROPOSALS_FILE,
    RIVAL_FILE,
    ask_reader,
    load_survey_file,
    store_survey_file,
)
from m3b.run.proposal_choice import choose_proposal, proposal_job, task_for_card
from m3b.tasks import get_family, list_families

if TYPE_CHECKING:
    from m3b.data.spec.model import IndexSpec
    from m3b.run.services import RunServices


def survey_card(services: RunServices, card: Card) -> SurveySummary:
    """Survey all files of a data set and return the best manifest of each task; emit the summary as a note.

    The answers are kept for `propose_manifests`. The summary is empty if the survey fails or the user gave a whole
    manifest.
    """
    has_whole_manifest = services.overrides is not None and services.overrides.index is not None
    if card.path is None or not card.path.is_dir() or has_whole_manifest:
        return SurveySummary()
    services.emit(StepStarted("surveying the data folder"))
    job, survey_questions = proposal_job(services.request, card, services.overrides), list_survey_questions()
    answer = ask_reader(services, {**job, "do": "overview", "asked": survey_questions}, card.path)
    if "error" in answer and services.overrides is None:
        return SurveySummary()
    if "error" in answer:  # the overrides may fit one task only
        return SurveySummary(chosen=_choose_task(services, card, card.path))
    services.survey_answers += [
        ({**job, "task": task, "boxes": boxes}, proposed)
        for (task, boxes), proposed in zip(survey_questions, answer["proposed"], strict=True)
    ]
    summary = make_survey_summary(survey_questions, answer)
    services.emit(NoteAdded("\n".join([f"m3b read in data/{card.root}:", *format_survey_lines(summary)])))
    return summary.model_copy(update={"chosen": _choose_task(services, card, card.path)})


def _choose_task(services: RunServices, card: Card, root: Path) -> TaskProposal | None:
    """Return the proposal that `m3b look` would show for the request, and store its task."""
    request, job = services.request, proposal_job(services.request, card, services.overrides)
    if not request.strip():
        return None
    choice = choose_proposal(
        request,
        lambda task, boxes: _run_proposal_job(services, {**job, "task": task, "boxes": boxes}, root),
        task=task_for_card(request, card.task),
    )
    task_proposal = _make_task_proposal(choice.task, choice.boxes, choice.answer)
    choices = {
        **load_survey_file(services.folder, CHOICE_FILE, {}),
        card.root: task_proposal.model_dump(mode="json", include={"task", "boxes", "target"}),
    }
    store_survey_file(services.folder, CHOICE_FILE, choices)
    return task_proposal


def _run_proposal_job(services: RunServices, job: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return the answer to a job that proposes manifests, from the overview if that has it."""
    cached_answer = next((answer for previous_job, answer in services.survey_answers if previous_job == job), None)
    if cached_answer is not None:
        return cached_answer
    services.emit(StepStarted("surveying the data folder"))
    return ask_reader(services, job, root)


@dataclass(frozen=True)
class ManifestProposals:
    """Manifest proposals, best first.

    Args:
        insufficient: why the best may not be taken without asking, or why there is none.
        unusable: what is wrong with the data itself.
    """

    proposals: tuple[ManifestProposal, ...]
    insufficient: str = ""
    unusable: str = ""


def propose_manifests(services: RunServices, selection: Selection) -> ManifestProposals:
    """Return the manifest proposals for the folder, and write them to `work/Datapath/proposals`.

    A folder that cannot be surveyed is noted and gives no proposals.

    Raises:
        DataRejected: the survey failed and the user gave overrides.
    """
    card, run, overrides = services.card_of(selection), services.folder, services.overrides
    if card.path is None or not card.path.is_dir():
        return ManifestProposals((), "The data is not on this machine.")
    if overrides is not None and overrides.index is not None:
        return _write_proposals(run, [make_user_proposal(overrides.index)])
    job = {
        **proposal_job(services.request, card, services.overrides),
        "task": selection.task,
        "classes": list(selection.classes),
        "boxes": _should_use_boxes(run, selection, card),
    }
    store_survey_file(run, JOB_FILE, job)
    answer = _run_proposal_job(services, job, card.path)
    if "error" in answer and overrides is not None:
        raise DataRejected(str(answer["error"]))
    if "error" in answer:
        message = f"The folder could not be surveyed: {answer['error']}"
        services.emit(NoteAdded(message))
        return ManifestProposals((), message)
    store_survey_file(run, RIVAL_FILE, answer.get("rival", ""))
    proposals = _write_proposals(run, _add_counts(services, answer["readings"], card.path), answer["insufficient"])
    return replace(proposals, unusable=answer["unusable"])


def _should_use_boxes(run: RunFolder, selection: Selection, card: Card) -> bool | None:
    """Return True if boxes alone are the target, else None.

    The chosen proposal decides if the selection measures its target, else the metric.
    """
    family = get_family(selection.task)
    by_metric = selection.metric in set(family.list_metrics_of("boxes")) - set(family.list_metrics_of("states"))
    choice = load_survey_file(run, CHOICE_FILE, {}).get(card.root, {})
    if choice.get("task") == selection.task and (choice["target"] == "boxes") == by_metric:
        return bool(choice["boxes"]) or None
    return by_metric or None


def _add_counts(services: RunServices, proposals: Sequence[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    """Return the proposals with the cases, classes and patients of both splits.

    Proposals without training cases are dropped, except the first one.
    """
    if not proposals:
        return []
    answer = ask_reader(services, {"do": "count", "specs": [proposal["spec"] for proposal in proposals]}, root)
    expected_texts, training_counts = (answer.get(key) or [None] * len(proposals) for key in ("expected", "training"))
    return [
        {**proposal, "expected": text or ""}
        for rank, (proposal, text, count) in enumerate(zip(proposals, expected_texts, training_counts, strict=True))
        if rank == 0 or count != 0
    ]


def _write_proposals(run: RunFolder, proposals: Sequence[dict[str, Any]], insufficient: str = "") -> ManifestProposals:
    """Write the proposals where agents find them, and return their descriptions."""
    store_survey_file(run, PROPOSALS_FILE, [proposal["spec"] for proposal in proposals])
    store_survey_file(run, EVIDENCE_FILE, proposals)
    store_survey_file(run, DOUBT_FILE, insufficient)
    manifest_proposals = []
    for number, proposal in enumerate(proposals, start=1):
        name = f"{OFFERS}/{number}.json"
        write_atomic(run.work, name, json.dumps(proposal["spec"], indent=1, ensure_ascii=False).encode())
        manifest_proposals.append(ManifestProposal(file=name, sufficient=number == 1 and not insufficient, **proposal))
    return ManifestProposals(tuple(manifest_proposals), insufficient)


def make_user_proposal(manifest: IndexSpec) -> dict[str, Any]:
    """Return a manifest that the user gave in the form of a proposal."""
    return {"spec": manifest.model_dump(mode="json", exclude_defaults=True), "title": "the manifest that the user gave", "score": 1.0,
            "evidence": ["given by the user: it stands as it is"], "doubts": [], "unclear": "", "given": True}  # fmt: skip


def list_survey_questions() -> list[tuple[str, bool | None]]:
    """Return (task, boxes) for which manifests are proposed; boxes is True if a task can be measured by boxes alone."""
    from m3b.data.spec.model import Task

    task_families = [task_family for task_family in list_families() if task_family.name in get_args(Task)]
    return [
        (task_family.name, boxes)
        for task_family in task_families
        for boxes in ((None, True) if task_family.list_metrics_of("boxes") else (None,))
    ]


def make_survey_summary(
    survey_questions: Sequence[tuple[str, bool | None]], answer: Mapping[str, Any]
) -> SurveySummary:
    """Return the summary of an answer to the job `overview`: lines on the folder, the best manifest of each question.

    Args:
        survey_questions: the questions of the job, see `list_survey_questions`.
    """
    proposals = [
        _make_task_proposal(task, boxes, proposed)
        for (task, boxes), proposed in zip(survey_questions, answer["proposed"], strict=True)
        if proposed["readings"]
    ]
    return SurveySummary(lines=tuple(answer["lines"]), readings=tuple(proposals))


def _make_task_proposal(task: str, boxes: bool | None, answer: Mapping[str, Any]) -> TaskProposal:
    """Return the best manifest that an answer proposes for a task; its title is empty if none is proposed."""
    if not answer["readings"]:
        return TaskProposal(task=task, boxes=boxes, title="", score=0.0, insufficient=answer["insufficient"])
    best = answer["readings"][0]
    return TaskProposal(
        task=task,
        boxes=boxes,
        title=best["title"] + _extract_counts(best["evidence"]),
        score=best["score"],
        insufficient=_describe_open_question(best, answer["insufficient"]),
        target=_find_target(task, best.get("spec", {})),
    )


def _find_target(task: str, manifest: Mapping[str, Any]) -> str:
    """Return the target of a task that a manifest provides: `labels`, `masks`, `boxes`, and so on."""
    return next((name for name in kinds.of(task).targets if manifest.get(name) is not None), "")


def _extract_counts(evidence: Sequence[str]) -> str:
    """Return the class counts from a manifest's evidence; '' if it has no classes."""
    label_evidence = next((sentence for sentence in evidence if sentence.startswith("labels from ")), "")
    return f": {label_evidence.rpartition(': ')[2]}" if ": " in label_evidence else ""


def _describe_open_question(best: Mapping[str, Any], insufficient: str) -> str:
    """Return why a manifest may not be taken without asking, without its title, which is shown next to it."""
    return str(best["unclear"]) if insufficient and best["unclear"] else insufficient.replace(f" ({best['title']})", "")
