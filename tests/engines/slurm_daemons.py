"""A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd with ports and folders of their own.

Nothing of the machine's own configuration is read or changed. `find_missing_program` says why no cluster can be started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
NODES = ("node1", "node2")
START_TIMEOUT_S = 60.0
LOST_NODE_S = 10
"""Seconds after which the controller counts a node as lost."""


def find_missing_program() -> str:
    """Return why no cluster can be started here; '' if it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} (Debian: slurm-wlm, munge)"
    if os.geteuid() != 0:
        return "slurmd starts jobs as root only"
    return ""


class SlurmDaemons:
    """A running cluster; `environment` are the variables with which Slurm's commands find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", *NODES):
            (folder / name).mkdir(parents=True)
        # munged wants a socket that every user can reach, and the folders of tests are private
        self.munge = Path(tempfile.mkdtemp(prefix="m3b-munge-"))
        self.munge.chmod(0o755)
        (self.munge / "key").write_bytes(os.urandom(128))
        (self.munge / "key").chmod(0o600)
        (folder / "slurm.conf").write_text(_format_configuration(folder, self.munge / "socket"))
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def start(self) -> None:
        """Start all daemons and wait until the nodes take jobs."""
        options = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed", "socket": "socket"}
        files = [f"--{option}={self.munge / name}" for option, name in options.items()]
        self._spawn("munged", "munged", "--foreground", *files)
        self._wait_for(lambda: (self.munge / "socket").exists(), "munged has no socket")
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        all_idle = {f"{node} idle" for node in NODES}
        self._wait_for(
            lambda: set(self.run("sinfo", "-hN", "-o", "%N %T").splitlines()) == all_idle, "nodes are not idle"
        )

    def _wait_for(self, condition: Callable[[], object], problem: str) -> None:
        def is_over() -> bool:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended: {(self.folder / f'{name}.out').read_text()[-2000:]}")
            return bool(condition())

        wait_for(is_over, problem)

    def start_controller(self) -> None:
        """Start the controller, with the jobs that it had."""
        self._spawn("slurmctld", "slurmctld", "-D")

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._spawn(node, "slurmd", "-D", "-N", node)

    def kill(self, name: str) -> None:
        """Kill a daemon (`slurmctld` or a node) as a crash does; jobs of a node go on without it."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def crash_node(self, node: str, job_process: int) -> None:
        """Kill the daemon of a node, a job that runs there and what watches the job, as a power failure does."""
        watcher = int(Path(f"/proc/{job_process}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"slurmstepd" in Path(f"/proc/{watcher}/cmdline").read_bytes()
        self.kill(node)
        for process in (watcher, job_process):
            os.kill(process, signal.SIGKILL)

    def run(self, *command: str) -> str:
        """Return the output of a command of Slurm; empty if it fails."""
        result = subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else ""

    def list_jobs(self) -> list[str]:
        """Return the ids of all jobs in the queue: pending, running or completing."""
        return self.run("squeue", "-h", "-o", "%i").split()

    def find_node(self, job_id: str) -> str:
        """Return the node that a job runs on."""
        return self.run("squeue", "-h", "-j", job_id, "-o", "%N").strip()

    def stop(self) -> None:
        """Cancel all jobs, then end the daemons."""
        self.run("scancel", "--signal=KILL", "--full", "--me")
        self.run("scancel", "--me")
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self.list_jobs(), "jobs remain", 20.0)
        for name in reversed(self._processes):
            self._processes[name].send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.munge, ignore_errors=True)

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or program
        with (self.folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [path, *arguments], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            )  # fmt: skip


@contextlib.contextmanager
def run_slurm(folder: Path) -> Iterator[SlurmDaemons]:
    """Yield a running cluster whose files are below a folder; its daemons end afterwards."""
    daemons = SlurmDaemons(folder)
    try:
        daemons.start()
        yield daemons
    finally:
        daemons.stop()


def wait_for(condition: Callable[[], object], problem: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until a function returns something true.

    Raises:
        AssertionError: it does not in this time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{problem} after {timeout_s:.0f} s"
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _format_configuration(folder: Path, munge_socket: Path) -> str:
    host = socket.gethostname()
    controller_port, *node_ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=16000"
        for node, port in zip(NODES, node_ports, strict=True)
    )
    return f"""
ClusterName=m3btest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge_socket},cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
SlurmdTimeout={LOST_NODE_S}
KillWait=20
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_min_interval=1,bf_interval=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES PriorityTier=1 MaxTime=240 State=UP
PartitionName=urgent Nodes={",".join(NODES)} PriorityTier=10 MaxTime=240 State=UP
"""
