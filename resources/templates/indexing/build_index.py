"""Build Datapath/train.json, test.json and label_dict.json from a raw layout. Run it from the working directory.

Layouts (choose one):
  --table FILE --image COL --label COL        a CSV, TSV, JSON or JSONL table that names images and labels
  --class-folders DIR                         one folder a class, also below train/ and test/
  --archive FILE.npz                          train_images + train_labels, test_images + test_labels (MedMNIST)
Examples:
  python resources/templates/indexing/build_index.py --table data/x/cases.csv --image file --label finding --patient pid
  python resources/templates/indexing/build_index.py --class-folders data/x --map "sick=CP|NCP" --map "well=Normal"
  python resources/templates/indexing/build_index.py --archive data/x/a.npz --names "0=normal,1=pneumonia"
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from faults import OPEN_AT_MOST, drop_faulty
from layouts import Case, from_archive, from_class_folders, natural
from split import limit, split_cases
from tables import Finder, from_table, join_rows, read_rows

TEST_WORDS = ("test", "testing", "tst")
ABSENCE = (
    "normal", "negative", "healthy", "clear", "control", "none", "no", "absent", "benign", "other", "rest", "0", "cn",
)  # fmt: skip
"""Words for not having the finding: such a label is numbered first, so that the last one is the positive."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.allow_abbrev = False
    add = parser.add_argument
    add("--table", type=Path, metavar="FILE")
    add("--class-folders", type=Path, metavar="DIR")
    add("--archive", type=Path, metavar="FILE")
    add("--image", default="", metavar="COL", help="column that names the image; without a header its number from 0")
    add("--label", default="", metavar="COL", help="label column; several, comma-separated, are yes/no columns")
    add("--images", type=Path, metavar="DIR", help="where the images lie; default: the table's own folder")
    add("--patient", default="", metavar="COL", help="column with the patient")
    add("--patient-regex", default="", metavar="RE", help="finds the patient in the path: the first group")
    add("--where", action="append", default=[], metavar="COL=A|B", help="keep rows with one of the values; != without")
    add("--map", action="append", default=[], metavar="NAME=A|B", help="rename or merge labels; * matches any text")
    add("--rest", default="", metavar="NAME", help="label of all values that no --map names; default: left out")
    add("--least", type=int, default=0, metavar="N", help="leave out labels that fewer than N patients have")
    add("--none", default="", metavar="NAME", help="label of cases to which no label applies")
    add("--positive", default="", metavar="NAME", help="of two labels, the finding to detect; it is numbered last")
    add("--names", default="", metavar="0=a,1=b", help="names of numbered labels")
    add("--separator", default="", metavar="TEXT", help="text between several labels in one cell (multi-label)")
    add("--join-rows", action="store_true", help="several rows name one image: it gets the labels of all of them")
    add(
        "--unit", default="auto", choices=("auto", "file", "folder"), help="class folders: a case is a file or a folder"
    )
    add("--skip", default="", metavar="A|B", help="names of folders that are no class")
    add("--split-column", default="", metavar="COL", help="column that says train or test")
    add("--test-values", default="", metavar="A|B", help="values of the split column that mean test")
    add("--ignore-split", action="store_true", help="split anew even where the data set has a split of its own")
    add("--test-share", type=float, default=0.2, metavar="X", help="share of the cases for test; default 0.2")
    add("--max-train", type=int, default=0, metavar="N", help="at most N training cases")
    add("--max-test", type=int, default=0, metavar="N", help="at most N test cases")
    add("--balanced", action="store_true", help="the same number of cases of each label")
    add("--seed", type=int, default=0, metavar="N")
    add("--no-open", action="store_true", help="do not open the images to see whether they are readable")
    return parser.parse_args()


def gather(args: argparse.Namespace) -> list[Case]:
    """All cases that the layout names and whose image is there."""
    names = dict(pair.strip().split("=", 1) for pair in args.names.split(",") if "=" in pair)
    if args.archive:
        return from_archive(there(args.archive), names)
    if args.class_folders:
        if not there(args.class_folders).is_dir():
            raise SystemExit(f"--class-folders {args.class_folders} is no folder.")
        cases = from_class_folders(args.class_folders, unit=args.unit, skip=tuple(args.skip.lower().split("|")))
        if not cases:
            raise SystemExit(f"{args.class_folders} has no sub-folder with images. If a table names them, use --table.")
        return cases
    if not args.table:
        raise SystemExit("Give one of --table, --class-folders, --archive. See --help.")
    return gather_table(args, names)


