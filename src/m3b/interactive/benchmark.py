"""Benchmark of interactive segmentation on a labelled set: an agent compared with oracles that know the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from m3b.interactive.agent import MAX_TURNS, EpisodeRequest, run_episode
from m3b.interactive.episode import Episode
from m3b.interactive.prompting_metrics import EpisodeFigures, summarize_episodes
from m3b.interactive.segmenter import Segmenter
from m3b.interactive.simulated_user import (
    CAREFUL_USER,
    ORACLE_BOX,
    ORACLE_BOX_AND_CLICKS,
    ORACLE_CLICKS,
    SimulatedUser,
    prompt_from_truth,
)
from m3b.interactive.targets import Target, compute_overlap
from m3b.llm import LLM
from m3b.llm.base import require_vision

SIMULATED_USERS: dict[str, SimulatedUser] = {
    "box oracle": ORACLE_BOX,
    "click oracle": ORACLE_CLICKS,
    "box and click oracle": ORACLE_BOX_AND_CLICKS,
    "simulated person": CAREFUL_USER,
}
NO_AGENT = "no agent"
"""The segmenter prompted with the whole image as its box: what it segments by itself."""


@dataclass(frozen=True)
class Benchmark:
    """The results of a benchmark.

    Args:
        systems: name -> the episodes, in the order of the targets.
        turns: the maximum number of turns.
        exclusions: why cases gave no target, with counts.
    """

    segmenter: str
    systems: dict[str, tuple[EpisodeFigures, ...]]
    turns: int
    exclusions: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "segmenter": self.segmenter,
            "turns": self.turns,
            "left_out": self.exclusions,
            "systems": {name: summarize_episodes(episodes, self.turns) for name, episodes in self.systems.items()},
            "episodes": {name: [asdict(episode) for episode in episodes] for name, episodes in self.systems.items()},
        }

    def format_table(self) -> str:
        """Return the metrics as text: a row a system; 95 % intervals over patients in brackets."""
        header = ["system", *(f"Dice {turn}" for turn in range(1, self.turns + 1))]
        header += ["kept", "clicks to 0.90", "DSC-AUC", "turns", "requests"]
        rows = [header]
        for name, episodes in self.systems.items():
            summary_values = summarize_episodes(episodes, self.turns)
            figures = [
                *summary_values["dice_by_turn"],
                summary_values["dice_kept"],
                summary_values["clicks_to_dice_90"],
                summary_values["dsc_auc"],
                summary_values["turns"],
            ]
            rows.append([name, *map(_format_figure, figures), str(summary_values["requests"])])
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def run_benchmark(
    targets: Sequence[Target],
    segmenter: Segmenter,
    *,
    llm: LLM | None = None,
    turns: int = MAX_TURNS,
    seed: int = 0,
    exclusions: dict[str, int] | None = None,
    on_progress: Callable[[str, int, int], None] = lambda system, done, total: None,
) -> Benchmark:
    """Run every oracle, and the agent if a model is given, on every target.

    Args:
        on_progress: called with the system, the number of finished targets, and the number of targets.
    """
    systems: dict[str, tuple[EpisodeFigures, ...]] = {}
    for name, user in {NO_AGENT: None, **SIMULATED_USERS}.items():
        rng, episodes = np.random.default_rng(seed), []
        for number, target in enumerate(targets, 1):
            episodes.append(_run_simulated_user(target, segmenter, user, turns, rng))
            on_progress(name, number, len(targets))
        systems[name] = tuple(episodes)
    if llm is not None:
        model, episodes = require_vision(llm, "segmenting"), []
        for number, target in enumerate(targets, 1):
            episodes.append(_run_agent(target, segmenter, model, turns))
            on_progress(llm.name, number, len(targets))
        systems[f"agent ({llm.name})"] = tuple(episodes)
    return Benchmark(segmenter.name, systems, turns, dict(exclusions or {}))


def _run_simulated_user(
    target: Target, segmenter: Segmenter, user: SimulatedUser | None, turns: int, rng: np.random.Generator
) -> EpisodeFigures:
    episode = Episode(segmenter, target.image)
    if user is None:
        from m3b.interactive.segmenter import BoxPrompt

        masks = [episode.add(BoxPrompt(0, 0, target.image.shape[1], target.image.shape[0])).mask]
    else:
        limited_user = SimulatedUser(
            user.box_first, user.box_noise, user.click_noise, min(user.max_clicks, turns - user.box_first)
        )
        masks = prompt_from_truth(episode, target, limited_user, rng)
    overlaps = [compute_overlap(target.clear_ignored(mask), target.truth) for mask in masks]
    dice, iou = tuple(pair[0] for pair in overlaps), tuple(pair[1] for pair in overlaps)
    return EpisodeFigures(target.case, target.patient, target.name, dice, iou, max(dice, default=0.0))


def _run_agent(target: Target, segmenter: Segmenter, llm: LLM, turns: int) -> EpisodeFigures:
    episode = Episode(segmenter, target.image)
    result = run_episode(episode, EpisodeRequest(target.name, turns), llm)
    overlaps = [compute_overlap(target.clear_ignored(turn.mask), target.truth) for turn in result.turns]
    return EpisodeFigures(
        target.case, target.patient, target.name,
        tuple(pair[0] for pair in overlaps), tuple(pair[1] for pair in overlaps),
        compute_overlap(target.clear_ignored(result.mask), target.truth)[0],
        result.usage.total_tokens, result.usage.cost_usd, result.usage.requests,
    )  # fmt: skip


def _format_figure(figure: dict[str, float | None]) -> str:
    low, high = figure["low"], figure["high"]
    interval_text = f" ({low:.3f}-{high:.3f})" if low is not None and high is not None else ""
    return f"{figure['mean']:.3f}{interval_text}"
