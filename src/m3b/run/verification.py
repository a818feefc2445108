"""Verification of a run or model: journal, locked files, scores and model files are compared with each other.

All of it is in one folder, so anybody who can write there can consistently make all of it anew. A fingerprint that was
stored elsewhere cannot be made anew: `VerificationResult.fingerprint`, to be quoted together with a metric.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.checks.index_lock import INDEX_FILES, digest_derived_files, list_derived_files, sha256_or_missing
from m3b.data.cards import slug
from m3b.data.index import UNLABELLED, read_index
from m3b.errors import M3bError, UsageError
from m3b.events import Event, FilesRecorded, ModelDelivered, RunEnded, RunStarted
from m3b.isolation import untrusted
from m3b.isolation.sandbox import STRENGTH
from m3b.journal import JournalError, digest_line, read_journal
from m3b.metrics import Scores
from m3b.metrics.metric_tables import is_unbounded, lower_is_better
from m3b.models.checksums import PROVENANCE_FILE, USER_EDITABLE_FILES, find_changes, sha256_of
from m3b.models.kept_answers import ANSWERS_FILE, ANSWERS_FOLDER, find_changed_answers
from m3b.remote.origin import Origin
from m3b.remote.store import find_changes as find_mirror_changes
from m3b.report.paper import compare_paper_kit, find_run_of_kit, is_paper_kit
from m3b.run.external_sets import recompute_scores
from m3b.run.folder import MODEL_SCRIPT, RunFolder
from m3b.run.packaging import TEST_PREDICTIONS_FILE, compute_test_scores
from m3b.run.record import ORIGINS_FOLDER
from m3b.run.record_digests import SESSION_ENTRIES, digest_entries, hash_recorded_files
from m3b.run.state import RunState

ComparisonState = Literal["same", "changed", "unknown"]


@dataclass(frozen=True)
class Comparison:
    """One comparison; its state is `unknown` if there is nothing to compare with, and its code (see docs/security.md) is
    for programs."""

    code: str
    subject: str
    state: ComparisonState
    detail: str = ""


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
                "code": comparison.code, "what": comparison.subject, "state": comparison.state,
                "detail": comparison.detail,
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
            "fingerprint",
            "the fingerprint that was expected",
            "same" if is_same else "changed",
            "" if is_same else detail,
        )
        result = VerificationResult(
            result.kind, result.folder, (*result.comparisons, fingerprint_comparison), result.fingerprint
        )
    return result


MIN_FINGERPRINT_DIGITS = 12
"""Minimum number of hex digits of a fingerprint; fewer could be matched by trial and error."""


# --- a run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JournalFacts:
    """What the journal of a run says, as far as it can be read.

    Args:
        digests: of all its complete lines.
        started: the start of the last session.
        files: the files as that session left them; None in journals of early versions.
        ended: the end of that session; None if it has not ended.
    """

    events: tuple[Event, ...] = ()
    digests: tuple[str, ...] = ()
    bound_count: int = 0
    has_torn_line: bool = False
    error: str = ""
    started: RunStarted | None = None
    files: FilesRecorded | None = None
    ended: RunEnded | None = None

    @property
    def has_digests(self) -> bool:
        """Whether it was written by a version that stores digests of run.json."""
        return self.started is not None and bool(self.started.record)


def _read_facts(file: Path) -> JournalFacts:
    if not file.is_file():
        return JournalFacts(error="journal.jsonl is missing")
    events, error = list[Event](), ""
    try:
        for event in read_journal(file):
            events.append(event)
    except JournalError as damage:
        error = str(damage)
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        lines = list(stream)
    has_torn_line = bool(lines) and not lines[-1].endswith(b"\n")
    if has_torn_line:
        lines.pop()
    started, files, ended = None, None, None
    for event in events:
        match event:
            case RunStarted():
                started, files, ended = event, None, None
            case FilesRecorded():
                files = event
            case RunEnded():
                ended = event
    bound_count = sum(b'"prev"' in line[:40] for line in lines)
    return JournalFacts(
        tuple(events), tuple(map(digest_line, lines)), bound_count, has_torn_line, error, started, files, ended
    )


def _verify_run(run: RunFolder, kit_folder: Path | None) -> VerificationResult:
    facts = _read_facts(run.journal_file)
    comparisons = _compare_run(run, facts)
    default_kit = run.path / PAPER_FOLDER
    for folder in dict.fromkeys(filter(None, [kit_folder, default_kit if is_paper_kit(default_kit) else None])):
        comparisons += _check_paper_kit(run, folder)
    return VerificationResult("run", run.path, tuple(comparisons), facts.digests[-1] if facts.digests else "")


def _compare_run(run: RunFolder, facts: JournalFacts) -> list[Comparison]:
    state = RunState.from_events(facts.events)
    try:
        record = run.load_record()
    except UsageError as error:
        record, record_comparisons = {}, [Comparison("result", RECORD_SUBJECT, "changed", str(error))]
    else:
        record_comparisons = [*_check_record(record, facts), *_check_settings(record, facts, state)]
    return [
        _check_journal(facts, record),
        *_check_positions(run, facts, record),
        *record_comparisons,
        *_check_recorded_files(run, facts),
        *_check_mirrors(run, record),
        *_check_index(run, state),
        *_check_measured_model(run, state, facts, record),
        *_check_delivered_model(run, state, facts),
    ]


RECORD_SUBJECT, SETTINGS_SUBJECT = "the result in run.json", "the settings in run.json"
JOURNAL_SUBJECT, END_SUBJECT = "the journal", "the end of the journal"


def _check_journal(facts: JournalFacts, record: Mapping[str, Any]) -> Comparison:
    """Compare each line with the digest in the next one.

    Only a run that an early version started has unbound lines: all of them, or those before the session in which a later
    version resumed it.
    """
    count, unbound_count = len(facts.events), len(facts.events) - facts.bound_count
    if facts.error:
        return Comparison("journal", JOURNAL_SUBJECT, "changed", facts.error)
    if unbound_count <= 0:
        return Comparison("journal", JOURNAL_SUBJECT, "same", f"{count} lines, each bound to the one before")
    detail = f"{unbound_count} of {count} lines are not bound to each other"
    is_early = isinstance(facts.events[unbound_count], RunStarted) if facts.bound_count else record.get("format") == 1
    if not is_early or any(isinstance(event, RunStarted) and event.record for event in facts.events[:unbound_count]):
        return Comparison(
            "journal", JOURNAL_SUBJECT, "changed", f"{detail}, although the run was not written by an early version"
        )
    return Comparison("journal", JOURNAL_SUBJECT, "unknown", f"{detail}, because an early version wrote them")


def _check_positions(run: RunFolder, facts: JournalFacts, record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the journal's length and lines with the positions that run.json and provenance.json name."""
    problems = list[str]()
    folders = [run.model, *sorted(run.path.glob("model-*"))]
    for name, content in (
        ("run.json", record),
        *((f"{folder.name}/{PROVENANCE_FILE}", _read_provenance(folder)) for folder in folders),
    ):
        position = content.get("journal")
        if not isinstance(position, dict) or not position.get("lines"):
            if name == "run.json" and facts.has_digests and facts.ended is not None and not _is_unfinished(record):
                problems.append("run.json does not name the last line")
            continue
        lines, count = position["lines"], len(facts.digests)
        if not isinstance(lines, int) or not 0 < lines <= count:
            problems.append(f"it has {count} lines, and {name} names line {lines}: lines are missing")
        elif facts.digests[lines - 1] != position.get("head"):
            problems.append(f"line {lines} is not the one that {name} names")
        elif name == "run.json" and lines != count:
            problems.append(f"{count - lines} lines were added after the last one that {name} names")
    problems += [
        f"line {number} follows the end of the run"
        for number, (event, following) in enumerate(pairwise(facts.events), start=2)
        if isinstance(event, RunEnded) and not isinstance(following, RunStarted | FilesRecorded)
    ]
    if facts.has_torn_line and facts.ended is not None:
        problems.append("an incomplete line follows the end of the run")
    if problems or facts.digests:
        yield _make_comparison("journal_end", END_SUBJECT, problems)


