"""Classes, numbers, volumes and boxes as a structured report by template TID 1500. Runs inside the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.models.predictions import BoxAnswer, Prediction

from .codes import coded, concept, one, own, yes_or_no

SERIES, MAKER = 901, "m3b"
PROCEDURE = ("363679005", "SCT", "Imaging procedure")
VOLUME, MILLILITRES = ("118565006", "SCT", "Volume"), ("ml", "UCUM", "Milliliter")


def measurement_report(answer: Prediction, sources: Sequence[Any], model: str, version: str) -> Any:
    """What was answered of one image, as a Comprehensive SR; None where it holds nothing for one (masks alone)."""
    import highdicom as hd

    groups = [*_whole(answer, sources, model, version), *_volumes(answer, sources), *_boxes(answer, sources)]
    if not groups:
        return None
    device = hd.sr.DeviceObserverIdentifyingAttributes(
        uid=hd.UID(), name=MAKER, manufacturer_name=MAKER, model_name=model[:64] or MAKER
    )
    context = hd.sr.ObservationContext(
        observer_device_context=hd.sr.ObserverContext(
            observer_type=concept("121007", "DCM", "Device"), observer_identifying_attributes=device
        )
    )
    content = hd.sr.MeasurementReport(
        observation_context=context, procedure_reported=concept(*PROCEDURE), imaging_measurements=groups
    )
    return hd.sr.ComprehensiveSR(
        evidence=list(sources),
        content=content[0],
        series_instance_uid=hd.UID(),
        series_number=SERIES,
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=MAKER,
        is_complete=True,
        is_final=False,
    )


def _group(name: str, sources: Sequence[Any], **more: Any) -> Any:
    import highdicom as hd

    return hd.sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=hd.sr.TrackingIdentifier(uid=hd.UID(), identifier=name),
        source_images=[
            hd.sr.SourceImageForMeasurementGroup(str(source.SOPClassUID), str(source.SOPInstanceUID))
            for source in sources
        ],
        **more,
    )


def _whole(answer: Prediction, sources: Sequence[Any], model: str, version: str) -> list[Any]:
    """Decision and probabilities, a number with its interval, a score, and what the model doubts."""
    import highdicom as hd

    decision = own("Decision of the model", "DECISION")  # "Finding" itself is taken: it names what a group is about
    evaluations = [hd.sr.QualitativeEvaluation(decision, coded(name)) for name in answer.prediction]
    for name in answer.prediction_set or ():
        evaluations.append(hd.sr.QualitativeEvaluation(own("Cannot be ruled out", "POSSIBLE"), coded(name)))
    if answer.out_of_distribution is not None:
        ood_concept = own("Unlike the training images", "OUT_OF_DIST")
        evaluations.append(hd.sr.QualitativeEvaluation(ood_concept, yes_or_no(answer.out_of_distribution)))
    if answer.abstains is not None:
        evaluations.append(hd.sr.QualitativeEvaluation(own("Model abstains", "ABSTAINS"), yes_or_no(answer.abstains)))
    numbers = [
        (own(f"Probability of {name}", f"P_{index}"), value)
        for index, (name, value) in enumerate(answer.probabilities.items())
    ]
    if answer.anomaly_score is not None:
        numbers.append((own("Anomaly score"), answer.anomaly_score))
    numbers += _list_estimates(answer)
    measurements = [hd.sr.Measurement(name, _to_decimal(value), one()) for name, value in numbers]
    if not measurements and not answer.prediction:
        return []
    algorithm = hd.sr.AlgorithmIdentification(name=model[:64] or MAKER, version=version[:64])
    return [
        _group("whole image", sources, algorithm_id=algorithm, measurements=measurements or None,
               qualitative_evaluations=evaluations or None)
    ]  # fmt: skip


def _list_estimates(prediction: Prediction) -> list[tuple[Any, float]]:
    value, interval = prediction.extra.get("value"), prediction.extra.get("interval")
    if not isinstance(value, int | float):
        return []
    estimates = [(own("Estimated value", "VALUE"), float(value))]
    if isinstance(interval, list | tuple) and len(interval) == 2:
        level = f"{float(prediction.extra.get('interval_level') or 0):.0%}"
        estimates += [(own(f"Lower end of the {level} interval", "LOW"), float(interval[0]))]
        estimates += [(own(f"Upper end of the {level} interval", "HIGH"), float(interval[1]))]
    return estimates


def _to_decimal(value: float) -> float:
    """What fits into the 16 characters of a decimal string."""
    return float(f"{value:.8g}")


def _volumes(answer: Prediction, sources: Sequence[Any]) -> list[Any]:
    import highdicom as hd

    return [
        _group(f"volume of {name}", sources, finding_type=coded(name),
               measurements=[hd.sr.Measurement(concept(*VOLUME), _to_decimal(value), concept(*MILLILITRES))])
        for name, value in answer.volumes_ml.items() if value is not None
    ]  # fmt: skip


def _boxes(answer: Prediction, sources: Sequence[Any]) -> list[Any]:
    """Boxes of one picture, as closed polylines in its pixels; those of volumes stand in predictions.json alone."""
    if len(sources) != 1:
        return []
    return [
        _make_box_group(number, box, sources[0])
        for number, box in enumerate(answer.boxes or (), 1)
        if len(box.box) == 4
    ]


def _make_box_group(number: int, box: BoxAnswer, source: Any) -> Any:
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
        finding_type=coded(box.label),
        measurements=[hd.sr.Measurement(own("Score of the box", "SCORE"), _to_decimal(box.score), one())],
    )
