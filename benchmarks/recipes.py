"""Compare the templates with a plain MONAI recipe, or with classical features, on real data that m3b itself indexes.

    python benchmarks/recipes.py --set DIR "REQUEST" [--set DIR "REQUEST" ...] [--minutes 5] [--threads 2] [--out DIR]
        [--plan KEY=VALUE ...] [--each-patient] [--opponent monai|classical]

Each DIR is read as `m3b look` reads it for the request: the same training, validation and test cases for both, and the same
readers. The opponents are in monai_recipe.py and classical.py. Figures are those of the test part: mean Dice a case
(m3b.metrics), AUROC (mean over the classes), quadratic kappa of grades, or mAP of boxes at IoU 0.5, with 95 % bootstrap
intervals over patients; "ahead" is the paired difference, template minus recipe, with its own interval. With `--each-patient`,
for very small sets, each patient is the test part once, and both train on the others; with fewer than ten patients there are
no intervals, but the figures of each.
Trainings run one after the other on `--threads` processor threads; the load of the machine is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.manifest.execute import execute, write
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.reading import read_mask
from m3b.dataset.survey.walk import walk
from m3b.metrics.masks import measure_mask
from m3b.resources import copy_template
from m3b.tasks import get_family

ROOT = Path(__file__).resolve().parents[1]
OPPONENTS = {"monai": "monai_recipe.py", "classical": "classical.py"}
DRAWS = 2000
MIN_PATIENTS = 10
"""Minimum number of patients for an interval."""
Figure = Callable[[np.ndarray], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=2, action="append", required=True, metavar=("DIR", "REQUEST"), dest="sets")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plan", nargs="*", default=[], metavar="KEY=VALUE", help="for the template's plan.py")
    parser.add_argument(
        "--opponent", choices=sorted(OPPONENTS), default="monai", help="the plain recipe, or HOG with an SVM"
    )
    parser.add_argument("--each-patient", action="store_true", help="leave one patient out after the other")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="recipes_"))).resolve()
    lines = [f"{'set':28} {'figure':6} {'cases':>6}  {'template':22} {'recipe':22} ahead by (paired)"]
    for folder, request in options.sets:
        lines.append(compare_set(Path(folder).resolve(), request, options, out))
        print("\n".join([lines[0], lines[-1]]), flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print("\n".join([f"\n{options.minutes:g} minutes each, {options.threads} threads, load {load} at the end", *lines]))


def compare_set(folder: Path, request: str, options: argparse.Namespace, out: Path) -> str:
    """Return a line of the table."""
    work = out / folder.name
    task, test = prepare_project(folder, request, work)
    parts = iterate_patients(work, test) if options.each_patient else [test]
    measure_rows = {
        "segmentation": compute_dice_rows,
        "grading": compute_grade_rows,
        "detection": compute_box_rows,
    }.get(task, compute_score_rows)
    rows: list[list[np.ndarray]] = [[], []]
    tested_records: list[dict[str, Any]] = []
    for part in parts:
        train_both(work, part, options)
        name, part_rows, figure = measure_rows(work, part)
        for model_rows, new_rows in zip(rows, part_rows, strict=True):
            model_rows.append(new_rows)
        tested_records += part
    all_rows, patients = (
        [np.concatenate(model_rows) for model_rows in rows],
        [patient_of(record) for record in tested_records],
    )
    return f"{folder.name[:28]:28} {name:6} {len(tested_records):6}  {format_row(all_rows, figure, patients)}"


def train_both(work: Path, test: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Train template and recipe on the training part in `work`, and write their answers for `test` to `found`."""
    write_test_cases(work, test)
    run_python(
        "plan.py", "--minutes", str(options.minutes), "--set", f"threads={options.threads}", *options.plan, cwd=work
    )
    threads = str(options.threads)
    print(run_python("train.py", cwd=work)[-1200:], flush=True)
    run_python("export.py", "--out", "Deliver", cwd=work)
    run_python(
        "Deliver/predict.py", "--list", "paths.json", "-o", "found/template.json", "--masks", "found/masks", cwd=work
    )
    recipe = str(Path(__file__).with_name(OPPONENTS[options.opponent]))
    environment = {"OMP_NUM_THREADS": threads}
    print(
        run_python(recipe, str(work), str(options.minutes), "found/recipe.npz", cwd=work, **environment)[-300:],
        flush=True,
    )


