"""What a manifest finds in a folder, by names, tables and headers alone: cases, targets, patients, parts, and what is left out.

`resolve` opens no image. It is called thousands of times while manifests are proposed, and once for each that somebody writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from m3b.data import kinds
from m3b.data.natural import natural
from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.annotated import ANY, AnnotatedImages, find_annotated
from m3b.dataset.manifest.image_frame import ImageFrame, JoinedTable
from m3b.dataset.manifest.model import Boxes, Files, Manifest, Masks, Number, Split, ValueSource
from m3b.dataset.manifest.numbers import BOUND, parse_numbers, says_no_number
from m3b.dataset.manifest.patterns import parse_pattern
from m3b.dataset.manifest.problems import PatternError, Problem, list_names
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.templates import columns_of, fold, match_keys
from m3b.dataset.tables import LIST_SEPARATOR
from m3b.dataset.tables.yes_no import NO, UNCERTAIN, YES

"""Texts of a yes/no column that say neither, as those of CheXpert and MIMIC-CXR do (Irvin et al., AAAI 2019)."""

TARGETS: dict[str, tuple[str, ...]] = {
    "diagnosis": ("labels",),
    "grading": ("labels",),
    "segmentation": ("masks", "boxes"),
    "detection": ("masks", "boxes", "states"),
    "report": ("report",),
    "regression": ("value",),
    "survival": ("survival",),
}
"""Task -> parts of a manifest of which exactly one says what is learnt."""
OPTIONAL_PARTS: dict[str, tuple[str, ...]] = {"report": ("labels",), "detection": ("states",)}
"""Task -> parts that may be there besides."""
TARGET_PARTS = ("labels", "masks", "boxes", "states", "report", "value", "survival")
DOCUMENT_SUFFIXES = (".md", ".txt", ".pdf", ".rst", ".html", ".docx", "")
NO_LABEL_CODES = frozenset({"no_label", "text_without_class"})
"""Codes of exclusions that hold for every case without a label."""
MAX_EXAMPLES = 5
PENDING_REPORT = (
    r"(?i)^[^.。]{0,24}\b(?:to follow|will follow|follows|pending|not (?:yet )?(?:available|dictated|written)"
    r"|folgt|ausstehend|steht (?:noch )?aus|en attente|à venir|suivra|pendiente|por redactar)\W*$"
    r"|^[^。]{0,8}(?:待出|未出|待补|待写)\W*$"
)
"""Texts of a few words in five languages in place of a report that is not yet written."""


@dataclass(frozen=True)
class ExcludedFiles:
    """Files, or cases, that the index does not use.

    Args:
        code: for programs, such as `no_label`.
        reason: for people, without names of files.
    """

    code: str
    reason: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Resolved:
    """What a manifest finds.

    Args:
        frame: one row a case that can be used: `case`, `refs` and `paths` (of its images), `channels`, `labels`, `patient`, `split`
            ("" if one is drawn or no part has it), `number`, `time`, `event`, `abnormal`, `findings`, `impression`, `mask_refs`,
            `mask_texts` (of `per_file`), `annotations` (as the files name the image), `n_marks`, `mark_classes`, `together`, and
            `attribute.*` and `covariate.*`; only those that the manifest has.
        excluded: one row a case that cannot: `case`, `paths`, `code`, `reason`.
        left_files: files that belong to no case: `path`, `code`, `reason`, the first reason of each counts.
        used_files: `path` and `use` of tables, masks and annotations.
        problems: what is wrong, errors first.
        tables: name -> table with the images that its rows belong to.
        annotated: `masks` or `boxes` -> annotations of a format or table.
        images: one row an image, with all columns that the manifest uses.
        unlabelled: as `frame`, of cases that lack nothing but a label and are not of the folder's own test part. They are
            excluded too, unless the manifest keeps them.
    """

    manifest: Manifest
    inventory: Inventory
    frame: pl.DataFrame
    excluded: pl.DataFrame
    left_files: pl.DataFrame
    used_files: pl.DataFrame
    problems: tuple[Problem, ...]
    tables: dict[str, JoinedTable]
    annotated: dict[str, AnnotatedImages]
    images: pl.DataFrame
    unlabelled: pl.DataFrame

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems for which the manifest cannot be executed."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the model's outputs, or the title of what is measured."""
        return class_names(self.manifest)

    @property
    def kept_unlabelled(self) -> pl.DataFrame:
        """Unlabelled cases that the manifest keeps."""
        return self.unlabelled if keeps_unlabelled(self.manifest) else self.unlabelled.clear()

    @cached_property
    def uses(self) -> pl.DataFrame:
        """Every file of the folder once: `path`, `use` (null if it is left out), `code`, `reason`."""
        images = self.frame.select(pl.col("paths").explode().alias("path"), use=pl.lit("image"))
        unlabelled = self.kept_unlabelled.select(
            pl.col("paths").explode().alias("path"), use=pl.lit("unlabelled image")
        )
        frames = [
            pl.concat([images, unlabelled, self._used_masks(), self.used_files]),
            self.excluded.select(pl.col("paths"), "code", "reason").explode("paths").rename({"paths": "path"}),
            self.left_files,
            self._excluded_by_manifest(),
        ]
        assigned = pl.concat(frames, how="diagonal").unique("path", keep="first", maintain_order=True)
        uses = self.inventory.files.select("path", "bytes").join(assigned, on="path", how="left", maintain_order="left")
        suffix = pl.col("path").str.extract(r"(\.[^./]*)$", 1).str.to_lowercase().fill_null("")
        is_unassigned = pl.col("use").is_null() & pl.col("code").is_null()
        by_code = {
            "document": (suffix.is_in(DOCUMENT_SUFFIXES), pl.lit("a document")),
            "empty": (pl.col("bytes") == 0, pl.lit("an empty file")),
            "not_named": (
                pl.lit(True),
                pl.concat_str(pl.lit("the manifest uses nothing of it ("), suffix, pl.lit(")")),
            ),
        }
        codes = pl.coalesce(pl.when(applies).then(pl.lit(code)) for code, (applies, _) in by_code.items())
        reasons = pl.coalesce(pl.when(applies).then(reason) for applies, reason in by_code.values())
        return uses.with_columns(
            code=pl.when(is_unassigned).then(codes).otherwise("code"),
            reason=pl.when(is_unassigned).then(reasons).otherwise("reason"),
        ).drop("bytes")

    def _used_masks(self) -> pl.DataFrame:
        """Mask files of the cases."""
        if (
            self.manifest.masks is None
            or self.manifest.masks.format != "image"
            or "mask_refs" not in self.frame.columns
        ):
            return pl.DataFrame(schema={"path": pl.String, "use": pl.String})
        cases = self.frame.filter(pl.col("abnormal")) if "abnormal" in self.frame.columns else self.frame
        masks = cases.select(path=pl.col("mask_refs").explode().str.replace(r"#.*$", "")).drop_nulls()
        return masks.with_columns(use=pl.lit("mask"))

    def _excluded_by_manifest(self) -> pl.DataFrame:
        """Files that the manifest itself leaves out, with its reasons."""
        pieces = [pl.DataFrame(schema={"path": pl.String, "code": pl.String, "reason": pl.String})]
        for exclusion in self.manifest.exclude:
            try:
                hits = parse_pattern(exclusion.files, "exclude").match(self.inventory.files.select("path"))
            except PatternError:
                continue
            pieces.append(hits.select("path", code=pl.lit("stated"), reason=pl.lit(exclusion.reason)))
        return pl.concat(pieces)

    @cached_property
    def exclusions(self) -> tuple[ExcludedFiles, ...]:
        """Files that are left out, by reason, the most frequent first."""
        unused = self.uses.filter(pl.col("use").is_null())
        return count_exclusions(unused.select("code", "reason", "path"))

    @cached_property
    def excluded_cases(self) -> tuple[ExcludedFiles, ...]:
        """Cases that are left out, by reason, the most frequent first."""
        return count_exclusions(self.excluded.select("code", "reason", pl.col("case").alias("path")))

    @cached_property
    def missing_files(self) -> tuple[int, tuple[str, ...]]:
        """Keys of tables that neither an image nor another file of the folder has: how many, and the first few."""
        missing: dict[str, None] = {}
        for name, join in self.tables.items():
            table = self.manifest.tables[name]
            if not len(join.unmatched) or set(columns_of([table.image])) - {"path", "name", "stem"}:
                continue
            every = ImageFrame(self.inventory.files.select("path", ref="path"), FolderReaders(self.inventory), [])
            pairs = match_keys(every.keys(table.image, table.match, ""), join.unmatched, table.match)
            absent = join.unmatched.filter(
                ~pl.int_range(len(join.unmatched), dtype=pl.UInt32, eager=True).is_in(pairs["right"].implode())
            )
            missing |= dict.fromkeys(absent.unique(maintain_order=True).to_list())
        return len(missing), tuple(list(missing)[:MAX_EXAMPLES])

    @property
    def unused_rows(self) -> dict[str, int]:
        """Table -> rows that belong to no image."""
        return {name: len(join.table.frame) - join.matched_rows for name, join in self.tables.items()}


