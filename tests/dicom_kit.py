"""DICOM series of two bright objects, and models by hand that answer for them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

WAIT_S = 120.0
"""Time after which a test that got no result has failed."""
ORIENTATIONS = {
    "axial": [1, 0, 0, 0, 1, 0],
    "axial turned": [-1, 0, 0, 0, -1, 0],
    "coronal": [1, 0, 0, 0, 0, -1],
    "oblique": [0.8, 0.6, 0, -0.6, 0.8, 0],
}


def write_instance(
    file: Path, pixels: NDArray[Any], at: int, series: str, along: list[float], **attributes: Any
) -> None:
    """Write slice `at` of a CT series."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID, data.StudyInstanceUID = series, generate_uid(entropy_srcs=[series])
    data.FrameOfReferenceUID, data.Modality, data.PatientID = generate_uid(entropy_srcs=[series, "frame"]), "CT", "p7"
    normal = np.cross(along[:3], along[3:])
    data.InstanceNumber, data.ImagePositionPatient = (
        at + 1,
        [float(f"{v:.6g}") for v in normal * 3.0 * at + [-40, 15, 7]],
    )
    data.ImageOrientationPatient, data.PixelSpacing, data.SliceThickness = along, [0.8, 1.1], 3.0
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation, data.RescaleSlope, data.RescaleIntercept = 15, 1, 1, 0
    for name, value in attributes.items():
        setattr(data, name, value)
    data.PixelData = pixels.astype(np.int16).tobytes()
    data.save_as(file, enforce_file_format=True)


def write_series(folder: Path, along: list[float], slices: int = 6) -> Path:
    """Two bright objects in a series whose files are named against their order."""
    folder.mkdir()
    random, uid = np.random.default_rng(1), generate_uid()
    for at in range(slices):
        pixels = random.integers(0, 50, (20, 26))
        if 1 <= at <= 3:
            pixels[3 + at : 11, 5:14] = 300
        if at == 4:
            pixels[14:18, 18:24] = 600
        write_instance(folder / f"IM{slices - at:03d}.dcm", pixels, at, uid, along)
    return folder


def read_pixels(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the pixels of a series by SOPInstanceUID."""
    return {str(dataset.SOPInstanceUID): dataset.pixel_array for dataset in map(dcmread, sorted(folder.iterdir()))}


THRESHOLD_PREDICT = """
import argparse, json
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
import numpy as np
import pydicom
import SimpleITK as sitk
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("--masks")
parser.add_argument("-o")
given = parser.parse_args()
answers = []
for number, path in enumerate(json.loads(Path(given.list).read_text()), 1):
    files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
    ids = {tuple(pydicom.dcmread(file).ImagePositionPatient): str(file) for file in files}
    image = sitk.ReadImage([ids[key] for key in sorted(ids, key=lambda place: place[2])])
    values = sitk.GetArrayFromImage(image)
    mask = sitk.GetImageFromArray(np.where(values > 500, 2, np.where(values > 200, 1, 0)).astype(np.uint8))
    mask.CopyInformation(image)
    name = f"{number:04d}_mask.nii.gz"
    (Path(given.masks) / name).parent.mkdir(exist_ok=True)
    sitk.WriteImage(mask, str(Path(given.masks) / name))
    folder = Path(given.masks).resolve().relative_to(Path(given.o).resolve().parent)
    answers.append({"image": path, "mask": str(folder / name), "volumes_ml": {"organ": 1.0, "tumor": 0.5}})
Path(given.o).write_text(json.dumps(answers))
"""


def make_threshold_model(folder: Path) -> Path:
    """Write a segmentation model that marks voxels of an axial series above 200 as organ, and above 500 as tumor."""
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(THRESHOLD_PREDICT)
    config = {"task": "segmentation", "classes": ["organ", "tumor"], "labels": {"organ": 1, "tumor": 2}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


@contextmanager
def running_process(words: list[str], log: Path, is_ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until it is ready, and terminate it at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + WAIT_S
        while not is_ready():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
