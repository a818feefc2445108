"""What a user may ask of an engine, and what Slurm's answers mean; without a cluster."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from m3b.cli.engine_options import EngineOptions as Flags
from m3b.cli.engine_options import parse_slurm_options
from m3b.engines import (
    ClusterResources,
    EngineError,
    EngineOptions,
    JobRequest,
    JobStatus,
    Partition,
    Resources,
    resolve_resources,
    slurm,
)
from m3b.engines.base import read_tail
from m3b.errors import SettingError, UsageError
from m3b.run.pipeline import change_engine, resolve_engine
from m3b.run.training_overrides import TrainingOverrides, check_overrides

CPU_PART = Partition("cpu", 4, 32, 0, 128.0, 2880, is_default=True)
GPU_PART = Partition("gpu", 2, 64, 4, 512.0, 240)
CLUSTER = ClusterResources(256, 8, 100, 3, (CPU_PART, GPU_PART))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "pbs"},
        {"name": "slurm", "cpus": 0},
        {"name": "slurm", "memory_gib": 0.1},
        {"name": "slurm", "partition": "gpu --export=ALL"},
        {"name": "slurm", "options": {"export": "ALL"}},
        {"name": "slurm", "options": {"wrap": "id"}},
        {"name": "slurm", "options": {"account": "a\nb"}},
        {"name": "slurm", "options": {"account": ""}},
        {"name": "slurm", "options": {"time": "banana"}},
        {"name": "slurm", "options": {"time": "1:2:3:4"}},
        {"name": "slurm", "options": {"mem": "16 GB"}},
        {"name": "slurm", "options": {"gpus": "two"}},
        {"name": "local", "cpus": 2},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        EngineOptions(**values)


def test_values_that_sbatch_reads_are_accepted() -> None:
    for time in ("90", "90:00", "4:00:00", "2-4", "1-12:30", "1-12:30:00", "infinite"):
        slurm.check_options({"time": time})
    slurm.check_options(
        {"mem": "16G", "gpus": "a100:2", "nice": "", "exclusive": "", "exclude": "n[1-4]", "constraint": "a|b"}
    )
    with pytest.raises(UsageError, match="Did you mean account"):
        slurm.check_options({"acount": "radiology"})


def test_a_refusal_says_what_the_job_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: Invalid qos specification' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    resources = Resources(2, 1, 4.0, 30.0, "gpu", {"qos": "urgent"})
    with pytest.raises(EngineError) as raised:
        slurm.SlurmEngine().submit(JobRequest("job", ("/bin/true",), tmp_path, tmp_path / "log", resources))
    assert raised.value.code == "rejected"
    for words in ("Invalid qos specification", "--cpus-per-task=2", "--time=30", "--partition=gpu", "--qos=urgent"):
        assert words in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


def test_options_survive_run_json() -> None:
    options = EngineOptions("slurm", cpus=8, gpus=2, memory_gib=32, partition="gpu", options={"account": "radiology"})
    assert EngineOptions.from_json(options.to_json()) == options
    assert EngineOptions.from_json(None) == EngineOptions()
    assert change_engine(options, None) == change_engine(options, "slurm") == options
    assert change_engine(options, "local").name == "local"


def test_a_job_has_the_gpus_of_the_training() -> None:
    assert resolve_engine("slurm", TrainingOverrides(gpus_of_jobs=0)).gpus == 0
    assert resolve_engine(EngineOptions("slurm", gpus=1), TrainingOverrides(device="cuda", gpus_of_jobs=0)).gpus == 1
    check_overrides(TrainingOverrides(gpus=8, gpus_of_jobs=8))  # on a machine without any
    with pytest.raises(SettingError):
        check_overrides(TrainingOverrides(gpus=64))


def test_resources_fit_a_node() -> None:
    assert resolve_resources(EngineOptions("slurm"), CLUSTER) == Resources(4, 0, 16.0, 2880, "", {})
    options = EngineOptions("slurm", cpus=64, gpus=4, memory_gib=500, partition="gpu")
    assert resolve_resources(options, CLUSTER) == Resources(64, 4, 500, 240, "gpu", {})
    for values in ({"cpus": 33}, {"gpus": 1}, {"memory_gib": 200}, {"partition": "absent"}):
        with pytest.raises(UsageError):
            resolve_resources(EngineOptions("slurm", **values), CLUSTER)
    unknown_memory = ClusterResources(2, 0, 2, 0, (Partition("all", 1, 2, 0, 0.0, None, is_default=True),))
    assert resolve_resources(EngineOptions("slurm"), unknown_memory) == Resources(2, 0, 0.0, 0.0, "", {})


def test_flags_win_over_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m3b").mkdir()
    (tmp_path / "m3b" / "m3b.toml").write_text(
        'engine = "slurm"\npartition = "gpu"\ncpus = 8\nmemory = 24\nslurm_options = "account=a qos=long"\n'
    )
    configured = Flags().resolve([])
    assert configured == EngineOptions("slurm", 8, 0, 24.0, "gpu", {"account": "a", "qos": "long"})
    assert Flags(cpus=2, slurm_option=["account=b"]).resolve([]).options == {"account": "b"}
    assert Flags(engine="local").resolve([]) == EngineOptions()


def test_options_of_sbatch_are_key_and_value() -> None:
    assert parse_slurm_options(["account=a=b", "--exclusive"]) == {"account": "a=b", "exclusive": ""}
    with pytest.raises(UsageError):
        parse_slurm_options(["=a"])


def test_answers_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (
        "cpu*|n1|32|128000|2-00:00:00|(null)|(null)|30/2/0/32|mixed|\n"
        "gpu|g1|64|512000|4:00:00|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|60/4/0/64|mixed|\n"
        "gpu|g2|64|512000|4:00:00|gpu:a100:4(S:0-1)|gpu:a100:0(IDX:N/A)|0/0/64/64|down*|\n"
        "old|o1|8|1|infinite|(null)|gpu:0|0/8/0/8|idle|\n"
    )
    engine = slurm.SlurmEngine()
    monkeypatch.setattr(engine, "_run", lambda *_, **__: nodes)
    resources = engine.resources()
    assert (resources.cpus, resources.gpus, resources.free_cpus, resources.free_gpus) == (104, 4, 14, 1)
    assert resources.find_partition("") == Partition("cpu", 1, 32, 0, 125.0, 2880, is_default=True)
    assert resources.find_partition("gpu") == Partition("gpu", 1, 64, 4, 500.0, 240)
    assert resources.find_partition("old") == Partition("old", 1, 8, 0, 0.0, None)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("JobState=PENDING Reason=Resources ExitCode=0:0 Restarts=1", JobStatus("pending", reason="Resources", restarts=1)),
        ("JobState=PENDING Reason=PartitionTimeLimit", JobStatus("failed", reason="PartitionTimeLimit")),
        ("JobState=COMPLETING ExitCode=0:15 BatchHost=n1", JobStatus("running", node="n1", reason="COMPLETING")),
        ("JobState=COMPLETED Reason=None ExitCode=0:0 BatchHost=n1", JobStatus("finished", 0, "n1", "COMPLETED")),
        ("JobState=FAILED ExitCode=3:0 BatchHost=n1", JobStatus("failed", 3, "n1", "FAILED")),
        ("JobState=TIMEOUT ExitCode=0:15 BatchHost=n1", JobStatus("failed", 143, "n1", "TIMEOUT")),
        ("JobState=CANCELLED ExitCode=0:0 NodeList=(null)", JobStatus("cancelled", 0, "", "CANCELLED")),
        ("JobState=NODE_FAIL ExitCode=0:0 NodeList=n1", JobStatus("lost", 0, "n1", "NODE_FAIL")),
        ("JobState=PREEMPTED ExitCode=0:15 NodeList=n1", JobStatus("preempted", 143, "n1", "PREEMPTED")),
    ],
)  # fmt: skip
def test_states_of_jobs(fields: str, status: JobStatus, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = slurm.SlurmEngine()
    monkeypatch.setattr(engine, "_run", lambda *_, **__: f"JobId=7 JobName=a b {fields} Command=/a b/c.sh\n")
    assert engine.poll("7") == status


def test_a_job_script_passes_nothing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE", "it's here")
    argv = ("/usr/bin/env",)
    request = JobRequest("job", argv, tmp_path, tmp_path / "log", pass_environment=("SITE",))
    script = slurm._format_script(request)
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/home", "SLURM_JOB_ID": "7", "MY_API_KEY": "canary"}
    output = subprocess.run(["/bin/sh", "-c", script], env=variables, capture_output=True, text=True, check=True).stdout
    lines = dict(line.split("=", 1) for line in output.splitlines())
    assert lines["SITE"] == "it's here"
    assert lines["M3B_REQUEUE_COMMAND"] == "scontrol requeue 7"
    assert "MY_API_KEY" not in lines


def test_a_missing_command_is_an_engine_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.find_missing_commands() == slurm.COMMANDS
    with pytest.raises(EngineError) as raised:
        slurm.SlurmEngine().resources()
    assert raised.value.code == "unreachable"
    assert slurm.diagnose_slurm()[1] in str(raised.value)


def test_a_missing_configuration_is_said_as_by_the_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in slurm.COMMANDS:
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "absent.conf"))
    with pytest.raises(EngineError) as raised:
        slurm.SlurmEngine().resources()
    works, reason = slurm.diagnose_slurm()
    assert (raised.value.code, works) == ("unreachable", False)
    assert reason in str(raised.value)
    assert "absent.conf" in reason


def test_a_ray_cluster_that_has_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray goes on asking the address that the last `ray start` noted, for minutes."""
    pytest.importorskip("ray")
    from m3b.engines import ray_driver
    from m3b.engines.ray import RayEngine
    from m3b.engines.ray_driver import find_head, find_recorded_address

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "7").mkdir()
    assert find_recorded_address() == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        living_address = f"127.0.0.1:{server.getsockname()[1]}"
        for address, expected in (("127.0.0.1:9", ""), ("", ""), (living_address, living_address)):
            (tmp_path / "ray" / "ray_current_cluster").write_text(address)
            assert find_recorded_address() == expected
        (tmp_path / "7" / "cmdline").write_text(f"raylet\0--gcs-address={living_address}\0--temp-dir=/x")
        for process, expected in (("python", ""), ("raylet", living_address)):
            (tmp_path / "7" / "comm").write_text(f"{process}\n")
            assert find_head(tmp_path) == expected
        monkeypatch.setattr(
            ray_driver, "_is_trusted", lambda status: False
        )  # those of another user, who could run code here
        assert (find_recorded_address(), find_head(tmp_path)) == ("", "")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(EngineError, match=r"nothing answers at 127\.0\.0\.1:9") as raised:
        RayEngine("auto").resources()
    assert raised.value.code == "unreachable"


def test_a_log_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_tail(log, 0) == (b"", 0)
    log.write_bytes(b"one two")
    assert read_tail(log, 4) == (b"two", 7)
    log.write_bytes(b"new")
    assert read_tail(log, 7) == (b"new", 3)


def test_file_patterns_of_slurm_stand_for_one_file() -> None:
    for path, pattern in (("/a/b", "/a/b"), ("/a%j/b", "/a%%j/b"), ("/a\\b%j", "/a\\\\b%j"), ("/a b", "/a b")):
        assert slurm.escape_file_pattern(Path(path)) == pattern
    for path in ("/a\nb", "/a\x1bb"):
        with pytest.raises(UsageError, match="control characters"):
            slurm.escape_file_pattern(Path(path))
