"""Are a run and its model still what they were? Journal, locked evidence, figures and files against each other.

What is compared lies in one folder, so whoever can write there and takes the trouble can make all of it anew. What cannot be
made anew is a fingerprint that was kept elsewhere: `Verified.fingerprint`, to be quoted with a figure.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from m3b import untrusted
from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.integrity import INDEX_FILES
from m3b.agents.checks.integrity import sha256 as digest_of
from m3b.agents.checks.locked import digest_made, made_files
from m3b.data.index import read_index
from m3b.errors import M3bError, WrongUse
from m3b.events import Event, ModelDelivered, RunEnded
from m3b.journal import JournalError, digest, read_journal
from m3b.metrics import Scores
from m3b.models.manifest import FREE, MANIFEST, changes, sha256_of
from m3b.run.external_sets import measured_again
from m3b.run.folder import MODEL, Run
from m3b.run.packaging import PREDICTIONS, measured_scores
from m3b.run.state import History

State = Literal["same", "changed", "unknown"]


@dataclass(frozen=True)
class Comparison:
    """One thing that was compared; `unknown` where there is nothing to compare it with."""

    what: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Verified:
    """What a look at a run folder or a model folder found.

    Args:
        kind: `run` or `model`.
        fingerprint: SHA-256 of the journal's last line, or of the model's provenance.json: it stands for everything that was
            compared. Kept elsewhere it shows later that nothing was made anew.
    """

    kind: Literal["run", "model"]
    folder: Path
    findings: tuple[Comparison, ...]
    fingerprint: str

    @property
    def ok(self) -> bool:
        return all(one.state != "changed" for one in self.findings)

    def to_dict(self) -> dict[str, Any]:
        rows = [{"what": one.what, "state": one.state, "detail": one.detail} for one in self.findings]
        return {
            "kind": self.kind, "folder": str(self.folder), "ok": self.ok, "fingerprint": self.fingerprint, "findings": rows
        }  # fmt: skip


def verify(place: str | Path, expect: str = "") -> Verified:
    """Compare a run folder, or a model folder alone, with what its own journal or provenance.json says.

    Args:
        place: a run's folder or id, `last`, or the folder of a delivered model.
        expect: the fingerprint as it was noted elsewhere; another one is a finding.

    Raises:
        WrongUse: there is no such run or model.
    """
    folder = Path(place).expanduser()
    found = _model(folder) if (folder / MODEL).is_file() else _run(Run.open(place))
    if expect:
        same = len(expect) >= MIN_EXPECTED and found.fingerprint.startswith(expect.lower())
        detail = f"it is {found.fingerprint}, and not {expect}"
        own = Comparison("the fingerprint that was expected", "same" if same else "changed", "" if same else detail)
        found = Verified(found.kind, found.folder, (*found.findings, own), found.fingerprint)
    return found


MIN_EXPECTED = 12
"""Hex digits of a fingerprint that have to be given; fewer could be met by trying."""


# --- a run ---------------------------------------------------------------------------------------------------------


def _run(run: Run) -> Verified:
    chain, events = _journal(run.journal_file)
    history = History.of(events)
    findings = [
        chain,
        *_record(run, events),
        *_index(run, history),
        *_measured(run, history, events),
        *_delivered(run, events),
    ]
    return Verified("run", run.folder, tuple(findings), _last(run.journal_file))


def _journal(file: Path) -> tuple[Comparison, list[Event]]:
    what, events = "the journal", list[Event]()
    if not file.is_file():
        return Comparison(what, "changed", "journal.jsonl is missing"), events
    try:
        for event in read_journal(file):
            events.append(event)
    except JournalError as error:
        return Comparison(what, "changed", str(error)), events
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        bound = sum(b'"prev"' in line[:40] for line in stream)
    if bound < len(events):
        detail = f"{len(events) - bound} of {len(events)} lines are of an early version and not bound to each other"
        return Comparison(what, "unknown", detail), events
    return Comparison(what, "same", f"{len(events)} lines, each bound to the one before"), events


def _last(file: Path) -> str:
    if not file.is_file():
        return ""
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        last = deque(stream, maxlen=1)
    return digest(last[0]) if last else ""


def _record(run: Run, events: list[Event]) -> Iterator[Comparison]:
    """run.json against the journal's last word; paths may be those of where the run lies now."""
    what, ended = "the result in run.json", [one.result for one in events if isinstance(one, RunEnded)]
    if not ended:
        yield Comparison(what, "unknown", "the run has not ended")
        return
    try:
        record = run.load()
    except WrongUse as error:
        yield Comparison(what, "changed", str(error))
        return
    result = record.get("result")
    differ = sorted(
        key for key, value in ended[-1].items()
        if key not in PLACES and (not isinstance(result, dict) or result.get(key) != value)
    )  # fmt: skip
    differ += [
        key for key in ("status", "reason", "request") if key not in differ and record.get(key) != ended[-1].get(key)
    ]
    yield Comparison(
        what, "changed" if differ else "same", f"{', '.join(differ)} differ from the journal" if differ else ""
    )


PLACES = ("run_dir", "model_dir", "report")


def _index(run: Run, history: History) -> Iterator[Comparison]:
    what, data = "the locked index and test labels", history.index
    if data is None:
        return
    found = [
        f"{Path(name).name} was changed" for name in INDEX_FILES if digest_of(run.locked, name) != data.hashes.get(name)
    ]
    if not found and "made" in data.hashes:
        index = read_index(run.locked, data.task)
        if digest_made(run.locked, made_files(index.records)) != data.hashes["made"]:
            found.append("images or masks that were made for cases were changed")
    yield _finding(what, found)


