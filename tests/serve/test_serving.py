"""Delivered models over HTTP: answers, limits, failures, and what is recorded."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("python_multipart")
pytest.importorskip("jsonschema")
from jsonschema import Draft202012Validator
from pydicom import dcmread
from starlette.routing import Route
from typer.testing import CliRunner

from dicom_kit import ORIENTATIONS, write_series
from m3b.cli.app import app
from m3b.errors import UsageError
from m3b.serve import http
from m3b.serve.audit_log import AuditLog
from m3b.serve.http import is_loopback, read_token
from m3b.serve.model_pool import open_models
from m3b.serve.monai_label import LabelRoutes
from m3b.serve.predict_app import ServerState
from m3b.serve.uploads import UploadLimits
from m3b.serve.zip_contents import UnpackRequest, get_suffix, unpack_members
from models.grey_model_kit import make_grey_model
from serve.mask_model_kit import make_mask_model
from serve.serve_kit import Answer, Client, encode_form, form_type, png_of, run_server

TOKEN = "a-token-of-the-test-suite"  # nosec B105
PREDICT = "/v1/models/grey/predict"
CRASHING = """
    if grey == 66:
        import os
        os.kill(os.getpid(), 9)
    if grey == 77:
        raise SystemExit(f"secret of {path}")
    if grey == 88:
        import time
        time.sleep(1.5)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The grey model; it crashes at a grey value of 66, fails at 77, and takes its time at 88."""
    folder = make_grey_model(tmp_path / "model")
    script = folder / "predict.py"
    marker = "    logits = "
    text = script.read_text()
    assert marker in text
    script.write_text(text.replace(marker, CRASHING.strip("\n") + "\n" + marker))
    return folder


@pytest.fixture
def state(model: Path, tmp_path: Path) -> ServerState:
    pool = open_models([f"grey={model}", f"other={model}"], max_waiting=12, timeout_s=60)
    return ServerState(pool, UploadLimits(max_bytes=200_000, max_files=20), AuditLog(tmp_path / "audit.jsonl"))


@pytest.fixture
def client(state: ServerState) -> Iterator[Client]:
    with run_server(state) as server_client:
        yield server_client


def send_greys(client: Client, *greys: int, path: str = PREDICT, **fields: str) -> Answer:
    files = [("file", f"patient {grey}.png", png_of(grey)) for grey in greys]
    return client.post_files(path, files, **fields)


def test_models_are_listed_without_paths(client: Client, tmp_path: Path) -> None:
    answer = client.get("/v1/models")
    [grey, second_model] = answer.json()["models"]
    assert (grey["name"], grey["classes"], grey["task"]) == ("grey", ["c0", "c1"], "diagnosis")
    assert second_model["version"] == grey["version"]
    assert str(tmp_path) not in answer.body.decode()


def test_each_file_is_a_case_under_its_own_name(client: Client) -> None:
    answer = send_greys(client, 60, 200)
    assert answer.status == 200
    first, second = answer.json()["predictions"]
    assert (first["image"], second["image"]) == (["patient 60.png"], ["patient 200.png"])
    assert (first["prediction"], second["prediction"]) == (["c0"], ["c1"])
    assert second["probabilities"]["c1"] == pytest.approx(1.0)


def test_thresholds_and_versions_are_parameters(client: Client) -> None:
    version = client.get("/v1/models").json()["models"][0]["version"]
    path = f"{PREDICT}?version={version}&threshold=1"
    assert send_greys(client, 101, path=path).json()["predictions"][0]["prediction"] == []
    assert send_greys(client, 101, threshold="2").status == 422
    assert send_greys(client, 101, threshold="much").code == "invalid_number"
    assert send_greys(client, 101, path=f"{PREDICT}?version=1234").code == "unknown_model"


def test_a_request_without_an_answer_says_why(client: Client) -> None:
    assert client.get("/nowhere").code == "unknown_path"
    assert client.get(PREDICT).code == "unknown_method"
    assert send_greys(client, 60, path="/v1/models/none/predict").code == "unknown_model"
    assert send_greys(client, 60, format="vhs").code == "unknown_format"
    assert send_greys(client, 60, age="61").code == "unknown_field"
    assert send_greys(client, 60, path=f"{PREDICT}?treshold=0.4").code == "unknown_parameter"
    assert client.post_files(PREDICT, []).code == "no_image"
    assert client.send("POST", PREDICT, b"{}", Content_Type="application/json").code == "no_form"
    assert client.send("POST", PREDICT, b"nonsense", Content_Type=form_type()).code == "invalid_form"
    broken = client.post_files(PREDICT, [("file", "broken.png", b"no picture")])
    assert broken.status == 500, "this model fails as a whole at a broken picture"
    assert broken.code == "model_failed"


def test_a_series_of_other_axes_is_refused(client: Client) -> None:
    import nibabel
    import numpy as np

    image = nibabel.Nifti1Image(np.zeros((4, 4, 3), np.uint8), np.eye(4))
    answer = client.post_files(PREDICT, [("file", "volume.nii", image.to_bytes())])
    assert answer.status in (422, 500)


def test_members_of_an_archive_keep_what_is_safe_of_their_names(tmp_path: Path) -> None:
    """Numbers instead would make slices of one volume of single pictures."""
    names = ["p/anna b.png", "p/anna?b.png", f"p/x{'.' * 300}.png", "q/../../slice_01.png"]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    (tmp_path / "out").mkdir()
    unpacked = unpack_members(UnpackRequest(tmp_path / "a.zip", tmp_path / "out", 100, 10))
    members = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    files = sorted(file.relative_to(tmp_path / "out").as_posix() for file in members)
    assert files == ["00001/00001_anna_b.png", "00001/anna_b.png", "00001/png", "00002/slice_01.png"]
    assert set(files) < set(unpacked.names)


def test_files_of_an_answer_are_packed(client: Client) -> None:
    answer = send_greys(client, 60, format="zip")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        document = json.loads(archive.read("predictions.json"))
    assert document["predictions"][0]["prediction"] == ["c0"]
    assert send_greys(client, 60, format="mask").code == "no_such_output"
    assert send_greys(client, 60, format="dicom-sr").code == "no_dicom_source"


def test_an_archive_is_searched_for_images(client: Client) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("../../escape.png", png_of(200))
        archive.writestr("study/a.png", png_of(60))
        archive.writestr("study/.hidden", b"x")
    answer = client.post_files(PREDICT, [("file", "study.zip", stream.getvalue())])
    names = {entry["image"][0]: entry["prediction"] for entry in answer.json()["predictions"]}
    assert names == {"escape.png": ["c1"], "study/a.png": ["c0"]}
    assert client.post_files(PREDICT, [("file", "study.zip", b"PK no archive")]).code == "bad_archive"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(300_000))
    assert client.post_files(PREDICT, [("file", "bomb.zip", stream.getvalue())]).code == "archive_too_large"


def pack(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def test_cases_of_the_same_file_name_can_be_told_apart(client: Client) -> None:
    def predict(*files: tuple[str, bytes]) -> dict[str, list[str]]:
        entries = client.post_files(PREDICT, [("file", *file) for file in files]).json()["predictions"]
        names = {entry["image"][0]: entry["prediction"] for entry in entries}
        assert len(names) == len(entries)
        return names

    patients = pack(("patientB/scan.png", png_of(200)), ("patientA/scan.png", png_of(60)))
    assert predict(("a.zip", patients)) == {"patientB/scan.png": ["c1"], "patientA/scan.png": ["c0"]}
    same_names = pack(("x/a.png", png_of(200)), ("../x/a.png", png_of(60)))
    assert predict(("a.zip", same_names)) == {"x/a.png": ["c1"], "x/a.png (2)": ["c0"]}
    both = predict(
        ("x.zip", pack(("a.png", png_of(200)))), ("x.zip", pack(("a.png", png_of(60)))), ("a.png", png_of(60))
    )
    assert both == {"x.zip/a.png": ["c1"], "x.zip (2)/a.png": ["c0"], "a.png": ["c0"]}


def test_series_of_an_archive_can_be_told_apart(tmp_path: Path) -> None:
    folder = make_mask_model(tmp_path / "masks")
    members = [
        (f"{patient}/ct/{file.name}", file.read_bytes())
        for patient in ("B", "A")
        for file in sorted(write_series(tmp_path / patient, ORIENTATIONS["axial"]).iterdir())
    ]
    with run_server(ServerState(open_models([f"masks={folder}"]))) as client:
        answer = client.post_files("/v1/models/masks/predict", [("file", "a.zip", pack(*members))])
        assert sorted(entry["image"] for entry in answer.json()["predictions"]) == [["A/ct"], ["B/ct"]]


def open_connection(client: Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(client.address.rpartition(":")[2])), timeout=30)


def test_a_large_body_is_refused_unread(client: Client) -> None:
    with open_connection(client) as connection:
        host = client.address.partition("//")[2]
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {form_type()}\r\nContent-Length: {10 * 2**30}\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 413")
    assert "body_too_large" in answer


def test_limits_hold_for_bodies_of_unknown_length(client: Client) -> None:
    body = encode_form([("file", "a.png", bytes(300_000))])
    chunks = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
    assert client.send("POST", PREDICT, chunks, Content_Type=form_type()).code == "body_too_large"
    assert client.post_files(PREDICT, [("file", "a.png", b"x")] * 21).code == "too_many_files"
    assert send_greys(client, 60, note="x" * 70_000).code == "field_too_large"
    many_fields = {f"field{number}": "" for number in range(201)}
    assert send_greys(client, 60, **many_fields).code == "too_many_fields"


def test_a_torn_body_is_refused(client: Client) -> None:
    body = encode_form([("file", "a.png", png_of(60))])
    assert client.send("POST", PREDICT, body[:-20], Content_Type=form_type()).code == "torn_upload"
    assert send_greys(client, 60).status == 200


def test_a_slow_upload_ends(state: ServerState) -> None:
    state.limits = UploadLimits(upload_s=0.2)
    with run_server(state) as client, open_connection(client) as connection:
        host = client.address.partition("//")[2]
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {form_type()}\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"--")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


def send_part(client: Client, n_bytes: int | None) -> socket.socket:
    """Return the connection of a request for a slow prediction, of whose body so many bytes have been sent."""
    connection = open_connection(client)
    body = encode_form([("file", "a.png", png_of(88))])
    host = client.address.partition("//")[2]
    head = (
        f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {form_type()}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body[:n_bytes])
    return connection


def test_slow_uploads_leave_the_queue_free_and_are_limited(state: ServerState) -> None:
    state.pool.models[0].max_waiting, state.limits = 1, UploadLimits(max_uploads=2)
    with run_server(state) as client, send_part(client, 100):
        while not state.n_uploads:
            time.sleep(0.01)
        assert send_greys(client, 60).status == 200
        with send_part(client, 100):
            while state.n_uploads < 2:
                time.sleep(0.01)
            answer = send_greys(client, 60)
            assert (answer.status, answer.code) == (503, "too_many_uploads")
            assert int(answer.headers["retry-after"]) >= 1


def test_connections_are_limited(state: ServerState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    with run_server(state) as client:
        idle = [open_connection(client) for _ in range(3)]
        while (answer := client.get("/health")).status == 200:  # the server accepts connections in its own time
            time.sleep(0.01)
        assert answer.status == 503
        for connection in idle:
            connection.close()
        while client.get("/health").status == 503:
            time.sleep(0.01)


def test_headers_without_an_end_are_refused(client: Client) -> None:
    with open_connection(client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * 20_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def test_a_client_that_goes_away_leaves_nothing(client: Client, state: ServerState) -> None:
    for torn in (100, None):
        with send_part(client, torn):
            while not (state.n_uploads if torn else state.pool.models[0].n_waiting):
                time.sleep(0.01)
    while state.n_uploads or state.pool.models[0].n_waiting:
        time.sleep(0.01)
    assert send_greys(client, 60).status == 200


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_temporary_files_go_with_their_request(temporary: Path, client: Client) -> None:
    for options in ({}, {"format": "zip"}, {"format": "mask"}, {"format": "vhs"}):
        send_greys(client, 60, 77, **options)
    assert not list(temporary.glob("m3b-serve-*"))


def test_ten_clients_get_their_own_answers(client: Client) -> None:
    greys = [60, 200] * 5

    def ask(number: int) -> Any:
        return client.post_files(PREDICT, [("file", f"client{number}.png", png_of(greys[number]))]).json()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(10)))
    for number, answer in enumerate(answers):
        [entry] = answer["predictions"]
        assert entry["image"] == [f"client{number}.png"]
        assert entry["prediction"] == ["c1" if greys[number] == 200 else "c0"]


def test_a_crash_is_an_error_of_one_request(client: Client, state: ServerState) -> None:
    for grey in (66, 77):
        answer = send_greys(client, grey)
        assert (answer.status, answer.code) == (500, "model_failed")
        assert "secret" not in answer.body.decode()
        assert send_greys(client, 60).status == 200
    assert send_greys(client, 60, path="/v1/models/other/predict").status == 200
    assert state.pool.models[0].model.worker.starts > 1
    assert state.pool.models[1].model.worker.starts == 1


def test_a_full_queue_says_when_to_come_back(state: ServerState) -> None:
    state.pool.models[0].max_waiting = 1
    with run_server(state) as client:
        waiting = threading.Thread(target=send_greys, args=(client, 88))
        waiting.start()
        while not state.pool.models[0].n_waiting:
            time.sleep(0.01)
        answer = send_greys(client, 60)
        assert (answer.status, answer.code) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        assert send_greys(client, 60, path="/v1/models/other/predict").status == 200
        waiting.join()
        assert send_greys(client, 60).status == 200


def test_the_log_has_no_identity(client: Client, tmp_path: Path) -> None:
    send_greys(client, 60, 200)
    forwarded_client = Client(client.address, {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"})
    send_greys(forwarded_client, 60, path="/v1/models/Jane-Doe/predict")
    client.send("JANEDOE", "/health")
    while (text := (tmp_path / "audit.jsonl").read_text()).count("\n") < 3:  # a line follows its answer
        time.sleep(0.01)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    first, second, third = map(json.loads, text.splitlines())
    assert third["method"] == "OTHER"
    assert (first["model"], first["cases"], first["status"], first["route"]) == (
        "grey", 2, 200, "/v1/models/{name}/predict"
    )  # fmt: skip
    assert (second["model"], second["status"]) == ("", 404)
    assert first["bytes_in"] > 100
    assert first["client"] == second["client"]
    for secret in ("patient", "Jane", "JANE", "127.0.0.1", str(tmp_path)):
        assert secret not in text


def test_an_unexpected_error_is_logged_without_its_text(state: ServerState, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Any) -> None:
        raise OSError(36, "File name too long", "/secret/Jane-Doe")

    with run_server(state, more_routes=[Route("/fail", fail)]) as client:
        answer = client.get("/fail")
    assert (answer.status, answer.code) == (500, "internal_error")
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "OSError at" in record.getMessage()
    assert "Jane" not in caplog.text


def test_metrics_and_health(client: Client) -> None:
    send_greys(client, 60, 200)
    lines = client.get("/metrics").body.decode().splitlines()
    assert 'm3b_cases_total{model="grey"} 2' in lines
    assert any(re.fullmatch(r'm3b_requests_total\{model="grey",version="\w+",status="200"\} 1', line) for line in lines)
    assert all(re.fullmatch(r"# TYPE \w+ \w+|\w+(\{[^{}]*\})? [\d.e+-]+", line) for line in lines)
    send_greys(client, 60, path="/v1/models/other/predict")
    assert client.get("/health").json() == {"live": True, "ready": True, "models": {"grey": True, "other": True}}
    assert client.get("/health/ready").status == client.get("/health/live").status == 200


def test_a_server_whose_model_does_not_start_is_not_ready(state: ServerState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(state.pool.models[0]), "warm_up", lambda model: None)
    with run_server(state) as client:
        assert client.get("/health/ready").status == 503


def test_nothing_but_health_is_answered_without_the_token(state: ServerState) -> None:
    with run_server(state, TOKEN) as client:
        stranger = Client(client.address, {"Authorization": "Bearer another-token-altogether"})
        assert stranger.get("/health").status == 200
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert stranger.get(path).code == "no_token"
            assert client.get(path).status == 200
        assert send_greys(stranger, 60).status == 401
        assert send_greys(client, 60).status == 200


def test_pages_from_elsewhere_get_no_answer_without_a_token(client: Client) -> None:
    assert client.get("/v1/models", Host="evil.example").code == "other_host"
    assert client.get("/v1/models", Origin="http://evil.example").code == "other_host"
    assert client.get("/v1/models", Sec_Fetch_Site="cross-site").code == "other_host"
    assert client.get("/v1/models", Sec_Fetch_Site="none").status == 200
    assert client.get("/v1/models", Origin=client.address).status == 200


def test_answers_are_not_for_pages_of_other_origins(state: ServerState) -> None:
    with run_server(state, TOKEN) as client:
        for answer in (client.get("/v1/models"), client.get("/nowhere"), client.get("/health", Authorization="")):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "lines", ["Host: a\r\nHost: {host}", "Host: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"]
)
def test_headers_that_contradict_each_other_are_refused(client: Client, lines: str) -> None:
    with open_connection(client) as connection:
        head = lines.format(host=client.address.partition("//")[2])
        connection.sendall(f"GET /health HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def resolve(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": {}, **schema, "components": document["components"]}


def test_the_openapi_document_is_that_of_the_answers(state: ServerState) -> None:
    with run_server(state, more_routes=LabelRoutes(state, "", None).routes()) as client:
        check_openapi(client)


def check_openapi(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert all(operation["summary"] and operation["responses"] for operation in operations)
    identities = [operation["operationId"] for operation in operations]
    assert len(set(identities)) == len(identities)
    for path in re.findall(r'"#/(components/schemas/\w+)"', json.dumps(document)):
        assert path.rpartition("/")[2] in document["components"]["schemas"]
    predict = document["paths"][PREDICT]["post"]
    assert predict["requestBody"]["content"]["multipart/form-data"]["schema"]["required"] == ["file"]
    cases = {
        ("/v1/models", "get", "200"): client.get("/v1/models"),
        ("/health", "get", "200"): client.get("/health"),
        (PREDICT, "post", "200"): send_greys(client, 60),
        (PREDICT, "post", "422"): client.post_files(PREDICT, []),
    }
    for (path, method, status), answer in cases.items():
        assert str(answer.status) == status
        content = document["paths"][path][method]["responses"][status]["content"]
        Draft202012Validator(resolve(content["application/json"]["schema"], document)).validate(answer.json())


def test_names_of_models_are_unique_and_fit_an_address(model: Path) -> None:
    assert [served.name for served in open_models([str(model)]).models] == ["model"]
    for arguments in (["a b=" + str(model)], [str(model), str(model)], ["nowhere"]):
        with pytest.raises(UsageError):
            open_models(arguments)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.nii.gz", ".nii.gz"), ("A.NII", ".nii"), ("x.y.dcm", ".dcm"), ("a", ""), ("a.b/c", ""), ("a.p\0ng", "")],
)
def test_of_names_of_clients_only_the_suffix_is_used(name: str, suffix: str) -> None:
    assert get_suffix(name) == suffix


def test_tokens_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("M3B_SERVE_TOKEN", TOKEN)
    file = tmp_path / "token"
    assert read_token() == TOKEN
    for content in (b"", b"short", b"\xff" * 20):
        file.write_bytes(content)
        with pytest.raises(UsageError):
            read_token(file)
    file.write_text(f"{TOKEN}2\n")
    file.chmod(0o640)
    assert read_token(file) == f"{TOKEN}2"
    assert "can read the token file" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    assert read_token(file) == f"{TOKEN}2"
    assert not caplog.records
    for host in ("127.0.0.1", "::1", "localhost"):
        assert is_loopback(host)
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")


def test_dicom_series_come_in_and_dicom_objects_go_out(tmp_path: Path) -> None:
    hd = pytest.importorskip("highdicom")
    ct = write_series(tmp_path / "ct", ORIENTATIONS["oblique"])
    files = [("file", file.name, file.read_bytes()) for file in sorted(ct.iterdir())]
    state = ServerState(open_models([f"mask={make_mask_model(tmp_path / 'mask')}"]))
    path = "/v1/models/mask/predict"
    with run_server(state) as client:
        [entry] = client.post_files(path, files).json()["predictions"]
        assert entry["volumes_ml"]["lesion"] > 0
        assert entry["image"] == ["series"]
        assert client.post_files(path, files, format="mask").body[:2] == b"\x1f\x8b"
        answer = client.send("POST", path, encode_form(files), Content_Type=form_type(), Accept="application/dicom")
        assert answer.headers["content-type"] == "application/dicom"
        read = hd.seg.segread(io.BytesIO(answer.body))
        assert [item.segment_label for item in read.SegmentSequence] == ["lesion", "implant"]
        report = client.post_files(path, files, format="dicom-sr")
        assert hd.sr.srread(io.BytesIO(report.body)).Modality == "SR"
        for name, modality in (("dicom-rtstruct", "RTSTRUCT"), ("dicom-pdf", "DOC")):
            assert dcmread(io.BytesIO(client.post_files(path, files, format=name).body)).Modality == modality
        torn = client.post_files(path, [*files[:-1], ("file", "torn.dcm", files[-1][2][:700])])
        assert torn.status in (200, 422)
        assert client.post_files(path, [("file", "flat.png", png_of(60))]).code == "image_for_3d_model"


WITH_COVARIATES = """
import json, sys
from pathlib import Path
from PIL import Image
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
answers = []
for case in json.loads(Path(arguments["--list"]).read_text()):
    is_bright = Image.open(case["image"]["t2"]).getpixel((0, 0)) > 100
    share = float(is_bright and case["sex"] == "M" and case["age"] is not None)
    answers.append({"image": case["image"], "probabilities": {"c0": 1 - share, "c1": share}, "prediction": f"c{int(share)}"})
