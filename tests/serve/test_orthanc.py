"""A real archive (Orthanc): images from it to the node and back, by C-STORE and by DICOMweb; masks compared voxel by voxel."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from typer.testing import CliRunner

from dicom_kit import (
    ORIENTATIONS,
    WAIT_S,
    find_free_ports,
    make_threshold_model,
    read_pixels,
    running_process,
    write_series,
)
from m3b.cli.app import app

hd = pytest.importorskip("highdicom")
pytest.importorskip("pynetdicom")
pytest.importorskip("dicomweb_client")
PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
ORTHANC = shutil.which("Orthanc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(
    ORTHANC is None or not PLUGIN.is_file(),
    reason="Orthanc with its DICOMweb plugin is not installed (Debian: orthanc-dicomweb)",
)


@dataclass(frozen=True)
class Orthanc:
    """A running archive."""

    http_port: int
    dicom_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def request(self, path: str, content: Any = None) -> Any:
        data = None if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}{path}", data), timeout=WAIT_S) as answer:
            body = answer.read()
        return json.loads(body) if answer.headers["Content-Type"].startswith("application/json") else body

    def find(self, modality: str) -> list[Any]:
        """Return the objects of a modality."""
        query = {"Level": "Series", "Query": {"Modality": modality}}
        instances = [
            instance
            for series in self.request("/tools/find", query)
            for instance in self.request(f"/series/{series}")["Instances"]
        ]
        return [dcmread(BytesIO(self.request(f"/instances/{instance}/file"))) for instance in instances]

    def wait_for(self, modality: str) -> Any:
        """Return the object of a modality as soon as the archive has it."""
        end = time.monotonic() + WAIT_S
        while not (objects := self.find(modality)):
            assert time.monotonic() < end, f"no {modality} arrived"
            time.sleep(0.1)
        [dataset] = objects
        return dataset


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[Orthanc, int]]:
    """An archive, and the port at which it looks for the node M3B."""
    http_port, dicom_port, node_port = find_free_ports(3)
    config = {
        "StorageDirectory": str(tmp_path / "orthanc"), "IndexDirectory": str(tmp_path / "orthanc"),
        "HttpPort": http_port, "DicomPort": dicom_port, "DicomAet": "ARCHIVE", "DicomCheckCalledAet": True,
        "RemoteAccessAllowed": False, "AuthenticationEnabled": False, "Plugins": [str(PLUGIN)],
        "DicomWeb": {"Enable": True, "Root": "/dicom-web/"}, "DicomModalities": {"m3b": ["M3B", "127.0.0.1", node_port]},
    }  # fmt: skip
    (tmp_path / "orthanc.json").write_text(json.dumps(config))
    orthanc = Orthanc(http_port, dicom_port)

    def is_ready() -> bool:
        try:
            return bool(orthanc.request("/system"))
        except OSError:
            return False

    with running_process([str(ORTHANC), str(tmp_path / "orthanc.json")], tmp_path / "orthanc.log", is_ready):
        yield orthanc, node_port


def check_objects(orthanc: Orthanc, source: Path) -> None:
    """Compare masks and report of the archive with the images."""
    pixels, header = read_pixels(source), dcmread(next(source.iterdir()))
    seg = hd.seg.Segmentation.from_dataset(orthanc.wait_for("SEG"))
    planes = seg.get_pixels_by_source_instance(list(pixels), assert_missing_frames_are_empty=True)
    assert len(planes) == len(pixels) == 6
    for plane, values in zip(planes, pixels.values(), strict=True):
        assert np.array_equal(plane[..., 0], (values > 200) & (values <= 500))
        assert np.array_equal(plane[..., 1], values > 500)
    report = hd.sr.ComprehensiveSR.from_dataset(orthanc.wait_for("SR"))
    groups = report.content.get_image_measurement_groups()
    assert [group.get_measurements()[0].value for group in groups] == [1.0, 0.5]
    assert seg.StudyInstanceUID == report.StudyInstanceUID == header.StudyInstanceUID


def test_images_of_an_archive_come_back_as_masks_by_c_store(archive: tuple[Orthanc, int], tmp_path: Path) -> None:
    orthanc, node_port = archive
    source = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    instances = [orthanc.request("/instances", file.read_bytes()) for file in source.iterdir()]
    model = make_threshold_model(tmp_path / "model")
    log = tmp_path / "node.log"
    words = [
        sys.executable, "-m", "m3b", "serve", str(model), "--port", "0", "--dicom-port", str(node_port), "--allow-ae",
        "ARCHIVE@127.0.0.1",
        "--send-to", f"ARCHIVE@127.0.0.1:{orthanc.dicom_port}", "--ae-title", "M3B", "--modality", "CT",
        "--dicom-format", "seg", "--dicom-format", "sr", "--quiet-seconds", "0", "--max-series", "20",
        "--spool", str(tmp_path / "spool"), "--host", "127.0.0.1",
    ]  # fmt: skip
    with running_process(words, log, lambda: "listening as M3B" in log.read_text()) as process:
        orthanc.request("/modalities/m3b/echo", {})
        orthanc.request("/modalities/m3b/store", [instance["ID"] for instance in instances])
        check_objects(orthanc, source)
    assert process.returncode == -signal.SIGTERM, log.read_text()
    assert list((tmp_path / "spool").rglob("*.dcm")) == []
    assert str(dcmread(next(source.iterdir())).StudyInstanceUID) not in log.read_text()


@pytest.mark.parametrize("destination", ["dicomweb", "ae"])
def test_a_series_is_fetched_and_its_masks_are_stored(
    archive: tuple[Orthanc, int], destination: str, tmp_path: Path
) -> None:
    orthanc, _ = archive
    source = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    for file in source.iterdir():
        orthanc.request("/instances", file.read_bytes())
    header = dcmread(next(source.iterdir()))
    url = f"dicomweb:{orthanc.url}/dicom-web"
    send_to = url if destination == "dicomweb" else f"ARCHIVE@127.0.0.1:{orthanc.dicom_port}"
    place = f"{url}/studies/{header.StudyInstanceUID}"
    if destination == "dicomweb":
        place += f"/series/{header.SeriesInstanceUID}"
    model = make_threshold_model(tmp_path / "model")
    out = tmp_path / "out"
    words = ["predict", str(model), place, "-o", str(out), "--dicom", "--send-to", send_to]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    fetched = read_pixels(out / "images" / str(header.SeriesInstanceUID))
    assert all(np.array_equal(fetched[uid], pixels) for uid, pixels in read_pixels(source).items())
    check_objects(orthanc, source)


def test_an_archive_without_the_series_or_the_object(archive: tuple[Orthanc, int], tmp_path: Path) -> None:
    from m3b.errors import DataError, UsageError

    orthanc, _ = archive
    model = make_threshold_model(tmp_path / "model")
    call = lambda *words: CliRunner().invoke(app, ["predict", str(model), *words]).exception  # noqa: E731
    url = f"dicomweb:{orthanc.url}/dicom-web/studies/1.2.3/series/4.5"
    missing = call(url, "-o", str(tmp_path / "out"))
    assert isinstance(missing, DataError)
    assert missing.code == "no_images"
    fetch_error = call(f"dicomweb:http://127.0.0.1:{find_free_ports(1)[0]}/studies/1.2.3", "-o", str(tmp_path / "out"))
    assert isinstance(fetch_error, DataError)
    assert fetch_error.code == "fetch_failed"
    assert isinstance(call(url, "-o", str(tmp_path / "out"), "--send-to", "ARCHIVE@127.0.0.1:9"), UsageError), (
        "no --dicom"
    )
