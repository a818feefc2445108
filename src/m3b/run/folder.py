"""Run folders: names, lock, run.json, and how a run or model is found by name."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError
from m3b.isolation import untrusted
from m3b.locking import acquire_lock, is_locked, read_lock_owner
from m3b.run.registry import TOKEN_NAME, enclosing, is_registered, read_registry, state_file
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from m3b.events import Event

LAST_RUN = "last"
"""Name of the run that this user started last, by the user's list of runs (`m3b.run.registry`)."""

LOCK_FILE, MODEL_SCRIPT = ".lock", "predict.py"
SKELETON_FOLDERS = ("work", "locked")
"""Folders of a run that are created before run.json is written."""
EARLIER_NAMES = {"manifest.json": "reading.json", "manifest-proposed.json": "reading-proposed.json",
                 "manifest.html": "reading.html", "survey": "readings"}  # fmt: skip
"""Files and folders of a run, and their names in runs of an earlier version of m3b."""
DATED_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}", re.ASCII)
"""Pattern of a run id that m3b made."""


MODEL_FOLDER_PATTERN = re.compile(r"model(-\d+)?", re.ASCII)
"""Name of the folder of a delivered model in a run."""


class RunFolder:
    """One run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.work = self.path / "work"
        self.locked = self.path / "locked"
        self.measured_model = self.locked / "model"
        self.model = self.path / "model"
        self.resources = self.path / "resources"
        self.journal_file = self.path / "journal.jsonl"
        self._lock: int | None = None

    @property
    def id(self) -> str:
        return self.path.name

    def get_earlier_model(self, number: int) -> Path:
        """Return the folder of an earlier delivered model, counted from 1; the last one is in `model`."""
        return self.path / f"model-{number}"

    def get_path(self, name: str) -> Path:
        """Return the path of a file or folder of the run; of its earlier name if only that one exists."""
        path = self.path / name
        if name in EARLIER_NAMES and not path.exists() and (earlier_path := self.path / EARLIER_NAMES[name]).exists():
            return earlier_path
        return path

    @classmethod
    def create(cls, out: Path | None = None) -> RunFolder:
        """Create a new run folder: `out` itself, or a dated one below `runs/`.

        Raises:
            UsageError: `out` exists and is not empty, or cannot be created.
        """
        if out is None:
            out = get_runs_root() / name_new_run()
        try:
            if out.exists() and not (out.is_dir() and _is_unused(out)):
                raise UsageError(f"{out} exists and is not an empty folder. Choose another --out, or resume that run.")
            run = cls(out)
            for folder in (run.work, run.locked):
                folder.mkdir(parents=True, exist_ok=True)
            os.chmod(run.path, 0o700)
        except OSError as error:
            raise UsageError(f"The run folder {out} cannot be made: {error}.") from error
        return run

    @classmethod
    def open(cls, name: str | Path) -> RunFolder:
        """Return an existing run, by its folder, by the id of one of this user's runs, or as `last`.

        Raises:
            UsageError: there is no such run, several have this id, or it lies inside a data folder.
        """
        if str(name) == LAST_RUN:
            runs = list_runs()
            if not runs:
                raise UsageError(
                    f"You have no runs yet: {_describe_registry()} lists none. Start one, or name a run's folder."
                )
            return runs[-1]
        path = Path(name).expanduser()
        model_parents = (
            [path.absolute().parent] if (path / MODEL_SCRIPT).is_file() else []
        )  # the folder of a run's model
        for folder in (path, *model_parents):
            if (folder / "run.json").is_file():
                refuse_inside_data(folder)
                return cls(folder)
        return cls(_find_by_id(str(name)))

    def lock(self) -> None:
        """Lock the run, so that no other process works on it.

        Raises:
            UsageError: another process works on it, or the run folder cannot be written.
        """
        file = self.path / LOCK_FILE
        try:
            self._lock = acquire_lock(file)
        except OSError as error:
            raise UsageError(f"The run folder {self.path} cannot be locked or written: {error.strerror}.") from error
        if self._lock is None:
            owner_note = f" ({owner})" if (owner := read_lock_owner(file)) else ""
            raise UsageError(
                f"The run {self.id} is at work in another process{owner_note}; wait for it, or stop that one."
            )

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def is_busy(self) -> bool:
        """Whether a process is working on this run now. This never takes the lock."""
        return is_locked(self.path / LOCK_FILE)

    @property
    def display_name(self) -> str:
        """The name of this run for the command line: its id if that finds it, else its folder.

        Only ids made by m3b and names of folders below `runs/` are used; a name such as `run` could be any folder.
        """
        if DATED_ID.fullmatch(self.id) or self.path.parent == get_runs_root().absolute():
            try:
                run_path = _find_by_id(self.id)
            except UsageError:
                return str(self.path)
            if os.path.realpath(run_path) == os.path.realpath(self.path):
                return self.id
        return str(self.path)

    def format_command(self, name: str) -> str:
        """Return the command line for this run, e.g. `m3b resume 20260102-101500-ab12`."""
        return f"m3b {name} {shlex.quote(self.display_name)}"

    def save_record(self, record: dict[str, Any]) -> None:
        """Replace run.json atomically, so that no reader ever sees an incomplete file."""
        write_text_atomically(self.path / "run.json", json.dumps(record, indent=1, ensure_ascii=False, default=str))

    def load_record(self) -> dict[str, Any]:
        """Return the content of run.json, with paths adapted to where the run folder is now.

        Raises:
            UsageError: it cannot be read, or a newer m3b wrote it.
        """
        try:
            record = untrusted.read_json(self.path, "run.json")
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.path / 'run.json'} cannot be read: {error}.") from error
        if not isinstance(record, dict):
            raise UsageError(f"{self.path / 'run.json'} is no JSON object.")
        from m3b.journal import JOURNAL_FORMAT  # imports the events, which `import m3b` does not need

        format_version = record.get("format", JOURNAL_FORMAT)
        if not isinstance(format_version, int) or format_version > JOURNAL_FORMAT:
            raise UsageError(
                f"The run {self.id} was written by a newer m3b (format {format_version}; this one reads {JOURNAL_FORMAT}). "
                "Update m3b (pip install -U m3b), or use the version that made it."
            )
        return _relocate_paths(record, self.path)

    @property
    def started_at(self) -> float:
        """Start of the run in seconds since 1970; if run.json cannot be read, when it was last written."""
        file = self.path / "run.json"
        try:
            return float(untrusted.read_json(self.path, "run.json")["started"])
        except (OSError, ValueError, KeyError, TypeError):
            try:
                return file.stat().st_mtime
            except OSError:
                return 0.0

    def read_events(self) -> Iterator[Event]:
        from m3b.journal import read_journal

        return read_journal(self.journal_file)


def _is_unused(folder: Path) -> bool:
    """Return whether a folder is empty, or holds only what a process left that was killed before it wrote run.json.

    Such leftovers are empty folders, a token, and a free lock.
    """
    entries = {entry.name: entry for entry in folder.iterdir()}
    lock = entries.pop(LOCK_FILE, None)
    entries.pop(TOKEN_NAME, None)
    is_empty = all(
        entry.name in SKELETON_FOLDERS and entry.is_dir() and not any(entry.iterdir()) for entry in entries.values()
    )
    return is_empty and (lock is None or not is_locked(lock))


def name_new_run() -> str:
    """Return a name with date and time for a new run folder."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def get_runs_root() -> Path:
    """Return the parent folder of runs without an explicit folder: `$M3B_RUNS`, or `runs` in the current folder."""
    return Path(os.environ.get("M3B_RUNS") or "runs")