def gather_table(args: argparse.Namespace, names: dict[str, str]) -> list[Case]:
    labels = [name.strip() for name in args.label.split(",") if name.strip()]
    rows = read_rows(there(args.table), [args.image, *labels])
    if not rows:
        raise SystemExit(f"{args.table} has no rows.")
    columns = list(dict.fromkeys(key for row in rows[:1000] for key in row))
    if args.label.strip() in columns:
        labels = [args.label.strip()]  # a column whose own name has a comma
    for column in filter(None, [args.image, *labels, args.patient, args.split_column]):
        if column not in columns:
            raise SystemExit(f"{args.table} has no column {column!r}. Columns: {', '.join(columns)}.")
    if not args.image or not labels:
        raise SystemExit(f"Give --image and --label. Columns: {', '.join(columns)}.")
    kept = where(rows, columns, args.where)
    folder = args.images or args.table.parent
    if not folder.is_dir():
        raise SystemExit(f"--images {folder} is no folder.")
    cases, absent = from_table(
        kept, Finder(folder), image=args.image, labels=labels, separator=args.separator,
        patient=args.patient, split=args.split_column,
    )  # fmt: skip
    print(f"rows: {len(rows)}; kept by --where: {len(kept)}; with an image: {len(cases)}; image absent: {len(absent)}"
          + (f" (e.g. {', '.join(name[:80] for name in absent[:3])})" if absent else ""))  # fmt: skip
    if not cases:
        raise SystemExit(
            f"None of the names in column {args.image!r} is an image below {folder}. Check --image, --images."
        )
    for case in cases:
        case.values = [names.get(value, value) for value in case.values]
    return join_rows(cases) if args.join_rows else cases


def there(path: Path) -> Path:
    if not path.exists():
        raise SystemExit(f"There is no {path}. Paths count from the working directory, such as data/NAME/table.csv.")
    return path


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


def relabel(cases: list[Case], args: argparse.Namespace) -> list[Case]:
    """Apply --map, --rest and --none; cases whose labels are all left out are dropped, and counted."""
    values = Counter(value for case in cases for value in case.values)
    print("label values with an image: " + ", ".join(f"{v or '(empty)'} {n}" for v, n in values.most_common(30)))
    new_name = mapping(values, args.map, args.rest)
    kept, bare, unmapped = [], 0, 0
    for case in cases:
        known = [value for value in case.values if value]
        mapped = list(dict.fromkeys(name for value in known if (name := new_name[value])))
        unlabelled = case.values == [""]
        if not known and args.none:
            mapped = [args.none]
        elif unlabelled or (known and not mapped):
            bare, unmapped = bare + unlabelled, unmapped + (not unlabelled)
            continue
        case.values = mapped
        kept.append(case)
    for count, why in ((bare, "no label"), (unmapped, "label not mapped")):
        if count:
            print(f"dropped, {why}: {count}")
    without = sum(not case.values for case in kept)
    if without and not any(len(case.values) > 1 for case in kept):
        print(f"no label applies to {without} cases and no case has two: --none NAME makes them a class of their own")
    return kept


def mapping(values: Counter[str], maps: list[str], rest: str) -> dict[str, str]:
    """From every label value to its new name; empty for those that are left out."""
    if not maps and not rest:
        return {value: value for value in values}
    names = dict.fromkeys(values, rest)
    for item in maps:
        name, _, patterns = item.partition("=")
        fitting = 0
        for pattern in (patterns or name).split("|"):
            glob = re.compile(re.escape(pattern.strip()).replace(r"\*", ".*"), re.IGNORECASE | re.DOTALL)
            hits = [value for value in values if value and glob.fullmatch(value)]
            names.update(dict.fromkeys(hits, name.strip()))
            fitting += len(hits)
            if not hits:
                print(f"--map {name}: no case with an image has the label {pattern.strip()!r}")
        if not fitting:
            shown = ", ".join(value for value in values if value)
            raise SystemExit(f"--map {item!r}: no label value fits. Values: {shown[:400]}.")
    return names


def set_patients(cases: list[Case], regex: str) -> None:
    """Every case gets a patient; unknown ones are a patient of their own."""
    unknown = 0
    for number, case in enumerate(cases):
        path = case.image if isinstance(case.image, str) else case.image[0]
        if regex:
            found = re.search(regex, path)
            case.patient = ((found.group(1) if found.groups() else found.group(0)) or "") if found else ""
        if not case.patient:
            unknown += 1
            case.patient = f"case-{number:06d}"
    if unknown:
        print(f"patient unknown: {unknown} cases, each counted as a patient of its own")


