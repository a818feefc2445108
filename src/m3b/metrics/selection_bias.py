"""Selection of the best of several candidates on the same cases, and by how much its figure is too good for that reason.

The figure on which a candidate was selected is too good, because the luckiest of several candidates is selected. The bias is
estimated by BBC-CV (Tsamardinos, Greasidou and Borboudakis, "Bootstrapping the out-of-sample predictions for efficient and
accurate cross-validation", Machine Learning 107, 2018): the whole selection is repeated on bootstrap samples of patients, and
each candidate that it selects is measured on the patients that the sample leaves out, which had no part in its selection.

The default plan stays unless another candidate is better by more than luck, by the rule of one standard error (Breiman, Friedman,
Olshen and Stone, Classification and Regression Trees, 1984, section 3.4.3): its gain, corrected as above and paired over patients,
has to be larger than its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = Mapping[str, Any]
"""One measured case; `patient` names its patient."""
Figures = Mapping[int, Sequence[float]]
"""Number of a candidate -> its figure in each rung that it reached, the first rung first; larger is better, NaN if undefined."""
REDUCTION = 3
"""One of so many candidates goes on to the next rung (Jamieson and Talwalkar, AISTATS 2016, and Optuna's default is 4)."""
DRAWS = 200
"""Bootstrap samples of patients."""
MIN_PATIENTS = 10
"""Minimum patients for an estimate of the bias."""
MIN_DEFINED_DRAWS = 20
"""Minimum bootstrap samples in which the figure of the selected candidate must be defined."""


def latest_figure(figures: Sequence[float], rung: int) -> float:
    """Return the figure of a candidate in a rung, or in the last one before it that it reached; -inf if it is undefined."""
    value = figures[min(rung, len(figures) - 1)] if figures else math.nan
    return -math.inf if math.isnan(value) else value


def choose_survivors(figures: Figures, numbers: Sequence[int], rung: int, default: int) -> list[int]:
    """Return the candidates that go on from a rung, the best first: a third of them and the default, at least two if there are.

    Args:
        numbers: of the candidates in this rung.
        default: candidate that is never dropped, so that every other one is compared with it to the end.
    """
    ranked = sorted(numbers, key=lambda number: (-latest_figure(figures[number], rung), number))
    kept = ranked[: max(1, math.ceil(len(ranked) / REDUCTION))]
    if default in ranked and default not in kept:
        kept.append(default)
    return kept if len(kept) > 1 else ranked[:2]


def select_candidate(figures: Figures, default: int) -> int:
    """Return the best candidate by successive halving, of those that went furthest; among equals, that with the lowest number.

    Raises:
        ValueError: there are no candidates.
    """
    if not figures:
        raise ValueError("no candidate was measured, so none can be selected")
    survivors = list(figures)
    for rung in range(max(map(len, figures.values())) - 1):
        survivors = choose_survivors(figures, survivors, rung, default)
    furthest = max(len(figures[number]) for number in survivors)
    finalists = [number for number in survivors if len(figures[number]) == furthest]
    return min(finalists, key=lambda number: (-latest_figure(figures[number], furthest), number))


@dataclass(frozen=True)
class Lead:
    """The best candidate against the default after the same training; figures are such that larger is better.

    Args:
        number: the best candidate, see `select_candidate`.
        gain: over the default on the same cases.
        corrected: `gain` without that from selecting.
        error: standard error of `gain`, paired over patients.
    """

    number: int
    gain: float
    corrected: float
    error: float


@dataclass(frozen=True)
class SelectionEstimate:
    """The figure of the selected candidate and its correction, in the units of the metric.

    Args:
        value: the figure on which it was selected.
        corrected: what a candidate that is selected in this way reaches on patients that had no part in its selection; None if
            there are too few patients.
        low, high: 95 % interval of `corrected`.
        optimism: by how much `value` is better than `corrected`, positive if it is too good.
        draws: bootstrap samples that the estimate comes from.
    """

    value: float
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    optimism: float | None = None
    draws: int = 0


class SelectionSamples:
    """Figures of candidates on bootstrap samples of patients, the same samples for all of them.

    Args:
        patients: the patient of each case; all candidates were measured on these cases in this order.
        score: the figure of measured cases; ValueError or NaN if it is undefined for them.
        lower_is_better: whether a smaller figure is better.
        default: the candidate that is never dropped, see `choose_survivors`.
    """

    def __init__(
        self,
        patients: Sequence[str],
        score: Callable[[Sequence[Row]], float],
        *,
        lower_is_better: bool = False,
        default: int = 1,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        self.patients, self._score, self._default = list(patients), score, default
        self.sign = -1 if lower_is_better else 1
        names, groups = np.unique(np.asarray(self.patients, dtype=object).astype(str), return_inverse=True)
        counts = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
        self.n_patients, self.draws = len(names), draws
        self._repeats: NDArray[np.int64] = counts[:, groups]
        self._rows: dict[int, list[Sequence[Row]]] = {}
        self._values: dict[tuple[int, int, int], float] = {}
        self._errors: dict[tuple[int, int], float] = {}
        self._lead_optimism: float | None = None

    def add(self, number: int, rows: Sequence[Row]) -> None:
        """Add the measured cases of a candidate in its next rung.

        Raises:
            ValueError: these are other cases than those of the first candidate.
        """
        if [str(row["patient"]) for row in rows] != list(map(str, self.patients)):
            raise ValueError(f"candidate {number} was measured on other cases than the first candidate")
        self._rows.setdefault(number, []).append(rows)
        self._lead_optimism = None

    def list_figures(self) -> dict[int, list[float]]:
        """Return the figures on all cases, larger is better."""
        return {number: [self.score(rows) for rows in rungs] for number, rungs in self._rows.items()}

    def list_rows(self, number: int) -> list[Sequence[Row]]:
        """Return the measured cases of a candidate in each rung that it reached."""
        return self._rows[number]

    def list_rivals(self, number: int) -> list[int]:
        """Return the other candidates that went as far as a candidate."""
        rungs = len(self._rows[number])
        return [other for other, rows in self._rows.items() if other != number and len(rows) == rungs]

    def select(self) -> int:
        """Return the best candidate if it is better than the default by more than luck, else the default.

        The best one if the default could not be measured; the default if too few patients are there for an estimate of luck.

        Raises:
            ValueError: there is none.
        """
        return self._select(self.list_figures())

    def select_in_bag(self, draw: int) -> int:
        """Return the candidate that is selected on a bootstrap sample, where the margin over the default is that on all cases."""
        return self._select(self._figures_in_bag(self._count_rungs(), draw))

    def find_best(self) -> int:
        """Return the candidate with the best figure, lucky or not. Raises ValueError if there is none."""
        return select_candidate(self.list_figures(), self._default)

    def find_lead(self) -> Lead | None:
        """Return the best candidate and its gain over the default.

        None if the default is the best, if it could not be measured, or if too few patients are there for an estimate.
        """
        figures = self.list_figures()
        best, default = select_candidate(figures, self._default), self._default
        if best == default or default not in figures or math.isinf(self._get_lead_optimism()):
            return None
        gain, rung = self._gain_of(best, figures)
        return Lead(best, gain, gain - self._get_lead_optimism(), self._error_of(best, rung))

    def _select(self, figures: Figures) -> int:
        """Return the candidate that is selected by these figures."""
        best = select_candidate(figures, self._default)
        if best == self._default or self._default not in figures:
            return best
        gain, rung = self._gain_of(best, figures)
        return best if gain - self._get_lead_optimism() > self._error_of(best, rung) else self._default

    def _gain_of(self, number: int, figures: Figures) -> tuple[float, int]:
        """Return the gain of a candidate over the default in the last rung that both reached, and that rung."""
        rung = min(len(figures[number]), len(figures[self._default])) - 1
        return latest_figure(figures[number], rung) - latest_figure(figures[self._default], rung), rung

    def _error_of(self, number: int, rung: int) -> float:
        """Return the standard error of the gain of a candidate over the default, paired over patients; infinite if unknown."""
        key = (number, rung)
        if key not in self._errors:
            gains = [
                self._in_bag(number, rung, draw) - self._in_bag(self._default, rung, draw) for draw in range(self.draws)
            ]
            defined = [gain for gain in gains if math.isfinite(gain)]
            self._errors[key] = float(np.std(defined)) if len(defined) >= MIN_DEFINED_DRAWS else math.inf
        return self._errors[key]

    def _get_lead_optimism(self) -> float:
        """Return by how much the gain of the best candidate over the default is too good; infinite if it cannot be estimated."""
        if self._lead_optimism is None:
            self._lead_optimism = self._compute_lead_optimism()
        return self._lead_optimism

    def _compute_lead_optimism(self) -> float:
        if self.n_patients < MIN_PATIENTS:
            return math.inf
        figures, rungs = self.list_figures(), self._count_rungs()
        gain, _ = self._gain_of(select_candidate(figures, self._default), figures)
        left_out = []
        for draw in range(self.draws):
            drawn_figures = self._figures_in_bag(rungs, draw)
            drawn = select_candidate(drawn_figures, self._default)
            _, rung = self._gain_of(drawn, drawn_figures)
            left_out.append(self._out_of_bag(drawn, rung, draw) - self._out_of_bag(self._default, rung, draw))
        defined = [value for value in left_out if math.isfinite(value)]
        return max(0.0, gain - float(np.mean(defined))) if len(defined) >= MIN_DEFINED_DRAWS else math.inf

    def _count_rungs(self) -> dict[int, int]:
        return {number: len(rungs) for number, rungs in self._rows.items()}

    def _figures_in_bag(self, rungs: Mapping[int, int], draw: int) -> dict[int, list[float]]:
        """Return the figures of the first rungs of each candidate, as many as given, on a bootstrap sample."""
        return {number: [self._in_bag(number, rung, draw) for rung in range(count)] for number, count in rungs.items()}

    def figure_in_bag(self, number: int, draw: int) -> float:
        """Return the figure of a candidate in its last rung on the patients of a bootstrap sample, larger is better."""
        return self._in_bag(number, -1, draw)

    def expected_gain(self, numbers: Sequence[int]) -> float:
        """Return how much better than the best candidate the truly best of these would be, in the mean over the samples.

        This is the expected value of perfect information (Raiffa and Schlaifer, Applied Statistical Decision Theory, 1961), with
        the bootstrap samples as possible truths: what can at most be gained by comparing these candidates for longer.
        """
        table = np.array([[self._in_bag(number, -1, draw) for number in numbers] for draw in range(self.draws)])
        table = table[np.isfinite(table).all(axis=1)]
        return float(table.max(axis=1).mean() - table.mean(axis=0).max()) if len(table) else math.inf

    def estimate(self) -> SelectionEstimate:
        """Return the figure of the selected candidate with its correction.

        Candidates that were dropped have no figures of longer trainings, with which the whole selection could be repeated. So the
        bias is at least that of selecting the best by its first figure, which all candidates have.

        Raises:
            ValueError: there is no candidate.
        """
        figures = self.list_figures()
        best = figures[self._select(figures)][-1]
        value = self.sign * best
        if self.n_patients < MIN_PATIENTS:
            return SelectionEstimate(value)
        whole = self._repeat_selection(figures)
        if len(whole) < MIN_DEFINED_DRAWS:
            return SelectionEstimate(value)
        whole_optimism = best - float(whole.mean())
        optimism = max(0.0, whole_optimism)  # a selection makes no figure worse: what is below 0 is noise
        if max(map(len, figures.values())) > 1:
            first_figures = {number: rungs[:1] for number, rungs in figures.items()}
            first = self._repeat_selection(first_figures)
            if len(first) >= MIN_DEFINED_DRAWS:
                best_first = first_figures[self._select(first_figures)][0]
                optimism = max(optimism, best_first - float(first.mean()))
        shifted = whole - (optimism - whole_optimism)
        low, high = sorted(self.sign * float(bound) for bound in np.quantile(shifted, (0.025, 0.975)))
        return SelectionEstimate(value, self.sign * (best - optimism), low, high, optimism, len(whole))

    def _repeat_selection(self, figures: Figures) -> NDArray[np.float64]:
        """Return the defined figures, on the patients left out, of the candidates that bootstrap samples select.

        Args:
            figures: on all cases; the rungs that it has are those of the selection.
        """
        rungs = {number: len(values) for number, values in figures.items()}
        values = []
        for draw in range(self.draws):
            selected = self._select(self._figures_in_bag(rungs, draw))
            values.append(self._out_of_bag(selected, rungs[selected] - 1, draw))
        return np.array([item for item in values if math.isfinite(item)])

    def gain_over_default(self) -> tuple[float, float, float] | None:
        """Return by how much the selected candidate is better than the default, with a paired 95 % interval over patients.

        The gain is that of the selection, so it is too good by about the optimism. None if the default was selected or failed.
        """
        best = self.select()
        return None if best == self._default or self._default not in self._rows else self.compare(best, self._default)

    def compare(self, number: int, other_number: int, rung: int = -1) -> tuple[float, float, float] | None:
        """Return by how much a candidate is better than another one in a rung, with a paired 95 % interval over patients.

        None if too few samples define both.

        Args:
            rung: counted from 0; -1 for the last one of each.
        """
        pairs = [
            (self._in_bag(number, rung, draw), self._in_bag(other_number, rung, draw)) for draw in range(self.draws)
        ]
        gains = np.array([first - second for first, second in pairs if math.isfinite(first) and math.isfinite(second)])
        if len(gains) < MIN_DEFINED_DRAWS:
            return None
        low, high = (float(bound) for bound in np.quantile(gains, (0.025, 0.975)))
        return self.score(self._rows[number][rung]) - self.score(self._rows[other_number][rung]), low, high

    def gain_at_equal_time(self, number: int) -> tuple[float, float, float] | None:
        """Return by how much a candidate is better than the default after the same training, as `compare` does.

        The rung is the last one of the candidate. None for the default itself, if it was not measured in that rung, or if there are
        too few patients.
        """
        rung, default_rows = len(self._rows[number]) - 1, self._rows.get(self._default, [])
        if number == self._default or len(default_rows) <= rung or self.n_patients < MIN_PATIENTS:
            return None
        return self.compare(number, self._default, rung)

    def interval(self, number: int) -> tuple[float, float] | None:
        """Return the 95 % interval over patients of a candidate's figure in its last rung, in the units of the metric.

        None if there are too few patients, or too few samples define it.
        """
        if self.n_patients < MIN_PATIENTS:
            return None
        drawn = [self._in_bag(number, -1, draw) for draw in range(self.draws)]
        figures = [self.sign * figure for figure in drawn if math.isfinite(figure)]
        if len(figures) < MIN_DEFINED_DRAWS:
            return None
        low, high = (float(bound) for bound in np.quantile(figures, (0.025, 0.975)))
        return low, high

    def score(self, rows: Sequence[Row]) -> float:
        """Return the figure of measured cases, larger is better; NaN if it is undefined."""
        try:
            return self.sign * float(self._score(rows))
        except ValueError:  # too few cases of a class
            return math.nan

    def _in_bag(self, number: int, rung: int, draw: int) -> float:
        rung %= len(self._rows[number])
        key = (number, rung, draw)
        if key not in self._values:
            self._values[key] = self.score_in_bag(self._rows[number][rung], draw)
        return self._values[key]

    def score_in_bag(self, rows: Sequence[Row], draw: int) -> float:
        """Return the figure of measured cases on the patients of a bootstrap sample, larger is better.

        Args:
            rows: of all cases, in their order.
        """
        repeats = self._repeats[draw].tolist()
        return self.score([row for row, count in zip(rows, repeats, strict=True) for _ in range(count)])

    def score_out_of_bag(self, rows: Sequence[Row], draw: int) -> float:
        """Return the figure on the patients that a bootstrap sample leaves out; NaN if there are none."""
        repeats = self._repeats[draw].tolist()
        left_out = [row for row, count in zip(rows, repeats, strict=True) if not count]
        return self.score(left_out) if left_out else math.nan

    def _out_of_bag(self, number: int, rung: int, draw: int) -> float:
        return self.score_out_of_bag(self._rows[number][rung], draw)
