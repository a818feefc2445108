"""Slurm, by its own commands: sbatch, squeue, scontrol, sacct, scancel, sinfo.

A job is a short script that starts the command with an empty environment but for the names that may pass. Accounting
(sacct) is asked only about jobs that the controller has forgotten; clusters without it work too.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from m3b.engines.base import (
    REQUEUE_VARIABLE,
    ClusterResources,
    EngineError,
    EngineName,
    JobRequest,
    JobState,
    JobStatus,
    Partition,
    read_tail,
)
from m3b.errors import UsageError
from m3b.writing import write_text_atomically

SCRIPT_FILE = "job.sh"
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
COMMAND_TIMEOUT_S = 90.0
"""Longer than the minute for which the commands themselves look for their configuration and the controller."""
SIGNAL_BEFORE_LIMIT_S = 120
"""A job gets SIGUSR1 so many seconds before its time limit, to write a checkpoint and to be requeued."""

ALLOWED_OPTIONS = (
    "account", "begin", "clusters", "comment", "constraint", "cores-per-socket", "dependency", "exclude", "exclusive",
    "gpus", "gpus-per-node", "gres", "hint", "licenses", "mem", "mem-per-cpu", "mem-per-gpu", "nice", "nodelist",
    "no-requeue", "priority", "qos", "reservation", "signal", "sockets-per-node", "threads-per-core", "time", "tmp",
)  # fmt: skip
"""Options of sbatch that a user may add; those that change command, environment, user or files are not among them."""
_OPTIONS_WITHOUT_VALUE = ("exclusive", "nice", "no-requeue")
_MEMORY_FORM = (r"\d+[KMGT]?", "a number with K, M, G or T, such as 16G; without a letter it counts MiB")
_COUNT_FORM = (r"\d+", "a whole number")
_GPU_FORM = (r"([\w.-]+:)?\d+(,([\w.-]+:)?\d+)*", "a number, or TYPE:NUMBER, such as a100:2")
_OPTION_FORMS: Mapping[str, tuple[str, str]] = {
    "time": (
        r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited",
        "minutes, [HOURS:]MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]], such as 4:00:00",
    ),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu", "tmp"), _MEMORY_FORM),
    **dict.fromkeys(("cores-per-socket", "sockets-per-node", "threads-per-core"), _COUNT_FORM),
    **dict.fromkeys(("gpus", "gpus-per-node"), _GPU_FORM),
    "nice": (r"[-+]?\d+", "a whole number"),
}
"""Option of sbatch -> regular expression of its values, and what they are; only options whose values every cluster reads alike."""

REFUSAL = "Slurm refuses the job"
"""Beginning of the message on a job that sbatch does not take."""
_STATES: Mapping[str, JobState] = {
    **dict.fromkeys(
        ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD"), "pending"
    ),
    **dict.fromkeys(
        ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "UPDATE_DB"), "running"
    ),
    "COMPLETED": "finished",
    **dict.fromkeys(("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"), "failed"),
    "CANCELLED": "cancelled",
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"), "lost"),
    "PREEMPTED": "preempted",
}  # fmt: skip
_HOPELESS_REASONS = (
    "PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount",
    "InvalidQOS", "QOSJobLimit", "JobHeldAdmin",
)  # fmt: skip
"""Reasons for which a pending job will never start by itself."""
_NOT_IN_NODE_STATES = ("down", "drain", "drng", "fail", "maint", "unk", "futr", "plnd_down", "boot", "inval")
_SINFO_FIELDS = "Partition:|,NodeList:|,CPUs:|,Memory:|,Time:|,Gres:|,GresUsed:|,CPUsState:|,StateLong:|"
_GPU_COUNT = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")
_CONFIGURATIONS = tuple(
    Path(name) for name in ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
)
_FIXED_ARGUMENTS = (
    "--parsable", "--export", "--job-name", "--chdir", "--output", "--open-mode", "--nodes", "--ntasks", "--requeue",
    "--no-requeue", "--signal=B:",
)  # fmt: skip
"""Arguments of sbatch that are the same for all jobs, or name the job."""
_FIELD = re.compile(r"(?:^|\s)([\w/:]+)=(.*?)(?=\s+[\w/:]+=|\s*$)")
_OWN_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG")


def find_missing_commands() -> tuple[str, ...]:
    """Return the commands of Slurm that this machine lacks."""
    return tuple(name for name in COMMANDS if shutil.which(name) is None)


def diagnose_slurm() -> tuple[bool, str]:
    """Return whether jobs can be submitted from this machine, and its partitions or the reason.

    A machine without commands or configuration is not asked, which would take a minute.
    """
    if missing_commands := find_missing_commands():
        return False, _describe_missing_commands(missing_commands)
    if not any(file.exists() for file in _list_configurations()):
        return False, _describe_missing_configuration()
    try:
        cluster = SlurmEngine().resources()
    except EngineError as error:
        return False, str(error)
    parts = [
        f"{part.name}{' (default)' if part.is_default else ''}: {part.nodes} nodes with up to {part.cpus} cores, "
        f"{part.gpus} GPUs, {part.memory_gib:.0f} GiB"
        for part in cluster.partitions
    ]
    return (
        True,
        f"{cluster.free_cpus} of {cluster.cpus} cores free; {'; '.join(parts) or 'no partition has a working node'}",
    )


def _list_configurations() -> list[Path]:
    return [Path(os.environ["SLURM_CONF"])] if os.environ.get("SLURM_CONF") else [*_CONFIGURATIONS]


def _describe_missing_commands(names: Sequence[str]) -> str:
    return f"no {', '.join(names)} on this machine; --engine slurm needs a login node of a Slurm cluster"


def _describe_missing_configuration() -> str:
    return (
        f"no configuration of Slurm ({', '.join(map(str, _list_configurations()))}); --engine slurm needs a login node of a "
        "Slurm cluster, or SLURM_CONF with the path of its slurm.conf"
    )


def check_options(options: Mapping[str, str]) -> None:
    """Check options for sbatch that a user gave.

    Raises:
        UsageError: an option is not among `ALLOWED_OPTIONS`, or sbatch could not read its value.
    """
    for name, value in options.items():
        if name not in ALLOWED_OPTIONS:
            matches = difflib.get_close_matches(name, ALLOWED_OPTIONS, 1)
            suggestion = f" Did you mean {matches[0]}?" if matches else ""
            raise UsageError(
                f"{name!r} is no option that is passed on to sbatch.{suggestion} Options: {', '.join(ALLOWED_OPTIONS)}. Cores, GPUs, "
                "memory and partition are options of m3b: --cpus, --gpus, --memory, --partition."
            )
        if any(ord(letter) < 32 for letter in value):
            raise UsageError(f"The value of the sbatch option {name} has control characters: {value!r}.")
        if not value and name not in _OPTIONS_WITHOUT_VALUE:
            raise UsageError(f"--slurm-option {name} needs a value: {name}=VALUE.")
        pattern, description = _OPTION_FORMS.get(name, ("", ""))
        if value and pattern and not re.fullmatch(pattern, value, re.IGNORECASE):
            raise UsageError(f"--slurm-option {name}={value}: {name} is {description}.")


class SlurmEngine:
    """Submits jobs to the Slurm cluster that this machine belongs to (`SLURM_CONF` names another configuration)."""

    name: EngineName = "slurm"

    def __init__(self) -> None:
        self._log_files: dict[str, Path] = {}
        self._lock = threading.Lock()

    def submit(self, request: JobRequest) -> str:
        """Submit a job and return its id; see `Engine.submit`. The folder gets the job script."""
        check_options(request.resources.options)
        script = request.folder / SCRIPT_FILE
        write_text_atomically(script, _format_script(request), is_private=True)
        arguments = _submit_arguments(request)
        try:
            output = self._run("sbatch", [*arguments, str(script)], code="rejected")
        except EngineError as error:
            if error.code != "rejected":
                raise
            asked = shlex.join(word for word in arguments if not word.startswith(_FIXED_ARGUMENTS))
            raise EngineError(f"{REFUSAL}: {error}. It asks for {asked}.", code="rejected") from error
        job_id = output.strip().splitlines()[-1].partition(";")[0] if output.strip() else ""
        if not job_id.isdecimal():
            raise EngineError(f"sbatch did not return a job id: {output.strip()[-300:]!r}", code="rejected")
        with self._lock:
            self._log_files[job_id] = request.log_file
        return job_id

    def find(self, name: str) -> str | None:
        """Return the id of the newest job with a name; see `Engine.find`."""
        output = self._run("squeue", ["--noheader", "--states=all", "--me", f"--name={name}", "--format=%i"])
        job_ids = [word for word in output.split() if word.isdecimal()]
        return max(job_ids, key=int) if job_ids else None

    def poll(self, job_id: str) -> JobStatus:
        """Return the status of a job; see `Engine.poll`."""
        fields = self._show_job(job_id)
        return _parse_status(fields) if fields else self._ask_accounting(job_id)

    def _show_job(self, job_id: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`; empty if the controller does not know the job."""
        try:
            output = self._run("scontrol", ["--oneliner", "show", "job", job_id])
        except EngineError as error:
            if "Invalid job id" in str(error):
                return {}
            raise
        return dict(reversed(_FIELD.findall(output)))  # the first of equal names: paths and comments follow the state

    def _ask_accounting(self, job_id: str) -> JobStatus:
        arguments = ["--noheader", "--parsable2", "--allocations", "--jobs", job_id, "--format=State,ExitCode,NodeList"]
        try:
            lines = self._run("sacct", arguments).splitlines()
        except EngineError:  # no accounting on this cluster
            lines = []
        if not lines or lines[-1].count("|") != 2:
            return JobStatus("lost", reason="unknown to Slurm")
        state, exit_code, node = lines[-1].split("|")
        return _parse_status({"JobState": state.split()[0], "ExitCode": exit_code, "NodeList": node})

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        """Return what the log file of a job has from a byte on; see `Engine.tail`."""
        with self._lock:
            log_file = self._log_files.get(job_id)
        if log_file is None:  # another process submitted it
            fields = self._show_job(job_id)
            if not fields.get("StdOut"):
                return b"", offset
            # the folder of StdOut may be shown with symbols replaced and backslashes doubled; the log is in that of the job
            log_file = Path(fields.get("WorkDir", ""), Path(fields["StdOut"]).name.replace("%%", "%"))
            with self._lock:
                self._log_files[job_id] = log_file
        return read_tail(log_file, offset)

    def cancel(self, job_id: str) -> None:
        """Cancel a job; see `Engine.cancel`."""
        try:
            self._run("scancel", [job_id])
        except EngineError as error:
            if "Invalid job id" not in str(error):
                raise

    def resources(self) -> ClusterResources:
        """Return what the cluster has; see `Engine.resources`."""
        return _parse_nodes(self._run("sinfo", ["--noheader", "--Node", f"--Format={_SINFO_FIELDS}"]))

    def _run(self, command: str, arguments: Sequence[str], code: str = "unreachable") -> str:
        """Run a command of Slurm without the variables of this process that are not Slurm's; return its output.

        Raises:
            EngineError: it is missing, fails, or does not answer.
        """
        try:
            result = subprocess.run(
                [command, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
                env=_command_environment(),
            )
        except FileNotFoundError:
            reason = _describe_missing_commands(find_missing_commands() or [command])
            raise EngineError(f"Slurm cannot be used: {reason}.", code="unreachable") from None
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"{command} did not answer for {COMMAND_TIMEOUT_S:.0f} s; `scontrol ping` says whether the controller is up.",
                code="unreachable",
            ) from None
        if result.returncode != 0:
            words = " ".join((result.stderr or result.stdout).split())[-500:]
            if "Could not establish a configuration source" in words:
                raise EngineError(f"Slurm cannot be used: {_describe_missing_configuration()}.", code="unreachable")
            is_down = "Unable to contact slurm controller" in words or ("configuration" in words and "process" in words)
            words = words.removeprefix(f"{command}: ").removeprefix("error: ")
            raise EngineError(f"{command}: {words}", code="unreachable" if is_down else code)
        return result.stdout


