"""A search over plans as a short text: a table of its candidates, and what selecting the best of them means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from m3b.facts import PlanCandidate, SearchSummary
from m3b.markup.formatting import format_interval, shorten
from m3b.metrics.metric_tables import lower_is_better
from m3b.metrics.selection_bias import choose_survivors

MAX_SHOWN_CANDIDATES = 20
MAX_SETTINGS_CHARS = 160
"""Characters of the settings of a candidate in a table; those that do not fit are counted."""
MAX_PROPOSALS = 8
"""Candidates that the Model Trainer may propose at a time."""
STOP_REASONS = {
    "time": "the remaining time holds no further training",
    "min_gain": "going on was expected to gain less than the minimum that was set",
    "done": "all candidates of each rung were trained",
}
SOURCE_TITLES = {
    "default": "the plan itself",
    "table": "search table of the task",
    "sampler": "sampler",
    "agent": "Model Trainer",
}
"""Source of a candidate -> its name in tables."""
TABLE_HEAD = (
    "candidate | proposed by | training | steps | validation figure (95 %) | gain over the plan unchanged (95 %) | settings | "
    "outcome"
)
UNKNOWN = "-"
"""Cell of a table whose value is not known."""


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as `key=value` in one line; for none, that the plan is unchanged."""
    texts = [
        shorten(f"{key}={json.dumps(value, ensure_ascii=False)}", MAX_SETTINGS_CHARS) for key, value in settings.items()
    ]
    shown = [
        text
        for text, end in zip(texts, accumulate(len(text) + 2 for text in texts), strict=True)
        if end <= MAX_SETTINGS_CHARS + 2
    ]
    if left := len(texts) - len(shown):
        shown.append(f"and {left} more")
    return ", ".join(shown) or "the plan unchanged"


def describe_search(summary: SearchSummary) -> str:
    """Return what a search found, in sentences, then a line for each candidate, those with the longest training first."""
    candidates = _sort_candidates(summary)[:MAX_SHOWN_CANDIDATES]
    lines = [
        *describe_comparison(summary),
        describe_selection(summary),
        TABLE_HEAD,
        *(format_candidate(item, summary) for item in candidates),
    ]
    return "\n".join(lines)


def describe_comparison(summary: SearchSummary) -> list[str]:
    """Return how candidates were compared, a sentence each: their number, the time, and the cases behind their figures."""
    return [
        f"{_count_candidates(summary)} {describe_end(summary)}",
        *filter(
            None,
            [
                describe_training_time(summary),
                _describe_cases(summary),
                _describe_short_trainings(summary),
                _describe_uncertainty(summary),
            ],
        ),
    ]


def _count_candidates(summary: SearchSummary) -> str:
    total = len(summary.candidates)
    n_measured = sum(candidate.value is not None for candidate in summary.candidates)
    noun = "candidate plan was" if total == 1 else "candidate plans were"
    if n_measured == total:
        return f"{total} {noun} trained and measured."
    return f"{n_measured} of {total} candidate plans could be measured; the training of the others failed."


def describe_end(summary: SearchSummary) -> str:
    """Return the time of a search, and why it ended."""
    limit = f" of its {summary.max_minutes:.3g}" if summary.max_minutes else ""
    reason = STOP_REASONS[summary.stopped]
    n_trainings = sum(len(item.figures) + bool(item.problem) for item in summary.candidates)
    if summary.stopped == "time" and summary.max_minutes and n_trainings:
        left = max(0.0, summary.max_minutes - summary.minutes)
        reason += (
            f": one took {summary.minutes / n_trainings:.2g} min in the mean, all included, and {left:.2g} min are left"
        )
    return f"The search took {summary.minutes:.3g}{limit} min, planning and measuring included, and ended because {reason}."


