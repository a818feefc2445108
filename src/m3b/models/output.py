"""What predict.py wrote: one JSON object an image, in the order asked, with answers that can be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.data.kinds import DEFAULT
from m3b.data.records import Reference, frozen, plain
from m3b.errors import ModelError

from .answers import of
from .doubts import doubts_of
from .kinds import AnswerKind
from .predictions import Prediction, Promise

MAX_BYTES = 2**30


def read_output(file: Path, log: str = "") -> list[Any]:
    """The JSON list that predict.py wrote.

    Raises:
        ModelError: no file, too large, no JSON, no list; the message ends with the tail of `log`.
    """
    tail = f"; it printed: {log.strip()[-800:]}" if log.strip() else ""
    if file.is_symlink() or not file.is_file():
        raise ModelError(f"predict.py wrote no output file{tail}")
    if file.stat().st_size > MAX_BYTES:
        raise ModelError(f"predict.py wrote {file.stat().st_size} bytes of output, more than {MAX_BYTES}")
    try:
        raw_predictions = untrusted.read_json(file.parent, file.name, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ModelError(f"the output of predict.py is no JSON: {error}{tail}") from error
    if not isinstance(raw_predictions, list):
        raise ModelError(
            f"the output of predict.py must be a JSON list, it is a {type(raw_predictions).__name__}{tail}"
        )
    return raw_predictions


def check_output(
    raw: Sequence[Any],
    paths: Sequence[Reference],
    promise: Promise | Sequence[str],
    multi_label: bool = False,
    *,
    folder: Path | None = None,
    strict: bool = True,
) -> list[Prediction]:
    """Predictions from the JSON list, in the order of `paths`.

    Args:
        promise: what the model says of itself; class names alone stand for a diagnosis.
        multi_label: of a diagnosis given by its class names.
        folder: where predict.py wrote; files that it names count from there and must lie there.
        strict: an image that the model reports as unreadable raises; otherwise it gives a Prediction with `error`.

    Raises:
        ModelError: not one entry a path in the same order, or an answer that cannot be right; the message names the
            entry.
    """
    if not isinstance(promise, Promise):
        promise = Promise(DEFAULT, tuple(promise), multi_label)
    if len(raw) != len(paths):
        raise ModelError(f"predict.py gave {len(raw)} predictions for {len(paths)} images")
    answer_format = of(promise.task)
    predictions = [
        _entry(f"prediction {number} ({_shown(path)})", item, path, promise, folder, answer_format)
        for number, (item, path) in enumerate(zip(raw, paths, strict=True))
    ]
    failed = [item for item in predictions if item.error]
    if strict and failed:
        first = failed[0]
        raise ModelError(
            f"{len(failed)} of {len(paths)} images got no prediction; {_shown(first.image)}: {first.error}"
        )
    return predictions


def _shown(path: Reference) -> str:
    if isinstance(path, Mapping):
        return ", ".join(f"{name} {channel_path}" for name, channel_path in path.items())
    return path if isinstance(path, str) else f"{path[0]} and {len(path) - 1} more slices"


def _same(given: Any, path: Reference) -> bool:
    if isinstance(path, str | Mapping):
        return bool(given == plain(path))
    slices = list(path)
    return given in (slices, slices[0], "|".join(slices), str(slices))


def _entry(
    where: str, item: Any, path: Reference, promise: Promise, folder: Path | None, kind: AnswerKind
) -> Prediction:
    image = frozen(path)
    if not isinstance(item, dict):
        raise ModelError(f"{where}: must be a JSON object, it is a {type(item).__name__}")
    if not _same(item.get("image"), path):
        raise ModelError(
            f"{where}: `image` is {item.get('image')!r}; predictions must keep the order and paths asked for"
        )
    if item.get("error"):
        return Prediction(image, error=str(item["error"])[:500])
    return Prediction(image, **kind.parse(where, item, promise, folder), **doubts_of(where, item, promise))
