"""What a manifest would give, in typed facts: counts a class and a part, patients, exclusions, problems; and differences of two.

Names, tables and annotations are looked at, no image is opened: images that do not open and copies are found on execution, and a
drawn split may then put single cases elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.problems import Problem, list_names
from m3b.dataset.manifest.resolve import ExcludedFiles, Resolved
from m3b.dataset.manifest.split import SplitUnit, draw_test_groups, group_cases, name_fifths
from m3b.writing import list_counts

MARKED, UNMARKED = "marked", "nothing marked"
OBSERVED, CENSORED = "event", "censored"
MAX_LISTED = 8
_SPLIT_WORDS = {"own": "the folder's own part", "drawn": "drawn by m3b"}


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True)


class ExclusionFact(_Fact):
    """Cases or files that are left out for one reason."""

    code: str
    reason: str
    count: int
    examples: tuple[str, ...] = ()


class PartFact(_Fact):
    """One part of the split.

    Args:
        classes: cases a class; a case may be of several, or of none.
        patients: None if nobody knows whose a case is.
    """

    cases: int
    patients: int | None
    classes: dict[str, int] = {}


class NumberFact(_Fact):
    """The numbers of all cases."""

    low: float
    median: float
    high: float


class Explanation(_Fact):
    """What a manifest would give.

    Args:
        classes: in the order of the model's outputs; those without a case are there too.
        training, testing: the parts; `split` says whether they are the folder's own.
        validation_cases: training cases that are the folder's own validation part; training holds out its own.
        number: of regressions and survival times.
        marks: boxes on all cases together.
        unlabelled: images without a label that the manifest keeps.
        excluded_cases: cases that cannot be used.
        excluded_files: files that belong to no case, such as documents.
        files_by_use: what files are used for (image, mask, table, annotation) -> how many.
        unused_rows: table -> rows that belong to no image.
        missing_files: keys in tables that no file has, and the first few.
        targets: image -> its classes and what else is learnt from it, for comparisons; not written.
    """

    task: str
    classes: tuple[str, ...]
    training: PartFact
    testing: PartFact
    split: Literal["own", "drawn"]
    validation_cases: int = 0
    number: NumberFact | None = None
    marks: int | None = None
    grouped_by: str = ""
    unlabelled: int = 0
    excluded_cases: tuple[ExclusionFact, ...] = ()
    excluded_files: tuple[ExclusionFact, ...] = ()
    files: int = 0
    used_files: int = 0
    files_by_use: dict[str, int] = {}
    unused_rows: dict[str, int] = {}
    missing_files: int = 0
    missing_examples: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    targets: dict[str, tuple[tuple[str, ...], str]] = Field(default={}, exclude=True, repr=False)

    @property
    def cases(self) -> int:
        """Cases of both parts."""
        return self.training.cases + self.testing.cases

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems for which the manifest cannot be executed."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


class Difference(_Fact):
    """How one manifest differs from another one, such as the proposal that it was made of.

    Args:
        lost, gained: cases that only the other, or only this one has.
        changed: cases whose target is another one. With `renamed` classes equal targets are no change.
        renamed: class of the other -> class of this one, if exactly the same cases have it.
        moved: cases on another side of the split.
    """

    lost: int = 0
    lost_examples: tuple[str, ...] = ()
    gained: int = 0
    gained_examples: tuple[str, ...] = ()
    changed: int = 0
    changed_examples: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    classes_lost: tuple[str, ...] = ()
    classes_gained: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both give the same."""
        return self == Difference()

    def lines(self) -> list[str]:
        """For people and agents."""
        lines = []
        if self.lost:
            lines.append(f"{self.lost:,} cases fewer, such as {list_names(self.lost_examples)}")
        if self.gained:
            lines.append(f"{self.gained:,} cases more, such as {list_names(self.gained_examples)}")
        if self.changed:
            lines.append(f"{self.changed:,} cases with another target, such as {list_names(self.changed_examples)}")
        lines += [f"class {old} is now called {new}" for old, new in self.renamed.items()]
        if self.classes_lost:
            lines.append(f"classes no more: {list_names(self.classes_lost)}")
        if self.classes_gained:
            lines.append(f"new classes: {list_names(self.classes_gained)}")
        return lines