def describe_training_time(summary: SearchSummary) -> str:
    """Return how long candidates were trained, and that their figures are not those of the delivered model; '' if unknown."""
    if not summary.rung_minutes or not summary.final_minutes:
        return ""
    first, *longer = summary.rung_minutes[: _count_rungs(summary)]
    networks = f" ({summary.folds} networks together)" if summary.folds > 1 else ""
    further = "".join(
        f"; the best third and the plan unchanged went on to rung {rung} with {minutes:.3g} min"
        for rung, minutes in enumerate(longer, 2)
    )
    return (
        f"Each candidate was trained for {first:.3g} min{networks}{' in rung 1' if longer else ''}{further}. The selected plan is "
        f"then trained for {summary.final_minutes:.3g} min: figures of these shorter trainings compare plans, and do not say how good "
        "the delivered model is."
    )


def _count_rungs(summary: SearchSummary) -> int:
    """Return the rungs that candidates were trained in, at least one."""
    return max((len(item.figures) + bool(item.problem) for item in summary.candidates), default=1) or 1


def _describe_cases(summary: SearchSummary) -> str:
    """Return which cases are behind the figures."""
    counts = f"{summary.cases} cases of {summary.patients} patients"
    if summary.folds == 1:
        return f"Each figure is measured on {counts}, which every candidate holds out of its training."
    source = f"on {counts}"
    if summary.cases < summary.training_cases:
        source = (
            f"on {summary.cases} of the {summary.training_cases} training cases ({summary.patients} patients), spread evenly over "
            "them to save time for training"
        )
    return f"Each figure is measured {source}; a case is predicted by the network that was trained without its patient."


def list_short_trainings(summary: SearchSummary) -> list[int]:
    """Return the candidates whose figure is of a training with fewer than `min_steps` steps of each network."""
    return [item.number for item in summary.candidates if item.steps and 0 < item.steps[-1] < summary.min_steps]


def list_uncertain_gains(summary: SearchSummary) -> list[int]:
    """Return the candidates whose difference from the plan unchanged, after the same training, has an interval that includes 0."""
    return [item.number for item in summary.candidates if item.gain and item.gain[1] <= 0 <= item.gain[2]]


def _describe_short_trainings(summary: SearchSummary) -> str:
    """Return which candidates made too few steps to be compared; "" if none did."""
    short = list_short_trainings(summary)
    if not short:
        return ""
    which = "All candidates" if len(short) == len(summary.candidates) else f"{_name_candidates(short)}"
    return (
        f"{which} made fewer than {summary.min_steps} steps of each network, below which plan.py makes the input or the network "
        "smaller: a training too short to be compared."
    )


def _describe_uncertainty(summary: SearchSummary) -> str:
    """Return which candidates differ from the plan unchanged by less than their uncertainty; "" if no interval is known."""
    compared = [item.number for item in summary.candidates if item.gain]
    uncertain = list_uncertain_gains(summary)
    if not compared:
        return ""
    if not uncertain:
        return "Each candidate differs from the plan unchanged by more than the 95 % interval of its gain."
    subject = (
        "No candidate differs" if len(uncertain) == len(compared) else f"{_name_candidates(uncertain)} do not differ"
    )
    if len(uncertain) == 1 < len(compared):
        subject = f"Candidate {uncertain[0]} does not differ"
    return (
        f"{subject} from the plan unchanged by more than its uncertainty: after the same training, the 95 % interval of the gain "
        "includes 0. Intervals are paired over patients, and not corrected for the selection."
    )


def _name_candidates(numbers: Sequence[int]) -> str:
    return f"Candidate{'s' if len(numbers) > 1 else ''} {_join_numbers(numbers)}"


