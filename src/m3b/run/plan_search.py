"""A search over plans before the last training: candidates are trained for longer and longer, and the best plan is kept.

Candidates are compared by successive halving on the cases that they hold out of training, measured by m3b itself in the sandbox. No
test case is touched. The figure of the selected candidate is too good, since it was selected by it: `m3b.metrics.selection_bias`
estimates by how much. Every training is in the journal, so that a search that was killed goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, TrainingModule
from m3b.agents.check_result import CheckResult, accept, describe_script_failure, extract_last_line, relay_answer
from m3b.agents.checks.model import (
    DELIVERABLE_FOLDER,
    find_deliverable_problem,
    freeze_deliverable,
    predict_validation,
)
from m3b.agents.roles import FailureMessage, Role
from m3b.agents.search_table import describe_next_step, describe_search, format_settings
from m3b.data.index import read_index
from m3b.errors import ModelError, RunCancelled, RunFailed, SettingError, UsageError
from m3b.events import CandidateMeasured, CandidateStarted, NoteAdded, StepStarted, ToolCalled, ToolReturned
from m3b.facts import PlanCandidate, SearchSummary
from m3b.isolation import untrusted
from m3b.llm.base import spec_of
from m3b.llm.specs import RULES
from m3b.messages import ToolCall
from m3b.metrics.bootstrap import without_intervals
from m3b.metrics.ensemble_selection import EnsembleChoice, EnsembleSelection
from m3b.metrics.metric_tables import lower_is_better
from m3b.metrics.selection_bias import REDUCTION, Row, SelectionSamples, choose_survivors
from m3b.run.model_validation import CANDIDATE_FOLDER, discard_candidate
from m3b.run.next_steps import count_network_steps
from m3b.run.plan_candidates import DEFAULT_NUMBER, PROPOSALS_FILE, Candidate, CandidateSource
from m3b.run.plan_ensemble import (
    is_ensemble_missing,
    make_ensemble_plan,
    make_ensemble_selection,
    read_plans,
    summarize_ensemble,
)
from m3b.run.services import RunServices
from m3b.run.stages import ModelStage, Stage, Stages, parse_planned_minutes
from m3b.run.state import RunState
from m3b.run.training_checks import describe_short_search, read_expected_amount
from m3b.run.training_overrides import find_task_settings
from m3b.tasks import get_family, score_all
from m3b.tools import ToolResult
from m3b.training.search_space import min_steps_of
from m3b.writing import write_text_atomically

PLAN_SEARCH = Role(
    "plan_search",
    "Plan Search",
    ("run_script",),
    FailureMessage("No candidate plan could be trained", "The plan as it was before the search is trained."),
)
SEARCH_FOLDER = "search"
"""Folder below `locked/` with the plan before the search, that of each candidate, and the measured cases of each training."""
PLAN_FILE, LOG_FOLDER = "plan.json", "Logout"
KEPT_LOG_FOLDERS = ("cache", "jobs", "results")
"""Folders of the log that hold decoded images and output, and nothing of a training."""
MAX_PLAN_DEPTH, MAX_PLAN_NUMBER = 12, 2**53
MAX_CANDIDATES = 40
MIN_CANDIDATES = 2
MAX_RUNGS = 3
MIN_MINUTES_PER_NETWORK = 0.5
"""Minutes that each network of a candidate gets at least in the first rung, if the hours hold two rungs."""
DEFAULT_FOLDS = 3
"""Folds of the candidates of a plan that trains one network."""
PROPOSAL_SHARE = 0.25
"""Share of the time of the search that is kept for proposals of the Model Trainer; the rules propose nothing."""
MIN_FIGURES_TO_STOP = 4
"""Figures from which the gain of a further candidate is estimated."""
WAIT_S = 3600


class SearchStage(Stage[SearchSummary]):
    """The search from the first candidate to the selected plan, which is then in the working directory."""

    role = PLAN_SEARCH
    artifact = SearchSummary
    required_artifacts = (Selection, DataIndex, TrainingModule)
    required = False

    def prepare(self, state: RunState, services: RunServices) -> None:
        """Give scripts the time of a training."""
        services.prepare_training(services.options.training_minutes)

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        """Search, and accept the result."""
        search = PlanSearch(state, services)
        hours = float(services.options.hours or 0)
        if (
            warning := describe_short_search(search.plan, search.minutes[-1], search.folds, hours)
        ) and not search.candidates:
            services.emit(NoteAdded(warning))
        try:
            search.run(share=1.0 if spec_of(services.get_llm("model_trainer")) == RULES else 1.0 - PROPOSAL_SHARE)
        except RunFailed:
            search.restore_plan()
            raise
        summary = search.finish()
        services.emit(NoteAdded(f"Search over plans: {describe_search(summary)}"))
        return accept(summary)


class SearchedModelStage(ModelStage):
    """The Model Trainer after a search: it is told the table of candidates, and may propose others before it trains."""

    required_artifacts = ModelStage.required_artifacts

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        """Train proposed candidates and tell the agent their figures; without any, check the model."""
        answer = answer_proposals(state, services)
        if answer is not None:
            return answer
        result = super().check(state, services, closing_text)
        if result.is_accepted and is_ensemble_missing(state.find_artifact(SearchSummary), services.folder.work):
            problem = "the training was not that of plan.json with its recipes"
            summary = PlanSearch(state, services).summarize_without_average(problem)
            services.record_artifact(SearchSummary, summary)
        return result


def add_search(stages: Stages, hours: float | None) -> Stages:
    """Return the stages with a search before the model, if there are hours for it; a user's own model stage stays."""
    if hours is None:
        return stages
    position = next(index for index, stage in enumerate(stages) if stage.artifact is TrainedModel)
    model_stage = SearchedModelStage() if type(stages[position]) is ModelStage else stages[position]
    return (*stages[:position], SearchStage(), model_stage, *stages[position + 1 :])


