"""The DICOM node with real associations: what is received, refused, kept apart, kept on the disk, predicted and delivered."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import generate_uid
from typer.testing import CliRunner

from dicom_kit import (
    ORIENTATIONS,
    WAIT_S,
    find_free_ports,
    make_threshold_model,
    read_pixels,
    running_process,
    write_instance,
    write_series,
)
from m3b.cli.app import app
from m3b.errors import UsageError
from m3b.models import load_model
from m3b.serve.dicom_node import MAX_ASSOCIATIONS, MAX_PENDING, REQUEST_TIMEOUT_S, DicomNode, NodeSettings
from m3b.serve.dicom_spool import KEEP_TORN_S
from m3b.serve.dicom_transfer import parse_allowed, parse_destination, parse_source

hd = pytest.importorskip("highdicom")
pynetdicom = pytest.importorskip("pynetdicom")
AXIAL = ORIENTATIONS["axial"]
Received = queue.Queue[Any]


@contextmanager
def receiving(port: int = 0, status: int = 0) -> Iterator[tuple[int, Received]]:
    """An archive of objects that answers each with a status."""
    received: Received = queue.Queue()

    def store(event: Any) -> int:
        dataset = event.dataset
        dataset.file_meta = event.file_meta
        received.put(dataset)
        return status

    entity = pynetdicom.AE(ae_title="ARCHIVE")
    for context in pynetdicom.StoragePresentationContexts:
        entity.add_supported_context(context.abstract_syntax)
    server = entity.start_server(("127.0.0.1", port), block=False, evt_handlers=[(pynetdicom.evt.EVT_C_STORE, store)])
    try:
        yield server.server_address[1], received
    finally:
        server.shutdown()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_threshold_model(tmp_path_factory.mktemp("node") / "model")


@pytest.fixture
def make_node(tmp_path: Path, model_folder: Path) -> Iterator[Callable[..., DicomNode]]:
    nodes: list[DicomNode] = []

    def make(send_to: str = "ARCHIVE@127.0.0.1:9", **settings: Any) -> DicomNode:
        values = {"allow": ["SCANNER", "SECOND"], "spool": tmp_path / "spool", "port": 0, **settings}
        nodes.append(DicomNode(NodeSettings(send_to=send_to, **values), load_model(model_folder)))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def associate(node: DicomNode, title: str = "SCANNER", called_title: str = "M3B") -> Any:
    entity = pynetdicom.AE(ae_title=title)
    entity.acse_timeout = entity.dimse_timeout = WAIT_S
    entity.add_requested_context("1.2.840.10008.1.1")
    entity.add_requested_context("1.2.840.10008.5.1.4.1.1.2")
    return entity.associate("127.0.0.1", node.port, ae_title=called_title)


def send(node: DicomNode, files: Sequence[Path], title: str = "SCANNER") -> list[int]:
    """Send files in one association that is released, and return the status of each."""
    association = associate(node, title)
    assert association.is_established
    statuses = [association.send_c_store(file).Status for file in files]
    association.release()
    return statuses


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def list_complete(node: DicomNode) -> list[str]:
    """Return the complete series after all associations: their senders have their answers a moment earlier."""
    node.join_associations(WAIT_S)
    return node.spool.list_tickets("queued")


def list_files(spool: Path) -> list[str]:
    return [str(file.relative_to(spool)) for file in spool.rglob("*.dcm")]


def check_masks(seg: Any, source: Path) -> None:
    pixels = read_pixels(source)
    planes = hd.seg.Segmentation.from_dataset(seg).get_pixels_by_source_instance(
        list(pixels), assert_missing_frames_are_empty=True
    )
    for plane, values in zip(planes, pixels.values(), strict=True):
        assert np.array_equal(plane[..., 0], (values > 200) & (values <= 500))
        assert np.array_equal(plane[..., 1], values > 500)


def test_a_series_comes_back_as_masks_and_report(
    make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    source = write_series(tmp_path / "series", AXIAL)
    with receiving() as (port, received):
        node = make_node(f"ARCHIVE@127.0.0.1:{port}", formats=("seg", "sr", "rtstruct", "pdf"))
        node.start()
        assert send(node, files_of(source)) == [0] * 6
        objects = {dataset.Modality: dataset for dataset in (received.get(timeout=WAIT_S) for _ in range(4))}
    assert set(objects) == {"SEG", "SR", "RTSTRUCT", "DOC"}
    check_masks(objects["SEG"], source)
    header = dcmread(files_of(source)[0])
    assert {str(dataset.StudyInstanceUID) for dataset in objects.values()} == {str(header.StudyInstanceUID)}
    node.close()
    assert list_files(tmp_path / "spool") == files_of(tmp_path / "spool/work") == []
    identity = [
        header.PatientID,
        str(header.SeriesInstanceUID),
        str(header.StudyInstanceUID),
        str(header.SOPInstanceUID),
    ]
    assert not [text for text in identity if text in caplog.text.replace("1.2.840.10008", "")]


def test_an_echo_is_answered_and_unknown_titles_are_rejected(make_node: Any) -> None:
    node = make_node(allow=["SCANNER", "SECOND@192.0.2.7"])
    association = associate(node)
    assert association.send_c_echo().Status == 0
    association.release()
    for title, called_title, reason in (("NOBODY", "M3B", 3), ("SECOND", "M3B", 3), ("SCANNER", "OTHER", 7)):
        rejected = associate(node, title, called_title)
        assert rejected.is_rejected
        primitive = rejected.acceptor.primitive
        assert (primitive.result, primitive.diagnostic) == (1, reason)


def test_a_torn_series_waits_until_it_is_sent_again(make_node: Any, tmp_path: Path) -> None:
    source = write_series(tmp_path / "series", AXIAL)
    files = files_of(source)
    with receiving() as (port, received):
        node = make_node(f"ARCHIVE@127.0.0.1:{port}")
        association = associate(node)
        assert [association.send_c_store(file).Status for file in files[:3]] == [0, 0, 0]
        association.abort()
        assert send(node, files[2:]) == [0] * 4  # the third again
        [ticket] = list_complete(node)
        assert len(files_of(node.spool.path_of("queued", ticket))) == 6
        assert node.predict_next()
        assert node.send_waiting()
        objects = {dataset.Modality: dataset for dataset in (received.get(timeout=WAIT_S) for _ in range(2))}
    check_masks(objects["SEG"], source)


def test_a_torn_series_that_nobody_sends_again_is_removed_after_a_day(make_node: Any, tmp_path: Path) -> None:
    node = make_node()
    association = associate(node)
    association.send_c_store(files_of(write_series(tmp_path / "series", AXIAL))[0])
    [series] = (tmp_path / "spool/incoming").iterdir()
    old = time.time() - KEEP_TORN_S - 60
    os.utime(series, (old, old))
    assert node.spool.remove_torn({series.name}) == [], "its association is open"
    assert node.spool.remove_torn(set()) == [series.name]
    association.abort()
    assert list_files(tmp_path / "spool") == []


def test_other_images_are_refused_with_a_status(make_node: Any, tmp_path: Path) -> None:
    node = make_node(modalities=["CT"])
    uid = generate_uid()
    pixels = np.ones((20, 26))
    write_instance(tmp_path / "mr.dcm", pixels, 0, uid, AXIAL, Modality="MR")
    write_instance(tmp_path / "cine.dcm", np.ones((40, 26)), 0, uid, AXIAL, NumberOfFrames=2, Rows=20)
    write_instance(tmp_path / "broken.dcm", pixels, 0, uid, AXIAL)
    broken = dcmread(tmp_path / "broken.dcm")
    del broken.SeriesInstanceUID
    broken.save_as(tmp_path / "broken.dcm")
    assert send(node, [tmp_path / name for name in ("mr.dcm", "cine.dcm", "broken.dcm")]) == [0xA900, 0xA900, 0xC000]
    assert list_complete(node) == []
    assert list_files(tmp_path / "spool") == []


def test_invalid_uids_are_in_no_warning(
    make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    write_instance(tmp_path / "ct.dcm", np.ones((20, 26)), 0, generate_uid(), AXIAL)
    instance = dcmread(tmp_path / "ct.dcm")
    association = associate(make_node())
    recwarn.clear()
    instance.SOPInstanceUID = instance.file_meta.MediaStorageSOPInstanceUID = "1.2.840...PID777"
    association.send_c_store(instance)
    association.release()
    assert not [warning for warning in recwarn if "PID777" in str(warning.message)]
    assert "PID777" not in caplog.text


def test_two_senders_at_once_do_not_mix(make_node: Any, tmp_path: Path) -> None:
    source = write_series(tmp_path / "series", AXIAL)
    second_source = write_series(tmp_path / "other", AXIAL, slices=5)
    node = make_node()
    first, second = associate(node), associate(node, "SECOND")
    for first_file, second_file in zip(files_of(source)[:5], files_of(second_source), strict=True):
        assert first.send_c_store(first_file).Status == second.send_c_store(second_file).Status == 0
    assert second.send_c_store(files_of(source)[0]).Status == 0  # a series that the other sends too
    second.release()
    assert first.send_c_store(files_of(source)[5]).Status == 0
    first.release()
    tickets = list_complete(node)
    contents = [
        {str(dcmread(file).SOPInstanceUID) for file in files_of(node.spool.path_of("queued", ticket))}
        for ticket in tickets
    ]
    complete_series = [set(read_pixels(source)), set(read_pixels(second_source))]
    assert all(expected in contents for expected in complete_series)
    assert [len(content) for content in contents if content not in complete_series] == [1]


def test_a_series_in_two_associations_is_complete_when_both_are_released(make_node: Any, tmp_path: Path) -> None:
    files = files_of(write_series(tmp_path / "series", AXIAL))
    node = make_node()
    first, second = associate(node), associate(node)
    first.send_c_store(files[0])
    second.send_c_store(files[1])
    first.release()
    assert second.send_c_store(files[2]).Status == 0
    assert node.spool.list_tickets("queued") == []
    second.release()
    [ticket] = list_complete(node)
    assert len(files_of(node.spool.path_of("queued", ticket))) == 3


def test_quiet_seconds_begin_with_the_release_and_anew_with_each_instance(make_node: Any, tmp_path: Path) -> None:
    files = files_of(write_series(tmp_path / "series", AXIAL))
    node = make_node(quiet_s=600.0)
    send(node, files[:4])
    spool = node.spool
    association = associate(node)
    association.send_c_store(files[4])
    assert spool.complete_settled(0.0) == [], "an association brings more of it"
    association.abort()
    send(node, files[5:])
    node.join_associations(WAIT_S)
    [settling_ticket] = spool.list_tickets("settling")
    assert spool.complete_settled(600.0) == []
    old = time.time() - 601
    os.utime(spool.path_of("settling", settling_ticket), (old, old))
    [ticket] = spool.complete_settled(600.0)
    assert len(files_of(spool.path_of("queued", ticket))) == 6


def test_objects_wait_on_the_disk_for_a_destination_that_is_down(make_node: Any, tmp_path: Path) -> None:
    source = write_series(tmp_path / "series", AXIAL)
    with receiving() as (port, _):
        pass  # a port that is free again
    node = make_node(f"ARCHIVE@127.0.0.1:{port}")
    send(node, files_of(source))
    list_complete(node)
    node.close()  # a restart before the prediction
    node = make_node(f"ARCHIVE@127.0.0.1:{port}")
    assert node.predict_next()
    assert not node.predict_next()
    assert not node.send_waiting(), "the destination is down"
    assert len(list_files(tmp_path / "spool")) == 2
    node.close()  # a restart before the delivery
    node = make_node(f"ARCHIVE@127.0.0.1:{port}")
    with receiving(port, status=0xA700) as (_, received):
        assert not node.send_waiting(), "the destination refuses"
        received.get(timeout=WAIT_S)
    with receiving(port) as (_, received):
        assert node.send_waiting()
        assert {received.get(timeout=WAIT_S).Modality for _ in range(2)} == {"SEG", "SR"}
    assert list_files(tmp_path / "spool") == []


def test_a_further_series_does_not_hurry_the_next_attempt(
    make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as (port, _):
        pass  # a port that is free again
    node = make_node(f"ARCHIVE@127.0.0.1:{port}")
    for name in ("series", "other"):
        send(node, files_of(write_series(tmp_path / name, AXIAL)))
    tickets = list_complete(node)
    node.start()
    end = time.monotonic() + WAIT_S
    while not all(f"{ticket}: not delivered" in caplog.text for ticket in tickets) and time.monotonic() < end:
        time.sleep(0.1)
    assert [caplog.text.count(f"{ticket}: not delivered") for ticket in tickets] == [1, 1]


def test_a_full_queue_refuses_further_series_but_not_the_rest_of_one(make_node: Any, tmp_path: Path) -> None:
    files, other_files = (files_of(write_series(tmp_path / name, AXIAL)) for name in ("series", "other"))
    node = make_node(max_series=1)
    association = associate(node)
    assert [association.send_c_store(file).Status for file in (files[0], other_files[0], files[1])] == [0, 0xA700, 0]
    association.release()


def test_an_instance_that_is_too_large_ends_its_association(make_node: Any, tmp_path: Path) -> None:
    write_instance(tmp_path / "large.dcm", np.ones((900, 900)), 0, generate_uid(), AXIAL)
    node = make_node(max_instance_bytes=2**20)
    association = associate(node)
    assert "Status" not in association.send_c_store(tmp_path / "large.dcm")
    association.join(WAIT_S)
    assert association.is_aborted
    assert send(node, files_of(write_series(tmp_path / "series", AXIAL))) == [0] * 6
    assert len(list_complete(node)) == 1


def is_closed(connection: socket.socket) -> bool:
    """Wait until the node has closed a connection."""
    connection.settimeout(WAIT_S)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_pdu_that_is_too_long_closes_its_connection(
    make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = make_node()
    with socket.create_connection(("127.0.0.1", node.port)) as stranger:
        stranger.sendall(bytes.fromhex("0100FFFFFFF0") + bytes(2**16))
        began = time.monotonic()
        assert is_closed(stranger)
        assert time.monotonic() - began < REQUEST_TIMEOUT_S
    association = associate(node)
    association.dul.socket.socket.sendall(bytes.fromhex("040000100000"))
    association.join(WAIT_S)
    assert association.is_aborted
    assert caplog.text.count("a PDU is too long") == 2
    assert send(node, files_of(write_series(tmp_path / "series", AXIAL))) == [0] * 6


def test_silent_connections_end_and_lock_nobody_out(make_node: Any, caplog: pytest.LogCaptureFixture) -> None:
    node = make_node()
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", node.port))) for _ in range(MAX_PENDING + 8)
        ]
        silent[-1].sendall(b"\1\0\0")  # a part of a header
        associations = [associate(node) for _ in range(MAX_ASSOCIATIONS + 1)]
        assert [association.is_established for association in associations] == [True] * MAX_ASSOCIATIONS + [False]
        primitive = associations[-1].acceptor.primitive
        assert (primitive.result, primitive.result_source, primitive.diagnostic) == (2, 3, 2)
        associations[0].release()
        assert associate(node).is_established
        assert all(map(is_closed, silent))
        for association in associations[1:-1]:
            assert association.send_c_echo().Status == 0
    assert "it requested no association" in caplog.text


def test_missing_slices_are_answered_as_predict_answers_them(
    make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "m3b.serve.dicom")
    files = {
        dcmread(file).InstanceNumber: file for file in files_of(write_series(tmp_path / "series", AXIAL, slices=12))
    }
    node = make_node()
    send(node, [files[number] for number in (1, 2, 3, 9, 10, 11, 12)])
    list_complete(node)
    assert node.predict_next()
    [prediction] = load_model(make_threshold_model(tmp_path / "model")).predict(
        str(write_gap(files, tmp_path / "gap")), strict=False, out=tmp_path / "out"
    )
    n_objects = 0 if prediction.error else 2
    assert f"{n_objects} objects" in caplog.text
    assert len(list_files(tmp_path / "spool/outgoing")) == n_objects
    assert len(list_files(tmp_path / "spool/failed")) == (7 if prediction.error else 0)


def write_gap(files: dict[int, Path], folder: Path) -> Path:
    folder.mkdir()
    for number in (1, 2, 3, 9, 10, 11, 12):
        (folder / files[number].name).write_bytes(files[number].read_bytes())
    return folder


ANSWER_ERRORS = """
import json, sys
from pathlib import Path
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
answers = [{"image": path, "error": "no"} for path in json.loads(Path(options["--list"]).read_text())]
Path(options["-o"]).write_text(json.dumps(answers))
"""


@pytest.mark.parametrize("script", ["raise SystemExit(3)", ANSWER_ERRORS], ids=["ends", "answers errors"])
def test_a_series_without_a_result_is_kept(script: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_threshold_model(tmp_path / "model")
    (folder / "predict.py").write_text(script)
    settings = NodeSettings(["SCANNER"], "ARCHIVE@127.0.0.1:9", tmp_path / "spool", port=0, max_series=1)
    with DicomNode(settings, load_model(folder)) as node:
        send(node, files_of(write_series(tmp_path / "series", AXIAL)))
        list_complete(node)
        assert node.predict_next()
        assert [len(node.spool.list_tickets(state)) for state in ("queued", "outgoing", "failed")] == [0, 0, 1]
        assert send(node, files_of(write_series(tmp_path / "other", AXIAL))) == [0] * 6, "it fills no queue"
    assert len(list_files(tmp_path / "spool/failed")) == 6
    assert files_of(tmp_path / "spool/work") == []
    assert "it is put aside" in caplog.text


def test_settings_that_cannot_be_meant(make_node: Any, tmp_path: Path) -> None:
    node = make_node()
    for settings in ({"allow": []}, {"allow": ["A@B@C"]}, {"formats": ["x"]}, {"send_to": "ARCHIVE"},
                     {"port": node.port, "spool": tmp_path / "b"}, {}):  # fmt: skip
        with pytest.raises(UsageError):  # the last: the spool is in use
            make_node(**settings)
    for text in ("ARCHIVE@host", "ARCHIVE@host:99999", "dicomweb:ftp://host", "@host:1", "A" * 17 + "@host:1"):
        with pytest.raises(UsageError):
            parse_destination(text)
    with pytest.raises(UsageError):
        parse_source("dicomweb:http://host/dicom-web")
    assert parse_allowed("OLD CT@192.0.2.1") == ("OLD CT", "192.0.2.1")
    assert parse_source("dicomweb:http://h/web/studies/1.2/series/3.4")[1:] == ("1.2", "3.4")


def test_the_command_serves_until_it_is_terminated(tmp_path: Path, model_folder: Path) -> None:
    source, log, [port] = write_series(tmp_path / "series", AXIAL), tmp_path / "node.log", find_free_ports(1)
    with receiving() as (archive_port, received):
        words = [
            sys.executable, "-m", "m3b", "serve", str(model_folder), "--allow-ae", "SCANNER", "--ae-title", "MODEL",
            "--send-to", f"ARCHIVE@127.0.0.1:{archive_port}", "--host", "127.0.0.1", "--port", "0", "--dicom-port", str(port),
            "--dicom-format", "rtstruct", "--modality", "CT", "--quiet-seconds", "0", "--max-series", "5",
            "--spool", str(tmp_path / "spool"),
        ]  # fmt: skip
        with running_process(words, log, lambda: "listening as MODEL" in log.read_text()) as process:
            entity = pynetdicom.AE(ae_title="NOBODY")
            entity.add_requested_context("1.2.840.10008.5.1.4.1.1.2")
            assert entity.associate("127.0.0.1", port, ae_title="MODEL").is_rejected
            entity.ae_title = "SCANNER"
            association = entity.associate("127.0.0.1", port, ae_title="MODEL")
            assert [association.send_c_store(file).Status for file in files_of(source)] == [0] * 6
            association.release()
            assert received.get(timeout=WAIT_S).Modality == "RTSTRUCT"
        assert process.returncode == -signal.SIGTERM, log.read_text()
        assert log.read_text().count("rejected an association") == 1


def test_the_command_refuses_a_node_that_cannot_work(model_folder: Path) -> None:
    call = lambda *words: CliRunner().invoke(app, ["serve", *words]).exception  # noqa: E731
    model = str(model_folder)
    assert isinstance(call(model, "--allow-ae", "SCANNER"), UsageError), "no --dicom-port"
    assert isinstance(call(model, "--dicom-port", "0", "--allow-ae", "SCANNER"), UsageError), "no --send-to"
    two = call(model, f"other={model}", "--dicom-port", "0", "--allow-ae", "SCANNER", "--send-to", "A@127.0.0.1:9")
    assert isinstance(two, UsageError)
