"""Run a delivered predict.py in a process of its own and validate its output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.kinds import DEFAULT
from m3b.data.records import Covariate, Reference, frozen, plain
from m3b.errors import ModelError
from m3b.isolation import untrusted
from m3b.models.answers import AnswerFormat, answer_format_of, answer_tasks, parse_reliability, parse_saliency
from m3b.models.confinement import LOG_BYTES, TIMEOUT_S, WAITING
from m3b.models.input_rules import NOT_PREDICTED, find_plan_problem, plan_of
from m3b.models.predictions import ModelInfo, Prediction

MAX_OUTPUT_BYTES = 2**30
MAX_LABEL = 2**32
"""Values of masks are below this."""
SALIENCY_FOLDER = "saliency"


def read_raw_predictions(file: Path, log: str = "") -> list[Any]:
    """Return the JSON list that predict.py wrote.

    Raises:
        ModelError: no file, too large, no JSON, no list; the message ends with the tail of `log`.
    """
    tail = f"; it printed: {log.strip()[-800:]}" if log.strip() else ""
    if file.is_symlink() or not file.is_file():
        raise ModelError(f"predict.py wrote no output file{tail}")
    if file.stat().st_size > MAX_OUTPUT_BYTES:
        raise ModelError(f"predict.py wrote {file.stat().st_size} bytes of output, more than {MAX_OUTPUT_BYTES}")
    try:
        raw_predictions = untrusted.read_json(file.parent, file.name, MAX_OUTPUT_BYTES)
    except (OSError, ValueError) as error:
        raise ModelError(f"the output of predict.py is no JSON: {error}{tail}") from error
    if not isinstance(raw_predictions, list):
        raise ModelError(
            f"the output of predict.py must be a JSON list, it is a {type(raw_predictions).__name__}{tail}"
        )
    return raw_predictions


def parse_predictions(
    raw_predictions: Sequence[Any],
    paths: Sequence[Reference],
    model_info: ModelInfo | Sequence[str],
    multi_label: bool = False,
    *,
    folder: Path | None = None,
    strict: bool = True,
    with_saliency: bool = False,
) -> list[Prediction]:
    """Return predictions from the JSON list, in the order of `paths`.

    Args:
        model_info: task, classes and labels of the model; class names alone stand for a diagnosis.
        multi_label: for a diagnosis given by its class names.
        folder: the folder of predict.py's output; files that it names are relative to it and must lie there.
        strict: whether an image that the model reports as unreadable raises; otherwise its Prediction has an `error`.
        with_saliency: whether `saliency` of an answer is read.

    Raises:
        ModelError: there is not one entry for each path in the same order, or a prediction is invalid; the message
            names the entry.
    """
    if not isinstance(model_info, ModelInfo):
        model_info = ModelInfo(DEFAULT, tuple(model_info), multi_label)
    if len(raw_predictions) != len(paths):
        raise ModelError(f"predict.py gave {len(raw_predictions)} predictions for {len(paths)} images")
    answer_format = answer_format_of(model_info.task)
    predictions = [
        _parse_entry(
            f"prediction {number} ({_describe_image(path)})",
            item,
            path,
            model_info,
            folder,
            answer_format,
            with_saliency,
        )
        for number, (item, path) in enumerate(zip(raw_predictions, paths, strict=True))
    ]
    failed = [item for item in predictions if item.error]
    if strict and failed:
        raise ModelError(
            f"{len(failed)} of {len(paths)} images got no prediction; {describe_error(failed[0])}",
            code=failed[0].error_code,
        )
    return predictions


def describe_error(prediction: Prediction) -> str:
    """Return the error of a prediction with its image, unless it names the image itself."""
    name = _describe_image(prediction.image)
    return prediction.error if name in prediction.error else f"{name}: {prediction.error}"


def _describe_image(path: Reference) -> str:
    if isinstance(path, Mapping):
        return ", ".join(f"{name} {channel_path}" for name, channel_path in path.items())
    return path if isinstance(path, str) else f"{path[0]} and {len(path) - 1} more slices"


def _is_same_image(reported: Any, path: Reference) -> bool:
    if isinstance(path, str | Mapping):
        return bool(reported == plain(path))
    slices = list(path)
    return reported in (slices, slices[0], "|".join(slices), str(slices))


def _parse_entry(
    location: str,
    item: Any,
    path: Reference,
    model_info: ModelInfo,
    folder: Path | None,
    answer_format: AnswerFormat,
    with_saliency: bool,
) -> Prediction:
    image = frozen(path)
    if not isinstance(item, dict):
        raise ModelError(f"{location}: must be a JSON object, it is a {type(item).__name__}")
    if not _is_same_image(item.get("image"), path):
        raise ModelError(
            f"{location}: `image` is {item.get('image')!r}; predictions must keep the order and paths asked for"
        )
    if item.get("error"):
        return Prediction(image, error=str(item["error"])[:500], error_code=NOT_PREDICTED)
    return Prediction(
        image,
        **answer_format.parse(location, item, model_info, folder),
        **parse_reliability(location, item, model_info),
        saliency=parse_saliency(location, item, model_info, folder) if with_saliency else None,
    )


CommandRunner = Callable[[list[str], Path, Path], tuple[int, str]]
"""`run(argv, cwd, out)` runs a command in `cwd` and returns its exit status and output.

