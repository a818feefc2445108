"""Measure whether reports follow real images: the report template on labelled sets, with sentences that state the labels.

    python benchmarks/report_real_images.py --set DIR "REQUEST" [--set DIR "REQUEST" ...] [--minutes 5] [--out DIR]

Each DIR is read as `m3b look` reads it for the request: its classes or grades, its training and its test part. The images
are real. No open set of this size has reports, so each case gets one of several sentences that state its label, which the
record names too, and one of several unspecific sentences. Plan, train, export and predict run as an agent would run
them, on the training part. Two conditions must hold for the test part: the label F1 (m3b.metrics) lies above that of the best
constant report, with its whole 95 % interval, and with the images shuffled between patients at least half of this gain
is lost. The exit status is 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from recipes import prepare_project as index
from recipes import run_python

from m3b.resources import copy_template
from m3b.tasks.report import ReportCase, best_constant_reports, measure_image_use, score_reports

LABEL_SENTENCES = (
    "The appearance is that of {}.",
    "In keeping with {}.",
    "The image shows {}.",
    "Features of {} are seen.",
)
FILLER_SENTENCES = (
    "Image quality is adequate.",
    "The study is limited by projection.",
    "Comparison is not available.",
    "",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=2, action="append", required=True, metavar=("DIR", "REQUEST"), dest="sets")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, a set")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="reports_"))).resolve()
    lines = [f"{'set':28} {'cases':>6}  {'label F1':22} {'best constant':>13} {'shuffled':>9} of the lead, lost"]
    all_passed = True
    for folder, request in options.sets:
        line, is_passed = judge_set(Path(folder).resolve(), request, options.minutes, out)
        lines.append(line)
        all_passed &= is_passed
        print("\n".join([lines[0], line]), flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print("\n".join([f"\n{options.minutes:g} minutes each, load {load} at the end", *lines]))
    return 0 if all_passed else 1


def judge_set(folder: Path, request: str, minutes: float, out: Path) -> tuple[str, bool]:
    """Return a line of the table, and whether both conditions hold."""
    train, test, classes = make_labelled_records(folder, request, out / f"{folder.name}.index")
    work = assemble_template(out / folder.name, train, test, classes)
    run_python("plan.py", "--minutes", str(minutes), cwd=work)
    print(run_python("train.py", cwd=work)[-800:], flush=True)
    run_python("export.py", "--out", "Deliver", cwd=work)
    run_python("Deliver/predict.py", "--list", "list.json", "-o", "out.json", cwd=work)
    cases = [
        ReportCase(
            str(record["image_path"]), patient_of(record), join_sections(record["report"]), join_sections(answer)
        )
        for record, answer in zip(test, json.loads((work / "out.json").read_text()), strict=True)
    ]
    findings = {name: [name] for name in classes}
    texts = [join_sections(record["report"]) for record in train]
    common = [Counter(text for text in texts if name in text).most_common(1)[0][0] for name in classes]
    primary = score_reports(
        cases, findings, primary="label_f1", baseline_reports=[*best_constant_reports(texts), *common]
    ).primary
    use, constant = measure_image_use(cases, findings), float(primary.baseline or 0.0)
    lead = primary.value - constant
    lost = (primary.value - use.shuffled_value) / lead if lead > 0 else float("nan")
    figure = f"{primary.value:.3f} ({primary.low:.3f} to {primary.high:.3f})"
    line = f"{folder.name[:28]:28} {len(test):6}  {figure:22} {constant:13.3f} {use.shuffled_value:9.3f} {lost:.0%}"
    return line, primary.low is not None and primary.low > constant and lost >= 0.5


def make_labelled_records(
    folder: Path, request: str, work: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Return training and test records with a report each, and the findings that the reports state."""
    _, test = index(folder, request, work)
    train: list[dict[str, Any]] = json.loads((work / "Datapath" / "train.json").read_text())
    rng = np.random.default_rng(0)
    names = sorted({get_state(record) for record in train})

    def to_record(record: dict[str, Any]) -> dict[str, Any]:
        return {
            "image_path": str((work / record["image_path"]).absolute()),
            "report": {"findings": write_sentence(get_state(record), rng), "impression": ""},
            "labels": [get_state(record)],
            "patient": patient_of(record),
        }

    return [to_record(record) for record in train], [to_record(record) for record in test], names


def get_state(record: dict[str, Any]) -> str:
    return f"grade {record['grade']}" if "grade" in record else str(record["labels"][0]).replace("_", " ").lower()


def write_sentence(state: str, rng: np.random.Generator) -> str:
    first, second = (
        LABEL_SENTENCES[rng.integers(len(LABEL_SENTENCES))].format(state),
        FILLER_SENTENCES[rng.integers(len(FILLER_SENTENCES))],
    )
    return f"{first} {second}".strip()


def patient_of(record: dict[str, Any]) -> str:
    return str(record.get("patient") or record["image_path"])


def assemble_template(work: Path, train: list[dict[str, Any]], test: list[dict[str, Any]], classes: list[str]) -> Path:
    """Assemble the report template on these records."""
    shutil.rmtree(work, ignore_errors=True)
    copy_template("report", work)
    (work / "Datapath" / "train.json").write_text(json.dumps(train))
    (work / "Datapath" / "label_dict.json").write_text(json.dumps({name: place for place, name in enumerate(classes)}))
    (work / "list.json").write_text(json.dumps([record["image_path"] for record in test]))
    return work


def join_sections(report: dict[str, str]) -> str:
    return " ".join(report[key] for key in ("findings", "impression") if report.get(key))


if __name__ == "__main__":
    sys.exit(main())
