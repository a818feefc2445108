"""Trackio and Weights & Biases: stores of an interrupted run, read back. `make test-slow` runs these tests in an environment of
their own."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROWS = "fold,epoch,step,train_loss\n0,1,10,0.9\n0,2,20,0.7\n"
LAST_ROW = "0,3,30,0.5\n"
SCRIPT = """
import json, sys
from pathlib import Path
from m3b.events import ArtifactAccepted, RunEnded, RunStarted, ToolReturned
from m3b.loggers import open_loggers

name, folder, status = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
loggers = open_loggers(name, "run-1", folder)
loggers.record_event(RunStarted("Tell anna schmidt", "run-1", {"name": "off", "level": "off"}))
loggers.record_event(ArtifactAccepted("selection", {"task": "diagnosis", "metric": "auroc", "card": "schmidt"}))
loggers.record_event(ToolReturned("1", "run_script", "Exit code 0", at=100.0))
measure = {"name": "auroc", "value": 0.75, "low": 0.5, "high": 0.875, "baseline": 0.5}
if status == "completed":
    loggers.record_event(ArtifactAccepted("model", {"validation": measure}, at=200.0))
metrics = {"auroc": measure} if status == "completed" else {}
loggers.record_event(RunEnded({"status": status, "metrics": metrics, "test_looks": len(metrics)}, at=300.0))
loggers.close()
"""
SECRETS = ("schmidt", "anna", os.uname().nodename)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "work/Logout").mkdir(parents=True)
    (folder / "work/plan.json").write_text(json.dumps({"lr": 0.001, "network": {"pretrained": "/home/schmidt/w1"}}))
    return folder


def log_interrupted_run(name: str, folder: Path, **environment: str) -> None:
    """Log a run in two processes: the first one is cancelled after two rows of its training."""
    log = folder / "work/Logout/log.csv"
    for text, status in ((ROWS, "cancelled"), (LAST_ROW, "completed")):
        with log.open("a") as stream:
            stream.write(text)
        command = [sys.executable, "-c", SCRIPT, name, str(folder), status]
        ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert "logs no more" not in ran.stderr, ran.stderr
        assert ran.stdout == ""


def read_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


@pytest.mark.skipif(not find_spec("trackio"), reason="needs trackio")
def test_trackio(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    log_interrupted_run("trackio", run_folder, TRACKIO_DIR=str(store))
    monkeypatch.setenv("TRACKIO_DIR", str(store))
    from trackio.sqlite_storage import SQLiteStorage

    assert SQLiteStorage.get_runs("m3b") == ["run-1"]
    rows = SQLiteStorage.get_logs("m3b", "run-1")
    curve = [(row["step"], row["fold0/train_loss"]) for row in rows if "fold0/train_loss" in row]
    assert curve == [(10, 0.9), (20, 0.7), (30, 0.5)]
    values = {name: value for row in rows for name, value in row.items()}
    assert {name: values[f"test/auroc{name}"] for name in ("", "_low", "_high", "_baseline")} == {
        "": 0.75, "_low": 0.5, "_high": 0.875, "_baseline": 0.5
    }  # fmt: skip
    assert (values["lr"], values["network.pretrained"], values["m3b.status"]) == (0.001, "w1", "completed")
    for secret in SECRETS:
        assert secret.encode() not in read_files(store)


@pytest.mark.skipif(not find_spec("wandb"), reason="needs m3b[wandb]")
def test_wandb(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both processes write offline files of one run; neither has facts on machine, user or program."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    log_interrupted_run("wandb", run_folder)
    files = sorted((run_folder / "loggers/wandb").rglob("*.wandb"))
    records = [list(read_records(file)) for file in files]
    assert len(files) == 2
    assert (
        len({record.run.run_id for part in records for record in part if record.WhichOneof("record_type") == "run"})
        == 1
    )
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for part in records
        for record in part
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(row["step"], row["fold0/train_loss"]) for row in rows if "fold0/train_loss" in row] == [
        (10, 0.9), (20, 0.7), (30, 0.5)
    ]  # fmt: skip
    values = {name: value for row in rows for name, value in row.items()}
    assert [values[f"test/auroc{name}"] for name in ("", "_low", "_high", "_baseline")] == [0.75, 0.5, 0.875, 0.5]
    sent = b"".join([*(file.read_bytes() for file in files), *(read_files(file.parent / "files") for file in files)])
    for secret in (*SECRETS, str(run_folder.parent), sys.executable):
        assert secret.encode() not in sent, secret


def read_records(file: Path):
    """Yield the records of a .wandb file: a log of LevelDB, in blocks of 32 KiB, behind a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    content, position, message = file.read_bytes(), 7, b""
    while position + 7 <= len(content):
        if (block_rest := 32768 - position % 32768) < 7:
            position += block_rest
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        message += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            yield record
            message = b""
