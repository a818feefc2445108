"""Build Datapath/train.json, test.json and label_dict.json from a raw layout. Run it from the working directory.

Labels:   --table FILE --image COL --label COL | --class-folders DIR | --archive FILE.npz
Masks:    --images DIR --masks DIR | --case-folders DIR --image GLOB --mask GLOB | --dataset-json FILE
Anomalies: --anomaly-folders DIR
Boxes:    --boxes FILE|DIR --images DIR
Reports:  --table FILE --image COL --findings COL --impression COL | --xml DIR | --texts DIR
Examples:
  python resources/templates/indexing/build_index.py --table data/x/cases.csv --image file --label finding --patient pid
  python resources/templates/indexing/build_index.py --class-folders data/x --map "sick=CP|NCP" --map "well=Normal"
  python resources/templates/indexing/build_index.py --images data/x/imgs --masks data/x/masks --values "1=liver,2=tumour"
  python resources/templates/indexing/build_index.py --table data/x/reports.csv --image file --findings text --study uid
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from faults import OPEN_AT_MOST, drop_faulty
from folder_layouts import Case
from gathering import gather
from labelling import drop_rare, label_order
from options import arguments
from patients import set_patients
from split import limit, split_cases

ENOUGH_FOR_TEST = 5
"""Patients with a class in masks or boxes from whom on one of them is to be in the test part."""
TEST_WORDS = ("test", "testing", "tst")


def own_test_values(args: argparse.Namespace) -> set[str]:
    """Values of a case's split, in lower case, that put it into the data set's own test part."""
    return {v.strip().lower() for v in args.test_values.split("|") if v.strip()} or set(TEST_WORDS)


def divide(cases: list[Case], args: argparse.Namespace, kind: str) -> tuple[list[Case], list[Case]]:
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
        capped = kind in ("masks", "boxes", "states")  # many classes in each image would fill the test part
        train, test = split_cases(cases, args.test_share, args.seed, capped=capped)
        if capped and one_sided(cases, test):
            train, test = split_cases(cases, args.test_share, args.seed)
        print(f"split: by patient, {args.test_share:.0%} test, stratified by label, seed {args.seed}")
    return limit(train, args.max_train, args.balanced, args.seed), limit(test, args.max_test, args.balanced, args.seed)


def one_sided(cases: list[Case], test: list[Case]) -> bool:
    """Whether a class that enough patients have is in no test case."""
    patients: dict[str, set[str]] = {}
    for case in cases:
        for value in case.values:
            patients.setdefault(value, set()).add(case.patient)
    there_are = {value for case in test for value in case.values}
    return any(len(names) >= ENOUGH_FOR_TEST and value not in there_are for value, names in patients.items())


def record(case: Case, kind: str) -> dict[str, Any]:
    """What the index says of a case."""
    one: dict[str, Any] = {"image_path": case.image}
    if kind == "masks":
        one["mask_path"] = case.mask
    elif kind == "states":
        one["abnormal"] = bool(case.values)
    elif kind == "boxes":
        one["boxes"] = [{"label": label, "box": box} for label, box in case.boxes or ()]
    elif kind == "reports":
        one["report"] = {"findings": case.findings, "impression": case.impression}
    if kind == "labels" or (kind == "reports" and case.values):
        one["labels"] = sorted(case.values)
    return {**one, "patient": case.patient}


def write(train: list[Case], test: list[Case], labels: dict[str, int], kind: str) -> None:
    """The three files, and what is in them."""
    out = Path("Datapath")
    out.mkdir(exist_ok=True)
    for name, part in (("train", train), ("test", test)):
        save(out / f"{name}.json", [record(case, kind) for case in part], indent=1)
        table = Counter(value for case in part for value in case.values)
        counts = ", ".join(f"{label} {table[label]}" for label in labels)
        bare = sum(not case.values for case in part) if kind in ("masks", "boxes", "states") else 0
        more = f", nothing marked {bare}" if bare else ""
        told = f" ({counts}{more})" if labels else ""
        print(f"{name}: {len(part)} cases of {len({c.patient for c in part})} patients{told}")
    save(out / "label_dict.json", labels)
    told = ", ".join(f"{name} {value}" for name, value in labels.items()) if kind == "masks" else ", ".join(labels)
    print(f"wrote Datapath/train.json, Datapath/test.json, Datapath/label_dict.json; labels: {told or 'none'}")


def save(file: Path, value: object, indent: int | None = None) -> None:
    try:
        raw = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:  # a file name that is no valid UTF-8
        raw = json.dumps(value, indent=indent).encode("ascii")
    file.write_bytes(raw)


def main() -> None:
    args = arguments(__doc__)
    if not 0 < args.test_share < 1:
        raise SystemExit(f"--test-share {args.test_share:g} must lie between 0 and 1.")
    try:
        cases, classes, kind = gather(args)
        set_patients(cases, args.patient_regex, guess=kind != "labels" and not args.anomaly_folders)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, re.error) as error:
        raise SystemExit(f"The raw data cannot be read this way: {type(error).__name__}: {error}") from error
    keep = set[str]() if args.ignore_split else own_test_values(args)
    cases = drop_faulty(cases, kind, not args.no_open and len(cases) <= OPEN_AT_MOST, keep)
    if kind == "labels":
        cases = drop_rare(cases, args.least)
    if not cases:
        raise SystemExit("No case is left. Check --image, --label, --map and --images against the data.")
    if not classes:
        names = label_order({value for case in cases for value in case.values}, args.positive, args.map)
        classes = {name: at for at, name in enumerate(names)}
    write(*divide(cases, args, kind), classes, kind)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    main()
