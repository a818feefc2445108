"""What predict.py must write: one JSON object an image, in the order asked, with sane probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import ModelError

MAX_BYTES = 2**30
_SUM_TOLERANCE = 0.02


@dataclass(frozen=True)
class Prediction:
    """The model's answer for one image.

    Args:
        image: the path as it was asked for.
        probabilities: class -> probability.
        prediction: the classes that the model decides for: one, or any number in a multi-label task.
        error: why there is no answer; empty where there is one.
    """

    image: str | tuple[str, ...]
    probabilities: Mapping[str, float]
    prediction: tuple[str, ...] = ()
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        image = self.image if isinstance(self.image, str) else list(self.image)
        if self.error:
            return {"image": image, "error": self.error}
        return {"image": image, "probabilities": dict(self.probabilities), "prediction": list(self.prediction)}


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
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the output of predict.py is no JSON: {error}{tail}") from error
    if not isinstance(raw, list):
        raise ModelError(f"the output of predict.py must be a JSON list, it is a {type(raw).__name__}{tail}")
    return raw


def check_output(
    raw: Sequence[Any],
    paths: Sequence[str | Sequence[str]],
    classes: Sequence[str],
    multi_label: bool,
    *,
    strict: bool = True,
) -> list[Prediction]:
    """Predictions from the JSON list, in the order of `paths`.

    Args:
        strict: an image that the model reports as unreadable raises; otherwise it gives a Prediction with `error`.

    Raises:
        ModelError: not one entry a path in the same order, unknown or missing classes, or numbers that are no
            probabilities; the message names the entry.
    """
    if len(raw) != len(paths):
        raise ModelError(f"predict.py gave {len(raw)} predictions for {len(paths)} images")
    checked = [
        _entry(f"prediction {number} ({_shown(path)})", item, path, tuple(classes), multi_label)
        for number, (item, path) in enumerate(zip(raw, paths, strict=True))
    ]
    failed = [item for item in checked if item.error]
    if strict and failed:
        first = failed[0]
        raise ModelError(
            f"{len(failed)} of {len(paths)} images got no prediction; {_shown(first.image)}: {first.error}"
        )
    return checked


def _shown(path: str | Sequence[str]) -> str:
    return path if isinstance(path, str) else f"{path[0]} and {len(path) - 1} more slices"


def _same(given: Any, path: str | Sequence[str]) -> bool:
    if isinstance(path, str):
        return bool(given == path)
    slices = list(path)
    return given in (slices, slices[0], "|".join(slices), str(slices))


def _entry(where: str, item: Any, path: str | Sequence[str], classes: tuple[str, ...], multi_label: bool) -> Prediction:
    image = path if isinstance(path, str) else tuple(path)
    if not isinstance(item, dict):
        raise ModelError(f"{where}: must be a JSON object, it is a {type(item).__name__}")
    if not _same(item.get("image"), path):
        raise ModelError(
            f"{where}: `image` is {item.get('image')!r}; predictions must keep the order and paths asked for"
        )
    if item.get("error"):
        return Prediction(image, {}, (), str(item["error"])[:500])
    probabilities = item.get("probabilities")
    if not isinstance(probabilities, dict):
        raise ModelError(f"{where}: `probabilities` must be an object of class to number, it is {probabilities!r}")
    if set(probabilities) != set(classes):
        raise ModelError(f"{where}: probabilities for {sorted(probabilities)}, but the classes are {sorted(classes)}")
    for name, value in probabilities.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not -1e-6 <= value <= 1 + 1e-6:
            raise ModelError(f"{where}: the probability of {name!r} is {value!r}, not a number from 0 to 1")
    total = math.fsum(probabilities.values())
    if not multi_label and abs(total - 1) > _SUM_TOLERANCE:
        raise ModelError(f"{where}: the probabilities sum to {total:.4g}, not 1")
    ordered = {name: float(probabilities[name]) for name in classes}
    return Prediction(image, ordered, _decision(where, item, ordered, multi_label))


def _decision(
    where: str, item: Mapping[str, Any], probabilities: Mapping[str, float], multi_label: bool
) -> tuple[str, ...]:
    given = item.get("prediction")
    if given is None:
        if multi_label:
            return tuple(name for name, value in probabilities.items() if value >= 0.5)
        return (max(probabilities, key=lambda name: probabilities[name]),)
    chosen = [given] if isinstance(given, str) else given
    if not isinstance(chosen, list) or any(name not in probabilities for name in chosen):
        raise ModelError(f"{where}: `prediction` is {given!r}; the classes are {list(probabilities)}")
    if not multi_label and len(chosen) != 1:
        raise ModelError(f"{where}: `prediction` names {len(chosen)} classes where exactly one is possible")
    return tuple(chosen)
