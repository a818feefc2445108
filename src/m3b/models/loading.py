"""Load a delivered model folder and predict with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.records import Image, plain
from m3b.display import make_html_table, shorten
from m3b.errors import DataError, M3bError, ModelError
from m3b.isolation.sandbox.off import Unconfined
from m3b.isolation.untrusted import is_file, parse_data_json, read_bytes, read_start
from m3b.measure import format_measure
from m3b.models.checksums import PROVENANCE_FILE, sha256_of, verify_integrity
from m3b.models.input_cases import InputCases
from m3b.models.input_rules import channel_names_of, covariate_rules_of, plan_of
from m3b.models.predict_process import read_model_config, read_model_info, require_saliency
from m3b.models.prediction_session import PredictionSession, ProgressCallback
from m3b.models.prediction_store import PREDICTIONS_FILE, PredictionStore, with_relative_files
from m3b.models.predictions import Prediction
from m3b.models.progress import report_progress
from m3b.models.thresholds import Threshold, make_decider
from m3b.models.worker import PredictWorker

RUN_FILE, MODEL_FOLDER = "run.json", "model"
"""The record of a run in its folder, and the folder of its model."""
MAX_CARD_BYTES = 2**20
"""Maximum bytes read from README.md."""

CaseInput = Any
"""A path, an array, a PIL image, a list of slices or views, or an object of channels or covariates."""


@dataclass(frozen=True, repr=False)
class Model:
    """A delivered model. Its code runs confined, in a process that starts with the first prediction and stays alive.

    The process ends with `close()`, with the `with` block, with this object or with Python.

    Args:
        folder: absolute path.
        classes: in the order of the model's outputs.
        multi_label: whether a case can have any number of classes.
        task: the task family, such as diagnosis or segmentation.
        config: config.json.
        card: the model card, Markdown.
        metrics: what m3b measured when the model was made; empty if metrics.json is missing.
        unconfined: whether its code runs with all rights of the user instead.
    """

    folder: Path
    classes: tuple[str, ...]
    multi_label: bool
    task: str
    config: Mapping[str, Any]
    card: str
    metrics: Mapping[str, Any]
    unconfined: bool = False
    _worker: PredictWorker = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the process, which starts with the first prediction."""
        object.__setattr__(self, "_worker", PredictWorker(self.folder, Unconfined() if self.unconfined else None))

    def __repr__(self) -> str:
        primary_metric = format_measure(self.metrics.get("primary"))
        return (
            f"<Model {self.task}: "
            f"{shorten(', '.join(self.classes))}{f'; {primary_metric}' if primary_metric else ''}; {self.folder}>"
        )

    def _repr_html_(self) -> str:
        multi_label_note = " (several may apply)" if self.multi_label else ""
        rows = [
            ("classes", f"{', '.join(self.classes)}{multi_label_note}"),
            ("channels", ", ".join(self.channels)),
            ("given beside the image", ", ".join(str(rule["name"]) for rule in self.covariates)),
            ("test figure", format_measure(self.metrics.get("primary"))),
            ("folder", self.folder), ("model card", self.folder / "README.md" if self.card else ""),
        ]  # fmt: skip
        return make_html_table(f"{self.task} model", rows)

    def predict(
        self,
        images: CaseInput,
        *,
        strict: bool = True,
        out: str | Path | None = None,
        spacing: Sequence[float] | None = None,
        threshold: Threshold | None = None,
        progress: bool | ProgressCallback = False,
        saliency: bool = False,
    ) -> list[Prediction]:
        """Predict images, one prediction each, in the given order. The model's own code runs confined.

        Args:
            images: one image, or several: files, folders (searched as `m3b predict` does: pictures one by one, or the
                slices of one volume), `archive.npz#key[17]`, lists of slices, PIL images, and NumPy arrays: (H, W) or
                (H, W, C) for a model of 2D images, (D, H, W) for one of volumes. If a case consists of several images,
                objects channel -> image, such as `{"flair": ..., "t1": ...}` (see `channels`). If the model takes
                covariates, a case is `{"image": one of these, "age": 61, "sex": None}`, with None for an unknown value
                (see `covariates`).
            strict: an image that the model cannot predict raises; otherwise its Prediction has an `error`.
            out: a folder for `predictions.json` and the masks, which are written as they are made; a segmentation model
                needs one. If a call was interrupted, the next one with the same images and folder goes on.
            spacing: of arrays, in mm, in the order of their axes. Without it, volumes are taken as they are, and their
                millilitres are unknown.
            threshold: the least score of a box (by default all are returned), or probability of a class; see
                `m3b.models.thresholds`.
            progress: True for a bar on standard error, or a function that gets the number of predictions so far and of
                cases.
            saliency: write a map of what each answer depends on below `out` (`Prediction.saliency`).

        Raises:
            ModelError: predict.py fails or predicts nonsense, or (with `strict`) an image cannot be predicted, or a case
                lacks a channel or a covariate, or the model cannot explain its answers. Its `code` says which.
            SandboxError: no sandbox works on this machine; the message says why, and how to do without.
        """
        return list(
            self.predict_iter(
                images,
                strict=strict,
                out=out,
                spacing=spacing,
                threshold=threshold,
                progress=progress,
                saliency=saliency,
            )
        )

    def predict_iter(
        self,
        images: CaseInput,
        *,
        strict: bool = True,
        out: str | Path | None = None,
        spacing: Sequence[float] | None = None,
        threshold: Threshold | None = None,
        progress: bool | ProgressCallback = False,
        saliency: bool = False,
    ) -> Iterator[Prediction]:
        """Yield predictions as they are made; see `predict`."""
        decide = make_decider(threshold, self.classes, self.multi_label)
        if saliency:
            require_saliency(self.config, self.task, out)
        cases = InputCases(self.config, images, spacing=spacing, strict=strict)
        for note in cases.notes:
            warnings.warn(note, stacklevel=2)
        try:
            if strict:
                self._check_channels([case.files for case in cases.cases])
            folder = None if out is None else Path(out)
            store = None
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                store = PredictionStore(folder / PREDICTIONS_FILE, self.folder)
            session = PredictionSession(
                self._worker,
                cases,
                output_folder=folder,
                store=store,
                make_entry=lambda _, prediction: with_relative_files(decide(prediction), folder),
                with_saliency=saliency,
            )
            with report_progress(progress, len(cases)) as advance:
                for n_done, prediction in enumerate(session.run(), start=1):
                    advance(n_done, len(cases))
                    if strict and prediction.error:
                        raise ModelError(
                            f"1 of {len(cases)} images got no prediction; {prediction.error}",
                            code=prediction.error_code,
                        )
                    yield decide(prediction).with_painter(self._paint)
            if store is not None:
                store.finish()
        finally:
            cases.close()

    def _paint(self, prediction: Prediction) -> bytes:
        """Return a prediction drawn on its image as a PNG, in a confined reader; b"" if that is not possible."""
        from m3b.isolation.reader.inprocess import open_reader
        from m3b.isolation.untrusted import TemporaryFolder
        from m3b.models.image_jobs import OverlayPainter, paths_to_mount

        try:
            with open_reader(paths_to_mount([prediction])) as reader, TemporaryFolder("picture") as folder:
                painter = OverlayPainter(reader, read_model_info(self.folder), self.display_window)
                return painter.draw(prediction, folder / "picture.png").read_bytes()
        except (M3bError, OSError):
            return b""

    @property
    def worker(self) -> PredictWorker:
        """The process of its code."""
        return self._worker

    def close(self) -> None:
        """End the model's process; the next prediction starts another one."""
        self._worker.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def title(self) -> str:
        """The title of the model card; the task if there is none."""
        return next((line.removeprefix("# ") for line in self.card.splitlines() if line.startswith("# ")), self.task)

    @property
    def version(self) -> str:
        """A hash of the measured files, 16 characters; `0` if nobody measured the model."""
        manifest_file = self.folder / PROVENANCE_FILE
        return sha256_of(manifest_file)[:16] if manifest_file.is_file() else "0"

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the images that a case consists of, in the model's order; empty if a case is one image."""
        return channel_names_of(self.config)

    @property
    def covariates(self) -> tuple[Mapping[str, Any], ...]:
        """Covariates of the model: objects with `name` and `kind` (`number`, or `category` with its `values`)."""
        return covariate_rules_of(self.config)

    @property
    def display_window(self) -> dict[str, Any] | None:
        """The intensity window of the model's plan, for pictures; None if the plan has none."""
        window = plan_of(self.config).get("intensity")
        return window if isinstance(window, dict) else None

    def _check_channels(self, cases: Sequence[Image]) -> None:
        """Raise ModelError for a case whose channels are not the model's, before anything is loaded."""
        from m3b.dataset.formats import select_channels

        for number, case in enumerate(cases, start=1):
            try:
                select_channels(plain(case), list(self.channels))
            except DataError as error:
                raise ModelError(f"case {number}: {error}", code="wrong_channels") from error


