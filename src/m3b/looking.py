"""A look at a data folder before a run: the readings that are proposed for a request, and what the best one gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.cards import own_notes
from m3b.errors import DataError, WrongUse
from m3b.run.readings import SURVEY_S, WALL_S, account
from m3b.run.sandbox_runner import start_reading
from m3b.sandbox import choose
from m3b.untrusted import Unsafe, read_json


@dataclass(frozen=True)
class Seen:
    """What was found.

    Args:
        readings: best first: `spec`, `title`, `score`, `evidence`, `doubts`, `unclear`.
        insufficient: why the best may not be taken without asking; empty where it may.
        counted: of the best reading, executed: cases a part, the accounting, whether patients are known.
    """

    task: str
    readings: tuple[dict[str, Any], ...]
    insufficient: str
    counted: Mapping[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people, some ten lines."""
        if not self.readings:
            return [self.insufficient]
        best, *others = self.readings
        told = [
            f"{self.task}: {best['title']} (score {best['score']:.2f})",
            *(f"  + {one}" for one in best["evidence"]),
        ]
        told += [f"  ? {one}" for one in best["doubts"]]
        if self.counted:
            patients = "patients known" if self.counted["patients"] == "known" else "patients unknown"
            told.append(
                f"  = {self.counted['train']:,} cases for training, {self.counted['test']:,} for testing; {patients}"
            )
            told += [f"    {line}" for line in account(self.counted)]
        told += [f"not taken: {one['title']} (score {one['score']:.2f})" for one in others]
        return [*told, *([self.insufficient] if self.insufficient else [])]

    def spec_text(self) -> str:
        """The best reading as JSON to edit."""
        return json.dumps(self.readings[0]["spec"], indent=1, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "readings": list(self.readings), "insufficient": self.insufficient,
                "counted": dict(self.counted)}  # fmt: skip


def look(folder: Path, request: str, place: Path, *, task: str = "") -> Seen:
    """Survey a folder in the sandbox, and execute the best reading for a request.

    Args:
        place: an empty folder for the job; nothing else is written.

    Raises:
        DataError: the folder cannot be surveyed.
        WrongUse: no task is named, and the request's words leave it open.
    """
    asked = task or guessed(request)
    job: dict[str, Any] = {"do": "propose", "task": asked, "request": request, "classes": [], "notes": own_notes(folder),
           "boxes": "box" in request.casefold() or None, "seconds": SURVEY_S}  # fmt: skip
    answer = _done(job, folder, place)
    readings = tuple(answer["readings"])
    if not readings:
        return Seen(asked, (), answer["insufficient"])
    work = place / "work"
    (work / "Datapath").mkdir(parents=True)
    job = {"do": "execute", "task": asked, "name": "data", "work": str(work), "spec": readings[0]["spec"]}
    try:
        counted = _done(job, folder, place, work)
    except DataError as error:
        return Seen(asked, readings, answer["insufficient"] or f"The best reading cannot be executed: {error}")
    return Seen(asked, readings, answer["insufficient"], counted)


def guessed(request: str) -> str:
    """The task that a request's words name; diagnosis where they leave it open.

    Raises:
        WrongUse: the request is empty.
    """
    from m3b.llm.rules.asked import asked_task

    if not request.strip():
        raise WrongUse("The request is empty. Say in a sentence what the model shall tell from which images.")
    return asked_task(request) or "diagnosis"


def _done(job: Mapping[str, Any], folder: Path, place: Path, work: Path | None = None) -> dict[str, Any]:
    from m3b.data.spec.inside import ANSWER, JOB

    exchange = place / "exchange"
    exchange.mkdir(exist_ok=True)
    (exchange / JOB).write_text(json.dumps({**job, "root": str(folder)}, ensure_ascii=False), encoding="utf-8")
    process = start_reading(choose(), sys.executable, exchange, folder, work, place / "output", WALL_S)
    ended = process.wait(WALL_S + 60) or process.stop()
    try:
        answer = read_json(exchange, ANSWER)
    except (OSError, Unsafe, ValueError) as error:
        said = (place / "output").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise DataError(
            f"Reading the folder failed ({ended.reason}, exit code {ended.code}): {(said or [''])[-1]}"
        ) from error
    (exchange / ANSWER).unlink()
    if "error" in answer:
        raise DataError(str(answer["error"]))
    found: dict[str, Any] = answer
    return found
