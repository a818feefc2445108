"""A search over plans against one training of the same length, on the same hidden patients.

    python benchmarks/search.py --set DIR "REQUEST" [--minutes 30] [--seed 0] [--patients N] [--min-gain G] [--out DIR]
        [--results FILE]

The rules build two models from a folder with the same split: `one` from a single training of so many minutes, and `search` from a
search and a last training that take as many together (`Pipeline(hours=...)`). The script prints the metric of both on the locked
test cases, the paired difference with a 95 % bootstrap interval over patients, and the optimism that the search printed beside the
true one: the figure by which the plan was selected minus that of the delivered model on the test cases. The delivered model was
trained for longer than the candidate, so the true optimism is less what the longer training gains; `validation` is its figure on its
own held-out cases. Without `--set` it draws radiographs (`m3b.data.synthetic`). Runs go one after the other; the load of the machine
is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from m3b import Pipeline
from m3b.agents.artifacts import Selection, TrainedModel
from m3b.data.index import read_index
from m3b.data.synthetic import make_chest
from m3b.facts import SearchSummary
from m3b.metrics.bootstrap import without_intervals
from m3b.metrics.metric_tables import lower_is_better
from m3b.metrics.selection_bias import Row, SelectionSamples
from m3b.run.folder import RunFolder
from m3b.run.result import Result
from m3b.run.state import RunState
from m3b.tasks import get_family, score_all

DRAWS = 1000


def read_rows(run: Path) -> list[Row]:
    """Return the measured test cases of a run."""
    return list(json.loads((run / "locked/predictions.json").read_text(encoding="utf-8")))


def compare_runs(one: Path, search: Path, selection: Selection) -> SelectionSamples:
    """Return the test cases of both runs on the same bootstrap samples: 1 is the single training, 2 the search."""
    index, family = read_index(RunFolder(one).locked, selection.task), get_family(selection.task)

    def score(rows: Sequence[Row]) -> float:
        with without_intervals():
            cases = [dict(row) for row in rows]
            return score_all(family, cases, index, primary=selection.metric, draws=0).primary.value

    rows_of_runs = [{row["image"]: row for row in read_rows(run)} for run in (one, search)]
    if set(rows_of_runs[0]) != set(rows_of_runs[1]):
        raise SystemExit("The two runs have different test cases, so they cannot be paired.")
    images = list(rows_of_runs[0])
    patients = [str(rows_of_runs[0][image]["patient"]) for image in images]
    samples = SelectionSamples(patients, score, lower_is_better=lower_is_better(selection.metric), draws=DRAWS)
    for number, rows in enumerate(rows_of_runs, 1):
        samples.add(number, [rows[image] for image in images])
    return samples


def describe_measure(result: Result) -> dict[str, Any]:
    """Return the test figure of a run with its interval."""
    measure = result.primary
    if measure is None:
        raise SystemExit(f"No model was delivered: {result.reason}")
    return {
        "status": result.status,
        "metric": measure.name,
        "value": measure.value,
        "low": measure.low,
        "high": measure.high,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=2, metavar=("DIR", "REQUEST"), help="a folder and the request for it")
    parser.add_argument("--patients", type=int, default=240, help="of the drawn radiographs")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--min-gain", type=float)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--out", type=Path, help="a new folder for both runs; by default a temporary one")
    parser.add_argument("--results", type=Path, help="a file to which the row is added as JSON")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="m3b-search-"))
    out.mkdir(parents=True, exist_ok=True)
    folder, request = options.set or (
        make_chest(out / "chest", patients=options.patients),
        "Detect lung opacities on chest X-rays",
    )
    load, results = os.getloadavg(), {}
    for name, budget in (("one", {"train_minutes": options.minutes}), ("search", {"hours": options.minutes / 60})):
        limits = {"min_gain": options.min_gain} if name == "search" and options.min_gain is not None else {}
        pipeline = Pipeline(
            "rules",
            data=str(folder),
            out=out / name,
            seed=options.seed,
            sandbox=options.sandbox,
            register=False,
            **budget,
            **limits,
        )
        start = time.monotonic()
        results[name] = pipeline.run(request)
        print(f"{name}: {(time.monotonic() - start) / 60:.1f} min, {results[name].reason}", flush=True)
    state = RunState.from_events(RunFolder(out / "search").read_events())
    selection, summary = state.get_artifact(Selection), state.find_artifact(SearchSummary)
    samples = compare_runs(out / "one", out / "search", selection)
    row: dict[str, Any] = {
        "set": str(Path(folder).name),
        "minutes": options.minutes,
        "seed": options.seed,
        "patients": samples.n_patients,
        "one": describe_measure(results["one"]),
        "search": describe_measure(results["search"]),
        "search_better_by": samples.compare(2, 1),
        "load": [load, os.getloadavg()],
    }
    if summary is not None and summary.value is not None:
        sign = -1 if lower_is_better(selection.metric) else 1
        row["selection"] = {
            "candidates": len(summary.candidates),
            "measured": sum(item.value is not None for item in summary.candidates),
            "selected": summary.selected,
            "value": summary.value,
            "corrected": summary.corrected,
            "optimism": summary.optimism,
            "ensemble": summary.ensemble.to_json() if summary.ensemble else None,
            "true_optimism": sign * (summary.value - row["search"]["value"]),
            "validation": state.get_artifact(TrainedModel).validation.get("value"),
        }
    print(json.dumps(row, indent=1))
    if options.results:
        with options.results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
