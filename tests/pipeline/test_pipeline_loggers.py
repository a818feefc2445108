"""Runs with loggers: what each store holds, read back by its own package, is what journal and training log say."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, TRAIN, actor, clean_environment, m3b_command, of_kind, play, plugin, say, script

from m3b import Pipeline, resume
from m3b.errors import LLMError, OfflineError, OptionError, UsageError
from m3b.loggers import LoggedRun, RunLogger
from m3b.loggers import registry as logger_registry
from m3b.loggers.recorder import read_parameters
from m3b.loggers.training_log import LogPosition, read_new_rows
from m3b.testing.scripted_model import llm_error

FIRST_ROWS = "fold,epoch,step,train_loss,auroc,lr,seconds\n0,1,10,0.9,0.6,0.001,2.5\n0,2,20,0.7,0.8,0.001,5.0\n"
LAST_ROW = "0,3,30,0.5,,0.001,7.5\n"
CURVE = {10: 0.9, 20: 0.7, 30: 0.5}


def write_log(text: str, redirect: str = ">") -> str:
    lines = text.replace("\n", "\\n")
    return f"mkdir -p Logout && printf '{lines}' {redirect} Logout/log.csv"


@pytest.fixture
def two_part_run(build, tmp_path: Path):
    """A run with loggers that fails in its training after two rows of the log, and is then resumed."""

    def run(log: str) -> Path:
        plan = """echo '{"seed": 0, "lr": 0.001, "network": {"pretrained": "/home/person/weights/w1"}}' > plan.json"""
        start = script(f"{plan} && {write_log(FIRST_ROWS)}")
        first = build(model=[start, llm_error(LLMError, "The line is dead.")], log=log)
        assert first.status == "failed"
        end = script(f"{write_log(LAST_ROW, '>>')} && {TRAIN}")
        second = resume(first.run_dir, actor(play(model=[start, end, say("Trained and exported.")])))
        assert second.status == "completed", second.reason
        return Path(second.run_dir)

    return run


def read_tensorboard(folder: Path) -> tuple[dict[str, dict[int, float]], dict[str, str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    store = EventAccumulator(str(folder / "loggers/tensorboard"))
    store.Reload()
    tags = store.Tags()
    figures = {name: {point.step: point.value for point in store.Scalars(name)} for name in tags["scalars"]}
    texts = {name: store.Tensors(name)[-1].tensor_proto.string_val[0].decode() for name in tags["tensors"]}
    return figures, texts


@contextmanager
def open_mlflow(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Yield client and run of the only MLflow run of a run folder."""
    from mlflow.tracking import MlflowClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient((folder / "loggers/mlflow").as_uri())
        experiment = client.get_experiment_by_name("m3b")
        (run,) = client.search_runs([experiment.experiment_id])
        yield client, run


def expected_measures(folder: Path) -> dict[str, float]:
    """Name -> value of all measures of a run, from its journal."""
    result = of_kind(folder, "run_ended")[-1]
    model = [data["value"] for data in of_kind(folder, "artifact") if data["artifact"] == "model"][-1]
    measures = {f"test/{name}": measure for name, measure in result["metrics"].items()}
    measures[f"validation/{model['validation']['name']}"] = model["validation"]
    keys = {"value": "", "low": "_low", "high": "_high", "baseline": "_baseline"}
    return {
        f"{name}{suffix}": measure[key]
        for name, measure in measures.items()
        for key, suffix in keys.items()
        if measure.get(key) is not None
    }


def test_stores_hold_what_the_journal_says(two_part_run) -> None:
    """TensorBoard and MLflow, over an interruption: each row once, one logger run, all measures with their intervals."""
    folder = two_part_run("tensorboard,mlflow")
    measures = expected_measures(folder)
    assert {"test/auroc", "test/auroc_low", "test/auroc_high", "test/auroc_baseline", "validation/auroc"} <= set(
        measures
    )

    figures, texts = read_tensorboard(folder)
    assert figures["fold0/train_loss"] == pytest.approx(CURVE)
    assert figures["fold0/auroc"] == pytest.approx({10: 0.6, 20: 0.8})
    assert {name: figures[name][1] for name in measures} == pytest.approx(measures)
    assert set(figures) == {"fold0/train_loss", "fold0/auroc", "fold0/lr", *measures}
    assert texts["status/text_summary"] == "completed"
    assert "| network.pretrained | w1 |" in texts["parameters/text_summary"]

    with open_mlflow(folder) as (client, run):
        points = client.get_metric_history(run.info.run_id, "fold0/train_loss")
        assert [(point.step, point.value) for point in points] == list(CURVE.items())
        assert {name: run.data.metrics[name] for name in measures} == pytest.approx(measures)
        assert run.info.status == "FINISHED"
        assert run.info.run_name == folder.name
        assert run.data.params == {"seed": "0", "lr": "0.001", "network.pretrained": "w1"}
        assert {name: run.data.tags[f"m3b.{name}"] for name in ("task", "metric", "status", "file.model")} == {
            "task": "diagnosis", "metric": "auroc", "status": "completed", "file.model": "model",
        }  # fmt: skip


