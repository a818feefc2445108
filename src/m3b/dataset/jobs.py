"""Worker jobs on a data folder, done in the confined reader process: survey and decision, counts, execution, checks.

A job and its answer are JSON. The folder is untrusted: a decoder that crashes or hangs costs one file, and that process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.dataset.manifest.explain import Explanation
    from m3b.dataset.manifest.readers import FolderReaders
    from m3b.dataset.proposals.outcome import Outcome
    from m3b.dataset.proposals.request import Request
    from m3b.dataset.survey.facts import Survey
    from m3b.dataset.survey.walk import WalkedInventory
    from m3b.dataset.words.requests import Dimension

MANIFEST_PATH = "Datapath/manifest.json"
"""The manifest that is handed over, below the working directory: m3b executes it."""
PROPOSALS_FOLDER = "Datapath/proposals"
"""Proposed manifests, numbered."""
MAX_SURVEY_LINES = 10
MAX_PROPOSALS = 3
MIN_ALTERNATIVE_SCORE = 0.1
"""Score from which on a proposal that is not the best is shown."""


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job on the data folder `root`; `{"error": ...}` says what is wrong.

    Args:
        job: `do` names it, `place` is a folder that it may write to, and further keys are those of its function.
    """
    from m3b.dataset.manifest.execute import NothingOpens, TooFewCases
    from m3b.errors import DataError

    try:
        return JOBS[job["do"]](job)
    except DataError as error:
        return {"error": str(error), "hopeless": isinstance(error, NothingOpens | TooFewCases)}
    except OSError as error:
        return {"error": f"{error.filename or 'The data'} cannot be read: {error.strerror or error}."}
    except MemoryError:
        return {"error": "Reading the data takes more memory than there is."}


def _open(job: Mapping[str, Any]) -> tuple[WalkedInventory, FolderReaders]:
    from m3b.dataset.manifest.readers import FolderReaders
    from m3b.dataset.survey.walk import walk

    inventory = walk(job["root"])
    return inventory, FolderReaders(inventory)


def _survey(job: Mapping[str, Any], inventory: WalkedInventory) -> Survey:
    """The survey of the folder, made once a run; also one that ran out of time is stored."""
    from m3b.dataset.survey.facts import SurveyLimits
    from m3b.dataset.survey.survey import cached_survey

    return cached_survey(inventory, SurveyLimits(seconds=float(job["seconds"])), Path(job["place"]), keep_late=True)


def _request(job: Mapping[str, Any], survey: Survey) -> Request:
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.dataset.proposals.request import parse

    notes = "\n".join([str(job.get("notes") or ""), *(document.text for document in survey.documents)])
    overrides = Overrides.model_validate(job.get("overrides") or {})
    request = parse(job["request"], notes)
    classes = overrides.classes or tuple(job.get("classes") or ())
    dimension: Dimension = request.claims.dimension or job.get("dimension") or ""
    claims = replace(request.claims, classes=classes or request.claims.classes, dimension=dimension)
    return replace(request, claims=claims, overrides=overrides, patient_key=str(job.get("patient_key") or ""))


def _decide(job: dict[str, Any]) -> dict[str, Any]:
    """Survey the folder, and decide how it is read for a request.

    Args:
        job: `request`, `notes`, `classes`, `seconds`, `patient_key` and `dimension` of the card, `overrides`, and `tasks` that come
            into question; none leaves them to the request. With `overview` the best proposal of each task is added.
    """
    from m3b.dataset.proposals.decide import TARGET_LISTS
    from m3b.dataset.survey.render import summarize

    inventory, readers = _open(job)
    survey = _survey(job, inventory)
    lines = summarize(survey, MAX_SURVEY_LINES)
    if job.get("overview"):
        outcomes = {task: _outcome({**job, "tasks": [task]}, survey, inventory, readers) for task in TARGET_LISTS}
        shown = {task: outcome for task, outcome in outcomes.items() if not _takes_boxes_for_masks(outcome)}
        return {"lines": lines, "outcomes": {task: _dump(outcome) for task, outcome in shown.items()}}
    outcome = _outcome(job, survey, inventory, readers)
    explanations = [
        _explain(proposal.manifest, inventory, readers)[0] for proposal in outcome.proposals[:MAX_PROPOSALS]
    ]
    return {"lines": lines, "outcome": _dump(outcome), "counts": explanations}


