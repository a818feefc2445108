"""The candidates of a search over plans: the plan as it is, single changes from the search table, an agent's and a sampler's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from m3b.agents.search_table import MAX_PROPOSALS
from m3b.errors import SettingError, UsageError
from m3b.isolation import untrusted
from m3b.run.training_overrides import (
    NO_WEIGHTS,
    TrainingOverrides,
    check_overrides,
    quote_setting,
    to_plan_command,
    to_settings,
)
from m3b.training.search_space import is_same_branch, list_dimensions, needs_new_plan

PROPOSALS_FILE = "candidates.json"
"""File of the working directory in which the Model Trainer may propose candidates."""
MAX_PROPOSAL_BYTES = 1 << 16
MAX_PROPOSED_SETTINGS, MAX_PROPOSED_ITEMS, MAX_PROPOSED_CHARACTERS = 30, 16, 100
"""Settings of a proposed candidate, items of a list in it, and characters of a text."""
MAX_PROPOSED_NUMBER = 2**53
MAX_SINGLE_CHANGES = 5
"""Candidates with a single change from the table, before the sampler combines changes."""
MAX_REPEATED_DRAWS = 20
"""Draws of the sampler that repeat an earlier candidate, after which it has no further one."""
MODELLED_FROM = 4
"""Measured candidates from which the sampler models the figures; before, it draws at random."""
DEFAULT_NUMBER = 1
"""Number of the candidate without changes."""


@dataclass
class Candidate:
    """A candidate plan.

    Args:
        settings: by which it differs from the plan as it was before the search, by dotted name.
        minutes: of its longest training that was started.
        figures: the metric after each rung that it was measured in.
        steps: of each of its networks behind each figure, the fewest of several; 0 if unknown.
        problem: why its last training has no figure.
    """

    number: int
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    minutes: float = 0.0
    figures: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    problem: str = ""


def check_search_possible(training: TrainingOverrides) -> None:
    """Check that a search has its library, and that the user has left something to search.

    Raises:
        UsageError: Optuna is not installed.
        SettingError: a whole plan is given, or epochs instead of time.
    """
    if training.plan is not None:
        raise SettingError(
            "plan is a whole plan, so hours have nothing to search; leave out one of them.",
            "--plan is a whole plan, so --hours has nothing to search; leave out one of them.",
            "plan_and_hours",
        )
    if training.epochs is not None:
        raise SettingError(
            "epochs and hours both say how long to train; give one of them.",
            "--epochs and --hours both say how long to train; give one of them.",
            "epochs_and_hours",
        )
    if find_spec("optuna") is None:
        raise UsageError("A search (hours, --hours) needs Optuna: pip install 'm3b[search]'.")


def describe_searched_steps(steps: int) -> str:
    """Return what steps mean in a search, which counts minutes."""
    return (
        f"Steps and hours: the last training makes {steps:,} steps, and each training of a candidate the share of them that "
        "its minutes are of the minutes of the last one; the hours still end the search."
    )


class CandidateSource:
    """Gives the next candidate of a search.

    Args:
        plan: plan.json before the search.
        overrides: what the user fixed; candidates change none of it.
    """

    def __init__(self, task: str, plan: Mapping[str, Any], overrides: TrainingOverrides, seed: int = 0) -> None:
        machine = plan.get("machine")
        has_gpu = bool(machine.get("gpus")) if isinstance(machine, Mapping) else False
        self.task, self.overrides, self.seed = task, overrides, seed
        self.fixed = tuple(to_settings(overrides, task))
        self.space = list_dimensions(task, plan, has_gpu=has_gpu, fixed=self.fixed)

    def suggest(self, candidates: Sequence[Candidate], *, lower_is_better: bool) -> Candidate | None:
        """Return the next candidate, which no earlier one equals; None if there is none left.

        Args:
            candidates: the earlier ones with their figures.
        """
        number, known_settings = len(candidates) + 1, [candidate.settings for candidate in candidates]
        if not candidates:
            return Candidate(DEFAULT_NUMBER, "default")
        single_changes = [alternatives[0] for alternatives in self.space.values()][:MAX_SINGLE_CHANGES]
        for settings in single_changes:
            if settings not in known_settings:
                return Candidate(number, "table", settings)
        sampled = self._sample(candidates, known_settings, lower_is_better=lower_is_better)
        return None if sampled is None else Candidate(number, "sampler", sampled)

    def _sample(
        self, candidates: Sequence[Candidate], known_settings: Sequence[Mapping[str, Any]], *, lower_is_better: bool
    ) -> dict[str, Any] | None:
        """Return settings drawn by Optuna's TPE (Bergstra et al., NeurIPS 2011), which has seen the first figure of each candidate."""
        import optuna

        if not self.space:
            return None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(n_startup_trials=MODELLED_FROM, seed=self.seed + len(candidates))
        study = optuna.create_study(direction="minimize" if lower_is_better else "maximize", sampler=sampler)
        distributions: dict[str, optuna.distributions.BaseDistribution] = {
            key: optuna.distributions.CategoricalDistribution(range(len(alternatives) + 1))
            for key, alternatives in self.space.items()
        }
        for candidate in candidates:
            choices = self._list_choices(candidate.settings)
            if choices is not None and candidate.figures:
                study.add_trial(
                    optuna.trial.create_trial(params=choices, distributions=distributions, value=candidate.figures[0])
                )
        for _ in range(MAX_REPEATED_DRAWS):
            choices = study.ask(distributions).params
            settings = {
                key: value
                for name, choice in choices.items()
                if choice
                for key, value in self.space[name][choice - 1].items()
            }
            if settings not in known_settings:
                return settings
        return None

    def _list_choices(self, settings: Mapping[str, Any]) -> dict[str, int] | None:
        """Return the number of the alternative that settings take in each dimension, 0 for none; None if others are set."""
        choices, remaining = dict.fromkeys(self.space, 0), dict(settings)
        for name, alternatives in self.space.items():
            for number, alternative in enumerate(alternatives, 1):
                if alternative.items() <= remaining.items():
                    choices[name] = number
                    remaining = {key: value for key, value in remaining.items() if key not in alternative}
                    break
        return None if remaining else choices

    def make_plan_command(
        self, settings: Mapping[str, Any], plan: Mapping[str, Any], minutes: float, folds: int
    ) -> str:
        """Return the command that makes the plan of a candidate, in a project with the plan as it was before the search.

        Args:
            plan: as it was before the search.
            minutes: of the training of the selected candidate.
            folds: of the patients, on which all candidates are compared; 0 leaves them to the plan.

        Raises:
            SettingError: the settings cannot be meant or served, or the user fixed another value.
        """
        overrides = self._merge(settings, folds)
        if needs_new_plan(self.task, settings):
            return to_plan_command(overrides, self.task, minutes, self.seed)
        values = dict(settings)
        if folds and "folds" in plan:
            values["folds"] = folds
            if "cross_validation" in plan and folds > 1:
                values["cross_validation"] = True
        words = [quote_setting(key, value) for key, value in values.items()]
        return " ".join(["python plan.py --keep", *(["--set"] if words else []), *words])

    def _merge(self, settings: Mapping[str, Any], folds: int) -> TrainingOverrides:
        if fixed := next((key for key in settings for name in self.fixed if is_same_branch(key, name)), ""):
            message = f"{fixed} is fixed by the user."
            raise SettingError(message, message, "fixed_by_user")
        values = dict(settings)
        options = {
            name: str(values.pop(key))
            for key, name in (("network.name", "network"), ("network.pretrained", "pretrained"))
            if key in values
        }
        changes: dict[str, Any] = {**options, **({"folds": folds} if folds else {})}
        merged = replace(self.overrides, settings={**self.overrides.settings, **values}, **changes)
        check_overrides(merged, self.task)
        return merged

    def read_proposals(self, work: Path, plan: Mapping[str, Any], candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that the agent proposes in `PROPOSALS_FILE`; empty without such a file.

        Args:
            candidates: the earlier ones; repetitions are left out.

        Raises:
            UsageError: the file cannot be used; the message says which entry is wrong, and what it should be.
        """
        if not untrusted.is_file(work, PROPOSALS_FILE):
            return []
        example = '[{"settings": {"lr": 0.0005, "augment.rotate": 5}}]'
        try:
            entries = untrusted.read_json(work, PROPOSALS_FILE, MAX_PROPOSAL_BYTES)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{PROPOSALS_FILE} cannot be read as JSON ({error}). Write a list such as {example}."
            ) from None
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_PROPOSALS:
            raise UsageError(f"{PROPOSALS_FILE} must be a list of 1 to {MAX_PROPOSALS} candidates, such as {example}.")
        proposals: list[Candidate] = []
        known_settings = [candidate.settings for candidate in candidates]
        for position, entry in enumerate(entries, 1):
            settings = entry.get("settings") if isinstance(entry, dict) else None
            if not isinstance(settings, dict) or not settings:
                raise UsageError(
                    f"{PROPOSALS_FILE}: entry {position} has no `settings` of plan.json; an example is {example}."
                )
            if problem := find_proposal_problem(settings):
                raise UsageError(f"{PROPOSALS_FILE}: entry {position}: {problem}")
            try:
                self.make_plan_command(settings, plan, 1.0, 0)
            except SettingError as error:
                raise UsageError(f"{PROPOSALS_FILE}: entry {position}, {json.dumps(settings)}: {error}") from None
            if settings not in known_settings:
                known_settings.append(settings)
                proposals.append(Candidate(len(candidates) + len(proposals) + 1, "agent", settings))
        return proposals


def find_proposal_problem(settings: Mapping[str, Any]) -> str:
    """Return why an agent may not propose these settings; '' if it may.

    m3b itself reads the weights that a setting names, outside the sandbox, so that an agent may name no folder; and a value
    that cannot be stored or computed with would end the run.
    """
    if len(settings) > MAX_PROPOSED_SETTINGS:
        return f"it has {len(settings)} settings; at most {MAX_PROPOSED_SETTINGS} are allowed."
    for key, value in settings.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]{0,59}", key, re.ASCII):
            return "a name of a setting has other characters than letters, digits, `_` and `.`, or more than 60."
        items = value if isinstance(value, list) else [value]
        if len(items) > MAX_PROPOSED_ITEMS or not all(map(_is_plain_value, items)):
            return (
                f"{key} is neither a finite number, a short text, true, false or null, nor a list of at most "
                f"{MAX_PROPOSED_ITEMS} of them. Write nested settings as dotted names, such as `augment.rotate`."
            )
        if key in ("network.name", "network.pretrained") and not _is_known_network(key, value):
            return f"{key} must be a network of the template, an entry of `m3b models list`, or `none`; folders are the user's choice."
    return ""


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_PROPOSED_CHARACTERS and value.isprintable()
    if value is None or isinstance(value, bool):
        return True
    return isinstance(value, int | float) and abs(value) < MAX_PROPOSED_NUMBER


def _is_known_network(key: str, value: Any) -> bool:
    """Return whether a text names a network or an entry of the registry, and no folder."""
    from m3b.models.pretrained.registry import list_pretrained

    if not isinstance(value, str):
        return False
    is_plain_name = key == "network.name" and "/" not in value and value[:1] not in ("~", ".")
    return is_plain_name or value == NO_WEIGHTS or value in {entry.name for entry in list_pretrained()}
