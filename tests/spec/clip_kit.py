"""Tiny clips: a video, an animation, and DICOM ultrasound, whose frames are told by their grey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def frame(value: int, size: int = 32) -> np.ndarray:
    """A square of a grey on a darker ground; where it lies depends on the grey."""
    made = np.full((size, size), value // 2, np.uint8)
    top, left = (value * 7) % (size // 2), (value * 5) % (size // 2)
    made[top : top + 12, left : left + 12] = value
    return made


def video(file: Path, values: Sequence[int], size: int = 32) -> Path:
    """A clip with a frame of each grey; of no frame where there are no values."""
    import av

    file.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(file), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = size, size, "yuv420p", 4_000_000
        out.start_encoding()
        for value in values:
            colour = np.repeat(frame(value, size)[..., None], 3, axis=-1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(colour, format="rgb24")))
        out.mux(stream.encode())
    return file


def animation(file: Path, values: Sequence[int]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    frames = [Image.fromarray(frame(value)) for value in values]
    frames[0].save(file, save_all=True, append_images=frames[1:])
    return file


def ultrasound(file: Path, values: Sequence[int], series: str = "1.2.3.1", patient: str = "p0") -> Path:
    """A DICOM file of several frames."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage, generate_uid

    file.parent.mkdir(parents=True, exist_ok=True)
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = UltrasoundMultiFrameImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid(entropy_srcs=[file.as_posix()])
    data.SeriesInstanceUID, data.StudyInstanceUID, data.Modality, data.PatientID = series, f"{series}.9", "US", patient
    data.Rows = data.Columns = 32
    data.NumberOfFrames, data.SamplesPerPixel, data.PhotometricInterpretation = len(values), 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    data.PixelData = np.stack([frame(value) for value in values]).tobytes()
    data.save_as(file, enforce_file_format=True)
    return file
