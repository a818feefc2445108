"""A training that has to make room writes a checkpoint; the job that is started again goes on from it."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from template_kit import Run

from m3b.training import interruption
from m3b.training.interruption import INTERRUPTED_CODE
from warm.commands import run_python

PLAN = ("--minutes", "0.18", "--set", "device=cpu", "lr=0.003", "network.width=8", "folds=1", "max_steps=20")


def call(project: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_python(*command, cwd=project, env={**os.environ, **variables})


def test_a_restarted_job_goes_on_from_its_checkpoint(project: Path, run: Run, tmp_path: Path) -> None:
    run("example/make_example.py", "--cases", "30")
    run("plan.py", *PLAN)
    request = tmp_path / "interrupt"
    request.touch()
    done = call(project, "train.py", M3B_INTERRUPT_FILE=str(request), M3B_JOB="job-7:1")
    assert done.returncode == INTERRUPTED_CODE, done.stdout + done.stderr
    assert list(project.glob("Logout/fold0/checkpoint-1/complete.json"))
    assert not (project / "Logout/metrics.json").exists()

    planned = (project / "plan.json").read_text()
    assert call(project, "plan.py", "--minutes", "5", M3B_JOB="job-7:2").returncode == 0
    assert (project / "plan.json").read_text() == planned, "the checkpoint belongs to this plan"
    done = call(project, "train.py", M3B_JOB="job-7:2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "going on from checkpoint-1 " in done.stdout
    assert int(list(csv.DictReader((project / "Logout/log.csv").open()))[-1]["step"]) == 20


def test_another_job_begins_anew(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / interruption.JOB_FILE).write_text("job-7:1")
    for job, goes_on in (("job-7:2", True), ("job-7:1", False), ("job-8:2", False), ("", False)):
        monkeypatch.setenv("M3B_JOB", job)
        assert interruption.goes_on_after_restart(tmp_path) is goes_on, json.dumps(job)


@pytest.fixture
def fresh_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    monkeypatch.setattr(interruption, "_requests", interruption._Requests())
    monkeypatch.delenv("M3B_INTERRUPT_FILE", raising=False)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_asks_for_a_checkpoint_too(fresh_requests: None, number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    interruption.listen_for_interruptions()
    assert not interruption.is_interrupted()
    signal.raise_signal(number)
    assert interruption.is_interrupted()


def test_an_ignored_signal_stays_ignored(fresh_requests: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    interruption.listen_for_interruptions()
    signal.raise_signal(signal.SIGTERM)
    assert not interruption.is_interrupted()


def test_forked_workers_end_by_signals_as_ever(fresh_requests: None) -> None:
    interruption.listen_for_interruptions()
    reader, writer = multiprocessing.get_context("fork").Pipe()

    def report_and_wait() -> None:
        writer.send([signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGUSR1, signal.SIGTERM)])
        writer.send({*signal.pthread_sigmask(signal.SIG_BLOCK, [])})
        signal.pause()

    worker = multiprocessing.get_context("fork").Process(target=report_and_wait, daemon=True)
    worker.start()
    assert reader.recv() == [True, True]
    assert not {signal.SIGUSR1, signal.SIGTERM} & reader.recv()
    worker.terminate()
    worker.join()
    assert worker.exitcode == -signal.SIGTERM
    assert not {signal.SIGUSR1, signal.SIGTERM} & signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.is_interrupted(), "this process listens still"