def _outcome(job: Mapping[str, Any], survey: Survey, inventory: WalkedInventory, readers: FolderReaders) -> Outcome:
    from m3b.dataset.croissant import decide_by_croissant
    from m3b.dataset.proposals.decide import decide

    request, tasks = _request(job, survey), tuple(job.get("tasks") or ())
    if not request.overrides.options:
        described = decide_by_croissant(survey, inventory, request, readers=readers, tasks=tasks)
        if described is not None:
            return described
    outcome = decide(survey, inventory, request, readers=readers, tasks=tasks)
    alternatives = [proposal for proposal in outcome.proposals[1:] if proposal.score >= MIN_ALTERNATIVE_SCORE]
    return outcome.model_copy(update={"proposals": (*outcome.proposals[:1], *alternatives[: MAX_PROPOSALS - 1])})


def _takes_boxes_for_masks(outcome: Outcome) -> bool:
    """Return whether masks would be learnt from boxes, which takes a request for masks."""
    from m3b.dataset.proposals.targets import BOXES_AS_MASKS

    return any(assumption.message == BOXES_AS_MASKS for assumption in outcome.assumptions)


def _dump(outcome: Outcome) -> dict[str, Any]:
    return outcome.model_dump(mode="json", exclude_defaults=True)


def _explain(manifest: Any, inventory: WalkedInventory, readers: FolderReaders) -> tuple[dict[str, Any], Explanation]:
    from m3b.dataset.manifest.explain import explain, summary_lines
    from m3b.dataset.manifest.resolve import resolve

    explanation = explain(manifest, resolve(manifest, inventory, readers=readers))
    return {**explanation.model_dump(mode="json"), "lines": summary_lines(explanation)}, explanation


def _count(job: dict[str, Any]) -> dict[str, Any]:
    """Say what a manifest would give, and how that differs from a proposal.

    Args:
        job: `manifest`, as values that somebody wrote; `proposal`: the one that it was made of, or none.
    """
    from m3b.dataset.manifest.explain import diff
    from m3b.dataset.manifest.overrides import parse_manifest

    inventory, readers = _open(job)
    facts, explanation = _explain(parse_manifest(job["manifest"]), inventory, readers)
    if not job.get("proposal"):
        return {**facts, "difference": []}
    _, proposed = _explain(parse_manifest(job["proposal"]), inventory, readers)
    return {**facts, "difference": diff(explanation, proposed).lines()}


def _execute(job: dict[str, Any]) -> dict[str, Any]:
    """Write the index files of `manifest` to `work`.

    Args:
        job: `manifest`, `task`, `name` of the data set, `work`.
    """
    from m3b.dataset.manifest.execute import execute, write
    from m3b.dataset.manifest.overrides import parse_manifest

    manifest = parse_manifest(job["manifest"])
    if manifest.task != job["task"]:
        return {"error": f"The manifest is for {manifest.task}; the task is {job['task']}."}
    inventory, readers = _open(job)
    executed = execute(manifest, inventory, name=job["name"], work=Path(job["work"]), readers=readers)
    write(executed, Path(job["work"]))
    return {**executed.to_json(), "train": len(executed.train), "test": len(executed.test)}


def _check(job: dict[str, Any]) -> dict[str, Any]:
    """Check whether `overrides` fit the folder."""
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.dataset.manifest.resolve import resolve
    from m3b.dataset.proposals.overriding import check_names

    overrides = Overrides.model_validate(job["overrides"])
    inventory, readers = _open(job)
    check_names(overrides, inventory, readers)
    if overrides.manifest is not None:
        problems = resolve(overrides.manifest, inventory, readers=readers).errors
        if problems:
            return {"error": " ".join(problem.message for problem in problems[:5])}
    return {}


def _compare(job: dict[str, Any]) -> dict[str, Any]:
    """Compare the index of a script with what the proposals would give.

    Args:
        job: as of `decide`, with `task`, `name` and `base` (the folder) of the index, and its `manifest` if it was made from one.
    """
    from m3b.data.index import read_index
    from m3b.dataset.comparison import compare_index
    from m3b.dataset.manifest.overrides import parse_manifest

    inventory, readers = _open(job)
    outcome = _outcome({**job, "tasks": [job["task"]]}, _survey(job, inventory), inventory, readers)
    comparison = compare_index(
        read_index(Path(job["base"]), job["task"]).records,
        outcome,
        inventory,
        readers,
        name=job["name"],
        base=Path(job["base"]),
        scratch=Path(job["place"]) / "compared",
        manifest=parse_manifest(job["manifest"]) if job.get("manifest") else None,
    )
    return comparison.to_json()


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "decide": _decide,
    "count": _count,
    "execute": _execute,
    "check": _check,
    "compare": _compare,
}
"""What a job may ask for."""
