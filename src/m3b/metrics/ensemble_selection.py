"""Selection of the average of the best candidates in place of the best one, on the same cases, with its bias.

The average of two or three candidates has more chances to look good than one of them. So its gain is corrected like the figure of a
selected candidate (`selection_bias`): on bootstrap samples of patients the candidates are selected and averaged anew, and the average
is compared with the best candidate on the patients that the sample leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m3b.metrics.selection_bias import (
    MIN_DEFINED_DRAWS,
    MIN_PATIENTS,
    REDUCTION,
    Row,
    SelectionEstimate,
    SelectionSamples,
)

MAX_AVERAGED = REDUCTION
"""Maximum candidates in an average: so many trainings of a rung take no longer than one of the next rung."""
AverageRows = Callable[[Sequence[Sequence[Row]]], Sequence[Row]]
"""Returns the measured cases of an average from those of each candidate, in the same order."""
Candidates = tuple[int, ...]


@dataclass(frozen=True)
class EnsembleChoice:
    """The best average of candidates, and whether it is better than the best candidate alone; gains are positive if it is.

    Args:
        candidates: numbers of the averaged candidates; the first is the best one.
        value: figure of the average, in the units of the metric.
        gain: over the best candidate after the same training of each, corrected for the selection.
        low, high: 95 % interval of `gain`, paired over patients.
        equal_time_gain: of the average of shorter trainings, which together take no longer than that of the best candidate.
        threshold: gain without correction above which `low` is above 0.
    """

    candidates: tuple[int, ...]
    value: float
    gain: float
    low: float
    high: float
    equal_time_gain: float
    threshold: float

    @property
    def pays(self) -> bool:
        """Return whether the average is better beyond chance, and no worse in equal time."""
        return self.low > 0 and self.equal_time_gain >= 0


@dataclass(frozen=True)
class _Comparison:
    """The best candidate and the best average on all cases or on a bootstrap sample; gains are as in `EnsembleChoice`, uncorrected."""

    best: int
    candidates: tuple[int, ...] = ()
    gain: float = math.nan
    equal_time_gain: float = math.nan


class EnsembleSelection:
    """Averages of the candidates that went furthest in a search.

    Args:
        groups: candidate -> its group; candidates of one group can be averaged, others cannot be averaged at all.
    """

    def __init__(self, samples: SelectionSamples, average: AverageRows, groups: Mapping[int, str]) -> None:
        self.samples, self._average, self._groups = samples, average, dict(groups)
        self._averages: dict[tuple[Candidates, int], Sequence[Row]] = {}
        self._values: dict[tuple[Candidates, int, int, bool], float] = {}
        self._drawn: list[_Comparison] = []

    def choose(self) -> EnsembleChoice | None:
        """Return the best average of candidates.

        None if no two candidates can be averaged, if there was one rung, so that nothing is known about equal time, or if there are
        too few patients.
        """
        samples = self.samples
        figures = samples.list_figures()
        whole = self._compare(
            samples.select(),
            lambda number: figures[number][-1],
            lambda candidates, rung: samples.score(self._average_of(candidates, rung)),
        )
        if samples.n_patients < MIN_PATIENTS or not math.isfinite(whole.gain):
            return None
        gains = [
            self._score_in_bag(whole.candidates, -1, draw) - samples.figure_in_bag(whole.best, draw)
            for draw in range(samples.draws)
        ]
        left_out = [self._gain_out_of_bag(comparison, draw) for draw, comparison in enumerate(self._draw())]
        gains, left_out = ([gain for gain in values if math.isfinite(gain)] for values in (gains, left_out))
        if min(len(gains), len(left_out)) < MIN_DEFINED_DRAWS:
            return None
        optimism = max(0.0, whole.gain - float(np.mean(left_out)))
        low, high = (float(bound) - optimism for bound in np.quantile(gains, (0.025, 0.975)))
        return EnsembleChoice(
            whole.candidates,
            samples.sign * samples.score(self._average_of(whole.candidates, -1)),
            whole.gain - optimism,
            low,
            high,
            whole.equal_time_gain,
            whole.gain - low,
        )

    def estimate(self, choice: EnsembleChoice | None, *, is_average: bool) -> SelectionEstimate:
        """Return the figure of what is selected, the best candidate or the average, corrected for both choices.

        Each sample takes the average if its gain there is above the threshold of `choice`. The bias is at least that of selecting
        among single candidates.

        Args:
            choice: from `choose`.
            is_average: whether the average is selected.
        """
        estimate, samples = self.samples.estimate(), self.samples
        if choice is None:
            return estimate
        values = []
        for draw, drawn in enumerate(self._draw()):
            takes_average = drawn.gain > choice.threshold and drawn.equal_time_gain >= 0
            values.append(self._score_out_of_bag(drawn.candidates if takes_average else (drawn.best,), draw))
        defined = np.array([value for value in values if math.isfinite(value)])
        selected = samples.sign * (choice.value if is_average else estimate.value)
        if estimate.optimism is None or len(defined) < MIN_DEFINED_DRAWS:
            return SelectionEstimate(samples.sign * selected)
        optimism = max(estimate.optimism, selected - float(defined.mean()))
        shifted = defined + (selected - optimism - float(defined.mean()))
        low, high = sorted(samples.sign * float(bound) for bound in np.quantile(shifted, (0.025, 0.975)))
        value, corrected = samples.sign * selected, samples.sign * (selected - optimism)
        return replace(estimate, value=value, corrected=corrected, low=low, high=high, optimism=optimism)

    def _draw(self) -> list[_Comparison]:
        """Return the comparison of each bootstrap sample, whose candidates are selected and averaged anew."""
        if not self._drawn:
            self._drawn = [self._compare_in_bag(draw) for draw in range(self.samples.draws)]
        return self._drawn

    def _compare_in_bag(self, draw: int) -> _Comparison:
        samples = self.samples
        return self._compare(
            samples.select_in_bag(draw),
            lambda number: samples.figure_in_bag(number, draw),
            lambda candidates, rung: self._score_in_bag(candidates, rung, draw),
        )

    def _compare(
        self, best: int, figure_of: Callable[[int], float], score: Callable[[Candidates, int], float]
    ) -> _Comparison:
        """Return the best of the averages of the best candidate with the next ones of its group that went as far.

        Args:
            best: the selected candidate.
            figure_of: a candidate in its last rung.
            score: an average in a rung, which counts from the end.
        """
        group = self._groups.get(best)
        rivals = self.samples.list_rivals(best) if group is not None else []
        partners = [number for number in rivals if self._groups.get(number) == group]
        if len(self.samples.list_rows(best)) < 2 or not partners:
            return _Comparison(best)
        partners.sort(key=lambda number: (-np.nan_to_num(figure_of(number), nan=-math.inf), number))
        options = [(best, *partners[:count]) for count in range(1, min(MAX_AVERAGED, 1 + len(partners)))]
        figures = {option: score(option, -1) for option in options}
        candidates = max(options, key=lambda option: (np.nan_to_num(figures[option], nan=-math.inf), -len(option)))
        best_figure = figure_of(best)
        gain = figures[candidates] - best_figure
        equal_time_gain = score(candidates, -2) - best_figure
        is_defined = math.isfinite(gain) and math.isfinite(equal_time_gain)
        return _Comparison(best, candidates, gain, equal_time_gain) if is_defined else _Comparison(best)

    def _average_of(self, candidates: Candidates, rung: int) -> Sequence[Row]:
        """Return the measured cases of an average, or of a single candidate; `rung` counts from the end, -1 for the last."""
        if len(candidates) == 1:
            return self.samples.list_rows(candidates[0])[rung]
        if (candidates, rung) not in self._averages:
            rows = [self.samples.list_rows(number)[rung] for number in candidates]
            self._averages[candidates, rung] = self._average(rows)
        return self._averages[candidates, rung]

    def _gain_out_of_bag(self, drawn: _Comparison, draw: int) -> float:
        if not drawn.candidates:
            return math.nan
        return self._score_out_of_bag(drawn.candidates, draw) - self._score_out_of_bag((drawn.best,), draw)

    def _score_in_bag(self, candidates: Candidates, rung: int, draw: int) -> float:
        key = (candidates, rung, draw, True)
        if key not in self._values:
            self._values[key] = self.samples.score_in_bag(self._average_of(candidates, rung), draw)
        return self._values[key]

    def _score_out_of_bag(self, candidates: Candidates, draw: int) -> float:
        key = (candidates, -1, draw, False)
        if key not in self._values:
            self._values[key] = self.samples.score_out_of_bag(self._average_of(candidates, -1), draw)
        return self._values[key]
