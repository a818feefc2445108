"""`IndexSpec`: which files are the cases of a data set, where their targets, patients and split come from.

A spec says what, and `m3b.data.spec.execute` does it: labels are taken from the archive, and the split is drawn by m3b,
never by a script. It is plain JSON that a survey proposes, an agent or a person edits, and a run keeps.

Patterns (`Files.pattern`) match paths below the data folder. Either a template, in which `{name}` stands for any text
within one folder or name, `{name:number}` for digits, `{name:word}` for letters, `*` for anything within a name, `**`
for any folders, and `{jpg,png}` for one of several; or, after `re:`, a regular expression for the whole path, whose
named groups are the slots. Case of letters in a file's suffix does not matter.

Keys (`"{patient}_{side}"`) are texts with slots filled in. Every file has the slots `path`, `folder`, `name`, `stem`,
`number` (the digits of the stem), `folder0`, `folder1`, ... (the folders on its way) and those of its pattern; DICOM files
have their header (`{tag.PatientID}`), a table's rows their columns.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from m3b.data import kinds
from m3b.data.box_places import Space
from m3b.data.run_lengths import Order
from m3b.data.spec.numbers_of_cases import Covariate, Number, TimeToEvent
from m3b.data.spec.value_sources import Files, FromList, FromMember, FromPath, FromTable, FromTag, SpecPart, Value
from m3b.data.survey.relations import Rule

__all__ = [
    "VERSION", "Boxes", "Channel", "Covariate", "Files", "FromList", "FromMember", "FromPath", "FromTable", "FromTag", "Images",
    "IndexSpec", "Labels", "LeftOut", "Masks", "Number", "Only", "SpecPart", "SplitRule", "States", "TARGETS", "Task", "TimeToEvent",
    "Text", "Value",
]  # fmt: skip

VERSION = 1
TARGETS = ("labels", "masks", "boxes", "states", "report", "value", "survival")
"""The parts of a spec that may be what is to be learnt."""

Task = Literal["diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival"]


class Channel(SpecPart):
    """One image of a case that has several on the same anatomy: a sequence or modality.

    Args:
        case: key that the case's first image has too.
        by: instead of `case`, how names are brought together (`m3b.data.survey.pairing_keys`), such as
            `["folders", "stem"]`.
    """

    name: str
    files: Files
    case: str = ""
    rule: Rule = "exact"
    by: tuple[str, ...] = ()


class Images(SpecPart):
    """The images, and what makes several of them one case.

    Args:
        case: key; files with the same one are one case.
        several: what a case's files are: `one` (no second), `slices` of a volume in natural order, or `views` of a study
            (not where marks are learnt).
        unit: `file`, or `folder` where a case is a folder of slices or of one DICOM series.
        frames: of clips (videos, GIF, DICOM files of several frames): how many evenly spaced frames are the case; 1 is the
            middle one, as a picture, more are read as the slices of a volume. 0: the files are no clips.
        channels: for cases with several sequences: all of them in the order in which a model gets them, and `files`
            is the first one's. The others are put on the grid of the first, on which the masks lie too.
    """

    files: Files
    case: str = "{path}"
    several: Literal["one", "slices", "views"] = "one"
    unit: Literal["file", "folder"] = "file"
    frames: int = Field(default=0, ge=0, le=64)
    channels: tuple[Channel, ...] = ()

    @model_validator(mode="after")
    def _clips(self) -> Images:
        if self.frames and (self.several != "one" or self.unit != "file" or self.channels or self.files.member):
            raise ValueError(
                "images.frames: a clip is a case of its own, one file; no slices, folders, channels or members"
            )
        return self


class Labels(SpecPart):
    """Class labels of a case.

    Args:
        sources: one for a class name; several for one-hot columns, whose names are then the labels.
        classes: class -> texts of the source that mean it (case and spaces folded). Texts of no class leave the case
            out, with that reason. In the order of the model's outputs.
        separator: between labels in one cell, for multi-label sets.
        one_hot: each source is a yes/no column; `classes` maps class -> column. Cases of which a column says that it is
            uncertain (-1) are left out.
        none: of one-hot columns and of several labels in a cell: the class of cases that have no other, one of `classes`;
            empty gives them no label, or leaves them out.
        ordered: whether the classes are grades, from low to high.
    """

    sources: tuple[Value, ...] = Field(min_length=1)
    classes: dict[str, tuple[str, ...]]
    separator: str = ""
    one_hot: bool = False
    none: str = ""
    ordered: bool = False


class Masks(SpecPart):
    """Masks of a case.

    Args:
        files: the mask files (or member of the image's own container: the same pattern with another `member`).
        case: key that the image's `image` key equals.
        by: instead of these keys, as of `Channel`; `{rest}` is then what a mask's name, or folder, has beyond its image's.
        combine: `one` mask a case; `union` of several files (anything but background counts as the one class);
            `classes`: one binary mask a class, which may overlap: a file each, which `class_key` names, or the outlines and
            segments of a class in a file of another format.
        classes: class -> value in the file; for `classes` and `union` the order alone counts.
        cut: of lossy or grey masks of one class: values above it are the class.
        colours: of masks that are painted: class -> its colour as 65536 red + 256 green + blue; every other colour is
            background, and masks with the numbers of `classes` are written.
        layers: of masks that hold a layer a class along their last axis: class -> the places of its layers from 0, which are
            united; what is above 0 there is the class. Masks with the numbers of `classes` are written (`one`, layers of different
            classes must not overlap), or one a class (`classes`).
        empty: what an image without a mask file is: left out, or healthy (detection).
        format: `image` files, contours and segments in DICOM (`rtstruct`, `dicom_seg`), or polygons (`labelme`, `coco`, `aperio`,
            `yolo`, `cvat`, `via`).
        names: of DICOM and polygon formats: class -> names of regions in the file. COCO, CVAT and VIA files need no
            `case`: they name their images; DICOM files their series; LabelMe, Aperio and YOLO files are called like their
            images. Those of YOLO write classes by their numbers.
        columns: of run lengths in a table (`csv_runs`): role -> column: `image` (a key of which `image` gives, by `rule`), `runs`,
            and `class` where there are several.
        order, first, relative: of run lengths: pixels are counted down the columns or along the rows, the number of the first
            pixel, and whether each start counts from the end of the run before.
    """

    files: Files
    case: str = ""
    image: str = ""
    rule: Rule = "exact"
    by: tuple[str, ...] = ()
    combine: Literal["one", "union", "classes"] = "one"
    class_key: str = ""
    classes: dict[str, int]
    cut: float | None = None
    colours: dict[str, int] = Field(default={})
    layers: dict[str, tuple[int, ...]] = Field(default={})
    empty: Literal["leave_out", "healthy"] = "leave_out"
    format: Literal[
        "image", "rtstruct", "dicom_seg", "labelme", "coco", "aperio", "yolo", "cvat", "via", "csv_runs"
    ] = "image"
    names: dict[str, tuple[str, ...]] = Field(default={})
    columns: dict[str, str] = Field(default={})
    order: Order = "columns"
    first: int = 1
    relative: bool = False


class States(SpecPart):
    """Whether a case is abnormal, where nothing more is known of it; beside masks, which images have nothing to mark.

    Args:
        source: of a text that tells the state: a folder, a column.
        normal: texts of the source that mean a normal case.
        abnormal: those that mean an abnormal one; empty for every other text. A text of neither leaves the case out.
        name: what the anomaly is called; the one class of the index, where there are no masks.
    """

    source: Value
    normal: tuple[str, ...] = Field(min_length=1)
    abnormal: tuple[str, ...] = ()
    name: str = "anomaly"


class Boxes(SpecPart):
    """Boxes of a case.

    Args:
        format: of the files.
        files: those that hold the boxes.
        classes: class -> names (or ids) in the files, in order.
        columns: of tables: role -> column. Boxes: `image`, `class`, and `xmin`, `ymin`, `xmax`, `ymax`; or a corner `x`, `y` or a
            middle `cx`, `cy` with `width`, `height`; of volumes also `zmin`, `zmax` or `z` or `cz` with `depth`. Circles and balls:
            a middle `x`, `y`, `z` with `radius` or `diameter`. Of cells and records with lists: `image`, `class` and one of
            `corners` (x0, y0, x1, y1), `sides` (x, y, width, height), `centres` (middle, width, height).
        space: what coordinates of tables count: pixels or voxels along the file's axes, fractions or percent of the image's sides, or
            mm of the patient (`lps`: to the left, back and head, as DICOM and ITK count; `ras`: to the right, front and head).
        sizes_mm: whether sizes are in mm though coordinates are not.
        image: key of an image file that the annotation names by `rule`.
        empty: whether an image without a box is healthy or was not looked at.
    """

    format: Literal[
        "coco", "yolo", "voc", "labelme", "aperio", "cvat", "via", "csv_boxes", "csv_circles", "csv_lists", "json_boxes"
    ]
    files: Files
    classes: dict[str, tuple[str, ...]]
    columns: dict[str, str] = Field(default={})
    space: Space = "pixels"
    sizes_mm: bool = False
    image: str = "{name}"
    rule: Rule = "exact"
    empty: Literal["leave_out", "healthy"] = "healthy"


class Text(SpecPart):
    """The report of a case; either part may be missing, not both."""

    findings: Value | None = None
    impression: Value | None = None

    @model_validator(mode="after")
    def _some(self) -> Text:
        if self.findings is None and self.impression is None:
            raise ValueError("a report needs `findings` or `impression`")
        return self


class SplitRule(SpecPart):
    """Which cases are for testing.

    Args:
        source: the data set's own split; None draws one by patient, stratified by class.
        train, val, test: texts of the source that mean each side; cases of `val` train with m3b, which holds out its own.
        share, seed: of a drawn split; cases for testing.
    """

    source: Value | None = None
    train: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    share: float = Field(default=0.2, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


class LeftOut(SpecPart):
    """Files that are no part of the index, and why; `tags` as of `Files`."""

    pattern: str
    tags: dict[str, tuple[str, ...]] = Field(default={})
    reason: str = Field(min_length=3)


class Only(SpecPart):
    """Cases that are meant, of a set that holds others too: those of which `source` gives one of these texts."""

    source: Value
    texts: tuple[str, ...] = Field(min_length=1)


class IndexSpec(SpecPart):
    """A reading of a data folder.

    Args:
        data: the data card's name, below which paths stand in an index (`data/<name>/...`).
        patient: whose case it is; None: patients are unknown, which is said wherever a figure stands.
        only: which cases are meant, where the images hold others too (one view of several); all of these must say so.
        together: further keys that the split must not divide: copies of one picture, slices of one stack.
        attributes: what figures are told apart by at the end (sex, age, site), and training is not shown.
        covariates: what a model is given beside the image (age, sex, a laboratory value), by name.
        copies: whether of images with the same pixels one alone is kept.
        left_out: files of the folder that the index does not use, with the reason.
    """

    version: Literal[1] = 1
    task: Task
    images: Images
    labels: Labels | None = None
    masks: Masks | None = None
    boxes: Boxes | None = None
    states: States | None = None
    report: Text | None = None
    value: Number | None = None
    survival: TimeToEvent | None = None
    patient: Value | None = None
    only: tuple[Only, ...] = ()
    together: tuple[Value, ...] = ()
    attributes: dict[str, Value] = Field(default_factory=dict)
    covariates: dict[str, Covariate] = Field(default={})
    copies: bool = True
    split: SplitRule = SplitRule()
    left_out: tuple[LeftOut, ...] = ()

    @model_validator(mode="after")
    def _target(self) -> IndexSpec:
        kind = kinds.of(self.task)
        allowed = kind.targets
        given = [name for name in TARGETS if getattr(self, name) is not None]
        beside = {*kind.beside, *(["states"] if self.masks is not None and "states" in allowed else [])}
        targets = [name for name in given if name not in beside]
        if len(targets) != 1 or targets[0] not in allowed:
            raise ValueError(f"task {self.task} needs one of {', '.join(allowed)}; given: {', '.join(given) or 'none'}")
        if self.images.frames and not {"labels", "value", "survival"} & set(kind.targets):
            raise ValueError(
                f"images.frames: a {self.task} target belongs to one picture and not to a clip; write the frames that were marked as "
                "pictures, in a folder a clip"
            )
        if self.covariates and not kind.takes_covariates:
            raise ValueError(f"covariates: a {self.task} model is given images alone; leave them out")
        if self.images.several == "views" and not (kind.separate_images or kind.takes_views):
            raise ValueError(
                f"images.several = views: a {self.task} model takes one view a case, and would read them as the slices of a "
                "volume; make each view a case of its own, and keep those of one study on one side with `patient` or `together`"
            )
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names in the order of a model's outputs, or what is measured; empty for reports without labels."""
        if self.value is not None or self.survival is not None:
            return ((self.value or self.survival.time).title,)  # type: ignore[union-attr]
        target = self.labels or self.masks or self.boxes
        if target is None:
            return (self.states.name,) if self.states is not None else ()
        return tuple(target.classes)