def _command_environment() -> dict[str, str]:
    """Return the variables for Slurm's commands; sbatch passes its own on to the controller.

    Variables of a job that m3b itself may run in (`SLURM_MEM_PER_NODE`, ...) would become requirements of the new one.
    """
    names = [name for name in os.environ if name in _OWN_VARIABLES or name in ("SLURM_CONF", "SLURM_CLUSTERS")]
    return {name: os.environ[name] for name in names}


def _format_script(request: JobRequest) -> str:
    """Return the job script. `exec` gives the signals of Slurm to the command; `env -i` drops what the node has set."""
    variables = [
        'PATH="$PATH"', 'HOME="$HOME"', "LANG=C.UTF-8", 'SLURM_JOB_ID="$SLURM_JOB_ID"',
        'SLURM_RESTART_COUNT="${SLURM_RESTART_COUNT:-0}"', 'OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"',
    ]  # fmt: skip
    optional = (
        "SLURM_CONF",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
    )
    variables += [f'${{{name}:+{name}="${name}"}}' for name in optional]
    if request.may_restart:
        variables.append(f'{REQUEUE_VARIABLE}="scontrol requeue $SLURM_JOB_ID"')
    values = {name: os.environ[name] for name in request.pass_environment if name in os.environ}
    variables += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    return f"#!/bin/sh\nexec env -i {' '.join(variables)} {shlex.join(request.argv)}\n"


