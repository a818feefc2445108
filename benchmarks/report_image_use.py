"""Measure whether the report template uses its images, with m3b's own metrics on a generated set with known findings.

    python benchmarks/report_image_use.py                      IU-Xray's stand-in: two views, sides; three minutes
    python benchmarks/report_image_use.py --data CT-RATE       3D
    python benchmarks/report_image_use.py --data RadGenome-BrainMRI --patients 40

Plan, train, export and predict run as an agent would run them, on the training part; the figures are those of the
deliverable's predictions for the test part. Three conditions must hold: with the images shuffled between patients, at least
half of the label F1 is lost; 20 cases get at least 10 different texts; BLEU-4 is above the best constant training
report. The exit status is 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from m3b.bench.datasets import RawCase, get_dataset
from m3b.resources import copy_template
from m3b.tasks.report import (
    Findings,
    ReportCase,
    best_constant_reports,
    extract_findings,
    measure_image_use,
    score_reports,
)
from m3b.tasks.report.metrics import count_distinct_texts

SIDES = ("left", "right")
PLANTED_FINDINGS: dict[str, dict[str, list[str]]] = {
    "IU-Xray": {
        "cardiomegaly": ["cardiomegaly", "silhouette markedly enlarged"],
        **{f"effusion {side}": [f"{side} pleural effusion"] for side in SIDES},
        **{f"opacity {side}": [f"{side} lung opacity", f"{side} midlung"] for side in SIDES},
    },
    "CT-RATE": {
        "cardiomegaly": ["cardiomegaly", "heart size is increased", "cardiothoracic ratio has increased"],
        **{f"effusion {side}": [f"effusion on the {side}", f"{side} pleural effusion"] for side in SIDES},
        **{f"infiltration {side}": [f"infiltration in the {side}", f"{side} upper lobe"] for side in SIDES},
        **{f"nodule {side}": [f"nodule in the {side}", f"zone {side} lung"] for side in SIDES},
    },
    "RadGenome-BrainMRI": {
        **{f"{side} {lobe}": [f"{side} {lobe}"] for side in SIDES for lobe in ("frontal", "parietal", "occipital")},
        **{name: [name] for name in ("glioma", "meningioma", "metastasis", "infarct", "white matter hyperintensity")},
        "midline shift": ["midline shift is present", "midline structures are displaced"],
    },
}
"""Planted findings of the generators, and the words of their reports."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="IU-Xray", choices=tuple(PLANTED_FINDINGS))
    parser.add_argument("--patients", type=int, help="instead of the stand-in's own number")
    parser.add_argument("--minutes", type=float, default=3.0, help="of training")
    parser.add_argument("--seed", type=int, default=0, help="of the generated data")
    parser.add_argument("--set", nargs="*", default=[], help="overrides for plan.py")
    parser.add_argument("--keep", type=Path, help="work here, and leave everything")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.keep or Path(folder) / "work"
        train, test = prepare(work, options.data, options.patients, options.seed)
        start = time.monotonic()
        run_script(work, "plan.py", "--minutes", str(options.minutes), "--set", "device=cpu", *options.set)
        run_script(work, "train.py")
        run_script(work, "export.py", "--out", "Deliver")
        seconds = time.monotonic() - start
        (work / "list.json").write_text(json.dumps([record["image_path"] for record in test]))
        run_script(work, "Deliver/predict.py", "--list", "list.json", "-o", "out.json")
        predictions = json.loads((work / "out.json").read_text())
    return judge_image_use(options.data, train, test, predictions, seconds)


