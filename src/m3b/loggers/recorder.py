"""What a run tells its loggers, from its events: parameters, curves, measurements, tags and names of files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from m3b.events import ArtifactAccepted, Event, ModelDelivered, RunEnded, RunStarted, ScriptOutput, ToolReturned
from m3b.isolation import untrusted
from m3b.loggers.base import LoggedRun, ParameterValue, RunLogger
from m3b.loggers.training_log import LogPosition, read_new_rows
from m3b.measure import to_number

PLAN_FILE = "work/plan.json"
MAX_PARAMETERS, MAX_PARAMETER_CHARS = 200, 200
REFERENCES = {"model": "model", "report": "report.html", "journal": "journal.jsonl"}
"""What a run leaves -> its name in the run folder."""


class RunRecorder:
    """Passes on to a logger what the events of a run say.

    Args:
        progress: what was passed on before, as `progress` of the recorder of an earlier process.
    """

    def __init__(self, logger: RunLogger, run: LoggedRun, progress: Mapping[str, Any]) -> None:
        self._logger, self._run, self._status = logger, run, ""
        self._position = LogPosition(**progress.get("position", {}))
        self._planned_attempts = int(progress.get("planned_attempts", 0))
        self._models, self._test_looks = int(progress.get("models", 0)), int(progress.get("test_looks", 0))

    @property
    def key(self) -> str:
        return self._logger.key

    @property
    def progress(self) -> dict[str, Any]:
        """What was passed on so far, as JSON values."""
        return {
            "position": asdict(self._position),
            "planned_attempts": self._planned_attempts,
            "models": self._models,
            "test_looks": self._test_looks,
        }

    def record_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._logger.set_tags({"run": event.id, "sandbox": event.sandbox["name"]})
            case ScriptOutput() | ToolReturned():
                self._log_training(event.at)
            case ArtifactAccepted(artifact="selection", value=value):
                self._logger.set_tags({"task": str(value.get("task", "")), "metric": str(value.get("metric", ""))})
            case ArtifactAccepted(artifact="model", value=value):
                self._log_training(event.at)
                self._models += 1
                self._log_measures({"validation": value.get("validation")}, self._models, event.at)
            case ModelDelivered():
                self._set_references("model")
            case RunEnded(result=result):
                self._log_training(event.at)
                self._log_result(result, event.at)

    def close(self) -> None:
        self._logger.close(self._status)

    def _log_training(self, at: float) -> None:
        for row in read_new_rows(self._run.folder, self._position):
            if self._planned_attempts < self._position.attempt:
                self._planned_attempts = self._position.attempt
                self._logger.log_parameters(read_parameters(self._run.folder, self._position.attempt))
            self._logger.log_figures(row.figures, row.step, at)

    def _log_result(self, result: Mapping[str, Any], at: float) -> None:
        self._status = str(result.get("status", ""))
        self._logger.set_tags({"status": self._status, "integrity": str(result.get("integrity", ""))})
        self._set_references("report", "journal")
        test_looks = int(result.get("test_looks") or 0)
        if test_looks > self._test_looks:  # a run that is resumed ends with the same figures again
            self._test_looks = test_looks
            external = {f"external/{name}": site.get("primary") for name, site in result.get("external", {}).items()}
            measures = {f"test/{name}": measure for name, measure in result.get("metrics", {}).items()}
            self._log_measures({**measures, **external}, test_looks, at)

    def _log_measures(self, measures: Mapping[str, Any], step: int, at: float) -> None:
        """Log value, interval and baseline of measures, as `Measure.to_dict` returns them."""
        figures = dict(figure for prefix, measure in measures.items() for figure in _list_figures(prefix, measure))
        if figures:
            self._logger.log_figures(figures, step, at)

    def _set_references(self, *kinds: str) -> None:
        self._logger.set_tags({f"file.{kind}": REFERENCES[kind] for kind in kinds})


def _list_figures(prefix: str, measure: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    """Yield name and value: of the measure `auroc` of `external/north` that is `external/north/auroc`, `..._low` and so on."""
    for key in ("value", "low", "high", "baseline"):
        if measure and (value := to_number(measure.get(key))) is not None:
            metric = str(measure.get("name", ""))
            name = prefix if prefix.endswith(f"/{metric}") else f"{prefix}/{metric}"
            yield name if key == "value" else f"{name}_{key}", value


def read_parameters(folder: Path, attempt: int = 1) -> dict[str, ParameterValue]:
    """Return the settings of the training plan by their dotted names; of paths only the last part.

    Args:
        attempt: number of the training; from the second one on, names begin with it.
    """
    try:
        plan = untrusted.read_json(folder, PLAN_FILE)
    except (OSError, ValueError):
        return {}
    prefix = f"attempt{attempt}." if attempt > 1 else ""
    settings = _flatten(plan, prefix) if isinstance(plan, dict) else ()
    return dict(item for item, _ in zip(settings, range(MAX_PARAMETERS), strict=False))


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ParameterValue]]:
    for key, value in values.items():
        name = prefix + re.sub(r"[^\w.-]+", "_", str(key), flags=re.ASCII)
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, bool | int | float):
            yield name, value
        elif isinstance(value, list):
            yield name, ", ".join(map(_format_text, value))[:MAX_PARAMETER_CHARS]
        elif value is not None:
            yield name, _format_text(value)


def _format_text(value: object) -> str:
    return str(value).rstrip("/").rpartition("/")[2][:MAX_PARAMETER_CHARS]
