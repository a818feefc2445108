"""Classes, numbers, volumes and boxes as a structured report by template TID 1500. Runs inside the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.models.predictions import DetectedBox, Prediction

from .codes import make_class_concept, make_concept, make_no_units_concept, make_private_concept, make_yes_no_concept

SR_SERIES_NUMBER, MANUFACTURER = 901, "m3b"
PROCEDURE = ("363679005", "SCT", "Imaging procedure")
VOLUME, MILLILITRES = ("118565006", "SCT", "Volume"), ("ml", "UCUM", "Milliliter")


def make_measurement_report(prediction: Prediction, sources: Sequence[Any], model: str, version: str) -> Any:
    """What was answered of one image, as a Comprehensive SR; None where it holds nothing for one (masks alone)."""
    import highdicom as hd

    groups = [
        *_whole_image_groups(prediction, sources, model, version),
        *_volume_groups(prediction, sources),
        *_box_groups(prediction, sources),
    ]
    if not groups:
        return None
    device = hd.sr.DeviceObserverIdentifyingAttributes(
        uid=hd.UID(), name=MANUFACTURER, manufacturer_name=MANUFACTURER, model_name=model[:64] or MANUFACTURER
    )
    context = hd.sr.ObservationContext(
        observer_device_context=hd.sr.ObserverContext(
            observer_type=make_concept("121007", "DCM", "Device"), observer_identifying_attributes=device
        )
    )
    content = hd.sr.MeasurementReport(
        observation_context=context, procedure_reported=make_concept(*PROCEDURE), imaging_measurements=groups
    )
    return hd.sr.ComprehensiveSR(
        evidence=list(sources),
        content=content[0],
        series_instance_uid=hd.UID(),
        series_number=SR_SERIES_NUMBER,
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=MANUFACTURER,
        is_complete=True,
        is_final=False,
    )


def _make_group(name: str, sources: Sequence[Any], **options: Any) -> Any:
    import highdicom as hd

    return hd.sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=hd.sr.TrackingIdentifier(uid=hd.UID(), identifier=name),
        source_images=[
            hd.sr.SourceImageForMeasurementGroup(str(source.SOPClassUID), str(source.SOPInstanceUID))
            for source in sources
        ],
        **options,
    )


def _whole_image_groups(prediction: Prediction, sources: Sequence[Any], model: str, version: str) -> list[Any]:
    """Decision and probabilities, a number with its interval, a score, and what the model doubts."""
    import highdicom as hd

    decision = make_private_concept(
        "Decision of the model", "DECISION"
    )  # "Finding" itself is taken: it names what a group is about
    evaluations = [hd.sr.QualitativeEvaluation(decision, make_class_concept(name)) for name in prediction.prediction]
    for name in prediction.prediction_set or ():
        evaluations.append(
            hd.sr.QualitativeEvaluation(
                make_private_concept("Cannot be ruled out", "POSSIBLE"), make_class_concept(name)
            )
        )
    if prediction.out_of_distribution is not None:
        ood_concept = make_private_concept("Unlike the training images", "OUT_OF_DIST")
        evaluations.append(
            hd.sr.QualitativeEvaluation(ood_concept, make_yes_no_concept(prediction.out_of_distribution))
        )
    if prediction.abstains is not None:
        evaluations.append(
            hd.sr.QualitativeEvaluation(
                make_private_concept("Model abstains", "ABSTAINS"), make_yes_no_concept(prediction.abstains)
            )
        )
    numbers = [
        (make_private_concept(f"Probability of {name}", f"P_{index}"), value)
        for index, (name, value) in enumerate(prediction.probabilities.items())
    ]
    if prediction.anomaly_score is not None:
        numbers.append((make_private_concept("Anomaly score"), prediction.anomaly_score))
    numbers += _list_estimates(prediction)
    measurements = [hd.sr.Measurement(name, _to_decimal(value), make_no_units_concept()) for name, value in numbers]
    if not measurements and not prediction.prediction:
        return []
    algorithm = hd.sr.AlgorithmIdentification(name=model[:64] or MANUFACTURER, version=version[:64])
    return [
        _make_group("whole image", sources, algorithm_id=algorithm, measurements=measurements or None,
               qualitative_evaluations=evaluations or None)
    ]  # fmt: skip


def _list_estimates(prediction: Prediction) -> list[tuple[Any, float]]:
    value, interval = prediction.extra.get("value"), prediction.extra.get("interval")
    if not isinstance(value, int | float):
        return []
    estimates = [(make_private_concept("Estimated value", "VALUE"), float(value))]
    if isinstance(interval, list | tuple) and len(interval) == 2:
        level = f"{float(prediction.extra.get('interval_level') or 0):.0%}"
        estimates += [(make_private_concept(f"Lower end of the {level} interval", "LOW"), float(interval[0]))]
        estimates += [(make_private_concept(f"Upper end of the {level} interval", "HIGH"), float(interval[1]))]
    return estimates


def _to_decimal(value: float) -> float:
    """What fits into the 16 characters of a decimal string."""
    return float(f"{value:.8g}")


def _volume_groups(prediction: Prediction, sources: Sequence[Any]) -> list[Any]:
    import highdicom as hd

    return [
        _make_group(f"volume of {name}", sources, finding_type=make_class_concept(name),
               measurements=[hd.sr.Measurement(make_concept(*VOLUME), _to_decimal(value), make_concept(*MILLILITRES))])
        for name, value in prediction.volumes_ml.items() if value is not None
    ]  # fmt: skip


def _box_groups(prediction: Prediction, sources: Sequence[Any]) -> list[Any]:
    """Boxes of one picture, as closed polylines in its pixels; those of volumes stand in predictions.json alone."""
    if len(sources) != 1:
        return []
    return [
        _make_box_group(number, box, sources[0])
        for number, box in enumerate(prediction.boxes or (), 1)
        if len(box.box) == 4
    ]


def _make_box_group(number: int, box: DetectedBox, source: Any) -> Any:
    import highdicom as hd
    import numpy as np

    x_min, y_min, x_max, y_max = box.box
    corners = np.array([[x_min, y_min], [x_max, y_min], [x_max, y_max], [x_min, y_max], [x_min, y_min]])
    image = hd.sr.SourceImageForRegion(str(source.SOPClassUID), str(source.SOPInstanceUID))
    return hd.sr.PlanarROIMeasurementsAndQualitativeEvaluations(
        tracking_identifier=hd.sr.TrackingIdentifier(uid=hd.UID(), identifier=f"box {number}"),
        referenced_region=hd.sr.ImageRegion(
            graphic_type=hd.sr.GraphicTypeValues.POLYLINE, graphic_data=corners, source_image=image
        ),
        finding_type=make_class_concept(box.label),
        measurements=[
            hd.sr.Measurement(
                make_private_concept("Score of the box", "SCORE"), _to_decimal(box.score), make_no_units_concept()
            )
        ],
    )
