"""Manifests of a data folder in a run: proposed before the Data Engineer begins, executed when one is handed over.

Both are done in the confined reader (`m3b.data.spec.inside`), without a network, with the data folder read-only.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from m3b.agents.artifacts import Selection, find_json_object
from m3b.agents.check_result import CheckResult, Issue, reject
from m3b.agents.loop import Emit
from m3b.agents.proposal_text import format_survey_lines
from m3b.data import kinds
from m3b.data.cards import Card
from m3b.data.index import Index
from m3b.data.spec.places import EARLIER_SPEC, OFFERS, SPEC
from m3b.errors import DataError, DataRejected
from m3b.events import NoteAdded, StepStarted
from m3b.facts import ManifestProposal, SurveySummary, TaskProposal
from m3b.isolation.untrusted import UnsafePathError, is_file, read_bytes, read_json, write_atomic
from m3b.run.folder import RunFolder
from m3b.run.proposal_choice import SURVEY_S, choose_proposal, proposal_job, task_for_card
from m3b.tasks import get_family, list_families
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.data.spec.model import IndexSpec


ORIGIN_PROPOSED, ORIGIN_EDITED, ORIGIN_GIVEN, ORIGIN_SCRIPT = "proposed", "edited", "given", "script"
ORIGIN_SENTENCES = {
    ORIGIN_PROPOSED: "The index was made by m3b from a manifest that it proposed.",
    ORIGIN_EDITED: "The index was made by m3b from a manifest that the Data Engineer wrote.",
    ORIGIN_GIVEN: "The index was made by m3b from the manifest that the user gave.",
    ORIGIN_SCRIPT: "The index was made by a script of the Data Engineer's.",
}
"""Origin -> sentence for people."""
LABELS_FROM_KEY, LEFT_OUT_KEY = "labels_from", "left_out"
"""Keys of the closing text under which a Data Engineer gives reasons."""
MAX_REASON_CHARS = 300


def find_objection(comparison: Mapping[str, Any], closing_text: str) -> CheckResult | None:
    """Return the rejection of an index that contradicts the archive or excludes cases without a reason; else None."""
    issues = []
    if comparison["expected"] and not comparison["fits"] and not extract_reason(closing_text, LABELS_FROM_KEY):
        differ, targets = comparison["compared"] - comparison["agreeing"], comparison["what"]
        user_message = (f"{differ:,} of {comparison['compared']:,} cases of the index have other {targets} than "
                        f"{comparison['source']}, e.g. "
                f"{'; '.join(comparison['differing'])}.")  # fmt: skip
        issues.append(
            Issue(
                f"{user_message} Take the {targets} from there. {_ask_for_reason(LABELS_FROM_KEY, 'where they come from, and why')}",
                user_message,
            )
        )
    if comparison["leaves_out"] and not extract_reason(closing_text, LEFT_OUT_KEY):
        user_message = (f"{comparison['missing']:,} of {comparison['usable']:,} cases that can be used are not in "
                        f"the index, though their "
                f"images open and are no copies, e.g. {', '.join(comparison['absent'])}.")  # fmt: skip
        issues.append(
            Issue(f"{user_message} Add them. {_ask_for_reason(LEFT_OUT_KEY, 'why they are left out')}", user_message)
        )
    return reject(*issues) if issues else None


def _ask_for_reason(key: str, placeholder: str) -> str:
    return f'Only where that is right as it is, reply with {{"{key}": "<{placeholder}>"}}; people will read it.'


def extract_reason(closing_text: str, key: str) -> str:
    """Return the reason that the Data Engineer gives in the closing text under a key; '' if there is none."""
    reply_object = find_json_object(closing_text, key)
    return " ".join(str(reply_object[key] or "").split())[:MAX_REASON_CHARS] if reply_object else ""


def describe_origin(origin: str, comparison: Mapping[str, Any], closing_text: str) -> list[str]:
    """Return sentences for people on origin, agreement with the archive, and reasons."""
    lines = [ORIGIN_SENTENCES[origin]]
    targets_word = str(comparison.get("what", "labels"))
    if comparison.get("compared") and origin == ORIGIN_SCRIPT:
        qualifier = "" if comparison["fits"] else "only "
        lines.append(
            f"Its {targets_word} agree with {comparison['source']} in {qualifier}{comparison['agreeing']:,} of "
            f"{comparison['compared']:,} cases."
        )
    elif origin == ORIGIN_SCRIPT:
        lines.append(f"Its {targets_word} were not compared with the archive: nothing there could be joined with it.")
    if comparison.get("missing"):
        lines.append(f"{comparison['missing']:,} of {comparison['usable']:,} cases that could be used are not in it.")
    for key, heading in (
        (LABELS_FROM_KEY, f"{targets_word.capitalize()} are not those of the archive"),
        (LEFT_OUT_KEY, "Cases are left out"),
    ):
        if given_reason := extract_reason(closing_text, key):
            lines.append(f"{heading}, by the Data Engineer's word: {given_reason}")
    return lines


def make_user_proposal(manifest: IndexSpec) -> dict[str, Any]:
    """Return a manifest that the user gave in the form of a proposal."""
    return {"spec": manifest.model_dump(mode="json", exclude_defaults=True), "title": "the manifest that the user gave", "score": 1.0,
            "evidence": ["given by the user: it stands as it is"], "doubts": [], "unclear": "", "given": True}  # fmt: skip


def proposal_to_json(proposal: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proposal for people and programs: the key `spec` becomes `manifest`."""
    return {("manifest" if key == "spec" else key): value for key, value in proposal.items()}


