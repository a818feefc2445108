"""Learn the weights by which manifest proposals are scored, on generated folders of even seeds.

    python benchmarks/fit_weights.py collect --seeds 0-398:2 --jobs 2 --rows FILE
    python benchmarks/fit_weights.py collect --seeds 0-98:2 --axes mask_form=file_per_object --rows FILE
    python benchmarks/fit_weights.py fit --rows FILE FILE

`collect` draws folders (`tests/layouts`), lists all candidates of each with their features, executes them, and compares the index with
the truth. `fit` fits one logistic regression a decision, pulled towards the priors in the file as strongly as cross-validation
over folders says, and writes `src/m3b/dataset/proposals/weights.json`. Odd seeds are never used here.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parent))

WEIGHTS_FILE = Path(__file__).resolve().parents[1] / "src" / "m3b" / "dataset" / "proposals" / "weights.json"
MAX_EXECUTED = 14
"""Candidates of one folder that are executed: the best by today's weights."""
MAX_EQUAL = 0.05
"""Difference of a feature up to which two readings look the same."""
BESIDE_TARGET = frozenset({"patients_split_up", "patients_merged", "wrong_side"})
"""Differences that are those of patients and split, and not of the target."""


def collect_seed(seed: int, axes: Mapping[str, str], tasks: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a row for every candidate of every decision: features, and whether it is right.

    Args:
        axes: values of axes that every folder has.
        tasks: of the folders that are read; by default all.
    """
    from layouts.generate import draw_layout, write_layout

    layout = draw_layout(seed, **axes)
    if (tasks and layout.axes.task not in tasks) or not {"proposed", "ask"} & set(layout.truth.outcomes):
        return []
    has_rivals = layout.axes.solvability == "two_targets"
    if "proposed" not in layout.truth.outcomes and not has_rivals:
        return []
    place = Path(tempfile.mkdtemp(prefix=f"fit-{seed}-"))
    try:
        (place / "data").mkdir()
        write_layout(layout, place / "data")
        rows = list(_rows(seed, layout, place))
        return _without_equals(rows) if has_rivals else rows
    except Exception as error:  # noqa: BLE001  a folder that cannot be read teaches nothing; it is printed and left out
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        return []
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _without_equals(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a folder with two targets of equal standing, without those that look like the right one but for its pixels."""
    right = [row["features"] for row in rows if row["right"]]

    def is_like(features: Mapping[str, float], second: Mapping[str, float]) -> bool:
        return all(abs(features.get(name, 0.0) - second.get(name, 0.0)) < MAX_EQUAL for name in {*features, *second})

    return [row for row in rows if row["right"] or not any(is_like(row["features"], second) for second in right)]


def _rows(seed: int, layout: Any, place: Path) -> Iterator[dict[str, Any]]:
    from layouts_index import to_records

    from layouts.truth import compare
    from m3b.dataset.manifest.execute import execute
    from m3b.dataset.manifest.readers import FolderReaders
    from m3b.dataset.proposals.context import choose_patient, list_splits
    from m3b.dataset.proposals.decide import LABEL_TASKS, TARGET_LISTS, list_candidates, measure
    from m3b.dataset.proposals.image_sets import list_image_sets
    from m3b.dataset.proposals.request import parse
    from m3b.dataset.survey.facts import SurveyLimits
    from m3b.dataset.survey.survey import survey_inventory
    from m3b.dataset.survey.walk import walk
    from m3b.errors import DataError

    task = {"multi_label": "diagnosis"}.get(layout.truth.task, layout.truth.task)
    inventory = walk(place / "data")
    survey = survey_inventory(inventory, SurveyLimits())
    request = parse(layout.request, "\n".join(document.text for document in survey.documents))
    readers = FolderReaders(inventory)
    image_sets = list_image_sets(survey, inventory, readers)
    tasks = tuple(dict.fromkeys([task, *request.tasks])) if request.tasks else tuple(TARGET_LISTS)
    done = False
    for number, candidate in enumerate(list_candidates(survey, image_sets, request, tasks)[:MAX_EXECUTED]):
        if candidate.task != task and {candidate.task, task} <= LABEL_TASKS:
            continue  # the same labels for another task say nothing of the labels
        measured = measure(candidate, survey, inventory, readers, request)
        if measured is None:
            continue
        work = place / f"work{number}"
        (work / "Datapath").mkdir(parents=True)
        try:
            executed = execute(measured.manifest, inventory, name="data", work=work, readers=readers)
        except DataError:
            continue
        records, order = to_records(executed, work, place / "data")
        codes = {one.code for one in compare(records, layout.truth, order)} - BESIDE_TARGET
        right = not codes and candidate.task == task
        yield {"seed": seed, "decision": candidate.target.decision, "right": int(right), "features": dict(measured.features),
               "title": candidate.target.title, "set": candidate.image_set.images.model_dump_json(exclude_defaults=True),
               "codes": sorted(codes)}  # fmt: skip
        if right and not done:
            done = True
            yield from _context_rows(seed, candidate, layout, survey, measured, choose_patient, list_splits)


def _context_rows(
    seed: int, candidate: Any, layout: Any, survey: Any, measured: Any, choose_patient: Any, list_splits: Any
) -> Iterator[dict[str, Any]]:
    """Rows of patients and splits, for the image set of a right candidate."""
    from layouts.truth import normalize_reference

    image_set = candidate.image_set
    refs = [normalize_reference(ref) for ref in image_set.frame.frame["ref"].to_list()]
    by_file = {normalize_reference(file): case for case in layout.truth.cases for file in case.files}
    cases = [by_file.get(ref) for ref in refs]
    known = any(case is not None and case.patient is not None for case in cases)
    for choice in choose_patient(image_set, len(layout.truth.cases), candidate.target.templates):
        texts = image_set.values(choice.column.template).to_list()
        pairs = {(text, case.patient) for text, case in zip(texts, cases, strict=True) if case is not None}
        right = (
            known
            and None not in {text for text, _ in pairs}
            and len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        )
        yield {
            "seed": seed,
            "decision": "patient",
            "right": int(right),
            "features": choice.features,
            "title": choice.column.template,
        }
    if layout.axes.split == "test_unlabelled":
        return  # its test part is found and left out by its missing targets, not by weights
    for split in list_splits(image_set, survey):
        sides = split.sides.to_list()
        right = layout.truth.side_rule != "free" and all(
            (side == "test") == (case.side == "test")
            for side, case in zip(sides, cases, strict=True)
            if case is not None
        )
        yield {"seed": seed, "decision": "split", "right": int(right), "features": split.features, "title": split.title}


def divide_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of targets, of image sets, and of everything else.

    A candidate is wrong if its target or its image set is. So a row teaches about targets if its image set is that of a right
    candidate of its folder, and about image sets if its target is; of folders without a right candidate it teaches about targets.
    """
    from m3b.dataset.proposals.scoring import SET_FEATURES

    right_titles = {(row["seed"], row["title"]) for row in rows if row["right"]}
    right_sets = {(row["seed"], row["set"]) for row in rows if row["right"] and "set" in row}
    seeds_with_right = {seed for seed, _ in right_sets}
    divided = []
    for row in rows:
        if "set" not in row:
            divided.append(row)
            continue
        of_set = {name: value for name, value in row["features"].items() if name.startswith(SET_FEATURES)}
        if (row["seed"], row["set"]) in right_sets or row["seed"] not in seeds_with_right:
            rest = {name: value for name, value in row["features"].items() if name not in of_set}
            divided.append({**row, "features": rest})
        if (row["seed"], row["title"]) in right_titles:
            divided.append({**row, "features": of_set, "decision": "image_set"})
    return divided


def fit(rows: list[dict[str, Any]], priors: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return decision -> feature -> weight."""
    weights = {}
    rows = divide_rows(rows)
    for decision in sorted({row["decision"] for row in rows}):
        own_rows = [row for row in rows if row["decision"] == decision]
        prior = priors.get(decision, {})
        names = ["", *sorted({name for row in own_rows for name in row["features"]} | set(prior) - {""})]
        matrix = np.array(
            [[1.0, *(row["features"].get(name, 0.0) for name in names[1:])] for row in own_rows], dtype=float
        )
        right = np.array([row["right"] for row in own_rows], dtype=float)
        folders = np.array([row["seed"] for row in own_rows])
        start = np.array([prior.get(name, 0.0) for name in names])
        if right.min() == right.max():
            weights[decision] = prior  # nothing to tell apart
            continue
        scale = np.where(matrix.std(axis=0) > 0, np.maximum(matrix.std(axis=0), MIN_SCALE), 1.0)
        data = matrix, right, start, scale
        scores = {strength: _cross_validate(*data, folders, strength) for strength in STRENGTHS}
        best = min(scores, key=lambda strength: scores[strength])
        fitted = _minimise(*data, best)
        weights[decision] = {
            name: round(float(value), 4) for name, value in zip(names, fitted, strict=True) if abs(value) > 1e-4
        }
        print(
            f"{decision}: {len(own_rows)} rows of {len(set(folders.tolist()))} folders, {int(right.sum())} right, "
            f"strength {best:g}, log loss {scores[best]:.3f} (priors {_log_loss(matrix @ start, right):.3f})"
        )
    return weights


KEPT_SHARE = 0.25
"""Part of each prior that every weight keeps."""
MIN_SCALE = 0.2
"""Standard deviation of a feature that hardly varies, whose weight would be free else."""
STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""Strengths of the pull towards the priors that are compared."""


def _minimise(matrix: Any, right: Any, prior: Any, scale: Any, strength: float) -> Any:
    """Weights with the least log loss plus `strength` times the squared distance from the priors, in units of each feature.

    A prior that is not 0 says whether a feature speaks for or against a reading. The rows may not turn that round, and a part of it
    stays: generated folders hardly vary in some features that tell readings of real ones apart.
    """
    from scipy.optimize import minimize

    def loss(weights: Any) -> tuple[float, Any]:
        odds = np.clip(matrix @ weights, -40, 40)
        distance = (weights - prior) * scale
        value = float(np.sum(np.logaddexp(0, odds) - right * odds) + 0.5 * strength * np.sum(distance**2))
        gradient = matrix.T @ (1 / (1 + np.exp(-odds)) - right) + strength * distance * scale
        return value, gradient

    kept = [KEPT_SHARE * weight for weight in prior[1:]]
    limits = [(low, None) if low > 0 else (None, low) if low < 0 else (None, None) for low in kept]
    return minimize(
        loss, prior, jac=True, method="L-BFGS-B", bounds=[(None, None), *limits], options={"maxiter": 2000}
    ).x


def _log_loss(odds: Any, right: Any) -> float:
    odds = np.clip(odds, -40, 40)
    return float(np.mean(np.logaddexp(0, odds) - right * odds))


def _cross_validate(matrix: Any, right: Any, prior: Any, scale: Any, folders: Any, strength: float) -> float:
    """Mean log loss on folders that were not fitted, in five parts."""
    parts = np.array([sorted(set(folders.tolist())).index(folder) % 5 for folder in folders])
    losses = [
        _log_loss(
            matrix[parts == part] @ _minimise(matrix[parts != part], right[parts != part], prior, scale, strength),
            right[parts == part],
        )
        * (parts == part).sum()
        for part in range(5)
        if (parts == part).any()
    ]
    return sum(losses) / len(right)


def parse_range(text: str) -> list[int]:
    """Return the seeds of `0-398:2` (first-last:step)."""
    first, _, rest = text.partition("-")
    last, _, step = rest.partition(":")
    return list(range(int(first), int(last or first) + 1, int(step or 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["collect", "fit"])
    parser.add_argument("--seeds", type=parse_range, default=parse_range("0-398:2"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--axes", nargs="*", default=[], metavar="AXIS=VALUE", help="values that every folder has")
    parser.add_argument("--tasks", nargs="*", default=[], help="tasks of the folders that are read; by default all")
    parser.add_argument("--rows", type=Path, nargs="+", required=True, help="files of JSON lines")
    options = parser.parse_args()
    if any(seed % 2 for seed in options.seeds):
        parser.error("odd seeds are for reports; fit on even ones")
    if options.action == "collect":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        with (
            multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool,
            options.rows[0].open("w", encoding="utf-8") as out,
        ):
            axes = dict(text.split("=", 1) for text in options.axes)
            for rows in pool.imap_unordered(partial(collect_seed, axes=axes, tasks=options.tasks), options.seeds):
                out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                out.flush()
        return
    rows = [json.loads(line) for path in options.rows for line in path.read_text("utf-8").splitlines()]
    stored = json.loads(WEIGHTS_FILE.read_text("utf-8"))
    stored["weights"] |= fit(rows, stored["priors"])
    seeds = sorted({row["seed"] for row in rows})
    stored["fitted_on"] = f"{len(seeds)} generated folders, even seeds {seeds[0]} to {seeds[-1]}"
    WEIGHTS_FILE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