Path(arguments["-o"]).write_text(json.dumps(answers))
"""


def test_a_case_of_several_images_and_covariates(tmp_path: Path) -> None:
    folder = make_grey_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["plan"] |= {"channel_names": ["t1", "t2"], "covariates": [
        {"name": "age", "kind": "number", "centre": 60}, {"name": "sex", "kind": "category", "values": ["F", "M"]}
    ]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "predict.py").write_text(WITH_COVARIATES)
    path, t1, t2 = "/v1/models/model/predict", ("t1", "a.png", png_of(60)), ("t2", "b.png", png_of(200))
    with run_server(ServerState(open_models([str(folder)]))) as client:
        document = client.get("/openapi.json").json()
        form = document["paths"][path]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["required"] == ["t1", "t2"]
        assert (form["properties"]["age"]["type"], form["properties"]["sex"]["enum"]) == ("number", ["F", "M"])
        answers = client.post_files(path, [t1, t2, t1, t2], age="61", sex="M").json()["predictions"]
        assert [(entry["image"], entry["prediction"]) for entry in answers] == [
            (["a.png", "b.png"], ["c1"]),
            (["a.png (3)", "b.png (4)"], ["c1"]),
        ]
        assert client.post_files(path, [t1, t2], age="61", sex="F").json()["predictions"][0]["prediction"] == ["c0"]
        assert client.post_files(path, [t1, t2], age="", sex="M").json()["predictions"][0]["prediction"] == ["c0"]
        for fields in ({"age": "61"}, {"age": "61", "sex": "X"}, {"age": "old", "sex": "F"}):
            assert client.post_files(path, [t1, t2], **fields).status == 422
        assert client.post_files(path, [("file", "a.png", png_of(60))], age="61", sex="M").status == 422


PAGE = Path(__file__).parents[2] / "docs/serve.md"


@pytest.fixture
def served_page(model: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The command of the page on a network, on a free port of this machine, beside the files that the page names."""
    place = tmp_path / "page"
    (place / "studies").mkdir(parents=True)
    for file in (place / "first.png", place / "second.png", place / "studies/second.png"):
        file.write_bytes(png_of(60))
    with zipfile.ZipFile(place / "study.zip", "w") as archive:
        archive.writestr("a.png", png_of(60))
    (place / "token.txt").write_text(TOKEN)
    [command] = re.findall(r"^m3b serve .*--token-file.*$", PAGE.read_text(), re.MULTILINE)
    words = command.replace("/models/run/model", str(model)).replace("--port 8000", "--port 0").split()[1:]
    words += ["--studies", "studies", "--max-mib", "8", "--queue", "4", "--timeout", "300"]
    with subprocess.Popen(
        [sys.executable, "-m", "m3b", *words], cwd=place, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        port = next(match[1] for line in process.stderr if (match := re.search(r"http://0.0.0.0:(\d+)/", line)))
        yield f"http://127.0.0.1:{port}", place
        process.terminate()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_commands_of_the_page_work(served_page: tuple[str, Path]) -> None:
    address, place = served_page
    commands = re.findall(r"^curl .*$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) > 7
    for command in commands:
        with_token = command.replace("curl -s", f'curl -s -f -H "Authorization: Bearer {TOKEN}"', 1)
        ran = subprocess.run(
            ["bash", "-c", with_token],
            cwd=place,
            env={**os.environ, "SERVER": address},
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stderr)
        assert ran.stdout.startswith(b"{") or "-o" in command
    with zipfile.ZipFile(place / "answer.zip") as archive:
        assert "predictions.json" in archive.namelist()
    assert len((place / "audit.jsonl").read_text().splitlines()) >= len(commands) - 1


def test_a_network_without_a_token_is_refused(model: Path, tmp_path: Path) -> None:
    for words in (
        ["--host", "0.0.0.0"],
        ["--studies", str(tmp_path / "none")],
        ["--token-file", str(tmp_path / "none")],
    ):
        result = CliRunner().invoke(app, ["serve", str(model), "--port", "0", *words])
        assert isinstance(result.exception, UsageError), result.output
