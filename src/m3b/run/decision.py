"""The decision how a folder is read for a request, the same for `m3b look`, `Pipeline.plan` and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from m3b.data.cards import Card, card_for_folder, own_notes
from m3b.errors import DataError, UsageError
from m3b.facts import ManifestProposal, SurveySummary, TaskProposal

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest
    from m3b.dataset.manifest.overrides import Overrides

SURVEY_S = 90.0
USER_TITLE = "the manifest that the user gave"
SURVEY_FAILED = "survey_failed"
"""Code of the refusal if the folder could not be surveyed."""
COUNTED_PARTS = ("training:", "testing:", "patients:")
"""Beginnings of the lines of a manifest's counts that are shown beside its title."""

RunJob = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Returns the answer of the confined reader to a job of `m3b.dataset.jobs`."""


@dataclass(frozen=True)
class Decision:
    """What m3b decides of a folder and a request (`m3b.dataset.proposals.outcome.Outcome` as JSON).

    Args:
        kind: `proposed`, `ask` or `refuse`.
        task: of the best proposal, or of the request; empty if neither is known.
        proposals: best first.
        code, text: of the question or the refusal; empty if a manifest is proposed.
        assumptions: what the request says and nothing in the folder confirms.
        lines: the folder in about ten lines.
    """

    kind: str
    task: str = ""
    proposals: tuple[ManifestProposal, ...] = ()
    code: str = ""
    text: str = ""
    assumptions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """What is missing; empty if something can be read."""
        return self.text if self.kind == "refuse" else ""

    @property
    def summary(self) -> TaskProposal:
        """The decision in short, for the selection of a data set; its title is empty if there is no proposal."""
        best = self.proposals[0] if self.proposals else None
        return TaskProposal(
            task=self.task,
            title=f"{best.title}: {best.expected}".rstrip(": ") if best else "",
            score=best.score if best else 0.0,
            decision=self.kind,
            insufficient=self.text,
            target=_find_target(self.task, best.manifest) if best else "",
        )


def _find_target(task: str, manifest: Mapping[str, Any]) -> str:
    """Return the target of a task that a manifest provides: `labels`, `masks`, `boxes`, and so on."""
    from m3b.dataset.manifest.resolve import TARGETS

    return next((name for name in TARGETS.get(task, ()) if manifest.get(name) is not None), "")


def make_decision_job(
    request: str, card: Card, overrides: Overrides | None, *, tasks: Sequence[str] = (), classes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the job that decides how the folder of a card is read.

    For a folder without a card, only the notes in the folder are used.

    Args:
        tasks: that come into question; none leaves them to card and request.
        classes: those that were chosen for the request; none leaves them to its words.
    """
    task = task_for_card(request, card.task)
    return {
        "do": "decide",
        "request": request,
        "classes": list(classes),
        "tasks": list(tasks) or ([task] if task in manifest_tasks() else []),
        "notes": _read_notes(card),
        "seconds": SURVEY_S,
        "patient_key": card.patient_key,
        "dimension": f"{card.dimension}d" if card.dimension in (2, 3) else "",
        "overrides": overrides.model_dump(mode="json", exclude_defaults=True) if overrides is not None else {},
    }


def _read_notes(card: Card) -> str:
    if card.path is None:
        return card.text()
    notes = own_notes(card.path)
    folder_card = card_for_folder(card.path)
    if replace(card, task="", classes=(), metric="", acceptable=None) == folder_card:
        return notes
    return card.text() if notes in card.description else f"{card.text()}\n{notes}"


def decide(run_job: RunJob, job: dict[str, Any]) -> Decision:
    """Return the decision; if the job fails, a refusal with the error."""
    try:
        answer = run_job(job)
    except DataError as error:
        answer = {"error": str(error)}
    if "error" in answer:
        text = f"The folder could not be surveyed: {answer['error']}"
        task = job["tasks"][0] if len(job["tasks"]) == 1 else ""
        return Decision("refuse", task, code=SURVEY_FAILED, text=text)
    return parse_decision(answer["outcome"], answer["counts"], answer["lines"], job["request"])