def load_model(folder: str | Path, *, unconfined: bool = False) -> Model:
    """Open a delivered model, given by its folder or by the folder of its run; none of its code is executed yet.

    Its files are compared with the hashes in its provenance.json; README.md may be rewritten.

    Args:
        unconfined: run the model's code with all of your rights instead of in a sandbox: only for models that you
            trust.

    Raises:
        ModelError: no such folder, no predict.py, a run without a model, or no usable config.json.
        IntegrityError: files are not what was measured and delivered; the message names them.
    """
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise ModelError(f"there is no folder {path}; give the folder of a run, or its `model/`", code="no_model")
    if (path / RUN_FILE).is_file():
        if not (path / MODEL_FOLDER / "predict.py").is_file():
            raise ModelError(f"the run {path} has delivered no model: its report.html says why", code="no_model")
        path /= MODEL_FOLDER
    if not (path / "predict.py").is_file():
        raise ModelError(f"{path} holds no predict.py; give the folder of a run, or its `model/`", code="no_model")
    verify_integrity(path)
    model_info = read_model_info(path)
    config = read_model_config(path)
    text = read_start(path, "README.md", MAX_CARD_BYTES) if is_file(path, "README.md") else ""
    return Model(
        path,
        model_info.classes,
        model_info.multi_label,
        model_info.task,
        config,
        text,
        _read_metrics(path / "metrics.json"),
        unconfined,
    )


def _read_metrics(file: Path) -> Mapping[str, Any]:
    try:
        metrics = parse_data_json(read_bytes(file.parent, file.name))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(metrics, dict) or not isinstance(metrics.get("primary") or {}, dict):
        raise ModelError(f"{file} must be a JSON object whose `primary` is an object: a metric and its value")
    return metrics