def explain(manifest: Manifest, resolved: Resolved) -> Explanation:
    """Count what a manifest would give."""
    frame = resolved.frame
    classes = _classes_of(manifest, frame)
    sides = _sides_of(manifest, frame, classes)
    uses = resolved.uses
    missing, examples = resolved.missing_files
    numbers = frame["number"] if "number" in frame.columns else frame["time"] if "time" in frame.columns else None
    number = None
    if numbers is not None and len(numbers):
        number = NumberFact(low=_float(numbers.min()), median=_float(numbers.median()), high=_float(numbers.max()))
    has_own_split = manifest.split.is_given and not any(
        problem.code.endswith("_part_without_targets") for problem in resolved.problems
    )
    references = frame["refs"].list.join("|").to_list() if len(frame) else []
    return Explanation(
        task=manifest.task,
        classes=resolved.classes,
        training=_count_part(manifest, frame, classes, sides, "train", resolved.classes),
        testing=_count_part(manifest, frame, classes, sides, "test", resolved.classes),
        split="own" if has_own_split else "drawn",
        validation_cases=sum(
            part == "val" and side == "train"
            for part, side in zip(frame["split"].to_list() if has_own_split else (), sides, strict=False)
        ),
        number=number,
        marks=int(frame["n_marks"].sum()) if manifest.boxes is not None and "n_marks" in frame.columns else None,
        grouped_by=", ".join(
            value.value for value in (*([manifest.patient] if manifest.patient else []), *manifest.together)
        ),
        unlabelled=len(resolved.kept_unlabelled),
        excluded_cases=_facts(resolved.excluded_cases),
        excluded_files=_facts(resolved.exclusions),
        files=len(uses),
        used_files=int(uses["use"].is_not_null().sum()),
        files_by_use=dict(uses["use"].drop_nulls().value_counts(sort=True).iter_rows()),
        unused_rows={name: count for name, count in resolved.unused_rows.items() if count},
        missing_files=missing,
        missing_examples=examples,
        problems=resolved.problems,
        targets=dict(
            zip(
                (re.sub(r"#frames?=\d+$", "", text) for text in references),
                zip(classes, _details_of(manifest, frame), strict=True),
                strict=True,
            )
        ),
    )


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _facts(excluded: Sequence[ExcludedFiles]) -> tuple[ExclusionFact, ...]:
    return tuple(
        ExclusionFact(code=item.code, reason=item.reason, count=item.count, examples=item.examples) for item in excluded
    )


def _classes_of(manifest: Manifest, frame: pl.DataFrame) -> list[tuple[str, ...]]:
    """The classes of each case as far as nothing is opened for them."""
    length = len(frame)
    if "event" in frame.columns:
        return [(OBSERVED if event else CENSORED,) for event in frame["event"].to_list()]
    if manifest.boxes is not None and "mark_classes" in frame.columns:
        return [tuple(names or ()) or (UNMARKED,) for names in frame["mark_classes"].to_list()]
    if manifest.masks is not None and "mask_refs" in frame.columns:
        normal = frame["abnormal"].to_list() if "abnormal" in frame.columns else [True] * length
        marked = frame["mask_refs"].list.len().fill_null(0).to_list()
        per_file = frame["mask_texts"].to_list() if manifest.masks.per_file else [None] * length
        names = frame["mark_classes"].to_list() if "mark_classes" in frame.columns else [None] * length
        return [
            tuple(dict.fromkeys(name for name in (texts or mark_names or ()) if name)) or (MARKED,)
            if count and state
            else (UNMARKED,)
            for count, state, texts, mark_names in zip(marked, normal, per_file, names, strict=True)
        ]
    if "abnormal" in frame.columns:
        name = manifest.states.name if manifest.states is not None else MARKED
        return [(name if state else "normal",) for state in frame["abnormal"].to_list()]
    if "labels" in frame.columns:
        return [tuple(names or ()) for names in frame["labels"].to_list()]
    return [()] * length


