"""Measure how generated folders of many layouts are read: rightly, asked about, refused, or wrongly and accepted.

    python benchmarks/layouts.py --seeds 1-199:2 --jobs 2 [--results FILE]
    python benchmarks/layouts.py --seeds 0-98:2 --fixed habit=further_structures
    python benchmarks/layouts.py --each-value diagnosis segmentation_2d
    make bench-layouts SEEDS=1-199:2

Each seed is a folder that `tests/layouts/generate.py` draws and writes, with a request. m3b reads it by the decision of
`m3b.dataset.proposals` (`--by dataset`), or as a run by the rules does, up to the accepted index (`--by run`); the index is compared
with the truth. Odd seeds are for reports: whoever changes how folders are read looks at the
totals of odd seeds, and at single folders of even seeds only. FILE (JSON lines) has the outcome of every seed; seeds that it holds
already are not measured again.

`--fixed` draws layouts that all have these values of axes.

`--each-value` shows what fails on its own: for each task named, otherwise usual folders (PNG, one table, English, ...) with each
value of each axis in turn, all of even seeds.

A folder that cannot be solved (two equal targets, a request that contradicts the folder, no targets, ...) is right if m3b asks or
refuses. `wrong` means that an index was accepted that differs from the truth, or that none should have been.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parent))
from layouts.axes import AXES, draw_axes
from layouts.generate import draw_layout, write_layout
from layouts.truth import Difference, IndexRecord, Truth, compare

RIGHT, ASKED, REFUSED, WRONG, FAILED = "right", "asked", "refused", "wrong", "failed"
VERDICTS = (RIGHT, ASKED, REFUSED, WRONG, FAILED)
OUTCOME_OF_KIND = {"proposed": "proposed", "asked": "ask", "refused": "refuse"}
LISTED_FAILURES = 15
VALUE_SEED, PLAINNESS = 2, (0.99, 0.8)
"""Seed of the folders of `--each-value`, and how usual they are besides the value in question: the first that has such a folder."""


@dataclass(frozen=True)
class Outcome:
    """What m3b makes of a folder and a request.

    Args:
        kind: `proposed` (an index was accepted), `asked` or `refused`.
        task: of the index.
        records: its cases.
        class_order: its classes by number.
        reason: the question, or why it was refused.
        manifest: how the folder was read, if m3b says so.
    """

    kind: str
    task: str = ""
    records: tuple[IndexRecord, ...] = ()
    class_order: tuple[str, ...] = ()
    reason: str = ""
    manifest: Mapping[str, Any] | None = None


# --- m3b ---------------------------------------------------------------------------------------------------------------


def read_folder(folder: Path, request: str, scratch: Path) -> Outcome:
    """Return m3b's decision on a folder: what `m3b look` proposes, and the index that a run by the rules accepts.

    Args:
        scratch: an empty folder.
    """
    from m3b import Pipeline, Role, Stage
    from m3b.agents.artifacts import DataIndex
    from m3b.agents.check_result import CheckResult, reject
    from m3b.errors import DataError, UsageError
    from m3b.run.dataset_preview import preview_dataset

    stopped = "The index is accepted, and this run ends here."

    @dataclass(frozen=True)
    class NoArtifact:
        """The stage that ends a run hands over nothing."""

    class EndAfterIndex(Stage[NoArtifact]):
        """Ends a run before anything is trained."""

        role = Role("end_after_index", "End After Index")
        artifact = NoArtifact
        required_artifacts = (DataIndex,)

        def check(self, state: Any, services: Any, closing_text: str) -> CheckResult:
            return reject(stopped, is_fatal=True)

    (scratch / "look").mkdir()
    try:
        preview = preview_dataset(folder, request, scratch / "look")
    except (DataError, UsageError) as error:
        return Outcome("refused", reason=str(error))
    if preview.insufficient or not preview.proposals:
        return Outcome("asked" if preview.proposals else "refused", preview.task, reason=preview.insufficient)
    stages = ["task_manager", "data_engineer", EndAfterIndex(), "module_architect", "model_trainer"]
    result = Pipeline("rules", data=[folder], out=scratch / "run", stages=stages).run(request)
    if stopped not in result.reason:
        return Outcome("refused", preview.task, reason=f"run: {result.reason}")
    return _read_index(scratch / "run" / "locked", preview.proposals[0], preview.task)


def decide_folder(folder: Path, request: str, scratch: Path) -> Outcome:
    """Return the decision of `m3b.dataset.proposals` on a folder, and the index of its best manifest."""
    from layouts_index import to_records

    from m3b.dataset.manifest.execute import execute
    from m3b.dataset.manifest.readers import FolderReaders
    from m3b.dataset.proposals.decide import decide
    from m3b.dataset.proposals.request import parse
    from m3b.dataset.survey.facts import SurveyLimits
    from m3b.dataset.survey.survey import survey_inventory
    from m3b.dataset.survey.walk import walk

    inventory = walk(folder)
    survey = survey_inventory(inventory, SurveyLimits())
    readers = FolderReaders(inventory)
    notes = "\n".join(document.text for document in survey.documents)
    outcome = decide(survey, inventory, parse(request, notes), readers=readers)
    if outcome.question is not None:
        return Outcome("asked", outcome.task or "", reason=f"{outcome.question.code}: {outcome.question.text}")
    if outcome.refusal is not None:
        return Outcome("refused", outcome.task or "", reason=f"{outcome.refusal.code}: {outcome.refusal.message}")
    work = scratch / "work"
    (work / "Datapath").mkdir(parents=True)
    manifest = outcome.proposals[0].manifest
    executed = execute(manifest, inventory, name="data", work=work, readers=readers)
    records, order = to_records(executed, work, folder)
    values = manifest.model_dump(mode="json", exclude_defaults=True)
    return Outcome("proposed", outcome.task or "", tuple(records), tuple(order), manifest=values)


READERS = {"run": read_folder, "dataset": decide_folder}
"""Value of `--by` -> what reads a folder."""


def _read_index(root: Path, proposal: Mapping[str, Any], task: str) -> Outcome:
    """Return the accepted index below `root` in the terms of the comparison."""
    from m3b.data.index import read_index

    index = read_index(root, task)
    records = []
    for side, members in (("train", index.train), ("test", index.test)):
        for member in members:
            extra = member.extra
            value = next((extra[key] for key in ("value", "time") if key in extra), None)
            records.append(
                IndexRecord(
                    files=tuple(path.removeprefix("data/data/") for path in member.images),
                    side=side,
                    patient=member.patient if member.patient_known else None,
                    labels=tuple(member.labels),
                    value=None if value is None else float(value),
                    event=bool(extra["event"]) if "event" in extra else None,
                    areas=_measure_areas(member, index.values, root) if index.masked else None,
                    boxes=None if member.boxes is None else tuple((box.label, tuple(box.box)) for box in member.boxes),
                    report=member.report.text if member.report is not None else None,
                )
            )
    ordered = sorted(index.values, key=lambda name: index.values[name])
    return Outcome("proposed", index.task, tuple(records), tuple(ordered), manifest=proposal.get("spec"))


def _measure_areas(member: Any, values: Mapping[str, int], root: Path) -> dict[str, float]:
    """Return the share of the image that each class takes."""
    from m3b.errors import DataError
    from m3b.tasks.aligned_masks import read_true_channels

    try:
        channels = read_true_channels(member, values, root)
    except DataError:
        return {}
    return {name: float(channel.mean()) for name, channel in zip(values, channels, strict=True) if channel.any()}


# --- verdicts ----------------------------------------------------------------------------------------------------------


def judge(outcome: Outcome, truth: Truth) -> tuple[str, list[Difference]]:
    """Return the verdict on an outcome, and how its index differs from the truth."""
    if outcome.kind != "proposed":
        expected = OUTCOME_OF_KIND[outcome.kind] in truth.outcomes
        return (RIGHT if expected else outcome.kind), []
    if "proposed" not in truth.outcomes:
        return WRONG, [Difference("accepted_though_not_solvable", 1, truth.reason)]
    differences = compare(outcome.records, truth, outcome.class_order)
    task = "diagnosis" if truth.task == "multi_label" else truth.task
    if outcome.task != task:
        differences.insert(0, Difference("wrong_task", 1, f"{outcome.task} for {task}"))
    return (WRONG if differences else RIGHT), differences


def measure_seed(
    seed: int, plainness: float = 0.0, fixed: Mapping[str, str] | None = None, by: str = "dataset"
) -> dict[str, Any]:
    """Write the folder of a seed, let m3b read it, and return the outcome as JSON values; see `draw_layout`."""
    layout = draw_layout(seed, plainness=plainness, **(fixed or {}))
    place = Path(tempfile.mkdtemp(prefix=f"layout-{seed}-"))
    line: dict[str, Any] = {"seed": seed, "axes": layout.axes.to_dict(), "request": layout.request}
    try:
        (place / "data").mkdir()
        write_layout(layout, place / "data")
        start = time.monotonic()
        try:
            outcome = READERS[by](place / "data", layout.request, place)
            verdict, differences = judge(outcome, layout.truth)
            line |= {"verdict": verdict, "kind": outcome.kind, "task": outcome.task, "reason": outcome.reason}
            line["differences"] = [
                {"code": item.code, "count": item.count, "example": item.example} for item in differences
            ]
        except Exception as error:  # noqa: BLE001  a crash is a result of its own, which is counted
            line |= {
                "verdict": FAILED,
                "kind": "",
                "task": "",
                "reason": f"{type(error).__name__}: {error}",
                "differences": [],
            }
        line["seconds"] = round(time.monotonic() - start, 2)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return line


# --- tables ------------------------------------------------------------------------------------------------------------


def format_share(count: int, total: int) -> str:
    """Return a share in percent with its 95 % Wilson interval."""
    from scipy.stats import binomtest

    if not total:
        return "-"
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return f"{100 * count / total:.0f} % ({100 * interval.low:.0f} to {100 * interval.high:.0f})"


def format_row(name: str, lines: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(line["verdict"] for line in lines)
    cells = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
    shares = f"{format_share(counts[RIGHT], len(lines))} | {format_share(counts[WRONG], len(lines))}"
    return f"| {name} | {len(lines)} | {cells} | {shares} |"


def format_tables(lines: Sequence[Mapping[str, Any]], *, by_axis: bool = True) -> Iterator[str]:
    """Return Markdown: all folders, by solvability, then the solvable ones by the values of each axis."""
    header = f"| folders | n | {' | '.join(VERDICTS)} | share right | share wrong and accepted |"
    rule = "|" + "---|" * (len(VERDICTS) + 4)
    solvable = [line for line in lines if line["axes"]["solvability"] == "solvable"]
    unsolvable = [line for line in lines if line["axes"]["solvability"] != "solvable"]
    yield from (
        header,
        rule,
        format_row("all", lines),
        format_row("solvable", solvable),
        format_row("not solvable", unsolvable),
    )
    for value in AXES["solvability"][1:]:
        if members := [line for line in unsolvable if line["axes"]["solvability"] == value]:
            yield format_row(value, members)
    if by_axis:
        for axis, values in AXES.items():
            if axis != "solvability":
                yield from ("", f"{axis}, solvable folders:", "", header, rule)
                for value in values:
                    if members := [line for line in solvable if line["axes"][axis] == value]:
                        yield format_row(value, members)


def describe_failure(line: Mapping[str, Any]) -> str:
    """Return the kind of a failure, without names and numbers."""
    if line["differences"]:
        return f"{line['verdict']}: {line['differences'][0]['code']}"
    reason = re.sub(r"The folder holds .*?\. (?=[A-Z])", "", str(line["reason"]), count=1)
    text = re.sub(r"\(?[^ ]*[/{][^ ,)]*\)?|'[^']*'|[0-9][0-9.,]*", "*", reason)
    return f"{line['verdict']}: {text[:110]}"


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `1-199:2` (first-last:step), `7` or several of these with commas between them."""
    seeds = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of seeds such as 1-199:2")
        first, last, step = (int(number) if number else None for number in match.groups())
        seeds += range(first or 0, (last if last is not None else first or 0) + 1, step or 1)
    return seeds


