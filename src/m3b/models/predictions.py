"""A model's prediction for one image, and the model's info."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.data.records import Image, paths_of, plain
from m3b.display import format_file_name, format_json_value, make_html_pictures, make_html_table, shorten

MAX_CLASSES_SHOWN = 3
"""Number of classes in a short representation."""


@dataclass(frozen=True)
class DetectedBox:
    """A detected box, in the image file's own coordinates (see docs/data.md), with its confidence."""

    label: str
    box: tuple[float, ...]
    score: float

    def __str__(self) -> str:
        corners = ", ".join(f"{value:.1f}" for value in self.box)
        return f"{self.label} {self.score:.3f} at {corners}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"label": self.label, "box": list(self.box), "score": self.score}


@dataclass(frozen=True)
class Saliency:
    """What an answer depends on, as the model itself computes it.

    Args:
        map_file: on the grid of the image, with whole numbers from 0 to 255, of what speaks for the answer.
        method: `hirescam`, `occlusion` or `attention`.
        target: the class that is explained; empty for a number or a risk.
        outline: the level from which the image was hidden for `score_hidden`.
        score: the probability of the class, or the number or risk.
        score_hidden: what it is with that part of the image hidden.
        score_elsewhere: what it is with an equal part elsewhere hidden.
    """

    map_file: Path
    method: str
    target: str
    outline: int
    score: float
    score_hidden: float
    score_elsewhere: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as predict.py writes them."""
        return {
            "map": str(self.map_file),
            "method": self.method,
            **({"class": self.target} if self.target else {}),
            "outline": self.outline,
            "score": self.score,
            "score_hidden": self.score_hidden,
            "score_elsewhere": self.score_elsewhere,
        }


@dataclass(frozen=True, repr=False)
class Prediction:
    """The model's prediction for one image; which fields are set depends on the task.

    Args:
        image: the path as it was requested; channel name -> path if the model takes several images a case.
        probabilities: diagnosis: class -> probability.
        prediction: diagnosis: the classes that the model decides for: one, or any number in a multi-label task.
        error: why there is no prediction; empty if there is one.
        error_code: the reason for programs: `not_predicted`, or what the model does not take, such as
            `volume_for_2d_model`.
        mask: segmentation: the file with a label number for each voxel.
        masks: class -> binary mask file, if classes may overlap.
        boxes: detection: the detected boxes; None if the model predicts no boxes.
        anomaly_score: detection: how abnormal the image is as a whole, 0 to 1.
        anomaly_map: detection: a file on the image's grid with an integer from 0 to 1000 a pixel, higher is more
            abnormal.
        volumes_ml: segmentation: class -> millilitres, None if the spacing is unknown.
        findings: report.
        impression: report.
        out_of_distribution: whether the image is unlike the training images; None if the model cannot say.
        why: the reason for that.
        notes: what the reader of the image notes, such as `slice_gap missing=1`: slices that are interpolated.
        prediction_set: the classes that cannot be ruled out (conformal prediction); None if the model gives no such
            set.
        set_level: the share of images like the training ones whose true class is in such a set.
        abstains: whether that set differs from the decision, so that the model should not decide.
        saliency: what the answer depends on, if it was asked for.
        extra: fields of other task families, as JSON values by key.
    """

    image: Image
    probabilities: Mapping[str, float] = field(default_factory=dict)
    prediction: tuple[str, ...] = ()
    error: str = ""
    error_code: str = ""
    mask: Path | None = None
    masks: Mapping[str, Path] = field(default_factory=dict)
    boxes: tuple[DetectedBox, ...] | None = None
    anomaly_score: float | None = None
    anomaly_map: Path | None = None
    volumes_ml: Mapping[str, float | None] = field(default_factory=dict)
    findings: str | None = None
    impression: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    out_of_distribution: bool | None = None
    why: str = ""
    notes: tuple[str, ...] = ()
    prediction_set: tuple[str, ...] | None = None
    set_level: float | None = None
    abstains: bool | None = None
    saliency: Saliency | None = None

    def __repr__(self) -> str:
        return f"<Prediction {format_file_name(paths_of(self.image))}: {'; '.join(self._summary_parts()) or 'nothing'}>"

    def _repr_html_(self) -> str:
        rows = [
            ("error", self.error), ("decision", ", ".join(self.prediction)),
            *((name, f"{value:.3f}") for name, value in self.probabilities.items()),
            ("cannot be ruled out", ", ".join(self.prediction_set or ())),
            ("out of distribution", self.why if self.out_of_distribution else ""),
            ("notes on the image", "; ".join(self.notes)),
            ("mask", self.mask), *((f"mask of {name}", file) for name, file in self.masks.items()),
            *((f"{name}, ml", "" if value is None else f"{value:.1f}") for name, value in self.volumes_ml.items()),
            *((f"box {n}", str(box)) for n, box in enumerate(self.boxes or (), 1)),
            ("anomaly score", "" if self.anomaly_score is None else f"{self.anomaly_score:.3f}"),
            ("anomaly map", self.anomaly_map),
            ("saliency map", self.saliency.map_file if self.saliency else None),
            ("findings", self.findings), ("impression", self.impression),
            *((name, "" if value is None else format_json_value(value)) for name, value in self.extra.items()),
        ]  # fmt: skip
        caption = format_file_name(paths_of(self.image))
        return make_html_table(caption, rows, make_html_pictures([(self.draw(), caption)]))

    def draw(self) -> bytes:
        """Return the image with what was predicted drawn on it, as PNG; b"" if there is no picture. It is patient data."""
        painter = vars(self).get("_painter")
        return b"" if painter is None or self.error else bytes(painter(self))

    def with_painter(self, painter: Callable[[Prediction], bytes]) -> Prediction:
        """Return the same prediction, which a notebook shows with the PNG that `painter` draws; b"" for none."""
        copy = replace(self)
        object.__setattr__(copy, "_painter", painter)  # no field: it belongs to the process, not to the values
        return copy

    def _summary_parts(self) -> list[str]:
        """Return short parts that summarise the prediction; of many classes the most probable."""
        if self.error:
            return [f"error: {shorten(self.error)}"]
        ood_note = [f"OUT OF DISTRIBUTION, {shorten(self.why)}"] if self.out_of_distribution else []
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])[:MAX_CLASSES_SHOWN]
        parts = ood_note + ([", ".join(self.prediction) or "none of the classes"] if self.probabilities else [])
        parts += [", ".join(f"{name}: {value:.3f}" for name, value in ranked)] if ranked else []
        parts += [f"mask {shorten(self.mask)}"] if self.mask is not None else []
        parts += [f"masks of {shorten(', '.join(self.masks))}"] if self.masks else []
        if self.boxes is not None:
            top_box = max(self.boxes, key=lambda box: box.score, default=None)
            top_box_text = f", the surest {top_box.label} {top_box.score:.3f}" if top_box else ""
            parts.append(f"{len(self.boxes)} {'box' if len(self.boxes) == 1 else 'boxes'}{top_box_text}")
        parts += [] if self.anomaly_score is None else [f"anomaly score {self.anomaly_score:.3f}"]
        parts += [f"{name} {shorten(format_json_value(value))}" for name, value in self.extra.items()]
        return [*parts, *([f'"{shorten(self.text)}"'] if self.text else [])]

    def _reliability_fields(self) -> dict[str, Any]:
        """Return the reliability fields that are set, as JSON values."""
        fields: dict[str, Any] = {}
        if self.out_of_distribution is not None:
            fields["out_of_distribution"] = self.out_of_distribution
        if self.why:
            fields["why"] = self.why
        if self.notes:
            fields["notes"] = list(self.notes)
        if self.prediction_set is not None:
            fields |= {
                "prediction_set": list(self.prediction_set),
                "set_level": self.set_level,
                "abstains": self.abstains,
            }
        return fields

    def without_files(self) -> Prediction:
        """Return the prediction without the files that predict.py wrote."""
        return replace(self, mask=None, masks={}, anomaly_map=None, saliency=None)

    @property
    def text(self) -> str:
        """Findings and impression as one text; empty for other tasks."""
        return " ".join(part for part in ((self.findings or "").strip(), (self.impression or "").strip()) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; only fields that are set."""
        image = plain(self.image)
        if self.error:
            return {"image": image, "error": self.error, **({"error_code": self.error_code} if self.error_code else {})}
        answer: dict[str, Any] = {"image": image, **self.extra, **self._reliability_fields()}
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
        if self.anomaly_map is not None:
            answer["anomaly_map"] = str(self.anomaly_map)
        if self.saliency is not None:
            answer["saliency"] = self.saliency.to_dict()
        if self.findings is not None or self.impression is not None:
            answer |= {"findings": self.findings or "", "impression": self.impression or ""}
        return answer


@dataclass(frozen=True)
class ModelInfo:
    """The model's info in the config.json of a deliverable.

    Args:
        classes: in the order of its outputs (for reports the findings that it knows, possibly none).
        labels: for masks, class -> number in the mask file.
    """

    task: str
    classes: tuple[str, ...]
    multi_label: bool = False
    labels: Mapping[str, int] = field(default_factory=dict)