def parse_decision(
    outcome: Mapping[str, Any], counts: Sequence[Mapping[str, Any]], lines: Sequence[str] = (), request: str = ""
) -> Decision:
    """Return the decision of a job's answer.

    Args:
        counts: of the proposals' manifests, as far as they were counted.
    """
    question, refusal = outcome.get("question") or {}, outcome.get("refusal") or {}
    text = question.get("text") or refusal.get("message") or ""
    remedy = question.get("remedy") or refusal.get("remedy") or ""
    task = str(outcome.get("task") or "")
    assumptions = [str(assumption["message"]) for assumption in outcome.get("assumptions") or ()]
    return Decision(
        kind=outcome["kind"],
        task=task,
        proposals=tuple(
            _parse_proposal(place, proposal, counts, outcome["kind"])
            for place, proposal in enumerate(outcome.get("proposals") or ())
        ),
        code=str(question.get("code") or refusal.get("code") or ""),
        text=f"{text} {remedy}".strip(),
        assumptions=(
            *list_unserved_tasks(request, task),
            *dict.fromkeys(f"{text[:1].upper()}{text[1:]}." for text in assumptions),
        ),
        lines=tuple(lines),
    )


def _parse_proposal(
    place: int, proposal: Mapping[str, Any], counts: Sequence[Mapping[str, Any]], kind: str
) -> ManifestProposal:
    lines = counts[place]["lines"] if place < len(counts) else ()
    return ManifestProposal(
        title=proposal["title"],
        score=round(proposal["score"], 2),
        sufficient=place == 0 and kind == "proposed",
        evidence=tuple(evidence["message"] for evidence in proposal.get("evidence") or ()),
        doubts=tuple(doubt["message"] for doubt in proposal.get("doubts") or ()),
        expected="; ".join(line for line in lines if line.startswith(COUNTED_PARTS)),
        manifest=proposal["manifest"],
    )


def decide_by_manifest(manifest: Manifest) -> Decision:
    """Return the decision of a user who gave the whole manifest."""
    proposal = ManifestProposal(
        title=USER_TITLE,
        score=1.0,
        sufficient=True,
        evidence=("given by the user: it stands as it is",),
        manifest=manifest.model_dump(mode="json", exclude_defaults=True),
        given=True,
    )
    return Decision("proposed", manifest.task, (proposal,))


def summarize_overview(answer: Mapping[str, Any]) -> SurveySummary:
    """Return the summary of a folder without a request: its lines, and the best proposal of each task that has any."""
    decisions = [parse_decision(outcome, ()) for outcome in answer["outcomes"].values()]
    proposals = [decision.summary for decision in decisions if decision.proposals and decision.code != "no_targets"]
    return SurveySummary(lines=tuple(answer["lines"]), readings=tuple(proposals))


def list_unserved_tasks(request: str, task: str) -> list[str]:
    """Return a sentence if a request orders other tasks too: a run builds one model."""
    from m3b.run.precheck import find_ordered_tasks

    others = [name for name in find_ordered_tasks(request) if name != task] if task else []
    if not others or len(others) == len(find_ordered_tasks(request)):
        return []
    return [f"The request also asks for {' and '.join(others)}: this run is for {task} alone; start another for that."]


def manifest_tasks() -> tuple[str, ...]:
    """Return the tasks that a manifest can be for; those that users add are indexed by a script."""
    from m3b.dataset.manifest.model import Task

    return get_args(Task)


def check_task(task: str) -> None:
    """Raise UsageError if there is no such task, or no manifest can be for it."""
    from m3b.tasks import names as list_task_names

    if task not in (task_names := list_task_names()):
        raise UsageError(f"There is no task {task!r}; the tasks are {', '.join(task_names)}.")
    if task not in manifest_tasks():
        raise UsageError(f"No manifest can be for {task}; an agent writes the index with a script.")


def task_for_card(request: str, card_task: str) -> str:
    """Return the task for which the data of a card is read; '' if the card names none.

    This is the task that the request names if the card's data can serve it, else the card's own task.
    """
    from m3b.tasks import find_requested_task, get_family, list_families

    requested = find_requested_task(request)
    if not card_task or not requested or card_task not in {family.name for family in list_families()}:
        return card_task
    requested_family, card_family = get_family(requested), get_family(card_task)
    can_serve = (
        card_task == requested
        or card_task in requested_family.related_tasks
        or set(requested_family.required_targets) & set(card_family.required_targets)
    )
    return requested if can_serve else card_task
