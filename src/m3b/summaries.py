"""What tools tell in text, as data: the same facts for programs, in plain JSON values.

A tool's result carries one of these beside its text (`ToolResult.data`), briefings carry those of m3b's own looks at the
data. Values that are masked in the text are missing here too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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