def parse_choice(text: str) -> tuple[str, str]:
    """Return axis and value of `habit=none`."""
    axis, _, value = text.partition("=")
    if value not in AXES.get(axis, ()):
        raise argparse.ArgumentTypeError(f"{text!r} is no value of an axis such as habit=none")
    return axis, value


def list_single_values(tasks: Sequence[str]) -> list[tuple[int, float, dict[str, str]]]:
    """Return the arguments of `measure_seed` for usual folders of these tasks that differ in one value of one axis."""
    import numpy as np

    jobs = []
    for task in tasks:
        for axis, values in AXES.items():
            for value in values if axis not in ("task", "domain", "carrier_family") else ():
                fixed = {"task": task, axis: value}
                for plainness in PLAINNESS:
                    with contextlib.suppress(ValueError):
                        draw_axes(np.random.default_rng(VALUE_SEED), fixed, plainness)
                        jobs.append((VALUE_SEED, plainness, fixed))
                        break
    return jobs


def measure_single_value(job: tuple[int, float, dict[str, str]]) -> str:
    """Return a row: task, axis, value, verdict, and what is wrong."""
    line = measure_seed(*job)
    task, (axis, value) = job[2]["task"], list(job[2].items())[-1]
    why = "" if line["verdict"] == RIGHT else describe_failure(line)
    return f"{task:16} {axis:20} {value:28} {line['verdict']:8} {why}"


