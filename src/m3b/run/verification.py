"""Verification of a run or model: journal, locked files, scores and model files are compared with each other.

All of it is in one folder, so anybody who can write there can consistently make all of it anew. A fingerprint that was
stored elsewhere cannot be made anew: `VerificationResult.fingerprint`, to be quoted together with a metric.
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

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.index_lock import INDEX_FILES, digest_derived_files, list_derived_files, sha256_or_missing
from m3b.data.index import read_index
from m3b.errors import M3bError, UsageError
from m3b.events import Event, ModelDelivered, RunEnded
from m3b.isolation import untrusted
from m3b.journal import JournalError, digest_line, read_journal
from m3b.metrics import Scores
from m3b.metrics.metric_tables import is_unbounded, lower_is_better
from m3b.models.checksums import PROVENANCE_FILE, USER_EDITABLE_FILES, find_changes, sha256_of
from m3b.models.kept_answers import ANSWERS_FILE, ANSWERS_FOLDER, find_changed_answers
from m3b.report.paper import compare_paper_kit, find_run_of_kit, is_paper_kit
from m3b.run.external_sets import recompute_scores
from m3b.run.folder import MODEL_SCRIPT, RunFolder
from m3b.run.packaging import TEST_PREDICTIONS_FILE, compute_test_scores
from m3b.run.state import RunState

ComparisonState = Literal["same", "changed", "unknown"]


@dataclass(frozen=True)
class Comparison:
    """One comparison; its state is `unknown` if there is nothing to compare with, and its code is for programs."""

    subject: str
    state: ComparisonState
    detail: str = ""
    code: str = ""


@dataclass(frozen=True)
class VerificationResult:
    """The comparisons of a run folder or model folder.

    Args:
        kind: `run` or `model`.
        fingerprint: SHA-256 of the journal's last line, or of the model's provenance.json. It covers everything that
            was compared; a copy of it that is kept elsewhere shows later whether anything was made anew.
    """

    kind: Literal["run", "model"]
    folder: Path
    comparisons: tuple[Comparison, ...]
    fingerprint: str

    @property
    def ok(self) -> bool:
        return all(comparison.state != "changed" for comparison in self.comparisons)

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                "what": comparison.subject, "state": comparison.state, "detail": comparison.detail,
                "code": comparison.code,
            }
            for comparison in self.comparisons
        ]  # fmt: skip
        return {
            "kind": self.kind, "folder": str(self.folder), "ok": self.ok, "fingerprint": self.fingerprint, "findings": rows
        }  # fmt: skip


def verify(place: str | Path, expected_fingerprint: str = "", *, paper: str | Path | None = None) -> VerificationResult:
    """Compare a run folder, or a model folder alone, with its own journal or provenance.json.

    Args:
        place: folder or id of a run, `last`, the folder of a delivered model, or that of a paper kit whose run is still
            where it was.
        expected_fingerprint: the fingerprint as noted elsewhere; a different one counts as changed.
        paper: a paper kit of the run, to be compared too; `paper` in the run folder is in any case.

    Raises:
        UsageError: there is no such run or model.
    """
    folder = Path(place).expanduser()
    if paper is None and is_paper_kit(folder):
        result = _verify_run(RunFolder.open(find_run_of_kit(folder)), folder)
    elif (folder / MODEL_SCRIPT).is_file() and paper is None:
        result = _verify_model(folder)
    else:
        result = _verify_run(RunFolder.open(place), Path(paper).expanduser() if paper is not None else None)
    if expected_fingerprint:
        is_same = len(expected_fingerprint) >= MIN_FINGERPRINT_DIGITS and result.fingerprint.startswith(
            expected_fingerprint.lower()
        )
        detail = f"it is {result.fingerprint}, and not {expected_fingerprint}"
        fingerprint_comparison = Comparison(
            "the fingerprint that was expected", "same" if is_same else "changed", "" if is_same else detail
        )
        result = VerificationResult(
            result.kind, result.folder, (*result.comparisons, fingerprint_comparison), result.fingerprint
        )
    return result


MIN_FINGERPRINT_DIGITS = 12
"""Minimum number of hex digits of a fingerprint; fewer could be matched by trial and error."""


# --- a run ---------------------------------------------------------------------------------------------------------


def _verify_run(run: RunFolder, kit_folder: Path | None) -> VerificationResult:
    journal_comparison, events = _check_journal(run.journal_file)
    state = RunState.from_events(events)
    comparisons = [
        journal_comparison,
        *_check_record(run, events),
        *_check_index(run, state),
        *_check_measured_model(run, state, events),
        *_check_delivered_model(run, state, events),
    ]
    default_kit = run.path / PAPER_FOLDER
    for folder in dict.fromkeys(filter(None, [kit_folder, default_kit if is_paper_kit(default_kit) else None])):
        comparisons += _check_paper_kit(run, folder)
    return VerificationResult("run", run.path, tuple(comparisons), _digest_last_line(run.journal_file))


def _check_journal(file: Path) -> tuple[Comparison, list[Event]]:
    subject, events = "the journal", list[Event]()
    if not file.is_file():
        return Comparison(subject, "changed", "journal.jsonl is missing"), events
    try:
        for event in read_journal(file):
            events.append(event)
    except JournalError as error:
        return Comparison(subject, "changed", str(error)), events
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        bound_count = sum(b'"prev"' in line[:40] for line in stream)
    if bound_count < len(events):
        detail = (
            f"{len(events) - bound_count} of {len(events)} lines are of an early version and not bound to each other"
        )
        return Comparison(subject, "unknown", detail), events
    return Comparison(subject, "same", f"{len(events)} lines, each bound to the one before"), events


def _digest_last_line(file: Path) -> str:
    if not file.is_file():
        return ""
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        last = deque(stream, maxlen=1)
    return digest_line(last[0]) if last else ""


def _check_record(run: RunFolder, events: list[Event]) -> Iterator[Comparison]:
    """Compare run.json with the result in the journal; paths may differ, since the run folder may have been moved."""
    subject, results = "the result in run.json", [event.result for event in events if isinstance(event, RunEnded)]
    if not results:
        yield Comparison(subject, "unknown", "the run has not ended")
        return
    try:
        record = run.load_record()
    except UsageError as error:
        yield Comparison(subject, "changed", str(error))
        return
    result = record.get("result")
    differing_keys = sorted(
        key for key, value in results[-1].items()
        if key not in PATH_KEYS and (not isinstance(result, dict) or result.get(key) != value)
    )  # fmt: skip
    differing_keys += [
        key
        for key in ("status", "reason", "request")
        if key not in differing_keys and record.get(key) != results[-1].get(key)
    ]
    yield Comparison(
        subject,
        "changed" if differing_keys else "same",
        f"{', '.join(differing_keys)} differ from the journal" if differing_keys else "",
    )


PATH_KEYS = ("run_dir", "model_dir", "report")


def _check_index(run: RunFolder, state: RunState) -> Iterator[Comparison]:
    subject, data = "the locked index and test labels", state.index
    if data is None:
        return
    problems = [
        f"{Path(name).name} was changed"
        for name in INDEX_FILES
        if sha256_or_missing(run.locked, name) != data.hashes.get(name)
    ]
    if not problems and "made" in data.hashes:
        index = read_index(run.locked, data.task)
        if digest_derived_files(run.locked, list_derived_files(index.records)) != data.hashes["made"]:
            problems.append("images or masks that were made for cases were changed")
    yield _make_comparison(subject, problems)


def _check_measured_model(run: RunFolder, state: RunState, events: list[Event]) -> Iterator[Comparison]:
    """Compare the measured model, its predictions, and the scores recomputed from them."""
    model, selection = state.find_artifact(TrainedModel), state.selection
    if model is None or selection is None or state.index is None:
        return
    if not model.hashes:
        yield Comparison("the model that was measured", "unknown", "early versions kept no hashes of it")
        return
    yield _make_comparison("the model that was measured", find_changes(run.measured_model, model.hashes, editable=()))
    has_changed_predictions = sha256_or_missing(run.locked, TEST_PREDICTIONS_FILE) != model.answers
    yield _make_comparison(
        "its answers on the test cases", [f"{TEST_PREDICTIONS_FILE} was changed"] if has_changed_predictions else []
    )
    if model.kept_answers:
        yield _check_kept_answers(run, model)
    yield from _check_figures(run, selection, state.index, events)


def _check_kept_answers(run: RunFolder, model: TrainedModel) -> Comparison:
    subject, name = "the masks, boxes and texts of its answers", f"{ANSWERS_FOLDER}/{ANSWERS_FILE}"
    if sha256_or_missing(run.locked, name) != model.kept_answers:
        return _make_comparison(subject, [f"{name} was changed"])
    return _make_comparison(subject, [f"{file} was changed" for file in find_changed_answers(run.locked)])


def _check_figures(run: RunFolder, selection: Selection, data: DataIndex, events: list[Event]) -> Iterator[Comparison]:
    results = [item.result for item in events if isinstance(item, RunEnded) and item.result.get("metrics")]
    if not results:
        return
    subject = "the figures, computed once more"
    try:
        seed = int(run.load_record().get("seed", 0))
        scores = compute_test_scores(run, selection, seed)
    except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
        yield Comparison(subject, "changed", f"they cannot be computed: {error}")
        return
    yield _compare_figures(subject, scores, results[-1]["metrics"])
    for name, item in (results[-1].get("external") or {}).items():
        if not item.get("primary"):
            continue
        subject = f"the figures on the external set {name}, computed once more"
        try:
            scores = recompute_scores(run, name, selection, seed)
        except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
            yield Comparison(subject, "changed", f"they cannot be computed: {error}")
            continue
        yield _compare_figures(subject, scores, item["metrics"])


def _compare_figures(subject: str, scores: Scores, recorded: Mapping[str, Any]) -> Comparison:
    recomputed = json.loads(json.dumps({name: measure.to_dict() for name, measure in scores.metrics.items()}))
    differing = [
        name
        for name in sorted(recorded)
        if name in recomputed and _comparable_values(name, recomputed[name]) != _comparable_values(name, recorded[name])
    ]
    user_metrics = [name for name in sorted(recorded) if name not in recomputed]
    if user_metrics and not differing:
        return Comparison(
            subject, "unknown", f"{', '.join(user_metrics)}: metrics defined by the user; all others are the same"
        )
    return _make_comparison(subject, [f"{name} differs" for name in differing])


def _comparable_values(name: str, measure: Mapping[str, Any]) -> list[Any]:
    """Return the values of a metric that depend on the predictions alone; no image is opened here for its baseline.

    The worse limit of an unbounded metric depends on the baseline too, so it is left out.
    """
    keys = ["value", "low", "high", "n"]
    if is_unbounded(name):
        keys.remove("high" if lower_is_better(name) else "low")
    return [measure.get(key) for key in keys]


def _check_delivered_model(run: RunFolder, state: RunState, events: list[Event]) -> Iterator[Comparison]:
    delivered_hashes = [event.hashes for event in events if isinstance(event, ModelDelivered)]
    for number, delivery in enumerate(state.deliveries[:-1], start=1):
        folder = run.get_earlier_model(number)
        subject = f"the earlier model {folder.name}"
        if folder.is_dir():
            yield _make_comparison(subject, _find_changes(folder, delivery.hashes))
        else:
            yield Comparison(subject, "unknown", "it was removed")
    if delivered_hashes:
        yield _make_comparison("the model that was delivered", _find_changes(run.model, delivered_hashes[-1]))
    elif run.model.is_dir():
        yield Comparison("the model that was delivered", "unknown", "the journal does not mention it")


def _find_changes(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Return the changed files as `find_changes` does, including provenance.json and added files."""
    if not folder.is_dir():
        return [f"{folder.name}/ is missing"]
    file_hashes = {name: value for name, value in hashes.items() if name != PROVENANCE_FILE}
    provenance_file = folder / PROVENANCE_FILE
    is_provenance_same = provenance_file.is_file() and sha256_of(provenance_file) == hashes.get(PROVENANCE_FILE)
    return ([] if is_provenance_same else [f"{PROVENANCE_FILE} was changed"]) + find_changes(
        folder, file_hashes, editable=USER_EDITABLE_FILES
    )


