"""Evaluate a model at work: whole episodes in m3b's own loop, scored by the reward, before and after training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.events import Event, ToolCalled, ToolReturned
from m3b.interactive.agent import MAX_TURNS, EpisodeRequest, run_episode
from m3b.interactive.episode import Episode
from m3b.interactive.episode_folder import EpisodeFolder
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle
from m3b.interactive.prompting_metrics import mean_with_interval
from m3b.interactive.segmenter import Segmenter
from m3b.interactive.targets import Target
from m3b.llm import LLM
from m3b.teaching.reward import EpisodeOutcome, RewardBreakdown, RewardWeights


@dataclass(frozen=True)
class EpisodeScore:
    """The outcome and reward of one episode."""

    patient: str
    calls: tuple[str, ...]
    outcome: EpisodeOutcome
    score: RewardBreakdown

    @property
    def is_valid(self) -> bool:
        """Whether it prompted, made no faulty call, and ended by a stop or with its last turn."""
        return self.score.form == 1 and not self.outcome.faults


class _EventRecorder(EpisodeFolder):
    """Keeps the events of an episode and writes nothing."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


def play_episodes(
    targets: Sequence[Target],
    segmenter: Segmenter,
    llm: LLM,
    *,
    max_turns: int = MAX_TURNS,
    style: PictureStyle = DEFAULT_STYLE,
    reward: RewardWeights | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[EpisodeScore]:
    """Let a model prompt for every target, as `m3b.interactive.segment` does, and score its episodes.

    Args:
        on_progress: called with the number of finished episodes.
    """
    weights, scores = reward or RewardWeights(), []
    for number, target in enumerate(targets, 1):
        episode, recorder = Episode(segmenter, target.image), _EventRecorder()
        result = run_episode(episode, EpisodeRequest(target.name, max_turns, style=style), llm, episode_folder=recorder)
        calls = tuple(event.name for event in recorder.events if isinstance(event, ToolCalled))
        answers = [event for event in recorder.events if isinstance(event, ToolReturned)]
        faults = sum(event.is_error for event in answers)
        stopped = bool(calls) and calls[-1] == "stop" and not answers[-1].is_error
        stopped = stopped or result.status == "turns_used"  # the loop ends there, and no further call is possible
        outcome = EpisodeOutcome.from_episode(episode, target, stopped=stopped, faults=faults)
        scores.append(EpisodeScore(target.patient, calls, outcome, weights.score(outcome)))
        on_progress(number)
    return scores


def compare_scores(before: Sequence[EpisodeScore], after: Sequence[EpisodeScore]) -> dict[str, Any]:
    """Compare the rewards on the same targets before and after training, with 95 % intervals over patients.

    Returns:
        `before`, `after` and `rise`, each with `mean`, `low` and `high`; `valid`, the share of valid episodes of
        either.
    """
    patients = [episode.patient for episode in before]
    if patients != [episode.patient for episode in after]:
        raise ValueError("the episodes before and after are not of the same targets")
    first, last = ([episode.score.total for episode in episodes] for episodes in (before, after))
    return {
        "before": mean_with_interval(first, patients),
        "after": mean_with_interval(last, patients),
        "rise": mean_with_interval([later - earlier for earlier, later in zip(first, last, strict=True)], patients),
        "valid": [
            sum(episode.is_valid for episode in episodes) / max(len(episodes), 1) for episodes in (before, after)
        ],
    }
