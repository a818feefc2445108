"""Load a delivered model folder and predict with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.data.kinds.covariates import RESERVED
from m3b.data.reading import shared, shared_channels
from m3b.data.records import Covariate, Reference, frozen, plain, relocated
from m3b.display import make_html_table, shorten
from m3b.errors import ModelError
from m3b.isolation.untrusted import is_file, read_json, read_start
from m3b.measure import format_measure
from m3b.models.checksums import verify_integrity
from m3b.models.predict_process import read_model_info, run_predict, run_unconfined
from m3b.models.predictions import Prediction
from m3b.models.worker import PredictWorker


def split_covariates(
    case: Any, rules: Sequence[Mapping[str, Any]], case_number: int = 1, *, strict: bool = True
) -> tuple[Any, dict[str, Covariate]]:
    """Split a case into its image and its covariates; for a model without covariates a case is its image.

    Args:
        rules: `Model.covariates`.
        case_number: number of the case, for messages.
        strict: whether an incomplete case is an error here; otherwise predict.py reports what is wrong.

    Raises:
        ModelError: the case lacks a covariate, has one that the model does not know, or has an invalid value.
    """
    if not rules:
        return case, {}
    has_covariates = isinstance(case, Mapping) and RESERVED in case
    image, values = (case[RESERVED], {k: v for k, v in case.items() if k != RESERVED}) if has_covariates else (case, {})
    problems = [problem for rule in rules if (problem := _find_covariate_problem(rule, values))]
    names = [str(rule["name"]) for rule in rules]
    problems += [f"the model is not given {name}" for name in values if name not in names]
    if problems and strict:
        raise ModelError(
            f"case {case_number}: {'; '.join(problems)}. A case is {example_case(rules)}, None where one is not known"
        )
    return image, {str(name): value for name, value in values.items()}


def _find_covariate_problem(rule: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    name = rule["name"]
    if name not in values:
        return f"it has no {name}"
    value = values[name]
    if value is None:
        return ""
    if rule["kind"] == "number":
        is_valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return "" if is_valid else f"its {name} must be a number, it is {value!r}"
    return (
        "" if value in rule["values"] else f"its {name} is {value!r}, and the model knows {', '.join(rule['values'])}"
    )


def example_case(rules: Sequence[Mapping[str, Any]]) -> str:
    """Return an example of a case with covariates, for messages."""
    example_values = {
        str(rule["name"]): rule["values"][0] if rule["kind"] == "category" else rule["centre"] for rule in rules
    }
    return "{'image': path, " + ", ".join(f"{name!r}: {value!r}" for name, value in example_values.items()) + "}"


MAX_CARD_BYTES = 2**20
"""Maximum bytes read from README.md."""

ImageInput = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
CaseInput = ImageInput | Mapping[str, Any]


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
        unconfined: whether its code runs with all rights of the user instead, each prediction in a new process.
    """

    folder: Path
    classes: tuple[str, ...]
    multi_label: bool
    task: str
    config: Mapping[str, Any]
    card: str
    metrics: Mapping[str, Any]
    unconfined: bool = False
    _worker: PredictWorker | None = field(default=None, repr=False, compare=False)

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
        paths: CaseInput | Sequence[CaseInput],
        *,
        strict: bool = True,
        out: str | Path | None = None,
    ) -> list[Prediction]:
        """Predict images, one prediction each, in the given order. The model's own code runs confined.

        Args:
            paths: files, folders of slices or DICOM series, `archive.npz#key[17]`, or lists of slices. If a case
                consists of several images, objects channel -> path, such as `{"flair": ..., "t1": ...}` (see
                `channels`). A single path or object is a list of one case. If the model takes covariates, a case is
                `{"image": one of these, "age": 61, "sex": None}`, with None for an unknown value (see `covariates`).
            strict: an image that the model cannot read raises; otherwise its Prediction has an `error`.
            out: a folder for `predictions.json` and the masks; a segmentation model needs one.

        Raises:
            ModelError: predict.py fails or predicts nonsense, or a case lacks a channel or a covariate (with `strict`).
            SandboxError: no sandbox works on this machine; the message says why, and how to do without.
        """
        working_dir = Path.cwd()
        cases = [paths] if isinstance(paths, str | Path | Mapping) else list(paths)
        split_cases = [
            split_covariates(case, self.covariates, number, strict=strict) for number, case in enumerate(cases, start=1)
        ]
        images = [frozen(_to_reference(image)) for image, _ in split_cases]
        if strict:
            self._check_channels(images)
        absolute_images = [relocated(case, lambda path: str(working_dir / path)) for case in images]
        output_dir = None if out is None else Path(out)
        if output_dir is not None:
            output_dir.mkdir(parents=True, exist_ok=True)
        covariates = [values for _, values in split_cases]
        if self._worker is None:
            predictions = run_predict(
                self.folder,
                working_dir,
                absolute_images,
                run_unconfined,
                strict=strict,
                output_dir=output_dir,
                covariates=covariates,
            )
        else:
            predictions = self._worker.predict(absolute_images, covariates, strict=strict, keep=output_dir)
        return [replace(prediction, image=case) for case, prediction in zip(images, predictions, strict=True)]

    def close(self) -> None:
        """End the model's process; the next prediction starts another one."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the images that a case consists of, in the model's order; empty if a case is one image."""
        plan = self.config.get("plan")
        names = plan.get("channel_names") if isinstance(plan, Mapping) else None
        return tuple(names) if isinstance(names, list) else ()

    @property
    def covariates(self) -> tuple[Mapping[str, Any], ...]:
        """Covariates of the model: objects with `name` and `kind` (`number`, or `category` with its `values`)."""
        plan = self.config.get("plan")
        rules = plan.get("covariates") if isinstance(plan, Mapping) else None
        return tuple(rules) if isinstance(rules, list) else ()

    def _check_channels(self, cases: Sequence[Reference]) -> None:
        """Raise ModelError for a case whose channels are not the model's, before anything is loaded."""
        arrange = shared_channels().arranged
        for number, case in enumerate(cases, start=1):
            try:
                arrange(plain(case), list(self.channels))
            except shared().ImageError as error:
                raise ModelError(f"case {number}: {error}") from error


def _to_reference(case: CaseInput) -> Reference:
    if isinstance(case, str | Path):
        return str(case)
    return (
        {name: str(path) for name, path in case.items()}
        if isinstance(case, Mapping)
        else [str(slice_path) for slice_path in case]
    )


def load_model(folder: str | Path, *, unconfined: bool = False) -> Model:
    """Open a delivered folder; none of its code is executed yet.

    Its files are compared with the hashes in its provenance.json; README.md may be rewritten.

    Args:
        unconfined: run the model's code with all of your rights instead of in a sandbox: only for models that you
            trust.

    Raises:
        ModelError: no such folder, no predict.py, or no usable config.json.
        IntegrityError: files are not what was measured and delivered; the message names them.
    """
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise ModelError(f"there is no folder {path}; give the `model/` folder of a run")
    if not (path / "predict.py").is_file():
        raise ModelError(f"{path} holds no predict.py; give the `model/` folder of a run")
    verify_integrity(path)
    model_info = read_model_info(path)
    config = read_json(path, "config.json")
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
        None if unconfined else PredictWorker(path),
    )


def _read_metrics(file: Path) -> Mapping[str, Any]:
    try:
        metrics = read_json(file.parent, file.name)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON: {error}") from error
    return metrics if isinstance(metrics, dict) else {}
