"""Prediction of cases as a cluster job: the folder that m3b and the node share, and the program that runs on the node.

m3b stages anonymous copies of the images; the node sees neither labels nor `locked/`. The program is m3b's own: it starts
predict.py in the sandbox of the node, with the protocol of `m3b.models.worker`, and stores each answer at once, so that
after a preemption only the missing cases are predicted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.records import Covariate, Image, plain
from m3b.engines.node_job import INTERRUPTED_CODE, choose_node_sandbox
from m3b.errors import M3bError, ModelError, SandboxError
from m3b.isolation.sandbox import Limits
from m3b.isolation.sandbox.environment import INTERRUPT_VARIABLE
from m3b.isolation.untrusted import remove_tree
from m3b.models import Prediction, StagedCases, read_model_info
from m3b.models.predict_process import parse_predictions
from m3b.models.prediction_store import OutputFolder, PredictionStore, with_relative_files
from m3b.models.predictions import ModelInfo
from m3b.models.worker import PredictWorker
from m3b.writing import json_text, write_text_atomically

REQUEST_S = 3600.0
"""Seconds that one request to predict.py may take."""


@dataclass(frozen=True)
class PredictionRequest:
    """What the node predicts.

    Args:
        staged: the cases.
        was_altered: for each altered copy, which are the last of the given cases, whether it differs from its case.
        covariates: of each case, in the order of `staged.paths`.
        sandbox_mode: mode for `choose_sandbox`.
        min_sandbox: name of the weakest sandbox that is accepted.
        memory_mib: of predict.py.
    """

    staged: StagedCases
    was_altered: tuple[bool, ...]
    covariates: tuple[Mapping[str, Covariate], ...]
    sandbox_mode: str
    min_sandbox: str
    memory_mib: int


class PredictionFolder:
    """The files of one prediction, on shared storage and out of reach of scripts.

    A confined reader stages the images in `cases`. The files that predictions name are in `answers`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.model, self.cases, self.answers = path, path / "model", path / "cases", path / "answers"
        self.predictions_file = path / "predictions.json"
        self._request_file, self._job_file, self._error_file = (
            path / name for name in ("request.json", "job.json", "error.json")
        )

    # --- m3b ---------------------------------------------------------------------------------------------------------

    @property
    def is_staged(self) -> bool:
        """Whether the request is complete."""
        return self._request_file.is_file()

    def write_request(self, request: PredictionRequest) -> None:
        """Write the request, whose images are in `cases`."""
        staged = request.staged
        self._write(
            self._request_file,
            {
                **vars(request),
                "staged": {"paths": staged.paths, "order": staged.order, "verbatim": staged.verbatim},
                "covariates": [dict(values) for values in request.covariates],
            },
        )

    def write_job(self, number: int, wall_s: float | None = None) -> None:
        """Note the number of the job, and the seconds that it ran if its predictions are complete."""
        self._write(self._job_file, {"number": number, "wall_s": wall_s})

    def read_job(self) -> tuple[int | None, float | None]:
        """Return what `write_job` noted; None, None if nothing was."""
        values = self._read(self._job_file)
        return values.get("number"), values.get("wall_s")

    @property
    def is_complete(self) -> bool:
        """Whether all cases are predicted."""
        return self.read_job()[1] is not None

    def read_error(self) -> M3bError | None:
        """Return the error with which the program on the node ended; None if it has noted none."""
        values = self._read(self._error_file)
        if not values:
            return None
        if values["is_of_model"]:
            return ModelError(values["message"], code=values["code"])
        return SandboxError(values["message"])

    def read_predictions(self, images: Sequence[Image], model_info: ModelInfo) -> list[Prediction]:
        """Return the predictions of the staged images, in the shuffled order.

        Raises:
            ModelError: a file of an answer is gone.
            OSError, ValueError: the predictions cannot be read.
        """
        entries = json.loads(self.predictions_file.read_text(encoding="utf-8"))
        return parse_predictions(entries, images, model_info, folder=self.answers, strict=False)

    def remove_inputs(self) -> None:
        """Remove images and model, which nobody needs once all cases are predicted."""
        remove_tree(self.cases)
        remove_tree(self.model)

    # --- the node ----------------------------------------------------------------------------------------------------

    def read_request(self) -> PredictionRequest:
        """Return the request.

        Raises:
            SandboxError: there is none.
        """
        values = self._read(self._request_file)
        if not values:
            raise SandboxError(f"{self._request_file} cannot be read; is it on storage that the node sees?")
        parts = {name: tuple(items) for name, items in values["staged"].items()}
        return PredictionRequest(
            **{
                **values,
                "staged": StagedCases(self.cases, **parts),
                "was_altered": tuple(values["was_altered"]),
                "covariates": tuple(values["covariates"]),
            }
        )

    def write_error(self, error: ModelError | SandboxError) -> None:
        """Note why the cases cannot be predicted."""
        is_of_model = isinstance(error, ModelError)
        code = error.code if isinstance(error, ModelError) else ""
        self._write(self._error_file, {"message": str(error), "code": code, "is_of_model": is_of_model})

    def predict(self, worker: PredictWorker, request: PredictionRequest) -> None:
        """Predict the cases that no earlier attempt has predicted, and store all.

        Raises:
            ModelError: predict.py fails.
        """
        self._error_file.unlink(missing_ok=True)
        images, store = request.staged.list_images(), PredictionStore(self.predictions_file, self.model)
        earlier = self._read_earlier(store, images)
        missing = [position for position in range(len(images)) if position not in earlier]
        store.begin({position: (str(position), self._to_entry(item)) for position, item in earlier.items()})
        try:
            for position, item in earlier.items():
                store.add(position, "", self._to_entry(item), self._to_entry(item))
            used_files = [file for item in earlier.values() for file in _list_files(item)]
            remaining, n_done = iter(missing), len(earlier)
            for batch in worker.predict_batches(
                [images[position] for position in missing],
                [request.covariates[position] for position in missing],
                output=OutputFolder(self.answers, len(images), used_files),
                positions=missing,
            ):
                for item, position in zip(batch, remaining, strict=False):
                    store.add(position, str(position), self._to_entry(item), self._to_entry(item))
                n_done += len(batch)
                print(f"predicted {n_done} of {len(images)}", flush=True)
            store.finish()
        finally:
            store.stop()

    def _read_earlier(self, store: PredictionStore, images: Sequence[Image]) -> dict[int, Prediction]:
        """Return position -> prediction of an earlier attempt of the job."""
        model_info, earlier = read_model_info(self.model), {}
        for text, entry in store.read_partial().items():
            image = images[int(text)]
            try:
                [earlier[int(text)]] = parse_predictions(
                    [{**entry, "image": plain(image)}], [image], model_info, folder=self.answers
                )
            except ModelError:
                continue  # its mask had not reached the storage
        return earlier

    def _to_entry(self, prediction: Prediction) -> dict[str, Any]:
        return with_relative_files(prediction, self.answers)

    # --- files -------------------------------------------------------------------------------------------------------

    def _write(self, file: Path, values: Mapping[str, Any]) -> None:
        write_text_atomically(file, json_text(values, indent=1), is_private=True)

    def _read(self, file: Path) -> dict[str, Any]:
        """Return the content of a file; empty if it is not there (yet)."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}


def _list_files(prediction: Prediction) -> list[Path]:
    candidates = (prediction.mask, prediction.anomaly_map, *prediction.masks.values())
    return [file for file in candidates if file is not None]


class _Interrupted(Exception):
    """The node has to make room."""


def _check_interrupted() -> None:
    if Path(os.environ.get(INTERRUPT_VARIABLE, "")).is_file():
        raise _Interrupted


def main(arguments: list[str]) -> int:
    """Predict the cases of a folder; return the exit code of the job."""
    folder = PredictionFolder(Path(arguments[0]))
    try:
        request = folder.read_request()
        worker = PredictWorker(
            folder.model,
            choose_node_sandbox(request.sandbox_mode, request.min_sandbox),
            REQUEST_S,
            limits=Limits(memory_mib=request.memory_mib, wall_s=REQUEST_S, isolated=True),
            readable=(folder.cases,),
            check_cancelled=_check_interrupted,
        )
        with closing(worker):
            folder.predict(worker, request)
    except _Interrupted:
        return INTERRUPTED_CODE
    except (ModelError, SandboxError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        folder.write_error(error)
        return 1
    return 0