def _make_comparison(subject: str, problems: list[str]) -> Comparison:
    detail = ", ".join(problems[:5]) + (f" and {len(problems) - 5} more" if len(problems) > 5 else "")
    return Comparison(subject, "changed" if problems else "same", detail)


PAPER_FOLDER = "paper"
"""Folder of a run whose paper kit is always verified with the run."""


def _check_paper_kit(run: RunFolder, folder: Path) -> Iterator[Comparison]:
    """Compare the numbers of a paper kit with the facts of the run, collected once more."""
    subject = f"the paper kit {folder}"
    try:
        findings = compare_paper_kit(folder, run.path)
    except UsageError as error:
        yield Comparison(subject, "changed", str(error), "paper_run_unusable")
        return
    if not findings:
        yield Comparison(subject, "same")
    for finding in findings:
        state: ComparisonState = "changed" if finding.is_change else "unknown"
        yield Comparison(f"{subject}, {finding.file}", state, finding.detail, finding.code)


# --- a model alone -------------------------------------------------------------------------------------------------


def _verify_model(folder: Path) -> VerificationResult:
    provenance_file = folder / PROVENANCE_FILE
    if not provenance_file.is_file():
        detail = f"there is no {PROVENANCE_FILE}: nothing says what the files were"
        return VerificationResult("model", folder, (Comparison("the files", "changed", detail),), "")
    content = untrusted.read_bytes(folder, PROVENANCE_FILE)
    comparisons = [*_check_files(folder, content), *_check_run_journal(folder, content)]
    return VerificationResult("model", folder, tuple(comparisons), hashlib.sha256(content).hexdigest())