def escape_file_pattern(file: Path) -> str:
    """Return the pattern of `--output` that stands for exactly this file.

    In a pattern with a backslash, Slurm replaces no symbols (`%j`), and takes each backslash for the character behind it.

    Raises:
        UsageError: the path has control characters, which Slurm's answers cannot hold.
    """
    name = str(file)
    if any(ord(letter) < 32 for letter in name):
        raise UsageError(
            f"The path {name!r} has control characters, so no job of Slurm can write there. Choose another folder."
        )
    return name.replace("\\", "\\\\") if "\\" in name else name.replace("%", "%%")


def _submit_arguments(request: JobRequest) -> list[str]:
    resources = request.resources
    arguments = [
        "--parsable",
        "--export=NONE",
        f"--job-name={request.name}",
        f"--chdir={request.folder}",
        f"--output={escape_file_pattern(request.log_file)}",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={max(1, resources.cpus)}",
        "--requeue" if request.may_restart else "--no-requeue",
        f"--signal=B:USR1@{SIGNAL_BEFORE_LIMIT_S}",
    ]
    if resources.gpus:
        arguments.append(f"--gres=gpu:{resources.gpus}")
    if resources.memory_gib:
        arguments.append(f"--mem={round(resources.memory_gib * 1024)}M")
    if resources.minutes:
        arguments.append(f"--time={max(1, round(resources.minutes))}")
    if resources.partition:
        arguments.append(f"--partition={resources.partition}")
    return [*arguments, *(f"--{name}={value}" if value else f"--{name}" for name, value in resources.options.items())]