def load_results(file: Path | None) -> dict[int, dict[str, Any]]:
    if file is None or not file.is_file():
        return {}
    return {line["seed"]: line for line in map(json.loads, file.read_text("utf-8").splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("1-199:2"))
    parser.add_argument("--fixed", nargs="+", type=parse_choice, default=(), metavar="AXIS=VALUE", help="see above")
    parser.add_argument("--each-value", nargs="+", choices=AXES["task"], default=(), metavar="TASK", help="see above")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--results", type=Path, help="file of JSON lines with every seed; what it holds is not measured again"
    )
    parser.add_argument("--by", choices=sorted(READERS), default="dataset", help="what reads the folders")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    results = load_results(options.results)
    remaining = [seed for seed in options.seeds if seed not in results]
    with tempfile.TemporaryDirectory(prefix="layouts-state-") as state:
        os.environ["XDG_STATE_HOME"] = state  # the user's list of runs stays as it is
        with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=25) as pool:
            if options.each_value:
                for row in pool.imap(measure_single_value, list_single_values(options.each_value)):
                    print(row, flush=True)
                return
            for line in pool.imap_unordered(partial(measure_seed, fixed=dict(options.fixed), by=options.by), remaining):
                results[line["seed"]] = line
                code = describe_failure(line) if line["verdict"] != RIGHT else line["kind"]
                print(f"{line['seed']:>6} {line['verdict']:8} {line['seconds']:5.1f} s  {code}", flush=True)
                if options.results:
                    with options.results.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(line, ensure_ascii=False) + "\n")
    lines = [results[seed] for seed in options.seeds]
    print("\n".join(["", *format_tables(lines)]))
    failures = Counter(describe_failure(line) for line in lines if line["verdict"] != RIGHT)
    print("\nCommonest failures:")
    print("\n".join(f"{count:>5}  {text}" for text, count in failures.most_common(LISTED_FAILURES)))
    seconds = sorted(line["seconds"] for line in lines)
    print(
        f"\n{len(lines)} folders, median {seconds[len(seconds) // 2]:.1f} s, mean {sum(seconds) / len(seconds):.1f} s a folder"
    )


if __name__ == "__main__":
    main()
