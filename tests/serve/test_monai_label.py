"""The interface of MONAI Label, by requests as its published client makes them, and the folder of studies behind it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("python_multipart")
from typer.testing import CliRunner

from dicom_kit import ORIENTATIONS, write_series
from m3b.cli.app import app
from m3b.models.predictions import DetectedBox, Prediction
from m3b.serve.model_pool import open_models
from m3b.serve.monai_label import OPEN_PATHS, LabelRoutes, measure_uncertainty
from m3b.serve.predict_app import ServerState
from m3b.serve.serve_errors import ServeError
from m3b.serve.study_folder import OWN_FOLDER, StudyFolder
from models.grey_model_kit import make_grey_model
from serve.mask_model_kit import make_mask_model
from serve.serve_kit import Answer, Client, png_of, run_server

TOKEN = "a-token-of-the-test-suite"  # nosec B105
RECORDED = json.loads(Path(__file__).with_name("monai_label_requests.json").read_text())["requests"]


def volume_of(*greys: int) -> bytes:
    """Return a small volume whose slices have these values."""
    import nibabel

    voxels = np.stack([np.full((5, 4), grey, np.int16) for grey in greys], axis=-1)
    return bytes(nibabel.Nifti1Image(voxels, np.diag([1.0, 2.0, 3.0, 1.0])).to_bytes())


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    folder = tmp_path / "studies"
    (folder / "deep").mkdir(parents=True)
    for grey in (60, 101, 200):
        (folder / f"case{grey}.png").write_bytes(png_of(grey))
    (folder / "deep/volume.nii").write_bytes(volume_of(0, 300, 600))
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture
def client(tmp_path: Path, studies: Path) -> Iterator[Client]:
    pool = open_models([f"grey={make_grey_model(tmp_path / 'grey')}", f"mask={make_mask_model(tmp_path / 'mask')}"])
    state = ServerState(pool)
    routes = LabelRoutes(state, TOKEN, StudyFolder(studies))
    with run_server(
        state, TOKEN, more_routes=routes.routes(), open_paths=OPEN_PATHS, on_stop=[routes.stop]
    ) as server_client:
        yield server_client


def replay(client: Client, request: str) -> Answer:
    """Send the bytes of a request on a connection of its own, as the client of MONAI Label does."""
    host = client.address.partition("//")[2]
    content = request.replace("{token}", TOKEN).replace("{host}", host).encode("latin-1")
    with socket.create_connection((host.partition(":")[0], int(host.partition(":")[2])), timeout=60) as connection:
        connection.sendall(content.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1))
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split()[1]), headers, body)


EXPECTED = {
    "auth_enabled": lambda values: values["enabled"] is True,
    "auth_token": lambda values: values == {"access_token": TOKEN, "token_type": "bearer"},
    "auth_valid": lambda values: values["valid"],
    "info": lambda values: values["models"]["grey"]["type"] == "classification" and values["datastore"]["total"] == 4,
    "next_first": lambda values: values["id"] == "case101" and values["ext"] == ".png",
    "next_unc": lambda values: values["id"] == "case101",
    "infer": lambda values: values["prediction"] == ["c1"],
    "infer_file": lambda values: values["prediction"] == ["c1"],
    "create_session": lambda values: len(values["session_id"]) > 20,
    "get_session": lambda values: values["expiry"] == 3600,
    "infer_session": lambda values: values["prediction"] == ["c1"],
    "remove_session": lambda values: "create_ts" in values,
    "upload_image": lambda values: values == {"image": "case150"},
    "save_label": lambda values: values == {"image": "case200", "label": "case200"},
    "datastore": lambda values: values["objects"]["case200"]["labels"] == {"final": {"ext": ".png", "info": {}}},
    "train_stop": lambda values: values is None,
}
REFUSED = {"train_status": (404, "no_task"), "train_start": (409, "no_run")}


def test_requests_of_the_published_client_are_answered(client: Client, studies: Path) -> None:
    before = {file: file.read_bytes() for file in studies.rglob("*") if file.is_file()}
    session = ""
    for entry in RECORDED:
        answer = replay(client, entry["request"].replace("{session}", session))
        name = entry["call"]
        if name in REFUSED:
            assert (answer.status, answer.code) == REFUSED[name], name
        elif name == "download_label":
            assert answer.headers["content-disposition"] == 'attachment; filename="case200.png"'
            assert answer.body.startswith(b"\x89PNG")
        else:
            assert answer.status == 200, (name, answer.body)
            assert EXPECTED[name](answer.json()), (name, answer.body)
        session = answer.json()["session_id"] if name == "create_session" else session
    assert {entry["call"] for entry in RECORDED} == {*EXPECTED, *REFUSED, "download_label"}
    assert {file: file.read_bytes() for file in before} == before
    new_files = {file.relative_to(studies).as_posix() for file in studies.rglob("*") if file.is_file()} - {
        file.relative_to(studies).as_posix() for file in before
    }
    assert new_files == {f"{OWN_FOLDER}/images/case150.png", f"{OWN_FOLDER}/labels/final/case200.png"}


def read_form(answer: Answer) -> dict[str, Any]:
    """Return the parts of a form by name."""
    assert int(answer.headers["content-length"]) == len(answer.body)
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + answer.body)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
        for part in message.get_payload()  # type: ignore[union-attr]
    }


def test_a_mask_comes_with_its_values_as_a_form(client: Client, tmp_path: Path) -> None:
    import SimpleITK as sitk

    for params, suffix in (({}, ".nii.gz"), ({"result_extension": ".nrrd"}, ".nrrd")):
        answer = client.post_files("/infer/mask?image=deep/volume", [], params=json.dumps(params))
        parts = read_form(answer)
        values = json.loads(parts["params"])
        assert values["label_names"] == {"lesion": 1, "implant": 2}
        assert values["volumes_ml"]["lesion"] == pytest.approx(0.02)
        file = tmp_path / f"mask{suffix}"
        file.write_bytes(parts["image"])
        mask = sitk.ReadImage(str(file))
        assert mask.GetSpacing() == pytest.approx((1, 2, 3))
        assert [int(plane.max()) for plane in sitk.GetArrayFromImage(mask)] == [0, 1, 2]
    image = client.post_files("/infer/mask?image=deep/volume&output=image", [])
    assert image.body[:2] == b"\x1f\x8b"
    assert client.post_files("/infer/mask?image=deep/volume&output=json", []).json()["image"] == ["deep/volume"]
    assert client.post_files("/infer/mask?image=deep/volume&output=dicom_seg", []).code == "no_dicom_source"
    wrong = client.post_files("/infer/mask?image=deep/volume", [], params='{"result_extension": ".exe"}')
    assert wrong.code == "unknown_format"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/infer/none?image=case60", "unknown_model"),
        ("POST", "/infer/grey?image=../mask/README", "unknown_image"),
        ("POST", "/infer/grey?session_id=guess", "unknown_session"),
        ("POST", "/infer/grey", "no_image"),
        ("POST", "/infer/mask?image=case60", "image_for_3d_model"),
        ("POST", "/activelearning/guess", "unknown_strategy"),
        ("GET", "/datastore/image?image=notes", "unknown_image"),
        ("GET", "/datastore/label?label=case60&tag=final", "unknown_label"),
        ("DELETE", "/datastore/?id=case60", "original_image"),
        ("GET", "/session/guess", "unknown_session"),
        ("GET", "/train/", "no_task"),
        ("GET", "/batch/infer", "no_task"),
        ("POST", "/train/mask", "no_run"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(client: Client, method: str, path: str, code: str) -> None:
    answer = client.send(method, path)
    assert answer.code == code, answer.body
    assert 400 <= answer.status < 500


def test_bodies_of_requests_are_small_objects(client: Client) -> None:
    for body in (b"[1]", b"{", b"null", b"[" * 5000):
        assert client.send("POST", "/activelearning/first", body).code == "invalid_params"
    assert client.send("POST", "/activelearning/first", b"x" * 70_000).code == "body_too_large"
    assert client.send("POST", "/train/mask", b'{"minutes": -1}').code == "invalid_minutes"
    assert client.send("POST", "/auth/token", b"password=wrong").code == "wrong_password"


def test_the_next_case_is_one_without_a_final_label(client: Client) -> None:
    assert client.send("POST", "/activelearning/uncertainty", b'{"model": "mask"}').code == "no_uncertainty"
    for expected in ("case101", "case60"):
        case_id = client.send("POST", "/activelearning/first").json()["id"]
        client.post_files(f"/datastore/label?image={expected}", [("label", "a.json", b"{}")], "PUT")
        assert case_id in ("case101", "case200")
    assert client.send("POST", "/activelearning/random").json()["id"] in ("case200", "deep/volume")
    for identity in ("case200", "deep/volume"):
        client.post_files(f"/datastore/label?image={identity}", [("label", "a.nii", volume_of(1))], "PUT")
    assert client.send("POST", "/activelearning/first").json() == {}
    assert client.get("/datastore/").json() == {"total": 4, "completed": 4, "label_tags": {"final": 4}}
    client.send("DELETE", "/datastore/label?id=case60&tag=final")
    assert client.get("/datastore/").json()["completed"] == 3
    assert [entry["image"] for entry in client.get("/datastore/?output=train").json()] == [
        "case101",
        "case200",
        "deep/volume",
    ]


def test_a_batch_predicts_all_studies(client: Client, studies: Path) -> None:
    started = client.send("POST", "/batch/infer/mask?images=unlabeled", b'{"label_tag": "draft"}').json()
    assert (started["status"], started["request"]["images"]) == ("RUNNING", 4)
    while (state := client.get("/batch/infer").json())["status"] == "RUNNING":
        time.sleep(0.05)
    assert (state["id"], state["status"]) == (started["id"], "DONE")
    assert state["details"][-1].startswith("4 of 4 predicted, 3 not possible")
    assert (studies / OWN_FOLDER / "labels/draft/deep/volume.nii.gz").is_file()
    assert client.get("/datastore/label?label=deep/volume&tag=draft").body[:2] == b"\x1f\x8b"
    assert client.send("DELETE", "/batch/infer").json() is None


def test_a_batch_replaces_no_label_of_a_person(client: Client, studies: Path) -> None:
    by_hand = ("label", "a.nii", volume_of(7))
    path = "/datastore/label?image=deep/volume&tag="
    assert client.post_files(f"{path}original", [by_hand], "PUT").code == "reserved_tag"
    assert client.post_files(f"{path}final", [by_hand], "PUT").status == 200
    for tag in ("final", "original", "original"):
        client.send("POST", "/batch/infer/mask", json.dumps({"label_tag": tag}).encode())
        while client.get("/batch/infer").json()["status"] == "RUNNING":
            time.sleep(0.05)
    labels = studies / OWN_FOLDER / "labels"
    assert [file.name for file in (labels / "final/deep").iterdir()] == ["volume.nii"]
    assert (labels / "final/deep/volume.nii").read_bytes() == volume_of(7)
    assert [file.name for file in (labels / "original/deep").iterdir()] == ["volume.nii.gz"]


def test_a_series_is_one_study(client: Client, studies: Path) -> None:
    write_series(studies / "ct", ORIENTATIONS["axial"])
    assert client.get("/datastore/?output=all").json()["objects"]["ct"]["image"]["ext"] == ".dcm"
    before = {file.name: file.read_bytes() for file in (studies / "ct").iterdir()}
    values = json.loads(read_form(client.post_files("/infer/mask?image=ct", []))["params"])
    assert values["volumes_ml"]["lesion"] > 0
    assert client.post_files("/infer/mask?image=ct&output=dicom_seg", []).body[128:132] == b"DICM"
    assert client.get("/datastore/image?image=ct").body[:2] == b"PK"
    assert {file.name: file.read_bytes() for file in (studies / "ct").iterdir()} == before


def test_uploaded_images_can_be_deleted(client: Client, studies: Path) -> None:
    file = ("file", "new.png", png_of(90))
    assert client.post_files("/datastore/?image=a/new", [file], "PUT").json() == {"image": "a/new"}
    assert client.post_files("/datastore/?image=a/new", [file], "PUT").code == "image_exists"
    assert client.post_files("/datastore/?image=case60", [file], "PUT").code == "image_exists"
    for identity in ("../outside", "/etc/new", ".hidden", f"{OWN_FOLDER}/x", "a/../../b"):
        assert client.post_files(f"/datastore/?image={identity}", [file], "PUT").code == "invalid_id", identity
    assert client.post_files("/datastore/?image=x", [("file", "x.exe", b"MZ")], "PUT").code == "image_format"
    assert (
        client.post_files("/datastore/label?image=a/new&tag=..", [("label", "l.png", b"")], "PUT").code == "invalid_tag"
    )
    assert client.post_files("/datastore/label?image=a/new", [("label", "l.bin", b"")], "PUT").code == "label_format"
    assert client.get("/datastore/image?image=a/new").body == png_of(90)
    assert client.get("/datastore/image/info?image=a/new").json()["ts"] > 0
    assert client.send("DELETE", "/datastore/image?id=a/new").json() == {}
    assert client.get("/datastore/image?image=a/new").code == "unknown_image"


def test_an_id_that_cannot_be_a_path_is_refused_and_leaves_nothing(client: Client, studies: Path) -> None:
    file = ("file", "new.png", png_of(90))
    assert client.post_files("/datastore/image?image=inner", [file], "PUT").status == 200
    for identity in ("x" * 300, "inner.png/deeper", ".", "a%0Ab"):
        answer = client.post_files(f"/datastore/image?image={identity}", [file], "PUT")
        assert (answer.status, answer.code) == (422, "invalid_id"), identity
    assert [file.name for file in (studies / OWN_FOLDER).rglob("*") if file.is_file()] == ["inner.png"]


def test_what_the_server_writes_is_for_its_user_alone(client: Client, studies: Path) -> None:
    assert client.post_files("/datastore/image?image=a/b", [("file", "new.png", png_of(90))], "PUT").status == 200
    assert (
        client.post_files("/datastore/label?image=deep/volume", [("label", "a.nii", volume_of(1))], "PUT").status == 200
    )
    written_paths = [studies / OWN_FOLDER, *(studies / OWN_FOLDER).rglob("*")]
    assert {(path.is_dir(), path.stat().st_mode & 0o777) for path in written_paths} == {(True, 0o700), (False, 0o600)}


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path, studies: Path) -> None:
    outer_folder = tmp_path / "outside"
    outer_folder.mkdir()
    (outer_folder / "secret.png").write_bytes(png_of(1))
    (studies / "link").symlink_to(outer_folder)
    (studies / "file.png").symlink_to(outer_folder / "secret.png")
    folder = StudyFolder(studies)
    assert set(folder.list_studies()) == {"case60", "case101", "case200", "deep/volume"}
    with pytest.raises(ServeError):
        folder.find("link/secret")


def test_the_logs_are_those_of_the_audit(client: Client) -> None:
    client.post_files("/infer/grey?image=case60", [])
    while not (text := client.get("/logs/").body.decode()):
        time.sleep(0.01)
    assert json.loads(text.splitlines()[0])["route"] == "/infer/{model}"
    assert "case60" not in text


def test_sessions_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    created = client.post_files("/session/?expiry=60", [("files", "a.png", png_of(60))], "PUT").json()
    path = f"/session/{created['session_id']}"
    assert created["session_info"]["expiry"] == 60
    assert client.get(f"{path}?image=true").body == png_of(60)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert client.get(path).code == "unknown_session"


def test_a_server_without_studies_has_an_empty_datastore(tmp_path: Path) -> None:
    state = ServerState(open_models([f"grey={make_grey_model(tmp_path / 'grey')}"]))
    with run_server(state, more_routes=LabelRoutes(state, "", None).routes()) as client:
        assert client.get("/info/").json()["datastore"]["total"] == 0
        assert client.send("POST", "/activelearning/first").json() == {}
        assert client.get("/datastore/image?image=a").code == "no_studies"
        assert client.get("/auth/").json()["enabled"] is False
        assert client.post_files("/infer/grey?image=", [("file", "a.png", png_of(60))]).json()["prediction"] == ["c0"]


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (Prediction("a", probabilities={"a": 0.5, "b": 0.5}), (False, 1.0)),
        (Prediction("a", probabilities={"a": 1.0, "b": 0.0}, out_of_distribution=True), (True, 0.0)),
        (Prediction("a", probabilities={"a": 0.4, "b": 0.3, "c": 0.3}), (False, 0.6)),
        (Prediction("a", boxes=(DetectedBox("x", (0, 0, 1, 1), 0.6),)), (False, 0.8)),
        (Prediction("a", extra={"value": 3.0, "interval": [1.0, 5.0]}), (False, 4.0)),
        (Prediction("a", mask=Path("m")), (False, 0.0)),
    ],
)
def test_uncertainty(prediction: Prediction, expected: tuple[bool, float]) -> None:
    is_ood, value = measure_uncertainty(prediction)
    assert (is_ood, value) == (expected[0], pytest.approx(expected[1]))


@pytest.mark.slow
def test_a_served_run_is_trained_for_longer(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["demo", str(tmp_path / "demo"), "--train-minutes", "0.3", "--quiet"])
    state = ServerState(open_models([str(tmp_path / "demo/run")]))
    routes = LabelRoutes(state, "", None)
    image = ("file", "a.png", next((tmp_path / "demo").glob("*/unseen/*.png")).read_bytes())
    with run_server(state, more_routes=routes.routes(), on_stop=[routes.stop]) as client:
        assert client.send("POST", "/train/run", b'{"minutes": 0.1}').json()["status"] == "RUNNING"
        assert client.send("POST", "/train/", b"{}").code == "task_running"
        assert client.get("/train/?check_if_running=true").status == 200
        while (task := client.get("/train/").json())["status"] == "RUNNING":
            time.sleep(0.5)
        assert (task["status"], len(task["details"])) == ("DONE", 1)
        assert client.post_files("/v1/models/run/predict", [image]).json()["version"] == state.pool.models[0].version
        client.send("POST", "/train/run", b'{"minutes": 5}')
        assert client.send("DELETE", "/train/").json()["status"] == "STOPPED"
        while (task := client.get("/train/").json())["status"] == "RUNNING":
            time.sleep(0.5)
        assert task["status"] == "STOPPED"