def manifest_to_json(manifest: IndexSpec) -> str:
    """Return a manifest as JSON text for people to edit."""
    return json.dumps(manifest.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False) + "\n"


SURVEY_FOLDER = "survey"
"""Folder of the run with the survey, its job and the proposals, out of the agents' reach."""
CHOICE_FILE = "chosen.json"
"""By card: task, boxes and target of the proposal that `m3b look` would show for the request."""
JOB_FILE, PROPOSALS_FILE, DOUBT_FILE, RIVAL_FILE = "asked.json", "offered.json", "doubt.json", "rival.json"
"""Files with the job of the survey, the proposed manifests, the open question (why the best one may not be taken
without asking), and the rival that has as much evidence."""
EDIT_HINT = f"Edit {SPEC} (or copy another of {OFFERS}/), or remove it and write the index files with a script."


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


RunJob = Callable[[dict[str, Any], Path], dict[str, Any]]
"""Runs a job of `m3b.data.spec.inside` on a data folder in the confined reader."""


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


class RunManifests:
    """The manifests of one run: proposed, executed, and compared with the data.

    Args:
        run_job: runs a job in the confined reader.
        emit: receives events.
        overrides: what the user fixed of the manifest; a whole manifest is used whatever an agent writes.
    """

    def __init__(self, run: RunFolder, run_job: RunJob, emit: Emit, overrides: Given | None = None) -> None:
        self.run, self.run_job, self.emit, self.overrides = run, run_job, emit, overrides
        self.facts: dict[str, Any] = {}
        """Facts of the current index: `accounting`, and the results of its execution or comparison."""
        self.origin = ""
        self.proposals: list[dict[str, Any]] = []
        """The proposals with their manifests; empty in a process that resumed the run later."""
        self._answered_jobs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """(job, answer) pairs from the overview, so that a job is not run twice."""

    def survey(self, request: str, card: Card) -> SurveySummary:
        """Survey all files of a data set and return the best manifest of each task; emit the summary as a note.

        The answers are kept for `propose`. The summary is empty if the survey fails or the user gave a whole manifest.
        """
        if (
            card.path is None
            or not card.path.is_dir()
            or (self.overrides is not None and self.overrides.index is not None)
        ):
            return SurveySummary()
        self.emit(StepStarted("surveying the data folder"))
        job, survey_questions = proposal_job(request, card, self._overrides_to_json()), list_survey_questions()
        answer = self._ask_reader({**job, "do": "overview", "asked": survey_questions}, card.path)
        if "error" in answer and self.overrides is None:
            return SurveySummary()
        if "error" in answer:  # the overrides may fit one task only
            return SurveySummary(chosen=self._choose(request, card))
        self._answered_jobs += [({**job, "task": task, "boxes": boxes}, proposed)
                        for (task, boxes), proposed in zip(survey_questions, answer["proposed"], strict=True)]  # fmt: skip
        summary = make_survey_summary(survey_questions, answer)
        self.emit(NoteAdded("\n".join([f"m3b read in data/{card.root}:", *format_survey_lines(summary)])))
        return summary.model_copy(update={"chosen": self._choose(request, card)})

    def _choose(self, request: str, card: Card) -> TaskProposal | None:
        """Return the proposal that `m3b look` would show for the request."""
        assert card.path is not None
        root, job = card.path, proposal_job(request, card, self._overrides_to_json())
        if not request.strip():
            return None
        choice = choose_proposal(
            request,
            lambda task, boxes: self._run_proposal_job({**job, "task": task, "boxes": boxes}, root),
            task=task_for_card(request, card.task),
        )
        task_proposal = _make_task_proposal(choice.task, choice.boxes, choice.answer)
        choices = {
            **self._load(CHOICE_FILE, {}),
            card.root: task_proposal.model_dump(mode="json", include={"task", "boxes", "target"}),
        }
        self._store(CHOICE_FILE, choices)
        return task_proposal

    def _run_proposal_job(self, job: dict[str, Any], root: Path) -> dict[str, Any]:
        """Return the answer to a job that proposes manifests, from the overview if that has it."""
        cached_answer = next((answer for previous_job, answer in self._answered_jobs if previous_job == job), None)
        if cached_answer is not None:
            return cached_answer
        self.emit(StepStarted("surveying the data folder"))
        return self._ask_reader(job, root)

    def _should_use_boxes(self, selection: Selection, card: Card) -> bool | None:
        """Return True if boxes alone are the target, else None.

        The chosen proposal decides if the selection measures its target, else the metric.
        """
        family = get_family(selection.task)
        by_metric = selection.metric in set(family.list_metrics_of("boxes")) - set(family.list_metrics_of("states"))
        choice = self._load(CHOICE_FILE, {}).get(card.root, {})
        if choice.get("task") == selection.task and (choice["target"] == "boxes") == by_metric:
            return bool(choice["boxes"]) or None
        return by_metric or None

    def _overrides_to_json(self) -> dict[str, Any]:
        return self.overrides.model_dump(mode="json", exclude_defaults=True) if self.overrides is not None else {}

    def propose(self, request: str, selection: Selection, card: Card) -> ManifestProposals:
        """Return the manifest proposals for the folder, and write them to `work/Datapath/proposals`.

        A folder that cannot be surveyed is noted and gives no proposals.

        Raises:
            DataRejected: the survey failed and the user gave overrides.
        """
        if card.path is None or not card.path.is_dir():
            return ManifestProposals((), "The data is not on this machine.")
        if self.overrides is not None and self.overrides.index is not None:
            return self._write_proposals([make_user_proposal(self.overrides.index)])
        job = {**proposal_job(request, card, self._overrides_to_json()), "task": selection.task,
               "classes": list(selection.classes), "boxes": self._should_use_boxes(selection, card)}  # fmt: skip
        self._store(JOB_FILE, job)
        answer = self._run_proposal_job(job, card.path)
        if "error" in answer and self.overrides is not None:
            raise DataRejected(str(answer["error"]))
        if "error" in answer:
            message = f"The folder could not be surveyed: {answer['error']}"
            self.emit(NoteAdded(message))
            return ManifestProposals((), message)
        self._store(RIVAL_FILE, answer.get("rival", ""))
        proposals = self._write_proposals(self._add_counts(answer["readings"], card.path), answer["insufficient"])
        return replace(proposals, unusable=answer["unusable"])

    def _add_counts(self, proposals: Sequence[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
        """Return the proposals with the cases, classes and patients of both splits.

        Proposals without training cases are dropped, except the first one.
        """
        if not proposals:
            return []
        answer = self._ask_reader({"do": "count", "specs": [proposal["spec"] for proposal in proposals]}, root)
        expected_texts, training_counts = (
            answer.get(key) or [None] * len(proposals) for key in ("expected", "training")
        )
        return [
            {**proposal, "expected": text or ""}
            for rank, (proposal, text, count) in enumerate(zip(proposals, expected_texts, training_counts, strict=True))
            if rank == 0 or count != 0
        ]

    def _write_proposals(self, proposals: Sequence[dict[str, Any]], insufficient: str = "") -> ManifestProposals:
        """Write the proposals where agents find them, and return their descriptions."""
        self._store(PROPOSALS_FILE, [proposal["spec"] for proposal in proposals])
        self._store(DOUBT_FILE, insufficient)
        self.proposals = [dict(proposal) for proposal in proposals]
        manifest_proposals = []
        for number, proposal in enumerate(proposals, start=1):
            name = f"{OFFERS}/{number}.json"
            write_atomic(self.run.work, name, json.dumps(proposal["spec"], indent=1, ensure_ascii=False).encode())
            manifest_proposals.append(
                ManifestProposal(file=name, sufficient=number == 1 and not insufficient, **proposal)
            )
        return ManifestProposals(tuple(manifest_proposals), insufficient)

    def list_for_display(self) -> list[dict[str, Any]]:
        """Return the accepted manifest, then the proposals that were not taken, for people."""
        manifest = self.facts.get("spec")
        accepted = [
            proposal for proposal in self.proposals if manifest is not None and proposal.get("spec") == manifest
        ]
        unproposed = {
            "title": "an index that the agent made" if manifest is None else "a manifest that was edited",
            "spec": manifest,
        }
        return [*(accepted or [unproposed]), *(proposal for proposal in self.proposals if proposal not in accepted)]

    def get_review_reason(self) -> str:
        """Return why a person should review the current index before training; '' if its evidence suffices."""
        if self.origin == ORIGIN_SCRIPT and not (self.facts.get("compared") and self.facts.get("fits")):
            return f"A script made the index, and nothing in the data folder confirms its {self.facts.get('what', 'labels')}."
        return "" if self.origin == ORIGIN_GIVEN else str(self._load(DOUBT_FILE, "") or self._describe_rival())

    def _describe_rival(self) -> str:
        """Return the description of the rival, if the first proposal was taken; else ''."""
        proposed_manifests = self._load(PROPOSALS_FILE, [])
        is_first = (
            self.origin == ORIGIN_PROPOSED
            and bool(proposed_manifests)
            and self.facts.get("spec") == proposed_manifests[0]
        )
        rival = str(self._load(RIVAL_FILE, "")) if is_first else ""
        return f"{rival[:1].upper()}{rival[1:]}." if rival else ""

    def execute_manifest(self, selection: Selection, card: Card) -> CheckResult | None:
        """Write the index files by the manifest that was handed over, if any; return a rejection if that fails."""
        self.facts, self.origin = {}, ORIGIN_SCRIPT
        user_manifest = self.overrides.index if self.overrides is not None else None
        if user_manifest is not None:
            write_atomic(self.run.work, SPEC, manifest_to_json(user_manifest).encode())
        name = SPEC if is_file(self.run.work, SPEC) else EARLIER_SPEC
        if card.path is None or not is_file(self.run.work, name):
            return None
        try:
            manifest = json.loads(read_bytes(self.run.work, name, 2**20))
        except (OSError, UnsafePathError, ValueError) as error:
            return reject(
                Issue(f"{SPEC} is no JSON object: {error}. {EDIT_HINT}", "The manifest of the data cannot be used.")
            )
        job = {"do": "execute", "task": selection.task, "name": card.root, "work": str(self.run.work), "spec": manifest}
        answer = self._ask_reader(job, card.path)
        if answer.get("hopeless"):
            return reject(str(answer["error"]), end_error=DataRejected, is_fatal=True)
        if "error" in answer and user_manifest is not None:
            return reject(
                f"The manifest that you gave cannot be executed: {answer['error']}",
                end_error=DataRejected,
                is_fatal=True,
            )
        if "error" in answer:
            user_message = f"The data cannot be read in the way that was proposed: {answer['error']}"
            return reject(Issue(f"{SPEC} cannot be executed: {answer['error']} {EDIT_HINT}", user_message))
        self.facts = answer
        self.origin = (
            ORIGIN_GIVEN
            if user_manifest is not None
            else ORIGIN_PROPOSED
            if manifest in self._load(PROPOSALS_FILE, [])
            else ORIGIN_EDITED
        )
        return None

    def compare_with_data(
        self, selection: Selection, card: Card, index: Index, root: Path, closing_text: str
    ) -> CheckResult | None:
        """Compare an index without a proposed or given manifest with the archive.

        Returns a rejection if they differ and the closing text gives no reason.

        Args:
            root: base folder of the paths in the index, out of the agents' reach.
        """
        if card.path is None or not card.path.is_dir() or self.origin not in (ORIGIN_SCRIPT, ORIGIN_EDITED):
            return None
        stored_job = self._load(JOB_FILE, {})
        default = {"request": selection.plan, "classes": list(selection.classes), "notes": card.text(), "boxes": None,
                   "seconds": SURVEY_S}  # fmt: skip
        records = [kinds.to_json(record, selection.task) for record in index.records]
        job = {**default, **stored_job, "do": "compare", "task": selection.task, "name": card.root, "records": records,
               "values": index.values, "base": str(root)}  # fmt: skip
        self.emit(StepStarted("comparing the index with the data folder"))
        answer = self._ask_reader(job, card.path)
        if "error" in answer:
            self.emit(NoteAdded(f"The index could not be compared with the data folder: {answer['error']}"))
            return None
        self.facts = {**answer, **self.facts}
        return find_objection(answer, closing_text)

    def describe(self, closing_text: str) -> tuple[str, ...]:
        """Return sentences on how the index was made, what was used, and the exclusions."""
        rival_lines = [rival] if (rival := self._describe_rival()) else []
        return (
            *describe_origin(self.origin, self.facts, closing_text),
            *rival_lines,
            *(describe_accounting(self.facts) if self.facts else ()),
        )

    def _store(self, name: str, value: object) -> None:
        """Store a value out of the agents' reach, for this run and a resumed one."""
        folder = self.run.get_path(SURVEY_FOLDER)
        folder.mkdir(exist_ok=True)
        write_text_atomically(folder / name, json.dumps(value, ensure_ascii=False))

    def _load(self, name: str, default: Any) -> Any:
        try:
            return read_json(self.run.get_path(SURVEY_FOLDER), name)
        except (OSError, ValueError):
            return default

    def _ask_reader(self, job: Mapping[str, Any], root: Path) -> dict[str, Any]:
        folder = self.run.get_path(SURVEY_FOLDER)
        folder.mkdir(exist_ok=True)
        try:
            return self.run_job({**job, "root": str(root), "place": str(folder)}, root)
        except DataError as error:
            return {"error": f"Reading it failed: {error}"}


def _describe_open_question(best: Mapping[str, Any], insufficient: str) -> str:
    """Return why a manifest may not be taken without asking, without its title, which is shown next to it."""
    return str(best["unclear"]) if insufficient and best["unclear"] else insufficient.replace(f" ({best['title']})", "")


def describe_accounting(answer: Mapping[str, Any]) -> list[str]:
    """Return sentences for people on the files that were used and the exclusions."""
    accounting = answer["accounting"]
    used = sum(accounting["used"].values())
    lines = [f"{used:,} of {accounting['files']:,} files of the data folder are used."]
    for exclusion in accounting["left_out"][:6]:
        files = "1 file is" if exclusion["files"] == 1 else f"{exclusion['files']:,} files are"
        lines.append(f"{files} left out: {exclusion['reason']}.")
    if answer.get("crossing"):
        lines.append(f"{answer['crossing']} patients or copies lay on both sides of the data set's own split.")
    if answer.get("named_but_absent"):
        lines.append(f"{answer['named_but_absent']:,} that the table names are not in the folder.")
    return [*lines, *(f"{note[:1].upper()}{note[1:]}." for note in answer["notes"])]


def remove_survey_files(run: RunFolder) -> None:
    """Remove the survey files of an ended run, since they hold file names."""
    shutil.rmtree(run.get_path(SURVEY_FOLDER), ignore_errors=True)
