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
import hashlib
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from layouts import Case, Finder, from_archive, from_class_folders, from_table, natural, read_rows
from split import limit, split_cases
from Utils.images import ImageError, read_image

TEST_WORDS = ("test", "testing", "tst")
OPEN_AT_MOST = 30_000
ABSENCE = (
    "normal",
    "negative",
    "healthy",
    "clear",
    "control",
    "none",
    "no",
    "absent",
    "benign",
    "other",
    "rest",
    "0",
    "cn",
)
"""Words for not having the finding: such a label is numbered first, so that the last one is the positive."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--table", type=Path)
    add("--class-folders", type=Path)
    add("--archive", type=Path)
    add("--image", default="", help="column that names the image")
    add("--label", default="", help="label column; several, comma-separated, are yes/no columns (multi-label)")
    add("--images", type=Path, help="folder below which the images lie; default: the table's own folder")
    add("--patient", default="", help="column with the patient")
    add("--patient-regex", default="", help="regular expression on the path; its first group is the patient")
    add("--where", action="append", default=[], metavar="COL=A|B", help="keep rows whose column has one of the values")
    add(
        "--map",
        action="append",
        default=[],
        metavar="NAME=A|B",
        help="rename or merge label values; * matches any text",
    )
    add("--rest", default="", metavar="NAME", help="label of all values that no --map names; default: left out")
    add("--positive", default="", metavar="NAME", help="of two labels, the finding to detect; it is numbered last")
    add("--names", default="", metavar="0=a,1=b", help="names of numbered labels")
    add("--separator", default="", help="text between several labels in one cell (multi-label)")
    add(
        "--unit", default="auto", choices=("auto", "file", "folder"), help="class folders: a case is a file or a folder"
    )
    add("--split-column", default="", help="column that says train or test")
    add("--test-values", default="", metavar="A|B", help="values of the split column that mean test")
    add("--ignore-split", action="store_true", help="split anew even where the data set has a split of its own")
    add("--test-share", type=float, default=0.2)
    add("--max-train", type=int, default=0)
    add("--max-test", type=int, default=0)
    add("--balanced", action="store_true", help="the same number of cases of each label")
    add("--seed", type=int, default=0)
    add("--no-open", action="store_true", help="do not open the images to see whether they are readable")
    return parser.parse_args()


def gather(args: argparse.Namespace) -> list[Case]:
    names = dict(pair.split("=", 1) for pair in args.names.split(",") if "=" in pair)
    if args.archive:
        return from_archive(args.archive, names)
    if args.class_folders:
        return from_class_folders(args.class_folders, unit=args.unit)
    if not args.table:
        raise SystemExit("Give one of --table, --class-folders, --archive. See --help.")
    rows = read_rows(args.table)
    if not rows:
        raise SystemExit(f"{args.table} has no rows.")
    labels = [name.strip() for name in args.label.split(",") if name.strip()]
    for column in filter(None, [args.image, *labels, args.patient, args.split_column]):
        if column not in rows[0]:
            raise SystemExit(f"{args.table} has no column {column!r}. Columns: {', '.join(rows[0])}.")
    if not args.image or not labels:
        raise SystemExit(f"Give --image and --label. Columns: {', '.join(rows[0])}.")
    kept = where(rows, args.where)
    folder = args.images or args.table.parent
    if not folder.is_dir():
        raise SystemExit(f"--images {folder} is no folder.")
    cases, absent = from_table(
        kept, Finder(folder), image=args.image, labels=labels, separator=args.separator,
        patient=args.patient, split=args.split_column,
    )  # fmt: skip
    print(f"rows: {len(rows)}; kept by --where: {len(kept)}; with an image: {len(cases)}; image absent: {len(absent)}"
          + (f" (e.g. {', '.join(absent[:3])})" if absent else ""))  # fmt: skip
    for case in cases:
        case.values = [names.get(value, value) for value in case.values]
    return cases


def where(rows: list[dict[str, str]], conditions: list[str]) -> list[dict[str, str]]:
    for condition in conditions:
        column, _, values = condition.partition("=")
        if column not in rows[0]:
            raise SystemExit(f"--where {condition!r}: no column {column!r}. Columns: {', '.join(rows[0])}.")
        wanted = {value.strip().lower() for value in values.split("|")}
        rows = [row for row in rows if row[column].strip().lower() in wanted]
        if not rows:
            raise SystemExit(f"--where {condition!r} keeps no row.")
    return rows


def relabel(cases: list[Case], maps: list[str], rest: str) -> list[Case]:
    """Apply --map and --rest; cases whose labels are all left out are dropped, and counted."""
    values = Counter(value for case in cases for value in case.values)
    print("label values with an image: " + ", ".join(f"{v or '(empty)'} {n}" for v, n in values.most_common(30)))
    if not maps and not rest:
        empty = [case for case in cases if case.values == [""]]
        if empty:
            print(f"dropped, no label: {len(empty)}")
        return [case for case in cases if case.values != [""]]
    names: dict[str, str] = {}
    for item in maps:
        name, _, patterns = item.partition("=")
        for pattern in patterns.split("|"):
            glob = re.compile(re.escape(pattern.strip()).replace(r"\*", ".*"), re.IGNORECASE)
            hits = [value for value in values if glob.fullmatch(value)]
            if not hits:
                raise SystemExit(f"--map {item!r}: no label value fits {pattern.strip()!r}.")
            names.update(dict.fromkeys(hits, name.strip()))
    kept, dropped = [], Counter[str]()
    for case in cases:
        new = list(dict.fromkeys(names.get(v, rest if v else "") for v in case.values))
        case.values = [value for value in new if value]
        if case.values or not new:
            kept.append(case)
        else:
            dropped.update(new)
    if len(kept) < len(cases):
        print(f"dropped, label not mapped: {len(cases) - len(kept)}")
    return kept


def set_patients(cases: list[Case], regex: str) -> None:
    """Every case gets a patient; unknown ones are a patient of their own."""
    unknown = 0
    for number, case in enumerate(cases):
        path = case.image if isinstance(case.image, str) else case.image[0]
        if regex:
            found = re.search(regex, path)
            case.patient = (found.group(1) if found.groups() else found.group(0)) if found else ""
        if not case.patient:
            unknown += 1
            case.patient = f"case-{number:06d}"
    if unknown:
        print(f"patient unknown: {unknown} cases, each counted as a patient of its own")


def drop_faulty(cases: list[Case], open_images: bool) -> list[Case]:
    """Leave out what does not open, exact copies, and copies under different labels."""
    by_bytes: dict[str, list[Case]] = defaultdict(list)
    bad = []
    for case in cases:
        if open_images:
            try:
                array = read_image(case.image).array
            except ImageError as error:
                bad.append(str(error))
                continue
            key = hashlib.blake2b(repr(array.shape).encode() + array.tobytes(), digest_size=16).hexdigest()
        else:
            key = str(case.image)
        by_bytes[key].append(case)
    if bad:
        print(f"dropped, do not open: {len(bad)} (e.g. {bad[0]})")
    torn = {key for key, same in by_bytes.items() if len({tuple(sorted(case.values)) for case in same}) > 1}
    copies = sum(len(same) - 1 for key, same in by_bytes.items() if key not in torn)
    if torn:
        print(f"dropped, the same pixels under different labels: {sum(len(by_bytes[key]) for key in torn)} images")
    if copies:
        print(f"dropped, exact copies: {copies}")
    join_patients(by_bytes.values())
    return [same[0] for key, same in by_bytes.items() if key not in torn]


def join_patients(groups: object) -> None:
    """Copies of one image under several patients make those patients one, so that the copy kept stands for all."""
    other: dict[str, str] = {}
    for same in groups:  # type: ignore[attr-defined]
        first = same[0].patient
        for case in same[1:]:
            if case.patient != first:
                other[case.patient] = first
    for same in groups:  # type: ignore[attr-defined]
        for case in same:
            case.patient = other.get(case.patient, case.patient)


def divide(cases: list[Case], args: argparse.Namespace) -> tuple[list[Case], list[Case]]:
    """The data set's own split where it has one, otherwise a new one by patient."""
    words = {v.strip().lower() for v in args.test_values.split("|") if v.strip()} or set(TEST_WORDS)
    test = [case for case in cases if case.split.lower() in words]
    train = [case for case in cases if case.split.lower() not in words]
    if test and train and not args.ignore_split:
        shared = {case.patient for case in test} & {case.patient for case in train}
        if shared:
            print(f"own split: {len(shared)} patients on both sides; their training cases are left out")
            train = [case for case in train if case.patient not in shared]
        print("split: the data set's own")
    else:
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


def main() -> None:
    args = arguments()
    cases = relabel(gather(args), args.map, args.rest)
    set_patients(cases, args.patient_regex)
    cases = drop_faulty(cases, not args.no_open and len(cases) <= OPEN_AT_MOST)
    if not cases:
        raise SystemExit("No case is left. Check --image, --label, --map and --images against the data.")
    train, test = divide(cases, args)
    labels = label_order({value for case in cases for value in case.values}, args.positive)
    out = Path("Datapath")
    out.mkdir(exist_ok=True)
    for name, part in (("train", train), ("test", test)):
        records = [{"image_path": c.image, "labels": sorted(c.values), "patient": c.patient} for c in part]
        (out / f"{name}.json").write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")
        table = Counter(value for case in part for value in case.values)
        counts = ", ".join(f"{label} {table[label]}" for label in labels)
        print(f"{name}: {len(part)} cases of {len({c.patient for c in part})} patients ({counts})")
    (out / "label_dict.json").write_text(json.dumps({name: at for at, name in enumerate(labels)}, ensure_ascii=False))
    print(f"wrote Datapath/train.json, Datapath/test.json, Datapath/label_dict.json; labels: {', '.join(labels)}")


if __name__ == "__main__":
    main()