def _read_provenance(folder: Path) -> dict[str, Any]:
    content = (
        _parse_json(untrusted.read_bytes(folder, PROVENANCE_FILE)) if untrusted.is_file(folder, PROVENANCE_FILE) else {}
    )
    return content if isinstance(content, dict) else {}


def _is_unfinished(record: Mapping[str, Any]) -> bool:
    """Return whether run.json claims no end of the run."""
    return record.get("status") == "working" and record.get("result") is None


def _check_record(record: Mapping[str, Any], facts: JournalFacts) -> Iterator[Comparison]:
    """Compare run.json with the result in the journal; paths may differ, since the run folder may have been moved."""
    if facts.ended is None and _is_unfinished(record):
        yield Comparison("result", RECORD_SUBJECT, "unknown", "the run has not ended")
        return
    if facts.ended is None:
        detail = (
            f"run.json says that the run ended ({record.get('status')}), and the journal does not: lines are missing"
        )
        yield Comparison("result", RECORD_SUBJECT, "changed", detail)
        return
    if _is_unfinished(record):
        detail = "the journal has the end of the run, and run.json does not; `m3b resume` writes it"
        yield Comparison("result", RECORD_SUBJECT, "unknown", detail)
        return
    result, journaled_result = record.get("result"), facts.ended.result
    result = result if isinstance(result, dict) else {}
    differing_keys = {
        key for key in {**journaled_result, **result}
        if key not in PATH_KEYS and result.get(key) != journaled_result.get(key)
    }  # fmt: skip
    differing_keys |= {key for key in ("status", "reason", "request") if record.get(key) != journaled_result.get(key)}
    if facts.has_digests and record.get("ended") != facts.ended.at:
        differing_keys.add("ended")
    detail = f"{', '.join(sorted(differing_keys))} differ from the journal" if differing_keys else ""
    yield Comparison("result", RECORD_SUBJECT, "changed" if differing_keys else "same", detail)