def write_test_cases(work: Path, test: Sequence[dict[str, Any]]) -> None:
    """Write the test cases and remove the results of an earlier training."""
    (work / "test.json").write_text(json.dumps(test))
    (work / "paths.json").write_text(json.dumps([record["image_path"] for record in test]))
    for folder in ("Logout", "Deliver", "found"):
        shutil.rmtree(work / folder, ignore_errors=True)
    (work / "found").mkdir()


def iterate_patients(work: Path, test: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the cases of one patient after the other; the cases of the others are the training part meanwhile."""
    training_file = work / "Datapath" / "train.json"
    all_records = [*json.loads(training_file.read_text()), *test]
    for patient in sorted({patient_of(record) for record in all_records}):
        training_file.write_text(json.dumps([record for record in all_records if patient_of(record) != patient]))
        yield [record for record in all_records if patient_of(record) == patient]


def patient_of(record: dict[str, Any]) -> str:
    return str(record.get("patient") or record["image_path"])


def prepare_project(folder: Path, request: str, work: Path) -> tuple[str, list[dict[str, Any]]]:
    """Assemble the template on the index that m3b makes; return the task and the test cases."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    manifest_file = work.with_suffix(".manifest.json")
    run_python(
        "-m", "m3b", "look", str(folder), request, "-o", str(manifest_file), "--force", cwd=work.parent, check=False
    )
    manifest = Manifest.model_validate_json(manifest_file.read_text())
    copy_template(get_family(manifest.task).template or manifest.task, work)
    (work / "data").mkdir()
    (work / "data" / "set").symlink_to(folder)
    (work / "Datapath").mkdir(exist_ok=True)
    write(execute(manifest, walk(folder), name="set", work=work), work)
    test: list[dict[str, Any]] = json.loads((work / "Datapath" / "test.json").read_text())
    (work / "Datapath" / "test.json").unlink()
    write_test_cases(work, test)
    return manifest.task, test


def run_python(*command: str, cwd: Path, check: bool = True, **environment: str) -> str:
    """Return standard output; show the end of all output if the command fails."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode and check:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def compute_dice_rows(work: Path, test: Sequence[dict[str, Any]]) -> tuple[str, list[np.ndarray], Figure]:
    """Return the mean Dice of each case over its classes, of template and recipe, on the image's own grid."""
    from m3b.training.channels import read_case
    from m3b.training.mask_grid import load_masks

    os.chdir(work)
    plan = json.loads(Path("plan.json").read_text())
    answers, recipe = json.loads(Path("found/template.json").read_text()), np.load("found/recipe.npz")
    values = plan["labels"] or {}
    rows: list[list[float]] = []
    for index, (record, answer) in enumerate(zip(test, answers, strict=True)):
        truth = load_masks(record, plan, read_case(record["image_path"], plan))
        layers = recipe[str(index)]
        dice_pair = []
        for number, name in enumerate(plan["classes"]):
            file = answer["masks"][name] if plan["overlap"] else answer["mask"]
            predicted_mask = read_mask(f"found/{file}").array.reshape(truth.shape[1:])
            template = predicted_mask > 0 if plan["overlap"] else predicted_mask == values[name]
            recipe_marked = layers[number] > 0 if plan["overlap"] else layers == number + 1
            dice_pair.append(
                [measure_mask(marked, truth[number], (1.0,) * marked.ndim).dice for marked in (template, recipe_marked)]
            )
        rows.append(list(np.nanmean(np.array(dice_pair), axis=0)))
    columns = np.array(rows)
    return "Dice", [columns[:, 0], columns[:, 1]], lambda part: float(np.nanmean(part))


def compute_score_rows(work: Path, test: Sequence[dict[str, Any]]) -> tuple[str, list[np.ndarray], Figure]:
    """Return (N, 2 K): probabilities and truth of each case, of template and recipe."""
    from m3b.training.ranking_metrics import macro_auroc

    plan = json.loads((work / "plan.json").read_text())
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / "found/recipe.npz")
    truth = np.array([[float(name in record["labels"]) for name in plan["classes"]] for record in test])
    template_scores = np.array([[answer["probabilities"][name] for name in plan["classes"]] for answer in answers])
    rows = [np.hstack([scores, truth]) for scores in (template_scores, recipe["scores"])]
    return "AUROC", rows, lambda part: macro_auroc(*np.hsplit(part, 2)[::-1])


