"""Preview of a data folder before a run: proposed manifests for a request, and the index that the best one gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.cards import Card, card_for_folder, own_notes
from m3b.display import make_html_pictures, make_html_table, shorten
from m3b.errors import DataError, UsageError
from m3b.facts import SurveySummary
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.run.manifest_proposals import list_survey_questions, make_survey_summary, make_user_proposal
from m3b.run.manifests import describe_accounting, proposal_to_json
from m3b.run.overrides import make_relative_to_root, run_reader_job, validate_overrides
from m3b.run.proposal_choice import SURVEY_S, choose_proposal, proposal_job, task_for_card
from m3b.tasks import names as list_task_names

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.models.image_jobs import ExampleCase, ExampleCases


def survey_dataset(folder: Path, scratch: Path) -> SurveySummary:
    """Return a summary of all files of a folder, and the best manifest of each task; no request is needed.

    Args:
        scratch: an empty folder for the job; nothing is written elsewhere.

    Raises:
        DataError: the folder cannot be surveyed.
    """
    survey_questions = list_survey_questions()
    job = {
        "do": "overview",
        "request": "",
        "classes": [],
        "notes": own_notes(folder),
        "seconds": SURVEY_S,
        "asked": survey_questions,
    }
    with Reader(choose_sandbox(), Mounts(read=(folder,), write=(scratch,))) as reader:
        return make_survey_summary(survey_questions, run_reader_job(job, folder, scratch, reader))


@dataclass(frozen=True, repr=False)
class DatasetPreview:
    """Proposed manifests of a data folder, and what the best one gives.

    Args:
        proposals: best first: `spec`, `title`, `score`, `evidence`, `doubts`, `unclear`.
        insufficient: the open question, why the best proposal may not be taken without asking; empty if it may.
        counts: of the best manifest when executed: cases of each split, the accounting, whether patients are known.
        request: the user's request.
        examples: cases of the best manifest as pictures; they show patients.
        legend: each class and the colour of its masks or boxes.
    """

    task: str
    proposals: tuple[dict[str, Any], ...]
    insufficient: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    request: str = ""
    examples: tuple[ExampleCase, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def accepted_proposal(self) -> Mapping[str, Any] | None:
        """The proposal that a run would take; None if none may be taken without asking."""
        return self.proposals[0] if self.proposals and not self.insufficient else None

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions that a person should decide before a run."""
        return (self.insufficient,) if self.insufficient else ()

    def __repr__(self) -> str:
        if not self.proposals:
            return f"<DatasetPreview {self.task}: {shorten(self.insufficient, 120)}>"
        cases = f"; {self.counts['train']:,} + {self.counts['test']:,} cases" if self.counts else ""
        question = f"; to be decided: {shorten(self.insufficient)}" if self.insufficient else ""
        return f"<DatasetPreview {self.task}: {shorten(self.proposals[0]['title'], 90)}{cases}{question}>"

    def _repr_html_(self) -> str:
        best = self.proposals[0] if self.proposals else {}
        exclusions = (self.counts.get("accounting") or {}).get("left_out", ())
        rows = [
            ("request", self.request), ("to be decided", self.insufficient), ("read as", best.get("title")),
            ("cases for training", self.counts.get("train")), ("cases for testing", self.counts.get("test")),
            ("patients", self.counts.get("patients")),
            *(("evidence", text) for text in best.get("evidence", ())), *(("doubt", text) for text in best.get("doubts", ())),
            *((f"{entry['files']:,} files left out", entry["reason"]) for entry in exclusions),
            *((f"{number}. other way", item["title"]) for number, item in enumerate(self.proposals[1:], 2)),
        ]  # fmt: skip
        pictures = (
            (base64.b64decode(case.png), " · ".join(filter(None, [case.split, case.labels, case.name])))
            for case in self.examples if case.png
        )  # fmt: skip
        return make_html_table(f"{self.task}: how the data is read", rows, make_html_pictures(pictures))

    def render_page(self) -> str:
        """Return everything as one HTML page with pictures, which is patient data."""
        from m3b.models.image_jobs import ExampleCases
        from m3b.report.manifest_page import render_manifest_page

        return render_manifest_page(self.request, self.to_json(), ExampleCases(self.examples, self.legend))

    def format_lines(self) -> list[str]:
        """Return about ten lines of text for people."""
        if not self.proposals:
            return [self.insufficient]
        best, *rivals = self.proposals
        output = [
            f"{self.task}: {best['title']} (score {best['score']:.2f})",
            *(f"  + {item}" for item in best["evidence"]),
        ]
        output += [f"  ? {item}" for item in best["doubts"]]
        if self.counts:
            patients = "patients known" if self.counts["patients"] == "known" else "patients unknown"
            output.append(
                f"  = {self.counts['train']:,} cases for training, {self.counts['test']:,} for testing; {patients}"
            )
            output += [f"    {line}" for line in describe_accounting(self.counts)]
        output += [f"not taken: {item['title']} (score {item['score']:.2f})" for item in rivals]
        return [*output, *([self.insufficient] if self.insufficient else [])]

    def manifest_to_json(self) -> str:
        """Return the best manifest as JSON to edit."""
        return json.dumps(self.proposals[0]["spec"], indent=1, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "proposals": [proposal_to_json(proposal) for proposal in self.proposals],
            "insufficient": self.insufficient,
            "counts": dict(self.counts),
        }


