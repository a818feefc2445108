"""What m3b decides about a folder and a request: a proposal, one question, or a refusal."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from m3b.dataset.manifest.model import Manifest, Task

DoubtCode = Literal[
    "fewer_classes",
    "target_not_marked",
    "classes_overlap",
    "legend_not_applied",
    "test_part_without_targets",
    "rival",
    "unexplained_exclusions",
    "images_without_target",
    "unlisted_images",
    "use_forbidden",
    "images_missing",
    "several_series",
    "split_not_used",
    "mask_size_differs",
    "turned_pixels",
    "request_contradicted",
    "weak_evidence",
    "groups_cross_split",
    "patients_unknown",
    "task_unclear",
    "part_of_request_not_served",
]
"""Why a proposal may need a person. `BLOCKING` names those with which nothing is proposed."""

BLOCKING: frozenset[DoubtCode] = frozenset(
    {
        "fewer_classes",
        "target_not_marked",
        "classes_overlap",
        "legend_not_applied",
        "test_part_without_targets",
        "rival",
        "unexplained_exclusions",
        "unlisted_images",
        "use_forbidden",
        "images_missing",
        "several_series",
        "split_not_used",
        "mask_size_differs",
        "turned_pixels",
        "request_contradicted",
        "weak_evidence",
        "task_unclear",
    }
)


class OutcomePart(BaseModel):
    """Frozen; compared by value, from and to JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(OutcomePart):
    """A measured fact that speaks for a proposal.

    Args:
        code: of the feature.
        message: one sentence with the numbers, for people and agents.
    """

    code: str
    message: str


class Doubt(OutcomePart):
    """A measured fact that speaks against a proposal, with the numbers."""

    code: DoubtCode
    message: str


class Assumption(OutcomePart):
    """What the request claims and nothing in the folder confirms, or how many images without a target are left out or negative.

    Args:
        kind: of the claim: modality, anatomy, target, classes, dimension; or `exclusions`, `negatives`, `copies`, `series`.
    """

    kind: str
    claim: str
    message: str


class ManifestProposal(OutcomePart):
    """A manifest with its evidence.

    Args:
        title: what is read from where, in one line.
        score: probability that every part is right, from learnt weights (`weights.json`).
        features: the measured values that gave the score.
        cases, classes: of the index as far as names tell; cases a class.
    """

    manifest: Manifest
    title: str
    score: float
    features: dict[str, float] = {}
    evidence: tuple[Evidence, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    cases: int = 0
    classes: dict[str, int] = {}

    @property
    def blocking(self) -> tuple[Doubt, ...]:
        """The doubts with which it cannot be proposed."""
        return tuple(doubt for doubt in self.doubts if doubt.code in BLOCKING)


class Question(OutcomePart):
    """One ambiguity that a person can settle.

    Args:
        code: the doubt that it settles.
        text: the question.
        options: what can be answered, each with the place of its proposal in `Outcome.proposals`.
        remedy: how to answer without a terminal (an option of `m3b run`, or a manifest to edit).
    """

    code: DoubtCode
    text: str
    options: tuple[str, ...] = ()
    remedy: str = ""


class Refusal(OutcomePart):
    """Why the folder cannot serve the request.

    Args:
        code: what is missing.
        message: what was found, what is needed.
        remedy: what to do next.
    """

    code: str
    message: str
    remedy: str


class Outcome(OutcomePart):
    """The one decision that `look`, `Pipeline.plan` and `run` share.

    Args:
        kind: `proposed`: nothing that decides is open. `ask`: one question. `refuse`: something is missing.
        task: of the best proposal, or what the request asks for; empty if neither is known.
        proposals: best first; with `ask` they are the candidates.
        assumptions: images without a target, then claims of the request that nothing in the folder confirms.
    """

    kind: Literal["proposed", "ask", "refuse"]
    task: Task | None = None
    proposals: tuple[ManifestProposal, ...] = ()
    question: Question | None = None
    refusal: Refusal | None = None
    assumptions: tuple[Assumption, ...] = ()