def _sides_of(manifest: Manifest, frame: pl.DataFrame, classes: Sequence[tuple[str, ...]]) -> list[str]:
    """Each case's part; empty for training cases of a patient that the test part has."""
    patients = frame["patient"].to_list() if "patient" in frame.columns else [f"case {case}" for case in frame["case"]]
    together = frame["together"].to_list() if "together" in frame.columns else [()] * len(frame)
    groups = group_cases(
        (patient, *(text or "" for text in texts)) for patient, texts in zip(patients, together, strict=True)
    )
    if "split" in frame.columns:
        own_sides = ["train" if side == "val" else side for side in frame["split"].to_list()]
        if {"train", "test"} <= set(own_sides):
            tested = {group for group, side in zip(groups, own_sides, strict=True) if side == "test"}
            return [
                side if side == "test" or group not in tested else ""
                for group, side in zip(groups, own_sides, strict=True)
            ]
    strata = [(name,) for name in name_fifths(frame["number"].to_list())] if "number" in frame.columns else classes
    units = (SplitUnit(group, names) for group, names in zip(groups, strata, strict=True))
    tested = draw_test_groups(units, manifest.split.share, manifest.split.seed)
    return ["test" if group in tested else "train" for group in groups]


def _count_part(
    manifest: Manifest,
    frame: pl.DataFrame,
    classes: Sequence[tuple[str, ...]],
    sides: Sequence[str],
    part: str,
    names: Sequence[str],
) -> PartFact:
    places = [at for at, side in enumerate(sides) if side == part]
    counts = Counter(name for at in places for name in classes[at])
    first_names = names if manifest.labels is not None or manifest.boxes is not None else ()
    ordered = {name: counts[name] for name in first_names if manifest.report is None or counts[name]}
    ordered |= {name: count for name, count in sorted(counts.items()) if name not in ordered}
    patients = None
    if "patient" in frame.columns:
        patients = frame["patient"].gather(places).n_unique() if places else 0
    return PartFact(cases=len(places), patients=patients, classes=ordered)


def _details_of(manifest: Manifest, frame: pl.DataFrame) -> list[str]:
    """What is learnt from each case besides its classes, as a text."""
    if "number" in frame.columns:
        return [f"{number:g}" for number in frame["number"].to_list()]
    if "time" in frame.columns:
        return [f"{time:g}" for time in frame["time"].to_list()]
    if manifest.report is not None:
        parts = [name for name in ("findings", "impression") if name in frame.columns]
        return ["\n".join(text or "" for text in row) for row in frame.select(parts).iter_rows()]
    if manifest.masks is not None and "mask_refs" in frame.columns:
        return ["|".join(refs or ()) for refs in frame["mask_refs"].to_list()]
    return [str(count) for count in frame["n_marks"].to_list()] if "n_marks" in frame.columns else [""] * len(frame)


def diff(new: Explanation, old: Explanation) -> Difference:
    """How a manifest differs from the one that it was made of."""
    lost = [image for image in old.targets if image not in new.targets]
    gained = [image for image in new.targets if image not in old.targets]
    renamed = _find_renamed(new, old)
    changed = []
    for image, (classes, detail) in new.targets.items():
        if image in old.targets:
            before, detail_before = old.targets[image]
            if {renamed.get(name, name) for name in before} != set(classes) or detail != detail_before:
                changed.append(image)
    return Difference(
        lost=len(lost),
        lost_examples=tuple(lost[:3]),
        gained=len(gained),
        gained_examples=tuple(gained[:3]),
        changed=len(changed),
        changed_examples=tuple(changed[:3]),
        renamed=renamed,
        classes_lost=tuple(name for name in old.classes if name not in new.classes and name not in renamed),
        classes_gained=tuple(name for name in new.classes if name not in old.classes and name not in renamed.values()),
    )


