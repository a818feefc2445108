"""Preview of a data folder before a run: proposed manifests for a request, and the index that the best one gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.cards import Card, card_for_folder
from m3b.display import make_html_pictures, make_html_table, shorten
from m3b.errors import DataError, UsageError
from m3b.facts import ManifestProposal, SurveySummary
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.run.decision import (
    SURVEY_FAILED,
    Decision,
    check_task,
    decide,
    decide_by_manifest,
    make_decision_job,
    summarize_overview,
    task_for_card,
)
from m3b.run.manifests import describe_accounting
from m3b.run.overrides import make_relative_to_root, run_reader_job, validate_overrides

if TYPE_CHECKING:
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.models.image_jobs import ExampleCase, ExampleCases

MAX_LISTED = 12
"""Classes whose cases are counted in the terminal."""


def survey_dataset(folder: Path, scratch: Path) -> SurveySummary:
    """Return a summary of all files of a folder, and the best manifest of each task; no request is needed.

    Args:
        scratch: an empty folder for the job; nothing is written elsewhere.

    Raises:
        DataError: the folder cannot be surveyed.
    """
    job = {**make_decision_job("", card_for_folder(folder), None), "overview": True}
    with Reader(choose_sandbox(), Mounts(read=(folder,), write=(scratch,))) as reader:
        return summarize_overview(run_reader_job(job, folder, scratch, reader))


@dataclass(frozen=True, repr=False)
class DatasetPreview:
    """The decision on a data folder, and what the best manifest gives.

    Args:
        decision: the proposals, best first, the open question or what is missing, and assumptions.
        insufficient: the open question, why the best proposal may not be taken without asking; empty if it may.
        counts: of the best manifest when executed: cases of each split, the accounting, whether patients are known.
        request: the user's request.
        examples: cases of the best manifest as pictures; they show patients.
        legend: each class and the colour of its masks or boxes.
    """

    task: str
    decision: Decision
    insufficient: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    request: str = ""
    examples: tuple[ExampleCase, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def proposals(self) -> tuple[ManifestProposal, ...]:
        """The proposed manifests, best first."""
        return self.decision.proposals

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the request says and nothing in the folder confirms."""
        return self.decision.assumptions

    @property
    def accepted_proposal(self) -> ManifestProposal | None:
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
        return f"<DatasetPreview {self.task}: {shorten(self.proposals[0].title, 90)}{cases}{question}>"

    def _repr_html_(self) -> str:
        best = self.proposals[0] if self.proposals else ManifestProposal()
        exclusions = (self.counts.get("accounting") or {}).get("left_out", ())
        rows = [
            *(("assumption", text) for text in self.assumptions),
            ("request", self.request), ("to be decided", self.insufficient), ("read as", best.title),
            ("cases for training", self.counts.get("train")), ("cases for testing", self.counts.get("test")),
            ("patients", self.counts.get("patients")),
            *(("evidence", text) for text in best.evidence), *(("doubt", text) for text in best.doubts),
            *((f"{entry['files']:,} files left out", entry["reason"]) for entry in exclusions),
            *((f"{number}. other way", item.title) for number, item in enumerate(self.proposals[1:], 2)),
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
        output = [*self.assumptions]
        if not self.proposals:
            return [*output, self.insufficient]
        best, *others = self.proposals
        task = self.task or str(best.manifest.get("task", ""))
        output += [f"{task}: {best.title} (score {best.score:.2f})", *(f"  + {item}" for item in best.evidence)]
        output += [f"  ? {item}" for item in best.doubts]
        if self.counts:
            patients = "patients known" if self.counts["patients"] == "known" else "patients unknown"
            output.append(
                f"  = {self.counts['train']:,} cases for training, {self.counts['test']:,} for testing; {patients}"
            )
            output += self._describe_parts()
            output += [f"    {line}" for line in describe_accounting(self.counts)]
        output += [f"not taken: {item.title} (score {item.score:.2f})" for item in others]
        return [*output, *([self.insufficient] if self.insufficient else [])]

    def _describe_parts(self) -> list[str]:
        """Return a line for each part of the split with its cases by class."""
        lines = []
        for part, title in (("train", "training"), ("test", "testing")):
            names = [f"{name}: {count:,}" for name, count in self.counts["class_counts"][part].items()]
            if names:
                lines.append(
                    f"    {title} ({', '.join(names[:MAX_LISTED])}{' ...' if len(names) > MAX_LISTED else ''})"
                )
        return lines

    def manifest_to_json(self) -> str:
        """Return the best manifest as JSON to edit."""
        return json.dumps(self.proposals[0].manifest, indent=1, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "decision": self.decision.kind,
            "proposals": [proposal.model_dump(mode="json", exclude={"file"}) for proposal in self.proposals],
            "insufficient": self.insufficient,
            "code": self.decision.code,
            "assumptions": list(self.assumptions),
            "counts": dict(self.counts),
        }


def preview_dataset(
    folder: Path,
    request: str,
    scratch: Path,
    *,
    task: str = "",
    overrides: Overrides | None = None,
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
        UsageError: the task does not exist, or the request is empty.
    """
    if task:
        check_task(task)
    elif not request.strip() and (overrides is None or overrides.manifest is None):
        raise UsageError("The request is empty. Say in a sentence what the model shall tell from which images.")
    sandbox = choose_sandbox()
    if overrides is not None:
        overrides = make_relative_to_root(overrides, folder)
        validate_overrides(overrides, folder, sandbox)
    with Reader(sandbox, Mounts(read=(folder,), write=(scratch,))) as reader:
        return _preview_in_reader(
            card or card_for_folder(folder), request, scratch, reader, (task, overrides, with_examples)
        )


def _preview_in_reader(
    card: Card, request: str, scratch: Path, reader: Reader, settings: tuple[str, Overrides | None, bool]
) -> DatasetPreview:
    assert card.path is not None
    folder = card.path
    task, overrides, with_examples = settings
    if overrides is not None and overrides.manifest is not None:
        decision = decide_by_manifest(overrides.manifest)
        if task and task != decision.task:
            raise UsageError(f"The manifest that was given is for {decision.task}; --task says {task}.")
    else:
        job = make_decision_job(request, card, overrides, tasks=[task] if task else ())
        decision = decide(lambda job: run_reader_job(job, folder, scratch, reader), job)
        if decision.code == SURVEY_FAILED:
            raise DataError(decision.text)
    used_task = decision.task or task
    if not decision.proposals:
        return DatasetPreview(used_task, decision, decision.text, request=request)
    work = scratch / "work"
    (work / "Datapath").mkdir(parents=True)
    manifest = decision.proposals[0].manifest
    job = {"do": "execute", "task": used_task, "name": "data", "work": str(work), "manifest": manifest}
    try:
        counts = run_reader_job(job, folder, scratch, reader)
    except DataError as error:
        problem = decision.text or f"The best manifest cannot be executed: {error}"
        return DatasetPreview(used_task, decision, problem, request=request)
    examples = _draw_examples(reader, folder, work, used_task) if with_examples else None
    example_fields = (examples.cases, examples.legend) if examples else ()
    return DatasetPreview(used_task, decision, decision.text, counts, request, *example_fields)


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
    cards: Sequence[Card], request: str, overrides: Overrides | None, *, with_examples: bool
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