def drop_rare(cases: list[Case], least: int) -> list[Case]:
    """Without the labels that fewer than `least` patients have, and the cases that had nothing else."""
    patients: dict[str, set[str]] = {}
    for case in cases:
        for value in case.values:
            patients.setdefault(value, set()).add(case.patient)
    rare = {value: len(found) for value, found in patients.items() if len(found) < least}
    if not rare:
        return cases
    kept = [case for case in cases if not case.values or not set(case.values) <= set(rare)]
    for case in kept:
        case.values = [value for value in case.values if value not in rare]
    print(f"dropped, fewer than {least} patients: {', '.join(f'{v} {n}' for v, n in sorted(rare.items()))}")
    return kept


def own_test_values(args: argparse.Namespace) -> set[str]:
    """Values of a case's split, in lower case, that put it into the data set's own test part."""
    return {v.strip().lower() for v in args.test_values.split("|") if v.strip()} or set(TEST_WORDS)


def divide(cases: list[Case], args: argparse.Namespace) -> tuple[list[Case], list[Case]]:
    """The data set's own split where it has one, otherwise a new one by patient."""
    words = own_test_values(args)
    test = [case for case in cases if case.split.lower() in words]
    train = [case for case in cases if case.split.lower() not in words]
    if test and train and not args.ignore_split:
        shared = {case.patient for case in test} & {case.patient for case in train}
        if shared:
            print(f"own split: {len(shared)} patients on both sides; their training cases are left out")
            train = [case for case in train if case.patient not in shared]
        if not train:
            raise SystemExit("The own split leaves no patient for training alone. Split anew with --ignore-split.")
        print("split: the data set's own")
    else:
        if args.split_column and not args.ignore_split:
            found = ", ".join(sorted({case.split for case in cases})[:8])
            print(f"no own split: {args.split_column} holds {found}; --test-values names those that mean test")
        train, test = split_cases(cases, args.test_share, args.seed)
        print(f"split: by patient, {args.test_share:.0%} test, stratified by label, seed {args.seed}")
    return limit(train, args.max_train, args.balanced, args.seed), limit(test, args.max_test, args.balanced, args.seed)


def label_order(names: set[str], positive: str) -> list[str]:
    """Natural order, labels of absence first, the positive label last."""
    if positive and positive not in names:
        raise SystemExit(f"--positive {positive!r} is none of the labels: {', '.join(sorted(names))}.")
    absent = {
        name for name in names if re.split(r"[ _-]", name.lower())[0] in ABSENCE or name.lower().startswith("non")
    }
    return sorted(names, key=lambda name: (name == positive, name not in absent, natural(name)))


def write(train: list[Case], test: list[Case], labels: list[str]) -> None:
    """The three files, and what is in them."""
    out = Path("Datapath")
    out.mkdir(exist_ok=True)
    for name, part in (("train", train), ("test", test)):
        records = [{"image_path": c.image, "labels": sorted(c.values), "patient": c.patient} for c in part]
        save(out / f"{name}.json", records, indent=1)
        table = Counter(value for case in part for value in case.values)
        counts = ", ".join(f"{label} {table[label]}" for label in labels)
        print(f"{name}: {len(part)} cases of {len({c.patient for c in part})} patients ({counts})")
    save(out / "label_dict.json", {name: at for at, name in enumerate(labels)})
    print(f"wrote Datapath/train.json, Datapath/test.json, Datapath/label_dict.json; labels: {', '.join(labels)}")


def save(file: Path, value: object, indent: int | None = None) -> None:
    try:
        raw = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:  # a file name that is no valid UTF-8
        raw = json.dumps(value, indent=indent).encode("ascii")
    file.write_bytes(raw)


def main() -> None:
    args = arguments()
    if not 0 < args.test_share < 1:
        raise SystemExit(f"--test-share {args.test_share:g} must lie between 0 and 1.")
    try:
        cases = relabel(gather(args), args)
        set_patients(cases, args.patient_regex)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, re.error) as error:
        raise SystemExit(f"The raw data cannot be read this way: {type(error).__name__}: {error}") from error
    keep = set[str]() if args.ignore_split else own_test_values(args)
    cases = drop_rare(drop_faulty(cases, not args.no_open and len(cases) <= OPEN_AT_MOST, keep), args.least)
    if not cases:
        raise SystemExit("No case is left. Check --image, --label, --map and --images against the data.")
    labels = label_order({value for case in cases for value in case.values}, args.positive)
    write(*divide(cases, args), labels)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    main()