def class_names(manifest: Manifest) -> tuple[str, ...]:
    """Class names in the order of the model's outputs, or the title of what is measured; none for reports without labels."""
    number = manifest.value or (manifest.survival.time if manifest.survival is not None else None)
    if number is not None:
        return (f"{number.title} ({number.unit})" if number.unit else number.title,)
    if manifest.labels is not None:
        return tuple(manifest.labels.classes or manifest.labels.columns)
    if manifest.masks is not None:
        return tuple(manifest.masks.classes)
    if manifest.boxes is not None:
        return tuple(manifest.boxes.classes)
    return (manifest.states.name,) if manifest.states is not None else ()


def keeps_unlabelled(manifest: Manifest) -> bool:
    """Return whether unlabelled cases are a part of the index."""
    labels = manifest.labels
    takes_unlabelled = manifest.report is None and kinds.of(manifest.task).takes_unlabelled
    return labels is not None and labels.unlabelled == "keep" and takes_unlabelled


def count_exclusions(frame: pl.DataFrame) -> tuple[ExcludedFiles, ...]:
    """Rows of `code`, `reason` and `path` by reason, the most frequent first."""
    grouped = frame.group_by("code", "reason").agg(pl.len().alias("count"), pl.col("path").sort().head(MAX_EXAMPLES))
    ordered = grouped.sort(["count", "reason"], descending=[True, False])
    return tuple(ExcludedFiles(code, reason, count, tuple(paths)) for code, reason, count, paths in ordered.iter_rows())


def resolve(
    manifest: Manifest,
    inventory: Inventory,
    *,
    readers: FolderReaders | None = None,
    prompted: Collection[str] = (),
) -> Resolved:
    """Find the cases of a manifest in a folder, without opening an image.

    Args:
        readers: of the folder; with the same readers, tables and lists of files are read once for all manifests.
        prompted: references of images for which a mask was prompted in this run; they need none of their own.
    """
    return _Resolver(manifest, readers or FolderReaders(inventory), frozenset(prompted)).resolve()


