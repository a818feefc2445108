"""Run folders: their names, their lock, their record."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b import locking, untrusted
from m3b.errors import WrongUse
from m3b.writing import replace_text

if TYPE_CHECKING:
    from m3b.events import Event

LAST = "last"
"""Names the run that began last."""

LOCK, MODEL = ".lock", "predict.py"
SKELETON = ("work", "locked")
"""The folders of a run that are there before run.json is."""


class Run:
    """One run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.work = self.folder / "work"
        self.locked = self.folder / "locked"
        self.measured = self.locked / "model"
        self.model = self.folder / "model"
        self.resources = self.folder / "resources"
        self.journal_file = self.folder / "journal.jsonl"
        self._lock: int | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    @classmethod
    def create(cls, out: Path | None = None) -> Run:
        """A new folder: `out` itself, or a dated one below `runs/`.

        Raises:
            WrongUse: `out` exists and is not empty, or cannot be made.
        """
        if out is None:
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            out = runs_root() / name
        try:
            if out.exists() and not (out.is_dir() and _nothing_in(out)):
                raise WrongUse(f"{out} exists and is not an empty folder. Choose another --out, or resume that run.")
            run = cls(out)
            for folder in (run.work, run.locked):
                folder.mkdir(parents=True, exist_ok=True)
            os.chmod(run.folder, 0o700)
        except OSError as error:
            raise WrongUse(f"The run folder {out} cannot be made: {error}.") from error
        return run

    @classmethod
    def open(cls, name: str | Path) -> Run:
        """An existing run, by its folder or by its id below `runs/`; `last` is the one that began last.

        Raises:
            WrongUse: there is no such run.
        """
        if str(name) == LAST:
            runs = list_runs()
            if not runs:
                raise WrongUse(f"There are no runs in {runs_root()}, and none in this folder. Name a run's folder.")
            return runs[-1]
        place = Path(name).expanduser()
        around = [place.absolute().parent] if (place / MODEL).is_file() else []  # the folder of a run's model
        for folder in (place, runs_root() / str(name), *around):
            if (folder / "run.json").is_file():
                return cls(folder)
        raise WrongUse(f"There is no run {name}. `m3b runs` lists those in {runs_root()}; a path works too.")

    def lock(self) -> None:
        """Make sure that no other process is at work on this run.

        Raises:
            WrongUse: another process is, or the run folder cannot be written.
        """
        file = self.folder / LOCK
        try:
            self._lock = locking.take(file)
        except OSError as error:
            raise WrongUse(f"The run folder {self.folder} cannot be locked or written: {error.strerror}.") from error
        if self._lock is None:
            who = f" ({owner})" if (owner := locking.owner(file)) else ""
            raise WrongUse(f"The run {self.id} is at work in another process{who}; wait for it, or stop that one.")

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def busy(self) -> bool:
        """Whether a process is at work on this run now. Looking never locks."""
        return locking.held(self.folder / LOCK)

    @property
    def handle(self) -> str:
        """What names this run on the command line: its id where it lies below `runs/`, else its folder."""
        return self.id if self.folder.parent == runs_root().absolute() else str(self.folder)

    def command(self, name: str) -> str:
        """The line that does something with this run, e.g. `m3b resume 20260102-101500-ab12`."""
        return f"m3b {name} {shlex.quote(self.handle)}"

    def save(self, record: dict[str, Any]) -> None:
        """Replace run.json as a whole, so that no reader ever sees half of it."""
        replace_text(self.folder / "run.json", json.dumps(record, indent=1, ensure_ascii=False, default=str))

    def load(self) -> dict[str, Any]:
        """What run.json holds; paths are those of where the run lies now.

        Raises:
            WrongUse: it cannot be read.
        """
        try:
            record = untrusted.read_json(self.folder, "run.json")
        except (OSError, ValueError) as error:
            raise WrongUse(f"{self.folder / 'run.json'} cannot be read: {error}.") from error
        if not isinstance(record, dict):
            raise WrongUse(f"{self.folder / 'run.json'} is no JSON object.")
        from m3b.journal import FORMAT  # brings the events along, which an import does without

        written = record.get("format", FORMAT)
        if not isinstance(written, int) or written > FORMAT:
            raise WrongUse(
                f"The run {self.id} was written by a newer m3b (format {written}; this one reads {FORMAT}). "
                "Update m3b (pip install -U m3b), or use the version that made it."
            )
        return _as_it_lies(record, self.folder)

    @property
    def began(self) -> float:
        """When the run was started, in seconds since 1970; of one that cannot be read, when run.json was last written."""
        file = self.folder / "run.json"
        try:
            return float(untrusted.read_json(self.folder, "run.json")["started"])
        except (OSError, ValueError, KeyError, TypeError):
            try:
                return file.stat().st_mtime
            except OSError:
                return 0.0

    def events(self) -> Iterator[Event]:
        from m3b.journal import read_journal

        return read_journal(self.journal_file)


def _nothing_in(folder: Path) -> bool:
    """Whether it is empty, or what a process left that was killed before it wrote run.json: empty folders and a free lock."""
    left = {place.name: place for place in folder.iterdir()}
    lock = left.pop(LOCK, None)
    empty = all(place.name in SKELETON and place.is_dir() and not any(place.iterdir()) for place in left.values())
    return empty and (lock is None or not locking.held(lock))


def runs_root() -> Path:
    """Where runs go that were given no folder: `$M3B_RUNS`, or `runs` in the current folder."""
    return Path(os.environ.get("M3B_RUNS") or "runs")


def list_runs(root: Path | None = None) -> list[Run]:
    """Every run below a folder, the one that began first first.

    Without a folder: those below `runs/`, and those that lie in the current folder itself because `--out` said so.
    """
    if root is not None:
        files = [root / "run.json"] if (root / "run.json").is_file() else list(root.glob("*/run.json"))
    else:
        files = [*runs_root().glob("*/run.json"), *Path().glob("*/run.json"), *Path().glob("demo*/run/run.json")]
    found = {file.parent.absolute(): Run(file.parent) for file in files}
    return sorted(found.values(), key=lambda run: (run.began, run.id))


def find_model(name: str | Path) -> Path:
    """The folder of a delivered model, named by itself, or by the folder or id of its run, or `last`.

    Raises:
        WrongUse: there is neither, or the run has delivered no model.
    """
    place = Path(name).expanduser()
    if str(name) != LAST and (place / MODEL).is_file():
        return place
    if place.is_dir() and str(name) != LAST and not (place / "run.json").is_file():
        raise WrongUse(f"{place} holds neither a model ({MODEL}) nor a run (run.json).")
    if str(name) != LAST and not place.exists() and not (runs_root() / str(name)).exists():
        raise WrongUse(f"There is no model and no run {name}. `m3b runs` lists the runs in {runs_root()}.")
    run = Run.open(name)
    if not (run.model / MODEL).is_file():
        record = run.load()
        raise WrongUse(
            f"The run {run.handle} has no model: {record.get('status', 'unknown')}. {record.get('reason') or ''}".rstrip()
        )
    return run.model


def _as_it_lies(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The record with the paths of a run that was moved or copied since it was written."""
    old, new = str(record.get("run_dir") or ""), str(folder)
    if not old or old == new:
        return record
    result = record.get("result")
    for place in (record, result if isinstance(result, dict) else {}):
        for key in ("run_dir", "model_dir", "report"):
            value = place.get(key)
            if isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
                place[key] = new + value[len(old) :]
    return record