def test_stores_hold_nobodys_name(two_part_run, spots: Path) -> None:
    """Neither case nor data set, path nor request is in any file of a store."""
    folder = two_part_run("tensorboard,mlflow")
    content = b"".join(file.read_bytes() for file in (folder / "loggers/tensorboard").rglob("*") if file.is_file())
    with open_mlflow(folder) as (_, run):
        values = " ".join([*run.data.params.values(), *(v for k, v in run.data.tags.items() if k.startswith("m3b."))])
    for secret in ("p001", "person", "bright spots", str(folder.parent)):
        assert secret.encode() not in content
        assert secret not in values


def test_run_says_where_it_is_logged(build) -> None:
    result = build(log="tensorboard")
    notes = of_kind(Path(result.run_dir), "run_started")[0]["notes"]
    assert any(f"tensorboard --logdir {result.run_dir}/loggers/tensorboard" in note for note in notes)
    assert json.loads(Path(result.run_dir, "run.json").read_text())["options"]["log"] == "tensorboard"


def test_command_line_logs(tmp_path: Path, spots: Path) -> None:
    """`m3b run --log` writes the store; `train` refuses an unknown logger before it does anything."""
    environment = plugin(tmp_path / "plugin", "acts = play()")
    offer_failing_logger(tmp_path / "plugin")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(m3b_command(*words), env=environment, cwd=tmp_path, capture_output=True, text=True)

    ran = run(
        "run", REQUEST, "--data", spots, "--llm", "played:a", "--out", "run", "--log", "tensorboard,failing", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    assert "Warning: The logger failing failed" in ran.stderr
    assert "tensorboard --logdir" in ran.stderr
    auroc = json.loads(ran.stdout)["primary"]["value"]
    assert read_tensorboard(tmp_path / "run")[0]["test/auroc"] == {1: pytest.approx(auroc)}
    journal_bytes = (tmp_path / "run/journal.jsonl").read_bytes()
    assert run("train", "run", "--minutes", 1, "--log", "other").returncode == 2
    assert (tmp_path / "run/journal.jsonl").read_bytes() == journal_bytes


def test_resumed_run_can_have_other_loggers(halfway_run: Path, finish) -> None:
    result = finish(log="tensorboard")
    figures, _ = read_tensorboard(Path(result.run_dir))
    assert figures["test/auroc"] == {1: pytest.approx(result.metrics["auroc"]["value"])}


class FailingLogger:
    """A logger whose server is gone when the first figures come."""

    key = "a"

    def __init__(self, run: LoggedRun) -> None:
        self.is_closed = False

    def log_parameters(self, parameters: Any) -> None: ...

    def log_figures(self, figures: Any, step: int, at: float) -> None:
        raise ConnectionError("no route to host")

    def set_tags(self, tags: Any) -> None: ...

    def close(self, status: str) -> None: ...


def offer_failing_logger(folder: Path) -> None:
    """Install a package, below a folder of the Python path, that offers `FailingLogger` as `failing`."""
    info = folder / "failing-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[m3b.loggers]\nfailing = test_pipeline_loggers:FailingLogger\n")


