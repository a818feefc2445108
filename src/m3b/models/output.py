"""What predict.py wrote: one JSON object an image, in the order asked, with answers that can be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.data.kinds import DEFAULT
from m3b.data.records import Reference, frozen, plain
from m3b.errors import ModelError

from .answers import answer_format_of
from .doubts import parse_reliability
from .kinds import AnswerFormat
from .predictions import ModelInfo, Prediction

MAX_OUTPUT_BYTES = 2**30


def read_raw_predictions(file: Path, log: str = "") -> list[Any]:
    """The JSON list that predict.py wrote.

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
) -> list[Prediction]:
    """Predictions from the JSON list, in the order of `paths`.

    Args:
        model_info: what the model says of itself; class names alone stand for a diagnosis.
        multi_label: of a diagnosis given by its class names.
        folder: where predict.py wrote; files that it names count from there and must lie there.
        strict: an image that the model reports as unreadable raises; otherwise it gives a Prediction with `error`.

    Raises:
        ModelError: not one entry a path in the same order, or an answer that cannot be right; the message names the
            entry.
    """
    if not isinstance(model_info, ModelInfo):
        model_info = ModelInfo(DEFAULT, tuple(model_info), multi_label)
    if len(raw_predictions) != len(paths):
        raise ModelError(f"predict.py gave {len(raw_predictions)} predictions for {len(paths)} images")
    answer_format = answer_format_of(model_info.task)
    predictions = [
        _parse_entry(f"prediction {number} ({_describe_image(path)})", item, path, model_info, folder, answer_format)
        for number, (item, path) in enumerate(zip(raw_predictions, paths, strict=True))
    ]
    failed = [item for item in predictions if item.error]
    if strict and failed:
        first = failed[0]
        raise ModelError(
            f"{len(failed)} of {len(paths)} images got no prediction; {_describe_image(first.image)}: {first.error}"
        )
    return predictions


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
    location: str, item: Any, path: Reference, model_info: ModelInfo, folder: Path | None, answer_format: AnswerFormat
) -> Prediction:
    image = frozen(path)
    if not isinstance(item, dict):
        raise ModelError(f"{location}: must be a JSON object, it is a {type(item).__name__}")
    if not _is_same_image(item.get("image"), path):
        raise ModelError(
            f"{location}: `image` is {item.get('image')!r}; predictions must keep the order and paths asked for"
        )
    if item.get("error"):
        return Prediction(image, error=str(item["error"])[:500])
    return Prediction(
        image,
        **answer_format.parse(location, item, model_info, folder),
        **parse_reliability(location, item, model_info),
    )