def _parse_status(fields: Mapping[str, str]) -> JobStatus:
    """Return the status from fields as `scontrol show job` names them."""
    word = fields.get("JobState", "").rstrip("+")
    state = _STATES.get(word, "running")
    reason = fields.get("Reason", "")
    reason = "" if reason == "None" else reason
    if state == "pending" and reason in _HOPELESS_REASONS:
        state = "failed"
    code, _, signal_number = fields.get("ExitCode", "").partition(":")
    exit_code = None
    if state in ("finished", "failed", "cancelled", "preempted", "lost") and code.isdecimal():
        exit_code = 128 + int(signal_number) if signal_number not in ("", "0") else int(code)
    node = fields.get("BatchHost") or fields.get("NodeList") or ""
    restarts = fields.get("Restarts", "0")
    return JobStatus(
        state,
        exit_code,
        "" if node.startswith(("(", "None")) else node,
        reason if state == "pending" or (state == "failed" and word == "PENDING") else word,
        int(restarts) if restarts.isdecimal() else 0,
    )


def _parse_nodes(text: str) -> ClusterResources:
    """Return the resources from a line for each node and partition, with the fields of `_SINFO_FIELDS`."""
    partitions: dict[str, Partition] = {}
    nodes: dict[str, tuple[int, int, int, int]] = {}
    for partition, node, cpus, memory, minutes, gres, gres_used, cpu_states, state in _split_lines(text):
        if state.rstrip("*~#!%$@^-").startswith(_NOT_IN_NODE_STATES):
            continue
        name, gpus = partition.rstrip("*"), _count_gpus(gres)
        free_cpus = int(cpu_states.split("/")[1])
        nodes[node] = int(cpus), gpus, free_cpus, max(0, gpus - _count_gpus(gres_used))
        known = partitions.get(name, Partition(name, 0, 0, 0, 0.0))
        partitions[name] = Partition(
            name,
            known.nodes + 1,
            max(known.cpus, int(cpus)),
            max(known.gpus, gpus),
            max(known.memory_gib, _parse_memory(memory)),
            _parse_minutes(minutes),
            partition.endswith("*"),
        )
    sums = [sum(figures) for figures in zip(*nodes.values(), strict=True)] or [0, 0, 0, 0]
    return ClusterResources(sums[0], sums[1], sums[2], sums[3], tuple(partitions.values()))


def _split_lines(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) >= 9:
            yield [cell.strip() for cell in cells[:9]]


def _parse_memory(mebibytes: str) -> float:
    """Return the memory of a node in GiB; 0 if nobody told Slurm, which then says 1 MiB."""
    amount = int(mebibytes.rstrip("+"))
    return amount / 1024 if amount > 1 else 0.0


def _count_gpus(gres: str) -> int:
    return sum(int(count) for count in _GPU_COUNT.findall(gres))


def _parse_minutes(text: str) -> float | None:
    """Return a time of Slurm (`days-hours:minutes:seconds`, `minutes:seconds`) in minutes; None if it is infinite."""
    days, separator, rest = text.partition("-") if "-" in text else ("0", "", text)
    numbers = rest.split(":")
    if not days.isdecimal() or not all(number.isdecimal() for number in numbers):
        return None
    if separator:  # hours[:minutes[:seconds]]
        hours, minutes, seconds = (int(number) for number in [*numbers, "0", "0"][:3])
    else:  # [hours:]minutes:seconds
        hours, minutes, seconds = (
            int(number) for number in ["0", "0", *numbers, *(["0"] if len(numbers) == 1 else [])][-3:]
        )
    return int(days) * 1440 + hours * 60 + minutes + seconds / 60