def describe_selection(summary: SearchSummary) -> str:
    """Return the figure of the selected candidate, by how much it is too good, and its gain over the plan as it was."""
    selected = next(item for item in summary.candidates if item.number == summary.selected)
    minutes, is_shortened = _figure_minutes(selected, summary), bool(summary.final_minutes)
    after = (
        f" after {minutes:.3g} of {summary.final_minutes:.3g} min of training, no figure of the delivered model"
        if is_shortened
        else ""
    )
    text = f"{_name_selection(summary)}: validation {summary.metric} {summary.value:.3f}{after}"
    if summary.corrected is None or summary.value is None:
        text += ", too good by an unknown amount, since it was selected by this figure"
    else:
        sign = -1 if lower_is_better(summary.metric) else 1
        optimism = sign * (
            round(summary.value, 3) - round(summary.corrected, 3)
        )  # of the printed figures, so that they add up
        text += (
            f"; corrected for the selection {summary.corrected:.3f} (95 % {summary.low:.3f} to {summary.high:.3f}), an optimism of "
            f"{optimism:.3f}"
        )
    if summary.gain:
        gain, low, high = summary.gain
        subject = f"Gain of candidate {summary.selected}" if summary.ensemble and summary.ensemble.selected else "Gain"
        text += f". {subject} over the plan unchanged, on the same cases: {gain:+.3f} ({low:+.3f} to {high:+.3f}), optimism included"
    return f"{text}.{_describe_lead(summary)}{_describe_ensemble(summary)}"


def _describe_lead(summary: SearchSummary) -> str:
    """Return why the candidate with the best figure was not selected; "" if it was."""
    if summary.best in {0, summary.selected}:
        return ""
    figure = f" Candidate {summary.best} has the best figure, but"
    if not summary.lead:
        return f"{figure} with the {summary.patients} patients held out no gain can be told from luck: the plan unchanged stays."
    gain, corrected, error = summary.lead
    return (
        f"{figure} its gain over the plan unchanged after the same training, {gain:+.3f}, corrected for the selection "
        f"{corrected:+.3f}, is not above its standard error, {error:.3f}: the plan unchanged stays."
    )


def _name_selection(summary: SearchSummary) -> str:
    """Return what was selected, with its settings: a candidate, or the average of several."""
    settings = {item.number: format_settings(item.settings) for item in summary.candidates}
    ensemble, count = summary.ensemble, len(summary.candidates)
    if ensemble is None or not ensemble.selected:
        return f"Candidate {summary.selected} of {count} was selected ({settings[summary.selected]})"
    names = "; ".join(f"{number}: {settings[number]}" for number in ensemble.candidates)
    return (
        f"The average of candidates {_join_numbers(ensemble.candidates)} of {count} was selected, which divide the time of the last "
        f"training equally ({names})"
    )


def _describe_ensemble(summary: SearchSummary) -> str:
    """Return a sentence on the average of the best candidates; "" if none was compared."""
    ensemble = summary.ensemble
    if ensemble is None:
        return ""
    gain = f"{ensemble.gain:+.3f} ({ensemble.low:+.3f} to {ensemble.high:+.3f})"
    basis = f"over candidate {summary.selected} alone, on the same cases, corrected for the selection"
    if ensemble.selected:
        return f" Gain of the average {basis}: {gain}; in equal time {ensemble.equal_time_gain:+.3f}."
    if ensemble.problem:
        reason = f"it was not trained: {ensemble.problem}"
    elif ensemble.low <= 0:
        reason = "its interval includes no gain, so it is not taken"
    else:
        reason = f"in equal time it is {ensemble.equal_time_gain:+.3f}, so it is not taken"
    return f" Average of candidates {_join_numbers(ensemble.candidates)}: gain {gain} {basis}; {reason}."


