"""Writing the index: one attempt for each layout that the previews may be read as."""

from __future__ import annotations

import json
import re
import shlex

from m3b.llm.rules import tables
from m3b.llm.rules.boxes import box_attempts
from m3b.llm.rules.giving_up import BEYOND, given_up
from m3b.llm.rules.masks import mask_attempts
from m3b.llm.rules.readings import take
from m3b.llm.rules.reports import report_attempts
from m3b.llm.rules.view import View, call
from m3b.llm.rules.words import LABEL_COLUMNS, rank
from m3b.messages import ToolCall

SCRIPT = "python resources/templates/indexing/build_index.py"
HALVES = ("train", "training", "test", "testing", "val", "valid", "validation")
PICTURES = ("images", "image", "imgs", "img", "data")
NOT_CLASSES = (*PICTURES, "masks", "mask", "labels", "annotations", "segmentations", "unseen", "docs", "__macosx")
ARRAYS = (
    {"train_images", "train_labels"},
    {"images", "labels"},
    {"x_train", "y_train"},
    {"X_train", "y_train"},
    {"X", "y"},
    {"x", "y"},
)
MANY = 10
"""So many folders whose names differ in a number alone are cases; grades and numbered classes are fewer."""
FEWEST = "5"
"""Labels that fewer patients have are left out when keeping them has failed."""


def write_index(view: View) -> str | list[ToolCall]:
    """The next attempt at an index, or the closing words when one went through."""
    if (step := take(view)) is not None:
        return step
    tried = [step for step in view.steps if SCRIPT in step.command]
    if tried and not tried[-1].failed:
        if not view.rejected:
            lines = [line for line in tried[-1].result.splitlines() if line.startswith(("train:", "test:"))]
            return "The index is written. " + " ".join(lines)
        if not _mendable(view.rejected):
            return given_up(f"The rules cannot fix this. {BEYOND}", tried)
    commands = [step.command for step in tried]
    for command in attempts(view):
        if command not in commands:
            return [call("run_script", command=command)]
    unusable = _unusable(view, tried[-1].result if tried else "")
    return json.dumps({"unusable": unusable}, ensure_ascii=False) if unusable else given_up(BEYOND, tried)


def _unusable(view: View, result: str) -> str:
    """What is wrong with the data itself, where that is plain to see; the words for the user."""
    dropped = re.search(r"^dropped, do not open: .*$", result, re.MULTILINE)
    if dropped and "No case is left" in result:
        return f"No image of this data set opens ({dropped.group()}). Check the files, or export them again."
    for table in tables.tables(view.briefing) if view.task == "diagnosis" else ():
        alike = [c for c in table.columns if c.distinct == 1 and rank(c.name, LABEL_COLUMNS) is not None]
        if alike and tables.image_column(table):
            return (
                f"{table.path} has only one class: `{alike[0].name}` is the same in all {table.rows} rows. A classifier "
                "needs at least two; add data of another class."
            )
    return ""


def _mendable(rejection: str) -> bool:
    return any(word in rejection for word in ("class", "label", "patient", "split has no case"))


def attempts(view: View) -> list[str]:
    """Commands for every reading of the layout, most likely first."""
    root = view.part(r"## Preview of (data/[\w-]+)\n")
    if view.task == "report":
        found = report_attempts(view, root)
    elif view.task in ("segmentation", "detection"):
        found = mask_attempts(view, root)
        found += box_attempts(view, root) if view.task == "detection" else []
    else:
        found = [*_archives(view), *_tables(view), *_folders(view, root)]
    return [f"{SCRIPT} {shlex.join(options)}" for options in found]


def _archives(view: View) -> list[list[str]]:
    found = []
    for head in re.finditer(r"^(data/\S.*?\.npz): .*\n((?:  .*\n?)+)", view.briefing, re.MULTILINE):
        body = head.group(2)
        arrays = set(re.findall(r"^  (\S+):", body, re.MULTILINE))
        if any(pair <= arrays for pair in ARRAYS):
            names = _label_names(view)
            found.append(["--archive", head.group(1), *(["--names", names] if names else [])])
    return found


def _label_names(view: View) -> str:
    """Names of numbered labels where the card lists them: `0 normal, 1 pneumonia` or `0: normal; 1: pneumonia`."""
    text = view.part(r"## Data card\n(.*?)(?:\n\n## Preview of |\Z)")
    found = re.search(r"\b0\s*[:=]?\s*([A-Za-z][\w -]*?)\s*[,;]\s*1\s*[:=]?\s*([A-Za-z][\w -]*?)(?=[.,;)\n]|$)", text)
    if not found:
        return ""
    names = [found.group(1), found.group(2)]
    rest = text[found.end() :]
    while more := re.match(rf"\s*[,;]\s*{len(names)}\s*[:=]?\s*([A-Za-z][\w -]*?)(?=[.,;)\n]|$)", rest):
        names.append(more.group(1))
        rest = rest[more.end() :]
    return ",".join(f"{number}={name.strip()}" for number, name in enumerate(names))


