"""What tools tell in text, as data: the same facts for programs, in plain JSON values.

A tool's result carries one of these beside its text (`ToolResult.data`), briefings carry those of m3b's own looks at the
data. Values that are masked in the text are missing here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class Summary(BaseModel):
    """Frozen; keys that a later version added are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


class NamePattern(Summary):
    """Files whose names differ in numbers alone, such as `imgs/case_{001..020}.png`, below the folder that is told of."""

    text: str
    count: int = 1


class FolderSummary(Summary):
    """What a folder holds.

    Args:
        path: as agents spell it.
        files: all below it, hidden ones left out.
        patterns: of their names, those with most files.
    """

    kind: Literal["folder"] = "folder"
    path: str = ""
    files: int = 0
    patterns: tuple[NamePattern, ...] = ()


class ColumnSummary(Summary):
    """A column of a table, or a field of a document's records (`outer.inner`).

    Args:
        type: integer, number, boolean, date, text, list, object, null or empty.
        distinct: different values, estimated where there are very many; 0 where they were not counted.
        values: of a small vocabulary each with how often it occurs, as in the text.
        prose: whether its values are sentences rather than names.
        personal: whether it looks like personal data, so that no value is told.
    """

    name: str
    type: str = "text"
    distinct: int = 0
    values: tuple[tuple[str, int], ...] = ()
    prose: bool = False
    personal: bool = False


class TableSummary(Summary):
    """Delimited text. `rows` are those that statistics are of."""

    kind: Literal["table"] = "table"
    path: str = ""
    rows: int = 0
    columns: tuple[ColumnSummary, ...] = ()


class DocumentSummary(Summary):
    """JSON or JSON lines.

    Args:
        records: items of its list, or lines.
        fields: of all its objects, however deep.
        marked: of a COCO file what its annotations hold: `bbox`, `segmentation`, `keypoints`, `caption`.
    """

    kind: Literal["document"] = "document"
    path: str = ""
    records: int = 0
    fields: tuple[ColumnSummary, ...] = ()
    marked: tuple[str, ...] = ()


class VolumeSummary(Summary):
    """A volume: voxels and their spacing in mm (or the file's unit), in the axes of the file."""

    kind: Literal["volume"] = "volume"
    path: str = ""
    shape: tuple[int, ...] = ()
    spacing: tuple[float, ...] = ()
    dtype: str = ""


class PictureSummary(Summary):
    """A picture: pixels, and Pillow's name of what a pixel is."""

    kind: Literal["picture"] = "picture"
    path: str = ""
    width: int = 0
    height: int = 0
    frames: int = 1
    mode: str = ""


FileSummary = Annotated[TableSummary | DocumentSummary | VolumeSummary | PictureSummary, Field(discriminator="kind")]


class Previews(Summary):
    """What several files hold, as far as there is data on them."""

    kind: Literal["previews"] = "previews"
    files: tuple[FileSummary, ...] = ()


class ScriptOutcome(Summary):
    """What became of a command.

    Args:
        job: its number.
        exit_code: None while it runs.
        reason: why it ended: `exit`, or what ended it.
        output: where its output lies, as agents spell it.
        error: the last traceback.
        wall_s: seconds since it was started.
    """

    kind: Literal["script"] = "script"
    job: int = 0
    running: bool = False
    exit_code: int | None = None
    reason: str = ""
    output: str = ""
    error: str = ""
    wall_s: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether it ended otherwise than with exit code 0."""
        return self.exit_code not in (None, 0)


class FindingSummary(Summary):
    """What the audit of an index found: a stable `code`, its `weight` (`reject`, `fix` or `warn`), in words for whoever writes
    the index, and some of the cases concerned."""

    code: str
    weight: Literal["reject", "fix", "warn"]
    message: str = ""
    cases: tuple[str, ...] = ()


class AuditSummary(Summary):
    """What the audit of an index counted and found.

    Args:
        counts: cases a class, by split; of masks those in which the class occurs.
        split: cases by split.
        patients: different ones by split; of unknown patients, groups of images that are kept together.
        cases, opened: of all, and of them those whose images were opened.
        shapes: of opened images, with how often each occurs.
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
    """What the check of a training project measured.

    Args:
        batch_shape: of the batch that was tried.
        loss_before, loss_after: of one batch, before and after a few steps on it.
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
        asked: whether the request's words name it.
        hinted: whether they may mean it, where the data shows nothing else.
        needs: what the data must show, any of `masks`, `boxes`, `texts`, `times`; empty where labels of images will do.
        kin: tasks whose data sets serve it too.
        metrics: by what its models can be measured, the usual one first.
        box_metrics: of these, those that boxes alone can be measured by.
        state_metrics: those for which it is enough to know of an image whether it is abnormal.
        plan: one that fits most data of it.
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
    """The best that a folder could be read as for one task.

    Args:
        boxes: whether boxes were asked for; None leaves that open.
        score: 0 to 1; `insufficient` says why it may not be taken without more.
        target: what is to be learnt: `labels`, `masks`, `boxes`, `states`, `report`, `value` or `survival`.
    """

    task: str
    boxes: bool | None = None
    title: str
    score: float
    insufficient: str = ""
    target: str = ""


class SurveySummary(Summary):
    """What m3b read in a folder before anybody was asked.

    Args:
        lines: images and masks with their values, tables, annotations, split, patients, faults: ten at most.
        readings: the best a task, for the tasks that have any.
        chosen: the one that `m3b look` shows for the request; its title is empty if nothing can be read for it.
    """

    lines: tuple[str, ...] = ()
    readings: tuple[TaskProposal, ...] = ()
    chosen: TaskProposal | None = None


class DatasetOption(Summary):
    """A data set on this machine.

    Args:
        task, metric, modality, anatomy, dimension, classes, patient_key: of its card; empty where that names none.
        description: the card's free text.
        notes: what a note in the folder says, in the words of whoever made it.
        folder, files: m3b's own look at its data.
        read: what a survey of all its files found.
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
    """What the selection is made from."""

    kind: Literal["selection"] = "selection"
    request: str
    cards: tuple[DatasetOption, ...] = ()
    tasks: tuple[TaskOption, ...] = ()