PATH_KEYS = ("run_dir", "model_dir", "report")


def _check_settings(record: Mapping[str, Any], facts: JournalFacts, state: RunState) -> Iterator[Comparison]:
    """Compare the other entries of run.json with their digests in the journal, and those of all sessions with each other."""
    sessions = [event.record for event in facts.events if isinstance(event, RunStarted) and event.record]
    is_finished = facts.files is not None and not _is_unfinished(record)
    expected = facts.files.record if facts.files is not None and is_finished else sessions[-1] if sessions else {}
    entries = digest_entries(record)
    problems = (
        [f"{key} differs from the journal" for key in sorted(_list_differences(entries, expected))] if expected else []
    )
    for earlier, later in pairwise(sessions):
        keys = sorted(_list_differences(earlier, later) - set(SESSION_ENTRIES))
        problems += [f"{key} was changed before the run was resumed" for key in keys]
    if state.sandboxes and "sandboxes" in record:
        sandbox = record.get("sandbox")
        weakest = min(state.sandboxes, key=lambda name: STRENGTH.get(name, -1))
        if (
            record["sandboxes"] != list(state.sandboxes)
            or not isinstance(sandbox, dict)
            or sandbox.get("name") != weakest
        ):
            problems.append(f"the sandboxes are not those of the journal ({', '.join(state.sandboxes)})")
    if expected or problems:
        yield _make_comparison("settings", SETTINGS_SUBJECT, problems)
    else:
        yield Comparison("settings", SETTINGS_SUBJECT, "unknown", "early versions kept no digests of them")


def _list_differences(entries: Mapping[str, str], others: Mapping[str, str]) -> set[str]:
    return {key for key in {**entries, **others} if entries.get(key) != others.get(key)}


def _check_recorded_files(run: RunFolder, facts: JournalFacts) -> Iterator[Comparison]:
    subject = "ledger, audit and scores"
    if facts.files is None:
        if facts.ended is not None:
            yield Comparison("recorded_files", subject, "unknown", "early versions kept no hashes of them")
        return
    present = hash_recorded_files(run)
    yield _make_comparison("recorded_files", subject, _describe_differences(present, facts.files.hashes))


def _describe_differences(present: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {'is missing' if name not in present else 'was changed' if name in recorded else 'was added'}"
        for name in sorted(_list_differences(present, recorded))
    ]


