"""MLflow: a file store in the run folder, or the store of MLFLOW_TRACKING_URI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from m3b.loggers.base import LoggedRun, ParameterValue

EXPERIMENT = "m3b"
"""Experiment of the runs unless MLFLOW_EXPERIMENT_NAME names another one."""
FILE_STORE_VARIABLE = "MLFLOW_ALLOW_FILE_STORE"
"""MLflow opens a file store only if this is set; its database needs further packages and seconds for each run."""
MAX_BATCH = 100
"""MLflow's limit of parameters in one request."""
RUN_STATUS = {"completed": "FINISHED", "below_range": "FINISHED", "cancelled": "KILLED"}
"""Status of a run -> that of MLflow; all others are FAILED."""


class MlflowLogger:
    """Writes to an MLflow store. A process that goes on with a run goes on with the same MLflow run."""

    def __init__(self, run: LoggedRun) -> None:
        server = os.environ.get("MLFLOW_TRACKING_URI")
        with _allow_file_store():
            self._client = MlflowClient(server or _make_store_uri(run.store))
            self.key = run.key or self._create_run(run)
            self._client.update_run(self.key, status="RUNNING")

    def log_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        params = [Param(name, str(value)) for name, value in parameters.items()]
        for start in range(0, len(params), MAX_BATCH):
            self._client.log_batch(self.key, params=params[start : start + MAX_BATCH])

    def log_figures(self, figures: Mapping[str, float], step: int, at: float) -> None:
        metrics = [Metric(name, value, int(at * 1000), step) for name, value in figures.items()]
        self._client.log_batch(self.key, metrics=metrics)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        for name, text in tags.items():
            self._client.set_tag(self.key, f"m3b.{name}", text)

    def close(self, status: str) -> None:
        self._client.set_terminated(self.key, RUN_STATUS.get(status, "FAILED"))

    def _create_run(self, run: LoggedRun) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        return str(self._client.create_run(experiment_id, run_name=run.id).info.run_id)


def _make_store_uri(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute().as_uri()


@contextmanager
def _allow_file_store() -> Iterator[None]:
    """Let MLflow open a file store; it looks at the variable when the store is opened."""
    earlier = os.environ.get(FILE_STORE_VARIABLE)
    os.environ[FILE_STORE_VARIABLE] = earlier or "true"
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[FILE_STORE_VARIABLE]
