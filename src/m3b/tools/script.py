"""The tool run_script: run a command in the sandbox and report its result."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

from m3b.errors import RunCancelled, ToolError
from m3b.facts import ScriptOutcome
from m3b.isolation.sandbox import ExitStatus
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.jobs import ScriptJob
from m3b.tools.text import clean_terminal_output, clip, find_nonfinite_loss, last_traceback

MIN_NOTED_SILENCE_S = 120.0
_MAX_WAIT_S = 3600

_EXIT_REASON_TEXTS = {
    "wall_time": "killed: it ran longer than a script may",
    "memory": "killed: it used more memory than a script may. Use smaller batches, patches or fewer workers",
    "processes": "killed: it started more processes than a script may. Use fewer workers",
    "disk": "killed: it wrote more to disk than a script may. Keep fewer checkpoints or smaller caches",
    "files": "killed: it created more files than a script may. Write fewer, larger files",
    "stopped": "stopped on request",
    "lost": "lost: its supervisor ended before it did, or its node failed. Run it again",
    "cancelled": "ended: its cluster job was cancelled",
    "preempted": "ended: its cluster job had to make room. Run it again",
}


MIN_FREE_BYTES = 32 << 20
"""Less free space than this counts as a full disk."""


def _is_disk_full(work: Path, output: str = "") -> bool:
    """Return whether the disk has no room now, or had none for a script with this output, which may have freed it since."""
    return shutil.disk_usage(work).free < MIN_FREE_BYTES or any(
        os.strerror(code) in output for code in (errno.ENOSPC, errno.EDQUOT)
    )


def _describe_exit_reason(reason: str, work: Path) -> str:
    """Return why a script was ended; a full disk is told from a script that wrote too much."""
    if reason == "disk" and _is_disk_full(work):
        return f"killed: the disk of {work} is full. Make room on it, then run it again"
    return _EXIT_REASON_TEXTS.get(reason, reason)


def run_script(ctx: ToolContext, command: str = "", wait_s: int = 600, job: int = 0, stop: bool = False) -> ToolResult:
    """Run a bash command in the working folder, without network, and wait for it.

    A command that still runs after wait_s goes on as a job: the result gives its number. Wait on with
    run_script(job=N), end it with run_script(job=N, stop=true). Waiting costs no action.

    Args:
        command: the command, such as "python train.py --epochs 3". Leave out with job.
        wait_s: how many seconds to wait at most.
        job: number of a running job to wait for instead of starting a command.
        stop: end that job now.
    """
    if bool(command.strip()) == bool(job):
        raise ToolError("run_script needs either a command, or the number of a job to wait for or stop.")
    if stop and not job:
        raise ToolError("stop=true needs the number of a job.")
    if "\0" in command:
        raise ToolError("The command holds a NUL byte; remove it.")
    if job:
        script_job = ctx.jobs.find_job(job)
    else:
        if ctx.approve is not None and not ctx.approve(command):
            raise ToolError("The user did not approve this command; it was not run. Find another way.")
        script_job = ctx.jobs.start(command)
    if stop and script_job.is_running:
        script_job.exit = script_job.process.stop()
    was_cancelled = ctx.jobs.wait(
        script_job, max(0, min(wait_s, _MAX_WAIT_S)), ctx.is_cancelled, lambda j: _report_output(ctx, j)
    )
    if script_job.exit is not None and script_job.exit.reason == "cancelled":
        raise RunCancelled(
            f"The cluster job of script {script_job.number} (`{' '.join(script_job.command.split())[:80]}`) was cancelled, and "
            "not by m3b.",
            code="job_cancelled",
        )
    return _format_result(ctx, script_job, was_cancelled)


def _report_output(ctx: ToolContext, job: ScriptJob) -> None:
    if ctx.on_output:
        ctx.on_output(job.number, job.queue_state or clean_terminal_output(job.read_output())[-2000:])


def _format_result(ctx: ToolContext, job: ScriptJob, was_cancelled: bool) -> ToolResult:
    raw = job.read_output()
    output = clean_terminal_output(raw).strip("\n")
    error = last_traceback(output)
    log = ctx.logs.display_name(job.process.output)
    publish_error = ctx.logs.publish(job.process.output, raw.encode("utf-8", "replace"))
    lines = [_format_headline(job, was_cancelled, ctx.roots.work)]
    if loss := find_nonfinite_loss(output):
        lines.append(f"The loss is not a number: {loss[:200]}")
    if job.queue_state:
        lines.append(f"It has not started: {job.queue_state}.")
    elif job.is_running and job.silence_s > MIN_NOTED_SILENCE_S:
        lines.append(f"No output for {job.silence_s:.0f} s.")
    body = output
    if error and output.endswith(error):
        body = output[: -len(error)].rstrip("\n")
    max_chars = max(ctx.max_result_chars - min(len(error), ctx.max_result_chars // 2) - 300, 500)
    if body:
        log_note = f"not copied to {log}: {publish_error}" if publish_error else log
        lines.append(f"--- output ({log_note}) ---\n{clip(body, max_chars, f'all that was kept is in {log}')}")
    elif not error:
        lines.append("It printed nothing." if not job.is_running else "Nothing printed so far.")
    if error:
        lines.append(f"--- last traceback ---\n{clip(error, ctx.max_result_chars // 2)}")
    outcome = ScriptOutcome(
        job=job.number,
        running=job.is_running,
        exit_code=job.exit.code if job.exit else None,
        reason=job.exit.reason if job.exit else "",
        disk_full=bool(job.exit and job.exit.code) and _is_disk_full(ctx.roots.work, output),
        output=log,
        error=error,
        wall_s=round(job.exit.wall_s if job.exit else time.monotonic() - job.started_at, 2),
    )
    data = outcome.model_dump(exclude=set() if job.exit else {"exit_code", "reason", "disk_full"})
    return ToolResult("\n".join(lines), is_error=bool(job.exit and job.exit.code != 0), data=data)


def _format_headline(job: ScriptJob, was_cancelled: bool, work: Path) -> str:
    if job.exit is None:
        return (
            f"Job {job.number} is still running after {time.monotonic() - job.started_at:.0f} s. "
            f"Wait on with run_script(job={job.number}); end it with run_script(job={job.number}, stop=true)."
        )
    if job.stop_reason:
        return f"Exit code {job.exit.code} after {job.exit.wall_s:.1f} s, stopped by m3b: {job.stop_reason}."
    return _describe_exit(job.exit, work) + (" because the run was cancelled." if was_cancelled else "")


def _describe_exit(exit_status: ExitStatus, work: Path) -> str:
    text = f"Exit code {exit_status.code} after {exit_status.wall_s:.1f} s"
    return text if exit_status.reason == "exit" else f"{text}, {_describe_exit_reason(exit_status.reason, work)}."
