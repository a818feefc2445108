"""Served models: each has one confined process that stays warm, and a queue of bounded length before it."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from m3b.errors import M3bError, UsageError
from m3b.models import Model, Prediction, load_model
from m3b.models.input_cases import InputCases
from m3b.models.prediction_session import PredictionSession
from m3b.models.thresholds import make_decider
from m3b.run.folder import MODEL_FOLDER_PATTERN, find_model_folder
from m3b.serve.serve_errors import ServeError, make_busy_error

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_QUEUE = 16
_MEAN_WEIGHT = 0.2
"""Weight of the latest duration in the running mean."""


class ServedModel:
    """A model under a name and a version.

    Args:
        name: of the URL.
        folder: of the deliverable.
        max_waiting: requests that wait or run at once; more are refused.
        timeout_s: of one request to the model's process.
        unconfined: see `load_model`.

    Raises:
        ModelError, IntegrityError: as `load_model`.
    """

    def __init__(self, name: str, folder: Path, max_waiting: int, timeout_s: float, *, unconfined: bool) -> None:
        self.name, self.max_waiting, self.n_waiting = name, max_waiting, 0
        self._timeout_s, self._unconfined = timeout_s, unconfined
        self.mean_s = 1.0
        self.is_ready = False
        self._turn = anyio.Lock()
        self.model = self._load(folder)
        self.version = self.model.version

    def _load(self, folder: Path) -> Model:
        model = load_model(folder, unconfined=self._unconfined)
        model.worker.timeout_s = self._timeout_s
        return model

    async def reload(self) -> None:
        """Load the folder again, after a training has replaced the model in it; a running request ends before.

        Raises:
            ModelError, IntegrityError: as `load_model`.
        """
        async with self._turn:
            self.model.close()
            self.model = await to_thread.run_sync(self._load, self.model.folder)
            self.version = self.model.version

    def warm_up(self) -> None:
        """Start the process before the first request. An error shows in `is_ready`, and again at the first request."""
        try:
            self.model.worker.start()
            self.is_ready = True
        except (M3bError, OSError):
            self.is_ready = False

    def check_place(self) -> None:
        """Raise ServeError if the queue is full."""
        if self.n_waiting >= self.max_waiting:
            raise make_busy_error(self.mean_s * self.n_waiting)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold a place in the queue, once the upload is complete.

        Raises:
            ServeError: the queue is full.
        """
        self.check_place()
        self.n_waiting += 1
        try:
            yield
        finally:
            self.n_waiting -= 1

    async def predict(
        self,
        inputs: Sequence[Any],
        out: Path,
        threshold: float | Mapping[str, float] | None = None,
        check_wanted: Callable[[], Awaitable[None]] | None = None,
    ) -> list[Prediction]:
        """Return a prediction for each input, in turn with other requests; files that they name are in `out`.

        Args:
            check_wanted: called when the turn has come; raises if nobody waits for the answer any more.

        Raises:
            ServeError: the turn did not come in the time that one request may take.
            ModelError: the model fails, or predicts nonsense.
            UsageError: an invalid threshold.
        """
        decide = make_decider(threshold, self.model.classes, self.model.multi_label)
        with anyio.move_on_after(self._timeout_s) as waiting:
            await self._turn.acquire()
        if waiting.cancelled_caught:
            raise make_busy_error(self.mean_s * self.n_waiting)
        try:
            if check_wanted is not None:
                await check_wanted()
            return [decide(prediction) for prediction in await to_thread.run_sync(self._run, inputs, out)]
        finally:
            self._turn.release()

    def _run(self, inputs: Sequence[Any], out: Path) -> list[Prediction]:
        began = time.monotonic()
        out.mkdir(exist_ok=True)
        with closing(InputCases(self.model.config, inputs, strict=False, expand_folders=False)) as cases:
            predictions = list(PredictionSession(self.model.worker, cases, output_folder=out).run())
        self.mean_s += _MEAN_WEIGHT * (time.monotonic() - began - self.mean_s)
        self.is_ready = True
        return predictions

    def close(self) -> None:
        """End the process."""
        self.model.close()


class ModelPool:
    """All served models; of several with one name the last is served, unless a request names a version."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = list(models)

    def find(self, name: str, version: str = "") -> ServedModel:
        """Return the model of a name and, if it is given, of a version.

        Raises:
            ServeError: there is no such model.
        """
        matches = [model for model in self.models if model.name == name and version in ("", model.version)]
        if not matches:
            wanted = f"version {version[:40]} of it" if version else "model of this name"
            raise ServeError(404, "unknown_model", f"There is no {wanted}; GET /v1/models names all.")
        return matches[-1]

    async def start(self) -> None:
        """Start all processes."""
        async with anyio.create_task_group() as group:
            for model in self.models:
                group.start_soon(to_thread.run_sync, model.warm_up)

    @property
    def is_ready(self) -> bool:
        """Whether each process has been started."""
        return all(model.is_ready for model in self.models)

    def close(self) -> None:
        """End all processes."""
        for model in self.models:
            model.close()


def open_models(
    arguments: Sequence[str], *, max_waiting: int = DEFAULT_QUEUE, timeout_s: float = 600.0, unconfined: bool = False
) -> ModelPool:
    """Return the pool of models that are given as a folder, a run, or `NAME=` one of them.

    Raises:
        UsageError: there is no such model, a name cannot be part of a URL, or two have the same name and version.
        ModelError, IntegrityError: as `load_model`.
    """
    models: list[ServedModel] = []
    for argument in arguments:
        given_name, separator, place = argument.partition("=")
        if not separator or Path(argument).exists():
            given_name, place = "", argument
        folder = find_model_folder(place).absolute()
        name = given_name or _name_of(folder)
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a served model: use letters, digits, `.`, `-` and `_`.")
        model = ServedModel(name, folder, max_waiting, timeout_s, unconfined=unconfined)
        if any((known.name, known.version) == (name, model.version) for known in models):
            raise UsageError(f"Two models are called {name}: give one another name, as in NAME={place}.")
        models.append(model)
    return ModelPool(models)


def _name_of(folder: Path) -> str:
    """Return the name of the run of a model, or of its folder."""
    is_in_run = MODEL_FOLDER_PATTERN.fullmatch(folder.name) and (folder.parent / "run.json").is_file()
    return folder.parent.name if is_in_run else folder.name
