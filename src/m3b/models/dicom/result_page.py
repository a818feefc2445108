"""A prediction on one page, as a PDF in a DICOM object (encapsulated PDF). Runs in the reader."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.display import format_json_value
from m3b.models.dicom.objects import start_object
from m3b.models.overlay import load_font, overlay_png, wrap_text
from m3b.models.predictions import ModelInfo, Prediction

ENCAPSULATED_PDF_CLASS = "1.2.840.10008.5.1.4.1.1.104.1"
PDF_SERIES_NUMBER = 903
PAGE_PX, PAGE_DPI = (1240, 1754), 150
MARGIN_PX = 80
TITLE = "Result of a research model"
RESEARCH_NOTE = (
    "For research only. This model has no approval as a medical device: its result is not a diagnosis and must not decide "
    "on the care of a patient."
)


def make_pdf_object(
    prediction: Prediction,
    model_info: ModelInfo,
    window: Mapping[str, Any] | None,
    sources: Sequence[Any],
    model: str,
    version: str,
) -> Any:
    """Return the page of a prediction as an object in the study of its sources.

    Args:
        window: as `overlay_png` takes it.

    Raises:
        DataError: the prediction cannot be drawn on its image.
    """
    first = sources[0]
    dataset = start_object(first, ENCAPSULATED_PDF_CLASS, "DOC", PDF_SERIES_NUMBER, model, version)
    pdf = _draw_page(prediction, overlay_png(prediction, model_info, window=window), sources, model, version)
    dataset.ConversionType, dataset.BurnedInAnnotation, dataset.DocumentTitle = "WSD", "YES", TITLE
    dataset.ContentDate, dataset.ContentTime = dataset.InstanceCreationDate, dataset.InstanceCreationTime
    dataset.AcquisitionDateTime, dataset.ConceptNameCodeSequence = "", []
    dataset.MIMETypeOfEncapsulatedDocument = "application/pdf"
    dataset.EncapsulatedDocumentLength, dataset.EncapsulatedDocument = len(pdf), pdf + b"\0" * (len(pdf) % 2)
    return dataset


def _draw_page(prediction: Prediction, overlay: bytes, sources: Sequence[Any], model: str, version: str) -> bytes:
    from PIL import Image, ImageDraw

    width = PAGE_PX[0] - 2 * MARGIN_PX
    page = Image.new("RGB", PAGE_PX, "white")
    pen, y = ImageDraw.Draw(page), MARGIN_PX
    pen.text((MARGIN_PX, y), TITLE, fill="black", font=load_font(44))
    y += 70
    for line in wrap_text(RESEARCH_NOTE, width, 24):
        pen.text((MARGIN_PX, y), line, fill=(170, 0, 0), font=load_font(24))
        y += 34
    for name, value in [
        *_describe_study(sources),
        ("Model", f"{model}, version {version}"),
        *_describe_result(prediction),
    ]:
        y += 10
        pen.text((MARGIN_PX, y), name, fill=(90, 90, 90), font=load_font(22))
        for line in wrap_text(value, width - 260, 22) or [""]:
            pen.text((MARGIN_PX + 260, y), line, fill="black", font=load_font(22))
            y += 30
    picture = Image.open(io.BytesIO(overlay))
    picture.thumbnail((width, max(PAGE_PX[1] - y - MARGIN_PX, 1)))
    page.paste(picture, (MARGIN_PX, y + 20))
    stream = io.BytesIO()
    page.save(stream, "PDF", resolution=PAGE_DPI, quality=92, title=TITLE)
    return stream.getvalue()


def _describe_study(sources: Sequence[Any]) -> list[tuple[str, str]]:
    first = sources[0]
    patient = f"{first.PatientName}, {first.PatientID}, {first.PatientBirthDate}".replace("^", " ").strip(", ")
    return [
        ("Patient", patient),
        ("Study", f"{first.StudyDate} {first.AccessionNumber}".strip()),
        ("Series", f"{first.get('SeriesDescription', '')} ({len(sources)} images)".strip()),
    ]


def _describe_result(prediction: Prediction) -> list[tuple[str, str]]:
    rows = [("Unlike training", prediction.why or "yes")] if prediction.out_of_distribution else []
    rows += [("Image", "; ".join(prediction.notes))] if prediction.notes else []
    rows += (
        [("Decision", ", ".join(prediction.prediction) or "none of the classes")] if prediction.probabilities else []
    )
    ranked = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:12]
    rows += [("Probabilities", ", ".join(f"{name} {value:.3f}" for name, value in ranked))] if ranked else []
    if prediction.abstains:
        rows.append(("Model abstains", f"not ruled out: {', '.join(prediction.prediction_set or ())}"))
    volumes = [f"{name} {value:.2f} ml" for name, value in prediction.volumes_ml.items() if value is not None]
    rows += [("Volumes", ", ".join(volumes))] if volumes else []
    rows += [("Boxes", str(len(prediction.boxes)))] if prediction.boxes is not None else []
    rows += [] if prediction.anomaly_score is None else [("Anomaly score", f"{prediction.anomaly_score:.3f}")]
    return rows + [(name, format_json_value(value)) for name, value in prediction.extra.items()]
