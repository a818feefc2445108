"""Runs, previews and predictions on data of an S3 server: the origin is recorded, secrets are not."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from remote.remote_kit import KEY_ID, SECRET, S3Server
from warm.commands import run_m3b

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline"))

from pipeline_kit import REQUEST, actor, check_end, make_spots, play

from m3b import Pipeline, UsageError, Workspace, mirror, resume, verify
from m3b.data.synthetic import make_chest
from m3b.errors import Authentication
from m3b.report.data_view import list_origin_facts
from m3b.report.run_files import RunFiles
from m3b.testing.scripted_model import llm_error


def upload(server: S3Server, bucket: str, folder: Path) -> str:
    """Put a folder into a bucket; return its address."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    server.put(bucket, {f"{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in paths})
    return f"s3://{bucket}/{folder.name}"


def read_states(place: str) -> dict[str, str]:
    return {comparison.code: comparison.state for comparison in verify(place).comparisons}


def test_a_whole_run_records_where_the_data_came_from(s3: S3Server, tmp_path: Path) -> None:
    url = upload(s3, "runs", make_spots(tmp_path / "spots"))
    result = Pipeline(actor(play()), data=url, out=tmp_path / "run").run(REQUEST)
    events = check_end(result, "completed")
    assert result.integrity == "clean"
    run_folder = Path(result.run_dir)
    record = json.loads((run_folder / "run.json").read_text())
    origin = record["data"][0]["origin"]
    assert (origin["url"], origin["n_files"]) == (url, 60)
    (started,) = [event["data"] for event in events if event["kind"] == "run_started"]
    assert started["origins"] == {"spots": origin}
    assert url in " ".join(started["notes"])
    assert json.loads((run_folder / "model" / "provenance.json").read_text())["data_origin"] == origin
    assert url in (run_folder / "report.html").read_text()
    assert list_origin_facts(RunFiles(run_folder, record))[0][1].startswith(url)
    file_list = run_folder / "origins" / "spots.jsonl"
    assert hashlib.sha256(file_list.read_bytes()).hexdigest() == origin["digest"]
    for path in run_folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert KEY_ID.encode() not in content, path
            assert SECRET.encode() not in content, path

    assert read_states(result.run_dir)["mirror"] == "same"
    mirrored_file = Path(record["data"][0]["path"]) / "plain" / "p000.png"
    mirrored_file.chmod(0o644)
    mirrored_file.write_bytes(b"another")
    assert read_states(result.run_dir)["mirror"] == "changed"
    file_list.write_text(file_list.read_text() + "\n")
    assert read_states(result.run_dir)["mirror_list"] == "changed"
    shutil.rmtree(tmp_path / "store")
    assert read_states(result.run_dir)["mirror"] == "unknown"