def _measured(run: Run, history: History, events: list[Event]) -> Iterator[Comparison]:
    """The model as it was measured, its answers, and the figure once more from these."""
    model, selection = history.made(TrainedModel), history.selection
    if model is None or selection is None or history.index is None:
        return
    if not model.hashes:
        yield Comparison("the model that was measured", "unknown", "early versions kept no hashes of it")
        return
    yield _finding("the model that was measured", changes(run.measured, model.hashes, free=()))
    answers = digest_of(run.locked, PREDICTIONS) != model.answers
    yield _finding("its answers on the test cases", [f"{PREDICTIONS} was changed"] if answers else [])
    yield from _figures(run, selection, history.index, events)


def _figures(run: Run, selection: Selection, data: DataIndex, events: list[Event]) -> Iterator[Comparison]:
    ended = [one.result for one in events if isinstance(one, RunEnded) and one.result.get("metrics")]
    if not ended:
        return
    what = "the figures, computed once more"
    try:
        seed = int(run.load().get("seed", 0))
        scores = measured_scores(run, selection, seed)
    except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
        yield Comparison(what, "changed", f"they cannot be computed: {error}")
        return
    yield _compared(what, scores, ended[-1]["metrics"])
    for name, one in (ended[-1].get("external") or {}).items():
        if not one.get("primary"):
            continue
        what = f"the figures on the external set {name}, computed once more"
        try:
            scores = measured_again(run, name, selection, seed)
        except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
            yield Comparison(what, "changed", f"they cannot be computed: {error}")
            continue
        yield _compared(what, scores, one["metrics"])


def _compared(what: str, scores: Scores, told: Mapping[str, Any]) -> Comparison:
    now = json.loads(json.dumps({name: measure.to_dict() for name, measure in scores.metrics.items()}))
    differ = [name for name in sorted(told) if name in now and _figure(now[name]) != _figure(told[name])]
    own = [name for name in sorted(told) if name not in now]
    if own and not differ:
        return Comparison(what, "unknown", f"{', '.join(own)}: metrics of the user's own; the others are the same")
    return _finding(what, [f"{name} differs" for name in differ])


def _figure(measure: Mapping[str, Any]) -> list[Any]:
    """What of a measure rests on the answers; the trivial answer's value rests on images, which stay closed here."""
    return [measure.get(key) for key in ("value", "low", "high", "n")]


def _delivered(run: Run, events: list[Event]) -> Iterator[Comparison]:
    told = [one.hashes for one in events if isinstance(one, ModelDelivered)]
    if told:
        yield _finding("the model that was delivered", _changes(run.model, told[-1]))
    elif run.model.is_dir():
        yield Comparison("the model that was delivered", "unknown", "the journal does not speak of it")


def _changes(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """As `changes`, the list itself included, and whatever was added."""
    if not folder.is_dir():
        return [f"{folder.name}/ is missing"]
    rest = {name: value for name, value in hashes.items() if name != MANIFEST}
    own = folder / MANIFEST
    listed = own.is_file() and sha256_of(own) == hashes.get(MANIFEST)
    return ([] if listed else [f"{MANIFEST} was changed"]) + changes(folder, rest, free=FREE)


def _finding(what: str, found: list[str]) -> Comparison:
    some = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return Comparison(what, "changed" if found else "same", some)


# --- a model alone -------------------------------------------------------------------------------------------------


def _model(folder: Path) -> Verified:
    own = folder / MANIFEST
    if not own.is_file():
        why = f"there is no {MANIFEST}: nothing says what the files were"
        return Verified("model", folder, (Comparison("the files", "changed", why),), "")
    content = untrusted.read_bytes(folder, MANIFEST)
    found = [*_files(folder, content), *_beside(folder, content)]
    return Verified("model", folder, tuple(found), hashlib.sha256(content).hexdigest())


def _files(folder: Path, content: bytes) -> Iterator[Comparison]:
    what = f"the files, against {MANIFEST}"
    raw = _json(content)
    files = raw.get("files") if isinstance(raw, dict) else None
    if not isinstance(files, dict):
        yield Comparison(what, "changed", f"{MANIFEST} cannot be read")
        return
    yield _finding(what, changes(folder, {str(name): str(value) for name, value in files.items()}))


def _beside(folder: Path, content: bytes) -> Iterator[Comparison]:
    """Where the run that made it is at hand, its journal says which provenance.json it wrote, and when."""
    what, journal = "the run's journal beside it", folder.absolute().parent / "journal.jsonl"
    if not journal.is_file():
        yield Comparison(
            what, "unknown", "no run lies around this folder: whoever wrote both files and list is not caught"
        )
        return
    chain, events = _journal(journal)
    told = [one.hashes for one in events if isinstance(one, ModelDelivered)]
    found = [chain.detail] if chain.state == "changed" else []
    if told and told[-1].get(MANIFEST) != hashlib.sha256(content).hexdigest():
        found.append(f"{MANIFEST} is not the one that the run wrote")
    raw = _json(content)
    point = raw.get("journal") if isinstance(raw, dict) else None
    if isinstance(point, dict) and point.get("lines") and _head(journal, point["lines"]) != point.get("head"):
        found.append(f"line {point['lines']} of the journal is not the one that {MANIFEST} names")
    yield _finding(what, found)


def _head(file: Path, number: Any) -> str:
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        for at, line in enumerate(stream, start=1):
            if at == number:
                return digest(line)
    return ""


def _json(content: bytes) -> Any:
    read: Callable[[bytes], Any] = json.loads
    try:
        return read(content)
    except (ValueError, RecursionError):
        return None
