"""DICOM objects of a prediction: a segmentation, and a structured report by template TID 1500. Runs in the reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from m3b.dataset.reading import read_mask
from m3b.models.dicom.sources import OPTIONAL_ATTRIBUTES, resample_to_planes
from m3b.models.predictions import DetectedBox, Prediction

SEG_SERIES_NUMBER, MANUFACTURER = 900, "m3b"


def start_object(source: Any, sop_class: str, modality: str, series_number: int, model: str, version: str) -> Any:
    """Return an object of a new series in the study and of the patient of a source."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ImplicitVRLittleEndian, generate_uid

    dataset = Dataset()
    for name in ("StudyInstanceUID", *OPTIONAL_ATTRIBUTES):
        setattr(dataset, name, source[name].value)
    if "SpecificCharacterSet" in source:
        dataset.SpecificCharacterSet = source.SpecificCharacterSet
    dataset.SOPClassUID, dataset.SOPInstanceUID, dataset.SeriesInstanceUID = sop_class, generate_uid(), generate_uid()
    dataset.Modality, dataset.SeriesNumber, dataset.InstanceNumber = modality, series_number, 1
    dataset.Manufacturer, dataset.ManufacturerModelName = MANUFACTURER, model[:64] or MANUFACTURER
    dataset.SoftwareVersions = version[:64]
    now = datetime.now(UTC).astimezone()
    dataset.InstanceCreationDate, dataset.InstanceCreationTime = f"{now:%Y%m%d}", f"{now:%H%M%S}"
    dataset.file_meta = FileMetaDataset()
    # explicit VR holds at most 65,534 bytes a contour
    dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    return dataset


def read_mask_planes(prediction: Prediction, labels: Mapping[str, int], sources: Sequence[Any]) -> dict[str, Any]:
    """Return class -> (N, rows, columns) mask on the pixels of each source.

    Args:
        labels: class -> number in `prediction.mask`; for `prediction.masks` it is not used.
        sources: headers in order, as `read_source_headers` gives them.

    Raises:
        DataError: as `resample_to_planes`.
    """
    if prediction.masks:
        files = prediction.masks.items()
        return {name: resample_to_planes(read_mask(str(file)), sources) != 0 for name, file in files}
    label_map = resample_to_planes(read_mask(str(prediction.mask)), sources)
    return {name: label_map == number for name, number in labels.items()}


def make_segmentation(planes: Mapping[str, Any], sources: Sequence[Any], model: str, version: str) -> Any:
    """Return a binary segmentation object of the predicted masks.

    Args:
        planes: masks, as `read_mask_planes` gives them.
    """
    import highdicom as hd
    import numpy as np

    algorithm = hd.AlgorithmIdentificationSequence(
        name=model[:64] or MANUFACTURER,
        family=make_concept("123110", "DCM", "Artificial Intelligence"),
        version=version[:64],
    )
    return hd.seg.Segmentation(
        source_images=list(sources),
        pixel_array=np.stack(list(planes.values()), axis=-1).astype(np.uint8),
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[
            _describe_segment(number, name, algorithm) for number, name in enumerate(planes, start=1)
        ],
        series_instance_uid=hd.UID(),
        series_number=SEG_SERIES_NUMBER,
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=MANUFACTURER,
        manufacturer_model_name=model[:64] or MANUFACTURER,
        software_versions=version,
        device_serial_number="0",
        content_description="Masks of a research model",
        content_label="M3B",
    )


def _describe_segment(number: int, name: str, algorithm: Any) -> Any:
    import highdicom as hd

    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=name[:64],
        segmented_property_category=make_concept("123037004", "SCT", "Anatomical Structure"),
        segmented_property_type=make_class_concept(name),
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=algorithm,
    )


def save_dicom(dataset: Any, file: Path) -> str:
    """Write an object and return its file name."""
    dataset.save_as(file, enforce_file_format=True)
    return file.name


SCHEME = "99M3B"
"""Coding scheme of private codes; DICOM requires the prefix 99."""
MAX_CODE_CHARS, MAX_MEANING_CHARS = 16, 64


def make_class_concept(name: str) -> Any:
    """Return the concept of a class name: the SNOMED code of that name, else a private one."""
    from highdicom.sr import CodedConcept
    from pydicom.sr.codedict import codes

    words = re.findall(r"[A-Za-z0-9]+", name)
    try:
        standard_concept = getattr(codes.SCT, "".join(word.capitalize() for word in words)) if words else None
    except AttributeError:
        standard_concept = None
    if standard_concept is not None:
        return CodedConcept(standard_concept.value, standard_concept.scheme_designator, standard_concept.meaning)
    return make_private_concept(name)


def make_private_concept(meaning: str, code: str = "") -> Any:
    """Return a concept of the private scheme; by default the code is derived from the meaning."""
    from highdicom.sr import CodedConcept

    code_value = code or re.sub(r"[^A-Z0-9]+", "_", meaning.upper()).strip("_")[:MAX_CODE_CHARS] or "UNNAMED"
    return CodedConcept(code_value, SCHEME, meaning[:MAX_MEANING_CHARS])


def make_concept(value: str, scheme: str, meaning: str) -> Any:
    """Return a coded concept."""
    from highdicom.sr import CodedConcept

    return CodedConcept(value, scheme, meaning)


def make_yes_no_concept(value: bool) -> Any:
    """Return SNOMED's Yes or No."""
    return make_concept("373066001", "SCT", "Yes") if value else make_concept("373067005", "SCT", "No")


def make_no_units_concept() -> Any:
    """Return the unit of shares and scores."""
    return make_concept("1", "UCUM", "no units")


SR_SERIES_NUMBER = 901
PROCEDURE = ("363679005", "SCT", "Imaging procedure")
VOLUME, MILLILITRES = ("118565006", "SCT", "Volume"), ("ml", "UCUM", "Milliliter")


def make_measurement_report(prediction: Prediction, sources: Sequence[Any], model: str, version: str) -> Any:
    """Return the prediction for one image as a Comprehensive SR; None if it has no content for one (masks alone)."""
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
    """Return decision and probabilities, a number with its interval, the anomaly score, and the reliability fields."""
    import highdicom as hd

    # not "Finding", which names what a measurement group is about
    decision = make_private_concept("Decision of the model", "DECISION")
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
    """Round to what fits into the 16 characters of a DICOM decimal string."""
    return float(f"{value:.8g}")


def _volume_groups(prediction: Prediction, sources: Sequence[Any]) -> list[Any]:
    import highdicom as hd

    return [
        _make_group(f"volume of {name}", sources, finding_type=make_class_concept(name),
               measurements=[hd.sr.Measurement(make_concept(*VOLUME), _to_decimal(value), make_concept(*MILLILITRES))])
        for name, value in prediction.volumes_ml.items() if value is not None
    ]  # fmt: skip


def _box_groups(prediction: Prediction, sources: Sequence[Any]) -> list[Any]:
    """Return the boxes of one picture, as closed polylines in its pixels.

    Boxes of volumes are only in predictions.json.
    """
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
