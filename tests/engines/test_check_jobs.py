"""m3b's own checks as jobs of an engine: the same rows as on this machine, made once, also if m3b or a node goes away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engines.process_engine import ProcessEngine
from engines.slurm_daemons import wait_for
from m3b.data.index import Index, Record
from m3b.engines import ClusterScripts, Resources, scripts
from m3b.engines.job_folder import JobFolder
from m3b.errors import ModelError, RunCancelled
from m3b.isolation.sandbox import choose_sandbox
from m3b.run import check_jobs
from m3b.run.check_jobs import CheckJobs
from m3b.run.folder import RunFolder
from m3b.run.sandbox_executor import SandboxExecutor

PREDICT = """
import argparse, json, sys, time
from pathlib import Path
import numpy as np
from PIL import Image

FOLDER = Path({folder!r})
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
if __name__ == "__main__":
    arguments = parser.parse_args()
    if (FOLDER / "fails").exists():
        sys.exit("no weights here")
    if (FOLDER / "holds").exists() and (FOLDER / "answered").exists():
        (FOLDER / "waits").touch()
        while (FOLDER / "holds").exists():
            time.sleep(0.05)
    rows = []
    for path in json.loads(Path(arguments.list).read_text()):
        bright = float(np.asarray(Image.open(path)).mean()) / 255
        rows.append({{"image": path, "probabilities": {{"dark": 1 - bright, "bright": bright}}}})
        with (FOLDER / "answered").open("a") as file:
            file.write(path + "\\n")
    Path(arguments.o).write_text(json.dumps(rows))
