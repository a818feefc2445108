"""Metrics of the user: a function of measured cases, with the same interval and baseline comparison as m3b's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from m3b.metrics import Measure, Scores, canonical_metric
from m3b.metrics.metric_tables import AddedMetric, add_metric, added_metrics

if TYPE_CHECKING:
    from m3b.data.index import Index
    from m3b.metrics.cases import Floats
    from m3b.tasks.base import Row, TaskFamily

BOOTSTRAP_DRAWS = 1000


@dataclass(frozen=True)
class Metric:
    """A user's metric for models of a task, in addition to m3b's own.

    It is registered by `Pipeline(metrics=[...])`, by `register()`, or by an entry point of the group `m3b.metrics`. A
    data card or a request may then name it.

    Args:
        name: the name as it is written and shown.
        task: the task whose cases it is computed from.
        compute: a function from measured cases to a number, or NaN if it is undefined for them. Each case is a row of
            JSON values: `image`, `patient`, and what `TaskFamily.measure` of the task adds. The bootstrap calls it
            1,000 times with the cases of patients drawn with replacement, and as often for the best image-blind baseline.
        lower_is_better: whether less is better.
        is_unbounded: whether it is not a share between 0 and 1, for example millimetres.
        aliases: further spellings.
    """

    name: str
    task: str
    compute: Callable[[Sequence[Row]], float]
    lower_is_better: bool = False
    is_unbounded: bool = False
    aliases: tuple[str, ...] = ()

    def register(self) -> None:
        """Make the metric known in this process; an added metric of the same name is replaced.

        Raises:
            ValueError: there is no such task, m3b has a metric of this name, or another task has one with the opposite
                direction.
        """
        add_metric(self.task, self.name, AddedMetric(self.lower_is_better, self.is_unbounded, self.aliases, self))


def score_all(
    task_family: TaskFamily,
    rows: Sequence[Row],
    index: Index,
    *,
    primary: str,
    baseline: object = None,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> Scores:
    """Return the result of `TaskFamily.score`, plus the metrics that users added to the task (`m3b.Metric`)."""
    user_metrics = added_metrics(task_family.name)
    if not user_metrics:
        return task_family.score(rows, index, primary=primary, baseline=baseline, seed=seed)
    name = canonical_metric(primary, task_family.name)
    is_user_metric = name not in task_family.metrics.names
    builtin_metric = task_family.get_default_metric(index) if is_user_metric else name
    scores = task_family.score(rows, index, primary=builtin_metric, baseline=baseline, seed=seed)
    baseline_rows = task_family.make_baseline_rows(rows, index, baseline)
    user_measures = {
        metric.name: measure_metric(metric, rows, baseline_rows, seed=seed, draws=draws) for metric in user_metrics
    }
    metrics = {**scores.metrics, **user_measures}
    return replace(scores, primary=metrics[name], metrics=metrics)


def measure_metric(
    metric: Metric,
    rows: Sequence[Row],
    baseline_rows: Sequence[Sequence[Row]] = (),
    *,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> Measure:
    """Measure the metric on all cases, with a 95 % interval over patients, and compare it with the best baseline.

    Args:
        baseline_rows: the same cases with the predictions of each image-blind baseline.

    Raises:
        ValueError: there are no rows.
    """
    import numpy as np

    from m3b.metrics.bootstrap import bootstrap_interval, gain_at_edge, has_spread, paired_interval
    from m3b.metrics.edges import edges_of, largest_unseen_share

    bootstrap = _PatientBootstrap(rows, draws, seed)
    value, samples = float(metric.compute(rows)), bootstrap.sample_metric(metric, rows)
    values = [float(metric.compute(item)) for item in baseline_rows]
    defined = [k for k, item in enumerate(values) if not np.isnan(item)]
    best_position = (min if metric.lower_is_better else max)(defined, key=values.__getitem__) if defined else None
    baseline = None if best_position is None else values[best_position]
    perfect = 0.0 if metric.lower_is_better else None if metric.is_unbounded else 1.0
    worst_rate = largest_unseen_share(bootstrap.patient_count)
    edges = edges_of(
        worst_rate, perfect, baseline, share=not metric.is_unbounded, lower_is_better=metric.lower_is_better
    )
    low, high = bootstrap_interval(value, samples, bootstrap.patient_count, edges)
    if best_position is None:
        return Measure(metric.name, value, low, high, len(rows), patients=bootstrap.patient_count)
    baseline_samples = bootstrap.sample_metric(metric, baseline_rows[best_position])
    gain = (
        paired_interval(samples, baseline_samples, bootstrap.patient_count, metric.lower_is_better)
        if has_spread(samples)
        else None
    )
    gain = gain_at_edge(gain, (low, high), next((edge for edge in edges if edge.value == perfect), None), baseline)
    return Measure(metric.name, value, low, high, len(rows), baseline, gain, bootstrap.patient_count)


class _PatientBootstrap:
    """The same bootstrap samples of patients for every set of rows."""

    def __init__(self, rows: Sequence[Row], draws: int, seed: int) -> None:
        import numpy as np

        names = list(dict.fromkeys(row["patient"] for row in rows))
        if not names:
            raise ValueError("no cases to score: the list of predictions is empty")
        self.patient_count = len(names)
        cases = [[n for n, row in enumerate(rows) if row["patient"] == name] for name in names]
        rng = np.random.default_rng(seed)
        patient_draws = rng.integers(0, self.patient_count, size=(draws, self.patient_count))
        self._drawn_cases = [[case for patient in draw for case in cases[patient]] for draw in patient_draws.tolist()]

    def sample_metric(self, metric: Metric, rows: Sequence[Row]) -> Floats:
        """Return the metric of each sample, (draws,)."""
        import numpy as np

        return np.array([metric.compute([rows[case] for case in draw]) for draw in self._drawn_cases], dtype=np.float64)
