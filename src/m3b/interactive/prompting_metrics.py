"""Metrics of interactive segmentation: by turn, number of clicks, area under the curve of five clicks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from m3b.metrics.bootstrap import bootstrap_interval, resampling_weights
from m3b.metrics.edges import largest_unseen_share, share_edges

TARGET_DICE = 0.9
"""Dice up to which clicks are counted: NoC@90."""
CURVE_CLICKS = 5
BOOTSTRAP_DRAWS = 2000


@dataclass(frozen=True)
class EpisodeFigures:
    """The metrics of one episode.

    Args:
        dice: after each turn.
        iou: likewise.
        kept: Dice of the mask that was delivered.
        requests: to a language model.
    """

    case: str
    patient: str
    name: str
    dice: tuple[float, ...]
    iou: tuple[float, ...]
    kept: float
    tokens: int = 0
    cost_usd: float = 0.0
    requests: int = 0


@dataclass(frozen=True)
class _PatientGroups:
    """The patient number of each episode, in the form that the bootstrap takes."""

    patient: Any
    n_cases: int = field(default=0)
    n_patients: int = field(default=0)


def value_after(values: Sequence[float], turn: int) -> float:
    """Return the value after a turn: an episode that ended earlier keeps its last value, one without any mask has 0."""
    return values[min(turn, len(values)) - 1] if values and turn > 0 else 0.0


def count_clicks_to(values: Sequence[float], max_turns: int, target: float = TARGET_DICE) -> int:
    """Return the number of prompts to reach a Dice of `target`; `max_turns` if it is never reached.

    Benchmarks count like this.
    """
    return next((turn for turn, value in enumerate(values, 1) if value >= target), max_turns)


def compute_dsc_auc(values: Sequence[float]) -> float:
    """Return the DSC-AUC: the trapezoid over the Dice after each of five clicks, at most 4.0.

    As in the CVPR 2025 interactive challenge.
    """
    curve = [value_after(values, turn) for turn in range(1, CURVE_CLICKS + 1)]
    return float(np.trapezoid(curve))


def summarize_episodes(episodes: Sequence[EpisodeFigures], turns: int) -> dict[str, Any]:
    """Return means with 95 % intervals over patients, as JSON values."""
    groups = _group_by_patient([episode.patient for episode in episodes])
    figures: dict[str, Any] = {"episodes": len(episodes), "patients": groups.n_patients}
    if not episodes:
        return figures
    for key in ("dice", "iou"):
        figures[f"{key}_by_turn"] = [
            _compute_mean([value_after(getattr(episode, key), turn) for episode in episodes], groups, share=True)
            for turn in range(1, turns + 1)
        ]
    figures["dice_kept"] = _compute_mean([episode.kept for episode in episodes], groups, share=True)
    figures["clicks_to_dice_90"] = _compute_mean([count_clicks_to(episode.dice, turns) for episode in episodes], groups)
    figures["reached_dice_90"] = sum(max(episode.dice, default=0.0) >= TARGET_DICE for episode in episodes)
    figures["dsc_auc"] = _compute_mean([compute_dsc_auc(episode.dice) for episode in episodes], groups)
    figures["turns"] = _compute_mean([len(episode.dice) for episode in episodes], groups)
    figures["tokens"] = sum(episode.tokens for episode in episodes)
    figures["cost_usd"] = round(sum(episode.cost_usd for episode in episodes), 6)
    figures["requests"] = sum(episode.requests for episode in episodes)
    return figures


def mean_with_interval(values: Sequence[float], patients: Sequence[str]) -> dict[str, float | None]:
    """Return the mean of one number an episode, with its 95 % interval over patients: `mean`, `low`, `high`."""
    return _compute_mean(values, _group_by_patient(patients))


def _group_by_patient(patients: Sequence[str]) -> _PatientGroups:
    groups = {name: number for number, name in enumerate(dict.fromkeys(patients))}
    return _PatientGroups(np.array([groups[name] for name in patients]), len(patients), len(groups))


def _compute_mean(values: Sequence[float], groups: _PatientGroups, share: bool = False) -> dict[str, float | None]:
    array = np.array(values, dtype=np.float64)
    bootstrap_means = np.concatenate(
        [w @ array / w.sum(axis=1) for w in resampling_weights(groups, BOOTSTRAP_DRAWS, 0)]
    )
    edges = share_edges(largest_unseen_share(groups.n_patients)) if share else ()
    low, high = bootstrap_interval(float(array.mean()), bootstrap_means, groups.n_patients, edges)
    return {"mean": float(array.mean()), "low": low, "high": high}