def _check_files(folder: Path, content: bytes) -> Iterator[Comparison]:
    subject = f"the files, against {PROVENANCE_FILE}"
    raw = _parse_json(content)
    files = raw.get("files") if isinstance(raw, dict) else None
    if not isinstance(files, dict):
        yield Comparison(subject, "changed", f"{PROVENANCE_FILE} cannot be read")
        return
    yield _make_comparison(subject, find_changes(folder, {str(name): str(value) for name, value in files.items()}))


def _check_run_journal(folder: Path, content: bytes) -> Iterator[Comparison]:
    """Compare provenance.json with the journal of the run that made it, if the model folder is still in that run."""
    subject, journal = "the run's journal beside it", folder.absolute().parent / "journal.jsonl"
    if not journal.is_file():
        yield Comparison(
            subject, "unknown", "this folder is in no run: a change of both files and list would not be detected"
        )
        return
    journal_comparison, events = _check_journal(journal)
    delivered_hashes = [event.hashes for event in events if isinstance(event, ModelDelivered)]
    problems = [journal_comparison.detail] if journal_comparison.state == "changed" else []
    known = [hashes.get(PROVENANCE_FILE) for hashes in delivered_hashes]  # the last one is that of `model/`
    digest = hashlib.sha256(content).hexdigest()
    if known and (digest not in known if folder.name != "model" else digest != known[-1]):
        problems.append(f"{PROVENANCE_FILE} is not the one that the run wrote")
    raw = _parse_json(content)
    recorded_position = raw.get("journal") if isinstance(raw, dict) else None
    if (
        isinstance(recorded_position, dict)
        and recorded_position.get("lines")
        and _digest_line(journal, recorded_position["lines"]) != recorded_position.get("head")
    ):
        problems.append(f"line {recorded_position['lines']} of the journal is not the one that {PROVENANCE_FILE} names")
    yield _make_comparison(subject, problems)


def _digest_line(file: Path, number: Any) -> str:
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        for line_number, line in enumerate(stream, start=1):
            if line_number == number:
                return digest_line(line)
    return ""


def _parse_json(content: bytes) -> Any:
    parse: Callable[[bytes], Any] = json.loads
    try:
        return parse(content)
    except (ValueError, RecursionError):
        return None
