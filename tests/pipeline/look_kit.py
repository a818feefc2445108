"""A folder through `m3b look` and through a run by rules up to the accepted index, and what differs between the two."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_kit import of_kind

from m3b import Pipeline, Role, Stage
from m3b.agents.artifacts import DataIndex
from m3b.agents.check_result import CheckResult, reject
from m3b.data.index import LABELS, TEST, TRAIN
from m3b.run.dataset_preview import DatasetPreview, preview_dataset
from m3b.run.result import Result
from m3b.run.services import RunServices
from m3b.run.state import RunState

STOPPED = "The index is accepted, and this run ends here."


@dataclass(frozen=True)
class Nothing:
    """What the stage that ends a run hands over: never anything."""


class EndAfterIndex(Stage[Nothing]):
    """Ends a run before anything is trained."""

    role = Role("end_after_index", "End After Index")
    artifact = Nothing
    required_artifacts = (DataIndex,)

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        return reject(STOPPED, is_fatal=True)


@dataclass(frozen=True)
class Compared:
    """What `m3b look` and a run made of one folder and request.

    Args:
        look_index, run_index: parts of the index by file; empty if none was made or accepted.
        brief: what the run's Data Engineer was told; empty if the run ended before.
        origin: how the run's index came about.
    """

    preview: DatasetPreview
    result: Result
    look_index: dict[str, Any]
    run_index: dict[str, Any]
    brief: dict[str, Any]
    origin: str

    @property
    def is_accepted(self) -> bool:
        return STOPPED in self.result.reason

    def difference(self) -> str:
        """What the run did otherwise than `look` shows; empty if nothing."""
        if not self.brief:
            if self.preview.insufficient and self.preview.insufficient in self.result.reason:
                return ""
            return f"the run ended before the index: {self.result.status}: {self.result.reason}"
        if self.brief["task"] != self.preview.task:
            return f"look reads for {self.preview.task}, the run for {self.brief['task']}"
        shown_manifests = [proposal.manifest for proposal in self.preview.proposals[:1]]
        offered_manifests = [proposal["manifest"] for proposal in self.brief["readings"][:1]]
        if shown_manifests != offered_manifests:
            return f"look shows {shown_manifests}, the run is offered {offered_manifests}"
        executed = "The best manifest cannot be executed" not in self.preview.insufficient
        if executed and self.preview.insufficient != self.brief["insufficient"]:
            return f"look asks {self.preview.insufficient!r}, the run is told {self.brief['insufficient']!r}"
        if self.preview.insufficient:
            return f"look asks, and the run goes on: {self.result.reason}" if self.is_accepted else ""
        if self.origin == "proposed" and self.run_index != self.look_index:
            return f"other cases: {_sizes(self.run_index)} for {_sizes(self.look_index)}"
        told_by_check = "the check does not accept" in self.result.reason
        return "" if self.is_accepted or told_by_check else f"{self.result.status}: {self.result.reason}"


def compare(data: Path, request: str, top: Path) -> Compared:
    """Look at a folder that is called `data`, and let the rules index it in a run of the real pipeline."""
    place, out = top / "place", top / "run"
    place.mkdir()
    preview = preview_dataset(data, request, place)
    stages = ["task_manager", "data_engineer", EndAfterIndex(), "module_architect", "model_trainer"]
    result = Pipeline("rules", data=[data], out=out, stages=stages).run(request)
    briefs = [fact for prompt in of_kind(out, "prompt") for fact in prompt["facts"] if fact["kind"] == "index"]
    index_artifacts = [artifact["value"] for artifact in of_kind(out, "artifact") if artifact["artifact"] == "index"]
    return Compared(
        preview,
        result,
        _index(place / "work") if preview.counts else {},
        _index(out / "locked") if index_artifacts else {},
        briefs[0] if briefs else {},
        index_artifacts[-1]["origin"] if index_artifacts else "",
    )


def _index(work: Path) -> dict[str, Any]:
    return {name: json.loads((work / name).read_text(encoding="utf-8")) for name in (TRAIN, TEST, LABELS)}


def _sizes(index: dict[str, Any]) -> dict[str, int]:
    return {name: len(part) for name, part in index.items()}