def _join_numbers(numbers: Sequence[int]) -> str:
    """Return `4, 2 and 7`."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def describe_next_step(summary: SearchSummary) -> str:
    """Return what the Model Trainer does after a search: whether it may propose further candidates, and which plan it trains."""
    minutes = f"{summary.final_minutes:.3g} min" if summary.final_minutes else "minutes"
    training = (
        f"train plan.json, the plan that was selected, once, for its {minutes}. There is no second training, whatever its "
        "log shows: the search has compared what one would change."
    )
    if not summary.proposals_left:
        return (
            "The search is over: its remaining time holds no further candidate, so none can be proposed. Networks of candidates are "
            f"not delivered. Now {training}"
        )
    count = min(MAX_PROPOSALS, summary.proposals_left)
    return (
        f"The search can go on: its remaining time holds {f'{count} more candidates' if count > 1 else 'one more candidate'}. If the "
        'table suggests any, do not train yet: write candidates.json, a list such as `[{"settings": {"lr": 0.0005, '
        '"augment.rotate": 5}}]` of settings of plan.json (dotted names) that differ from the plan unchanged, and say that you are '
        "done. m3b trains and measures them like the others, and sends you the new table. Networks of candidates are not delivered. "
        f"If you propose nothing, {training}"
    )


def format_candidate(candidate: PlanCandidate, summary: SearchSummary) -> str:
    """Return one line of the table; its head is `TABLE_HEAD`."""
    figure = f"{summary.metric} {candidate.value:.3f}" if candidate.value is not None else "no figure"
    if candidate.interval:
        figure += f" ({format_interval(*candidate.interval)})"
    source, minutes = SOURCE_TITLES.get(candidate.source, candidate.source), _figure_minutes(candidate, summary)
    return (
        f"{candidate.number} | {source} | {minutes:.3g} min | {format_steps(candidate.steps[-1:], summary)} | {figure} | "
        f"{format_gain(candidate)} | {format_settings(candidate.settings)} | {describe_outcome(candidate, summary)}"
    )


def format_steps(steps: Sequence[int], summary: SearchSummary | None = None) -> str:
    """Return steps of trainings, the first one first; too few for a comparison are marked."""
    min_steps = summary.min_steps if summary is not None else 0
    texts = [f"{count:,}{' (too few)' if count < min_steps else ''}" if count else UNKNOWN for count in steps]
    return ", ".join(texts) or UNKNOWN


def format_gain(candidate: PlanCandidate) -> str:
    """Return the gain over the plan unchanged with its interval."""
    if not candidate.gain:
        return UNKNOWN
    gain, low, high = candidate.gain
    return f"{gain:+.3f} ({low:+.3f} to {high:+.3f})"


def is_selected(candidate: PlanCandidate, summary: SearchSummary) -> bool:
    """Return whether the last training is that of the candidate, alone or as a part of the average."""
    is_part = (
        summary.ensemble is not None and summary.ensemble.selected and candidate.number in summary.ensemble.candidates
    )
    return is_part or candidate.number == summary.selected


def describe_outcome(candidate: PlanCandidate, summary: SearchSummary) -> str:
    """Return what became of a candidate: selected, dropped or failed, in which rung and why."""
    if is_selected(candidate, summary):
        return "selected" if candidate.number == summary.selected else "selected, as a part of the average"
    rung, last_rung = len(candidate.figures), max((len(item.figures) for item in summary.candidates), default=0)
    if candidate.problem:
        return f"failed in rung {rung + 1}: {shorten(candidate.problem, 120)}"
    if not rung:
        return "not selected" if candidate.value is not None else "not measured"
    if candidate.number == summary.best:
        return "not selected: the best figure, but its gain may be luck"
    if rung == last_rung:
        where = f" in rung {rung}, the last" if last_rung > 1 else ""
        return f"not selected: another candidate has a better figure{where}"
    if candidate.number in _list_survivors(summary, rung):
        return f"not trained in rung {rung + 1}: {STOP_REASONS[summary.stopped]}"
    return f"dropped after rung {rung}: not among the best third"


def _list_survivors(summary: SearchSummary, rung: int) -> list[int]:
    """Return the candidates that go on from a rung, counted from 1."""
    sign = -1 if lower_is_better(summary.metric) else 1
    figures = {
        item.number: [sign * figure for figure in item.figures]
        for item in summary.candidates
        if len(item.figures) >= rung
    }
    default = next((item.number for item in summary.candidates if item.source == "default"), 0)
    return choose_survivors(figures, list(figures), rung - 1, default)


def _figure_minutes(candidate: PlanCandidate, summary: SearchSummary) -> float:
    """Return the minutes of the training that a candidate's figure is of; without a figure, those of its longest training."""
    rung = len(candidate.figures)
    return summary.rung_minutes[rung - 1] if 0 < rung <= len(summary.rung_minutes) else candidate.minutes


def _sort_candidates(summary: SearchSummary) -> list[PlanCandidate]:
    return sorted(summary.candidates, key=lambda item: (item.number != summary.selected, -item.minutes, item.number))