def prepare(
    work: Path, name: str, patients: int | None, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Assemble the template in `work`, make the data next to it, and return its training and test records."""
    copy_template("report", work)
    dataset_spec = get_dataset(name)
    dataset_spec.make(work / "data" / "made", patients=patients, seed=seed)
    cases = dataset_spec.read(work / "data" / "made").cases
    names = sorted({case.patient for case in cases})
    test_patients = set(np.random.default_rng(0).permutation(names)[: max(20, len(names) // 4)])
    is_test_case = {case.name: case.split == "test" if case.split else case.patient in test_patients for case in cases}
    parts: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for case in cases:
        parts[is_test_case[case.name]].append(to_record(case))
    (work / "Datapath" / "train.json").write_text(json.dumps(parts[False]))
    (work / "Datapath" / "label_dict.json").write_text("{}")
    return parts[False], parts[True]


def to_record(case: RawCase) -> dict[str, Any]:
    paths = [f"data/made/{path}" for path in case.images]
    return {
        "image_path": paths if len(paths) > 1 else paths[0],
        "report": {"findings": case.findings, "impression": case.impression},
        "patient": case.patient,
    }


def run_script(work: Path, script: str, *arguments: str) -> None:
    subprocess.run([sys.executable, script, *arguments], cwd=work, check=True)


def join_sections(report: dict[str, str]) -> str:
    return " ".join(report[key] for key in ("findings", "impression") if report[key])


def sample_evenly(cases: list[ReportCase], findings: Findings, max_cases: int) -> list[ReportCase]:
    """Return at most `max_cases` cases, evenly over the sets of findings that their TRUE reports state.

    A third of the studies is normal, and the same text is correct for all of them.
    """
    groups: dict[frozenset[str], list[ReportCase]] = {}
    for case in cases:
        groups.setdefault(extract_findings(case.reference, findings), []).append(case)
    rounds = zip_longest(*groups.values())
    return [case for turn in rounds for case in turn if case is not None][:max_cases]


def judge_image_use(
    name: str,
    train: list[dict[str, Any]],
    test: list[dict[str, Any]],
    predictions: list[dict[str, Any]],
    seconds: float,
) -> int:
    """Print the figures; return 1 if one of the three conditions does not hold."""
    cases = [
        ReportCase(str(record["image_path"]), record["patient"], join_sections(record["report"]), join_sections(text))
        for record, text in zip(test, predictions, strict=True)
    ]
    findings = PLANTED_FINDINGS[name]
    constants = best_constant_reports([join_sections(record["report"]) for record in train])
    scores = score_reports(cases, findings, primary="bleu_4", baseline_reports=constants)
    use = measure_image_use(cases, findings)
    sampled_cases = sample_evenly(cases, findings, 20)
    first_20 = len({extract_findings(case.reference, findings) for case in cases[:20]})
    distinct_predictions, distinct_truths = (
        count_distinct_texts(sampled_cases),
        len({extract_findings(case.reference, findings) for case in sampled_cases}),
    )
    bleu = scores.primary
    print(f"{name}: {len(train)} training and {len(test)} test studies, {seconds:.0f} s with imports and export")
    for case in cases[:4]:
        print(f"  true:    {case.reference}\n  written: {case.prediction}")
    criteria = (
        use.lost_share >= 0.5,
        distinct_predictions >= 10,
        bleu.baseline is not None and bleu.value > bleu.baseline,
    )
    for is_met, line in zip(
        criteria,
        (
            f"label F1 {use.value:.3f}, with images shuffled {use.shuffled_value:.3f}: {use.lost_share:.0%} is lost (at least 50%)",
            f"different texts: {distinct_predictions} on {len(sampled_cases)} cases (at least 10 of 20), whose true "
            f"reports state {distinct_truths} different "
            f"sets of findings; on the first 20 as they come {count_distinct_texts(cases[:20])} (true sets "
            f"{first_20}), on all {use.n} "
            f"{use.distinct}",
            f"BLEU-4 {bleu.value:.3f}, best constant report {bleu.baseline:.3f}"
            f" (95 % interval {bleu.low:.3f} to {bleu.high:.3f})",
        ),
        strict=True,
    ):
        print(f"{'holds' if is_met else 'FAILS'}: {line}")
    print(", ".join(f"{key} {measure.value:.3f}" for key, measure in scores.metrics.items()))
    return 0 if all(criteria) else 1


if __name__ == "__main__":
    sys.exit(main())
