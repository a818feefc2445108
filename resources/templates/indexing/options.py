"""The options of build_index.py, by layout."""

from __future__ import annotations

import argparse
from pathlib import Path

LAYOUTS = (
    "anomaly_folders",
    "masks",
    "case_folders",
    "dataset_json",
    "boxes",
    "xml",
    "texts",
    "archive",
    "class_folders",
    "table",
)
"""The first of these that is given says how the raw data is read; `--masks` and others may come with `--table`."""


def arguments(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.allow_abbrev = False
    for group in (_layouts, _tables, _labels, _masks, _boxes, _reports, _patients_and_split):
        group(parser)
    return parser.parse_args()


def _layouts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("layouts (choose one)").add_argument
    add("--table", type=Path, metavar="FILE", help="CSV, TSV, JSON or JSONL that names images and labels or reports")
    add("--class-folders", type=Path, metavar="DIR", help="one folder a class, also below train/ and test/")
    add(
        "--anomaly-folders",
        type=Path,
        metavar="DIR",
        help="train|valid|test / good|Ungood, or test/<defect> with ground_truth/",
    )
    add("--archive", type=Path, metavar="FILE", help="NPZ: train_images + train_labels, test_images + test_labels")
    add(
        "--masks", action="append", default=[], metavar="[NAME=]DIR",
        help="masks, with --images; NAME=DIR (repeatable): binary masks of one class",
    )  # fmt: skip
    add("--case-folders", type=Path, metavar="DIR", help="folders that hold image and mask; with --image, --mask")
    add("--dataset-json", type=Path, metavar="FILE", help="dataset.json of the Decathlon or of nnU-Net")
    add("--boxes", type=Path, metavar="FILE|DIR", help="COCO, JSON or CSV file, or folder of YOLO or VOC files")
    add("--xml", type=Path, metavar="DIR", help="Open-i reports, one XML file a study")
    add("--texts", type=Path, metavar="DIR", help="one text file a report, named as the image or its folder")


def _tables(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("tables").add_argument
    add(
        "--image", default="", metavar="COL|GLOB",
        help="column that names the image (without a header its number from 0); of masks: pattern of the image's name",
    )  # fmt: skip
    add("--images", type=Path, metavar="DIR", help="where the images lie; default: the table's own folder")
    add("--test-table", type=Path, metavar="FILE", help="a second file of the same kind with the test cases")
    add("--join", type=Path, metavar="FILE", help="another table, whose columns are added")
    add("--on", default="", metavar="COL[=COL]", help="column that both tables have; COL=COL where names differ")
    add("--where", action="append", default=[], metavar="COL=A|B", help="keep rows with one of the values; != without")


def _labels(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("labels").add_argument
    add("--label", default="", metavar="COL", help="label column; several, comma-separated, are yes/no columns")
    add("--map", action="append", default=[], metavar="NAME=A|B", help="rename or merge labels; * matches any text")
    add("--rest", default="", metavar="NAME", help="label of all values that no --map names; default: left out")
    add("--least", type=int, default=0, metavar="N", help="leave out labels that fewer than N patients have")
    add("--none", default="", metavar="NAME", help="label of cases to which no label applies")
    add("--positive", default="", metavar="NAME", help="of two labels, the finding to detect; it is numbered last")
    add("--names", default="", metavar="0=a,1=b", help="names of numbered labels")
    add("--separator", default="", metavar="TEXT", help="text between several labels in one cell (multi-label)")
    add("--join-rows", action="store_true", help="several rows name one image: it gets the labels of all of them")
    add("--unit", default="auto", choices=("auto", "file", "folder"), help="a case is a file or a folder of slices")
    add("--skip", default="", metavar="A|B", help="names of folders that are no class")


def _masks(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("masks").add_argument
    add("--mask", action="append", default=[], metavar="[NAME=]GLOB",
        help="pattern of the masks' names; NAME=GLOB (repeatable): binary masks of one class")  # fmt: skip
    add("--class-masks", action="store_true", help="a case has one binary mask a class, named after the class")
    add("--values", default="", metavar="1=a,2=b|FILE", help="names of the values in the masks, or a file of them")
    add("--classes", default="", metavar="A|B", help="keep these classes only; the others count as background")
    add("--missing-mask", default="drop", choices=("drop", "empty"),
        help="images without a mask are left out, or kept with nothing marked")  # fmt: skip
    add("--channel", type=int, default=0, metavar="N", help="of nnU-Net images case_0000, case_0001: which one")


def _boxes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("boxes").add_argument
    add("--box", default="", metavar="COL|A,B,C,D", help="column(s) with the box; default: found by their names")
    add("--box-format", default="", choices=("", "xyxy", "xywh"), help="default: by the file; xywh of COCO")
    add("--unlisted", default="drop", choices=("drop", "healthy"), help="images that the boxes' file does not name")


def _reports(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("reports").add_argument
    add("--findings", default="", metavar="COL")
    add("--impression", default="", metavar="COL")
    add("--empty", default="", metavar="A|B", help="texts that mean that there is none, such as 'Not given.'")
    add("--study", default="", metavar="COL", help="rows of one study become one case: its views, or its first volume")
    add(
        "--study-regex",
        default="",
        metavar="RE",
        help="finds the study in the image's path: the first group; auto: same text, names alike but for the last number",
    )


def _patients_and_split(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("patients and split").add_argument
    add("--patient", default="", metavar="COL", help="column with the patient")
    add("--patient-regex", default="", metavar="RE", help="finds the patient in the path: the first group")
    add("--split-column", default="", metavar="COL", help="column that says train or test")
    add("--test-values", default="", metavar="A|B", help="values of the split column that mean test")
    add("--ignore-split", action="store_true", help="split anew even where the data set has a split of its own")
    add("--test-share", type=float, default=0.2, metavar="X", help="share of the cases for test; default 0.2")
    add("--max-train", type=int, default=0, metavar="N", help="at most N training cases")
    add("--max-test", type=int, default=0, metavar="N", help="at most N test cases")
    add("--balanced", action="store_true", help="the same number of cases of each label")
    add("--seed", type=int, default=0, metavar="N")
    add("--no-open", action="store_true", help="do not open the images to see whether they are readable")