def _tables(view: View) -> list[list[str]]:
    found = []
    listed = _label_names(view)
    for table in tables.tables(view.briefing):
        image = tables.image_column(table) or tables.folder_column(table)
        label = tables.label_column(table, view.request)
        if image is None:
            continue
        patient, split = tables.patient_column(table, image), tables.split_column(table)
        more = ["--patient", patient.name] if patient else []
        more += ["--split-column", split.name] if split else []
        start = ["--table", table.path, "--image", image.name, "--label"]
        flags = tables.flag_columns(table)
        if named := tables.named_flags(flags, view.request):
            found += _flagged(start, named, more)
        if label is not None and label.name != image.name:
            mark = tables.separator(label)
            options = [*start, label.name, *more, *(["--separator", mark] if mark else [])]
            options += tables.names_of(label, listed)
            mapped = _wanted(list(label.values), view) if not mark and label.whole else []
            found += _with(options, mapped)
        if flags:
            found += _flagged(start, flags, more)
    return found + [[*options, "--ignore-split"] for options in found if "--split-column" in options]


def _flagged(start: list[str], flags: list[tables.Column], more: list[str]) -> list[list[str]]:
    several = [*start, ",".join(flag.name for flag in flags), *more]
    return [several, [*several, "--none", "no finding"]]


def _folders(view: View, root: str) -> list[list[str]]:
    """Class folders: at least two sub-folders with images, at the top, below wrapping folders, or below train/."""
    preview = view.part(r"## Preview of data/[\w-]+\n(.*?)(?:\n\n|\Z)")
    listed = re.search(r"folders \(files below\):\n((?:  .*\n?)+)", preview)
    lines = re.findall(r"^( +)(.+?)/ [\d,]+", listed.group(1), re.MULTILINE) if listed else []
    place, names, halves = _descend([(len(indent) // 2, name) for indent, name in lines], root)
    strange = [name for name in names if name.lower() in NOT_CLASSES]
    classes = [name for name in names if name not in strange]
    if not classes or _numbered(classes):
        return []  # one class alone is tried, for the audit to say what is wrong with it
    options = ["--class-folders", place, *(["--skip", "|".join(strange)] if strange else [])]
    mapped = _wanted(classes, view)
    found = _with(options, mapped)
    return found + ([[*one, "--ignore-split"] for one in found] if halves else [])


def _numbered(names: list[str]) -> bool:
    """Whether folders are called like cases: ten and more names that differ in a number alone."""
    return len(names) >= MANY and len({re.sub(r"\d+", "#", name) for name in names}) == 1


def _wanted(values: list[str], view: View) -> list[str]:
    """Options for the labels that the request names, else for those that the card lists as the classes."""
    asked = tables.mapping(values, view.request)
    if asked:
        return asked
    listed = view.part(r"## Data card\n.*?^Classes: ([^\n]+)\.$", re.MULTILINE)
    classes = [name for name in values if name.lower() in {one.strip().lower() for one in listed.split(",")}]
    return [part for name in classes for part in ("--map", f"{name}={name}")] if 2 <= len(classes) < len(values) else []


def _with(options: list[str], mapped: list[str]) -> list[list[str]]:
    """The attempts at one reading. Where the request wants some of the labels only, all of them are no answer to it."""
    if "--map" in mapped:
        return [[*options, *mapped]]
    return [*([[*options, *mapped]] if mapped else []), options, [*options, "--least", FEWEST]]


def _descend(tree: list[tuple[int, str]], place: str) -> tuple[str, list[str], bool]:
    """The folder below which the classes lie, their names, and whether train/ and test/ are above them."""
    names = [name for depth, name in tree if depth == 1]
    halves = [name for name in names if name.lower() in HALVES]
    likely = [name for name in names if name.lower() not in NOT_CLASSES]
    if halves and len(halves) == len(likely):
        inside = [_descend(_below(tree, half), "")[1] for half in halves]
        return place, max(inside, key=len), True
    through = likely if len(likely) == 1 else [n for n in names if n.lower() in PICTURES] if not likely else []
    if through and (inner := _below(tree, through[0])):
        return _descend(inner, f"{place}/{through[0]}")
    return place, names if likely else [], False


def _below(tree: list[tuple[int, str]], name: str) -> list[tuple[int, str]]:
    """The part of the tree below one of its first folders."""
    start = tree.index((1, name)) + 1
    end = next((at for at in range(start, len(tree)) if tree[at][0] <= 1), len(tree))
    return [(depth - 1, inner) for depth, inner in tree[start:end]]
