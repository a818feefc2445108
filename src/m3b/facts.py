"""Facts: what tools and briefings say in text, as data for programs, in plain JSON values.

A tool's result carries one of these in `ToolResult.data`; briefings carry those of m3b's own previews of the data.
Values that are masked in the text are missing here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class Summary(BaseModel):
    """Base class: frozen; keys that a later version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return self.model_dump(mode="json")


class NamePattern(Summary):
    """Files whose names differ only in numbers, such as `imgs/case_{001..020}.png`, relative to their folder."""

    text: str
    count: int = 1


class FolderSummary(Summary):
    """The contents of a folder.

    Args:
        path: as agents spell it.
        files: number of all files below it, without hidden ones.
        patterns: name patterns with the most files.
    """

    kind: Literal["folder"] = "folder"
    path: str = ""
    files: int = 0
    patterns: tuple[NamePattern, ...] = ()


class ColumnSummary(Summary):
    """A column of a table, or a field of a document's records (`outer.inner`).

    Args:
        type: integer, number, boolean, date, text, list, object, null or empty.
        distinct: number of different values, estimated if it is very large; 0 if not counted.
        values: for a small vocabulary, each value with its frequency, as in the text.
        prose: whether its values are sentences rather than names.
        personal: whether it looks like personal data, so that no value is shown.
    """

    name: str
    type: str = "text"
    distinct: int = 0
    values: tuple[tuple[str, int], ...] = ()
    prose: bool = False
    personal: bool = False


class TableSummary(Summary):
    """A table as delimited text; `rows` is the number of rows that the statistics are computed from."""

    kind: Literal["table"] = "table"
    path: str = ""
    rows: int = 0
    columns: tuple[ColumnSummary, ...] = ()


class DocumentSummary(Summary):
    """JSON or JSON lines.

    Args:
        records: number of items in its list, or of lines.
        fields: fields of all its objects at any depth.
        marked: for a COCO file, what its annotations hold: `bbox`, `segmentation`, `keypoints`, `caption`.
    """

    kind: Literal["document"] = "document"
    path: str = ""
    records: int = 0
    fields: tuple[ColumnSummary, ...] = ()
    marked: tuple[str, ...] = ()


FileSummary = Annotated[TableSummary | DocumentSummary, Field(discriminator="kind")]


class Previews(Summary):
    """The contents of several files, as far as there is data on them."""

    kind: Literal["previews"] = "previews"
    files: tuple[FileSummary, ...] = ()


