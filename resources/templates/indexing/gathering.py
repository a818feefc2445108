"""The cases that a layout names: which reader an option asks for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from anomaly import ANOMALY, anomaly_cases
from archives import from_archive
from boxes import box_cases
from folder_layouts import Case, from_class_folders
from labelling import label_order, pairs, relabel, there
from maskcases import mask_cases
from options import LAYOUTS
from reports import one_study, table_reports, text_reports, with_text, xml_reports
from rows import read_rows
from values import find_classes

from tables import Finder, from_table, join_rows, join_tables


def gather_labels(args: argparse.Namespace) -> list[Case]:
    """All cases that a layout with labels names and whose image is there."""
    names = pairs(args.names)
    if args.archive:
        return from_archive(there(args.archive), names)
    if args.class_folders:
        if not there(args.class_folders).is_dir():
            raise SystemExit(f"--class-folders {args.class_folders} is no folder.")
        cases = from_class_folders(args.class_folders, unit=args.unit, skip=tuple(args.skip.lower().split("|")))
        if not cases:
            raise SystemExit(f"{args.class_folders} has no sub-folder with images. If a table names them, use --table.")
        return named(cases, names)
    cases = gather_table(args)
    named(cases, names)
    return join_rows(cases) if args.join_rows else cases


def named(cases: list[Case], names: Mapping[str, str]) -> list[Case]:
    """The cases with the names of numbered labels; names of labels that no case has are said."""
    found = {value for case in cases for value in case.values}
    if strange := [value for value in names if value not in found]:
        print(f"--names: no label is called {', '.join(strange)}; labels: {', '.join(sorted(found)[:20])}")
    for case in cases:
        case.values = [names.get(value, value) for value in case.values]
    return cases


def gather_table(args: argparse.Namespace) -> list[Case]:
    """The cases of --table and of --test-table, whose own are for testing."""
    cases = one_table(args, args.table)
    if args.test_table:
        for case in cases:
            case.split = "train"
        test = one_table(args, args.test_table)
        for case in test:
            case.split = "test"
        cases += test
    return cases


def one_table(args: argparse.Namespace, file: Path) -> list[Case]:
    labels = [name.strip() for name in args.label.split(",") if name.strip()]
    texts = [name for name in (args.findings, args.impression) if name]
    rows = read_rows(there(file), [args.image, *labels, *texts])
    if args.join:
        rows = join_tables(rows, read_rows(there(args.join)), args.on, args.join)
    if not rows:
        raise SystemExit(f"{file} has no rows.")
    columns = list(dict.fromkeys(key for row in rows[:1000] for key in row))
    if args.label.strip() in columns:
        labels = [args.label.strip()]  # a column whose own name has a comma
    for column in filter(None, [args.image, *labels, *texts, args.patient, args.split_column, args.study]):
        if column not in columns:
            raise SystemExit(f"{file} has no column {column!r}. Columns: {', '.join(columns)}.")
    if not args.image or not (labels or texts):
        raise SystemExit(
            f"Give --image and --label. Columns: {', '.join(columns)}. For reports give --findings and --impression."
        )
    kept = where(rows, columns, args.where)
    folder = args.images or file.parent
    if not folder.is_dir():
        raise SystemExit(f"--images {folder} is no folder.")
    if texts:
        cases, absent = table_reports(kept, Finder(folder), args)
    else:
        cases, absent = from_table(
            kept, Finder(folder), image=args.image, labels=labels, separator=args.separator,
            patient=args.patient, split=args.split_column,
        )  # fmt: skip
    chosen = f"kept by --where: {len(kept)}; " if args.where else ""
    print(f"rows: {len(rows)}; {chosen}with an image: {len(cases)}; image absent: {len(absent)}"
          + (f" (e.g. {', '.join(name[:80] for name in absent[:3])})" if absent else ""))  # fmt: skip
    if not cases:
        raise SystemExit(
            f"None of the names in column {args.image!r} is an image below {folder}. Check --image, --images."
        )
    return cases


def where(rows: list[dict[str, str]], columns: list[str], conditions: list[str]) -> list[dict[str, str]]:
    """The rows that meet every condition."""
    for condition in conditions:
        column, _, values = condition.partition("=")
        keep = not column.endswith("!") or column in columns
        column = column if keep else column[:-1]
        if column not in columns:
            raise SystemExit(f"--where {condition!r}: no column {column!r}. Columns: {', '.join(columns)}.")
        wanted = {value.strip().lower() for value in values.split("|")}
        rows = [row for row in rows if (row.get(column, "").lower() in wanted) == keep]
        if not rows:
            raise SystemExit(f"--where {condition!r} keeps no row.")
    return rows


def gather_reports(args: argparse.Namespace) -> list[Case]:
    if args.xml:
        cases = xml_reports(args)
    elif args.texts:
        cases = text_reports(args)
    else:
        cases = one_study(gather_table(args), args.study_regex, args.study)
    return with_text(cases)


def gather(args: argparse.Namespace) -> tuple[list[Case], dict[str, int], str]:
    """The cases, the numbers of the classes where the layout gives them, and the kind of record."""
    layout = next((name for name in LAYOUTS if getattr(args, name)), "")
    if layout == "anomaly_folders":
        cases, kind = anomaly_cases(there(args.anomaly_folders))
        return cases, {ANOMALY: int(kind == "masks")}, kind
    if layout in ("masks", "case_folders", "dataset_json"):
        cases, names = mask_cases(args)
        cases, classes = find_classes(cases, args, names)
        return cases, classes, "masks"
    if layout == "boxes":
        cases, order = box_cases(args)
        found = {value for case in cases for value in case.values}
        listed = [name for name in order if name in found]
        listed += label_order(found - set(listed), "")
        return cases, {name: at for at, name in enumerate(listed)}, "boxes"
    if layout in ("xml", "texts") or (layout == "table" and (args.findings or args.impression)):
        return gather_reports(args), {}, "reports"
    if layout:
        return relabel(gather_labels(args), args), {}, "labels"
    raise SystemExit(f"Give one of {', '.join('--' + name.replace('_', '-') for name in LAYOUTS[::-1])}. See --help.")
