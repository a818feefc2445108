"""What predict.py must write: one JSON object an image, in the order asked, with answers that can be right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.notebook import as_html, file_name, short

MAX_BYTES = 2**30

SHOWN = 3
"""Classes that a short representation names."""

MASKED = ("segmentation", "detection")
"""Tasks whose predict.py takes `--masks DIR`."""


@dataclass(frozen=True)
class BoxAnswer:
    """A box that the model found, in the image file's own coordinates (see docs/data.md), and how sure it is."""

    label: str
    box: tuple[float, ...]
    score: float

    def __str__(self) -> str:
        corners = ", ".join(f"{value:.1f}" for value in self.box)
        return f"{self.label} {self.score:.3f} at {corners}"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"label": self.label, "box": list(self.box), "score": self.score}


@dataclass(frozen=True, repr=False)
class Prediction:
    """The model's answer for one image; which fields are set depends on the task.

    Args:
        image: the path as it was asked for.
        probabilities: diagnosis: class -> probability.
        prediction: diagnosis: the classes that the model decides for: one, or any number in a multi-label task.
        error: why there is no answer; empty where there is one.
        mask: segmentation: the file with a label number for each voxel.
        masks: class -> binary mask file, where classes may overlap.
        boxes: detection: what was found; None where the model gives no boxes.
        anomaly_score: detection: how abnormal the image is as a whole, 0 to 1.
        volumes_ml: segmentation: class -> millilitres, None where the spacing is unknown.
        findings: report.
        impression: report.
    """

    image: str | tuple[str, ...]
    probabilities: Mapping[str, float] = field(default_factory=dict)
    prediction: tuple[str, ...] = ()
    error: str = ""
    mask: Path | None = None
    masks: Mapping[str, Path] = field(default_factory=dict)
    boxes: tuple[BoxAnswer, ...] | None = None
    anomaly_score: float | None = None
    volumes_ml: Mapping[str, float | None] = field(default_factory=dict)
    findings: str | None = None
    impression: str | None = None

    def __repr__(self) -> str:
        return f"<Prediction {file_name(self.image)}: {'; '.join(self._parts()) or 'nothing'}>"

    def _repr_html_(self) -> str:
        rows = [
            ("error", self.error), ("decision", ", ".join(self.prediction)),
            *((name, f"{value:.3f}") for name, value in self.probabilities.items()),
            ("mask", self.mask), *((f"mask of {name}", file) for name, file in self.masks.items()),
            *((f"{name}, ml", "unknown" if value is None else f"{value:.1f}") for name, value in self.volumes_ml.items()),
            *((f"box {n}", str(box)) for n, box in enumerate(self.boxes or (), 1)),
            ("anomaly score", "" if self.anomaly_score is None else f"{self.anomaly_score:.3f}"),
            ("findings", self.findings), ("impression", self.impression),
        ]  # fmt: skip
        return as_html(file_name(self.image), rows)

    def _parts(self) -> list[str]:
        """What the answer is, each part short; of many classes the likeliest."""
        if self.error:
            return [f"error: {short(self.error)}"]
        likely = sorted(self.probabilities.items(), key=lambda item: -item[1])[:SHOWN]
        parts = [", ".join(self.prediction) or "none of the classes"] if self.probabilities else []
        parts += [", ".join(f"{name} {value:.3f}" for name, value in likely)] if likely else []
        parts += [f"mask {short(self.mask)}"] if self.mask is not None else []
        parts += [f"masks of {short(', '.join(self.masks))}"] if self.masks else []
        if self.boxes is not None:
            best = max(self.boxes, key=lambda box: box.score, default=None)
            surest = f", the surest {best.label} {best.score:.3f}" if best else ""
            parts.append(f"{len(self.boxes)} {'box' if len(self.boxes) == 1 else 'boxes'}{surest}")
        parts += [] if self.anomaly_score is None else [f"anomaly score {self.anomaly_score:.3f}"]
        return [*parts, *([f'"{short(self.text)}"'] if self.text else [])]

    @property
    def text(self) -> str:
        """Findings and impression as one text; empty for other tasks."""
        return " ".join(part for part in ((self.findings or "").strip(), (self.impression or "").strip()) if part)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; only what is set."""
        image = self.image if isinstance(self.image, str) else list(self.image)
        if self.error:
            return {"image": image, "error": self.error}
        answer: dict[str, Any] = {"image": image}
        if self.probabilities:
            answer |= {"probabilities": dict(self.probabilities), "prediction": list(self.prediction)}
        if self.mask is not None:
            answer["mask"] = str(self.mask)
        if self.masks:
            answer["masks"] = {name: str(file) for name, file in self.masks.items()}
        if self.volumes_ml:
            answer["volumes_ml"] = dict(self.volumes_ml)
        if self.boxes is not None:
            answer["boxes"] = [box.to_dict() for box in self.boxes]
        if self.anomaly_score is not None:
            answer["anomaly_score"] = self.anomaly_score
        if self.findings is not None or self.impression is not None:
            answer |= {"findings": self.findings or "", "impression": self.impression or ""}
        return answer


@dataclass(frozen=True)
class Promise:
    """What a deliverable says of itself in its config.json.

    Args:
        classes: in the order of its outputs (for reports the findings that it knows, possibly none).
        labels: of masks, class -> number in the mask file.
    """

    task: str
    classes: tuple[str, ...]
    multi_label: bool = False
    labels: Mapping[str, int] = field(default_factory=dict)


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
        promise = Promise("diagnosis", tuple(promise), multi_label)
    if len(raw) != len(paths):
        raise ModelError(f"predict.py gave {len(raw)} predictions for {len(paths)} images")
    from .answers import parse

    checked = [
        _entry(f"prediction {number} ({_shown(path)})", item, path, promise, folder, parse)
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
    several = list(path)
    return given in (several, several[0], "|".join(several), str(several))


def _entry(
    where: str, item: Any, path: str | Sequence[str], promise: Promise, folder: Path | None, parse: Any
) -> Prediction:
    image = path if isinstance(path, str) else tuple(path)
    if not isinstance(item, dict):
        raise ModelError(f"{where}: must be a JSON object, it is a {type(item).__name__}")
    if not _same(item.get("image"), path):
        raise ModelError(
            f"{where}: `image` is {item.get('image')!r}; predictions must keep the order and paths asked for"
        )
    if item.get("error"):
        return Prediction(image, error=str(item["error"])[:500])
    return Prediction(image, **parse(where, item, promise, folder))