def answer_proposals(state: RunState, services: RunServices) -> CheckResult | None:
    """Return the answer to candidates that the Model Trainer proposes; None if it proposes none, or has trained already.

    May be called again after a crash: the file of the proposals is set aside when they are done.
    """
    work = services.folder.work
    if state.find_artifact(SearchSummary) is None:
        return None
    is_interrupted = bool(state.search_events) and isinstance(state.search_events[-1], CandidateStarted)
    has_trained = untrusted.is_folder(work, DELIVERABLE_FOLDER) and not is_interrupted
    if has_trained or not (is_interrupted or untrusted.is_file(work, PROPOSALS_FILE)):
        return None
    search = PlanSearch(state, services)
    try:
        proposals, problem = search.source.read_proposals(work, search.plan, search.list_candidates()), ""
    except UsageError as error:
        proposals, problem = [], f"{error} Write it anew, or train the plan in {PLAN_FILE}."
    count = len(search.candidates)
    if proposals or is_interrupted:
        search.run(proposals, adds_candidates=False)
    if not problem and len(search.candidates) == count and not is_interrupted:
        reason = "the time of the search is over" if proposals else "they were all compared before"
        problem = f"Your candidates were not trained: {reason}. Train the plan in {PLAN_FILE}."
    summary = search.finish()
    _set_aside(work)
    if problem:
        return relay_answer(problem)
    services.record_artifact(SearchSummary, summary)
    text = f"{describe_search(summary)}\n{describe_next_step(summary)}"
    if (n_trained := len(search.candidates) - count) < len(proposals):
        text = f"{n_trained} of your {len(proposals)} candidates were trained: the time held no more.\n{text}"
    return relay_answer(text, summary.to_json())


def _set_aside(work: Path) -> None:
    """Rename the file with proposals, so that it is not read again."""
    with contextlib.suppress(OSError):
        (work / PROPOSALS_FILE).rename(work / f"{Path(PROPOSALS_FILE).stem}-read.json")


def list_rung_minutes(search_minutes: float, final_minutes: float, networks: int) -> list[float]:
    """Return the minutes of a training in each rung: the last is a third of the final training, each before a third of the next.

    There are as many rungs as leave each network of a candidate half a minute in the first one, at least one and at most three.
    """
    final_minutes = min(final_minutes, search_minutes)
    rungs = [
        count
        for count in range(1, MAX_RUNGS + 1)
        if final_minutes / REDUCTION**count >= MIN_MINUTES_PER_NETWORK * networks
    ]
    count = max(rungs, default=1)
    return [final_minutes / REDUCTION ** (count - rung) for rung in range(count)]