def _check_mirrors(run: RunFolder, record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare mirrored data with what was fetched for the run; no server is asked."""
    cards = record.get("data")
    for card in cards if isinstance(cards, list) else []:
        if not isinstance(card, dict) or not card.get("origin"):
            continue
        try:
            origin, folder = Origin.from_json(card["origin"]), Path(str(card.get("path")))
        except UsageError as error:
            yield Comparison("mirror", "the data that was mirrored", "changed", str(error))
            continue
        subject = f"the data mirrored from {origin.url}"
        file_list = f"{ORIGINS_FOLDER}/{slug(str(card.get('name')))}.jsonl"
        if sha256_or_missing(run.path, file_list) != origin.digest:
            yield Comparison(
                "mirror_list", f"the list of the files of {origin.url}", "changed", f"{file_list} was changed"
            )
        if not folder.is_dir():
            yield Comparison(
                "mirror", subject, "unknown", f"{folder} is not there any more; `m3b resume` fetches it again"
            )
        else:
            yield _make_comparison("mirror", subject, find_mirror_changes(folder, origin))


def _check_index(run: RunFolder, state: RunState) -> Iterator[Comparison]:
    subject, data = "the locked index and test labels", state.index
    if data is None:
        return
    problems = [
        f"{Path(name).name} was changed"
        for name in (*INDEX_FILES, UNLABELLED)
        if sha256_or_missing(run.locked, name) != data.hashes.get(name, "missing")
    ]
    if not problems and "made" in data.hashes:
        index = read_index(run.locked, data.task)
        if digest_derived_files(run.locked, list_derived_files(index.all_images)) != data.hashes["made"]:
            problems.append("images or masks that were made for cases were changed")
    yield _make_comparison("index", subject, problems)


def _check_measured_model(
    run: RunFolder, state: RunState, facts: JournalFacts, record: Mapping[str, Any]
) -> Iterator[Comparison]:
    """Compare the measured model, its predictions, and the scores recomputed from them."""
    model, selection = state.find_artifact(TrainedModel), state.selection
    if model is None or selection is None or state.index is None:
        return
    if not model.hashes:
        yield Comparison(
            "measured_model", "the model that was measured", "unknown", "early versions kept no hashes of it"
        )
        return
    changes = find_changes(run.measured_model, model.hashes, editable=(), counts_all_added=True)
    yield _make_comparison("measured_model", "the model that was measured", changes)
    has_changed_predictions = sha256_or_missing(run.locked, TEST_PREDICTIONS_FILE) != model.answers
    yield _make_comparison(
        "answers",
        "its answers on the test cases",
        [f"{TEST_PREDICTIONS_FILE} was changed"] if has_changed_predictions else [],
    )
    if model.kept_answers:
        yield _check_kept_answers(run, model)
    if state.has_undelivered_model and state.deliveries:
        yield Comparison(
            "figures", "the figures", "unknown", "the answers are those of a newer model, which was not delivered"
        )
    else:
        yield from _check_figures(run, selection, facts, record)


def _check_kept_answers(run: RunFolder, model: TrainedModel) -> Comparison:
    subject, name = "the masks, boxes and texts of its answers", f"{ANSWERS_FOLDER}/{ANSWERS_FILE}"
    if sha256_or_missing(run.locked, name) != model.kept_answers:
        return _make_comparison("kept_answers", subject, [f"{name} was changed"])
    return _make_comparison(
        "kept_answers", subject, [f"{file} was changed" for file in find_changed_answers(run.locked)]
    )


def _check_figures(
    run: RunFolder, selection: Selection, facts: JournalFacts, record: Mapping[str, Any]
) -> Iterator[Comparison]:
    result = facts.ended.result if facts.ended is not None else {}
    if not result.get("metrics"):
        return
    subject, seed = "the figures, computed once more", record.get("seed")
    try:
        scores = compute_test_scores(run, selection, seed if isinstance(seed, int) else 0)
    except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
        yield Comparison("figures", subject, "changed", f"they cannot be computed: {error}")
        return
    yield _compare_figures("figures", subject, scores, result["metrics"])
    yield _check_primary(result)
    for name, item in (result.get("external") or {}).items():
        if not item.get("primary"):
            continue
        subject = f"the figures on the external set {name}, computed once more"
        try:
            scores = recompute_scores(run, name, selection, seed if isinstance(seed, int) else 0)
        except (M3bError, OSError, ValueError, KeyError, TypeError) as error:
            yield Comparison("external_figures", subject, "changed", f"they cannot be computed: {error}")
            continue
        yield _compare_figures("external_figures", subject, scores, item["metrics"])


def _check_primary(result: Mapping[str, Any]) -> Comparison:
    """Compare the primary figure of the result with the metric of its name, which was computed once more."""
    primary = result.get("primary")
    name = primary.get("name") if isinstance(primary, dict) else None
    metric = result["metrics"].get(name, {})
    keys = (
        [key for key in metric if primary.get(key) != metric[key]] if isinstance(primary, dict) and metric else ["it"]
    )
    return _make_comparison(
        "primary", "the primary figure", [f"{key} is not that of the metric {name}" for key in keys]
    )


def _compare_figures(code: str, subject: str, scores: Scores, recorded: Mapping[str, Any]) -> Comparison:
    recomputed = json.loads(json.dumps({name: measure.to_dict() for name, measure in scores.metrics.items()}))
    differing = [
        name
        for name in sorted(recorded)
        if name in recomputed and _comparable_values(name, recomputed[name]) != _comparable_values(name, recorded[name])
    ]
    user_metrics = [name for name in sorted(recorded) if name not in recomputed]
    if user_metrics and not differing:
        return Comparison(
            code, subject, "unknown", f"{', '.join(user_metrics)}: metrics defined by the user; all others are the same"
        )
    return _make_comparison(code, subject, [f"{name} differs" for name in differing])


def _comparable_values(name: str, measure: Mapping[str, Any]) -> list[Any]:
    """Return the values of a metric that depend on the predictions alone; no image is opened here for its baseline.

    The worse limit of an unbounded metric depends on the baseline too, so it is left out.
    """
    keys = ["value", "low", "high", "n"]
    if is_unbounded(name):
        keys.remove("high" if lower_is_better(name) else "low")
    return [measure.get(key) for key in keys]


def _check_delivered_model(run: RunFolder, state: RunState, facts: JournalFacts) -> Iterator[Comparison]:
    deliveries = list(state.deliveries)
    is_replacing = state.has_undelivered_model and run.get_earlier_model(len(deliveries)).is_dir()
    current = deliveries.pop() if deliveries and not is_replacing else None
    for number, delivery in enumerate(deliveries, start=1):
        folder = run.get_earlier_model(number)
        if folder.is_dir():
            yield from _check_model_files("earlier_model", f"the earlier model {folder.name}", folder, delivery.hashes)
        else:
            yield Comparison("earlier_model", f"the earlier model {folder.name}", "unknown", "it was removed")
    subject = "the model that was delivered"
    if current is not None:
        yield from _check_model_files("delivered_model", subject, run.model, current.hashes)
    elif run.model.is_dir():
        yield _check_unrecorded_model(subject, run, state)


def _check_model_files(code: str, subject: str, folder: Path, hashes: Mapping[str, str]) -> Iterator[Comparison]:
    """Compare a delivered model with the journal; every added file counts, but people may rewrite its model card."""
    if not folder.is_dir():
        yield Comparison(code, subject, "changed", f"{folder.name}/ is missing")
        return
    file_hashes = {name: value for name, value in hashes.items() if name != PROVENANCE_FILE}
    has_provenance = sha256_or_missing(folder, PROVENANCE_FILE) == hashes.get(PROVENANCE_FILE)
    changes = find_changes(folder, {**file_hashes, PROVENANCE_FILE: ""}, counts_all_added=True, editable=EDITABLE)
    yield _make_comparison(code, subject, changes + ([] if has_provenance else [f"{PROVENANCE_FILE} was changed"]))
    edited = [name for name in USER_EDITABLE_FILES if sha256_or_missing(folder, name) != hashes.get(name)]
    if edited:
        yield Comparison(
            "model_card",
            f"the card of {subject}",
            "unknown",
            f"{', '.join(edited)} was edited or removed, as people may do",
        )


EDITABLE = (*USER_EDITABLE_FILES, PROVENANCE_FILE)


def _check_unrecorded_model(subject: str, run: RunFolder, state: RunState) -> Comparison:
    """Compare a model that the journal does not mention with the measured one and the list in provenance.json.

    The process ended while the model was delivered, or the end of the journal was removed.
    """
    model, listed = state.find_artifact(TrainedModel), _read_provenance(run.model).get("files")
    if model is None or not model.hashes:
        return Comparison("delivered_model", subject, "unknown", "the journal does not mention it")
    measured = {name: value for name, value in model.hashes.items() if name not in USER_EDITABLE_FILES}
    problems = [] if isinstance(listed, dict) else [f"{PROVENANCE_FILE} is missing or damaged"]
    names = {**measured, **(listed if isinstance(listed, dict) else {}), **measured, PROVENANCE_FILE: ""}
    problems += find_changes(run.model, names, counts_all_added=True, editable=EDITABLE)
    detail = "the journal does not mention it; `m3b resume` delivers it again"
    return Comparison(
        "delivered_model", subject, "changed" if problems else "unknown", ", ".join([*problems[:5], detail])
    )


def _make_comparison(code: str, subject: str, problems: list[str]) -> Comparison:
    detail = ", ".join(problems[:5]) + (f" and {len(problems) - 5} more" if len(problems) > 5 else "")
    return Comparison(code, subject, "changed" if problems else "same", detail)


PAPER_FOLDER = "paper"
"""Folder of a run whose paper kit is always verified with the run."""


def _check_paper_kit(run: RunFolder, folder: Path) -> Iterator[Comparison]:
    """Compare the numbers of a paper kit with the facts of the run, collected once more."""
    subject = f"the paper kit {folder}"
    try:
        findings = compare_paper_kit(folder, run.path)
    except UsageError as error:
        yield Comparison("paper_run_unusable", subject, "changed", str(error))
        return
    if not findings:
        yield Comparison("paper", subject, "same")
    for finding in findings:
        state: ComparisonState = "changed" if finding.is_change else "unknown"
        yield Comparison(finding.code, f"{subject}, {finding.file}", state, finding.detail)


# --- a model alone -------------------------------------------------------------------------------------------------


def _verify_model(folder: Path) -> VerificationResult:
    provenance_file = folder / PROVENANCE_FILE
    if not provenance_file.is_file():
        detail = f"there is no {PROVENANCE_FILE}: nothing says what the files were"
        return VerificationResult("model", folder, (Comparison("model_files", "the files", "changed", detail),), "")
    content = untrusted.read_bytes(folder, PROVENANCE_FILE)
    comparisons = [_check_files(folder, content), *_check_own_run(folder)]
    return VerificationResult("model", folder, tuple(comparisons), hashlib.sha256(content).hexdigest())


def _check_files(folder: Path, content: bytes) -> Comparison:
    subject = f"the files, against {PROVENANCE_FILE}"
    raw = _parse_json(content)
    files = raw.get("files") if isinstance(raw, dict) else None
    if not isinstance(files, dict):
        return Comparison("model_files", subject, "changed", f"{PROVENANCE_FILE} cannot be read")
    hashes = {str(name): str(value) for name, value in files.items()} | {PROVENANCE_FILE: ""}
    return _make_comparison(
        "model_files", subject, find_changes(folder, hashes, counts_all_added=True, editable=EDITABLE)
    )


def _check_own_run(folder: Path) -> Iterator[Comparison]:
    """Compare the run that made the model, if the folder is still in it."""
    subject, run = "the run around it", RunFolder(folder.absolute().parent)
    if not (run.journal_file.is_file() or (run.path / "run.json").is_file()):
        yield Comparison(
            "own_run",
            subject,
            "unknown",
            "this folder is in no run: a change of both files and list would not be detected",
        )
        return
    facts = _read_facts(run.journal_file)
    delivered = [event.hashes.get(PROVENANCE_FILE) for event in facts.events if isinstance(event, ModelDelivered)]
    if delivered and sha256_of(folder / PROVENANCE_FILE) not in delivered:
        yield Comparison("own_run", subject, "changed", f"{PROVENANCE_FILE} is not the one that the run wrote")
    yield from _compare_run(run, facts)


def _parse_json(content: bytes) -> Any:
    parse: Callable[[bytes], Any] = json.loads
    try:
        return parse(content)
    except (ValueError, RecursionError):
        return None