class ManifestProposal(Summary):
    """A proposed manifest of the data.

    Args:
        file: where its spec lies, as agents spell it.
        score: 0 to 1, how well what was measured and the request bear it out.
        sufficient: whether it may be taken as it is.
        unclear: what a person should decide first.
        expected: cases, classes and patients of both parts, before any image is opened; empty where they were not counted.
        spec: the reading itself, as it lies in the file (`m3b.data.spec.model`).
        given: whether the user gave it, so that it stands.
    """

    file: str
    score: float = 0.0
    sufficient: bool = False
    title: str = ""
    evidence: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unclear: str = ""
    expected: str = ""
    spec: dict[str, Any] = Field(default_factory=dict)
    given: bool = False


class IndexBrief(Summary):
    """What the index is made from.

    Args:
        metric, classes, plan: what the selection says; the plan in the words of the agent that made it.
        data: the data folder, as agents spell it.
        place: where a manifest that is handed over must lie.
        readings: best first.
        insufficient: why the best may not be taken as it is, or why there is none; empty where it may.
        unusable: what is wrong with the data itself, where that is plain.
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


class ModuleBrief(Summary):
    """What the training project is made from.

    Args:
        metric, plan: what the selection says; the plan in the words of the agent that made it.
        classes: each with the number that stands for it.
        audit: what the audit counted and found in the index.
        template: its folder, as agents spell it.
        minutes: that one training may take.
        said: what earlier roles said when they handed over, by title.
    """

    kind: Literal["module"] = "module"
    task: str
    metric: str = ""
    plan: str = ""
    classes: dict[str, int] = Field(default_factory=dict)
    audit: AuditSummary = AuditSummary()
    template: str
    minutes: float = Field(gt=0, allow_inf_nan=False)
    said: dict[str, str] = Field(default_factory=dict)


class ModelBrief(Summary):
    """What is trained. `minutes` as the project plans them, `cases` for training; the rest as in `ModuleBrief`."""

    kind: Literal["model"] = "model"
    task: str
    metric: str = ""
    classes: tuple[str, ...] = ()
    project: ProjectSummary = ProjectSummary()
    cases: int = 0
    minutes: float = Field(gt=0, allow_inf_nan=False)
    said: dict[str, str] = Field(default_factory=dict)


class Rejection(Summary):
    """A check does not accept what was handed over. `reasons`: the faults in the user's words; `codes`: of the audit's
    findings among them; `absent`: classes that may be dropped, since no data object shows them."""

    kind: Literal["rejection"] = "rejection"
    faults: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Reflection(Summary):
    """A check accepts, with warnings, and the role may look again."""

    kind: Literal["reflection"] = "reflection"
    warnings: tuple[str, ...] = ()


class Answer(Summary):
    """What the user answered. `card`: the data set that he named, as it is called; empty where that is open."""

    kind: Literal["answer"] = "answer"
    text: str
    card: str = ""


Brief = SelectionBrief | IndexBrief | ModuleBrief | ModelBrief
FollowUp = Rejection | Reflection | Answer
TypedFacts = Annotated[Brief | FollowUp | ScriptOutcome, Field(discriminator="kind")]
_FACTS_ADAPTER: TypeAdapter[Brief | FollowUp | ScriptOutcome] = TypeAdapter(TypedFacts)


def parse_facts(facts: Iterable[Mapping[str, Any]]) -> list[Brief | FollowUp | ScriptOutcome]:
    """The typed facts of a message; what is of no known kind is passed over."""
    parsed = []
    for raw in facts:
        try:
            parsed.append(_FACTS_ADAPTER.validate_python(raw))
        except ValidationError:
            continue
    return parsed