@dataclass
class _Resolver:
    manifest: Manifest
    readers: FolderReaders
    prompted: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    left_frames: list[pl.DataFrame] = field(default_factory=list)
    used_frames: list[pl.DataFrame] = field(default_factory=list)
    reasons: list[tuple[pl.Expr, str, pl.Expr]] = field(default_factory=list)
    """Condition of a case, code and reason, in the order in which they count."""
    annotated: dict[str, AnnotatedImages] = field(default_factory=dict)
    has_no_label: pl.Expr | None = None
    """Condition of a case that nothing gives a label."""

    def resolve(self) -> Resolved:
        self._check_targets()
        self.images = ImageFrame(self._find_images(), self.readers, self.problems)
        for name, table in self.manifest.tables.items():
            self.images.join(name, table, self._columns_of_table(name))
            if name in self.images.tables:
                self._use(self.images.tables[name].table.files, "table")
        self._add_cases()
        self.cases = self._evaluate_values()
        self._add_channels()
        self._exclude_unwanted()
        self._add_labels()
        self._add_states()
        self._add_masks()
        self._add_boxes()
        self._add_numbers()
        self._add_texts()
        self._add_patient_and_split()
        return self._finish()

    # --- images and cases --------------------------------------------------------------------------------------------------

    def _check_targets(self) -> None:
        manifest = self.manifest
        present = [name for name in TARGET_PARTS if getattr(manifest, name) is not None]
        allowed = TARGETS[manifest.task]
        optional = OPTIONAL_PARTS.get(manifest.task, ()) if len(present) > 1 else ()
        targets = [name for name in present if name not in optional]
        if len(targets) != 1 or targets[0] not in allowed or (optional and "boxes" in present and "states" in present):
            self.problems.append(
                Problem(
                    code="wrong_target",
                    part="task",
                    finding=f"{manifest.task} needs exactly one of {', '.join(allowed)}; given: {list_names(present)}.",
                    remedy="Add the part that says what is learnt, and take the others out.",
                    values={"task": manifest.task, "given": present, "allowed": list(allowed)},
                )
            )

    def _columns_of_table(self, name: str) -> list[str]:
        """Columns of a table that the manifest names."""
        prefix = f"{name}."
        return [column.removeprefix(prefix) for column in self._columns if column.startswith(prefix)]

    @cached_property
    def _columns(self) -> list[str]:
        """All columns that templates of the manifest name."""
        return columns_of(_templates_of(self.manifest))

    def _find_images(self) -> pl.DataFrame:
        images = self.manifest.images
        empty = pl.DataFrame(schema={"(image)": pl.UInt32, "path": pl.String, "ref": pl.String})
        try:
            items = self.readers.items(self._without_exclusions(images), "images")
        except PatternError as error:
            self.problems.append(error.problem)
            return empty
        if not len(items):
            self._note_no_files("images", images)
            return empty
        if images.frames:
            items = items.with_columns(pl.concat_str(pl.col("ref"), pl.lit(f"#frames={images.frames}")).alias("ref"))
        return items.with_row_index("(image)")

    def _without_exclusions(self, files: Files) -> Files:
        """Files without those that the manifest leaves out, whichever part would take them."""
        excluded = tuple(item.files for item in self.manifest.exclude)
        return files.model_copy(update={"exclude": (*files.exclude, *excluded)}) if excluded else files

    def _note_no_files(self, part: str, files: Files) -> None:
        """No file matches: say which folders and names there are."""
        patterns = " or ".join(map(repr, files.patterns))
        paths = self.readers.inventory.files["path"]
        folders = paths.str.extract(r"^([^/]*)/", 1).unique(maintain_order=True).drop_nulls().to_list()
        if files.member:
            members_text = ""
            for path in paths.head(200).to_list():
                if (
                    members := self.readers.members(path)
                    if path.lower().endswith((".npz", ".h5", ".hdf5", ".mat"))
                    else {}
                ):
                    members_text = f" {path} has {list_names(members)}."
                    break
            finding = f"no file matching {patterns} has a member {files.member!r}.{members_text}"
        else:
            finding = f"no file matches {patterns}. There are {len(paths):,} files, such as {list_names(paths.head(3).to_list())}."
        self.problems.append(
            Problem(
                code="pattern_matches_nothing",
                part=f"{part}.files",
                finding=finding,
                remedy="Change the pattern; {slot} stands for text within one name, ** for any folders.",
                values={"pattern": list(files.patterns), "folders": folders[:20]},
            )
        )

    def _add_cases(self) -> None:
        """Number the cases: `case_no` of each image, in natural order."""
        images, frame = self.manifest.images, self.images.frame
        if images.unit == "folder":
            self.images.add_columns(["folder"], "images")
            key = pl.col("folder")
        elif images.case == "{path}":
            key = pl.col("ref").str.replace(r"#frames=\d+$", "")
        else:
            key = self.images.template(images.case, "images.case").expression()
        frame = self.images.frame.with_columns(key.alias("(case)"))
        nameless = frame["(case)"].is_null()
        if nameless.any():
            self._leave(frame.filter(nameless)["path"], "no_case", f"images.case gives nothing for it: {images.case}")
            frame = frame.filter(~nameless)
        self.single = frame["(case)"].n_unique() == len(frame)
        if not self.single and images.several == "one" and images.unit == "file":
            first = frame["(case)"].is_first_distinct()
            self._leave(frame.filter(~first)["path"], "second_image", "a second image of a case of one image")
            frame, self.single = frame.filter(first), True
        if images.case != "{path}" or images.unit == "folder":
            cases = sorted(frame["(case)"].unique().to_list(), key=natural)
            order = {case: place for place, case in enumerate(cases)}
            frame = frame.with_columns(
                pl.col("(case)").replace_strict(order, return_dtype=pl.UInt32).alias("(case_no)")
            )
            if not frame["(case_no)"].is_sorted():
                frame = frame.sort("(case_no)", "(image)")
        else:
            frame = frame.with_row_index("(case_no)")
        self.images.frame = frame

    def _add_channels(self) -> None:
        """The further images of each case: exactly one of each channel."""
        channels = self.manifest.images.channels
        if not channels:
            return
        columns = [pl.col("refs").list.first()]
        for channel in channels:
            part = f"images.channels.{channel.name}"
            try:
                items = self.readers.items(channel, part)
            except PatternError as error:
                self.problems.append(error.problem)
                items = pl.DataFrame(schema={"path": pl.String, "ref": pl.String})
            if not len(items):
                self._note_no_files(part, channel)
            channel_frame = ImageFrame(items, self.readers, self.problems)
            pairs = match_keys(
                self.images.keys(channel.image, channel.match, f"{part}.image"),
                channel_frame.keys(channel.key, channel.match, f"{part}.key"),
                channel.match,
            )
            paired = pl.DataFrame(
                {
                    "(case_no)": self.images.frame["(case_no)"].gather(pairs["left"]),
                    "ref": channel_frame.frame["ref"].gather(pairs["right"]),
                    "path": channel_frame.frame["path"].gather(pairs["right"]),
                }
            ).unique(maintain_order=True)
            name = f"(channel {channel.name})"
            grouped = paired.group_by("(case_no)").agg(pl.col("ref").alias(name), pl.col("path").alias(f"{name} paths"))
            self.cases = self.cases.join(grouped, on="(case_no)", how="left", maintain_order="left")
            count = pl.col(name).list.len().fill_null(0)
            if channel.missing == "leave_out":
                self._exclude(count == 0, "missing_channel", f"the case has no {channel.name}")
            self._exclude(count > 1, "several_channels", f"the case has several images of the channel {channel.name}")
            columns.append(pl.col(name).list.first())
            self.cases = self.cases.with_columns(
                pl.concat_list("paths", pl.col(f"{name} paths").fill_null([])).alias("paths")
            )
        self.cases = self.cases.with_columns(pl.concat_list(columns).alias("channels"))

    # --- values ------------------------------------------------------------------------------------------------------------

    def _evaluate_values(self) -> pl.DataFrame:
        """One row a case with every value of the manifest: `v.NAME`, and `c.NAME` if rows or images may disagree on it."""
        values = _values_of(self.manifest)
        texts: list[pl.Expr] = []
        flags: list[pl.Expr] = []
        flagged: set[str] = set()
        for name, value in values.items():
            text, conflict = self.images.value_expressions(value, name)
            texts.append(text.alias(f"v.{name}"))
            if conflict is not None:
                flags.append(conflict.alias(f"c.{name}"))
                flagged.add(name)
        frame = self.images.frame.with_columns(texts + flags)
        base = [pl.col("(case)").alias("case"), pl.col("ref"), pl.col("path")]
        columns = [f"v.{name}" for name in values] + [f"c.{name}" for name in flagged]
        if self.single:
            cases = frame.select(*base, "(case_no)", *columns)
            return cases.with_columns(pl.concat_list("ref").alias("refs"), pl.concat_list("path").alias("paths")).drop(
                "ref", "path"
            )
        lists = frame.group_by("(case_no)", maintain_order=True).agg(
            pl.col("(case)").first().alias("case"),
            pl.col("ref").alias("refs"),
            pl.col("path").unique(maintain_order=True).alias("paths"),
            *(pl.col(f"v.{name}").drop_nulls().unique(maintain_order=True) for name in values),
            *(pl.col(f"c.{name}").any() for name in flagged),
        )
        exprs = []
        for name in values:
            several = pl.col(f"v.{name}").list.len() > 1
            exprs.append((several | pl.col(f"c.{name}") if name in flagged else several).alias(f"c.{name}"))
            exprs.append(pl.when(~several).then(pl.col(f"v.{name}").list.first()).alias(f"v.{name}"))
        return lists.with_columns(exprs)

    def _text(self, name: str) -> pl.Expr:
        return pl.col(f"v.{name}")

    def _conflict(self, name: str) -> pl.Expr | None:
        return pl.col(f"c.{name}") if f"c.{name}" in self.cases.columns else None

    def _exclude(self, condition: pl.Expr, code: str, reason: str | pl.Expr) -> None:
        """Leave out cases for which a condition holds, unless an earlier reason did."""
        self.reasons.append((condition, code, pl.lit(reason) if isinstance(reason, str) else reason))

    def _exclude_conflict(self, name: str, code: str, reason: str) -> None:
        if (conflict := self._conflict(name)) is not None:
            self._exclude(conflict, code, reason)

    def _exclude_unwanted(self) -> None:
        if (min_files := self.manifest.images.min_files) > 1:
            self._exclude(
                pl.col("refs").list.len() < min_files, "few_slices", f"fewer than {min_files} slices, as scouts have"
            )
        for at, case_filter in enumerate(self.manifest.only):
            text = self._text(f"only.{at}")
            reason = (
                pl.lit(case_filter.reason)
                if case_filter.reason
                else pl.concat_str(pl.lit("not asked for: "), text.str.head(40))
            )
            if case_filter.without:
                is_unwanted = _folded(text).is_in(_folded_all(case_filter.without)).fill_null(False)
                self._exclude(is_unwanted, "not_asked_for", reason)
                continue
            names = " or ".join(case_filter.texts)
            self._exclude(text.is_null(), "unknown_kind", case_filter.reason or f"nothing says whether it is {names}")
            self._exclude(~_folded(text).is_in(_folded_all(case_filter.texts)), "not_asked_for", reason)

    def _add_labels(self) -> None:
        labels = self.manifest.labels
        if labels is None:
            return
        first = len(self.reasons)
        if labels.value is None:
            self._add_label_columns()
        elif labels.multi_label or labels.separator:
            self._gather_labels()
        else:
            self._exclude_conflict("labels.value", "conflicting_labels", "a table has different labels for it")
            text = self._text("labels.value")
            class_of_text = _class_of_text(labels.classes)
            self._note_shared_texts()
            label = _folded(text).replace_strict(
                list(class_of_text), list(class_of_text.values()), default=None, return_dtype=pl.String
            )
            if (remainder := _find_rest(labels.classes)) is not None:
                label = pl.when(text.is_not_null()).then(label.fill_null(pl.lit(remainder)))
            self.cases = self.cases.with_columns(label.alias("(label)"))
            self.has_no_label = text.is_null()
            self._exclude(text.is_null(), "no_label", "no label")
            self._exclude(
                pl.col("(label)").is_null(),
                "text_without_class",
                pl.concat_str(pl.lit("its label '"), text.str.head(40), pl.lit("' is of no class")),
            )
            self.cases = self.cases.with_columns(pl.concat_list("(label)").list.drop_nulls().alias("labels"))
        if self.manifest.report is not None:
            del self.reasons[first:]  # a report may do without labels

    def _note_shared_texts(self) -> None:
        """Two classes with the same text cannot be told apart."""
        labels = self.manifest.labels
        assert labels is not None
        class_of_text: dict[str, str] = {}
        for name, texts in labels.classes.items():
            for text in texts or (name,):
                if class_of_text.setdefault(fold(text), name) != name:
                    self.problems.append(
                        Problem(
                            code="text_of_two_classes",
                            part="labels.classes",
                            finding=f"{text!r} means both {class_of_text[fold(text)]} and {name}.",
                            remedy="Give each text to one class.",
                            values={"text": text, "classes": [class_of_text[fold(text)], name]},
                        )
                    )

    def _gather_labels(self) -> None:
        """Several labels a case: of all rows, lists and parts of a text."""
        labels = self.manifest.labels
        assert labels is not None
        assert labels.value is not None
        lists = self.images.gathered(labels.value, "labels.value")
        self._note_shared_texts()
        parts = pl.DataFrame({"case": self.images.frame["(case_no)"], "text": lists}).explode("text").drop_nulls("text")
        separator = labels.separator or LIST_SEPARATOR
        parts = parts.with_columns(pl.col("text").str.split(separator)).explode("text")
        class_of_text = _class_of_text(labels.classes)
        parts = parts.with_columns(pl.col("text").str.strip_chars()).filter(pl.col("text") != "")
        parts = parts.with_columns(
            label=_folded(pl.col("text")).replace_strict(
                list(class_of_text), list(class_of_text.values()), default=None, return_dtype=pl.String
            )
        )
        grouped = parts.group_by("case", maintain_order=True).agg(
            pl.col("label").drop_nulls().unique(maintain_order=True).alias("labels"),
            pl.col("text").filter(pl.col("label").is_null()).first().alias("(strange)"),
        )
        grouped = grouped.with_columns(pl.col("case").cast(pl.UInt32).alias("(case_no)")).drop("case")
        if (remainder := _find_rest(labels.classes)) is not None:
            is_rest = pl.col("labels").list.len() == 0
            labels_or_rest = (
                pl.when(is_rest).then(pl.lit([remainder], dtype=pl.List(pl.String))).otherwise(pl.col("labels"))
            )
            grouped = grouped.with_columns(labels_or_rest.alias("labels"))
        self.cases = self.cases.join(grouped, on="(case_no)", how="left", maintain_order="left")
        self.has_no_label = pl.col("labels").is_null()
        self._exclude(pl.col("labels").is_null(), "no_label", "no label")
        if not labels.multi_label:
            self._exclude(
                pl.col("labels").list.len() == 0,
                "text_without_class",
                pl.concat_str(pl.lit("its label '"), pl.col("(strange)").str.head(40), pl.lit("' is of no class")),
            )

    def _add_label_columns(self) -> None:
        """One-hot and multi-label columns: yes, no, uncertain."""
        labels = self.manifest.labels
        assert labels is not None
        self.has_no_label = pl.all_horizontal(self._text(f"labels.columns.{name}").is_null() for name in labels.columns)
        present: list[pl.Expr] = []
        unknown: list[pl.Expr] = []
        for name in labels.columns:
            key = f"labels.columns.{name}"
            self._exclude_conflict(key, "conflicting_labels", "a table has different labels for it")
            text = _folded(self._text(key))
            if not labels.multi_label:
                self._exclude(text.is_in(UNCERTAIN), "uncertain_label", f"it is uncertain whether it has {name}")
                self._exclude(text.is_null(), "no_label", f"nothing says whether it has {name}")
            unknown.append(pl.when(text.is_in(UNCERTAIN) | text.is_null()).then(pl.lit(name)))
            present.append(pl.when(text.is_in(YES)).then(pl.lit(name)))
            strange = (
                self.cases.select(self._text(key).filter(~text.is_in(YES | NO | UNCERTAIN)).head(1))
                .to_series()
                .to_list()
            )
            if strange:
                self.problems.append(
                    Problem(
                        code="not_yes_no",
                        part=key,
                        finding=f"it gives {strange[0][:40]!r}; a yes/no text is needed.",
                        remedy="Use `labels.value` for class names, or another column.",
                        values={"text": strange[0][:40]},
                    )
                )
        self.cases = self.cases.with_columns(
            pl.concat_list(present).list.drop_nulls().alias("labels"),
            pl.concat_list(unknown).list.drop_nulls().alias("unknown_labels"),
        )
        if labels.multi_label:
            nothing = pl.col("unknown_labels").list.len() == len(labels.columns)
            is_uncertain = pl.any_horizontal(
                _folded(self._text(f"labels.columns.{name}")).is_in(UNCERTAIN).fill_null(False)
                for name in labels.columns
            )
            self._exclude(nothing & is_uncertain, "uncertain_label", "none of its labels is certain")
            self._exclude(nothing, "no_label", "none of its labels is known")
        else:
            count = pl.col("labels").list.len()
            self._exclude(count == 0, "no_label", "none of the columns says yes")
            self._exclude(count > 1, "several_labels", "several columns say yes, and labels.multi_label is false")

    def _add_states(self) -> None:
        states = self.manifest.states
        if states is None:
            return
        self._exclude_conflict("states.value", "conflicting_states", "a table has different states for it")
        text = _folded(self._text("states.value"))
        abnormal = ~text.is_in(_folded_all(states.normal))
        self._exclude(text.is_null(), "unknown_state", "whether it is abnormal is not known")
        if states.abnormal:
            self._exclude(
                abnormal & ~text.is_in(_folded_all(states.abnormal)),
                "unknown_state",
                pl.concat_str(
                    pl.lit("its state '"),
                    self._text("states.value").str.head(40),
                    pl.lit("' is neither normal nor abnormal"),
                ),
            )
        self.cases = self.cases.with_columns(abnormal.alias("abnormal"))

    # --- masks and boxes ---------------------------------------------------------------------------------------------------

    def _add_masks(self) -> None:
        masks = self.manifest.masks
        if masks is None:
            return
        if masks.format == "image":
            self._pair_masks(masks)
        else:
            self._find_annotated(masks, "masks")
            self.cases = self.cases.with_columns(pl.col("annotations").alias("mask_refs")).with_columns(
                pl.lit(None, pl.List(pl.String)).alias("mask_texts")
            )
        none = pl.col("mask_refs").list.len().fill_null(0) == 0
        if self.prompted:
            none &= ~pl.col("refs").list.first().is_in(list(self.prompted))
        if self.manifest.states is not None:
            self._exclude(none & pl.col("abnormal"), "unmarked", "an abnormal image of which no mask says where")
        elif masks.empty == "leave_out":
            self._exclude(none, "no_mask", "no mask")

    def _pair_masks(self, masks: Masks) -> None:
        """Mask files by a key that they share with the image."""
        files = self._without_exclusions(Files(files=masks.files, exclude=masks.exclude, member=masks.member))
        mask_frame = self._mask_items(masks, files)
        if mask_frame is None:
            self.cases = self.cases.with_columns(
                mask_refs=pl.lit(None, pl.List(pl.String)), mask_texts=pl.lit(None, pl.List(pl.String))
            )
            return
        mask_keys = mask_frame.keys(masks.key or "{path}", masks.match, "masks.key")
        image_keys = self.images.keys(masks.image or masks.key or "{path}", masks.match, "masks.image")
        texts = pl.lit(None, pl.String).alias("text")
        if masks.class_key:
            texts = mask_frame.template(masks.class_key, "masks.class_key").expression().alias("text")
        mask_columns = mask_frame.frame.select("ref", "path", texts)
        pairs = match_keys(image_keys, mask_keys, masks.match)
        paired = pl.DataFrame({"(case_no)": self.images.frame["(case_no)"].gather(pairs["left"])}).hstack(
            mask_columns[pairs["right"].to_list()]
        )
        paired = paired.unique(["(case_no)", "ref"], maintain_order=True)
        mask_items = mask_frame.frame
        if masks.per_file:
            class_of_text = _class_of_text(masks.per_file)
            label = _folded(pl.col("text")).replace_strict(
                list(class_of_text), list(class_of_text.values()), default=None, return_dtype=pl.String
            )
            paired = paired.with_columns(text=label)
            of_no_class = paired.filter(pl.col("text").is_null())
            self._leave(of_no_class["path"], "mask_of_no_class", "a mask of a class that is not asked for")
            mask_items = mask_items.join(of_no_class, on="ref", how="anti", maintain_order="left")
            paired = paired.filter(pl.col("text").is_not_null())
        grouped = paired.group_by("(case_no)", maintain_order=True).agg(
            pl.col("ref").alias("mask_refs"), pl.col("text").alias("mask_texts"), pl.col("path").alias("(mask_paths)")
        )
        self.cases = self.cases.join(grouped, on="(case_no)", how="left", maintain_order="left")
        self._check_mask_pairs(masks, mask_items, paired, image_keys, mask_keys)

    def _mask_items(self, masks: Masks, files: Files) -> ImageFrame | None:
        try:
            items = self.readers.items(files, "masks")
        except PatternError as error:
            self.problems.append(error.problem)
            return None
        if not len(items):
            self._note_no_files("masks", files)
            return None
        return ImageFrame(items, self.readers, self.problems)

    def _check_mask_pairs(
        self, masks: Masks, mask_items: pl.DataFrame, paired: pl.DataFrame, image_keys: pl.Series, mask_keys: pl.Series
    ) -> None:
        """Masks of no image are left out; a mask of several images, and several masks of one image, are said."""
        self._leave(
            mask_items.join(paired, on="ref", how="anti")["path"], "mask_without_image", "a mask without its image"
        )
        if not len(paired):
            images, keys = (series.drop_nulls().head(3).to_list() for series in (image_keys, mask_keys))
            self.problems.append(
                Problem(
                    code="join_matches_nothing",
                    part="masks",
                    finding=f"no mask's key ({masks.match}) is that of an image. Keys of "
                    f"masks: {list_names(keys)}; of images: {list_names(images)}.",
                    remedy="Change `key`, `image` or `match` so that both give the same text.",
                    values={"masks": keys, "images": images},
                )
            )
            return
        shared = paired.group_by("ref").agg(pl.len().alias("cases")).filter(pl.col("cases") > 1)
        if len(shared):
            self.problems.append(
                Problem(
                    code="ambiguous_join",
                    part="masks",
                    severity="warning",
                    finding=f"{len(shared):,} masks are those of several cases, such as {shared['ref'].sort()[0]}.",
                    remedy="Put what tells the cases apart into `key` and `image`, unless the cases share a mask.",
                    values={"masks": len(shared)},
                )
            )
        united = masks.per_file or next(iter(masks.classes.values()), ()) == ("*",) or masks.above is not None
        several = pl.col("mask_refs").list.len() > 1
        if not united and self.single:
            self._exclude(
                several,
                "several_masks",
                pl.concat_str(pl.col("mask_refs").list.len(), pl.lit(" masks where one is needed")),
            )

    def _add_boxes(self) -> None:
        boxes = self.manifest.boxes
        if boxes is None:
            return
        self._find_annotated(boxes, "boxes")
        if boxes.empty == "leave_out":
            self._exclude(pl.col("annotations").list.len().fill_null(0) == 0, "no_annotation", "no annotation names it")

    def _find_annotated(self, part: Masks | Boxes, name: str) -> None:
        """Names of the annotations of each case, `annotations`, and how many marks of which classes they are."""
        annotated = find_annotated(self.images, part, name)
        self.annotated[name] = annotated
        self._use(annotated.files, "annotation")
        for reason in sorted(set(annotated.set_aside.values())):
            paths = [path for path, text in annotated.set_aside.items() if text == reason]
            self._exclude(pl.col("paths").list.eval(pl.element().is_in(paths)).list.any(), "stated", reason)
        per_image = annotated.frame.with_columns(
            self.images.frame["(case_no)"].gather(annotated.frame["place"]).alias("(case_no)")
        )
        grouped = per_image.group_by("(case_no)", maintain_order=True).agg(
            pl.col("name").unique(maintain_order=True).alias("annotations"),
            pl.col("classes").list.explode().drop_nulls().unique(maintain_order=True).alias("mark_classes"),
            pl.col("count").sum().alias("n_marks"),
        )
        self.cases = self.cases.join(grouped, on="(case_no)", how="left", maintain_order="left").with_columns(
            pl.col("n_marks").fill_null(0)
        )

    # --- numbers, texts, patients, parts -----------------------------------------------------------------------------------

    def _add_numbers(self) -> None:
        if self.manifest.value is not None:
            self._add_number("value", self.manifest.value, "number")
        survival = self.manifest.survival
        if survival is not None:
            self._add_number("survival.time", survival.time, "time")
            self._exclude(pl.col("time") < 0, "negative_time", "its time is negative")
            text = _folded(self._text("survival.event"))
            event = text.is_in(_folded_all(survival.observed))
            self._exclude_conflict("survival.event", "conflicting_events", "a table has different events for it")
            self._exclude(text.is_null(), "no_event", "nothing says whether the event took place")
            if survival.censored:
                self._exclude(
                    ~event & ~text.is_in(_folded_all(survival.censored)),
                    "unknown_event",
                    pl.concat_str(
                        pl.lit("'"),
                        self._text("survival.event").str.head(40),
                        pl.lit("' does not say whether the event took place"),
                    ),
                )
            self.cases = self.cases.with_columns(event.alias("event"))
        for name, covariate in self.manifest.covariates.items():
            text = self._text(f"covariates.{name}")
            if covariate.kind == "number":
                column = parse_numbers(self.cases.select(text).to_series()).values.alias(f"covariate.{name}")
                self.cases = self.cases.with_columns(column)
            else:
                self.cases = self.cases.with_columns(text.str.head(100).alias(f"covariate.{name}"))

    def _add_number(self, part: str, number: Number, column: str) -> None:
        key = f"{part}.value"
        texts = self.cases.select(self._text(key)).to_series()
        parsed = parse_numbers(texts, number.unit)
        self.problems += parsed.problems(key)
        self.cases = self.cases.with_columns(parsed.values.alias(column))
        self._exclude_conflict(key, "conflicting_numbers", "a table has different numbers for it")
        is_blank = self._text(key).is_null() | says_no_number(self._text(key))
        self._exclude(is_blank, "no_number", f"no {number.title}")
        is_bound = pl.col(column).is_null() & self._text(key).str.contains(BOUND)
        self._exclude(is_bound, "no_number", f"its cell states only a bound of {number.title}")
        self._exclude(
            pl.col(column).is_null(),
            "not_a_number",
            pl.concat_str(pl.lit(f"its {number.title} '"), self._text(key).str.head(40), pl.lit("' is no number")),
        )

    def _add_texts(self) -> None:
        report = self.manifest.report
        if report is not None:
            parts = [name for name in ("findings", "impression") if getattr(report, name) is not None]
            self.cases = self.cases.with_columns(self._text(f"report.{name}").alias(name) for name in parts)
            for name in parts:
                self._exclude_conflict(f"report.{name}", "conflicting_reports", "a table has different reports for it")
            self._exclude(pl.all_horizontal(pl.col(name).is_null() for name in parts), "no_report", "no report")
            is_pending = pl.all_horizontal(pl.col(name).fill_null("").str.contains(PENDING_REPORT) for name in parts)
            self._exclude(is_pending, "stated", "its report says that it is still to be written")
        names = [*(f"attributes.{name}" for name in self.manifest.attributes)]
        self.cases = self.cases.with_columns(
            self._text(name).alias(name.replace("attributes.", "attribute.", 1)) for name in names
        )

    def _add_patient_and_split(self) -> None:
        manifest, split = self.manifest, self.manifest.split
        if manifest.patient is not None:
            self._exclude_conflict(
                "patient", "conflicting_patients", "it is of different patients by a table or its images"
            )
            self._exclude(self._text("patient").is_null(), "no_patient", "no patient is known")
            self.cases = self.cases.with_columns(self._text("patient").alias("patient"))
        if manifest.together:
            columns = [self._text(f"together.{at}") for at in range(len(manifest.together))]
            self.cases = self.cases.with_columns(pl.concat_list(columns).alias("together"))
        if split.value is not None:
            part = self._find_parts(split)
            self.cases = self.cases.with_columns(part.alias("split"))
            if self._conflict("split.value") is not None and not split.test_images:
                both = pl.col("(parts)").list.len() > 1
                self._exclude(both, "conflicting_parts", "it is in different parts of the folder's own split")
        if split.test_images:
            self._keep_test_images(split)
        if split.is_given:
            self._exclude(pl.col("split").is_null(), "in_no_part", "in no part of the folder's own split")

    def _keep_test_images(self, split: Split) -> None:
        """Give exactly the listed cases to testing."""
        listed_images = pl.Series(split.test_images, dtype=pl.String).implode()
        is_listed = pl.col("refs").list.set_intersection(listed_images).list.len() > 0
        if self.manifest.images.unit == "folder":
            is_listed |= pl.col("case").is_in(listed_images)
        listed_cases = self.cases.filter(is_listed)
        own_side = pl.lit("train") if split.value is None else pl.col("split")
        side = (
            pl.when(is_listed).then(pl.lit("test")).when(own_side == "test").then(pl.lit("later")).otherwise(own_side)
        )
        self.cases = self.cases.with_columns(side.alias("split"))
        self._exclude(
            pl.col("split") == "later",
            "later_test_case",
            "it came later to the folder's own test part, which stays as it was",
        )
        absent = sorted(set(split.test_images) - set(listed_cases["refs"].explode()) - set(listed_cases["case"]))
        if absent:
            self.problems.append(
                Problem(
                    code="test_images_missing",
                    part="split.test_images",
                    finding=f"{len(absent):,} of {len(split.test_images):,} images for testing are no cases of this folder: "
                    f"{list_names(absent)}.",
                    remedy="Name the folder that holds them; paths are those below it.",
                    values={"images": absent[:20], "count": len(absent)},
                )
            )

    def _find_parts(self, split: Split) -> pl.Expr:
        """The part of each case. Texts of no part do not count beside others: a list `trainval` beside `train` and `val`."""
        sides = {fold(text): name for name in ("train", "val", "test") for text in getattr(split, name)}

        def side_of(text: pl.Expr) -> pl.Expr:
            return _folded(text).replace_strict(list(sides), list(sides.values()), default=None, return_dtype=pl.String)

        text = self._text("split.value")
        if self._conflict("split.value") is None:
            side = side_of(text)
        else:
            assert split.value is not None
            texts = self.images.gathered(split.value, "split.value")
            long = (
                pl.DataFrame({"(case_no)": self.images.frame["(case_no)"], "text": texts})
                .explode("text")
                .drop_nulls("text")
            )
            long = long.with_columns(side_of(pl.col("text")).alias("side"))
            grouped = long.group_by("(case_no)").agg(
                pl.col("text").first().alias("(part)"), pl.col("side").drop_nulls().unique().alias("(parts)")
            )
            together = pl.col("(parts)").list.sort().list.join(" ") == "train val"  # m3b holds out its own
            parts = pl.when(together).then(pl.lit(["train"], dtype=pl.List(pl.String))).otherwise(pl.col("(parts)"))
            self.cases = self.cases.join(grouped, on="(case_no)", how="left", maintain_order="left").with_columns(
                parts.alias("(parts)")
            )
            text, side = pl.col("(part)"), pl.col("(parts)").list.first()
        return pl.when(text.is_null()).then(pl.lit(split.missing or None, pl.String)).otherwise(side)

    # --- the end -----------------------------------------------------------------------------------------------------------

    def _use(self, paths: Iterable[str], use: str) -> None:
        self.used_frames.append(
            pl.DataFrame({"path": list(paths)}, schema={"path": pl.String}).with_columns(pl.lit(use).alias("use"))
        )

    def _leave(self, paths: pl.Series, code: str, reason: str) -> None:
        self.left_frames.append(
            pl.DataFrame({"path": paths}).with_columns(pl.lit(code).alias("code"), pl.lit(reason).alias("reason"))
        )

    def _finish(self) -> Resolved:
        cases = self.cases
        unlabelled = self._find_unlabelled()
        if self.reasons:
            codes = pl.coalesce(
                pl.when(condition).then(pl.lit(at)) for at, (condition, _, _) in enumerate(self.reasons)
            )
            cases = cases.with_columns(codes.alias("(reason)"))
            excluded_cases = cases.filter(pl.col("(reason)").is_not_null())
            present = sorted(excluded_cases["(reason)"].unique().to_list())
            pieces = [
                excluded_cases.filter(pl.col("(reason)") == at).select(
                    "case",
                    "paths",
                    pl.lit(self.reasons[at][1]).alias("code"),
                    self.reasons[at][2].alias("reason"),
                    "(case_no)",
                )
                for at in present
            ]
            excluded = pl.concat(pieces).sort("(case_no)").drop("(case_no)") if pieces else self._no_exclusions()
            cases = cases.filter(pl.col("(reason)").is_null()).drop("(reason)")
        else:
            excluded, excluded_cases = self._no_exclusions(), cases.clear()
        if keeps_unlabelled(self.manifest):
            excluded = excluded.join(unlabelled.select("case"), on="case", how="anti", maintain_order="left")
        if "(mask_paths)" in cases.columns:
            self._account_masks(cases, excluded_cases)
        hidden = [name for name in cases.columns if name.startswith(("v.", "c.", "("))]
        frame = cases.drop(hidden)
        self._check_cases(frame, excluded)
        left_files = (
            pl.concat(self.left_frames)
            if self.left_frames
            else pl.DataFrame(schema={"path": pl.String, "code": pl.String, "reason": pl.String})
        )
        used_files = (
            pl.concat(self.used_frames)
            if self.used_frames
            else pl.DataFrame(schema={"path": pl.String, "use": pl.String})
        )
        problems = tuple(sorted(self.problems, key=lambda problem: problem.severity != "error"))
        return Resolved(
            self.manifest,
            self.readers.inventory,
            frame,
            excluded,
            left_files,
            used_files,
            problems,
            self.images.tables,
            self.annotated,
            self.images.frame,
            unlabelled,
        )

    def _find_unlabelled(self) -> pl.DataFrame:
        """Cases that lack nothing but a label; those of the folder's own test part and of none stay left out."""
        cases = self.cases.drop([name for name in self.cases.columns if name.startswith(("v.", "c.", "("))])
        if self.has_no_label is None or not kinds.of(self.manifest.task).takes_unlabelled:
            return cases.clear()
        others = [condition for condition, code, _ in self.reasons if code not in NO_LABEL_CODES]
        is_unlabelled = pl.all_horizontal(
            self.has_no_label, *(~condition.fill_null(False) for condition in others), _is_no_test_case(self.cases)
        )
        return self.cases.filter(is_unlabelled).select(cases.columns)

    def _account_masks(self, cases: pl.DataFrame, excluded_cases: pl.DataFrame) -> None:
        """Masks of cases that are left out are left out too, and those of normal images; `uses` finds the others."""
        if "abnormal" in cases.columns:
            normal = cases.filter(~pl.col("abnormal"))
            self._leave(normal["(mask_paths)"].explode().drop_nulls(), "mask_of_normal", "the mask of a normal image")
        masks = pl.concat([frame["(mask_paths)"].explode().drop_nulls() for frame in (excluded_cases, cases)])
        self._leave(masks, "mask_of_excluded", "the mask of an image that is left out")

    @staticmethod
    def _no_exclusions() -> pl.DataFrame:
        return pl.DataFrame(
            schema={"case": pl.String, "paths": pl.List(pl.String), "code": pl.String, "reason": pl.String}
        )

    def _check_cases(self, frame: pl.DataFrame, excluded: pl.DataFrame) -> None:
        """What a reader of the figures must know: classes without cases, parts without targets, patients on both sides."""
        if not len(frame):
            if not any(item.severity == "error" for item in self.problems):
                reasons = count_exclusions(excluded.select("code", "reason", pl.col("case").alias("path")))
                reasons_text = list_names((f"{item.reason} ({item.count:,})" for item in reasons), 3)
                self.problems.append(
                    Problem(
                        code="no_cases",
                        part="images",
                        finding=f"none of the {len(excluded):,} cases can be used: {reasons_text}.",
                        remedy="Look at the first reason.",
                        values={"codes": [item.code for item in reasons][:5]},
                    )
                )
            return
        if "labels" in frame.columns and self.manifest.report is None:
            self._check_classes(frame, excluded)
        if self.manifest.split.is_given:
            self._check_parts(frame, excluded)

    def _check_classes(self, frame: pl.DataFrame, excluded: pl.DataFrame) -> None:
        labels = self.manifest.labels
        assert labels is not None
        present = set(frame["labels"].explode().drop_nulls().unique().to_list())
        empty = [name for name in class_names(self.manifest) if name not in present]
        if empty:
            strange = [
                exclusion.reason
                for exclusion in count_exclusions(
                    excluded.filter(pl.col("code") == "text_without_class").select(
                        "code", "reason", pl.col("case").alias("path")
                    )
                )
            ]
            self.problems.append(
                Problem(
                    code="class_without_cases",
                    part="labels.classes",
                    severity="error" if len(present) < 2 and not labels.multi_label else "warning",
                    finding=f"no case is of {list_names(empty)}."
                    + (f" Left out: {list_names(strange, 5)}." if strange else ""),
                    remedy="Give each class the texts that mean it, as they stand in the folder.",
                    values={"classes": empty},
                )
            )
        strange_cases = excluded.filter(pl.col("code") == "text_without_class")
        if len(strange_cases):
            counts = count_exclusions(strange_cases.select("code", "reason", pl.col("case").alias("path")))
            self.problems.append(
                Problem(
                    code="text_without_class",
                    part="labels.classes",
                    severity="warning",
                    finding=f"{len(strange_cases):,} cases are left out, since "
                    f"{list_names((f'{exclusion.reason} ({exclusion.count:,})' for exclusion in counts), 5)}.",
                    remedy="Add the texts to a class, or leave these cases out on purpose with `only`.",
                    values={"cases": len(strange_cases), "reasons": [exclusion.reason for exclusion in counts][:20]},
                )
            )

    def _check_parts(self, frame: pl.DataFrame, excluded: pl.DataFrame) -> None:
        counts = dict(frame.group_by("split").agg(pl.len()).iter_rows())
        testing, training = counts.get("test", 0), counts.get("train", 0) + counts.get("val", 0)
        if not testing or not training:
            part = "test" if not testing else "train"
            self.problems.append(
                Problem(
                    code="test_part_without_targets" if not testing else "training_part_without_targets",
                    part="split",
                    severity="warning",
                    finding=f"the part {part} of the folder's own split has no case with a target; a new split is drawn.",
                    remedy="Leave `split.value` out, or name the texts that mean each part.",
                    values={"parts": list(map(str, counts))},
                )
            )
        elif "patient" in frame.columns:
            tested = frame.filter(pl.col("split") == "test")["patient"].unique().implode()
            crossing = frame.filter((pl.col("split") != "test") & pl.col("patient").is_in(tested))
            if len(crossing):
                self.problems.append(
                    Problem(
                        code="patients_cross_split",
                        part="split",
                        severity="warning",
                        finding=f"{crossing['patient'].n_unique():,} patients are in both parts of the folder's own split; their "
                        f"{len(crossing):,} training cases are left out.",
                        remedy="If that is not meant, check `patient`.",
                        values={"patients": crossing["patient"].n_unique(), "cases": len(crossing)},
                    )
                )