`out` is the only file that the command must be able to write. Its folder exists and holds the list of images; nothing
else there is needed.
"""

_PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)


def run_unconfined(argv: list[str], cwd: Path, out: Path, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """Run the command unconfined, as a child process without the caller's environment and without a model hub.

    It can do all that the user can, and read the environment of its parent: only for trusted models.

    Raises:
        ModelError: it does not start, or runs longer than `timeout_s` seconds (it is killed with its children).
    """
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    env = WAITING | passed | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise ModelError(f"cannot start {argv[0]}: {error}") from error
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                f"predict.py was still running after {timeout_s:g} s; predict fewer images at once"
            ) from error
        finally:
            _kill_process_group(process)
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - LOG_BYTES))
        return status, log.read().decode("utf-8", errors="replace")


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # no process of the group is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_model_config(model_dir: Path) -> dict[str, Any]:
    """Return config.json of a model, whose channels, covariates, spacing and window have the types that m3b needs.

    Raises:
        ModelError: it cannot be read, or an entry is malformed.
    """
    file = model_dir / "config.json"
    try:
        config = untrusted.parse_data_json(untrusted.read_bytes(model_dir, file.name))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} must be a JSON object, it is a {type(config).__name__}")
    if problem := find_plan_problem(config):
        raise ModelError(f"{file}: {problem}")
    return config


def read_model_info(model_dir: Path) -> ModelInfo:
    """Return the model's info from its config.json: task (diagnosis by default), classes, and labels.

    Raises:
        ModelError: as `read_model_config`; an unknown task, or no classes for a task that needs them.
    """
    file, config = model_dir / "config.json", read_model_config(model_dir)
    config_layers = [config, dict(plan_of(config))]
    task = _first_value(config_layers, "task") or DEFAULT
    if not isinstance(task, str) or task not in answer_tasks():
        raise ModelError(f"{file} has the `task` {task!r}; known are {', '.join(answer_tasks())}")
    answer_format = answer_format_of(task)
    classes = _first_value(config_layers, "classes") or []
    is_name_list = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    if not is_name_list or len(set(classes)) != len(classes) or not (classes or not answer_format.requires_classes):
        raise ModelError(f"{file} must have `classes`, a list of different names in the order of the model's outputs")
    labels = _first_value(config_layers, "labels") or {}
    if isinstance(labels, dict):
        if not all(type(value) is int and 0 <= value < MAX_LABEL for value in labels.values()):
            raise ModelError(f"{file} must have whole numbers as `labels`, the value of each class in mask files")
    elif answer_format.has_masks_option:
        raise ModelError(f"{file} must have `labels`, an object with the value of each class in mask files")
    return ModelInfo(
        task,
        tuple(classes),
        bool(_first_value(config_layers, "multi_label")),
        labels if isinstance(labels, dict) else {},
    )


def _predict_inputs(paths: Sequence[Reference], covariates: Sequence[Mapping[str, Covariate]]) -> list[Any]:
    """Return the inputs of predict.py: paths, or objects with the image and its covariates."""
    if not any(covariates):
        return [plain(path) for path in paths]
    return [{"image": plain(path), **values} for path, values in zip(paths, covariates, strict=True)]


def _first_value(layers: Sequence[dict[str, Any]], key: str) -> Any:
    return next((layer[key] for layer in layers if layer.get(key)), None)


def can_explain(config: Mapping[str, Any]) -> bool:
    """Return whether a model can be asked what its answers depend on, by its config.json."""
    return config.get("saliency") is True


def require_saliency(config: Mapping[str, Any], task: str, out: str | Path | None) -> None:
    """Raise ModelError if the model cannot explain its answers, or if there is no folder for the maps."""
    if not can_explain(config):
        raise ModelError(
            f"this {task} model cannot say what its answers depend on; models of the diagnosis template can, if they are "
            "exported again",
            code="no_saliency",
        )
    if out is None:
        raise ModelError("saliency maps are files: name a folder for them", code="no_saliency")


def read_classes(model_dir: Path) -> tuple[tuple[str, ...], bool]:
    """Return the classes in the order of the model's outputs, and whether it is multi-label.

    Raises:
        ModelError: as `read_model_info`.
    """
    model_info = read_model_info(model_dir)
    return model_info.classes, model_info.multi_label


def run_predict(
    model_dir: Path,
    staged_folder: Path,
    paths: Sequence[Reference],
    run: CommandRunner,
    *,
    strict: bool = True,
    output_dir: Path | None = None,
    covariates: Sequence[Mapping[str, Covariate]] = (),
    with_saliency: bool = False,
) -> list[Prediction]:
    """Predict images with a delivered model: `python predict.py --list LIST -o OUT`, in the directory `staged_folder`.

    Args:
        model_dir: the deliverable.
        staged_folder: folder to which the paths are relative; predict.py only reads there.
        paths: images, in the order of the returned predictions.
        run: runs the command, for example in a sandbox.
        strict: whether an image that the model cannot read is an error for all.
        output_dir: a permanent folder for the mask files that predictions name. A segmentation needs one; a detection
            without one only returns its boxes and scores.
        covariates: of each image, if the model takes covariates.
        with_saliency: whether the model is asked what its answers depend on (`can_explain`).

    Raises:
        ModelError: predict.py is missing, fails, or does not write one valid prediction for each image.
    """
    script = model_dir.resolve() / "predict.py"
    if not script.is_file():
        raise ModelError(f"{model_dir} holds no predict.py; is it the folder of a delivered model?")
    model_info = read_model_info(model_dir)
    if not paths:
        return []
    discard_files = output_dir is None
    with contextlib.ExitStack() as stack:
        if output_dir is None:
            if answer_format_of(model_info.task).requires_output_folder():
                raise ModelError(f"a {model_info.task} model writes mask files; say in which folder they shall stay")
            output_dir = stack.enter_context(untrusted.TemporaryFolder("predict"))
        out = output_dir.resolve() / "predictions.json"
        handle, name = tempfile.mkstemp(
            prefix=".cases-", suffix=".json", dir=out.parent
        )  # a new name that clashes with no file
        list_file = Path(name)
        stack.callback(list_file.unlink, missing_ok=True)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(_predict_inputs(paths, covariates), stream)
        argv = [sys.executable, "-B", str(script), "--list", str(list_file), "-o", str(out)]
        if answer_format_of(model_info.task).has_masks_option:
            argv += ["--masks", str(out.parent / "masks")]
        if with_saliency:
            argv += ["--saliency", str(out.parent / SALIENCY_FOLDER)]
        status, log = run(argv, staged_folder.resolve(), out)
        if status not in (0, 1) or not out.exists():
            raise ModelError(f"predict.py ended with status {status} and printed: {log.strip()[-1500:] or 'nothing'}")
        raw_predictions = read_raw_predictions(out, log)
        predictions = parse_predictions(
            raw_predictions, paths, model_info, folder=out.parent, strict=strict, with_saliency=with_saliency
        )
    if status == 1 and not any(prediction.error for prediction in predictions):
        raise ModelError(f"predict.py ended with status 1 and printed: {log.strip()[-1500:] or 'nothing'}")
    return [prediction.without_files() for prediction in predictions] if discard_files else predictions