def lengthen_plan(plan: Mapping[str, Any], spare_minutes: float, max_minutes: float = math.inf) -> dict[str, Any]:
    """Return a plan whose training gets the minutes that a search left; the plan itself if it counts steps or has no minutes.

    Nothing else of it changes, so that it stays the plan that was compared; what it expects grows with the minutes.

    Args:
        plan: plan.json, which scripts of an agent wrote.
        max_minutes: of the training, unless the plan has more already.
    """
    minutes = parse_planned_minutes(plan.get("minutes"))
    longer = math.floor(min(minutes + spare_minutes, max_minutes) * 100) / 100
    if not minutes or plan.get("max_steps") or longer <= minutes:
        return dict(plan)
    lengthened, amount, factor = {**plan, "minutes": longer}, read_expected_amount(plan), longer / minutes
    if amount is not None:
        expected = {"steps": round(amount.steps * factor), "epochs": round(amount.epochs * factor, 2)}
        lengthened["expected"] = {**plan["expected"], **expected}
    return lengthened


def run_command(services: RunServices, call_id: str, command: str) -> ToolResult:
    """Run a command of the training project in the sandbox to its end, with events for the journal.

    Raises:
        RunCancelled: the run was cancelled.
    """
    call = ToolCall(call_id, "run_script", {"command": command, "wait_s": WAIT_S})
    services.emit(ToolCalled(call.id, call.name, call.arguments, cost=0))
    result = services.tools.call(call, (call.name,))
    while result.data.get("running") and not services.cancel_event.is_set():
        wait_call = ToolCall(call.id, call.name, {"job": result.data["job"], "wait_s": WAIT_S})
        result = services.tools.call(wait_call, (call.name,))
    services.emit(ToolReturned(call.id, call.name, result.text, result.is_error, result.data))
    if services.cancel_event.is_set():
        raise RunCancelled("The run was cancelled.")
    return result


def read_plan(work: Path) -> dict[str, Any]:
    """Return plan.json, which scripts of an agent wrote.

    Raises:
        ModelError: it is no JSON object, is nested too deeply, or has numbers that nothing can be computed with.
    """
    try:
        plan = untrusted.read_json(work, PLAN_FILE)
        json.dumps(plan, allow_nan=False, ensure_ascii=False).encode()
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{PLAN_FILE} cannot be used ({type(error).__name__}: {error}).") from None
    if not isinstance(plan, dict):
        raise ModelError(f"{PLAN_FILE} is no JSON object.")
    pending: list[tuple[int, Any]] = [(0, plan)]
    while pending:
        depth, value = pending.pop()
        if depth > MAX_PLAN_DEPTH:
            raise ModelError(f"{PLAN_FILE} is nested more than {MAX_PLAN_DEPTH} deep.")
        if isinstance(value, int) and abs(value) > MAX_PLAN_NUMBER:
            raise ModelError(f"{PLAN_FILE} has a number above 2^53.")
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        pending += [(depth + 1, child) for child in children]
    return plan


