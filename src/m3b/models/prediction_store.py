"""Predictions of one call on disk, written as they are made, so that a later call can go on."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from m3b.isolation.untrusted import copy_file, write_atomic
from m3b.models.checksums import PROVENANCE_FILE, sha256_of
from m3b.models.predictions import Prediction
from m3b.writing import json_text

PREDICTIONS_FILE = "predictions.json"
FLUSH_INTERVAL_S = 1.0
"""Minimum time between two writes of the file."""
MAX_WRITE_SHARE = 0.02
"""Maximum share of the time that is spent on writing the whole file again; it grows with the predictions."""
_FORMAT = 1
Entries = list[dict[str, Any]]


class OutputFolder:
    """A folder for the mask files of predictions.

    Args:
        folder: exists.
        n_cases: of the whole call, for the width of numbers in names.
        used_files: files of earlier predictions, which are not overwritten.
    """

    def __init__(self, folder: Path, n_cases: int = 1, used_files: Sequence[Path] = ()) -> None:
        self.folder = folder.resolve()
        self._width = max(4, len(str(n_cases)))
        self._used_files = {file.resolve() for file in used_files}

    def take(self, prediction: Prediction, source: Path, number: int, position: int) -> Prediction:
        """Copy the files that a prediction names from `source`, where untrusted code wrote them; return it with the copies.

        Args:
            number: of the image in its request, from 1, with which predict.py may begin the names of its files.
            position: of the image in the whole call, from 0; the copies are numbered by it.

        Raises:
            UnsafePathError: a link or special file instead of a regular file.
            OSError: a file cannot be copied.
        """

        def copy(file: Path) -> Path:
            name = file.resolve().relative_to(source)
            target = self._free_name(name, number, position)
            copy_file(source, name, self.folder, target)
            self._used_files.add(self.folder / target)
            return self.folder / target

        return replace(
            prediction,
            mask=None if prediction.mask is None else copy(prediction.mask),
            masks={name: copy(file) for name, file in prediction.masks.items()},
            anomaly_map=None if prediction.anomaly_map is None else copy(prediction.anomaly_map),
            saliency=prediction.saliency and replace(prediction.saliency, map_file=copy(prediction.saliency.map_file)),
        )

    def _free_name(self, name: Path, number: int, position: int) -> Path:
        own_number = re.match(rf"0*{number}_(?=.)", name.name)
        stem = name.name[own_number.end() :] if own_number else name.name
        numbered = f"{position + 1:0{self._width}d}_{stem}"
        candidates = itertools.chain(
            [numbered] if own_number else [name.name, numbered],
            (f"{position + 1:0{self._width}d}_{number}_{n}_{stem}" for n in itertools.count()),
        )
        return next(path for text in candidates if self.folder / (path := name.with_name(text)) not in self._used_files)


def with_relative_files(prediction: Prediction, folder: Path | None) -> dict[str, Any]:
    """Return a prediction as JSON values, with file paths relative to `folder`; without a folder, files are omitted."""
    if folder is None:
        return prediction.without_files().to_dict()
    fields = prediction.to_dict()
    for name in ("mask", "anomaly_map"):
        if name in fields:
            fields[name] = relative_to(Path(fields[name]), folder)
    if "saliency" in fields:
        fields["saliency"]["map"] = relative_to(Path(fields["saliency"]["map"]), folder)
    if "masks" in fields:
        fields["masks"] = {name: relative_to(Path(file), folder) for name, file in fields["masks"].items()}
    return fields


def relative_to(file: Path, folder: Path) -> str:
    """Return a path relative to a folder, with slashes."""
    return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()


def write_json(entries: Entries, file: Path) -> None:
    """Write entries as a JSON list."""
    content = f"{json_text(entries, indent=1)}\n".encode("utf-8", "backslashreplace")
    write_atomic(file.parent.resolve(), file.name, content)


class PredictionStore:
    """The file with the predictions of one call, and next to it, until all are made, what a later call needs to go on.

    Args:
        file: `predictions.json` of an output folder, or another file.
        model: the folder of the model.
        write: writes the entries of `file`.
    """

    def __init__(self, file: Path, model: Path, write: Callable[[Entries, Path], None] = write_json) -> None:
        self.file = file
        self.partial_file = file.with_name(f"{file.name}.partial")
        self._model_fingerprint = fingerprint_model(model)
        self._write = write
        self._entries: dict[int, dict[str, Any]] = {}
        self._stream: IO[str] | None = None
        self._next_write_at = 0.0
        self._has_reused = False

    def read_partial(self) -> dict[str, dict[str, Any]]:
        """Return case fingerprint -> prediction of an unfinished call with the same model; empty if there is none."""
        try:
            lines = self.partial_file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return {}
        rows = [row for row in map(_parse_line, lines) if row is not None]
        if not rows or rows[0].get("format") != _FORMAT or rows[0].get("model") != self._model_fingerprint:
            return {}
        return {
            row["case"]: row["prediction"]
            for row in rows[1:]
            if isinstance(row.get("case"), str) and isinstance(row.get("prediction"), dict)
        }

    def begin(self, reused: Mapping[int, tuple[str, dict[str, Any]]]) -> None:
        """Start the partial file; `reused` are predictions of an earlier call, by position, with their fingerprints.

        Raises:
            OSError: it cannot be written.
        """
        self._has_reused = bool(reused)
        with _naming(self.partial_file):
            self._stream = self.partial_file.open("w", encoding="utf-8", errors="surrogateescape")
            self._append({"format": _FORMAT, "model": self._model_fingerprint})
            for fingerprint, prediction in reused.values():
                self._append({"case": fingerprint, "prediction": prediction})
            self._stream.flush()

    def add(self, position: int, fingerprint: str, prediction: dict[str, Any], entry: dict[str, Any]) -> None:
        """Add a prediction; the file is written about once a second, a large one less often.

        Args:
            prediction: what a later call reads again.
            entry: what the file holds of it.

        Raises:
            OSError: a file cannot be written; the error names it.
        """
        self._entries[position] = entry
        if fingerprint and "error" not in prediction:
            with _naming(self.partial_file):
                self._append({"case": fingerprint, "prediction": prediction})
        if time.monotonic() > self._next_write_at:
            self.write()

    def write(self) -> None:
        """Write the file with all predictions so far, in the order of the cases. Raises OSError with its name."""
        began = time.monotonic()
        if self._stream is not None:
            with _naming(self.partial_file):
                self._stream.flush()
        with _naming(self.file):
            self._write([self._entries[position] for position in sorted(self._entries)], self.file)
        ended = time.monotonic()
        self._next_write_at = ended + max(FLUSH_INTERVAL_S, (ended - began) / MAX_WRITE_SHARE)

    def stop(self) -> None:
        """Write what there is, and keep the partial file for a later call; without any prediction, leave nothing."""
        if self._stream is None:
            return
        try:
            if self._entries:
                self.write()
        finally:
            stream, self._stream = self._stream, None
            with _naming(self.partial_file):
                stream.close()
        if not self._entries and not self._has_reused:
            self.partial_file.unlink()

    def finish(self) -> None:
        """Write the file for the last time, and remove the partial file."""
        self.stop()
        self.write()
        self.partial_file.unlink(missing_ok=True)

    def _append(self, row: dict[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write(f"{json.dumps(row)}\n")


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file in an error of the system, such as a full disk, which does not name it itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None or not Path(error.filename).is_absolute():
            raise OSError(error.errno, error.strerror, str(file)) from error
        raise


def _parse_line(line: str) -> dict[str, Any] | None:
    """Return the object of a line; None for one that was interrupted."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def fingerprint_model(folder: Path) -> str:
    """Return the hash of the model's provenance.json, or of names, sizes and times of its files if it has none."""
    provenance = folder / PROVENANCE_FILE
    if provenance.is_file():
        return sha256_of(provenance)
    states = [
        (file.relative_to(folder).as_posix(), file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]
    return hashlib.sha256(json.dumps(states).encode("utf-8", "surrogatepass")).hexdigest()