def list_runs(root: Path | None = None) -> list[RunFolder]:
    """Return the user's registered runs, or those of a folder, the earliest first.

    Args:
        root: a run folder, or a folder that holds some; runs inside data folders are excluded.
    """
    if root is None:
        runs = [RunFolder(entry.folder) for entry in read_registry().existing()]
        return [run for run in runs if (run.path / "run.json").is_file()]
    files = [root / "run.json"] if (root / "run.json").is_file() else list(root.glob("*/run.json"))
    run_folders = [RunFolder(file.parent) for file in files if data_folder_above(file.parent) is None]
    return sorted(run_folders, key=lambda run: (run.started_at, run.id))


def data_folders(record: Mapping[str, Any]) -> list[Path]:
    """Return the data folders of a run, external sets included, as run.json names them."""
    cards, sets = record.get("data"), record.get("external")
    paths = [card.get("path") for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    values = list(sets.values()) if isinstance(sets, dict) else []
    paths += [value[0] for value in values if isinstance(value, list) and value]
    return [Path(path) for path in paths if isinstance(path, str) and os.path.isabs(path) and "\0" not in path]


def data_folder_above(folder: Path) -> Path | None:
    """Return the data folder that contains a run folder or a model folder; None if there is none.

    Known data folders are those that the run itself names and, unless it is one of the user's registered runs, those of
    all
    registered runs: a run or model that came with a data set is data, and must not be executed.
    """
    registry = read_registry()
    candidates = (folder, Path(os.path.abspath(folder)).parent)
    for run in [candidate for candidate in candidates if (candidate / "run.json").is_file()]:
        try:
            data_folder = enclosing(run, data_folders(RunFolder(run).load_record()))
        except UsageError:  # reported by the code that needs the record
            data_folder = None
        if data_folder is not None or registry.at(run) is not None:
            return data_folder
    return registry.data_above(folder)


def refuse_inside_data(folder: Path) -> None:
    """Refuse a run or model that lies inside a data folder.

    Raises:
        UsageError: the folder lies inside a data folder.
    """
    if (data := data_folder_above(folder)) is not None:
        raise UsageError(
            f"{folder} lies inside the data folder {data}, and code that comes with a data set is not run. If it is yours, "
            "move it out of there, then name it by its path."
        )


def _find_by_id(run_id: str) -> Path:
    """Return the folder of the registered run with an id; if there are several, the one below `runs/`.

    Raises:
        UsageError: there is none, or there are several elsewhere.
    """
    default_path = get_runs_root().absolute() / run_id
    folders = [entry.folder for entry in read_registry().find_by_id(run_id) if (entry.folder / "run.json").is_file()]
    if len(folders) == 1:
        return folders[0]
    if default_path in folders:
        return default_path
    if folders:
        raise UsageError(
            f"{len(folders)} runs are called {run_id}; name one by its path: {', '.join(map(str, folders[:5]))}."
        )
    if run_id not in ("", ".", "..") and "/" not in run_id and (default_path / "run.json").is_file():
        raise UsageError(
            f"{default_path} is not in the list of your runs ({_describe_registry()}), so its id does not name it. "
            f"Name it by its path: {get_runs_root() / run_id}."
        )
    raise UsageError(f"There is no run {run_id}. `m3b runs` lists your runs; a run's path works too.")


def _describe_registry() -> str:
    """Return the path of the user's list of runs, and why it is not used if that is so."""
    try:
        location = str(state_file())
    except OSError as error:
        location = str(error.strerror)
    return " ".join([location, *(f"({warning})" for warning in read_registry().warnings)])


def find_model_folder(name: str | Path) -> Path:
    """Return the folder of a delivered model, given as that folder, as the folder or id of its run, or as `last`.

    Raises:
        UsageError: there is no such model or run, or the run has delivered no model.
    """
    path = Path(name).expanduser()
    if str(name) != LAST_RUN:
        if (path / MODEL_SCRIPT).is_file():
            refuse_inside_data(path)
            return path
        if path.is_dir() and not (path / "run.json").is_file():
            raise UsageError(f"{path} holds neither a model ({MODEL_SCRIPT}) nor a run (run.json).")
        if not (path.exists() or (get_runs_root() / str(name)).exists() or read_registry().find_by_id(str(name))):
            raise UsageError(f"There is no model and no run {name}. `m3b runs` lists your runs; a path works too.")
    run = RunFolder.open(name)
    if not (run.model / MODEL_SCRIPT).is_file():
        record = run.load_record()
        raise UsageError(
            f"The run {run.display_name} has no model: {record.get('status', 'unknown')}. {record.get('reason') or ''}".rstrip()
        )
    return run.model


def is_own_model(folder: Path) -> bool:
    """Return whether a folder is a delivered model of one of this user's registered runs."""
    resolved_folder = Path(os.path.realpath(folder))
    return bool(MODEL_FOLDER_PATTERN.fullmatch(resolved_folder.name)) and is_registered(resolved_folder.parent)


def _relocate_paths(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the record with its paths adapted, if the run folder was moved or copied since it was written."""
    old, new = str(record.get("run_dir") or ""), str(folder)
    if not old or old == new:
        return record
    result = record.get("result")
    for values in (record, result if isinstance(result, dict) else {}):
        for key in ("run_dir", "model_dir", "report"):
            value = values.get(key)
            if isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
                values[key] = new + value[len(old) :]
    return record
