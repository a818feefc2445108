"""The data of a run or folder in `m3b view`, and its manifest in a form: counts, errors of fields, and the run that it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.reference import EXAMPLES
from m3b.run.folder import RunFolder
from m3b.serve.tools import ServerSettings, Tools
from m3b.serve.view.data_routes import decode_maps, encode_maps
from view_kit import get_key, open_client, write_form_run


def post(client: TestClient, address: str, **body: Any) -> dict[str, Any]:
    response = client.post(address, json=body)
    assert response.status_code in (200, 400), response.text
    return dict(response.json())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_form_run(tmp_path_factory.mktemp("form") / "run")


@pytest.fixture
def manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text()))


def test_a_manifest_is_counted_and_compared_with_the_proposal(run: Path, manifest: dict[str, Any]) -> None:
    client, address = open_client(run), f"/runs/{get_key(run)}/manifest"
    counts = post(client, f"{address}/count", manifest=manifest)
    assert (counts["errors"], counts["difference"]) == ([], [])
    training, testing = counts["parts"]
    assert set(training["classes"]) == {"clear", "opacity"}
    first_total = training["cases"] + testing["cases"]
    manifest["exclude"] = [{"files": "images/*_1.png", "reason": "second images"}]
    counts = post(client, f"{address}/count", manifest=manifest)
    assert sum(part["cases"] for part in counts["parts"]) < first_total
    assert counts["difference"]
    assert any(item["reason"] == "second images" for group in counts["excluded"] for item in group["reasons"])
    assert json.loads(counts["text"]) == manifest


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"task": "cooking"}, "task"),
        ({"images": {"files": "images/*.png", "frames": 900}}, "images.frames"),
        ({"images": {}}, "images.files"),
        ({"labels": {"value": "{cases.finding}"}}, "labels"),
        ({"splitt": {}}, "splitt"),
        ({"exclude": [{"files": "a", "reason": "x"}]}, "exclude.0.reason"),
        ({"patient": "{cases.nobody}"}, "tables.cases"),
        ({"images": {"files": "nowhere/*.png"}}, "images"),
        ({"tables": {"cases": {"files": "absent.csv", "key": "{a}", "image": "{b}"}}}, "tables.cases"),
    ],
)
def test_an_error_names_its_field(run: Path, manifest: dict[str, Any], change: dict[str, Any], part: str) -> None:
    client, address = open_client(run), f"/runs/{get_key(run)}/manifest"
    answer = post(client, f"{address}/count", manifest={**manifest, **change})
    assert any(error["part"].startswith(part) for error in answer["errors"]), answer["errors"]
    assert all(error["message"] for error in answer["errors"])


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 200_000, b'{"manifest": 5}', b'{"manifest": null}'])
def test_a_body_that_is_no_manifest_is_refused(run: Path, content: bytes) -> None:
    client, address = open_client(run), f"/runs/{get_key(run)}/manifest"
    answer = client.post(f"{address}/count", content=content)
    assert answer.status_code == 400 or answer.json()["errors"]
    assert client.post(f"{address}/train", content=content).status_code == 400


def test_a_large_body_is_refused(run: Path) -> None:
    answer = open_client(run).post(f"/runs/{get_key(run)}/manifest/count", content=b" " * (4 * 2**20 + 1))
    assert answer.status_code == 413


@pytest.mark.parametrize("action", ["count", "train"])
@pytest.mark.parametrize("headers", [{"origin": "http://elsewhere.example"}, {"origin": "null"}, {"cookie": ""}])
def test_foreign_pages_and_strangers_change_nothing(run: Path, action: str, headers: dict[str, str]) -> None:
    client = open_client(run)
    if "cookie" in headers:
        client.cookies.clear()
    answer = client.post(f"/runs/{get_key(run)}/manifest/{action}", json={}, headers=headers)
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize(
    "change",
    [{"request": " "}, {"request": "x" * 5000}, {"minutes": "many"}, {"minutes": -1}, {"minutes": None}, {"minutes": True},
     {"manifest": {"task": "cooking"}}, {"manifest": None}],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(run: Path, manifest: dict[str, Any], change: dict[str, Any]) -> None:
    body = {"manifest": manifest, "request": "Detect opacities", "minutes": 0.1, **change}
    before = sorted(run.parent.iterdir())
    answer = post(open_client(run), f"/runs/{get_key(run)}/manifest/train", **body)
    assert answer["problem"]
    assert sorted(run.parent.iterdir()) == before


def test_training_starts_a_run_with_the_manifest(run: Path, manifest: dict[str, Any]) -> None:
    client = open_client(run.parent)
    manifest["exclude"] = [{"files": "images/*_1.png", "reason": "second images"}]
    body = {"manifest": encode_maps(manifest), "request": "Detect lung opacities on chest X-rays", "minutes": 0.1}
    started = post(client, f"/runs/{get_key(run)}/manifest/train", **body)
    new_run = RunFolder(run.parent / started["run"])
    try:
        answer: dict[str, Any] = {"address": ""}
        while not answer["address"]:  # until the process has written run.json, or ended
            answer = client.get(f"/started/{started['run']}").json()
            assert "problem" not in answer, answer
        assert answer["address"].startswith(f"/runs/{get_key(new_run.path)}")
        assert client.get(answer["address"]).status_code == 200
        record = new_run.load_record()
        assert record["request"] == body["request"]
        assert Manifest.model_validate(record["given"]["manifest"]).exclude[0].reason == "second images"
    finally:
        Tools(ServerSettings([], runs=run.parent)).cancel_run(started["run"])


def test_a_run_that_nobody_started_here_is_not_followed(run: Path) -> None:
    assert open_client(run).get(f"/started/{run.name}").status_code == 404


@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_the_order_of_names_survives_javascript(task: str) -> None:
    manifest = json.loads(json.dumps(EXAMPLES[task]))
    assert json.dumps(decode_maps(encode_maps(manifest))) == json.dumps(manifest)
    reversed_grades = {"labels": {"classes": {"2": ["2"], "1": ["1"], "0": []}}}
    assert json.dumps(decode_maps(encode_maps(reversed_grades))) == json.dumps(reversed_grades)
    assert '"2": [' not in json.dumps(encode_maps(reversed_grades))


def test_the_data_of_a_run_and_of_a_folder_are_shown(run: Path) -> None:
    client = open_client(run)
    page = client.get(f"/runs/{get_key(run)}/data")
    assert page.status_code == 200
    assert "images/*.png" in page.text
    parameters = {"folder": str(run.parent / "xrays"), "request": "Detect lung opacities on chest X-rays"}
    page = client.get("/folder", params=parameters)
    assert page.status_code == 200
    assert page.text.count("data:image/png;base64,") >= 4
    form = client.get("/folder/manifest", params=parameters)
    assert form.status_code == 200
    query = str(form.url.query, "ascii")
    counts = post(client, f"/folder/manifest/count?{query}", manifest=EXAMPLES["diagnosis"])
    assert counts["errors"]


@pytest.mark.parametrize("folder", ["/nowhere", "relative", "../..", "/etc/passwd", "%00"])
def test_a_folder_that_is_none_is_told(run: Path, folder: str) -> None:
    client = open_client(run)
    page = client.get("/folder", params={"folder": folder, "request": "Detect opacities"})
    assert (page.status_code, 'role="alert"' in page.text) == (200, True)
    form = client.get("/folder/manifest", params={"folder": folder, "request": "Detect opacities"})
    assert form.status_code == 404
    assert client.get("/folder").status_code == 200