"""
N_CASES = 24


class Site:
    """A run folder with test cases and a deliverable, and an engine. Files in `notices` tell predict.py what to do."""

    def __init__(self, folder: Path, engine: ProcessEngine) -> None:
        self.engine, self.notices, self.model = engine, folder / "notices", folder / "model"
        self.run = RunFolder.create(folder / "run")
        for path in (self.notices, self.model, self.run.locked / "data"):
            path.mkdir()
        (self.model / "predict.py").write_text(PREDICT.format(folder=str(self.notices)))
        (self.model / "config.json").write_text('{"classes": ["dark", "bright"]}')
        random = np.random.default_rng(5)
        records = []
        for number in range(N_CASES):
            pixels = np.clip(random.normal(80 + 90 * (number % 2), 15, (16, 16)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(self.run.locked / "data" / f"{number}.png")
            records.append(Record(f"data/{number}.png", (("dark", "bright")[number % 2],), f"p{number}"))
        self.index = Index((), tuple(records), ("dark", "bright"))

    def make_executor(self, is_cancelled: Callable[[], bool] = lambda: False) -> SandboxExecutor:
        """Return the executor of a new process of m3b."""
        cluster = ClusterScripts(
            self.engine, self.run.path / "logs" / "checks", "run 1", Resources(cpus=1, memory_gib=4), choose_sandbox("off"),
            "off", lambda text: None,
        )  # fmt: skip
        jobs = CheckJobs(cluster, self.run.path / ".predictions", is_cancelled, lambda: 600.0)
        return SandboxExecutor(choose_sandbox("off"), self.run, (), is_cancelled, check_jobs=jobs)

    def predict(self, executor: SandboxExecutor) -> list[dict[str, object]]:
        return executor.predict(self.model, self.index.test, self.index)

    def list_answered(self) -> list[str]:
        file = self.notices / "answered"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def prediction_folders(self) -> list[Path]:
        return sorted((self.run.path / ".predictions").glob("*"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(scripts, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(scripts, "FILE_INTERVAL_S", 0.05)
    monkeypatch.setattr(check_jobs, "POLL_INTERVAL_S", 0.05)
    engine = ProcessEngine()
    yield Site(tmp_path, engine)
    engine.close(tmp_path)


def test_a_job_gives_the_rows_of_this_machine_and_is_made_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    local_rows = site.make_executor().predict(site.model, site.index.test, site.index, on_this_machine=True)
    n_predicted = len(site.list_answered())
    assert not site.engine.jobs
    executor = site.make_executor()
    counts: list[tuple[int, int]] = []
    executor.on_progress = lambda done, total: counts.append((done, total))
    assert site.predict(executor) == local_rows
    assert counts[-1] == (n_predicted, n_predicted)
    [folder] = site.prediction_folders
    assert folder.stat().st_mode & 0o077 == 0
    assert not [file for file in folder.rglob("*.png")]
    assert not [file for file in site.run.path.rglob("*") if file.is_file() and b"canary-4711" in file.read_bytes()]
    resumed = site.make_executor()
    before = resumed.read_clock()
    assert site.predict(resumed) == local_rows
    job_end = JobFolder(site.run.path / "logs" / "checks" / "001").read_end()
    assert job_end is not None
    assert job_end.status is not None
    assert resumed.read_clock() - before >= job_end.status.wall_s  # as if it had been predicted again
    assert len(site.engine.jobs) == 1
    assert len(site.list_answered()) == 2 * n_predicted
    assert resumed.check_jobs is not None
    resumed.check_jobs.close(is_resumable=True)
    assert site.prediction_folders == [folder]
    resumed.check_jobs.close(is_resumable=False)
    assert not site.prediction_folders


@contextlib.contextmanager
def hanging_process(site: Site) -> Iterator[None]:
    """Yield while a thread stands for a process of m3b that was killed: it hangs from the moment at which its job predicts."""
    (site.notices / "holds").touch()
    is_dead, is_over = threading.Event(), threading.Event()

    def hang() -> bool:
        if (site.notices / "waits").exists():
            is_dead.set()
            is_over.wait()
        return is_over.is_set()

    def run_process() -> None:
        with pytest.raises(RunCancelled):
            site.predict(site.make_executor(hang))

    process = threading.Thread(target=run_process, daemon=True)
    process.start()
    try:
        wait_for(is_dead.is_set, "nothing was predicted")
        yield
    finally:
        is_over.set()
        process.join(60)


def test_a_killed_m3b_finds_its_prediction_again(site: Site) -> None:
    with hanging_process(site):
        (site.notices / "holds").unlink()
        rows = site.predict(site.make_executor())
    assert len(rows) == N_CASES
    assert list(site.engine.jobs) == ["1"]
    answered = site.list_answered()
    assert len(set(answered)) == len(answered) >= N_CASES


@pytest.mark.slow
def test_a_prediction_that_another_engine_still_runs_is_stopped(site: Site, tmp_path: Path) -> None:
    first_engine, second_engine = site.engine, ProcessEngine()
    second_engine.name = "ray"
    is_stopped: list[bool] = []

    def release() -> bool:
        if second_engine.jobs and not is_stopped:
            wait_for(lambda: first_engine.poll("1").has_ended, "the first job remains")
            is_stopped.append(True)
            (site.notices / "holds").unlink()
        return False

    with hanging_process(site):
        site.engine = second_engine
        try:
            rows = site.predict(site.make_executor(release))
        finally:
            second_engine.close(tmp_path)
    assert len(rows) == N_CASES
    assert is_stopped


def test_a_preempted_prediction_goes_on_with_the_missing_cases(site: Site) -> None:
    (site.notices / "holds").touch()

    def preempt_once() -> bool:
        if (site.notices / "waits").exists() and (site.notices / "holds").exists():
            site.engine.preempt("1")
            (site.notices / "holds").unlink()
        return False

    rows = site.predict(site.make_executor(preempt_once))
    assert len(rows) == N_CASES
    assert list(site.engine.jobs) == ["1", "2"]
    answered = site.list_answered()
    assert len(set(answered)) == len(answered) >= N_CASES


def test_a_predict_script_that_fails_is_an_error_of_the_model(site: Site) -> None:
    (site.notices / "fails").touch()
    with pytest.raises(ModelError, match="no weights here"):
        site.predict(site.make_executor())
    assert not site.prediction_folders
    wait_for(lambda: site.engine.poll("1").has_ended, "the job remains")


def test_the_check_of_a_project_is_a_job(site: Site, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text("import os, sys; print('probed', sys.argv[1], os.path.basename(os.getcwd())); sys.exit(3)")
    result = site.make_executor().run_probe(probe, "8")
    assert (result.exit_code, result.reason) == (3, "exit")
    assert result.output == "probed 8 work\n"
    assert len(site.engine.jobs) == 1


def test_a_cancelled_job_ends_the_run(site: Site, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(
        f"import os, pathlib, time; pathlib.Path({str(site.notices / 'waits')!r}).touch()\n"
        "while not os.path.exists(os.environ['M3B_INTERRUPT_FILE']): time.sleep(0.05)\n"
        "raise SystemExit(143)"
    )

    def cancel_job() -> bool:
        if (site.notices / "waits").exists():
            site.engine.cancel("1")
        return False

    with pytest.raises(RunCancelled) as raised:
        site.make_executor(cancel_job).run_probe(probe)
    assert raised.value.code == "job_cancelled"