class PlanSearch:
    """The candidates of a run with their figures, restored from the journal, and the training of further ones."""

    def __init__(self, state: RunState, services: RunServices) -> None:
        self.services, self.state = services, state
        self.selection = state.get_artifact(Selection)
        self.folder = services.folder.locked / SEARCH_FOLDER
        self.folder.mkdir(exist_ok=True)
        self.plan = self._read_first_plan()
        options = services.options
        self.source = CandidateSource(self.selection.task, self.plan, services.training, options.seed)
        self.final_minutes = float(options.training_minutes)
        self.search_seconds = max(0.0, float(options.hours or 0) * 3600 - self.final_minutes * 60)
        earlier_summary = state.find_artifact(SearchSummary)
        self.last_minutes = earlier_summary.final_minutes if earlier_summary else self.final_minutes
        """Minutes of the last training, with those that the search left of the hours."""
        self.folds = self._count_folds(state.get_artifact(DataIndex))
        self.minutes = list_rung_minutes(self.search_seconds / 60, self.final_minutes, self.folds)
        self.lower_is_better = lower_is_better(self.selection.metric)
        self.candidates: dict[int, Candidate] = {}
        self.samples: SelectionSamples | None = None
        self.seconds: list[tuple[int, float]] = []
        """Rung and seconds of each training that has ended."""
        self.interrupted: CandidateStarted | None = None
        self.stopped = "done"
        self._restore()

    def _read_first_plan(self) -> dict[str, Any]:
        """Return plan.json as it was before the search, which is kept for the whole search.

        Raises:
            RunFailed: the project has no such plan.
        """
        file = self.folder / PLAN_FILE
        try:
            if not file.exists():
                write_text_atomically(file, json.dumps(read_plan(self.services.folder.work), indent=2))
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (ModelError, OSError, ValueError, TypeError) as error:
            raise RunFailed(f"The training project has no {PLAN_FILE} that can be searched: {error}.") from error

    def _count_folds(self, index: DataIndex) -> int:
        """Return the networks of each candidate: as the user or the plan says, else `DEFAULT_FOLDS`; 1 if the engine has no folds."""
        can_fold = find_task_settings(self.selection.task).has_folds and "folds" in self.plan
        if not can_fold or self.plan.get("engine") == "nnunet":
            return 1
        if self.services.training.folds is not None:
            return self.services.training.folds
        planned = self.plan["folds"]
        return (
            planned
            if isinstance(planned, int) and planned > 1
            else max(1, min(DEFAULT_FOLDS, index.patients.get("train", DEFAULT_FOLDS)))
        )

    def _restore(self) -> None:
        for event in self.state.search_events:
            if isinstance(event, CandidateStarted):
                candidate = self.candidates.setdefault(
                    event.number, Candidate(event.number, event.source, dict(event.settings))
                )
                candidate.minutes, self.interrupted = event.minutes, event
            else:
                self._apply_measured(event)

    def _apply_measured(self, event: CandidateMeasured) -> None:
        candidate = self.candidates[event.number]
        candidate.problem, self.interrupted = event.problem, None
        self.seconds.append((event.rung, event.seconds))
        if event.value is None:
            return
        file = self._rows_file(event.number, event.rung)
        if untrusted.hash_file(self.folder, file) != event.rows:
            raise RunFailed(f"{self.folder / file} was changed after it was measured. Start a new run.")
        rows = json.loads((self.folder / file).read_text(encoding="utf-8"))
        self._get_samples(rows).add(event.number, rows)
        candidate.figures.append(event.value)
        candidate.steps.append(event.steps)

    def _get_samples(self, rows: Sequence[Row]) -> SelectionSamples:
        if self.samples is None:
            self.samples = SelectionSamples(
                [str(row["patient"]) for row in rows],
                self._make_score(),
                lower_is_better=self.lower_is_better,
                default=DEFAULT_NUMBER,
                seed=self.services.options.seed,
            )
        return self.samples

    def _make_score(self) -> Callable[[Sequence[Row]], float]:
        """Return the function that computes the metric of measured cases, without its interval."""
        index, family = read_index(self.services.folder.locked, self.selection.task), get_family(self.selection.task)

        def score(rows: Sequence[Row]) -> float:
            with without_intervals():
                cases = [dict(row) for row in rows]
                return score_all(family, cases, index, primary=self.selection.metric, draws=0).primary.value

        return score

    @staticmethod
    def _rows_file(number: int, rung: int) -> str:
        return f"cases-{number}-{rung}.json"

    def list_candidates(self) -> list[Candidate]:
        """Return all candidates in their order."""
        return [self.candidates[number] for number in sorted(self.candidates)]

    # --- the clock ------------------------------------------------------------------------------------------------

    def spent_seconds(self) -> float:
        """Return the seconds of all trainings so far, of earlier processes too."""
        return sum(seconds for _, seconds in self.seconds)

    def has_time(self, minutes: float, share: float = 1.0) -> bool:
        """Return whether a training of so many minutes ends within a share of the time of the search.

        What candidates took beside their training so far is added, such as planning and measuring.
        """
        trained = sum(self.minutes[rung] * 60 for rung, _ in self.seconds)
        overhead = max(0.0, self.spent_seconds() - trained) / max(1, len(self.seconds))
        return self.spent_seconds() + minutes * 60 + overhead <= share * self.search_seconds

    # --- the search -----------------------------------------------------------------------------------------------

    def run(self, proposals: Sequence[Candidate] = (), share: float = 1.0, *, adds_candidates: bool = True) -> None:
        """Train candidates rung by rung until the time is over or nothing is to be gained.

        Args:
            proposals: candidates of an agent, which are trained first.
            share: of the time of the search.
            adds_candidates: whether the table and the sampler give candidates.

        Raises:
            RunFailed: no candidate could be measured.
        """
        self.stopped = "done"
        if self.interrupted is not None:
            self._train(self.candidates[self.interrupted.number], self.interrupted.rung, is_resumed=True)
        for candidate in proposals:
            if self.has_time(self.minutes[0], share):
                self._train(candidate, 0)
            else:
                self.stopped = "time"
        if adds_candidates:
            self._train_first_rung(share / len(self.minutes))
        numbers = [number for number, candidate in self.candidates.items() if candidate.figures]
        if self.samples is None or not numbers:
            problems = "; ".join(dict.fromkeys(candidate.problem for candidate in self.list_candidates()))
            raise RunFailed(f"None of {len(self.candidates)} candidate plans was trained and measured: {problems}")
        samples = self.samples
        for rung in range(1, len(self.minutes)):
            numbers = choose_survivors(samples.list_figures(), numbers, rung - 1, DEFAULT_NUMBER)
            if self._is_gain_too_small(partial(samples.expected_gain, numbers)):
                return
            for number in numbers:
                candidate = self.candidates[number]
                if len(candidate.figures) > rung or candidate.problem:
                    continue
                if not self.has_time(self.minutes[rung], share):
                    self.stopped = "time"
                    return
                self._train(candidate, rung)

    def _train_first_rung(self, share: float) -> None:
        """Train candidates of the table and the sampler in the first rung, as many as its share of the time holds."""
        while len(self.candidates) < MAX_CANDIDATES:
            if len(self.candidates) >= MIN_CANDIDATES and not self.has_time(self.minutes[0], share):
                self.stopped = "time" if len(self.minutes) == 1 else "done"
                return
            if self._is_gain_too_small(self._expected_improvement):
                return
            candidate = self.source.suggest(self.list_candidates(), lower_is_better=self.lower_is_better)
            if candidate is None:
                return
            self._train(candidate, 0)

    def _is_gain_too_small(self, compute_gain: Callable[[], float]) -> bool:
        min_gain = self.services.options.min_gain
        if min_gain is None or compute_gain() >= min_gain:
            return False
        self.stopped = "min_gain"
        return True

    def _expected_improvement(self) -> float:
        """Return by how much a further candidate is expected to be better than the best, if figures are normally distributed.

        Part of their spread is noise, so that this is rather too much (Jones, Schonlau and Welch, 1998).
        """
        figures = [candidate.figures[0] for candidate in self.candidates.values() if candidate.figures]
        if len(figures) < MIN_FIGURES_TO_STOP:
            return math.inf
        from statistics import NormalDist, mean, stdev

        signed = [-figure if self.lower_is_better else figure for figure in figures]
        spread, normal = stdev(signed), NormalDist()
        if spread == 0:
            return 0.0
        z_score = (mean(signed) - max(signed)) / spread
        return spread * (z_score * normal.cdf(z_score) + normal.pdf(z_score))

    # --- one candidate --------------------------------------------------------------------------------------------

    def _train(self, candidate: Candidate, rung: int, *, is_resumed: bool = False) -> None:
        """Plan, train, export and measure a candidate, and record its figure or why it has none."""
        start, minutes = time.monotonic(), self.minutes[rung]
        self.candidates[candidate.number] = candidate
        candidate.minutes = minutes
        if not is_resumed:
            self._clear_results()  # first, so that what a resumed training finds is its own
            self.services.emit(CandidateStarted(candidate.number, rung, minutes, candidate.source, candidate.settings))
        settings_text = format_settings(candidate.settings)
        self.services.emit(StepStarted(f"candidate {candidate.number}: {minutes:.3g} min of training, {settings_text}"))
        value, rows_hash, problem, steps = None, "", "", 0
        try:
            self._train_project(candidate, rung, is_resumed=is_resumed)
            steps = count_network_steps(self.services.folder.work)
            rows = self._measure()
            value, rows_hash = self._keep_rows(candidate.number, rung, rows)
        except (ModelError, SettingError, OSError, ValueError) as error:
            problem = extract_last_line(str(error)) or type(error).__name__
        finally:
            discard_candidate(self.services.folder)
        self._clear_results()  # so that a deliverable that is there later is the agent's
        measured = CandidateMeasured(
            candidate.number, rung, round(time.monotonic() - start, 3), value, problem, rows_hash, steps
        )
        self.services.emit(measured)
        self._apply_measured(measured)

    def _keep_rows(self, number: int, rung: int, rows: Sequence[Row]) -> tuple[float, str]:
        """Write the measured cases where agents cannot read them; return their figure and the hash of the file.

        Raises:
            ValueError: they are other cases than those of the first candidate, or their figure is undefined.
        """
        samples = self._get_samples(rows)
        if [str(row["patient"]) for row in rows] != samples.patients:
            raise ValueError("it held out other cases than the first candidate, so they cannot be compared")
        value = self._make_score()(rows)
        if not math.isfinite(value):
            raise ValueError(f"{self.selection.metric} is undefined on the cases that it held out")
        file = self._rows_file(number, rung)
        write_text_atomically(self.folder / file, json.dumps(list(rows)), is_private=True)
        return value, untrusted.hash_file(self.folder, file)

    def _train_project(self, candidate: Candidate, rung: int, *, is_resumed: bool) -> None:
        """Train and export the plan of a candidate in the working directory.

        Raises:
            ModelError: a script failed.
        """
        work, own_plan = self.services.folder.work, self.folder / f"plan-{candidate.number}.json"
        if not own_plan.exists():
            self._make_plan(candidate, self.folds)
            write_text_atomically(own_plan, json.dumps(read_plan(work)))
        plan = json.loads(own_plan.read_text(encoding="utf-8"))
        if isinstance(plan.get("max_steps"), int) and plan["max_steps"]:
            plan["max_steps"] = max(1, round(plan["max_steps"] * self.minutes[rung] / self.final_minutes))
        self._write_plan(plan)
        resume = " --resume" if is_resumed else ""
        command = (
            f"python train.py{resume} --minutes {self.minutes[rung]:.4g} && python export.py --out {DELIVERABLE_FOLDER}"
        )
        result = run_command(self.services, f"candidate-{candidate.number}-{rung}", command)
        if result.is_error:
            raise ModelError(describe_script_failure(result) or "train.py failed")

    def _make_plan(self, candidate: Candidate, folds: int) -> None:
        """Write the plan of a candidate to the working directory.

        Raises:
            ModelError: plan.py failed.
            SettingError: see `CandidateSource.make_plan_command`.
        """
        self._write_plan(self.plan)
        command = self.source.make_plan_command(candidate.settings, self.plan, self.final_minutes, folds)
        result = run_command(self.services, f"plan-{candidate.number}", command)
        if result.is_error:
            raise ModelError(describe_script_failure(result) or "plan.py failed")

    def _write_plan(self, plan: Mapping[str, Any]) -> None:
        text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
        untrusted.write_atomic(self.services.folder.work, PLAN_FILE, text.encode())

    def _measure(self) -> list[Row]:
        """Return the measured held-out cases of the exported candidate; no test case is predicted.

        Raises:
            ModelError: it cannot be measured.
        """
        run, services = self.services.folder, self.services
        folder = run.locked / CANDIDATE_FOLDER
        discard_candidate(run)
        folder.mkdir()
        for text in services.tools.stop_running_scripts():
            services.emit(NoteAdded(text))
        frozen = freeze_deliverable(run.work, folder / run.measured_model.name)
        index = read_index(run.locked, self.selection.task)
        problem = find_deliverable_problem(run.work, frozen, index)
        if frozen is None or problem is not None:
            raise ModelError("; ".join(problem.user_messages) if problem else "it left no model behind")
        return list(predict_validation(run.work, frozen, index, services.executor.predict))

    # --- the result -----------------------------------------------------------------------------------------------

    def restore_plan(self) -> None:
        """Put the plan before the search back, without the results of candidates."""
        self._clear_results()
        self._write_plan(self.plan)

    def _clear_results(self) -> None:
        """Remove deliverable and log of the last training from the working directory; decoded images stay."""
        work = self.services.folder.work
        self.services.tools.stop_running_scripts()
        untrusted.remove_tree(work / DELIVERABLE_FOLDER)
        if untrusted.is_folder(work, LOG_FOLDER):
            for entry in untrusted.list_entries(work, LOG_FOLDER, skip=KEPT_LOG_FOLDERS):
                untrusted.remove_tree(work / LOG_FOLDER / entry.name)

    def finish(self) -> SearchSummary:
        """Write the plan of the selected candidate, or of the average of several, and return what the search gives."""
        assert self.samples is not None
        number = self.samples.select()
        self.restore_plan()
        if number != DEFAULT_NUMBER:
            self._make_plan(self.candidates[number], self.services.training.folds or 0)
        selection = self._make_ensemble_selection()
        choice, problem = selection.choose(), ""
        if choice is not None and choice.pays:
            try:
                plans = read_plans(self.folder, choice.candidates)
                self._write_plan(make_ensemble_plan(read_plan(self.services.folder.work), choice.candidates, plans))
            except (ModelError, ValueError) as error:
                problem = str(error)
        self._lengthen_last_training()
        return self._summarize(selection, choice, problem)

    def _lengthen_last_training(self) -> None:
        """Give the last training the time that the search left of the hours, unless the user said how long it takes."""
        options = self.services.options
        is_fixed = replace(options, train_minutes=None).training_minutes != options.training_minutes
        spare_minutes = 0.0 if is_fixed else max(0.0, self.search_seconds - self.spent_seconds()) / 60
        max_minutes = self.services.budget.cap_training_minutes(self.final_minutes + spare_minutes)
        self.last_minutes = self.final_minutes
        with contextlib.suppress(ModelError):
            plan = read_plan(self.services.folder.work)
            lengthened = lengthen_plan(plan, spare_minutes, max_minutes)
            self.last_minutes = parse_planned_minutes(lengthened.get("minutes")) or self.final_minutes
            if lengthened != plan:
                self._write_plan(lengthened)

    def summarize_without_average(self, problem: str) -> SearchSummary:
        """Return what the search gives if the average that it selected was not trained.

        Args:
            problem: why it was not.
        """
        selection = self._make_ensemble_selection()
        return self._summarize(selection, selection.choose(), problem)

    def _make_ensemble_selection(self) -> EnsembleSelection:
        assert self.samples is not None
        run, task = self.services.folder, self.selection.task
        plans = read_plans(self.folder, list(self.candidates))
        return make_ensemble_selection(self.samples, get_family(task), read_index(run.locked, task), plans, run.work)

    def _summarize(self, selection: EnsembleSelection, choice: EnsembleChoice | None, problem: str) -> SearchSummary:
        assert self.samples is not None
        ensemble, number = summarize_ensemble(choice, problem), self.samples.select()
        estimate = selection.estimate(choice, is_average=ensemble is not None and ensemble.selected)
        gain, lead = self.samples.gain_over_default(), self.samples.find_lead()
        return SearchSummary(
            metric=self.selection.metric,
            candidates=tuple(_summarize_candidate(candidate, self.samples) for candidate in self.list_candidates()),
            selected=number,
            value=estimate.value,
            corrected=estimate.corrected,
            low=estimate.low,
            high=estimate.high,
            optimism=estimate.optimism,
            gain=gain or (),
            best=self.samples.find_best(),
            lead=(lead.gain, lead.corrected, lead.error) if lead else (),
            folds=self.folds,
            cases=len(self.samples.patients),
            patients=self.samples.n_patients,
            minutes=round(self.spent_seconds() / 60, 2),
            stopped=self.stopped,
            proposals_left=self._count_proposals_left(),
            max_minutes=round(self.search_seconds / 60, 2),
            rung_minutes=tuple(round(minutes, 3) for minutes in self.minutes),
            final_minutes=self.last_minutes,
            training_cases=int(self.state.get_artifact(DataIndex).cases.get("train", 0)),
            ensemble=ensemble,
            min_steps=min_steps_of(self.selection.task),
        )

    def _count_proposals_left(self) -> int:
        """Return how many candidates of an agent the rest of the time holds."""
        count = 0
        while count < MAX_CANDIDATES and self.has_time(self.minutes[0] * (count + 1)):
            count += 1
        return count


def _summarize_candidate(candidate: Candidate, samples: SelectionSamples) -> PlanCandidate:
    """Return a candidate with the uncertainty of its last figure, which is that of its longest training that was measured."""
    is_measured = bool(candidate.figures)
    return PlanCandidate(
        number=candidate.number,
        source=candidate.source,
        settings=candidate.settings,
        minutes=round(candidate.minutes, 3),
        value=candidate.figures[-1] if is_measured else None,
        problem=candidate.problem,
        figures=tuple(candidate.figures),
        steps=tuple(candidate.steps),
        interval=(samples.interval(candidate.number) or ()) if is_measured else (),
        gain=(samples.gain_at_equal_time(candidate.number) or ()) if is_measured else (),
    )
