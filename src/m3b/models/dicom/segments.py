"""Masks as a DICOM segmentation: a segment a class, on the planes of the source instances. Runs inside the reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.reading import read_mask
from m3b.models.predictions import Prediction

from .codes import make_class_concept, make_concept
from .sources import resample_to_planes

SEG_SERIES_NUMBER, SEG_MANUFACTURER = 900, "m3b"


def make_segmentation(
    prediction: Prediction, labels: Mapping[str, int], sources: Sequence[Any], model: str, version: str
) -> Any:
    """A binary segmentation of the answer's masks.

    Args:
        labels: class -> number in `answer.mask`, in the order of the segments; of `answer.masks` the order alone counts.
        sources: headers in order, as `sources_of` gives them.

    Raises:
        DataError: as `on_planes`.
    """
    import highdicom as hd
    import numpy as np

    names = list(prediction.masks) or list(labels)
    if prediction.masks:
        planes = np.stack(
            [resample_to_planes(read_mask(str(file)), sources) != 0 for file in prediction.masks.values()], axis=-1
        )
    else:
        label_map = resample_to_planes(read_mask(str(prediction.mask)), sources)
        planes = np.stack([label_map == labels[name] for name in names], axis=-1)
    algorithm = hd.AlgorithmIdentificationSequence(
        name=model[:64] or SEG_MANUFACTURER,
        family=make_concept("123110", "DCM", "Artificial Intelligence"),
        version=version[:64],
    )
    return hd.seg.Segmentation(
        source_images=list(sources),
        pixel_array=planes.astype(np.uint8),
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[_describe_segment(number, name, algorithm) for number, name in enumerate(names, start=1)],
        series_instance_uid=hd.UID(),
        series_number=SEG_SERIES_NUMBER,
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=SEG_MANUFACTURER,
        manufacturer_model_name=model[:64] or SEG_MANUFACTURER,
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
    """Write an object; its name."""
    dataset.save_as(file)
    return file.name