def _find_renamed(new: Explanation, old: Explanation) -> dict[str, str]:
    """Old -> new name of classes that the same cases have."""
    removed = [name for name in old.classes if name not in new.classes]
    added = [name for name in new.classes if name not in old.classes]
    if not removed or not added:
        return {}
    before = _images_by_class(old)
    after = _images_by_class(new)
    renamed: dict[str, str] = {}
    for name in added:
        images = after.get(name, set())
        candidates = [
            old_name
            for old_name in removed
            if images and before.get(old_name, set()) & new.targets.keys() == images & old.targets.keys()
        ]
        if len(candidates) == 1 and candidates[0] not in renamed:
            renamed[candidates[0]] = name
    if not renamed and len(removed) == len(added) == 1 and not before.get(removed[0]) and not after.get(added[0]):
        renamed[removed[0]] = added[0]  # the one class of masks, which nothing was opened for
    return renamed


def _images_by_class(explanation: Explanation) -> dict[str, set[str]]:
    images: dict[str, set[str]] = defaultdict(set)
    for image, (classes, _) in explanation.targets.items():
        for name in classes:
            images[name].add(image)
    return images


# --- for people --------------------------------------------------------------------------------------------------------------


def summary_lines(explanation: Explanation) -> list[str]:
    """At most ten lines that say what a manifest would give."""
    facts = explanation
    lines = [
        f"{facts.task}: {facts.cases:,} cases"
        + (f", classes {list_names(facts.classes, MAX_LISTED)}" if facts.classes else "")
    ]
    if facts.number is not None:
        lines.append(f"values from {facts.number.low:g} to {facts.number.high:g}, median {facts.number.median:g}")
    if facts.marks is not None:
        lines.append(f"{facts.marks:,} boxes")
    own_validation = (
        f", {facts.validation_cases:,} of them the folder's own validation part, used like the others"
        if facts.validation_cases
        else ""
    )
    lines.append(f"training: {_part_line(facts.training)}{own_validation}")
    lines.append(f"testing: {_part_line(facts.testing)}, {_SPLIT_WORDS[facts.split]}")
    if facts.training.patients is None:
        reason = (
            f"kept together by {facts.grouped_by}" if facts.grouped_by else "cases of one person may be in both parts"
        )
        lines.append(f"patients: unknown; {reason}")
    if facts.unlabelled:
        lines.append(f"{facts.unlabelled:,} unlabelled images: may be used by self-training")
    if facts.excluded_cases:
        total = sum(reason.count for reason in facts.excluded_cases)
        reasons = [f"{reason.reason} ({reason.count:,})" for reason in facts.excluded_cases]
        lines.append(f"{total:,} cases left out: {'; '.join(reasons[:3])}" + (" ..." if len(reasons) > 3 else ""))
    if facts.missing_files:
        lines.append(
            f"{facts.missing_files:,} names in tables that no file has, such as {list_names(facts.missing_examples[:3])}"
        )
    uses = f": {list_counts(facts.files_by_use)}" if facts.files_by_use else ""
    lines.append(f"{facts.used_files:,} of {facts.files:,} files are used{uses}{_describe_unused(facts)}")
    lines += [problem.message for problem in facts.problems]
    if len(lines) > 10:
        lines = [*lines[:9], f"and {len(lines) - 9} more"]
    return lines


def _describe_unused(facts: Explanation) -> str:
    reasons = [f"{item.reason} ({item.count:,})" for item in facts.excluded_files[:3]]
    return f"; not used: {', '.join(reasons)}{' ...' if len(facts.excluded_files) > 3 else ''}" if reasons else ""


def _part_line(part: PartFact) -> str:
    names = [f"{name}: {count:,}" for name, count in part.classes.items()]
    ellipsis = " ..." if len(names) > MAX_LISTED else ""
    classes = f" ({', '.join(names[:MAX_LISTED])}{ellipsis})" if names else ""
    people = "" if part.patients is None else f" of {part.patients:,} patients"
    return f"{part.cases:,} cases{people}{classes}"