def _is_no_test_case(cases: pl.DataFrame) -> pl.Expr:
    return (pl.col("split") != "test") if "split" in cases.columns else pl.lit(True)


def _folded(text: pl.Expr) -> pl.Expr:
    return text.str.to_lowercase().str.strip_chars().str.replace_all(r"\s+", " ")


def _folded_all(texts: Sequence[str]) -> list[str]:
    return [fold(text) for text in texts]


def _class_of_text(classes: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Folded text -> class; a class without texts is its own."""
    class_of_text: dict[str, str] = {}
    for name, texts in classes.items():
        for text in texts or (name,):
            if text != ANY:
                class_of_text.setdefault(fold(text), name)
    return class_of_text


def _find_rest(classes: Mapping[str, Sequence[str]]) -> str | None:
    """The class of all texts that no other class has."""
    return next((name for name, texts in classes.items() if ANY in texts), None)


def _values_of(manifest: Manifest) -> dict[str, ValueSource]:
    """Every value of a manifest by the name of its part."""
    values: dict[str, ValueSource | None] = {}
    labels, report, survival = manifest.labels, manifest.report, manifest.survival
    if labels is not None:
        gathers = labels.multi_label or bool(labels.separator)
        values["labels.value"] = None if gathers else labels.value
        values |= {f"labels.columns.{name}": value for name, value in labels.columns.items()}
    values["states.value"] = manifest.states.value if manifest.states is not None else None
    values["value.value"] = manifest.value.value if manifest.value is not None else None
    if survival is not None:
        values |= {"survival.time.value": survival.time.value, "survival.event": survival.event}
    if report is not None:
        values |= {"report.findings": report.findings, "report.impression": report.impression}
    values["patient"] = manifest.patient
    values["split.value"] = manifest.split.value
    values |= {f"only.{at}": part.value for at, part in enumerate(manifest.only)}
    values |= {f"together.{at}": part for at, part in enumerate(manifest.together)}
    values |= {f"attributes.{name}": value for name, value in manifest.attributes.items()}
    values |= {f"covariates.{name}": part.value for name, part in manifest.covariates.items()}
    return {name: value for name, value in values.items() if value is not None}


def _templates_of(manifest: Manifest) -> list[str]:
    """Every template of a manifest that speaks of images."""
    labels = manifest.labels
    templates = [value.value for value in _values_of(manifest).values()]
    templates += [labels.value.value] if labels is not None and labels.value is not None else []
    templates += [manifest.images.case, *manifest.images.where, *(table.image for table in manifest.tables.values())]
    templates += [channel.image for channel in manifest.images.channels]
    for part in (manifest.masks, manifest.boxes):
        if part is not None:
            templates.append(part.image or part.key)
    for part in (manifest.masks, manifest.boxes):
        if part is not None and part.table:
            templates += [f"{{{part.table}.{column}}}" for column in part.columns.values()]
    return templates