def preview_dataset(
    folder: Path,
    request: str,
    scratch: Path,
    *,
    task: str = "",
    overrides: Given | None = None,
    with_examples: bool = False,
    card: Card | None = None,
) -> DatasetPreview:
    """Survey a folder in the sandbox, and execute the best manifest for a request.

    Args:
        scratch: an empty folder for the job; nothing is written elsewhere.
        overrides: what the user fixed of the manifest; a whole manifest is executed as it is.
        with_examples: whether example images are drawn.
        card: the user's data card of the folder; None if there is none.

    Raises:
        DataError: the folder cannot be surveyed, or no manifest satisfies the overrides.
        UsageError: the task does not exist; or none is named, and the request does not imply one.
    """
    if task and task not in (task_names := list_task_names()):
        raise UsageError(f"There is no task {task!r}; the tasks are {', '.join(task_names)}.")
    sandbox = choose_sandbox()
    if overrides is not None:
        overrides = make_relative_to_root(overrides, folder)
        validate_overrides(overrides, folder, sandbox)
    with Reader(sandbox, Mounts(read=(folder,), write=(scratch,))) as reader:
        return _preview_in_reader(
            card or card_for_folder(folder), request, scratch, reader, (task, overrides, with_examples)
        )


def _preview_in_reader(
    card: Card, request: str, scratch: Path, reader: Reader, settings: tuple[str, Given | None, bool]
) -> DatasetPreview:
    assert card.path is not None
    folder = card.path
    task, overrides, with_examples = settings
    if overrides is not None and overrides.index is not None:
        used_task, insufficient = str(overrides.index.task), ""
        proposals: tuple[dict[str, Any], ...] = (make_user_proposal(overrides.index),)
        if task and task != used_task:
            raise UsageError(f"The manifest that was given is for {used_task}; --task says {task}.")
    else:
        job = proposal_job(request, card, overrides)
        choice = choose_proposal(
            request,
            lambda name, boxes: run_reader_job({**job, "task": name, "boxes": boxes}, folder, scratch, reader),
            task=task,
        )
        if "error" in choice.answer:
            raise DataError(str(choice.answer["error"]))
        used_task = choice.task
        proposals, insufficient = tuple(choice.answer["readings"]), str(choice.answer["insufficient"])
    if not proposals:
        return DatasetPreview(used_task, (), insufficient, request=request)
    work = scratch / "work"
    (work / "Datapath").mkdir(parents=True)
    job = {"do": "execute", "task": used_task, "name": "data", "work": str(work), "spec": proposals[0]["spec"]}
    try:
        counts = run_reader_job(job, folder, scratch, reader)
    except DataError as error:
        return DatasetPreview(used_task, proposals, insufficient or f"The best manifest cannot be executed: {error}",
                    request=request)  # fmt: skip
    examples = _draw_examples(reader, folder, work, used_task) if with_examples else None
    example_fields = (examples.cases, examples.legend) if examples else ()
    return DatasetPreview(used_task, proposals, insufficient, counts, request, *example_fields)


def _draw_examples(reader: Reader, folder: Path, work: Path, task: str) -> ExampleCases | None:
    """Draw examples of the index in `work` in the reader; None if that fails, since they are only informative."""
    from m3b.models.image_jobs import DRAW_EXAMPLES_JOB, ExamplesRequest

    (work / "data").mkdir(exist_ok=True)
    (work / "data" / "data").symlink_to(folder, target_is_directory=True)
    try:
        return reader.run_job(DRAW_EXAMPLES_JOB, ExamplesRequest(work, task))
    except DataError:
        return None


def preview_single_folder(
    cards: Sequence[Card], request: str, overrides: Given | None, *, with_examples: bool
) -> DatasetPreview:
    """Run `preview_dataset` on the only data folder among the cards, in temporary folders.

    Raises:
        UsageError: there is no data folder, or several.
        DataError: the folder cannot be surveyed.
    """
    data_cards = [card for card in cards if card.own and card.path and card.path.is_dir()]
    if len(data_cards) != 1 or data_cards[0].path is None:
        raise UsageError(f"A plan needs exactly one data folder; there are {len(data_cards)}.")
    with TemporaryFolder("plan") as scratch:
        task = task_for_card(request, data_cards[0].task)
        return preview_dataset(
            data_cards[0].path,
            request,
            scratch,
            task=task,
            overrides=overrides,
            with_examples=with_examples,
            card=data_cards[0],
        )