def test_a_run_goes_on_after_its_mirror_was_removed(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload(s3, "resumed", make_spots(tmp_path / "spots"))
    acts = play(model=[llm_error(Authentication, "The key is refused.")])
    started = Pipeline(actor(acts), data=[url], out=tmp_path / "run").run(REQUEST)
    assert started.status == "failed"

    shutil.rmtree(tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(UsageError, match="credentials"):
            resume(started.run_dir, actor(play()))

    s3.put("resumed", {"spots/plain/added.png": b"x"})
    with pytest.raises(UsageError, match="has changed since"):
        resume(started.run_dir, actor(play()))
    s3.delete("resumed", "spots/plain/added.png")
    result = resume(started.run_dir, actor(play()))
    assert result.status == "completed", result.reason
    assert result.integrity == "clean"
    assert read_states(result.run_dir)["mirror"] == "same"


@pytest.mark.slow
def test_a_change_of_the_bucket_during_a_run_is_for_the_next_one(s3: S3Server, tmp_path: Path) -> None:
    url = upload(s3, "changing", make_spots(tmp_path / "spots"))

    def on_event(event: object) -> None:
        if type(event).__name__ == "ArtifactAccepted":
            s3.put("changing", {"spots/plain/p000.png": b"another"})
            mirror(url)

    result = Pipeline(actor(play()), data=[url], out=tmp_path / "run", on_event=on_event).run(REQUEST)
    assert result.status == "completed", result.reason
    assert result.integrity == "clean"


def test_cards_and_mirrored_folders_are_data(s3: S3Server, tmp_path: Path) -> None:
    url = upload(s3, "cards", make_spots(tmp_path / "spots", patients=4))
    card_file = tmp_path / "card.json"
    card_file.write_text(json.dumps({"name": "drawn", "description": "Drawn scans.", "path": url, "modality": "X-ray"}))
    card = Workspace(data=card_file, with_shipped=False).cards["drawn"]
    mirrored = mirror(url)
    assert card.origin == mirrored.origin
    assert card.path == mirrored.path.resolve()
    assert Workspace(data=mirrored, with_shipped=False).cards["spots"].origin == mirrored.origin
    workspace = Workspace(data=[url], with_shipped=False, offline=True)
    assert workspace.cards["spots"].path == card.path
    assert len(workspace.data_notes) == 2


def test_look_and_mirror_on_the_command_line(s3: S3Server, tmp_path: Path) -> None:
    url = upload(s3, "looked", make_chest(tmp_path / "xrays", patients=30))
    looked = run_m3b("look", url, "Detect lung opacities on chest X-rays", "--json", "--mirror", tmp_path / "other")
    assert looked.returncode == 0, looked.stderr
    preview = json.loads(looked.stdout)
    assert (preview["task"], preview["decision"]) == ("diagnosis", "proposed")
    assert preview["counts"]
    assert url in looked.stderr
    mirrored = json.loads(run_m3b("data", "mirror", url, "--json", "--mirror", tmp_path / "other").stdout)
    assert mirrored["fetched"] == 0
    assert Path(mirrored["folder"]).is_relative_to(tmp_path / "other")
    listed = json.loads(run_m3b("data", "mirrors", "--json", "--mirror", tmp_path / "other").stdout)["mirrors"]
    assert [row["snapshot"] for row in listed] == [mirrored["origin"]["snapshot"]]
    removed = run_m3b("data", "mirrors", "--remove", listed[0]["snapshot"], "--mirror", tmp_path / "other")
    assert removed.returncode == 0
    assert not Path(mirrored["folder"]).exists()
    for store in ("other", "none"):
        empty = run_m3b("data", "mirrors", "--mirror", tmp_path / store)
        assert empty.stdout.startswith(f"Nothing is mirrored in {tmp_path / store}")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["look", "s3://no-such-bucket-here/x"], "bucket"),
        (["run", REQUEST, "--data", f"s3://{KEY_ID}:{SECRET}@looked/x"], "credentials"),
        (["run", REQUEST, "--data", f"https://looked.s3.amazonaws.com/x?X-Amz-Signature={SECRET}"], "s3://BUCKET"),
        (["look", "s3://sized/x", "--max-download-gib", "0.0000001"], "--max-download-gib 1"),
        (["look", "s3:/sized/x"], "Did you mean s3://sized/x?"),
        (["run", REQUEST, "--data", "s3:/sized/x"], "Did you mean s3://sized/x?"),
        (["data", "mirror", "."], "on this machine"),
        (["data", "mirror", "memory://sized/x"], "m3b.mirror('memory://sized/x')"),
    ],
)
def test_the_command_line_says_what_to_do(s3: S3Server, tmp_path: Path, arguments: list[str], word: str) -> None:
    s3.put("sized", {"x/a.png": b"1" * 1000})
    answer = run_m3b(*arguments, cwd=tmp_path)
    assert answer.returncode == 2
    assert word in answer.stderr
    assert SECRET not in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.confined
def test_rules_train_on_a_bucket_and_the_model_predicts_from_it(s3: S3Server, tmp_path: Path) -> None:
    url = upload(s3, "trained", make_chest(tmp_path / "xrays", patients=60))
    answer = run_m3b(
        "run", "Detect lung opacities on chest X-rays", "--llm", "rules", "--data", url, "--out", tmp_path / "run",
        "--train-minutes", "0.3", "--json",
    )  # fmt: skip
    result = json.loads(answer.stdout)
    assert result["status"] in ("completed", "below_range"), answer.stderr
    assert result["integrity"] == "clean"
    assert read_states(str(tmp_path / "run"))["mirror"] == "same"
    predicted = run_m3b("predict", tmp_path / "run", f"{url}/unseen", "--json")
    assert predicted.returncode == 0, predicted.stderr
    n_unseen = len(list((tmp_path / "xrays" / "unseen").glob("*.png")))
    assert len(json.loads(predicted.stdout)["predictions"]) == n_unseen
