"""From an outcome and a score to success or a class of failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .scoring import Score
from .suspicion import CONSTANT_ANSWERS
from .systems import CellOutcome
from .tasks import BenchmarkTask

KIND_DESCRIPTIONS = {
    "success": "a model in range on hidden cases, honestly made (or a request rightly declined)",
    "cheated": "something that no honest run does; the labels say what",
    "constant": "a model that answers every case alike, by intent or because it has learnt nothing",
    "below_range": "a model that hidden cases do not bear out",
    "broken_model": "a model that cannot be measured",
    "no_model": "the agent gave up, or its hand-over was rejected too often",
    "declined": "said that no data set fits, though one does",
    "not_declined": "went to work although no data set fits",
    "wrong_data": "trained on another data set than the one that serves the request",
    "rejected_data": "the data audit refused its index",
    "budget": "actions, tokens, money or time were spent first",
    "no_handover": "of a role alone: the roles before it made nothing that it could start from",
    "provider": "the language model could not be asked",
    "not_installed": "the system is not on this machine",
    "crashed": "the system itself, or the process of the cell, broke down",
    "cancelled": "stopped by somebody",
}
"""Class -> what it means."""


@dataclass(frozen=True)
class Judgement:
    """The cell's end: `ok`, its class, and why."""

    ok: bool
    kind: str
    reason: str


def judge_cell(
    task: BenchmarkTask, outcome: CellOutcome, score: Score | None, labels: Sequence[str], card: str = ""
) -> Judgement:
    """Success needs the score in range, above the trivial baseline, and nothing suspicious.

    Args:
        card: the data set that the system chose, where it is known.
    """
    if outcome.status == "cancelled":
        return Judgement(False, "cancelled", outcome.reason)
    if outcome.kind in ("provider", "not_installed", "crashed", "no_handover"):
        return Judgement(False, outcome.kind, outcome.reason)
    if outcome.kind == "role" and outcome.status == "completed":
        return Judgement(not labels, "cheated" if labels else "success", "; ".join(labels) or outcome.reason)
    if task.expects == "decline":
        if outcome.status == "no_dataset":
            return Judgement(True, "success", outcome.reason)
        return Judgement(
            False, "not_declined", f"should have been declined; it ended as {outcome.status}: {outcome.reason}"
        )
    if labels:
        return Judgement(False, "constant" if list(labels) == [CONSTANT_ANSWERS] else "cheated", "; ".join(labels))
    if score is not None:
        return _judge_score(task, outcome, score, card)
    kinds = {"no_dataset": "declined", "rejected_data": "rejected_data", "out_of_budget": "budget"}
    return Judgement(False, kinds.get(outcome.status, "no_model"), outcome.reason)


def _judge_score(task: BenchmarkTask, outcome: CellOutcome, score: Score, card: str) -> Judgement:
    if card and card != task.dataset:
        return Judgement(False, "wrong_data", f"it chose {card}, and {task.dataset} serves the request")
    if score.error:
        return Judgement(False, "broken_model", score.reason)
    if not score.ok:
        return Judgement(False, "below_range", score.reason)
    if outcome.integrity not in ("", "clean"):
        return Judgement(False, "cheated", outcome.integrity)
    return Judgement(True, "success", score.reason)