def compute_grade_rows(work: Path, test: Sequence[dict[str, Any]]) -> tuple[str, list[np.ndarray], Figure]:
    """Return (N, 2): position of the decided and of the true grade, of template and recipe."""
    plan = json.loads((work / "plan.json").read_text())
    names, count = [str(name) for name in plan["classes"]], len(plan["classes"])
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / "found/recipe.npz")
    truth = np.array([names.index(str(record["grade"])) for record in test])
    template_grades = np.array([names.index(str(answer["prediction"])) for answer in answers])

    def kappa(part: np.ndarray) -> float:
        confusion = np.bincount(part[:, 1] * count + part[:, 0], minlength=count * count).reshape(count, count)
        weights = np.subtract.outer(np.arange(count), np.arange(count)) ** 2.0
        chance = np.outer(confusion.sum(axis=1), confusion.sum(axis=0)) / len(part)
        total = float((weights * chance).sum())
        return 1 - float((weights * confusion).sum()) / total if total else float("nan")

    return (
        "kappa",
        [np.column_stack([grades, truth]) for grades in (template_grades, recipe["scores"].argmax(axis=1))],
        kappa,
    )


def compute_box_rows(work: Path, test: Sequence[dict[str, Any]]) -> tuple[str, list[np.ndarray], Figure]:
    """Return for each case scores, hits at IoU 0.5 and true boxes of every class, of template and recipe."""
    from m3b.training.detection.boxes import average_precision, rank_boxes

    plan = json.loads((work / "plan.json").read_text())
    names, count = list(plan["classes"]), len(plan["classes"])
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / "found/recipe.npz")
    parts: list[list[Any]] = [[], []]
    for index, (record, answer) in enumerate(zip(test, answers, strict=True)):
        truth = np.array([entry["box"] for entry in record["boxes"]], float).reshape(-1, 4)
        labels = np.array([names.index(entry["label"]) for entry in record["boxes"]], int)
        boxes = answer["boxes"]
        template_boxes = (
            np.array([entry["box"] for entry in boxes], float).reshape(-1, 4),
            np.array([entry["score"] for entry in boxes]),
        )
        detections = [(*template_boxes, np.array([names.index(entry["label"]) for entry in boxes], int))]
        detections.append((recipe[str(index)][:, :4], recipe[str(index)][:, 4], recipe[str(index)][:, 5].astype(int)))
        for part, entry in zip(parts, detections, strict=True):
            part.append(rank_boxes([entry], [(truth, labels)], count))
    rows = [np.empty(len(test), object) for _ in parts]
    for row, part in zip(rows, parts, strict=True):
        row[:] = part

    def mean_ap(cases: np.ndarray) -> float:
        values = []
        for k in range(count):
            scores, hits, true = zip(*[case[k] for case in cases], strict=True)
            values.append(average_precision(np.concatenate(scores), np.concatenate(hits), sum(true)))
        return float(np.nanmean(values))

    return "mAP50", rows, mean_ap


def format_row(rows: Sequence[np.ndarray], figure: Figure, patients: Sequence[str]) -> str:
    """Format both figures and their difference, each with its interval over patients, or the figures of each of a few patients."""
    values = [figure(part) for part in rows]
    if len(set(patients)) < MIN_PATIENTS:
        names = np.array(patients)
        figures_by_patient = [
            [f"{figure(part[names == name]):.3f}" for name in dict.fromkeys(patients)] for part in rows
        ]
        texts = [
            f"{value:.3f} ({', '.join(patient_texts)})"
            for value, patient_texts in zip(values, figures_by_patient, strict=True)
        ]
        return f"{texts[0]:22} {texts[1]:22} {values[0] - values[1]:+.3f}"
    table = bootstrap_figures(rows, figure, patients)
    columns = [(values[0], table[:, 0]), (values[1], table[:, 1]), (values[0] - values[1], table[:, 0] - table[:, 1])]
    texts = [format_interval(value, draws) for value, draws in columns]
    return f"{texts[0]:22} {texts[1]:22} {texts[2]}"


def bootstrap_figures(rows: Sequence[np.ndarray], figure: Figure, patients: Sequence[str]) -> np.ndarray:
    """Return (draws, models): the figure of each model over the same draws of patients, whose cases stay together."""
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(patients):
        groups.setdefault(name, []).append(row)
    members, rng, figures = list(groups.values()), np.random.default_rng(0), []
    for _ in range(DRAWS):
        sampled_rows = [row for k in rng.integers(0, len(members), len(members)) for row in members[k]]
        figures.append([figure(part[sampled_rows]) for part in rows])
    return np.array(figures)


def format_interval(value: float, draws: np.ndarray) -> str:
    low, high = np.nanpercentile(draws, (2.5, 97.5))
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
