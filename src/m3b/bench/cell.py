"""One cell of a sweep: one system, one model, one task, one run, in a separate process and folder.

`python -m m3b.bench.cell FOLDER` runs the cell of `FOLDER/cell.json` and writes `outcome.json`, `score.json` and
`result.json`. If the outcome exists already, the cell is only scored. A crashed cell has a result too.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.bench.benchmark_data import BenchmarkData
from m3b.bench.cell_verdict import find_suspicions, judge_cell
from m3b.bench.field_sets import ReadingJudgement, judge_reading
from m3b.bench.resource_use import describe_machine, read_cpu_seconds
from m3b.bench.scoring import HiddenExam, Score, score_hidden_cases
from m3b.bench.systems import CellJob, CellOutcome, System, get_system
from m3b.bench.tasks import BenchmarkTask, parse_task
from m3b.data.cards import slug
from m3b.errors import M3bError
from m3b.writing import write_text_atomically


def read_finished_row(cell_folder: Path) -> dict[str, Any] | None:
    """Return the result that the process of a cell wrote, or None if there is none."""
    try:
        raw = json.loads((cell_folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) and "key" in raw else None


def make_broken_row(cell: Cell, reason: str, kind: str = "crashed") -> dict[str, Any]:
    """Return the row of a cell whose process wrote no result."""
    return {
        "key": cell.key, "system": cell.system, "model": cell.model, "task": cell.task.id, "family": cell.task.family,
        "variant": cell.task.variant, "dataset": cell.task.data_name, "run": cell.run, "ok": False, "kind": kind,
        "reason": reason, "labels": [], "status": "failed", "score": None, "claimed": None, "usage": {}, "roles": {},
        "at": round(time.time(), 1),
    }  # fmt: skip


FORMAT_VERSION = 1
CELL_FILE, OUTCOME_FILE, SCORE_FILE, RESULT_FILE = "cell.json", "outcome.json", "score.json", "result.json"


@dataclass(frozen=True)
class Cell:
    """The settings of a cell.

    Args:
        run: number of the repetition, from 0.
        options: keyword options of m3b.Options.
        data: folder of the benchmark data.
        real, patients, share: see `BenchmarkData`.
        simulate: seconds to sleep instead of any work, to measure the overhead of a sweep.
    """

    system: str
    model: str
    task: BenchmarkTask
    run: int
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    real: Mapping[str, str] = field(default_factory=dict)
    patients: int | None = None
    share: float = 0.2
    simulate: float | None = None

    @property
    def key(self) -> str:
        """A name that is the same in every process and valid as folder name."""
        return f"{slug(self.system)}--{slug(self.model)}--{slug(self.task.id)}--{self.run}"

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Cell:
        field_values = {key: value for key, value in raw.items() if key in cls.__dataclass_fields__}
        return cls(**{**field_values, "task": parse_task(dict(raw["task"]))})

    @property
    def benchmark_data(self) -> BenchmarkData:
        """The benchmark data of the sweep that the cell belongs to."""
        real = {name: Path(path) for name, path in self.real.items()}
        return BenchmarkData(Path(self.data), real=real, patients=self.patients, share=self.share)


def run_system(cell: Cell, folder: Path, system_override: System | None = None) -> CellOutcome:
    """Run the system and write its outcome to disk.

    The folder of an interrupted attempt is deleted: an incomplete run is not continued, so that cells stay comparable.
    """
    outcome_file = folder / OUTCOME_FILE
    if outcome_file.is_file():
        return CellOutcome.from_json(json.loads(outcome_file.read_text(encoding="utf-8")))
    shutil.rmtree(folder / "run", ignore_errors=True)
    started, cpu_s = time.monotonic(), read_cpu_seconds()
    try:
        job = CellJob(
            folder,
            cell.task.request,
            cell.benchmark_data.load_cards(cell.task),
            cell.model,
            cell.options,
            seed=cell.run,
        )
        outcome = (system_override or get_system(cell.system)).run(job)
    except KeyboardInterrupt:
        outcome = CellOutcome("cancelled", "Stopped on request.")
    except M3bError as error:
        outcome = CellOutcome("failed", str(error), kind="crashed")
    except Exception as error:  # noqa: BLE001 - any error of a system is the result of this cell
        traceback.print_exc()
        outcome = CellOutcome("failed", f"{type(error).__name__}: {error}", kind="crashed")
    outcome.usage.setdefault("wall_s", round(time.monotonic() - started, 1))
    outcome.usage["cpu_s"] = round(read_cpu_seconds() - cpu_s, 1)
    if outcome.status != "cancelled":
        write_text_atomically(outcome_file, json.dumps(outcome.to_json(), ensure_ascii=False, indent=1, default=str))
    return outcome


def score_cell(cell: Cell, folder: Path, outcome: CellOutcome, *, rescore: bool = False) -> Score | None:
    """Score the delivered model, if there is one. The score is kept in `score.json` and reused without `rescore`."""
    score_file = folder / SCORE_FILE
    if score_file.is_file() and not rescore:
        return Score.from_json(json.loads(score_file.read_text(encoding="utf-8")))
    if not outcome.model or not Path(outcome.model).is_dir():
        return None
    hidden_exam = make_hidden_exam(cell, outcome)
    if hidden_exam is None:
        return None
    from m3b.isolation.sandbox import choose_sandbox

    sandbox = choose_sandbox(str(cell.options.get("sandbox", "auto")))
    score_result = score_hidden_cases(hidden_exam, Path(outcome.model), sandbox=sandbox)
    write_text_atomically(score_file, json.dumps(score_result.to_json(), ensure_ascii=False, indent=1))
    return score_result


def make_hidden_exam(cell: Cell, outcome: CellOutcome) -> HiddenExam | None:
    """Return the exam for the model of a cell; None if no case of its task is hidden."""
    index_folder = get_index_folder(outcome)
    if cell.task.field_set is not None:
        carve_out = cell.benchmark_data.prepare_field_set(cell.task.field_set)
        return None if carve_out.no_exam else HiddenExam.from_field_carve_out(carve_out, index_folder)
    if not cell.task.dataset:
        return None
    return HiddenExam.from_carve_out(cell.benchmark_data.get_carve_out(cell.task), cell.task.spec, index_folder)


def get_index_folder(outcome: CellOutcome) -> Path | None:
    """Return the folder below which the index of a run lies; None if there is none."""
    folder = Path(outcome.run) / "locked" if outcome.run else Path(outcome.work)
    return folder if folder.is_dir() else None


def judge_field_reading(cell: Cell, outcome: CellOutcome) -> ReadingJudgement | None:
    """Return the judgement of how a field set was read; None for other tasks and a cancelled run."""
    if cell.task.field_set is None or outcome.status == "cancelled":
        return None
    carve_out = cell.benchmark_data.prepare_field_set(cell.task.field_set)
    work = get_index_folder(outcome) or Path(outcome.work)
    judgement = judge_reading(cell.task.field_set, outcome.status, work, carve_out.hidden)
    return replace(judgement, no_exam=carve_out.no_exam)


def make_row(cell: Cell, folder: Path, outcome: CellOutcome, score_result: Score | None) -> dict[str, Any]:
    """Judge the cell and return its row of `results.jsonl`; write it to the folder of the cell too."""
    labels = find_suspicions(outcome, score_result)
    reading = judge_field_reading(cell, outcome) if cell.simulate is None else None
    judgement = judge_cell(cell.task, outcome, score_result, labels, _read_chosen_card(outcome), reading)
    score_json = (
        None
        if score_result is None
        else {k: v for k, v in score_result.to_json().items() if k not in ("metrics", "names")}
    )
    row = {
        "key": cell.key, "system": cell.system, "model": cell.model, "task": cell.task.id, "family": cell.task.family,
        "variant": cell.task.variant, "dataset": cell.task.data_name, "run": cell.run, "ok": judgement.ok, "kind": judgement.kind,
        "reason": judgement.reason, "labels": labels, "status": outcome.status, "score": score_json, "claimed": outcome.claimed,
        "usage": outcome.usage, "roles": outcome.roles, "at": round(time.time(), 1),
        "machine": describe_machine(),
    }  # fmt: skip
    if reading is not None:
        row["reading"] = reading.to_json()
    if judgement.kind != "cancelled":  # a cancelled cell has no result yet
        write_text_atomically(folder / RESULT_FILE, json.dumps(row, ensure_ascii=False, indent=1, default=str))
    return row


def _read_chosen_card(outcome: CellOutcome) -> str:
    """Return the data set that a run of m3b chose; empty if unknown."""
    file = Path(outcome.run) / "run.json" if outcome.run else None
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["result"]["data_card"]) if file else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def run_cell(cell: Cell, folder: Path, system_override: System | None = None) -> dict[str, Any]:
    """Run and score a cell in this process; return its row."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / CELL_FILE, json.dumps(cell.to_json(), ensure_ascii=False, indent=1))
    if cell.simulate is not None:
        time.sleep(cell.simulate)
        outcome = CellOutcome("failed", "simulated", usage={"wall_s": cell.simulate})
        return make_row(cell, folder, outcome, None)
    outcome = run_system(cell, folder, system_override)
    return make_row(cell, folder, outcome, score_cell(cell, folder, outcome))


def rescore_cell(folder: Path) -> dict[str, Any] | None:
    """Score a finished cell again without a new run; return its row, or None if there is no outcome yet.

    Raises:
        OSError, ValueError: the files of the folder cannot be read.
    """
    if not (folder / OUTCOME_FILE).is_file():
        return None
    cell = Cell.from_json(json.loads((folder / CELL_FILE).read_text(encoding="utf-8")))
    outcome = run_system(cell, folder)
    return make_row(cell, folder, outcome, score_cell(cell, folder, outcome, rescore=True))


def interrupt(number: int, frame: object) -> None:
    """Stop the cell as Ctrl-C does, once; this is the handler of SIGTERM, by which engines cancel jobs."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Run the cell in this folder and return 0. Raises OSError or ValueError if the folder contains no cell."""
    signal.signal(signal.SIGTERM, interrupt)
    folder = Path(arguments[0])
    cell = Cell.from_json(json.loads((folder / CELL_FILE).read_text(encoding="utf-8")))
    row = run_cell(cell, folder)
    print(f"{row['key']}: {row['kind']}: {row['reason']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