class ScriptOutcome(Summary):
    """The outcome of a command.

    Args:
        job: its number.
        exit_code: None while it runs.
        reason: why it ended: `exit`, or what ended it.
        disk_full: whether it failed and the disk was full.
        output: path of its output, as agents spell it.
        error: the last traceback.
        wall_s: seconds since its start.
    """

    kind: Literal["script"] = "script"
    job: int = 0
    running: bool = False
    exit_code: int | None = None
    reason: str = ""
    disk_full: bool = False
    output: str = ""
    error: str = ""
    wall_s: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether it ended with another exit code than 0."""
        return self.exit_code not in (None, 0)


class FindingSummary(Summary):
    """A finding of the audit of an index.

    Args:
        code: its stable code.
        message: text for the author of the index.
        cases: some of the cases concerned.
    """

    code: str
    weight: Literal["reject", "fix", "warn"]
    message: str = ""
    cases: tuple[str, ...] = ()


class AuditSummary(Summary):
    """Counts and findings of the audit of an index.

    Args:
        counts: split -> class -> cases; for masks, cases in which the class occurs.
        split: split -> cases.
        patients: split -> patients; if they are unknown, groups of images that are kept together.
        cases, opened: number of all cases, and of those whose images were opened.
        shapes: shape of opened images -> frequency.
    """

    kind: Literal["audit"] = "audit"
    task: str = ""
    counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    split: dict[str, int] = Field(default_factory=dict)
    patients: dict[str, int] = Field(default_factory=dict)
    patients_known: bool = True
    cases: int = 0
    opened: int = 0
    shapes: dict[str, int] = Field(default_factory=dict)
    findings: tuple[FindingSummary, ...] = ()


class ProjectSummary(Summary):
    """Measurements of the check of a training project.

    Args:
        batch_shape: shape of the batch that was tried.
        loss_before, loss_after: loss of one batch, before and after a few steps on it.
        plan: plan.json of the project.
    """

    kind: Literal["project"] = "project"
    batch_shape: tuple[int, ...] = ()
    parameters: int = 0
    loss_before: float = 0.0
    loss_after: float = 0.0
    plan: dict[str, Any] = Field(default_factory=dict)


class TaskOption(Summary):
    """A task family as the Task Manager may choose it for a request.

    Args:
        asked: whether the request names it.
        hinted: whether the request may mean it, if the data shows nothing else.
        needs: what the data must contain, any of `masks`, `boxes`, `texts`, `times`; empty if labels of images suffice.
        kin: tasks whose data sets can serve it too.
        metrics: metrics of its models, the usual one first.
        box_metrics: those of the metrics that can be measured with boxes alone.
        state_metrics: those for which it suffices to know whether an image is abnormal.
        plan: a plan that fits most of its data.
    """

    name: str
    asked: bool = False
    hinted: bool = False
    needs: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    metrics: tuple[str, ...] = Field(min_length=1)
    box_metrics: tuple[str, ...] = ()
    state_metrics: tuple[str, ...] = ()
    plan: str = ""


class TaskProposal(Summary):
    """The best manifest proposal of a folder for one task.

    Args:
        score: 0 to 1; `insufficient` says why it may not be taken without asking.
        decision: `proposed`, `ask` (one question is open) or `refuse` (something is missing).
        target: what is learnt: `labels`, `masks`, `boxes`, `states`, `report`, `value` or `survival`.
    """

    task: str
    title: str
    score: float
    decision: str = "proposed"
    insufficient: str = ""
    target: str = ""


class SurveySummary(Summary):
    """The survey of a folder before the selection.

    Args:
        lines: images and masks with their values, tables, annotations, split, patients, faults: at most ten.
        readings: the best proposal of each task that has any.
        chosen: the decision for the request, as `m3b look` shows it; its title is empty if there is no manifest for it.
    """

    lines: tuple[str, ...] = ()
    readings: tuple[TaskProposal, ...] = ()
    chosen: TaskProposal | None = None


class DatasetOption(Summary):
    """A data set on this machine.

    Args:
        task, metric, modality, anatomy, dimension, classes, patient_key: from its card; empty if the card has none.
        description: the card's free text.
        notes: text of a note in the folder, as its author wrote it.
        folder, files: m3b's own previews of its data.
        read: survey of all its files.
        named: whether the user named it for this request, as with `--data`.
    """

    name: str
    task: str = ""
    metric: str = ""
    modality: str = ""
    anatomy: str = ""
    dimension: int | None = None
    classes: tuple[str, ...] = ()
    patient_key: str = ""
    description: str = ""
    notes: str = ""
    folder: FolderSummary = FolderSummary()
    files: tuple[FileSummary, ...] = ()
    read: SurveySummary = SurveySummary()
    named: bool = False


class SelectionBrief(Summary):
    """The facts for the selection."""

    kind: Literal["selection"] = "selection"
    request: str
    cards: tuple[DatasetOption, ...] = ()
    tasks: tuple[TaskOption, ...] = ()


class ManifestProposal(Summary):
    """A proposed manifest of the data.

    Args:
        file: path of its manifest, as agents spell it.
        score: 0 to 1, how likely every part of it is right.
        sufficient: whether it may be taken without asking.
        expected: cases, classes and patients of both splits, before any image is opened; empty if not counted.
        manifest: as in the file (`m3b.dataset.manifest.model`).
        given: whether the user gave it, so that it must be used.
    """

    file: str = ""
    score: float = 0.0
    sufficient: bool = False
    title: str = ""
    evidence: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    expected: str = ""
    manifest: dict[str, Any] = Field(default_factory=dict)
    given: bool = False


class IndexBrief(Summary):
    """The facts for making the index.

    Args:
        metric, classes, plan: from the selection; the plan in the words of the agent that made it.
        data: the data folder, as agents spell it.
        place: path to which a manifest must be written to hand it over.
        readings: manifest proposals, best first.
        insufficient: why the best may not be taken without asking, or why there is none; empty if it may.
        unusable: what is missing in the data, if no manifest can serve the request.
        can_ask: whether a person is asked before training about what is open.
    """

    kind: Literal["index"] = "index"
    request: str
    task: str
    metric: str = ""
    classes: tuple[str, ...] = ()
    plan: str = ""
    data: str
    place: str
    readings: tuple[ManifestProposal, ...] = ()
    insufficient: str = ""
    unusable: str = ""
    can_ask: bool = False


class ModuleBrief(Summary):
    """The facts for setting up the training project.

    Args:
        metric, plan: from the selection; the plan in the words of the agent that made it.
        classes: class -> number.
        audit: counts and findings of the audit of the index.
        template: its folder, as agents spell it.
        minutes: maximum duration of one training.
        plan_command: the command that makes the plan, with what the user fixed.
        given_plan: the plan.json that the user gave, as it must be in the working directory; empty if none.
        searched: settings of plan.json that a search over plans varies after this stage; empty without a search.
        said: role title -> closing remark of the earlier roles.
    """

    kind: Literal["module"] = "module"
    task: str
    metric: str = ""
    plan: str = ""
    classes: dict[str, int] = Field(default_factory=dict)
    audit: AuditSummary = AuditSummary()
    template: str
    minutes: float = Field(gt=0, allow_inf_nan=False)
    plan_command: str = ""
    given_plan: dict[str, Any] = Field(default_factory=dict)
    searched: tuple[str, ...] = ()
    said: dict[str, str] = Field(default_factory=dict)


class PlanCandidate(Summary):
    """A candidate of a search over plans.

    Args:
        number: counted from 1; 1 is the plan as it was before the search.
        source: `default`, `table` (a setting of the search table), `sampler` or `agent`.
        settings: by which it differs from the plan as it was, by dotted name.
        minutes: of its longest training.
        value: the metric on held-out cases after the longest training that was measured; None if none was.
        problem: why its last training has no figure.
        figures: the metric after each rung that it was measured in.
        steps: optimiser steps of each of its networks (the fewest of several) behind each figure; 0 if unknown.
        interval: 95 % interval of `value` over patients; empty if there are too few.
        gain: of `value` over the plan as it was after the same training, on the same cases, with its 95 % interval, paired over
            patients; positive if it is better. Not corrected for the selection; empty for that plan itself, or if unknown.
    """

    number: int
    source: str
    settings: dict[str, Any] = Field(default_factory=dict)
    minutes: float = 0.0
    value: float | None = None
    problem: str = ""
    figures: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    interval: tuple[float, ...] = ()
    gain: tuple[float, ...] = ()


class PlanEnsemble(Summary):
    """The average of a search's best candidates, compared with the best one on the same held-out cases.

    Args:
        candidates: numbers of the averaged candidates, the best one first.
        value: the metric of the average.
        gain: by how much it is better than the best candidate, corrected for the selection, with its 95 % interval `low` to `high`.
        equal_time_gain: by how much the average of shorter trainings, which together took no longer, is better.
        selected: whether the last training is that of the average, whose recipes divide its time.
        problem: why it is not, though the average is better beyond chance.
    """

    candidates: tuple[int, ...]
    value: float
    gain: float
    low: float
    high: float
    equal_time_gain: float
    selected: bool = False
    problem: str = ""


class SearchSummary(Summary):
    """The result of a search over plans: the artifact of the stage, and what the Model Trainer is told.

    Args:
        metric: by which candidates are compared, on the cases that they hold out of training.
        candidates: all of them, in their order.
        selected: number of the best candidate, or of the plan unchanged if `lead` is within its standard error.
        value: its figure, on which it was selected, so that it is too good; that of the average if `ensemble` is selected.
        corrected: the figure without the gain from selecting (`m3b.metrics.selection_bias`), with its 95 % interval `low` to `high`;
            None if there are too few patients.
        optimism: by how much `value` is better than `corrected`.
        gain: of the selected candidate over the plan as it was on the same cases, with its 95 % interval; empty if that is it.
        best: number of the candidate with the best figure; 0 in older records.
        lead: its gain over the plan unchanged after the same training: uncorrected, corrected for the selection, and its standard
            error; empty if the plan unchanged has the best figure or none, or if there are too few patients.
        folds: networks of each candidate; each case is held out by one of them, with one network a part of the cases is.
        cases, patients: that are held out.
        minutes: that the search took, planning and measuring included.
        stopped: why it ended: `time`, `min_gain` or `done`.
        proposals_left: how many further candidates the Model Trainer may propose.
        max_minutes: that the search may take.
        rung_minutes: of a candidate's training in each rung, all its networks together.
        final_minutes: of the training of the selected plan, which is delivered.
        training_cases: of the index; `cases` are some or all of them.
        ensemble: the average of the best candidates; None if nothing could be averaged.
        min_steps: of each network, below which a figure is of a training too short to be compared; 0 if unknown.
    """

    kind: Literal["search"] = "search"
    metric: str
    candidates: tuple[PlanCandidate, ...] = ()
    selected: int = 1
    value: float | None = None
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    optimism: float | None = None
    gain: tuple[float, ...] = ()
    best: int = 0
    lead: tuple[float, ...] = ()
    folds: int = 1
    cases: int = 0
    patients: int = 0
    minutes: float = 0.0
    stopped: str = "done"
    proposals_left: int = 0
    max_minutes: float = 0.0
    rung_minutes: tuple[float, ...] = ()
    final_minutes: float = 0.0
    training_cases: int = 0
    ensemble: PlanEnsemble | None = None
    min_steps: int = 0


class ModelBrief(Summary):
    """The facts for training. `minutes` is from the project's plan, `cases` for training, `search` of the search over plans,
    if there was one; others as in `ModuleBrief`.
    """

    kind: Literal["model"] = "model"
    task: str
    metric: str = ""
    classes: tuple[str, ...] = ()
    project: ProjectSummary = ProjectSummary()
    cases: int = 0
    minutes: float = Field(gt=0, allow_inf_nan=False)
    said: dict[str, str] = Field(default_factory=dict)
    search: SearchSummary | None = None


class Rejection(Summary):
    """A check rejects an artifact.

    Args:
        faults: the issues in the words for the agent.
        reasons: the issues in the words for the user.
        codes: codes of the issues that have one, such as audit findings.
        absent: classes that may be dropped, since no data shows them.
    """

    kind: Literal["rejection"] = "rejection"
    faults: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Reflection(Summary):
    """A check accepts with warnings, and the role may reconsider its work."""

    kind: Literal["reflection"] = "reflection"
    warnings: tuple[str, ...] = ()


class Answer(Summary):
    """The user's answer. `card`: name of the data set that the user named; empty if it names none."""

    kind: Literal["answer"] = "answer"
    text: str
    card: str = ""


Brief = SelectionBrief | IndexBrief | ModuleBrief | ModelBrief
FollowUp = Rejection | Reflection | Answer | SearchSummary
TypedFacts = Annotated[Brief | FollowUp | ScriptOutcome, Field(discriminator="kind")]
_FACTS_ADAPTER: TypeAdapter[Brief | FollowUp | ScriptOutcome] = TypeAdapter(TypedFacts)


def parse_facts(facts: Iterable[Mapping[str, Any]]) -> list[Brief | FollowUp | ScriptOutcome]:
    """Return the typed facts of a message; facts of an unknown kind are ignored."""
    parsed = []
    for raw in facts:
        try:
            parsed.append(_FACTS_ADAPTER.validate_python(raw))
        except ValidationError:
            continue
    return parsed