def test_logger_of_another_package_that_fails_does_not_end_the_run(
    tmp_path: Path, build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry point of `m3b.loggers` opens it; its error is a warning, and the other logger goes on."""
    offer_failing_logger(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    logger: RunLogger = FailingLogger(LoggedRun("run", tmp_path, tmp_path))
    assert logger.key == "a"
    result = build(log="failing,tensorboard", model=[script(f"{TRAIN} && {write_log(FIRST_ROWS)}"), say("Trained.")])
    assert result.status == "completed", result.reason
    assert [record.levelname for record in caplog.records if record.name == "m3b.loggers.relay"] == ["WARNING"]
    assert len([data for data in of_kind(Path(result.run_dir), "note") if "no route to host" in data["text"]]) == 1
    assert "fold0/train_loss" in read_tensorboard(Path(result.run_dir))[0]


@pytest.mark.parametrize("name", ["tensorbord", "tensorboard,other"])
def test_unknown_logger_is_refused_before_anything_is_made(tmp_path: Path, spots: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no logger"):
        Pipeline("rules", data=spots, out=tmp_path / "run", log=name)
    with pytest.raises(OptionError):
        Pipeline("rules", data=spots, out=tmp_path / "run", log=3)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_missing_package_names_its_extra(spots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger_registry, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"m3b\[log\]"):
        Pipeline("rules", data=spots, log="mlflow")


def test_offline_run_refuses_a_server(spots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org")
    with pytest.raises(OfflineError) as refusal:
        Pipeline("rules", data=spots, log="mlflow", offline=True)
    assert refusal.value.host == "MLFLOW_TRACKING_URI"
    for local in ("http://127.0.0.1:5000", "sqlite:////tmp/runs.db", "/tmp/mlruns"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", local)
        Pipeline("rules", data=spots, log="mlflow", offline=True)


def test_store_of_the_environment_is_used(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "shared").as_uri())
    result = build(log="mlflow")
    assert list((tmp_path / "shared").glob("*/*/metrics/test/auroc"))
    assert not (Path(result.run_dir) / "loggers/mlflow").exists()


def test_run_is_logged_by_python_without_content(build, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Stages at INFO, calls at DEBUG; neither request nor data, file or command."""
    caplog.set_level(logging.DEBUG, "m3b")
    build(model=[llm_error(LLMError, "The line is dead.")])
    records = [record for record in caplog.records if record.name == "m3b.run.services"]
    stages = [record.getMessage() for record in records if record.levelno == logging.INFO]
    assert stages[0].startswith("run run: started")
    assert stages[1:3] == ["run run: task_manager started", "run run: task_manager done"]
    assert stages[-1] == "run run: failed"
    assert "run run: data_engineer calls run_script" in [record.getMessage() for record in records]
    text = "\n".join(record.getMessage() for record in records)
    assert not [secret for secret in ("spot", "make_index", "python", str(tmp_path), "dead") if secret in text]


def test_run_without_loggers_imports_none(tmp_path: Path, spots: Path) -> None:
    code = (
        "import sys; from m3b import Pipeline; from m3b.run.services import RunServices;"
        f"Pipeline('rules', data={str(spots)!r}); print([n for n in sys.modules if n.startswith('m3b.loggers')])"
    )
    output = subprocess.run([sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr


# --- the training log ---------------------------------------------------------------------------------------------


def read_figures(folder: Path, position: LogPosition) -> list[tuple[int, dict[str, float]]]:
    return [(row.step, row.figures) for row in read_new_rows(folder, position)]


def test_rows_of_a_log_come_once_and_whole(tmp_path: Path) -> None:
    log = tmp_path / "work/Logout/log.csv"
    log.parent.mkdir(parents=True)
    position = LogPosition()
    assert read_figures(tmp_path, position) == []
    log.write_bytes(b"fold,step,train_loss,dice class/1\n0,5,0.5,nan\n1,5,0.2")  # the last line is being written
    assert read_figures(tmp_path, position) == [(5, {"fold0/train_loss": 0.5})]
    with log.open("ab") as stream:
        stream.write(b"5,0.7\nimages,6,\xff,0.1\n")
    restored = LogPosition(**json.loads(json.dumps(vars(position))))
    assert read_figures(tmp_path, restored) == [
        (5, {"fold1/train_loss": 0.25, "fold1/dice_class_1": 0.7}),
        (6, {"images/dice_class_1": 0.1}),
    ]
    assert read_figures(tmp_path, restored) == []


def test_another_log_is_another_attempt(tmp_path: Path) -> None:
    """A training that starts anew replaces its log: the new rows go under a name of their own."""
    log = tmp_path / "work/Logout/log.csv"
    log.parent.mkdir(parents=True)
    position = LogPosition()
    log.write_text("epoch,loss\n1,0.5\n2,0.4\n")
    assert read_figures(tmp_path, position) == [(1, {"loss": 0.5}), (2, {"loss": 0.4})]
    log.write_text("epoch,loss\n1,0.6\n2,0.3\n3,0.2\n")
    assert read_figures(tmp_path, position) == [
        (1, {"attempt2/loss": 0.6}),
        (2, {"attempt2/loss": 0.3}),
        (3, {"attempt2/loss": 0.2}),
    ]


def test_log_behind_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("epoch,loss\n1,0.5\n")
    (tmp_path / "work/Logout").mkdir(parents=True)
    (tmp_path / "work/Logout/log.csv").symlink_to(tmp_path / "secret.csv")
    assert read_figures(tmp_path, LogPosition()) == []


def test_parameters_are_flat_short_and_without_paths(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    plan = {
        "size": [64, 64],
        "augment": {"flip": [], "rotate": 5.5},
        "field": None,
        "weights": "/home/a/b/",
        "x": "y" * 999,
    }
    (tmp_path / "work/plan.json").write_text(json.dumps(plan))
    parameters = read_parameters(tmp_path, attempt=2)
    assert parameters == {
        "attempt2.size": "64, 64", "attempt2.augment.flip": "", "attempt2.augment.rotate": 5.5, "attempt2.weights": "b",
        "attempt2.x": "y" * 200,
    }  # fmt: skip
